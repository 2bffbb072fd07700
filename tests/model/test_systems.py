"""What each system can see, and that ablations meet where they should."""

import pytest
import torch

from docmt.errors import DocmtError
from docmt.model import ModelConfig, Packed, Spans, TranslationModel, pack

SIZES = {"width": 16, "feed_forward": 32, "heads": 2, "encoder_layers": 2, "decoder_layers": 2, "vocabulary_size": 40}
SOURCE = [[0, 5, 6, 2], [0, 7, 8, 9, 2], [0, 10, 2]]
TARGET = [[0, 15, 2], [0, 16, 17, 2], [0, 18, 19, 20, 2]]


def build(seed: int = 0, **options) -> TranslationModel:
    torch.manual_seed(seed)
    model = TranslationModel(ModelConfig(**{**SIZES, "dropout": 0.0, **options}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def changed_rows(model: TranslationModel, source, target) -> list[bool]:
    """For each sentence of the target: do its logits differ from those of the original pair?"""
    before = model.logits([(SOURCE, TARGET)])[0].split([len(s) for s in TARGET])
    after = model.logits([(source, target)])[0].split([len(s) for s in target])
    return [one.shape != other.shape or not torch.equal(one, other) for one, other in zip(before, after, strict=True)]


def with_token(sentences, sentence: int, position: int, token: int):
    copy = [list(s) for s in sentences]
    copy[sentence][position] = token
    return copy


GROUP_ONLY = {"encoder_global_layers": 0, "decoder_global_layers": 0, "cross_global_layers": 0}


def test_group_only_sees_its_own_sentence_alone():
    model = build(**GROUP_ONLY)
    assert changed_rows(model, with_token(SOURCE, 0, 1, 30), TARGET) == [True, False, False]
    assert changed_rows(model, SOURCE, with_token(TARGET, 0, 1, 30)) == [True, False, False]


@pytest.mark.parametrize("site", ["encoder_global_layers", "cross_global_layers"])
def test_global_layers_see_the_whole_source(site):
    model = build(**{**GROUP_ONLY, site: 1})
    assert changed_rows(model, with_token(SOURCE, 2, 1, 30), TARGET) == [True, True, True]


def test_global_decoder_layers_see_the_target_so_far():
    model = build(**{**GROUP_ONLY, "decoder_global_layers": 1})
    assert changed_rows(model, SOURCE, with_token(TARGET, 1, 1, 30)) == [False, True, True]


def test_nothing_looks_ahead_in_the_target():
    for options in ({"system": "group"}, {"system": "document"}, {"system": "group", "positions": "sentence"}):
        model = build(**options)
        before = model.logits([(SOURCE, TARGET)])[0]
        after = model.logits([(SOURCE, with_token(TARGET, 2, 3, 30))])[0]
        assert torch.equal(before[:10], after[:10])
        assert not torch.equal(before[10:], after[10:])


def test_without_locality_the_group_system_is_the_document_transformer():
    group = build(system="group", self_locality=False, cross_locality=False)
    document = build(system="document")
    assert group.state_dict().keys() == document.state_dict().keys()
    assert torch.equal(group.logits([(SOURCE, TARGET)])[0], document.logits([(SOURCE, TARGET)])[0])


def test_group_only_on_one_sentence_is_the_sentence_transformer():
    group = build(system="group", **GROUP_ONLY)
    sentence = build(system="sentence")
    renamed = {name.replace(".local.", ".whole."): value for name, value in group.state_dict().items()}
    sentence.load_state_dict(renamed)
    for source, target in zip(SOURCE, TARGET, strict=True):
        pair = ([source], [target])
        assert torch.equal(group.logits([pair])[0], sentence.logits([pair])[0])


def test_positions_by_sentence_make_group_only_independent_of_the_place_in_the_document():
    model = build(positions="sentence", **GROUP_ONLY)
    together = model.logits([(SOURCE, TARGET)])[0]
    alone = torch.cat([model.logits([([s], [t])])[0] for s, t in zip(SOURCE, TARGET, strict=True)])
    torch.testing.assert_close(together, alone)
    published = build(**GROUP_ONLY)
    assert not torch.allclose(
        published.logits([(SOURCE, TARGET)])[0][3:], published.logits([(SOURCE[1:], TARGET[1:])])[0], atol=1e-4
    )


@pytest.mark.parametrize("system", ["sentence", "document", "group"])
@pytest.mark.parametrize("normalization", ["post", "pre"])
def test_batched_equals_single(system, normalization):
    model = build(system=system, normalization=normalization)
    pairs = [(SOURCE, TARGET), (SOURCE[:1], TARGET[:1]), (SOURCE[1:], TARGET[1:])]
    for one, pair in zip(model.logits(pairs), pairs, strict=True):
        torch.testing.assert_close(one, model.logits([pair])[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "encoder", "cross"),
    [
        ({"encoder_global_layers": 1}, ["sentence", "both"], ["both", "both"]),
        ({"top_attention": "group"}, ["sentence", "sentence"], ["sentence", "sentence"]),
        ({"top_attention": "global", "cross_global_layers": 1}, ["document", "document"], ["sentence", "document"]),
        ({"self_locality": False, "cross_global_layers": 1}, ["document", "document"], ["sentence", "both"]),
        ({"system": "sentence"}, ["document", "document"], ["document", "document"]),
    ],
)
def test_scopes_of_the_ablations(options, encoder, cross):
    config = ModelConfig(**SIZES, **options)
    assert config.scopes("encoder") == encoder
    assert config.scopes("cross") == cross


def test_published_number_of_parameters():
    """Six combined blocks add 9.45 M parameters to transformer-base: 1,575,424 each."""

    def count(**options):
        model = TranslationModel(ModelConfig(preset="base", vocabulary_size=100, **options))
        return sum(parameter.numel() for parameter in model.parameters())

    assert count(system="group") - count(system="document") == 6 * 1_575_424


def test_published_initialisation():
    torch.manual_seed(3)
    model = TranslationModel(ModelConfig(preset="base", vocabulary_size=2000))
    assert model.tokens.weight.std().item() == pytest.approx(512**-0.5, rel=0.02)
    assert not model.tokens.weight[1].any()
    attention = model.decoder[-1].cross.whole
    bound = (2**-0.5) * (6 / 1024) ** 0.5
    assert attention.query.weight.abs().max().item() == pytest.approx(bound, rel=0.01)
    assert attention.output.weight.abs().max().item() == pytest.approx((6 / 1024) ** 0.5, rel=0.01)
    assert not attention.output.bias.any()
    assert not model.decoder[-1].cross.gate.linear.bias.any()


def test_learned_positions_end_with_a_sentence_for_the_user():
    model = build(position_encoding="learned", max_positions=8)
    with pytest.raises(DocmtError, match="12 tokens is longer than the 8 learned positions"):
        model.logits([(SOURCE, TARGET)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 15}, "model.width 15"),
        ({"dropout": 1.0}, "model.dropout is 1.0"),
        ({"encoder_global_layers": 3}, "model.encoder_global_layers is 3"),
        ({"system": "paragraph"}, "model.system is 'paragraph'"),
        ({"instance_tokens": 1}, "model.instance_tokens is 1"),
    ],
)
def test_bad_settings_are_named(options, message):
    with pytest.raises(DocmtError, match=message):
        ModelConfig(**{**SIZES, **options})


