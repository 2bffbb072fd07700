"""Scores after noise: the words of all sentences but one are Gaussian vectors to the model, in all that it reads."""

import pytest
import torch
from reference_search import DOCUMENTS, SHORT_LIMITS, SPECIALS, build, make_drafts
from test_scoring import OF_LONG
from test_scoring_without_context import ALONE, DRAFTS, TARGETS, change_words

from docmt.decoding import SearchConfig, score_documents
from docmt.decoding.ensembles import Ensemble
from docmt.model import embeddings as noise
from docmt.model.embeddings import ContextNoise
from variants import CONVENTIONS, FEW, SYSTEMS, context, in_tiers, multihop

CONFIG = SearchConfig(**SHORT_LIMITS)
KEPT = [1, 0, 3]  # between others, where there are any: a system may read the sentences after alone
DEPENDENT = [name for name in SYSTEMS if name not in ALONE]


def kept_scores(model, sources, targets, kept=None, seed=1, drafts=None):
    """Return the log-probability of one sentence of each document, after noise if `kept` says which."""
    with_noise = None if kept is None else ContextNoise(kept, seed)
    drafts = make_drafts(sources) if drafts is None else drafts
    hypotheses = score_documents(model, sources, targets, SPECIALS, CONFIG, drafts=drafts, noise=with_noise)
    assert [hypothesis.sentences for hypothesis in hypotheses] == targets
    numbers = KEPT if kept is None else kept
    scores = [each.sentence_scores[number] for each, number in zip(hypotheses, numbers, strict=True)]
    return torch.tensor(scores)


@pytest.mark.parametrize("system", in_tiers(SYSTEMS, also=["sentence", "group only"]))
def test_noise_reaches_the_systems_that_read_context(system):
    """A document of one sentence has none. Without noise, scores are the same before and after."""
    model = build(**SYSTEMS[system])
    true, noisy, again = (kept_scores(model, DOCUMENTS, TARGETS, kept) for kept in (None, KEPT, None))
    assert torch.equal(true, again) and noisy[1] == true[1]
    if system in ALONE:
        assert torch.equal(noisy, true)
    else:
        assert (noisy - true)[[0, 2]].abs().min() > 1e-4


@pytest.mark.parametrize("system", in_tiers(SYSTEMS, FEW))
def test_scores_after_noise_are_those_of_each_document_alone(system):
    """Also where candidates share their source and the beginning of their target."""
    model = build(**SYSTEMS[system])
    sources, targets = [*DOCUMENTS, *[DOCUMENTS[2]] * 5], [*TARGETS, *OF_LONG]
    kept = [*KEPT, 1, 1, 1, 4, 4]
    together = kept_scores(model, sources, targets, kept)
    alone = [kept_scores(model, *([each] for each in pair)) for pair in zip(sources, targets, kept, strict=True)]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("system", in_tiers(DEPENDENT, FEW, ["selective in the decoder"]))
def test_no_word_of_the_context_is_read(system, monkeypatch):
    """If the noise is equal, words of source, target and drafts around the kept sentence change nothing."""
    drawn = lambda self, words: [(number + 1) * noise._STRIDE + word for number, word in enumerate(words)]  # noqa: E731
    monkeypatch.setattr(ContextNoise, "_draw", drawn)
    model = build(**SYSTEMS[system])
    sides = DOCUMENTS[2], TARGETS[2], DRAFTS[2]
    own, other = (
        kept_scores(model, [source], [target], [3], drafts=[drafts])
        for source, target, drafts in (sides, [change_words(side, 3) for side in sides])
    )
    torch.testing.assert_close(own, other, atol=1e-5, rtol=1e-5)


def test_the_seed_decides_the_noise():
    model = build()
    first, same, other = (kept_scores(model, DOCUMENTS, TARGETS, KEPT, seed) for seed in (1, 1, 2))
    assert torch.equal(first, same) and (first - other)[[0, 2]].abs().min() > 1e-4


def test_members_of_an_ensemble_read_noise():
    model = Ensemble([build(1, system="sentence"), build(2, **multihop()), build(3, width=20, **context())])
    true, noisy = (kept_scores(model, DOCUMENTS, TARGETS, kept) for kept in (None, KEPT))
    assert (noisy - true)[[0, 2]].abs().min() > 1e-4


@pytest.mark.parametrize("conventions", [{}, CONVENTIONS["marian"], CONVENTIONS["t5"]])
def test_noise_is_as_long_as_embeddings_and_leaves_boundaries(conventions):
    model, words = build(**conventions), list(range(4, 24)) * 40
    (noisy,) = ContextNoise([1], seed=3).replace_context([[words, [5, 6]]])
    assert noisy[1] == [5, 6]
    tokens = torch.tensor([SPECIALS.bos, *noisy[0], SPECIALS.eos])
    plain = torch.tensor([SPECIALS.bos, *words, SPECIALS.eos])
    assert torch.equal(noise.replaced_words(tokens), plain)
    with ContextNoise([], 3).readable(), torch.no_grad():
        vectors, embeddings = model.look_up_tokens("source", tokens), model.look_up_tokens("source", plain)
    assert torch.equal(vectors[[0, -1]], embeddings[[0, -1]])
    lengths, table = vectors[1:-1].square().mean(), model.look_up_tokens("source", torch.arange(30)).square().mean()
    assert lengths.item() == pytest.approx(table.item(), rel=0.1)
    assert len(vectors.unique(dim=0)) > 600  # a word does not decide its vector
    similarities = torch.cosine_similarity(vectors[1:-1], embeddings[1:-1])
    assert abs(similarities.mean().item()) < 0.03


def test_noise_for_another_number_of_documents_is_refused():
    with pytest.raises(ValueError, match="argument 2"):
        ContextNoise([0]).replace_context(DOCUMENTS)
