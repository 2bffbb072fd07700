"""Output cache: its probabilities, a reference search that mixes them by definition, independence, and refusals."""

import logging
import math
from dataclasses import replace

import pytest
import reference_search
import torch
from reference_search import DOCUMENTS, SHORT_LIMITS, SPECIALS, ReferenceRow, build, make_drafts
from test_stream import LONG, TEXTS, flat, in_two_tiers, sentence_results

from docmt.core.errors import DocmtError
from docmt.decoding import SearchConfig, document_stream, output_cache
from docmt.decoding.document_stream import DocumentStream
from docmt.decoding.ensembles import Ensemble
from docmt.decoding.output_cache import CacheReader, OutputCache, mix_logits
from docmt.decoding.scheduler import Task
from docmt.decoding.translation_results import ResumePoint
from variants import ONE_OF_EACH_ORDER, SYSTEMS

SIZE = {"instance_sentences": 2}
CACHED = SearchConfig(beam=3, cache_weight=0.3, cache_sharpness=7.0, **SHORT_LIMITS)
WITHOUT = replace(CACHED, cache_weight=0.0, cache_sharpness=20.0)
# Sentences that come again, so that the cache has something to say.
SOURCES = [*DOCUMENTS, [[5, 6, 7], [8, 9], [5, 6, 7], [8, 9], [5, 6, 7], [10]], [[21, 22]] * 4]
EACH = [*ONE_OF_EACH_ORDER, "flat"]


def translate(model, documents, config, **settings):
    return reference_search.translate_documents(model, documents, SPECIALS, config, **settings)


def best(ranks):
    return [hypotheses[0].sentences for hypotheses in ranks]


def test_probabilities_by_hand():
    """Two slots of word 2 and one of word 3, which together have 0.4 of all probability."""
    p = torch.tensor([[0.5, 0.3, 0.1, 0.1]])
    attention, words = torch.tensor([[0.25, 0.5, 0.25]]), torch.tensor([[2, 2, 3]])
    mixed = mix_logits(p.log() + 5, attention, words, 0.4)
    torch.testing.assert_close(mixed.softmax(-1), torch.tensor([[0.3, 0.18, 0.06 + 0.4 * 0.75, 0.06 + 0.4 * 0.25]]))
    assert torch.equal(mixed[:, :2], p.log()[:, :2] + 5)


@pytest.mark.parametrize("weight", [0.01, 0.5, 0.99])
def test_probabilities_sum_to_one_and_words_outside_keep_their_share(weight):
    torch.manual_seed(1)
    logits, words = 6 * torch.randn(5, 40), torch.randint(20, (5, 30))
    attention = (9 * torch.randn(5, 30)).softmax(-1)
    before = logits.clone()
    p, mixed = logits.softmax(-1), mix_logits(logits, attention, words, weight).softmax(-1)
    torch.testing.assert_close(mixed.sum(-1), torch.ones(5))
    torch.testing.assert_close(mixed[:, 20:], (1 - weight) * p[:, 20:])
    cached = torch.zeros_like(p).scatter_add_(1, words, attention)
    torch.testing.assert_close(mixed, (1 - weight) * p + weight * cached)
    assert torch.equal(logits, before)
    assert mix_logits(logits.bfloat16(), attention, words, weight).dtype == torch.float32


def test_weights_of_slots_by_hand():
    """The first search row has two slots at cosines 0.6 and 0.8, the second has none, and the third has one."""
    slots = OutputCache(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([4, 6]))
    caches = [slots, None, OutputCache(torch.tensor([[1.0, 0.0]]), torch.tensor([5]))]
    reader = CacheReader(caches, SearchConfig(beam=2, cache_weight=0.5, cache_sharpness=10.0))
    reader.read_states([torch.tensor([[3.0, 4.0], [30.0, 40.0]] * 3)])
    first = math.exp(6) / (math.exp(6) + math.exp(8))
    expected = torch.tensor([[first, 1 - first]] * 2 + [[0.0, 0.0]] * 2 + [[1.0, 0.0]] * 2)
    torch.testing.assert_close(reader.attention, expected)
    logits = torch.randn(6, 9)
    mixed = reader.mix(logits, slice(None))
    assert torch.equal(mixed[2:4], logits[2:4]), "no slots: the model alone, to the last bit"
    assert torch.equal(mixed[[1, 4]], reader.mix(logits[[1, 4]], torch.tensor([1, 4])))
    torch.testing.assert_close(mixed[0].softmax(-1)[6], logits[0].softmax(-1)[6] / 2 + (1 - first) / 2)
    torch.testing.assert_close(mixed[4].softmax(-1)[5], logits[4].softmax(-1)[5] / 2 + 0.5)


