"""Translation memories: sentences that were translated before, and what is reused of them in a document."""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from html import unescape
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

from docmt.core.errors import DocmtError, map_or_error
from docmt.core.files import json_checksum
from docmt.core.grouping import group_pairs
from docmt.core.plain_text import decode_utf8, read_bytes
from docmt.documents import Document, read_input
from docmt.documents.input_formats import FORMATS, find_format, has_jsonl_name
from docmt.documents.words import find_words, has_words, normalize_characters
from docmt.formats.language_codes import format_language_tag, language_distance
from docmt.formats.marked_text import fill, join_spaces, mark_pair, remove_marks, show
from docmt.formats.projection import Link
from docmt.formats.readable_units import make_readable
from docmt.formats.units import ReadConfig, Unit, UnitBuilder, UnitPair, read_units
from docmt.terms.glossary_files import find_language_of, iterate_xml, name_element

MAX_BYTES = 2**30
MatchKind = Literal["", "exact", "context", "conflict"]
"""exact: the sentence is in the memory; context: so is the one before it; conflict: with several translations, of which
none is better."""
QUALITY: Mapping[str, int] = {"exact": 100, "context": 101}
"""Match quality of what is reused."""
_UNUSABLE = re.compile(
    r"(?i)new|initial|draft|unspecified|notstarted|partiallyedited"
    r"|needs-(?:translation|l10n|adaptation|review-l10n|review-adaptation)|[\w-]*(?:fuzzy|rejected)[\w-]*"
)
"""States, or origins, of translations that are missing, or of another source."""
_MACHINE = re.compile(r"(?i)(?:.*[^a-z])?(?:mt|ai|machine)(?:[^a-z].*)?|needs-review-translation")
_REVIEWED = re.compile(
    r"(?i)(?!un|not)\w*(?:confirmed|approved)\w*|reviewed|final|signed-off|proofread|person|yes|true|1"
)
_CONFIRMED = re.compile(rf"(?i)translated|{_REVIEWED.pattern.removeprefix('(?i)')}")
_SIMILAR = re.compile(r"[1-9]\d?")
"""Percentage of a match of Trados or memoQ for another source."""
_STATES = re.compile(r"(?i)x-.*(?:origin|state|status|confirm|approv).*")
"""Types of properties of TMX that tell where a translation comes from."""
_BEFORE = re.compile(r"(?i)prev|context_prev|x-(?:context-pre|previous-source-text)")
_TAG = re.compile(r"<(bpt|ept|it|ph|ut)\b[^>]*(?<!/)>.*?</\1>|<[^>]*>")
"""Types of properties of TMX with the sentence before, of OmegaT, Phrase, memoQ and XTM; markup in them."""
_XLIFF_STATES = ("state", "state-qualifier", "approved", "confirmed", "conf", "status")
_BREAKS = re.compile(r"\n"), re.compile(r"\n\s*\n")
"""What separates paragraphs of text, without and with joined lines."""
_NO_KEY = re.compile(r"(?s).+")
_KEYS = {"json": re.compile(r"(?<=\.)\d+(?=\.|\Z)"), "strings": re.compile(r"(?!)")}
"""What of the names of texts is no key: all of it but in formats whose texts have keys, in any order."""
_SINGLE = ("ph", "it", "ut", "x")
_SOME = 20
"""Languages that a message lists."""
_LEAST_GAIN = 0.1
"""Log-probability (nats) of a token by which a translation fits its sentence better than the next one."""
_LONGEST = 1000
"""Characters of a text that a model checks."""
_log = logging.getLogger(__name__)


class MemoryMatch(NamedTuple):
    """What a memory has for a sentence."""

    kind: MatchKind
    target: str = ""
    links: Sequence[Link] | None = None
    """of a sentence with codes: links that put them where the memory has them"""


class _Entry(NamedTuple):
    target: str
    """with marks, see `mark_pair`"""
    previous: str | None
    """key of the sentence before, without marks; None: unknown"""
    rank: int
    """2: people have reviewed it; 1; 0: of a machine"""
    date: str
    is_bound: bool
    """whether the file names the sentence before"""


_Part = tuple[Unit, int, int]
"""A unit, and the first character and the one after the last of a sentence in it."""


class _Segment(NamedTuple):
    """A sentence of a file with its translation."""

    source: _Part
    target: _Part
    rank: int | None = 1
    """None: it cannot be used"""
    date: str = ""
    before: str | None = None
    """sentence before, where the file names it"""


