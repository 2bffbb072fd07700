"""docmt translate, bulk and serve with memories, and with earlier versions of a file."""

import json

import docx
import pytest
from commands import assert_one_sentence, call, interrupting

from docmt.terms import Memory

MODEL = ("en-fr-sentence", "--beam=1")
SENTENCES = [
    "Report on trade",
    "The committee is new.",
    "It adopted 3 measures.",
    "We thank the citizens.",
    "It ends here.",
]
TRANSLATED = [
    "Du commerce",
    "Le comité est neuf.",
    "Trois mesures sont prises (3).",
    "Merci aux citoyens.",
    "Fin, donc.",
]
CHANGED = [*SENTENCES[:3], "We thank the members.", SENTENCES[4]]
TMX = (
    '<tmx version="1.4"><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>We thank the citizens.</seg></tuv><tuv'
    ' xml:lang="fr"><seg>Merci !</seg></tuv></tu></body></tmx>'
)


def write_docx(path, texts):
    file = docx.Document()
    file.add_heading(texts[0], 1)
    first = file.add_paragraph()
    words = texts[1].split(" ")
    first.add_run(f"{words[0]} ")
    first.add_run(words[1]).bold = True
    first.add_run(f" {' '.join(words[2:])} {texts[2]}")
    table = file.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = texts[3:]
    file.save(path)


def write_po(path, texts):
    head = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    pairs = zip(CHANGED if texts == CHANGED else SENTENCES, texts, strict=True)
    rows = [f'msgid "{one}"\nmsgstr "{"" if one == other else other}"\n' for one, other in pairs]
    path.write_text("\n".join([head, *rows]))


