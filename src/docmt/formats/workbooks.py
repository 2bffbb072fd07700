"""Workbooks (xlsx, ECMA-376 part 1, section 18): texts of cells in the order of the sheets, comments and drawings.

A shared string is one unit, however many cells have it. Formulas, names of sheets and whatever formulas, tables and
pivot tables refer to by its text stay as they are.

Charts of documents and presentations (section 21.2) repeat texts of a workbook that their package holds. They are
translated in both, so that a chart whose data are edited keeps its labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from docmt.core.errors import DocmtError
from docmt.documents.words import has_letters
from docmt.formats.office_packages import OfficeFile, OfficePart
from docmt.formats.office_runs import RunBuilder, format_key
from docmt.formats.patched_text import Replacement
from docmt.formats.units import ReadConfig, Skipped, Unit, UnitBuilder
from docmt.formats.xml_tree import ILLEGAL, Element, escape_text, set_attribute, unescape
from docmt.formats.zip_package import ZipPackage

_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.{}+xml"
_MAIN_TYPES = (_TYPE.format("sheet.main"), _TYPE.format("template.main"))
_LABELLED = (_TYPE.format("pivotTable"), "application/vnd.ms-excel.slicer+xml")
_LABELS = ("caption", "rowHeaderCaption", "colHeaderCaption", "grandTotalCaption")
_BUTTON = re.compile(r"<font\b[^<>]*>([^<>]+)</font>")
_TABLE_TYPES = (_TYPE.format("table"), _TYPE.format("pivotCacheDefinition"))
_BEFORE_CALCULATION = ("x:sheets", "x:functionGroups", "x:externalReferences", "x:definedNames")
_FORMULA_NAMES = frozenset(("f", "formula", "formula1", "formula2"))
_LITERAL = re.compile(r'"((?:[^"]|"")*)"')
_IDENTIFIER = re.compile(r"(?=.*[\d_])[!-~]+|[A-Z]{1,6}|\S+@\S+\.\w+|\w+://\S+|www\.\S+")
"""Texts without spaces that have a digit or an underscore, short ones of capitals, and addresses."""
_PAGE_MARK = re.compile(
    r"&amp;(?:(?P<section>[LCR])|(?P<character>&amp;)|(?:\"|&quot;).{0,200}?(?:\"|&quot;)|K[0-9A-Fa-f+-]{6}|\d+|[A-Za-z])"
)
"""Codes of headers and footers (section 18.3.1.39), as XML."""
_AREA = re.compile(r"([A-Z]{1,3})(\d{1,7})(?::([A-Z]{1,3})(\d{1,7}))?")
_ESCAPED = re.compile(r"(?i)_x((?!d[89a-f])[0-9a-f]{4})_")
"""A character that XML cannot hold, or an underscore before what looks like one (section 22.9.2.19)."""
_CRITERIA = {
    **dict.fromkeys(("x:filter", "x:customFilter"), ("val", "criteria of filters")),
    "x:hyperlink": ("display", "copies of texts of links"),
    "x:cfRule": ("text", "criteria of formats"),
}
"""Attributes that repeat the text of a cell, and what those are called that no cell has."""
CHARTS = ("chart", "chartEx")
"""Relationships to charts, by the last word of their type."""
_MESSAGES = {"promptTitle": 32, "prompt": 255, "errorTitle": 32, "error": 255}
_TIPS = {"x:dataValidation": _MESSAGES, "x14:dataValidation": _MESSAGES, "x:hyperlink": {"tooltip": 255}}
"""Attributes that people read, with the most characters that Excel opens."""


def read(data: bytes, path: str, config: ReadConfig) -> Workbook:
    """Return the units of an xlsx file: cells in the order of sheets, comments, drawings, charts, properties."""
    file = Workbook(data, path, "xlsx")
    file.read_sheets(file.find_main(_MAIN_TYPES, "workbook", "workbook"))
    file.add_properties()
    return file


class Workbook(OfficeFile):
    """An xlsx file that was read."""

    def read_sheets(self, main: str) -> None:
        """Add the texts of the sheets in the order of the workbook."""
        self._main = main
        relationships = self.read_relationships(main)
        shared = next((name for _, kind, name in relationships if kind == "sharedStrings"), None)
        self._strings = self.open_part(shared) if shared else None
        root = self._strings.file.root if self._strings else None
        self._items = dict(enumerate(each for each in root.elements if each.name == "x:si")) if root else {}
        """shared strings that no cell before had"""
        targets = {id: name for id, _, name in relationships}
        ids = [each.attributes.get("r:id", "") for each in self.open_part(main).file.root.iter("x:sheet")]
        sheets = list(dict.fromkeys(targets[id] for id in ids if id in targets))
        self._kept = self._find_kept([main, *sheets])
        for name in sheets:
            self._read_cells(self.open_part(name))
            self._read_tips(self.open_part(name))
            self._read_page_texts(self.open_part(name))
            self._read_related(name)
            self.skip_inserted(name)
        tables = self.find_parts(_TABLE_TYPES[0])
        for part in map(self.open_part, [*sheets, *tables]):
            self._read_criteria(part)
        for element in (each for name in self.find_parts(*_LABELLED) for each in self.open_part(name).file.root.iter()):
            for label in _LABELS:
                self.skip("labels of pivot tables and slicers", element.attributes.get(label, ""))

    def _find_kept(self, names: Sequence[str]) -> dict[str, str]:
        """Return texts that must stay, in lower case, with the reason: headers of tables and values in formulas."""
        kept: dict[str, str] = {}
        for name in names:
            for element in self.open_part(name).file.root.iter():
                if element.local_name in _FORMULA_NAMES:
                    for literal in _LITERAL.findall(element.text()):
                        value = literal.replace('""', '"')
                        # A list of allowed values is one literal, with commas.
                        kept |= dict.fromkeys(map(_fold, (value, *value.split(","))), "values of formulas")
        for name in self.find_parts(*_TABLE_TYPES):
            for element in self.open_part(name).file.root.iter("x:tableColumn", "x:cacheField"):
                for attribute in ("name", "totalsRowLabel"):
                    kept[_fold(_unescape(element.attributes.get(attribute, "")))] = "table headers"
        return kept

    def _read_cells(self, part: OfficePart) -> None:
        """Add the strings of a sheet that no cell before had."""
        computed: list[tuple[int, int, int, int]] = []
        for cell in part.file.root.iter("x:c"):
            kind, inline, value = cell.attributes.get("t"), cell.find("x:is"), cell.find("x:v")
            if formula := cell.find("x:f"):
                self.skipped.append(Skipped("formulas", formula.text()))
                if area := formula.attributes.get("ref"):
                    computed.append(_read_area(area))
            elif kind == "inlineStr" and inline:
                self._add_string(part, inline)
            elif kind == "str" and value and not _is_within(cell.attributes.get("r", ""), computed):
                text = _unescape(value.text())
                if self._is_translated(text):
                    self.add_text(part, (value.inner_start, value.inner_end), Unit(text), _escape)
            elif kind == "s" and value and self._strings:
                digits = value.text().strip()
                item = self._items.pop(int(digits), None) if re.fullmatch("[0-9]{1,9}", digits) else None
                if item:
                    self._add_string(self._strings, item)

    def _read_tips(self, part: OfficePart) -> None:
        """Add the messages of rules for values, and the tips of links."""
        for element in part.file.root.iter(*_TIPS):
            for name, limit in _TIPS[element.name].items():
                if 1.5 * len(element.attributes.get(name, "")) > limit:  # a translation may be too long
                    self.skip("messages near the limit of Excel", element.attributes[name])
                else:
                    self.add_attribute(part, element, name, limit=limit)

    def _read_criteria(self, part: OfficePart) -> None:
        """Add what a filter looks for, and the copy that a link has, with the units of their cells."""
        units = {unit.text: index for index, unit in reversed([*enumerate(self.units)])}
        for element in part.file.root.iter(*_CRITERIA):
            name, reason = _CRITERIA[element.name]
            value = element.attributes.get(name, "")
            if value in units:
                self.add_attribute(part, element, name, [units[value]])
            elif _fold(value) not in self._kept and not _IDENTIFIER.fullmatch(value.strip()):
                self.skip(reason, value)

    def _read_page_texts(self, part: OfficePart) -> None:
        """Add the left, centre and right parts of headers and footers."""
        for holder in part.file.root.iter("x:headerFooter"):
            for element in holder.elements:
                start = element.inner_start
                for match in _PAGE_MARK.finditer(part.file.text, start, element.inner_end):
                    if match["section"]:
                        self._add_page_text(part, start, match.start())
                        start = match.end()
                self._add_page_text(part, start, element.inner_end)

    def _add_page_text(self, part: OfficePart, start: int, end: int) -> None:
        builder, position, text = UnitBuilder(hold_spaces=True), start, part.file.text
        for match in _PAGE_MARK.finditer(text, start, end):
            builder.add_text(unescape(text[position : match.start()]))
            if match["character"]:
                builder.add_text("&")
            else:
                builder.add_single(str(match.start() - start), match[0])
            position = match.end()
        builder.add_text(unescape(text[position:end]))
        unit = builder.finish()
        if has_letters(unit.text):
            self.add_text(part, (start, end), unit, lambda value: escape_text(value.replace("&", "&&")))

    def _add_string(self, part: OfficePart, item: Element, is_cell: bool = True) -> None:
        """Add a rich or plain string (CT_Rst). is_cell: whether it may be an identifier or a header."""
        text = _unescape("".join(each.text() for each in item.iter("x:t") if not each.is_within("x:rPh")))
        if not self._is_translated(text, is_cell):
            return
        span = (item.inner_start, item.inner_end)
        prefix = item.tag.rpartition(":")[0] + ":" if ":" in item.tag else ""
        runs = [each for each in item.elements if each.name == "x:r"]
        if not runs:
            start, end = f'<{prefix}t xml:space="preserve">', f"</{prefix}t>"
            self.add_text(part, span, Unit(text), lambda value: start + _escape(value) + end)
            return
        builder = RunBuilder(prefix, keep_space=True)
        for child in item.elements:
            form, content = child.find("x:rPr"), child if child.name == "x:t" else child.find("x:t")
            if content and child.name in ("x:r", "x:t"):
                head = f"<{prefix}r>" + (part.raw(form) if form else "")
                builder.add_text(format_key(form), head, _unescape(content.text()))
        self.add_text(part, span, builder.finish(), _escape, builder=builder)

    def _is_translated(self, text: str, is_cell: bool = True) -> bool:
        """Return whether a string is translated. Note a cell that is an identifier or a header as skipped."""
        if not has_letters(text):
            return False
        reason = self._kept.get(_fold(text), "codes and identifiers" if _IDENTIFIER.fullmatch(text.strip()) else "")
        if is_cell and reason:
            self.skipped.append(Skipped(reason, text))
            return False
        return True

    def _read_related(self, name: str) -> None:
        """Add comments and drawings of a sheet, with their charts and SmartArt."""
        for _, kind, target in self.read_relationships(name):
            if target in self.parts:
                continue
            if kind in ("comments", "threadedComment"):
                part = self.open_part(target)
                for element in part.file.root.iter():
                    if element.name == "x:text":
                        self._add_string(part, element, is_cell=False)
                    elif element.name.endswith("/threadedcomments}text"):
                        self.add_element_text(part, element)
            elif kind == "drawing":
                self.read_shapes(self.open_part(target), "xdr:cNvPr")
                related = self.read_relationships(target)
                self.read_drawings(part for _, each, part in related if each in CHARTS and part not in self.parts)
                self.read_diagrams([part for _, each, part in related if each in ("diagramData", "diagramDrawing")])
            elif kind == "vmlDrawing":  # HTML within, often no XML
                for text in _BUTTON.findall(self.package.read(target).decode("utf-8", "replace")):
                    self.skip("labels of buttons", text)

    def list_replacements(self, language: str, is_changed: bool) -> Mapping[str, Sequence[Replacement]]:
        """Return the request to compute formulas when the file is opened, as their results may hold changed texts."""
        if not is_changed or not any(each.reason == "formulas" for each in self.skipped):
            return {}
        file = self.open_part(self._main).file
        if calculation := file.root.find("x:calcPr"):
            return {self._main: [set_attribute(file, calculation, "fullCalcOnLoad", "1")]}
        position = max((each.end for each in file.root.elements if each.name in _BEFORE_CALCULATION), default=0)
        prefix = file.root.tag.removesuffix("workbook")
        return {self._main: [(position, position, f'<{prefix}calcPr fullCalcOnLoad="1"/>')] if position else []}


def _read_area(name: str) -> tuple[int, int, int, int]:
    """Return first and last column and row, from 1, of cells such as A1 or A1:B2; zeros for anything else."""
    match = _AREA.fullmatch(name)
    if match is None:
        return 0, 0, 0, 0
    column, row, last_column, last_row = match.groups()
    return _count_column(column), _count_column(last_column or column), int(row), int(last_row or row)


def _count_column(letters: str) -> int:
    return reduce(lambda number, letter: 26 * number + ord(letter) - 64, letters, 0)


def _is_within(cell: str, areas: Sequence[tuple[int, int, int, int]]) -> bool:
    """Return whether a formula of another cell fills this one."""
    column, _, row, _ = _read_area(cell)
    return any(left <= column <= right and top <= row <= bottom for left, right, top, bottom in areas if left)


def _fold(text: str) -> str:
    """Return a text as formulas compare it."""
    return text.strip().casefold()


def _unescape(text: str) -> str:
    """Return the characters of a string, without carriage returns."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text).replace("\r", "")


