"""What a translation must carry over as it is: numbers, addresses, placeholders, brackets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from docmt.checking.config import CheckConfig
from docmt.checking.finding import Certainty, Finding, place
from docmt.checking.numerals import may_be_converted, unmatched_numbers
from docmt.checking.words import quoted
from docmt.documents import ParallelDocument

_URL = re.compile(
    r"(?:https?|ftp)://[^\s<>\"'“”«»]+|\bwww\.[^\s<>\"'“”«»]+|"
    r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"
)
_SITE = re.compile(r"(?://|@|^)(?:[^/@]*@)?(?:[\w-]+\.)*([\w-]+\.[\w-]+)(?=[/:?#]|$)")
"""The last two names of the computer that an address is of."""
_URL_END = ".,;:!?)]}’"
_TAGS = "a|b|i|u|em|strong|br|p|span|div|code|pre|sub|sup|li|ul|ol|img|small|tt|h[1-6]|td|tr|th|table"
_PLACEHOLDER = re.compile(
    r"\{\{[^{}]*\}\}|\$\{[\w.]+\}|%\(\w+\)[sdif]|\{\w*(?::[^{}\s]*)?\}|%(?:\d+\$)?(?:l{0,2}[diu]|s|\.\d+f|@)(?!\w)|"
    rf"</[A-Za-z][\w:-]*\s*>|<(?:{_TAGS})(?:\s+[\w:-]+=[^<>]*|\s*/)?>|<[A-Za-z][\w:-]*(?:\s+[\w:-]+=[^<>]*|\s*/)>"
)
_SPACES = re.compile(r"\s+")
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))
_MARKER = re.compile(r"(?:^|\s)(?:\w{1,2}|\d+|[ivx]+)$|[:;=]-?$")
"""What stands before a bracket that belongs to no pair: a), 1) and :-)."""
_LONGEST_MARKER = 10


def carried(document: ParallelDocument, config: CheckConfig, languages: tuple[str, str]) -> Iterator[Finding]:
    """What is lost or new in each translation of a document."""
    for number, (source, target) in enumerate(document):
        if not source or not target:
            continue
        found = [
            _compared("url", _addresses(source), _addresses(target), source, target),
            _compared("placeholder", _placeholders(source), _placeholders(target), source, target),
            _numbers(_without_marks(source), _without_marks(target), config, languages),
            _brackets(source, target),
        ]
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
    certainty: Certainty = "possible" if _are_localised(ours, theirs) else "sure"
    return kind, _told(lost, new), certainty, [span for _, span in lost], [span for _, span in new]


def _are_localised(ours: _Things, theirs: _Things) -> bool:
    """Whether both sides have addresses at the same places of the web, which may have a page in each language."""
    places = [{found[1] for thing, _ in side if (found := _SITE.search(thing))} for side in (ours, theirs)]
    return bool(places[0]) and places[0] == places[1]


def _without_marks(text: str) -> str:
    """The text with blanks for addresses and placeholders: their numbers are not for themselves."""
    for pattern in (_URL, _PLACEHOLDER):
        text = pattern.sub(lambda found: " " * len(found[0]), text)
    return text


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
    if may_be_converted(source):
        certainty = "possible"
    lost_things, new_things = ([(each.text, each.span) for each in side] for side in (lost, new))
    return "number", _told(lost_things, new_things), certainty, [s for _, s in lost_things], [s for _, s in new_things]


def _brackets(source: str, target: str) -> _Found | None:
    """The first bracket without its partner in the target, of a kind of which all have theirs in the source."""
    for opening, closing in _BRACKETS:
        if opening not in target and closing not in target:
            continue
        alone = _alone(target, opening, closing)
        if alone is None or _alone(source, opening, closing) is not None:
            continue
        wrong = target[alone]
        what = (
            f"{quoted([wrong])} is {'not closed' if wrong == opening else 'closed, but not opened'} in the translation"
        )
        return "bracket", what, "likely", [], [(alone, alone + 1)]
    return None


def _alone(text: str, opening: str, closing: str) -> int | None:
    """Where the first bracket without a partner stands, if there is one."""
    opened: list[int] = []
    for found in re.finditer(f"[{re.escape(opening + closing)}]", text):
        if found[0] == opening:
            opened.append(found.start())
        elif opened:
            opened.pop()
        elif not _MARKER.search(text, max(0, found.start() - _LONGEST_MARKER), found.start()):
            return found.start()
    return opened[0] if opened else None
