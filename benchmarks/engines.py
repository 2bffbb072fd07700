"""Files translated by several engines: what is left of their structure, and what it took.

python -m benchmarks.engines MODEL... --files FILE...

A MODEL is one of docmt or `endpoint:PROFILE`. Units are paragraphs, cells, cues or messages; a code is a piece of
markup. A code is right if it is in the same unit; the tests say whether it is beside the right words.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

from docmt.core.errors import DocmtError
from docmt.decoding import PartialTranslation, Translator
from docmt.decoding.document_translator import DocumentTranslator
from docmt.decoding.file_translation import FileConfig, FileTranslation, align_parts, read_file
from docmt.decoding.translation_results import sum_uses
from docmt.engines import EndpointTranslator, is_endpoint


def main() -> None:
    """Print a row for each file and engine."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--files", type=Path, nargs="+", required=True)
    options = parser.parse_args()
    print("| file | engine | units | sentences | failed | codes | codes in their unit | seconds | took |")
    print("|---|---|---|---|---|---|---|---|---|")
    for path in options.files:
        for model in options.models:
            translator = EndpointTranslator(model) if is_endpoint(model) else Translator(model)
            print("|", " | ".join([path.name, model, *measure(translator, path)]), "|", flush=True)


def measure(translator: DocumentTranslator, path: Path) -> list[str]:
    """Return the columns of a file. Raises DocmtError if another number of units comes out."""
    source, target = translator.languages
    config, started = FileConfig(source, target, source or "en"), time.monotonic()
    file = _read(path, config)
    parts: list[PartialTranslation] = []
    for group in translator.stream_parts(file.documents):
        parts += align_parts(group, file, translator.align)
    seconds = time.monotonic() - started
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / path.name
        output.write_bytes(file.render(file.to_records(part) for part in parts))
        before, after = file.units.file.units, _read(output, config).units.file.units
    if len(before) != len(after):
        raise DocmtError(f"{path} has {len(before)} units, but its translation {len(after)}")
    codes = [[Counter(code.kind for code in unit.codes) for unit in units] for units in (before, after)]
    kept = sum((one & other).total() for one, other in zip(*codes, strict=True))
    failed = sum(len(part.source) for part in parts if part.translation is None)
    use = sum_uses(each.engine for part in parts for each in part.translation or ())
    counts = len(before), sum(map(len, file.documents)), failed, sum(each.total() for each in codes[0]), kept
    return [*map(str, counts), f"{seconds:.0f}", str(use or "")]


def _read(path: Path, config: FileConfig) -> FileTranslation:
    file = read_file(str(path), "auto", config)
    if isinstance(file, bytes):
        raise DocmtError(f"{path} is no file with markup")
    return file


if __name__ == "__main__":
    main()