def make_key(text: str) -> str:
    """Return what is compared of a sentence: what a model reads, with one kind of apostrophe and single spaces."""
    return " ".join(normalize_characters(text).replace("’", "'").split())


@dataclass(frozen=True, eq=False)
class Memory:
    """Sentences and their translations, in a pair of languages."""

    languages: tuple[str, str] = ("", "")
    entries: Mapping[str, Sequence[_Entry]] = field(default_factory=dict, repr=False)
    """by the key of the source"""
    is_guessed: bool = False
    """whether sentences were paired by the order of their paragraphs"""

    def __len__(self) -> int:
        """Return the number of different sources."""
        return len(self.entries)

    @classmethod
    def read(cls, *paths: Path | str, languages: tuple[str, str]) -> Memory:
        """Return the sentences of TMX and XLIFF files.

        languages: codes of the source and the target; an empty one is any. Raises DocmtError for a file that cannot be
        read, or has no translation in these languages.
        """
        memory = cls(languages, {})
        for path in map(str, paths):
            data = read_bytes(path, MAX_BYTES)
            format = find_format(path, data)
            is_xliff = format is not None and format.name == "xliff"
            found = _read_xliff(data, path) if is_xliff else _read_tmx(data, path)
            others, size = Counter[str](), len(memory)
            segments = list(_choose_languages(found, languages, others))
            memory = memory._add(segments)
            if len(memory) == size and not any(each.rank is not None for each in segments):
                pair = " to ".join(format_language_tag(code) if code else "any language" for code in languages)
                names = ", ".join(islice(sorted(others), _SOME))
                found_there = f"its translations are in {names}" if names else "it has no translations"
                raise DocmtError(f"{path} has nothing to reuse from {pair}: {found_there}")
        return memory

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[str, str]], languages: tuple[str, str] = ("", "")) -> Memory:
        """Return a memory of sentences and their translations, in the order of their text."""
        parts = (((Unit(source), 0, len(source)), (Unit(target), 0, len(target))) for source, target in pairs)
        return cls(languages, {})._add(_Segment(source, target) for source, target in parts)

    @classmethod
    def from_versions(
        cls,
        old: Path | str,
        translation: Path | str,
        languages: tuple[str, str],
        *,
        fields: Sequence[str] = (),
        protect: Sequence[str] | None = (),
        join_lines: bool = False,
        layout: Literal["text", "lines"] = "text",
    ) -> Memory:
        """Return the sentences of an earlier version of a file, and of its translation.

        fields, protect: see `docmt.formats.units.ReadConfig`. join_lines: see `Document.from_text`. layout: lines where
        each line of a text is a sentence. Paragraphs are paired by `pair_texts`. Raises DocmtError for files that
        cannot be read, or whose paragraphs mostly have no certain translation.
        """
        config, paths = ReadConfig(tuple(fields), protect=protect), (str(old), str(translation))
        codes = [code or "en" for code in languages]
        (sources, keys, _), (targets, others, pairs) = (
            _read_version(*pair, config, join_lines, layout) for pair in zip(paths, codes, strict=True)
        )
        if pairs is not None:  # both sides are in the translation
            left, pairs = len(targets), [each for each in pairs if _rank_pair(each) is not None]
            if left and pairs:
                _log.warning(f"{translation}: texts that are empty, fuzzy or unfinished, and are not used: {left}")
            sources = [_cut(each.source, codes[0], config) for each in pairs]
            targets = [_cut(each.target, codes[1], config) for each in pairs]
        elif sources != targets:
            numbers = _pair_units(keys, sources, others, targets)
            targets = [targets[numbers[number]] if number in numbers else [] for number in range(len(sources))]
        paired = [_pair(*each) for each in zip(sources, targets, strict=True)]
        unsure = sum(any(each.rank is None for each in segments) for segments in paired)
        problem = f"{unsure} of {len(sources)} paragraphs have no certain translation" * bool(unsure)
        if pairs == [] or not sources:
            problem = "there is no finished translation"
        elif sources == targets:
            problem = "they are equal"
        elif problem and 2 * unsure <= len(sources):
            _log.warning(f"{translation}: {problem}, and are not used")
            problem = ""
        if problem:
            raise DocmtError(f"{old} and {translation} do not pair: {problem}. Give a file and its translation.")
        made = cls(languages, {})._add((segment for segments in paired for segment in segments), previous="")
        return replace(made, is_guessed=pairs is None and len(set(keys)) < len(keys))

    def join(self, other: Memory) -> Memory:
        """Return a memory with the sentences of both."""
        keys = dict.fromkeys([*self.entries, *other.entries])
        return Memory(self.languages, {key: [*self.entries.get(key, ()), *other.entries.get(key, ())] for key in keys})

    def _add(self, segments: Iterable[_Segment], previous: str | None = None) -> Memory:
        """Return the memory with more sentences. previous: key of what is before the first one."""
        entries = defaultdict[str, dict[_Entry, None]](dict)  # each once
        for source, target, rank, date, before in segments:
            marked = None if rank is None else mark_pair(source, target)
            key = make_key(source[0].text[source[1] : source[2]] if marked is None else marked[0])
            if marked is not None and key and marked[1].strip():
                context = previous if before is None else make_key(before)
                entries[key][_Entry(join_spaces(marked[1]), context, rank or 0, date, before is not None)] = None
            previous = remove_marks(key)
        new = Memory(self.languages, {key: list(each) for key, each in entries.items()})
        return self.join(new) if self.entries else new

    def checksum(self) -> str:
        """Return a checksum of the languages and sentences."""
        return json_checksum([self.languages, self.entries])

    def match(self, document: Document) -> dict[int, MemoryMatch]:
        """Return what the memory has for sentences of a document, by their numbers from 0.

        Of several translations, those after the same sentence come first, then those that are for no other place, then
        those that people have reviewed, then all that are not of a machine, then the newest. If there are still
        several, none is used. Nor is anything for a single word after another sentence.
        """
        marked = document.marked or document.sentences
        keys = ["", *(make_key(show(each)) for each in marked)]
        matches = {}
        for number, (previous, key) in enumerate(pairwise(keys)):
            if not (entries := self.entries.get(key)):
                continue
            in_context = [each for each in entries if each.previous == remove_marks(previous)]
            fitting = in_context or [each for each in entries if not each.is_bound] or entries
            best = max((each.rank, each.date) for each in fitting)
            targets = {make_key(each.target): each.target for each in fitting if (each.rank, each.date) == best}
            if not in_context and sum(has_words(key[slice(*span)]) for span in find_words(key)) < 2:
                continue
            if len(targets) > 1:
                matches[number] = MemoryMatch("conflict")
            elif filled := fill(marked[number], *targets.values()):
                matches[number] = MemoryMatch("context" if in_context else "exact", *filled)
        return matches


