"""Scores without context: in the same passes, over the same instances, no sentence sees another."""

from types import SimpleNamespace

import pytest
import torch
from reference_search import DOCUMENTS, SHORT_LIMITS, SPECIALS, add_boundaries, build, make_drafts

from docmt.decoding import SearchConfig, score_documents
from docmt.decoding.ensembles import Ensemble
from docmt.model import ModelInput, pack
from docmt.model.contexts import FullContext, Memory, visible_spans
from docmt.model.scope import AttentionScope
from variants import FEW, FRAMED, SYSTEMS, context, in_tiers, multihop

TARGETS = [[[20, 21], [22], [23, 24, 25, 26, 27]], [[19, 18]], [[9, 9], [8, 7], [6, 5, 4, 20], [21], [22, 23]]]
CONFIG = SearchConfig(**SHORT_LIMITS)
ALONE = [name for name in SYSTEMS if name in ("sentence", "group only")]
DRAFTS = make_drafts(DOCUMENTS)


def scores(model, sources, targets, context=True, drafts=None):
    """Return the log-probability of every sentence: [S]."""
    drafts = make_drafts(sources) if drafts is None else drafts
    hypotheses = score_documents(
        model, sources, targets, SPECIALS, CONFIG, drafts=drafts, free_at_limit=False, without_context=not context
    )
    return torch.tensor([score for document in hypotheses for score in document.sentence_scores])


def change_words(document, kept):
    """Return a document with other words in all sentences but one."""
    return [[4 + (word + 9) % 21 for word in s] if i != kept else s for i, s in enumerate(document)]


@pytest.mark.parametrize("system", in_tiers(SYSTEMS, also=["sentence", "group only"]))
def test_no_other_sentence_changes_anything(system):
    model = build(**SYSTEMS[system])
    source, target, drafts = DOCUMENTS[2], TARGETS[2], DRAFTS[2]
    for with_context in (False, True):
        before, changed = scores(model, [source], [target], with_context, [drafts]), []
        for number in range(len(source)):
            changed_sides = [[change_words(side, number)] for side in (source, target, drafts)]
            after = scores(model, *changed_sides[:2], with_context, changed_sides[2])
            changed.append(abs(after[number] - before[number]).item())
        if with_context and system not in ALONE:
            assert max(changed) > 1e-3
        else:
            assert max(changed) < 1e-5


@pytest.mark.parametrize("system", in_tiers(SYSTEMS, FEW))
def test_a_single_sentence_has_equal_scores_without_context(system):
    model = build(**SYSTEMS[system])
    assert torch.equal(scores(model, [DOCUMENTS[1]], [TARGETS[1]]), scores(model, [DOCUMENTS[1]], [TARGETS[1]], False))


@pytest.mark.parametrize("system", in_tiers(SYSTEMS, FEW, ["sentence", "group only"]))
def test_only_systems_without_context_have_equal_scores(system):
    model = build(**SYSTEMS[system])
    gains = scores(model, DOCUMENTS, TARGETS) - scores(model, DOCUMENTS, TARGETS, False)
    assert (gains == 0).all() if system in ALONE else gains.abs().max() > 1e-3


@pytest.mark.parametrize("system", in_tiers(FRAMED, FEW))
def test_restarting_positions_give_the_scores_of_single_sentences(system):
    model = build(**{**SYSTEMS[system], "positions": "sentence"})
    without_context = scores(model, DOCUMENTS, TARGETS, False)
    single = [[sentence] for document in DOCUMENTS for sentence in document]
    alone = scores(model, single, [[sentence] for document in TARGETS for sentence in document])
    torch.testing.assert_close(without_context, alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("system", in_tiers(SYSTEMS, FEW))
def test_shared_computation_is_done_once_without_context_too(system):
    """Candidates of one source: it is encoded once, and their common prefix is decoded once."""
    model = build(**SYSTEMS[system])
    candidates = [[*TARGETS[2][:3], words, TARGETS[2][4]] for words in ([21], [20, 19], [21, 7])]
    together = scores(model, [DOCUMENTS[2]] * 3, candidates, False)
    alone = torch.cat([scores(model, [DOCUMENTS[2]], [candidate], False) for candidate in candidates])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_members_of_an_ensemble_see_no_context():
    model = Ensemble([build(1, system="sentence"), build(2, **multihop()), build(3, **context())])
    other = [change_words(document, 0) for document in DOCUMENTS[2:]]
    drafts = [[DRAFTS[2][0], *make_drafts(other)[0][1:]]]
    before, after = (
        scores(model, source, [TARGETS[2]], False, drafts)[0]
        for source, drafts in ((DOCUMENTS[2:], DRAFTS[2:]), (other, drafts))
    )
    torch.testing.assert_close(before, after, atol=1e-5, rtol=1e-5)


def test_positions_stay():
    packed = pack([add_boundaries(document) for document in DOCUMENTS])
    isolated = packed.isolate_sentences()
    model = build(positions="document")
    assert torch.equal(model.token_positions(isolated), model.token_positions(packed))
    selected, _ = packed.select_sentences(numbers := torch.tensor([1, 2, 5]))
    selected_isolated, _ = isolated.select_sentences(numbers)
    assert torch.equal(model.token_positions(selected_isolated), model.token_positions(selected))
    assert selected_isolated.documents.equals(selected.sentences)
    assert (
        visible_spans(isolated.pad_to_multiple(64, 0), AttentionScope(extent="document")).lengths[:9].tolist()
        == packed.sentences.lengths.tolist()
    )
    padded = [model.token_positions(each.pad_to_multiple(64, 0)) for each in (isolated, packed)]
    assert torch.equal(*padded)
    assert isolated.isolate_sentences().position_spans is packed.documents


def test_a_target_sees_its_source_sentence_in_a_larger_memory():
    """Without context, sentences of both sides are aligned as documents are."""
    source, target = (pack([add_boundaries(document[first:]) for document in DOCUMENTS[2:]]) for first in (0, 2))
    inputs = ModelInput(source, torch.tensor([2, 3, 4]), target).isolate_sentences()
    memory = Memory.from_packed(torch.randn(len(source.tokens), 4), inputs.source)
    context = FullContext(inputs.target, {"source": memory}, inputs.alignment, inputs.document_alignment)
    attention = SimpleNamespace(scope=AttentionScope("source", extent="document"))
    pattern = context.find(attention, torch.randn(len(target.tokens), 4)).pattern
    assert pattern.keys.equals(source.sentences.select(inputs.alignment))
