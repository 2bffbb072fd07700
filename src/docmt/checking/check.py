"""All checks of a translation, one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from itertools import islice
from pathlib import Path

from docmt.checking.association import find_links, sentences_of
from docmt.checking.carried import carried
from docmt.checking.config import KINDS, CheckConfig
from docmt.checking.finding import Finding, Report, is_certain
from docmt.checking.formality import formality
from docmt.checking.languages import FORMAL, FUNCTION_WORDS
from docmt.checking.names import names
from docmt.checking.reading import Layout, read_translation
from docmt.checking.sentences import (
    Copies,
    Lengths,
    duplicates,
    empty,
    lengths,
    loops,
    repetitions,
    untranslated,
)
from docmt.checking.terms import terms
from docmt.checking.vocabulary import Vocabulary
from docmt.checking.words import base_language, is_unspaced, language_of
from docmt.documents import ParallelDocument

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
) -> Report:
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
) -> Report:
    """Everything of these kinds that a person can see in translated documents, whose sentences may be empty.

    `before`: findings that there already are (documents that cannot be paired).
    """
    config = config or CheckConfig()
    source, target = _languages(documents, config)
    unspaced = any(is_unspaced(_first_sentences(documents, side)) for side in (0, 1))
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
    """The codes of both languages, without their countries, given or found; empty where they are not known."""
    source = config.source_language or language_of(_first_sentences(documents, 0))
    target = config.target_language or language_of(_first_sentences(documents, 1))
    return base_language(source), base_language(target)


def _first_sentences(documents: Sequence[ParallelDocument], side: int) -> list[str]:
    """What the language of a side is found by."""
    sentences = (text for document in documents for text in (document.source, document.target)[side])
    return list(islice(sentences, _LOOKED_AT))


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
    wanted: Set[str],
    done: Done | None,
) -> Iterator[Finding]:
    """The findings of documents that are checked together."""
    checks = _checks(documents, config, languages, wanted)
    for first, document in sentences_of(documents):
        for check in checks:
            yield from check(first, document)
        if done is not None:
            done(len(document))


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
        ours = Vocabulary.of([document.source for document in documents], languages[0], config.term_documents)
        checks["name"] = lambda _, document: names(document, config, ours, languages[1])
    if "term" in wanted:
        theirs = Vocabulary.of([document.target for document in documents], languages[1])
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
        yield f"formality was not checked: {known} (--target_language)"
    if "untranslated" in kinds and not {source, target} <= FUNCTION_WORDS.keys():
        yield "untranslated sentences were found by comparison alone: the commonest words of a language are not known"
