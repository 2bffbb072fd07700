"""Ensembles: compared with a reference search on mean probabilities and with single models, and refusals."""

import math

import pytest
import torch
from reference_search import (
    DOCUMENTS,
    SHORT_LIMITS,
    SPECIALS,
    ReferenceRow,
    build,
    one_by_one,
    reference_beam_search,
    reference_translation,
    score_documents,
    translate_documents,
)

from docmt.core.errors import DocmtError
from docmt.decoding import SearchConfig
from docmt.decoding.ensembles import Ensemble, average_probabilities
from docmt.model.products import precision_context, prepare_products
from docmt.model.systems import Concat
from variants import ONE_OF_EACH_ORDER, SYSTEMS, context, in_tiers

WIDE = {"width": 24, "decoder_layers": 2}
# What differs between members, beside their weights.
ENSEMBLES = {
    "group": [{}, {**SYSTEMS["group, top layer, positions by sentence"], **WIDE}],
    "document": [SYSTEMS["document"], {**SYSTEMS["document"], **WIDE}],
    "sentence": [SYSTEMS["sentence"]] * 3,
    "sentence and contexts": [SYSTEMS["sentence"], context(sentences=1), context(representation="bilstm"), context()],
    "sentence and multihop": [SYSTEMS["sentence"], SYSTEMS["multihop"], context(sentences=1)],
    "hierarchical on both sides": [SYSTEMS["hierarchical on both sides"]] * 2,
    "concat, keep last": [SYSTEMS["concat, keep last"], {**SYSTEMS["concat, keep last"], **WIDE}],
    "concat, keep prefix": [SYSTEMS["concat, keep prefix"]] * 2,
    "thumt": [{"family": "thumt", "system": "sentence"}, {"family": "thumt", **context(fusion="published")}],
}
FRAMED = [name for name in ENSEMBLES if name != "document"]
SEARCHES = {
    **{name: (name, "docmt") for name in FRAMED},
    "sentence and contexts, published search": ("sentence and contexts", "thumt"),
    "thumt, published search": ("thumt", "thumt"),
}


def together(name, first_seed=1):
    return Ensemble([build(first_seed + number, **options) for number, options in enumerate(ENSEMBLES[name])])


def test_the_mean_is_that_of_probabilities():
    one, other = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]), torch.tensor([[0.1, 0.2, 0.7], [0.0, 1.0, 0.0]])
    torch.testing.assert_close(average_probabilities([one.log(), other.log()]).exp(), (one + other) / 2)


@pytest.mark.parametrize("name", in_tiers([name for name in FRAMED if name != "thumt"], ["hierarchical on both sides"]))
@pytest.mark.parametrize("beam", [pytest.param(1, marks=pytest.mark.full), 3])
def test_translations_equal_a_reference_search_with_mean_probabilities(name, beam):
    model = together(name)
    config = one_by_one(model, SearchConfig(beam=beam, length_penalty=0.7, **SHORT_LIMITS))
    for document, (hypothesis,) in zip(
        DOCUMENTS[:2], translate_documents(model, DOCUMENTS[:2], SPECIALS, config), strict=True
    ):
        expected = reference_translation(model, document, lambda row: reference_beam_search(model, row, config)[0][1])
        assert hypothesis.sentences == expected


@pytest.mark.full
def test_the_open_search_takes_mean_probabilities_too():
    model, config = together("document"), SearchConfig(beam=3, n_best=3, **SHORT_LIMITS)
    expected = reference_beam_search(model, ReferenceRow.whole(DOCUMENTS[0]), config)
    (hypotheses,) = translate_documents(model, DOCUMENTS[:1], SPECIALS, config)
    assert [hypothesis.rank_scores[0] for hypothesis in hypotheses] == pytest.approx(
        [score for score, _ in expected], abs=1e-4
    )


