"""The systems: each one file with its options and the answers in which it differs from the sentence Transformer."""

from docmt.model.scope import ContextSpec
from docmt.model.systems.base import Order, System
from docmt.model.systems.concat import Concat, WholeDocument
from docmt.model.systems.context import Context
from docmt.model.systems.group import Group
from docmt.model.systems.hierarchical import Hierarchical
from docmt.model.systems.multihop import MultiHop

SYSTEMS: dict[str, type[System]] = {
    "sentence": System,
    "document": WholeDocument,
    "group": Group,
    "concat": Concat,
    "context": Context,
    "multihop": MultiHop,
    "hierarchical": Hierarchical,
}
"""By the name that `model.system` has for it."""

__all__ = [
    "SYSTEMS",
    "Concat",
    "Context",
    "ContextSpec",
    "Document",
    "Group",
    "Hierarchical",
    "MultiHop",
    "Order",
    "System",
]
