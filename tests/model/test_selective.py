"""The selective system at the encoder: sparse weights, what is seen, gradients, and the equations word by word."""

import pytest
import torch

from docmt.core.errors import DocmtError
from docmt.model import ModelConfig, TranslationModel, pack
from docmt.model import blocks as module
from docmt.model.blocks import sparsemax
from docmt.model.contexts import FullContext
from variants import selective

SIZES = {"width": 16, "feed_forward": 32, "heads": 2, "encoder_layers": 2, "decoder_layers": 2, "vocabulary_size": 40}
SOURCE = [[0, 5, 6, 2], [0, 7, 8, 9, 2], [0, 10, 2], [0, 11, 12, 13, 14, 2], [0, 15, 16, 2]]
TARGET = [[0, 15, 2], [0, 16, 17, 2], [0, 18, 19, 20, 2], [0, 21, 2], [0, 22, 23, 2]]
LENGTHS = [len(sentence) for sentence in SOURCE]
TOKENS = sum(LENGTHS)
LEVELS = ["hierarchical", "word", "sentence"]
EVERY = [
    {"attention": attention, "reach": reach, "words": words}
    for attention in LEVELS
    for reach in ("all", "before")
    for words in ("softmax", "sparsemax")
    if (attention, words) != ("sentence", "sparsemax")
]
every = pytest.mark.parametrize("options", EVERY, ids=lambda options: "-".join(options.values()))


