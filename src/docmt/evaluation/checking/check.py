"""All checks of a translation, one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from docmt.documents import ParallelDocument
from docmt.evaluation.checking.association import find_links, sentences_of
from docmt.evaluation.checking.carried import carried
from docmt.evaluation.checking.config import KINDS, CheckConfig
from docmt.evaluation.checking.consistency import Vocabulary, names, terms
from docmt.evaluation.checking.finding import Finding, Report, is_certain
from docmt.evaluation.checking.formality import formality
from docmt.evaluation.checking.languages import FORMAL, FUNCTION_WORDS
from docmt.evaluation.checking.reading import Layout, read_translation
from docmt.evaluation.checking.sentences import (
    Copies,
    Lengths,
    duplicates,
    empty,
    lengths,
    loops,
    repetitions,
    untranslated,
)
from docmt.evaluation.checking.words import is_unspaced, language_of

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
) -> Report:
    """Checks a translation; for the files see `read_translation`, for the rest `check_documents`."""
    config = config or CheckConfig()
    languages = (config.source_language or "en", config.target_language or config.source_language or "en")
    read = read_translation(Path(source), Path(target) if target is not None else None, layout, languages)
    return check_documents(read.documents, config, kinds=kinds, done=done, before=read.findings)


def check_documents(
    documents: Sequence[ParallelDocument],
    config: CheckConfig | None = None,
    *,
    kinds: Collection[str] = tuple(KINDS),
    done: Done | None = None,
    before: Sequence[Finding] = (),
) -> Report:
    """Everything of these kinds that a person can see in translated documents, whose sentences may be empty.

    `before`: findings that there already are (documents that cannot be paired).
    """
    config = config or CheckConfig()
    source, target = _languages(documents, config)
    unspaced = any(
        is_unspaced([s for d in documents for s in (d.source, d.target)[side]][:_LOOKED_AT]) for side in (0, 1)
    )
    wanted = set(kinds)
    if unspaced:
        wanted -= {"name", "term"}
    if target not in FORMAL:
        wanted -= {"formality"}
    found = list(before)
    for portion in _portions(documents, config.portion):
        found += _check(portion, config, (source, target), wanted, done)
    found = [finding for finding in found if finding.kind in kinds]
    order = list(KINDS)
    shown = sorted((each for each in found if is_certain(each, config.certainty)), key=lambda f: order.index(f.kind))
    hidden = Counter(each.kind for each in found if not is_certain(each, config.certainty))
    return Report(
        config=config,
        documents=len(documents) + sum(each.kind == "sentence_count" for each in before),
        sentences=sum(map(len, documents)),
        source_language=source,
        target_language=target,
        findings=shown,
        hidden=hidden,
        notes=list(_notes(set(kinds), source, target, unspaced)),
    )


def _languages(documents: Sequence[ParallelDocument], config: CheckConfig) -> tuple[str, str]:
    """The codes of both languages, given or found; empty where they are not known."""
    given = (config.source_language, config.target_language)
    first = documents[:_LOOKED_AT]
    sides = (
        [sentence for document in first for sentence in document.source][:_LOOKED_AT],
        [sentence for document in first for sentence in document.target][:_LOOKED_AT],
    )
    found = [
        code.lower().replace("_", "-").split("-")[0] or language_of(side)
        for code, side in zip(given, sides, strict=True)
    ]
    return found[0], found[1]


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


def _check(
    documents: Sequence[ParallelDocument],
    config: CheckConfig,
    languages: tuple[str, str],
    wanted: Collection[str],
    done: Done | None,
) -> Iterator[Finding]:
    """The findings of documents that are checked together."""
    copies = Copies.of(documents) if "untranslated" in wanted else None
    usual = Lengths.of(documents) if "length" in wanted else None
    consistent = wanted & {"name", "term"} if isinstance(wanted, set) else set()
    vocabulary = Vocabulary.of(documents, languages[0]) if consistent else None
    links = find_links(documents, languages) if "term" in wanted else None
    for first, document in sentences_of(documents):
        if "empty" in wanted:
            yield from empty(document)
        if copies is not None:
            yield from untranslated(document, config, languages, copies)
        if "loop" in wanted:
            yield from loops(document, config)
        if "duplicate" in wanted:
            yield from duplicates(document, config)
        if usual is not None:
            yield from lengths(document, config, usual)
        if set(wanted) & {"number", "url", "placeholder", "bracket"}:
            yield from carried(document, config, languages)
        if vocabulary is not None and "name" in wanted:
            yield from names(document, config, vocabulary, languages[1])
        if vocabulary is not None and links is not None:
            yield from terms(first, document, config, vocabulary, links)
        if "repetition" in wanted:
            yield from repetitions(document, config)
        if "formality" in wanted:
            yield from formality(document, languages[1])
        if done is not None:
            done(len(document))


def _notes(kinds: Collection[str], source: str, target: str, unspaced: bool) -> Iterator[str]:
    """What was not checked, and why."""
    if unspaced and {"name", "term"} & set(kinds):
        yield "names and terms were not checked: a side is of a script without spaces between words"
    if "formality" in kinds and target not in FORMAL:
        named = (
            f"no words of address are known for {target}" if target else "the language is not known (--target_language)"
        )
        yield f"formality was not checked: {named}"
    if "untranslated" in kinds and (source not in FUNCTION_WORDS or target not in FUNCTION_WORDS):
        yield "sentences in the language of the source, but not equal to it, were not looked for: the commonest words of a language are not known"
