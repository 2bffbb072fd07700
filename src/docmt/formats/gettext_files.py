"""PO catalogs of gettext: empty and fuzzy messages are translated, and flagged as fuzzy, for people to review.

Comments, contexts, previous and obsolete messages, wrapping and line ends keep their bytes. A template gets the header
of a catalog. The source of the syntax is the manual of GNU gettext, sections "The Format of PO Files" and "Plural
forms".
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from docmt.core.errors import DocmtError
from docmt.core.settings import read_package_yaml
from docmt.documents.words import has_letters
from docmt.formats.language_codes import format_language_tag, is_same_language
from docmt.formats.patched_text import PatchedText, Replacement
from docmt.formats.placeholders import hide_placeholders, is_icu_message, tidy_pieces
from docmt.formats.units import Code, ReadConfig, Unit, UnitBuilder, UnitFile, UnitPair

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|\Z)")
_FIELD = re.compile(r'[ \t]*(msgctxt|msgid_plural|msgid|msgstr(?:\[\d{1,3}\])?|domain)?[ \t]*("(?:[^"\\]|\\.)*")[ \t]*')
_ESCAPE = re.compile(r"\\([0-7]{1,3}|x[0-9A-Fa-f]{1,2}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_QUOTED = str.maketrans({"\\": "\\\\", '"': '\\"', **{value: f"\\{name}" for name, value in _ESCAPES.items()}})
_UNSET = re.compile(r"CHARSET|nplurals=INTEGER|^$")
"""Values of a template that stand for others."""
_CHARSET = re.compile(rb"(?i)Content-Type:[^\"\r\n]*?charset=([A-Za-z0-9._:-]+)")


@dataclass
class _Field:
    """The strings after a keyword."""

    start: int
    """first quote, in characters"""
    end: int
    """after the last quote"""
    value: str


@dataclass
class _Message:
    """An entry."""

    line: int = 0
    """number of the line of its first keyword"""
    start: int = -1
    """beginning of its first keyword, or of the previous message in a comment before it"""
    fields: dict[str, _Field] = field(default_factory=dict)
    comments: str = ""
    markup: Markup | None = None
    is_code: bool = False
    flags: _Field | None = None
    """the comment with the flags, without its mark"""
    targets: dict[str, int | None] = field(default_factory=dict)
    """for each field to be written the index of its unit, or None for text without letters"""

    def get(self, name: str) -> str:
        """Return the text of a field; empty if it has none, or is missing."""
        return self.fields[name].value if name in self.fields else ""

    @property
    def is_fuzzy(self) -> bool:
        return self.flags is not None and "fuzzy" in re.split(r"[\s,]+", self.flags.value)

    @property
    def paths(self) -> list[str]:
        """Files that have the message; an empty name where none is known."""
        return re.findall(r"^#:\s*([^\s:]+)", self.comments, re.MULTILINE) or [""]


def read(data: bytes, path: str, config: ReadConfig) -> GettextFile:
    """Return the messages without a translation. Raises DocmtError for another target language than the config's."""
    return GettextFile(data, path, config)


