"""Files of glossaries: TSV, CSV, TBX, TMX and JSON."""

from __future__ import annotations

import io
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any

from lxml import etree

from docmt.core.errors import DocmtError
from docmt.core.plain_text import plain_name, read_bytes
from docmt.core.settings import build, quote
from docmt.documents.published_corpora import segment_texts
from docmt.formats.language_codes import primary_language
from docmt.formats.patched_text import decode_text, find_mark
from docmt.terms.glossary_tables import Entry, EntryFile, EntryWord, is_forbidden_status, read_flag, read_table

MAX_BYTES = 100 * 2**20
_TABLE_SUFFIXES = (".tsv", ".csv", ".txt", ".tab", ".utf8")
_XML = re.compile(r"\s*<(?:\?xml|!DOCTYPE|!--|[\w:]*(?:tmx|martif|tbx)\b)", re.IGNORECASE)
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_STATUSES = frozenset(
    ["administrativestatus", "normativeauthorization", "usagestatus", "usage", "status", "termstatus"]
)
_KEEP = {"translationneeded": False, "translatable": False, "donottranslate": True, "untranslatable": True}
"""Data categories of term bases, and the value by which they say "do not translate"."""
_CASE = dict.fromkeys(("casesensitive", "casesensitivity", "matchcase"), True)
_GENERAL = frozenset(["descrip", "termnote", "admin"])
_CATEGORIES = frozenset(["term", "note", *_STATUSES, *_KEEP, *_CASE])
_NO_LETTER = re.compile(r"[\W_]+")
_LETTERS = {
    **{"ca": "àçèéíïòóúü·", "da": "æøåé", "de": "äöüß", "en": "éèêëïôñç", "es": "áéíñóúüªº", "fi": "äöå"},
    **{"fr": "àâæçéèêëîïôœùûüÿ", "it": "àèéìíòóùúº", "nl": "áéèêëïíóöúü", "no": "æøåéèêòóô", "nb": "æøåéèêòóô"},
    **{"nn": "æøåéèêòóô", "pt": "àáâãçéêíóôõúüªº", "sv": "äöåé"},
}
"""Letters beside a to z of languages that Windows-1252 can write."""
_SIGNS = "’‘“”„«»–—…•€°§©®™²³µ·×\xa0"
_GROUPS = ("terms", "doNotTranslate")
_PREFERRED = re.compile(r"prefer|standardi")


def read_entries(path: Path | str, languages: tuple[str, str] = ("", "")) -> EntryFile:
    """Return the entries of a file.

    languages: of the terms; a table in Windows-1252 is read only if all of its letters are theirs. Raises DocmtError
    for a file that is too large, damaged or of another kind.
    """
    return parse_entries(read_bytes(path, MAX_BYTES), str(path), languages)


def parse_entries(data: bytes, path: str, languages: tuple[str, str] = ("", "")) -> EntryFile:
    """Return the entries of the contents of a file. See `read_entries`."""
    if data.startswith(b"PK\x03\x04"):
        raise DocmtError(f"{path} is an office document or an archive: save its table as CSV")
    mark, encoding = find_mark(data)
    start = data[len(mark) : 500].decode(encoding or "utf-8", "replace").replace("\0", "")
    suffix = Path(plain_name(path)).suffix.lower()
    if _XML.match(start) or suffix in (".tbx", ".tmx", ".xml"):
        return _read_xml(data, path)
    is_western = _is_western(data, languages) if suffix in _TABLE_SUFFIXES and not mark else False
    text = decode_text(data, path, "cp1252" if is_western else "")[0]
    if suffix == ".json" or (suffix not in _TABLE_SUFFIXES and start.lstrip().startswith(("{", "["))):
        return _read_json(text, path)
    file = read_table(text, path)
    if is_western:
        file.remarks.insert(0, (1, "is no UTF-8, and is read as Windows-1252 (all of the file)"))
    return file


def _is_western(data: bytes, languages: tuple[str, str]) -> bool:
    """Return whether bytes that are no UTF-8 are a text of two languages in Windows-1252."""
    alphabets = [_LETTERS.get(primary_language(code)) for code in languages]
    try:
        data.decode()
    except UnicodeDecodeError:
        text = data.decode("cp1252", "replace").casefold()
        return None not in alphabets and set(filter(_is_foreign, text)) <= set("".join(filter(None, alphabets)))
    return False