def drop_misfits(memory: Memory, translator: Any) -> tuple[Memory, int]:
    """Return the memory of a text without what may be the translation of another sentence, and how much that is.

    They are translations that fit the sentence before or after theirs as well, and those beside them: a translator may
    have moved, replaced, cut or joined something there. Texts that are too long for the model are not checked.
    """
    rows = [(key, entry) for key, entries in memory.entries.items() for entry in entries]
    texts = [(remove_marks(key), remove_marks(entry.target)) for key, entry in rows]
    checked = [n for n, pair in enumerate(texts) if all(has_words(text) and len(text) < _LONGEST for text in pair)]
    rows, texts = [rows[n] for n in checked], [texts[n] for n in checked]
    sources = [
        [source, *(other for other, _ in texts[max(n - 1, 0) : n + 2] if other != source)]
        for n, (source, _) in enumerate(texts)
    ]
    make = Document.from_sentences
    pairs = [(make([one]), make([target])) for each, (_, target) in zip(sources, texts, strict=True) for one in each]
    outcomes = iter(map_or_error(pairs, translator.score_all))
    doubtful = set[int]()
    for number, each in enumerate(sources):
        scored = [next(outcomes) for _ in each]
        if isinstance(scored[0], DocmtError):
            continue
        score, *others = (made.sentences[0] for made in scored if not isinstance(made, DocmtError))
        if any(not score.score - other.score >= _LEAST_GAIN * score.tokens for other in others):
            doubtful |= {number - 1, number, number + 1}
    dropped = {rows[number] for number in doubtful & set(range(len(rows)))}
    kept = {key: [each for each in entries if (key, each) not in dropped] for key, entries in memory.entries.items()}
    return replace(memory, entries={key: entries for key, entries in kept.items() if entries}), len(dropped)


