"""docmt prepare RECIPE.yaml, or docmt prepare --store DIR --train SOURCE TARGET ..."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from docmt.cli.parsing import add_settings, make_parser, parse
from docmt.data import PrepareConfig, format_statistics, prepare
from docmt.errors import printable

CORPORA = {
    "train": "training corpus: a source and a target text file (one sentence a line, an empty line between documents, "
    "or <d> lines before them), or one JSONL file with id, source and target; more pairs or .jsonl files are further "
    "corpora",
    "dev": "development corpus, in the same form; without one there is no validation",
    "test": "test corpus, in the same form",
}
USAGE = """--store DIRECTORY --train SOURCE TARGET [SOURCE TARGET ...] [--dev SOURCE TARGET] [options]
RECIPE.yaml [options]"""
EXAMPLES = (
    "docmt prepare --store stores/mine --train train.en train.de --dev dev.en dev.de --source_language en "
    "--target_language de",
)
COMMON = (
    "store",
    "train",
    "dev",
    "test",
    "source_language",
    "target_language",
    "tokenizer",
    "vocabulary_size",
    "tokenizer_directory",
    "overwrite",
)


def run(arguments: Sequence[str]) -> int:
    """Writes a prepared store and prints its statistics."""
    parser = make_parser(
        "prepare",
        "Learns a tokenizer from parallel documents and writes them as a store of token ids, which docmt train reads.",
        USAGE,
        examples=EXAMPLES,
        common=COMMON,
    )
    for name, meaning in CORPORA.items():
        required = name == "train"
        parser.add_argument(
            f"--{name}",
            nargs="+",
            type=Path,
            required=required,
            default=None if required else [],
            metavar="FILE",
            help=meaning,
        )
    add_settings(parser, PrepareConfig, None, "the store", skip=set(CORPORA))
    store = prepare(parse(parser, arguments, PrepareConfig).settings)
    print(printable(format_statistics(store.statistics), kept="\n"))
    return 0
