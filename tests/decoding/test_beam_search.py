"""The search against a plain one that recomputes everything; frames, limits, batches, scores, orders of decoding."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from reference_search import (
    DOCUMENTS,
    SHORT_LIMITS,
    SPECIALS,
    ReferenceRow,
    add_boundaries,
    build,
    greedy_search,
    is_joined,
    make_inputs,
    one_by_one,
    reference_beam_search,
    reference_translation,
    score_documents,
    search_documents,
    shift_joined,
    split_words,
    translate_documents,
)

from docmt.core.errors import DocmtError
from docmt.data import cut_instances
from docmt.decoding import SearchConfig, beam_search, caches, published_searches
from docmt.decoding.incremental import IncrementalDecoder
from docmt.decoding.scheduler import Task
from docmt.decoding.search_rules import SearchRow
from docmt.model import pack
from docmt.model.systems import Concat, ContextSpec
from variants import (
    CONVENTIONS,
    FEW,
    FRAMED,
    JOINED,
    ONE_OF_EACH_ORDER,
    SYSTEMS,
    WIDE,
    context,
    hierarchical,
    in_tiers,
    multihop,
)

# Other boundary tokens, with the systems that the family has.
VARIANTS = {**SYSTEMS, **JOINED}
WITH_FAMILIES = {
    **VARIANTS,
    **CONVENTIONS,
    "sentence, thumt": {"family": "thumt", "system": "sentence"},
    "context, thumt": {"family": "thumt", **context(fusion="published")},
    "context lstm, thumt": {"family": "thumt", **context(representation="bilstm")},
    "multihop, thumt": {"family": "thumt", **multihop()},
    "hierarchical, thumt": {"family": "thumt", **hierarchical()},
    **WIDE,
}
FAMILIES = ("linear, gates, keep prefix, rfa", "relative positions, gated", "context, thumt", "context lstm, bert")
"""Further ones for the quick tier."""


@pytest.mark.parametrize("system", in_tiers([*FRAMED, *JOINED], ["group", "linear, gates, keep prefix, rfa"]))
def test_search_equals_the_reference_search(system):
    model = build(**VARIANTS[system])
    config = SearchConfig(beam=2, n_best=2, length_penalty=0.6, min_length=3, **SHORT_LIMITS)
    for document in DOCUMENTS[:2]:
        expected = reference_beam_search(model, ReferenceRow.whole(document), config)
        results = search_documents(model, [document], config)[0]
        assert [h.sentences for h in results] == [split_words(tokens) for _, tokens in expected]
        assert [h.score for h in results] == pytest.approx([score for score, _ in expected], abs=1e-4)


@pytest.mark.parametrize("beam", [2, pytest.param(4, marks=pytest.mark.full)])
def test_open_search_equals_the_reference_search(beam):
    config = SearchConfig(beam=beam, n_best=beam, **SHORT_LIMITS)
    for seed in range(2):
        model = build(seed, **SYSTEMS["document"])
        expected = reference_beam_search(model, ReferenceRow.whole(DOCUMENTS[0]), config)
        results = search_documents(model, DOCUMENTS[:1], config)[0]
        assert [h.sentences for h in results] == [split_words(tokens) for _, tokens in expected]
        assert [h.score for h in results] == pytest.approx([score for score, _ in expected], abs=1e-4)


@pytest.mark.parametrize(
    "system", in_tiers([*ONE_OF_EACH_ORDER, *JOINED], ["group", "linear, gates, keep prefix, rfa"])
)
def test_beam_one_is_greedy(system):
    model = build(**VARIANTS[system])
    config = SearchConfig(beam=1, **SHORT_LIMITS)
    document = DOCUMENTS[0]
    tokens = greedy_search(model, ReferenceRow.whole(document), config)
    assert search_documents(model, [document], config)[0][0].sentences == split_words(tokens)


@pytest.mark.parametrize("system", in_tiers(VARIANTS, ["document", "hierarchical on both sides"]))
def test_translations_equal_reference_greedy_searches_in_their_order(system):
    model = build(**VARIANTS[system])
    config = SearchConfig(beam=1, **SHORT_LIMITS)
    translated = translate_documents(model, DOCUMENTS, SPECIALS, config)
    for document, (hypothesis,) in zip(DOCUMENTS, translated, strict=True):
        expected = reference_translation(model, document, lambda row: greedy_search(model, row, config))
        if hypothesis.miscounted:  # surplus sentences are joined to the last
            surplus = [word for sentence in expected[len(document) :] for word in sentence]
            expected = [*expected[: len(document)], *[[]] * (len(document) - len(expected))]
            expected[-1] = expected[-1] + surplus
        assert hypothesis.sentences == expected


@pytest.mark.parametrize(
    "system",
    in_tiers([*(name for name in ONE_OF_EACH_ORDER if name != "document"), *JOINED], ["concat, keep last", "multihop"]),
)
def test_translations_equal_reference_beam_searches_in_their_order(system):
    model = build(**VARIANTS[system])
    config = one_by_one(model, SearchConfig(beam=2, length_penalty=0.7, **SHORT_LIMITS))
    translated = translate_documents(model, DOCUMENTS[:2], SPECIALS, config)
    for document, (hypothesis,) in zip(DOCUMENTS[:2], translated, strict=True):
        expected = reference_translation(model, document, lambda row: reference_beam_search(model, row, config)[0][1])
        assert hypothesis.sentences == expected


STREAM = [[20, 21], [22], [23, 24, 25], [19], [18]]


@torch.inference_mode()
def check_steps(model, inputs, row, streams, alike_until):
    """Step through the streams of as many beams, and rotate the beams after each step."""
    beams = len(streams)
    decoder = IncrementalDecoder(model, model.compute_memories(inputs), [row], beams)
    expected = torch.stack([model(replace(inputs, target=pack([stream]))) for stream in streams])  # [B, T, d]
    tokens = [[token for sentence in stream for token in sentence] for stream in streams]
    positions = [(number, offset) for number, s in enumerate(streams[0]) for offset in range(len(s))]
    order = torch.arange(beams)
    for step, (number, offset) in enumerate(positions):
        next_tokens = torch.tensor([tokens[b][step] for b in order.tolist()])
        sentences = torch.full_like(order, row.sentences[number])
        (states,) = decoder.step(next_tokens, torch.full_like(order, offset), step, sentences)
        torch.testing.assert_close(states, expected[order, step], atol=2e-5, rtol=1e-4)
        parents = torch.tensor([1, 2, 0])
        order = order[parents]
        if step == alike_until:  # all follow one of them, so the tokens of the others are forgotten
            parents, order = torch.tensor([2, 2, 2]), torch.arange(beams)
        decoder.reorder(parents)
        if step >= alike_until:
            decoder.forget()


def make_decoder_input(model, sentences):
    """Decoder input."""
    return shift_joined(sentences) if is_joined(model) else add_boundaries(sentences)


@pytest.mark.parametrize("system", in_tiers(VARIANTS, also=["group, sentence distances", *FAMILIES], every=True))
def test_cached_steps_equal_the_full_forward_pass_after_reordering(system):
    model = build(**VARIANTS[system])
    document = DOCUMENTS[2]
    streams = [make_decoder_input(model, STREAM) for _ in range(3)]
    for beam, stream in enumerate(streams):
        stream[2][1] = 10 + beam  # alike until the third sentence
    inputs = make_inputs(model, [document])
    row = SearchRow(range(len(document)), [len(sentence) for sentence in document])
    check_steps(model, inputs, row, streams, alike_until=4)  # the first five positions are the same in all beams


@pytest.mark.parametrize(
    "system", in_tiers([name for name in VARIANTS if "group" not in name and "global" not in name], also=FAMILIES)
)
def test_cached_steps_of_single_sentences_equal_the_full_forward_pass_after_reordering(system):
    model = build(**VARIANTS[system])
    document, number = (DOCUMENTS[2], 2) if model.system.decoding_order == "sentences" else (DOCUMENTS[1], 0)
    streams = [make_decoder_input(model, [[20, 21, 10 + beam, 22, 23]]) for beam in range(3)]
    inputs = make_inputs(model, [document], [number])
    check_steps(model, inputs, SearchRow([number], [len(document[number])]), streams, alike_until=2)


@pytest.mark.parametrize("system", in_tiers([*ONE_OF_EACH_ORDER, *FEW[1:2]], FEW))
@pytest.mark.parametrize("beam", [pytest.param(1, marks=pytest.mark.full), 4])
def test_batched_equals_single(system, beam):
    model = build(2, **SYSTEMS[system]).double()
    config = SearchConfig(beam=beam, n_best=beam, **SHORT_LIMITS)
    together = search_documents(model, DOCUMENTS, config)
    for document, results in zip(DOCUMENTS, together, strict=True):
        alone = search_documents(model, [document], config)[0]
        assert [h.sentences for h in results] == [h.sentences for h in alone]
        assert [h.score for h in results] == pytest.approx([h.score for h in alone], abs=1e-5)


@pytest.mark.parametrize("system", in_tiers(WITH_FAMILIES, ["concat, keep last", "linear, gates, keep prefix, rfa"]))
def test_documents_together_are_translated_as_each_alone(system):
    model = build(2, **WITH_FAMILIES[system]).double()
    config = SearchConfig(beam=3, n_best=3, **SHORT_LIMITS)
    together = translate_documents(model, DOCUMENTS, SPECIALS, config)
    for document, results in zip(DOCUMENTS, together, strict=True):
        alone = translate_documents(model, [document], SPECIALS, config)[0]
        assert [h.sentences for h in results] == [h.sentences for h in alone]
        assert [h.score for h in results] == pytest.approx([h.score for h in alone], abs=1e-5)


@pytest.mark.parametrize("system", in_tiers(WITH_FAMILIES, also=["mbart50, keep prefix"], every=True))
def test_scoring_a_translation_gives_the_score_of_the_search(system):
    model = build(**WITH_FAMILIES[system])
    config = SearchConfig(beam=4, max_length_ratio=1.2, max_length_extra=2.0)
    translated = [ranks[0] for ranks in translate_documents(model, DOCUMENTS, SPECIALS, config)]
    well_formed = [i for i, hypothesis in enumerate(translated) if not hypothesis.miscounted]
    assert well_formed or system == "document"
    scored = score_documents(
        model, [DOCUMENTS[i] for i in well_formed], [translated[i].sentences for i in well_formed], SPECIALS, config
    )
    for i, scores in zip(well_formed, scored, strict=True):
        assert scores.sentences == translated[i].sentences
        assert scores.sentence_scores == pytest.approx(translated[i].sentence_scores, abs=1e-4)
        assert scores.score == pytest.approx(translated[i].score, abs=1e-5)


@pytest.mark.parametrize(
    "system", in_tiers([name for name in ONE_OF_EACH_ORDER if name != "document"], ["group", "concat, keep last"])
)
def test_scores_of_all_ranks_equal_scoring(system):
    model = build(**SYSTEMS[system])
    config = SearchConfig(beam=4, n_best=3, **SHORT_LIMITS)
    for document, ranks in zip(DOCUMENTS, translate_documents(model, DOCUMENTS, SPECIALS, config), strict=True):
        targets = [hypothesis.sentences for hypothesis in ranks]
        scored = score_documents(model, [document] * len(ranks), targets, SPECIALS, config)
        assert len(ranks) == 3
        assert [hypothesis.score for hypothesis in ranks] == pytest.approx(
            [scores.score for scores in scored], abs=1e-5
        )


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 3))])
def test_plain_document_scores_are_of_the_translation_as_it_is_read(seed):
    """The search may generate other boundary tokens than one `</s> <s>` between two sentences."""
    model, config = build(seed, system="document"), SearchConfig(beam=3, n_best=2, **SHORT_LIMITS)
    for document, ranks in zip(DOCUMENTS, translate_documents(model, DOCUMENTS, SPECIALS, config), strict=True):
        for hypothesis in ranks:
            (scored,) = score_documents(model, [document], [hypothesis.sentences], SPECIALS, config)
            assert hypothesis.sentence_scores == pytest.approx(scored.sentence_scores, abs=1e-4)
            assert hypothesis.sentence_tokens == scored.sentence_tokens
            assert hypothesis.score == pytest.approx(scored.score, abs=1e-4)


def test_plain_document_scores_agree_when_the_stream_is_well_formed():
    """A model that likes boundary tokens, so that the open search gives the right number of sentences."""
    model = build(system="document")
    wanted = [[[20], [21], [22]], [[23]]]
    sources = DOCUMENTS[:2]
    scored = score_documents(model, sources, wanted, SPECIALS, SearchConfig())
    for source, target, scored_document in zip(sources, wanted, scored, strict=True):
        labels = [*[token for sentence in add_boundaries(target) for token in sentence][1:], SPECIALS.eod]
        scores = model.logits([(add_boundaries(source), add_boundaries(target))])[0].log_softmax(-1)
        assert sum(scored_document.sentence_scores) == pytest.approx(
            scores[range(len(labels)), labels].sum().item(), abs=1e-4
        )
        assert scored_document.score == pytest.approx(sum(scored_document.sentence_scores) / len(labels), abs=1e-5)


@pytest.mark.parametrize("system", in_tiers([name for name in WITH_FAMILIES if name != "document"], FEW))
def test_every_source_sentence_has_one_target_sentence_whatever_the_weights(system):
    model = build(0, **WITH_FAMILIES[system])
    config = SearchConfig(beam=3, min_length=2, **SHORT_LIMITS)
    for document, results in zip(DOCUMENTS, translate_documents(model, DOCUMENTS, SPECIALS, config), strict=True):
        assert len(results[0].sentences) == len(document)
        assert not results[0].miscounted
        for source, target in zip(document, results[0].sentences, strict=True):
            assert 2 <= len(target) <= config.sentence_limit(len(source))
            assert all(SPECIALS.first_word <= token < SPECIALS.eod for token in target)


@pytest.mark.parametrize("system", in_tiers(ONE_OF_EACH_ORDER, ["group", "document", "concat, keep last"]))
def test_sentences_ended_by_the_length_limit_are_reported(system):
    config = SearchConfig(beam=2, max_length_ratio=0.0, max_length_extra=8.0)
    reported = set()
    for seed in range(14):
        model = build(seed, **SYSTEMS[system])
        with torch.no_grad():
            model.tokens.weight[[SPECIALS.eos, SPECIALS.eod]] *= 1.5  # ends are likely
        for document, (hypothesis,) in zip(
            DOCUMENTS, translate_documents(model, DOCUMENTS, SPECIALS, config), strict=True
        ):
            reported.update(number in hypothesis.at_limit for number in range(len(document)))
            if system != "document":
                assert hypothesis.at_limit == [
                    i for i, sentence in enumerate(hypothesis.sentences) if len(sentence) == 8
                ]
            else:
                # Boundary tokens count in the limit, and those between joined sentences are not words.
                boundary_count = 2 * len(document)
                words = sum(map(len, hypothesis.sentences))
                assert hypothesis.at_limit == [len(document) - 1] or words < 8 * len(document) + boundary_count
                assert not hypothesis.at_limit or hypothesis.miscounted or words > 8 * len(document) - boundary_count
        if reported == {True, False}:
            return
    raise AssertionError(f"all sentences were alike: {reported}")


@pytest.mark.parametrize(
    ("system", "implementation"), [("sentence", "thumt"), ("sentence", "huggingface"), ("document", "gtransformer")]
)
def test_only_translations_that_the_limit_of_a_published_search_ended_are_reported(system, implementation, monkeypatch):
    end = SPECIALS.eos if system == "sentence" else SPECIALS.eod
    steps = []

    def end_at_the_eighth_token(*arguments):
        logits = compute_next_logits(*arguments)
        steps.append(1)
        logits[:, end] = 100.0 if len(steps) >= 8 else -100.0
        return logits

    compute_next_logits = beam_search.compute_next_logits
    for module in (beam_search, published_searches):
        monkeypatch.setattr(module, "compute_next_logits", end_at_the_eighth_token)
    config = SearchConfig(beam=1, max_length_ratio=1.0, max_length_extra=1.0, implementation=implementation)
    documents = [[[9]], [[8, 9, 10, 11, 12, 13] * 3]]
    (short,), (long,) = translate_documents(build(**SYSTEMS[system]), documents, SPECIALS, config)
    assert long.at_limit == []
    # Both published codes limit all translations of a batch by its longest source.
    assert short.at_limit == ([0] if implementation == "huggingface" else [])
    steps.clear()
    ((alone,),) = translate_documents(build(**SYSTEMS[system]), documents[:1], SPECIALS, config)
    assert alone.at_limit == [0]


@pytest.mark.parametrize("system", in_tiers([*ONE_OF_EACH_ORDER, *FEW[1:2]], ["document", "group"]))
def test_empty_sentences_stay_empty_and_do_not_change_others(system):
    model = build(**SYSTEMS[system])
    config = SearchConfig(beam=2, **SHORT_LIMITS)
    holes = [[[], *[part for sentence in document for part in (sentence, [])]] for document in DOCUMENTS] + [[[], []]]
    counts = []
    hypotheses = [ranks[0] for ranks in translate_documents(model, holes, SPECIALS, config, on_sentences=counts.append)]
    assert sum(counts) == sum(map(len, holes))
    for hypothesis, ranks in zip(hypotheses, translate_documents(model, DOCUMENTS, SPECIALS, config), strict=False):
        wanted = ranks[0]
        assert hypothesis.sentences[1::2] == wanted.sentences
        assert not any(hypothesis.sentences[::2])
        assert hypothesis.sentence_scores[1::2] == pytest.approx(wanted.sentence_scores, abs=1e-5)
        assert hypothesis.at_limit == [2 * i + 1 for i in wanted.at_limit]
        assert hypothesis.miscounted == [(2 * first + 1, 2 * last) for first, last in wanted.miscounted]
    assert (hypotheses[-1].sentences, hypotheses[-1].score) == ([[], []], 0)
    if system != "document":
        scored = score_documents(model, holes, [hypothesis.sentences for hypothesis in hypotheses], SPECIALS, config)
        assert [hypothesis.score for hypothesis in scored] == pytest.approx(
            [hypothesis.score for hypothesis in hypotheses], abs=1e-5
        )


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 3))])
def test_plain_document_system_reports_a_wrong_count_and_still_gives_one_for_each(seed):
    model = build(seed, system="document")
    for document, ranks in zip(DOCUMENTS, translate_documents(model, DOCUMENTS, SPECIALS, SearchConfig()), strict=True):
        assert len(ranks[0].sentences) == len(ranks[0].sentence_scores) == len(document)
        assert ranks[0].miscounted in ([], [(0, len(document))])


def test_long_documents_are_translated_in_instances():
    model = build(instance_tokens=16)
    document = [[5 + i % 20, 6, 7] for i in range(11)]  # cost 5 each: three to an instance
    config = SearchConfig(beam=2, **SHORT_LIMITS)
    whole = translate_documents(model, [document], SPECIALS, config)[0][0]
    parts = [translate_documents(model, [document[i : i + 3]], SPECIALS, config)[0][0] for i in range(0, 11, 3)]
    assert whole.sentences == [sentence for part in parts for sentence in part.sentences]
    assert sum(whole.sentence_scores) == pytest.approx(sum(sum(p.sentence_scores) for p in parts), abs=1e-4)


def test_sentence_system_translates_sentence_by_sentence():
    model = build(system="sentence")
    config = SearchConfig(beam=2, **SHORT_LIMITS)
    whole = translate_documents(model, DOCUMENTS, SPECIALS, config)
    for document, ranks in zip(DOCUMENTS, whole, strict=True):
        for number, sentence in enumerate(document):
            alone = translate_documents(model, [[sentence]], SPECIALS, config)[0][0]
            assert ranks[0].sentences[number] == alone.sentences[0]


def test_n_best_lists_are_sorted_and_differ():
    n_best = translate_documents(
        build(), DOCUMENTS, SPECIALS, SearchConfig(beam=5, n_best=4, sequential=True, **SHORT_LIMITS)
    )
    for hypotheses in n_best:
        assert len(hypotheses) == 4
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        assert len({str(h.sentences) for h in hypotheses}) == 4


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("system", in_tiers(["group", "document", "concat, linear, gates", "context"], ["group"]))
def test_results_do_not_depend_on_how_often_the_host_synchronizes(system, beam, monkeypatch):
    model, config = build(**SYSTEMS[system]), SearchConfig(beam=beam, n_best=beam, **SHORT_LIMITS)
    wanted = translate_documents(model, DOCUMENTS, SPECIALS, config)
    for module in (caches, beam_search):
        monkeypatch.setattr(module, "can_synchronize", lambda device: False)
    for results, expected in zip(translate_documents(model, DOCUMENTS, SPECIALS, config), wanted, strict=True):
        assert [hypothesis.sentences for hypothesis in results] == [hypothesis.sentences for hypothesis in expected]
        assert [hypothesis.score for hypothesis in results] == pytest.approx(
            [hypothesis.score for hypothesis in expected], abs=1e-5
        )


def test_a_step_reads_at_most_three_values_from_a_gpu(monkeypatch):
    """Each read makes the host wait: ended hypotheses, rows that begin another sentence, number of positions."""
    model, calls, steps = build(), [], []
    document, step = [[5 + n % 20, 6, 7, 8, 9, 10] for n in range(6)], beam_search.BeamSearch.step
    rows = [SearchRow(range(len(document)), [len(sentence) for sentence in document])]
    config = SearchConfig(beam=3, min_length=6, max_length_ratio=1.0, max_length_extra=6.0)
    inputs = make_inputs(model, [document])
    search = beam_search.BeamSearch(model, model.compute_memories(inputs), rows, SPECIALS, config)
    for module in (caches, beam_search):
        monkeypatch.setattr(module, "can_synchronize", lambda device: False)
    for name in ("nonzero", "tolist", "item", "__bool__", "__int__", "__float__"):
        real = getattr(torch.Tensor, name)
        monkeypatch.setattr(torch.Tensor, name, lambda *x, real=real, name=name: calls.append(name) or real(*x))
    with torch.inference_mode():
        for _ in range(32):
            step(search)
            steps.append(len(calls))
    assert search.unfinished
    assert sorted(later - before for before, later in pairwise(steps))[len(steps) // 2] <= 3
    assert len(calls) < 4 * len(steps)


@pytest.mark.parametrize("system", in_tiers(ONE_OF_EACH_ORDER, ["group"]))
def test_small_batches_do_not_change_translations(system):
    model = build(**SYSTEMS[system])
    config = SearchConfig(beam=3, **SHORT_LIMITS)
    large = translate_documents(model, DOCUMENTS, SPECIALS, config)
    small = translate_documents(model, DOCUMENTS, SPECIALS, config, batch_tokens=1)
    assert [ranks[0].sentences for ranks in large] == [ranks[0].sentences for ranks in small]


@pytest.mark.parametrize("system", in_tiers(ONE_OF_EACH_ORDER, ["group", "context"]))
def test_documents_without_sentences_stay_empty(system):
    n_best = translate_documents(build(**SYSTEMS[system]), [[], DOCUMENTS[1], []], SPECIALS, SearchConfig())
    assert [len(hypotheses[0].sentences) for hypotheses in n_best] == [0, 1, 0]


def test_a_beam_wider_than_the_possible_translations_ends():
    config = SearchConfig(beam=30, min_length=0, max_length_ratio=0.0, max_length_extra=1.0, n_best=30)
    hypotheses = search_documents(build(), [[[5]]], config)[0]
    assert 1 <= len(hypotheses) <= 30


def test_length_limit_counts_true_words():
    config = SearchConfig()
    assert config.sentence_limit(5) == 16
    assert config.sentence_limit(1) == 11


@pytest.mark.parametrize("system", in_tiers(ONE_OF_EACH_ORDER, ["group", "context"]))
@pytest.mark.parametrize("beam", [1, 3])
def test_weights_that_are_no_numbers_give_one_sentence(system, beam):
    model = build(**SYSTEMS[system])
    with torch.no_grad():
        model.decoder[0].feed_forward.inner.weight.fill_(torch.nan)
    config = SearchConfig(beam=beam)
    with pytest.raises(DocmtError, match=r"weights or scores are not finite numbers\. Train it again") as caught:
        translate_documents(model, DOCUMENTS, SPECIALS, config)
    assert "\n" not in str(caught.value)
    with pytest.raises(DocmtError, match=r"weights or scores are not finite numbers\. Train it again") as caught:
        score_documents(model, DOCUMENTS, DOCUMENTS, SPECIALS, config)
    assert "\n" not in str(caught.value)


def test_a_window_of_a_long_document_holds_what_fits():
    """Windows by the rule of training: of three sentences of five tokens, below 14 tokens, two."""
    document = [[5 + i, 6, 7] for i in range(6)]
    small = build(system="concat", concat=Concat(sentences=3), instance_tokens=14)
    two = build(system="concat", concat=Concat(sentences=2))
    config = SearchConfig(beam=2, **SHORT_LIMITS)
    assert [hypothesis.sentences for hypothesis in translate_documents(small, [document], SPECIALS, config)[0]] == [
        hypothesis.sentences for hypothesis in translate_documents(two, [document], SPECIALS, config)[0]
    ]


def test_contexts_reach_over_the_limit_of_an_instance():
    """A limit of instances cuts what is encoded together, never the context."""
    document = [[5 + i, 6, 7] for i in range(6)]
    config = SearchConfig(beam=2, **SHORT_LIMITS)
    hypotheses = [
        translate_documents(build(**context(), instance_tokens=tokens), [document], SPECIALS, config)[0][0]
        for tokens in (8, 11, 512)
    ]
    assert hypotheses[0].sentences == hypotheses[1].sentences == hypotheses[2].sentences
    assert hypotheses[0].sentence_scores == pytest.approx(hypotheses[2].sentence_scores, abs=1e-4)


def test_numbers_of_positions_hold_in_translation():
    model = build(position_encoding="learned", max_positions=12, system="sentence")
    assert len(translate_documents(model, [[[5] * 6] * 9], SPECIALS, SearchConfig(**SHORT_LIMITS))[0][0].sentences) == 9
    for options in ({"system": "sentence"}, context(), {"system": "document"}, {"system": "concat"}):
        model = build(position_encoding="learned", max_positions=12, **options)
        with pytest.raises(DocmtError, match=r"sentence 2 of the document may need 16 positions, but the model has 12"):
            translate_documents(model, [[[5], [5] * 11]], SPECIALS, SearchConfig(**SHORT_LIMITS))


def test_positions_need_not_reach_through_sentences_that_are_seen_one_by_one():
    model = build(position_encoding="learned", max_positions=12, **hierarchical(side="both"))
    config = SearchConfig(beam=1, max_length_ratio=1.0, max_length_extra=1.0)
    (hypothesis,) = translate_documents(model, [[[5] * 9] * 5], SPECIALS, config)[0]
    assert len(hypothesis.sentences) == 5


@pytest.mark.parametrize("system", ["group", "concat, keep prefix", "document"])
def test_a_family_whose_decoder_sees_no_end_marks_goes_sentence_by_sentence(system):
    with pytest.raises(DocmtError, match=r"model.family thumt is for systems that translate sentence by sentence"):
        build(3, **SYSTEMS[system], family="thumt")


@pytest.mark.parametrize("implementation", ["docmt", "gtransformer"])
@pytest.mark.parametrize("system", ["concat, keep last", "concat, keep prefix"])
def test_the_score_of_a_document_counts_each_token_once(system, implementation):
    model = build(2, **SYSTEMS[system])
    config = SearchConfig(beam=2, implementation=implementation, max_length_ratio=1.2, max_length_extra=3.0)
    hypotheses = [ranks[0] for ranks in translate_documents(model, DOCUMENTS, SPECIALS, config)]
    scored = score_documents(model, DOCUMENTS, [hypothesis.sentences for hypothesis in hypotheses], SPECIALS, config)
    assert [hypothesis.score for hypothesis in hypotheses] == pytest.approx(
        [hypothesis.score for hypothesis in scored], abs=1e-5
    )


@pytest.mark.parametrize("options", [{"positions": "document"}, {"positions": "sentence"}])
def test_learned_positions_that_reach_change_no_instance(options):
    lengths = [[5] * 20] * 12
    model = build(position_encoding="learned", max_positions=1000, instance_tokens=140, **options)
    config = SearchConfig(beam=1, max_length_ratio=1.2, max_length_extra=10.0)
    instances = Task.from_documents(model, [lengths], SPECIALS, config).instances
    in_training = cut_instances([20] * 12, [20] * 12, [0, 12], ContextSpec(), limit=140)
    assert instances.first.tolist() == in_training.first.tolist() == [0, 6]
    fewer = build(position_encoding="learned", max_positions=100, instance_tokens=140, positions="document")
    assert (np.diff(Task.from_documents(fewer, [lengths], SPECIALS, config).instances.first) == 2).all(), (
        "36 tokens each may come"
    )
