"""Sentences drafted side by side, checked and repaired: greedy, what the sequential search finds."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import reference_search
from test_prefixes import MODELS, SHORT_LIMITS, VOCABULARY, build, check_equal, documents, open_gates
from test_products import needs_integers
from test_translator import TEXT, save

import docmt
from docmt.core.errors import DocmtError
from docmt.decoding import ContextConfig, SearchConfig, repair, score_documents, search, translate_documents
from docmt.decoding.document_stream import DocumentStream
from docmt.decoding.ensembles import Ensemble
from docmt.decoding.search_rules import SearchRow, choose_order
from docmt.decoding.translation_results import ResumePoint
from docmt.model.products import precision_context, prepare_products
from docmt.text import SpecialTokens
from variants import CONVENTIONS, SYSTEMS, in_tiers

SPECIALS = SpecialTokens(VOCABULARY)
OTHER = ["group, heads, sentence distances", "mbart50, keep prefix", "hierarchical, pre-norm", "bart, hierarchical"]
VARIANTS = {name: settings for name, (settings, _) in MODELS.items()}
VARIANTS |= {name: {**SYSTEMS, **CONVENTIONS}[name] for name in OTHER}
OVERLAP = {"overlap": 2, "instance_tokens": 24}  # most instances see sentences of the one before
LONGEST = 5  # sentences of most documents


def in_two_tiers(*quick):
    """Return all variants and contexts as test parameters, of which those that are not quick take turns."""
    groups = [name for name, settings in VARIANTS.items() if settings.get("system", "group") == "group"]
    cases = {n: (n, {}) for n in VARIANTS} | {f"{n}, overlap": (n, OVERLAP) for n in groups}
    marks = {tier.values[0]: tier.marks for tier in in_tiers(cases, quick) if not isinstance(tier, str)}
    marked = [pytest.param(*case, id=id, marks=marks.get(id, ())) for id, case in cases.items()]
    return pytest.mark.parametrize(("name", "context"), marked)


def make_model(name, seed=5):
    """Return a random model whose drafts are seldom right."""
    return open_gates(build(seed, **VARIANTS[name]))


def translate(model, sources, context=(), options=(), **settings):
    config, context = SearchConfig(**{"beam": 1, **SHORT_LIMITS, **settings}), ContextConfig(**dict(context))
    return translate_documents(model, sources, SPECIALS, config, context=context, **dict(options))


def best(results):
    return [ranks[0].sentences for ranks in results]


def check_all_equal(results, expected):
    check_equal([each for ranks in results for each in ranks], [each for ranks in expected for each in ranks])


def score(model, sources, targets, context=()):
    settings = SearchConfig(**SHORT_LIMITS), ContextConfig(**dict(context))
    return score_documents(model, sources, targets, SPECIALS, settings[0], context=settings[1])


@in_two_tiers("linear, averaging, overlap", "what was said before")
def test_greedy_search_equals_the_sequential_one_and_drafts_alone_do_not(name, context, monkeypatch):
    model, sources = make_model(name, seed=6), documents(6, count=5, sentences=2 * LONGEST)
    sources[3:3] = [[], [sources[0][0], [], *sources[0][1:3], []]]
    wanted = translate(model, sources, context, sequential=True)
    check_all_equal(translate(model, sources, context), wanted)
    assert any(ranks[0].at_limit for ranks in wanted)
    monkeypatch.setattr(repair._Repair, "_repair", lambda *arguments: set())
    assert best(translate(model, sources, context)) != best(wanted)


def test_rows_of_a_document_end_in_any_order():
    model, config = reference_search.build(), SearchConfig(beam=1, max_length_ratio=1.0, max_length_extra=1.0)
    memories = model.compute_memories(reference_search.make_inputs(model, reference_search.DOCUMENTS))
    rows = [SearchRow([number], [1 + 5 * number % 12]) for number in range(9)]
    alone = [best(search(model, memories, [row], reference_search.SPECIALS, config))[0] for row in rows]
    for seed in range(3):
        order = random.Random(seed).sample(range(9), 9)
        together = search(model, memories, [rows[n] for n in order], reference_search.SPECIALS, config)
        assert best(together) == [alone[n] for n in order]


def test_bad_drafts_are_repaired_with_beams(monkeypatch):
    """The model has learned four sentences in their context by heart."""
    source = docmt.Document.from_sentences(["the lamp is here", "it is old", "they see the umbrella", "it is new"])
    wanted = ["die Lampe ist hier", "sie ist alt", "sie sehen den Schirm", "er ist neu"]
    model = Path(__file__).parent.parent / "data" / "group_bad_drafts"
    translator = docmt.Translator(model, device="cpu", search=SearchConfig(beam=3))
    sentences = translator.translate(source).sentences
    assert [sentence.target for sentence in sentences] == wanted
    assert [sentence.score for sentence in sentences] == pytest.approx([-2.05, -1.163, -2.1613, -1.2074], abs=1e-3)
    scored = translator.score(source, docmt.Document.from_sentences(wanted)).sentences
    assert [sentence.score for sentence in scored] == pytest.approx([-2.05, -1.163, -2.1612, -1.2074], abs=1e-3)
    monkeypatch.setattr(repair, "MARGIN", float("inf"))  # one search each
    assert [sentence.target for sentence in translator.translate(source).sentences] != wanted


@pytest.mark.parametrize("name", in_tiers(["t5", "windows"], ["windows"]))  # which end some sentences early
def test_sentences_have_their_least_length(name):
    model, sources = make_model(name), documents(6, count=5, sentences=LONGEST)
    results = translate(model, sources, min_length=4)
    check_all_equal(results, translate(model, sources, min_length=4, sequential=True))
    assert best(results) != best(translate(model, sources))


@pytest.mark.parametrize("beam", [pytest.param(1, marks=pytest.mark.full), 3])
@in_two_tiers("windows", "what was said before")
def test_scores_are_those_of_scoring_and_documents_and_batches_are_independent(name, context, beam):
    model, sources = make_model(name), documents(7, count=3, sentences=LONGEST)
    results = translate(model, sources, context, beam=beam)
    for (hypothesis,), wanted in zip(results, score(model, sources, best(results), context), strict=True):
        assert hypothesis.sentence_tokens == wanted.sentence_tokens
        assert hypothesis.sentence_scores == pytest.approx(wanted.sentence_scores, abs=1e-6)
        assert hypothesis.score == pytest.approx(wanted.score, abs=1e-6)
    assert best(translate(model, sources, context, {"batch_tokens": 30}, beam=beam)) == best(results)
    assert [best(translate(model, [source], context, beam=beam))[0] for source in sources] == best(results)


@pytest.mark.parametrize("beam", [1, 3])
@in_two_tiers("windows")
def test_every_sentence_counts_once_and_is_searched_with_all_beams(name, context, beam, monkeypatch):
    model, sources, counts = make_model(name), [*documents(8, count=4, sentences=LONGEST), [[], [9]]], []
    searched = []

    def counting_search(model, memories, rows, specials, config, prefixes):
        searched.extend([config.beam] * len(rows))
        return search(model, memories, rows, specials, config, prefixes)

    monkeypatch.setattr(repair, "search", counting_search)
    translate(model, sources, context, {"batch_tokens": 60, "on_sentences": counts.append}, beam=beam)
    assert sum(counts) == sum(map(len, sources)) and min(counts) >= 0
    total = sum(bool(sentence) for source in sources for sentence in source)
    order = choose_order(model, SearchConfig(), ContextConfig(**context))
    if repair.can_repair(model, SearchConfig(beam=beam), ContextConfig(**context), order):
        assert searched.count(beam) >= total
    else:
        assert beam > 1 and not searched, "beams of instances that see each other are sequential"


@in_two_tiers("windows")
def test_alternatives(name, context):
    model, sources = make_model(name), documents(9, count=3, sentences=4)
    results = translate(model, sources, context, beam=3, n_best=3)
    assert best(results) == best(translate(model, sources, context, beam=3))
    for rank in range(3):
        targets = [ranks[rank].sentences for ranks in results]
        for ranks, wanted in zip(results, score(model, sources, targets, context), strict=True):
            assert len(ranks) == 3
            assert ranks[rank].sentence_scores == pytest.approx(wanted.sentence_scores, abs=1e-6)


@in_two_tiers("one layer over the document, overlap")
def test_ensembles(name, context):
    model, sources = make_model(name), documents(10, count=2, sentences=LONGEST)
    assert best(translate(Ensemble([model, make_model(name)]), sources)) == best(translate(model, sources))
    pair = Ensemble([model, make_model(name, 8)])  # weights of two sizes: no ties of members that are certain
    check_all_equal(translate(pair, sources, context), translate(pair, sources, context, sequential=True))


@pytest.mark.parametrize("precision", ["bfloat16", pytest.param("int8", marks=[needs_integers, pytest.mark.full])])
@in_two_tiers("one layer over the document")
def test_lower_precision(name, context, precision):
    model, sources = prepare_products(make_model(name, 8).float(), precision), documents(11, count=3, sentences=LONGEST)
    with precision_context(model, precision):
        results = translate(model, sources, context)
        scored = score(model, sources, best(results), context)
    for source, (hypothesis,), wanted in zip(sources, results, scored, strict=True):
        assert len(hypothesis.sentences) == len(source) and all(hypothesis.sentences)
        assert hypothesis.score == pytest.approx(wanted.score, abs=0.02)


def stream_spans(model, sources, context, start=None, **options):
    """Return the spans of a greedy search with a few sentences a batch, in the lists in which they are yielded."""
    options |= {"context": ContextConfig(**context), "batch_tokens": 40, "look_ahead": 40}
    config = SearchConfig(beam=1, **SHORT_LIMITS)
    return list(DocumentStream(model, sources, SPECIALS, config, **options).translate(start=start))


def sentences(lists):
    """Return the translation of each sentence, by its document and number."""
    spans = [span for spans in lists for span in spans]
    return {(s.document, s.first + n): words for s in spans for n, words in enumerate(s.hypotheses[0].sentences)}


def translate_for_streams(name, context):
    """Return a model, documents with empty sentences, and the translation of each sentence."""
    first, second = documents(30, count=2, sentences=LONGEST)
    model, sources = make_model(name), [first, [], [[], first[0], [], *second[:4]]]
    results = best(translate(model, sources, context))
    return model, sources, {(d, n): words for d, each in enumerate(results) for n, words in enumerate(each)}


@in_two_tiers("one layer over the document, overlap")
def test_a_stream_cut_into_pieces_and_its_resume_points(name, context):
    model, sources, whole = translate_for_streams(name, context)
    lists = stream_spans(model, sources, context)
    assert sentences(lists) == whole and len(lists) > 1
    points = {span.document: span.resume_point for spans in lists[: len(lists) // 2] for span in spans}
    assert stream_spans(model, sources, context, resume_points=points) == lists[len(lists) // 2 :]
    for document, source in enumerate(sources):
        done = range(min(3, len(source)))
        history = [[whole[document, number]] for number in done if source[number]]
        points[document] = ResumePoint(len(done), history, is_supplied=True)
    rest = sentences(stream_spans(model, sources, context, resume_points=points))
    assert rest == {key: words for key, words in whole.items() if key[1] >= 3}


@pytest.mark.parametrize(
    ("name", "context"),
    [pytest.param("positions through the document", OVERLAP, marks=pytest.mark.full), ("windows", {})],
)
def test_a_stream_that_skips_the_first_sentences(name, context):
    """A drafter begins where its reader resumes."""
    model, sources, whole = translate_for_streams(name, context)
    for start in ((0, 3), (2, 5)):
        rest = sentences(stream_spans(model, sources, context, start=start))
        assert [rest[key] for key in whole if key >= start] == [whole[key] for key in whole if key >= start]


def test_a_translator_continues_after_supplied_translations(tmp_path):
    config = docmt.SearchConfig(beam=1, max_length_ratio=0.0, max_length_extra=3.0)
    translator = docmt.Translator(save(tmp_path / "model"), search=config)
    document, targets = translator.prepare(TEXT), ["a few more words", "words", "more"]

    def translate_rest(translator, count):
        point = translator.resume_after(document, targets[:count])
        lists = translator.stream_parts([document], resume_points={0: point})
        return zip(*((s.target, s.score) for parts in lists for part in parts for s in part.translation), strict=True)

    _, alone = translate_rest(translator, 0)
    for count in (1, 3):
        texts, scores = translate_rest(translator, count)
        wanted, wanted_scores = translate_rest(translator.with_search(replace(config, sequential=True)), count)
        assert texts == wanted and scores == pytest.approx(wanted_scores, abs=1e-4)
        assert len(texts) == 4 - count and scores != pytest.approx(alone[count:], abs=1e-3)


@pytest.mark.parametrize("name", ["sentence", "document", "concat, keep last"])
def test_sequential_is_refused_where_it_has_no_effect(name):
    with pytest.raises(DocmtError, match=r"search\.sequential is for systems whose decoder sees earlier translations"):
        translate(build(1, **SYSTEMS[name]), documents(1), sequential=True)
    for other in ({"sampling": True}, {"implementation": "gtransformer"}):
        with pytest.raises(DocmtError, match=r"search\.sequential has no effect with search\."):
            SearchConfig(beam=1, sequential=True, **other)
