"""Translating and scoring by models that read drafts."""

from types import SimpleNamespace

import pytest
import torch
from reference_search import DOCUMENTS, SHORT_LIMITS, SPECIALS, add_boundaries, build

from docmt.decoding import SearchConfig, score_documents, translate_documents
from docmt.decoding import drafter as drafter_module
from docmt.decoding.drafter import Drafter
from docmt.decoding.ensembles import Ensemble
from docmt.decoding.scheduler import Task
from docmt.model import ModelInput, pack
from docmt.model.systems import MultiHop
from variants import context, in_tiers

DRAFTS = [[[20, 21], [22], [23, 24, 25, 26, 27]], [[]], [[9, 9], [8, 7], [6, 5, 4, 20], [21], [22, 23]]]
OTHER_DRAFTS = [[[word + 1 for word in sentence] for sentence in document] for document in DRAFTS]
CONFIG = SearchConfig(beam=3, n_best=3, **SHORT_LIMITS)


def hopping(**options):
    return {"system": "multihop", "multihop": MultiHop(**options)}


VARIANTS = {
    "both sides": hopping(),
    "target, from the nearest": hopping(side="target", direction="R2L", sentences=1),
    "second decoder": {"system": "cadec"},
    "as published, by references": hopping(fusion="published", target_context="references"),
}
MODELS = {
    **{name: lambda options=options: build(2, **options) for name, options in VARIANTS.items()},
    "ensemble": lambda: Ensemble([build(1, system="sentence"), build(2, **hopping()), build(3, **context())]),
    "ensemble, hops first": lambda: Ensemble([build(2, **hopping(sentences=1)), build(3, **context())]),
}


@pytest.mark.parametrize("name", in_tiers(MODELS, ["ensemble"]))
@pytest.mark.full
def test_together_alone_and_in_small_batches(name):
    model = MODELS[name]()
    together = translate_documents(model, DOCUMENTS, SPECIALS, CONFIG, drafts=DRAFTS)
    small = translate_documents(model, DOCUMENTS, SPECIALS, CONFIG, batch_tokens=1, drafts=DRAFTS)
    for number, hypotheses in enumerate(together):
        alone = translate_documents(model, [DOCUMENTS[number]], SPECIALS, CONFIG, drafts=[DRAFTS[number]])[0]
        for other in (alone, small[number]):
            assert [h.sentences for h in hypotheses] == [h.sentences for h in other]
            assert [h.score for h in hypotheses] == pytest.approx([h.score for h in other], abs=1e-5)


@pytest.mark.parametrize("name", in_tiers(MODELS, ["both sides", "ensemble"]))
def test_scoring_a_translation_gives_the_score_of_the_search(name):
    model = MODELS[name]()
    translations = [ranks[0] for ranks in translate_documents(model, DOCUMENTS, SPECIALS, CONFIG, drafts=DRAFTS)]
    targets = [scores.sentences for scores in translations]
    scored = score_documents(model, DOCUMENTS, targets, SPECIALS, CONFIG, drafts=DRAFTS)
    for scores, wanted in zip(scored, translations, strict=True):
        assert scores.sentence_scores == pytest.approx(wanted.sentence_scores, abs=1e-4)
        assert scores.score == pytest.approx(wanted.score, abs=1e-5)
    with_other_drafts = score_documents(model, DOCUMENTS, targets, SPECIALS, CONFIG, drafts=OTHER_DRAFTS)
    assert any(abs(scores.score - other.score) > 1e-3 for scores, other in zip(scored, with_other_drafts, strict=True))


