"""XLIFF: sources become targets, and nothing else changes."""

import json
import random
import re
import time
from dataclasses import replace

import pytest
from generated_files import check_files, read_mutants
from hypothesis import strategies as st
from lxml import etree
from real_files import NEEDS_FILES, find_files
from xliff_rules import check_xliff_1, check_xliff_2

from docmt.core.errors import DocmtError
from docmt.decoding.file_translation import FileConfig, FileTranslation
from docmt.documents.input_formats import FORMATS
from docmt.formats.placeholders import tidy_spaces
from docmt.formats.projection import Passage, project_codes
from docmt.formats.units import ReadConfig, Unit
from docmt.formats.xliff_files import read
from docmt.formats.xml_tree import escape_text


def pseudo_translate(unit):
    """[Ťéxt] with the codes at their characters."""
    text = "[" + unit.text.replace("e", "é").replace("T", "Ť").replace("E", "É") + "]"
    return replace(unit, text=text, codes=tuple(replace(code, offset=code.offset + 1) for code in unit.codes))


def old(body, attributes='source-language="en" target-language="de" datatype="x"'):
    return (
        f'<?xml version="1.0"?>\n<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">\n'
        f'<file original="a" {attributes}><body>\n{body}\n</body></file></xliff>\n'
    )


def new(body, attributes='srcLang="en" trgLang="de"', version="2.0"):
    uri = f"urn:oasis:names:tc:xliff:document:{version.replace('2.1', '2.0')}"
    return f'<xliff version="{version}" xmlns="{uri}" {attributes}><file id="f">\n{body}\n</file></xliff>'


def unit(segment, attributes=""):
    return new(f'<unit id="1" {attributes}>{segment}</unit>')


def load(text, **config):
    return read(text.encode(), "x.xlf", ReadConfig(**config))


def translate(text, language="", **config):
    file = load(text, **config)
    assert file.write(file.units) == text.encode()
    return file.write([pseudo_translate(each) for each in file.units], language).decode()


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("<source>Text</source>", "<source>Text</source><target>[Ťéxt]</target>"),
        ("<source>Te &amp; &lt;x</source>", "<source>Te &amp; &lt;x</source><target>[Ťé &amp; &lt;x]</target>"),
        ("<source><![CDATA[<5 e]]></source>", "<source><![CDATA[<5 e]]></source><target>[&lt;5 é]</target>"),
        ("<source>e</source><target/>", "<source>e</source><target>[é]</target>"),
        ("<source>e</source>\n<target> </target>", "<source>e</source>\n<target>[é]</target>"),
        ("<source>e</source><target>e</target>", "<source>e</source><target>[é]</target>"),
        (
            '<source xml:space="preserve">e</source>',
            '<source xml:space="preserve">e</source><target xml:space="preserve">[é]</target>',
        ),
    ],
)
def test_targets_are_written(source, target):
    frame = '<trans-unit id="1">{}<note>Keep</note></trans-unit>'
    assert translate(old(frame.format(source))) == old(frame.format(target))
    frame = "<segment{}>{}</segment>"
    assert translate(unit(frame.format("", source))) == unit(frame.format(' state="translated"', target))


def test_new_targets_are_indented_as_their_sources():
    text = translate(old('  <trans-unit id="1">\r\n    <source>e</source>\r\n  </trans-unit>'))
    assert "\r\n    <source>e</source>\r\n    <target>[é]</target>\r\n  </trans" in text


@pytest.mark.parametrize(
    ("inline", "expected"),
    [
        ('a <pc id="1">e</pc> <ph id="2"/>', '[a <pc id="1">é</pc> <ph id="2"/>]'),
        ('<sc id="1"/>e<ec startRef="1"/> <cp hex="0001"/>', '[<sc id="1"/>é<ec startRef="1"/> <cp hex="0001"/>]'),
        ('<sm id="1"/>e<em startRef="1"/>', '[<sm id="1"/>é<em startRef="1"/>]'),
        ('<mrk id="1" translate="no">Text</mrk> e', '[<mrk id="1" translate="no">Text</mrk> é]'),
        ('<mrk id="1" type="term">Text</mrk> e', '[<mrk id="1" type="term">Ťéxt</mrk> é]'),
        ('e<ph id="1" subType="xlf:lb"/>e', '[é<ph id="1" subType="xlf:lb"/>é]'),
        ('e<ec startRef="0"/><sc id="2"/>', '[é<ec startRef="0"/><sc id="2"/>]'),
        ("e<!-- e -->", "[é<!-- e -->]"),
    ],
)
def test_codes_of_xliff_2(inline, expected):
    text = unit(f'<segment state="initial"><source>{inline}</source></segment>')
    result = translate(text)
    assert f"<target>{expected}</target>" in result
    assert 'state="translated"' in result


