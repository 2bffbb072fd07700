"""Names of settings in model directories that earlier versions wrote, and their names today."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from docmt.core.settings import flatten, nest

# Of 0.3.0. Each old name has gone, so that a directory of today's docmt never has one.
_NAMES = {
    "compatibility": "implementation",
    "source_mark": "source_language_ids",
    "target_mark": "target_language_ids",
    "linear.map": "linear.feature_map",
    "linear.drawing": "linear.feature_sampling",
    "linear.temperature": "linear.temperature_per",
    "linear.gates": "linear.gate_per",
    "linear.gate_start": "linear.gate_bias",
    "linear.rescale": "linear.rescale_keys",
    "group.top": "group.top_attention",
    "group.join": "group.fusion",
    "group.global_from": "group.global_start",
    "concat.keep": "concat.window_decoding",
    "context.branch": "context.fusion",
    "multihop.branch": "multihop.fusion",
    "multihop.context": "multihop.target_context",
    "hierarchical.branch": "hierarchical.fusion",
}
_VALUES = {"implementation": {"none": "docmt"}, "output": {"own": "untied"}} | {
    f"{system}.fusion": {"exact": "identity"} for system in ("group", "context", "multihop", "hierarchical")
}


def with_current_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored settings of a model or search, nested by group, with the names and values of this version."""
    renamed = {_NAMES.get(name, name): value for name, value in flatten(values).items()}
    current = {
        name: _VALUES[name].get(value, value) if name in _VALUES and isinstance(value, str) else value
        for name, value in renamed.items()
    }
    return nest(current, "the configuration")
