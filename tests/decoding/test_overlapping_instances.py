"""Instances of other lengths than in training, and overlapping instances: scores equal those of the search."""

import pytest
import torch

from docmt.core.errors import DocmtError
from docmt.data import SentenceTokens, cut_instances
from docmt.decoding import ContextConfig, SearchConfig, score_documents, translate_documents
from docmt.model import ModelConfig, TranslationModel
from docmt.model.systems import ContextSpec
from docmt.text import SpecialTokens
from variants import SYSTEMS, in_tiers

SPECIALS = SpecialTokens(40)
SIZES = {"width": 16, "feed_forward": 32, "heads": 2, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
LONG = [[5, 6, 7], [8], [9, 10, 11, 12], [6, 7], [], [21, 5], [13, 14], [15, 16, 17], [18], [19, 20]]
DOCUMENTS = [LONG, [[22, 23], [24]], [[25]] * 9]
SHORT_LIMITS = {"max_length_ratio": 1.0, "max_length_extra": 3.0}
GROUPS = [name for name in SYSTEMS if "group" in name or name == "global top"]


def build(name, **settings):
    torch.manual_seed(2)
    model = TranslationModel(ModelConfig(vocabulary_size=40, **{**SIZES, **SYSTEMS[name], **settings}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


@pytest.mark.parametrize("beam", [pytest.param(1, marks=pytest.mark.full), 3])
@pytest.mark.parametrize("name", in_tiers(GROUPS, ["group"], ["group, linear over the document"]))
def test_scores_equal_the_search_and_documents_are_independent(name, beam):
    model = build(name, instance_tokens=16)
    config, context = SearchConfig(beam=beam, **SHORT_LIMITS), ContextConfig(overlap=2)
    translations = [ranks[0] for ranks in translate_documents(model, DOCUMENTS, SPECIALS, config, context=context)]
    scored = score_documents(
        model, DOCUMENTS, [translation.sentences for translation in translations], SPECIALS, config, context=context
    )
    for document, translation, scores in zip(DOCUMENTS, translations, scored, strict=True):
        assert len(translation.sentences) == len(document)
        assert translation.sentence_scores == pytest.approx(scores.sentence_scores, abs=1e-4)
        assert translation.score == pytest.approx(scores.score, abs=1e-4)
        alone = translate_documents(model, [document], SPECIALS, config, context=context)[0][0]
        assert alone.sentences == translation.sentences


def test_an_instance_sees_its_overlap_and_nothing_else():
    model, target = build("group", instance_tokens=16), [[5], *LONG[1:]]
    assert not target[4]
    nonempty = [number for number, sentence in enumerate(LONG) if sentence]

    def changes(overlap, changed):
        """Return the sentences whose scores change with the translation of one."""
        settings = SearchConfig(), {"context": ContextConfig(overlap=overlap)}
        one, other = list(target), list(target)
        other[changed] = [30, 31]
        pair = [
            score_documents(model, [LONG], [document], SPECIALS, settings[0], **settings[1])[0].sentence_scores
            for document in (one, other)
        ]
        return {number for number in nonempty if abs(pair[0][number] - pair[1][number]) > 1e-6}

    assert changes(0, 2) == {2}, "the last of an instance of three"
    assert changes(1, 2) == {2, 3, 5}, "which the next one sees, and no other"
    assert changes(2, 1) == {1, 2}, "both would be more than half an instance"


@pytest.mark.full
def test_overlap_does_not_change_a_document_of_one_instance():
    model = build("group")
    without_overlap, with_overlap = (
        translate_documents(
            model, DOCUMENTS, SPECIALS, SearchConfig(sequential=True), context=ContextConfig(overlap=overlap)
        )
        for overlap in (0, 3)
    )
    assert without_overlap == with_overlap


def test_instances_stay_within_their_limit():
    words = SentenceTokens.from_documents([LONG[:4] + LONG[5:], [[1] * 30, [2], [3] * 9, [4]]])
    for carry in range(5):
        instances = cut_instances(words.lengths, None, [0, 9, 13], ContextSpec(), limit=16, overlap=carry)
        numbers = [
            number for i in range(len(instances)) for number in range(instances.first_output[i], instances.last[i])
        ]
        assert numbers == list(range(13))
        for first, begin, last, cost in zip(
            instances.first, instances.first_output, instances.last, instances.cost, strict=True
        ):
            assert begin - first <= carry
            assert sum(words.lengths[first:begin] + 2) <= 8
            assert cost < 16 or (last - begin, begin - first) == (1, 0), "no overlap before a sentence that is too long"
    assert max(instances.first_output - instances.first) >= 2


def test_overlap_leaves_room_for_the_next_sentence():
    for costs, limit in (([8, 8, 8, 8, 96, 8], 100), ([8, 8, 8, 8, 120, 8], 100), ([5, 5, 18, 5], 30)):
        instances = cut_instances(
            [cost - 2 for cost in costs], None, [0, len(costs)], ContextSpec(), limit=limit, overlap=10
        )
        assert all(
            cost < limit or first == start
            for cost, first, start in zip(instances.cost, instances.first, instances.first_output, strict=True)
        )


@pytest.mark.parametrize("name", in_tiers([*GROUPS, "document", "concat, keep last", "concat, keep prefix"]))
@pytest.mark.parametrize("limit", [12, pytest.param(40, marks=pytest.mark.full)])
def test_instances_may_be_other_than_in_training(name, limit):
    trained, other = build(name, instance_tokens=limit), build(name, instance_tokens=16, instance_sentences=2)
    usual, changed = {}, {"context": ContextConfig(instance_tokens=limit)}
    config = SearchConfig(beam=2)
    translations = translate_documents(trained, DOCUMENTS, SPECIALS, config)
    assert translate_documents(other, DOCUMENTS, SPECIALS, config, **changed) == translations
    targets = [ranks[0].sentences for ranks in translations]
    scores = [score_documents(*case, targets, SPECIALS, config, **options) for case, options in (
        ((trained, DOCUMENTS), usual), ((other, DOCUMENTS), changed), ((other, DOCUMENTS), usual)
    )]  # fmt: skip
    assert scores[0] == scores[1]
    assert scores[1] != scores[2] or name == "group only", "whose sentences are alone, in any instance"


@pytest.mark.full
def test_n_best_and_the_published_search():
    model = build("group", instance_tokens=16)
    config, context = SearchConfig(beam=3, n_best=2, **SHORT_LIMITS), ContextConfig(overlap=1)
    ranks = translate_documents(model, [LONG], SPECIALS, config, context=context)[0]
    for hypothesis in ranks:
        scored = score_documents(model, [LONG], [hypothesis.sentences], SPECIALS, config, context=context)[0]
        assert hypothesis.sentence_scores == pytest.approx(scored.sentence_scores, abs=1e-4)
    published = SearchConfig(implementation="gtransformer")
    result = translate_documents(model, [LONG], SPECIALS, published, context=context)[0][0]
    assert result.score == pytest.approx(
        score_documents(model, [LONG], [result.sentences], SPECIALS, published, context=context)[0].score, abs=1e-4
    )


@pytest.mark.parametrize("implementation", ["docmt", pytest.param("gtransformer", marks=pytest.mark.full)])
@pytest.mark.parametrize("name", ["group", "concat, keep prefix"])
def test_overlap_does_not_count_in_the_rank_score(name, implementation):
    """The rank score of a part is that of its translated sentences, without its prefix."""
    model = build(name, instance_tokens=16)
    config = SearchConfig(beam=3, implementation=implementation, length_penalty=0.7)
    context = ContextConfig(overlap=2 * (name == "group"))
    nonempty = [number for number, sentence in enumerate(LONG) if sentence]
    hypothesis = translate_documents(model, [LONG], SPECIALS, config, context=context)[0][0]
    for rank in {hypothesis.rank_scores[number] for number in nonempty}:
        part = [number for number in nonempty if hypothesis.rank_scores[number] == rank]
        total = sum(hypothesis.sentence_scores[number] for number in part)
        counted = sum(len(hypothesis.sentences[number]) + 2 for number in part)
        tokens = (
            counted
            if config.implementation == "gtransformer"
            else sum(hypothesis.sentence_tokens[number] for number in part)
        )
        assert rank == pytest.approx(config.normalize_score(total, tokens), abs=1e-5)
    assert len(set(hypothesis.rank_scores)) > 2


@pytest.mark.parametrize(
    "name", ["sentence", "document", "context", "concat, keep last", "hierarchical in the decoder"]
)
def test_other_systems_are_refused(name):
    with pytest.raises(
        DocmtError, match=r"context.overlap is for systems that translate whole instances .*Leave it out"
    ):
        translate_documents(build(name), DOCUMENTS, SPECIALS, SearchConfig(), context=ContextConfig(overlap=1))


def test_instances_end_where_learned_positions_do():
    model = build("group", position_encoding="learned", max_positions=60, positions="document")
    translate_documents(model, DOCUMENTS, SPECIALS, SearchConfig(beam=1), context=ContextConfig(instance_tokens=61))
    with pytest.raises(DocmtError, match=r"instance_tokens is 62, but the model has 60 learned .*Choose at most 61\.$"):
        translate_documents(model, DOCUMENTS, SPECIALS, SearchConfig(), context=ContextConfig(instance_tokens=62))


@pytest.mark.parametrize("name", ["sentence", "context", "multihop over the source", "hierarchical in the decoder"])
def test_systems_that_see_no_instance_have_no_other_ones(name):
    with pytest.raises(DocmtError, match=r"instance_tokens is for systems that see whole instances .*Leave it out"):
        translate_documents(build(name), DOCUMENTS, SPECIALS, SearchConfig(), context=ContextConfig(instance_tokens=99))
