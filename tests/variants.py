"""Every system with the options that change what it computes, as settings of a model."""

from docmt.model.systems import Concat, Context, Group


def context(**options):
    """A context system with these options."""
    return {"system": "context", "context": Context(**options)}


SYSTEMS = {
    "group": {},
    "group, top layer, positions by sentence": {
        "group": Group(encoder_layers=1, decoder_layers=1, cross_layers=1),
        "positions": "sentence",
    },
    "group only": {"group": Group(encoder_layers=0, decoder_layers=0, cross_layers=0)},
    "global top": {"group": Group(top="global"), "normalization": "pre"},
    "document": {"system": "document"},
    "sentence": {"system": "sentence"},
    "concat, keep last": {"system": "concat", "concat": Concat(sentences=3)},
    "concat, keep prefix": {"system": "concat", "concat": Concat(sentences=3, keep="prefix")},
    "context": context(),
    "context, as published": context(branch="published", sentences=1),
    "context, no gate": context(gating="residual"),
    "context, no gate, as published": context(gating="residual", branch="published"),
    "context in the encoder": context(side="encoder"),
    "context in the decoder": context(side="decoder", layers=2),
    "context embeddings": context(representation="embedding"),
    "context lstm": context(representation="bilstm"),
    "context, pre-norm": {**context(), "normalization": "pre"},
    "context, pre-norm, as published": {**context(branch="published"), "normalization": "pre"},
}
FRAMED = [name for name in SYSTEMS if name != "document"]
ONE_OF_EACH_ORDER = ["group", "document", "sentence", "concat, keep last", "concat, keep prefix", "context"]
