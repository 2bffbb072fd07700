"""Number of tokens in the log-probability of each sentence: those that were chosen, not forced."""

import pytest
import torch
from reference_search import DOCUMENTS, SHORT_LIMITS, SPECIALS, build, score_documents, translate_documents

from docmt.decoding import SearchConfig, scoring
from variants import FEW, SYSTEMS, context, in_tiers, multihop

WITH_FAMILIES = {
    **SYSTEMS,
    "sentence, thumt": {"family": "thumt", "system": "sentence"},
    "context, thumt": {"family": "thumt", **context(fusion="published")},
    "multihop, thumt": {"family": "thumt", **multihop()},
    "concat, rfa": {"family": "rfa", **SYSTEMS["concat, linear, gates"]},
}
SOURCES = [*DOCUMENTS, [[5, 6], [], [7], []], [[], [8, 9]]]
TARGETS = [
    [[20, 21], [22], [23, 24, 25, 26, 27]],
    [[19, 18]],
    [[9, 9], [], [6, 5, 4, 20], [21, 22, 23], [22]],
    [[5], [], [], [6, 7]],
    [[], [9]],
]
CONFIG = SearchConfig(max_length_ratio=0.0, max_length_extra=3.0)


def token_counts(hypotheses):
    return [hypothesis.sentence_tokens for hypothesis in hypotheses]


@pytest.mark.parametrize("free_at_limit", [False, True])
@pytest.mark.parametrize("system", in_tiers(WITH_FAMILIES, also=["sentence, thumt", "concat, rfa"]))
def test_token_counts_are_the_labels_in_the_scores(system, free_at_limit, monkeypatch):
    """With a log-probability of -1 for every label, the score of a sentence is minus its number of tokens."""
    monkeypatch.setattr(scoring, "_score_labels", lambda model, batch, temperature: -torch.ones(len(batch.labels)))
    model = build(**WITH_FAMILIES[system])
    for with_context in (True, False):
        hypotheses = score_documents(
            model, SOURCES, TARGETS, SPECIALS, CONFIG, free_at_limit=free_at_limit, without_context=not with_context
        )
        assert token_counts(hypotheses) == [
            [-score for score in hypothesis.sentence_scores] for hypothesis in hypotheses
        ]
        boundary_count = (
            2 if system == "document" else 1
        )  # where the document ends, or goes on, is predicted there as well
        forced = 3 if free_at_limit and system != "document" else -1  # words, after which a sentence ends in any case
        assert token_counts(hypotheses) == [
            [
                len(target) + boundary_count * (len(target) != forced) if source or target else 0
                for source, target in pairs
            ]
            for pairs in (zip(*sides, strict=True) for sides in zip(SOURCES, TARGETS, strict=True))
        ]


@pytest.mark.parametrize("system", in_tiers(WITH_FAMILIES, FEW, ["document"]))
def test_token_counts_of_a_search_equal_those_of_scoring(system):
    model = build(**WITH_FAMILIES[system])
    config = SearchConfig(beam=2, length_penalty=1.0, **SHORT_LIMITS)
    hypotheses = [ranks[0] for ranks in translate_documents(model, SOURCES, SPECIALS, config)]
    for hypothesis in hypotheses:  # the score of a document is a mean over its tokens
        assert sum(hypothesis.sentence_tokens) == pytest.approx(sum(hypothesis.sentence_scores) / hypothesis.score)
    targets = [hypothesis.sentences for hypothesis in hypotheses]
    assert token_counts(hypotheses) == token_counts(score_documents(model, SOURCES, targets, SPECIALS, config))


def test_missing_sentences_count_their_boundary_tokens():
    missing = 0
    for seed in range(3):
        n_best = translate_documents(
            build(seed, system="document"), DOCUMENTS, SPECIALS, SearchConfig(beam=2, **SHORT_LIMITS)
        )
        for (hypothesis,) in n_best:
            for words, score, tokens in zip(
                hypothesis.sentences, hypothesis.sentence_scores, hypothesis.sentence_tokens, strict=True
            ):
                assert tokens == len(words) + 2 and score < 0
                missing += not words
    assert missing
