"""docmt's hybrid encoder is the published one: it gives the numbers of the published code with the same weights.

The decoder is left out: that of the published code counts token distances as Transformer-XL does.
"""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from docmt.model import ModelConfig, TranslationModel, pack
from docmt.model.contexts import FullContext
from docmt.model.embeddings import SinusoidalPositions
from docmt.model.systems import Hybrid

STORED = {
    name: torch.from_numpy(values)
    for name, values in np.load(Path(__file__).parents[1] / "data" / "hybrid_tiny" / "encoder.npz").items()
}
WEIGHTS = {name.removeprefix("weights."): values for name, values in STORED.items() if name.startswith("weights.")}
NUMBER_VECTORS = WEIGHTS.pop("segment_embed.embed.weight")
RELATION = "above_encoder.0.layer.attention.relation."
NAMES = (
    (r"^embeddings\.embeddings", "tokens"),
    (r"^block_stack\.(\d)\.slf_attn", r"encoder.\1.attention.local"),
    (r"^block_stack", "encoder"),
    (r"^global_encoder_layer\.slf_attn", "above_encoder.0.layer.attention"),
    (r"^global_encoder_layer", "above_encoder.0.layer"),
    (r"^global_rel_seg_k\.embeddings\.weight", f"{RELATION}keys"),
    (r"^global_rel_seg_v\.embeddings\.weight", f"{RELATION}values"),
    (r"^glb_gate\.w", "above_encoder.0.gate.linear"),
    (r"^layer_norm", "above_encoder.0.norm"),
    (r"pos_ffn\.layer_norm", "feed_forward_residual.norm"),
    (r"(\d|layer)\.layer_norm", r"\1.attention_residual.norm"),
    (r"pos_ffn\.w_1", "feed_forward.inner"),
    (r"pos_ffn\.w_2", "feed_forward.outer"),
    (r"final_linear", "output"),
    (r"linear_(query|key|value)s?", r"\1"),
)


def rename(name):
    for pattern, docmt_name in NAMES:
        name = re.sub(pattern, docmt_name, name)
    return name


def load():
    vocabulary, width = WEIGHTS["embeddings.embeddings.weight"].shape
    sizes = {"width": width, "heads": 2, "feed_forward": 32, "encoder_layers": 2, "decoder_layers": 1}
    system = Hybrid(history=0, farthest=20, fusion="published")
    options = {"normalization": "pre", "dropout": 0.0, "vocabulary_size": vocabulary}
    model = TranslationModel(ModelConfig(system="hybrid", hybrid=system, **sizes, **options)).eval()
    # Their only norm of encoder states comes after the gate.
    model.encoder_norm = None
    # Their positions begin at 0, with the frequencies of Vaswani et al. (2017).
    model.source_positions = SinusoidalPositions(width, first=0, frequencies="vaswani")
    weights = {rename(name): values for name, values in WEIGHTS.items()}
    # One vector serves all heads.
    weights |= {name: weights[name][:, None] for name in (f"{RELATION}keys", f"{RELATION}values")}
    # Their gate reads [x; y], docmt's [x; y - x].
    of_x, of_y = weights["above_encoder.0.gate.linear.weight"].chunk(2, dim=1)
    weights["above_encoder.0.gate.linear.weight"] = torch.cat((of_x + of_y, of_y), dim=1)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected
    assert all(name.startswith("decoder") for name in missing)
    return model


def read(documents):
    """The packed documents, and the number of each token's sentence in its document."""
    rows = []
    for number in documents:
        tokens, sentences = STORED[f"tokens.{number}"], STORED[f"sentences.{number}"]
        rows.append([part.tolist() for part in tokens.split(sentences.bincount().tolist())])
    return pack(rows), torch.cat([STORED[f"sentences.{number}"] for number in documents])


def embed(model, packed, numbers):
    # They add a vector of the sentence's number to each source embedding, and multiply the sum by sqrt(d).
    vectors = model.look_up_tokens("source", packed.tokens) + NUMBER_VECTORS[numbers] * math.sqrt(model.config.width)
    return model.add_packed_positions("source", vectors, packed)


@pytest.mark.parametrize("documents", [[0], [1], [2], [0, 1, 2]], ids=str)
@torch.no_grad()
def test_encoder_states(documents):
    model = load()
    packed, numbers = read(documents)
    context, x = FullContext(packed), embed(model, packed, numbers)
    states = model.run_encoder(x, context)
    model.above_encoder = torch.nn.ModuleList()
    below = model.run_encoder(x, context)
    for found, name in ((below, "below"), (states, "states")):
        wanted = torch.cat([STORED[f"{name}.{number}"] for number in documents])
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("table", ["keys", "values"])
@torch.no_grad()
def test_the_numbers_tell_the_sign_of_distances(table):
    model = load()
    vectors = model.get_parameter(f"{RELATION}{table}")
    vectors.copy_(vectors.flip(0))
    packed, numbers = read([0])
    difference = model.run_encoder(embed(model, packed, numbers), FullContext(packed)) - STORED["states.0"]
    assert difference.abs().max() > 0.1