def _is_foreign(character: str) -> bool:
    return not character.isascii() and character not in _SIGNS


# TBX and TMX


def _read_xml(data: bytes, path: str) -> EntryFile:
    """Return the entries of a term base or a translation memory. Nothing outside of the file is read."""
    file = EntryFile(path, "TBX")
    for root, element in iterate_xml(data, path, ("martif", "tbx", "tmx"), ("termEntry", "conceptEntry", "tu")):
        file.format = "TMX" if root == "tmx" else "TBX"
        read: Callable[[Any], Entry] = _read_unit if name_element(element) == "tu" else _read_term_entry
        file.entries.append(read(element))
    return file


def iterate_xml(
    data: bytes, path: str, roots: Sequence[str], tags: Sequence[str]
) -> Iterator[tuple[str, etree._Element]]:
    """Yield the elements with these tags, each with the name of the root. Nothing outside of the file is read.

    roots: normalized names, of which the root must have one. Raises DocmtError for others, and for broken XML.
    """
    options = {"tag": [f"{{*}}{tag}" for tag in tags], "resolve_entities": False, "no_network": True, "load_dtd": False}
    events, root = etree.iterparse(io.BytesIO(data), **options), ""
    try:
        for _, element in events:
            if not root:
                _refuse_entities(element, path)
                root = name_element(element.getroottree().getroot())
            yield root, element
            element.clear()
            while element.getprevious() is not None:  # what was read would stay in memory
                del element.getparent()[0]
    except (etree.XMLSyntaxError, ValueError) as error:
        raise DocmtError(f"{path} is broken XML ({error}): export it again") from error
    if (root := name_element(events.root)) not in roots:
        raise DocmtError(f"{path} is XML, but neither TBX nor TMX: its root is <{root}>")


def _refuse_entities(element: etree._Element, path: str) -> None:
    """Raise DocmtError for a file that declares entities. A DOCTYPE alone is usual, and ignored."""
    types = element.getroottree().docinfo.internalDTD
    if types is not None and any(True for _ in types.iterentities()):
        raise DocmtError(f"{path} declares entities. It is refused: remove them from its DOCTYPE")


@lru_cache(1024)
def _normalize(name: str) -> str:
    """Return a name without its namespace and signs, in lower case."""
    return _NO_LETTER.sub("", name.rpartition("}")[2].lower())


def name_element(element: etree._Element) -> str:
    """Return the normalized name of an element; empty for a comment."""
    return _normalize(element.tag) if isinstance(element.tag, str) else ""


def find_language_of(element: etree._Element) -> str:
    """Return the code in the attribute xml:lang or lang of an element."""
    return (element.get(_LANGUAGE) or element.get("lang") or "").strip()


def _read_unit(unit: etree._Element) -> Entry:
    """Return the entry of a translation unit of TMX."""
    words = [
        EntryWord("".join(segment_texts(segment)), find_language_of(variant))
        for variant in unit.iterfind("{*}tuv")
        for segment in variant.iterfind("{*}seg")
    ]
    note = " ".join("".join(segment_texts(note)) for note in unit.iterfind("{*}note"))
    return _make_entry(unit, words, note=note)


def _read_term_entry(concept: etree._Element) -> Entry:
    """Return the entry of a concept of TBX, version 2 or 3, in the style DCA or DCT."""
    data = _read_data(_list_data(concept))
    keep, case, notes = _says(data, _KEEP), _says(data, _CASE), data["note"]
    ranked: list[tuple[bool, EntryWord]] = []
    for section in concept:
        if name_element(section) not in ("langset", "langsec"):
            continue
        keep_section = _says(_read_data(_list_data(section)), _KEEP)
        for group in section:
            data = _read_data(group.iter())
            if not data["term"]:
                continue
            status = " ".join(value for name in data.keys() & _STATUSES for value in data[name])
            keep_term = keep_section or _says(data, _KEEP)
            word = EntryWord(data["term"][0], find_language_of(section), is_forbidden_status(status), keep_term)
            ranked.append((not _PREFERRED.search(status.lower()), word))
            case |= _says(data, _CASE)
            notes += data["note"]
    words = [word for _, word in sorted(ranked, key=itemgetter(0))]
    return _make_entry(concept, words, keep, case, "; ".join(dict.fromkeys(notes)))


