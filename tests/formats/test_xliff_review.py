"""Reviewed XLIFF files: which sentences change, whatever other tools did to the file."""

import re
import unicodedata
from dataclasses import replace

import pytest
from lxml import etree
from test_bilingual_files import build
from test_unit_documents import Listed

from docmt.core.errors import DocmtError
from docmt.formats.bilingual_files import BilingualSentence, BilingualUnit
from docmt.formats.placeholders import hide_placeholders, tidy_pieces
from docmt.formats.projection import Passage, project_codes
from docmt.formats.unit_documents import Review, SentenceTranslation, UnitDocuments
from docmt.formats.units import Unit
from docmt.formats.xliff_exchange import read_xliff_targets, write_xliff
from docmt.formats.xliff_review import find_changes

OLD = "{urn:oasis:names:tc:xliff:document:1.2}"
SDL = "{http://sdl.com/FileTypes/SdlXliff/1.0}"
CHEAP = "Elle était chère.</target>"
LAMP = build("Anna bought a ", "<b>", "red lamp", "</b>", " in town. It was cheap.")
LAMPE = build("Anna prit une ", "<b>", "lampe rouge", "</b>", " en ville. Elle était chère.")


def pair(source, target, sources, targets, **review):
    """A unit with the sentences of these texts."""
    spans, places = [], [0, 0]
    for texts in zip(sources, targets, strict=True):
        starts = [
            unit.text.index(text, place) for unit, text, place in zip((source, target), texts, places, strict=True)
        ]
        places = [start + len(text) for start, text in zip(starts, texts, strict=True)]
        spans.append(BilingualSentence(*zip(starts, places, strict=True), -1.0, review=Review(**review)))
    return BilingualUnit("", source, target, tuple(spans))


FIRST = pair(
    LAMP,
    LAMPE,
    ["Anna bought a red lamp in town.", "It was cheap."],
    ["Anna prit une lampe rouge en ville.", "Elle était chère."],
)
SIGN = BilingualUnit("", Unit("•"), Unit("•"))
LAST = pair(
    Unit("He left. He came. He left."),
    Unit("Il partit. Il vint. Il partit."),
    ["He left.", "He came.", "He left."],
    ["Il partit.", "Il vint.", "Il partit."],
)
UNITS = [FIRST, SIGN, LAST]
TEXTS = {version: write_xliff(UNITS, "a.docx", "docx", "en", "fr", version).decode() for version in ("2.1", "1.2")}


def review(text, units=UNITS):
    """The changes of a file without their links, and problems."""
    data = text.encode() if isinstance(text, str) else text
    changes, problems = find_changes(units, read_xliff_targets(data, "r.xlf", "12"), "en", "fr")
    return [change[:3] for change in changes], problems


def find_links(text):
    reviewed = read_xliff_targets(text.encode(), "r.xlf", "12")
    ((_, target, _, links), *others), _ = find_changes(UNITS, reviewed, "en", "fr")
    assert not others
    return project_codes(LAMP, [Passage(0, 31, target, links)])[0].render()[: -len(" It was cheap.")]


def use_other_prefixes(text):
    """As a tool with prefixes, attributes in its own order, and lines of Windows."""
    text = re.sub(r'<segment id="(\w+)" state="translated"', r"<segment state='final' id='\1'", text)
    text = re.sub(r"<(/?)(?=\w+[\s>/])(?!mda|mtc|\?)", r"<\1x:", text.replace('xmlns="', 'xmlns:x="'))
    return text.replace("Elle était chère.", "Elle\r\n était bon marché.")


def approve(text):
    """As Virtaal: states are lost, units are approved, and the file is written in another encoding."""
    root = etree.fromstring(text.encode())
    for unit in root.iter(OLD + "trans-unit"):
        unit.find(OLD + "target").attrib.clear()
        if unit.get("id") in ("u1-s3", "u3-s1"):
            unit.set("approved", "yes")
        if unit.get("id") == "u1-s3":
            unit.find(OLD + "target").text = "Elle était bon marché."
    return etree.tostring(root, encoding="UTF-16", xml_declaration=True)


