"""What is wrong with single sentences, and with the address of a document."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from statistics import median

from docmt.checking.findings import CheckConfig, Finding, Spans, place
from docmt.checking.languages import FORMAL, FUNCTION_WORDS, INFORMAL, PLURAL_IS_FORMAL, overlap, quoted, tokens, words
from docmt.documents import ParallelDocument
from docmt.documents.layout import has_letters

_LONGEST_LOOP = 12
"""Words of the longest phrase that is looked for as a loop."""
_LONGEST = 1000
"""Words of the longest sentence that is compared with its source word by word, which takes quadratic time."""
_LEAST_WORDS = 2
_DEVIATION = 1.4826
"""Standard deviations in a median absolute deviation, of normal values."""
_FEWEST = 20
"""Sentences without which a file has no ratio of lengths."""
_LEAST_LENGTH = 12
"""Characters that both sides together differ by, at least, to be of unequal length."""
_WORDS_SEEN = 2


def empty(document: ParallelDocument) -> Iterator[Finding]:
    """Sentences without a translation, and translations of nothing."""
    for number, (source, target) in enumerate(document):
        if has_letters(source) and not has_letters(target) and not any(map(str.isdigit, target)):
            yield Finding("empty", "no translation", (place(document, number),), "sure")
        elif has_letters(target) and not source:
            yield Finding("empty", "a translation of nothing", (place(document, number),), "sure")


@dataclass(frozen=True)
class Copies:
    """How often the words of the source stand in its translations as they are."""

    seen: Counter[str]
    copied: Counter[str]

    @classmethod
    def of(cls, documents: Sequence[ParallelDocument]) -> Copies:
        """Counted over sentences."""
        seen, copied = Counter[str](), Counter[str]()
        for document in documents:
            for source, target in document:
                ours = set(words(source))
                seen.update(ours)
                copied.update(ours.intersection(words(target)))
        return cls(seen, copied)

    def is_translated(self, word: str) -> bool:
        """Whether this word, which was copied in a sentence, is mostly not copied in the others."""
        others = self.seen[word] - 1
        return others >= _WORDS_SEEN and 4 * (self.copied[word] - 1) < others


def untranslated(
    document: ParallelDocument, config: CheckConfig, languages: tuple[str, str], copies: Copies
) -> Iterator[Finding]:
    """Sentences left as they are, or in the language of the source.

    What stands in a translation as in its source may be a name or code: among what was copied there must be words that
    are not copied elsewhere, or function words of the source's language.
    """
    ours, theirs = (FUNCTION_WORDS.get(language, frozenset[str]()) for language in languages)
    for number, (source, target) in enumerate(document):
        said, original = _cased(target), _cased(source)
        plain = [word.lower() for word in said if word.isalpha() and len(word) > 1]
        if not plain:
            continue
        share = _copied(original, said, config.copied_share)
        if share >= config.copied_share:
            foreign = [word for word in plain if word in (ours - theirs) or copies.is_translated(word)]
            if 2 * len(foreign) >= len(plain):
                equal = said == original
                yield Finding(
                    "untranslated",
                    "left as it is in the source" if equal else "nearly as in the source",
                    (place(document, number),),
                    "sure" if equal and len(foreign) >= _LEAST_WORDS else "likely",
                )
        elif len(plain) > _LEAST_WORDS:
            mine = sum(word in ours and word not in theirs for word in plain)
            its = sum(word in theirs for word in plain)
            if mine > _LEAST_WORDS and mine >= 0.2 * len(plain) and mine > 3 * its:
                what = "in the language of the source by its words"
                yield Finding("untranslated", what, (place(document, number),), "likely")


def _copied(original: Sequence[str], said: Sequence[str], least: float) -> float:
    """The share of the words that are said in the original, in its order; 0 for less than the least, more or less."""
    if original == said:
        return 1.0
    matcher = SequenceMatcher(None, original, said, autojunk=False)
    if len(said) > _LONGEST or len(original) > _LONGEST or matcher.quick_ratio() < least / 2:
        return 0.0
    return sum(block.size for block in matcher.get_matching_blocks()) / len(said)


def _cased(text: str) -> list[str]:
    """The words as they are written, but for the first, which has a capital as the first of a sentence."""
    said = [word for _, _, word in tokens(text)]
    return [said[0].lower(), *said[1:]] if said else said


def loops(document: ParallelDocument, config: CheckConfig) -> Iterator[Finding]:
    """Words said again and again, more often than in the source."""
    for number, (source, target) in enumerate(document):
        said = tokens(target)
        found = _loop([word.lower() for _, _, word in said], config.loop_repetitions)
        if found is None:
            continue
        first, size, times = found
        original = _loop(words(source), 2)
        if original is not None and original[2] >= times:
            continue
        start, end = said[first][0], said[first + size * times - 1][1]
        phrase = target[start : said[first + size - 1][1]]
        if not has_letters(phrase):
            continue
        what = f"“{phrase}” {times} times in a row"
        yield Finding("loop", what, (place(document, number, (), [(start, end)]),), "sure" if times > 2 else "likely")


def _loop(said: Sequence[str], least: int) -> tuple[int, int, int] | None:
    """The longest stretch of repetitions: (first word, words of the phrase, times); None if there is none."""
    best: tuple[int, int, int] | None = None
    last: dict[str, int] = {}
    sizes = set()  # how far equal words stand from each other
    for at, word in enumerate(said):
        sizes.add(at - last.get(word, -len(said)))
        last[word] = at
    for size in sorted(size for size in sizes if size <= min(_LONGEST_LOOP, len(said) // 2)):
        run = 0  # words that are equal to those `size` before
        for at in range(size, len(said) + 1):
            if at < len(said) and said[at] == said[at - size]:
                run += 1
                continue
            times = run // size + 1
            needed = least if size < 3 else 2
            if times >= needed and (best is None or size * times > best[1] * best[2]):
                best = (at - run - size, size, times)
            run = 0
    return best


def duplicates(document: ParallelDocument, config: CheckConfig) -> Iterator[Finding]:
    """Different sentences of a document with the same translation."""
    same = defaultdict[tuple[str, ...], list[int]](list)
    for number, target in enumerate(document.target):
        said = tuple(words(target))
        if len(said) >= config.duplicate_words:
            same[said].append(number)
    for numbers in same.values():
        if len(numbers) < 2:
            continue
        sources = {number: words(document.source[number]) for number in numbers}
        first = numbers[0]
        others = [number for number in numbers if overlap(sources[first], sources[number]) < config.similarity]
        if others:
            places = tuple(place(document, number) for number in (first, *others))
            yield Finding("duplicate", f"{len(places)} different sentences with the same translation", places)


@dataclass(frozen=True)
class Lengths:
    """How long translations are, in characters: about `ratio` times their source, with deviations that grow with the
    root of its length (Gale and Church 1993)."""

    ratio: float
    deviation: float

    @classmethod
    def of(cls, documents: Sequence[ParallelDocument]) -> Lengths | None:
        """Robust estimates (medians); None of too few sentences."""
        pairs = [(len(s), len(t)) for document in documents for s, t in document if s and t]
        if len(pairs) < _FEWEST:
            return None
        long = [(ours, theirs) for ours, theirs in pairs if ours >= _LEAST_LENGTH] or pairs
        ratio = median(theirs / ours for ours, theirs in long)
        deviations = [abs(theirs - ratio * ours) / math.sqrt(ours) for ours, theirs in pairs]
        return cls(ratio, max(_DEVIATION * median(deviations), 1e-6))

    def deviates(self, source: str, target: str, config: CheckConfig) -> float:
        """How many times as long as expected the target is, or 0 for one that is about as long."""
        expected = self.ratio * len(source)
        factor = len(target) / expected
        off = abs(len(target) - expected)
        if off < _LEAST_LENGTH or max(factor, 1 / factor) < config.length_factor:
            return 0.0
        return factor if off / math.sqrt(len(source)) >= config.length_deviation * self.deviation else 0.0


def lengths(document: ParallelDocument, config: CheckConfig, usual: Lengths) -> Iterator[Finding]:
    """Translations that are far too short or too long."""
    for number, (source, target) in enumerate(document):
        if not has_letters(source) or not target:
            continue
        factor = usual.deviates(source, target, config)
        if factor:
            how = f"{factor:.1f} times as long as" if factor > 1 else f"{100 * factor:.0f} % of the length of"
            what = f"{how} such a source sentence's usual translation"
            yield Finding("length", what, (place(document, number),), "likely")


_QUOTES = re.compile(r"[^\w\s]+")


def repetitions(document: ParallelDocument, config: CheckConfig) -> Iterator[Finding]:
    """The same source sentence with different translations in a document."""
    same = defaultdict[str, list[int]](list)
    for number, source in enumerate(document.source):
        if document.target[number] and len(words(source)) >= config.repetition_words:
            same[_bare(source)].append(number)
    for numbers in same.values():
        firsts = {_bare(document.target[number]): number for number in reversed(numbers)}
        if len(firsts) > 1:
            places = tuple(place(document, number) for number in sorted(firsts.values()))
            what = f"a sentence that stands {len(numbers)} times in the document has {len(firsts)} translations"
            yield Finding("repetition", what, places, "sure")


def _bare(text: str) -> str:
    """The text without case and punctuation."""
    return " ".join(_QUOTES.sub(" ", text.lower()).split())


_ADDRESSES_SHOWN = 3
"""Sentences of each kind that a finding shows."""
_SAID = re.compile(r"[\"“”«»„‘]")


def formality(document: ParallelDocument, language: str) -> Iterator[Finding]:
    """At most one finding: the sentences of the rarer address, and the first of the other one.

    Sentences in which both stand, and those in quotation marks (somebody else speaks), do not count.
    """
    formal, informal = _with_address(document, FORMAL[language]), _with_address(document, INFORMAL[language])
    both = formal.keys() & informal.keys()
    formal, informal = ({n: spans for n, spans in side.items() if n not in both} for side in (formal, informal))
    if not formal or not informal:
        return
    rarer, other = (informal, formal) if len(informal) <= len(formal) else (formal, informal)
    shown = [*list(rarer.items())[:_ADDRESSES_SHOWN], *list(other.items())[:_ADDRESSES_SHOWN]]
    words = {name: _first_words(document, side) for name, side in (("formal", formal), ("informal", informal))}
    what = (
        f"{len(formal)} sentence{'s' * (len(formal) > 1)} with formal address ({words['formal']}), "
        f"{len(informal)} with informal address ({words['informal']})"
    )
    if language in PLURAL_IS_FORMAL:
        what += "; formal words may also address several people"
    places = tuple(place(document, number, (), spans) for number, spans in sorted(shown))
    # People who talk with each other differ in how they do: only a few sentences out of many are likely mistakes.
    is_usual = language in PLURAL_IS_FORMAL or 4 * len(rarer) > len(other)
    yield Finding("formality", what, places, "possible" if is_usual else "likely")


def _with_address(document: ParallelDocument, pattern: str) -> dict[int, Spans]:
    """The sentences with such a word, by number, and where these words stand."""
    found = {}
    for number, target in enumerate(document.target):
        spans = tuple(match.span() for match in re.finditer(pattern, target))
        if spans and not _SAID.search(target):
            found[number] = spans
    return found


def _first_words(document: ParallelDocument, sentences: dict[int, Spans]) -> str:
    """Some of the words, in quotes."""
    said = {document.target[number][start:end]: None for number, spans in sentences.items() for start, end in spans}
    return quoted(list(said)[:_ADDRESSES_SHOWN])
