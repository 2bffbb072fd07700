"""Single codes in translated sentences: those that belong together, line breaks, and codes beside each other."""

import re
from functools import partial
from itertools import pairwise

import pytest
import test_open_documents
import test_word_documents
from hypothesis import given, settings
from hypothesis import strategies as st

from docmt.documents.words import find_words
from docmt.formats import html_pages, markdown_texts, subtitles
from docmt.formats.placeholders import hide_placeholders, tidy_spaces
from docmt.formats.projection import Passage, project_codes
from docmt.formats.units import ReadConfig, Unit, UnitBuilder, find_line_spans

PARTNERS = [
    ('<w:bookmarkStart w:id="#" w:name="_Toc_end"/>', '<w:bookmarkEnd w:id="#"/>'),
    ('<w:commentRangeStart w:id="#"/>', '<w:commentRangeEnd w:id="#"/>'),
    ('<w:permStart w:id="#" w:edGrp="everyone"/>', '<w:permEnd w:id="#"/>'),
    ('<w:moveFromRangeStart w:id="#" w:author="A"/>', '<w:moveFromRangeEnd w:id="#"/>'),
    ('<text:bookmark-start text:name="#"/>', '<text:bookmark-end text:name="#"/>'),
    ('<text:change-start text:change-id="ct#"/>', '<text:change-end text:change-id="ct#"/>'),
    (
        '<office:annotation office:name="#"><text:p>The end</text:p></office:annotation>',
        '<office:annotation-end office:name="#"/>',
    ),
    (
        '<text:alphabetical-index-mark-start text:id="#" text:key1="a"/>',
        '<text:alphabetical-index-mark-end text:id="#"/>',
    ),
    (
        '<x id="START_LINK_#" equiv-text="&lt;a href=&quot;/x&quot;&gt;"/>',
        '<x id="CLOSE_LINK" equiv-text="&lt;/a&gt;"/>',
    ),
    ('<it id="1#" pos="open">&lt;b&gt;</it>', '<it id="2#" pos="close">&lt;/b&gt;</it>'),
    ('<ph id="1#">&lt;b x="#"&gt;</ph>', '<ph id="2#">&lt;/b&gt;</ph>'),
    ('<ph id="1#" equiv="START_B" disp="&lt;b&gt;"/>', '<ph id="2#" equiv="CLOSE_B" disp="&lt;/b&gt;"/>'),
    ("{{#b}}", "{{/b}}"),
    ("{{#if b#}}", "{{/if}}"),
    ("{% if b# %}", "{% endif %}"),
    ("%{start#}", "%{end#}"),
    ("{startLink}", "{endLink}"),
    ("%(link_open)s", "%(link_close)s"),
    ("{linkstart}", "{linkend}"),
    ("[b]", "[/b]"),
    ("<!-- begin x# -->", "<!-- end x# -->"),
    ("<!-- x#:start -->", "<!-- x#:end -->"),
    ('<!-- wp:x {"a": #} -->', "<!-- /wp:x -->"),
    ("<!-- lint-disable -->", "<!-- lint-enable -->"),
    ('<a name="s#-begin">', '<a name="s#-end">'),
    ("{1#}", "{2#}"),
    ("%1#$s", "%2#$s"),
    ("%s", "%s"),
    ('<x id="1#"/>', '<x id="2#"/>'),
]


def build(marked, contents):
    """Return a unit of words and marks: a letter is a code with this content, / is a line break."""
    builder = UnitBuilder()
    for part in re.findall(r"\d+|[a-zA-Z]|.", marked):
        if part == "/":
            builder.add_single(f"/{builder.code_count}", "\n", is_space=True)
        elif re.match("[a-zA-Z]", part):
            builder.add_single(part, contents.get(part, f"[{part}]"))
        else:
            builder.add_text(part)
    return builder.finish()


def translate(unit, target):
    """Return a unit with another text, whose words are linked to equal ones."""
    spans = {unit.text[slice(*span)]: span for span in find_words(unit.text)}
    links = [(*spans[target[a:b]], a, b) for a, b in find_words(target) if target[a:b] in spans]
    new, missing = project_codes(unit, [Passage(0, len(unit.text), target, links)])
    assert new.text == target and not missing
    return new


def show(unit):
    """Return the words and the names of the codes."""
    return "".join(part if isinstance(part, str) else part.id[0] for part in unit.segments())


