"""Packages of strangers: bombs, entities and damage are refused; large and foreign texts are read and written."""

import importlib.util
import io
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from docmt.core.errors import DocmtError
from docmt.documents.input_formats import FORMATS
from docmt.formats import zip_package
from docmt.formats.units import ReadConfig, Unit, read_units

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
OFFICE = "http://schemas.openxmlformats.org"
TYPES = "application/vnd.openxmlformats-officedocument"
OASIS = "urn:oasis:names:tc:opendocument:xmlns"


@dataclass(frozen=True)
class Sample:
    """How a small package of a format is made."""

    name: str
    main: str
    """its member with the text"""
    wrap: Callable[[list[str]], str]
    """writes the main member of escaped paragraphs"""
    others: dict[str, str]
    count: Callable[[int], dict[str, str]] | None = None
    """returns the members that depend on the number of paragraphs"""

    def pack(self, paragraphs=("One two three.",), **changes):
        """Return a package. changes: other contents of the main member (main), and members to add."""
        main = changes.pop("main", None)
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
            for name, text in {**self.others, **(self.count(len(paragraphs)) if self.count else {})}.items():
                file.writestr(name, text, zipfile.ZIP_STORED if name == "mimetype" else None)
            file.writestr(self.main, self.wrap(list(paragraphs)) if main is None else main)
            for name, text in changes.items():
                file.writestr(name, text)
        return buffer.getvalue()

    def load(self, data):
        """Return the units of a package."""
        return read_units(FORMATS[self.name], data, f"x.{self.name}", ReadConfig())


def relations(*targets):
    links = "".join(
        f'<Relationship Id="rId{number}" Type="{OFFICE}/officeDocument/2006/relationships/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, start=1)
    )
    return f'{HEAD}<Relationships xmlns="{OFFICE}/package/2006/relationships">{links}</Relationships>'


def content_types(**parts):
    """Return the types of parts. parts: kinds by the name of the part, with __ for / and _ for a dot."""
    names = {name.replace("__", "/").replace("_", "."): kind for name, kind in parts.items()}
    overrides = "".join(
        f'<Override PartName="/{name}" ContentType="{TYPES}.{kind}+xml"/>' for name, kind in names.items()
    )
    return (
        f'{HEAD}<Types xmlns="{OFFICE}/package/2006/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Default Extension="xml" ContentType="application/xml"/>{overrides}</Types>'
    )


def wrap_word(paragraphs):
    body = "".join(f'<w:p><w:r><w:t xml:space="preserve">{text}</w:t></w:r></w:p>' for text in paragraphs)
    names = f'xmlns:w="{OFFICE}/wordprocessingml/2006/main"'
    return f"{HEAD}<w:document {names}><w:body>{body}<w:sectPr/></w:body></w:document>"


def wrap_open(paragraphs):
    body = "".join(f"<text:p>{text}</text:p>" for text in paragraphs)
    names = f'xmlns:office="{OASIS}:office:1.0" xmlns:text="{OASIS}:text:1.0" office:version="1.2"'
    return (
        f"{HEAD}<office:document-content {names}><office:body><office:text>{body}</office:text></office:body>"
        "</office:document-content>"
    )


def wrap_strings(paragraphs):
    items = "".join(f'<si><t xml:space="preserve">{text}</t></si>' for text in paragraphs)
    names = f'xmlns="{OFFICE}/spreadsheetml/2006/main"'
    return f'{HEAD}<sst {names} count="{len(paragraphs)}" uniqueCount="{len(paragraphs)}">{items}</sst>'


def make_sheet(count):
    rows = "".join(
        f'<row r="{number}"><c r="A{number}" t="s"><v>{number - 1}</v></c></row>' for number in range(1, count + 1)
    )
    names = f'xmlns="{OFFICE}/spreadsheetml/2006/main"'
    return f"{HEAD}<worksheet {names}><sheetData>{rows}</sheetData></worksheet>"


def wrap_chapter(paragraphs):
    body = "".join(f"<p>{text}</p>" for text in paragraphs)
    head = "<head><title/></head>"
    return f'{HEAD}<html xmlns="http://www.w3.org/1999/xhtml">{head}<body>{body}</body></html>'


