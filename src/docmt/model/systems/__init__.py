"""The systems. Each file has the options of a system and its differences from the sentence Transformer."""

from docmt.model.scope import ContextSpec as ContextSpec
from docmt.model.systems.base import DecodingOrder as DecodingOrder
from docmt.model.systems.base import System as System
from docmt.model.systems.cadec import Cadec as Cadec
from docmt.model.systems.concat import Concat as Concat
from docmt.model.systems.concat import WholeDocument
from docmt.model.systems.context import Context as Context
from docmt.model.systems.flat import Flat as Flat
from docmt.model.systems.group import Group as Group
from docmt.model.systems.hierarchical import Hierarchical as Hierarchical
from docmt.model.systems.hybrid import Hybrid as Hybrid
from docmt.model.systems.multihop import MultiHop as MultiHop
from docmt.model.systems.selective import Selective as Selective

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
