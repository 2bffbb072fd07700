"""Subtitles: times and marks stay, sentences go over cues, and cues and lines are cut anew."""

import re
import time

import pytest
from generated_files import check_files, read_mutants
from hypothesis import strategies as st
from real_files import NEEDS_FILES, find_files

from docmt.core.errors import DocmtError
from docmt.formats.projection import Passage, project_codes
from docmt.formats.subtitles import read
from docmt.formats.units import ReadConfig, Unit

VOWELS = str.maketrans("aeiou", "áéíóú")


def srt(*cues, seconds=2.0, pause=0.1):
    lines = []
    for number, cue in enumerate(cues):
        first = number * (seconds + pause)
        lines.append(f"{number + 1}\n{clock(first)} --> {clock(first + seconds)}\n{cue}\n")
    return "\n".join(lines)


def clock(seconds):
    return f"00:{int(seconds) // 60:02}:{int(seconds) % 60:02},{round(seconds % 1 * 1000):03}"


def vtt(*cues):
    return "WEBVTT\n\n" + srt(*cues).replace(",", ".")


def parse(text, name="x.srt"):
    return read(text.encode(), name, ReadConfig())


def texts(text):
    return [unit.text for unit in parse(text).units]


def translate(file, translations, language=""):
    """Write the file with these texts, whose codes are put back without an alignment."""
    units = [
        project_codes(unit, [Passage(0, len(unit.text), new)])[0]
        for unit, new in zip(file.units, translations, strict=True)
    ]
    return file.write(units, language).decode()


def cues(text):
    """Return the text lines of each SubRip or WebVTT cue."""
    return [
        block.split("\n")[next(i for i, line in enumerate(block.split("\n")) if "-->" in line) + 1 :]
        for block in text.strip("\n").split("\n\n")
        if "-->" in block
    ]


def test_a_sentence_over_cues_is_one_unit_and_is_cut_again():
    text = srt("I wanted to tell you", "that we are leaving", "tomorrow. Bye.", "Another one.")
    file = parse(text)
    assert [unit.text for unit in file.units] == [
        "I wanted to tell you that we are leaving tomorrow. Bye.",
        "Another one.",
    ]
    new = translate(file, ["Chtěl jsem ti jen říci, že zítra odjíždíme. Ahoj.", "Další."])
    assert cues(new) == [["Chtěl jsem ti jen říci,"], ["že zítra"], ["odjíždíme. Ahoj."], ["Další."]]
    assert [line for line in new.split("\n") if "-->" in line] == [line for line in text.split("\n") if "-->" in line]


ARROWS = ["-->", "->", "–>", "→", "-- >", "--&gt;", "-", ",", "=>", "~", "to", " ", "-->>", "--", "bis", ";", "until"]


@pytest.mark.parametrize("arrow", ARROWS)
def test_a_line_with_two_times_is_no_text(arrow):
    text = srt("The first.", "The second.", "The third.").replace("00:02,100 -->", f"00:02,100 {arrow}")
    assert texts(text) == ["The first.", "The second.", "The third."]
    assert translate(parse(text), ["A.", "B.", "C."]) == (
        text.replace("The first.", "A.").replace("The second.", "B.").replace("The third.", "C.")
    )


@pytest.mark.parametrize(
    "times", ["00.00.02,000 - 00.00.04,000", "00：00：02，000 → 00：00：04，000", "0:02:01 0:04:01"]
)
def test_times_with_other_signs_are_no_text(times):
    text = srt("The first.", "The second.").replace("00:00:02,100 --> 00:00:04,100", times)
    assert texts(text)[0] == "The first." and not any(re.search("[0-9]", each) for each in texts(text))


@pytest.mark.parametrize(
    "text", ["10:30:00 and 11:00:00 are too late.", "12.05.2024 bis 13.05.2024 war ich dort.", "News | Weather today."]
)
def test_a_text_that_begins_with_times_or_has_a_bar_is_text(text):
    assert texts(srt(text)) == [text]


@pytest.mark.parametrize("piece", ["<br>", "|", "♪ ", "》", " ", r"\N"])
def test_many_breaks_and_marks_take_linear_time(piece):
    assert len(texts(srt(f"Hello {piece * 5000}x."))) <= 2