def _list_data(element: etree._Element) -> Iterator[etree._Element]:
    """Yield the data categories of a concept or a language, not those of what is in it."""
    for child in element:
        yield child
        if name_element(child) in ("descripgrp", "admingrp"):
            yield from child


def _read_data(elements: Iterable[etree._Element]) -> Mapping[str, list[str]]:
    """Return the values of elements by their data categories.

    The category is the attribute `type` of a general element (style DCA) or the name of the element (DCT).
    """
    data = defaultdict[str, list[str]](list)
    for element in elements:
        name = name_element(element)
        if name in _GENERAL:
            name = _normalize(element.get("type") or "")
        if name in _CATEGORIES:
            data[name].append(" ".join("".join(segment_texts(element)).split()))
    return data


def _says(data: Mapping[str, list[str]], categories: Mapping[str, bool]) -> bool:
    """Return whether one of the categories has the value that is given for it, yes or no."""
    return any(read_flag(value) is categories[name] for name in data.keys() & categories.keys() for value in data[name])


def _make_entry(
    element: etree._Element, words: list[EntryWord], keep: bool = False, case: bool = False, note: str = ""
) -> Entry:
    problem = "" if words else "it has no terms"
    if any(not word.language for word in words):
        problem = "a term has no language (xml:lang)"
    if next(element.iter(etree.Entity), None) is not None:
        problem = "it has an entity that is not declared: write the character itself"
    return Entry(element.sourceline or 0, words, False, keep, case, note, problem)


# JSON


class _Pairs(list[tuple[str, Any]]):
    """An object of JSON, with keys that are there twice."""


@dataclass(frozen=True)
class _JsonTerm:
    """An object for one term."""

    source: str
    target: str | list[str] = ""
    targets: list[str] = field(default_factory=list)
    forbidden: str | list[str] = ""
    keep: bool = False
    case: bool = False
    note: str = ""


def _read_json(text: str, path: str) -> EntryFile:
    """Return the entries of a JSON file: an object of terms and their translations, or a list of objects."""
    file = EntryFile(path, "JSON")
    try:
        values = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError) as error:
        reason = "too many nested brackets" if isinstance(error, RecursionError) else error
        raise DocmtError(f"{path} is not valid JSON ({reason}): mend it") from error
    kept: object = []
    if isinstance(values, _Pairs) and any(key in _GROUPS and not isinstance(value, str) for key, value in values):
        groups = dict(values)
        if unknown := sorted(groups.keys() - _GROUPS):
            raise DocmtError(f"{path}: unknown key {quote(unknown[0])} beside {' and '.join(_GROUPS)}: remove it")
        values, kept = groups.get("terms", []), groups.get("doNotTranslate", [])
    if not isinstance(values, list) or not isinstance(kept, list) or isinstance(kept, _Pairs):
        raise DocmtError(f"{path} must hold an object with terms and translations, or a list of objects")
    objects = [{"source": value[0], "target": value[1]} if isinstance(value, tuple) else value for value in values]
    objects += [{"source": value, "keep": True} for value in kept]
    for number, value in enumerate(objects, 1):
        if not isinstance(value, _Pairs | dict):
            raise DocmtError(f"{file.place(number)} is no object with a source and a target: write one")
        file.entries.append(_read_object(number, build(_JsonTerm, dict(value), file.place(number))))
    return file


def _read_object(number: int, term: _JsonTerm) -> Entry:
    targets, forbidden = ([texts] if isinstance(texts, str) else texts for texts in (term.target, term.forbidden))
    words = [EntryWord(text) for text in (*targets, *term.targets) if text] or [EntryWord(term.source)] * term.keep
    words += [EntryWord(text, "", True) for text in forbidden]
    return Entry(number, [EntryWord(term.source), *words], True, term.keep, term.case, term.note)
