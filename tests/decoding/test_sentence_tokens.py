"""How many tokens the log-probability of each sentence is the sum of: those that were chosen, not forced."""

import pytest
import torch
from plain_search import DOCUMENTS, SHORT, SPECIALS, build, score_documents, translate_documents

from docmt.decoding import SearchConfig, scoring
from variants import SYSTEMS, context, in_tiers, multihop

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


def counted(found):
    return [hypothesis.sentence_tokens for hypothesis in found]


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("system", in_tiers(WITH_FAMILIES))
def test_they_are_the_labels_that_scores_are_sums_of(system, limited, monkeypatch):
    """Where every label has a log-probability of -1, a sentence has minus its number of tokens."""
    monkeypatch.setattr(scoring, "_label_scores", lambda model, batch, temperature: -torch.ones(len(batch.labels)))
    model = build(**WITH_FAMILIES[system])
    for seen in (True, False):
        found = score_documents(model, SOURCES, TARGETS, SPECIALS, CONFIG, limited=limited, apart=not seen)
        assert counted(found) == [[-score for score in own.sentence_scores] for own in found]
        marks = 2 if system == "document" else 1  # where the document ends, or goes on, is predicted there as well
        forced = 3 if limited and system != "document" else -1  # words, after which a sentence ends in any case
        assert counted(found) == [
            [len(target) + marks * (len(target) != forced) if source or target else 0 for source, target in pairs]
            for pairs in (zip(*sides, strict=True) for sides in zip(SOURCES, TARGETS, strict=True))
        ]


@pytest.mark.parametrize("system", in_tiers(WITH_FAMILIES))
def test_those_of_a_search_are_those_of_its_translation_when_it_is_scored(system):
    model = build(**WITH_FAMILIES[system])
    config = SearchConfig(beam=2, length_penalty=1.0, **SHORT)
    found = [ranks[0] for ranks in translate_documents(model, SOURCES, SPECIALS, config)]
    for own in found:  # the score of a document is a mean over its tokens
        assert sum(own.sentence_tokens) == pytest.approx(sum(own.sentence_scores) / own.score)
    targets = [own.sentences for own in found]
    assert counted(found) == counted(score_documents(model, SOURCES, targets, SPECIALS, config))


def test_what_is_missing_of_a_miscounted_translation_has_its_marks():
    missing = 0
    for seed in range(6):
        found = translate_documents(build(seed, system="document"), DOCUMENTS, SPECIALS, SearchConfig(beam=2, **SHORT))
        for (own,) in found:
            for words, score, tokens in zip(own.sentences, own.sentence_scores, own.sentence_tokens, strict=True):
                assert tokens == len(words) + 2 and score < 0
                missing += not words
    assert missing
