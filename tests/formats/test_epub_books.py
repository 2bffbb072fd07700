"""E-books: chapters as documents, tables of contents, metadata, and protection."""

import io
import random
import zipfile

import pytest
from generated_files import check_files
from hypothesis import strategies as st
from real_files import NEEDS_FILES, find_files

from docmt.core.errors import DocmtError
from docmt.documents.input_formats import find_format
from docmt.formats.epub_books import read
from docmt.formats.units import ReadConfig, Skipped, Unit

ACCENTS = str.maketrans("aeiouAEIOU", "áéíóúÁÉÍÓÚ")
XHTML = '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops">'
CONTAINER = """<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="E/a b.opf" media-type="application/oebps-package+xml"/></rootfiles></container>"""
PACKAGE = """<package xmlns="http://www.idpf.org/2007/opf" xml:lang="en">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/">
<dc:title>The Book</dc:title><dc:title xml:lang="fr">Le Livre</dc:title>
<dc:creator>Ann Author</dc:creator><dc:language>en-US</dc:language>
<dc:description>About &amp; more</dc:description></metadata>
<manifest><item id="n" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>
<item id="x" href="toc.ncx" media-type="application/x-dtbncx+xml"/>
<item id="p" href="p.svg" media-type="image/svg+xml"/>
<item id="1" href="t/%C3%A9%201.xhtml" media-type="application/xhtml+xml"/>
<item id="2" href="t/2.xhtml" media-type="application/xhtml+xml"/></manifest>
<spine toc="x"><itemref idref="2"/><itemref idref="p"/><itemref idref="1"/></spine></package>"""
NCX = """<!DOCTYPE ncx PUBLIC "-//NISO//DTD ncx 2005-1//EN" "http://www.daisy.org/z3986/2005/ncx-2005-1.dtd">
<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/" xml:lang="en"><docTitle><text> The Book </text></docTitle>
<docAuthor><text>Ann Author</text></docAuthor><navMap><navPoint><navLabel><text>Second</text></navLabel></navPoint>
</navMap></ncx>"""
MEMBERS = {
    "META-INF/container.xml": CONTAINER,
    "E/a b.opf": PACKAGE,
    "E/nav.xhtml": f'{XHTML}<body><nav epub:type="toc"><ol><li><a href="x">First</a></li></ol></nav></body></html>',
    "E/toc.ncx": NCX,
    "E/t/é 1.xhtml": f"{XHTML}<body><p>One <b>two</b></p><p>Three</p></body></html>",
    "E/t/2.xhtml": f"{XHTML}<body><p>Second <i xml:lang='fr'>chapitre</i> here</p></body></html>",
    "E/p.svg": "<svg/>",
}


def pack(changes=None):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        for name, data in {**MEMBERS, **(changes or {})}.items():
            if data is not None:
                file.writestr(name, data)
    return buffer.getvalue()


def unpack(data):
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        assert file.testzip() is None
        return {name: file.read(name) for name in file.namelist()}


def read_book(data, **config):
    file = read(data, "x.epub", ReadConfig(**config))
    assert unpack(file.write(file.units)) == unpack(data)
    return file


def check_pseudo(file):
    new = [Unit(unit.text.translate(ACCENTS), unit.codes, unit.id) for unit in file.units]
    again = read(file.write(new), "x.epub", ReadConfig())
    assert [unit.text for unit in again.units] == [unit.text for unit in new]


def test_units_of_a_book():
    file = read_book(pack())
    front = ["The Book", "About & more", "First", "The Book", "Second"]
    assert sorted(unit.text for unit in file.units[:5]) == sorted(front)
    assert [unit.text for unit in file.units[5:]] == ["Second here", "One two", "Three"]
    assert file.document_starts == [0, 5, 6]
    assert file.skipped == [Skipped("passages in another language", text) for text in ("Le Livre", "chapitre")]
    check_pseudo(file)


def test_the_format_is_recognised():
    assert find_format("book", pack()).name == "epub"


