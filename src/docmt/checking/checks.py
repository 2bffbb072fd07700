"""All checks of a translation, and how its files are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Literal

from docmt.checking.findings import KINDS, CheckConfig, CheckReport, Finding, Place, is_certain
from docmt.checking.languages import FORMAL, FUNCTION_WORDS, base_language, is_unspaced, language_of
from docmt.checking.preserved import carried
from docmt.checking.sentences import (
    Copies,
    Lengths,
    duplicates,
    empty,
    formality,
    lengths,
    loops,
    repetitions,
    untranslated,
)
from docmt.checking.terms import WordKinds, find_links, names, terms
from docmt.core.errors import DocmtError
from docmt.core.plain_text import decoded_lines
from docmt.documents import Document, ParallelDocument, read_documents
from docmt.documents.corpus_files import read_hypothesis
from docmt.documents.document import read_input
from docmt.documents.formats import check_name, is_jsonl

Layout = Literal["auto", "lines", "text"]
_MARKDOWN = (".md", ".markdown")
_SHOWN = 3


@dataclass(frozen=True)
class Translated:
    """A source with its translation. Documents whose numbers of sentences differ are in `findings` alone."""

    documents: list[ParallelDocument]
    findings: list[Finding]


def read_translation(
    source: Path, target: Path | None, layout: Layout = "auto", config: CheckConfig | None = None
) -> Translated:
    """The documents of a source file and of its translation, or of a JSONL file with both sides.

    layout: "lines" is a sentence a line, "text" running text (of the languages of the configuration, or English),
    "auto" running text for Markdown and lines for all else. Raises DocmtError for files that cannot be read or have
    other documents than each other.
    """
    if target is None and not is_jsonl(source):
        raise DocmtError(f"{source} has one side alone: name the file with its translation too")
    if layout == "text" or (layout == "auto" and source.suffix in _MARKDOWN):
        if target is None or is_jsonl(source):
            raise DocmtError(f"{source} is JSONL, which is no running text: leave --layout out")
        config = config or CheckConfig()
        return _running_text(source, target, (config.source_language or "en", config.target_language or "en"))
    check_name(source)
    named = list(read_documents(source, "source"))
    ours = [sentences for _, sentences in named]
    if target is None:
        theirs = [sentences for _, sentences in read_documents(source, "target")]
    else:
        check_name(target)
        theirs = read_hypothesis(target, source, ours)
    if not any(map(len, ours)):
        raise DocmtError(f"{source} has no sentences, so nothing can be checked: give a file with text")
    if len(ours) != len(theirs):
        raise DocmtError(
            f"{source} has {len(ours)} documents and {target} {len(theirs)}: give the same documents in the same order "
            "(--layout text takes both for running text)"
        )
    documents, findings = [], []
    paired = zip(named, theirs, _line_numbers(source, ours), strict=True)
    for number, ((id, sentences), translated, lines) in enumerate(paired, 1):
        if len(sentences) == len(translated):
            documents.append(ParallelDocument(id, tuple(sentences), tuple(translated), number, lines))
        else:
            findings.append(_miscounted(id, sentences, translated))
    return Translated(documents, findings)


def _miscounted(id: str, source: Sequence[str], target: Sequence[str]) -> Finding:
    """The finding for a document of unequal sides, with its last sentences, where they part most clearly."""
    last = max(len(source), len(target))
    shown = range(max(0, last - _SHOWN), last)
    pairs = list(zip_longest(source, target, fillvalue=""))
    places = tuple(Place(id, number + 1, 0, *pairs[number]) for number in shown)
    what = f"{len(source)} sentences have a translation of {len(target)}; nothing else of this document is checked"
    return Finding("sentence_count", what, places, "sure")


def _line_numbers(path: Path, documents: Sequence[Sequence[str]]) -> list[tuple[int, ...]]:
    """Where the sentences stand in a text file; of JSONL nothing is told."""
    if is_jsonl(path):
        return [() for _ in documents]
    numbered = decoded_lines(path)
    return [
        tuple(next(number for number, line in numbered if line.strip() == sentence) for sentence in document)
        for document in documents
    ]


def _running_text(source: Path, target: Path, languages: tuple[str, str]) -> Translated:
    """Two files of running text, line by line.

    A translation that is segmented anew may get other sentences: a line with other numbers of them on the two sides is
    one pair. So is a line in which one side has no word. Raises DocmtError where lines cannot be paired.
    """
    documents = [_read_running_text(path, language) for path, language in zip((source, target), languages, strict=True)]
    ours, theirs = map(_sentences_by_line, documents)
    lines = [document.text().rstrip("\n").split("\n") for document in documents]
    if len(lines[0]) == len(lines[1]):
        for number in ours.keys() ^ theirs.keys():
            ours.setdefault(number, [lines[0][number - 1].strip()])
            theirs.setdefault(number, [lines[1][number - 1].strip()])
    if len(ours) != len(theirs):
        raise DocmtError(
            f"{source} has {len(ours)} lines of text and {target} {len(theirs)}, so it cannot be told which belong "
            "together: give a translation that keeps the lines, or files of a sentence a line"
        )
    pairs = [
        (line, *pair)
        for line, other in zip(sorted(ours), sorted(theirs), strict=True)
        for pair in _paired(ours[line], theirs[other])
    ]
    if not pairs:
        raise DocmtError(f"{source} has no sentences, so nothing can be checked: give a file with text")
    numbers, *sides = (tuple(column) for column in zip(*pairs, strict=True))
    return Translated([ParallelDocument(source.name, sides[0], sides[1], 1, numbers)], [])


def _paired(one: Sequence[str], other: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the sentences of a line with those of its translation, or, of other numbers, the whole lines."""
    yield from zip(one, other, strict=True) if len(one) == len(other) else [(" ".join(one), " ".join(other))]


