"""Glossaries: the terms of a pair of languages, read from one or several files, and written as TSV or TBX version 3."""

from __future__ import annotations

import csv
import gc
import io
import logging
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import permutations
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from docmt.core.errors import DocmtError
from docmt.core.files import json_checksum
from docmt.core.plain_text import STANDARD, plain_name
from docmt.core.settings import quote
from docmt.documents.words import INVISIBLE, has_words
from docmt.formats.language_codes import format_language_tag, is_same_language, language_distance, primary_language
from docmt.terms.articles import cut_definite
from docmt.terms.glossary_files import read_entries
from docmt.terms.glossary_tables import ALTERNATIVES, COLUMNS, Entry, EntryFile, EntryWord, read_flag
from docmt.terms.word_forms import load_word_forms

MAX_TERM_BYTES = 1024
_UNUSABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Control characters but for white space, marks that turn the direction of writing, separators, half characters."""
_BRACKETS = re.compile(r"\s\([^()]*\)$")
"""A remark after a term."""
_LONGEST_UNIT = 2
"""Letters of a part of a unit: km/h."""
_REMOVED = dict.fromkeys(map(ord, INVISIBLE))
_MAX_NAMED = 20
"""Languages that a message lists."""
_MAX_LOGGED = 5
"""Rows of a file, of each kind of problem, that are logged."""
_TBX_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<tbx type="TBX-Basic" style="dca" xml:lang={language} xmlns="urn:iso:std:iso:30042:ed-2">
<tbxHeader><fileDesc><sourceDesc><p>docmt</p></sourceDesc></fileDesc></tbxHeader>
<text><body>
"""
_TBX_TAIL = "</body></text>\n</tbx>\n"
_TBX_FORBIDDEN = "deprecatedTerm-admn-sts"
_log = logging.getLogger(__name__)