def test_the_type_stays_first_and_stored():
    file = read_book(pack())
    data = file.write([Unit(unit.text + " x", unit.codes) for unit in file.units], "cs")
    with zipfile.ZipFile(io.BytesIO(data)) as book:
        first = book.infolist()[0]
        assert (first.filename, first.compress_type, book.read(first)) == ("mimetype", 0, b"application/epub+zip")


def test_only_changed_files_change():
    data = pack()
    file = read_book(data)
    new = [*file.units[:-1], Unit("<Drei>")]
    changed = {name for name, content in unpack(file.write(new)).items() if content != unpack(data)[name]}
    assert changed == {"E/t/é 1.xhtml"}
    assert "<p>&lt;Drei&gt;</p>" in unpack(file.write(new))["E/t/é 1.xhtml"].decode()


def test_the_language_is_set():
    file = read_book(pack())
    members = {name: content.decode() for name, content in unpack(file.write(file.units, "ar_EG")).items()}
    assert "<dc:language>ar-EG</dc:language>" in members["E/a b.opf"]
    assert 'xml:lang="ar-EG"' in members["E/a b.opf"].splitlines()[0]
    assert '<dc:title xml:lang="fr">' in members["E/a b.opf"]
    assert '<spine page-progression-direction="rtl" toc="x">' in members["E/a b.opf"]
    assert 'xml:lang="ar-EG"' in members["E/toc.ncx"]
    assert '<html xml:lang="ar-EG" dir="rtl"' in members["E/t/2.xhtml"]
    assert "<i xml:lang='fr'>" in members["E/t/2.xhtml"]


def test_books_become_left_to_right():
    package = PACKAGE.replace("<spine", '<spine page-progression-direction="rtl"')
    for language, direction in (("he", "ltr"), ("ja", "rtl")):
        file = read_book(pack({"E/a b.opf": package.replace("en-US", language)}))
        assert f'direction="{direction}"' in unpack(file.write(file.units, "en"))["E/a b.opf"].decode()


def test_a_table_of_contents_in_the_spine_is_read_once():
    file = read_book(pack({"E/a b.opf": PACKAGE.replace('<itemref idref="2"/>', '<itemref idref="n"/>')}))
    assert [unit.text for unit in file.units].count("First") == 1
    assert [unit.text for unit in file.units[-3:]] == ["First", "One two", "Three"]


def test_descriptions_with_markup_stay():
    package = PACKAGE.replace("About &amp; more", "&lt;p&gt;About&lt;/p&gt;")
    assert Skipped("descriptions with markup", "<p>About</p>") in read_book(pack({"E/a b.opf": package})).skipped


ENCRYPTION = """<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container"
xmlns:e="http://www.w3.org/2001/04/xmlenc#"><e:EncryptedData><e:EncryptionMethod Algorithm="{}"/><e:CipherData>
<e:CipherReference URI="E/t/2.xhtml"/></e:CipherData></e:EncryptedData></encryption>"""


def test_protected_books_are_refused_by_name():
    data = pack({"META-INF/encryption.xml": ENCRYPTION.format("http://www.w3.org/2001/04/xmlenc#aes128-cbc")})
    with pytest.raises(DocmtError, match=r"x\.epub is protected \(DRM\).*E/t/2\.xhtml"):
        read(data, "x.epub", ReadConfig())


def test_fonts_may_be_obfuscated():
    data = pack({"META-INF/encryption.xml": ENCRYPTION.format("http://www.idpf.org/2008/embedding")})
    assert len(read_book(data).units) == 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"META-INF/container.xml": None}, r"has no META-INF/container\.xml"),
        ({"META-INF/container.xml": "<container/>"}, "names no package document"),
        ({"META-INF/container.xml": CONTAINER.replace("E/", "../E/")}, r"has no \.\./E/a b\.opf"),
        ({"E/t/2.xhtml": None}, r"has no E/t/2\.xhtml"),
        ({"E/a b.opf": "<package/>"}, "names no chapters"),
        ({"E/a b.opf": PACKAGE.replace("t/2.xhtml", "../../x")}, r"has no \.\./x"),
        ({"E/t/2.xhtml": "<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>"}, "DOCTYPE"),
    ],
)
def test_damaged_books_are_refused(changes, message):
    with pytest.raises(DocmtError, match=message):
        read(pack(changes), "x.epub", ReadConfig())