def _read_version(
    path: str, language: str, config: ReadConfig, join_lines: bool, layout: Literal["text", "lines"]
) -> tuple[list[list[_Part]], list[str], list[UnitPair] | None]:
    """Return the sentences of each paragraph of a file, their keys in a format that has keys, and the pairs in one that
    holds both sides. Texts of a JSON list have one key.

    language: of the rules for sentences.
    """
    data = read_bytes(path)
    if layout == "text" and (format := find_format(path, data)):
        file = read_units(format, data, path, config)
        name = _KEYS.get(format.name, _NO_KEY)
        keys = [name.sub("", unit.id) for unit in file.units]
        return [_cut(unit, language, config) for unit in file.units], keys, file.list_pairs()
    if has_jsonl_name(path):
        raise DocmtError(f"{path} is JSONL: give a document and its translation, or a memory as TMX or XLIFF")
    text = decode_utf8(data, path)
    document = read_input(
        path, layout=layout, language=language, join_lines=join_lines, text=text, protect=config.patterns
    ).documents[0]
    texts, spans = list[str](), list[list[tuple[int, int]]]()
    for gap, sentence in zip(document.gaps, document.sentences, strict=False):
        if not texts or _BREAKS[join_lines].search(gap):
            texts.append("")
            spans.append([])
        start = len(texts[-1]) + len(gap)
        texts[-1] += gap + sentence
        spans[-1].append((start, start + len(sentence)))
    rows = [[(Unit(text), *span) for span in each] for text, each in zip(texts, spans, strict=True)]
    return rows, [""] * len(rows), None


def _pair_units(
    keys: Sequence[str], sources: Sequence[Sequence[_Part]], others: Sequence[str], targets: Sequence[Sequence[_Part]]
) -> dict[int, int]:
    """Return the numbers of units and of their translations, which have the same keys, as far as they are sure."""
    numbers, by_key = dict[int, int](), group_pairs((key, number) for number, key in enumerate(others))
    for key, rows in group_pairs((key, number) for number, key in enumerate(keys)).items():
        columns = by_key.get(key, [])
        pairs = _align([_join(sources[n]) for n in rows], [_join(targets[n]) for n in columns])
        numbers |= {rows[one]: columns[two] for one, two in pairs.items()}
    return numbers


def _pair(sources: Sequence[_Part], targets: Sequence[_Part]) -> list[_Segment]:
    """Return the sentences of a paragraph with their translations; unusable ones where their numbers differ.

    A single sentence may have a translation of several.
    """
    if len(sources) == 1 and targets:
        (unit, start, _), (_, _, end) = targets[0], targets[-1]
        targets = [(unit, start, end)]
    if len(sources) != len(targets):
        return [_Segment(each, each, None) for each in sources]
    sure = _align(*([_join([each]) for each in side] for side in (sources, targets)))
    pairs = enumerate(zip(sources, targets, strict=True))
    return [_Segment(*pair, 1 if sure.get(number) == number else None) for number, pair in pairs]


def _align(sources: Sequence[str], targets: Sequence[str]) -> dict[int, int]:
    """See `pair_texts`. It needs NumPy, which the process that reads files does not load."""
    from docmt.terms.version_pairs import pair_texts

    return pair_texts(sources, targets)


def _join(parts: Sequence[_Part]) -> str:
    """Return the text of the sentences of a unit."""
    return " ".join(unit.text[start:end] for unit, start, end in parts)


def _cut(unit: Unit, language: str, config: ReadConfig) -> list[_Part]:
    readable = make_readable(unit, config.protect)
    return [(readable.unit, *span) for span in readable.find_sentences(language, config.patterns)]


class _Variants(NamedTuple):
    """A segment of a file in several languages."""

    texts: Sequence[tuple[str, Unit]]
    """with their languages"""
    rank: int | None
    date: str = ""
    before: Mapping[str, str] = {}
    """by language, or for all under an empty code: the sentence before"""


