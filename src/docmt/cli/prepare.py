"""docmt prepare CONFIG.yaml, or docmt prepare --store DIR --train SOURCE TARGET ..."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from docmt.cli.parsing import make_parser, parse
from docmt.data import PrepareConfig, format_statistics, prepare

CORPORA = {
    "train": "training corpus: a source and a target text file (one sentence a line, an empty line between documents, "
    "or <d> lines before them), or one JSONL file with id, source and target",
    "dev": "development corpus for validation, likewise",
    "test": "test corpus, likewise",
}


def run(arguments: Sequence[str]) -> int:
    """Writes a prepared store and prints its statistics."""
    parser = make_parser("prepare", "Turns parallel documents into a tokenizer and a memory-mapped store of token ids.")
    for name, meaning in CORPORA.items():
        required = name == "train"
        parser.add_argument(
            f"--{name}", nargs="+", type=Path, required=required, default=None if required else [], help=meaning
        )
    parser.add_class_arguments(PrepareConfig, None, skip=set(CORPORA))
    options = parse(parser, arguments)
    fields = {name: getattr(options, name) for name in PrepareConfig.__dataclass_fields__}
    store = prepare(PrepareConfig(**fields))
    print(format_statistics(store.statistics))
    return 0