WRITERS = {
    "txt": lambda path, texts: path.write_text(f"{texts[0]}\n\n{texts[1]} {texts[2]}\n{texts[3]}\n{texts[4]}\n"),
    "md": lambda path, texts: path.write_text(
        f"# {texts[0]}\n\n{texts[1]} {texts[2]}\n\n- *{texts[3]}*\n- {texts[4]}\n"
    ),
    "html": lambda path, texts: path.write_text(
        f"<h1>{texts[0]}</h1><p>{texts[1]} <b>{texts[2]}</b></p><ul><li>{texts[3]}<li>{texts[4]}</ul>"
    ),
    "docx": write_docx,
    "po": write_po,
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.tmx").write_text(TMX)
    (tmp_path / "in.txt").write_text("\n".join(SENTENCES) + "\n")
    return tmp_path


def read(path):
    if path.suffix != ".docx":
        return path.read_text()
    file = docx.Document(path)
    cells = [cell.text for row in file.tables[0].rows for cell in row.cells]
    runs = [("*" * bool(run.bold) + run.text.strip() + "*" * bool(run.bold)) for run in file.paragraphs[1].runs]
    return "\n".join([file.paragraphs[0].text, " ".join(runs), *cells])


@pytest.mark.parametrize("kind", WRITERS)
def test_only_what_changed_is_translated(kind, here):
    for name, texts in (("old", SENTENCES), ("old.fr", TRANSLATED), ("new", CHANGED)):
        WRITERS[kind](here / f"{name}.{kind}", texts)
    reuse = ["--reuse", f"old.{kind}", f"old.fr.{kind}"]
    outcome = call("translate", *MODEL, f"new.{kind}", "-o", f"out.{kind}", *reuse)
    assert outcome.status == 0, outcome.err
    told = "docmt: memory: 5 sentences, 4 reused (3 with the sentence before)"
    assert outcome.err.splitlines()[-1] == told
    text = read(here / f"out.{kind}").replace("*comité*", "comité")
    assert all(each in text for n, each in enumerate(TRANSLATED) if n != 3)
    assert "membres" in text and "citoyens" not in text
    if kind == "docx":
        assert "*comité*" in read(here / "out.docx")


def test_a_sentence_may_have_a_translation_of_several(here, caplog):
    (here / "old.txt").write_text("It is good. It is new.\n\nWe thank the citizens.\n")
    (here / "old.fr.txt").write_text("C'est bon et neuf.\n\nMerci ! À vous tous.\n")
    outcome = call("translate", *MODEL, "old.txt", "-o", "out.txt", "--reuse", "old.txt", "old.fr.txt")
    assert "old.fr.txt: 1 of 2 paragraphs have no certain translation, and are not used" in caplog.messages
    assert outcome.err.splitlines()[-1] == "docmt: memory: 3 sentences, 1 reused (1 with the sentence before)"
    assert (here / "out.txt").read_text().endswith("\n\nMerci ! À vous tous.\n")


MISFITS = {
    "cut and joined": [
        "Nous avons rencontré les habitants.",
        "C'était mercredi.",
        "Il faisait froid sur la route fermée.",
    ],
    "swapped": [
        "La route est fermée depuis le mois de mai.",
        "Il faisait froid.",
        "Nous avons rencontré les gens mercredi.",
    ],
    "replaced": ["Nous avons rencontré les gens mercredi.", "Il faisait froid.", "Le comité aime les petits chats."],
}


@pytest.mark.parametrize("change", MISFITS)
def test_what_a_translator_changed_is_translated_anew(change, here):
    texts = ["We met the people on Wednesday.", "It was cold.", "The road was closed since May."]
    for name, row, others in (("old.txt", texts, SENTENCES), ("old.fr.txt", MISFITS[change], TRANSLATED)):
        (here / name).write_text("\n".join([*others[1:], " ".join(row)]))
    (here / "in.txt").write_text("\n".join([*texts[2:], *SENTENCES[1:]]))
    outcome = call("translate", *MODEL, "in.txt", "-o", "out.txt", "--reuse", "old.txt", "old.fr.txt")
    lines = (here / "out.txt").read_text().splitlines()
    assert lines[0] not in MISFITS[change] and lines[1:4] == TRANSLATED[1:4]
    assert "old.fr.txt: sentences that may have the translation of another, and are not used: " in outcome.err


def test_sentences_over_lines_of_subtitles_are_reused(here):
    cue = "1\n00:00:01,000 --> 00:00:02,000\n{}\n"
    (here / "old.srt").write_text(cue.format("We thank the citizens\nof the Union."))
    (here / "old.fr.srt").write_text(cue.format("Merci aux citoyens\nde l'Union !"))
    outcome = call("translate", *MODEL, "old.srt", "-o", "out.srt", "--reuse", "old.srt", "old.fr.srt")
    assert outcome.err.splitlines()[-1] == "docmt: memory: 1 sentence, 1 reused (1 with the sentence before)"
    assert (here / "out.srt").read_text() == (here / "old.fr.srt").read_text()


def test_versions_in_the_wrong_order_are_told(here, caplog):
    (here / "old.txt").write_text("\n".join([*SENTENCES, "The house is in the town."]))
    longer = "La maison est dans la ville, et nous sommes à côté de la place et de la gare."
    (here / "old.fr.txt").write_text("\n".join([*TRANSLATED, longer]))
    call("translate", *MODEL, "in.txt", "-o", "out.txt", "--reuse", "old.txt", "old.fr.txt")
    assert caplog.messages == ["memory: 5 sentences, 5 reused (5 with the sentence before)"]
    call("translate", *MODEL, "in.txt", "-o", "out.txt", "--reuse", "old.fr.txt", "old.txt")
    told = "old.fr.txt seems to be in fr: name the earlier version first, then its translation"
    assert caplog.messages[1] == told
    assert caplog.messages[-1] == "memory: 5 sentences, 0 reused (0 with the sentence before)"


def test_the_last_line_counts_what_has_several_translations(here):
    (here / "other.tmx").write_text(TMX.replace("Merci !", "Merci à vous !"))
    (here / "in.txt").write_text(SENTENCES[3])
    outcome = call("translate", *MODEL, "in.txt", "-o", "out.txt", "--memory", "m.tmx", "other.tmx")
    more = "1 translated anew, because the memory has several translations"
    assert outcome.err.splitlines()[-1] == f"docmt: memory: 1 sentence, 0 reused (0 with the sentence before); {more}"


def test_lines_are_the_sentences_of_both_versions_where_they_are_those_of_the_file(here):
    (here / "old.txt").write_text("It is good. It is new.\nWe thank the citizens.\n")
    (here / "old.fr.txt").write_text("C'est bien. Et c'est neuf. Oui.\nMerci aux citoyens !\n")
    call("translate", *MODEL, "old.txt", "-o", "out.txt", "--layout", "lines", "--reuse", "old.txt", "old.fr.txt")
    assert (here / "out.txt").read_text() == (here / "old.fr.txt").read_text()


def test_each_format_has_its_way_to_say_what_was_reused(here):
    outcome = call("translate", *MODEL, "in.txt", "-o", "out.jsonl", "--memory", "m.tmx")
    assert outcome.err.splitlines()[-1] == "docmt: memory: 5 sentences, 1 reused (0 with the sentence before)"
    records = [json.loads(line) for line in (here / "out.jsonl").read_text().splitlines()]
    assert [(each.get("origin"), each.get("match")) for each in records][2:4] == [(None, None), ("memory", 100)]
    WRITERS["html"](here / "in.html", SENTENCES)
    for kind, words in {
        "xlf": ['origin="memory" matchQuality="100"', '<mda:meta type="origin">memory</mda:meta>'],
        "tmx": ['<prop type="x-origin">memory</prop><prop type="x-match">100</prop>'],
    }.items():
        call("translate", *MODEL, "in.html", "-o", "out.html", "--memory", "m.tmx", "--bilingual", f"out.{kind}")
        text = (here / f"out.{kind}").read_text()
        assert all(text.count(each) == 1 for each in words), text
    memory = Memory.read("out.tmx", "out.xlf", languages=("en", "fr"))  # which are memories themselves
    assert len(memory) == 5 and memory.entries["We thank the citizens."][0].target == "Merci !"


REFUSED = {
    "other languages": (["--memory", "de.tmx"], r"de\.tmx has nothing to reuse from en to fr: .* are in de, en"),
    "one file": (["--reuse", "in.txt"], "--reuse needs two files, an earlier version and its translation, not 1"),
    "another file": (["--reuse", "in.txt", "short.txt"], r"short\.txt do not pair: 5 of 5 paragraphs have no certain"),
    "the same file": (["--reuse", "in.txt", "in.txt"], "do not pair: they are equal"),
    "other sentences": (["--reuse", "two.txt", "more.txt"], "do not pair: 5 of 5 paragraphs have no certain"),
    "unfinished": (["--reuse", "a.po", "a.po"], r"a\.po do not pair: there is no finished translation"),
    "JSONL": (["--reuse", "a.jsonl", "a.jsonl"], r"a\.jsonl is JSONL"),
    "sampling": (["--memory", "m.tmx", "--sampling"], "memories need the beam search of docmt"),
    "no file": (["--memory", "none.tmx"], r"none\.tmx"),
    "its own file": (["--memory", "m.tmx", "-o", "m.tmx"], r"m\.tmx"),
}  # fmt: skip


def test_a_text_in_the_language_of_the_translation_is_told(here, caplog):
    for name, rows in (("old.txt", SENTENCES), ("done.txt", TRANSLATED)):
        (here / name).write_text("\n".join(rows * 4))
        call("translate", *MODEL, name, "-o", "out.txt")
    assert caplog.messages == ["done.txt seems to be in fr already: give the text in en, or another model"]


def test_fuzzy_messages_of_an_earlier_version_are_counted(here, caplog):
    write_po(here / "old.po", TRANSLATED)
    (here / "old.po").write_text((here / "old.po").read_text().replace("\nmsgid", "\n#, fuzzy\nmsgid", 2))
    call("translate", *MODEL, "in.txt", "-o", "out.txt", "--reuse", "old.po", "old.po")
    assert caplog.messages[0] == "old.po: texts that are empty, fuzzy or unfinished, and are not used: 2"


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name, here):
    (here / "de.tmx").write_text(TMX.replace('"fr"', '"de"'))
    (here / "short.txt").write_text("Un texte.\n")
    (here / "two.txt").write_text("It is. It was.\n" * 5)
    (here / "more.txt").write_text("Un. Deux. Trois.\n" * 5)
    write_po(here / "a.po", SENTENCES)
    (here / "a.jsonl").write_text('{"source": "a"}\n')
    arguments, message = REFUSED[name]
    output = [] if "-o" in arguments else ["-o", "out.txt"]
    outcome = call("translate", *MODEL, "in.txt", *output, *arguments)
    assert outcome.status == 2
    assert_one_sentence(outcome.err, message)


