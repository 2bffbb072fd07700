"""Documents translated piece by piece: the same as all at once, from any piece on, with no more kept than is seen."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from plain_search import DOCUMENTS, SHORT, SPECIALS, build

from docmt.core.errors import DocmtError
from docmt.decoding import SearchConfig, scheduler, translate_documents
from docmt.decoding import stream as streams
from docmt.decoding.drafting import Drafter
from docmt.decoding.stream import Stream
from docmt.decoding.translation import ResumePoint
from variants import ONE_OF_EACH_ORDER, SYSTEMS, split_settings

LONG = [[5 + n % 20, 6 + n % 7, 7][: 1 + n % 3] if n % 6 else [] for n in range(20)]
TEXTS = [*DOCUMENTS, LONG, [[], []], [], [[25]] * 9]
SIZE = {"instance_tokens": 16, "encoder_layers": 2, "decoder_layers": 2}
"""Of the model: instances of three or four sentences."""
TINY = {"beam": 2, "batch_tokens": 12, **SHORT}
"""Of the search: a few sentences a batch."""
GREEDY = {"beam": 1, "batch_tokens": 12, **SHORT}

CASES = {
    **{name: (name, {**SIZE, **SYSTEMS[name]}, TINY) for name in ONE_OF_EACH_ORDER if name != "multihop"},
    "carried": ("group", SIZE, {**TINY, "overlap": 2}),
    "n best, carried": ("group", SIZE, {**TINY, "overlap": 2, "n_best": 2}),
    "n best, keep last": ("concat", {**SIZE, **SYSTEMS["concat, keep last"]}, {**TINY, "n_best": 2}),
    "n best, keep prefix": ("concat", {**SIZE, **SYSTEMS["concat, keep prefix"]}, {**TINY, "n_best": 2}),
}


def in_tiers(names, *quick):
    """The names as parameters; all but the quick ones run in `make test-all`."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.full) for name in names]


def pieces(model, settings, **options):
    """All stretches of the texts, in the lists in which they come."""
    config, how = split_settings(settings)
    stream = Stream(model, TEXTS, SPECIALS, config, **how, **{"look_ahead": 20, **options})
    return list(stream.stretches())


def facts(stretches):
    """What is said of every sentence, by document and number."""
    found = {}
    for stretch in stretches:
        for number in range(stretch.last - stretch.first):
            key = stretch.document, stretch.first + number
            assert key not in found, "every sentence comes once"
            found[key] = [
                (own.sentences[number], own.sentence_tokens[number], number in own.at_limit) for own in stretch.ranks
            ]
    return found


def scores(stretches):
    """In the order of documents, sentences and ranks."""
    return [
        scores for stretch in stretches for scores in zip(*[own.sentence_scores for own in stretch.ranks], strict=True)
    ]


def flat(lists):
    return [stretch for together in lists for stretch in together]