def _escape(text: str) -> str:
    """Return a string as Excel writes it."""
    text = _ESCAPED.sub(lambda match: f"_x005F{match[0]}", text)
    return escape_text(ILLEGAL.sub(lambda match: f"_x{ord(match[0]):04X}_", text))


class ChartedFile(OfficeFile):
    """A package that was read, with the workbooks of its charts."""

    def read_charts(self, names: Iterable[str]) -> None:
        """Add the titles of charts, then their labels, each label once."""
        for name in names:
            self.read_drawings([name])
            part = self.open_part(name)
            indices: list[int] = []
            for value in part.file.root.iter("c:v", "cx:v", "cx:pt"):
                if not (value.is_within("c:numCache") or _IDENTIFIER.fullmatch(value.text().strip())):
                    indices += self.add_element_text(part, value, indices)
            for _, kind, target in self.read_relationships(name):
                if kind == "package":
                    self.labels.setdefault(target, []).extend(indices)

    def write(self, units: Sequence[Unit], language: str = "") -> bytes:
        """Return the package with other units: see `OfficeFile`."""
        contents = {}
        for name, indices in self.labels.items():
            labels = {self.units[each].text: units[each] for each in indices if units[each] != self.units[each]}
            if labels:
                contents[name] = _relabel(self.package, name, labels)
        return ZipPackage(super().write(units, language), self.path).replace(contents)


def _relabel(package: ZipPackage, name: str, labels: Mapping[str, Unit]) -> bytes:
    """Return a workbook with new texts, by the old ones. One that cannot be read stays: the chart has its labels."""
    data = package.read(name)
    try:
        file = read(data, name, ReadConfig())
    except DocmtError:
        return data
    return file.write([labels.get(unit.text, unit) for unit in file.units])