@pytest.mark.parametrize(
    ("inline", "expected"),
    [
        ('a <g id="1">e</g> <x id="2"/>', '[a <g id="1">é</g> <x id="2"/>]'),
        ('<bx id="1"/>e<ex id="1"/>', '[<bx id="1"/>é<ex id="1"/>]'),
        (
            '<bpt id="1" rid="r">&lt;b></bpt>e<ept id="2" rid="r">e</ept>',
            '[<bpt id="1" rid="r">&lt;b></bpt>é<ept id="2" rid="r">e</ept>]',
        ),
        ('<ph id="1">e<sub>Text</sub></ph>e', '[<ph id="1">e<sub>Text</sub></ph>é]'),
        ('<it id="1" pos="open">e</it>e', '[<it id="1" pos="open">e</it>é]'),
        ('<mrk mtype="protected">Te</mrk> e', '[<mrk mtype="protected">Te</mrk> é]'),
        ('e<x id="1" ctype="lb"/>e', '[é<x id="1" ctype="lb"/>é]'),
    ],
)
def test_codes_of_xliff_1(inline, expected):
    text = old(f'<trans-unit id="1"><source>{inline}</source></trans-unit>')
    assert f"<target>{expected}</target>" in translate(text)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ('Wait for <ph id="1">{name}</ph>.', "Attends", 'Attends <ph id="1">{name}</ph>'),
        ('<ph id="1">{name}</ph>, hello for you', "Bonjour pour toi", '<ph id="1">{name}</ph> Bonjour pour toi'),
        ('Re<x id="1"/>start', "Neustart", 'Neustart<x id="1"/>'),
    ],
)
def test_placeholders_keep_apart_from_words(source, target, expected):
    file = load(old(f'<trans-unit id="1"><source>{source}</source></trans-unit>'))
    new, _ = project_codes(file.units[0], [Passage(0, len(file.units[0].text), target)])
    assert f"<target>{expected}</target>" in file.write([new]).decode()


def test_codes_are_pairs_and_are_not_copied():
    codes = load(unit('<segment><source><sc id="1"/>e<ec startRef="1"/></source></segment>')).units[0].codes
    assert [(code.kind, code.can_copy) for code in codes] == [("open", False), ("close", False)]


def shuffle(places, chance):
    """Places of words in another order, those of a list within it together."""
    for each in chance.sample(places, len(places)):
        yield from shuffle(each, chance) if isinstance(each, list) else [each]


@pytest.mark.parametrize(
    "source",
    [
        old(
            '<trans-unit id="1"><source><g id="1">The <x id="2"/>red <mrk mtype="term" mid="3">house</mrk> <ph id="4">y'
            '</ph></g> is <g id="5"><ph id="6">z</ph> so <g id="7">old <x id="8"/></g></g> now</source></trans-unit>'
        ),
        unit(
            '<segment><source><pc id="1">The <ph id="2"/>red <mrk id="3" type="term">house</mrk> <ph id="4"/></pc> is '
            '<mrk id="5"><ph id="6"/> so <pc id="7">old <ph id="8"/></pc></mrk> now</source></segment>'
        ),
    ],
)
def test_codes_stay_in_the_pairs_around_them(source):
    chance, file = random.Random(1), load(source)
    (sentence,) = file.units
    words = [match.span() for match in re.finditer(r"\w+", sentence.text)]
    for _ in range(100):
        target, links = "", []
        for start, end in (words[place] for place in shuffle([[0, 1, 2], 3, [4, [5]], 6], chance)):
            links.append((start, end, len(target), len(target) + end - start))
            target += sentence.text[start:end] + " "
        passage = Passage(0, len(sentence.text), target.strip(), links)
        root = etree.fromstring(file.write([project_codes(sentence, [passage])[0]]))
        sides = [
            {each.xpath("@id|@mid")[0]: each.getparent().xpath("@id|@mid") for each in side.iterdescendants()}
            for side in root.iter("{*}source", "{*}target")
        ]
        assert sides[0] == sides[1], target


