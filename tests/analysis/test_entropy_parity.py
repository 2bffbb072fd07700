"""Attention entropies against those of the published G-Transformer code.

The published figures average over padding rows too, which packed spans do not have. So a padded forward pass written
out here gives the entropy of every row: with padding it must give the stored figures, without padding ours.
The fixtures are not part of the project; without them these tests are skipped.
"""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from docmt.analysis import KINDS, attention_entropy, record_attention
from docmt.analysis.attention_analysis import block_entropies
from docmt.data import Batch
from docmt.model import ModelConfig, ModelInput, TranslationModel, pack
from docmt.model.embeddings import build_sinusoids
from docmt.model.systems import Group

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures" / "gtransformer_tiny"
pytestmark = pytest.mark.skipif(not FIXTURES.is_dir(), reason="the parity fixtures are not on this machine")

VARIANTS = ("partial_ctx2", "partial_ctx1", "group_only", "partial_ctx2_prenorm", "trained_partial", "full")
BOS, PAD, EOD = 0, 1, 57

NAMES = (
    (r"\.layers\.", "."),
    (r"self_attn_local", "attention.local"),
    (r"self_attn_global", "attention.global"),
    (r"self_attn_gate\.0", "attention.gate.linear"),
    (r"self_attn_layer_norm", "attention_residual.norm"),
    (r"encoder_attn_local", "cross.local"),
    (r"encoder_attn_global", "cross.global"),
    (r"encoder_attn_gate\.0", "cross.gate.linear"),
    (r"encoder_attn_layer_norm", "cross_residual.norm"),
    (r"final_layer_norm", "feed_forward_residual.norm"),
    (r"^(encoder|decoder)\.layer_norm", r"\1_norm"),
    (r"fc1", "feed_forward.inner"),
    (r"fc2", "feed_forward.outer"),
    (r"q_proj", "query"),
    (r"k_proj", "key"),
    (r"v_proj", "value"),
    (r"out_proj", "output"),
)


def published(variant):
    arguments = json.loads((FIXTURES / variant / "args.json").read_text())["args"]
    grouped = arguments["doc_mode"] == "partial"
    config = ModelConfig(
        system="group" if grouped else "document",
        width=32,
        feed_forward=64,
        heads=4,
        encoder_layers=3,
        decoder_layers=3,
        group=Group(
            encoder_layers=arguments["encoder_ctxlayers"],
            decoder_layers=arguments["decoder_ctxlayers"],
            cross_layers=arguments["cross_ctxlayers"],
        )
        if grouped
        else Group(),
        normalization="pre" if arguments["encoder_normalize_before"] else "post",
        vocabulary_size=59,
        positions="document",
        dropout=0.0,
    )
    weights = {}
    for name, tensor in load_file(FIXTURES / variant / "weights.safetensors").items():
        if re.search(r"version|_float_tensor|^decoder\.(embed_tokens|output_projection)", name):
            continue
        name = "tokens.weight" if name == "encoder.embed_tokens.weight" else name
        for pattern, replacement in NAMES:
            name = re.sub(pattern, replacement, name)
        weights[name if grouped else name.replace(".local.", ".global.")] = tensor
    model = TranslationModel(config)
    model.load_state_dict(weights)
    return model.eval()


