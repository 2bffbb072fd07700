"""Bilingual files: what is written is read back, whatever people's tools do with it in between."""

import html
import random
import re
import time
from dataclasses import replace

import pytest
from commands import call
from generated_files import check_files, mutate
from hypothesis import strategies as st
from lxml import etree
from real_files import NEEDS_FILES, find_files
from test_projection import WORDS, marked_units
from xliff_rules import check_xliff_1, check_xliff_2

from docmt.core.errors import DocmtError
from docmt.formats.bilingual_files import BilingualSentence, BilingualUnit, write_page, write_tmx
from docmt.formats.language_codes import format_language_tag, is_same_language, text_direction
from docmt.formats.placeholders import hide_placeholders, tidy_pieces
from docmt.formats.projection import Passage, project_codes
from docmt.formats.readable_units import make_readable
from docmt.formats.unit_documents import Review
from docmt.formats.units import Unit, UnitBuilder
from docmt.formats.xliff_exchange import apply_targets, read_xliff_targets, write_xliff


def build(*parts):
    """A unit of texts, "<b>", "</b>" (copied), "<a>", "</a>" (not copied) and "[1]" (single)."""
    builder = UnitBuilder()
    for part in parts:
        if part.startswith("</"):
            builder.close(part[2:-1], part)
        elif part.startswith("<"):
            builder.open(part[1:-1], part, can_copy=part != "<a>")
        elif part.startswith("["):
            builder.add_single(part, part)
        else:
            builder.add_text(part)
    return builder.finish("p1")


SOURCE = build("One ", "<b>", "car. Red", "</b>", " ", "<a>", "Two", "</a>", "[1]", ".")
TARGET = build("Ein ", "<b>", "Auto. Rot", "</b>", " ", "<a>", "Zwei", "</a>", "[1]", ".")
SENTENCES = (BilingualSentence((0, 8), (0, 9), -0.5), BilingualSentence((9, 17), (10, 19), None))
PAIR = BilingualUnit("p1", SOURCE, TARGET, SENTENCES)


def write(*units):
    return write_xliff(units, "a.docx", "docx", "en", "de").decode()


def merge(text, *units):
    return apply_targets(units, read_xliff_targets(text.encode(), "x.xlf"))


def test_the_file_says_all_and_is_read_back():
    text = write(PAIR)
    assert '<sc id="c1" dataRef="d1"/>Auto.</target>' in text
    assert '<ec startRef="c1" dataRef="e1"/>' in text
    assert '<pc id="c2" dataRefStart="d2" dataRefEnd="e2" canCopy="no">Zwei</pc>' in text
    assert '<ph id="c3" dataRef="d3" canCopy="no"/>' in text
    assert '<mda:meta type="score">-0.5000</mda:meta>' in text
    assert "<ignorable><source> </source><target> </target></ignorable>" in text
    assert text == write(PAIR)
    targets = read_xliff_targets(text.encode(), "x.xlf")
    assert (targets.original, targets.format) == ("a.docx", "docx")
    assert (targets.source_language, targets.target_language) == ("en", "de")
    assert apply_targets([SOURCE], targets) == ([TARGET], [])


def test_a_placeholder_that_a_person_wrote_as_text_is_its_code():
    source = hide_placeholders(Unit("Send %s to %s, :name"))
    text = write(BilingualUnit("", source, Unit(""), (BilingualSentence((0, len(source.text)), (0, 0)),)))
    code = re.search('<ph id="c2".*?>', text)[0]
    target = text.replace("<target></target>", f"<target>:name: %s an {code} (%s) senden</target>")
    (merged,), problems = merge(target, source)
    assert (tidy_pieces(source, merged).render(), problems) == (":name: %s an %s (%s) senden", [])


FOLDERS = ("html", "docx", "pptx", "odt", "odp", "epub", "md", "srt", "vtt", "po")
ODD = st.sampled_from(['<&">', "\0", "\r", "\n", "\ud800", "]]>", "\ue000", "😀"])


@st.composite
def translated_units(draw):
    source = draw(marked_units())
    length = len(source.text)
    borders = sorted(draw(st.lists(st.integers(0, length), max_size=6)))
    passages, sentences, position, offset = [], [], 0, 0
    for start, end in zip(borders[::2], borders[1::2], strict=False):
        target = "".join(
            draw(st.lists(WORDS | st.sampled_from(['<&">', "\0", "\r", "\n", "\ud800", "]]>"]), max_size=8))
        )
        passages.append(Passage(start, end, target))
        offset += start - position
        sentences.append(BilingualSentence((start, end), (offset, offset + len(target)), None))
        offset, position = offset + len(target), end
    target, _ = project_codes(source, passages)
    return BilingualUnit("", source, target, tuple(sentences))


