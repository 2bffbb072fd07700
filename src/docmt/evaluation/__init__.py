"""How good translations are: s-BLEU, d-BLEU, chrF."""

from docmt.evaluation.metrics import (
    Evaluation,
    MetricConfig,
    MetricScore,
    evaluate_documents,
    evaluate_files,
)

__all__ = ["Evaluation", "MetricConfig", "MetricScore", "evaluate_documents", "evaluate_files"]