class GettextFile(UnitFile):
    """A PO or POT file."""

    def __init__(self, data: bytes, path: str, config: ReadConfig) -> None:
        super().__init__()
        self._path, self._protect = path, config.patterns
        self._mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
        match = _CHARSET.search(data)
        self._charset = match[1].decode() if match and match[1] != b"CHARSET" else "utf-8"
        self._text = self._decode(data.removeprefix(self._mark))
        ends = re.search(r"\r\n|\n|\r", self._text)
        self._line_end = ends[0] if ends else "\n"
        self._messages = list(self._read_messages())
        fields = self._messages[0].fields if self._messages else {}
        has_header = "msgctxt" not in fields and "msgid" in fields and not fields["msgid"].value
        self._header = fields.get("msgstr") if has_header else None
        self._language = self._find_in_header(r"^Language:[ \t]*(\S+)")
        if not is_same_language(self._language, config.target_language):
            raise DocmtError(
                f"{path}: the language of the file is {self._language}, not {config.target_language}. Translate into"
                f" {self._language}, or change Language in the header of the file."
            )
        forms = self._find_in_header(r"^Plural-Forms:.*?nplurals\s*=\s*(\d)")
        if not forms and config.target_language:
            forms = _find_plural_forms(config.target_language)[len("nplurals=")]
        self._form_count = int(forms or 0)
        self._find_markup()
        for message in self._messages:
            self._add_units(message)

    def write(self, units: Sequence[Unit], language: str = "") -> bytes:
        """Return the file with messages for the changed units; if `language` is given, for all units that were read.

        Messages that failed stay as they are, and so do fuzzy ones whose text is not translated.
        """
        replacements: list[Replacement] = []
        for message in self._messages:
            used = {index for index in message.targets.values() if index is not None}
            has_text = any(map(message.get, message.targets))
            is_new = any(units[index] != self.units[index] for index in used)
            if used and self.failed.isdisjoint(used) and (is_new or (language and not has_text)):
                replacements += self._write_message(message, units)
        if language and replacements:
            replacements.insert(0, self._write_header(language))
        return self._encode(PatchedText(self._text).render((), (), replacements))

    def _decode(self, data: bytes) -> str:
        """Return the text, which has these bytes when it is written."""
        try:
            text = data.decode(self._charset)
            if text.encode(self._charset) == data:
                return text
        except (UnicodeError, LookupError) as error:
            raise DocmtError(
                f"{self._path} is not text in {self._charset}, the charset of its header. Save it as UTF-8."
            ) from error
        raise DocmtError(f"{self._path}: the charset {self._charset} is not read. Save it as UTF-8.")

    def _encode(self, text: str) -> bytes:
        """Return the bytes of the file, in UTF-8 if its charset does not have all characters."""
        try:
            return self._mark + text.encode(self._charset)
        except UnicodeEncodeError:
            named = re.sub(f"charset={re.escape(self._charset)}", "charset=UTF-8", text, count=1)
            return self._mark + named.encode("utf-8", "replace")

    def _read_messages(self) -> Iterator[_Message]:
        """Yield the entries, without obsolete ones."""
        message, current = _Message(), None
        for number, match in enumerate(_LINE.finditer(self._text), 1):
            line, start = match[0].rstrip("\r\n"), match.start()
            stripped = line.strip()
            if stripped.startswith("#"):
                current = None
                if any(name.startswith("msgstr") for name in message.fields):
                    yield self._check(message)
                    message = _Message()
                message = _Message() if stripped.startswith("#~") else message
                _add_comment(message, line, start)
            if not stripped or stripped.startswith("#"):
                continue
            parts = _FIELD.fullmatch(line)
            if not parts or (not parts[1] and current is None):
                raise DocmtError(f"{self._path}, line {number}: no keyword with a text in quotes: {line}. Mend it.")
            value = _ESCAPE.sub(_read_escape, parts[2][1:-1])
            if parts[1]:
                if parts[1] in message.fields or (parts[1] in ("msgctxt", "domain") and message.fields):
                    yield self._check(message)
                    message = _Message()
                if not message.fields:
                    message.line, message.start = number, message.start if message.start >= 0 else start
                current = _Field(start + parts.start(2), start + parts.end(2), value)
                message.fields[parts[1]] = current
            elif current:
                current.value, current.end = current.value + value, start + parts.end(2)
        if message.fields:
            yield self._check(message)

    def _check(self, message: _Message) -> _Message:
        has_target = any(name.startswith("msgstr") for name in message.fields)
        if "domain" not in message.fields and not ("msgid" in message.fields and has_target):
            raise DocmtError(f"{self._path}, line {message.line}: a message needs msgid and msgstr. Mend it.")
        return message

    def _find_in_header(self, pattern: str) -> str:
        match = re.search(pattern, self._header.value if self._header else "", re.MULTILINE | re.IGNORECASE)
        return match[1] if match else ""

    def _find_markup(self) -> None:
        """Find the markup of each message: its own, or else that of others in the same source file."""
        known: dict[str, Markup] = {}
        for message in self._messages:
            if markup := find_markup(message.comments, message.get("msgid")):
                message.markup = markup
                known |= {path: known.get(path, markup) for path in message.paths}
        for message in self._messages:
            message.markup = message.markup or next((known[path] for path in message.paths if path in known), None)

    def _add_units(self, message: _Message) -> None:
        """Add the units of a message, or note that it is skipped."""
        source, names = message.get("msgid"), self._target_names(message)
        if not has_letters(source):
            return
        empty = [name for name in names if not message.get(name)]
        reason = "ICU messages" if is_icu_message(source) else ""
        if message.is_code:
            reason = "code"
        if not empty and not message.is_fuzzy:
            reason = "translated messages"
        if reason:
            self.skip(reason, source)
            return
        indices: dict[str, int | None] = {}
        for name in ("msgid", "msgid_plural"):
            if name in message.fields:
                unit = self._make_unit(message, name)
                indices[name] = self.add_unit(unit) if has_letters(unit.text) else None
        for name in names if message.is_fuzzy else empty:
            is_plural = "msgid_plural" in message.fields and (name != "msgstr[0]" or len(names) == 1)
            message.targets[name] = indices["msgid_plural" if is_plural else "msgid"]

    def _make_unit(self, message: _Message, name: str) -> Unit:
        """Return the unit of a field."""
        id, text = f"line {message.line}", message.get(name)
        if message.markup:
            return hide_markup(text, message.markup, id, self._protect)
        return hide_placeholders(Unit(text, id=id), protect=self._protect)

    def list_pairs(self) -> list[UnitPair]:
        """See `UnitFile`. Of plural forms there is the first one; fuzzy messages may translate another source."""
        return [
            UnitPair(self._make_unit(message, "msgid"), self._make_unit(message, name))
            for message in self._messages
            for name in self._target_names(message)[:1]
            if not message.is_fuzzy and message.get("msgid") and message.get(name)
        ]

    def _target_names(self, message: _Message) -> list[str]:
        """Return the names of the fields of the translation: as many plural forms as the header says."""
        if "msgid_plural" not in message.fields:
            return ["msgstr"]
        present = sum(name.startswith("msgstr[") for name in message.fields)
        return [f"msgstr[{number}]" for number in range(self._form_count or present)]

    def _write_message(self, message: _Message, units: Sequence[Unit]) -> list[Replacement]:
        """Return the replacements that write the translations of a message and its flag."""
        replacements = []
        fields = message.fields
        end = max(each.end for each in fields.values())
        for name, index in message.targets.items():
            source = fields["msgid"].value
            if index is not None:
                unit = tidy_pieces(self.units[index], units[index])
                text = separate_words(unit, message.markup) if message.markup else unit.render()
            elif message.get(name):
                continue
            else:
                text = source
            text = self._quote(_match_ends(text, source))
            if name in fields:
                replacements.append((fields[name].start, fields[name].end, text))
            else:
                replacements.append((end, end, f"{self._line_end}{name} {text}"))
        for name, each in fields.items():
            if name.startswith("msgstr[") and name not in self._target_names(message) and not each.value:
                start = self._text.rindex('"', 0, self._text.rindex(name, 0, each.start)) + 1
                replacements.append((start, each.end, ""))  # a form that the language does not have
        if message.flags is None:
            replacements.append((message.start, message.start, f"#, fuzzy{self._line_end}"))
        elif not message.is_fuzzy:
            replacements.append((message.flags.start, message.flags.start, " fuzzy,"))
        return replacements

    def _quote(self, text: str) -> str:
        """Return the strings of a text: one for each line."""
        lines = [f'"{line.translate(_QUOTED)}"' for line in re.findall(r"[^\n]*\n|[^\n]+", text)] or ['""']
        return lines[0] if len(lines) == 1 else self._line_end.join(['""', *lines])

    def _write_header(self, language: str) -> Replacement:
        """Return the replacement that fills the header of a template, or adds one."""
        header = self._header
        raw = self._text[header.start : header.end] if header else f'msgid ""{self._line_end}msgstr ""'
        has_plurals = re.search(r"^msgid_plural", self._text, re.MULTILINE)
        values = {
            "Language": "" if self._language else format_language_tag(language).replace("-", "_"),
            "Content-Type": "text/plain; charset=UTF-8",
            "Plural-Forms": _find_plural_forms(language) if has_plurals else "",
        }
        raw = raw.replace("Encoding: ENCODING", "Encoding: 8bit")
        for name, value in values.items():
            match = re.search(rf"{name}:[ \t]*(.*?)(?=\\n|\"\s)", raw)
            if match and value and _UNSET.search(match[1]):
                raw = f"{raw[: match.start()]}{name}: {value}{raw[match.end() :]}"
            elif value and not match:
                start = "" if raw.endswith(('\\n"', '""')) else "\\n"
                raw += f'{self._line_end}"{start}{name}: {value}\\n"'
        return (header.start, header.end, raw) if header else (0, 0, raw + 2 * self._line_end)


