"""Word documents (docx, ECMA-376 part 1, section 17): paragraphs of all parts, with runs as codes.

Fields, tracked deletions, formulas and hidden text stay as they are. Tables of contents stay too, and the program that
opens the file is asked to update them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from docmt.core.errors import DocmtError
from docmt.documents.words import has_letters
from docmt.formats.language_codes import is_right_to_left, primary_language
from docmt.formats.office_packages import CHART_TYPES, DIAGRAM_TYPES, LINKS, PROPERTIES, OfficePart, find_outer
from docmt.formats.office_runs import RunBuilder, format_key, join_lines
from docmt.formats.patched_text import Replacement
from docmt.formats.units import ReadConfig, Skipped, Unit, is_code_style
from docmt.formats.workbooks import ChartedFile
from docmt.formats.xml_tree import COMMENT, Element, XmlFile, set_attribute

_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.{}+xml"
_MAIN_TYPES = (_TYPE.format("document.main"), _TYPE.format("template.main"))
_STORY_TYPES = tuple(_TYPE.format(name) for name in ("footnotes", "endnotes", "comments", "header", "footer"))
_STYLES_TYPE, _SETTINGS_TYPE, _NUMBERING_TYPE = map(_TYPE.format, ("styles", "settings", "numbering"))
_SHOWN = {
    **dict.fromkeys(("wp:docPr", "pic:cNvPr"), ("title", "descr")),
    **dict.fromkeys(
        ("v:group", "v:image", "v:line", "v:oval", "v:polyline", "v:rect", "v:roundrect", "v:shape"), ("title", "alt")
    ),
    "v:textpath": ("string",),
    **dict.fromkeys(("w:tblCaption", "w:tblDescription"), ("w:val",)),
    **dict.fromkeys(LINKS, ("tooltip",)),
}
"""Attributes that people read."""
_HOLDERS = ("w:p", "a:p", *_SHOWN)
"""Elements with units of their own."""
_DROPPED = frozenset(("w:proofErr", "w:lastRenderedPageBreak", COMMENT))
_PAIRS = frozenset(("w:hyperlink", "w:smartTag", "w:customXml", "w:fldSimple"))
_COPIED = frozenset(("w:ins", "w:moveTo", "w:dir", "w:bdo"))
_SPACES = frozenset(("w:tab", "w:br", "w:cr", "w:ptab"))
_CHARACTERS = _SPACES | {"w:noBreakHyphen", "w:softHyphen", "w:sym"}
_MARKS = frozenset(("w:fldChar", "w:instrText"))
_ELSEWHERE = "-"
"""In the place of the id of a pair that began in an earlier paragraph."""
_COMPUTED = re.compile(
    r"=|ADDIN|ADDRESSBLOCK|AUTHOR|BIBLIOGRAPHY|CITATION|COMMENTS|CREATEDATE|DATABASE|DATE|DOCPROPERTY|"
    r"EDITTIME|EQ|FILENAME|FILESIZE|GREETINGLINE|INFO|KEYWORDS|LASTSAVEDBY|LISTNUM|MERGEFIELD|MERGEREC|MERGESEQ|NEXT|"
    r"NOTEREF|NUMCHARS|NUMPAGES|NUMWORDS|PAGE|PAGEREF|PRINTDATE|REF|REVNUM|SAVEDATE|SECTION|SECTIONPAGES|SEQ|SET|"
    r"STYLEREF|SUBJECT|SUM|TEMPLATE|TIME|TITLE|USERADDRESS|USERINITIALS|USERNAME"
)
"""Fields whose result is not text of the author."""
_WORD = re.compile(r"[^\W\d_]{2}")
"""What letters of bullets are not."""
_LEFT = {
    **dict.fromkeys(("w:helpText", "w:statusText"), "help texts of form fields"),
    "w:listEntry": "choices of form fields",
    "w:default": "default texts of form fields",
    "w:alias": "names of controls",
}
"""Elements whose value stays, and what it is called in `Skipped`."""
_DATA = re.compile(r"(?i)(customXml/item\d*|docProps/(core|app))\.xml")
"""Parts whose texts controls show."""
_STEP = re.compile(r"/(?:[\w.-]+:)?([\w.-]+)(?:\[(\d+)\])?")
_LISTS = frozenset(("TOC", "INDEX", "TOA"))
_TEXTS_OF_FIELDS = re.compile(r'(?i)^\s*(?:ASK|FILLIN|IF|MACROBUTTON|TC|XE)\b|\\o\s+"(?!\d-)')
"""Instructions with a prompt, an entry of an index, or the tip of a link."""
_BEFORE_BIDI = re.compile(
    r"pStyle|keepNext|keepLines|pageBreakBefore|framePr|widowControl|numPr|suppressLineNumbers|pBdr|shd|"
    r"tabs|suppressAutoHyphens|kinsoku|wordWrap|overflowPunct|topLinePunct|autoSpaceDE|autoSpaceDN"
)
"""Formats of paragraphs that come before `bidi` in the order of the schema."""
_AFTER_UPDATE = re.compile(
    r"hdrShapeDefaults|footnotePr|endnotePr|compat|docVars|rsids|mathPr|attachedSchema|themeFontLang|"
    r"clrSchemeMapping|doNotIncludeSubdocsInStats|doNotAutoCompressPictures|forceUpgrade|captions|"
    r"readModeInkLockDown|smartTagType|schemaLibrary|shapeDefaults|doNotEmbedSmartTags|decimalSymbol|"
    r"listSeparator"
)
"""Settings that follow `updateFields` in the order of the schema."""


def read(data: bytes, path: str, config: ReadConfig) -> WordDocument:
    """Return the units of a docx file: body, notes, comments, headers, footers, charts, SmartArt, properties."""
    file = WordDocument(data, path, "docx")
    file.find_main(_MAIN_TYPES, "Word document", "document")
    styles = _read_code_styles(file)
    for name in file.find_parts(*_MAIN_TYPES, *_STORY_TYPES):
        part = file.open_part(name)
        _StoryReader(file, part, styles).read()
        for element in part.file.root.iter(*_LEFT):
            file.skip(_LEFT[element.name], element.attributes.get("w:val", ""))
        file.skip_inserted(name)
    for name in file.find_parts(_TYPE.format("document.glossary")):
        for paragraph in file.open_part(name).file.root.iter("w:p"):
            file.skip("building blocks", paragraph.text())
    file.read_levels()
    file.read_charts(file.find_parts(*CHART_TYPES))
    file.read_diagrams(file.find_parts(*DIAGRAM_TYPES))
    file.add_properties()
    return file


def _read_code_styles(file: WordDocument) -> frozenset[str]:
    """Return the ids of the styles of code, by their ids and names."""
    ids = set()
    for name in file.find_parts(_STYLES_TYPE):
        for style in file.open_part(name).file.root.elements:
            id, label = style.attributes.get("w:styleId", ""), style.find("w:name")
            names = (id, label.attributes.get("w:val", "") if label else "")
            if any(map(is_code_style, names)):
                ids.add(id)
    return frozenset(ids)


class WordDocument(ChartedFile):
    """A docx file that was read."""

    def read_levels(self) -> None:
        """Add the words that numbers of paragraphs have around them."""
        for name in self.find_parts(_NUMBERING_TYPE):
            indices: list[int] = []
            for level in self.open_part(name).file.root.iter("w:lvlText"):
                if _WORD.search(level.attributes.get("w:val", "")):
                    indices += self.add_attribute(self.open_part(name), level, "w:val", indices)

    def find_data(self, path: str) -> tuple[OfficePart, Element] | None:
        """Return the element of data at an XPath, and its part; None if there is none."""
        for name in filter(_DATA.fullmatch, self.package.names):
            try:
                part = self.open_part(name)
            except DocmtError:  # no XML, so no data of a control
                continue
            element: Element | None = Element("", "", 0, 0, children=[part.file.root])
            for local, number in _STEP.findall(path):
                same = [each for each in element.elements if each.local_name == local] if element else []
                element = dict(enumerate(same, 1)).get(int(number or 1))
            if element and path:
                return part, element
        return None

    def add_data(self, part: OfficePart, element: Element) -> int | None:
        """Return the unit of the text of data, once for all controls that show it; None if it is not translated."""
        is_translated = element.name in PROPERTIES or not part.name.lower().startswith("docprops")
        if is_translated and element not in self.stores:
            for index in self.add_element_text(part, element):
                self.stores[element] = index
        return self.stores.get(element)

    def list_replacements(self, language: str, is_changed: bool) -> Mapping[str, Sequence[Replacement]]:
        """Return the language of styles and settings, and the request to update tables of contents."""
        patches: dict[str, list[Replacement]] = {}
        for name in self.find_parts(_STYLES_TYPE):
            defaults = ("w:docDefaults", "w:rPrDefault", "w:rPr", "w:lang")
            patches[name] = _set_language(self.open_part(name).file, language, *defaults)
        needs_update = is_changed and any(each.reason == "table of contents" for each in self.skipped)
        for name in self.find_parts(_SETTINGS_TYPE) if language or needs_update else ():
            file = self.open_part(name).file
            patches[name] = _set_language(file, language, "w:themeFontLang")
            patches[name] += _request_update(file) if needs_update else []
        return patches

    def set_run_language(self, head: str, language: str, paragraph: Element | None) -> str:
        """Return the start tag and format of a run with another language."""
        match = re.match(r"<((?:[\w.-]+:)?)r\b", head)
        if match is None or paragraph is None or paragraph.name != "w:p":
            return super().set_run_language(head, language, paragraph)
        prefix = match[1]
        attribute = rf"(<{prefix}lang\b[^>]*?\s{prefix}{_language_kind(language)}=)(\"[^\"]*\"|'[^']*')"
        head = re.sub(attribute, rf'\g<1>"{language}"', head)
        if is_right_to_left(language) and not re.search(rf"<{prefix}rtl\b", head):
            head = _add_direction(head, prefix)
        return head

    def patch_paragraph(self, part: OfficePart, paragraph: Element, language: str) -> list[Replacement]:
        """Return the insertion of the direction into the format of a paragraph, or of such a format."""
        if paragraph.name != "w:p":
            return super().patch_paragraph(part, paragraph, language)
        if not is_right_to_left(language):
            return []
        form, prefix, start = paragraph.find("w:pPr"), paragraph.tag[:-1], paragraph.inner_start
        if form is None or form.is_empty_tag:
            span = (form.start, form.end) if form else (start, start)
            return [(*span, f"<{prefix}pPr><{prefix}bidi/></{prefix}pPr>")]
        if bidi := form.find("w:bidi"):
            return [(bidi.start, bidi.end, f"<{prefix}bidi/>")]
        before = [child.end for child in form.elements if _BEFORE_BIDI.fullmatch(child.local_name)]
        position = max(before, default=form.inner_start)
        return [(position, position, f"<{prefix}bidi/>")]


def _language_kind(language: str) -> str:
    """Return the attribute of w:lang for the script of a language."""
    if is_right_to_left(language):
        return "bidi"
    return "eastAsia" if primary_language(language) in ("zh", "ja", "ko") else "val"


def _set_language(file: XmlFile, language: str, *names: str) -> list[Replacement]:
    """Return the replacement that sets a language, if there is one, in the element at this path of names."""
    element = file.root.find(*names)
    if element is None or not language:
        return []
    prefix = element.tag.rpartition(":")[0] + ":" if ":" in element.tag else "w:"
    return [set_attribute(file, element, prefix + _language_kind(language), language)]


def _add_direction(head: str, prefix: str) -> str:
    """Return the start tag and format of a run with w:rtl, in the order of the schema."""
    end = head.index(">") + 1
    if not head.startswith(f"<{prefix}rPr", end) or head.endswith("/>"):
        return f"{head[:end]}<{prefix}rPr><{prefix}rtl/></{prefix}rPr>"
    names = "cs|em|lang|eastAsianLayout|specVanish|oMath|rPrChange"
    match = re.compile(rf"<{prefix}(?:{names})[\s/>]|</{prefix}rPr>").search(head, end)
    position = match.start() if match else len(head)
    return f"{head[:position]}<{prefix}rtl/>{head[position:]}"


def _request_update(file: XmlFile) -> list[Replacement]:
    """Return the insertion of w:updateFields into the settings."""
    root = file.root
    if root.find("w:updateFields") or root.is_empty_tag:
        return []
    after = [child.start for child in root.elements if _AFTER_UPDATE.fullmatch(child.local_name)]
    position = min(after, default=root.inner_end)
    prefix = root.tag.removesuffix("settings")
    return [(position, position, f'<{prefix}updateFields {prefix or "w:"}val="true"/>')]


@dataclass
class _Field:
    """A complex field that is open."""

    code: str = ""
    in_code: bool = True
    """before its result"""
    id: str = ""
    """of the pair around its result, if that is translated"""

    @property
    def kind(self) -> str:
        words = self.code.replace("=", "= ").split(maxsplit=1)
        return words[0].upper() if words else ""

    @property
    def hides(self) -> bool:
        """Whether what follows is not translated."""
        return self.in_code or _COMPUTED.fullmatch(self.kind) is not None or self.kind in _LISTS


class _StoryReader:
    """Reader of the paragraphs of a part. Fields may go over several of them."""

    def __init__(self, file: WordDocument, part: OfficePart, code_styles: frozenset[str]) -> None:
        self._file, self._part, self._code_styles = file, part, code_styles
        self._fields: list[_Field] = []
        self._listed: list[str] = []
        self._builder = RunBuilder("", keep_space=True)
        self._held: list[str] = []
        """markup of a field that is not complete"""
        self._holders: list[Element] = []
        self._controls: list[Element] = []
        """those that show a text of another place"""

    def read(self) -> None:
        """Add all units, those of controls first."""
        self._controls += [each for each in self._part.file.root.iter("w:sdt") if self._add_control(each)]
        self.read_inside(self._part.file.root)

    def read_inside(self, element: Element, equal: Sequence[int] = ()) -> list[int]:
        """Add the units within an element. equal: units that they may repeat. Return the indices of their units."""
        indices = list(equal)
        for each in find_outer(element, _HOLDERS, ("w:p", "a:p")):
            # Only the fallback of a drawing repeats paragraphs; alternative texts are repeated within the drawing.
            repeated = indices if each.is_within("mc:Fallback") else ()
            if each.name == "w:p":
                indices += self._read_paragraph(each, repeated)
            elif each.name == "a:p":
                indices += self._file.read_drawing_paragraph(self._part, each, repeated)
            for name in _SHOWN.get(each.name, ()):
                indices += self._file.add_attribute(self._part, each, name, indices)
        return indices

    def _read_paragraph(self, paragraph: Element, equal: Sequence[int]) -> list[int]:
        if any(each.start < paragraph.start < each.end for each in self._controls):
            return []
        self._builder, self._holders = RunBuilder(paragraph.tag[:-1], keep_space=True), []
        form = paragraph.find("w:pPr")
        if form and form is not paragraph.elements[0]:
            form = None  # out of its place, and so a code
        self._add_nodes([child for child in paragraph.elements if child is not form])
        self._release()
        for each in self._fields:
            each.id = each.id and _ELSEWHERE
        unit, builder, holders = self._builder.finish(), self._builder, self._holders
        if text := "".join(self._listed).strip():
            self._file.skipped.append(Skipped("table of contents", text))
        self._listed = []
        indices: list[int] = []
        if has_letters(unit.text) and self._is_code(form, "w:pStyle"):
            self._file.skipped.append(Skipped("code", unit.text))
        elif has_letters(unit.text):
            span = (form.end if form else paragraph.inner_start, paragraph.inner_end)
            index = self._file.add_text(self._part, span, unit, builder=builder, paragraph=paragraph, equal=equal)
            indices.append(index)
        for holder in holders:
            indices += self.read_inside(holder, equal)
        return indices

    def _is_code(self, form: Element | None, tag: str) -> bool:
        style = form.find(tag) if form else None
        return style is not None and style.attributes.get("w:val", "") in self._code_styles

    def _add_nodes(self, nodes: Sequence[Element]) -> None:
        for node in nodes:
            raw, instruction = self._part.raw(node), node.attributes.get("w:instr", "")
            if node.name in _DROPPED:
                continue
            if node.name == "w:r":
                self._add_run(node, raw)
            elif node.name in _COPIED or (node.name in _PAIRS and not _Field(instruction, in_code=False).hides):
                self._add_pair(node, node, can_copy=node.name in _COPIED)
            elif node.name == "w:sdt" and node in self._controls:
                self._release()
                self._builder.add_single(raw, span=(node.start, node.end))
            elif node.name == "w:sdt" and (content := node.find("w:sdtContent")) and not content.is_empty_tag:
                self._add_pair(node, content, can_copy=False)
            elif self._hidden:
                self._held.append(raw)
            else:
                if node.name in ("m:oMath", "m:oMathPara"):
                    self._file.skipped.append(Skipped("formulas", node.text()))
                self._builder.add_single(raw, span=self._hold(node))

    def _add_pair(self, node: Element, content: Element, can_copy: bool) -> None:
        if node.is_empty_tag:
            self._builder.add_single(self._part.raw(node))
            return
        self._release()
        text = self._part.file.text
        id = self._builder.open(text[node.start : content.inner_start], can_copy)
        if self._file.add_attribute(self._part, node, "w:tooltip") or node is not content:
            self._builder.nested |= {id: (node.start, content.inner_start), f"/{id}": (content.inner_end, node.end)}
        self._add_nodes(content.elements)
        self._release()
        self._builder.close(id, text[content.inner_end : node.end])

    def _add_control(self, control: Element) -> bool:
        """Add the text of a control that shows data, or an entry of its list, as one unit with that.

        What cannot be translated in both places stays in both. Return whether the control is such a one.
        """
        file, settings, content = self._file, control.find("w:sdtPr"), control.find("w:sdtContent")
        texts = [each for each in content.iter("w:t") if each.children] if content else []
        text = "".join(each.text() for each in texts)
        if settings is None or not text:
            return False
        entries: list[int] = []
        for entry in settings.iter("w:listItem"):
            entries += file.add_attribute(self._part, entry, "w:displayText", entries)
        index = next((each for each in entries if file.units[each].text == text), None)
        binding = next((each for each in settings.elements if each.local_name == "dataBinding"), None)
        data = file.find_data(binding.attributes.get("w:xpath", "")) if binding and not entries else None
        if index is None and data is None:
            return False
        if data and data[1].text() == text and _is_plain(texts):
            index = file.add_data(*data)
        if index is None or not _is_plain(texts):
            file.skip("controls that show data", text)
        else:
            file.add_text(self._part, (texts[0].inner_start, texts[-1].inner_end), Unit(text), equal=[index])
        return True

    @property
    def _hidden(self) -> bool:
        return any(each.hides for each in self._fields)

    def _release(self) -> None:
        """Add the markup of a field that was held back."""
        if self._held:
            self._builder.add_single("".join(self._held))
            self._held = []

    def _add_run(self, run: Element, raw: str) -> None:
        """Add a run. One with both text and marks of fields is several."""
        form = run.find("w:rPr")
        children = [child for child in run.elements if child is not form]
        names = {child.name for child in children}
        if "w:t" not in names or not names & _MARKS or not names <= _MARKS | _CHARACTERS | _DROPPED | {"w:t"}:
            self._add_part_of_run(run, raw, children)
            return
        text = self._part.file.text
        start, end = text[run.start : run.inner_start], text[run.inner_end : run.end]
        for _, group in groupby(children, lambda child: child.name in _MARKS):
            some = list(group)
            inside = "".join(map(self._part.raw, [form, *some] if form else some))
            self._add_part_of_run(run, f"{start}{inside}{end}", some)

    def _add_part_of_run(self, run: Element, raw: str, children: Sequence[Element]) -> None:
        marks = [child for child in children if child.name in _MARKS]
        if not marks and not self._hidden:
            self._add_text_run(run, raw, children)
            return
        if any(each.kind in _LISTS for each in self._fields):
            self._listed += [each.text() for each in children if each.name == "w:t"]
        self._held.append(raw)
        closed = ""
        for mark in marks:
            closed = self._read_mark(mark) or closed
        if self._hidden:
            return
        field, held = self._fields[-1] if self._fields else None, "".join(self._held)
        if field and not field.in_code and not field.id:
            field.id = self._builder.open(held)
        elif closed:
            self._builder.close(closed, held)
        else:
            self._builder.add_single(held)
        self._held = []

    def _read_mark(self, mark: Element) -> str:
        """Go on with the fields. Return the id of the pair that ends here, if one does."""
        kind = mark.attributes.get("w:fldCharType", "")
        if mark.name == "w:instrText":
            if self._fields and self._fields[-1].in_code:
                self._fields[-1].code += mark.text()
        elif kind == "begin":
            self._fields.append(_Field())
        elif kind == "separate" and self._fields:
            self._fields[-1].in_code = False
        elif kind == "end" and self._fields:
            field = self._fields.pop()
            self._file.skip("field instructions" if _TEXTS_OF_FIELDS.search(field.code) else "", field.code)
            return "" if field.id == _ELSEWHERE else field.id
        return ""

    def _add_text_run(self, run: Element, raw: str, children: Sequence[Element]) -> None:
        form = run.find("w:rPr")
        content = [child for child in children if child.name not in _DROPPED]
        texts = [child for child in content if child.name == "w:t"]
        if form and (_is_hidden(form) or self._is_code(form, "w:rStyle")):
            if texts and not _is_hidden(form):
                self._file.skipped.append(Skipped("code", "".join(each.text() for each in texts)))
            self._builder.add_single(raw)
            return
        if base := run.find("w:ruby", "w:rubyBase"):
            self._add_pair(run, base, can_copy=False)
            return
        if not texts and not all(child.name in _CHARACTERS for child in content):
            self._builder.add_single(raw, span=self._hold(run))
            return
        head = self._part.file.text[run.start : run.inner_start] + (self._part.raw(form) if form else "")
        key = format_key(form)
        for child in content:
            if child.name == "w:t":
                self._builder.add_text(key, head, _read_text(child))
            elif child.name == "w:noBreakHyphen":
                self._builder.add_text(key, head, "\u2011")
            else:
                is_space = child.name in _SPACES
                self._builder.add_inner(key, head, self._part.raw(child), is_space, self._hold(child))

    def _hold(self, element: Element) -> tuple[int, int] | None:
        """Return the span of an element that holds units, and note it for reading after the paragraph."""
        if next(find_outer(element, _HOLDERS, ()), None) is None:
            return None
        self._holders.append(element)
        return element.start, element.end


def _is_plain(texts: Sequence[Element]) -> bool:
    """Return whether nothing but equal runs parts these texts."""
    runs = [each.parent for each in texts if each.parent]
    beside = runs[0].parent.elements if runs[0].parent else []
    if runs[-1] not in beside:
        return False
    between = [each for each in beside[beside.index(runs[0]) : beside.index(runs[-1]) + 1] if each.name not in _DROPPED]
    formats = {format_key(run.find("w:rPr")) for run in between}
    return len(formats) == 1 and all(child.name in ("w:rPr", "w:t") for run in between for child in run.elements)


def _is_hidden(form: Element) -> bool:
    vanish = form.find("w:vanish")
    return vanish is not None and vanish.attributes.get("w:val", "1") not in ("0", "false", "off")


def _read_text(element: Element) -> str:
    """Return the characters of w:t, without spaces at its ends unless it keeps them."""
    text = element.text()
    return join_lines(text if element.attributes.get("xml:space") == "preserve" else text.strip(" \t\r\n"))
