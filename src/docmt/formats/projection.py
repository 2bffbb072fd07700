"""Put the codes of a unit back into its translation.

This is the complete mapping strategy of TransIns (Steffen and van Genabith, EMNLP 2021 demonstrations, section 4.3).
Each source word carries the pairs around it, and each target word takes those of the source word that it is aligned to.
Adjoining words with equal pairs are enclosed together, so nesting is right by construction.
The words of the translation never change.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, takewhile

from docmt.documents.protected_text import find_protected, find_words_and_protected
from docmt.documents.words import Span, find_words, has_words
from docmt.formats.single_codes import OPENING, AlignedSentence, Atom, Range, Stack, find_ranges, place_atoms, touches
from docmt.formats.units import Code, Unit

_APOSTROPHES = frozenset("'’")
Link = tuple[int, int, int, int]
"""start and end of a source word in its sentence, start and end of its target word in the translation"""


@dataclass(frozen=True)
class Passage:
    """A sentence of a unit with its translation."""

    start: int
    end: int
    """characters of the unit's text"""
    target: str
    links: Sequence[Link] | None = None
    """the best source word of every target word first; None: guessed from equal words and order"""


@dataclass
class _Piece:
    """Text with the pairs around it, or an atom."""

    stack: Stack
    text: str = ""
    atom: Atom | None = None


@dataclass
class _Source:
    """A unit read for projection."""

    unit: Unit
    stacks: list[Stack] = field(default_factory=list)
    """of each character"""
    atoms: list[Atom] = field(default_factory=list)
    pairs: dict[str, tuple[Code, Code]] = field(default_factory=dict)
    ranges: list[Range] = field(default_factory=list)


def project_codes(unit: Unit, passages: Sequence[Passage]) -> tuple[Unit, list[Code]]:
    """Return the translated unit, and the codes that had no place and stand at its end.

    passages: the translated sentences of the unit in order, not overlapping. The text between them stays.
    """
    source = _read_codes(unit)
    pieces: list[_Piece] = []
    position, last = 0, 0
    offsets = [atom.offset for atom in source.atoms]
    begins, ends = {each.first for each in source.ranges}, {each.last for each in source.ranges}
    for passage in passages:
        # Before the first word and after the last one, only the beginning and the end of a range are in the sentence.
        stop = bisect_right(offsets, passage.start, lo=last)
        first = next((each for each in range(bisect_left(offsets, passage.start), stop) if each in begins), stop)
        _copy(source, (position, passage.start), (last, first), pieces)
        stop = bisect_left(offsets, passage.end, lo=first)
        last = max([stop, *(each + 1 for each in range(stop, bisect_right(offsets, passage.end)) if each in ends)])
        pieces += _project(source, passage, first, last)
        position = passage.end
    _copy(source, (position, len(unit.text)), (last, len(source.atoms)), pieces)
    uncopied = [id for id, (start, _) in source.pairs.items() if not start.can_copy]
    _narrow_pairs(pieces, uncopied)
    pieces = _return_atoms(pieces, uncopied)
    present = {id for piece in pieces for id in piece.stack}
    missing = [id for id, (start, _) in source.pairs.items() if id not in present and not start.is_plain]
    pieces += [_Piece((), atom=Atom(source.pairs[id], 0, ())) for id in missing]
    return _join_pieces(source, pieces, unit.id), [source.pairs[id][0] for id in missing]


def _read_codes(unit: Unit) -> _Source:
    source = _Source(unit)
    opened: list[tuple[Code, int, int, Stack]] = []  # open code, atoms and text before it, pairs around it
    stack: Stack = ()
    position = 0
    for code in unit.codes:
        source.stacks += [stack] * (code.offset - position)
        position = code.offset
        if code.kind == "single":
            source.atoms.append(Atom((code,), code.offset, stack))
        elif code.kind == "open":
            opened.append((code, len(source.atoms), position, stack))
            stack = (*stack, code.id)
        else:
            start, atoms, begin, stack = opened.pop()
            if len(source.atoms) == atoms and not unit.text[begin:position].strip():
                source.stacks[begin:] = [stack] * (position - begin)
                source.atoms.append(Atom((start, code), begin, stack))
            else:
                source.pairs.setdefault(code.id, (start, code))
    source.stacks += [stack] * (len(unit.text) - position)
    source.ranges = find_ranges(unit.text, source.atoms)
    return source