@pytest.mark.full
def test_an_interrupted_translation_goes_on_with_the_same_memory_only(here, monkeypatch):
    (here / "in.txt").write_text("\n".join(SENTENCES * 20) + "\n")
    (here / "other.tmx").write_text(TMX.replace("Merci !", "Merci à vous !"))
    arguments = ["translate", *MODEL, "--batch-tokens=64", "in.txt", "--memory"]
    call(*arguments, "m.tmx", "-o", "whole.txt")
    with interrupting(monkeypatch, 2):
        assert call(*arguments, "m.tmx", "-o", "out.txt").status == 130
    outcome = call(*arguments, "other.tmx", "-o", "out.txt", "--resume")
    assert outcome.status == 2 and "--memory" in outcome.err
    outcome = call(*arguments, "m.tmx", "-o", "out.txt", "--resume")
    assert outcome.status == 0, outcome.err
    assert "memory: 100 sentences, 20 reused" in outcome.err
    assert (here / "out.txt").read_text() == (here / "whole.txt").read_text()


def test_a_bulk_job_is_done_with_one_memory(here):
    rows = [{"id": str(n), "text": " ".join(SENTENCES[1:])} for n in range(3)]
    (here / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ["bulk", *MODEL, "in.jsonl", "-o", "job", "--memory"]
    outcome = call(*arguments, "m.tmx")
    assert outcome.err.splitlines()[-1].endswith("; memory: 3 sentences reused")
    assert outcome.status == 0, outcome.err
    (part,) = (here / "job" / "output").iterdir()
    records = [json.loads(line) for line in part.read_text().splitlines()]
    assert [record["target"][2] for record in records] == ["Merci !"] * 3
    assert [record["match"] for record in records] == [[0, 0, 100, 0]] * 3
    (here / "other.tmx").write_text(TMX.replace("Merci !", "Merci"))
    outcome = call(*arguments, "other.tmx")
    assert outcome.status == 2 and "--memory" in outcome.err