@check_files(st.lists(translated_units(), max_size=3), quick=20)
def test_what_is_written_is_read(units):
    text = write(*units)
    merged, warnings = merge(text, *(unit.source for unit in units))
    assert (merged, warnings) == ([unit.target for unit in units], [])
    etree.fromstring(write_tmx(units, "en", "de"))
    write_page(units, "x", "en", "de").encode()


@check_files(st.lists(translated_units(), min_size=1, max_size=3), quick=20)
def test_the_rules_of_xliff_are_kept(units):
    check_xliff_2(write(*units).encode())
    check_xliff_1(write_xliff(units, "a.docx", "docx", "en", "de", "1.2"))
    for each in units:
        review = Review(confirmed=True, machine="x", quality=50.0, notes=("number: 7", "<&"))
        failed = [
            replace(sentence, has_translation=n % 2 == 1, review=review) for n, sentence in enumerate(each.sentences)
        ]
        check_xliff_2(write(replace(each, sentences=tuple(failed))).encode())
        check_xliff_1(write_xliff([replace(each, sentences=tuple(failed))], "a.docx", "docx", "en", "de", "1.2"))


@NEEDS_FILES
@pytest.mark.full
@pytest.mark.rotated
@pytest.mark.parametrize("path", find_files(*FOLDERS), ids=lambda path: path.name)
def test_what_is_extracted_of_real_files_keeps_the_rules(path, tmp_path):
    outcome = call("extract", path, "-o", tmp_path / "x.xlf", "--source-language", "en", "--target-language", "de")
    if outcome.status == 0:
        check_xliff_2((tmp_path / "x.xlf").read_bytes())


def test_a_pair_that_is_copied_has_a_name_for_each_copy():
    target = build("<b>", "Ein", "</b>", " Auto ", "<b>", "da", "</b>", ".")
    source = build("One ", "<b>", "car", "</b>", ".")
    text = write(BilingualUnit("", source, target))
    assert '<pc id="c1-2" dataRefStart="d1" dataRefEnd="e1">' in text
    assert merge(text, source)[0][0].codes == target.codes


def test_a_copy_of_another_tool_is_known_by_its_data_or_base():
    source = build("One ", "<b>", "car", "</b>", ".")
    text = write(BilingualUnit("", source, source))
    for copy in ('<pc id="77" dataRefStart="d1">x</pc>', '<pc id="77" copyOf="c1">x</pc>'):
        (merged,), warnings = merge(text.replace("</target>", copy + "</target>"), source)
        assert merged.render() == "One <b>car</b>.<b>x</b>"
        assert not warnings


def test_other_prefixes_orders_states_and_notes_are_read():
    text = write(PAIR)
    text = text.replace('xmlns="', 'xmlns:x="')
    text = re.sub(r"<(/?)(?=\w+[\s>/])(?!mda|\?)", r"<\1x:", text)
    text = re.sub(r'id="s1" state="translated"', 'state="final" subState="a:b" id="s1"', text)
    text = re.sub(r"(<x:unit[^>]*>)", r"\1<x:notes><x:note>Why?</x:note></x:notes>", text)
    text = re.sub(r'<x:pc id="(\w+)" dataRefStart="(\w+)"', r'<x:pc dataRefStart="\2"' + "\n " + r'id="\1"', text)
    assert merge(text, SOURCE) == ([TARGET], [])


def test_segments_may_be_merged_split_and_reordered():
    source, target = Unit("One. Two."), Unit("Eins. Zwei.")
    sentences = (BilingualSentence((0, 4), (0, 5)), BilingualSentence((5, 9), (6, 11)))
    text = write(BilingualUnit("", source, target, sentences))
    merged = re.sub(
        r"<segment.*</segment>\n",
        "<segment><source>One. Two.</source><target>Zwei? Eins.</target></segment>",
        text,
        flags=re.DOTALL,
    )
    assert merge(merged, source)[0][0].text == "Zwei? Eins."
    reordered = text.replace("<target>Eins.", '<target order="3">Eins.').replace(
        "<target>Zwei.", '<target order="1">Zwei.'
    )
    assert merge(reordered, source)[0][0].text == "Zwei. Eins."
    split = text.replace(
        "<target>Eins.</target>", "<target>Ei</target></segment><segment><source/><target>ns.</target>"
    )
    assert merge(split, source)[0][0].text == "Eins. Zwei."
    marked = text.replace("Eins.", '<mrk id="m1" translate="no">Eins</mrk><sm id="m2"/>.<em startRef="m2"/>')
    assert merge(marked, source)[0][0].text == "Eins. Zwei."


