"""Decoding in rounds: enough rounds give the sequential search, and each is a search after earlier drafts."""

from dataclasses import replace

import plain_search
import pytest
from test_prefixes import CARRIED, MODELS, SHORT, VOCABULARY, build, documents

from docmt.core.errors import DocmtError
from docmt.decoding import ContextConfig, SearchConfig, score_documents, translate_documents
from docmt.decoding.models import Ensemble
from docmt.text import SpecialTokens
from variants import SYSTEMS

SPECIALS = SpecialTokens(VOCABULARY)
WITHOUT_OVERLAP = {"what was said before", "windows", "windows, distances", "linear windows"}
QUICK = {"positions by sentence", "linear, fading", "windows", "what was said before"}
NAMES = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.full) for name in MODELS]
LONGEST = 5


def translate(model, sources, rounds, beam=1, n_best=1, batch_tokens=8192, **context):
    config = SearchConfig(beam=beam, rounds=rounds, n_best=n_best, **SHORT)
    context = ContextConfig(**context)
    return translate_documents(model, sources, SPECIALS, config, context=context, batch_tokens=batch_tokens)


def best(found):
    return [ranks[0].sentences for ranks in found]


def context_of(name, overlap):
    return CARRIED if overlap and name not in WITHOUT_OVERLAP else {}


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_as_many_rounds_as_sentences_are_sequential_greedy_search(name, overlap):
    model, sources = build(3, **MODELS[name][0]), documents(5, count=4, sentences=LONGEST)
    context = context_of(name, overlap)
    rounds = [best(translate(model, sources, rounds, **context)) for rounds in (0, LONGEST)]
    assert rounds[0] == rounds[1]


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_further_rounds_change_nothing_once_drafts_stay(name, beam):
    model, sources = build(4, **MODELS[name][0]), documents(6, count=2, sentences=4)
    assert best(translate(model, sources, 4, beam)) == best(translate(model, sources, 5, beam))


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_scores_are_those_of_scoring_and_documents_and_batches_are_apart(name, beam):
    model, sources = build(5, **MODELS[name][0]), documents(7, count=3, sentences=5)
    together = translate(model, sources, 2, beam)
    small = translate(model, sources, 2, beam, batch_tokens=30)
    assert best(together) == best(small)
    config = SearchConfig(beam=beam, **SHORT)
    scored = score_documents(model, sources, best(together), SPECIALS, config)
    for source, (own, *_), other in zip(sources, together, scored, strict=True):
        assert len(own.sentences) == len(source)
        assert own.sentence_scores == pytest.approx(other.sentence_scores, abs=1e-6)
        assert own.score == pytest.approx(other.score, abs=1e-6)
        assert best(translate(model, [source], 2, beam)) == [own.sentences]


def plain_round(model, document, config, drafts):
    """One round written down: each sentence by the plain search, after the drafts before it (none: alone)."""
    in_turn = model.system.order == "in turn"
    result = []
    for number in range(len(document)):
        first = max(number + 1 - model.system.sentences, 0) if in_turn and not model.system.context_spec().shown else 0
        if drafts is None and in_turn:
            piece = plain_search.Piece.whole(document[number : number + 1])
        elif drafts is None:
            piece = plain_search.Piece(document, [number])
        elif in_turn:
            piece = plain_search.Piece.whole(document[first : number + 1])
            piece.prefix = drafts[first:number]
        else:
            piece = plain_search.Piece(document, list(range(number + 1)), drafts[:number])
        ((_, said), *_) = plain_search.plain_beam_search(model, piece, config)
        result.append(plain_search.words_of(said)[-1])
    return result


TWINS = ["group", "group, linear over the document", "concat, keep prefix", "hierarchical in the decoder"]


@pytest.mark.parametrize("beam", [1, pytest.param(2, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full) if "linear" in name else name for name in TWINS]
)
def test_rounds_are_plain_searches_after_drafts(name, beam):
    model = plain_search.build(3, **SYSTEMS[name])
    config = SearchConfig(beam=beam, **plain_search.SHORT)
    specials, changed = plain_search.SPECIALS, False
    for document in plain_search.DOCUMENTS[::2]:
        drafts = None
        for rounds in (1, 2):
            found = translate_documents(model, [document], specials, replace(config, rounds=rounds))[0][0]
            before, drafts = drafts, plain_round(model, document, config, drafts)
            assert found.sentences == drafts
            changed |= before is not None and before != drafts
    assert changed, "the drafts matter"


def test_alternatives_and_ensembles():
    settings = MODELS["positions by sentence"][0]
    model, sources = build(7, **settings), documents(9, count=2, sentences=4)
    ranks = translate(model, sources, 2, beam=3, n_best=3)
    assert [len(own) for own in ranks] == [3, 3]
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
