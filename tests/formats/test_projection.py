"""Codes follow the words of a translation."""

from collections import Counter

import pytest
from generated_files import check_files
from hypothesis import given, settings
from hypothesis import strategies as st

from docmt.documents.words import find_words
from docmt.formats.projection import Passage, guess_links, project_codes
from docmt.formats.units import Code, Unit, UnitBuilder


def read(marked):
    """A unit of text with <b>, <i>, <a> (not copied), [x] (single) and / (a line break)."""
    builder = UnitBuilder()
    opened = []
    position = 0
    while position < len(marked):
        rest = marked[position:]
        if rest.startswith("</"):
            end = rest.index(">") + 1
            builder.close(opened.pop(), rest[:end])
        elif rest.startswith("<br>"):
            end = 4
            builder.add_single(f"br{position}", "<br>", is_space=True)
        elif rest.startswith("<"):
            end = rest.index(">") + 1
            opened.append(f"{rest[1 : end - 1]}{position}")
            builder.open(opened[-1], rest[:end], can_copy=not rest.startswith("<a"))
        elif rest.startswith("["):
            end = rest.index("]") + 1
            builder.add_single(f"x{position}", rest[:end])
        else:
            end = 1
            builder.add_text(rest[0])
        position += end
    return builder.finish()


def link_words(source, target, pairs):
    """Links of words by their numbers: "1-2 2-1"."""
    words, others = (find_words(text) for text in (source, target))
    numbers = [tuple(map(int, pair.split("-"))) for pair in pairs.split()]
    return [(*words[i], *others[j]) for i, j in numbers]


@pytest.mark.parametrize(
    ("source", "target", "links", "expected"),
    [
        ("the <b>red</b> car", "das Auto rot", "0-0 1-2 2-1", "das Auto <b>rot</b>"),
        ("the <b>red car</b>", "rouge la voiture", "1-0 0-1 2-2", "<b>rouge</b> la <b>voiture</b>"),
        ("<b>the red car</b>", "das rote Auto", "", "<b>das rote Auto</b>"),
        ("<b>The car.</b>", "Das Auto.", "", "<b>Das Auto.</b>"),
        ("a <b><i>red</i> car</b>", "un auto rosso", "0-0 1-2 2-1", "un <b>auto <i>rosso</i></b>"),
        ("I <a>like you</a> not", "like not you", "1-0 3-1 2-2", "<a>like</a> not you"),
        ("see <a>this page</a>.", "cette page voir.", "1-0 2-1 0-2 3-3", "<a>cette page</a> voir."),
        ("the car[1] is red", "rouge est la voiture", "3-0 2-1 0-2 1-3", "rouge est la voiture[1]"),
        ("the car.[1] It", "das Auto. Es", "0-0 1-1 2-2 3-3", "das Auto.[1] Es"),
        ("the car[1], red", "das Auto, rot", "0-0 1-1 2-2 3-3", "das Auto[1], rot"),
        ("use [1]it now", "et j'use", "0-0 1-3", "et [1]j'use"),
        ("<b>Note</b> is it", "Note c'est", "0-0 0-1 1-3", "<b>Note</b> c'est"),
        ("the <b>water</b>", "l'eau", "0-0 1-2", "l'<b>eau</b>"),
        ("of <b>John Miller</b> car", "John Miller's car", "1-0 2-1 0-3 3-4", "<b>John Miller'</b>s car"),
        ("l'[1]eau", "l'eau", "0-0 1-1 2-2", "l'[1]eau"),
        ("one<br>two three", "eins, zwei drei", "0-0 1-2 2-3", "eins,<br>zwei drei"),
        ("one<br>two three", "eins zwei drei", "0-0 1-1 2-2", "eins<br>zwei drei"),
        ("[1]one two", "eins zwei", "0-0 1-1", "[1]eins zwei"),
        ("one [1]two", "zwei eins", "1-0 0-1", "[1]zwei eins"),
        ("not <b>lost</b> here", "nicht hier", "0-0 2-1", "<b>nicht</b> hier"),
        ("<b>Note</b>: read", "Hinweis: lesen", "0-0 1-1 2-2", "<b>Hinweis</b>: lesen"),
        ("a<b></b> word", "ein Wort", "0-0 1-1", "ein<b></b> Wort"),
        ("say <b>(yes)</b> now", "jetzt (ja) sagen", "4-0 1-1 2-2 3-3 0-4", "jetzt <b>(ja)</b> sagen"),
        ("the <b>red</b> car", "红车", "1-0 2-1", "<b>红</b>车"),
        ("wo<b>r</b>d one", "eins Wort", "1-0 0-1", "eins <b>Wort</b>"),
        ("H<b>2</b>O is", "das H2O", "1-0 0-1", "das H<b>2</b>O"),
        ("<i>H<b>2</b>O</i> is", "das H2O", "1-0 0-1", "das <i>H<b>2</b>O</i>"),
        ("the 2<b>nd</b> day", "la 2e", "0-0 1-1 2-1", "la 2<b>e</b>"),
        ("the 2<b>nd</b> day", "la 2", "0-0 1-1", "la <b>2</b>"),
    ],
)
def test_codes_follow_their_words(source, target, links, expected):
    unit = read(source)
    passage = Passage(0, len(unit.text), target, link_words(unit.text, target, links))
    projected, missing = project_codes(unit, [passage])
    assert projected.text == target
    assert projected.render() == expected
    assert missing == []


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("Visit<br>http://a.b now", "http://a.b besuchen", "http://a.b<br>besuchen"),
        ("Open <b>now</b> /srv/a.b", "/srv/a.b öffnen", "<b>/srv/a.b</b> öffnen"),
        ("Open <a>now</a> www.a.b please", "www.a.b bitte", "<a>www.a.b</a> bitte"),
        ("In www.<b>a</b>.b[1]/c see", "Siehe www.a.b/c", "Siehe www.<b>a</b>.b[1]/c"),
    ],
)
def test_codes_of_lost_words_do_not_divide_an_address(source, target, expected):
    unit = read(source)
    by_text = {target[start:end]: (start, end) for start, end in find_words(target)}
    spans = [span for span in find_words(unit.text) if unit.text[slice(*span)] in by_text]
    links = [(*span, *by_text[unit.text[slice(*span)]]) for span in spans]
    (new, missing) = project_codes(unit, [Passage(0, len(unit.text), target, links)])
    assert new.render() == expected and not missing


