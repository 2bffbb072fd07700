"""`docmt merge` of files that other tools wrote again: the translation is right, or one sentence says why not."""

import re
from copy import deepcopy

import pytest
from commands import call, fails
from lxml import etree

CORE = "{urn:oasis:names:tc:xliff:document:2.0}"
METADATA = "{urn:oasis:names:tc:xliff:metadata:2.0}"
PAGE = (
    '<html lang="en"><p>One <b>big. Red</b> car.</p><p>Two <a href="x">cars</a><br>here. <i>No</i> more.</p></html>\n'
)
EXPECTED = (
    '<html lang="de"><p>ONE <b>BIG. RED</b> CAR.</p><p>TWO <a href="x">CARS</a><br>HERE. <i>NO</i> MORE.</p></html>\n'
)


@pytest.fixture
def root(tmp_path):
    """The root of an extracted page with translations: the text in capitals."""
    (tmp_path / "page.html").write_text(PAGE)
    languages = ("--source-language", "en", "--target-language", "de")
    assert call("extract", tmp_path / "page.html", "-o", tmp_path / "a.xlf", *languages).status == 0
    root = etree.parse(tmp_path / "a.xlf").getroot()
    for part in find(root, "segment", "ignorable"):
        target = deepcopy(part.find(f"{CORE}source"))
        target.tag, target.tail = f"{CORE}target", None
        for each in target.iter("*"):
            each.text = each.text and each.text.upper()
            each.tail = each.tail and each.tail.upper()
        part.append(target)
        if part.tag == f"{CORE}segment":
            part.set("state", "translated")
    return root


def find(root, *names):
    return list(root.iter(*(f"{CORE}{name}" for name in names)))


def merge(root, tmp_path, *options):
    """Return the merged page and what was said."""
    (tmp_path / "b.xlf").write_bytes(root if isinstance(root, bytes) else etree.tostring(root, encoding="UTF-8"))
    outcome = call("merge", tmp_path / "b.xlf", "-o", tmp_path / "b.html", *options)
    assert outcome.status == 0, outcome.err
    assert "Traceback" not in outcome.err
    return (tmp_path / "b.html").read_text(), outcome.err


def append(element, content):
    """Append text and children of one element to another."""
    last = element[-1] if len(element) else None
    text = content.text or ""
    if last is None:
        element.text = (element.text or "") + text
    else:
        last.tail = (last.tail or "") + text
    element.extend(list(content))


def join_segments(root):
    for unit in find(root, "unit"):
        first, *others = [part for part in unit if part.tag in (f"{CORE}segment", f"{CORE}ignorable")]
        for part in others:
            for side in ("source", "target"):
                append(first.find(CORE + side), part.find(CORE + side))
            unit.remove(part)


def split_segments(root):
    """Cut the first segment of each unit within its first text."""
    for unit in find(root, "unit"):
        segment = unit.find(f"{CORE}segment")
        first = etree.Element(f"{CORE}segment", state="translated")
        for side in ("source", "target"):
            content = segment.find(CORE + side)
            etree.SubElement(first, CORE + side).text = content.text[:2]
            content.text = content.text[2:]
        segment.addprevious(first)


def reorder_attributes(root):
    for element in root.iter("*"):
        attributes = sorted(element.attrib.items(), reverse=True)
        element.attrib.clear()
        element.attrib.update(attributes)


def indent(root):
    for element in find(root, "xliff", "file", "unit", "segment", "ignorable", "originalData"):
        element.text = "\n      "
        for child in element:
            child.tail = "\r\n\t"


def remove_metadata(root):
    for element in root.findall(f".//{METADATA}metadata"):
        element.getparent().remove(element)


def drop_data(root):
    """Remove the markup of the codes and what refers to it."""
    for element in find(root, "originalData"):
        element.getparent().remove(element)
    for element in root.iter("*"):
        for name in ("dataRef", "dataRefStart", "dataRefEnd"):
            element.attrib.pop(name, None)


def drop_data_only(root):
    for element in find(root, "originalData"):
        element.getparent().remove(element)


def rename_codes(root):
    for element in root.iter("*"):
        for name in ("id", "startRef"):
            if element.tag not in (f"{CORE}unit", f"{CORE}data") and name in element.attrib:
                element.set(name, f"x{element.get(name)}")


def write_pairs_as_ends(root):
    """Write each pc as sc and ec, as tools do that know no nesting."""
    for pair in find(root, "pc"):
        start = etree.Element(f"{CORE}sc", id=pair.get("id"), dataRef=pair.get("dataRefStart"))
        end = etree.Element(f"{CORE}ec", startRef=pair.get("id"), dataRef=pair.get("dataRefEnd"))
        start.tail, end.tail = pair.text, pair.tail
        pair.addprevious(start)
        for child in pair:
            pair.addprevious(child)
        pair.addprevious(end)
        pair.getparent().remove(pair)


def reverse_units(root):
    file = root.find(f"{CORE}file")
    file.extend(reversed(find(root, "unit")))


def group_units(root):
    file, units = root.find(f"{CORE}file"), find(root, "unit")
    etree.SubElement(file, f"{CORE}group", id="g").extend(units)