def find_enclosing_codes(unit: Unit) -> set[Code]:
    """Return the single codes that enclose the words which they touch, as {0} and {1} do in {0}words{1}."""
    source, codes = _read_codes(unit), set[Code]()
    for each in source.ranges:
        inner = [source.atoms[index] for index in (each.first, each.last) if 0 <= index < len(source.atoms)]
        is_part = each.end - each.start == 1  # of a word: {width}x{height}
        if len(inner) < 2 or (not is_part and touches(unit.text, inner[0])[1] and touches(unit.text, inner[1])[0]):
            codes.update(code for atom in inner for code in atom.codes)
    return codes


def _copy(source: _Source, text: tuple[int, int], atoms: tuple[int, int], pieces: list[_Piece]) -> None:
    """Add the text and the atoms of a part between sentences."""
    atom, last = atoms
    for position in range(text[0], text[1] + 1):
        while atom < last and source.atoms[atom].offset <= position:
            pieces.append(_Piece(source.atoms[atom].stack, atom=source.atoms[atom]))
            atom += 1
        if position < text[1]:
            pieces.append(_Piece(source.stacks[position], source.unit.text[position]))


def _project(source: _Source, passage: Passage, first: int, last: int) -> list[_Piece]:
    """Return the pieces of a translated sentence. first, last: its atoms."""
    text = source.unit.text[passage.start : passage.end]
    stacks = source.stacks[passage.start : passage.end]
    atoms = [replace(atom, offset=atom.offset - passage.start) for atom in source.atoms[first:last]]
    visible = {stack for stack, character in zip(stacks, text, strict=True) if not character.isspace()}
    if len(visible) == 1 and not atoms:
        return [_Piece(visible.pop(), passage.target)]
    whole = _find_undivided(text, stacks, {atom.offset for atom in atoms})
    words, target = (find_words_and_protected(each, whole) for each in (text, passage.target))
    if not words or not target:
        after = [_Piece(atom.stack, atom=atom) for atom in atoms]
        outer = max(stacks, key=len, default=()) if passage.target.strip() else ()
        return [_Piece(outer, passage.target), *after]
    links = guess_links(text, passage.target) if passage.links is None else passage.links
    sentence = AlignedSentence(text, words, passage.target, target, _align(words, target, links))
    target_stacks = _map_stacks(sentence, [max(stacks[start:end], key=len) for start, end in words])
    plain = [id for id, (start, _) in source.pairs.items() if start.is_plain]
    names = {id: re.split(r"[\s>]", start.content)[0] for id, (start, _) in source.pairs.items() if not start.can_copy}
    aligned = _align_whole(sentence)
    _restore_lost([stacks[start:end] for start, end in words], target_stacks, aligned, plain, names)
    covers = []
    for each in source.ranges:
        if each.start < passage.end and passage.start < each.end:
            inside = _find_inside(sentence, each.start - passage.start, each.end - passage.start)
            covers.append((each.first - first, each.last - first, inside))
    borders: dict[str, Span] = {}  # of the pairs that are not copied
    for (start, end), stack in zip(target, target_stacks, strict=True):
        borders |= {id: (borders.get(id, (start, end))[0], end) for id in stack if id in names}
    placed = ((place, atoms[index]) for place, index in place_atoms(sentence, atoms, covers))
    queue = [(_leave_pairs(place, atom, stacks, borders), atom) for place, atom in placed]
    queue.sort(key=lambda each: each[0])
    return list(_cut(passage.target, *_split_words(sentence, stacks, target_stacks), queue))


