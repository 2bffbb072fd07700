"""What given translations share is computed once, and their scores are those of each scored alone."""

import pytest
import torch
from plain_search import DOCUMENTS, SHORT, SPECIALS, build, drafts_of, score_documents

from docmt.data import SentenceTokens, collate
from docmt.decoding import SearchConfig
from docmt.decoding.models import Ensemble
from docmt.decoding.scheduler import Task
from docmt.decoding.scoring import shared_batches, shared_reading
from docmt.model import TranslationModel
from variants import ONE_OF_EACH_ORDER, SYSTEMS, context, hierarchical, in_tiers

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


def compare(model, config, **more):
    together = score_documents(model, SOURCES, TARGETS, SPECIALS, config, **more)
    for source, target, found in zip(SOURCES, TARGETS, together, strict=True):
        alone = score_documents(model, [source], [target], SPECIALS, config, **more)[0]
        assert found.sentences == alone.sentences == target
        assert found.sentence_scores == pytest.approx(alone.sentence_scores, abs=1e-5)
        assert found.score == pytest.approx(alone.score, abs=1e-5)
        assert found.rank_scores == pytest.approx(alone.rank_scores, abs=1e-5)


@pytest.mark.parametrize("system", in_tiers(WITH_FAMILIES))
def test_scores_are_those_of_each_alone(system):
    compare(build(**WITH_FAMILIES[system]), SearchConfig(**SHORT), limited=False)


@pytest.mark.parametrize("tokens", [1, 40, 10_000])
def test_any_batch_and_cut_and_limit(tokens):
    compare(build(instance_tokens=12), SearchConfig(**SHORT, temperature=1.5), batch_tokens=tokens)


def test_many_translations_of_one_source_are_cut_into_batches():
    model = build()
    task = Task.of(model, [DOCUMENTS[0]] * 30, SPECIALS, SearchConfig(), batch_tokens=60)
    batches = list(
        shared_batches(task, SentenceTokens.of([[[9 + i % 9], [10 + i % 7], [12 + i % 5]] for i in range(30)]))
    )
    assert len(batches) > 5
    assert sorted(n for groups in batches for group in groups for equal in group for n in equal) == list(range(30))


def test_members_of_an_ensemble_share_too():
    compare(Ensemble([build(seed, **SYSTEMS["context"]) for seed in (1, 2)]), SearchConfig(**SHORT))


def read(model, config):
    """The batches of the task: groups, and what is read of each."""
    needs_drafts = drafts_of(SOURCES) if model.system.context_spec().drafts else None
    task, words = Task.of(model, SOURCES, SPECIALS, config, drafts=needs_drafts), SentenceTokens.of(TARGETS)
    for groups in shared_batches(task, words):
        firsts = [equal[0] for group in groups for equal in group]
        batch = collate(task.words, words, task.instances, firsts, SPECIALS, model.parts.frame, "last", task.drafts)
        yield groups, shared_reading(task, batch.inputs, groups)


@pytest.mark.parametrize("system", ["group", "document"])
def test_every_source_is_read_once_and_every_beginning_computed_once(system):
    model = build(**SYSTEMS[system])
    [(groups, inputs)] = read(model, SearchConfig())
    assert sorted(sorted(map(sorted, group)) for group in groups) == [[[0, 5], [2], [3], [6]], [[1], [4]]]
    assert len(inputs.source.documents) == 2
    assert len(inputs.target.documents) == len(inputs.documents) == 6
    beginnings = set()
    for document, (start, length) in enumerate(
        zip(inputs.target.documents.starts.tolist(), inputs.target.documents.lengths.tolist(), strict=True)
    ):
        said = inputs.target.tokens[start : start + length].tolist()
        beginnings |= {(int(inputs.documents[document]), tuple(said[: end + 1])) for end in range(length)}
    assert len(inputs.same.unique()) == len(beginnings) < len(inputs.same)


def test_the_sentence_model_scores_equal_pairs_of_sentences_once():
    model = build(**SYSTEMS["sentence"])
    pairs = {
        (tuple(one), tuple(other))
        for source, target in zip(SOURCES, TARGETS, strict=True)
        for one, other in zip(source, target, strict=True)
    }
    found = [len(group) for groups, _ in read(model, SearchConfig()) for group in groups]
    assert (sum(found), len(found)) == (len(pairs), len({source for source, _ in pairs}))


@pytest.mark.parametrize("system", ONE_OF_EACH_ORDER)
def test_less_is_computed(system, monkeypatch):
    """Embedded decoder input that goes through the layers, against what the same pairs take one by one."""
    model, seen = build(**SYSTEMS[system]), []
    decode = TranslationModel.decode
    monkeypatch.setattr(
        TranslationModel, "decode", lambda self, x, context: (seen.append(len(x)), decode(self, x, context))[1]
    )
    config = SearchConfig(**SHORT)
    score_documents(model, SOURCES, TARGETS, SPECIALS, config)
    together, seen[:] = sum(seen), []
    for source, target in zip(SOURCES, TARGETS, strict=True):
        score_documents(model, [source], [target], SPECIALS, config)
    assert together < 0.7 * sum(seen)


def test_a_document_without_anything_shared_is_read_as_it_is():
    model = build()
    task, words = Task.of(model, DOCUMENTS, SPECIALS, SearchConfig()), SentenceTokens.of(DOCUMENTS)
    [groups] = shared_batches(task, words)
    batch = collate(task.words, words, task.instances, range(3), SPECIALS, model.parts.frame)
    assert shared_reading(task, batch.inputs, groups) is batch.inputs
    assert batch.inputs.same is None
    assert torch.equal(model(batch.inputs), model(batch.inputs.to("cpu")))