def add_definitions(text):
    """As SDL Trados: segments are <mrk>, and their states stand in definitions."""
    root = etree.fromstring(text.encode())
    for unit in root.iter(OLD + "trans-unit"):
        target = unit.find(OLD + "target")
        mark = etree.Element(OLD + "mrk", mtype="seg", mid="1")
        mark.text, target.text = target.text, None
        mark.extend(list(target))
        target.append(mark)
        segment = etree.SubElement(etree.SubElement(unit, SDL + "seg-defs"), SDL + "seg", id="1", conf="Draft")
        if unit.get("id") == "u1-s3":
            mark.text = "Elle était bon marché."
            segment.set("conf", "ApprovedTranslation")
    return etree.tostring(root)


def confirm_in_memoq(text):
    text = text.replace('id="u1-s3"', 'mq:status="ManuallyConfirmed" id="u1-s3"')
    text = text.replace("<xliff ", '<xliff xmlns:mq="MQXliff" ').replace(
        'target-language="fr"', 'target-language="fr_CA"'
    )
    text = text.replace(CHEAP, "Elle était <!-- ? -->bon<![CDATA[ marché.]]></target>", 1)
    return unicodedata.normalize("NFD", text)


def reorder(text):
    text = text.replace('xliff:document:2.0"', 'xliff:document:2.2"').replace('trgLang="fr"', 'trgLang="fra"')
    return text.replace("<target>Il vint", '<target order="1">Il vint').replace(
        "<target>Il partit", '<target order="3">Il partit', 1
    )


CHEAPER, CAME = (1, "Elle était bon marché.", True), (3, "Il revint.", False)
ALL = [(number, None, True) for number in range(5)]
REPLACEMENTS = [  # version of the file, pattern, replacement, changes
    ("1.2", ' (xmlns|target-language)=".*?"', "", []),
    ("1.2", 'state="needs-review-translation".*?>', 'state="signed-off">', ALL),
    ("2.1", CHEAP, "12\u00a0%\u202f!\t</target>", [(1, "12\u00a0%\u202f!", False)]),
    ("2.1", CHEAP, '<mrk id="m1">O</mrk>h<cp hex="D800"/>.</target>', [(1, "Oh.", False)]),
    ("2.1", "<target>Il vint.</target>", "<target/>", [(3, "", False)]),
    ("1.2", "<target [^>]*>Il vint.</target>", "<target/>", []),
    ("1.2", "<target [^>]*>Il vint.", "<target>He came.", []),
    ("1.2", "<target [^>]*>Il vint.", '<target state="translated">He came.', [(3, "He came.", False)]),
    ("1.2", '(?s)<group id="u1">.*Il vint.<', '<group id="u3"><trans-unit id="u3-s3"><source>He came.</source>'
     "<target>Il revint.<", [CAME]),
]  # fmt: skip


@pytest.mark.parametrize(("version", "pattern", "replacement", "changes"), REPLACEMENTS)
def test_changes_are_read(version, pattern, replacement, changes):
    assert review(re.sub(pattern, lambda _: replacement, TEXTS[version])) == (changes, [])


@pytest.mark.parametrize(
    ("version", "edit", "changes"),
    [
        ("2.1", use_other_prefixes, [ALL[0], CHEAPER, *ALL[2:]]),
        ("1.2", approve, [CHEAPER, ALL[2]]),
        ("1.2", add_definitions, [CHEAPER]),
        ("1.2", confirm_in_memoq, [CHEAPER]),
        ("2.1", reorder, [(2, "Il vint.", False), (3, "Il partit.", False)]),
    ],
)
def test_what_tools_write_is_read(version, edit, changes):
    assert review(edit(TEXTS[version])) == (changes, [])


