"""Source and translation as XLIFF 2.1 for translators' tools: written, and read after people have edited it.

A unit of XLIFF has the name u1, u2, ... of its place in the file, and codes have the names c1, c2, ... of their place
in the source; a copy of c1, or c1 in another segment than in the source, is c1-2. The markup of c1 is the data d1,
that of its end e1. Tools keep these names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from docmt.core.errors import DocmtError
from docmt.formats.bilingual_files import BilingualUnit, CodeTable, Token, make_key, split_unit
from docmt.formats.language_codes import format_language_tag
from docmt.formats.units import Code, Unit, match_codes
from docmt.formats.xml_tree import ILLEGAL, Element, Text, XmlFile, escape_text, quote_attribute

_CORE = "urn:oasis:names:tc:xliff:document:2.0"
_METADATA = "urn:oasis:names:tc:xliff:metadata:2.0"
_ALIASES = {"urn:oasis:names:tc:xliff:document:2.2": _CORE}
_NAME = re.compile(r"([cde])(\d{1,9})(-\d+)?")


class _InlineWriter:
    """Writer of the codes of one language of a unit: pairs within a piece as pc, others as sc and ec."""

    def __init__(self, table: CodeTable, counts: Counter[int]) -> None:
        """counts: names of both languages so far, by number."""
        self._table, self._counts = table, counts
        self._opened: list[tuple[int, str, bool]] = []  # number, name, whether written as pc
        self._source_names: list[tuple[int, str]] = []  # those that are not yet in the target
        self.names: list[tuple[int, str]] = []
        """numbers and names of the codes of the last piece"""

    def write(self, tokens: Sequence[Token], source_names: Iterable[tuple[int, str]] = ()) -> str:
        """Return the next piece. source_names: of its source; XLIFF 2 wants other names for all other codes."""
        self._source_names, self.names = list(source_names), []
        closed = match_codes(tokens)
        return "".join(
            _write_text(token) if isinstance(token, str) else self._write_code(token, index in closed)
            for index, token in enumerate(tokens)
        )

    def _write_code(self, code: Code, is_closed: bool) -> str:
        if code.kind == "close":
            number, name, is_closed = self._opened.pop()
            if is_closed:
                return "</pc>"
            return f'<ec startRef="{name}" dataRef="e{number}"{_write_rights(code)}/>'
        number = self._table.numbers[make_key(code)]
        name = self._find_name(number)
        if code.kind == "single":
            return f'<ph id="{name}" dataRef="d{number}" canCopy="no"/>'
        self._opened.append((number, name, is_closed))
        if is_closed:
            return f'<pc id="{name}" dataRefStart="d{number}" dataRefEnd="e{number}"{_write_rights(code)}>'
        return f'<sc id="{name}" dataRef="d{number}"{_write_rights(code)}/>'

    def _find_name(self, number: int) -> str:
        """Return the name of the next code with a number."""
        for pair in self._source_names:
            if pair[0] == number:
                self._source_names.remove(pair)
                return pair[1]
        self._counts[number] += 1
        name = f"c{number}" if self._counts[number] == 1 else f"c{number}-{self._counts[number]}"
        self.names.append((number, name))
        return name


def _write_rights(code: Code) -> str:
    return "" if code.can_copy else ' canCopy="no"'


def _write_text(text: str) -> str:
    """Return character data with elements for the characters that XML cannot hold."""
    parts = re.split(f"({ILLEGAL.pattern})", text)
    return "".join(
        f'<cp hex="{ord(part):04X}"/>' if number % 2 else escape_text(part) for number, part in enumerate(parts)
    )


def write_xliff(
    units: Sequence[BilingualUnit], original: str, format: str, source_language: str, target_language: str
) -> bytes:
    """Return an XLIFF 2.1 file of all units of a file, in their order.

    original: path of the file. format: its name in `docmt.documents.input_formats`. A sentence without a translation
    is a segment without a target. Equal input gives equal bytes.
    """
    head = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<xliff xmlns="{_CORE}" xmlns:mda="{_METADATA}" version="2.1"'
        f' srcLang="{format_language_tag(source_language)}" trgLang="{format_language_tag(target_language)}">\n'
        f'<file id="f1" original={quote_attribute(original)} xml:space="preserve">\n'
        f'<mda:metadata><mda:metaGroup category="docmt"><mda:meta type="format">{escape_text(format)}</mda:meta>'
        "</mda:metaGroup></mda:metadata>\n"
    )
    body = "".join(_write_unit(f"u{number}", unit) for number, unit in enumerate(units, 1))
    body = body or '<group id="g1"/>\n'  # a file without a unit or group would break the rules of XLIFF
    return f"{head}{body}</file>\n</xliff>\n".encode()


def _write_unit(name: str, unit: BilingualUnit) -> str:
    table = CodeTable()
    table.add(unit.source)
    table.add(unit.target)
    counts: Counter[int] = Counter()
    source, target = _InlineWriter(table, counts), _InlineWriter(table, counts)
    pairs = split_unit(unit)
    is_translated = any(pair.sentence and pair.sentence.has_translation for pair in pairs)
    sources = [(source.write(pair.source), source.names) for pair in pairs]
    segments, groups = [], []
    for number, (pair, (text, names)) in enumerate(zip(pairs, sources, strict=True), 1):
        content = f"<source>{text}</source>"
        translation = f"<target>{target.write(pair.target, names)}</target>" if is_translated else ""
        if pair.sentence is None or pair.sentence.has_translation or not _is_balanced(pair.target):
            content += translation  # without it, pairs of other segments would have no beginning or end
        if pair.sentence is None:
            segments.append(f"<ignorable>{content}</ignorable>\n")
            continue
        state = "translated" if pair.sentence.has_translation else "initial"
        segments.append(f'<segment id="s{number}" state="{state}">{content}</segment>\n')
        if pair.sentence.score is not None:
            meta = f'<mda:meta type="score">{pair.sentence.score:.4f}</mda:meta>'
            groups.append(f'<mda:metaGroup category="s{number}">{meta}</mda:metaGroup>')
    title = f" name={quote_attribute(unit.id)}" if unit.id else ""
    metadata = f"<mda:metadata>{''.join(groups)}</mda:metadata>\n" if groups else ""
    return f'<unit id="{name}"{title}>\n{metadata}{_write_data(table)}{"".join(segments)}</unit>\n'


def _is_balanced(tokens: Sequence[Token]) -> bool:
    """Return whether all pairs of a piece begin and end in it."""
    ends = sum(isinstance(token, Code) and token.kind != "single" for token in tokens)
    return ends == 2 * len(match_codes(tokens))


def _write_data(table: CodeTable) -> str:
    data = []
    for code, number in table.numbers.items():
        data.append(f'<data id="d{number}">{_write_text(code.content)}</data>')
        if code.kind == "open":
            data.append(f'<data id="e{number}">{_write_text(table.ends[number])}</data>')
    return f"<originalData>{''.join(data)}</originalData>\n" if data else ""


@dataclass(frozen=True)
class _Mark:
    """A code that was read; number 0 for one that docmt did not write."""

    kind: str
    number: int


@dataclass(frozen=True)
class XliffUnit:
    """The contents of a unit that was read."""

    line: int
    source: list[str | _Mark]
    target: list[str | _Mark]
    """with the source of the segments that have no target"""
    untranslated: int
    """number of segments without a target"""
    segments: int


@dataclass(frozen=True)
class XliffTargets:
    """An XLIFF file that was read, see `apply_targets`."""

    path: str
    original: str
    format: str
    source_language: str
    target_language: str
    units: Mapping[str, XliffUnit]
    """by name: u1, u2, ..."""


def read_xliff_targets(data: bytes, path: str) -> XliffTargets:
    """Return the translations of a file that `write_xliff` wrote and people's tools edited.

    Prefixes, states, notes and the borders of segments may have changed. Raises DocmtError for other files.
    """
    file = XmlFile(data, path, aliases=_ALIASES)
    files = [each for each in file.root.elements if each.name == f"{{{_CORE}}}file"]
    if file.root.name != f"{{{_CORE}}}xliff" or len(files) != 1:
        raise DocmtError(f"{path} is not an XLIFF 2 file with one <file>. Write one with docmt extract.")
    metas = files[0].iter(f"{{{_METADATA}}}meta")
    units: dict[str, XliffUnit] = {}
    line, position = 1, 0
    for unit in files[0].iter(f"{{{_CORE}}}unit"):
        line += file.text.count("\n", position, unit.start)
        position = unit.start
        name = unit.attributes.get("id", "")
        if name in units:
            raise DocmtError(f"{path}, line {line}: unit {name} is in the file twice. Remove one of them.")
        units[name] = _read_unit(unit, line, path)
    return XliffTargets(
        path,
        files[0].attributes.get("original", ""),
        next((meta.text() for meta in metas if meta.attributes.get("type") == "format"), ""),
        file.root.attributes.get("srcLang", "").removeprefix("und"),
        file.root.attributes.get("trgLang", "").removeprefix("und"),
        units,
    )


def _read_unit(unit: Element, line: int, path: str) -> XliffUnit:
    source: list[str | _Mark] = []
    targets: list[tuple[int, list[str | _Mark]]] = []
    untranslated = segments = 0
    place = f"{path}, line {line}"
    for piece in unit.elements:
        if piece.name not in (f"{{{_CORE}}}segment", f"{{{_CORE}}}ignorable"):
            continue
        content = _read_inline(piece.find(f"{{{_CORE}}}source"), place)
        source += content
        element = piece.find(f"{{{_CORE}}}target")
        target = _read_inline(element, place)
        is_missing = element is None
        if piece.name == f"{{{_CORE}}}segment":
            is_initial = piece.attributes.get("state", "initial") == "initial"
            is_copy = bool(content) and (not target or _clean(target) == _clean(content))
            is_missing = is_missing or (is_initial and is_copy)
            segments += 1
            untranslated += is_missing
        order = element.attributes.get("order", "") if element else ""
        number = int(order) if re.fullmatch(r"[0-9]{1,9}", order) else len(targets) + 1
        targets.append((number, content if is_missing else target))
    targets.sort(key=lambda pair: pair[0])
    return XliffUnit(line, source, [token for _, tokens in targets for token in tokens], untranslated, segments)


def _read_inline(element: Element | None, place: str) -> list[str | _Mark]:
    """Return the text and the codes of a source or target."""
    tokens: list[str | _Mark] = []
    for node in element.children if element else ():
        if isinstance(node, Text):
            tokens.append(node.value)
            continue
        kind = node.name.removeprefix(f"{{{_CORE}}}")
        if kind == "cp":
            tokens.append(_read_character(node.attributes.get("hex", ""), place))
        elif kind in ("ph", "sc", "ec"):
            tokens.append(_Mark({"ph": "single", "sc": "open", "ec": "close"}[kind], _find_number(node)))
        elif kind == "pc":
            number = _find_number(node)
            tokens += [_Mark("open", number), *_read_inline(node, place), _Mark("close", number)]
        else:
            tokens += _read_inline(node, place)
    return [token for token in tokens if token != ""]


def _read_character(code: str, place: str) -> str:
    try:
        return chr(int(code, 16))
    except (ValueError, OverflowError) as error:
        raise DocmtError(f"{place}: <cp hex={code!r}/> is not a character. Mend or remove it.") from error


def _find_number(element: Element) -> int:
    """Return the number of a code; 0 if docmt did not write it. Copies that tools make keep the data of the code."""
    for attribute in ("dataRef", "dataRefStart", "copyOf", "id", "startRef"):
        if match := _NAME.fullmatch(element.attributes.get(attribute, "")):
            return int(match[2])
    return 0


def apply_targets(units: Sequence[Unit], targets: XliffTargets) -> tuple[list[Unit], list[str]]:
    """Return the translations of all units of the original file, and warnings.

    Codes that a translation lacks are put at its end, those that the source does not have are left out, and units
    without a translation stay. Raises DocmtError if `units` are not those that the XLIFF file was written for.
    """
    names = {f"u{number}": unit for number, unit in enumerate(units, 1)}
    for name, read in targets.units.items():
        if name not in names or _clean(read.source) != names[name].text.split():
            raise DocmtError(
                f"{targets.path}, line {read.line}: unit {name} is not in the original file, or has another source"
                " there. Merge with the file that was extracted, unchanged, and with the same --protect."
            )
    translated, warnings, untranslated = [], [], 0
    for name, unit in names.items():
        edited = targets.units.get(name)
        if edited is None or (edited.segments and edited.untranslated == edited.segments):
            translated.append(unit)
            untranslated += 1
            continue
        merger = _CodeMerger(unit)
        translated.append(merger.merge(edited.target))
        problems = list(merger.problems)
        if edited.untranslated:
            problems.append(f"{edited.untranslated} of {edited.segments} segments have no translation and stay")
        warnings += [f"{targets.path}, line {edited.line}: unit {name}: {problem}" for problem in problems]
    if untranslated:
        warnings.append(f"{targets.path}: units without a translation, which stay: {untranslated} of {len(units)}")
    return translated, warnings


def _clean(tokens: Iterable[str | _Mark]) -> list[str]:
    return "".join(token for token in tokens if isinstance(token, str)).split()


class _CodeMerger:
    """Puts the codes of a source unit into a translation that was read."""

    def __init__(self, unit: Unit) -> None:
        self.problems: list[str] = []
        self._unit = unit
        self._table = CodeTable()
        self._table.add(unit)
        self._by_number = {number: code for code, number in self._table.numbers.items()}
        self._free = Counter(make_key(code) for code in unit.codes if code.kind == "single" or not code.can_copy)
        self._codes: list[Code] = []
        self._opened: list[int] = []
        self._length = 0

    def merge(self, tokens: Iterable[str | _Mark]) -> Unit:
        """Return the unit."""
        parts, dropped = [], 0
        for token in tokens:
            if isinstance(token, str):
                parts.append(token)
                self._length += len(token)
            elif not self._add(token):
                dropped += 1
        while self._opened:
            self._close(self._opened[-1])
        if dropped:
            self.problems.append(f"{dropped} codes that the source does not have (so often) were left out")
        self._add_missing()
        return Unit("".join(parts), tuple(self._codes), self._unit.id)

    def _add(self, mark: _Mark) -> bool:
        """Add a code. Return whether it has a place."""
        code = self._by_number.get(mark.number)
        if mark.kind == "close":
            if mark.number in self._opened:
                self._close(mark.number)
            return code is not None
        if code is None or code.kind != mark.kind:
            return False
        if (code.kind == "single" or not code.can_copy) and self._free[code] < 1:
            return False
        self._free[code] -= 1
        self._codes.append(replace(code, offset=self._length))
        if code.kind == "open":
            self._opened.append(mark.number)
        return True

    def _close(self, number: int) -> None:
        """Close a pair. Pairs that were opened in it and go on are closed, and opened again if that is allowed."""
        inner: list[int] = []
        while (top := self._opened.pop()) != number:
            inner.insert(0, top)
            self._append_end(top)
        self._append_end(number)
        for other in inner:
            if self._by_number[other].can_copy:
                self._codes.append(replace(self._by_number[other], offset=self._length))
                self._opened.append(other)

    def _append_end(self, number: int) -> None:
        code = self._by_number[number]
        self._codes.append(Code(self._length, "close", code.id, self._table.ends[number], code.can_copy))

    def _add_missing(self) -> None:
        present = Counter((code.id, code.kind == "single") for code in self._codes)
        contents = []
        for code in self._unit.codes:
            key = code.id, code.kind == "single"
            if code.kind == "close" or present[key] > 0:
                present[key] -= code.kind == "single"
                continue
            number = self._table.numbers[make_key(code)]
            self._codes.append(replace(code, offset=self._length))
            contents.append(code.content)
            if code.kind == "open":
                self._append_end(number)
                present[key] += 1
        if contents:
            self.problems.append(f"codes that the translation lacks stand at its end: {' '.join(contents)}")
