"""Sentences searched again after a given beginning: the beginning of a translation leads back to it."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from test_prefixes import SHORT_LIMITS, VOCABULARY, build, documents, open_gates

from docmt.decoding import ContextConfig, SearchConfig, score_documents, translate_documents
from docmt.decoding.alignment import align_documents, default_alignment_layer
from docmt.decoding.ensembles import combine_context_specs
from docmt.decoding.incremental import can_share_prefixes
from docmt.decoding.openings import Opening, OpeningSearch
from docmt.decoding.search_config import BATCH_TOKENS
from docmt.decoding.search_rules import choose_order
from docmt.text import SpecialTokens
from variants import CONVENTIONS, FRAMED, JOINED, SYSTEMS, in_tiers

SPECIALS = SpecialTokens(VOCABULARY)
VARIANTS = {name: SYSTEMS[name] for name in FRAMED} | CONVENTIONS | JOINED
FIRST, WORDS = 5, VOCABULARY - 7  # ids that are no special tokens
GREEDY = SearchConfig(beam=1, **SHORT_LIMITS)


class Case(NamedTuple):
    """Documents with the greedy translations of a random model."""

    model: Any
    sources: list[list[list[int]]]
    translations: list[list[list[int]]]
    drafts: dict[str, Any]

    def begin(self, make):
        """Return the opening that a function makes of each sentence with two words or more."""
        return [
            Opening(document, number, *make(words))
            for document, sentences in enumerate(self.translations)
            for number, words in enumerate(sentences)
            if len(words) > 1
        ]

    def search(self, openings, config=GREEDY):
        assert openings
        return zip(openings, self.read().search(self.translations, openings, config), strict=True)

    def read(self, batch_tokens=BATCH_TOKENS):
        settings = {"context": ContextConfig(), "batch_tokens": batch_tokens}
        settings["layers"] = [default_alignment_layer(self.model)]
        return OpeningSearch(self.model, self.sources, SPECIALS, GREEDY, **settings, **self.drafts)

    def score(self, opening, words):
        """Return the score of another translation of a sentence, in its document."""
        target = [list(each) for each in self.translations[opening.document]]
        target[opening.sentence] = words
        targets = [*self.translations[: opening.document], target, *self.translations[opening.document + 1 :]]
        results = score_documents(
            *(self.model, self.sources, targets, SPECIALS, GREEDY), free_at_limit=True, **self.drafts
        )
        return pytest.approx(results[opening.document].sentence_scores[opening.sentence], abs=1e-4)


@pytest.fixture(scope="module", params=in_tiers(VARIANTS, ["group", "concat, keep prefix", "hierarchical", "sentence"]))
def translated(request):
    """A random model with documents, one of which has an empty sentence, and their greedy translations."""
    model = open_gates(build(5, **VARIANTS[request.param]))
    sources = documents(6, count=3, sentences=4)
    sources[1].insert(1, [])
    drafts = {"drafts": [list(map(list, each)) for each in sources]} if combine_context_specs(model).drafts else {}
    results = translate_documents(model, sources, SPECIALS, GREEDY, **drafts)
    return Case(model, sources, [each.sentences for (each,) in results], drafts)


@pytest.mark.parametrize(
    "make",
    [
        lambda words: (words[: len(words) // 2],),
        lambda words: (words,),
        lambda words: ([*words[: len(words) // 2], -1],),
        lambda words: ([-1] * len(words),),
    ],
    ids=["half", "whole", "free word", "free words"],
)
def test_the_beginning_of_a_translation_leads_back_to_it(translated, make):
    """Windows are translated anew, with other beginnings; there the score is compared only."""
    is_windowed = choose_order(translated.model, GREEDY, ContextConfig()) == "windows"
    for opening, (hypothesis,) in translated.search(translated.begin(make)):
        words = translated.translations[opening.document][opening.sentence]
        assert hypothesis.sentences == [words] or is_windowed
        assert hypothesis.sentence_scores[0] == translated.score(opening, hypothesis.sentences[0])


def test_an_opening_that_stops_is_the_whole_translation(translated, monkeypatch):
    """Read in one pass, where the system can, or token by token."""
    search = SearchConfig(beam=3, n_best=3, **SHORT_LIMITS)
    openings = translated.begin(lambda words: ([*words[:1], -1, words[1], -1], True))
    found = list(translated.search(openings, search))
    for opening, hypotheses in found:
        sentences = [each.sentences[0] for each in hypotheses]
        assert [words[0] for words in sentences] == [opening.words[0]] * 3
        assert [words[2] for words in sentences] == [opening.words[2]] * 3
        assert len({tuple(words) for words in sentences}) == 3 and {len(words) for words in sentences} == {4}
    monkeypatch.setattr("docmt.decoding.beam_search.can_read_prefixes", lambda model: False)
    for (_, hypotheses), (_, expected) in zip(found, translated.search(openings, search), strict=True):
        assert [each.sentences for each in hypotheses] == [each.sentences for each in expected]
        scores = [each.sentence_scores[0] for each in expected]
        assert [each.sentence_scores[0] for each in hypotheses] == pytest.approx(scores, abs=1e-4)


def test_another_beginning_has_the_score_of_its_sentence(translated):
    openings = translated.begin(lambda words: ([(words[0] + 1 - FIRST) % WORDS + FIRST, -1],))
    for opening, (hypothesis,) in translated.search(openings, SearchConfig(beam=3, **SHORT_LIMITS)):
        assert hypothesis.sentences[0][0] == opening.words[0]
        assert hypothesis.sentence_scores[0] == translated.score(opening, hypothesis.sentences[0])


def test_open_rules_have_no_openings():
    model = build(5, **SYSTEMS["document"])
    assert OpeningSearch(model, [[[9, 10]]], SPECIALS, GREEDY).search([[[9]]], [Opening(0, 0, [9])], GREEDY) == [[]]


def test_searches_of_one_text_share_its_source(translated, monkeypatch):
    """Later searches find the same as a first one does, with other translations before a sentence as well."""
    openings = translated.begin(lambda words: (words[:1], True))
    others = [[[*words, FIRST] if words else [] for words in document] for document in translated.translations]
    search, batches = translated.read(), []
    compute = translated.model.compute_memories
    monkeypatch.setattr(translated.model, "compute_memories", lambda inputs: batches.append(1) or compute(inputs))
    found = [search.search(*each, GREEDY) for each in ((translated.translations, openings[:1]), (others, openings))]
    assert len(batches) <= 2
    for each, targets in zip(found, (translated.translations, others), strict=True):
        expected = translated.read().search(targets, openings[: len(each)], GREEDY)
        for (one,), (other,) in zip(each, expected, strict=True):
            assert one.sentences == other.sentences
            assert one.sentence_scores == pytest.approx(other.sentence_scores, abs=1e-4)
            assert list(one.token_losses[0]) == pytest.approx(list(other.token_losses[0]), abs=1e-4)


def test_translations_before_a_sentence_are_read_once(translated, monkeypatch):
    """The decoder reads the translations of a text, and then nothing but openings."""
    model = translated.model
    if not can_share_prefixes(model) or choose_order(model, GREEDY, ContextConfig()) != "documents":
        pytest.skip("openings share nothing, or instances overlap")
    search, openings, tokens = translated.read(), translated.begin(lambda words: (words, True)), [0]
    decode = model.decode
    monkeypatch.setattr(model, "decode", lambda x, context: tokens.append(len(x)) or decode(x, context))
    frame = sum(model.boundary_tokens.counts("target"))
    added = sum(len(opening.words) + frame for opening in openings)
    whole = sum(len(words) + frame for document in translated.translations for words in document)
    search.search(translated.translations, openings, GREEDY)
    assert sum(tokens) <= whole + added
    tokens.clear()
    search.search(translated.translations, openings, GREEDY)
    assert sum(tokens) == added


def test_openings_with_one_beginning_have_the_scores_of_each_alone(translated):
    """Words that several openings of a sentence have in common are scored once."""
    openings = translated.begin(lambda words: (words, True))
    rows = [each._replace(words=words) for each in openings for words in (each.words, each.words[:1], each.words)]
    found = [hypotheses[0] for _, hypotheses in translated.search(rows)]
    for opening, (whole, begun, again) in zip(openings, zip(*[iter(found)] * 3, strict=True), strict=True):
        ((_, (alone,)),) = translated.search([opening])
        for one in (whole, again):
            assert list(one.token_scores[0]) == pytest.approx(list(alone.token_scores[0]), abs=1e-4)
            assert list(one.token_losses[0]) == pytest.approx(list(alone.token_losses[0]), abs=1e-4)
        assert list(begun.token_scores[0]) == pytest.approx(list(alone.token_scores[0])[:1], abs=1e-4)


def test_words_are_aligned_as_in_their_documents(translated):
    openings = translated.begin(lambda words: (words,))
    wanted = [[each.sentence for each in openings if each.document == number] for number in range(3)]
    expected = align_documents(
        *(translated.model, translated.sources, translated.translations, SPECIALS, GREEDY),
        layers=[default_alignment_layer(translated.model)],
        wanted=wanted,
        **translated.drafts,
    )
    for opening, weights in zip(openings, translated.read().align(translated.translations, openings), strict=True):
        assert weights.shape[0] == len(opening.words)
        np.testing.assert_allclose(weights, expected[opening.document][opening.sentence], atol=1e-5)


def test_sources_are_read_without_gradients(translated):
    """Else what they were computed from would stay in memory."""
    search = translated.read()
    search.align(translated.translations, translated.begin(lambda words: (words,)))
    assert not any(
        each.states.requires_grad for batch, _ in search._encoded.values() for each in batch.memories.values()
    )


def test_searches_of_a_long_text_keep_little(translated, monkeypatch):
    """What was computed for a batch is forgotten when others have come, and computed again where it is needed."""
    monkeypatch.setattr("docmt.decoding.openings._MOST_KEPT", 1)
    search, openings = translated.read(batch_tokens=1), translated.begin(lambda words: (words[:1], True))
    found = [search.search(translated.translations, openings, GREEDY) for _ in range(2)]
    batches = {batch for batch, _ in search._encoded.values()}
    kept = [batch for batch in batches if batch.passes or any(each.projected for each in batch.memories.values())]
    assert len(kept) <= 1 < len(batches)
    expected = translated.read().search(translated.translations, openings, GREEDY)
    for each in found:
        scores = [hypothesis.sentence_scores[0] for (hypothesis,) in each]
        assert scores == pytest.approx([hypothesis.sentence_scores[0] for (hypothesis,) in expected], abs=1e-4)
