"""Source and translation as XLIFF for translators' tools: written, and read after people have edited it.

A unit of XLIFF 2.1 has the name u1, u2, ... of its place in the file, and codes have the names c1, c2, ... of their
place in the source; a copy of c1, or c1 in another segment than in the source, is c1-2. The markup of c1 is the data
d1, that of its end e1. Tools keep these names. In XLIFF 1.2, which has states for units only, u1-s2 is a sentence.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Literal

from docmt.core.errors import DocmtError
from docmt.core.grouping import group_pairs
from docmt.formats.bilingual_files import BilingualPair, BilingualUnit, CodeTable, Token, show_tokens, split_unit
from docmt.formats.language_codes import format_language_tag
from docmt.formats.placeholders import is_placeholder
from docmt.formats.units import Code, Unit, match_codes
from docmt.formats.xliff_files import LANGUAGES, parse_xliff, read_states
from docmt.formats.xml_tree import ILLEGAL, Element, Text, escape_text, quote_attribute

_CORE = "urn:oasis:names:tc:xliff:document:2.0"
_METADATA = "urn:oasis:names:tc:xliff:metadata:2.0"
_NAME = re.compile(r"([cde])(\d{1,9})(-\d+)?")
XliffVersion = Literal["2.1", "1.2"]
_HEADS: Mapping[XliffVersion, str] = {
    "2.1": (
        f'<xliff xmlns="{_CORE}" xmlns:mda="{_METADATA}" xmlns:mtc="urn:oasis:names:tc:xliff:matches:2.0"'
        ' version="2.1" srcLang="{source}" trgLang="{target}">\n'
        '<file id="f1" original={original} xml:space="preserve">\n'
        '<mda:metadata><mda:metaGroup category="docmt"><mda:meta type="format">{format}</mda:meta>{revision}'
        "</mda:metaGroup></mda:metadata>\n"
    ),
    "1.2": (
        '<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2">\n<file original={original}'
        ' source-language="{source}" target-language="{target}" datatype="plaintext" xml:space="preserve"{revision}>\n'
        '<header><tool tool-id="docmt" tool-name="docmt"/></header>\n<body>\n'
    ),
}
_REVISIONS: Mapping[XliffVersion, str] = {"2.1": '<mda:meta type="revision">{}</mda:meta>', "1.2": ' build-num="{}"'}
_CODES: Mapping[XliffVersion, Mapping[str, str]] = {
    "2.1": {
        "single": '<ph id="{name}" dataRef="d{number}" canCopy="no"/>',
        "open": '<pc id="{name}" dataRefStart="d{number}" dataRefEnd="e{number}"{rights}>',
        "close": "</pc>",
        "start": '<sc id="{name}" dataRef="d{number}"{rights}/>',
        "end": '<ec startRef="{name}" dataRef="e{number}"{rights}/>',
    },
    "1.2": {
        "single": '<x id="{name}"/>',
        "open": '<g id="{name}">',
        "close": "</g>",
        "start": '<it id="{name}" pos="open"/>',
        "end": '<it id="{name}-e" rid="{name}" pos="close"/>',
    },
}
_KINDS = {"ph": "single", "x": "single", "sc": "open", "ec": "close", "it": ""}
_NEW_STATES = ("", "initial", "new", "needs-translation")
_CONFIRMED = {
    "state": re.compile("reviewed|final|signed-off"),
    "approved": re.compile("yes"),
    "confirmed": re.compile("(?i)true|yes|[1-9]"),
    "conf": re.compile(r"Translated|Approved\w+"),
    "status": re.compile(r"(?i)\w*confirmed|proofread|approved|reviewed|finished"),
}
"""Attributes by which people confirm a segment, and their values: of XLIFF, Phrase, SDL Trados, and memoQ."""


class _InlineWriter:
    """Writer of the codes of one language of a unit: pairs within a piece as pc, others as sc and ec."""

    def __init__(self, table: CodeTable, counts: Counter[int], codes: Mapping[str, str]) -> None:
        """counts: names of both languages so far, by number. codes: one of `_CODES`."""
        self._table, self._counts, self._written = table, counts, codes
        self._opened: list[tuple[int, str, bool]] = []  # number, name, whether written as pc
        self.names: dict[int, list[str]] = {}
        """names of the codes of the last piece by their numbers"""

    def write(self, tokens: Sequence[Token], source_names: dict[int, list[str]]) -> str:
        """Return the next piece.

        source_names: of its source; XLIFF 2 wants other names for all other codes. They are taken out when used.
        """
        self._source_names, self.names = source_names, {}
        closed = match_codes(tokens)
        return "".join(
            _write_text(token) if isinstance(token, str) else self._write_code(token, index in closed)
            for index, token in enumerate(tokens)
        )

    def _write_code(self, code: Code, is_closed: bool) -> str:
        if code.kind == "close":
            number, name, is_closed = self._opened.pop()
            kind = "close" if is_closed else "end"
        else:
            number = self._table.find(code)
            name = self._find_name(number)
            kind = "single" if code.kind == "single" else "open" if is_closed else "start"
            if code.kind == "open":
                self._opened.append((number, name, is_closed))
        rights = "" if code.can_copy else ' canCopy="no"'
        return self._written[kind].format(name=name, number=number, rights=rights)

    def _find_name(self, number: int) -> str:
        """Return the name of the next code with a number."""
        if names := self._source_names.get(number):
            return names.pop(0)
        self._counts[number] += 1
        name = f"c{number}" if self._counts[number] == 1 else f"c{number}-{self._counts[number]}"
        self.names.setdefault(number, []).append(name)
        return name


def _write_text(text: str) -> str:
    """Return character data with elements for the characters that XML cannot hold."""
    parts = re.split(f"({ILLEGAL.pattern})", text)
    return "".join(
        f'<cp hex="{ord(part):04X}"/>' if number % 2 else escape_text(part) for number, part in enumerate(parts)
    )


def write_xliff(
    units: Sequence[BilingualUnit],
    original: str,
    format: str,
    source_language: str,
    target_language: str,
    version: XliffVersion = "2.1",
    revision: str = "",
) -> bytes:
    """Return an XLIFF file of all units of a file, in their order; of version 1.2, of their sentences.

    original: path of the file. format: its name in `docmt.documents.input_formats`. revision: of its translations, in
    letters and digits. A sentence without a translation is a segment without a target. Equal input gives equal bytes.
    """
    head = _HEADS[version].format(
        source=format_language_tag(source_language),
        target=format_language_tag(target_language),
        original=quote_attribute(original),
        format=escape_text(format),
        revision=_REVISIONS[version].format(revision) if revision else "",
    )
    write = _write_unit if version == "2.1" else _write_sentences
    body = "".join(write(f"u{number}", unit) for number, unit in enumerate(units, 1))
    # Without a unit or group, the file would break the rules of XLIFF.
    foot = "</body>\n" if version == "1.2" else "" if body else '<group id="g1"/>\n'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}{body}{foot}</file>\n</xliff>\n'.encode()


def _write_pairs(
    unit: BilingualUnit, table: CodeTable, version: XliffVersion
) -> list[tuple[BilingualPair, str, str | None]]:
    """Return the sentences of a unit, and what is between them, with the XLIFF of both sides. table: for the codes."""
    table.add(unit.source)
    table.add(unit.target)
    counts: Counter[int] = Counter()
    source, target = (_InlineWriter(table, counts, _CODES[version]) for _ in range(2))
    pairs = split_unit(unit)
    is_translated = any(pair.sentence and pair.sentence.has_translation for pair in pairs)
    rows: list[tuple[BilingualPair, str, str | None]] = []
    sources = [(source.write(each.source, {}), source.names) for each in pairs]
    for pair, (text, names) in zip(pairs, sources, strict=True):
        written = target.write(pair.target, names) if is_translated else ""
        # Without it, pairs of other segments would have no beginning or end.
        is_kept = pair.sentence is None or pair.sentence.has_translation or not _is_balanced(pair.target)
        rows.append((pair, text, written if is_kept and is_translated else None))
    return rows


def _write_unit(name: str, unit: BilingualUnit) -> str:
    table = CodeTable()
    segments, metadata, matches, notes = [], [], [], []
    for number, (pair, text, written) in enumerate(_write_pairs(unit, table, "2.1"), 1):
        sentence = pair.sentence
        content = f"<source>{text}</source>" + ("" if written is None else f"<target>{written}</target>")
        if sentence is None:
            segments.append(f"<ignorable>{content}</ignorable>\n")
            continue
        state = sentence.state if sentence.has_translation else "initial"
        segments.append(f'<segment id="s{number}" state="{state}">{content}</segment>\n')
        if sentence.has_translation:
            score = "" if sentence.score is None else f'<mda:meta type="score">{sentence.score:.4f}</mda:meta>'
            origin = f'<mda:meta type="origin">{sentence.origin}</mda:meta>'
            metadata.append(f'<mda:metaGroup category="s{number}">{score}{origin}</mda:metaGroup>')
        if (machine := sentence.review.machine) is not None:
            first, second = map(_write_text, (show_tokens(pair.source).strip(), machine))
            both = f"<source>{first}</source><target>{second}</target>"
            head = f'<mtc:match ref="#s{number}" type="mt" origin="docmt" matchQuality="{sentence.review.quality:.2f}">'
            matches.append(f"{head}{both}</mtc:match>")
        if sentence.origin == "memory" and written is not None:
            kind = "icem" if sentence.review.match > 100 else "em"
            head = f'<mtc:match ref="#s{number}" type="{kind}" origin="memory" matchQuality="100">'
            matches.append(f"{head}<source>{text}</source><target>{written}</target></mtc:match>")
        for note in sentence.review.notes:
            notes.append(f'<note appliesTo="target" category="docmt">{escape_text(f"s{number}: {note}")}</note>')
    title = f" name={quote_attribute(unit.id)}" if unit.id else ""
    modules = _enclose("mtc:matches", matches) + _enclose("mda:metadata", metadata) + _enclose("notes", notes)
    return f'<unit id="{name}"{title}>\n{modules}{_write_data(table)}{"".join(segments)}</unit>\n'


def _write_sentences(name: str, unit: BilingualUnit) -> str:
    """Return the sentences of a unit as units of XLIFF 1.2."""
    rows = []
    for number, (pair, text, written) in enumerate(_write_pairs(unit, CodeTable(), "1.2"), 1):
        if (sentence := pair.sentence) is None:
            continue
        state, content = sentence.state, f"<source>{text}</source>"
        if written is not None and sentence.has_translation:
            is_raw = state == "translated" and sentence.origin == "machine"
            mark = 'needs-review-translation" state-qualifier="mt-suggestion' if is_raw else state
            mark += '" state-qualifier="exact-match' * (sentence.origin == "memory")
            content += f'<target state="{mark}">{written}</target>'
        for note in sentence.review.notes:
            content += f'<note from="docmt" annotates="target">{escape_text(note)}</note>'
        if (machine := sentence.review.machine) is not None:
            head = f'<alt-trans match-quality="{sentence.review.quality:.0f}%" origin="docmt" tool-id="docmt">'
            content += f"{head}<target>{escape_text(machine)}</target></alt-trans>"
        if sentence.origin == "memory" and written is not None:
            head = f'<alt-trans match-quality="{sentence.review.match}%" origin="memory">'
            content += f"{head}<target>{written}</target></alt-trans>"
        approved = ' approved="yes"' if state == "final" else ""
        rows.append(f'<trans-unit id="{name}-s{number}"{approved}>{content}</trans-unit>\n')
    return f'<group id="{name}">\n{"".join(rows)}</group>\n' if rows else ""


def get_text(tokens: Iterable[Token | Mark]) -> str:
    """Return the text without its codes."""
    return "".join(token for token in tokens if isinstance(token, str))


def _enclose(name: str, contents: Sequence[str]) -> str:
    return f"<{name}>{''.join(contents)}</{name}>\n" if contents else ""


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
class Mark:
    """A code that was read; number 0 for one that docmt did not write."""

    kind: str
    number: int


@dataclass(frozen=True)
class XliffPiece:
    """A segment, or what is between two of them."""

    source: list[str | Mark]
    target: list[str | Mark]
    """that of the source if there is no translation"""
    is_segment: bool
    is_missing: bool
    """whether it has no translation"""
    is_confirmed: bool
    """whether people have found the translation right"""


@dataclass
class XliffUnit:
    """The contents of a unit that was read."""

    line: int
    pieces: list[XliffPiece] = field(default_factory=list)


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
    revision: str = ""
    """see `write_xliff`"""


def read_xliff_targets(data: bytes, path: str, versions: str = "2") -> XliffTargets:
    """Return the translations of a file that `write_xliff` wrote and people's tools edited.

    versions: of XLIFF that are read, 2 or 12. Prefixes, states, notes and the borders of segments may have changed.
    Raises DocmtError for other files.
    """
    file, version = parse_xliff(data, path)
    files = [each for each in file.root.elements if each.name == "file"]
    if not version or version not in versions or len(files) != 1:
        name = "an XLIFF file" if "1" in versions else "an XLIFF 2 file"
        raise DocmtError(f"{path} is not {name} with one <file>. Write one with docmt extract.")
    is_old = version == "1"
    head, names = files[0] if is_old else file.root, LANGUAGES[is_old]
    metas = {meta.attributes.get("type"): meta.text() for meta in files[0].iter(f"{{{_METADATA}}}meta")}
    units: dict[str, XliffUnit] = {}
    ids: set[str] = set()
    line, position = 1, 0
    for unit in files[0].iter("trans-unit" if is_old else "unit"):
        line += file.text.count("\n", position, unit.start)
        position = unit.start
        if (id := unit.attributes.get("id", "")) in ids:
            raise DocmtError(f"{path}, line {line}: unit {id} is in the file twice. Remove one of them.")
        ids.add(id)
        name = id.partition("-")[0] if is_old else id
        units.setdefault(name, XliffUnit(line)).pieces += _read_pieces(unit, is_old, f"{path}, line {line}")
    return XliffTargets(
        path,
        files[0].attributes.get("original", ""),
        metas.get("format", ""),
        head.attributes.get(names[0], "").removeprefix("und"),
        head.attributes.get(names[1], "").removeprefix("und"),
        units,
        metas.get("revision") or files[0].attributes.get("build-num", ""),
    )


def _read_pieces(unit: Element, is_old: bool, place: str) -> list[XliffPiece]:
    """Return the pieces of a unit: one of XLIFF 1.2. The target of each is the one at its place in the order."""
    parts = [unit] if is_old else [each for each in unit.elements if each.name in ("segment", "ignorable")]
    sources = [_read_inline(part.find("source"), place) for part in parts]
    targets: list[tuple[int, list[str | Mark], bool, bool]] = []
    for part, content in zip(parts, sources, strict=True):
        element = part.find("target")
        target = _read_inline(element, place)
        states = read_states(part, *([element] if element else []))
        is_segment, is_missing = part.name != "ignorable", element is None
        is_confirmed = any(name in states and value.fullmatch(states[name]) for name, value in _CONFIRMED.items())
        if is_segment and states.get("state", "") in _NEW_STATES and not is_confirmed:
            is_missing = is_missing or (bool(content) and (not target or _clean(target) == _clean(content)))
        order = element.attributes.get("order", "") if element else ""
        number = int(order) if re.fullmatch(r"[0-9]{1,9}", order) else len(targets) + 1
        targets.append((number, content if is_missing else target, is_missing, is_confirmed))
    targets.sort(key=itemgetter(0))
    pieces = zip(parts, sources, targets, strict=True)
    return [XliffPiece(source, target, part.name != "ignorable", *rest) for part, source, (_, target, *rest) in pieces]


def _read_inline(element: Element | None, place: str) -> list[str | Mark]:
    """Return the text and the codes of a source or target."""
    tokens: list[str | Mark] = []
    for node in element.children if element else ():
        if isinstance(node, Text):
            tokens.append(node.value)
            continue
        if node.name == "cp":
            tokens.append(_read_character(node.attributes.get("hex", ""), place))
        elif node.name in _KINDS:
            tokens.append(Mark(node.attributes.get("pos", _KINDS[node.name]), _find_number(node)))
        elif node.name in ("pc", "g"):
            number = _find_number(node)
            tokens += [Mark("open", number), *_read_inline(node, place), Mark("close", number)]
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
    names = map(element.attributes.get, ("dataRef", "dataRefStart", "copyOf", "rid", "id", "startRef"))
    return next((int(match[2]) for name in names if (match := _NAME.fullmatch(name or ""))), 0)


def apply_targets(units: Sequence[Unit], targets: XliffTargets) -> tuple[list[Unit], list[str]]:
    """Return the translations of all units of the original file, and warnings.

    Codes that a translation lacks are put at its end, those that the source does not have are left out, and units
    without a translation stay. Raises DocmtError if `units` are not those that the XLIFF file was written for.
    """
    names = {f"u{number}": unit for number, unit in enumerate(units, 1)}
    for name, read in targets.units.items():
        source = _clean(token for piece in read.pieces for token in piece.source)
        if name not in names or source != names[name].text.split():
            raise DocmtError(
                f"{targets.path}, line {read.line}: unit {name} is not in the original file, or has another source"
                " there. Merge with the file that was extracted, unchanged, and with the same --protect."
            )
    translated, warnings, untranslated = [], [], 0
    for name, unit in names.items():
        edited = targets.units.get(name)
        missing = [piece.is_missing for piece in edited.pieces if piece.is_segment] if edited else []
        if edited is None or (missing and all(missing)):
            translated.append(unit)
            untranslated += 1
            continue
        merger = _CodeMerger(unit)
        translated.append(merger.merge([token for piece in edited.pieces for token in piece.target]))
        if any(missing):
            merger.problems.append(f"{sum(missing)} of {len(missing)} segments have no translation and stay")
        warnings += [f"{targets.path}, line {edited.line}: unit {name}: {problem}" for problem in merger.problems]
    if untranslated:
        warnings.append(f"{targets.path}: units without a translation, which stay: {untranslated} of {len(units)}")
    return translated, warnings


def _clean(tokens: Iterable[str | Mark]) -> list[str]:
    return get_text(tokens).split()


class _CodeMerger:
    """Puts the codes of a source unit into a translation that was read."""

    def __init__(self, unit: Unit) -> None:
        self.problems: list[str] = []
        self._unit = unit
        self._table = CodeTable()
        self._table.add(unit)
        self._by_number = {number: code for code, number in self._table.numbers.items()}
        limited = [code for code in unit.codes if code.kind == "single" or not code.can_copy]
        self._free = Counter(replace(code, offset=0) for code in limited)
        self._codes: list[Code] = []
        self._opened: list[int] = []
        self._length = 0

    def merge(self, tokens: Sequence[str | Mark]) -> Unit:
        """Return the unit."""
        parts, dropped = [], 0
        for token in self._find_written(tokens):
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

    def _find_written(self, tokens: Sequence[str | Mark]) -> Iterator[str | Mark]:
        """Yield the tokens, with the codes of placeholders that people wrote as text in place of codes."""
        present = {token.number for token in tokens if isinstance(token, Mark)}
        absent = [each for each in self._table.numbers.items() if each[0].kind == "single" and each[1] not in present]
        texts = ((code.content.strip(), Mark("single", number)) for code, number in absent)
        written = group_pairs(pair for pair in texts if is_placeholder(pair[0]))
        pattern = "|".join(map(re.escape, sorted(written, key=len, reverse=True)))
        for token in tokens:
            parts = re.split(f"({pattern})", token) if isinstance(token, str) and pattern else [token]
            for part in parts:
                marks = written.get(part, []) if isinstance(part, str) else []
                yield marks.pop(0) if marks else part

    def _add(self, mark: Mark) -> bool:
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
            self._codes.append(replace(code, offset=self._length))
            contents.append(code.content)
            if code.kind == "open":
                self._append_end(self._table.find(code))
                present[key] += 1
        if contents:
            self.problems.append(f"codes that the translation lacks stand at its end: {' '.join(contents)}")
