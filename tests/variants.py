"""Every system with the options that change what it computes, as settings of a model."""

import pytest

from docmt.decoding import ContextConfig, SearchConfig
from docmt.model.model_config import Linear
from docmt.model.systems import Cadec, Concat, Context, Flat, Group, Hierarchical, Hybrid, MultiHop, Selective


def context(**options):
    """A context system with these options."""
    return {"system": "context", "context": Context(**options)}


def multihop(**options):
    """A multihop system with these options."""
    return {"system": "multihop", "multihop": MultiHop(**options)}


def hierarchical(**options):
    """A hierarchical system with these options."""
    return {"system": "hierarchical", "hierarchical": Hierarchical(**options)}


def selective(**options):
    """A selective system with these options."""
    return {"system": "selective", "selective": Selective(**options)}


SYSTEMS = {
    "group": {},
    "group, top layer, positions by sentence": {
        "group": Group(encoder_layers=1, decoder_layers=1, cross_layers=1),
        "positions": "sentence",
    },
    "group only": {"group": Group(encoder_layers=0, decoder_layers=0, cross_layers=0)},
    "global top": {"group": Group(top_attention="global"), "normalization": "pre"},
    "group, sentence distances": {"group": Group(sentence_distances=True), "positions": "sentence"},
    "global top, sentence distances": {"group": Group(top_attention="global", sentence_distances=True)},
    "group, heads": {"group": Group(fusion="heads"), "positions": "sentence"},
    "group, heads, sentence distances": {"group": Group(fusion="heads", decoder_layers=1, sentence_distances=True)},
    "group, mean": {"group": Group(fusion="mean", cross_locality=False)},
    "document": {"system": "document"},
    "sentence": {"system": "sentence"},
    "concat, keep last": {"system": "concat", "concat": Concat(sentences=3)},
    "concat, keep prefix": {"system": "concat", "concat": Concat(sentences=3, window_decoding="prefix")},
    "concat, linear, keep last": {
        "system": "concat",
        "concat": Concat(sentences=3, attention="linear"),
        "linear": Linear(feature_map="random", temperature_per="dimension", feature_sampling="orthogonal"),
    },
    "concat, linear, gates": {
        "system": "concat",
        "concat": Concat(sentences=3, attention="linear", window_decoding="prefix"),
        "linear": Linear(feature_map="random", features=5, cross_features=7, gate="decay", gate_bias=0.5),
    },
    "group, linear over the document": {
        "group": Group(global_attention="linear"),
        "linear": Linear(gate="average", gate_per="layer", rescale_keys=False),
    },
    "context": context(),
    "context, as published": context(fusion="published", sentences=1),
    "context, no gate": context(gating="residual"),
    "context, no gate, as published": context(gating="residual", fusion="published"),
    "context in the encoder": context(side="encoder"),
    "context in the decoder": context(side="decoder", layers=2),
    "context embeddings": context(representation="embedding"),
    "context lstm": context(representation="bilstm"),
    "context, pre-norm": {**context(), "normalization": "pre"},
    "context, pre-norm, as published": {**context(fusion="published"), "normalization": "pre"},
    "multihop": multihop(),
    "multihop, as published, R2L": multihop(fusion="published", direction="R2L", sentences=2),
    "multihop over the source": multihop(side="source", keys="output"),
    "multihop over the target": multihop(side="target", sentences=1),
    "multihop, pre-norm": {**multihop(sentences=2), "normalization": "pre"},
    "multihop, joined": multihop(context_attention="joined"),
    "multihop, hierarchical": multihop(context_attention="hierarchical", sentences=2),
    "hierarchical": hierarchical(),
    "hierarchical, as published": hierarchical(fusion="published", detach=True, sentences=1),
    "hierarchical in the decoder": hierarchical(side="decoder", sentences=1),
    "hierarchical in the decoder, as published": hierarchical(side="decoder", fusion="published", detach=True),
    "hierarchical on both sides": hierarchical(side="both", sentences=2),
    "hierarchical, pre-norm": {**hierarchical(side="both", sentences=1), "normalization": "pre"},
    "flat": {"system": "flat"},
    "hybrid": {"system": "hybrid"},
    "hybrid, as published": {"system": "hybrid", "hybrid": Hybrid(history=2, farthest=1, fusion="published")},
    "hybrid without history": {"system": "hybrid", "hybrid": Hybrid(history=0), "normalization": "pre"},
    "cadec": {"system": "cadec"},
    "cadec, as published": {"system": "cadec", "cadec": Cadec(sentences=1, fusion="published")},
    "cadec, pre-norm": {"system": "cadec", "cadec": Cadec(sentences=2), "normalization": "pre"},
    "flat, pre-norm": {"system": "flat", "flat": Flat(sentences=1, top_layers=0), "normalization": "pre"},
    "selective": selective(),
    "selective, as published": selective(fusion="published", detach=True),
    "selective, before": selective(reach="before", words="sparsemax"),
    "selective, to words": selective(attention="word", reach="before", fusion="published"),
    "selective, to sentences": {**selective(attention="sentence"), "normalization": "pre"},
    "selective in the decoder": selective(side="decoder"),
    "selective in the decoder, as published": selective(side="decoder", fusion="published", detach=True),
    "selective in the decoder, before": selective(side="decoder", reach="before", attention="word"),
    "selective on both sides": selective(side="both", reach="before", words="sparsemax", fusion="published"),
    "selective on both sides, pre-norm": {**selective(side="both", attention="sentence"), "normalization": "pre"},
}
QUICK = (
    "group",
    "document",
    "concat, keep last",
    "concat, linear, gates",
    "context, pre-norm, as published",
    "hierarchical on both sides",
    "hybrid, as published",
    "selective in the decoder",
)
"""Systems of the quick tier: each cache, kernel and order of decoding, and drafts, is among them once."""
FEW = ("group", "concat, linear, gates", "hierarchical on both sides")
"""Systems of the quick tier for what is costly, or does not depend much on the system."""


