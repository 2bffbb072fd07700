"""Findings in translations without a reference, and what is no finding."""

import json
import random
from html.parser import HTMLParser

import pytest

from docmt.checking import KINDS, CheckConfig, check_documents, check_files, render_html, renderings
from docmt.core.errors import DocmtError
from docmt.core.plain_text import write_text
from docmt.documents import ParallelDocument


def document(*pairs, id="1"):
    sources, targets = zip(*pairs, strict=True)
    return ParallelDocument(id, sources, targets)


def check(*pairs, languages=("en", "de"), **settings):
    config = CheckConfig(*languages, **{"certainty": "possible", **settings})
    return check_documents([document(*pairs)], config)


def messages(report, *kinds):
    """Return the messages of these kinds, or of all."""
    return [finding.message for finding in report.findings if not kinds or finding.kind in kinds]


ALONE = [
    # Numbers and the ways of languages to write them.
    ("number", "It costs 1,234.5 euros.", "Es kostet 1.234,5 Euro.", None),
    ("number", "It costs 1,234.5 euros.", "Es kostet 1 234,5 Euro.", None),
    ("number", "They spent £1, 700.", "Sie gaben 1700 Pfund aus.", None),
    ("number", "The 1930s were hard.", "Die 30er waren hart.", None),
    ("number", "Open until 7.00 p.m.", "Geöffnet bis 19 Uhr.", None),
    ("number", "At 8.40pm it landed.", "Um 20.40 Uhr landete es.", None),
    ("number", "From 5 until 6:30 PM.", "Von 17 bis 18.30 Uhr.", None),
    ("number", "At 18:00 on Monday.", "Um 18 Uhr am Montag.", None),
    ("number", "Nos 2 to 7.", "Nummern 2 bis 8.", "“7” not in the translation; “8” not in the source"),
    ("number", "Since 9/11/2001 we wait.", "Seit dem 9. November 2001 warten wir.", None),
    ("number", "See page 12 and 12.", "Siehe Seite 12.", None),
    ("number", "In March 2012 she came.", "Im März 2013 kam sie.", "“2012” not in the translation; “2013” not in the"),
    ("number", "It has 300 votes.", "Es hat 30 Stimmen.", "“300” not in the translation; “30” not in the source"),
    ("number", "It grew by 12.5 % in 15 years.", "Es wuchs um 1,5 % in 15 Jahren.", "“12.5” not in the translation"),
    ("number", "It rose 1.5 per cent.", "Es stieg um 15 Prozent.", "“1.5” not in the translation; “15” not in the"),
    ("number", "It rose by 12.50 to 3.0.", "Es stieg um 12,5 auf 3.", None),
    ("number", "It fell to 0.500 of it.", "Es fiel auf 0,5 davon.", None),
    ("number", "It closed at 1.30 p.m.", "Es schloss um 13 Uhr 30.", None),
    ("number", "On 12 May it closed.", "Am 12.5. schloss es.", None),
    ("number", "We need 45 of them.", "Wir brauchen sie.", "“45” not in the translation"),
    ("number", "We need them.", "Wir brauchen 45 davon.", "“45” not in the source"),
    # Addresses and placeholders.
    ("url", "See https://example.org/a.", "Siehe https://example.org/a.", None),
    ("url", "See https://example.org/a.", "Siehe dort.", "“https://example.org/a” not in the translation"),
    ("url", "See https://en.example.org/a", "Siehe https://de.example.org/b", "“https://en.example.org/a” not in the"),
    ("url", "Write to me@example.org!", "Schreib an mich@example.org!", "“me@example.org” not in the translation"),
    ("number", "See https://example.org/12.", "Siehe dort.", None),
    ("placeholder", "Hello {name}, %d new of ${x}.", "Hallo {name}, %d neue von ${x}.", None),
    ("placeholder", "Hello {name}, %1$s new.", "Hallo {Name}, %1$s neue.", "“{name}” not in the translation; “{Name}”"),
    ("placeholder", "A <b>bold</b> word, 5 < 6.", "Ein <b>fettes Wort, 5 < 6.", "“</b>” not in the translation"),
    ("placeholder", "50 % of it and 100% sure", "50 % davon und 100% sicher", None),
    # Brackets.
    ("bracket", "The rest (of it) is gone.", "Der Rest (davon ist weg.", "“(” is not closed in the translation"),
    ("bracket", "The rest is gone.", "Der Rest ist weg). ", "“)” is closed, but not opened in the translation"),
    ("bracket", "The rest is (CGI only).", "a) Der Rest ist weg (nur CGI) :-)", None),
    # Sentences.
    ("empty", "A sentence.", "", "no translation"),
    ("empty", "A sentence.", "...", "no translation"),
    ("empty", "...", "", None),
    ("empty", "", "Ein Satz.", "translation of an empty source"),
    ("untranslated", "This is the end of it.", "This is the end of it.", "same as the source"),
    ("untranslated", "This is the end of it.", "This is the end of him.", "nearly the same as the source"),
    ("untranslated", "All that I saw.", "It was the best that they had for us.", "in the source language"),
    ("untranslated", "The Times, London", "The Times, London", None),
    ("untranslated", "printf(x) && free(x)", "printf(x) && free(x)", None),
    ("untranslated", "SQL parser", "SQL Parser", None),
    ("loop", "He said no.", "Er sagte nein nein nein.", "“nein” 3 times in a row"),
    ("loop", "He said no.", "Er sagte es, und wir und wir gingen.", None),
    ("loop", "It was days ago.", "Es ist einige Tage her, einige Tage her.", "“einige Tage her” 2 times in a row"),
    ("loop", "No, no, no!", "Nein, nein, nein!", None),
]