@pytest.mark.parametrize("version", TEXTS)
def test_what_comes_back_unchanged_changes_nothing(version):
    assert review(TEXTS[version]) == ([], [])
    done = [
        pair(
            LAST.source,
            LAST.target,
            ["He left."],
            ["Il partit."],
            edited=True,
            confirmed=True,
            machine="Il part.",
            quality=50.0,
        )
    ]
    text = write_xliff(done, "a.docx", "docx", "en", "fr", version).decode()
    assert 'state="final"' in text and "<target>Il part.</target>" in text
    assert review(text, done) == review(text.replace('"final"', '"translated"'), done) == ([], [])


@pytest.mark.parametrize("version", TEXTS)
@pytest.mark.parametrize(
    "parts", [("<b>", "He left. ", "</b>", "He came."), ("He left.", "[1]", " ", "[2]", "He came.")]
)
def test_codes_between_sentences_are_not_moved(version, parts):
    target = build(*(part.replace("He left", "Il partit").replace("He came", "Il vint") for part in parts))
    units = [pair(build(*parts), target, ["He left.", "He came."], ["Il partit.", "Il vint."])]
    text = write_xliff(units, "a.docx", "docx", "en", "fr", version).decode()
    assert review(text, units) == ([], [])
    assert review(text.replace("Il partit", "Il part"), units) == ([(0, "Il part.", False)], [])


def test_segments_are_split_and_merged():
    segments = TEXTS["2.1"].split("<segment")
    head, (came, left), end = "<segment".join(segments[:-2]), segments[-2:], "</unit>\n</file>\n</xliff>\n"
    split = (
        came.replace("He came.", "He").replace("Il vint.", "Il")
        + "<segment><source> came.</source><target>revint.</target></segment>"
    )
    assert review("<segment".join((head, split, left))) == ([(3, "Il revint.", False)], [])
    split = split.replace("<target>revint.</target>", "")
    problem = "r.xlf, line 16: 1 of 2 segments of a sentence have no translation"
    assert review("<segment".join((head, split, left))) == ([], [problem])
    merged = ' state="reviewed"><source>He came. He left.</source><target>{}</target></segment>' + end
    for target, texts in {
        "Il vint. Il part.": ["Il vint.", "Il part."],
        "Il vint, puis partit.": ["Il vint, puis partit.", ""],
        "Oh. Il vint. Il part.": ["Oh.", "Il vint. Il part."],
    }.items():
        changes = [(n, text if text != "Il vint." else None, True) for n, text in enumerate(texts, 3)]
        assert review("<segment".join((head, merged.format(target)))) == (changes, [])


@pytest.mark.parametrize("version", TEXTS)
def test_other_sources_are_told_and_left_out(version):
    text = TEXTS[version].replace("<source>He came.", "<source>He ran.").replace("Il vint.<", "X.<")
    changes, (problem,) = review(text.replace(CHEAP, "Oh.</target>"))
    assert changes == [(1, "Oh.", False)]
    assert re.fullmatch(r"r.xlf, line 1\d: “He ran.” is not the source of the document", problem)


def test_codes_stand_where_the_file_has_them():
    for version, (start, end) in {
        "2.1": ('<pc id="c1" dataRefStart="d1" dataRefEnd="e1">', "</pc>"),
        "1.2": ('<g id="c1">', "</g>"),
    }.items():
        text, whole = TEXTS[version], f"Anna prit une {start}lampe rouge{end} en ville."
        assert whole in text
        for new in (
            "Anna prit une {}lampe{} rouge en ville.",
            "Une {}lampe rouge{} fut prise par Anna.",
            "{}Anna{} prit la lampe.",
        ):
            assert find_links(text.replace(whole, new.format(start, end), 1)) == new.format("<b>", "</b>")
        assert review(text.replace(whole, "Anna prit une lampe rouge en ville.", 1)) == ([], [])  # alignment places it


def test_a_placeholder_beside_a_sentence_is_no_word_of_it():
    documents = UnitDocuments(Listed([hide_placeholders(Unit("It was deleted by us. {a}"))]), "en")
    made = documents.translate([[SentenceTranslation("Nous le supprimons.")]])
    unit = BilingualUnit("", documents.file.units[0], made.units[0], (BilingualSentence((0, 21), (0, 19)),))
    text = write_xliff([unit], "a.json", "json", "en", "fr").decode()
    assert review(text.replace("Nous", "Vous"), [unit]) == ([(0, "Vous le supprimons.", False)], [])


