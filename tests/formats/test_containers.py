"""Zip packages and XML texts: what does not change keeps its bytes, and what is unsafe is refused."""

import io
import struct
import zipfile

import pytest

from docmt.core.errors import DocmtError
from docmt.formats import zip_package
from docmt.formats.patched_text import PatchedText
from docmt.formats.units import UnitBuilder
from docmt.formats.xml_tree import Text, XmlFile, escape_text, set_attribute
from docmt.formats.zip_package import ZipPackage


def pack(members, method=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return buffer.getvalue()


def test_a_package_without_changes_keeps_all_bytes():
    data = pack({"mimetype": b"x", "content.xml": b"<a/>" * 100})
    assert ZipPackage(data, "x.zip").replace({}) == data


def test_other_members_keep_their_bytes():
    data = pack({"a": b"one" * 50, "b": b"two" * 50, "ü": b"three"})
    new = ZipPackage(data, "x.zip").replace({"b": b"another" * 20})
    with zipfile.ZipFile(io.BytesIO(new)) as file, zipfile.ZipFile(io.BytesIO(data)) as old:
        assert file.testzip() is None
        assert file.namelist() == ["a", "b", "ü"]
        assert file.read("b") == b"another" * 20
        assert file.read("a") == old.read("a")
        assert file.getinfo("b").date_time == old.getinfo("b").date_time
        assert file.getinfo("b").compress_type == zipfile.ZIP_DEFLATED


def test_no_header_keeps_sizes_that_a_member_had_before():
    buffer, other = io.BytesIO(), b"\x34\x12\x02\x00hi"
    with zipfile.ZipFile(buffer, "w") as file:
        info = zipfile.ZipInfo("a")
        info.extra = other
        with file.open(info, "w", force_zip64=True) as member:  # the local header has a field of large sizes
            member.write(b"one" * 50)
    data = bytearray(buffer.getvalue())
    start = data.index(b"PK\1\2")
    large = struct.pack("<2H2Q", 1, 16, 150, 150)
    data[start + 20 : start + 28] = b"\xff" * 8
    data[start + 30 : start + 32] = struct.pack("<H", len(large + other))
    data[start + 47 : start + 47] = large
    data[-10:-6] = struct.pack("<I", len(data) - 22 - start)  # size of the directory
    package = ZipPackage(bytes(data), "x.zip")
    for contents, expected in (({"a": b"another"}, b"another"), ({}, b"one" * 50)):
        new = package.replace(contents)
        with zipfile.ZipFile(io.BytesIO(new)) as file:
            assert file.testzip() is None and file.read("a") == expected
            assert file.infolist()[0].extra == other and file.infolist()[0].file_size == len(expected)
        assert (large[:4] in new) == (not contents)  # what stays keeps its local header


@pytest.mark.parametrize("name", ["../a", "/etc/x", "a/../../b", "C:/x", "..\\x"])
def test_paths_out_of_the_package_are_refused(name):
    with pytest.raises(DocmtError, match="out of the package"):
        ZipPackage(pack({name: b"x"}), "x.zip")


def test_many_members_are_refused(monkeypatch):
    monkeypatch.setattr(zip_package, "MAX_MEMBERS", 3)
    with pytest.raises(DocmtError, match="4 members"):
        ZipPackage(pack({str(number): b"" for number in range(4)}), "x.zip")


def test_a_member_after_the_directory_is_refused():
    data = bytearray(pack({"a": b"x"}))
    start = data.index(b"PK\1\2") + 42  # the offset of the member in its central header
    data[start : start + 4] = struct.pack("<I", len(data) - 30)
    with pytest.raises(DocmtError, match="begins after the directory"):
        ZipPackage(bytes(data), "x.zip")


def test_bombs_are_refused_while_reading():
    package = ZipPackage(pack({"a": bytes(50 * 2**20)}), "x.zip")
    with pytest.raises(DocmtError, match="too many bytes"):
        package.read("a")


def test_a_size_that_lies_is_refused():
    data = pack({"a": bytes(50 * 2**20)})
    lying = data.replace(struct.pack("<I", 50 * 2**20), struct.pack("<I", 10))
    with pytest.raises(DocmtError):
        ZipPackage(lying, "x.zip").read("a")


def test_encrypted_members_are_refused():
    data = bytearray(pack({"a": b"x"}))
    data[data.index(b"PK\1\2") + 8] |= 1
    with pytest.raises(DocmtError, match="encrypted"):
        ZipPackage(bytes(data), "x.zip")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not a zip package"),
        (b"no zip at all", "is not a zip package"),
        (b"PK is a code.", "is not a zip package"),
        (b"PK\3\4", "is damaged"),
        (b"PK\5\6" + bytes(18)[:10], "is damaged"),
    ],
)
def test_what_is_no_package_is_refused(data, message):
    with pytest.raises(DocmtError, match=rf"x\.zip {message}"):
        ZipPackage(data, "x.zip")


def test_a_package_that_is_cut_short_says_so():
    with pytest.raises(DocmtError, match=r"x\.zip is damaged, perhaps cut short"):
        ZipPackage(pack({"a": b"x"})[:-10], "x.zip")


