"""Searches among candidates: those of a row alone, whatever the search, the batch and the precision."""

import copy
import math

import pytest
import torch
from plain_search import DOCUMENTS, SPECIALS, score_documents, translate_documents
from plain_search import build as build_plain
from test_abreast import SHORT, VOCABULARY, documents, same
from test_abreast import build as build_group

from docmt import decoding
from docmt.core.errors import DocmtError
from docmt.decoding import SearchConfig, search
from docmt.decoding.candidates import check_candidates
from docmt.decoding.ensemble import Ensemble, members_of
from docmt.decoding.output import Output
from docmt.decoding.precision import Int8Linear, computing_in, lower_precision, selected_head
from docmt.model import ModelConfig, TranslationModel
from docmt.model.candidates import CandidateTable
from docmt.text import SpecialTokens
from variants import CONVENTIONS, ONE_OF_EACH_ORDER, SYSTEMS

GROUP = SpecialTokens(VOCABULARY)
WAYS = {
    "greedy": {"beam": 1},
    "beam": {"beam": 4, "n_best": 2},
    "abreast": {"beam": 1, "abreast": True},
    "sentences committed": {"beam": 3, "commit": "sentence"},
    "sentences committed, abreast": {"beam": 3, "commit": "sentence", "abreast": True},
    "carried": {"beam": 2, "carry": 2, "instance_tokens": 40},
    "hot": {"beam": 2, "temperature": 2.0},
}
COUNT = 3


def whole_table(size):
    """A table with which everything is a candidate."""
    return CandidateTable(torch.zeros(size, 1, dtype=torch.int32), torch.arange(size, dtype=torch.int32), size)


def small_table(size, seed=0):
    """A random table of three candidates for each token, and two that are always there."""
    generator = torch.Generator().manual_seed(seed)
    best = torch.randint(4, size - 2, (size, COUNT + 1), generator=generator, dtype=torch.int32)
    return CandidateTable(best, torch.tensor([7, 9], dtype=torch.int32), size)


def with_table(model, table):
    """The model, which knows these candidates."""
    members_of(model)[0].candidates = table
    return model


def found_by(model, given, way, candidates=COUNT):
    config = SearchConfig(candidates=candidates, **WAYS[way], **SHORT)
    return [ranks[0] for ranks in decoding.translate_documents(model, given, GROUP, config)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(3))
def test_if_all_are_candidates_nothing_changes(way, seed):
    model = with_table(build_group(seed), whole_table(VOCABULARY))
    for ours, theirs in zip(
        found_by(model, documents(seed), way), found_by(model, documents(seed), way, 0), strict=True
    ):
        assert ours == theirs


@pytest.mark.parametrize("name", [*ONE_OF_EACH_ORDER, *CONVENTIONS])
@pytest.mark.parametrize("beam", [1, 3])
def test_if_all_are_candidates_nothing_changes_in_any_system(name, beam):
    model = build_plain(2, **{**SYSTEMS, **CONVENTIONS}[name]).double()
    exactly = translate_documents(model, DOCUMENTS, SPECIALS, SearchConfig(beam=beam))
    with_table(model, whole_table(30))
    assert translate_documents(model, DOCUMENTS, SPECIALS, SearchConfig(beam=beam, candidates=1)) == exactly


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
@pytest.mark.parametrize("output", ["tied", "own", "scaled"])
def test_if_all_are_candidates_nothing_changes_in_lower_precision(precision, output):
    if precision == "int8" and not Int8Linear.available(torch.device("cpu")):
        pytest.skip("no products of 8-bit integers on this processor")
    model = lower_precision(build_plain(2, output=output), precision)
    with computing_in(model, precision):
        exactly = translate_documents(model, DOCUMENTS, SPECIALS, SearchConfig(beam=3))
        with_table(model, whole_table(30))
        assert translate_documents(model, DOCUMENTS, SPECIALS, SearchConfig(beam=3, candidates=1)) == exactly


