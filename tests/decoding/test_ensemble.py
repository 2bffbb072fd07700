"""Several models as one: against a plain search with mean probabilities, against themselves, and what is refused."""

import math

import pytest
import torch
from plain_search import (
    DOCUMENTS,
    SHORT,
    SPECIALS,
    Piece,
    build,
    plain_beam_search,
    plainly_translated,
    score_documents,
    translate_documents,
)

from docmt.core.errors import DocmtError
from docmt.decoding import SearchConfig
from docmt.decoding.models import Ensemble, computing_in, lower_precision, mean_probability
from docmt.model.systems import Concat
from variants import ONE_OF_EACH_ORDER, SYSTEMS, context

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


def together(name, first_seed=1):
    return Ensemble([build(first_seed + number, **options) for number, options in enumerate(ENSEMBLES[name])])


def test_the_mean_is_that_of_probabilities():
    one, other = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]), torch.tensor([[0.1, 0.2, 0.7], [0.0, 1.0, 0.0]])
    torch.testing.assert_close(mean_probability([one.log(), other.log()]).exp(), (one + other) / 2)


def in_two_tiers(names):
    """Return test parameters of which four run in the quick tier."""
    chosen = {"group", "document", "concat, keep prefix", "hierarchical on both sides"}
    return [name if name in chosen else pytest.param(name, marks=pytest.mark.full) for name in names]


@pytest.mark.parametrize("name", in_two_tiers(name for name in FRAMED if name != "thumt"))
@pytest.mark.parametrize("beam", [pytest.param(1, marks=pytest.mark.full), 3])
def test_translations_are_those_of_a_plain_search_with_mean_probabilities(name, beam):
    model = together(name)
    config = SearchConfig(beam=beam, length_penalty=0.7, **SHORT)
    for document, (found,) in zip(
        DOCUMENTS[:2], translate_documents(model, DOCUMENTS[:2], SPECIALS, config), strict=True
    ):
        expected = plainly_translated(model, document, lambda piece: plain_beam_search(model, piece, config)[0][1])
        assert found.sentences == expected


def test_the_open_search_takes_mean_probabilities_too():
    model, config = together("document"), SearchConfig(beam=3, n_best=3, **SHORT)
    expected = plain_beam_search(model, Piece.whole(DOCUMENTS[0]), config)
    (found,) = translate_documents(model, DOCUMENTS[:1], SPECIALS, config)
    assert [own.rank_scores[0] for own in found] == pytest.approx([score for score, _ in expected], abs=1e-4)


@pytest.mark.parametrize("name", in_two_tiers(ENSEMBLES))
def test_documents_together_are_translated_as_each_alone(name):
    model, config = together(name, first_seed=2), SearchConfig(beam=3, n_best=2)
    for document, found in zip(DOCUMENTS, translate_documents(model, DOCUMENTS, SPECIALS, config), strict=True):
        (alone,) = translate_documents(model, [document], SPECIALS, config)
        assert [own.sentences for own in found] == [own.sentences for own in alone]
        assert [own.score for own in found] == pytest.approx([own.score for own in alone], abs=1e-5)


@pytest.mark.parametrize("temperature", [pytest.param(1.0, marks=pytest.mark.full), 1.7])
@pytest.mark.parametrize(
    ("name", "implementation"),
    [*((name, "docmt") for name in FRAMED), ("sentence and contexts", "thumt"), ("thumt", "thumt")],
)
def test_score_of_a_translation_is_the_ensembles_own(name, temperature, implementation):
    model = together(name)
    config = SearchConfig(beam=3, temperature=temperature, implementation=implementation, **SHORT)
    translated = [found[0] for found in translate_documents(model, DOCUMENTS, SPECIALS, config)]
    scored = score_documents(model, DOCUMENTS, [own.sentences for own in translated], SPECIALS, config)
    for own, wanted in zip(scored, translated, strict=True):
        if implementation == "docmt":  # the other one's limits are those of the batch, and its ends are never forced
            assert own.score == pytest.approx(wanted.score, abs=1e-5)
        scores = zip(own.sentence_scores, wanted.sentence_scores, strict=True)
        number_of = enumerate(scores)
        assert all(a == pytest.approx(b, abs=1e-4) for i, (a, b) in number_of if i not in wanted.at_limit)


@pytest.mark.parametrize("system", in_two_tiers(ONE_OF_EACH_ORDER))
def test_a_model_with_itself_is_the_model(system):
    model = build(2, **SYSTEMS[system])
    config = SearchConfig(beam=4, n_best=3, temperature=1.3, **SHORT)
    twice = Ensemble([model, model])
    found, wanted = (translate_documents(own, DOCUMENTS, SPECIALS, config) for own in (twice, model))
    for own, ranks in zip(found, wanted, strict=True):
        assert [one.sentences for one in own] == [one.sentences for one in ranks]
        assert [one.score for one in own] == pytest.approx([one.score for one in ranks], abs=1e-6)
    targets = [[[9] * len(sentence) for sentence in document] for document in DOCUMENTS]
    found, wanted = (score_documents(own, DOCUMENTS, targets, SPECIALS, config) for own in (twice, model))
    assert [one.score for one in found] == pytest.approx([one.score for one in wanted], abs=1e-6)