WORDS = st.text(st.sampled_from("abé <&\"'\xa0"), min_size=1, max_size=12)


@check_files(st.lists(WORDS, min_size=8, max_size=8), quick=30)
def test_any_text_is_written_and_read_again(words):
    file = read_book(pack())
    new = [Unit(" ".join(["x", *word.split(), "y"])) for word in words]
    again = read(file.write(new, "cs"), "x.epub", ReadConfig(source_language="cs"))
    assert [unit.text for unit in again.units[-6:]] == [unit.text for unit in new[-6:]]


@NEEDS_FILES
@pytest.mark.parametrize("path", find_files("epub"), ids=lambda path: path.name)
@pytest.mark.full
def test_real_books(path):
    data = path.read_bytes()
    file = read(data, path.name, ReadConfig())
    assert file.write(file.units) == data
    check_pseudo(file)
    assert read(file.write(file.units, "ar"), path.name, ReadConfig()).units == file.units


@pytest.mark.full
def test_mutants_are_read_or_refused():
    generator = random.Random(3)
    whole = pack()
    for number in range(200):
        name = generator.choice(list(MEMBERS))
        data = bytearray(MEMBERS[name].encode() if number % 2 else whole)
        start = generator.randrange(len(data))
        choice = generator.randrange(3)
        if choice == 0:
            data[start] = generator.randrange(256)
        else:
            data[start : start + 9] = b"" if choice == 1 else data[start : start + 9] * 2
        mutant = pack({name: bytes(data)}) if number % 2 else bytes(data)
        try:
            file = read(mutant, "x.epub", ReadConfig())
        except DocmtError:
            continue
        if number % 2:
            assert unpack(file.write(file.units)) == unpack(mutant)
        assert file.write(file.units, "cs")


@pytest.mark.parametrize(
    ("chapter", "texts"),
    [
        ("<html><body><p>One<br>two</p><p>Three</body></html>", ["One two", "Three"]),
        ("<p>Tom & Jerry&nbsp;came", ["Tom & Jerry\xa0came"]),
        ("<p><b>One</p></b>", ["One"]),
        (b"<p>One \xe9", None),
        (b"<?xml version='1.0' encoding='ascii'?><p>One \xe9</p>", ["One é"]),
        ("", []),
    ],
)
def test_a_chapter_that_is_no_xml_is_read_as_html(chapter, texts):
    data = pack({"E/t/2.xhtml": chapter})
    file = read(data, "x.epub", ReadConfig())
    assert file.write(file.units) == data
    read_again = [unit.text for unit in file.units]
    assert read_again[-2:] == ["One two", "Three"]  # of the other chapter
    if texts is None:
        assert file.skipped[-1] == Skipped("chapters that cannot be read", "E/t/2.xhtml")
        return
    assert read_again[5:-2] == texts
    new = file.write([Unit(unit.text.translate(ACCENTS), unit.codes) for unit in file.units])
    assert [unit.text for unit in read(new, "x.epub", ReadConfig()).units] == [
        text.translate(ACCENTS) for text in read_again
    ]


def test_chapters_of_html_are_read_and_others_reported():
    package = PACKAGE.replace(
        'href="t/2.xhtml" media-type="application/xhtml+xml"', 'href="t/2.xhtml" media-type="text/html"'
    )
    file = read(pack({"E/a b.opf": package}), "x.epub", ReadConfig())
    assert "Second here" in [unit.text for unit in file.units]
    package = PACKAGE.replace("image/svg+xml", "application/x-dtbook+xml")
    assert (
        Skipped("chapters that cannot be read", "E/p.svg")
        in read(pack({"E/a b.opf": package}), "", ReadConfig()).skipped
    )


def test_a_broken_table_of_contents_is_left():
    data = pack({"E/toc.ncx": "<ncx><text>Second</ncx>"})
    file = read(data, "x.epub", ReadConfig())
    assert Skipped("chapters that cannot be read", "E/toc.ncx") in file.skipped
    assert file.write(file.units, "fr") != data