@pytest.mark.parametrize(("kind", "source", "target", "message"), ALONE)
def test_single_sentences(kind, source, target, message):
    result = messages(check((source, target)), kind)
    assert len(result) == (message is not None), result
    assert message is None or result[0].startswith(message)


@pytest.mark.parametrize("language", ["", "de", "fi"])
def test_numbers_up_to_twelve_may_be_spelled_out(language):
    report = check(("It has 7 rooms.", "Ok."), ("It has 77 rooms.", "Ok."), languages=("en", language))
    assert [(f.message, f.certainty) for f in report.select("number")] == [
        ("“7” not in the translation", "possible"),
        ("“77” not in the translation", "likely"),
    ]
    assert check(("It has 77 rooms.", "Ok."), number_words=80, certainty="likely").hidden == {"number": 1}


def test_numbers_of_other_units_are_less_certain():
    report = check(("It is 150ft long.", "Es ist 45 Meter lang."), ("It is 150 m long.", "Es ist 45 Meter lang."))
    assert [finding.certainty for finding in report.findings] == ["possible", "sure"]


def test_marks_are_the_differences():
    (finding,) = check(("Give 45 of 12 to {x}.", "Gib 54 von 12 an {x}.")).findings
    (sentence,) = finding.sentences
    assert [sentence.source[slice(*mark)] for mark in sentence.source_marks] == ["45"]
    assert [sentence.target[slice(*mark)] for mark in sentence.target_marks] == ["54"]
    assert (finding.kind, finding.certainty, sentence.document, sentence.sentence) == ("number", "sure", "1", 1)


def test_the_same_translation_of_different_sentences():
    target = "Das ist der ganze lange Satz von gestern."
    pairs = [("We left the town at once.", target), ("I thank you all for your patience.", target)]
    assert messages(check(*pairs), "duplicate") == ["2 different sentences with the same translation"]
    same = [("That is the long sentence.", target), ("That is the long, long sentence.", target)]
    assert messages(check(*same), "duplicate") == []
    assert messages(check(*pairs, duplicate_words=9), "duplicate") == []