@pytest.mark.parametrize(
    ("segment", "reason"),
    [
        ('<segment state="final"><source>e</source><target>d</target></segment>', "translated segments"),
        ('<segment state="translated"><source>e</source><target>e</target></segment>', "translated segments"),
        ('<segment state="initial"><source>e</source><target>d</target></segment>', None),
        ("<segment><source>e</source><target>d</target></segment>", "translated segments"),
        ('<segment state="final"><source>e</source><target/></segment>', None),
    ],
)
def test_states_of_xliff_2(segment, reason):
    file = load(unit(segment))
    assert [each.reason for each in file.skipped] == ([reason] if reason else [])
    assert len(file.units) == (not reason)


@pytest.mark.parametrize(
    ("attributes", "target", "reason"),
    [
        ('approved="yes"', "<target/>", "approved segments"),
        ('translate="no"', "", 'translate="no"'),
        ("", '<target state="final">d</target>', "translated segments"),
        ("", '<target state="signed-off">d</target>', "translated segments"),
        ("", '<target state="needs-review-translation">d</target>', "translated segments"),
        ("", '<target state="new">d</target>', None),
        ("", '<target state="needs-translation">d</target>', None),
        ("", "<target>d</target>", "translated segments"),
        ("", '<target state="final"/>', None),
    ],
)
def test_states_of_xliff_1(attributes, target, reason):
    text = old(f'<trans-unit id="1" {attributes}><source>e</source>{target}</trans-unit>')
    file = load(text)
    assert [each.reason for each in file.skipped] == ([reason] if reason else [])
    assert len(file.units) == (not reason)
    if "state" in target:
        assert ('<target state="needs-review-translation">[é]' in translate(text)) == (not reason)


@pytest.mark.parametrize("target", ["", "<target/>", "<target />", "<target></target>"])
def test_every_new_target_has_a_state_where_others_have(target):
    other = '<trans-unit id="1"><source>f</source><target state="final">d</target></trans-unit>'
    text = translate(old(f'{other}<trans-unit id="2"><source>e</source>{target}</trans-unit>'))
    assert '<target state="needs-review-translation"' in text and text.count("state=") == 2


def test_placeholders_are_codes():
    text = unit("<segment><source>Deleted %1$s of &lt;b>{n}&lt;/b> &amp;amp; e</source></segment>")
    assert "<target>[Délétéd %1$s of &lt;b&gt;{n}&lt;/b&gt; &amp;amp; é]</target>" in translate(text)
    assert "%" not in load(text).units[0].text
    file = load(unit("<segment><source>{n, plural, one {e} other {es}}</source></segment>"))
    assert [each.reason for each in file.skipped] == ["ICU messages"]
    assert load(unit("<segment><source>%s</source></segment>")).units == []


def test_groups_and_files_say_whether_they_are_translated():
    inner = '<unit id="1"><segment><source>e</source></segment></unit>'
    yes = inner.replace('id="1"', 'id="1" translate="yes"')
    assert [each.text for each in load(new(f'<group id="g" translate="no">{inner}{yes}</group>{inner}')).units] == [
        "e"
    ] * 2


def test_the_substate_goes_with_the_state():
    text = translate(unit('<segment id="1" subState="a:b" state="initial"><source>e</source></segment>'))
    assert '<segment id="1" state="translated"><source>' in text


SEGMENTS = (
    '<seg-source><g id="1"><mrk mtype="seg" mid="0">One e.</mrk> <mrk mtype="seg" mid="1">Text.</mrk></g></seg-source>'
)


def test_segments_of_xliff_1_are_units():
    text = old(f'<trans-unit id="1"><source><g id="1">One e. Text.</g></source>{SEGMENTS}</trans-unit>')
    assert [each.text for each in load(text).units] == ["One e.", "Text."]
    target = SEGMENTS.replace("seg-source", "target").replace("One e.", "[Oné é.]").replace("Text.", "[Ťéxt.]")
    assert translate(text) == text.replace("</seg-source>", "</seg-source>" + target)


