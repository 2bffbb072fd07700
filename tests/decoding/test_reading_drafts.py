"""Translating and scoring by models that read drafts."""

from types import SimpleNamespace

import pytest
import torch
from plain_search import DOCUMENTS, SHORT, SPECIALS, build, marked

from docmt.decoding import SearchConfig, drafting, score_documents, translate_documents
from docmt.decoding.drafting import Drafter
from docmt.decoding.models import Ensemble
from docmt.decoding.scheduler import Task
from docmt.model import ModelInput, pack
from docmt.model.systems import MultiHop
from variants import context

DRAFTS = [
    [[20, 21], [22], [23, 24, 25, 26, 27]],
    [[]],
    [[9, 9], [8, 7], [6, 5, 4, 20], [21], [22, 23]],
]
OTHERS = [[[word + 1 for word in sentence] for sentence in document] for document in DRAFTS]
CONFIG = SearchConfig(beam=3, n_best=3, **SHORT)


def hopping(**options):
    return {"system": "multihop", "multihop": MultiHop(**options)}


VARIANTS = {
    "both sides": hopping(),
    "target, from the nearest": hopping(side="target", direction="R2L", sentences=1),
    "as published, by references": hopping(fusion="published", target_context="references"),
}
MODELS = {
    **{name: lambda options=options: build(2, **options) for name, options in VARIANTS.items()},
    "ensemble": lambda: Ensemble([build(1, system="sentence"), build(2, **hopping()), build(3, **context())]),
    "ensemble, hops first": lambda: Ensemble([build(2, **hopping(sentences=1)), build(3, **context())]),
}


def some(names):
    """The first of these and the first ensemble in the quick tier."""
    quick = ("both sides", "ensemble")
    return [name if name in quick else pytest.param(name, marks=pytest.mark.full) for name in names]


@pytest.mark.parametrize("name", some(MODELS))
def test_together_alone_and_in_small_batches(name):
    model = MODELS[name]()
    together = translate_documents(model, DOCUMENTS, SPECIALS, CONFIG, drafts=DRAFTS)
    small = translate_documents(model, DOCUMENTS, SPECIALS, CONFIG, batch_tokens=1, drafts=DRAFTS)
    for number, found in enumerate(together):
        alone = translate_documents(model, [DOCUMENTS[number]], SPECIALS, CONFIG, drafts=[DRAFTS[number]])[0]
        for other in (alone, small[number]):
            assert [h.sentences for h in found] == [h.sentences for h in other]
            assert [h.score for h in found] == pytest.approx([h.score for h in other], abs=1e-5)


@pytest.mark.parametrize("name", some(MODELS))
def test_the_score_of_a_translation_is_the_translators_own(name):
    model = MODELS[name]()
    found = [ranks[0] for ranks in translate_documents(model, DOCUMENTS, SPECIALS, CONFIG, drafts=DRAFTS)]
    targets = [own.sentences for own in found]
    scored = score_documents(model, DOCUMENTS, targets, SPECIALS, CONFIG, drafts=DRAFTS)
    for own, wanted in zip(scored, found, strict=True):
        assert own.sentence_scores == pytest.approx(wanted.sentence_scores, abs=1e-4)
        assert own.score == pytest.approx(wanted.score, abs=1e-5)
    others = score_documents(model, DOCUMENTS, targets, SPECIALS, CONFIG, drafts=OTHERS)
    assert any(abs(own.score - other.score) > 1e-3 for own, other in zip(scored, others, strict=True))


@pytest.mark.parametrize("name", some(VARIANTS))
def test_greedy_search_by_full_passes(name):
    """Word by word, each from a pass over all that stands before, with every draft up to the sentence."""
    model, config = build(2, **VARIANTS[name]), SearchConfig(beam=1, **SHORT)
    found = translate_documents(model, DOCUMENTS, SPECIALS, config, drafts=DRAFTS)
    for document, drafts, (own,) in zip(DOCUMENTS, DRAFTS, found, strict=True):
        for number, sentence in enumerate(document):
            said = [SPECIALS.bos]
            while said[-1] != SPECIALS.eos:
                if len(said) > config.sentence_limit(len(sentence)):
                    said.append(SPECIALS.eos)
                    continue
                sides = [pack([marked(side[: number + 1])]) for side in (document, drafts)]
                inputs = ModelInput(sides[0], torch.tensor([number]), pack([[said]]), drafts=sides[1])
                with torch.no_grad():
                    scores = model.project(model(inputs)[-1])
                scores[[SPECIALS.bos, SPECIALS.pad, SPECIALS.unk, SPECIALS.eod, SPECIALS.mask]] = -torch.inf
                scores[SPECIALS.eos] = -torch.inf if len(said) == 1 else scores[SPECIALS.eos]
                said.append(int(scores.argmax()))
            assert said[1:-1] == own.sentences[number]


def test_drafts_of_empty_sentences_do_not_count():
    model = build(2, **hopping())
    holes = [[[], *[part for sentence in document for part in (sentence, [])]] for document in DOCUMENTS]
    drafts = [[[9], *[part for sentence in document for part in (sentence, [9])]] for document in DRAFTS]
    found = translate_documents(model, holes, SPECIALS, CONFIG, drafts=drafts)
    wanted = translate_documents(model, DOCUMENTS, SPECIALS, CONFIG, drafts=DRAFTS)
    for own, other in zip(found, wanted, strict=True):
        assert own[0].sentences[1::2] == other[0].sentences
        assert own[0].score == pytest.approx(other[0].score, abs=1e-5)


def test_a_model_that_needs_drafts_is_not_run_without():
    model = build(**hopping())
    for drafts in (None, [[[5]]] * 3):
        with pytest.raises(ValueError, match="reads drafts"):
            translate_documents(model, DOCUMENTS, SPECIALS, CONFIG, drafts=drafts)
        with pytest.raises(ValueError, match="reads drafts"):
            score_documents(model, DOCUMENTS, DOCUMENTS, SPECIALS, CONFIG, drafts=drafts)
    source_alone = build(**hopping(side="source"))
    ours, theirs = (
        translate_documents(source_alone, DOCUMENTS, SPECIALS, CONFIG, drafts=drafts) for drafts in (None, DRAFTS)
    )
    assert ours == theirs


def test_long_drafts_count_as_tokens():
    model = build(**hopping())
    drafts = [[[9] * 50 for _ in document] for document in DOCUMENTS]
    batches = [
        list(Task.of(model, DOCUMENTS, SPECIALS, SearchConfig(), batch_tokens=60, drafts=drafted).batches())
        for drafted in (DRAFTS, drafts)
    ]
    assert [len(own) for own in batches] == [2, 3]


def test_equal_documents_are_drafted_once(monkeypatch):
    drafter = Drafter(build(1, system="sentence"), SimpleNamespace(specials=SPECIALS), CONFIG, "float32")
    wanted, asked, done = drafter.drafts(DOCUMENTS), [], []
    original = drafting.translate_documents
    monkeypatch.setattr(drafting, "translate_documents", lambda *a, **b: asked.append(a[1]) or original(*a, **b))
    found = drafter.drafts([DOCUMENTS[1], *DOCUMENTS, DOCUMENTS[0]], done.append)
    assert found == [wanted[1], *wanted, wanted[0]]
    assert [len(documents) for documents in asked] == [len(DOCUMENTS)]
    assert sum(done) == sum(map(len, found))