def test_a_missing_member_is_named():
    with pytest.raises(DocmtError, match=r"has no word/document\.xml"):
        ZipPackage(pack({"a": b""}), "x.docx").read("word/document.xml")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<a><b></a>", "line 1: broken XML"),
        (b"<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>", "DOCTYPE"),
        (b"<!DOCTYPE a SYSTEM 'file:///etc/passwd'><a/>", "DOCTYPE"),
        (b"<a>&unknown;</a>", "broken XML"),
        (b"", "broken XML"),
        (b"<?xml version='1.0' encoding='nonsense'?><a/>", "broken XML"),
        (b"<a>" * 300 + b"</a>" * 300, "nested deeper"),
        (b"<a>\xff</a>", "broken XML"),
    ],
)
def test_unsafe_and_broken_xml_is_refused(data, message):
    with pytest.raises(DocmtError, match=message):
        XmlFile(data, "x.xml")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_encodings_are_kept(encoding):
    data = f'<?xml version="1.0" encoding="{encoding}"?>\r\n<a x="ä">ö</a>'.encode(encoding)
    file = XmlFile(data, "x.xml")
    assert file.encode(file.text) == data
    assert file.root.text() == "ö"
    assert XmlFile(file.encode(file.text.replace("ö", "ö日")), "x.xml").root.text() == "ö日"


def test_numbers_of_characters_are_code_points():
    file = XmlFile("<a b='&#150;&quot;'>&#150;&#x80;\x96 &lt;&#x1F600;</a>".encode(), "x.xml")
    assert file.root.text() == "\x96\x80\x96 <😀"
    assert file.root.attributes == {"b": '\x96"'}


def test_names_have_namespaces():
    file = XmlFile(b'<a xmlns="u" xmlns:p="old"><p:b p:c="1" d="2"/></a>', "x.xml", prefixes={"old": "new"})
    (child,) = file.root.elements
    assert (file.root.name, child.name, child.attributes) == ("{u}a", "new:b", {"new:c": "1", "d": "2"})


def test_attributes_are_set():
    file = XmlFile(b'<a xml:lang="en"><b/></a>', "x.xml")
    (child,) = file.root.elements
    text = PatchedText(file.text)
    new = [set_attribute(file, file.root, "xml:lang", 'f"r'), set_attribute(file, child, "lang", "de")]
    assert text.render([], [], new) == '<a xml:lang=\'f"r\'><b lang="de"/></a>'


def read_inline(file, nodes, builder, classify):
    """Add nodes to a unit by their kinds: pair, alone, space, nested. Returns the spans of nested codes by id."""
    nested = {}
    for node in nodes:
        id = str(builder.code_count + 1)
        if isinstance(node, Text):
            builder.add_text(node.value)
        elif classify(node) == "pair":
            builder.open(id, file.text[node.start : node.inner_start])
            nested |= read_inline(file, node.children, builder, classify)
            builder.close(id, file.text[node.inner_end : node.end])
        else:
            builder.add_single(id, file.text[node.start : node.end], is_space=classify(node) == "space")
            nested |= {id: (node.start, node.end)} if classify(node) == "nested" else {}
    return nested


def test_units_in_notes_of_units_are_written():
    file = XmlFile(b"<d><p>One<n><p>note</p></n> <b>two</b></p><!-- c --></d>", "x.xml")
    (outer,) = file.root.elements[:1]
    (note,) = outer.elements[0].elements
    text, units = PatchedText(file.text), []
    for paragraph in (outer, note):
        builder = UnitBuilder(collapse=True)
        nested = read_inline(file, paragraph.children, builder, lambda each: "nested" if each.name == "n" else "pair")
        text.add(paragraph.inner_start, paragraph.inner_end, len(units), escape_text, nested)
        units.append(builder.finish())
    assert [unit.text for unit in units] == ["One two", "note"]
    assert text.render(units, units) == file.text

    def change(unit, old, new):
        return type(unit)(unit.text.replace(old, new), unit.codes)

    assert "<n><p>NOTE</p></n>" in text.render(units, [units[0], change(units[1], "note", "NOTE")])
    both = text.render(units, [change(units[0], "One", "<ne"), change(units[1], "note", "NOTE")])
    assert both == "<d><p>&lt;ne<n><p>NOTE</p></n> <b>two</b></p><!-- c --></d>"


def test_a_note_at_the_beginning_of_its_paragraph_is_written():
    file = XmlFile(b"<p><n><p>note</p></n>One</p>", "x.xml")
    (note,) = file.root.elements[0].elements
    text, units = PatchedText(file.text), []
    for paragraph in (file.root, note):
        builder = UnitBuilder()
        nested = read_inline(file, paragraph.children, builder, lambda each: "nested" if each.name == "n" else "pair")
        text.add(paragraph.inner_start, paragraph.inner_end, len(units), escape_text, nested)
        units.append(builder.finish())
    new = [type(unit)(unit.text.upper(), unit.codes) for unit in units]
    assert text.render(units, new) == "<p><n><p>NOTE</p></n>ONE</p>"


def test_a_space_after_a_single_code_goes_into_its_content():
    file = XmlFile(b"<p>One <x/> <b> two</b> <br/> three <x/><b> four</b></p>", "x.xml")
    builder = UnitBuilder(collapse=True)
    kinds = {"x": "single", "br": "space", "b": "pair"}
    read_inline(file, file.root.children, builder, lambda each: kinds[each.name])
    unit = builder.finish()
    assert unit.text == "One two three four"
    assert unit.render() == "One <x/> <b>two</b> <br/>three <x/> <b>four</b>"
