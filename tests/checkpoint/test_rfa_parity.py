"""Random feature attention and its gate against what the authors' code computed (tests/data/rfa_tiny/README.md)."""

from copy import deepcopy
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import rfa
import torch
import torch.nn.functional as F
from quick_cases import full_except

from docmt.decoding.incremental import IncrementalDecoder
from docmt.decoding.search_rules import SearchRow
from docmt.model.kernels import AttentionPattern
from docmt.model.linear_attention import RandomFeatures
from docmt.model.linear_kernels import GateDecay, attend_linear, step_linear
from docmt.model.spans import Spans

FLOOR = 0.1  # theirs
CLOSE = {"rtol": 1e-9, "atol": 1e-9}
THROUGH_FLOAT32 = {"rtol": 1e-6, "atol": 1e-6}  # their masked form sums and divides in float32


@pytest.fixture(scope="module")
def numbers():
    arrays = np.load(rfa.FIXTURES.path / "attention_functions.npz")
    return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def features_of(matrices, temperature, scales=None):
    """Features in float64 with these matrices [H, D, k]."""
    heads, count, width = matrices.shape
    features_module = RandomFeatures(heads, width, count, per_dimension=scales is not None).double().eval()
    with torch.no_grad():
        features_module.matrices.copy_(matrices)
        features_module.temperature.copy_(torch.as_tensor(temperature, dtype=torch.float64).expand(heads, 1, 1))
        if scales is not None:
            features_module.scales.copy_(scales)
    return features_module


def mapped(features_module, x):
    """Features [T, H, F] of x [T, H, k]."""
    return features_module(x.transpose(0, 1), features_module.get_directions()).transpose(0, 1)


def sines_then_cosines(interleaved):
    """Theirs are sine, cosine, sine, ...; ours all sines, then all cosines. The order has no effect on attention."""
    return torch.cat((interleaved[..., ::2], interleaved[..., 1::2]), dim=-1)


@pytest.mark.full
@pytest.mark.parametrize(("temperature", "scaled", "name"), [(None, False, "phi_x"), (1.3, True, "phi_x_sigma")])
def test_features(numbers, temperature, scaled, name):
    features_module = features_of(
        numbers["W"], numbers["tau"] if temperature is None else temperature, numbers["sigma"] if scaled else None
    )
    output = mapped(features_module, numbers["x"].flatten(0, 1))
    torch.testing.assert_close(output, sines_then_cosines(numbers[name]).flatten(0, 1), **CLOSE)


@pytest.mark.full
def test_salience_of_keys(numbers):
    features_module = features_of(numbers["W"], numbers["tau"])
    y = numbers["y"].transpose(0, 1)  # [B, T, H, k]
    salience = features_module.key_log_weights(y.flatten(0, 1)).unflatten(0, (2, 6))
    weights = (salience - salience.amax(dim=1, keepdim=True)).exp().flatten(0, 1)
    output = mapped(features_module, y.flatten(0, 1)) * weights[..., None]
    expected = sines_then_cosines(numbers["phi_y_rescaled"]).transpose(0, 1).flatten(0, 1)
    torch.testing.assert_close(output, expected, **CLOSE)


@pytest.mark.full
def test_causal_attention_and_steps(numbers):
    rows = [numbers[name].transpose(0, 1).flatten(0, 1) for name in ("phi_q", "phi_k", "v")]
    two = Spans.tile([6, 6])
    output = attend_linear(*rows, AttentionPattern(two, two, True, 12), chunk=4, min_denominator=FLOOR)
    expected = numbers["causal_recurrent"].transpose(0, 1).flatten(0, 1)
    torch.testing.assert_close(output.flatten(1), expected, **CLOSE)
    masked = numbers["causal_masked"].transpose(0, 1).flatten(0, 1)
    torch.testing.assert_close(output.flatten(1), masked, **THROUGH_FLOAT32)


@pytest.mark.full
@pytest.mark.parametrize("name", ["", "_g0_g1", "_g0"])
def test_states(numbers, name):
    state = numbers["v"].new_zeros(2, 3, 10, 5)
    for at in range(6):
        query, key, value = (numbers[key][at] for key in ("phi_q", "phi_k", "v"))
        decay = numbers["g0"][at, ..., 0] if name else None
        new = {"": 1.0, "_g0_g1": numbers["g1"][at], "_g0": 1 - numbers["g0"][at]}[name]
        output, state = step_linear(state, query, key * new, value, decay, FLOOR)
        torch.testing.assert_close(output.flatten(1), numbers[f"causal_recurrent{name}"][at], **CLOSE)
    torch.testing.assert_close(state[..., :-1], numbers[f"causal_recurrent{name}_S"], **CLOSE)
    torch.testing.assert_close(state[..., -1], numbers[f"causal_recurrent{name}_z"], **CLOSE)


def linear(numbers, name, x):
    return F.linear(x, numbers[f"{name}.weight"], numbers[f"{name}.bias"])


def split(x, heads=3):
    return x.unflatten(-1, (heads, -1))