def test_an_ensemble_has_the_candidates_of_its_first_member():
    members = [build_plain(1).double(), build_plain(2, width=24).double()]
    config = SearchConfig(beam=3, candidates=COUNT)
    exactly = translate_documents(Ensemble(members), DOCUMENTS, SPECIALS, SearchConfig(beam=3))
    with pytest.raises(DocmtError, match="knows no candidates"):
        translate_documents(with_table(Ensemble(members[::-1]), None), DOCUMENTS, SPECIALS, config)
    members[1].candidates = small_table(30)
    members[0].candidates = whole_table(30)
    assert translate_documents(Ensemble(members), DOCUMENTS, SPECIALS, config) == exactly


def restricted(model, candidates):
    """The model with logits of minus infinity for everything else."""
    made = copy.deepcopy(model)
    outside = torch.ones(model.config.vocabulary_size, dtype=torch.bool)
    outside[candidates] = False
    project = made.project
    made.project = lambda states: project(states).masked_fill(outside, -torch.inf)
    return made


@pytest.mark.parametrize("way", [way for way in WAYS if way != "carried"])
@pytest.mark.parametrize("kind", ["group", "ensemble"])
def test_a_document_is_searched_among_its_own_candidates_whatever_its_batch(way, kind):
    table, changed = small_table(VOCABULARY), 0
    for seed in range(2):
        members = (
            [build_group(seed)] if kind == "group" else [build_group(seed), build_group(seed + 5, decoder_layers=1)]
        )
        given = documents(seed)
        model = Ensemble(members) if kind == "ensemble" else members[0]
        plain = found_by(model, given, way, 0)
        found = found_by(with_table(model, table), given, way)
        for document, ours, before in zip(given, found, plain, strict=True):
            own = table.of(torch.tensor([word for sentence in document for word in sentence]), COUNT)
            others = [restricted(member, own) for member in members]
            wanted = found_by(Ensemble(others) if kind == "ensemble" else others[0], [document], way, 0)
            same([ours], wanted)
            assert {word for sentence in ours.sentences for word in sentence} <= set(own.tolist())
            changed += ours.sentences != before.sentences
    assert changed


@pytest.mark.parametrize("name", ONE_OF_EACH_ORDER)
@pytest.mark.parametrize("beam", [1, 3])
def test_documents_together_are_translated_as_each_alone(name, beam):
    model = with_table(build_plain(2, **SYSTEMS[name]).double(), small_table(30))
    config = SearchConfig(beam=beam, candidates=2, max_length_ratio=1.0, max_length_extra=3.0)
    for document, (found, *_) in zip(DOCUMENTS, translate_documents(model, DOCUMENTS, SPECIALS, config), strict=True):
        ((alone, *_),) = translate_documents(model, [document], SPECIALS, config)
        assert found.sentences == alone.sentences
        assert found.score == pytest.approx(alone.score, abs=1e-6)


def test_sentences_that_are_searched_alone_have_candidates_of_their_own(monkeypatch):
    rows = []

    def recorded(model, memories, own, *rest):
        rows.extend(own)
        return search(model, memories, own, *rest)

    monkeypatch.setattr("docmt.decoding.orders.search", recorded)
    table = small_table(30)
    for name in ("sentence", "group"):
        rows.clear()
        model = with_table(build_plain(1, **SYSTEMS[name]), table)
        translate_documents(model, DOCUMENTS[:1], SPECIALS, SearchConfig(beam=1, candidates=2))
        units = [[word] for word in DOCUMENTS[0]] if name == "sentence" else [DOCUMENTS[0]]
        wanted = [table.of(torch.tensor([word for own in unit for word in own]), 2).tolist() for unit in units]
        assert sorted(row.candidates.tolist() for row in rows) == sorted(wanted)