def test_the_same_sentence_with_different_translations():
    source = "He did not see the dog."
    pairs = [
        (source, "Er sah den Hund nicht."),
        ("Yes.", "Ja."),
        ("Yes.", "Doch."),
        (source, "Er hat ihn nicht gesehen."),
    ]
    report = check(*pairs)
    assert messages(report) == ["source sentence occurs 2 times with 2 translations"]
    assert [sentence.sentence for sentence in report.findings[0].sentences] == [1, 4]
    assert messages(check((source, "Er sah den Hund nicht."), (source, "er sah den Hund nicht"))) == []


def test_lengths_are_compared_with_those_of_the_file():
    chance = random.Random(1)
    sizes = [chance.randint(20, 100) for _ in range(60)]
    pairs = [("x" * size, "y" * round(1.3 * size + chance.gauss(0, 3))) for size in sizes]
    assert messages(check(*pairs), "length") == []
    report = check(*pairs, ("x" * 80, "y" * 20), ("x" * 40, "y" * 200), ("No", "Aber nein!"))
    assert [
        (f.sentences[0].sentence, f.message.split(" of ")[0].split(" as ")[0]) for f in report.select("length")
    ] == [(61, "19 %"), (62, "3.9 times")]
    assert messages(check(*pairs, ("x" * 80, "y" * 20), length_factor=6), "length") == []
    assert messages(check(*pairs[:10], ("x" * 80, "y" * 20)), "length") == []  # too few to know


def test_unknown_languages_are_noted():
    (note,) = check(("A.", "B."), languages=("", "")).notes
    assert note.startswith("untranslated sentences were found by comparison only: --source-language or --target")
    assert check(("A.", "B."), languages=("en", "fi")).notes == [note]
    text = [
        (f"The end of that was not for us {n}.", f"Das ist nicht der Anfang von dem, was wir sind {n}.")
        for n in range(9)
    ]
    detected = check(*text, languages=("", ""))
    assert (detected.source_language, detected.target_language, detected.notes) == ("en", "de", [])


THINGS = {"dog": "Hund", "house": "Haus", "lamp": "Lampe", "river": "Fluss", "garden": "Garten", "street": "Gasse"}
VERBS = {"sees": "erblickt", "paints": "malt", "finds": "entdeckt", "leaves": "verlässt", "wants": "begehrt"}


def corpus(documents=12, sentences=10, seed=1, odd=0.0):
    """Documents about things, of which each has its own word but, in a share of the sentences, the river."""
    chance = random.Random(seed)
    corpus_documents = []
    for number in range(documents):
        pairs = []
        for _ in range(sentences):
            things, verb = chance.sample(sorted(THINGS), 2), chance.choice(sorted(VERBS))
            words = ["Strom" if thing == "river" and chance.random() < odd else THINGS[thing] for thing in things]
            pairs.append((f"The {things[0]} {verb} the {things[1]}.", f"Die {words[0]} {VERBS[verb]} die {words[1]}."))
        corpus_documents.append(document(*pairs, id=str(number)))
    return corpus_documents


def test_terms():
    config = CheckConfig("en", "de", term_documents=1)
    assert check_documents(corpus(), config).select("term") == []
    findings = check_documents(corpus(odd=0.3), config).select("term")
    assert len(findings) >= 6
    for finding in findings:
        assert finding.message.startswith("“river” translated as “") and "“Strom” in" in finding.message
        first, second = finding.sentences[:2]  # one of each
        marked = {sentence.target[slice(*sentence.target_marks[0])] for sentence in (first, second)}
        assert marked == {"Fluss", "Strom"}
        assert all(sentence.source[slice(*sentence.source_marks[0])] == "river" for sentence in finding.sentences)
    # What every document is about is no term, nor what has no usual translation.
    for settings in ({"term_documents": 0.2}, {"term_share": 0.95}, {"term_occurrences": 100}, {"term_evidence": 1000}):
        changed = CheckConfig("en", "de", **{"term_documents": 1, **settings})
        assert check_documents(corpus(odd=0.3), changed).select("term") == []


