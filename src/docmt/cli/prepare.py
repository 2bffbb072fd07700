"""docmt prepare CONFIG.yaml, or docmt prepare --store DIR --train SOURCE TARGET ..."""

from __future__ import annotations

from collections.abc import Sequence

from docmt.cli.parsing import make_parser, parse
from docmt.data import PrepareConfig, format_statistics, prepare


def run(arguments: Sequence[str]) -> int:
    """Writes a prepared store and prints its statistics."""
    parser = make_parser("prepare", "Turns parallel documents into a tokenizer and a memory-mapped store of token ids.")
    parser.add_class_arguments(PrepareConfig, None)
    options = parse(parser, arguments)
    fields = {name: getattr(options, name) for name in PrepareConfig.__dataclass_fields__}
    store = prepare(PrepareConfig(**fields))
    print(format_statistics(store.statistics))
    return 0