def test_codes_that_are_lost_stand_at_the_end():
    text = write(PAIR)
    text = re.sub(r'(<target>[^\n]*)<ph id="c3"[^>]*>', r"\1", text)
    text = re.sub(r"(<target>[^\n]*)<pc [^>]*>Zwei</pc>", r"\1Zwei", text)
    (merged,), warnings = merge(text, SOURCE)
    assert merged.render() == "Ein <b>Auto. Rot</b> Zwei.<a></a>[1]"
    assert warnings == ["x.xlf, line 5: unit u1: codes that the translation lacks stand at its end: <a> [1]"]


def test_codes_that_are_new_are_left_out():
    extra = '<ph id="c9"/><ph id="n"/><pc id="p" dataRefStart="d2">!</pc><ph id="c3-2" dataRef="d3"/>'
    end = "</target></segment>\n</unit>"
    (merged,), warnings = merge(write(PAIR).replace(end, extra + end), SOURCE)
    assert merged.codes == TARGET.codes
    assert merged.text == TARGET.text + "!"
    assert warnings == ["x.xlf, line 5: unit u1: 4 codes that the source does not have (so often) were left out"]


def test_pairs_that_cross_are_nested():
    source = build("<a>", "One ", "</a>", "<b>", "two", "</b>")
    text = write(BilingualUnit("", source, source))
    crossing = (
        '<target><sc id="c1" dataRef="d1"/>x<sc id="c2" dataRef="d2"/>y<ec startRef="c1"/>z<ec startRef="c2"/>'
        '<ec startRef="c2"/></target>'
    )
    (merged,), _ = merge(re.sub("<target>.*</target>", crossing, text), source)
    assert merged.render() == "<a>x<b>y</b></a><b>z</b>"


def test_units_without_a_translation_stay():
    missing = [replace(each, has_translation=False) for each in SENTENCES]
    empty = BilingualUnit("", SOURCE, Unit(""), tuple(missing))
    text = write(empty, PAIR)
    assert text.count('state="initial"') == 2
    merged, warnings = merge(text, SOURCE, SOURCE)
    assert merged == [SOURCE, TARGET]
    assert warnings == ["x.xlf: units without a translation, which stay: 1 of 2"]
    half = re.sub(r'(<segment id="s3") state="translated">(.*)<target>.*</target>', r"\1>\2<target/>", text)
    merged, warnings = merge(half, SOURCE, SOURCE)
    assert merged[1].text == "Ein Auto. Red Two."
    assert "1 of 2 segments have no translation" in warnings[0]


def test_a_sentence_that_failed_is_no_translation():
    target = build("Ein ", "<b>", "Auto. Red", "</b>", " ", "<a>", "Two", "</a>", "[1]", ".")
    failed = replace(
        PAIR, target=target, sentences=(SENTENCES[0], BilingualSentence((9, 17), (10, 18), has_translation=False))
    )
    text = write(failed)
    assert (text.count('state="translated"'), text.count('state="initial"')) == (1, 1)
    (unit,), (warning,) = merge(text, SOURCE)
    assert unit.text == "Ein Auto. Red Two." and "1 of 2 segments have no translation" in warning
    assert b"Two" not in write_tmx([failed], "en", "de")


def test_an_empty_translation_is_one():
    source = Unit("Um. Go.")
    sentences = (BilingualSentence((0, 3), (0, 0)), BilingualSentence((4, 7), (0, 0)))
    text = write(BilingualUnit("", source, Unit(""), sentences))
    assert text.count('state="translated"') == 2
    assert merge(text, source) == ([Unit("")], [])


def test_sentences_out_of_order_are_one_segment():
    sentences = (SENTENCES[1], SENTENCES[0])
    assert write(BilingualUnit("", SOURCE, TARGET, sentences)).count("<segment") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (write(PAIR, PAIR), "unit u2 is not in the original"),
        (write(BilingualUnit("", Unit("Other."), TARGET)), "another source"),
        ("<xliff/>", "not an XLIFF 2 file"),
        (write(PAIR).replace("Auto", '<cp hex="zz"/>'), "line 5: <cp"),
        (write(PAIR).replace("Auto", '<cp hex="FFFFFFFFFFFF"/>'), "line 5: <cp"),
        ("<a", "broken XML"),
    ],
)
def test_other_files_are_refused(text, message):
    with pytest.raises(DocmtError, match=re.escape(message)):
        merge(text, SOURCE)