def test_candidates_are_those_of_the_source_and_the_marks():
    best = torch.tensor([[0, 0]] * 5 + [[11, 12], [12, 13], [0, 0]], dtype=torch.int32)
    table = CandidateTable(best, torch.tensor([20], dtype=torch.int32), 30)
    marks = [0, 1, 2, 3, 28, 29]
    assert table.of(torch.tensor([5, 6, 5]), 2).tolist() == sorted([*marks, 20, 11, 12, 13])
    assert table.of(torch.tensor([5, 6]), 1).tolist() == sorted([*marks, 20, 11, 12])
    assert table.of(torch.tensor([7]), 9).tolist() == sorted([*marks, 20])
    assert SpecialTokens(len(marks) + 4).eod == table.of(torch.tensor([5, 6]), 2).tolist().index(28)


@pytest.mark.parametrize("family", ["docmt", "m2m_100", "t5", "thumt", "mbart"])
@pytest.mark.parametrize("precision", ["none", "float32", "bfloat16", "int8"])
def test_the_logits_of_some_tokens_are_those_of_all(family, precision):
    if precision == "int8" and not Int8Linear.available(torch.device("cpu")):
        pytest.skip("no products of 8-bit integers on this processor")
    torch.manual_seed(0)
    sizes = {"width": 32, "feed_forward": 64, "heads": 4, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}
    model = TranslationModel(ModelConfig(system="sentence", family=family, vocabulary_size=40, **sizes)).eval()
    if precision != "none":
        model = lower_precision(model, precision)
    ids, states = torch.tensor([0, 1, 2, 3, 7, 21, 37, 38, 39]), torch.randn(5, 32)
    with torch.inference_mode(), computing_in(model, precision):
        torch.testing.assert_close(selected_head(model, ids)(states), model.project(states)[:, ids])


def test_what_is_no_candidate_of_its_own_row_has_no_logit():
    model = build_plain(1)
    sets = [torch.tensor([0, 1, 2, 3, 7, 28, 29]), torch.tensor([0, 1, 2, 3, 9, 12, 28, 29])]
    output, states = Output(model, [sets[0], sets[1], sets[0]]), [torch.randn(3, 16)]
    assert output.size == 9
    logits = output.logits(states, 1.0, torch.tensor([1, 0, 2]))
    for own, row in zip(logits, (1, 0, 2), strict=True):
        allowed = output.tokens(own.isfinite().nonzero().flatten())
        assert allowed.tolist() == sets[row % 2].tolist()
    assert output.places(sets[1]).tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
    assert output.of([1, 1]).logits([states[0][:2]], 1.0, torch.tensor([0, 1])).isfinite().sum() == 16
    output.keep(torch.tensor([1]))
    assert output.logits([states[0][:1]], 1.0, torch.tensor([0])).isfinite().sum() == 8
    assert Output(model, [sets[0], sets[0]]).outside is None


def test_given_translations_are_scored_over_the_whole_vocabulary():
    model, table = build_plain(2), small_table(30)
    config = SearchConfig(beam=2, candidates=COUNT)
    found = [ranks[0] for ranks in translate_documents(with_table(model, table), DOCUMENTS, SPECIALS, config)]
    targets = [own.sentences for own in found]
    scored = score_documents(model, DOCUMENTS, targets, SPECIALS, config)
    exactly = score_documents(model, DOCUMENTS, targets, SPECIALS, SearchConfig(beam=2))
    assert [own.score for own in scored] == [own.score for own in exactly]
    assert all(own.score > other.score and math.isfinite(own.score) for own, other in zip(found, scored, strict=True))


def test_what_is_refused():
    for compatibility in ("gtransformer", "thumt", "rfa", "huggingface"):
        with pytest.raises(DocmtError, match=f"search.candidates is not for search.compatibility {compatibility}"):
            SearchConfig(candidates=8, compatibility=compatibility)
    with pytest.raises(DocmtError, match=r"search.candidates is -1: choose a number from 0"):
        SearchConfig(candidates=-1)
    model = build_plain(1)
    check_candidates(model, SearchConfig())
    with pytest.raises(
        DocmtError, match=r"search.candidates is 8, but this model knows no candidates: leave it out, or"
    ):
        decoding.translate_documents(model, DOCUMENTS, SPECIALS, SearchConfig(candidates=8))