def _find_plural_forms(language: str) -> str:
    tag = format_language_tag(language).lower()
    table = read_package_yaml("docmt.formats", "plural_forms.yaml")
    forms = {name: forms for names, forms in table.items() for name in names.split(" ")}
    return str(forms.get(tag) or forms.get(tag.partition("-")[0]) or forms[""])


def _add_comment(message: _Message, line: str, start: int) -> None:
    """Add a line with flags or with a previous message."""
    mark, message.comments = line.lstrip()[:2], f"{message.comments}{line.lstrip()}\n"
    begin = line.index("#") + 2
    if mark == "#,":
        message.flags = message.flags or _Field(start + begin, start + len(line), "")
        message.flags.value += "," + line[begin:]
    elif line.strip() == "#. type: verbatim":
        message.is_code = True
    elif mark == "#|" and message.start < 0:
        message.start = start


def _read_escape(match: re.Match[str]) -> str:
    escape: str = match[1]
    if escape[0] in "01234567":
        return chr(int(escape, 8))
    if escape[0] == "x" and len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _ESCAPES.get(escape, escape)


def _match_ends(text: str, source: str) -> str:
    """Return the translation with a line break at its ends where the source has one, as msgfmt demands."""
    if source.startswith("\n") != text.startswith("\n"):
        text = "\n" + text if source.startswith("\n") else text.lstrip("\n")
    if source.endswith("\n") != text.endswith("\n"):
        text = text + "\n" if source.endswith("\n") else text.rstrip("\n")
    return text


