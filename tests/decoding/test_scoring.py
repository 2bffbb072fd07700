"""Shared parts of supplied translations are computed once, and their scores equal those of each scored alone."""

import pytest
import torch
from reference_search import DOCUMENTS, SHORT_LIMITS, SPECIALS, build, make_drafts, score_documents

from docmt.data import SentenceTokens, collate
from docmt.decoding import SearchConfig
from docmt.decoding.ensembles import Ensemble
from docmt.decoding.scheduler import Task
from docmt.decoding.scoring import batch_by_source, share_sources
from docmt.model import TranslationModel
from variants import FEW, ONE_OF_EACH_ORDER, SYSTEMS, context, hierarchical, in_tiers

# Translations of the third document: alike up to its last sentence, to its second, from the start on, twice the same.
OF_LONG = [
    [[20], [21, 22, 9], [23], [24, 25], [26]],
    [[20], [21, 22, 9], [23], [24, 25], [26, 7, 8]],
    [[20], [21, 22, 8, 4], [23], [24, 25], [26]],
    [[20], [21, 22, 9], [23], [24, 25], [26]],
    [[6], [21, 22, 9], [], [24, 25], [26]],
]
SOURCES = [DOCUMENTS[2], DOCUMENTS[0], *[DOCUMENTS[2]] * 2, DOCUMENTS[0], *[DOCUMENTS[2]] * 2]
WITH_FAMILIES = {
    **SYSTEMS,
    "context, thumt": {"family": "thumt", **context(fusion="published")},
    "hierarchical, thumt": {"family": "thumt", **hierarchical()},
    "concat, rfa": {"family": "rfa", **SYSTEMS["concat, linear, gates"]},
}
TARGETS = [OF_LONG[0], [[9], [10, 11], [12]], *OF_LONG[1:3], [[9], [10, 11], [13, 9]], *OF_LONG[3:]]


def compare(model, config, **options):
    together = score_documents(model, SOURCES, TARGETS, SPECIALS, config, **options)
    for source, target, hypothesis in zip(SOURCES, TARGETS, together, strict=True):
        alone = score_documents(model, [source], [target], SPECIALS, config, **options)[0]
        assert hypothesis.sentences == alone.sentences == target
        assert hypothesis.sentence_scores == pytest.approx(alone.sentence_scores, abs=1e-5)
        assert hypothesis.score == pytest.approx(alone.score, abs=1e-5)
        assert hypothesis.rank_scores == pytest.approx(alone.rank_scores, abs=1e-5)


@pytest.mark.parametrize("system", in_tiers(WITH_FAMILIES, also=["concat, rfa"]))
def test_scores_are_those_of_each_alone(system):
    compare(build(**WITH_FAMILIES[system]), SearchConfig(**SHORT_LIMITS), free_at_limit=False)


@pytest.mark.parametrize("tokens", [1, 40, 10_000])
def test_any_batch_and_cut_and_limit(tokens):
    compare(build(instance_tokens=12), SearchConfig(**SHORT_LIMITS, temperature=1.5), batch_tokens=tokens)


def test_many_translations_of_one_source_are_cut_into_batches():
    model = build()
    task = Task.from_documents(model, [DOCUMENTS[0]] * 30, SPECIALS, SearchConfig(), batch_tokens=60)
    batches = list(
        batch_by_source(
            task, SentenceTokens.from_documents([[[9 + i % 9], [10 + i % 7], [12 + i % 5]] for i in range(30)])
        )
    )
    assert len(batches) > 5
    assert sorted(n for groups in batches for group in groups for equal in group for n in equal) == list(range(30))


def test_members_of_an_ensemble_share_too():
    compare(Ensemble([build(seed, **SYSTEMS["context"]) for seed in (1, 2)]), SearchConfig(**SHORT_LIMITS))


def read_batches(model, config):
    """Yield the batches of the task: groups, and their model input."""
    needs_drafts = make_drafts(SOURCES) if model.system.context_spec().drafts else None
    task, words = (
        Task.from_documents(model, SOURCES, SPECIALS, config, drafts=needs_drafts),
        SentenceTokens.from_documents(TARGETS),
    )
    for groups in batch_by_source(task, words):
        firsts = [equal[0] for group in groups for equal in group]
        batch = collate(task.words, words, task.instances, firsts, SPECIALS, model.boundary_tokens, "last", task.drafts)
        yield groups, share_sources(task, batch.inputs, groups)


@pytest.mark.parametrize("system", ["group", "document"])
def test_every_source_is_encoded_once_and_every_prefix_decoded_once(system):
    model = build(**SYSTEMS[system])
    [(groups, inputs)] = read_batches(model, SearchConfig())
    assert sorted(sorted(map(sorted, group)) for group in groups) == [[[0, 5], [2], [3], [6]], [[1], [4]]]
    assert len(inputs.source.documents) == 2
    assert len(inputs.target.documents) == len(inputs.document_alignment) == 6
    prefixes = set()
    for document, (start, length) in enumerate(
        zip(inputs.target.documents.starts.tolist(), inputs.target.documents.lengths.tolist(), strict=True)
    ):
        tokens = inputs.target.tokens[start : start + length].tolist()
        prefixes |= {(int(inputs.document_alignment[document]), tuple(tokens[: end + 1])) for end in range(length)}
    assert len(inputs.representatives.unique()) == len(prefixes) < len(inputs.representatives)


def test_the_sentence_model_scores_equal_pairs_of_sentences_once():
    model = build(**SYSTEMS["sentence"])
    pairs = {
        (tuple(one), tuple(other))
        for source, target in zip(SOURCES, TARGETS, strict=True)
        for one, other in zip(source, target, strict=True)
    }
    group_sizes = [len(group) for groups, _ in read_batches(model, SearchConfig()) for group in groups]
    assert (sum(group_sizes), len(group_sizes)) == (len(pairs), len({source for source, _ in pairs}))


@pytest.mark.parametrize("system", in_tiers(ONE_OF_EACH_ORDER, FEW))
def test_sharing_decodes_fewer_tokens(system, monkeypatch):
    """Number of embedded target tokens in the layers, compared with that of the pairs one by one."""
    model, counts = build(**SYSTEMS[system]), []
    decode = TranslationModel.decode
    monkeypatch.setattr(
        TranslationModel, "decode", lambda self, x, context: (counts.append(len(x)), decode(self, x, context))[1]
    )
    config = SearchConfig(**SHORT_LIMITS)
    score_documents(model, SOURCES, TARGETS, SPECIALS, config)
    together, counts[:] = sum(counts), []
    for source, target in zip(SOURCES, TARGETS, strict=True):
        score_documents(model, [source], [target], SPECIALS, config)
    assert together < 0.7 * sum(counts)


def test_a_batch_without_shared_parts_is_unchanged():
    model = build()
    task, words = (
        Task.from_documents(model, DOCUMENTS, SPECIALS, SearchConfig()),
        SentenceTokens.from_documents(DOCUMENTS),
    )
    [groups] = batch_by_source(task, words)
    batch = collate(task.words, words, task.instances, range(3), SPECIALS, model.boundary_tokens)
    assert share_sources(task, batch.inputs, groups) is batch.inputs
    assert batch.inputs.representatives is None
    assert torch.equal(model(batch.inputs), model(batch.inputs.to("cpu")))
