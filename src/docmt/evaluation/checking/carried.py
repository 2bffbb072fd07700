"""What a translation must carry over as it is: numbers, addresses, placeholders, brackets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from docmt.documents import ParallelDocument
from docmt.evaluation.checking.config import CheckConfig
from docmt.evaluation.checking.finding import Certainty, Finding, place
from docmt.evaluation.checking.numerals import unmatched_numbers
from docmt.evaluation.checking.words import quoted

_URL = re.compile(r"(?:https?|ftp)://[^\s<>\"'“”«»]+|\bwww\.[^\s<>\"'“”«»]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_URL_END = ".,;:!?)]}’"
_TAGS = "a|b|i|u|em|strong|br|p|span|div|code|pre|sub|sup|li|ul|ol|img|small|tt|h[1-6]|td|tr|th|table"
_PLACEHOLDER = re.compile(
    r"\{\{[^{}]*\}\}|\$\{[\w.]+\}|%\(\w+\)[sdif]|\{\w*(?::[^{}\s]*)?\}|%(?:\d+\$)?(?:l{0,2}[diu]|s|\.\d+f|@)(?!\w)|"
    rf"</[A-Za-z][\w:-]*\s*>|<(?:{_TAGS})(?:\s+[\w:-]+=[^<>]*|\s*/)?>|<[A-Za-z][\w:-]*(?:\s+[\w:-]+=[^<>]*|\s*/)>"
)
_SPACES = re.compile(r"\s+")
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"), ("“", "”"), ("«", "»"), ("„", "“"))
_MARKER = re.compile(r"(?:^|(?<=[\s,;:]))\(?\w{1,3}\)|[:;]-?\)|[:;]-?\(")


def carried(document: ParallelDocument, config: CheckConfig, languages: tuple[str, str]) -> Iterator[Finding]:
    """What is lost or new in each translation of a document."""
    for number, (source, target) in enumerate(document):
        if not source or not target:
            continue
        found = [_compared("url", _addresses(source), _addresses(target), source, target)]
        found.append(_compared("placeholder", _placeholders(source), _placeholders(target), source, target))
        found.append(_numbers(source, target, config, languages))
        found.append(_brackets(source, target))
        for kind, what, certainty, ours, theirs in filter(None, found):
            yield Finding(kind, what, (place(document, number, ours, theirs),), certainty)


_Marks = list[tuple[int, int]]
_Found = tuple[str, str, Certainty, _Marks, _Marks]
_Things = list[tuple[str, tuple[int, int]]]


def _addresses(text: str) -> _Things:
    if "://" not in text and "@" not in text and "www." not in text:
        return []
    found = [(each[0].rstrip(_URL_END), each.start()) for each in _URL.finditer(text)]
    return [(address, (start, start + len(address))) for address, start in found]


def _placeholders(text: str) -> _Things:
    return [(_SPACES.sub(" ", found[0]), found.span()) for found in _PLACEHOLDER.finditer(text)]


def _compared(kind: str, ours: _Things, theirs: _Things, source: str, target: str) -> _Found | None:
    """The finding for things of the source that the target lacks, or the other way round; None if there are none."""
    if not ours and not theirs:
        return None
    lost = _without(ours, [thing for thing, _ in theirs], target)
    new = _without(theirs, [thing for thing, _ in ours], source)
    if not lost and not new:
        return None
    return kind, _told(lost, new), "sure", [span for _, span in lost], [span for _, span in new]


def _without(things: _Things, others: list[str], text: str) -> _Things:
    """The things that the others have not as often; what stands in the text in another way is there."""
    left = Counter(others)
    missing = []
    for thing, span in things:
        if left[thing]:
            left[thing] -= 1
        elif thing not in text or thing in others:
            missing.append((thing, span))
    return missing


def _told(lost: _Things, new: _Things) -> str:
    """What is lost and what is new, in words."""
    parts = [f"{quoted(thing for thing, _ in lost)} not in the translation"] if lost else []
    parts += [f"{quoted(thing for thing, _ in new)} not in the source"] if new else []
    return "; ".join(parts)


def _numbers(source: str, target: str, config: CheckConfig, languages: tuple[str, str]) -> _Found | None:
    lost, new = unmatched_numbers(source, target, languages, config.number_words)
    if not lost and not new:
        return None
    certainty: Certainty = "sure" if lost and new else "likely"
    lost_things, new_things = ([(each.text, each.span) for each in side] for side in (lost, new))
    return "number", _told(lost_things, new_things), certainty, [s for _, s in lost_things], [s for _, s in new_things]


def _brackets(source: str, target: str) -> _Found | None:
    """The first pair of brackets that the target opens and does not close, or the other way round; the source does."""
    bare, ours = None, None
    for opening, closing in _BRACKETS:
        if opening not in target and closing not in target:
            continue
        if bare is None or ours is None:
            bare, ours = (_MARKER.sub(lambda found: " " * len(found[0]), text) for text in (target, source))
        if opening == "“" and ("„" in bare or "„" in ours):
            continue
        opened, closed = bare.count(opening), bare.count(closing)
        if opened == closed or ours.count(opening) != ours.count(closing):
            continue
        wrong = opening if opened > closed else closing
        what = f"{quoted([wrong])} is {'not closed' if opened > closed else 'closed, but not opened'} in the translation"
        marks = [(at, at + 1) for at, character in enumerate(bare) if character == wrong]
        return "bracket", what, "likely", [], marks
    return None