@pytest.mark.full
@pytest.mark.parametrize("kind", ["plain", "decay", "avg"])
@pytest.mark.parametrize("chunk", [4, 64])
def test_the_causal_module(numbers, kind, chunk):
    """Rows packed end to end in one pass are what the authors' code gives for each alone."""
    lengths, ends = numbers["mod_lengths"].tolist(), numbers["mod_sep_indices"].tolist()
    x = torch.cat([numbers["mod_x"][:length, row] for row, length in enumerate(lengths)])
    documents = Spans.tile(lengths)
    sentences = []
    for length, separators in zip(lengths, ends, strict=True):
        borders = [0, *(separator + 1 for separator in separators if separator >= 0), length]
        sentences += [last - first for first, last in pairwise(borders) if last > first]
    sentences = Spans.tile(sentences)
    query, key, value = (split(linear(numbers, f"mod_{kind}.{side}_proj", x)) for side in "qkv")
    features_module = features_of(numbers["mod_W"], numbers[f"mod_{kind}.tau"])
    gate_weights = {}
    if kind != "plain":
        gates = linear(numbers, f"mod_{kind}.g_proj", x[sentences.ends - 1])
        gate_weights = vars(GateDecay.from_gates(gates, sentences, documents, averaging=kind == "avg"))
    features = partial(features_module, directions=features_module.get_directions())
    sizes = {"chunk": chunk, "block": 8, "min_denominator": FLOOR}
    pattern = AttentionPattern(documents, documents, True, len(x))
    output = attend_linear(query, key, value, pattern, features=features, **sizes, **gate_weights)
    output = linear(numbers, f"mod_{kind}.out_proj", output.flatten(1))
    expected = torch.cat([numbers[f"mod_{kind}_alone"][:length, row] for row, length in enumerate(lengths)])
    torch.testing.assert_close(output, expected, **THROUGH_FLOAT32)