def test_segments_with_a_translation_stay():
    target = '<target><g id="1"><mrk mtype="seg" mid="0">Eins.</mrk> <mrk mtype="seg" mid="1"/></g></target>'
    text = old(f'<trans-unit id="1"><source>x</source>{SEGMENTS}{target}</trans-unit>')
    assert translate(text) == text.replace('mid="1"/>', 'mid="1">[Ťéxt.]</mrk>')
    text = text.replace(' <mrk mtype="seg" mid="1"/>', "")
    assert '<mrk mtype="seg" mid="0">Eins.</mrk> <mrk mtype="seg" mid="1">[Ťéxt.]</mrk></g></target>' in translate(text)


TRADOS = 'xmlns:sdl="http://sdl.com/FileTypes/SdlXliff/1.0"'
MEMOQ = 'xmlns:mq="MQXliff"'
PHRASE = 'xmlns:m="http://www.memsource.com/mxlf/2.0"'


def trados(definition, target):
    mark = '<seg-source><mrk mtype="seg" mid="7">Text.</mrk></seg-source>'
    target = "" if target is None else f'<target><mrk mtype="seg" mid="7">{target}</mrk></target>'
    definitions = f'<sdl:seg-defs><sdl:seg id="7" {definition}/></sdl:seg-defs>'
    return old(f'<trans-unit id="1" {TRADOS}><source>Text.</source>{mark}{target}{definitions}</trans-unit>')


def with_attributes(attributes, target):
    target = "" if target is None else f"<target>{target}</target>"
    return old(f'<trans-unit id="1" {attributes}><source>Text.</source>{target}</trans-unit>')


@pytest.mark.parametrize(
    ("make", "attributes", "targets"),
    [
        (trados, 'conf="Translated"', ["Text.", "Satz.", ""]),
        (trados, 'conf="ApprovedTranslation"', ["Text.", "Satz."]),
        (trados, 'conf="ApprovedSignOff"', ["Text."]),
        (trados, 'conf="RejectedTranslation"', ["Text."]),
        (trados, 'conf="Draft" locked="true"', ["Text.", "", None]),
        (with_attributes, f'{MEMOQ} mq:status="ManuallyConfirmed"', ["Text.", ""]),
        (with_attributes, f'{MEMOQ} mq:status="Proofread"', ["Text."]),
        (with_attributes, f'{MEMOQ} mq:status="Reviewer1Confirmed"', ["Text."]),
        (with_attributes, f'{MEMOQ} mq:status="NotStarted" mq:locked="locked"', ["Text.", "", None]),
        (with_attributes, 'status="done"', ["Text.", ""]),
        (with_attributes, f'{PHRASE} m:confirmed="1"', ["Text.", ""]),
        (with_attributes, f'{PHRASE} m:confirmed="0" m:locked="true"', ["Text.", "", None]),
    ],
)
def test_locked_and_confirmed_segments_stay(make, attributes, targets):
    for target in targets:
        text = make(attributes, target)
        assert translate(text, "de") == text
        assert [each.reason.split()[0] for each in load(text).skipped] == [
            "locked" if "locked=" in attributes else "confirmed"
        ]


@pytest.mark.parametrize("status", ["PartiallyEdited", "Edited", "Rejected"])
def test_what_somebody_has_written_stays(status):
    text = with_attributes(f'{MEMOQ} mq:status="{status}"', "Text.")
    assert translate(text, "de") == text
    assert len(load(with_attributes(f'{MEMOQ} mq:status="{status}"', "")).units) == 1


@pytest.mark.parametrize(
    ("make", "attributes", "targets"),
    [
        (trados, 'conf="Draft"', ["Text.", "", None]),
        (trados, 'conf="Draft" locked="false"', ["Text."]),
        (with_attributes, f'{MEMOQ} mq:status="NotStarted"', ["Text.", "", None]),
        (with_attributes, f'{MEMOQ} mq:status="Pretranslated"', ["Text."]),
        (with_attributes, f'{PHRASE} m:confirmed="0" m:locked="false"', ["Text.", "", None]),
    ],
)
def test_open_segments_without_a_translation_are_translated(make, attributes, targets):
    for target in targets:
        assert len(load(make(attributes, target)).units) == 1


@pytest.mark.parametrize("state", ["final", "signed-off", "translated", "needs-review-translation", "x-done"])
def test_a_translation_with_a_state_stays_though_it_equals_its_source(state):
    text = old(f'<trans-unit id="1"><source>Text.</source><target state="{state}">Text.</target></trans-unit>')
    assert translate(text, "de") == text