def _read_running_text(path: Path, language: str) -> Document:
    """Return a file of running text as one document."""
    layout: Literal["markdown", "text"] = "markdown" if path.suffix in _MARKDOWN else "text"
    [document] = read_input(path, layout=layout, language=language).documents
    return document


def _sentences_by_line(document: Document) -> dict[int, list[str]]:
    """Return the sentences of every line that has any, by the number of the line."""
    sentences: dict[int, list[str]] = {}
    line = 1
    for gap, sentence in zip(document.gaps, document.sentences, strict=False):
        line += gap.count("\n")
        sentences.setdefault(line, []).append(sentence)
    return sentences


Check = Callable[[int, ParallelDocument], Iterator[Finding]]
"""Is given the number of the first sentence of a document, counted through all, and the document."""
CARRIED = frozenset({"number", "url", "placeholder", "bracket"})
Done = Callable[[int], object]
"""Is told how many sentences were done since it was told last."""
_LOOKED_AT = 5000
"""Sentences that the language of a text is found by."""


def check_files(
    source: Path | str,
    target: Path | str | None = None,
    config: CheckConfig | None = None,
    *,
    layout: Layout = "auto",
    kinds: Collection[str] = tuple(KINDS),
    done: Done | None = None,
) -> CheckReport:
    """Checks a translation; for the files see `read_translation`, for the rest `check_documents`."""
    found = read_translation(Path(source), Path(target) if target is not None else None, layout, config)
    return check_documents(found.documents, config, kinds=kinds, done=done, before=found.findings)