class PaddedForward:
    """The published forward pass with its padding, N x N masks and tags, on our weights; entropies in nats."""

    def __init__(self, model, batch):
        self.model = model
        self.entropies = {kind: [] for kind in KINDS}  # [B, T] of each layer
        arrays = {name: torch.from_numpy(batch[name]) for name in ("src_tokens", "prev_output_tokens")}
        self.source, self.target = arrays["src_tokens"], arrays["prev_output_tokens"]
        group = {name: torch.from_numpy(batch[f"{name}_mask"]) for name in ("encoder_group", "cross_group")}
        causal = torch.from_numpy(batch["causal_mask"])[None]
        source_pad, target_pad = (side.eq(PAD)[:, None, :] for side in (self.source, self.target))
        decoder_group = torch.from_numpy(batch["decoder_group_causal_mask"])
        blocked = {
            "encoder_self": (group["encoder_group"] | source_pad, source_pad),
            "decoder_self": (decoder_group | target_pad, causal | target_pad),
            "decoder_cross": (group["cross_group"] | source_pad, source_pad),
        }
        x = self.embed(self.source)
        for layer in model.encoder:
            entered = layer.attention_residual.prepare_input(x)
            attended = self.scoped(layer.attention, "encoder_self", entered, entered, blocked)
            x = self.feed_forward(layer, layer.attention_residual.add_output(x, attended))
        memory = model.encoder_norm(x) if model.encoder_norm is not None else x
        x = self.embed(self.target)
        for layer in model.decoder:
            entered = layer.attention_residual.prepare_input(x)
            attended = self.scoped(layer.attention, "decoder_self", entered, entered, blocked)
            x = layer.attention_residual.add_output(x, attended)
            attended = self.scoped(layer.cross, "decoder_cross", layer.cross_residual.prepare_input(x), memory, blocked)
            x = self.feed_forward(layer, layer.cross_residual.add_output(x, attended))

    def embed(self, tokens):
        real = tokens.ne(PAD)
        vectors = build_sinusoids(64, 32)[(real.cumsum(1) - 1).clamp(min=0)] * real[..., None]
        return self.model.tokens(tokens) * math.sqrt(32) + vectors

    def feed_forward(self, layer, x):
        residual = layer.feed_forward_residual
        return residual.add_output(x, layer.feed_forward(residual.prepare_input(x), None))

    def scoped(self, scoped, site, x, memory, blocked):
        outputs = []
        if scoped.local is not None:
            outputs.append(self.attention(scoped.local, f"{site}_local", x, memory, blocked[site][0]))
        if scoped.global_ is not None:
            outputs.append(self.attention(scoped.global_, f"{site}_global", x, memory, blocked[site][1]))
        return outputs[0] if scoped.gate is None else scoped.gate(*outputs)

    def attention(self, attention, kind, x, memory, blocked):
        q, k, v = (
            projection(side).unflatten(-1, (4, 8)).transpose(1, 2)
            for projection, side in ((attention.query, x), (attention.key, memory), (attention.value, memory))
        )
        scores = (q @ k.transpose(2, 3) / math.sqrt(8)).masked_fill(blocked[:, None], -math.inf)
        weights = scores.softmax(-1)
        mean = weights.mean(1)
        self.entropies[kind].append(-(mean * mean.clamp(min=1e-30).log()).sum(-1))
        return attention.output((weights @ v).transpose(1, 2).flatten(2))


def sentences(row):
    result = []
    for token in row.tolist():
        if token == BOS:
            result.append([])
        if token not in (PAD, EOD):
            result[-1].append(token)
    return result


@pytest.fixture(scope="module")
def arrays():
    return np.load(FIXTURES / "batch_eval.npz")


@pytest.fixture(scope="module")
def batch(arrays):
    source, target = (pack([sentences(row) for row in arrays[name]]) for name in ("src_tokens", "prev_output_tokens"))
    inputs = ModelInput(source, torch.arange(len(target.sentences)), target)
    return Batch(inputs, torch.from_numpy(arrays["target"][arrays["target"] != PAD]))


def real_rows(kind, arrays):
    return torch.from_numpy(arrays["src_tokens" if kind.startswith("encoder") else "prev_output_tokens"] != PAD)


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_entropies_are_the_published_ones(variant, arrays, batch):
    model = published(variant)
    dense = PaddedForward(model, arrays).entropies
    stored = np.load(FIXTURES / variant / "out_eval.npz")
    present = {kind for kind in KINDS if dense[kind]}
    # With padding rows, summed over documents: the stored figures. The plain system calls all of its attention local.
    names = {kind: f"entropy_{kind if variant != 'full' else kind.replace('global', 'local')}" for kind in present}
    assert {name for name in stored if name.startswith("entropy_")} == set(names.values())
    for kind in present:
        figure = torch.stack(dense[kind]).mean(2).sum(1).mean()
        assert figure.item() == pytest.approx(float(stored[names[kind]]), rel=2e-6), kind
    # Without them, in bits: ours.
    entropies = attention_entropy(model, [batch])
    assert set(entropies) == present
    for kind in present:
        expected = torch.stack([layer[real_rows(kind, arrays)] for layer in dense[kind]]).mean().item() / math.log(2)
        assert entropies[kind] == pytest.approx(expected, rel=1e-6), kind


@pytest.mark.parametrize("variant", ["partial_ctx2", "partial_ctx2_prenorm"])
@torch.no_grad()
def test_every_token_of_every_layer_agrees(variant, arrays, batch):
    model = published(variant)
    recorded = {kind: [] for kind in KINDS}

    def measure(record):
        blocks = [(block, block_entropies(block)) for block in record.blocks()]
        positions = torch.cat([block.queries[block.is_query] for block, _ in blocks])
        entropies = torch.cat([values[block.is_query] for block, values in blocks])
        recorded[record.site.kind].append(entropies[positions.argsort()])

    with record_attention(model, measure):
        model(batch.inputs)
    for kind, layers in PaddedForward(model, arrays).entropies.items():
        assert len(layers) == len(recorded[kind]) == (3 if kind.endswith("local") else 2)
        for entropies, dense in zip(recorded[kind], layers, strict=True):
            wanted = dense[real_rows(kind, arrays)] / math.log(2)
            torch.testing.assert_close(entropies, wanted, atol=1e-5, rtol=0)