def add_modules(root):
    """Add notes, matches (with a source and a target of their own) and annotations."""
    for unit in find(root, "unit"):
        matches = etree.Element("{urn:oasis:names:tc:xliff:matches:2.0}matches")
        match = etree.SubElement(matches, "{urn:oasis:names:tc:xliff:matches:2.0}match", ref="#m1")
        for side in ("source", "target"):
            etree.SubElement(match, CORE + side).text = "Other"
        notes = etree.Element(f"{CORE}notes")
        etree.SubElement(notes, f"{CORE}note").text = "Why?"
        unit.insert(0, matches)
        unit.insert(1, notes)
        target = unit.find(f".//{CORE}segment/{CORE}target")
        mark = etree.Element(f"{CORE}mrk", id="m1", type="term")
        mark.text, target.text = target.text, None
        target.insert(0, mark)


EDITS = [join_segments, split_segments, reorder_attributes, indent, remove_metadata, drop_data, drop_data_only,
         rename_codes, write_pairs_as_ends, reverse_units, group_units, add_modules]  # fmt: skip


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_edits_that_change_no_translation(root, tmp_path, edit):
    edit(root)
    assert merge(root, tmp_path) == (EXPECTED, "")


@pytest.mark.parametrize("first", [join_segments, split_segments, write_pairs_as_ends])
@pytest.mark.parametrize("second", [drop_data, rename_codes, indent, reorder_attributes])
def test_two_edits_that_change_no_translation(root, tmp_path, first, second):
    first(root)
    second(root)
    assert merge(root, tmp_path) == (EXPECTED, "")


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16", "ISO-8859-1"])
def test_other_prefixes_and_encodings(root, tmp_path, encoding):
    text = etree.tostring(root, encoding="unicode")
    text = re.sub(r"<(/?)(?=[a-z])(?!mda:)", r"<\1q:", text, flags=re.IGNORECASE).replace("xmlns=", "xmlns:q=")
    text = text.replace("mda:", "m:").replace("xmlns:mda=", "xmlns:m=")
    data = etree.tostring(etree.fromstring(text), encoding=encoding, xml_declaration=True)
    assert b"q:unit" in data.replace(b"\0", b"")
    assert merge(data, tmp_path) == (EXPECTED, "")


def test_codes_without_names_or_data_are_said_to_be_misplaced(root, tmp_path):
    drop_data(root)
    rename_codes(root)
    page, said = merge(root, tmp_path)
    assert re.sub("<[^>]*>", "", page) == re.sub("<[^>]*>", "", EXPECTED.replace("<br>", " "))
    assert sorted(re.findall("<[^>]*>", page)) == sorted(re.findall("<[^>]*>", EXPECTED))
    assert re.search(r"b\.xlf, line \d+: unit u1: .*left out", said)
    assert re.search(r"b\.xlf, line \d+: unit u1: codes that the translation lacks stand at its end: <b>", said)


def test_units_that_a_tool_removed_stay(root, tmp_path):
    unit = find(root, "unit")[0]
    unit.getparent().remove(unit)
    page, said = merge(root, tmp_path)
    assert page == EXPECTED.replace("ONE <b>BIG. RED</b> CAR", "One <b>big. Red</b> car")
    assert "units without a translation, which stay: 1 of 2" in said


def rename_units(root):
    for unit in find(root, "unit"):
        unit.set("id", f"x{unit.get('id')}")


def double_unit(root):
    unit = find(root, "unit")[0]
    other = deepcopy(unit)
    other.find(f".//{CORE}target").text = "ANOTHER "
    unit.addnext(other)


def remove_original(root):
    del root.find(f"{CORE}file").attrib["original"]


def edit_source(root):
    find(root, "source")[0].text = "Other "


def split_file(root):
    file = root.find(f"{CORE}file")
    other = etree.SubElement(root, f"{CORE}file", id="f2", original=file.get("original"))
    other.append(find(root, "unit")[1])


REFUSED = {
    rename_units: r"b\.xlf, line \d+: unit xu1 is not in the original file",
    double_unit: r"b\.xlf, line \d+: unit u1 .*twice",
    remove_original: "add --original FILE",
    edit_source: r"unit u1 is not in the original file, or has another source",
    split_file: r"b\.xlf is not an XLIFF 2 file with one <file>",
}


@pytest.mark.parametrize("edit", REFUSED, ids=lambda edit: edit.__name__)
def test_edits_that_are_refused(root, tmp_path, edit):
    edit(root)
    (tmp_path / "b.xlf").write_bytes(etree.tostring(root))
    fails("merge", tmp_path / "b.xlf", "-o", tmp_path / "b.html", message=REFUSED[edit])
    assert not (tmp_path / "b.html").exists()


def test_fields_that_a_tool_removed_are_asked_for(tmp_path):
    (tmp_path / "a.json").write_text('{"title": "A word.", "id": "Two words"}')
    arguments = ("--source-language", "en", "--target-language", "de", "--fields", "title")
    assert call("extract", tmp_path / "a.json", "-o", tmp_path / "a.xlf", *arguments).status == 0
    root = etree.parse(tmp_path / "a.xlf").getroot()
    remove_metadata(root)
    (tmp_path / "b.xlf").write_bytes(etree.tostring(root))
    fails("merge", tmp_path / "b.xlf", "-o", tmp_path / "b.json", message="--fields")
    assert call("merge", tmp_path / "b.xlf", "-o", tmp_path / "b.json", "--fields", "title").status == 0