def many_terms(count):
    """Words in three sentences each, of which one has another translation."""
    return [
        (f"The {at}thing.", f"Die {at}{other}.")
        for at in range(100, 100 + count)
        for other in ("sache", "sache", "ding")
    ]


def test_a_long_text_takes_no_more_time_for_each_word(monkeypatch):
    """By calls of what is called most, as times differ. (With each word beside every other one: 50 and more.)"""
    calls = [0]

    def counting(original):
        def counted(*arguments):
            calls[0] += 1
            return original(*arguments)

        return counted

    for name in ("tokenize", "stem", "are_related"):
        monkeypatch.setattr(renderings, name, counting(getattr(renderings, name)))
    text = many_terms(400)
    assert len(messages(check(*text, term_documents=1, term_evidence=1), "term")) > 100
    words = sum(len(sentence.split()) for pair in text for sentence in pair)
    assert 0 < calls[0] < 10 * words, calls[0] / words


def test_portions_change_word_statistics_only():
    documents = corpus(odd=0.3)
    whole, parts = (
        check_documents(documents, CheckConfig("en", "de", term_documents=1, batch_sentences=portion))
        for portion in (1000, 100)
    )
    assert parts.sentences == whole.sentences == 120
    assert parts.select("repetition") == whole.select("repetition")


def test_scripts_without_spaces_have_no_terms():
    report = check_documents([document(("The river is long.", "河很长。"), ("A river.", "一条河。"))])
    assert "terms were not checked: one side is in a script without spaces between words" in report.notes


def test_less_certain_findings_are_counted():
    pair = "See https://en.example.org/a", "Siehe https://de.example.org/b"
    report = check(pair, certainty="likely")
    assert report.findings == [] and report.hidden == {"url": 1}
    assert check(pair).hidden == {}


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_lines_with_an_empty_translation(tmp_path):
    source = write(tmp_path / "a.en", "One is here.\nTwo is here.\n\nThree is here.\n")
    report = check_files(source, write(tmp_path / "a.de", "Eins ist hier.\n\n\nDrei ist hier.\n"))
    assert (report.documents, report.sentences) == (2, 3)
    (finding,) = report.findings
    assert (finding.kind, finding.sentences[0].line, finding.sentences[0].sentence) == ("empty", 2, 2)


def test_lines_with_marks_keep_their_numbers(tmp_path):
    source = write(tmp_path / "a.en", "<d>\nOne is here.\n<d>\nThree is here.\n")
    report = check_files(source, write(tmp_path / "a.de", "<d>\nEins ist hier.\n<d>\n...\n"))
    assert [(f.kind, f.sentences[0].line, f.sentences[0].document) for f in report.findings] == [("empty", 4, "2")]


def test_jsonl(tmp_path):
    rows = [
        {"document": "a", "sentence": 1, "source": "We need 45 of them.", "target": "Wir brauchen sie."},
        {"document": "a", "sentence": 2, "source": "It is here.", "error": "out of memory"},
        {"id": "b", "source": ["One.", "Two."], "target": ["Eins."]},
    ]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    report = check_files(path)
    assert [(f.kind, f.sentences[0].document) for f in report.findings] == [
        ("sentence_count", "b"),
        ("empty", "a"),
        ("number", "a"),
    ]
    assert messages(report, "sentence_count")[0].startswith("2 source sentences but 1 target sentences")
    assert (report.documents, report.sentences) == (2, 2)


def test_running_text(tmp_path):
    source = write(tmp_path / "a.txt", "# A title\n\nWe need 45. It is old.\n\nIt is here. It is new.\n")
    target = write(tmp_path / "b.txt", "# Ein Titel\n\nWir brauchen 54. Es ist alt.\n\nEs ist hier, und es ist neu.\n")
    report = check_files(source, target, layout="text")
    assert report.sentences == 4  # title, two pairs, and a paragraph whose sentences do not fit
    assert [(f.kind, f.sentences[0].sentence) for f in report.findings] == [("number", 2)]
    markdown = [path.rename(path.with_suffix(".md")) for path in (source, target)]
    assert messages(check_files(*markdown)) == messages(report)


