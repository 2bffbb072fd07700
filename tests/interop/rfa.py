"""Models and rows of the RFA fixtures, read into docmt's model."""

import json
import math

import numpy as np
import torch
from folders import Variants
from safetensors.torch import load_file

from docmt.model import ModelConfig, Packed, Spans, TranslationModel
from docmt.model.parts import Head, Parts, token_embedding
from docmt.model.reading import Reading
from docmt.model.sizes import Linear
from docmt.model.systems import Concat

FIXTURES = Variants("rfa_tiny")
SEPARATOR, PADDING = 4, 1
VARIANTS = [name for name in FIXTURES.names if name != "softmax"]


class RfaParts(Parts):
    """Their conventions: a matrix of embeddings for each side, that of the target for the output as well."""

    def embeddings(self):
        sizes = self.sizes
        return {
            "source_tokens": token_embedding(sizes.vocabulary_size, sizes.width),
            "target_tokens": token_embedding(sizes.vocabulary_size, sizes.width),
            "source_positions": self._positions(),
            "target_positions": self._positions(),
        }

    def lookup(self, model, side, tokens):
        return model.get_submodule(f"{side}_tokens")(tokens) * math.sqrt(self.sizes.width)

    def head(self, model):
        return Head(model.get_submodule("target_tokens").get_parameter("weight"))


def arguments(variant):
    return json.loads(FIXTURES.needed(variant, "args.json").read_text())


def config(variant):
    own = arguments(variant)["args"]
    gate = "decay" if own["decay_sentential_gate"] else "average" if own["use_sentential_gate"] else "none"
    linear = Linear(
        map="random",
        features=own["causal_proj_dim"],
        cross_features=own["cross_proj_dim"],
        gate=gate,
        rescale=own["norm_rescale"],
        temperature="dimension" if own["reparam_proj"] else "head",
    )
    sizes = {"width": 32, "feed_forward": 64, "heads": 4, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
    return ModelConfig(
        system="concat",
        concat=Concat(attention="linear"),
        linear=linear,
        vocabulary_size=40,
        activation="gelu",
        **sizes,
    )


def model_of(variant, monkeypatch):
    """The variant as a docmt model in float64."""
    monkeypatch.setattr("docmt.model.transformer.FAMILIES", {"docmt": RfaParts})
    made = TranslationModel(config(variant)).double().eval()
    theirs = load_file(FIXTURES.path / arguments(variant)["weights"])
    weights = {docmt_name(name): value for name, value in theirs.items() if not name.endswith("random_matrices_eval")}
    own = arguments(variant)["args"]
    for layer in range(2):
        for place, side in (("attention", "decoder"), ("cross", "encoder.cross_attention_project")):
            features = f"decoder.{layer}.{place}.whole.features"
            weights[f"{features}.matrices"] = theirs[f"{side}.random_matrices_eval"]
            if own["reparam_proj"]:
                temperature = own["causal_tau" if place == "attention" else "cross_tau"]
                weights[f"{features}.temperature"] = torch.full((4, 1, 1), temperature)
    if made.system.linear and made.config.linear.gate == "none":
        weights = {name: value for name, value in weights.items() if ".whole.gate." not in name}
    made.load_state_dict(weights)
    return made


def docmt_name(name):
    """Where a weight of theirs stands in docmt's model."""
    if name.endswith("embed_tokens.weight"):
        return "source_tokens.weight" if name.startswith("encoder") else "target_tokens.weight"
    name = name.replace(".module", "")
    if name.startswith("encoder.cross_attention_project.layers."):
        name = name.replace("encoder.cross_attention_project.layers.", "decoder.layers.").replace(".layers.", ".")
        side, layer, *rest = name.split(".")
        name = ".".join([side, layer, "encoder_attn", *rest])
    name = name.replace(".layers.", ".")
    for theirs, ours in (
        ("self_attn_layer_norm", "attention_residual.norm"),
        ("encoder_attn_layer_norm", "cross_residual.norm"),
        ("final_layer_norm", "feed_forward_residual.norm"),
        ("self_attn.", "attention.whole."),
        ("encoder_attn.", "cross.whole."),
        ("fc1", "feed_forward.inner"),
        ("fc2", "feed_forward.outer"),
        ("q_proj", "query"),
        ("k_proj", "key"),
        ("v_proj", "value"),
        ("out_proj", "output"),
        ("g_proj", "gate"),
        ("whole.tau", "whole.features.temperature"),
        ("whole.sigma", "whole.features.scales"),
    ):
        name = name.replace(theirs, ours)
    return name


def packed(rows):
    """Rows [B, L] without their padding as documents whose sentences end with a separator."""
    documents = [row[row != PADDING].tolist() for row in rows]
    sentences = []
    for tokens in documents:
        ends = [place + 1 for place, token in enumerate(tokens) if token == SEPARATOR]
        borders = [0, *ends, len(tokens)] if not ends or ends[-1] < len(tokens) else [0, *ends]
        sentences += np.diff(borders).tolist()
    tokens = torch.tensor([token for own in documents for token in own])
    return Packed(tokens, Spans.tile(sentences), Spans.tile([len(own) for own in documents]))


def reading(windows):
    """The test batch of windows of so many sentences."""
    batch = np.load(FIXTURES.path / f"batch_L{windows}.npz")
    source, target = packed(batch["src_tokens"]), packed(batch["prev_output_tokens"])
    return Reading(source, torch.arange(len(target.sentences)), target), batch


def real(values, padded):
    """[B, L, n] without the places that are padding, end to end."""
    keep = np.asarray(padded) != PADDING
    return torch.from_numpy(np.asarray(values)[keep].astype(np.float64))
