"""Documents translated span by span: equal to one search, resumable from any span, with bounded memory."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from reference_search import DOCUMENTS, SHORT_LIMITS, SPECIALS, build

from docmt.core.errors import DocmtError
from docmt.core.settings import MANY
from docmt.decoding import SearchConfig, score_documents, translate_documents
from docmt.decoding import document_stream as document_stream
from docmt.decoding.document_stream import DocumentStream, translate_next
from docmt.decoding.drafter import Drafter
from docmt.decoding.repair import can_repair
from docmt.decoding.translation_results import ResumePoint
from variants import ONE_OF_EACH_ORDER, SYSTEMS, in_tiers, split_settings

LONG = [[5 + n % 20, 6 + n % 7, 7][: 1 + n % 3] if n % 6 else [] for n in range(15)]
TEXTS = [*DOCUMENTS, LONG, [[], []], [], [[25]] * 9]
SIZE = {"instance_tokens": 16, "encoder_layers": 2, "decoder_layers": 2}
"""Model options: instances of three or four sentences."""
TINY = {"beam": 2, "batch_tokens": 12, **SHORT_LIMITS}
"""Search options: a few sentences a batch."""
GREEDY = {"beam": 1, "batch_tokens": 12, **SHORT_LIMITS}

CASES = {
    **{name: (name, {**SIZE, **SYSTEMS[name]}, TINY) for name in ONE_OF_EACH_ORDER if name != "multihop"},
    "carried": ("group", SIZE, {**TINY, "overlap": 2}),
    "n best, carried": ("group", SIZE, {**TINY, "overlap": 2, "n_best": 2}),
    "n best, keep last": ("concat", {**SIZE, **SYSTEMS["concat, keep last"]}, {**TINY, "n_best": 2}),
    "n best, keep prefix": ("concat", {**SIZE, **SYSTEMS["concat, keep prefix"]}, {**TINY, "n_best": 2}),
}


def stream_spans(model, settings, **options):
    """Return all spans of the texts, in the lists in which they are yielded."""
    config, search_options = split_settings(settings)
    stream = DocumentStream(model, TEXTS, SPECIALS, config, **search_options, **{"look_ahead": 20, **options})
    return list(stream.translate())


def sentence_results(spans):
    """Return the results of every sentence, by document and number."""
    results = {}
    for span in spans:
        for number in range(span.last - span.first):
            key = span.document, span.first + number
            assert key not in results, "every sentence comes once"
            results[key] = [
                (hypothesis.sentences[number], hypothesis.sentence_tokens[number], number in hypothesis.at_limit)
                for hypothesis in span.hypotheses
            ]
    return results


def scores(spans):
    """Return scores in the order of documents, sentences and ranks."""
    return [
        scores
        for span in spans
        for scores in zip(*[hypothesis.sentence_scores for hypothesis in span.hypotheses], strict=True)
    ]


def flat(lists):
    return [span for spans in lists for span in spans]


@pytest.mark.parametrize("name", in_tiers(CASES, ["carried"]))
def test_spans_equal_one_search_and_resumed_streams(name, monkeypatch):
    """A resumed stream is bit-identical, as the batches are the same."""
    _, settings, search = CASES[name]
    model, (config, options) = build(3, **settings), split_settings(search)
    counts, history_sizes, forget = [], [], DocumentStream._forget

    def forgetting(self, instance):
        forget(self, instance)
        history_sizes.append(len(self._task.history._translations))

    monkeypatch.setattr(DocumentStream, "_forget", forgetting)
    lists = list(DocumentStream(model, TEXTS, SPECIALS, config, **options, look_ahead=20).translate(counts.append))
    assert max(history_sizes) <= 3, "only translations that a later instance sees"
    assert sum(counts) == sum(map(len, TEXTS))
    assert len(lists) > 6
    spans, (whole,) = flat(lists), stream_spans(model, search, look_ahead=None)
    assert sentence_results(spans) == sentence_results(whole)
    for span_scores, other in zip(scores(spans), scores(whole), strict=True):
        assert span_scores == pytest.approx(other, abs=1e-4)
    assert [span.document for span in whole] == list(range(len(TEXTS)))
    starts = [(span.document, span.first) for span in spans]
    assert starts == sorted(starts)
    assert {span.document: span.resume_point.sentences for span in spans} == dict(enumerate(map(len, TEXTS)))
    for number in (len(lists) // 2, len(lists) - 1, len(lists)):
        points = {span.document: span.resume_point for span in flat(lists[:number])}
        assert flat(stream_spans(model, search, resume_points=points)) == flat(lists[number:])


@pytest.mark.parametrize("name", in_tiers([*CASES, "one by one"], ["one by one"]))
def test_turns_equal_one_search(name):
    """A turn translates the next instances of all documents; what is done takes nothing of its tokens."""
    _, settings, search = CASES["concat, keep prefix" if name == "one by one" else name]
    search = {**search, "sequential": True} if name == "one by one" else search
    model, (config, options) = build(3, **settings), split_settings(search)
    points, spans, turns = {3: ResumePoint(0)}, [], 0

    def left():
        return [
            len(words) + 2
            for number, text in enumerate(TEXTS)
            for words in text[points[number].sentences if number in points else 0 :]
            if words
        ]

    def next_spans():
        stream = DocumentStream(model, TEXTS, SPECIALS, config, **options, resume_points=points)
        return [span for _, span in translate_next([stream], 20 + turns % 5)]

    while costs := left():
        new, turns = next_spans(), turns + 1
        points.update({span.document: span.resume_point for span in new})
        spans += new
        if name == "sentence":  # whose instances are sentences
            tokens = sum(costs) - sum(left())
            assert tokens <= 24 and (not left() or tokens > 10)
    assert next_spans() == [] and turns < 30
    assert sentence_results(spans) == sentence_results(flat(stream_spans(model, search, look_ahead=None)))


@pytest.mark.full
@pytest.mark.parametrize("name", in_tiers(SYSTEMS))
def test_a_document_continues_after_supplied_translations(name):
    """Greedy search after its own translations finds the same, wherever it begins, as no later choice changes."""
    model = build(3, **{**SIZE, **SYSTEMS[name]})
    texts = LONG[:14]
    drafts = [[[9] * len(words) for words in texts]] if model.system.context_spec().drafts else None
    config, options = split_settings(GREEDY)

    def run(**more):
        stream = DocumentStream(model, [texts], SPECIALS, config, **options, drafts=drafts, look_ahead=20, **more)
        return flat(stream.translate())

    def translate(**more):
        return sentence_results(run(**more))

    whole = translate()
    for count in (0, 5, 6, 7, len(texts)):
        history = [[whole[0, number][0][0]] for number in range(count) if texts[number]]
        rest = translate(resume_points={0: ResumePoint(count, history, is_supplied=True)})
        assert rest == {key: result for key, result in whole.items() if key[1] >= count}, count
    history = [[5 + number, 6] for number in range(7)]
    spans = run(resume_points={0: ResumePoint(9, [[words] for words in history], is_supplied=True)})
    rest = sentence_results(spans)
    edited = [history[sum(map(bool, texts[:number]))] if texts[number] else [] for number in range(9)]
    edited += [rest[0, number][0][0] for number in range(9, len(texts))]
    settings = {"drafts": drafts, "free_at_limit": True, **options}
    (scored,) = score_documents(model, [texts], [edited], SPECIALS, config, **settings)
    assert scored.sentence_scores[9:] == pytest.approx([score for (score,) in scores(spans)], abs=1e-4)
    with pytest.raises(ValueError, match="1 sentences have words, but 0 have a supplied translation"):
        translate(resume_points={0: ResumePoint(2, [], is_supplied=True)})


@pytest.mark.parametrize("name", in_tiers(["group", "carried", "concat, keep prefix", "sentence"], ["sentence"]))
def test_a_document_that_fails_does_not_stop_others(name, monkeypatch):
    _, settings, search = CASES[name]
    model, (config, options) = build(3, **settings), split_settings(search)
    bad, counts = TEXTS[3][13], []
    order = (
        "repair"
        if can_repair(model, config, options["context"], model.system.decoding_order)
        else model.system.decoding_order
    )
    original = document_stream.ORDERS[order]

    def failing(task, on_sentences):
        sentences = task.words.to_documents([0, len(task.words.lengths)])[0]
        if any(
            bad in sentences[first:last]
            for first, last in zip(task.instances.first_output, task.instances.last, strict=True)
        ):
            raise DocmtError("it is bad")
        return original(task, on_sentences)

    wanted = sentence_results(flat(stream_spans(model, search)))
    monkeypatch.setitem(document_stream.ORDERS, order, failing)
    stream = DocumentStream(model, TEXTS, SPECIALS, config, **options, look_ahead=60, yield_errors=True)
    spans = flat(stream.translate(counts.append))
    failed = {(span.document, n) for span in spans if span.error for n in range(span.first, span.last)}
    assert (3, 13) in failed and len(failed) < 9
    assert all(str(span.error) == "it is bad" and not span.hypotheses for span in spans if span.error)
    good = sentence_results([span for span in spans if not span.error])
    assert good.keys() | failed == wanted.keys()
    if name in ("group", "sentence"):  # where no other sentence sees the translation
        assert good == {key: value for key, value in wanted.items() if key not in failed}
    assert sum(counts) == sum(map(len, TEXTS))
    with pytest.raises(DocmtError, match="it is bad"):
        translate_documents(model, TEXTS, SPECIALS, config, **options)


def test_documents_that_cannot_be_cut():
    """With learned positions a sentence may be too long for the model."""
    model = build(3, system="sentence", position_encoding="learned", max_positions=24)
    (config, options), texts = split_settings(TINY), [DOCUMENTS[0], [[5], [6] * 30], [], DOCUMENTS[2]]
    spans = flat(
        DocumentStream(model, texts, SPECIALS, config, **options, look_ahead=20, yield_errors=True).translate()
    )
    (error,) = [span for span in spans if span.error]
    assert (error.document, error.first, error.last) == (1, 0, 2)
    assert str(error.error).startswith("sentence 2 of the document may need ")
    good = sentence_results(span for span in spans if not span.error)
    ranks = translate_documents(model, [texts[0], texts[3]], SPECIALS, config, **options)
    for document, (best,) in zip((0, 3), ranks, strict=True):
        assert [good[document, number][0][0] for number in range(len(best.sentences))] == best.sentences
    with pytest.raises(DocmtError, match="sentence 2 of the document may need "):
        DocumentStream(model, texts, SPECIALS, config)
    supplied = {1: ResumePoint(1, [[[9]]], is_supplied=True)}
    stream = DocumentStream(model, texts, SPECIALS, config, **options, resume_points=supplied, yield_errors=True)
    assert [str(span.error) for _, span in translate_next([stream], MANY) if span.error] == [str(error.error)]


@pytest.mark.parametrize("resume_point", [ResumePoint(2), ResumePoint(0, [[[5]]])])
def test_a_resume_point_between_instances_is_refused(resume_point):
    """Group instances of 16 tokens: no instance begins there, or none that sees a sentence."""
    model, (config, options) = build(3, **SIZE), split_settings(TINY)
    with pytest.raises(DocmtError, match=rf"document 4 cannot be resumed after sentence {resume_point.sentences}: "):
        DocumentStream(model, TEXTS, SPECIALS, config, **options, resume_points={3: resume_point})


@pytest.mark.parametrize("name", ["sentence", "concat, keep last", "concat, keep prefix"])
@pytest.mark.full
def test_drafts_are_translated_when_they_are_needed(name):
    drafting, inputs = build(1, **{**SIZE, **SYSTEMS[name]}), build(2, **{**SIZE, **SYSTEMS["multihop"]})
    config, options = split_settings(GREEDY)
    drafter = Drafter(drafting, SimpleNamespace(specials=SPECIALS), config, "float32", options["batch_tokens"])
    filled = [[sentence for sentence in document if sentence] for document in TEXTS]
    all_drafts = drafter.draft_documents(TEXTS)
    wanted = flat(stream_spans(inputs, GREEDY, drafts=all_drafts))
    calls = []

    def stream():
        drafts = drafter.stream_drafts(filled, 20)
        return lambda first, last: calls.append((first, last)) or drafts(first, last)

    lists = stream_spans(inputs, GREEDY, drafts=stream())
    assert flat(lists) == wanted
    words = [
        [word for span in spans for sentence in span.hypotheses[0].sentences for word in sentence] for spans in lists
    ]
    assert len(calls) == sum(map(bool, words)) > 6
    for number in (4, len(lists) - 1):
        points = {span.document: span.resume_point for span in flat(lists[:number])}
        assert flat(stream_spans(inputs, GREEDY, drafts=stream(), resume_points=points)) == flat(lists[number:])
    # A turn of a short document, and of a long one that is nearly done, drafts no sentence that it does not read.
    points = {span.document: span.resume_point for span in flat(lists)} | {0: ResumePoint(0)}
    points[3] = [span.resume_point for span in wanted if span.document == 3][-2]
    calls.clear()
    resumed = DocumentStream(inputs, TEXTS, SPECIALS, config, **options, drafts=stream(), resume_points=points)
    spans = [span for _, span in translate_next([resumed], 1000)]
    assert sentence_results(spans).items() <= sentence_results(wanted).items()
    assert {span.document for span in spans} == {0, 3} and len(calls) == 2
    assert sum(last - first for first, last in calls) < len(filled[0]) + len(filled[3])


@pytest.mark.full
def test_instances_of_similar_length_are_yielded_batch_by_batch():
    """Sorting them gains nothing, so finished ones need not wait for the others."""
    model = build(3, **SIZE)
    alike, unequal = [[[5, 6, 7]] * 3] * 12, [[[5] * (1 + 11 * (n % 2))] for n in range(12)]
    search = SearchConfig(beam=1, **SHORT_LIMITS)

    def batches(documents, search):
        stream = DocumentStream(model, documents, SPECIALS, search, batch_tokens=45, look_ahead=1000)
        return [[span.document for span in spans] for spans in stream.translate()]

    assert batches(alike, search) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    assert batches(unequal, search) == [list(range(12))]
    # In published searches limits are those of the longest of a batch.
    assert batches(alike, replace(search, implementation="gtransformer")) == [list(range(12))]


@pytest.mark.full
def test_the_first_sentences_of_a_long_document_come_early():
    """Batches of published searches change results, so these wait."""
    model, document = build(3, **SIZE), [[5 + number % 20, 6, 7] for number in range(150)]
    search = SearchConfig(beam=1, **SHORT_LIMITS)

    def spans(search, look_ahead=10_000):
        return flat(DocumentStream(model, [document], SPECIALS, search, look_ahead=look_ahead).translate())

    early = spans(search)
    assert [span.first for span in early] == [0, 51]  # 256 source tokens, then the rest
    assert sentence_results(early) == sentence_results(spans(search, None))
    assert len(spans(replace(search, implementation="gtransformer"))) == 1


@pytest.mark.full
def test_windows_are_translated_as_the_search_says():
    """The window mode of the model does not matter."""
    for name in ("concat, keep last", "concat, keep prefix"):
        model = build(3, **SIZE, **SYSTEMS[name])
        ways = {"last": "concat, keep last", "prefix": "concat, keep prefix"}
        for keep, trained in ways.items():
            expected = stream_spans(build(3, **SIZE, **SYSTEMS[trained]), TINY)
            assert sentence_results(flat(stream_spans(model, {"window_decoding": keep, **TINY}))) == sentence_results(
                flat(expected)
            )
    with pytest.raises(
        DocmtError, match=r"context\.window_decoding is for systems that translate windows .*, not for this group"
    ):
        stream_spans(build(3, **SIZE), {"window_decoding": "last"})
