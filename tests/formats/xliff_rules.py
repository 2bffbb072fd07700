"""The rules of XLIFF that its schemas or texts state, for files that docmt writes."""

import re
from collections import Counter

from lxml import etree

CORE = "{urn:oasis:names:tc:xliff:document:2.0}"
METADATA = "{urn:oasis:names:tc:xliff:metadata:2.0}"
OLD = "{urn:oasis:names:tc:xliff:document:1.2}"
STATES = {"initial", "translated", "reviewed", "final"}
OLD_STATES = {
    *("final", "needs-adaptation", "needs-l10n", "needs-review-adaptation", "needs-review-l10n", "new", "signed-off"),
    *("needs-review-translation", "needs-translation", "translated"),
}
TOKEN = re.compile(r"[\w.:-]+")  # NMTOKEN
INLINE = {"cp", "ph", "pc", "sc", "ec", "mrk", "sm", "em"}
CHILDREN = {
    "xliff": "(file )+",
    "file": "(skeleton )?(module )*(notes )?((unit|group) )+",
    "unit": "(module )*(notes )?(originalData )?(ignorable )*(segment )((segment|ignorable) )*",
    "segment": "source (target )?",
    "ignorable": "source (target )?",
    "originalData": "(data )+",
    "data": "(cp )*",
    "metadata": "(metaGroup )+",
    "metaGroup": "((metaGroup|meta) )+",
}
REQUIRED = {
    "xliff": ["version", "srcLang"],
    **{name: ["id"] for name in ("file", "unit", "data", "ph", "pc", "sc", "mrk", "sm")},
    "ec": ["startRef"],
    "em": ["startRef"],
    "cp": ["hex"],
    "meta": ["type"],
}


def name_of(element):
    return etree.QName(element).localname


def children_of(element):
    """Return the names of the children; those of other namespaces are "module"."""
    space = etree.QName(element).namespace
    children = map(etree.QName, element.iterchildren("*"))
    return "".join(f"{each.localname if each.namespace == space else 'module'} " for each in children)


def check_xliff_2(data):
    """Check the core of a whole file of XLIFF 2.0 or 2.1."""
    root = etree.fromstring(data)
    assert root.tag == f"{CORE}xliff" and root.get("version") in ("2.0", "2.1")
    assert root.get("trgLang") or next(root.iter(f"{CORE}target"), None) is None
    for element in root.iter(f"{CORE}*", f"{METADATA}*"):
        name = name_of(element)
        if name in CHILDREN:
            assert re.fullmatch(CHILDREN[name], children_of(element)), (name, children_of(element))
        if name in ("source", "target", "pc", "mrk"):
            assert {name_of(each) for each in element.iterchildren("*")} <= INLINE
        assert all(element.get(each) for each in REQUIRED.get(name, [])), etree.tostring(element)
        assert TOKEN.fullmatch(element.get("id", "x"))
    for file in root.iter(f"{CORE}file"):
        assert_unique(file.iter(f"{CORE}unit"))
        for unit in file.iter(f"{CORE}unit"):
            _check_unit(unit)


def assert_unique(elements):
    counts = Counter(each.get("id") for each in elements if each.get("id"))
    assert not [id for id, count in counts.items() if count > 1], counts


def _check_unit(unit):
    data = list(unit.iter(f"{CORE}data"))
    assert_unique(data)
    ids = {each.get("id") for each in data}
    codes = [each for each in unit.iter("*") if name_of(each) in INLINE]
    for code in codes:
        assert {code.get(name) for name in ("dataRef", "dataRefStart", "dataRefEnd") if code.get(name)} <= ids
        assert name_of(code) != "cp" or re.fullmatch("[0-9A-F]{4,6}", code.get("hex"))
    parts = list(unit.iterchildren(f"{CORE}segment", f"{CORE}ignorable"))
    assert_unique([*parts, *(each for part in parts for each in part.find(f"{CORE}source").iter("*"))])
    for side in ("source", "target"):
        _check_side([part.find(CORE + side) for part in parts if part.find(CORE + side) is not None])
    places = {each.get("id"): part for part in parts for each in part.find(f"{CORE}source").iter("*") if each.get("id")}
    for part in parts:
        target = part.find(f"{CORE}target")
        assert part.get("state", "initial") in STATES
        assert part.get("state", "initial") == "initial" or target is not None
        for each in () if target is None else target.iter("*"):  # a code of another segment's source has another id
            assert places.get(each.get("id"), part) is part, etree.tostring(part.getparent())


def _check_side(contents):
    """Check the codes of all sources, or of all targets, of a unit."""
    assert_unique(each for content in contents for each in content.iter("*"))
    for start, end in (("sc", "ec"), ("sm", "em")):
        opened = {}
        for code in (each for content in contents for each in content.iter(CORE + start, CORE + end)):
            if name_of(code) == start:
                opened[code.get("id")] = code
            else:
                begin = opened.pop(code.get("startRef"), None)
                assert begin is not None, "an end has no beginning before it"
                assert begin.get("canCopy") == code.get("canCopy")
        assert not opened


def check_xliff_1(data):
    """Check the segments of a whole file of XLIFF 1.2."""
    root = etree.fromstring(data)
    assert root.tag == f"{OLD}xliff" and root.get("version") == "1.2"
    for file in root.iter(f"{OLD}file"):
        assert all(file.get(name) for name in ("original", "source-language", "datatype"))
        assert file.get("target-language") or next(file.iter(f"{OLD}target"), None) is None
        assert_unique(file.iter(f"{OLD}trans-unit"))
        for unit in file.iter(f"{OLD}trans-unit"):
            others = "((context-group|count-group|prop-group|note|alt-trans) )*"
            assert re.fullmatch(f"source (seg-source )?(target )?{others}", children_of(unit)), children_of(unit)
            target = unit.find(f"{OLD}target")
            if target is not None:
                assert target.get("state", "new") in OLD_STATES or target.get("state").startswith("x-")
                segmented = unit.find(f"{OLD}seg-source")
                assert segmented is None or _list_marks(target) == _list_marks(segmented)


def _list_marks(element):
    return [each.get("mid") for each in element.iter(f"{OLD}mrk") if each.get("mtype") == "seg"]
