"""Looking into models and trainings: attention entropy, and figures of how a training went."""

from docmt.analysis.entropy import KINDS, EntropyMeter, attention_entropy, measuring_entropy, query_entropies
from docmt.analysis.figures import Curve, Point, draw_curves, draw_points, read_curves

__all__ = [
    "KINDS",
    "Curve",
    "EntropyMeter",
    "Point",
    "attention_entropy",
    "draw_curves",
    "draw_points",
    "measuring_entropy",
    "query_entropies",
    "read_curves",
]