def test_codes_between_sentences_stay_there():
    unit = read("<b>One.[1]</b> [2]Two <i>three</i>.[3]")
    first, second = Passage(0, 4, "Eins."), Passage(5, 15, "Zwei drei.")
    projected, _ = project_codes(unit, [first, second])
    assert projected.render() == "<b>Eins.[1]</b> [2]Zwei <i>drei</i>.[3]"


def test_an_empty_translation_keeps_its_codes_at_the_end():
    projected, missing = project_codes(read("a <b>red</b> [1]car"), [Passage(0, 9, "", [])])
    assert projected.text == ""
    assert projected.render() == "[1]<b></b>"
    assert [code.content for code in missing] == ["<b>"]


def test_a_link_over_two_sentences_is_one():
    unit = read("Go <a>now. Then</a> rest.")
    passages = [Passage(0, 7, "Jetzt geh.", [(0, 2, 6, 9), (3, 6, 0, 5)]), Passage(8, 18, "Dann ruh.")]
    projected, _ = project_codes(unit, passages)
    assert projected.text == "Jetzt geh. Dann ruh."
    assert projected.render().count("<a>") == 1


def test_equal_words_guide_guessed_links():
    links = guess_links("Paris is nice", "schön ist Paris")
    assert (0, 5, 10, 15) in links


WORDS = st.sampled_from(["one", "two", "red", "car", ".", ",", " ", " ", " ", "(", "日本"])


