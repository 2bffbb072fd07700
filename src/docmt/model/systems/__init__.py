"""The systems. Each file has the options of a system and its differences from the sentence Transformer."""

from docmt.model.scope import ContextSpec
from docmt.model.systems.base import DecodingOrder, System
from docmt.model.systems.cadec import Cadec
from docmt.model.systems.concat import Concat, WholeDocument
from docmt.model.systems.context import Context
from docmt.model.systems.flat import Flat
from docmt.model.systems.group import Group
from docmt.model.systems.hierarchical import Hierarchical
from docmt.model.systems.hybrid import Hybrid
from docmt.model.systems.multihop import MultiHop
from docmt.model.systems.selective import Selective

SYSTEMS: dict[str, type[System]] = {
    "sentence": System,
    "document": WholeDocument,
    "group": Group,
    "concat": Concat,
    "context": Context,
    "multihop": MultiHop,
    "hierarchical": Hierarchical,
    "flat": Flat,
    "hybrid": Hybrid,
    "selective": Selective,
    "cadec": Cadec,
}
"""The systems by value of `model.system`."""

__all__ = [
    "SYSTEMS",
    "Cadec",
    "Concat",
    "Context",
    "ContextSpec",
    "DecodingOrder",
    "Flat",
    "Group",
    "Hierarchical",
    "Hybrid",
    "MultiHop",
    "Selective",
    "System",
    "WholeDocument",
]
