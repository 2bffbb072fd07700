"""Which rules a search follows: those of the system, or of the search that it is to agree with."""

from __future__ import annotations

from docmt.core.errors import DocmtError
from docmt.decoding.config import ContextConfig, SearchConfig
from docmt.decoding.ensemble import Model, members_of
from docmt.decoding.frame import Frame, OpenEnd
from docmt.decoding.marks import Marks
from docmt.decoding.rfa import RfaRules
from docmt.model.systems import Order
from docmt.text import SpecialTokens

Rules = type[Frame] | type[OpenEnd]
_RULES: dict[str, Rules] = {"frame": Frame, "open": OpenEnd}
"""By the name that systems have for them."""


def order_of(model: Model, config: SearchConfig, context: ContextConfig) -> Order:
    """The order of this search. Raises DocmtError for a published search of another order."""
    order = model.system.orders.get(context.window, model.system.order)
    if config.compatibility == "rfa" and order != "in turn":
        raise DocmtError(
            "search.compatibility rfa is for models that translate after their own earlier translations "
            "(context.window or model.concat.keep prefix): choose none for this one"
        )
    return order


def rules_of(model: Model, config: SearchConfig) -> Rules:
    """The rules of this search or scoring. Raises DocmtError for a published search of other models."""
    joined = model.parts.frame.joined
    if (config.compatibility == "rfa") != joined and config.compatibility != "none":
        family = members_of(model)[0].config.family
        choice = "none or rfa" if joined else "none"
        raise DocmtError(
            f"search.compatibility {config.compatibility} is not for models of family {family}: choose {choice}"
        )
    return RfaRules if config.compatibility == "rfa" else _RULES[model.system.rules]


def marks_of(model: Model, specials: SpecialTokens) -> Marks:
    """What this model says, with its marks."""
    return Marks(specials, model.parts.frame)