WORD = Sample(
    "docx",
    "word/document.xml",
    wrap_word,
    {
        "[Content_Types].xml": content_types(word__document_xml="wordprocessingml.document.main"),
        "_rels/.rels": relations(("officeDocument", "word/document.xml")),
    },
)
OPEN = Sample(
    "odf",
    "content.xml",
    wrap_open,
    {
        "mimetype": "application/vnd.oasis.opendocument.text",
        "META-INF/manifest.xml": f'{HEAD}<manifest:manifest xmlns:manifest="{OASIS}:manifest:1.0">'
        '<manifest:file-entry manifest:full-path="/" manifest:media-type="application/vnd.oasis.opendocument.text"/>'
        '<manifest:file-entry manifest:full-path="content.xml" manifest:media-type="text/xml"/></manifest:manifest>',
    },
)
BOOK = Sample(
    "epub",
    "OEBPS/one.xhtml",
    wrap_chapter,
    {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": f'{HEAD}<container version="1.0" xmlns="{OASIS}:container"><rootfiles>'
        '<rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>',
        "OEBPS/book.opf": f'{HEAD}<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="i">'
        '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:identifier id="i">1</dc:identifier>'
        '<dc:title>1</dc:title><dc:language>en</dc:language></metadata><manifest><item id="c" href="one.xhtml" '
        'media-type="application/xhtml+xml"/></manifest><spine><itemref idref="c"/></spine></package>',
    },
)
SHEET = Sample(
    "xlsx",
    "xl/sharedStrings.xml",
    wrap_strings,
    {
        "[Content_Types].xml": content_types(
            xl__workbook_xml="spreadsheetml.sheet.main",
            xl__worksheets__sheet1_xml="spreadsheetml.worksheet",
            xl__sharedStrings_xml="spreadsheetml.sharedStrings",
        ),
        "_rels/.rels": relations(("officeDocument", "xl/workbook.xml")),
        "xl/workbook.xml": f'{HEAD}<workbook xmlns="{OFFICE}/spreadsheetml/2006/main" '
        f'xmlns:r="{OFFICE}/officeDocument/2006/relationships">'
        '<sheets><sheet name="1" sheetId="1" r:id="rId1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": relations(
            ("worksheet", "worksheets/sheet1.xml"), ("sharedStrings", "sharedStrings.xml")
        ),
    },
    count=lambda number: {"xl/worksheets/sheet1.xml": make_sheet(number)},
)


def has_module(sample):
    return importlib.util.find_spec(f"docmt.formats.{FORMATS[sample.name].module}") is not None


SAMPLES = [
    pytest.param(
        sample,
        id=sample.name,
        marks=pytest.mark.skipif(not has_module(sample), reason=f"docmt does not read {sample.name} yet"),
    )
    for sample in (WORD, OPEN, BOOK, SHEET)
]
every_format = pytest.mark.parametrize("sample", SAMPLES)


def refuse(sample, data, match=None):
    with pytest.raises(DocmtError, match=match) as error:
        sample.load(data)
    assert "x." in str(error.value)
    return str(error.value)


@every_format
def test_a_sample_is_read(sample):
    data = sample.pack()
    file = sample.load(data)
    assert [unit.text for unit in file.units] == ["One two three."]
    assert file.write(file.units) == data


@every_format
def test_many_members_are_refused(sample):
    refuse(sample, sample.pack(**{f"x{number}": "" for number in range(zip_package.MAX_MEMBERS)}), "members")


@every_format
def test_a_member_of_a_bad_ratio_is_refused(sample):
    refuse(sample, sample.pack([" " * 20 * 2**20]), "too many bytes")


@every_format
def test_large_members_are_refused(sample, monkeypatch):
    monkeypatch.setattr(zip_package, "MAX_BYTES", 200)
    refuse(sample, sample.pack(["One two three. " * 20]), "too many bytes|unpacks to more")


@every_format
def test_a_directory_of_large_members_is_refused(sample):
    data = bytearray(sample.pack())
    place = data.rindex(b"PK\1\2") + 24
    data[place : place + 4] = struct.pack("<I", 2**32 - 2)
    refuse(sample, bytes(data), "unpacks to more")


@every_format
@pytest.mark.parametrize("name", ["../evil.xml", "/etc/evil", "a/../../evil", "C:\\evil", "a\\..\\evil"])
def test_paths_out_of_the_package_are_refused(sample, name):
    refuse(sample, sample.pack(**{name: "x"}), "out of the package")


@every_format
def test_encrypted_members_are_refused(sample):
    data = bytearray(sample.pack())
    data[data.index(b"PK\1\2") + 8] |= 1
    refuse(sample, bytes(data), "encrypted")