def _leave_pairs(place: int, atom: Atom, stacks: Sequence[Stack], borders: Mapping[str, Span]) -> int:
    """Return the place of an atom outside of the pairs that it touches outside in the source: a note after a link.

    stacks: of the characters of the source. borders: of pairs in the translation.
    """
    for side, near in enumerate((stacks[max(0, atom.offset - 1) : atom.offset], stacks[atom.offset : atom.offset + 1])):
        for id in borders.keys() & set(chain(*near)) - {*atom.stack}:
            start, end = borders[id]
            if start < place < end:
                place = start if side else end
    return place


def _find_inside(sentence: AlignedSentence, start: int, end: int) -> list[int]:
    """Return the target words of a part of the text: at least one."""
    stacks: list[Stack] = [("in",) * (first < end and start < last) for first, last in sentence.words]
    target_stacks = _map_stacks(sentence, stacks)
    _restore_lost([[stack] for stack in stacks], target_stacks, sentence.aligned, (), {})
    return [number for number, stack in enumerate(target_stacks) if stack]


def _find_undivided(text: str, stacks: Sequence[Stack], atoms: set[int]) -> set[str]:
    """Return the protected texts with no code inside. atoms: offsets in the text."""
    spans = (each.span for each in find_protected(text) if len(set(stacks[slice(*each.span)])) == 1)
    return {text[start:end] for start, end in spans if atoms.isdisjoint(range(start + 1, end))}


def _align(words: Sequence[Span], target: Sequence[Span], links: Sequence[Link]) -> list[int | None]:
    """Return the index of the source word of each target word: that of the first link that overlaps both."""
    by_target: list[int | None] = [None] * len(target)
    starts = {position: index for index, (start, end) in enumerate(words) for position in range(start, end)}
    target_indices = {position: index for index, (start, end) in enumerate(target) for position in range(start, end)}
    for first, last, start, end in links:
        index = next((starts[position] for position in range(first, last) if position in starts), None)
        for number in {target_indices[position] for position in range(start, end) if position in target_indices}:
            if by_target[number] is None:
                by_target[number] = index
    return by_target


def _map_stacks(sentence: AlignedSentence, word_stacks: Sequence[Stack]) -> list[Stack]:
    """Return the stack of each target word."""
    text, words, translation = sentence.text, sentence.words, sentence.translation
    target, aligned = sentence.target, sentence.aligned
    stacks = [None if index is None else word_stacks[index] for index in aligned]
    is_word = [has_words(translation[start:end]) for start, end in target]
    mapped = [stack if is_one else None for stack, is_one in zip(stacks, is_word, strict=True)]
    if all(stack is None for stack in mapped):  # no words at all
        mapped = stacks
    last = len(target) - 1
    if mapped[last] is None and not text[words[-1][0]].isalnum():
        mapped[last] = word_stacks[-1]  # the end is aligned with the end
    for number, (start, _) in enumerate(target):
        if mapped[number] is None and number and (before := aligned[number - 1]) is not None:
            # Punctuation after a word takes the stack of the punctuation after the source word.
            following = before + 1
            if following < len(words) and translation[start] == text[words[following][0]]:
                mapped[number] = word_stacks[following]
    filled = _fill_gaps(mapped, [translation[start] in OPENING for start, _ in target])
    for number in reversed(range(len(target) - 2)):
        (start, end), (mark, _), (rest, finish) = target[number : number + 3]
        is_joined = translation[mark] in _APOSTROPHES and end == mark == rest - 1
        is_elided = is_joined and end - start < max(3, finish - rest)
        if is_elided and len(filled[number + 2]) <= len(filled[number]):
            filled[number] = filled[number + 1] = filled[number + 2]  # no pair ends within a word such as c'est
    return filled


def _fill_gaps(stacks: list[Stack | None], opening: Sequence[bool]) -> list[Stack]:
    """Give words without a stack that of their neighbour: opening punctuation that of the next word."""
    filled = list(stacks)
    for number in reversed(range(len(filled) - 1)):
        if filled[number] is None and opening[number]:
            filled[number] = filled[number + 1]
    for number in range(1, len(filled)):
        if filled[number] is None:
            filled[number] = filled[number - 1]
    first = next((stack for stack in filled if stack is not None), ())
    return [first if stack is None else stack for stack in filled]