def test_a_line_with_broken_times_is_reported():
    file = parse(srt("The first.") + "\n2\n00:00:0x,000 --> 00:00:06,000\nThe second.\n")
    assert [each.reason for each in file.skipped] == ["broken cues"]
    assert [unit.text for unit in file.units] == ["The first."]


@pytest.mark.parametrize("blank", [" ", "\t", "\u00a0"])
def test_only_an_empty_line_ends_a_webvtt_cue(blank):
    text = vtt(f"{blank}\nThe House is good.", f"The report\n{blank}\nis adopted.", f"A vote.\n{blank}\nThank you.")
    assert texts_of_vtt(text) == ["The House is good.", "The report is adopted.", "A vote.", "Thank you."]
    new = translate(parse(text, "x.vtt"), ["L'Assemblée.", "Un rapport.", "Un vote.", "Merci."])
    assert cues(new) == [[blank, "L'Assemblée."], ["Un", blank, "rapport."], ["Un vote.", blank, "Merci."]]


def texts_of_vtt(text):
    return [unit.text for unit in parse(text, "x.vtt").units]


def test_digits_and_titles_are_complete():
    assert texts(srt("5", "The House is good.")) == ["The House is good."]
    assert texts(srt("REPORT OF THE HOUSE", "The vote is today.")) == ["REPORT OF THE HOUSE", "The vote is today."]
    assert texts(srt("We read the", "TREATY OF ROME", "today.")) == ["We read the", "TREATY OF ROME", "today."]
    assert texts(srt("WE MET THE", "MEMBERS")) == ["WE MET THE MEMBERS"]
    assert texts(srt("We went to the", "USA", "in May.")) == ["We went to the USA in May."]


@pytest.mark.parametrize(
    ("cue", "text"),
    [
        (r"One\Ntwo.", "One two."),
        (r"One\htwo.", "One two."),
        (r"\h\hOne two.\N", "One two."),
        (r"{\p1}m 0 0 l 100 0{\p0}One two.", "One two."),
        ("{b}One two.{/b}", "One two."),
        ("One <00:00:01.500>two.", "One two."),
        (r"{\an8\p2}m 0 0 b 9 l", None),
        ("{y:i}One two.", "One two."),
        ("{c:$0000ff}{y:b}One two.", "One two."),
        (">> One two.", "One two."),
        (">>> One two.", "One two."),
        ("&gt;&gt; One two.", "One two."),
        ("# One two. #", "One two."),
        ("#One two.", "#One two."),
        ("♬ One two. ♬", "One two."),
        ("~ One two. ~", "One two."),
        ("-- One two.", "One two."),
        ("One two. --", "One two."),
        ("One two--", "One two"),
        ("- One two.", "One two."),
        ("/One two/", "One two"),
        ("*One two*", "One two"),
        ("One|two.", "One two."),
        ("{y:i}One|two.", "One two."),
        ("One<br>two.", "One two."),
        ("《One two》", "One two"),
        ("【One two.】", "One two."),
        ("♪～ One two ～♪", "One two"),
        ("🎵 One two 🎵", "One two"),
        ("&#9834; One two &#x266A;", "One two"),
        ("m 0 0 l 100 0 b 1 -2 3.5 4 5 6", None),
        ("{=1}One two.", "One two."),
    ],
)
def test_codes_and_marks_stay(cue, text):
    for content, name in ((srt(cue), "x.srt"), (vtt(cue), "x.vtt")):
        file = parse(content, name)
        assert [unit.text for unit in file.units] == [text] * (text is not None)
        new = translate(file, [unit.text.replace("One", "A").replace("two", "b") for unit in file.units])
        assert cues(new) == [[cue.replace("One", "A").replace("two", "b")]]


def test_every_cue_has_a_word_while_there_are_enough():
    file = parse(srt("One two three", "four five six", "seven eight nine."))
    assert cues(translate(file, ["Jedna dvě tři"])) == [["Jedna"], ["dvě"], ["tři"]]
    assert cues(translate(file, ["Jedna dvě"])) == [["Jedna"], ["dvě"], []]
    assert cues(translate(file, [""]))[1:] == [[], []]