def test_markdown_whose_lines_were_joined_is_paired_by_paragraphs(tmp_path):
    for name in ("{}.md", "{}.MD", "{}.md.gz"):
        write_text(tmp_path / name.format("a"), "# A *title*\n\nWe need\n45 of them. It is\nold.\n\n- It is here.\n")
        write_text(tmp_path / name.format("b"), "# Ein *Titel*\n\nWir brauchen sie. Es ist alt.\n\n- Es ist hier.\n")
        report = check_files(tmp_path / name.format("a"), tmp_path / name.format("b"))
        assert report.sentences == 4
        assert [(f.kind, f.sentences[0].source) for f in report.findings] == [("number", "We need 45 of them.")]


def test_web_pages_are_paired_by_paragraphs(tmp_path):
    page = "<html><body><h1>{}</h1><p>{}</p><p>{}</p></body></html>"
    source = write(
        tmp_path / "a.html", page.format("A title", "We need <b>45</b>. It is old.", "It is here. It is new.")
    )
    target = write(tmp_path / "b.html", page.format("Titel", "Wir brauchen <b>54</b>. Es ist alt.", "Hier, und neu."))
    report = check_files(source, target)
    assert report.sentences == 4  # title, two pairs, and a paragraph whose sentences do not fit
    assert [(f.kind, f.sentences[0].source) for f in report.findings] == [("number", "We need 45.")]
    for text, message in (
        ("<p>Eins.</p><p>Zwei.</p>", r"has 3 paragraphs .* but .*c\.html has 2\. Give a translation that keeps them"),
        (page.format("...", "Es ist alt.", "Hier."), r"has 3 paragraphs .* but .*c\.html has 2\."),
    ):
        with pytest.raises(DocmtError, match=message):
            check_files(source, write(tmp_path / "c.html", text))
    with pytest.raises(DocmtError, match=r"a\.html is html but .*d\.md is markdown\. Give both in the same format"):
        check_files(source, write(tmp_path / "d.md", "Es ist hier.\n"))
    with pytest.raises(DocmtError, match=r"c\.html has no sentences to check"):
        check_files(*[write(tmp_path / "c.html", "<p></p>")] * 2)


def test_any_file_is_read_as_plain_text(tmp_path):
    source, target = (
        write(tmp_path / f"{name}.yaml", text) for name, text in (("a", "We need 45.\n"), ("b", "Es geht.\n"))
    )
    assert [f.kind for f in check_files(source, target, layout="text").findings] == ["number"]
    with pytest.raises(DocmtError, match=r"does not read \.yaml files.* --layout text"):
        check_files(source, target)


@pytest.mark.parametrize("third", ["...", "---", ""])
def test_running_text_with_a_line_that_lost_its_words(third, tmp_path):
    source = write(tmp_path / "a.txt", "Hello there.\n---\nBye.\nIt is old.\n")
    target = write(tmp_path / "b.txt", f"Hallo.\n---\n{third}\nEs ist alt.\n")
    report = check_files(source, target, layout="text")
    assert report.sentences == 3
    assert [(f.kind, f.sentences[0].line, f.sentences[0].source) for f in report.findings] == [("empty", 3, "Bye.")]