def _align_whole(sentence: AlignedSentence) -> list[int | None]:
    """Return the alignment of the target words that may stand alone in a pair: no marks, no elided articles.

    Where all are unaligned, they are aligned by their order.
    """
    translation, target = sentence.translation, sentence.target
    words = [number for number, (start, end) in enumerate(target) if has_words(translation[start:end])]
    elided = {each - 2 for each in words if each > 1 and translation[target[each][0] - 1] in _APOSTROPHES}
    whole = {*words} - elided or {*range(len(target))}
    aligned = [index if number in whole else None for number, index in enumerate(sentence.aligned)]
    in_order = [number if number in whole else None for number in range(len(target))]
    return aligned if any(index is not None for index in aligned) else in_order


def _restore_lost(
    words: Sequence[Sequence[Stack]],
    target_stacks: list[Stack],
    aligned: Sequence[int | None],
    plain: Collection[str],
    names: Mapping[str, str],
) -> None:
    """Give pairs that no target word has to the one whose source word is nearest, unless they show nothing.

    words: stacks of the characters of each source word. plain: ids of pairs that show nothing. names: of elements that
    none of the same name may enclose, by id.
    """
    lost: dict[str, dict[int, Stack]] = {}  # stacks with the pair, by source word
    present = {*plain, *chain(*target_stacks)}
    for index, stacks in enumerate(words):
        for stack in stacks:
            for id in stack:
                if id not in present:
                    lost.setdefault(id, {})[index] = stack
    links = [(number, index) for number, index in enumerate(aligned) if index is not None]
    if not links:
        links = [(number, number) for number in range(len(target_stacks))]
    for id, by_word in lost.items():
        _, number, index = min((abs(index - near), number, index) for number, near in links for index in by_word)
        outer = by_word[index]
        inner = tuple(other for other in target_stacks[number] if other not in outer)
        if id not in target_stacks[number] and names.get(id) not in [names.get(other, other) for other in inner]:
            target_stacks[number] = (*outer, *inner)


def _cut(
    translation: str, target: Sequence[Span], stacks: Sequence[Stack], queue: list[tuple[int, Atom]]
) -> Iterator[_Piece]:
    """Yield the pieces of a translation: words, what is between them, and atoms at their positions.

    queue: the atoms in their order with their positions.
    """
    borders: list[tuple[int, int, Stack]] = []
    position, previous = 0, stacks[0]
    for (start, end), stack in zip(target, stacks, strict=True):
        if start > position:
            borders.append((position, start, _common([previous, stack])))
        borders.append((start, end, stack))
        position, previous = end, stack
    borders.append((position, len(translation), previous))
    for start, end, stack in borders:
        if translation[start:end].isspace():  # no pair of the words around goes on over codes outside of it
            near = queue[: bisect_right(queue, end, key=lambda each: each[0])]
            stack = _common([stack, *(atom.stack for _, atom in near)])
        while queue and queue[0][0] < end:
            place, atom = queue.pop(0)
            if place > start:
                yield _Piece(stack, translation[start:place])
                start = place
            yield _Piece(atom.stack, atom=atom)
        if end > start:
            yield _Piece(stack, translation[start:end])
    for _, atom in queue:
        yield _Piece(atom.stack, atom=atom)


def _common(stacks: Sequence[Sequence[str]]) -> Stack:
    """Return the longest common beginning."""
    return tuple(same for same, *_ in takewhile(lambda each: len(set(each)) == 1, zip(*stacks, strict=False)))