def test_missing_borders_are_set_by_the_lengths():
    file = parse(srt("One two three four", "five six", "seven eight nine."))
    new = Unit("a b c d e f g h i")
    assert cues(file.write([new]).decode()) == [["a b c d"], ["e"], ["f g h i"]]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("It is over.", "We leave"),
        ("He said “no.”", "we leave"),
        ("no?)", "we leave"),
        ("I think", "- we leave"),
        ("I think", "♪ we leave"),
        ("I think", "[door opens]"),
        ("I think", "(sighs) we leave"),
        ("I think", "BOB: we leave"),
        ("I think", "MRS. SMITH 2: we leave"),
        ("[door opens]", "we leave"),
        ("これは本です。", "それは"),
    ],
)
def test_what_ends_a_unit(first, second):
    assert len(texts(srt(first, second))) == 2


def test_what_does_not_end_a_unit():
    assert texts(srt("I think", "that we leave")) == ["I think that we leave"]
    assert texts(srt("He said:", "Bob: no")) == ["He said: Bob: no"]


def test_a_long_pause_or_an_overlap_ends_a_unit():
    assert len(texts(srt("I think", "we leave", pause=3.2))) == 2
    assert len(texts(srt("I think", "we leave", pause=2.9))) == 1
    assert len(texts(srt("I think", "we leave", pause=-1.5))) == 2


def test_an_empty_cue_ends_a_unit():
    assert texts(srt("I think", "", "we leave")) == ["I think", "we leave"]


def test_voices_end_a_unit():
    same = vtt("<v Bob>I think", "<v Bob>we leave.")
    assert texts(same) == ["I think we leave."]
    assert "<v Bob>Já\n" in translate(parse(same), ["Já odjíždím."])
    assert texts(vtt("<v Bob>I think", "<v Ann>we leave.")) == ["I think", "we leave."]


@pytest.mark.parametrize("make", [srt, vtt])
@pytest.mark.parametrize(
    ("cue", "expected", "new"),
    [
        ("♪ I love you ♪", ["I love you"], "♪ a0 ♪"),
        ("♪♪ I love\nyou so ♫", ["I love you so"], "♪♪ a0 ♫"),
        ("<i>♪ I love you ♪</i>", ["I love you"], "<i>♪ a0 ♪</i>"),
        ("- ♪ I love you ♪\n- Stop.", ["I love you", "Stop."], "- ♪ a0 ♪\n- a1"),
        ("♪ I love you ♪\n♪ And you me ♪", ["I love you", "And you me"], "♪ a0 ♪\n♪ a1 ♪"),
        ("♪\nI love you\n♪", ["I love you"], "♪\na0\n♪"),
        ("I ♪ love ♪ you.", ["I ♪ love ♪ you."], "a0"),
        ("♪ ♪", [], "♪ ♪"),
    ],
)
def test_music_around_a_text_stays(make, cue, expected, new):
    file = parse(make(cue, "and more"))
    assert [unit.text for unit in file.units] == [*expected, "and more"]
    units = [Unit(f"a{number}") for number in range(len(expected))]
    assert "\n".join(cues(file.write([*units, file.units[-1]]).decode())[0]) == new


def test_two_speakers_are_two_units():
    text = srt("- Where are you?\n- Here,\nat home.", "<i>- Me, too.\n–No!</i>", "-5 degrees.")
    file = parse(text)
    assert [unit.text for unit in file.units] == ["Where are you?", "Here, at home.", "Me, too.", "No!", "-5 degrees."]
    new = translate(file, ["Kde jsi?", "Doma.", "Já taky.", "Ne!", "-5 stupňů."])
    assert cues(new) == [["- Kde jsi?", "- Doma."], ["<i>- Já taky.", "–Ne!</i>"], ["-5 stupňů."]]


def test_turns_after_other_breaks_are_units():
    text = srt(r"{\an8}- Where are you?\N- Here.", "- Me, too.|- No!", "《It is good》", "<p>It is bad.</p>")
    assert texts(text) == ["Where are you?", "Here.", "Me, too.", "No!", "It is good", "It is bad."]
    new = translate(parse(text), ["Où?", "Ici.", "Moi.", "Non!", "Oui", "Non."])
    assert cues(new) == [[r"{\an8}- Où?\N- Ici."], ["- Moi.|- Non!"], ["《Oui》"], ["<p>Non.</p>"]]