_CLASSES = {
    r"\p{roles}": "abbr|dfn|emphasis|guilabel|menuselection|strong|title|title-reference|t",
    r"\p{angles}": r"<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*+>)*+>",
}


class Markup(NamedTuple):
    """A language of inline markup."""

    comments: str
    texts: str
    singles: str
    pairs: str
    """regular expressions: see documentation_markup.yaml"""
    separator: str
    """what stands between a word and markup beside it"""


@cache
def load_markup() -> list[Markup]:
    """Return the languages of inline markup."""
    return [_read_markup(each) for each in read_package_yaml("docmt.formats", "documentation_markup.yaml")]


def _read_markup(entry: dict[str, Any]) -> Markup:
    singles, pairs = "|".join(entry["singles"]), "|".join(entry["pairs"])
    for name, pattern in _CLASSES.items():
        singles, pairs = singles.replace(name, pattern), pairs.replace(name, pattern)
    return Markup(entry["comments"], entry["texts"], singles, pairs, entry["separator"])


def find_markup(comments: str, text: str) -> Markup | None:
    """Return the markup of a message."""
    named = [each for each in load_markup() if re.search(each.comments, comments, re.MULTILINE)]
    return next(iter(named or [each for each in load_markup() if re.search(each.texts, text)]), None)


def hide_markup(text: str, markup: Markup, id: str, protect: Sequence[str] = ()) -> Unit:
    """Return the unit of a message, with its markup and its placeholders as codes. protect: see `ReadConfig`."""
    builder = UnitBuilder()
    _add(builder, text, re.compile(f"{markup.singles}|{markup.pairs}", re.DOTALL))
    return hide_placeholders(builder.finish(id), [f"(?s:{markup.singles})"], protect)


def _add(builder: UnitBuilder, text: str, pattern: re.Pattern[str]) -> None:
    position = 0
    for match in pattern.finditer(text):
        if groups := [group for group in match.groups() if group]:
            builder.add_text(text[position : match.start()])
            id, end = f"m{builder.code_count + 1}", f" <{groups[1]}_>`_" if groups[2] == "`_" else groups[2]
            builder.open(id, groups[0], can_copy=end[-1] in "*>" and groups[0] != "L<")
            _add(builder, groups[1], pattern)
            builder.close(id, end)
            position = match.end()
    builder.add_text(text[position:])


def separate_words(unit: Unit, markup: Markup) -> str:
    """Return a message with the separator between each letter and the markup beside it."""
    parts: list[str] = []
    last: str | Code = ""
    for part in unit.segments():
        before, after = last if isinstance(last, str) else last.content, part if isinstance(part, str) else part.content
        is_end = isinstance(last, Code) and last.kind != "open" and before[-1:] in ("`", "*", "|", "_")
        is_start = isinstance(part, Code) and part.kind != "close" and re.match(r"[`*|]|:\w", after) is not None
        is_glued = (is_end and after[:1].isalnum()) or (is_start and before[-1:].isalnum())
        parts += [markup.separator * is_glued, after]
        last = part
    return "".join(parts)
