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
from math import inf
from typing import Any

from docmt.documents.words import Span, has_words
from docmt.formats.units import SPACE, Code

Stack = tuple[str, ...]
"""ids of the pairs around a place, the outermost first"""
Range = tuple[int, int]
"""indices of the atoms that begin and end a range; -1 or the number of atoms where that is in another unit"""
_Place = tuple[int, int]
"""characters before a code, and whether it belongs to what follows (1) or to what precedes (0)"""
_OPENING = frozenset(["", *"([{«„“‘‹¿¡（「『《〈【"])
_CLOSING = frozenset(["", *",.;:!?…)]}»”›、。，！？；：）」』》〉】"])
_QUOTES = frozenset("\"'")
_JOINING = frozenset("'’-\N{NON-BREAKING HYPHEN}")
_BEGINNINGS = frozenset(["start", "begin", "open", "disable", "if", "for", "each", "with", "unless", "#", "^"])
_ENDS = frozenset(["end", "close", "closing", "stop", "enable", "/"])
_PART_OF_NAME = re.compile(
    r"(?:(?<=[<{\[(%-])|(?<=[{%-] ))[/#^]|[^\W\d_]+?(?=(?:start|begin|open|end|close)(?![^\W\d_]))"
    r"|start|begin|open|end|close|[^\W\d_]+|\d+"
)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NUMBER = re.compile(r"(?<=\s)id=\"\D{0,2}\d+\"")
"""Number of an element of XLIFF, which its partner does not share."""
_EMPTY_LINE = 20.0
"""Words that change their line rather than one line without words."""
_Chain = tuple[float, tuple[Any, ...]]
"""cost of line breaks, and their gaps, the last one outside: (((), 2), 5)"""
_NEAR = 50
"""Codes before an end among which its beginning is searched."""


@dataclass(frozen=True)
class Atom:
    """Codes that enclose no words and stay together: a single code, or a pair around nothing or spaces."""

    codes: tuple[Code, ...]
    offset: int
    stack: Stack


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


@dataclass(frozen=True)
class _Name:
    """The name of a code, by which its partner is known."""

    role: str
    """begin | end | "" """
    words: frozenset[str]
    brackets: str
    """the code without its words"""
    is_tag: bool
    """whether the name of its element tells its role"""


def find_ranges(text: str, atoms: Sequence[Atom]) -> list[Range]:
    """Return the ranges of a unit, each with the index of its beginning and of its end.

    Their names belong together (<x-start id="1"/> and <x-end id="1"/>), or they touch the words between them as
    brackets do: {0}words{1}.
    """
    names = [_read_name(atom.codes[0].content) for atom in atoms]
    ranges: list[Range] = []
    opened: list[int] = []
    for index, (atom, name) in enumerate(zip(atoms, names, strict=True)):
        near = reversed(opened[-_NEAR:])
        if name.role == "end":
            start = next((each for each in near if _is_partner(names[each], name)), None)
            if start is None and name.is_tag:
                ranges.append((-1, index))
        elif not name.role and _touches(text, atom) == (True, False):
            start = next((each for each in near if _is_bracket(text, atoms[each], names[each], name)), None)
        else:
            start = None
        if start is not None:
            ranges.append((start, index))
            opened.remove(start)
        elif name.role != "end":
            opened.append(index)
    return sorted([*ranges, *((each, len(atoms)) for each in opened if names[each].is_tag)])


def _read_name(content: str) -> _Name:
    head = re.match(r"<?[^<]*", content, re.DOTALL)
    tag = re.match(r"<[\w.:-]*", content)
    parts, of_tag = (_split_name(match[0] if match else "") for match in (head, tag))
    roles = ["begin" if part in _BEGINNINGS else "end" for part in parts if part in _BEGINNINGS | _ENDS]
    is_tag = not _BEGINNINGS.isdisjoint(of_tag) or not _ENDS.isdisjoint(of_tag)
    words = frozenset(parts) - _BEGINNINGS - _ENDS
    return _Name(roles[0] if roles else "", words, re.sub(r"\w+", "w", content), is_tag)


