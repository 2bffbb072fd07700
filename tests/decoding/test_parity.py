"""The published code's own numbers: logits, encoder output, losses and beam search of its tiny models.

The fixtures are not part of the project; without them these tests are skipped.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from docmt.decoding import SearchConfig, search
from docmt.model import ModelConfig, TranslationModel, pack
from docmt.training import smoothed_cross_entropy

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures" / "gtransformer_tiny"
pytestmark = pytest.mark.skipif(not FIXTURES.is_dir(), reason="the parity fixtures are not on this machine")

VARIANTS = ("partial_ctx2", "partial_ctx1", "group_only", "full", "partial_ctx2_prenorm", "trained_partial")
EOD, PAD, BOS = 57, 1, 0


@dataclass(frozen=True)
class PublishedSpecials:
    """The ids of the fixtures' vocabulary, in the shape of SpecialTokens."""

    bos: int = 0
    pad: int = 1
    eos: int = 2
    unk: int = 3
    eod: int = 57
    mask: int = 58


NAMES = (
    (r"\.layers\.", "."),
    (r"self_attn_local", "attention.local"),
    (r"self_attn_global", "attention.whole"),
    (r"self_attn_gate\.0", "attention.gate.linear"),
    (r"self_attn_layer_norm", "attention_residual.norm"),
    (r"encoder_attn_local", "cross.local"),
    (r"encoder_attn_global", "cross.whole"),
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


def published(variant: str) -> TranslationModel:
    folder = FIXTURES / variant
    arguments = json.loads((folder / "args.json").read_text())["args"]
    grouped = arguments["doc_mode"] == "partial"
    config = ModelConfig(
        system="group" if grouped else "document",
        width=32,
        feed_forward=64,
        heads=4,
        encoder_layers=3,
        decoder_layers=3,
        encoder_global_layers=arguments["encoder_ctxlayers"] if grouped else 0,
        decoder_global_layers=arguments["decoder_ctxlayers"] if grouped else 0,
        cross_global_layers=arguments["cross_ctxlayers"] if grouped else 0,
        normalization="pre" if arguments["encoder_normalize_before"] else "post",
        vocabulary_size=59,
        dropout=0.0,
    )
    weights = {}
    for name, tensor in load_file(folder / "weights.safetensors").items():
        if "version" in name or "_float_tensor" in name or name.startswith("decoder.embed_tokens"):
            continue
        if name == "decoder.output_projection.weight":
            continue
        name = "tokens.weight" if name == "encoder.embed_tokens.weight" else name
        for pattern, replacement in NAMES:
            name = re.sub(pattern, replacement, name)
        weights[name if grouped else name.replace(".local.", ".whole.")] = tensor
    model = TranslationModel(config)
    model.load_state_dict(weights)
    return model.eval()


def sentences(row) -> list[list[int]]:
    """A row of a padded batch as sentences with their marks."""
    found: list[list[int]] = []
    for token in row.tolist():
        if token == BOS:
            found.append([])
        if token not in (PAD, EOD):
            found[-1].append(token)
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_encoder_logits_and_loss(variant):
    model = published(variant)
    batch, expected = np.load(FIXTURES / "batch_eval.npz"), np.load(FIXTURES / variant / "out_eval.npz")
    pairs = [
        (sentences(s), sentences(p)) for s, p in zip(batch["src_tokens"], batch["prev_output_tokens"], strict=True)
    ]
    for row, logits in enumerate(model.logits(pairs)):
        wanted = torch.from_numpy(expected["logits"][row][batch["prev_output_tokens"][row] != PAD])
        torch.testing.assert_close(logits, wanted, atol=1e-5, rtol=0)
    source, target = pack([s for s, _ in pairs]), pack([t for _, t in pairs])
    memory = model.encode(source).split(source.documents.lengths.tolist())
    for row, states in enumerate(memory):
        wanted = torch.from_numpy(expected["encoder_out"][row][batch["src_tokens"][row] != PAD])
        torch.testing.assert_close(states, wanted, atol=1e-5, rtol=0)
    labels = torch.from_numpy(batch["target"][batch["target"] != PAD])
    loss, nll = smoothed_cross_entropy(model(source, target), model.tokens.weight, labels, 0.1)
    assert loss.item() == pytest.approx(float(expected["loss_label_smoothed_sum"]), rel=1e-5)
    assert nll.item() == pytest.approx(float(expected["nll_loss_sum"]), rel=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradient_norms(variant):
    model = published(variant)
    batch = np.load(FIXTURES / "batch_eval.npz")
    expected = json.loads((FIXTURES / variant / "grad_norms.json").read_text())["eval"]
    source = pack([sentences(row) for row in batch["src_tokens"]])
    target = pack([sentences(row) for row in batch["prev_output_tokens"]])
    labels = torch.from_numpy(batch["target"][batch["target"] != PAD])
    loss, _ = smoothed_cross_entropy(model(source, target), model.tokens.weight, labels, 0.1)
    loss.backward()
    found = {name: parameter.grad.norm().item() for name, parameter in model.named_parameters()}
    compared = 0
    for name, wanted in expected.items():
        ours = "tokens.weight" if name == "encoder.embed_tokens.weight" else name
        for pattern, replacement in NAMES:
            ours = re.sub(pattern, replacement, ours)
        ours = ours if model.config.system == "group" else ours.replace(".local.", ".whole.")
        if ours in found and not ours.endswith("key.bias"):  # no effect on anything: its gradient is rounding
            assert found[ours] == pytest.approx(wanted, rel=2e-5), name
            compared += 1
    assert compared >= 0.9 * len([name for name in found if not name.endswith("key.bias")])


def test_unframed_beam_search_finds_the_published_hypotheses():
    """The plain document system scores every token, as published; on trained weights the whole n-best lists agree."""
    model = published("trained_full")
    stored = json.loads((FIXTURES / "trained_full" / "decode_toytest_beam5.json").read_text())
    for item in stored["one_document_at_a_time"]:
        source = [[t for t in s if t not in (0, 2)] for s in sentences(np.array(item["src_tokens"]))]
        found = search(model, [source], PublishedSpecials(), SearchConfig(n_best=5))[0]
        assert [h.score for h in found] == pytest.approx([h["score"] for h in item["hypotheses"]], abs=1e-4)
        for ours, theirs in zip(found, item["hypotheses"], strict=True):
            words = [t for t in theirs["tokens"] if t not in (0, 2, EOD)]
            assert [t for sentence in ours.sentences for t in sentence] == words