def test_a_memory_has_plain_sentences_with_date_origin_and_state():
    edited = replace(SENTENCES[1], review=Review(edited=True, confirmed=True))
    other = BilingualUnit("", build("Hello ", "[{name}]", "!"), Unit("Hallo!"))
    units = [replace(PAIR, sentences=(SENTENCES[0], edited)), BilingualUnit("", Unit("a < b"), Unit("")), other]
    text = write_tmx(units, "eng_Latn", "zho_Hans").decode()
    rows = etree.fromstring(text.encode()).findall("body/tu")
    assert [[seg.text for seg in row.iter("seg")] for row in rows] == [
        ["One car.", "Ein Auto."],
        ["Red Two.", "Rot Zwei."],
        ["Hello !", "Hallo!"],
    ]
    assert [[prop.text for prop in row.iter("prop")] for row in rows[:2]] == [
        ["machine", "open"],
        ["person", "confirmed"],
    ]
    assert all(re.fullmatch(r"\d{8}T\d{6}Z", row.get("creationdate")) for row in rows)
    assert 'srclang="en"' in text
    assert 'xml:lang="zh-Hans"' in text


def test_the_page_is_safe_and_pairs_sentences():
    evil = "</script><img src=x onerror=alert(1)> \" ' $title"
    page = write_page([PAIR, BilingualUnit("", Unit(evil), Unit(evil))], evil, "en", "ara_Arab")
    assert page.count(html.escape(evil)) == 4
    assert page.count("<script") == page.count("</script") == 1
    assert 'dir="rtl"' in page
    assert 'lang="ar"' in page
    assert "http" not in page.replace("http-equiv", "")
    assert re.findall(r'<span id="(\w+)"', page) == ["s1", "s2", "t1", "t2", "s3", "t3"]
    assert "script-src 'sha256-" in page


def test_codes_of_languages():
    assert is_same_language("en-US", "eng_Latn")
    assert is_same_language("", "de")
    assert is_same_language("zh-CN", "zho_Hant")
    assert not is_same_language("pt-BR", "es")
    tags = ["en_US", "en_XX", "sr_Latn", "zh-hant-tw", "C++", "deu_Latn", "es-419", ""]
    expected = ["en-US", "en", "sr-Latn", "zh-Hant-TW", "und", "de", "es-419", "und"]
    assert [format_language_tag(tag) for tag in tags] == expected
    directions = {code: text_direction(code) for code in ("he", "arb_Arab", "en", "az-Arab", "ks_Deva", "")}
    assert [code for code, direction in directions.items() if direction == "rtl"] == ["he", "arb_Arab", "az-Arab"]


@pytest.mark.full
def test_mutants():
    generator = random.Random(0)
    sample = write(PAIR).encode()
    for _ in range(200):
        try:
            merged, _ = apply_targets([SOURCE], read_xliff_targets(mutate(sample, generator), "x.xlf"))
        except DocmtError:
            continue
        assert {code.id for code in merged[0].codes} == {code.id for code in SOURCE.codes}


@pytest.mark.full
def test_a_paragraph_of_thousands_of_sentences_takes_linear_time():
    builder, sentences = UnitBuilder(), []
    for number in range(4000):
        builder.open(str(number), "<b>")
        builder.add_text("One word. ")
        builder.close(str(number), "</b>")
        sentences.append(BilingualSentence((10 * number, 10 * number + 9), (10 * number, 10 * number + 9)))
    unit = builder.finish()
    start = time.perf_counter()
    written = write_xliff([BilingualUnit("1", unit, unit, tuple(sentences))], "a.html", "html", "en", "fr")
    read_xliff_targets(written, "a.xlf")
    assert time.perf_counter() - start < 10
    assert written.count(b"<segment ") == 4000


def test_pages_and_memories_have_placeholders_where_the_texts_have_them():
    source = hide_placeholders(Unit("Hi [NAME], you read %s of the files of {b}\nand *|C|* today."))
    readable = make_readable(source)
    (span,) = readable.find_sentences("en")
    target, (place,), _ = readable.project([Passage(*span, "Vous lisez : %s, [NAME] {b} et *|C|*.")])
    unit = BilingualUnit("", source, target, (BilingualSentence((0, len(source.text)), place),))
    for text in (write_page([unit], "a", "en", "fr"), write_tmx([unit], "en", "fr").decode()):
        assert "Hi [NAME], you read %s of the files of {b} and *|C|* today." in text
        assert "Vous lisez : %s, [NAME] {b} et *|C|*." in text