@pytest.mark.parametrize("name", in_tiers(ENSEMBLES, ["group"]))
def test_documents_together_are_translated_as_each_alone(name):
    model, config = together(name, first_seed=2), SearchConfig(beam=3, n_best=2, **SHORT_LIMITS)
    for document, hypotheses in zip(DOCUMENTS, translate_documents(model, DOCUMENTS, SPECIALS, config), strict=True):
        (alone,) = translate_documents(model, [document], SPECIALS, config)
        assert [hypothesis.sentences for hypothesis in hypotheses] == [hypothesis.sentences for hypothesis in alone]
        assert [hypothesis.score for hypothesis in hypotheses] == pytest.approx(
            [hypothesis.score for hypothesis in alone], abs=1e-5
        )


@pytest.mark.parametrize("temperature", [pytest.param(1.0, marks=pytest.mark.full), 1.7])
@pytest.mark.parametrize("case", in_tiers(SEARCHES, ["group", "sentence and multihop", "thumt"]))
def test_scoring_a_translation_gives_the_score_of_the_ensemble(case, temperature):
    name, implementation = SEARCHES[case]
    model = together(name)
    config = SearchConfig(beam=3, temperature=temperature, implementation=implementation, **SHORT_LIMITS)
    translated = [ranks[0] for ranks in translate_documents(model, DOCUMENTS, SPECIALS, config)]
    scored = score_documents(model, DOCUMENTS, [hypothesis.sentences for hypothesis in translated], SPECIALS, config)
    for hypothesis, wanted in zip(scored, translated, strict=True):
        if implementation == "docmt":  # the other one's limits are those of the batch, and its ends are never forced
            assert hypothesis.score == pytest.approx(wanted.score, abs=1e-5)
        scores = zip(hypothesis.sentence_scores, wanted.sentence_scores, strict=True)
        numbered = enumerate(scores)
        assert all(a == pytest.approx(b, abs=1e-4) for i, (a, b) in numbered if i not in wanted.at_limit)


@pytest.mark.parametrize("system", in_tiers(ONE_OF_EACH_ORDER, ["document"]))
def test_a_model_with_itself_is_the_model(system):
    model = build(2, **SYSTEMS[system])
    config = SearchConfig(beam=4, n_best=3, temperature=1.3, **SHORT_LIMITS)
    twice = Ensemble([model, model])
    doubled, wanted = (translate_documents(each, DOCUMENTS, SPECIALS, config) for each in (twice, model))
    for results, ranks in zip(doubled, wanted, strict=True):
        assert [hypothesis.sentences for hypothesis in results] == [hypothesis.sentences for hypothesis in ranks]
        assert [hypothesis.score for hypothesis in results] == pytest.approx(
            [hypothesis.score for hypothesis in ranks], abs=1e-6
        )
    targets = [[[9] * len(sentence) for sentence in document] for document in DOCUMENTS]
    doubled, wanted = (score_documents(each, DOCUMENTS, targets, SPECIALS, config) for each in (twice, model))
    assert [hypothesis.score for hypothesis in doubled] == pytest.approx(
        [hypothesis.score for hypothesis in wanted], abs=1e-6
    )


def test_each_member_has_its_temperature_before_the_mean():
    members = [build(seed, system="sentence") for seed in (1, 2)]
    config = SearchConfig(temperature=2.0)
    scores = [
        score_documents(member, [[[5]]], [[[9]]], SPECIALS, config)[0] for member in (*members, Ensemble(members))
    ]
    logits = [member.logits([([[0, 5, 2]], [[0, 9, 2]])])[0] for member in members]
    log_probs = torch.stack([(x / 2.0).softmax(-1) for x in logits]).mean(0).log()
    expected = log_probs[0, 9].item() + log_probs[1, SPECIALS.eos].item()  # the end of the document is forced
    assert scores[2].sentence_scores == pytest.approx([expected], abs=1e-4)


