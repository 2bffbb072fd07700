"""Several systems of one call of `docmt evaluate`: files of translations, models, or both, compared with the first."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from docmt.cli import usage
from docmt.cli.corpora import check_outputs, document_name, lines_beside, read_corpus
from docmt.cli.options import translator_of
from docmt.cli.results import Report
from docmt.cli.translating import Translations, check_models, check_no_model, translate_corpus
from docmt.core.errors import DocmtError, printable
from docmt.core.files import cannot_write, check_regular
from docmt.core.plain_text import STANDARD, write_text
from docmt.core.progress import on_terminal, progress
from docmt.documents import ParallelDocument
from docmt.documents.corpus import Corpus, read_reference
from docmt.evaluation import Comparison, compare
from docmt.evaluation.comparison import check_enough
from docmt.evaluation.metrics import read_beside

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class System:
    """Something that is scored: a file of translations, or a model."""

    name: str
    """as much of the end of its path as tells it from the others"""
    path: str

    @property
    def is_model(self) -> bool:
        return all(Path(part).is_dir() for part in _parts(self.path))


def compare_systems(options: Any) -> int:
    """Scores all systems on the documents that all of them have, prints the table, and writes what is asked for.

    Returns the status of the command.
    """
    systems = named_systems(options.systems)
    _check(options, systems)
    corpus, references = _read(options, systems)
    check_enough(len(references[0]), options.significance)
    found = _read_files(options, systems, corpus, references[0])
    try:
        _translate(options, systems, corpus, found)
        return _compare(options, systems, references, found)
    except KeyboardInterrupt:
        _tell_way_on(options, systems, corpus, found)
        raise


def _compare(
    options: Any,
    systems: Sequence[System],
    references: Sequence[Corpus],
    found: Mapping[System, Translations],
) -> int:
    """Scores and compares what all systems have made, and writes it; returns the status of the command."""
    ordered = [found[system] for system in systems]
    _tell_equal(systems, ordered)
    failed = frozenset[int]().union(*(own.failed for own in ordered))
    report, total = _merged([own.report for own in ordered]), len(references[0])
    kept = [number for number in range(total) if number not in failed]
    if kept:
        try:
            evaluations = {}
            with progress("scoring (systems)", len(systems)) as bar:
                for system in systems:
                    evaluations[system.name] = found[system].evaluate(references, kept, options.metrics)
                    bar.advance()
            comparison = compare(evaluations, options.significance)
            _write(
                options, comparison, _facts(options, systems, ordered), f"{len(failed)} of {total}" if failed else ""
            )
        except DocmtError as error:  # after what is known of the translations
            report.failures.append(str(error))
    return report.print(total, len(kept), "documents", "translated by every system")


def named_systems(paths: Sequence[str]) -> list[System]:
    """The systems with names that tell them apart. Raises DocmtError for one that is there twice."""
    for one, other in combinations(paths, 2):
        if Path(one).resolve() == Path(other).resolve():
            raise DocmtError(f"{other} is there twice: name every system once")
    parts = [[Path(part).parts for part in _parts(path)] for path in paths]
    for length in range(1, max(len(part) for own in parts for part in own) + 1):
        names = [",".join(str(Path(*part[-length:])) for part in own) for own in parts]
        if len(set(names)) == len(names):
            break
    return [System(name, path) for name, path in zip(names, paths, strict=True)]


def _parts(path: str) -> list[str]:
    """The models of an ensemble, which have commas between them; else the path alone."""
    return [path] if Path(path).exists() else path.split(",")


def _check(options: Any, systems: Sequence[System]) -> None:
    """Raises DocmtError for options that do not go together, for outputs that cannot be written, and for no models."""
    models = [system for system in systems if system.is_model]
    files = [system for system in systems if not system.is_model]
    if len(systems) < 2:
        raise DocmtError(
            f"{systems[0].path} is a single system, and --systems compares several: name more, or give it as "
            f"{'--model' if models else '--hypothesis'}"
        )
    if models and not options.source:
        raise DocmtError(f"{models[0].path} is a model, which needs --source: name the file to translate")
    if files and not options.reference:
        raise DocmtError(f"{files[0].path} needs --reference: name the file with the references")
    for name in ("source", "output"):
        if getattr(options, name) and not models:
            raise DocmtError(f"--{name} has no meaning without a model among the systems: leave it out")
    if not models:
        check_no_model(options)
    if files and options.metrics.unit == "instance":
        raise DocmtError(
            f"{files[0].path} is a file, which has no instances: score models alone with "
            f"--metrics.{f'protocol {protocol}' if (protocol := options.metrics.protocol) else 'unit instance'}"
        )
    if options.json == options.markdown == STANDARD:
        raise DocmtError("--json and --markdown would both go to standard output: name a file for one of them")
    read = [*(system.path for system in files), *options.references]
    check_outputs(options.json, options.markdown, inputs=[*read, options.source])
    for path in [*read, options.source] if models else read:
        if path:
            check_regular(path, "it may be read more than once, but is")
    if models:
        from docmt.checkpoint.model_directory import load_model_config

        for part in (part for system in models for part in _parts(system.path)):
            load_model_config(part)
        _check_outputs(_outputs(options.output, models))


def _outputs(directory: str | None, models: Sequence[System]) -> dict[System, Path]:
    """The file of each model in the directory, if there is one. Raises DocmtError for standard output."""
    if not directory:
        return {}
    if directory == STANDARD:
        raise DocmtError("-o - has no room for the translations of several systems: name a directory")
    names = {system: system.name.replace("/", "-").replace(",", "+") for system in models}
    return {system: Path(directory) / f"{name}.txt" for system, name in names.items()}


def _check_outputs(outputs: Mapping[System, Path]) -> None:
    """Raises DocmtError for a file that is there already, or that two models would have."""
    for path in outputs.values():
        if path.exists():
            raise DocmtError(f"{path} is there already: remove it, or name another directory with -o")
    for one, other in combinations(outputs, 2):
        if outputs[one] == outputs[other]:
            raise DocmtError(f"{one.path} and {other.path} would both be written to {outputs[one]}: rename one")


def _read(options: Any, systems: Sequence[System]) -> tuple[list[ParallelDocument], list[Corpus]]:
    """The corpus to translate, if there is a model, and the documents of every reference."""
    if not any(system.is_model for system in systems):
        first = read_reference(Path(options.reference))
        return [], [first, *(read_beside(path, options.reference, first) for path in options.references[1:])]
    corpus = read_corpus(options.source, options.reference)
    return corpus, read_references(options, corpus)


def read_references(options: Any, corpus: Sequence[ParallelDocument]) -> list[Corpus]:
    """The documents of every reference of a corpus that is translated."""
    first = [document.target for document in corpus]
    return [first, *(_beside_corpus(path, options.reference, first) for path in options.references[1:])]


def _beside_corpus(path: str, reference: str, references: Corpus) -> Corpus:
    """A file beside the reference of a corpus, from which nothing may have been left out."""
    if read_reference(Path(reference)) != references:
        raise DocmtError(
            f"{path} cannot be told from the places that were left out of {reference}: remove pairs with an empty side "
            "from the corpus"
        )
    return read_beside(path, reference, references)


def _read_files(
    options: Any, systems: Sequence[System], corpus: Sequence[ParallelDocument], references: Corpus
) -> dict[System, Translations]:
    """The translations of the systems that are files."""
    read = _beside_corpus if corpus else read_beside
    files = [system for system in systems if not system.is_model]
    return {system: Translations(read(system.path, options.reference, references)) for system in files}


def _translate(
    options: Any, systems: Sequence[System], corpus: Sequence[ParallelDocument], found: dict[System, Translations]
) -> None:
    """Adds to `found` what the models make of the corpus; written as soon as it is there."""
    models = [system for system in systems if system.is_model]
    if len(models) > 1:
        check_models(options, [system.path for system in models])
    outputs = _outputs(options.output, models)
    if outputs:
        try:
            Path(options.output).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(options.output, error) from error
        check_outputs(*map(str, outputs.values()))
    for system in models:
        if on_terminal():
            _log.info(f"translating with {system.name}")
        names = [f"{system.name}: {document_name(options.source, document)}" for document in corpus]
        own = translate_corpus(translator_of(options, system.path), corpus, options.metrics.unit, names)
        if system in outputs:
            write_text(str(outputs[system]), lines_beside(options.source, corpus, own.hypotheses))
        found[system] = own


def _tell_way_on(
    options: Any, systems: Sequence[System], corpus: Sequence[ParallelDocument], found: Mapping[System, Translations]
) -> None:
    """Says which models have their translations in files, and how to go on without making these again."""
    outputs = _outputs(options.output, [system for system in systems if system.is_model])
    written = {system: str(path) for system, path in outputs.items() if system in found}
    if not written:
        return
    advice = "what else their scores need does not stand there: to compare them, translate again, with another -o"
    if all(_says_all(options, path, corpus, found[system]) for system, path in written.items()):
        names = shlex.join(written.get(system, system.path) for system in systems)
        needed = "" if options.reference else f" --reference {shlex.quote(options.source)}"
        rest = "" if len(written) < len(outputs) else ", without the options of models"
        advice = f"go on with --systems {names}{needed}{rest}"
    _log.warning(f"complete: {', '.join(written.values())}; {advice}")


def _says_all(options: Any, path: str, corpus: Sequence[ParallelDocument], own: Translations) -> bool:
    """Whether the file of a model has the same scores as what the model made."""
    if own.failed or any(own.miscounted) or options.metrics.unit == "instance":
        return False
    try:
        read = _beside_corpus(path, options.reference or options.source, [document.target for document in corpus])
    except DocmtError:  # all of it is empty, or pairs were left out
        return False
    return list(map(list, read)) == list(map(list, own.hypotheses))


def _tell_equal(systems: Sequence[System], found: Sequence[Translations]) -> None:
    """Says which systems cannot differ."""
    texts = [[list(document) for document in own.hypotheses] for own in found]
    for number, text in enumerate(texts):
        if text in texts[:number]:
            same = systems[texts.index(text)].path
            _log.warning(f"{systems[number].path} has the same translations as {same}, so that they cannot differ")


def _facts(options: Any, systems: Sequence[System], found: Sequence[Translations]) -> dict[str, dict[str, Any]]:
    """What the JSON says of each system besides its scores, by name."""
    return {
        system.name: {
            "path": system.path,
            "beam": options.search.beam if system.is_model else None,
            "warnings": own.report.counts() if system.is_model else None,
        }
        for system, own in zip(systems, found, strict=True)
    }


def _write(options: Any, comparison: Comparison, facts: dict[str, dict[str, Any]], left_out: str) -> None:
    """Prints the table, and writes it as JSON and Markdown; `left_out`: `1 of 20`, if there is anything."""
    remark = f"{left_out} documents left out of all scores, as not every system could translate them"
    places = usage.by_position(options, comparison.systems)
    if options.json:
        content = comparison.to_json()
        content |= {"by_position": places.to_json()} if places else {}
        content["systems"] = [{**facts[entry["name"]], **entry} for entry in content["systems"]]
        named = {"source": options.source, "references": options.references}
        lost = int(left_out.split()[0]) if left_out else 0
        write_text(options.json, json.dumps({**named, **content, "left_out": lost}, indent=2) + "\n")
    if options.markdown:
        write_text(options.markdown, comparison.to_markdown() + (f"- {remark}\n" if left_out else ""))
    if STANDARD not in (options.json, options.markdown):
        more = [remark if left_out else "", f"\n{places.format()}" if places else ""]
        text = "\n".join(filter(None, [comparison.format(), *more]))
        print(printable(text, kept="\n"))
    usage.check_positions(options, comparison.systems)


def _merged(reports: Sequence[Report]) -> Report:
    """One report of what all systems have to tell."""
    merged = Report()
    for report in reports:
        merged.failures += report.failures
        for warning, places in report.places.items():
            merged.places[warning] += places
    return merged
