"""Scores without context: in the same passes, over the same instances, no sentence sees another."""

import pytest
import torch
from plain_search import DOCUMENTS, SHORT, SPECIALS, build, drafts_of, marked

from docmt.decoding import SearchConfig, score_documents
from docmt.decoding.models import Ensemble
from docmt.model import ModelInput, pack
from docmt.model.attention import FullContext, Memory, visible_spans
from docmt.model.scope import AttentionScope
from variants import FRAMED, SYSTEMS, context, in_tiers, multihop

TARGETS = [
    [[20, 21], [22], [23, 24, 25, 26, 27]],
    [[19, 18]],
    [[9, 9], [8, 7], [6, 5, 4, 20], [21], [22, 23]],
]
CONFIG = SearchConfig(**SHORT)
ALONE = [name for name in SYSTEMS if name in ("sentence", "group only")]
DRAFTS = drafts_of(DOCUMENTS)


def scores(model, sources, targets, context=True, drafts=None):
    """[S] the log-probability of every sentence."""
    drafts = drafts_of(sources) if drafts is None else drafts
    found = score_documents(model, sources, targets, SPECIALS, CONFIG, drafts=drafts, limited=False, apart=not context)
    return torch.tensor([score for document in found for score in document.sentence_scores])


def other_words(document, but):
    """A document with other words in all sentences but one."""
    return [[4 + (word + 9) % 21 for word in s] if i != but else s for i, s in enumerate(document)]


@pytest.mark.parametrize("system", in_tiers(SYSTEMS))
def test_no_other_sentence_changes_anything(system):
    model = build(**SYSTEMS[system])
    source, target, drafts = DOCUMENTS[2], TARGETS[2], DRAFTS[2]
    for seen in (False, True):
        before, changed = scores(model, [source], [target], seen, [drafts]), []
        for own in range(len(source)):
            others = [[other_words(side, own)] for side in (source, target, drafts)]
            after = scores(model, *others[:2], seen, others[2])
            changed.append(abs(after[own] - before[own]).item())
        if seen and system not in ALONE:
            assert max(changed) > 1e-3
        else:
            assert max(changed) < 1e-5


@pytest.mark.parametrize("system", in_tiers(SYSTEMS))
def test_a_sentence_without_others_loses_nothing(system):
    model = build(**SYSTEMS[system])
    assert torch.equal(scores(model, [DOCUMENTS[1]], [TARGETS[1]]), scores(model, [DOCUMENTS[1]], [TARGETS[1]], False))


@pytest.mark.parametrize("system", in_tiers(SYSTEMS))
def test_only_systems_without_context_lose_nothing(system):
    model = build(**SYSTEMS[system])
    gains = scores(model, DOCUMENTS, TARGETS) - scores(model, DOCUMENTS, TARGETS, False)
    assert (gains == 0).all() if system in ALONE else gains.abs().max() > 1e-3


@pytest.mark.parametrize("system", in_tiers(FRAMED))
def test_where_positions_restart_it_is_the_sentence_as_a_document(system):
    model = build(**{**SYSTEMS[system], "positions": "sentence"})
    apart = scores(model, DOCUMENTS, TARGETS, False)
    single = [[sentence] for document in DOCUMENTS for sentence in document]
    alone = scores(model, single, [[sentence] for document in TARGETS for sentence in document])
    torch.testing.assert_close(apart, alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("system", in_tiers(SYSTEMS))
def test_what_translations_share_is_computed_once_here_too(system):
    """Candidates of one source: it is encoded once, and their common beginning is decoded once."""
    model = build(**SYSTEMS[system])
    candidates = [[*TARGETS[2][:3], words, TARGETS[2][4]] for words in ([21], [20, 19], [21, 7])]
    together = scores(model, [DOCUMENTS[2]] * 3, candidates, False)
    alone = torch.cat([scores(model, [DOCUMENTS[2]], [each], False) for each in candidates])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_members_of_an_ensemble_see_nothing_either():
    model = Ensemble([build(1, system="sentence"), build(2, **multihop()), build(3, **context())])
    other = [other_words(document, 0) for document in DOCUMENTS[2:]]
    drafts = [[DRAFTS[2][0], *drafts_of(other)[0][1:]]]
    before, after = (
        scores(model, source, [TARGETS[2]], False, drafts)[0]
        for source, drafts in ((DOCUMENTS[2:], DRAFTS[2:]), (other, drafts))
    )
    torch.testing.assert_close(before, after, atol=1e-5, rtol=1e-5)


def test_positions_stay():
    packed = pack([marked(document) for document in DOCUMENTS])
    apart = packed.apart()
    model = build(positions="document")
    assert torch.equal(model.positions(apart), model.positions(packed))
    kept, _ = packed.only(numbers := torch.tensor([1, 2, 5]))
    kept_apart, _ = apart.only(numbers)
    assert torch.equal(model.positions(kept_apart), model.positions(kept))
    assert kept_apart.documents.same_as(kept.sentences)
    assert (
        visible_spans(apart.filled(64, 0), AttentionScope(part="document")).lengths[:9].tolist()
        == packed.sentences.lengths.tolist()
    )
    assert torch.equal(model.positions(apart.filled(64, 0)), model.positions(packed.filled(64, 0)))
    assert apart.apart().running is packed.documents


def test_a_target_finds_its_own_sentence_in_a_memory_that_has_more():
    """Apart, documents of both sides belong together as sentences do."""
    source, target = (pack([marked(document[first:]) for document in DOCUMENTS[2:]]) for first in (0, 2))
    inputs = ModelInput(source, torch.tensor([2, 3, 4]), target).apart()
    memory = Memory.of(torch.randn(len(source.tokens), 4), inputs.source)
    context = FullContext(inputs.target, {"source": memory}, inputs.aligned, inputs.documents)
    _, pattern = context.seen(AttentionScope("source", part="document"), torch.randn(len(target.tokens), 4))
    assert pattern.keys.same_as(source.sentences.select(inputs.aligned))