def test_instances_are_cut_by_the_least_limits():
    members = [build(1, instance_tokens=14), build(2, instance_tokens=200)]
    config = SearchConfig(beam=2, **SHORT_LIMITS)
    document = [[5 + i, 6, 7] for i in range(6)]
    whole = translate_documents(Ensemble(members), [document], SPECIALS, config)[0][0]
    parts = [translate_documents(Ensemble(members), [document[i : i + 2]], SPECIALS, config)[0][0] for i in (0, 2, 4)]
    assert whole.sentences == [sentence for part in parts for sentence in part.sentences]
    few = [build(1, position_encoding="learned", max_positions=12, system="sentence"), build(2, system="sentence")]
    with pytest.raises(DocmtError, match="may need 16 positions, but the model has 12"):
        translate_documents(Ensemble(few[::-1]), [[[5], [5] * 11]], SPECIALS, config)


def test_members_in_bfloat16():
    exact = [build(seed) for seed in (1, 2)]
    lowered = Ensemble([prepare_products(build(seed), "bfloat16") for seed in (1, 2)])
    config = SearchConfig(beam=2, **SHORT_LIMITS)
    with precision_context(lowered, "bfloat16"):
        translations = [ranks[0] for ranks in translate_documents(lowered, DOCUMENTS, SPECIALS, config)]
    scored = score_documents(
        Ensemble(exact), DOCUMENTS, [translation.sentences for translation in translations], SPECIALS, config
    )
    for translation, wanted in zip(translations, scored, strict=True):
        assert translation.score == pytest.approx(wanted.score, abs=0.3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([{}, {"system": "sentence"}], "a group and a sentence model decode differently .documents and sentences."),
        ([{}, {"system": "document"}], "a group and a document model decode differently .frame and open."),
        ([SYSTEMS["concat, keep last"], SYSTEMS["concat, keep prefix"]], "decode differently .windows and sequential."),
        ([SYSTEMS["concat, keep last"], {"system": "concat", "concat": Concat(sentences=2)}], "the same context"),
        ([{"system": "sentence"}, {"system": "sentence", "family": "thumt"}], "Choose one family"),
        ([{}, {"vocabulary_size": 31}], "their vocabularies have 30 and 31 entries"),
    ],
)
def test_models_that_do_not_go_together(options, message):
    with pytest.raises(DocmtError, match=f"one and other cannot form an ensemble: .*{message}") as caught:
        Ensemble([build(**settings) for settings in options], ["one", "other"])
    assert "\n" not in str(caught.value)
    with pytest.raises(DocmtError, match="at least one model"):
        Ensemble([])


@pytest.mark.parametrize("weight", [math.nan, 1e30])
def test_a_member_without_finite_scores_is_reported(weight):
    model = together("group")
    with torch.no_grad():
        model.members[1].decoder[0].feed_forward.inner.weight.fill_(weight)
        model.members[1].decoder[0].feed_forward.outer.weight.fill_(weight)
    with pytest.raises(DocmtError, match="weights or scores are not finite numbers"):
        translate_documents(model, DOCUMENTS, SPECIALS, SearchConfig(beam=2))


@pytest.mark.parametrize("system", in_tiers([*ONE_OF_EACH_ORDER, "thumt"], ["concat, keep last", "thumt"]))
def test_alternatives_are_in_the_order_of_their_rank_scores(system):
    """The rank scores are of each searched part; the score of a sentence is its log-probability in its document."""
    implementation = "thumt" if system == "thumt" else "docmt"
    model = build(**SYSTEMS["sentence" if system == "thumt" else system])
    config = SearchConfig(beam=4, n_best=3, implementation=implementation, **SHORT_LIMITS)
    for document, ranks in zip(DOCUMENTS, translate_documents(model, DOCUMENTS, SPECIALS, config), strict=True):
        by_sentence = list(zip(*(hypothesis.rank_scores for hypothesis in ranks), strict=True))
        assert len(by_sentence) == len(document)
        assert all(
            list(hypothesis) == sorted(hypothesis, reverse=True) and len(set(hypothesis)) == 3
            for hypothesis in by_sentence
        )
        if system == "thumt":
            for hypothesis in ranks:
                for scores in zip(
                    hypothesis.sentence_scores, hypothesis.rank_scores, hypothesis.sentences, strict=True
                ):
                    assert scores[1] == pytest.approx(scores[0] / ((6 + len(scores[2])) / 6), abs=1e-5)