def test_a_rare_word_becomes_likelier():
    logits = torch.zeros(1, 1000)
    logits[0, 7] = -9.0
    mixed = mix_logits(logits, torch.tensor([[0.9, 0.1]]), torch.tensor([[7, 8]]), 0.1)
    assert logits.softmax(-1)[0, 7] < 1e-6 and mixed.softmax(-1)[0, 7] == pytest.approx(0.09, abs=1e-3)


class ReferenceCache:
    """Cache by its definition, without batches: each state is that of a full pass."""

    def __init__(self, config):
        self.config, self.slots, self.scores = config, [], []

    def score_next(self, model, row, tokens):
        states = reference_search.compute_states(model, row, tokens)
        p = reference_search.score_states(model, states).exp()
        if self.slots:
            cosines = torch.stack([make_key(states) @ key for key, _ in self.slots])
            p = (1 - self.config.cache_weight) * p
            for weight, (_, word) in zip((self.config.cache_sharpness * cosines).softmax(0), self.slots, strict=True):
                p[word] += self.config.cache_weight * weight
        return p.log()

    @torch.no_grad()
    def search(self, model, row):
        """Return the tokens of a row, whose words become slots unless a later row decides on them."""
        score, tokens = reference_search.reference_beam_search(model, row, self.config)[0]
        self.scores += [score] * (len(row.aligned) if model.system.decoding_order == "documents" else 1)
        openings = [number + 1 for number, token in enumerate(tokens) if token == SPECIALS.bos]
        keeps_last = model.system.decoding_order in ("windows", "sequential")
        for number in range(openings[-1] if openings and keeps_last else 0, len(tokens)):
            if tokens[number] not in (SPECIALS.bos, SPECIALS.eos, SPECIALS.eod):
                states = reference_search.compute_states(model, row, tokens[:number])
                self.slots.append((make_key(states), tokens[number]))
        self.slots = self.slots[-self.config.cache_tokens :]
        return tokens


def make_key(states):
    """Return a vector of length 1, so that the product of two is the mean cosine of the members."""
    return torch.cat([state / state.norm() for state in states]) / len(states) ** 0.5


def reference_translation(model, document, cache):
    """Return the translations by the reference search; instances of the order "documents" are searched in turn."""
    if model.system.decoding_order != "documents":
        return reference_search.reference_translation(model, document, lambda row: cache.search(model, row))
    instances = Task.from_documents(model, [document], SPECIALS, cache.config).instances
    translations = []
    for first, last in zip(instances.first.tolist(), instances.last.tolist(), strict=True):
        sentences = reference_search.split_words(cache.search(model, ReferenceRow.whole(document[first:last])))
        surplus = [word for sentence in sentences[last - first :] for word in sentence]
        sentences = [*sentences[: last - first], *[[]] * (last - first - len(sentences))]
        translations += [*sentences[:-1], sentences[-1] + surplus]
    return translations