def in_tiers(names, quick=QUICK, also=(), every=False):
    """Return test parameters for these names; of those neither in `quick` nor in `also` some run in `make test-all`.

    They take turns, for what a system does wrong is seen by more than one property; with `every` all of them run.
    """
    names = list(names)
    few = every or len(names) < 16
    further = [pytest.mark.full] if few else [pytest.mark.full, pytest.mark.rotated]
    tiers = [name if name in {*quick, *also} else pytest.param(name, marks=further) for name in names]
    assert any(isinstance(each, str) for each in tiers), "the quick tier has none of them"
    return tiers


FRAMED = [name for name in SYSTEMS if name != "document"]
ONE_OF_EACH_ORDER = [
    "group",
    "document",
    "sentence",
    "concat, keep last",
    "concat, keep prefix",
    "context",
    "hierarchical on both sides",
    "multihop",
]

# Systems whose encoder has sizes and conventions of its own (families bert and roberta).
_WIDE = {"family": "bert", "encoder_width": 24, "encoder_heads": 3, "encoder_feed_forward": 20}
WIDE = {
    f"{name}, bert": {**_WIDE, **SYSTEMS[name]}
    for name in (
        "flat",
        "hybrid",
        "global top",  # the decoder with pre-norm
        "concat, linear, gates",
        "group, linear over the document",
        "context",
        "context lstm",
        "context, pre-norm",
        "multihop over the source",
        "hierarchical on both sides",
        "selective",
    )
}

# Systems whose sentences are joined by one mark (family rfa).
JOINED = {
    "softmax, keep last, rfa": {"family": "rfa", **SYSTEMS["concat, keep last"]},
    "linear, gates, keep prefix, rfa": {"family": "rfa", **SYSTEMS["concat, linear, gates"]},
    "linear, average, keep last, rfa": {
        "family": "rfa",
        "system": "concat",
        "concat": Concat(sentences=3, attention="linear"),
        "linear": Linear(features=5, cross_features=7, gate="average", gate_bias=0.5),
    },
}

CONVENTIONS = {
    "relative positions, gated": {"position_encoding": "relative", "relative_buckets": 8, "relative_distance": 9}
    | {"activation": "gated_silu", "normalization": "pre"},
    "wide heads, own output": {"head_width": 10, "output": "untied", "scale_embeddings": False},
    "scaled output": {"output": "scaled", "activation": "gelu_tanh"},
    "exact join": {"group": Group(fusion="identity")},
    "mbart50": {"family": "mbart50", "source_language_ids": [21], "target_language_ids": [22]},
    "mbart50, keep prefix": {
        "family": "mbart50",
        "source_language_ids": [21],
        "target_language_ids": [22],
        "system": "concat",
    }
    | {"concat": Concat(sentences=3, window_decoding="prefix")},
    "bart, hierarchical": {"family": "bart", **hierarchical(side="both")},
    "t5, hierarchical": {"family": "t5", **hierarchical(side="encoder")},
    "marian": {"family": "marian"},
    "t5, hybrid": {"family": "t5", "position_encoding": "relative", "normalization": "pre", "system": "hybrid"},
    "mbart50, cadec": {
        "family": "mbart50",
        "source_language_ids": [21],
        "target_language_ids": [22],
        "system": "cadec",
    },
    "t5, cadec": {"family": "t5", "position_encoding": "relative", "normalization": "pre", "system": "cadec"},
    "mbart50, selective in the decoder": {
        "family": "mbart50",
        "source_language_ids": [21],
        "target_language_ids": [22],
        **selective(side="decoder"),
    },
    "t5": {"family": "t5", "position_encoding": "relative", "normalization": "pre", "target_language_ids": [21, 22]},
}
"""Models in the conventions of other families."""


def split_settings(settings):
    """Return the search, and the other options of translating and scoring, of a dictionary that mixes them."""
    settings = dict(settings)
    context = {
        name: settings.pop(name) for name in ("instance_tokens", "overlap", "window_decoding") if name in settings
    }
    more = {"batch_tokens": settings.pop("batch_tokens")} if "batch_tokens" in settings else {}
    return SearchConfig(**settings), {"context": ContextConfig(**context), **more}
