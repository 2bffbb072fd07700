"""Experiments: named grids of trainings that reproduce a published table or figure."""

from docmt.experiments.experiment import SCALES, Axis, Experiment, Variant, list_experiments, read_experiment
from docmt.experiments.plan import Plan, PlannedRun, make_plan
from docmt.experiments.report import write_figure, write_report
from docmt.experiments.runner import reproduce
from docmt.experiments.scores import EvaluationConfig, evaluate_run

__all__ = [
    "SCALES",
    "Axis",
    "EvaluationConfig",
    "Experiment",
    "Plan",
    "PlannedRun",
    "Variant",
    "evaluate_run",
    "list_experiments",
    "make_plan",
    "read_experiment",
    "reproduce",
    "write_figure",
    "write_report",
]