def declare(sample, doctype, paragraph):
    main = sample.wrap([paragraph])
    return sample.pack(main=main.replace(HEAD, f"{HEAD}{doctype}\n"))


def keep_secret(sample, data):
    """Check that a package is refused, or read without its entities."""
    try:
        file = sample.load(data)
    except DocmtError as error:
        assert "top-secret" not in str(error)
        return
    assert sample.name == "epub"
    assert not any("top-secret" in unit.text for unit in file.units)


@every_format
def test_entities_are_refused(sample):
    many = "".join(f'<!ENTITY e{number} "{f"&e{number - 1};" * 10}">' for number in range(1, 12))
    keep_secret(sample, declare(sample, f'<!DOCTYPE x [<!ENTITY e0 "top-secret">{many}]>', "One &e11; two"))


@every_format
def test_no_file_outside_is_read(sample, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("top-secret")
    for kind in ("", "% "):
        doctype = f'<!DOCTYPE x [<!ENTITY {kind}e SYSTEM "{secret.as_uri()}">]>'
        keep_secret(sample, declare(sample, doctype, "One &e; two"))
    dtd = tmp_path / "entities.dtd"
    dtd.write_text('<!ENTITY e "top-secret">')
    keep_secret(sample, declare(sample, f'<!DOCTYPE x SYSTEM "{dtd.as_uri()}">', "One &e; two"))


@every_format
@pytest.mark.parametrize("size", [0, 10, -10])
def test_broken_xml_is_refused(sample, size):
    if sample.name == "epub":
        pytest.skip("a chapter may be read as HTML")
    refuse(sample, sample.pack(main=sample.wrap(["One"])[: size or None] if size else ""))


@every_format
@pytest.mark.parametrize("cut", [0, 4, 100, -30])
def test_cut_files_are_refused(sample, cut):
    refuse(sample, sample.pack()[:cut])


@every_format
def test_an_xml_part_of_other_bytes_is_refused_or_read(sample):
    for main in (b"\0" * 100, b"\xff\xfe" + b"<" * 50, b"<a>\xe9</a>", b"\xef\xbb\xbf"):
        try:
            assert not sample.load(sample.pack(main=main)).units
        except DocmtError as error:
            assert "x." in str(error)


@every_format
@pytest.mark.parametrize("paragraphs", [(), ("",), ("12.5 % — 3",)])
def test_a_file_without_text_has_no_units(sample, paragraphs):
    data = sample.pack(paragraphs)
    file = sample.load(data)
    assert not file.units
    assert file.write([], "de")
    assert file.write([]) == data


def rewrite(sample, old, new, language=""):
    """Replace all texts and read them again."""
    file = sample.load(sample.pack(old))
    assert [unit.text for unit in file.units] == list(old)
    data = file.write([Unit(text) for text in new], language)
    assert [unit.text for unit in sample.load(data).units] == list(new)
    return data


@every_format
def test_a_long_paragraph_is_read_and_written(sample):
    if sample.name == "xlsx":
        pytest.skip("a cell holds at most 32,767 characters")
    words = " ".join(f"word{number}" for number in range(110_000))
    assert len(words) > 1_000_000
    rewrite(sample, [words], [words.replace("word", "Wört")])


@every_format
@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("ar", "هذه جملة، وفيها ١٢٣ رقما."),
        ("he", "זה משפט עם (סוגריים)."),
        ("ja", "これは文です。「引用」もあります。"),
        ("zh-TW", "這是一個句子。"),
        ("hi", "यह एक वाक्य है।"),
        ("th", "นี่คือประโยค"),
        ("en", "Emoji 👩‍👩‍👧 and 𝒻 outside of the first plane"),
    ],
)
def test_scripts_are_kept(sample, language, text):
    rewrite(sample, ["One two three."], [text], language)
    rewrite(sample, [text], ["One two three."], "en")


@pytest.mark.full
@every_format
def test_thousands_of_paragraphs_are_read_and_written(sample):
    old = [f"Paragraph number {number} of the file." for number in range(5_000)]
    rewrite(sample, old, [text.replace("number", "číslo") for text in old], "cs")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_members_that_unpack_without_bounds_are_refused(method):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        file.writestr("word/document.xml", b"0" * 10_000_000)
    with pytest.raises(DocmtError, match="packed in a way that is not read"):
        zip_package.ZipPackage(buffer.getvalue(), "x.docx")