@pytest.mark.parametrize(("start", "end"), PARTNERS)
@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("1 A2 3B 4.", "1 3 2 4.", "1 A3 2B 4."),
        ("A1 2B 3.", "3 2 1.", "3 A2 1B."),
        ("1 2 A3B", "3 1 2", "A3B 1 2"),
        ("1 A2B 3 C4D.", "4 3 2 1.", "C4D 3 A2B 1."),
        ("1 A2 C3D 4B 5.", "5 3 4 2 1.", "5 AC3D 4 2B 1."),
        ("1 A2 x3B 4.", "3 2 4 1.", "Ax3 2B 4 1."),
        ("1 A2B 3.", "1 3.", "A1B 3."),
    ],
)
def test_partners_enclose_what_they_enclosed(start, end, source, target, expected):
    numbers = {"A": "1", "B": "1", "C": "2", "D": "2"}
    contents = {name: (start, end)[name in "BD"].replace("#", number) for name, number in numbers.items()}
    assert show(translate(build(source, contents), target)) == expected


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("1 A2 C3B 4D 5", "5 4 3 2 1", "5 C4 A3D 2B 1"),  # they overlap
        ("A1B 3 C2D", "2 3 1", "C2D 3 A1B"),
        ("1 2B 3", "2 1 3", "2 1B 3"),  # it begins in another unit
        ("1 A2 3", "1 3 2", "1 A3 2"),
        ("1 xA2 3B 4", "1 3 2 4", "1 xA3 2B 4"),
        ("1 A2 3Bx 4", "1 3 2 4", "1 A3 2Bx 4"),
        ("1 A2 3xB 4", "1 3 2 4", "1 A3x 2B 4"),
        ("日A本", "日本", "日A本"),
    ],
)
def test_ranges_of_any_order(source, target, expected):
    contents = {
        "A": '<w:bookmarkStart w:id="1"/>',
        "B": '<w:bookmarkEnd w:id="1"/>',
        "C": '<w:bookmarkStart w:id="2"/>',
        "D": '<w:bookmarkEnd w:id="2"/>',
    }
    assert show(translate(build(source, contents), target)) == expected


@pytest.mark.parametrize(
    ("first", "second"),
    [("{user}", "{end}"), ("{count}", "{total}"), ("<img/>", "<img alt='the end'/>"), ("{startDate}", "{endTime}")],
)
def test_other_codes_follow_their_words(first, second):
    unit = build("1 A2 3 B4", {"A": f"{first} ", "B": f"{second} "})
    assert show(translate(unit, "4 3 2 1")) == "B4 3 A2 1"


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("1/2 3", "1 9 2 3", "1/9 2 3"),
        ("1:/x/2.", "1: 9 2.", "1:/x/9 2."),
        ("1 2/3 4/5 6", "2 1 4 3 6 5", "2 1/4 3/6 5"),
        ("1 2/3 4", "3 1 2 4", "3 1 2/4"),
        ("1 x/y2", "1 2", "1 x/y2"),
        ("1 A2/3B 4", "1 2 3 4", "1 A2/3B 4"),
        ("1/A2 3B/4", "1 3 2 4", "1/A3 2B/4"),
        ("1/2.", "8 9.", "8/9."),
        ("1/2 x.", "1.", "1/x."),
        ("日/本", "日本", "日/本"),
        ("1, 2/3", "1, 2 3", "1, 2/3"),
    ],
)
def test_line_breaks_stay_between_their_words(source, target, expected):
    contents = {"A": "{{#b}}", "B": "{{/b}}"}
    assert show(translate(build(source, contents), target)).replace("\n", "/") == expected


@st.composite
def sentences(draw):
    """Draw a unit of numbers with ranges that nest or overlap, other codes, and a new order of the numbers."""
    count = draw(st.integers(2, 9))
    builder = UnitBuilder()
    opened = []
    for number in range(count):
        for kind in draw(st.lists(st.sampled_from("([x/"), max_size=2, unique=True)):
            id = f"{kind}{builder.code_count}"
            if kind == "(":
                opened.append(builder.code_count)
                builder.add_single(id, f'<w:bookmarkStart w:id="{opened[-1]}"/>')
            elif kind != "[":
                builder.add_single(id, "\n" if kind == "/" else f"<{id}>", is_space=kind == "/")
        builder.add_text(str(number))
        while opened and draw(st.booleans()):
            start = opened.pop(draw(st.integers(0, len(opened) - 1)))
            builder.add_single(f"){start}", f'<w:bookmarkEnd w:id="{start}"/>')
        if draw(st.integers(0, 3)) == 0:
            builder.add_single(f"x{builder.code_count}", "{x}")
        builder.add_text(" " * (number < count - 1))
    for start in opened:
        builder.add_single(f"){start}", f'<w:bookmarkEnd w:id="{start}"/>')
    return builder.finish(), draw(st.permutations(range(count)))