def _narrow_pairs(pieces: Sequence[_Piece], ids: Sequence[str]) -> None:
    """Leave each of these pairs around one run of pieces only: its longest one that crosses no other of them."""
    narrowed: dict[str, set[int]] = {}
    owners: dict[int, list[str]] = {}  # narrowed pairs by piece
    spans = {id: range(0) for id in ids}
    sizes = dict.fromkeys(ids, 0)
    for index, piece in enumerate(pieces):
        for id in spans.keys() & piece.stack:
            spans[id] = range(spans[id].start if spans[id] else index, index + 1)
            sizes[id] += len(piece.text)
    for id in sorted(ids, key=lambda id: sizes[id]):
        runs = _find_runs(pieces, id, spans[id])
        for name in dict.fromkeys(each for index in spans[id] for each in owners.get(index, ())):
            runs = [part for run in runs for part in _split_crossing(run, narrowed[name])]
        if runs:
            best = max(runs, key=lambda run: _measure_run(pieces, id, run))
            narrowed[id] = set(best)
            outside = [other for other in owners.get(best[0], ()) if narrowed[other] > narrowed[id]]
            for index in best:
                owners.setdefault(index, []).append(id)
            _set_run(pieces, id, narrowed[id], spans[id], outside)
            for other in spans.keys() & pieces[best[0]].stack:  # pairs around this one may be around more pieces now
                first, last = min(spans[other].start, best[0]), max(spans[other].stop, best[-1] + 1)
                spans[other] = range(first, last)


def _measure_run(pieces: Sequence[_Piece], id: str, run: Sequence[int]) -> int:
    """Return the characters of a run, twice with a pair inside of the pair, three times with two, and so on."""
    stacks = [pieces[index].stack for index in run]
    inner = {other for stack in stacks if id in stack for other in stack[stack.index(id) + 1 :]}
    return (1 + len(inner)) * sum(len(pieces[index].text) for index in run)


def _return_atoms(pieces: Sequence[_Piece], ids: Collection[str]) -> list[_Piece]:
    """Return the pieces with each atom outside of its innermost pair with words at the nearest end of this pair.

    ids: of the pairs that are not copied.
    """
    worded = {id for piece in pieces if piece.text for id in piece.stack if id in ids}
    homes = list[str | None]()
    for piece in pieces:
        stack = piece.atom.stack if piece.atom and not piece.atom.codes[0].is_break else ()
        home = next((id for id in reversed(stack) if id in worded), None)
        homes.append(None if home in piece.stack else home)
    spans: dict[str, Span] = {}  # of the pieces that stay
    for index, piece in enumerate(pieces):
        if homes[index] is None:
            spans |= {id: (spans.get(id, (index, index))[0], index) for id in piece.stack if id in worded}
    groups: list[tuple[list[_Piece], list[_Piece], list[_Piece]]] = [([], [], []) for _ in pieces]
    for index, (piece, home) in enumerate(zip(pieces, homes, strict=True)):
        if home is None or piece.atom is None:
            groups[index][1].append(piece)
            continue
        first, last = spans[home]
        near = first if index < first else last
        inner, outer = piece.atom.stack, pieces[near].stack
        piece.stack = (*outer[: outer.index(home) + 1], *inner[inner.index(home) + 1 :])
        groups[near][0 if index < first else 2].append(piece)
    for (before, _, after), beside in zip(groups, pieces, strict=True):  # those in more of its pairs stand nearer to it
        before.sort(key=lambda piece: len(_common([piece.stack, beside.stack])))
        after.sort(key=lambda piece: -len(_common([piece.stack, beside.stack])))
    return [piece for group in groups for part in group for piece in part]


def _find_runs(pieces: Sequence[_Piece], id: str, span: Iterable[int]) -> list[list[int]]:
    """Return the runs of pieces within a pair. Spaces and punctuation in between do not end a run.

    span: indices of pieces from the first one within the pair to the last.
    """
    runs: list[list[int]] = []
    bridge: list[int] | None = None  # pieces since the last one within the pair
    for index in span:
        piece = pieces[index]
        if id in piece.stack:
            if bridge is None:
                runs.append([index])
            else:
                runs[-1] += [*bridge, index]
            bridge = []
        elif bridge is not None and piece.atom is None and not has_words(piece.text):
            bridge.append(index)
        else:
            bridge = None
    return runs


def _split_crossing(run: list[int], other: set[int]) -> list[list[int]]:
    """Return the run, or its parts inside and outside of another one that it crosses."""
    inside = other & set(run)
    if not inside or inside == other or len(inside) == len(run):
        return [run]
    return [list(part) for _, part in groupby(run, key=lambda index: index in other)]


