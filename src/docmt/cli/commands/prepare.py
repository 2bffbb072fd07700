"""docmt prepare RECIPE.yaml, or docmt prepare --store DIR --train SOURCE TARGET ...

Learns a tokenizer from parallel documents and writes them as a store of token ids, which docmt train reads.

usage:
    --store DIRECTORY --train SOURCE TARGET [SOURCE TARGET ...] [--dev SOURCE TARGET] [options]
    RECIPE.yaml [options]

examples:
    docmt prepare --store stores/mine --train train.en train.de --dev dev.en dev.de --source-language en
        --target-language de
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence
from pathlib import Path

from docmt import data
from docmt.cli.options import Parser
from docmt.core.errors import printable
from docmt.data import PrepareConfig
from docmt.data.prepare_config import SPLITS

_log = logging.getLogger(__name__)


def parser() -> Parser[PrepareConfig]:
    """Return the parser of the command."""
    return Parser(
        "prepare",
        PrepareConfig,
        __doc__,
        common="store train dev test source_language target_language tokenizer source_tokenizer vocabulary_size "
        "overwrite",
        also={f"{split}.docids": f"{split}_docids" for split in SPLITS},  # as other toolkits have it
        title="the store",
    )


def run(arguments: Sequence[str]) -> int:
    """Writes a prepared store and prints its statistics."""
    settings = parser().parse(arguments)
    store = data.prepare(settings)
    print(printable(data.format_statistics(store.statistics), kept="\n"))
    start = next((path for path in (settings.source_tokenizer, settings.ready_tokenizer) if _is_model(path)), None)
    model = "--preset base" if start is None else f"--initialize-from {shlex.quote(str(start))}"
    _log.info(f"try: docmt train --store {shlex.quote(str(store.directory))} --run RUN --system group {model}")
    return 0


def _is_model(path: Path | None) -> bool:
    """Whether a training can start from what a tokenizer was taken from."""
    return path is not None and (path / "model.safetensors").is_file()