def test_entities_of_subrip_are_text():
    file = parse(srt("It&#39;s R&amp;D &lt;i&gt; at&t."))
    assert file.units[0].text == "It's R&D &lt;i&gt; at&t."
    assert cues(translate(file, ["C'est &lt;b&gt; & d."])) == [["C'est &lt;b&gt; & d."]]


def test_lines_are_balanced_again():
    file = parse(srt("This is a line of text\nand a second one.", "Short."))
    new = translate(file, ["Tohle je řádek textu a druhý řádek.", "Teď je to text, který se na jeden řádek nevejde."])
    assert cues(new) == [
        ["Tohle je řádek", "textu a druhý řádek."],
        ["Teď je to text,", "který se na jeden řádek nevejde."],
    ]


def test_scripts_without_spaces_are_cut():
    file = parse(srt("This is a book", "that I have read."))
    first, second = cues(translate(file, ["これは私が読んだ本です。"]))
    assert first[0] + second[0] == "これは私が読んだ本です。"
    assert first[0] and not second[0].startswith("。")


def test_tags_are_codes():
    (unit,) = parse(srt(r"{\an8}Look, <i>a <b>very</b></i> <font color='red'>red</font> {\i1}x{\i0} 1 < 2 <3")).units
    assert unit.text == "Look, a very red x 1 < 2 <3"
    assert {code.content for code in unit.codes if code.kind == "open"} == {
        "<i>",
        "<b>",
        "<font color='red'>",
        r"{\i1}",
    }


def test_tags_around_all_of_a_cue_stay_in_it():
    text = srt(r"{\an8}<i>We leave", "tomorrow.</i>", "<i>And</i>", "<i>you.</i>")
    file = parse(text)
    assert [unit.text for unit in file.units] == ["We leave tomorrow.", "And you."]
    new = translate(file, ["Zítra odjíždíme.", "A ty."])
    assert cues(new) == [[r"{\an8}<i>Zítra"], ["odjíždíme.</i>"], ["<i>A</i>"], ["<i>ty.</i>"]]


def test_an_empty_pair_after_a_pair_around_all_of_a_cue():
    text = srt("<i>We leave.</i><b></b>", "<i></i><b>Now.</b>")
    file = parse(text)
    assert [unit.text for unit in file.units] == ["We leave.", "Now."]
    assert cues(translate(file, ["Odjíždíme.", "Teď."]))[0] == ["<i>Odjíždíme.</i><b></b>"]
    assert texts(srt("<i> </i> - No.")) == ["No."]


def test_pairs_are_closed_before_a_border():
    file = parse(srt("I read the book", "<i>The Old Man</i> here."))
    codes = tuple(
        code
        if code.id.startswith("cue")
        else type(code)(2 if code.kind == "open" else 15, code.kind, code.id, code.content)
        for code in file.units[0].codes
    )
    codes = tuple(sorted(codes, key=lambda code: code.offset))
    new = file.write([Unit("a bbbbb ccccc dd eeee", codes)]).decode()
    assert new.count("<i>") == new.count("</i>") == 2
    for lines in cues(new):
        assert lines[0].count("<i>") == lines[0].count("</i>") == 1


def test_webvtt_parts_stay():
    text = (
        "\ufeffWEBVTT - title\nKind: captions\nLanguage: en\n\nSTYLE\n::cue(b) { color: red }\n\nREGION\nid:x\n\n"
        "NOTE a comment\nof two lines\n\nintro-1\n00:01.000 --> 00:04.000 align:start\n"
        "<c.loud>Never</c> drink <00:02.000>it &amp; <ruby>漢<rt>kan</rt></ruby>&nbsp;&lt;b> now.\nAnd that\n\n"
        "1:00:05.000 --> 1:00:06.000\n1984\n"
    )
    file = parse(text, "x.vtt")
    (unit,) = file.units
    assert (unit.text, unit.id) == ("Never drink it & 漢\u00a0<b> now. And that", "intro-1")
    assert file.write(file.units).decode() == text
    assert [code.can_copy for code in unit.codes if code.kind == "open"] == [True, False]
    assert [(each.reason, each.text) for each in file.skipped] == [("notes", "a comment\nof two lines")]
    new = file.write([Unit("[Ťéxt] <&\u00a0>")], "cs").decode()
    assert "\n[Ťéxt]\n&lt;&amp;&nbsp;&gt;\n\n1:00" in new
    assert "Language: cs\n" in new and "::cue(b)" in new
    assert file.write(file.units, "cs").decode() == text.replace("Language: en", "Language: cs")