@pytest.mark.full
@settings(max_examples=150, deadline=None)
@given(sentences())
def test_ranges_enclose_and_codes_stay_in_order(case):
    unit, order = case
    new = translate(unit, " ".join(map(str, order)))
    source, target = list(unit.codes), list(new.codes)
    assert sorted(code.id for code in source) == sorted(code.id for code in target)
    places = {code.id: index for index, code in enumerate(target)}
    offsets = {side: {code.id: code.offset for code in each.codes} for side, each in (("old", unit), ("new", new))}
    ids = [code.id for code in source]
    for id in [id for id in ids if id[0] == "("]:
        ends = id, f"){id[1:]}"
        assert places[ends[0]] < places[ends[1]]
        for number in map(str, order):
            if offsets["old"][ends[0]] <= unit.text.index(number) < offsets["old"][ends[1]]:
                assert offsets["new"][ends[0]] <= new.text.index(number) < offsets["new"][ends[1]]
        for other in ids[ids.index(ends[0]) : ids.index(ends[1])]:
            assert other[0] != "x" or places[ends[0]] < places[other] < places[ends[1]]
    breaks = [[code.id for code in each if code.id[0] == "/"] for each in (source, target)]
    assert breaks[0] == breaks[1]
    if list(order) == sorted(order):
        assert [code.id for code in source] == [code.id for code in target]
        assert show(new) == show(unit)
    for first, second in pairwise(source):
        is_beside = not unit.text[first.offset : second.offset].strip()
        if is_beside and second.id[0] == "x" and first.id[0] == "x":
            assert places[first.id] < places[second.id]


def make_docx(start, reading, base, end):
    def write_run(text):
        return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'

    ruby = f"<w:ruby><w:rt>{write_run(reading)}</w:rt><w:rubyBase>{write_run(base)}</w:rubyBase></w:ruby>"
    body = f"<w:p>{write_run(start)}<w:r>{ruby}</w:r>{write_run(end)}</w:p>"
    return test_word_documents.read_docx(test_word_documents.make(body))


def make_odt(start, reading, base, end):
    ruby = f"<text:ruby-base>{base}</text:ruby-base><text:ruby-text>{reading}</text:ruby-text>"
    return test_open_documents.load(
        test_open_documents.pack(f"<text:p>{start}<text:ruby>{ruby}</text:ruby>{end}</text:p>")
    )


def make_text(start, reading, base, end, read, head="", name="x"):
    text = f"{head}{start}<ruby>{base}<rt>{reading}</rt></ruby>{end}"
    return read(text.encode(), name, ReadConfig())


@pytest.mark.parametrize(
    "make",
    [
        make_docx,
        make_odt,
        partial(make_text, read=html_pages.read),
        partial(make_text, read=markdown_texts.read),
        partial(make_text, read=subtitles.read, head="WEBVTT\n\n00:01.000 --> 00:02.000\n", name="x.vtt"),
    ],
)
def test_a_ruby_is_one_code_around_its_base(make):
    (unit,) = make("The ", "The reading", "red house", " is here.").units
    assert unit.text == "The red house is here."
    links = [(0, 3, 0, 2), (4, 7, 10, 15), (8, 13, 3, 9), (14, 16, 16, 19), (17, 21, 20, 23)]
    new, missing = project_codes(unit, [Passage(0, len(unit.text), "La maison rouge est ici.", links)])
    markup = new.render()
    assert not missing and markup.count("The reading") == 1
    assert re.search(r"<(?:w:rubyBase|text:ruby-base|ruby)>.*maison.*rouge", markup)
    assert not re.search(r"rouge[^.]*maison|<[^>]*r(?:t|uby-text)>[^<]*(?:maison|rouge)", markup)


@pytest.mark.parametrize(
    "text", ["Items:\n- {a}\n- {b}", "* {a}\n* {b}\nare here", "A {a}\n{b} is\nin {c}.", "1. {a}\n2. {b} is"]
)
def test_marks_of_items_and_placeholders_stay_in_their_lines(text):
    unit = hide_placeholders(Unit(text))
    assert unit.render() == text
    links = [(*span, *span) for span in find_words(unit.text)]
    assert tidy_spaces(project_codes(unit, [Passage(0, len(unit.text), unit.text, links)])[0]).render() == text


def test_an_item_of_a_list_and_an_empty_line_end_a_sentence():
    unit = hide_placeholders(Unit("Choose one:\n- the red one\n- a %s\n\nThen go\n\non."))
    lines = [unit.text[start:end].strip() for start, end in find_line_spans(unit)]
    assert lines == ["Choose one:", "the red one", "a", "Then go on."]