@pytest.mark.parametrize("beam", [pytest.param(1, marks=pytest.mark.full), 3])
@pytest.mark.parametrize(
    "name", in_two_tiers([*EACH, "twins"], "group", "sentence", "document", "concat, keep prefix", "twins")
)
def test_translations_equal_a_reference_search_with_the_cache(name, beam, monkeypatch):
    """The same sentences, and scores of the search. Windows have three sentences, other instances two."""
    settings = {**({} if "concat" in name else SIZE), **SYSTEMS["context" if name == "twins" else name]}
    seeds = (5, 6) if name == "twins" else (7 if name == "flat" else 5,)  # where the cache decides
    models = [build(seed, **settings) for seed in seeds]
    model = Ensemble(models) if name == "twins" else models[0]
    config, changed = replace(CACHED, beam=beam, cache_tokens=9), False
    sources = SOURCES[::3]
    plain = best(translate(model, sources, WITHOUT))
    for document, without, ranks in zip(sources, plain, translate(model, sources, config), strict=True):
        cache = ReferenceCache(config)
        monkeypatch.setattr(reference_search, "score_next", cache.score_next)
        assert ranks[0].sentences == reference_translation(model, document, cache)
        assert ranks[0].rank_scores == pytest.approx(cache.scores, abs=1e-4)
        changed |= ranks[0].sentences != without
    assert changed, "the cache matters"


@pytest.mark.parametrize("name", in_two_tiers(EACH, "group", "sentence", "concat, keep prefix", "context"))
def test_documents_do_not_see_each_other(name):
    """In one batch, in small batches, and alone: the same sentences, with the model's own scores."""
    model = build(4, **{**SIZE, **SYSTEMS[name]})
    config = replace(CACHED, n_best=2)
    together = translate(model, SOURCES, config)
    assert best(together) == best(translate(model, SOURCES, config, batch_tokens=12))
    scored = reference_search.score_documents(model, SOURCES, best(together), SPECIALS, config)
    for source, ranks, scores in zip(SOURCES, together, scored, strict=True):
        (alone,) = translate(model, [source], config)
        assert [each.sentences for each in alone] == [each.sentences for each in ranks]
        assert [each.rank_scores for each in alone] == [pytest.approx(each.rank_scores, abs=1e-4) for each in ranks]
        assert len(ranks) == 2 and not ranks[0].word_states
        assert ranks[0].sentence_scores == pytest.approx(scores.sentence_scores, abs=1e-4)
        assert ranks[0].score == pytest.approx(scores.score, abs=1e-4)


@pytest.mark.parametrize("name", in_two_tiers(EACH, "sentence", "concat, keep prefix"))
def test_no_cache_and_empty_caches_are_the_model(name, monkeypatch):
    """To the last bit; with a weight of 0, nothing of the cache is called."""
    model = build(5, **{**SIZE, **SYSTEMS[name]})
    single = [[words] for document in SOURCES for words in document[:2]]
    with monkeypatch.context() as patched:
        for function in ("mix_logits", "extend_cache", "split_states"):
            patched.delattr(output_cache, function)
        patched.delattr(CacheReader, "__init__")
        wanted = translate(model, single, WITHOUT)
    results = translate(model, single, CACHED)
    assert [ranks[0].rank_scores for ranks in results] == [ranks[0].rank_scores for ranks in wanted]
    assert best(results) == best(wanted)


@pytest.mark.parametrize(("name", "idle"), [("group", 3), ("document", 3), ("sentence", 0), ("context", 0)])
def test_documents_of_one_instance_are_told(name, idle, caplog):
    """The option had no effect on them, and nothing said so."""
    model = build(**SYSTEMS[name])
    with caplog.at_level(logging.WARNING):
        translate(model, [*DOCUMENTS, [[5, 6], [7]]], CACHED)
    start = f"search.cache_weight has no effect on {idle} of 4 documents: each is one instance, and the cache has"
    assert [message.startswith(start) for message in caplog.messages] == [True] * bool(idle)
    caplog.clear()
    translate(model, DOCUMENTS, WITHOUT)
    assert not caplog.messages


def test_a_sentence_that_comes_again_gets_a_higher_score():
    model = build(1, **SYSTEMS["sentence"])
    config = replace(CACHED, beam=1, cache_weight=0.2, cache_sharpness=200.0)
    ((hypothesis,),) = translate(model, [[[5, 6, 7]] * 3], config)
    assert hypothesis.sentences[0] == hypothesis.sentences[1] == hypothesis.sentences[2]
    first, *later = hypothesis.rank_scores
    assert min(later) > first + 0.05
    assert hypothesis.sentence_scores == pytest.approx([hypothesis.sentence_scores[0]] * 3, abs=1e-5)


