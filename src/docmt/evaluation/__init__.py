"""How good translations are: s-BLEU, d-BLEU, chrF."""

from docmt.evaluation.config import PROTOCOLS, MetricConfig
from docmt.evaluation.metrics import (
    Evaluation,
    MetricScore,
    evaluate_documents,
    evaluate_files,
)

__all__ = ["PROTOCOLS", "Evaluation", "MetricConfig", "MetricScore", "evaluate_documents", "evaluate_files"]