def test_a_language_that_is_not_named_is_not_added():
    text = vtt("Language: one.")
    assert parse(text).write(parse(text).units, "cs").decode() == text


def test_line_breaks_marks_and_encodings_are_kept():
    text = srt("One\ntwo", "three.").replace("\n", "\r\n")
    for data in (text.encode(), text.encode("utf-8-sig"), text.encode("utf-16")):
        file = read(data, "x.srt", ReadConfig())
        assert file.write(file.units) == data
        new = file.write([Unit("Jedna dvě tři a čtyři")])
        assert new[:2] == data[:2] or new[:1] == b"1"
        assert b"\n" not in new.replace("\r\n".encode("utf-16-le"), b"").replace(b"\r\n", b"")


def test_windows_1252_is_said():
    data = srt("Ça va.").encode("cp1252")
    file = read(data, "x.srt", ReadConfig())
    assert file.units[0].text == "Ça va." and file.write(file.units) == data
    assert "Windows-1252" in file.skipped[0].text
    assert "Ťéxt" in file.write([Unit("Ťéxt")]).decode("utf-8-sig")


def test_empty_lines_in_cues_and_empty_cues():
    text = "1\n0:0:1,0 --> 0:0:2,0\nOne.\n\nTwo.\n2\n0:0:3,0 --> 0:0:4,0\n\n\n3\n0:0:5,0 --> 0:0:6,0\n2001\n"
    assert texts(text) == ["One.", "Two."]
    assert translate(parse(text), ["1", "2"]) == text.replace("One.", "1").replace("Two.", "2")


def test_line_breaks_of_a_translation_do_not_end_the_cue():
    file = parse(srt("One.", "Two."))
    assert cues(file.write([Unit("a\n\nb"), Unit("c")]).decode()) == [["a b"], ["c"]]


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        (b"", "x.srt", "no cue"),
        (b"hello", "x.srt", "no cue"),
        (b"1\n00:00:01,000 --> 00:00:02,000\nhello", "x.vtt", "begins with WEBVTT"),
        (b"\xef\xbb\xbf\xff", "x.srt", "UTF-8"),
        (b"\xff\xfe\x00", "x.srt", "UTF-16"),
        (b"1\x00", "x.srt", "null bytes"),
        (b"\x81\x8d", "x.srt", "UTF-8"),
    ],
)
def test_broken_input(data, name, message):
    with pytest.raises(DocmtError, match=message):
        read(data, name, ReadConfig())


def test_broken_times_are_reported():
    file = parse("WEBVTT\n\n00:xx --> 00:02.000\nOne.\n\n00:01.000 --> 00:02.000\nTwo.\n")
    assert [unit.text for unit in file.units] == ["Two."]
    assert file.skipped[0].reason == "broken cues"


def test_files_without_punctuation_have_a_unit_for_each_cue():
    assert len(texts(srt(*["word after word"] * 30))) == 30


@pytest.mark.full
def test_ten_thousand_cues_take_linear_time():
    text = srt(*["some words of a\nsentence <i>here</i>", "and the rest."] * 5000)
    start = time.perf_counter()
    file = parse(text)
    new = file.write([Unit(unit.text.upper(), unit.codes) for unit in file.units])
    assert time.perf_counter() - start < 10
    assert len(file.units) == 5000 and new.count(b"-->") == 10000


WORDS = st.sampled_from(
    [
        "word",
        "two",
        "<i>it</i>",
        "<b>bold text</b>",
        "end.",
        "a,",
        "\n",
        "- dash",
        "♪",
        "é",
        "<i>",
        "</i>",
        r"{\an8}",
        "日本語",
        "[x]",
    ]
)