def _split_name(name: str) -> list[str]:
    return _PART_OF_NAME.findall(_CAMEL.sub("_", unescape(_NUMBER.sub("", name))).lower())


def _is_partner(start: _Name, end: _Name) -> bool:
    """Return whether a code begins what another one ends. One that does not say so has all words of the end."""
    is_beginning = start.role == "begin" or (not start.role and end.words)
    return bool(is_beginning) and end.words <= start.words and start.brackets[:1] == end.brackets[:1]


def _is_bracket(text: str, atom: Atom, start: _Name, end: _Name) -> bool:
    """Return whether an atom before words is like one after them."""
    return not start.role and start.brackets == end.brackets and _touches(text, atom) == (False, True)


def _touches(text: str, atom: Atom) -> tuple[bool, bool]:
    """Return whether an atom touches the words before and after it, as a bracket does."""
    content, is_break = atom.codes[0].content, atom.codes[0].is_break
    before, after = text[max(0, atom.offset - 1) : atom.offset], text[atom.offset : atom.offset + 1]
    is_after = before.strip() not in _OPENING and not (before in _QUOTES and after.isalnum())
    is_before = after.strip() not in _CLOSING and not (after in _QUOTES and before.isalnum())
    return (
        is_after and not is_break and not content.startswith(SPACE),
        is_before and not is_break and not content.endswith(SPACE),
    )


def cover_text(text: str, atoms: Sequence[Atom], ranges: Sequence[Range]) -> list[Stack]:
    """Return the numbers of the ranges around each character."""
    covers: list[Stack] = [()] * len(text)
    offsets = [*(atom.offset for atom in atoms), len(text), 0]  # the last one is that of -1
    for number, (start, end) in enumerate(ranges):
        for position in range(offsets[start], offsets[end]):
            covers[position] += (str(number),)
    return covers


def place_atoms(
    sentence: AlignedSentence, atoms: Sequence[Atom], ranges: Sequence[Range], covers: Sequence[Stack]
) -> list[tuple[int, int]]:
    """Return the place in the translation and the index of each atom, in their new order.

    The offsets of the atoms and the indices of the ranges count from the beginning of the sentence.
    covers: numbers of the ranges around each target word.
    """
    places = [_find_place(sentence, atom) for atom in atoms]
    for index, place in _place_breaks(sentence, atoms):
        places[index] = place
    fixed = set()
    for number, (start, end) in enumerate(ranges):
        inner = [index for index, stack in enumerate(covers) if str(number) in stack]
        borders = (
            [(start, (sentence.target[inner[0]][0], 1)), (end, (sentence.target[inner[-1]][1], 0))] if inner else []
        )
        for index, place in borders:
            if 0 <= index < len(atoms):
                places[index] = place
                fixed.add(index)
    for start, end in ranges:
        for index in range(max(start + 1, 0), min(end, len(atoms))):
            if index not in fixed:
                places[index] = max(places[index], places[start]) if start in fixed else places[index]
                places[index] = min(places[index], places[end]) if end in fixed else places[index]
    _keep_order(sentence, atoms, places, fixed)
    return [(places[index][0], index) for index in sorted(range(len(atoms)), key=places.__getitem__)]


