"""Training: objective, schedule, the loop, and runs that can be killed and resumed at any time."""

from docmt.training.config import (
    BatchConfig,
    CheckpointConfig,
    ObjectiveConfig,
    OptimizerConfig,
    StopConfig,
    TrainConfig,
    ValidationConfig,
)
from docmt.training.loop import TrainingResult, train
from docmt.training.objective import smoothed_cross_entropy

__all__ = [
    "BatchConfig",
    "CheckpointConfig",
    "ObjectiveConfig",
    "OptimizerConfig",
    "StopConfig",
    "TrainConfig",
    "TrainingResult",
    "ValidationConfig",
    "smoothed_cross_entropy",
    "train",
]
