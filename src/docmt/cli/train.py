"""docmt train RECIPE.yaml [--FIELD VALUE ...], and docmt train --resume RUN"""

from __future__ import annotations

from collections.abc import Sequence

from docmt.cli.parsing import make_parser, parse
from docmt.training import TrainConfig, train


def run(arguments: Sequence[str]) -> int:
    """Trains or goes on training."""
    raise NotImplementedError