@st.composite
def marked_units(draw):
    builder = UnitBuilder()
    opened = []
    for number in range(draw(st.integers(0, 24))):
        choice = draw(st.integers(0, 9))
        if choice == 0 and len(opened) < 3:
            opened.append(f"p{number}")
            builder.open(opened[-1], f"<{number}>", can_copy=draw(st.booleans()))
        elif choice == 1 and opened:
            id = opened.pop()
            builder.close(id, f"</{id}>")
        elif choice == 2:
            builder.add_single(f"x{number}", f"[{number}]", is_space=draw(st.booleans()))
        else:
            builder.add_text(draw(WORDS))
    while opened:
        id = opened.pop()
        builder.close(id, f"</{id}>")
    return builder.finish()


@st.composite
def translations(draw):
    unit = draw(marked_units())
    length = len(unit.text)
    borders = sorted(draw(st.lists(st.integers(0, length), max_size=4)))
    passages = []
    for start, end in zip(borders[::2], borders[1::2], strict=False):
        target = "".join(draw(st.lists(WORDS, max_size=8)))
        number = st.integers(0, max(length, len(target), 1))
        links = draw(st.none() | st.lists(st.tuples(number, number, number, number), max_size=6))
        passages.append(Passage(start, end, target, links))
    return unit, passages


@pytest.mark.full
@check_files(translations(), quick=80, full=150)
def test_no_code_is_lost_or_doubled(case):
    unit, passages = case
    projected, missing = project_codes(unit, passages)
    text, position = "", 0
    for passage in passages:
        text += unit.text[position : passage.start] + passage.target
        position = passage.end
    assert projected.text == text + unit.text[position:]
    before, after = Counter(code.id for code in unit.codes), Counter(code.id for code in projected.codes)
    assert before.keys() == after.keys()
    single = {code.id for code in unit.codes if code.kind == "single" or not code.can_copy}
    assert all(before[id] == after[id] for id in single)
    assert {code.id for code in missing} <= before.keys()


@pytest.mark.full
@settings(max_examples=100, deadline=None)
@given(marked_units())
def test_text_that_stays_keeps_its_codes(unit):
    links = [(*span, *span) for span in find_words(unit.text)]
    projected, missing = project_codes(unit, [Passage(0, len(unit.text), unit.text, links)])
    assert projected.text == unit.text
    assert not missing or not links


@pytest.mark.parametrize(
    "codes",
    [
        [Code(2, "single", "1"), Code(1, "single", "2")],
        [Code(9, "single", "1")],
        [Code(0, "close", "1")],
        [Code(0, "open", "1")],
        [Code(0, "open", "1"), Code(0, "open", "2"), Code(1, "close", "1"), Code(1, "close", "2")],
    ],
)
def test_units_with_invalid_codes_are_refused(codes):
    with pytest.raises(ValueError, match="code"):
        Unit("abc", tuple(codes))


def pairs_by_word(unit):
    """The ids of the pairs around each word."""
    opened, result, codes = [], {}, list(unit.codes)
    for start, end in find_words(unit.text):
        while codes and codes[0].offset <= start:
            code = codes.pop(0)
            if code.kind == "open":
                opened.append(code.id)
            elif code.kind == "close":
                opened.remove(code.id)
        if unit.text[start:end].isalnum():
            result[unit.text[start:end]] = frozenset(opened)
    return result


@pytest.mark.full
@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_word_has_a_wrong_pair_where_the_alignment_is_known(data):
    """Wrong tokens as TransIns counts them: words whose pairs are not those of their source word."""
    count = data.draw(st.integers(1, 12))
    builder = UnitBuilder()
    opened = []
    for number in range(count):
        while len(opened) < 3 and data.draw(st.integers(0, 3)) == 0:
            opened.append(f"p{builder.code_count}")
            builder.open(opened[-1], f"<{opened[-1]}>")
        builder.add_text(f"w{number}")
        while opened and data.draw(st.booleans()):
            id = opened.pop()
            builder.close(id, f"</{id}>")
        builder.add_text(data.draw(st.sampled_from([" ", " ", ", "])) if number < count - 1 else ".")
    while opened:
        id = opened.pop()
        builder.close(id, f"</{id}>")
    unit = builder.finish()
    order = data.draw(st.permutations(range(count)))
    target = " ".join(f"t{number}" for number in order) + "."
    spans = {text[slice(*span)]: span for text in (unit.text, target) for span in find_words(text)}
    links = [(*spans[f"w{number}"], *spans[f"t{number}"]) for number in order]
    projected, missing = project_codes(unit, [Passage(0, len(unit.text), target, links)])
    before, after = pairs_by_word(unit), pairs_by_word(projected)
    assert missing == []
    assert [number for number in order if before[f"w{number}"] != after[f"t{number}"]] == []