def test_each_member_has_its_temperature_before_the_mean():
    members = [build(seed, system="sentence") for seed in (1, 2)]
    config = SearchConfig(temperature=2.0)
    scores = [score_documents(own, [[[5]]], [[[9]]], SPECIALS, config)[0] for own in (*members, Ensemble(members))]
    logits = [own.logits([([[0, 5, 2]], [[0, 9, 2]])])[0] for own in members]
    worth = torch.stack([(own / 2.0).softmax(-1) for own in logits]).mean(0).log()
    expected = worth[0, 9].item() + worth[1, SPECIALS.eos].item()  # the end of the document is forced
    assert scores[2].sentence_scores == pytest.approx([expected], abs=1e-4)


def test_instances_are_cut_by_the_least_limits():
    members = [build(1, instance_tokens=14), build(2, instance_tokens=200)]
    config = SearchConfig(beam=2, **SHORT)
    document = [[5 + i, 6, 7] for i in range(6)]
    whole = translate_documents(Ensemble(members), [document], SPECIALS, config)[0][0]
    pieces = [translate_documents(Ensemble(members), [document[i : i + 2]], SPECIALS, config)[0][0] for i in (0, 2, 4)]
    assert whole.sentences == [sentence for piece in pieces for sentence in piece.sentences]
    few = [build(1, position_encoding="learned", max_positions=12, system="sentence"), build(2, system="sentence")]
    with pytest.raises(DocmtError, match="may need 16 positions, but the model has 12"):
        translate_documents(Ensemble(few[::-1]), [[[5], [5] * 11]], SPECIALS, config)


def test_members_in_bfloat16():
    exact = [build(seed) for seed in (1, 2)]
    lowered = Ensemble([lower_precision(build(seed), "bfloat16") for seed in (1, 2)])
    config = SearchConfig(beam=2, **SHORT)
    with computing_in(lowered, "bfloat16"):
        found = [ranks[0] for ranks in translate_documents(lowered, DOCUMENTS, SPECIALS, config)]
    scored = score_documents(Ensemble(exact), DOCUMENTS, [own.sentences for own in found], SPECIALS, config)
    for own, wanted in zip(found, scored, strict=True):
        assert own.score == pytest.approx(wanted.score, abs=0.3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([{}, {"system": "sentence"}], "a group and a sentence model decode differently .documents and sentences."),
        ([{}, {"system": "document"}], "a group and a document model decode differently .frame and open."),
        ([SYSTEMS["concat, keep last"], SYSTEMS["concat, keep prefix"]], "decode differently .windows and in turn."),
        ([SYSTEMS["concat, keep last"], {"system": "concat", "concat": Concat(sentences=2)}], "the same windows"),
        ([{"system": "sentence"}, {"system": "sentence", "family": "thumt"}], "choose one family"),
        ([{}, {"vocabulary_size": 31}], "their vocabularies have 30 and 31 entries"),
    ],
)
def test_models_that_do_not_go_together(options, message):
    with pytest.raises(DocmtError, match=f"one and other cannot translate as one: .*{message}") as caught:
        Ensemble([build(**own) for own in options], ["one", "other"])
    assert "\n" not in str(caught.value)
    with pytest.raises(DocmtError, match="at least one model"):
        Ensemble([])


@pytest.mark.parametrize("weight", [math.nan, 1e30])
def test_a_member_whose_scores_are_no_numbers_is_told(weight):
    model = together("group")
    with torch.no_grad():
        model.members[1].decoder[0].feed_forward.inner.weight.fill_(weight)
        model.members[1].decoder[0].feed_forward.outer.weight.fill_(weight)
    with pytest.raises(DocmtError, match="weights or scores are not numbers"):
        translate_documents(model, DOCUMENTS, SPECIALS, SearchConfig(beam=2))


@pytest.mark.parametrize("system", in_two_tiers([*ONE_OF_EACH_ORDER, "thumt"]))
def test_alternatives_are_in_the_order_of_their_rank_scores(system):
    """Of every part that is searched; the score of a sentence beside it is its log-probability in its document."""
    implementation = "thumt" if system == "thumt" else "docmt"
    model = build(**SYSTEMS["sentence" if system == "thumt" else system])
    config = SearchConfig(beam=4, n_best=3, implementation=implementation, **SHORT)
    for document, ranks in zip(DOCUMENTS, translate_documents(model, DOCUMENTS, SPECIALS, config), strict=True):
        by_sentence = list(zip(*(own.rank_scores for own in ranks), strict=True))
        assert len(by_sentence) == len(document)
        assert all(list(own) == sorted(own, reverse=True) and len(set(own)) == 3 for own in by_sentence)
        if system == "thumt":
            for own in ranks:
                for scores in zip(own.sentence_scores, own.rank_scores, own.sentences, strict=True):
                    assert scores[1] == pytest.approx(scores[0] / ((6 + len(scores[2])) / 6), abs=1e-5)