def _set_run(pieces: Sequence[_Piece], id: str, run: set[int], span: Iterable[int], outside: Sequence[str]) -> None:
    """Put a pair around this run of pieces and no others. span: see `_find_runs`. outside: pairs around the run."""
    stacks = [pieces[index].stack for index in sorted(run) if id in pieces[index].stack]
    prefix = _common([stack[: stack.index(id)] for stack in stacks])
    for other in outside:
        if other not in prefix:
            inner = [each for each in stacks[0] if each != id]
            prefix = tuple(inner[: inner.index(other) + 1])
    for index in span:
        piece = pieces[index]
        rest = tuple(other for other in piece.stack if other != id)
        if index in run:
            rest = (*prefix, id, *(other for other in rest if other not in prefix))
        piece.stack = rest


def _join_pieces(source: _Source, pieces: Iterable[_Piece], id: str) -> Unit:
    """Return the unit of pieces: pairs open and close where the stacks of neighbours differ."""
    codes: list[Code] = []
    texts: list[str] = []
    length = 0
    stack: Stack = ()
    for piece in [*pieces, _Piece(())]:
        kept = _common([stack, piece.stack])
        codes += [replace(source.pairs[pair][1], offset=length) for pair in reversed(stack[len(kept) :])]
        codes += [replace(source.pairs[pair][0], offset=length) for pair in piece.stack[len(kept) :]]
        stack = piece.stack
        if piece.atom is not None:
            codes += [replace(code, offset=length) for code in piece.atom.codes]
        texts.append(piece.text)
        length += len(piece.text)
    return Unit("".join(texts), tuple(codes), id)


def guess_links(source: str, target: str) -> list[Link]:
    """Return links for a model without alignment: equal words, then words at the same share of the sentence."""
    words, others = find_words(source), find_words(target)
    if not words or not others:
        return []
    by_text: dict[str, list[Span]] = {}
    for start, end in words:
        by_text.setdefault(source[start:end].casefold(), []).append((start, end))
    links = []
    for number, (start, end) in enumerate(others):
        diagonal = words[min(len(words) - 1, round(number * (len(words) - 1) / max(1, len(others) - 1)))]
        equal = by_text.get(target[start:end].casefold(), [])
        near = bisect_left(equal, diagonal)
        best = min(equal[max(0, near - 1) : near + 1], key=lambda span: abs(span[0] - diagonal[0]), default=diagonal)
        links.append((*best, start, end))
    return links


def _split_words(
    sentence: AlignedSentence, stacks: Sequence[Stack], target_stacks: Sequence[Stack]
) -> tuple[list[Span], list[Stack]]:
    """Return the target words with their stacks, cut where the source word has the same letters around a border.

    Pairs may be around a part of a word: H<sub>2</sub>O.

    stacks: ids of the pairs around each source character.
    """
    spans: list[Span] = []
    new: list[Stack] = []
    for (start, end), stack, index in zip(sentence.target, target_stacks, sentence.aligned, strict=True):
        letters = [stack] * (end - start)
        first, last = (0, 0) if index is None else sentence.words[index]
        inner = stacks[first:last]
        if len(set(inner)) > 1:
            parts = _map_letters(sentence.text[first:last], inner, sentence.translation[start:end])
            ids, kept = ({id for each in part for id in each} for part in (inner, parts))
            if ids.issuperset(stack) and ids == kept:  # none is lost, none is added
                letters = parts
        for each, group in groupby(letters):
            size = len(list(group))
            spans.append((start, start + size))
            new.append(each)
            start += size
    return spans, new


def _map_letters(word: str, stacks: Sequence[Stack], other: str) -> list[Stack]:
    """Return the stack of each letter of another word; the letters between equal beginnings and ends have one."""
    before = len(_common([word, other]))
    after = len(_common([word[before:][::-1], other[before:][::-1]]))
    if 3 * (before + after) < max(len(word), len(other)):  # another word
        before = after = 0
    middle = stacks[before : len(stacks) - after] or stacks[max(0, before - 1) : before + 1]
    inner = [max(middle, key=len)] * (len(other) - before - after)
    return [*stacks[:before], *inner, *stacks[len(stacks) - after :]]
