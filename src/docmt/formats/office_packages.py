"""Office Open XML packages (ECMA-376): parts by content type, relationships, and paragraphs of runs as units.

Equal texts that a package holds twice, as SmartArt does, are one unit.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote

from docmt.core.errors import DocmtError
from docmt.documents.words import Span, has_letters
from docmt.formats.language_codes import is_right_to_left
from docmt.formats.office_runs import RunBuilder, RunLayout, format_key, join_lines
from docmt.formats.patched_text import PatchedText, Replacement
from docmt.formats.placeholders import space_words
from docmt.formats.units import Unit, UnitFile
from docmt.formats.xml_tree import COMMENT, Element, XmlFile, escape_attribute, escape_text, find_value, set_attribute
from docmt.formats.zip_package import ZipPackage

_SCHEMAS = {
    "wordprocessingml/2006/main": "w",
    "drawingml/2006/main": "a",
    "drawingml/2006/picture": "pic",
    "drawingml/2006/chart": "c",
    "drawingml/2006/spreadsheetDrawing": "xdr",
    "drawingml/2006/wordprocessingDrawing": "wp",
    "spreadsheetml/2006/main": "x",
    "presentationml/2006/main": "p",
    "officeDocument/2006/math": "m",
    "officeDocument/2006/relationships": "r",
    "markup-compatibility/2006": "mc",
}
_PREFIXES = {
    **{f"http://schemas.openxmlformats.org/{name}": prefix for name, prefix in _SCHEMAS.items()},
    **{f"http://purl.oclc.org/ooxml/{name.replace('2006/', '')}": prefix for name, prefix in _SCHEMAS.items()},
    "http://schemas.microsoft.com/office/drawing/2014/chartex": "cx",
    "http://schemas.microsoft.com/office/spreadsheetml/2009/9/main": "x14",
    "urn:schemas-microsoft-com:vml": "v",
    "http://purl.org/dc/elements/1.1/": "dc",
}
"""Of the names that readers of office files use: of namespaces of ECMA-376, transitional and strict, and of others."""
LINKS = ("a:hlinkClick", "a:hlinkHover")
_FILE_NAME = re.compile(r"\S+\.\w{2,4}|https?:\S+")
_WORDS = re.compile(r"(?s)(?!.*<[\w.-]+:(?:drawing|pict|object|AlternateContent)\b).*<(?:[\w.-]+:)?t[\s>]")
"""Markup that shows words in their line: a field, a formula, code."""
_OLE_MARK = b"\xd0\xcf\x11\xe0"
CHART_TYPES = (
    "application/vnd.openxmlformats-officedocument.drawingml.chart+xml",
    "application/vnd.ms-office.chartex+xml",
)
DIAGRAM_TYPES = (
    "application/vnd.openxmlformats-officedocument.drawingml.diagramData+xml",
    "application/vnd.ms-office.drawingml.diagramDrawing+xml",
)
PROPERTIES = ("dc:title", "dc:subject", "dc:description")
"""Properties of a document that are translated."""
_INSERTED = ("aFChunk", "oleObject", "package", "subDocument")
"""Relationships to inserted files, by the last word of their type."""
_CORE_TYPE = "application/vnd.openxmlformats-package.core-properties+xml"


@dataclass(frozen=True)
class _OfficeText:
    """A text of a part. Several texts may be one unit of the file: each with markup of its own."""

    unit: Unit
    """as read in this part"""
    index: int
    """of the unit of the file"""
    layout: RunLayout | None
    paragraph: Element | None

    def adapt(self, new: Unit, old: Unit) -> Unit:
        """Return the new unit with the markup of this text. old: the unit as read elsewhere."""
        if old is self.unit:
            return new
        if _shape(old) == _shape(self.unit):
            contents = {(code.id, code.kind): code.content for code in self.unit.codes}
            codes = [each for each in new.codes if (each.id, each.kind) in contents]
            return replace(new, codes=tuple(replace(each, content=contents[each.id, each.kind]) for each in codes))
        return Unit(new.text)


def _shape(unit: Unit) -> set[tuple[str, str]]:
    return {(code.id, code.kind) for code in unit.codes}


class OfficePart:
    """An XML part of a package with its texts."""

    def __init__(self, name: str, file: XmlFile) -> None:
        self.name, self.file = name, file
        self.patched = PatchedText(file.text)
        self.texts: list[_OfficeText] = []

    def raw(self, element: Element) -> str:
        """Return the markup of an element."""
        return self.file.text[element.start : element.end]


class OfficeFile(UnitFile):
    """A package that was read."""

    def __init__(self, data: bytes, path: str, suffix: str) -> None:
        """Open a package. suffix: that of the format, for messages. Raises DocmtError if it is unsafe or damaged."""
        super().__init__()
        if data.startswith(_OLE_MARK):
            raise DocmtError(f"{path} is encrypted or of an old format. Save it as {suffix} without a password.")
        self.path, self._suffix = path, suffix
        self.package = ZipPackage(data, path)
        if any(name.lower().endswith("vbaproject.bin") for name in self.package.names):
            raise DocmtError(f"{path} has macros, which docmt refuses. Save it as {suffix} without macros.")
        self._types = self._read_types()
        self.parts: dict[str, OfficePart] = {}
        self.stores: dict[Element, int] = {}
        """units of elements whose text controls of the document show"""
        self.labels: dict[str, list[int]] = {}
        """units of the labels of a chart, by the name of its workbook"""

    def _read_types(self) -> dict[str, str]:
        file = self._parse("[Content_Types].xml")
        overrides, defaults, names = {}, {}, self.package.names
        for element in file.root.elements:
            kind = element.attributes.get("ContentType", "")
            overrides[element.attributes.get("PartName", "").lstrip("/")] = kind
            defaults[element.attributes.get("Extension", "").lower()] = kind
        return {name: overrides.get(name, defaults.get(name.rpartition(".")[2].lower(), "")) for name in names}

    def _parse(self, name: str) -> XmlFile:
        return XmlFile(self.package.read(name), f"{self.path}: {name}", _PREFIXES)

    def open_part(self, name: str) -> OfficePart:
        """Return a part, parsed once."""
        if name not in self.parts:
            self.parts[name] = OfficePart(name, self._parse(name))
        return self.parts[name]

    def find_parts(self, *content_types: str) -> list[str]:
        """Return the names of the parts of these content types, of each type in the order of their numbers."""
        names = sorted(self.package.names, key=_number_key)
        return [name for kind in content_types for name in names if self._types[name] == kind]

    def find_main(self, types: Sequence[str], kind: str, part: str) -> str:
        """Return the name of the main part. Raises DocmtError if there is none. kind, part: names for the message."""
        if names := self.find_parts(*types):
            return names[0]
        raise DocmtError(f"{self.path} is not a {kind}: it has no {part} part. Save it as {self._suffix} again.")

    def read_relationships(self, name: str) -> list[tuple[str, str, str]]:
        """Return (id, last word of the type, name of the target part) of the relationships of a part."""
        folder, _, base = name.rpartition("/")
        source = f"{folder}/_rels/{base}.rels" if folder else f"_rels/{base}.rels"
        if source not in self.package:
            return []
        relationships = []
        for element in self._parse(source).root.elements:
            target = unquote(element.attributes.get("Target", ""))
            if element.attributes.get("TargetMode") != "External" and target:
                part = posixpath.normpath(posixpath.join("/" + folder, target)).lstrip("/")
                kind = element.attributes.get("Type", "").rpartition("/")[2]
                if part in self.package:
                    relationships.append((element.attributes.get("Id", ""), kind, part))
        return relationships

    def skip_inserted(self, name: str) -> None:
        """Note the files that a part shows and that are not translated."""
        for _, kind, target in self.read_relationships(name):
            self.skip("inserted files", target if kind in _INSERTED else "")

    def add_text(
        self,
        part: OfficePart,
        span: Span,
        unit: Unit,
        escape: Callable[[str], str] = escape_text,
        builder: RunBuilder | None = None,
        paragraph: Element | None = None,
        equal: Iterable[int] = (),
    ) -> int:
        """Add the text in a span of a part. Return the index of its unit.

        equal: units that it may repeat: one with the same text is its unit, if the codes of one fit the other.
        """
        shape, has_single = _shape(unit), any(code.kind == "single" for code in unit.codes)
        for index in equal:
            other = self.units[index]
            if other.text == unit.text and (_shape(other) == shape or not has_single):
                break
        else:
            index = self.add_unit(unit)
        part.patched.add(*span, len(part.texts), escape, builder.nested if builder else None)
        part.texts.append(_OfficeText(unit, index, builder.layout if builder else None, paragraph))
        return index

    def add_attribute(
        self, part: OfficePart, element: Element, name: str, equal: Collection[int] = (), limit: int = 0
    ) -> list[int]:
        """Add the value of an attribute. Return its index, if it is a text.

        name: with a prefix if it has that of the element. equal: see `add_text`. limit: characters; a longer
        translation is not written; 0: any.
        """
        value = element.attributes.get(name, "")
        if not has_letters(value) or _FILE_NAME.fullmatch(value):
            return []

        def escape(text: str) -> str:
            return escape_attribute(value if limit and len(text) > limit else text)

        return [self.add_text(part, find_value(part.file, element, name), Unit(value), escape, equal=equal)]

    def add_properties(self) -> None:
        """Add title, subject and description of the document."""
        for name in self.find_parts(_CORE_TYPE):
            part = self.open_part(name)
            for element in part.file.root.elements:
                is_shown = element.name in PROPERTIES and element not in self.stores
                if is_shown and not self.skip_of_program(element.text()):
                    self.add_element_text(part, element)

    def add_element_text(self, part: OfficePart, element: Element, equal: Collection[int] = ()) -> list[int]:
        """Add the text of an element that holds nothing else. equal: see `add_text`. Return its index, if any."""
        unit = Unit(element.text())
        if not has_letters(unit.text) or element.elements:
            return []
        return [self.add_text(part, (element.inner_start, element.inner_end), unit, equal=equal)]

    def write(self, units: Sequence[Unit], language: str = "") -> bytes:
        """Return the package with other units."""
        contents: dict[str, bytes] = {}
        changed = {index for index, unit in enumerate(units) if unit != self.units[index]}
        replacements = self.list_replacements(language, bool(changed))
        for name in {*self.parts, *replacements}:
            part = self.open_part(name)
            old = [each.unit for each in part.texts]
            new = [
                self._lay_out(each, units[each.index], language) if each.index in changed else each.unit
                for each in part.texts
            ]
            further = [*replacements.get(name, ())]
            if language:
                paragraphs = [each.paragraph for each in part.texts if each.index in changed and each.paragraph]
                further += [patch for each in paragraphs for patch in self.patch_paragraph(part, each, language)]
            text = part.patched.render(old, new, further)
            if text != part.file.text:
                contents[name] = part.file.encode(text)
        return self.package.replace(contents)

    def _lay_out(self, text: _OfficeText, unit: Unit, language: str) -> Unit:
        adapted = text.adapt(unit, self.units[text.index])
        if text.layout is None:
            return adapted
        words = {code.id for code in text.unit.codes if code.kind == "single" and _WORDS.match(code.content)}
        adapted = space_words(text.unit, adapted, words)
        return text.layout.lay_out(
            adapted, lambda head: self.set_run_language(head, language, text.paragraph) if language else head
        )

    def list_replacements(self, language: str, is_changed: bool) -> Mapping[str, Sequence[Replacement]]:
        """Return replacements (start, end, text) outside of texts, by the name of their part; here none."""
        return {}

    def set_run_language(self, head: str, language: str, paragraph: Element | None) -> str:
        """Return the start tag and format of a run with another language; here that of DrawingML.

        paragraph: None for a string of a sheet, which has no language.
        """
        match = re.match(r"<((?:[\w.-]+:)?)r\b[^>]*>", head)
        if match is None or paragraph is None:
            return head
        tag = f"<{match[1]}rPr"
        if not head.startswith(tag, match.end()):
            return f'{match[0]}{tag} lang="{language}"/>'
        attribute = rf"({tag}\b[^>]*?\slang=)(\"[^\"]*\"|'[^']*')"
        changed, count = re.subn(attribute, rf'\g<1>"{language}"', head, count=1)
        return changed if count else head.replace(tag, f'{tag} lang="{language}"', 1)

    def patch_paragraph(self, part: OfficePart, paragraph: Element, language: str) -> list[Replacement]:
        """Return replacements of the format of a changed paragraph, which set its direction."""
        if not is_right_to_left(language):
            return []
        form = paragraph.find("a:pPr")
        if form is None:
            return [(paragraph.inner_start, paragraph.inner_start, f'<{paragraph.tag}Pr algn="r" rtl="1"/>')]
        patches = [] if "algn" in form.attributes else [set_attribute(part.file, form, "algn", "r")]
        return [*patches, set_attribute(part.file, form, "rtl", "1")]

    def read_drawing_paragraph(self, part: OfficePart, paragraph: Element, equal: Collection[int] = ()) -> list[int]:
        """Add a paragraph of DrawingML (`a:p`). equal: units that it may repeat. Return its index, if any."""
        builder = RunBuilder(paragraph.tag[:-1], keep_space=False)
        start, end = paragraph.inner_start, paragraph.inner_end
        for child in paragraph.elements:
            if child.name == "a:pPr" and child is paragraph.elements[0]:
                start = child.end
            elif child.name == "a:endParaRPr" and child is paragraph.elements[-1]:
                end = child.start
            elif child.name == "a:r":
                form, text = child.find("a:rPr"), child.find("a:t")
                head = part.file.text[child.start : child.inner_start] + (part.raw(form) if form else "")
                builder.add_text(format_key(form), head, join_lines(text.text(), has_tabs=True) if text else "")
            elif child.name != COMMENT:
                builder.add_single(part.raw(child), is_space=child.name == "a:br")
        for link in paragraph.iter(*LINKS):
            self.skip("tips of links", link.attributes.get("tooltip", ""))
        unit = builder.finish()
        if not has_letters(unit.text):
            return []
        return [self.add_text(part, (start, end), unit, builder=builder, paragraph=paragraph, equal=equal)]

    def read_shapes(self, part: OfficePart, shape: str) -> None:
        """Add the paragraphs of DrawingML, and texts about shapes. Fallbacks repeat what is before them."""
        indices: list[int] = []
        for element in find_outer(part.file.root, ("a:p", shape, *LINKS), ("a:p",)):
            equal = indices if element.is_within("mc:Fallback") else ()
            if element.name == "a:p":
                indices += self.read_drawing_paragraph(part, element, equal)
                continue
            for attribute in ("title", "descr", "tooltip"):
                indices += self.add_attribute(part, element, attribute, equal)

    def read_drawings(self, names: Iterable[str], equal: Collection[int] = ()) -> list[int]:
        """Add all paragraphs of DrawingML in parts such as charts and SmartArt. Return the indices of their units."""
        indices: list[int] = []
        for name in names:
            part = self.open_part(name)
            for paragraph in part.file.root.iter("a:p"):
                indices += self.read_drawing_paragraph(part, paragraph, equal)
        return indices

    def read_diagrams(self, names: Sequence[str]) -> None:
        """Add SmartArt: its texts stand in data and in drawing parts, and are one unit each."""
        data, drawings = ([name for name in names if self._types[name] == kind] for kind in DIAGRAM_TYPES)
        self.read_drawings(drawings, self.read_drawings(data))


def find_outer(element: Element, names: Collection[str], inside: Collection[str]) -> Iterator[Element]:
    """Yield the descendants of these names in document order, not those within elements of `inside`."""
    for child in element.elements:
        if child.name in names:
            yield child
        if child.name not in inside:
            yield from find_outer(child, names, inside)


def _number_key(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