def _choose_languages(
    segments: Iterable[_Variants], languages: tuple[str, str], found: Counter[str]
) -> Iterator[_Segment]:
    """Yield the segments that have both languages, by how well their codes fit. found: counts the languages of all."""
    for variants, rank, date, before in segments:
        found.update([code for code, _ in variants])
        rest, chosen, codes = list(variants), list[_Part](), list[str]()
        for wanted in languages:
            distances = [language_distance(code, wanted) for code, _ in rest]
            if fitting := [distance for distance in distances if distance is not None]:
                code, text = rest.pop(distances.index(min(fitting)))
                unit = make_readable(text).unit
                chosen.append((unit, 0, len(unit.text)))
                codes.append(code)
        if len(chosen) == len(languages):
            yield _Segment(chosen[0], chosen[1], rank, date, before.get(codes[0], before.get("")))


@lru_cache(1024)
def _rank(states: frozenset[str]) -> int | None:
    """Return the rank of a translation with these states and origins, None if it is not to be used."""
    if any(map(_UNUSABLE.fullmatch, states)):
        return None
    return 2 if any(map(_REVIEWED.fullmatch, states)) else int(not any(map(_MACHINE.fullmatch, states)))


def _rank_pair(pair: UnitPair) -> int | None:
    """Return the rank of the translation of a segment, see `_rank`. A similar one is used where people confirmed it."""
    states = frozenset(pair.states[name] for name in _XLIFF_STATES if name in pair.states)
    is_similar = _SIMILAR.fullmatch(pair.states.get("percent", "")) and not any(map(_CONFIRMED.fullmatch, states))
    return None if is_similar else _rank(states)


def _read_xliff(data: bytes, path: str) -> Iterator[_Variants]:
    """Yield the segments of an XLIFF file that have a translation."""
    for each in read_units(FORMATS["xliff"], data, path).list_pairs() or ():
        yield _Variants(list(zip(each.languages, (each.source, each.target), strict=True)), _rank_pair(each))


def _read_tmx(data: bytes, path: str) -> Iterator[_Variants]:
    """Yield the segments of a TMX file."""
    if b"tmx" not in data[:4096].replace(b"\0", b"").lower():
        raise DocmtError(f"{path} is neither TMX nor XLIFF: export the memory as one of them")
    for _, unit in iterate_xml(data, path, ("tmx",), ("tu",)):
        by_code = defaultdict[str, list[tuple[Any, Any]]](list)
        for each in unit.iterfind("{*}tuv"):
            if code := find_language_of(each):
                by_code[code] += [(each, segment) for segment in each.iterfind("{*}seg")]
        # A language with several texts: each is one translation.
        for number in range(max(map(len, by_code.values()), default=0)):
            variants = [(code, *each[min(number, len(each) - 1)]) for code, each in by_code.items() if each]
            texts = [(code, _read_segment(segment)) for code, _, segment in variants]
            elements = [unit, *(each for _, each, _ in variants)]
            dates = [each.get(name) for name in ("changedate", "creationdate") for each in elements]
            notes = [note for each in elements for note in each.iterfind("{*}prop")]
            states = [each.text or "" for each in notes if _STATES.fullmatch(each.get("type") or "")]
            states += [each.get(name) or "" for name in ("creationid", "changeid") for each in elements]
            before = {
                find_language_of(each) if each is not unit else "": _read_before("".join(note.itertext()))
                for each in elements
                for note in each.iterfind("{*}prop")
                if _BEFORE.fullmatch(note.get("type") or "")
            }
            yield _Variants(texts, _rank(frozenset(states)), max(filter(None, dates), default=""), before)


def _read_before(text: str) -> str:
    """Return the sentence before, of which memoQ writes the segment as XML."""
    plain = _TAG.sub("", text)
    return unescape(plain) if text.lstrip().startswith("<seg>") else plain


def _read_segment(segment: Any) -> Unit:
    """Return the text and codes of a segment of TMX."""
    if not len(segment):
        return Unit(segment.text or "")
    builder = UnitBuilder()
    _add_content(segment, builder)
    return builder.finish()


def _add_content(element: Any, builder: UnitBuilder) -> None:
    """Add the text and the codes of an element, to the end of it."""
    builder.add_text(element.text or "")
    for child in element:
        name, id = name_element(child), child.get("i") or child.get("x") or ""
        if name == "bpt":
            builder.open(id, id)
        elif name == "ept":
            builder.close(id, id)
        elif name in _SINGLE:
            builder.add_single(id, "".join(child.itertext()))
        elif name:  # text that is marked
            builder.open(name, name)
            _add_content(child, builder)
            builder.close(name, name)
        builder.add_text(child.tail or "")
