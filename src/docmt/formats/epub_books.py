"""EPUB: books of XHTML chapters, each a document. The table of contents, title and description come first.

The container is that of EPUB 3.3 (https://www.w3.org/TR/epub-33/) and of EPUB 2 with its NCX.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, islice
from typing import NamedTuple
from urllib.parse import unquote

from docmt.core.errors import DocmtError
from docmt.documents.words import has_letters, strip_span
from docmt.formats import html_pages
from docmt.formats.language_codes import is_right_to_left, primary_language
from docmt.formats.patched_text import PatchedText, Replacement
from docmt.formats.units import COLLAPSIBLE, ReadConfig, Unit, UnitFile
from docmt.formats.xml_tree import BrokenXmlError, Element, XmlFile, escape_text, set_attribute
from docmt.formats.zip_package import ZipPackage

_CONTAINER, _ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
_OBFUSCATION = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
"""Algorithms of fonts, which other programs read all the same."""
_NCX, _CHAPTERS = "application/x-dtbncx+xml", ("application/xhtml+xml", "text/html")
_TAG = re.compile("</?[A-Za-z]")
_DIRECTION = "page-progression-direction"


class _Item(NamedTuple):
    """A file of the book."""

    name: str
    media_type: str
    is_navigation: bool


def read(data: bytes, path: str, config: ReadConfig) -> UnitFile:
    """Return the units of a book. Raises DocmtError for damaged and protected ones."""
    package = ZipPackage(data, path)
    _refuse_protection(package, path)
    container = XmlFile(package.read(_CONTAINER), f"{path}: {_CONTAINER}", doctype=True)
    roots = [each.attributes.get("full-path", "") for each in _find(container.root, "rootfile")]
    if not roots:
        raise DocmtError(f"{path}: {_CONTAINER} names no package document. Save the book again and retry.")
    metadata = XmlFile(package.read(roots[0]), f"{path}: {roots[0]}", doctype=True)
    languages = [each.text().strip() for each in _find(metadata.root, "language")]
    config = replace(config, source_language=config.source_language or "".join(languages[:1]))
    items = _read_manifest(metadata.root, posixpath.dirname(roots[0]))
    order = list(dict.fromkeys(each.attributes.get("idref", "") for each in _find(metadata.root, "itemref")))
    spine = [items[id] for id in order if id in items]
    chapters = [item for item in spine if item.media_type in _CHAPTERS]
    if not chapters:
        raise DocmtError(f"{path}: {roots[0]} names no chapters of XHTML. docmt reads no other books.")
    listed = (item for item in dict.fromkeys(items.values()) if item.is_navigation or item.media_type == _NCX)
    contents = [item for item in listed if item not in chapters]
    parts = {item.name: _read_item(package, path, item, config) for item in [*contents, *chapters]}
    front, body = (
        [(item.name, part) for item in items if (part := parts[item.name])] for items in (contents, chapters)
    )
    about = _Metadata(metadata, _find(metadata.root, "title", "description", outside="guide"), config)
    book = _Book(package, [(roots[0], about), *front], body)
    for item in dict.fromkeys([*contents, *spine]):
        if not (parts.get(item.name) or item.media_type.startswith("image/")):
            book.skip("chapters that cannot be read", item.name)
    return book


class _Book(UnitFile):
    """A book."""

    def __init__(
        self, package: ZipPackage, front: Sequence[tuple[str, UnitFile]], body: Sequence[tuple[str, UnitFile]]
    ) -> None:
        self._package, self._parts = package, [*front, *body]
        units = [unit for _, part in self._parts for unit in part.units]
        super().__init__(units, [skipped for _, part in self._parts for skipped in part.skipped])
        counts = [sum(len(part.units) for _, part in front), *(len(part.units) for _, part in body)]
        starts = [0, *accumulate(counts)]
        self.document_starts = [start for start, count in zip(starts, counts, strict=False) if count] or [0]

    def write(self, units: Sequence[Unit], language: str = "") -> bytes:
        """Return the book with other units. language: see `UnitFile`."""
        contents, rest = {}, iter(units)
        for name, part in self._parts:
            new = list(islice(rest, len(part.units)))
            if language or new != part.units:
                contents[name] = part.write(new, language)
        return self._package.replace(contents)


class _TextElements(UnitFile):
    """XML whose units are the texts of some elements."""

    def __init__(self, file: XmlFile, elements: Sequence[Element], config: ReadConfig) -> None:
        super().__init__()
        self._file, self._elements = file, elements
        self._source = primary_language(config.source_language)
        self._patched = PatchedText(file.text)
        for element in elements:
            text = COLLAPSIBLE.sub(" ", element.text()).strip()
            language = primary_language(element.attributes.get("xml:lang", ""))
            if not has_letters(text) or element.elements:
                continue
            if language not in ("", self._source):
                self.skip("passages in another language", text)
            elif element.local_name == "description" and _TAG.search(text):
                self.skip("descriptions with markup", text)
            elif not self.skip_of_program(text):
                start, end = strip_span(file.text, element.inner_start, element.inner_end)
                self._patched.add(start, end, self.add_unit(Unit(text, id=element.tag)), escape_text)

    def write(self, units: Sequence[Unit], language: str = "") -> bytes:
        """Return the file with other units. language: see `UnitFile`."""
        changes = list(self._name_language(language.replace("_", "-"))) if language else []
        return self._file.encode(self._patched.render(self.units, units, changes))

    def _name_language(self, language: str) -> Iterator[Replacement]:
        """Yield the replacements that name a language."""
        for element in (self._file.root, *self._elements):
            old = primary_language(element.attributes.get("xml:lang", ""))
            if old and (old == self._source or element is self._file.root):
                yield set_attribute(self._file, element, "xml:lang", language)


class _Metadata(_TextElements):
    """The package document: title, description, language and direction of a book."""

    def _name_language(self, language: str) -> Iterator[Replacement]:
        yield from super()._name_language(language)
        named = [each for each in _find(self._file.root, "language") if not each.is_empty_tag]
        for element in named[:1]:
            yield element.inner_start, element.inner_end, escape_text(language)
        is_rtl = is_right_to_left(language)
        for spine in _find(self._file.root, "spine"):
            # Books in Japanese may have this direction, too, and keep it.
            if is_rtl or (spine.attributes.get(_DIRECTION) == "rtl" and is_right_to_left(self._source)):
                yield set_attribute(self._file, spine, _DIRECTION, "rtl" if is_rtl else "ltr")


def _refuse_protection(package: ZipPackage, path: str) -> None:
    """Raise DocmtError if anything but fonts is encrypted."""
    if _ENCRYPTION not in package:
        return
    file = XmlFile(package.read(_ENCRYPTION), f"{path}: {_ENCRYPTION}", doctype=True)
    for data in _find(file.root, "EncryptedData"):
        methods = [each.attributes.get("Algorithm") for each in _find(data, "EncryptionMethod")]
        if not methods or methods[0] not in _OBFUSCATION:
            names = [each.attributes.get("URI", "") for each in _find(data, "CipherReference")]
            raise DocmtError(
                f"{path} is protected (DRM): {_ENCRYPTION} encrypts {', '.join(names) or 'its text'}. docmt does not "
                "read protected books; use one without protection."
            )


def _read_manifest(root: Element, folder: str) -> dict[str, _Item]:
    """Return the files of the book by id."""
    return {
        each.attributes.get("id", ""): _Item(
            posixpath.normpath(posixpath.join(folder, unquote(each.attributes.get("href", "")))),
            each.attributes.get("media-type", ""),
            "nav" in each.attributes.get("properties", "").split(),
        )
        for each in _find(root, "item")
    }


def _read_item(package: ZipPackage, path: str, item: _Item, config: ReadConfig) -> UnitFile | None:
    """Return a file of the book; None if it cannot be read and stays as it is."""
    data, name = package.read(item.name), f"{path}: {item.name}"
    try:
        if item.media_type != _NCX:
            return html_pages.read_xhtml(data, name, config)
        file = XmlFile(data, name, doctype=True)
    except BrokenXmlError:
        if item.media_type != _NCX and _TAG.search(data.decode("latin-1")):
            with suppress(DocmtError):
                return html_pages.read(data, name, config)  # as readers of books show it
        return None
    return _TextElements(file, _find(file.root, "text", outside="docAuthor"), config)


def _find(root: Element, *names: str, outside: str = "") -> list[Element]:
    """Return the elements of these names, in any namespace, as old books have several. outside: name of no parent."""
    elements = [each for each in root.iter() if each.local_name in names]
    return [each for each in elements if not (each.parent and each.parent.local_name == outside)]