def test_sizes_come_from_the_preset_unless_given():
    config = ModelConfig(preset="tiny", heads=8, vocabulary_size=50).filled()
    assert (config.width, config.feed_forward, config.heads, config.encoder_layers) == (256, 1024, 8, 6)
    assert ModelConfig.from_dict({"width": 16, "heads": 2}).width == 16
    with pytest.raises(DocmtError, match="unknown field 'wide'"):
        ModelConfig.from_dict({"wide": 16})


def test_sentences_must_be_aligned():
    model = build()
    source, target = pack([SOURCE]), pack([TARGET[:2]])
    with pytest.raises(ValueError, match="aligned"):
        model(source, target)


def test_packing_lays_documents_end_to_end():
    packed = pack([SOURCE[:2], SOURCE[2:]])
    assert packed.tokens.tolist() == [0, 5, 6, 2, 0, 7, 8, 9, 2, 0, 10, 2]
    assert packed.sentences == Spans.tile([4, 5, 3])
    assert packed.documents == Spans.tile([9, 3])
    assert isinstance(packed.to("cpu"), Packed)


def test_dropout_drops_its_share_and_keeps_the_mean():
    model = build(dropout=0.3).train()
    torch.manual_seed(0)
    x = torch.ones(500, 401, requires_grad=True)
    y = model.dropout(x)
    assert (y == 0).float().mean().item() == pytest.approx(0.3, abs=0.005)
    assert y.mean().item() == pytest.approx(1.0, abs=0.01)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, y)