def test_a_locked_segment_without_a_target_stays_empty_beside_others():
    source = '<seg-source><mrk mtype="seg" mid="1">Text.</mrk> <mrk mtype="seg" mid="2">Te.</mrk></seg-source>'
    definitions = '<sdl:seg-defs><sdl:seg id="1" locked="true"/><sdl:seg id="2"/></sdl:seg-defs>'
    text = old(f'<trans-unit id="1" {TRADOS}><source>Text. Te.</source>{source}{definitions}</trans-unit>')
    assert '<target><mrk mtype="seg" mid="1"></mrk> <mrk mtype="seg" mid="2">[Ťé.]</mrk></target>' in translate(text)


def test_extensions_and_alternatives_keep_their_bytes():
    sdl = (
        f'<trans-unit id="a" xmlns:sdl="http://sdl.com/FileTypes/SdlXliff/1.0"><source>x</source>{SEGMENTS}'
        '<alt-trans><source>Old e</source><target state="new">e</target></alt-trans>'
        '<sdl:seg-defs><sdl:seg id="0" conf="Draft"/></sdl:seg-defs></trans-unit>'
    )
    text = old(sdl)
    result = translate(text)
    assert re.sub("<target><g.*</g></target>", "", result) == text


def test_other_prefixes_and_encodings():
    text = unit("<segment><source>Te €</source></segment>")
    text = re.sub(r"<(/?)(\w)", r"<\1x:\2", text).replace("xmlns=", "xmlns:x=")
    assert "<x:target>[Ťé €]</x:target></x:segment>" in translate(text)
    data = ('<?xml version="1.0" encoding="UTF-16"?>' + unit("<segment><source>e</source></segment>")).encode("utf-16")
    file = read(data, "x", ReadConfig())
    assert file.write(file.units) == data
    assert "[é]" in file.write([pseudo_translate(file.units[0])]).decode("utf-16")


def test_a_missing_target_language_is_set():
    text = new('<unit id="1"><segment><source>e</source></segment></unit>', 'srcLang="en"')
    assert 'trgLang="de" version="2.0"' in translate(text, "deu_Latn")
    assert "trgLang" not in translate(text)
    text = old('<trans-unit id="1"><source>e</source></trans-unit>', 'source-language="en"')
    assert '<file target-language="de" original' in translate(text, "de")
    assert 'trgLang="de-CH"' in translate(
        unit("<segment><source>e</source></segment>").replace('"de"', '"de-CH"'), "de"
    )


def test_a_segment_that_failed_gets_no_target():
    segments = "".join(
        f'<segment id="s{number}" state="initial"><source>{text}</source></segment>'
        for number, text in enumerate(("Bad one.", "Good one."), 1)
    )
    file = FileTranslation("x.xlf", unit(segments).encode(), FORMATS["xliff"], FileConfig("en", "de"))
    records = [{"document": 0}, {"document": 0, "target": "Gut.", "score": -1.0}]
    new = file.render(json.dumps(record) + "\n" for record in records).decode()
    assert '<segment id="s1" state="initial"><source>Bad one.</source></segment>' in new
    assert '<segment id="s2" state="translated"><source>Good one.</source><target>Gut.</target></segment>' in new
    assert [line.split("\t")[1:] for line in file.report_lines()] == [["sentences that failed", "Bad one.\n"]]


def test_equal_translations_are_written_where_a_language_is_given():
    file = load(unit("<segment><source>OK</source></segment>"))
    assert b"<target>OK</target>" in file.write(file.units, "de")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"target_language": "fr"}, "line 2: the target language of the file is de, not fr"),
        ({"source_language": "fra_Latn"}, "the source language of the file is en, not fra_Latn"),
    ],
)
def test_other_languages_are_refused(config, message):
    body = '<trans-unit id="1"><source>e</source></trans-unit>'
    for text in (old(body), "\n" + new("")):
        with pytest.raises(DocmtError, match=message.replace("2", "[23]")):
            load(text, **config)
    load(old(body), source_language="en-GB", target_language="deu_Latn")


@pytest.mark.parametrize(
    "text", ["", "<a/>", "<xliff", "<xliff><file></xliff>", '<!DOCTYPE a [<!ENTITY x "y">]><xliff/>']
)
def test_broken_files_are_refused(text):
    with pytest.raises(DocmtError, match=r"x\.xlf"):
        load(text)


def test_a_file_without_segments_is_read():
    assert load(new("")).units == []