@pytest.mark.parametrize(
    "name", in_tiers(CASES, "n best, keep last", "concat, keep prefix", "carried", "sentence", "document")
)
def test_the_same_as_all_at_once_and_from_any_piece_on(name, monkeypatch):
    """On from a piece it is the same bit for bit, as the batches are the same."""
    _, settings, search = CASES[name]
    model, (config, how) = build(3, **settings), split_settings(search)
    told, kept, forget = [], [], Stream._forget

    def forgetting(self, instance):
        forget(self, instance)
        kept.append(len(self._task.history._ranks))

    monkeypatch.setattr(Stream, "_forget", forgetting)
    lists = list(Stream(model, TEXTS, SPECIALS, config, **how, look_ahead=20).stretches(told.append))
    assert max(kept) <= 3, "no more translations than are still seen"
    assert sum(told) == sum(map(len, TEXTS))
    assert len(lists) > 6
    found, (whole,) = flat(lists), pieces(model, search, look_ahead=None)
    assert facts(found) == facts(whole)
    for own, other in zip(scores(found), scores(whole), strict=True):
        assert own == pytest.approx(other, abs=1e-4)
    assert [stretch.document for stretch in whole] == list(range(len(TEXTS)))
    reached = [(stretch.document, stretch.first) for stretch in found]
    assert reached == sorted(reached)
    assert {stretch.document: stretch.reached.sentences for stretch in found} == dict(enumerate(map(len, TEXTS)))
    for number in (len(lists) // 2, len(lists) - 1, len(lists)):
        done = {stretch.document: stretch.reached for stretch in flat(lists[:number])}
        assert flat(pieces(model, search, done=done)) == flat(lists[number:])


@pytest.mark.parametrize(
    "name", in_tiers(["group", "carried", "concat, keep prefix", "sentence"], "carried", "sentence")
)
def test_what_cannot_be_translated_stops_nothing_else(name, monkeypatch):
    _, settings, search = CASES[name]
    model, (config, how) = build(3, **settings), split_settings(search)
    bad, told = TEXTS[3][13], []
    original = scheduler.ORDERS[model.system.order]

    def failing(task, on_sentences):
        sentences = task.words.documents([0, len(task.words.lengths)])[0]
        if any(bad in sentences[own:last] for own, last in zip(task.instances.own, task.instances.last, strict=True)):
            raise DocmtError("it is bad")
        return original(task, on_sentences)

    wanted = facts(flat(pieces(model, search)))
    monkeypatch.setitem(streams.ORDERS, model.system.order, failing)
    stream = Stream(model, TEXTS, SPECIALS, config, **how, look_ahead=60, lenient=True)
    found = flat(stream.stretches(told.append))
    failed = {(own.document, n) for own in found if own.error for n in range(own.first, own.last)}
    assert (3, 13) in failed and len(failed) < 9
    assert all(str(own.error) == "it is bad" and not own.ranks for own in found if own.error)
    good = facts([own for own in found if not own.error])
    assert good.keys() | failed == wanted.keys()
    if name in ("group", "sentence"):  # where others do not see what was said
        assert good == {key: value for key, value in wanted.items() if key not in failed}
    assert sum(told) == sum(map(len, TEXTS))
    with pytest.raises(DocmtError, match="it is bad"):
        translate_documents(model, TEXTS, SPECIALS, config, **how)


def test_documents_that_cannot_be_cut():
    """With learned positions a sentence may be too long for the model."""
    model = build(3, system="sentence", position_encoding="learned", max_positions=24)
    (config, how), texts = split_settings(TINY), [DOCUMENTS[0], [[5], [6] * 30], [], DOCUMENTS[2]]
    found = flat(Stream(model, texts, SPECIALS, config, **how, look_ahead=20, lenient=True).stretches())
    (error,) = [own for own in found if own.error]
    assert (error.document, error.first, error.last) == (1, 0, 2)
    assert str(error.error).startswith("sentence 2 of the document may need ")
    good = facts(own for own in found if not own.error)
    ranks = translate_documents(model, [texts[0], texts[3]], SPECIALS, config, **how)
    for document, (best,) in zip((0, 3), ranks, strict=True):
        assert [good[document, number][0][0] for number in range(len(best.sentences))] == best.sentences
    with pytest.raises(DocmtError, match="sentence 2 of the document may need "):
        Stream(model, texts, SPECIALS, config)


@pytest.mark.parametrize("reached", [ResumePoint(2), ResumePoint(0, [[[5]]])])
def test_a_place_where_nothing_was_interrupted(reached):
    """Group instances of 16 tokens: none begins there, or none that sees a sentence."""
    model, (config, how) = build(3, **SIZE), split_settings(TINY)
    with pytest.raises(DocmtError, match=rf"document 4 cannot go on after sentence {reached.sentences}, "):
        Stream(model, TEXTS, SPECIALS, config, **how, done={3: reached})


@pytest.mark.parametrize(
    "name", in_tiers(["sentence", "concat, keep last", "concat, keep prefix"], "concat, keep prefix")
)
def test_drafts_are_made_when_they_are_needed(name):
    drafting, inputs = build(1, **{**SIZE, **SYSTEMS[name]}), build(2, **{**SIZE, **SYSTEMS["multihop"]})
    config, how = split_settings(GREEDY)
    drafter = Drafter(drafting, SimpleNamespace(specials=SPECIALS), config, "float32", how["batch_tokens"])
    filled = [[sentence for sentence in document if sentence] for document in TEXTS]
    given = drafter.drafts(TEXTS)
    wanted = flat(pieces(inputs, GREEDY, drafts=given))
    asked = []

    def stream():
        drafts = drafter.stream(filled, 20)
        return lambda first, last: asked.append((first, last)) or drafts(first, last)

    lists = pieces(inputs, GREEDY, drafts=stream())
    assert flat(lists) == wanted
    words = [[word for own in together for said in own.ranks[0].sentences for word in said] for together in lists]
    assert len(asked) == sum(map(bool, words)) > 6
    for number in (4, len(lists) - 1):
        done = {stretch.document: stretch.reached for stretch in flat(lists[:number])}
        assert flat(pieces(inputs, GREEDY, drafts=stream(), done=done)) == flat(lists[number:])


def test_instances_of_like_length_are_given_out_batch_by_batch():
    """Sorting them gains nothing, so that what is finished need not wait for the others."""
    model = build(3, **SIZE)
    alike, others = [[[5, 6, 7]] * 3] * 12, [[[5] * (1 + 11 * (n % 2))] for n in range(12)]
    search = SearchConfig(beam=1, **SHORT)

    def batches(documents, search):
        stream = Stream(model, documents, SPECIALS, search, batch_tokens=45, look_ahead=1000)
        return [[own.document for own in together] for together in stream.stretches()]

    assert batches(alike, search) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    assert batches(others, search) == [list(range(12))]
    # In published searches limits are those of the longest of a batch.
    assert batches(alike, replace(search, implementation="gtransformer")) == [list(range(12))]


@pytest.mark.full
def test_windows_are_translated_as_the_search_says():
    """Whatever the model was made for."""
    for name in ("concat, keep last", "concat, keep prefix"):
        own = build(3, **SIZE, **SYSTEMS[name])
        ways = {"last": "concat, keep last", "prefix": "concat, keep prefix"}
        for keep, other in ways.items():
            expected = pieces(build(3, **SIZE, **SYSTEMS[other]), TINY)
            assert facts(flat(pieces(own, {"window": keep, **TINY}))) == facts(flat(expected))
    with pytest.raises(
        DocmtError, match=r"context\.window is for systems that translate windows .*, not for this group"
    ):
        pieces(build(3, **SIZE), {"window_decoding": "last"})
