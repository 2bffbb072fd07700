"""docmt prepare RECIPE.yaml, or docmt prepare --store DIR --train SOURCE TARGET ..."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence
from pathlib import Path

from docmt import data
from docmt.cli.parsing import Parser, add_settings, make_parser, parse
from docmt.core.errors import printable
from docmt.data import PrepareConfig

_log = logging.getLogger(__name__)

CORPORA = {
    "train": "training corpus: a source and a target text file (one sentence a line, an empty line between documents, "
    'or <d> lines before them), or one JSONL file (x.jsonl): a line is a document, {"id": "a", "source": ["One.", '
    '"Two."], "target": ["Eins.", "Zwei."]}, or a sentence of one, {"document": "a", "source": "One.", "target": '
    '"Eins."}; more pairs or .jsonl files are further corpora; all may be compressed (x.gz)',
    "dev": "development corpora, in the same form; without one there is no validation",
    "test": "test corpora, in the same form",
}
DOCUMENT_IDS = {
    "train": "text files that name the document of each line, one file beside each corpus of --train (- for a corpus "
    "with borders of its own); lines that follow each other with the same id are one document",
    "dev": "the same for --dev",
    "test": "the same for --test",
}
DRAFTS = (
    "first translations for systems that read them (multihop), one file beside each corpus of --train and then of "
    "--dev: a text file with one line for each line of the source, as docmt translate writes it, or JSONL with an "
    "entry draft or target"
)
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
    "source_tokenizer",
    "vocabulary_size",
    "overwrite",
)


def parser() -> Parser:
    """The options of the command."""
    made = make_parser(
        "prepare",
        "Learns a tokenizer from parallel documents and writes them as a store of token ids, which docmt train reads.",
        USAGE,
        examples=EXAMPLES,
        common=COMMON,
        also={f"{name}.docids": f"{name}_docids" for name in DOCUMENT_IDS},  # as other toolkits have it
    )
    for name, meaning in CORPORA.items():
        required = name == "train"
        made.add_argument(
            f"--{name}",
            nargs="+",
            type=Path,
            required=required,
            default=None if required else [],
            metavar="FILE",
            help=meaning,
        )
    for name, meaning in DOCUMENT_IDS.items():
        made.add_argument(f"--{name}_docids", nargs="+", type=Path, default=[], metavar="FILE", help=meaning)
    made.add_argument("--drafts", nargs="+", type=Path, default=[], metavar="FILE", help=DRAFTS)
    known = {"drafts", *CORPORA, *(f"{name}_docids" for name in DOCUMENT_IDS)}
    add_settings(made, PrepareConfig, None, "the store", skip=known)
    return made


def run(arguments: Sequence[str]) -> int:
    """Writes a prepared store and prints its statistics."""
    settings = parse(parser(), arguments, PrepareConfig).settings
    store = data.prepare(settings)
    print(printable(data.format_statistics(store.statistics), kept="\n"))
    start = next((path for path in (settings.source_tokenizer, settings.ready_tokenizer) if _is_model(path)), None)
    model = "--preset base" if start is None else f"--initialize_from {shlex.quote(str(start))}"
    _log.info(f"try: docmt train --store {shlex.quote(str(store.directory))} --run RUN --system group {model}")
    return 0


def _is_model(path: Path | None) -> bool:
    """Whether a training can start from what a tokenizer was taken from."""
    return path is not None and (path / "model.safetensors").is_file()