@st.composite
def inline_texts(draw, names, depth=0):
    parts = []
    for number in range(draw(st.integers(0, 4))):
        id = f"{depth}{number}{draw(st.integers(0, 9))}"
        choice = draw(st.integers(0, 5))
        if choice == 0 and depth < 3:
            parts.append(f'<{names[0]} id="{id}">{draw(inline_texts(names, depth + 1))}</{names[0]}>')
        elif choice == 1:
            parts.append(f'<{names[1]} id="{id}"/>')
        elif choice == 2:
            name, reference = draw(st.sampled_from(names[2:]))
            parts.append(f'<{name} {reference}="{draw(st.integers(0, 1))}"/>')
        else:
            parts.append(draw(st.sampled_from(["Text ", "e", " &lt;&amp;", "\n", "<![CDATA[<e]]>", "&#13;", "日本"])))
    return "".join(parts)


OLD_NAMES = ("g", "x", ("bx", "id"), ("ex", "id"), ("bpt", "rid"), ("ept", "rid"))
NEW_NAMES = ("pc", "ph", ("sc", "id"), ("ec", "startRef"), ("sm", "id"), ("em", "startRef"))


def show(unit):
    """The characters of a translated unit."""
    rendered = tidy_spaces(pseudo_translate(unit)).render(escape_text)
    parser = etree.XMLParser(recover=True)  # prefixes are not declared here
    return "".join(etree.fromstring(f"<a>{rendered}</a>", parser).itertext())


def list_codes(element):
    return sorted((code.tag, sorted(code.attrib.items())) for code in element.iter() if code is not element)


def check(text):
    file = load(text)
    assert file.write(file.units) == text.encode()
    result = file.write([pseudo_translate(each) for each in file.units], "de")
    root = etree.fromstring(result)
    if root.get("version") == "1.2":
        check_xliff_1(result)
    targets = [each for each in root.iter() if each.tag.endswith("}target")]
    assert ["".join(each.itertext()) for each in targets] == [show(each) for each in file.units]
    for each in targets:
        source = each.getparent().find(each.tag.replace("target", "source"))
        assert list_codes(each) == list_codes(source)
    assert read(result, "x", ReadConfig()).units == []


@pytest.mark.full
@check_files(st.lists(inline_texts(OLD_NAMES), max_size=3), st.lists(inline_texts(NEW_NAMES), max_size=3))
def test_generated_files(sources, others):
    units = (f'<trans-unit id="{n}"><source>{e}</source><note>a</note></trans-unit>' for n, e in enumerate(sources))
    check(old("".join(units)))
    segments = "".join(f"<segment><source>{each}</source></segment>" for each in others)
    check(unit(segments, 'name="&lt;"'))


SEGMENTED = (
    '<source>One. Two.</source><seg-source><mrk mtype="seg" mid="1">One.</mrk> <mrk mtype="seg" mid="2">Two.</mrk>'
    "</seg-source>{}<note>Keep</note>"
)


@pytest.mark.parametrize(
    "target",
    ["", "<target/>", '<target state="new" state-qualifier="fuzzy-match">x</target>', '<target state="new"/>',
     '<target><mrk mtype="seg" mid="1"/> <mrk mtype="seg" mid="2">Zwei.</mrk></target>'],
)  # fmt: skip
def test_segments_of_xliff_1_keep_its_rules(target):
    states = '<trans-unit id="2"><source>e</source><target state="needs-translation"/></trans-unit>'
    for others in ("", states):
        text = old(f'<trans-unit id="1">{SEGMENTED.format(target)}</trans-unit>{others}')
        check_xliff_1(translate(text, "de").encode())


@pytest.mark.parametrize("version", ["2.0", "2.1"])
@pytest.mark.parametrize(
    "segment",
    [
        '<segment id="s"><source>e <pc id="1">Te</pc><ph id="2"/></source></segment>',
        '<segment state="initial" subState="a:b"><source>e <sc id="1"/>x<ec startRef="1"/></source><target/></segment>',
        '<segment><source>e </source></segment><ignorable><source> </source></ignorable>'
        '<segment state="final"><source>Te</source><target>x</target></segment>',
        '<segment><source>e <mrk id="m" translate="no">x</mrk> <sm id="2"/>e<em startRef="2"/></source></segment>',
    ],
)  # fmt: skip
def test_segments_of_xliff_2_keep_its_rules(segment, version):
    text = new(f'<unit id="1"><notes><note>a</note></notes>{segment}</unit>', version=version)
    check_xliff_2(text.encode())
    check_xliff_2(translate(text, "de").encode())


