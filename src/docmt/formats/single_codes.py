"""Places of single codes in a translated sentence.

A code stands beside the translation of the word that it stood beside. Codes that belong together, such as the start and
the end of a bookmark, or {{#b}} and {{/b}}, enclose the translation of what they enclosed. A line break stays between
the words that it separates, with the codes beside it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import unescape
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple

from docmt.documents.words import Span, has_words
from docmt.formats.cue_layout import choose_gaps, find_breaks
from docmt.formats.units import SPACE, Code

Stack = tuple[str, ...]
"""ids of the pairs around a place, the outermost first"""
_Place = tuple[int, int]
"""characters before a code, and whether it belongs to what follows (1) or to what precedes (0)"""
OPENING = frozenset(["", *"([{«„“‘‹¿¡（「『《〈【"])
_CLOSING = frozenset(["", *",.;:!?…)]}»”›、。，！？；：）」』》〉】"])
_QUOTES = frozenset("\"'")
_JOINING = frozenset("'’-\N{NON-BREAKING HYPHEN}")
_ROLES = dict.fromkeys(["start", "begin", "open", "disable", "if", "for", "each", "with", "unless", "#", "^"], "begin")
_ROLES |= dict.fromkeys(["foreach", "while"], "begin")
_ROLES |= dict.fromkeys(["end", "close", "closing", "stop", "enable", "/", "}"], "end")
_PART_OF_NAME = re.compile(
    r"(?:(?<=[<{\[(%~-])|(?<=[{%-] ))[/#^]|(?:(?<=<% )|(?<=<\?php ))\}"
    r"|[^\W\d_]+?(?=(?:start|begin|open|end|close)(?![^\W\d_]))"
    r"|start|begin|open|end|close|[^\W\d_]+|\d+"
)
_UNNAMED = re.compile(r"(?<=\s)id=\"\D{0,2}\d+\"|(?<=.)<.*", re.DOTALL)
"""Number of an element of XLIFF, which its partner does not share, and what is in an element."""
_AFTER_NAME = re.compile(r"(?<=[\w.:-])[^\w.:-].*|^(?!<\w).*", re.DOTALL)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NEAR = 50
"""Codes before an end among which its beginning is searched."""
_EMPTY_LINE = 20.0
"""Words that change their line rather than one line without words."""


@dataclass(frozen=True)
class Atom:
    """Codes that enclose no words and stay together: a single code, or a pair around nothing or spaces."""

    codes: tuple[Code, ...]
    offset: int
    stack: Stack


class Range(NamedTuple):
    """What two atoms enclose."""

    first: int
    last: int
    """indices of the atoms; -1 and their number for those of other units"""
    start: int
    end: int
    """characters"""


class _Mark(NamedTuple):
    """What tells the partner of an atom."""

    role: str
    """begin | end | "", by its name"""
    words: frozenset[str]
    """of its name"""
    is_tag: bool
    """whether the name of an element tells the role"""
    shape: str
    """the code without its words"""
    sides: tuple[bool, bool]
    """whether it touches words before and after it, as a bracket does"""


@dataclass(frozen=True)
class AlignedSentence:
    """A sentence and its translation with their words."""

    text: str
    words: Sequence[Span]
    translation: str
    target: Sequence[Span]
    """words of the translation"""
    aligned: Sequence[int | None]
    """index of the source word of each target word"""

    @cached_property
    def numbers_of(self) -> Mapping[int, Sequence[int]]:
        """Indices of the target words of each source word."""
        numbers: dict[int, list[int]] = {}
        for number, index in enumerate(self.aligned):
            if index is not None:
                numbers.setdefault(index, []).append(number)
        return numbers


def find_ranges(text: str, atoms: Sequence[Atom]) -> list[Range]:
    """Return the ranges of a unit.

    The names of their atoms belong together: <x-start id="1"/> and <x-end id="1"/>. One of them may be in another unit
    if the name of its element tells what it is. Or they touch the words between them as brackets do: {0}words{1}.
    """
    marks = [_read_mark(text, atom) for atom in atoms]
    opened: list[int] = []
    pairs: list[tuple[int, int]] = []
    for index, mark in enumerate(marks):
        start = next((each for each in reversed(opened[-_NEAR:]) if _belong(marks[each], mark)), None)
        if start is not None:
            pairs.append((start, index))
            opened.remove(start)
        elif mark.role != "end":
            opened.append(index)
        elif mark.is_tag:
            pairs.append((-1, index))
    pairs += [(index, len(atoms)) for index in opened if marks[index].is_tag]
    offsets = [*(atom.offset for atom in atoms), len(text), 0]  # the last one is that of -1
    return [Range(first, last, offsets[first], offsets[last]) for first, last in sorted(pairs)]


def _read_mark(text: str, atom: Atom) -> _Mark:
    content = "" if atom.codes[0].is_break else atom.codes[0].content
    parts, of_tag = (_split_name(each.sub("", content)) for each in (_UNNAMED, _AFTER_NAME))
    roles = [_ROLES[part] for part in parts if part in _ROLES]
    words = frozenset(parts) - _ROLES.keys()
    is_tag = not _ROLES.keys().isdisjoint(of_tag)
    return _Mark(roles[0] if roles else "", words, is_tag, re.sub(r"\w+", "w", content), touches(text, atom))


def _split_name(name: str) -> list[str]:
    return _PART_OF_NAME.findall(_CAMEL.sub("_", unescape(name)).lower())


def _belong(start: _Mark, end: _Mark) -> bool:
    """Return whether two atoms are partners. A beginning that does not say so has all words of the end."""
    if end.role == "end":
        return bool(start.role or end.words) and end.words <= start.words and start.shape[:1] == end.shape[:1]
    is_bracket = (start.sides, end.sides) == ((False, True), (True, False)) and start.shape == end.shape
    return is_bracket and not start.role and not end.role


def touches(text: str, atom: Atom) -> tuple[bool, bool]:
    """Return whether an atom touches the words before and after it, as a bracket does."""
    content = atom.codes[0].content
    if atom.codes[0].is_break:
        return False, False
    before, after = text[max(0, atom.offset - 1) : atom.offset], text[atom.offset : atom.offset + 1]
    is_after = before.strip() not in OPENING and not (before in _QUOTES and after.isalnum())
    is_before = after.strip() not in _CLOSING and not (after in _QUOTES and before.isalnum())
    return is_after and not content.startswith(SPACE), is_before and not content.endswith(SPACE)


def place_atoms(
    sentence: AlignedSentence, atoms: Sequence[Atom], covers: Sequence[tuple[int, int, Collection[int]]]
) -> list[tuple[int, int]]:
    """Return the place in the translation and the index of each atom, in their new order. Offsets are in the sentence.

    covers: for each range the indices of its atoms and its target words.
    """
    places = [_find_place(sentence, atom) for atom in atoms]
    for index, place in _place_breaks(sentence, atoms):
        places[index] = place
    fixed = {index: places[index] for index, atom in enumerate(atoms) if atom.codes[0].is_break}
    for first, last, words in covers:
        if words:
            fixed |= {first: (sentence.target[min(words)][0], 1), last: (sentence.target[max(words)][1], 0)}
    places = [fixed.get(index, place) for index, place in enumerate(places)]
    others = [index for index in range(len(atoms)) if index not in fixed]
    beside = [not has_words(sentence.text[left.offset : right.offset]) for left, right in pairwise(atoms)]
    for index in reversed(others):
        if index < len(beside) and beside[index]:
            places[index] = min(places[index], places[index + 1])
    for index in others:
        if index and beside[index - 1]:
            places[index] = max(places[index], places[index - 1])
        for first, last, _ in covers:
            if first < index < last:
                place = max(places[index], fixed.get(first, places[index]))
                places[index] = min(place, fixed.get(last, place))
    return [(places[index][0], index) for index in sorted(range(len(atoms)), key=places.__getitem__)]


def _find_place(sentence: AlignedSentence, atom: Atom) -> _Place:
    """Return the place of an atom beside the translation of a word that it stands beside."""
    text, target, offset = sentence.text, sentence.target, atom.offset
    count = bisect_left(sentence.words, (offset, offset))
    before, after = range(count), range(count, len(sentence.words))
    touches_next = text[offset : offset + 1].strip() != ""
    touches_previous = offset > 0 and not text[offset - 1].isspace()
    if after and (not before or (touches_next and not touches_previous)):
        start = next((target[numbers[0]][0] for each in after if (numbers := sentence.numbers_of.get(each))), None)
        return _leave_word(sentence, offset, target[-1][1] if start is None else start), 1
    for index in reversed(before):
        if numbers := sentence.numbers_of.get(index):
            end = _pass_punctuation(sentence, index, target[_last_of_run(numbers)][1], before[-1])
            return _leave_word(sentence, offset, end), 0
    return _leave_word(sentence, offset, target[0][0]), 0


def _leave_word(sentence: AlignedSentence, offset: int, position: int) -> int:
    """Return the place before a word with an apostrophe or a hyphen (j'ai) for an atom that is not within such a word.

    offset, position: positions of the atom in the text and in the translation.
    """
    translation = sentence.translation
    if not _is_within_word(sentence.text, offset) and _is_within_word(translation, position):
        while position and (translation[position - 1].isalnum() or translation[position - 1] in _JOINING):
            position -= 1
    return position


def _is_within_word(text: str, offset: int) -> bool:
    """Return whether a place is beside an apostrophe or a hyphen that joins two parts of a word."""
    return any(
        text[place : place + 1] in _JOINING and text[place - 1].isalnum() and text[place + 1 : place + 2].isalnum()
        for place in (offset - 1, offset)
        if place > 0
    )


def _last_of_run(numbers: Sequence[int]) -> int:
    """Return the last of the first longest run of consecutive numbers."""
    runs = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    return max((list(group) for _, group in runs), key=len)[-1][1]


def _pass_punctuation(sentence: AlignedSentence, index: int, end: int, last: int) -> int:
    """Return the end after the punctuation that the source has between the aligned word and the atom."""
    passed = {sentence.text[sentence.words[number][0]] for number in range(index + 1, last + 1)}
    for start, finish in sentence.target[bisect_left(sentence.target, (end, end)) :]:
        if start > end:
            break
        if not sentence.translation[start].isalnum() and sentence.translation[start] in passed:
            end = finish
    return end


def _place_breaks(sentence: AlignedSentence, atoms: Sequence[Atom]) -> Iterator[tuple[int, _Place]]:
    """Yield the index and the place of each line break, and of the atoms with only spaces between them and a break.

    Few words change their line, and each line keeps a word or a code.
    """
    text, translation = sentence.text, sentence.translation
    groups: list[list[int]] = []
    for index, atom in enumerate(atoms):
        if groups and not text[atoms[groups[-1][-1]].offset : atom.offset].strip():
            groups[-1].append(index)
        else:
            groups.append([index])
    groups = [group for group in groups if any(atoms[index].codes[0].is_break for index in group)]
    others = [index for index, atom in enumerate(atoms) if not atom.codes[0].is_break] or [len(atoms), -1]
    letters = [span for span in sentence.target if has_words(translation[slice(*span)])] or [(0, 0)]
    borders = letters[0][0], letters[-1][1]
    ends = [(end, end) for end in (borders[1], len(translation.rstrip()))]  # before and after the last punctuation
    gaps = [borders[:1] * 2, *find_breaks(translation, *borders), *ends]
    table = []
    for group in groups:
        offset = atoms[group[0]].offset
        costs = _count_moves(sentence, offset, gaps)
        costs[0] += _EMPTY_LINE * (has_words(text[:offset]) and others[0] >= group[0])
        is_left = has_words(text[offset:]) and others[-1] <= group[-1]
        costs[-2:] = [cost + _EMPTY_LINE * is_left for cost in costs[-2:]]
        table.append(costs)
    for group, gap in zip(groups, choose_gaps(table, _EMPTY_LINE), strict=True):
        start, end = gaps[gap]
        for index in group:
            touches = atoms[index].offset > 0 and not text[atoms[index].offset - 1].isspace()
            yield index, (start, 0) if touches else (end, 1)


def _count_moves(sentence: AlignedSentence, offset: int, gaps: Sequence[Span]) -> list[float]:
    """Return for each gap how many words change their side of a break. offset: of the break in the text.

    The punctuation before the break counts as two, and the word before it breaks ties.
    """
    translation, mark = sentence.translation, sentence.text[:offset].rstrip()[-1:]
    count = bisect_left(sentence.words, (offset, offset))
    moves = [
        0 if index is None or not translation[start].isalnum() else 1 if index >= count else -1
        for index, (start, _) in zip(sentence.aligned, sentence.target, strict=True)
    ]
    crossings = list(accumulate(moves, initial=moves.count(-1)))
    costs = []
    for start, end in gaps:
        before = bisect_left(sentence.target, (end, end))
        keeps_mark = not mark.isalnum() and translation[max(0, start - 1) : start] == mark
        follows_word = before > 0 and sentence.aligned[before - 1] == count - 1
        costs.append(crossings[before] - 2 * keeps_mark - 0.1 * follows_word)
    return costs