@pytest.mark.parametrize(
    ("texts", "layout", "message"),
    [
        (("A.\n\nB.\n", "A.\n"), "auto", "has 2 documents but .*b.txt has 1. Give the same documents"),
        (
            ("A.\n\nB.\n", "A.\n"),
            "text",
            "has 2 lines of text but .*b.txt has 1. Give a translation that keeps the lines",
        ),
        (("\n", "\n"), "auto", "has no sentences to check. Name a file"),
        (("...\n", "...\n"), "text", "has no sentences to check. Name a file"),
        (("A.\n", None), "auto", "has only one side. Name the file with its translation too."),
    ],
)
def test_files_that_do_not_fit(texts, layout, message, tmp_path):
    files = [
        write(tmp_path / name, text) if text else None for name, text in zip(("a.txt", "b.txt"), texts, strict=True)
    ]
    with pytest.raises(DocmtError, match=message):
        check_files(*files, layout=layout)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"length_factor": 0.5}, "check.length_factor is 0.5: choose a number from 1 to 1,000"),
        ({"certainty": "maybe"}, "check.certainty is 'maybe': choose one of sure, likely, possible"),
        ({"batch_sentences": 1}, "check.batch_sentences is 1: choose a number from 100"),
        ({"term_share": float("nan")}, "check.term_share is nan"),
    ],
)
def test_limits_of_settings(settings, message):
    with pytest.raises(DocmtError, match=message):
        CheckConfig(**settings)


def test_the_page_is_complete_and_escapes_markup():
    hostile = "We need 45 <script>alert(1)</script> of & \u202e them."
    text = render_html(check((hostile, "Wir brauchen <img src=x onerror=y> sie.")), "a <b>", 1000)
    assert "<script" not in text and "<img" not in text and "\u202e" not in text
    assert "a &lt;b&gt;" in text and "<mark>45</mark>" in text and "\\u202e" in text
    for resource in ("http:", "https:", "src=", "url(", "@import", "<link"):
        assert resource not in text.replace("src=x onerror", "")
    opened = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, _: opened.append(tag) if tag != "meta" else None
    parser.handle_endtag = lambda tag: opened.pop() == tag or pytest.fail(f"</{tag}> closes nothing")
    parser.feed(text)
    assert opened == []
    assert text.count("<table") == text.count("</table>") and text.count("<details") == text.count("</details>") == 2
    assert "No findings." in render_html(check(("A.", "B.")), "t", 10)


def test_the_page_says_how_many_it_leaves_out():
    report = check(*[(f"We need {n} of them.", "Wir brauchen sie.") for n in range(45, 50)])
    assert "3 more are in the JSON" in render_html(report, "t", 2)
    assert render_html(report, "t", 2).count("<h3>") == 2


def test_json_has_everything():
    report = check(("We need 45 of them.", "Wir brauchen sie."))
    content = json.loads(json.dumps(report.to_json()))
    assert list(content["counts"]) == list(KINDS) and content["counts"]["number"] == 1
    assert content["findings"][0]["places"][0]["source_marks"] == [[8, 10]]
    assert (content["documents"], content["sentences"], content["source_language"]) == (1, 1, "en")


def test_missing_text_is_found_by_words_or_by_length():
    nouns, german = ([f"{letter}{end}" for letter in "bcdfghjklmnprstvwz"] for end in ("olan", "emir"))
    chance, pairs = random.Random(1), []
    for _ in range(80):
        chosen = chance.sample(range(len(nouns)), 7)
        sides = (" ".join(names[number] for number in chosen) for names in (nouns, german))
        pairs.append(
            tuple(f"{start} {side}." for start, side in zip(("He saw his", "Er sah sein"), sides, strict=True))
        )
    source, target = pairs[40]
    words = target.split()
    damaged = [*pairs[:40], (source, " ".join([*words[:4], *words[8:]])), *pairs[41:]]
    (finding,) = check(*damaged, certainty="likely").select("missing_text")
    (start, end), (sentence,) = finding.sentences[0].source_marks[0], finding.sentences
    assert sentence.source[start:end].split() == source.split()[4:8] and "seems not to be translated" in finding.message
    assert check(*pairs).select("missing_text") == []
    speech = " ".join(["they said that it was so"] * 4)
    (finding,) = check((speech, "Sie sagten es so.")).select("missing_text")
    assert finding.message == "less than a third of the usual length, so words may be missing"
    assert check((speech, "他们这样说"), ("Yes.", "J."), languages=("en", "zh")).select("missing_text") == []
    assert check((speech, "")).select("missing_text") == [], "another kind"
