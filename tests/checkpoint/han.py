"""Fixtures of the published code of Miculicich et al. (2018), and docmt's models with its weights.

Its conventions are a family of parts that only these tests have: matrices of its own for each side, no marks on the
source, interleaved sinusoids, norms with the unbiased deviation, and a projection with a bias.
"""

import json
import math
import re

import numpy as np
import pytest
import torch
from fixture_folders import Variants
from safetensors.torch import load_file
from torch import nn

from docmt.model import ModelConfig, ModelInput, Packed, TranslationModel, pack
from docmt.model import transformer as transformer_module
from docmt.model.builder import ModelBuilder
from docmt.model.contexts import FullContext
from docmt.model.embeddings import Head, build_token_embedding
from docmt.model.scope import BoundaryTokens
from docmt.model.systems import Hierarchical

FOLDER = Variants("han_tiny")
FIXTURES, needed = FOLDER.path, FOLDER.needed
HIDDEN = (0, 1, 2, 3)  # ids of target marks and <unk>, which their attention to words skips on both sides
BOS, PAD, EOS = 2, 1, 3
OFFERED = {"sentence": "", "HAN_enc": "encoder", "HAN_dec": "decoder", "HAN_dec_size1": "decoder", "HAN_join": "both"}
VARIANTS = tuple(name for name in FOLDER.names if name in OFFERED)


class TheirNorm(nn.LayerNorm):
    """a (x - mean) / (s + epsilon) + b with the deviation over n - 1."""

    def forward(self, x):
        deviation = x.std(-1, keepdim=True) + 1e-6
        return self.weight * (x - x.mean(-1, keepdim=True)) / deviation + self.bias


class Interleaved(nn.Module):
    """Sines in even, cosines in odd places, from position 0."""

    def __init__(self, width):
        super().__init__()
        self.width = width

    def forward(self, positions):
        frequencies = torch.exp(torch.arange(0, self.width, 2) * -(math.log(10000.0) / self.width))
        angles = positions[..., None].float() * frequencies
        return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


class TheirFrame(BoundaryTokens):
    """Source sentences are their words; decoder input begins with `<s>`."""

    def counts(self, side):
        return (0, 0) if side == "source" else (1, 0)


THEIR_FRAME = TheirFrame(source_opening=(), target_has_end=False, predicts_boundary=False)


class HanBuilder(ModelBuilder):
    def __init__(self, config):
        super().__init__(config)
        self.boundary_tokens = THEIR_FRAME

    def build_norm(self):
        return TheirNorm(self.config.width)


class HanModel(TranslationModel):
    def build_tables(self):
        config = self.stacks["target"].config
        self.boundary_tokens = THEIR_FRAME
        self.source_tokens = build_token_embedding(61, config.width)
        self.target_tokens = build_token_embedding(config.vocabulary_size, config.width)
        self.generator = nn.Linear(config.width, config.vocabulary_size)
        self.source_positions, self.target_positions = Interleaved(config.width), Interleaved(config.width)

    def look_up_tokens(self, side, tokens):
        return getattr(self, f"{side}_tokens")(tokens) * math.sqrt(self.config.width)

    def head(self):
        return Head(self.generator.weight)


NAMES = (
    (r"^(encoder|decoder)\.embeddings\.make_embedding\.emb_luts\.0", lambda m: SIDES[m[1]] + "_tokens"),
    (r"^encoder\.transformer\.", "encoder."),
    (r"^decoder\.transformer_layers\.", "decoder."),
    (r"feed_forward\.layer_norm", "feed_forward_residual.norm"),
    (r"feed_forward\.w_1", "feed_forward.inner"),
    (r"feed_forward\.w_2", "feed_forward.outer"),
    (r"^((?:en|de)coder)\.layer_norm\.", r"\1_norm."),
    (r"(coder\.\d\.)layer_norm(_1)?\.", r"\1attention_residual.norm."),
    (r"(coder\.\d\.)layer_norm_2\.", r"\1cross_residual.norm."),
    (r"self_attn", "attention.local"),
    (r"context_attn", "cross.local"),
    (r"word_attn", "words"),
    (r"sent_attn", "sentences"),
    (r"layer_norm_query_word", "words_norm"),
    (r"layer_norm_query_sent", "sentences_norm"),
    (r"layer_norm_word", "summary_norm"),
    (r"layer_norm_sent", "norm"),
    (r"linear_(query|key|value)s?\.", r"\1."),
    (r"final_linear\.", "output."),
    (r"(^|\.)linear\.", r"\1gate."),
    (r"^generator\.0", "generator"),
    (r"a_2$", "weight"),
    (r"b_2$", "bias"),
)
SIDES = {"encoder": "source", "decoder": "target"}


def rename(name, side=""):
    """Our name of one of their weights; None for those that are never used, or of variants that are not offered."""
    if "final_linear_2" in name or "layer_norm_c" in name:
        return None
    modules = {"encoder": {"": "above_encoder.0"}, "decoder": {"": "above_decoder.0"}}.get(
        side, {".0": "above_encoder.0", ".1": "above_decoder.0"}
    )
    name = re.sub(r"^doc_context(\.\d)?", lambda m: modules[m[1] or ""], name)
    for pattern, docmt_name in NAMES:
        name = re.sub(pattern, docmt_name, name)
    return name