@pytest.mark.parametrize("name", in_tiers(VARIANTS, ["both sides"]))
def test_greedy_search_by_full_passes(name):
    """Each word comes from a full pass over all earlier tokens, with every draft up to the sentence."""
    model, config = build(2, **VARIANTS[name]), SearchConfig(beam=1, **SHORT_LIMITS)
    n_best = translate_documents(model, DOCUMENTS, SPECIALS, config, drafts=DRAFTS)
    for document, drafts, (hypothesis,) in zip(DOCUMENTS, DRAFTS, n_best, strict=True):
        for number, sentence in enumerate(document):
            tokens = [SPECIALS.bos]
            while tokens[-1] != SPECIALS.eos:
                if len(tokens) > config.sentence_limit(len(sentence)):
                    tokens.append(SPECIALS.eos)
                    continue
                sides = [pack([add_boundaries(side[: number + 1])]) for side in (document, drafts)]
                inputs = ModelInput(sides[0], torch.tensor([number]), pack([[tokens]]), drafts=sides[1])
                with torch.no_grad():
                    scores = model.project(model(inputs)[-1])
                scores[[SPECIALS.bos, SPECIALS.pad, SPECIALS.unk, SPECIALS.eod, SPECIALS.mask]] = -torch.inf
                scores[SPECIALS.eos] = -torch.inf if len(tokens) == 1 else scores[SPECIALS.eos]
                tokens.append(int(scores.argmax()))
            assert tokens[1:-1] == hypothesis.sentences[number]


def test_drafts_of_empty_sentences_do_not_count():
    model = build(2, **hopping())
    holes = [[[], *[part for sentence in document for part in (sentence, [])]] for document in DOCUMENTS]
    drafts = [[[9], *[part for sentence in document for part in (sentence, [9])]] for document in DRAFTS]
    n_best = translate_documents(model, holes, SPECIALS, CONFIG, drafts=drafts)
    wanted = translate_documents(model, DOCUMENTS, SPECIALS, CONFIG, drafts=DRAFTS)
    for ranks, other in zip(n_best, wanted, strict=True):
        assert ranks[0].sentences[1::2] == other[0].sentences
        assert ranks[0].score == pytest.approx(other[0].score, abs=1e-5)


def test_a_model_that_needs_drafts_is_not_run_without():
    model = build(**hopping())
    for drafts in (None, [[[5]]] * 3):
        with pytest.raises(ValueError, match="reads drafts"):
            translate_documents(model, DOCUMENTS, SPECIALS, CONFIG, drafts=drafts)
        with pytest.raises(ValueError, match="reads drafts"):
            score_documents(model, DOCUMENTS, DOCUMENTS, SPECIALS, CONFIG, drafts=drafts)
    source_alone = build(**hopping(side="source"))
    without_drafts, with_drafts = (
        translate_documents(source_alone, DOCUMENTS, SPECIALS, CONFIG, drafts=drafts) for drafts in (None, DRAFTS)
    )
    assert without_drafts == with_drafts


def test_long_drafts_count_as_tokens():
    model = build(**hopping())
    drafts = [[[9] * 50 for _ in document] for document in DOCUMENTS]
    batches = [
        list(Task.from_documents(model, DOCUMENTS, SPECIALS, SearchConfig(), batch_tokens=60, drafts=drafted).batches())
        for drafted in (DRAFTS, drafts)
    ]
    assert [len(batch_list) for batch_list in batches] == [2, 3]


def test_equal_documents_are_drafted_once(monkeypatch):
    drafter = Drafter(build(1, system="sentence"), SimpleNamespace(specials=SPECIALS), CONFIG, "float32")
    wanted, calls, done = drafter.draft_documents(DOCUMENTS), [], []
    original = drafter_module.translate_documents
    monkeypatch.setattr(drafter_module, "translate_documents", lambda *a, **b: calls.append(a[1]) or original(*a, **b))
    drafts = drafter.draft_documents([DOCUMENTS[1], *DOCUMENTS, DOCUMENTS[0]], done.append)
    assert drafts == [wanted[1], *wanted, wanted[0]]
    assert [len(documents) for documents in calls] == [len(DOCUMENTS)]
    assert sum(done) == sum(map(len, drafts))
