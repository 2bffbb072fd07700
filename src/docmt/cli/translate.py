"""docmt translate MODEL FILE... -o OUT"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from docmt.cli.parsing import add_model_options, make_parser, parse, translator_of
from docmt.decoding import SearchConfig, Translation, Translator
from docmt.documents import Document, read_documents
from docmt.documents.plain_text import write_text
from docmt.errors import DocmtError

GROUP = 64  # documents translated together; finished groups are written at once
STANDARD = "-"


@dataclass(frozen=True)
class InputConfig:
    """How the files are read."""

    layout: Literal["text", "lines"] = "text"
    """text: running text, segmented into sentences, layout kept; lines: one sentence a line, an empty line between
    documents"""
    language: str = "en"
    """language code for the segmentation of running text"""
    join_lines: bool = False
    """the lines of a paragraph are one text, hard-wrapped (otherwise every line ends a sentence)"""


@dataclass(frozen=True)
class _File:
    """One input file, its documents, and where its translation goes."""

    path: str
    output: str
    documents: list[Document]


def run(arguments: Sequence[str]) -> int:
    """Translates files; returns 2 if any of them could not be."""
    parser = make_parser("translate", "Translates documents, one target sentence for each source sentence.")
    parser.add_argument("model", type=str, help="model directory or run directory")
    parser.add_argument("files", nargs="*", type=str, help="text files; none, or -, is standard input")
    parser.add_argument("-o", "--output", type=str, default=STANDARD, help="file, or directory for several files")
    parser.add_argument(
        "--format", type=Literal["text", "jsonl"], default="text", help="text, or one JSON object per sentence"
    )
    parser.add_class_arguments(InputConfig, "input")
    parser.add_class_arguments(SearchConfig, "search")
    add_model_options(parser)
    options = parse(parser, arguments)
    if options.search.n_best > 1 and options.format == "text":
        raise DocmtError("--search.n_best above 1 needs --format jsonl: text has room for one translation")
    outputs = _outputs(options.files or [STANDARD], options.output)
    translator = translator_of(options)
    files, failures = _read(outputs, options.input)
    miscounted = 0
    for group in _groups(files):
        translations = _translate(translator, [document for file in group for document in file.documents], failures)
        for file in group:
            own = [translations.get(id(document)) for document in file.documents]
            if all(own):
                _write(file, [t for t in own if t], options.format, options.input.layout)
                miscounted += sum(1 for t in own if t and t.miscounted)
    return _report(failures, miscounted, len(outputs))


def _outputs(files: Sequence[str], output: str) -> dict[str, str]:
    """Input path -> output path."""
    if len(files) == 1:
        target = Path(output)
        if output != STANDARD and target.is_dir():
            return {files[0]: str(target / Path(files[0]).name)}
        return {files[0]: output}
    if output == STANDARD:
        raise DocmtError(f"{len(files)} files need an output directory: add -o DIRECTORY")
    directory = Path(output)
    if directory.exists() and not directory.is_dir():
        raise DocmtError(f"{output} is a file, but {len(files)} files need a directory: choose another -o")
    pairs = {file: str(directory / Path(file).name) for file in files}
    names = sorted(pairs.values())
    for one, other in pairwise(names):
        if one == other:
            raise DocmtError(f"two of the files would both be written to {one}: translate them in two calls")
    for source, target_path in pairs.items():
        if source != STANDARD and Path(source).resolve() == Path(target_path).resolve():
            raise DocmtError(f"{source} would be overwritten by its own translation: choose another -o")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DocmtError(f"cannot make directory {output}: {error.strerror}; choose another -o") from error
    return pairs


def _read(outputs: dict[str, str], config: InputConfig) -> tuple[list[_File], list[str]]:
    """The readable files, and a sentence for each of the others (raised at once if there is only one)."""
    files, failures = [], []
    for path, output in outputs.items():
        try:
            if config.layout == "lines":
                documents = [Document.from_sentences(sentences, id=id) for id, sentences in read_documents(path)]
            else:
                documents = [Document.read(path, language=config.language, join_lines=config.join_lines)]
        except DocmtError as error:
            if len(outputs) == 1:
                raise
            failures.append(str(error))
            continue
        files.append(_File(path, output, documents))
    return files, failures


def _groups(files: Sequence[_File]) -> list[list[_File]]:
    """Files with about GROUP documents together, in order."""
    groups: list[list[_File]] = [[]]
    for file in files:
        if groups[-1] and sum(len(f.documents) for f in groups[-1]) + len(file.documents) > GROUP:
            groups.append([])
        groups[-1].append(file)
    return groups


def _translate(translator: Translator, documents: Sequence[Document], failures: list[str]) -> dict[int, Translation]:
    """Translations by identity of the document; one that fails does not stop the others."""
    try:
        translations = translator.translate_all(documents)
        return {id(document): translation for document, translation in zip(documents, translations, strict=True)}
    except DocmtError as error:
        if len(documents) == 1:
            failures.append(f"{documents[0].id}: {error}")
            return {}
    found: dict[int, Translation] = {}
    for document in documents:
        found.update(_translate(translator, [document], failures))
    return found


def _write(file: _File, translations: Sequence[Translation], format: str, layout: str) -> None:
    if format == "jsonl":
        lines = [json.dumps(record, ensure_ascii=False) for t in translations for record in records(t)]
        write_text(file.output, "".join(line + "\n" for line in lines))
    elif layout == "lines":
        write_text(file.output, "\n".join(translation.text() for translation in translations))
    else:
        write_text(file.output, translations[0].text())


def records(translation: Translation) -> list[dict[str, Any]]:
    """One JSON object per sentence of a translation."""
    found = []
    for number, sentence in enumerate(translation.sentences):
        record = {"document": translation.document.id, "sentence": number + 1, **sentence.to_json()}
        if translation.alternatives:
            others = [alternative.sentences[number] for alternative in translation.alternatives]
            record["alternatives"] = [{"target": other.target, "score": other.score} for other in others]
        found.append(record)
    return found


def _report(failures: Sequence[str], miscounted: int, total: int) -> int:
    if miscounted:
        print(
            f"docmt: in {miscounted} documents the model gave another number of sentences than the source has; "
            "surplus sentences were joined, missing ones left empty",
            file=sys.stderr,
        )
    for failure in failures:
        print(f"docmt: error: {failure}", file=sys.stderr)
    if failures:
        print(f"docmt: {len(failures)} of {total} files could not be translated", file=sys.stderr)
    return 2 if failures else 0