@pytest.mark.parametrize("links", [[(3, 1)], [(2, 1)], [(0, 1), (3, 2)], [(1, 1)], [(0, 0), (2, 1), (4, 2)], [(1, 0)]])
def test_a_lost_pair_goes_to_a_whole_word(links):
    unit = read("Take <b>ort</b> in the House.")
    target = "l'Assembl\u00e9e."
    words, others = find_words(unit.text), find_words(target)
    passage = Passage(0, len(unit.text), target, [(*words[first], *others[second]) for first, second in links])
    projected, missing = project_codes(unit, [passage])
    assert missing == []
    assert projected.render() in ("l'<b>Assembl\u00e9e</b>.", "<b>l'Assembl\u00e9e</b>.", "<b>l'Assembl\u00e9e.</b>")


def test_no_element_is_put_into_one_of_its_name():
    unit = read("<a>Click</a> <a>here</a> now")
    projected, missing = project_codes(unit, [Passage(0, len(unit.text), "ici", [(6, 10, 0, 3)])])
    assert projected.render() == "<a>ici</a><a></a>" and [code.offset for code in missing] == [0]


def test_no_pair_ends_between_an_article_and_its_word():
    codes = (Code(0, "open", "i", "<i>"), Code(6, "close", "i", "</i>"), Code(6, "open", "r", "<r>"))
    unit = Unit("Italic True word", (*codes, Code(16, "close", "r", "</r>")))
    links = [(0, 6, 0, 8), (0, 6, 9, 10), (12, 16, 11, 17)]
    projected, _ = project_codes(unit, [Passage(0, 16, "Résultat d'Italie", links)])
    assert projected.render() == "<i>Résultat</i> <r>d'Italie</r>"


@pytest.mark.parametrize(("place", "expected"), [(23, "<a>la loi bonne</a>*."), (4, "*<a>la loi bonne</a>.")])
def test_a_note_beside_a_link_stays_outside_of_it(place, expected):
    text = "See the really good law."
    codes = [Code(4, "open", "1", "<a>", can_copy=False), Code(23, "close", "1", "</a>", can_copy=False)]
    codes.insert(0 if place == 4 else 2, Code(place, "single", "2", "*"))
    links = [(0, 3, 0, 4), (4, 7, 5, 7), (20, 23, 8, 11), (15, 19, 12, 17), (23, 24, 17, 18)]
    new, missing = project_codes(Unit(text, tuple(codes)), [Passage(0, len(text), "Voir la loi bonne.", links)])
    assert not missing and new.render() == f"Voir {expected}"


@pytest.mark.parametrize(
    ("source", "target", "links"),
    [
        (
            "gamma[1] tau, xi<a> alpha[2] beta<a1>[3] alpha</a1>[4] tau, beta</a>",
            "w0 w1 w2 w3 w4 w5 w6 w7",
            [
                *[(25, 30, 0, 2), (0, 5, 3, 5), (36, 40, 6, 8), (20, 24, 9, 11)],
                *[(20, 24, 12, 14), (11, 13, 15, 17), (11, 13, 18, 20), (9, 10, 21, 23)],
            ],
        ),
        (
            "[1]nu.[2]<a><a1> rho<a2>[3]</a2> rho[4]<a3>[5] tau,[6][7]gamma</a3></a1></a>",
            "w0 w1 w2 w3",
            [(12, 15, 0, 2), (12, 15, 3, 5), (2, 3, 9, 11)],
        ),
    ],
)
def test_codes_that_go_back_into_their_pairs_do_not_divide_others(source, target, links):
    unit = read(source)
    projected, missing = project_codes(unit, [Passage(0, len(unit.text), target, links)])
    assert not missing
    assert Counter(code.content for code in projected.codes) == Counter(code.content for code in unit.codes)