def _keep_order(sentence: AlignedSentence, atoms: Sequence[Atom], places: list[_Place], fixed: Collection[int]) -> None:
    """Put atoms without words between them in their order. fixed: indices of those that stay."""
    beside = [not has_words(sentence.text[left.offset : right.offset]) for left, right in pairwise(atoms)]
    for index in reversed(range(len(beside))):
        if beside[index] and index not in fixed:
            places[index] = min(places[index], places[index + 1])
    for index, is_beside in enumerate(beside, 1):
        if is_beside and index not in fixed:
            places[index] = max(places[index], places[index - 1])


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
    best: list[int] = []
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        if len(run) > len(best):
            best = run
    return best[-1]


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
    """Yield the index and the place of each line break, and of the atoms with only spaces between them and a break."""
    groups: list[list[int]] = []
    for index, atom in enumerate(atoms):
        if groups and not sentence.text[atoms[groups[-1][-1]].offset : atom.offset].strip():
            groups[-1].append(index)
        else:
            groups.append([index])
    groups = [group for group in groups if any(atoms[index].codes[0].is_break for index in group)]
    others = [index for index, atom in enumerate(atoms) if not atom.codes[0].is_break] or [len(atoms), -1]
    gaps = _find_gaps(sentence)
    chains: list[_Chain] = [(0.0, ())] * len(gaps)
    for group in groups:
        offset = atoms[group[0]].offset
        costs = _count_moves(sentence, offset, gaps)
        costs[0] += _EMPTY_LINE * (has_words(sentence.text[:offset]) and others[0] >= group[0])
        costs[-1] += _EMPTY_LINE * (has_words(sentence.text[offset:]) and others[-1] <= group[-1])
        chains = list(_extend(chains, costs, is_first=group is groups[0]))
    path = min(chains, key=_cost)[1]
    for group in reversed(groups):
        path, gap = path
        end = sentence.target[gaps[gap] - 1][1] if gaps[gap] else 0
        start = sentence.target[gaps[gap]][0] if gaps[gap] < len(sentence.target) else len(sentence.translation)
        space = sentence.translation.find(SPACE, end, start)
        last = max((index for index in group if atoms[index].codes[0].is_space), default=-1)
        for index in group:
            yield index, (space if space >= 0 and index <= last else start, 0)


def _find_gaps(sentence: AlignedSentence) -> list[int]:
    """Return the numbers of target words after which a line may end. The first and the last have no words outside."""
    text, target = sentence.translation, sentence.target
    letters = [number for number, span in enumerate(target) if has_words(text[slice(*span)])] or [0]
    return [
        letters[0],
        *(
            gap
            for gap in range(letters[0] + 1, letters[-1] + 1)
            for end, start in [(target[gap - 1][1], target[gap][0])]
            if text[start] not in _CLOSING
            and (end < start or (text[start].isalnum() and (text[end - 1].isalnum() or text[end - 1] in _CLOSING)))
        ),
        letters[-1] + 1,
    ]


def _count_moves(sentence: AlignedSentence, offset: int, gaps: Sequence[int]) -> list[float]:
    """Return for each gap how many words change their side of a break. offset: of the break in the text.

    The punctuation before the break counts as two, and the word before it breaks ties.
    """
    count = bisect_left(sentence.words, (offset, offset))
    text, before = sentence.translation, sentence.text[:offset].rstrip()[-1:]
    moves = [
        0 if index is None or not text[start].isalnum() else 1 if index >= count else -1
        for index, (start, _) in zip(sentence.aligned, sentence.target, strict=True)
    ]
    crossings = list(accumulate(moves, initial=moves.count(-1)))
    costs = []
    for gap in gaps:
        keeps_mark = gap > 0 and not before.isalnum() and text[sentence.target[gap - 1][1] - 1] == before
        follows_word = gap > 0 and sentence.aligned[gap - 1] == count - 1
        costs.append(crossings[gap] + 2.1 - 2 * keeps_mark - 0.1 * follows_word)
    return costs


def _extend(chains: Sequence[_Chain], costs: Sequence[float], is_first: bool) -> Iterator[_Chain]:
    """Yield for each gap the best chain of breaks that ends with a break there. chains: those without this break."""
    best: _Chain = (inf, ())
    for index, (chain, cost) in enumerate(zip(chains, costs, strict=True)):
        total, path = chain if is_first else min(best, (chain[0] + _EMPTY_LINE, chain[1]), key=_cost)
        yield total + cost, (path, index)
        best = min(best, chain, key=_cost)


def _cost(chain: _Chain) -> float:
    return chain[0]