@pytest.mark.parametrize("version", TEXTS)
@pytest.mark.parametrize(
    ("edited", "target"),
    [
        ("La page [a] de [b].", "La page {a} de {b}."),
        ("Page de [b].", "Page de {b}."),
        ("Page {a} de [b].", None),
        ("De [b] ([a])", "De {b} ({a})"),
        ("[a][b].", "{a} {b}."),
        ("Page[a], [b].", "Page {a}, {b}."),
    ],
)
def test_placeholders_are_words_of_their_sentence(version, edited, target):
    documents = UnitDocuments(Listed([hide_placeholders(Unit("Page {a} of <b>{b}</b>. It costs %s now."))]), "en")
    last = SentenceTranslation("Il coûte %s maintenant.")
    links = [(0, 4, 0, 4), (9, 11, 9, 11), (12, 15, 12, 15)]
    made = documents.translate([[SentenceTranslation("Page {a} de {b}.", links), last]])
    places = zip(documents.sentences[0], made.target_spans[0], strict=True)
    names = documents.units[0].list_placeholders
    sentences = tuple(
        BilingualSentence((each.start, each.end), span, placeholders=names(each.readable)) for each, span in places
    )
    units = [BilingualUnit("", documents.file.units[0], made.units[0], sentences)]
    text = write_xliff(units, "a.json", "json", "en", "fr", version).decode()
    a, b = (re.search(f"<(?:ph|x) [^>]*c{number}[^>]*>", text)[0] for number in (1, 3))
    page = re.search("<target[^>]*>(Page.*?)</target>", text)[1]
    assert a in page and b in page and review(text, units) == ([], [])
    reviewed = text.replace(page, edited.replace("[a]", a).replace("[b]", b)).encode()
    changes, problems = find_changes(units, read_xliff_targets(reviewed, "r.xlf", "12"), "en", "fr")
    assert ([each[:2] for each in changes], problems) == ([(0, target)] * (target is not None), [])
    for _, new, _, links in changes:
        unit = documents.translate([[SentenceTranslation(new, links), last]]).units[0]
        rendered = re.sub("</?b>", "", tidy_pieces(units[0].source, unit).render())
        assert rendered == f"{new} {last.target}" or ("{a}" not in new and "{a}" in rendered)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda text: text[:900], "r.xlf, line .*: broken XML"),
        (lambda text: text.replace("?>\n", "?>\n<!DOCTYPE xliff [<!ENTITY a 'b'>]>\n", 1), "r.xlf has a DOCTYPE"),
        (
            lambda text: text.replace('trgLang="fr"', 'trgLang="de"'),
            "from en to de, and the document one from en to fr",
        ),
        (lambda text: text.replace('"u3"', '"u1"'), "r.xlf, line .*: unit u1 is in the file twice"),
        (lambda text: re.sub("<source>.*?</source>", "<source>Other.</source>", text), r"\(a.docx\).* docmt merge"),
        (lambda text: text.replace('id="u', 'id="v'), "r.xlf is of another document"),
        (lambda text: text.replace("<file ", "<file id='f0'/><file ", 1), "with one <file>"),
        (lambda text: "<tmx/>", "r.xlf is not an XLIFF file"),
        (lambda text: "", "broken XML"),
    ],
)
def test_other_files_are_refused(edit, message):
    with pytest.raises(DocmtError, match=message):
        review(edit(TEXTS["2.1"]))


def test_sentences_that_failed_get_a_translation():
    units = [
        replace(LAST, sentences=tuple(replace(each, has_translation=n != 1) for n, each in enumerate(LAST.sentences)))
    ]
    for version in TEXTS:
        text = write_xliff(units, "a.docx", "docx", "en", "fr", version).decode()
        assert review(text, units) == ([], [])
        text = text.replace("He came.</source>", "He came.</source><target>Il vint.</target>")
        assert review(text, units) == ([(1, "Il vint.", False)], [])
