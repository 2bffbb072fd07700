"""How good translations are: s-BLEU, d-BLEU, chrF."""

from docmt.evaluation.config import PROTOCOLS, MetricConfig
from docmt.evaluation.metrics import (
    Evaluation,
    MetricScore,
    evaluate_documents,
    evaluate_files,
    in_documents,
    in_units,
)

__all__ = [
    "PROTOCOLS",
    "Evaluation",
    "MetricConfig",
    "MetricScore",
    "evaluate_documents",
    "evaluate_files",
    "in_documents",
    "in_units",
]
