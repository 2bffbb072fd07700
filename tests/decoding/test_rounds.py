"""Decoding in rounds: enough rounds give the sequential search, and each is a search after earlier drafts."""

from dataclasses import replace

import pytest
import reference_search
from test_prefixes import MODELS, OVERLAP, SHORT_LIMITS, VOCABULARY, build, documents

from docmt.core.errors import DocmtError
from docmt.decoding import ContextConfig, SearchConfig, score_documents, translate_documents
from docmt.decoding.ensembles import Ensemble
from docmt.text import SpecialTokens
from variants import SYSTEMS

SPECIALS = SpecialTokens(VOCABULARY)
WITHOUT_OVERLAP = {"what was said before", "windows", "windows, distances", "linear windows"}
QUICK = {"positions by sentence", "linear, fading", "windows", "what was said before"}
NAMES = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.full) for name in MODELS]
LONGEST = 5


def translate(model, sources, rounds, beam=1, n_best=1, batch_tokens=8192, **context):
    config = SearchConfig(beam=beam, rounds=rounds, n_best=n_best, **SHORT_LIMITS)
    context = ContextConfig(**context)
    return translate_documents(model, sources, SPECIALS, config, context=context, batch_tokens=batch_tokens)


def best(n_best):
    return [ranks[0].sentences for ranks in n_best]


def choose_context(name, overlap):
    return OVERLAP if overlap and name not in WITHOUT_OVERLAP else {}


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_as_many_rounds_as_sentences_are_sequential_greedy_search(name, overlap):
    model, sources = build(3, **MODELS[name][0]), documents(5, count=4, sentences=LONGEST)
    context = choose_context(name, overlap)
    rounds = [best(translate(model, sources, rounds, **context)) for rounds in (0, LONGEST)]
    assert rounds[0] == rounds[1]


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_further_rounds_do_not_change_converged_drafts(name, beam):
    model, sources = build(4, **MODELS[name][0]), documents(6, count=2, sentences=4)
    assert best(translate(model, sources, 4, beam)) == best(translate(model, sources, 5, beam))


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_scores_equal_scoring_and_documents_and_batches_are_independent(name, beam):
    model, sources = build(5, **MODELS[name][0]), documents(7, count=3, sentences=5)
    together = translate(model, sources, 2, beam)
    small = translate(model, sources, 2, beam, batch_tokens=30)
    assert best(together) == best(small)
    config = SearchConfig(beam=beam, **SHORT_LIMITS)
    scored = score_documents(model, sources, best(together), SPECIALS, config)
    for source, (hypothesis, *_), scores in zip(sources, together, scored, strict=True):
        assert len(hypothesis.sentences) == len(source)
        assert hypothesis.sentence_scores == pytest.approx(scores.sentence_scores, abs=1e-6)
        assert hypothesis.score == pytest.approx(scores.score, abs=1e-6)
        assert best(translate(model, [source], 2, beam)) == [hypothesis.sentences]


def reference_round(model, document, config, drafts):
    """Return one round: each sentence by the reference search, after the drafts before it (None: alone)."""
    in_turn = model.system.decoding_order == "sequential"
    result = []
    for number in range(len(document)):
        first = (
            max(number + 1 - model.system.sentences, 0)
            if in_turn and not model.system.context_spec().target_context
            else 0
        )
        if drafts is None and in_turn:
            row = reference_search.ReferenceRow.whole(document[number : number + 1])
        elif drafts is None:
            row = reference_search.ReferenceRow(document, [number])
        elif in_turn:
            row = reference_search.ReferenceRow.whole(document[first : number + 1])
            row.prefix = drafts[first:number]
        else:
            row = reference_search.ReferenceRow(document, list(range(number + 1)), drafts[:number])
        ((_, tokens), *_) = reference_search.reference_beam_search(model, row, config)
        result.append(reference_search.split_words(tokens)[-1])
    return result


TWINS = ["group", "group, linear over the document", "concat, keep prefix", "hierarchical in the decoder"]


@pytest.mark.parametrize("beam", [1, pytest.param(2, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full) if "linear" in name else name for name in TWINS]
)
def test_rounds_equal_reference_searches_after_drafts(name, beam):
    model = reference_search.build(3, **SYSTEMS[name])
    config = SearchConfig(beam=beam, **reference_search.SHORT_LIMITS)
    specials, changed = reference_search.SPECIALS, False
    for document in reference_search.DOCUMENTS[::2]:
        drafts = None
        for rounds in (1, 2):
            hypothesis = translate_documents(model, [document], specials, replace(config, rounds=rounds))[0][0]
            before, drafts = drafts, reference_round(model, document, config, drafts)
            assert hypothesis.sentences == drafts
            changed |= before is not None and before != drafts
    assert changed, "the drafts matter"


def test_alternatives_and_ensembles():
    settings = MODELS["positions by sentence"][0]
    model, sources = build(7, **settings), documents(9, count=2, sentences=4)
    ranks = translate(model, sources, 2, beam=3, n_best=3)
    assert [len(hypotheses) for hypotheses in ranks] == [3, 3]
    assert best(ranks) == best(translate(model, sources, 2, beam=3))
    twins = Ensemble([model, build(7, **settings)])
    assert best(translate(twins, sources, 2)) == best(translate(model, sources, 2))


@pytest.mark.parametrize("settings", [{"system": "sentence"}, {"system": "document"}, {"system": "concat"}])
def test_rounds_are_refused_where_they_have_no_effect(settings):
    with pytest.raises(DocmtError, match=r"search\.rounds is for systems that see earlier translations"):
        translate(build(1, **settings), documents(1), 2)


def test_rounds_are_refused_with_published_searches():
    with pytest.raises(DocmtError, match=r"search\.rounds has no effect with search\.implementation thumt"):
        SearchConfig(rounds=2, implementation="thumt", max_length_extra=50)