@NEEDS_FILES
@pytest.mark.parametrize("path", find_files("xlf"), ids=lambda path: path.name)
def test_real_files_keep_the_rules_of_xliff(path):
    data = path.read_bytes()
    file = read(data, path.name, ReadConfig())
    check_rules = check_xliff_1 if b"document:1.2" in data else check_xliff_2
    try:
        check_rules(data)
    except AssertionError as error:
        pytest.skip(f"the file itself does not: {error}")
    check_rules(file.write([pseudo_translate(each) for each in file.units], "fr"))


@NEEDS_FILES
@pytest.mark.parametrize("path", find_files("xlf"), ids=lambda path: path.name)
def test_real_files(path):
    data = path.read_bytes()
    file = read(data, path.name, ReadConfig())
    assert file.write(file.units) == data
    translated = [pseudo_translate(each) for each in file.units]
    root = etree.fromstring(file.write(translated, "fr"))
    texts = {"".join(each.itertext()) for each in root.iter() if str(each.tag).endswith("}target")}
    assert {show(each) for each in file.units} <= texts


SAMPLES = [
    old(f'<trans-unit id="1"><source>x</source>{SEGMENTS}<target state="new"/></trans-unit>'),
    unit('<segment><source>a <pc id="1">e</pc><sc id="2"/> <ph id="3"/><ec startRef="2"/></source></segment>'),
]


@pytest.mark.full
def test_mutants():
    for file in read_mutants(lambda data: read(data, "x.xlf", ReadConfig()), *map(str.encode, SAMPLES)):
        etree.fromstring(file.write([pseudo_translate(each) for each in file.units], "de"))


@pytest.mark.full
def test_thousands_of_units_take_linear_time():
    units = "".join(
        f'\n <trans-unit id="{number}">\r\n  <source>A word.</source></trans-unit>' for number in range(8000)
    )
    file = load(f'<xliff version="1.2"><file original="a" datatype="x"><body>{units}</body></file></xliff>')
    start = time.perf_counter()
    written = file.write([Unit("Ein Wort.")] * 8000, "de")
    assert time.perf_counter() - start < 10
    assert written.count(b"\r\n  <target>Ein Wort.</target>") == 8000


def test_a_code_between_spaces_keeps_them():
    data = (
        b'<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en"><file id="f"><unit id="u">'
        b'<segment><source>Press <ph id="1"/> to open.</source></segment></unit></file></xliff>'
    )
    file = read(data, "x.xlf", ReadConfig())
    (unit,) = file.units
    assert unit.text == "Press to open."
    assert file.write([unit]) == data
    for offset in (5, 6):  # as a translation may place it
        code = replace(unit.codes[0], offset=offset)
        written = file.write([replace(unit, text="PRESS to open.", codes=(code,))], "fr").decode()
        assert '<target>PRESS <ph id="1"/> to open.</target>' in written


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ('<x id="b1"/>', '<x id="/b1"/>'),
        ('<x id="1" equiv-text="&lt;b&gt;"/>', '<x id="2" equiv-text="&lt;/b&gt;"/>'),
        ('<x id="1" equiv-text="[url=a]"/>', '<x id="2" equiv-text="[/url]"/>'),
        ('<ph id="1">&lt;a href="x"&gt;</ph>', '<ph id="2">&lt;/a&gt;</ph>'),
        ('<ph id="1" disp="&lt;b&gt;"/>', '<ph id="2" disp="&lt;/b&gt;"/>'),
        ('<it id="1" pos="open">&lt;b&gt;</it>', '<it id="2" pos="close">&lt;/b&gt;</it>'),
    ],
)
@pytest.mark.parametrize("space", ["", " "])
def test_placeholders_that_stand_for_tags_are_pairs(start, end, space):
    file = load(old(f'<trans-unit id="1"><source>The {start}{space}old house{space}{end} is.</source></trans-unit>'))
    (read_unit,) = file.units
    assert [code.kind for code in read_unit.codes[:: len(read_unit.codes) - 1]] == ["open", "close"]
    lone = load(old(f'<trans-unit id="1"><source>The {end}old house{start} is.</source></trans-unit>')).units[0]
    assert [code.kind for code in lone.codes] == ["single", "single"]