def check_documents(
    documents: Sequence[ParallelDocument],
    config: CheckConfig | None = None,
    *,
    kinds: Collection[str] = tuple(KINDS),
    done: Done | None = None,
    before: Sequence[Finding] = (),
) -> CheckReport:
    """Everything of these kinds that a person can see in translated documents, whose sentences may be empty.

    `before`: findings that there already are (documents that cannot be paired).
    """
    config = config or CheckConfig()
    texts = _first_sentences(documents)
    codes = config.source_language, config.target_language
    source, target = (base_language(code or language_of(text)) for code, text in zip(codes, texts, strict=True))
    unspaced = any(map(is_unspaced, texts))
    wanted = set(kinds)
    if unspaced:
        wanted -= {"name", "term"}
    if target not in FORMAL:
        wanted -= {"formality"}
    found = list(before)
    for portion in _portions(documents, config.batch_sentences):
        checks = _checks(portion, config, (source, target), wanted)
        first = 0
        for document in portion:
            for check in checks:
                found += check(first, document)
            first += len(document)
            if done is not None:
                done(len(document))
    found = [finding for finding in found if finding.kind in kinds]
    order = list(KINDS)
    shown = sorted((each for each in found if is_certain(each, config.certainty)), key=lambda f: order.index(f.kind))
    hidden = Counter(each.kind for each in found if not is_certain(each, config.certainty))
    return CheckReport(
        config=config,
        documents=len(documents) + sum(each.kind == "sentence_count" for each in before),
        sentences=sum(map(len, documents)),
        source_language=source,
        target_language=target,
        findings=shown,
        hidden=hidden,
        notes=list(_notes(set(kinds), source, target, unspaced)),
    )


def _first_sentences(documents: Sequence[ParallelDocument]) -> list[list[str]]:
    """Return the first sentences of both sides, by which their languages are found."""
    sides = (
        (sentence for document in documents for sentence in document.source),
        (sentence for document in documents for sentence in document.target),
    )
    return [list(islice(side, _LOOKED_AT)) for side in sides]


def _portions(documents: Sequence[ParallelDocument], most: int) -> Iterator[list[ParallelDocument]]:
    """Documents of together about as many sentences as are checked together."""
    portion: list[ParallelDocument] = []
    size = 0
    for document in documents:
        if portion and size + len(document) > most:
            yield portion
            portion, size = [], 0
        portion.append(document)
        size += len(document)
    if portion:
        yield portion


def _checks(
    documents: Sequence[ParallelDocument], config: CheckConfig, languages: tuple[str, str], wanted: Set[str]
) -> list[Check]:
    """What looks for the wanted kinds in a document, with what the documents together say of words and lengths."""
    checks: dict[str, Check] = {
        "empty": lambda _, document: empty(document),
        "loop": lambda _, document: loops(document, config),
        "duplicate": lambda _, document: duplicates(document, config),
        "repetition": lambda _, document: repetitions(document, config),
        "formality": lambda _, document: formality(document, languages[1]),
    }
    if "untranslated" in wanted:
        copies = Copies.of(documents)
        checks["untranslated"] = lambda _, document: untranslated(document, config, languages, copies)
    if "length" in wanted and (usual := Lengths.of(documents)) is not None:
        checks["length"] = lambda _, document: lengths(document, config, usual)
    if wanted & {"name", "term"}:
        ours = WordKinds.of([document.source for document in documents], languages[0], config.term_documents)
        checks["name"] = lambda _, document: names(document, config, ours, languages[1])
    if "term" in wanted:
        theirs = WordKinds.of([document.target for document in documents], languages[1])
        links = find_links(documents, languages)
        checks["term"] = lambda first, document: terms(first, document, config, (ours, theirs), links)
    chosen = [check for kind, check in checks.items() if kind in wanted]
    if wanted & CARRIED:
        chosen.append(lambda _, document: carried(document, config, languages))
    return chosen


def _notes(kinds: Collection[str], source: str, target: str, unspaced: bool) -> Iterator[str]:
    """What was not checked, and why."""
    if unspaced and {"name", "term"} & set(kinds):
        yield "names and terms were not checked: a side is of a script without spaces between words"
    if "formality" in kinds and target not in FORMAL:
        known = f"no words of address are known for {target}" if target else "the language is not known"
        yield f"formality was not checked: {known} (--target-language)"
    if "untranslated" in kinds and not {source, target} <= FUNCTION_WORDS.keys():
        yield "untranslated sentences were found by comparison alone: the commonest words of a language are not known"