def build(noise=0.3, settings=None, **options):
    torch.manual_seed(0)
    model = TranslationModel(ModelConfig(**{**SIZES, "dropout": 0.0, **selective(**options), **(settings or {})}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(noise * torch.randn_like(parameter))
    return model.eval()


def layer_of(model):
    return model.above_encoder[0]


def states_of(count=TOKENS):
    return torch.randn(count, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def rows(states, sentences=SOURCE):
    return states.split([len(sentence) for sentence in sentences])


def run(model, states, sentences=SOURCE):
    """The layer alone, in float64, on these states of one document."""
    return layer_of(model).double()(states, FullContext(pack([sentences])))


def visible_to(options, sentence):
    return range(sentence) if options["reach"] == "before" else [n for n in range(len(SOURCE)) if n != sentence]


# sparsemax


def plain_sparsemax(scores):
    """The point of the simplex that is nearest to the scores [n]: tau by bisection."""
    low, high = float(scores.max()) - 1, float(scores.max())
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if float((scores - middle).clamp(min=0).sum()) > 1 else (low, middle)
    return (scores - low).clamp(min=0)


@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 10.0, 1e4])
def test_sparsemax_is_the_nearest_distribution(scale):
    scores = scale * torch.randn(6, 3, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    scores[0, 0, :4] = scores[0, 0].max()  # ties
    scores[1, :, 5:] = -torch.inf
    expected = torch.stack([plain_sparsemax(row) for row in scores.flatten(0, 1)]).view_as(scores)
    torch.testing.assert_close(sparsemax(scores), expected, atol=1e-8, rtol=1e-8)
    single = sparsemax(scores.float())
    assert bool((single >= 0).all()) and not single[1, :, 5:].any()
    torch.testing.assert_close(single.sum(-1), torch.ones(6, 3), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(single.double(), expected, atol=max(1e-6, 1e-6 * scale), rtol=0)


def test_no_other_distribution_is_nearer():
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(7, dtype=torch.float64, generator=generator)
    others = torch.rand(2000, 7, dtype=torch.float64, generator=generator).pow(3)
    others = others / others.sum(-1, keepdim=True)
    nearest = (sparsemax(scores) - scores).square().sum()
    mixed = 0.99 * sparsemax(scores) + 0.01 * others  # close ones, too
    for points in (others, mixed):
        assert bool(((points - scores).square().sum(-1) >= nearest).all())


def test_the_gradient_of_sparsemax_is_that_of_its_support():
    scores = torch.randn(4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(4), requires_grad=True)
    assert torch.autograd.gradcheck(sparsemax, (scores,))
    weights = sparsemax(scores)
    support = weights > 0
    assert support.any(-1).all() and not support.all(-1).any()
    upstream = torch.randn(4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    (gradient,) = torch.autograd.grad((weights * upstream).sum(), scores)
    assert not gradient[~support].any()
    torch.testing.assert_close(gradient.sum(-1), torch.zeros(4, dtype=torch.float64), atol=1e-12, rtol=0)
    mean = (upstream * support).sum(-1, keepdim=True) / support.sum(-1, keepdim=True)
    torch.testing.assert_close(gradient, (upstream - mean) * support)


def test_masked_scores_have_finite_gradients():
    scores = torch.tensor([[1.0, -torch.inf, 0.5], [-torch.inf, 3.0, -torch.inf]], requires_grad=True)
    sparsemax(scores).square().sum().backward()
    assert bool(scores.grad.isfinite().all()) and not scores.grad[scores == -torch.inf].any()


# equations


def weights_of(model, states, sentences=SOURCE):
    """Weights of other sentences [T, H, J], which are visible [T, J], and their numbers [T, J]."""
    context = FullContext(pack([sentences]))
    return layer_of(model).double().context.attention_weights(states, *context.resolve_sentences("self", states))


def plain_contexts(module, options, queries, keys, values):
    """The context c of every query and its weights of sentences [H, J], word by word; None: nothing is seen.

    queries: states of each sentence; keys, values: states of the words of each sentence.
    """
    maps = {name: module.get_submodule(name) for name in module.projections}
    heads, normalize = module.heads, plain_sparsemax if options["words"] == "sparsemax" else lambda x: x.softmax(-1)
    results = []
    for number, block in enumerate(queries):
        seen = [j for j in visible_to(options, number) if len(keys[j])]
        for state in block:
            if not seen:
                results.append((None, None))
                continue
            outputs, weights_of_sentences = [], torch.zeros(heads, len(keys), dtype=torch.float64)
            for head in range(heads):

                def project(name, x, head=head):
                    return maps[name](x).unflatten(-1, (heads, -1))[..., head, :]

                def score(query, key, x, state=state, project=project):
                    q = project(query, state)
                    return project(key, x) @ q / len(q) ** 0.5

                means = torch.stack([keys[j].mean(0) for j in seen])
                lengths = [len(keys[j]) for j in seen]
                if options["attention"] == "sentence":
                    weights = score("query", "key", means).softmax(-1)
                    outputs.append(weights @ project("value", torch.stack([values[j].mean(0) for j in seen])))
                else:
                    scores = score("query", "key", torch.cat([keys[j] for j in seen]))
                    if options["attention"] == "word":
                        of_words = normalize(scores)
                    else:
                        over = plain_sparsemax(score("sentence_query", "sentence_key", means))
                        parts = zip(over, scores.split(lengths), strict=True)
                        of_words = torch.cat([weight * normalize(part) for weight, part in parts])
                    weights = torch.stack([part.sum() for part in of_words.split(lengths)])
                    outputs.append(of_words @ project("value", torch.cat([values[j] for j in seen])))
                weights_of_sentences[head, seen] = weights
            c = module.feed_forward(module.norm(module.output(torch.cat(outputs))), None)
            results.append((c if module.last_norm is None else module.last_norm(c), weights_of_sentences))
    return results


def join(layer, fusion, x, c):
    """The output of the layer for the state x and its context c."""
    gate = layer.context_residual
    share = torch.sigmoid(gate.gate_input(x) + gate.gate_context(c))
    return x + (1 - share) * c if fusion == "identity" else share * x + (1 - share) * c


@every
@pytest.mark.parametrize("fusion", ["identity", "published"])
@torch.no_grad()
def test_the_layer_computes_its_equations(options, fusion):
    model, states = build(fusion=fusion, **options), states_of()
    output, words = run(model, states), [block[1:-1] for block in rows(states)]  # without <s> and </s>
    weights, visible, numbers = weights_of(model, states)
    expected = plain_contexts(layer_of(model).context, options, rows(states), words, words)
    for position, (c, of_sentences) in enumerate(expected):
        x = states[position]
        if c is None:
            assert torch.equal(output[position], x) and not visible[position].any()
            continue
        torch.testing.assert_close(output[position], join(layer_of(model), fusion, x, c))
        assert numbers[position].tolist() == list(range(len(SOURCE)))
        torch.testing.assert_close(weights[position] * visible[position], of_sentences)


@every
@torch.no_grad()
def test_weights_are_distributions_over_other_sentences(options):
    model, states = build(**options), states_of()
    layer = layer_of(model).double().context
    memory, sentences = FullContext(pack([SOURCE])).resolve_sentences("self", states)
    (document,) = layer.project_memory(memory)
    _, (queries,) = layer._group_queries(states, sentences, [document])
    (weights,) = layer._iterate_blocks(document, queries)
    weights = weights.unflatten(-1, document.is_word.shape)  # [H, q, J, W]
    for number, block in enumerate(weights.split(LENGTHS, dim=1)):
        if not (seen := list(visible_to(options, number))):
            continue
        assert bool((block >= 0).all())
        torch.testing.assert_close(block.sum((-2, -1)), torch.ones(block.shape[:2], dtype=torch.float64))
        hidden = [n for n in range(len(SOURCE)) if n not in seen]
        assert number in hidden and not block[:, :, hidden].any()
    if options["attention"] == "hierarchical":
        assert bool((weights.sum(-1) == 0)[:, -1, :-1].any()), "no weight is zero"


@every
@torch.no_grad()
def test_queries_in_parts_see_the_same(options, monkeypatch):
    model, states = build(**options), states_of()
    expected = run(model, states)
    monkeypatch.setattr(module, "MAX_SCORES", 100)
    torch.testing.assert_close(run(model, states), expected)


# what is seen


@pytest.mark.parametrize("attention", LEVELS)
@pytest.mark.parametrize("reach", ["all", "before"])
@pytest.mark.parametrize("normalization", ["post", "pre"])
def test_a_new_model_is_the_sentence_model_bit_for_bit(attention, reach, normalization):
    torch.manual_seed(7)
    settings = {**SIZES, "dropout": 0.0, "normalization": normalization}
    sentence = TranslationModel(ModelConfig(system="sentence", **settings)).eval()
    pairs = [(SOURCE, TARGET), (SOURCE[:1], TARGET[:1])]
    for fusion in ("identity", "published"):
        torch.manual_seed(5)
        options = selective(attention=attention, reach=reach, fusion=fusion)
        model = TranslationModel(ModelConfig(**settings, **options)).eval()
        loaded, weights = sentence.state_dict(), model.state_dict()
        assert {model.system.initial_weight(name) for name in weights} - {None} == set(loaded)
        model.load_state_dict(
            {name: loaded.get(model.system.initial_weight(name), tensor) for name, tensor in weights.items()}
        )
        found, wanted = model.logits(pairs), sentence.logits(pairs)
        assert torch.equal(found[0], wanted[0]) == (fusion == "identity")
        assert torch.equal(found[1], wanted[1])  # a document of one sentence
        assert torch.equal(found[0][: len(TARGET[0])], wanted[0][: len(TARGET[0])]) == (
            fusion == "identity" or reach == "before"
        )


@pytest.mark.parametrize("attention", LEVELS)
@torch.no_grad()
def test_the_order_of_other_sentences_does_not_count(attention):
    model = build(attention=attention, fusion="published")
    order = [3, 1, 2, 4, 0]
    ordered, other = model.encode(pack([SOURCE])), model.encode(pack([[SOURCE[n] for n in order]]))
    shuffled = rows(other, [SOURCE[n] for n in order])
    for number, block in zip(order, shuffled, strict=True):
        torch.testing.assert_close(block, rows(ordered)[number], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("attention", LEVELS)
@torch.no_grad()
def test_later_sentences_are_seen_with_reach_all_alone(attention):
    changed = [*SOURCE[:3], [0, 30, 31, 32, 33, 2], SOURCE[4]]
    for reach in ("all", "before"):
        model = build(attention=attention, reach=reach, fusion="published")
        pairs = zip(*(rows(model.encode(pack([source]))) for source in (SOURCE, changed)), strict=True)
        same = [torch.equal(before, after) for before, after in pairs]
        assert not same[3]
        if attention == "hierarchical":  # with all, it may have weight zero
            assert all(same[:3]) or reach == "all"
        else:
            assert same == [reach == "before"] * 3 + [False] * 2


@torch.no_grad()
def test_sentences_without_words_and_boundary_tokens_are_not_seen():
    """Only `<s>` and `</s>` of a third sentence change: nothing does. A sentence without words is no context."""
    for options in EVERY:
        model, states = build(**options), states_of()
        other = states.clone()
        starts = [sum(LENGTHS[:number]) for number in range(1, len(LENGTHS))]
        other[[*starts, *(start - 1 for start in starts)]] += 1
        words = torch.ones(len(states), dtype=torch.bool)
        words[[*starts, *(start - 1 for start in starts)]] = False
        assert torch.equal(run(model, states)[words], run(model, other)[words])
        sentences = [[0, 5, 2], [0, 2], [0, 6, 7, 2]]
        few = states_of(9)
        _, visible, _ = weights_of(model, few, sentences)
        assert not visible[:, 1].any() and bool(run(model, few, sentences).isfinite().all())
        nothing = [[0, 2], [0, 2]]
        assert torch.equal(run(model, few[:4], nothing), few[:4])


# gradients


def gradient_by_sentence(model, states, positions):
    """Which states of each sentence the output at these positions has a gradient in."""
    states = states.clone().requires_grad_()
    run(model, states)[positions].square().sum().backward()
    return [block.abs().sum(-1) > 0 for block in rows(states.grad)]


@every
def test_detached_context_has_no_gradient(options):
    for detach in (False, True):
        model = build(detach=detach, fusion="published", **options)
        moved = [
            bool(block.any())
            for block in gradient_by_sentence(model, states_of(), slice(sum(LENGTHS[:3]), sum(LENGTHS[:4])))
        ]
        assert moved[3]
        others = [flag for number, flag in enumerate(moved) if number != 3]
        assert any(others) != detach


def test_a_sentence_of_weight_zero_has_no_gradient():
    model, states = build(fusion="published"), states_of()
    with torch.no_grad():
        layer_of(model).context.sentence_query.weight.mul_(4)
    weights, _, _ = weights_of(model, states)
    zeros = 0
    for number, start in enumerate(torch.tensor([0, *LENGTHS[:-1]]).cumsum(0).tolist()):
        has_weight = weights[start + 1].any(0)
        for other, gradient in enumerate(gradient_by_sentence(model, states, start + 1)):
            if other != number:
                assert gradient[1:-1].all() if has_weight[other] else not gradient.any()
                zeros += not has_weight[other]
    assert zeros > len(SOURCE)


@pytest.mark.full
@every
def test_gradients_are_exact(options):
    """Of the layer, by finite differences: where no weight is at the border of its support."""
    model = build(fusion="published", **options)
    layer = layer_of(model).double()
    sentences = [[0, 5, 6, 2], [0, 7, 2], [0, 8, 9, 2]]
    context = FullContext(pack([sentences]))
    x = states_of(11).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: layer(x, context), (x,), atol=1e-5)


@every
def test_low_precision_is_finite(options):
    model = build(settings={"dropout": 0.1, "attention_dropout": 0.1}, fusion="published", **options).train()
    with torch.autocast("cpu", torch.bfloat16):
        states = model.encode(pack([SOURCE, SOURCE[:1]]))
        states.float().square().sum().backward()
    assert bool(states.isfinite().all())
    assert all(bool(p.grad.isfinite().all()) for p in model.above_encoder.parameters())
    layer = layer_of(build(**options)).bfloat16()
    assert bool(layer(states_of().bfloat16(), FullContext(pack([SOURCE]))).isfinite().all())


def test_weights_of_words_need_attention_to_words():
    with pytest.raises(
        DocmtError, match=r"model.selective.words has no effect with model.selective.attention sentence"
    ):
        ModelConfig(**SIZES, **selective(attention="sentence", words="sparsemax"))