def arguments(variant):
    return json.loads(needed(variant, "args.json").read_text())


def read_json(variant, file):
    return json.loads(needed(variant, file).read_text())


def load(variant, monkeypatch):
    """docmt's model of a variant with their weights."""
    monkeypatch.setattr(transformer_module, "ModelBuilder", HanBuilder)
    settings, side = arguments(variant), OFFERED[variant]
    options = {"system": "sentence"}
    if side:
        system = Hierarchical(sentences=settings["context_size"], side=side, fusion="published", detach=True)
        options = {"system": "hierarchical", "hierarchical": system}
    sizes = {"width": settings["rnn_size"], "feed_forward": settings["ffn"], "heads": settings["heads"]}
    layers = {"encoder_layers": settings["enc_layers"], "decoder_layers": settings["dec_layers"]}
    config = ModelConfig(
        vocabulary_size=settings["target_vocabulary"], normalization="pre", dropout=0.0, **sizes, **layers, **options
    )
    model = HanModel(config).eval()
    model.projection = model.get_submodule("generator")
    stored = load_file(FIXTURES / "weights_common.safetensors")
    # Both `generator` and `projection` are the one matrix.
    weights = {docmt_name: stored[name] for name in settings["variables"] if (docmt_name := rename(name, side))}
    weights |= {name.replace("generator", "projection"): weights[name] for name in weights if "generator" in name}
    model.load_state_dict(weights)
    return model


class Rows:
    """A stored batch; each row is a sentence, without padding here, and those before `doc_index` are documents too."""

    def __init__(self, name):
        path = FIXTURES / "batches.npz"
        if not path.is_file():
            pytest.skip(f"{FIXTURES} has no batches.npz")
        stored = np.load(path)
        self.source = [[int(i) for i in row if i != PAD] for row in stored[f"{name}.src"].T]
        self.target = [[int(i) for i in row if i != PAD] for row in stored[f"{name}.tgt"].T]
        self.starts = sorted({0, *stored[f"{name}.doc_index"].tolist()})

    @property
    def labels(self):
        return [row[1:] for row in self.target]

    def index_in_document(self, row):
        """Return the number of sentences before a row in its document."""
        return row - max(start for start in self.starts if start <= row)

    def documents(self, rows):
        ends = [*self.starts[1:], len(rows)]
        return [rows[start:end] for start, end in zip(self.starts, ends, strict=True)]

    def inputs(self):
        source, target = pack(self.documents(self.source)), pack(self.documents([row[:-1] for row in self.target]))
        return ModelInput(source, torch.arange(len(self.source)), target)

    def real(self, values, side):
        """The entries [length, d] of a stored output [length, B, d] that belong to each row's tokens."""
        lengths = [len(row) for row in (self.source if side == "source" else self.labels)]
        return [torch.from_numpy(values[:length, row]) for row, length in enumerate(lengths)]


def with_context(module, queries, contexts):
    """Return the module's output for the states [n, d] of each query and the states of the sentences before it.

    contexts: of each query a list, oldest first, of states [m, d] without those that attention is not to see. Each
    query is laid out as the last sentence of a document of its own.
    """
    opening, closing = module.words.scope.trim
    results = []
    for query, before in zip(queries, contexts, strict=True):
        rows = [torch.cat((query[:opening], states, query[:closing])) for states in before] + [query]
        packed: Packed = pack([[[0] * len(row) for row in rows]])
        results.append(module(torch.cat(rows), FullContext(packed))[-len(query) :])
    return results


def search(step, settings):
    """Their beam search over one sentence; step: a prefix with `<s>` -> log-probabilities of the next token."""
    beam, wu = settings["beam"], settings["length_penalty"] == "wu"
    live, finished = [(0.0, [BOS])], []

    def normalized(total, length):
        return total / ((5 + length) ** settings["alpha"] / 6 ** settings["alpha"]) if wu else total

    for _ in range(settings["max_length"]):
        candidates = []
        for total, prefix in live:
            if prefix[-1] == EOS:
                continue
            scores = step(prefix)
            if len(prefix) < settings["min_length"]:
                scores[EOS] = -1e20
            values, tokens = scores.topk(beam)
            candidates += [
                (total + value, [*prefix, token]) for value, token in zip(values.tolist(), tokens.tolist(), strict=True)
            ]
        live = sorted(candidates, key=lambda candidate: -candidate[0])[:beam]
        finished += [(normalized(total, len(prefix)), prefix[1:]) for total, prefix in live if prefix[-1] == EOS]
        if live[0][1][-1] == EOS and len(finished) >= settings["n_best"]:
            break
    for total, prefix in live:
        if len(finished) < settings["n_best"]:
            finished.append((normalized(total, len(prefix)), prefix[1:]))
    return sorted(finished, key=lambda hypothesis: -hypothesis[0])