@pytest.mark.full
@pytest.mark.parametrize("rescaled", [True, False])
@pytest.mark.parametrize("chunk", [4, 64])
def test_cross_attention(numbers, rescaled, chunk):
    lengths = (~numbers["cross_key_padding_mask"]).sum(1).tolist()
    memory = torch.cat([numbers["cross_encoder_output"][:length, row] for row, length in enumerate(lengths)])
    keys, queries = Spans.tile(lengths), Spans.tile([11] * 4)
    features_module = features_of(numbers["cross_W"], numbers["cross_project.tau"])
    key, value = (split(linear(numbers, f"cross_project.{side}_proj", memory)) for side in "kv")
    query = split(linear(numbers, "cross.q_proj", numbers["cross_query"].transpose(0, 1).flatten(0, 1)))
    salience = features_module.key_log_weights(key) if rescaled else None
    features = partial(features_module, directions=features_module.get_directions())
    sizes = {"chunk": chunk, "block": 8, "min_denominator": FLOOR}
    pattern = AttentionPattern(queries, keys, False, len(memory))
    output = attend_linear(query, key, value, pattern, features=features, log_weights=salience, **sizes)
    output = linear(numbers, "cross.out_proj", output.flatten(1)).unflatten(0, (4, 11)).transpose(0, 1)
    expected = numbers[f"cross_{'' if rescaled else 'no'}rescale_out_alone"]
    torch.testing.assert_close(output, expected, **CLOSE)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A function that gives a converted model in float64, as new."""
    directory, cache = tmp_path_factory.mktemp("converted"), {}

    def model(variant):
        if variant not in cache:
            cache[variant] = rfa.convert(variant, directory).double()
        cache[variant].zero_grad()
        return deepcopy(cache[variant])

    return model


def in_their_order(logits):
    """Logits [n, V] in the order of their ids; there are none for <eod> and <mask>."""
    assert logits[:, rfa.ROWS :].isneginf().all()
    return logits[:, rfa.DOCMT_IDS]


@pytest.mark.parametrize("windows", full_except([1, 2, 4], 4))
@pytest.mark.parametrize("variant", full_except(rfa.VARIANTS, "rfa_sgate"))
def test_logits_of_whole_models(variant, windows, models):
    """All rows in one pass, as theirs give each alone."""
    stored = np.load(rfa.FIXTURES.needed(variant, f"out_L{windows}.npz"))
    model = models(variant)
    (batch, row) = rfa.inputs(model, windows)
    read = batch.inputs
    assert rfa.DOCMT_IDS[read.source.tokens].tolist() == rfa.real(row["src_tokens"], row["src_tokens"]).tolist()
    assert rfa.DOCMT_IDS[read.target.tokens].tolist() == rfa.real(row["prev_output_tokens"], row["target"]).tolist()
    assert rfa.DOCMT_IDS[batch.labels].tolist() == rfa.real(row["target"], row["target"]).tolist()
    with torch.no_grad():
        source = model.encode(read.source)
        logits = in_their_order(model.project(model(read)))
    torch.testing.assert_close(source, rfa.real(stored["encoder_out"], row["src_tokens"]), rtol=0, atol=1e-5)
    wanted = rfa.real(stored["logits_alone"], row["prev_output_tokens"])
    torch.testing.assert_close(logits, wanted, rtol=0, atol=1e-5)


def smoothed_losses(model, batch):
    """[B] the label-smoothed loss of each row in nats, as theirs: 0.1 of it spread over all classes."""
    scores = in_their_order(model.project(model(batch.inputs))).log_softmax(-1)
    right = scores.gather(1, rfa.DOCMT_IDS[batch.labels][:, None])[:, 0]
    loss = -(0.9 * right + 0.1 * scores.mean(-1))
    return torch.stack([part.sum() for part in loss.split(batch.inputs.target.documents.lengths.tolist())])


@pytest.mark.full
@pytest.mark.parametrize("variant", rfa.VARIANTS)
def test_losses_and_gradients(variant, models):
    stored = np.load(rfa.FIXTURES.needed(variant, "out_L4.npz"))
    norms = rfa.read_json(variant, "grad_norms.json")
    whole = np.load(rfa.FIXTURES.needed(variant, "grads.npz"))
    model = models(variant)
    losses = smoothed_losses(model, rfa.inputs(model, 4)[0])
    torch.testing.assert_close(losses.detach(), torch.from_numpy(stored["loss_alone"]), rtol=1e-5, atol=0)
    losses.sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    checked = set()
    for name, norm in zip(norms["names"], norms["eval_alone"], strict=True):
        if name.endswith("random_matrices_eval") or norm is None:
            continue
        checked.add(rfa.docmt_name(name))
        assert float(gradients[rfa.docmt_name(name)].norm()) == pytest.approx(norm, rel=1e-5, abs=1e-4), name
    assert checked == set(gradients)
    for name in whole.files:
        mode, parameter = name.split("/")
        if mode == "eval_alone" and not name.endswith("random_matrices_eval"):
            wanted = rfa.in_docmt_order(name, torch.from_numpy(whole[name]).double())
            scale = max(1.0, float(wanted.abs().max()))
            torch.testing.assert_close(gradients[rfa.docmt_name(parameter)] / scale, wanted / scale, rtol=0, atol=5e-5)


def set_features(model, causal, cross):
    """Puts in the matrices [layers, H, D, k] that were drawn for a training pass of theirs."""
    with torch.no_grad():
        for layer, matrices, cross_matrices in zip(model.decoder, causal, cross, strict=True):
            layer.attention.global_.features.matrices.copy_(torch.from_numpy(matrices))
            layer.cross.global_.features.matrices.copy_(torch.from_numpy(cross_matrices))


@pytest.mark.full
@pytest.mark.parametrize("variant", rfa.LINEAR)
def test_logits_with_the_features_of_a_training_pass(variant, models):
    stored = np.load(rfa.FIXTURES.needed(variant, "train_mode_L4.npz"))
    model = models(variant)
    set_features(model, stored["causal_matrices"], stored["cross_matrices"])
    batch, row = rfa.inputs(model, 4)
    with torch.no_grad():
        logits = in_their_order(model.project(model(batch.inputs)))
    wanted = rfa.real(stored["logits_alone"], row["prev_output_tokens"])
    torch.testing.assert_close(logits, wanted, rtol=0, atol=3e-5)


@pytest.mark.parametrize("variant", full_except(rfa.VARIANTS, "rfa_sgate_avg"))
def test_token_by_token_is_as_the_whole_pass(variant, models):
    """And so as theirs: the states of attention that decoding keeps, over windows of several sentences."""
    stored = np.load(rfa.FIXTURES.needed(variant, "out_L4.npz"))
    model = models(variant)
    batch, row = rfa.inputs(model, 4)
    read = batch.inputs
    wanted = rfa.real(stored["logits_alone"], row["prev_output_tokens"])
    sentences = read.target.sentences.lengths.tolist()
    reached = 0
    for document in read.target.documents.starts.tolist():
        first = int(read.target.sentences.find_segments(torch.tensor([document])))
        last = next((s for s in range(first + 1, len(sentences)) if read.target.tokens[start_of(read, s)] == 2), None)
        inside = range(first, len(sentences) if last is None else last)
        decoder = IncrementalDecoder(model, model.compute_memories(read), [SearchRow(list(inside), [1])], beams=1)
        offsets = [offset for s in inside for offset in range(sentences[s])]
        with torch.no_grad():
            for step, offset in enumerate(offsets):
                token = read.target.tokens[document + step, None]
                (states,) = decoder.step(token, torch.tensor([offset]), step, torch.tensor([inside[0]]))
                torch.testing.assert_close(in_their_order(model.project(states))[0], wanted[reached], rtol=0, atol=1e-5)
                reached += 1
    assert reached == len(wanted)


def start_of(read, sentence):
    """Return the start of a target sentence: at `</s>` where it is the first of its window."""
    return int(read.target.sentences.starts[sentence])
