"""docmt demo

Translate a document of the package, two pages of Word, with the English-French model of the package. Both sides are
shown, and what the model translates otherwise without the sentences before.

usage:
    [-o DIRECTORY]

examples:
    docmt demo
"""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import dataclass
from difflib import SequenceMatcher
from importlib import resources
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from docmt import decoding
from docmt.core.errors import DocmtError, printable
from docmt.core.files import make_directory
from docmt.core.plain_text import write_bytes
from docmt.core.settings import option
from docmt.documents import Document

MODEL = "en-fr"
DOCUMENT = "demo.docx"


@dataclass(frozen=True)
class DemoOptions:
    """The options of the command."""

    output: Path = option(Path("docmt-demo"), flags=("-o",), metavar="DIRECTORY")
    """directory for the document and its translation"""


def run(options: DemoOptions) -> int:
    """Translate the document of the package and show both sides. Raises DocmtError if the package has no model."""
    started, console = time.monotonic(), Console()
    if options.output.is_file():
        raise DocmtError(f"-o {options.output} is a file: name a directory")
    # imported here because torch loads slowly
    from docmt.checkpoint.model_names import find_named_model, find_package_model

    if (model := find_package_model(MODEL) or find_named_model(MODEL)) is None:
        raise DocmtError(
            f"this docmt has no model {MODEL} in its package: get one with `docmt pull Helsinki-NLP/opus-mt-{MODEL}`"
        )
    source, target = options.output / "directive.docx", options.output / "directive.fr.docx"
    make_directory(options.output)
    if not source.exists():  # perhaps with changes of the user
        write_bytes(source, resources.files("docmt.cli").joinpath(DOCUMENT).read_bytes())
    _say(console, f"translating {source} with the model {MODEL}, which reads the sentences before")
    translator = decoding.Translator(model)
    translations = translator.translate_file(source, target)
    sentences = [sentence for translation in translations for sentence in translation.sentences]
    alone = translator.translate_all([Document.from_sentences([sentence.source]) for sentence in sentences])
    table = Table("English", "French ([bold green]\\[changed by context][/])", "without context")
    for sentence, other in zip(sentences, alone, strict=True):
        table.add_row(Text(sentence.source), *_mark_changes(sentence.target, other.sentences[0].target))
    console.print(table)
    _say(console, f"{time.monotonic() - started:.0f} seconds; the translated file is {target}")
    command = "docmt" if shutil.which("docmt") else sys.argv[0]  # as it was called, outside of an environment
    _say(console, f"try: {command} translate {MODEL} YOUR_FILE.docx -o TRANSLATION.docx")
    return 0


def _mark_changes(target: str, other: str) -> tuple[Text, Text]:
    """Return two translations of a sentence, with the words that differ in brackets; the other is empty if equal."""
    words, other_words = target.split(), other.split()
    marked, other_marked = Text(), Text()
    blocks = SequenceMatcher(None, words, other_words, autojunk=False).get_opcodes()
    for kind, start, end, other_start, other_end in blocks:
        for word in words[start:end]:
            marked.append(*((f"{word} ",) if kind == "equal" else (f"[{word}] ", "bold green")))
        for word in other_words[other_start:other_end] if other != target else ():
            other_marked.append(*((f"{word} ",) if kind == "equal" else (f">{word}< ", "bold red")))
    return marked, other_marked


def _say(console: Console, text: str) -> None:
    console.print(Text(printable(f"docmt demo: {text}")))
