"""Run all checks on translated documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from itertools import islice
from pathlib import Path

from docmt.checking.consistency import WordKinds, find_inconsistent_names, find_inconsistent_terms, find_links
from docmt.checking.copied_content import check_content
from docmt.checking.findings import KINDS, CheckConfig, CheckReport, Finding, is_certain
from docmt.checking.languages import FORMAL, FUNCTION_WORDS, NUMBER_WORDS, detect_language, is_unspaced
from docmt.checking.pairing import Layout, read_translation
from docmt.checking.sentence_checks import (
    CopyCounts,
    LengthModel,
    find_duplicates,
    find_empty,
    find_inconsistent_repeats,
    find_loops,
    find_mixed_formality,
    find_untranslated,
    find_unusual_lengths,
)
from docmt.documents import ParallelDocument
from docmt.documents.segmentation import base_language

Check = Callable[[int, ParallelDocument], Iterator[Finding]]
"""Called with the index of a document's first sentence, over all documents, and the document."""
CONTENT_KINDS = frozenset({"number", "url", "placeholder", "bracket"})
OnProgress = Callable[[int], object]
"""Called with the number of sentences checked since the last call."""
_DETECTION_SENTENCES = 5000
"""Sentences from which the language of a text is detected."""


def check_files(
    source: Path | str,
    target: Path | str | None = None,
    config: CheckConfig | None = None,
    *,
    layout: Layout = "auto",
    kinds: Collection[str] = tuple(KINDS),
    on_progress: OnProgress | None = None,
) -> CheckReport:
    """Check a translation; see `read_translation` for the files and `check_documents` for the rest."""
    paired = read_translation(Path(source), Path(target) if target is not None else None, layout, config)
    return check_documents(paired.documents, config, kinds=kinds, on_progress=on_progress, earlier=paired.findings)


def check_documents(
    documents: Sequence[ParallelDocument],
    config: CheckConfig | None = None,
    *,
    kinds: Collection[str] = tuple(KINDS),
    on_progress: OnProgress | None = None,
    earlier: Sequence[Finding] = (),
) -> CheckReport:
    """Check translated documents, whose sentences may be empty, for findings of these kinds.

    earlier: findings to include, such as documents that cannot be paired.
    """
    config = config or CheckConfig()
    texts = _first_sentences(documents)
    codes = config.source_language, config.target_language
    source, target = (base_language(code or detect_language(text)) for code, text in zip(codes, texts, strict=True))
    unspaced = any(map(is_unspaced, texts))
    wanted = set(kinds)
    if unspaced:
        wanted -= {"name", "term"}
    if target not in FORMAL:
        wanted -= {"formality"}
    findings = list(earlier)
    for portion in _split_into_portions(documents, config.batch_sentences):
        checks = _build_checks(portion, config, (source, target), wanted)
        first = 0
        for document in portion:
            for check in checks:
                findings += check(first, document)
            first += len(document)
            if on_progress is not None:
                on_progress(len(document))
    findings = [finding for finding in findings if finding.kind in kinds]
    order = list(KINDS)
    visible = [finding for finding in findings if is_certain(finding, config.certainty)]
    hidden = Counter(finding.kind for finding in findings if not is_certain(finding, config.certainty))
    return CheckReport(
        config=config,
        documents=len(documents) + sum(each.kind == "sentence_count" for each in earlier),
        sentences=sum(map(len, documents)),
        source_language=source,
        target_language=target,
        findings=sorted(visible, key=lambda finding: order.index(finding.kind)),
        hidden=hidden,
        notes=list(_notes(set(kinds), source, target, unspaced, config.number_words)),
    )


def _first_sentences(documents: Sequence[ParallelDocument]) -> list[list[str]]:
    """Return the first sentences of both sides, for language detection."""
    sides = (
        (sentence for document in documents for sentence in document.source),
        (sentence for document in documents for sentence in document.target),
    )
    return [list(islice(side, _DETECTION_SENTENCES)) for side in sides]


def _split_into_portions(documents: Sequence[ParallelDocument], max_sentences: int) -> Iterator[list[ParallelDocument]]:
    """Yield consecutive documents of about `max_sentences` sentences together."""
    portion: list[ParallelDocument] = []
    size = 0
    for document in documents:
        if portion and size + len(document) > max_sentences:
            yield portion
            portion, size = [], 0
        portion.append(document)
        size += len(document)
    if portion:
        yield portion


def _build_checks(
    documents: Sequence[ParallelDocument], config: CheckConfig, languages: tuple[str, str], wanted: Set[str]
) -> list[Check]:
    """Return the checks of the wanted kinds, with word and length statistics of these documents."""
    checks: dict[str, Check] = {
        "empty": lambda _, document: find_empty(document),
        "loop": lambda _, document: find_loops(document, config),
        "duplicate": lambda _, document: find_duplicates(document, config),
        "repetition": lambda _, document: find_inconsistent_repeats(document, config),
        "formality": lambda _, document: find_mixed_formality(document, languages[1]),
    }
    if "untranslated" in wanted:
        copies = CopyCounts.from_documents(documents)
        checks["untranslated"] = lambda _, document: find_untranslated(document, config, languages, copies)
    if "length" in wanted and (length_model := LengthModel.fit(documents)) is not None:
        checks["length"] = lambda _, document: find_unusual_lengths(document, config, length_model)
    if wanted & {"name", "term"}:
        sources = [document.source for document in documents]
        source_kinds = WordKinds.from_documents(sources, languages[0], config.term_documents)
        checks["name"] = lambda _, document: find_inconsistent_names(document, config, source_kinds, languages[1])
    if "term" in wanted:
        target_kinds = WordKinds.from_documents([document.target for document in documents], languages[1])
        links = find_links(documents, languages)
        kinds = source_kinds, target_kinds
        checks["term"] = lambda first, document: find_inconsistent_terms(first, document, config, kinds, links)
    selected = [check for kind, check in checks.items() if kind in wanted]
    if wanted & CONTENT_KINDS:
        selected.append(lambda _, document: check_content(document, config, languages))
    return selected


def _notes(kinds: Collection[str], source: str, target: str, unspaced: bool, number_words: int) -> Iterator[str]:
    """Yield what was not checked, and why."""
    if unspaced and {"name", "term"} & set(kinds):
        yield "names and terms were not checked: one side is in a script without spaces between words"
    if "formality" in kinds and target not in FORMAL:
        reason = f"no forms of address are known for {target}" if target else "the language is unknown"
        yield f"formality was not checked: {reason} (--target-language)"
    if "untranslated" in kinds and not {source, target} <= FUNCTION_WORDS.keys():
        yield (
            "untranslated sentences were found by comparison only: --source-language or --target-language is unknown, "
            "or a language without a list of function words"
        )
    if "number" in kinds and not {source, target} <= NUMBER_WORDS.keys():
        yield (
            f"numbers up to {number_words} were not checked: --source-language or --target-language is unknown, or a "
            "language without a list of number words"
        )
    if source and source == target:
        yield f"both sides seem to be {source}: was the right file given (--source-language, --target-language)?"