@contextmanager
def paused_collection() -> Iterator[None]:
    """Pause the garbage collector, which takes half of the time where many objects are made and none is a cycle."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(frozen=True)
class Term:
    """One entry: a word or phrase and what it may be in the target language."""

    source: str
    targets: tuple[str, ...] = ()
    """allowed translations, the preferred one first"""
    forbidden: tuple[str, ...] = ()
    """translations that must not be used"""
    keep: bool = False
    """do not translate: the target is the source"""
    case: bool = False
    """only with the same capitals"""
    note: str = ""


@dataclass(frozen=True)
class SkippedRow:
    """A row of a file that is no term for these languages."""

    path: str
    line: int
    """of JSON, the number of the entry"""
    reason: str


@dataclass(frozen=True)
class Glossary:
    """Terms of a pair of languages."""

    languages: tuple[str, str]
    terms: tuple[Term, ...]
    skipped: tuple[SkippedRow, ...] = ()
    remarks: tuple[SkippedRow, ...] = ()
    """rows that are used but look wrong"""
    duplicates: int = 0
    """rows that say again what an earlier one says"""

    @classmethod
    def read(cls, *paths: Path | str, languages: tuple[str, str]) -> Glossary:
        """Return the terms of files.

        languages: codes of the source and the target; an empty one is any. Raises DocmtError for a file that cannot be
        read or has no term for these languages, and for entries that contradict each other.
        """
        builder = GlossaryBuilder(languages)
        with paused_collection():
            for path in paths:
                builder.add(read_entries(path, languages))
            return builder.build()

    @classmethod
    def from_pairs(
        cls,
        pairs: Mapping[str, str | Sequence[str]] | Iterable[tuple[str, str | Sequence[str]]],
        languages: tuple[str, str] = ("", ""),
    ) -> Glossary:
        """Return the terms of a mapping, or of pairs of a source and its translations. Raises DocmtError as `read`."""
        items = pairs.items() if isinstance(pairs, Mapping) else pairs
        file = EntryFile("terms", "JSON")
        for number, (source, targets) in enumerate(items, 1):
            texts = [targets] if isinstance(targets, str) else targets
            if not isinstance(texts, Sequence) or not all(isinstance(each, str) for each in (source, *texts)):
                raise DocmtError(f"terms, entry {number}: {source!r} has the translation {targets!r}. Give text.")
            file.entries.append(Entry(number, [EntryWord(source), *map(EntryWord, texts)], directed=True))
        builder = GlossaryBuilder(languages)
        builder.add(file)
        if builder.skipped:
            raise DocmtError(f"terms, entry {builder.skipped[0].line}: {builder.skipped[0].reason}")
        return builder.build()

    def log_problems(self) -> None:
        """Log the first rows that look wrong, and the first that are skipped."""
        for rows, sign, name in ((self.remarks, "", "look wrong"), (self.skipped, "skipped: ", "are skipped")):
            for row in rows[:_MAX_LOGGED]:
                _log.warning(f"{row.path}, line {row.line}: {sign}{row.reason}")
            if (more := len(rows) - _MAX_LOGGED) > 0:
                _log.warning(f"{more} more rows {name}: docmt terms check lists them")

    def checksum(self) -> str:
        """Return a checksum of the languages and terms."""
        return json_checksum([self.languages, [list(vars(term).values()) for term in self.terms]])


Terms = Glossary | Mapping[str, str | Sequence[str]]
"""A glossary, or a mapping of terms and their translations."""


def make_glossary(terms: Terms, languages: tuple[str, str]) -> Glossary:
    """Return a glossary of terms. Raises DocmtError for anything else."""
    if not isinstance(terms, Glossary | Mapping):
        raise DocmtError(
            f"terms is {quote(terms)}. Give a Glossary or a mapping of terms; Glossary.read(...) reads files."
        )
    return terms if isinstance(terms, Glossary) else Glossary.from_pairs(terms, languages)


class _MergedTerm(NamedTuple):
    """A term, and where its first entry stands."""

    term: Term
    file: EntryFile
    entry: Entry
    distance: int
    """how far its languages are from those that are wanted"""

    @property
    def place(self) -> str:
        return self.file.place(self.entry.line)


@dataclass
class GlossaryBuilder:
    """Merges entries of files to the terms of a pair of languages."""

    languages: tuple[str, str]
    skipped: list[SkippedRow] = field(default_factory=list)
    foreign: list[SkippedRow] = field(default_factory=list)
    """rows that are skipped because they have other languages"""
    remarks: list[SkippedRow] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    duplicates: int = 0
    terms: dict[str, _MergedTerm] = field(default_factory=dict)

    def add(self, file: EntryFile) -> None:
        """Add the entries of a file. Raises DocmtError if none is a term for the languages."""
        self.languages = _choose_languages(file, self.languages)
        skipped, foreign, usable = len(self.skipped), len(self.foreign), False
        for entry in file.entries:
            if entry.problem:
                self._skip(file, entry, entry.problem)
                continue
            distance, sources, others = _select_words(entry, self.languages)
            if distance is None:
                tags = dict.fromkeys(format_tag(word.language) or "any language" for word in entry.words)
                reason = f"it is {' to '.join(tags)}" if entry.directed else f"it has {', '.join(tags)} only"
                self.foreign.append(SkippedRow(file.path, entry.line, reason))
            for term in self._make_terms(entry, sources, others, file):
                self._merge(_MergedTerm(term, file, entry, distance or 0))
                usable = True
                self.remarks += [SkippedRow(file.path, entry.line, text) for text in self._describe_doubts(term)]
        self.remarks += [SkippedRow(file.path, line, text) for line, text in file.remarks]
        if not usable:
            raise _unusable_error(file, self.languages, [*self.foreign[foreign:], *self.skipped[skipped:]])

    def build(self) -> Glossary:
        """Return the glossary. Raises DocmtError for the first conflict."""
        if self.conflicts:
            raise DocmtError(self.conflicts[0])
        terms = tuple(merged.term for merged in self.terms.values())
        return Glossary(self.languages, terms, (*self.skipped, *self.foreign), tuple(self.remarks), self.duplicates)

    def _describe_doubts(self, term: Term) -> list[str]:
        """Return what looks wrong with a term: what is never found so, or would stand in the text."""
        source, target = self.languages
        doubts = [f"{term.source!r} is found only {sign}" for sign in _describe_source(term, self.languages)]
        if term.keep:
            return doubts
        for text in term.targets:
            if _BRACKETS.search(text) and not _BRACKETS.search(term.source):
                doubts.append(f"{text!r} has brackets, which would stand in the text: move them to the note")
            for sign, name in (("/", "slash"), (",", "comma")):
                parts = text.split(sign)
                if len(parts) > 1 and sign not in term.source and min(map(len, parts)) > _LONGEST_UNIT:
                    doubts.append(f"{text!r} has a {name}: write {ALTERNATIVES} between several translations")
            short = cut_definite(text, target)
            if short != text and cut_definite(term.source, source) == term.source:  # sentences have one already
                doubts.append(f"{text!r} has an article, which may stand there twice: write {short!r}")
        return doubts

    def _skip(self, file: EntryFile, entry: Entry, reason: str) -> None:
        self.skipped.append(SkippedRow(file.path, entry.line, reason))

    def _make_terms(
        self, entry: Entry, sources: Sequence[EntryWord], others: Sequence[EntryWord], file: EntryFile
    ) -> Iterator[Term]:
        """Yield the terms of an entry. What cannot be used is skipped."""
        before = len(self.skipped)
        keep = entry.keep or any(word.keep for word in (*sources, *others))
        groups = sources, [word for word in others if not word.forbidden], [word for word in others if word.forbidden]
        texts, targets, forbidden = (self._clean(words, entry, file) for words in groups)
        for source in texts:
            # A term of a language is better than the word of another one that it keeps.
            kept = keep and (entry.directed or all(target == source for target in targets))
            if problem := _find_problem(source, targets, forbidden, kept):
                self._skip(file, entry, problem)
            elif targets or forbidden or kept:
                note = " ".join(_UNUSABLE.sub(" ", entry.note).split()) if entry.note else ""
                yield Term(source, (source,) if kept else tuple(targets), tuple(forbidden), kept, entry.case, note)
            elif len(self.skipped) == before:  # nothing else is wrong with it
                self._skip(file, entry, f"{quote(source)} has no translation: give one, or mark it with keep")
        if sources and not texts and len(self.skipped) == before:
            self._skip(file, entry, "it has no source term")

    def _clean(self, words: Sequence[EntryWord], entry: Entry, file: EntryFile) -> list[str]:
        """Return the texts that can be used, each once."""
        cleaned = []
        for word in words:
            text, problem = clean_text(word.text)
            if problem:
                self._skip(file, entry, problem)
            elif text and text not in cleaned:
                cleaned.append(text)
        return cleaned

    def _merge(self, new: _MergedTerm) -> None:
        """Add a term. What fits the languages best replaces the rest; equally good entries are one term."""
        source = new.term.source
        old = self.terms.setdefault(source, new)
        if old is new:
            return
        if old.distance != new.distance:
            best, other = (old, new) if old.distance < new.distance else (new, old)
            self.terms[source] = best
            self._skip(other.file, other.entry, f"{best.place} has {quote(source)} for a language that fits better")
            return
        term = replace(
            old.term,
            targets=tuple(dict.fromkeys(old.term.targets + new.term.targets)),
            forbidden=tuple(dict.fromkeys(old.term.forbidden + new.term.forbidden)),
            note="; ".join(dict.fromkeys(filter(None, (old.term.note, new.term.note)))),
        )
        problem = ""
        if flags := [name for name in ("keep", "case") if getattr(old.term, name) != getattr(new.term, name)]:
            problem = f"only one of them has {flags[0]!r}"
        elif both := [text for text in term.targets if text in term.forbidden]:
            problem = f"{quote(both[0])} is allowed and forbidden"
        if problem:
            self.conflicts.append(
                f"{new.place}: {quote(source)} is also in {old.place}, but {problem}: change one of them"
            )
            return
        self.duplicates += (term.targets, term.forbidden) == (old.term.targets, old.term.forbidden)
        self.terms[source] = old._replace(term=term)


def clean_text(text: str) -> tuple[str, str]:
    """Return a term in NFC with single spaces and without invisible characters, and why it cannot be used."""
    if not text.isprintable():  # as are all characters that are removed or refused, and white space but for U+0020
        if match := _UNUSABLE.search(text):
            return "", f"{quote(text)} has the control character U+{ord(match[0]):04X}"
        text = text.translate(_REMOVED)
    text = " ".join(unicodedata.normalize("NFC", text).split())
    if len(text.encode()) > MAX_TERM_BYTES:
        return "", f"{quote(text)} is longer than {MAX_TERM_BYTES:,} bytes"
    return text, ""


def _describe_source(term: Term, languages: tuple[str, str]) -> list[str]:
    """Return with what a source term is found, and hardly ever is."""
    found = ["with its brackets: move them to the note"] if _BRACKETS.search(term.source) else []
    is_verb = primary_language(languages[0]) == "en" and term.source.startswith("to ")
    forms, texts = load_word_forms(languages[1]), term.targets or term.forbidden
    is_found = not is_verb or any(forms.begins_with_verb(text, is_expected=True) for text in texts)
    return found + ["after 'to': write it without"] * (not is_found)


def _find_problem(source: str, targets: Sequence[str], forbidden: Sequence[str], keep: bool) -> str:
    """Return why an entry is no term, or an empty string."""
    if not has_words(source):
        return f"{quote(source)} has neither letters nor digits"
    if keep and (others := [text for text in targets if text != source]):
        return f"{quote(source)} is not to be translated, but has the translation {quote(others[0])}"
    if both := [text for text in [*targets, *[source] * keep] if text in forbidden]:
        return f"{quote(both[0])} is both allowed and forbidden"
    return ""


def list_pairs(file: EntryFile, wanted: tuple[str, str] = ("", "")) -> list[tuple[str, str]]:
    """Return the pairs of languages that a file has terms for, of those that are wanted (empty ones: any)."""
    pairs: dict[tuple[str, str], None] = {}
    groups: dict[tuple[str, ...], None] = {}
    for entry in file.entries:
        if not entry.directed:
            groups[tuple(dict.fromkeys(word.language for word in entry.words))] = None
        elif len(entry.words) > 1 and not entry.problem:
            pairs[entry.words[0].language, entry.words[-1].language] = None
    for languages in groups:
        pairs |= dict.fromkeys(pair for pair in permutations(languages, 2) if not is_same_language(*pair))
    found = dict.fromkeys((format_tag(source), format_tag(target)) for source, target in pairs)
    return [pair for pair in found if all(map(is_same_language, pair, wanted))]


def format_tag(code: str) -> str:
    """Return the tag of a language; empty if it is not known."""
    return format_language_tag(code) if code.strip() else ""


def _choose_languages(file: EntryFile, wanted: tuple[str, str]) -> tuple[str, str]:
    """Return the languages to read: those that are wanted, or in place of an empty one the only one of the file.

    Raises DocmtError if the file has several.
    """
    if all(wanted):
        return wanted
    pairs = list_pairs(file, wanted)
    languages = {(primary_language(source), primary_language(target)) for source, target in pairs if source or target}
    if len(languages) > 1:
        names = _list_names(sorted(" to ".join(pair) for pair in languages))
        raise DocmtError(f"{file.path} is for several pairs of languages, {names}: say which one is wanted")
    found = pairs[0] if len(pairs) == 1 else next(iter(languages), wanted)
    return wanted[0] or found[0], wanted[1] or found[1]


def _select_words(
    entry: Entry, languages: tuple[str, str]
) -> tuple[int | None, Sequence[EntryWord], Sequence[EntryWord]]:
    """Return the words of an entry in two languages, and how far theirs are from those; None if they are others."""
    if entry.directed:
        sources, others = entry.words[:1], entry.words[1:]
        first = language_distance(sources[0].language, languages[0])
        second = language_distance(others[-1].language, languages[1]) if others else 0
    else:
        first, sources = _find_closest(entry.words, languages[0])
        second, others = _find_closest([word for word in entry.words if word not in sources], languages[1])
        if entry.keep or any(word.keep for word in sources):
            second = second or 0
    return (None, (), ()) if first is None or second is None else (first + second, sources, others)


def _find_closest(words: Sequence[EntryWord], wanted: str) -> tuple[int | None, list[EntryWord]]:
    """Return the words of the language that is closest to one that is wanted, and its distance."""
    distances = [language_distance(word.language, wanted) for word in words]
    least = min((distance for distance in distances if distance is not None), default=None)
    return least, [word for word, distance in zip(words, distances, strict=True) if distance == least is not None]


def _unusable_error(file: EntryFile, languages: tuple[str, str], skipped: Sequence[SkippedRow]) -> DocmtError:
    """Return the error for a file without a term."""
    if not file.entries:
        return DocmtError(f"{file.path} has no terms: write a term and its translation in each row")
    pair = " for " + " to ".join(format_tag(code) or "any language" for code in languages) if any(languages) else ""
    names = sorted({format_tag(word.language) for entry in file.entries for word in entry.words} - {""})
    known = f" (its languages are {_list_names(names)})" if names else ""
    row = skipped[0]
    return DocmtError(f"{file.path} has no term{pair}{known}: {file.counted} {row.line}, {row.reason}")


def _list_names(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


# Writing


def find_writer(path: str) -> Callable[[Glossary], str]:
    """Return the function that renders a glossary in the format of a name; TSV for standard output.

    Raises DocmtError for other names.
    """
    for suffix, render in ((".tsv", render_tsv), (".tbx", render_tbx)):
        if plain_name(path).lower().endswith(suffix) or path == STANDARD:
            return render
    raise DocmtError(f"{path} names no format to write: end it in .tsv or .tbx")


def render_tsv(glossary: Glossary) -> str:
    """Return a glossary as a table with a header.

    Cells are written as they are, also those that a spreadsheet takes for a formula. Raises DocmtError for a term with
    what separates alternatives in it.
    """
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    writer.writerow(COLUMNS)
    languages = list(map(format_tag, glossary.languages))
    for term in glossary.terms:
        for each in (term.source, *term.targets, *term.forbidden):
            if ALTERNATIVES in each:
                raise DocmtError(f"{quote(each)} has {ALTERNATIVES} in it, which separates cells of TSV: write TBX")
        targets, forbidden = (f" {ALTERNATIVES} ".join(texts) for texts in (term.targets, term.forbidden))
        if term.forbidden and read_flag(forbidden) is not None:
            forbidden += f" {ALTERNATIVES}"  # the word "no" in another language, not that nothing is forbidden
        flags = ["yes" * flag for flag in (term.keep, term.case)]
        writer.writerow([term.source, targets, *languages, forbidden, *flags, term.note])
    return text.getvalue()


def render_tbx(glossary: Glossary) -> str:
    """Return a glossary as TBX version 3 in the style DCA. Raises DocmtError if its languages are not known."""
    if not all(glossary.languages):
        raise DocmtError("TBX names the languages of terms: add --from CODE and --to CODE")
    languages = [quoteattr(format_tag(code)) for code in glossary.languages]
    entries = (_render_entry(number, term, languages) for number, term in enumerate(glossary.terms, 1))
    return _TBX_HEAD.format(language=languages[0]) + "".join(entries) + _TBX_TAIL


def _render_entry(number: int, term: Term, languages: Sequence[str]) -> str:
    data = '<descrip type="doNotTranslate">yes</descrip>' if term.keep else ""
    note = f"<note>{escape(term.note)}</note>" if term.note else ""
    case = '<termNote type="caseSensitive">yes</termNote>' if term.case else ""
    sections = [_render_section(term.source, case)]
    status = f'<termNote type="administrativeStatus">{_TBX_FORBIDDEN}</termNote>'
    sections.append("".join(_render_section(text, "") for text in term.targets))
    sections[1] += "".join(_render_section(text, status) for text in term.forbidden)
    inner = "".join(
        f"\n<langSec xml:lang={language}>{section}</langSec>"
        for language, section in zip(languages, sections, strict=True)
        if section
    )
    return f'<conceptEntry id="c{number}">{data}{note}{inner}\n</conceptEntry>\n'


def _render_section(text: str, data: str) -> str:
    return f"<termSec><term>{escape(text)}</term>{data}</termSec>"