def stream(model, config, texts=TEXTS, **options):
    drafts = make_drafts(texts) if model.system.context_spec().drafts else None
    settings = {"batch_tokens": 12, "look_ahead": 20, "drafts": drafts, **options}
    return DocumentStream(model, texts, SPECIALS, config, **settings)


@pytest.mark.parametrize("name", in_two_tiers(EACH, "group", "context", "concat, keep last"))
def test_streamed_parts_equal_one_search_and_caches_are_forgotten(name, monkeypatch):
    model, config = build(6, **{**SIZE, **SYSTEMS[name]}), replace(CACHED, cache_tokens=12)
    streamed, sizes, forget = stream(model, config), [], DocumentStream._forget

    def forgetting(self, instance):
        forget(self, instance)
        sizes.append([len(cache.words) for cache in self._task.caches.values()])

    monkeypatch.setattr(DocumentStream, "_forget", forgetting)
    spans = flat(streamed.spans())
    assert sentence_results(spans) == sentence_results(flat(stream(model, config, look_ahead=None).spans()))
    assert [12] in sizes and max(map(len, sizes)) == 1 and sizes[-1] == []


@pytest.mark.parametrize("name", in_two_tiers(["sentence", "group"], "sentence"))
def test_a_search_that_fails_leaves_nothing_in_the_caches(name, monkeypatch):
    """A document that fails after the search of its batch: the others are searched again, as before."""
    model, bad = build(6, **{**SIZE, **SYSTEMS[name]}), SOURCES[2][3]
    wanted = sentence_results(flat(stream(model, CACHED, SOURCES).spans()))
    order = model.system.decoding_order
    original = document_stream.ORDERS[order]

    def failing(task, on_sentences):
        results = original(task, on_sentences)
        if bad in task.words.to_documents([0, len(task.words.lengths)])[0]:
            raise DocmtError("it is bad")
        return results

    monkeypatch.setitem(document_stream.ORDERS, order, failing)
    spans = flat(stream(model, CACHED, SOURCES, look_ahead=100, yield_errors=True).spans())
    assert {span.document for span in spans if span.error} == {2}
    good = sentence_results(span for span in spans if not span.error and span.document != 2)
    assert good == {key: value for key, value in wanted.items() if key[0] != 2}


@pytest.mark.parametrize("name", in_two_tiers(["sentence", "group", "concat, keep prefix"], "sentence"))
def test_a_document_translated_in_part_is_refused(name):
    """One that is finished, or not begun, is not."""
    model = build(6, **{**SIZE, **SYSTEMS[name]})
    finished, begun = ResumePoint(len(LONG)), ResumePoint(1)  # the first sentence of LONG is empty
    assert not LONG[0]
    for point in (finished, begun):
        assert flat(stream(model, CACHED, [LONG, SOURCES[0]], resume_points={0: point}).spans())
    points = [span.resume_point for span in stream(model, CACHED, [LONG]).next_spans()]
    supplied = ResumePoint(2, [[[7]]], is_supplied=True)
    for point in (*points, supplied):
        with pytest.raises(DocmtError, match=r"document 1 cannot be continued after .* with search\.cache_weight: "):
            stream(model, CACHED, [LONG], resume_points={0: point})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache_weight": 0.1, "rounds": 2}, "cache_weight has no effect with search.rounds"),
        ({"cache_weight": 0.1, "implementation": "rfa"}, "cache_weight has no effect with search.implementation rfa"),
        ({"cache_tokens": 100}, "cache_tokens has no effect without search.cache_weight"),
        ({"cache_sharpness": 1.0}, "cache_sharpness has no effect without search.cache_weight"),
        ({"cache_weight": 1.0}, "cache_weight is 1.0: choose a number from 0 to 0.99"),
    ],
)
def test_options_without_effect_are_refused(options, message):
    with pytest.raises(DocmtError, match=message.replace(".", r"\.")):
        SearchConfig(**options)