@check_files(st.lists(st.lists(WORDS, max_size=8).map(" ".join), min_size=1, max_size=6), st.sampled_from([srt, vtt]))
def test_generated_files(parts, write):
    text, name = write(*parts), f"x.{write.__name__}"
    file = parse(text, name)
    assert file.write(file.units).decode() == text
    upper = [Unit(unit.text.replace("o", "ö").replace("e", "éé"), unit.codes[:0]) for unit in file.units]
    again = parse(file.write(upper).decode(), name)
    # A border within a word of a script without spaces is a space.
    assert words(again.units) == words(upper)


def words(units):
    """Return all characters but white space, dashes and music: one within a tag is in the unit, others are not."""
    return re.sub(r"[\s♪-]", "", "".join(unit.text for unit in units))


@NEEDS_FILES
@pytest.mark.parametrize("path", find_files("srt", "vtt"), ids=lambda path: path.name)
def test_real_files(path):
    data = path.read_bytes()
    file = read(data, str(path), ReadConfig())
    assert file.write(file.units) == data
    translations = [unit.text.translate(VOWELS) for unit in file.units]
    new = translate(file, translations)
    assert new.count("-->") == file.text.count("-->")
    again = read(new.encode(), str(path), ReadConfig())
    # A border may move to the end of a sentence, so that units are cut elsewhere.
    assert " ".join(unit.text for unit in again.units).split() == " ".join(translations).split()


@pytest.mark.full
def test_mutants():
    seeds = [
        vtt("<v Bob>I <c.x>think</c>", "- we &amp; <00:00:01.000>leave.\n- No.").encode(),
        srt(r"{\an8}<i>I think", "we\nleave.</i>").encode(),
    ]
    for file in read_mutants(lambda data: read(data, "x.srt", ReadConfig()), *seeds):
        file.write([Unit("Ťéxt <&>", unit.codes[:0]) for unit in file.units])


@pytest.mark.parametrize(
    "text", ['It is {{ "a" | upper }}.', "Dear *|FNAME|*, it is here.", "See |NAME| here.", "In *|NAME|* it is."]
)
def test_a_bar_within_a_placeholder_breaks_no_line(text):
    (unit,) = read(f"1\n00:00:00,000 --> 00:00:01,000\n{text}\n".encode(), "a.srt", ReadConfig()).units
    assert unit.text == text


@pytest.mark.parametrize("head", ["", "WEBVTT\n\n"])
@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("<John> It is good.", ["It is good."]),
        ("<MARY> It is old.\n<Mrs Smith> No.", ["It is old.", "No."]),
        ("MAN 2: It is good.", ["It is good."]),
        ("GUARD #1: Stop.\nGUARD #2: Why?", ["Stop.", "Why?"]),
        ("- JOHN (V.O.): We go.", ["We go."]),
        ("DR. SMITH & MARY: We go.", ["We go."]),
        ("The end: it is good.", ["The end: it is good."]),
        ("THE END: PART TWO", ["THE END: PART TWO"]),
        ("MARY: Where is it? JOHN: It is here.", ["Where is it?", "It is here."]),
        ("- Where is it? - It is here.", ["Where is it?", "It is here."]),
        ("<i>- What is it?</i> <i>–Nothing.</i> ANNA: Let us go.", ["What is it?", "Nothing.", "Let us go."]),
        ("In 1998. - 12 years ago, or 5 - 3.", ["In 1998. - 12 years ago, or 5 - 3."]),
        ("It is known - and old. It is - perhaps - red.", ["It is known - and old. It is - perhaps - red."]),
        ("It is <i>good</i> {note for us} here.", ["It is good here."]),
        ("{Comment}{\\an8}It is good.", ["It is good."]),
        ("Dear {name}, it is {{ x | y }}.", ["Dear {name}, it is {{ x | y }}."]),
    ],
)
def test_speakers_and_comments_stay(head, text, units):
    data = f"{head}1\n00:00:00.000 --> 00:00:01.000\n{text}\n".encode()
    file = read(data, "a.vtt" if head else "a.srt", ReadConfig())
    assert [unit.text for unit in file.units] == units
    assert file.write(file.units) == data


def test_times_of_words_are_no_times_of_a_cue():
    cue = "<00:00:02.200><c> It</c><00:00:02.500><c> is</c> good.\n- Yes."
    found = texts(f"WEBVTT\n\n00:00:02.000 --> 00:00:03.000\n{cue}\n")
    assert [each.strip() for each in found] == ["It is good.", "Yes."]
