"""Translation memories: what files hold, which of several translations is reused, and what is never reused."""

import pytest

from docmt import DocmtError, Document
from docmt.documents.input_formats import FORMATS
from docmt.formats.unit_documents import SentenceTranslation, UnitDocuments
from docmt.formats.units import read_units
from docmt.terms import Memory

OLD, NEW = (f"urn:oasis:names:tc:xliff:document:{version}" for version in ("1.2", "2.0"))
TEXT, TARGET = "The cat sleeps.", "Le chat dort."


def unit(source=TEXT, target=TARGET, variant="", attributes="", props="", languages=("en", "fr"), name="xml:lang"):
    """Return a unit of TMX."""
    sides = zip(languages, (source, target), (variant, variant), strict=True)
    texts = "".join(f'<tuv {name}="{code}" {more}><seg>{text}</seg></tuv>' for code, text, more in sides)
    return f"<tu {attributes}>{props}{texts}</tu>"


def tmx(*units, header='srclang="en"', head='<?xml version="1.0"?>'):
    return f'{head}<tmx version="1.4"><header {header}/><body>{"".join(units)}</body></tmx>'


def segment(state="", source=TEXT, target=TARGET, attributes=""):
    """Return a unit of XLIFF 1.2. state: attributes of its target."""
    return f'<trans-unit id="1" {attributes}><source>{source}</source><target {state}>{target}</target></trans-unit>'


def xliff(*segments, languages='source-language="en" target-language="fr"'):
    head = f'<xliff version="1.2" xmlns="{OLD}"><file original="a" datatype="x" {languages}>'
    return f"{head}<body>{''.join(segments)}</body></file></xliff>"


def xliff2(state):
    return (
        f'<xliff version="2.0" xmlns="{NEW}" srcLang="en-GB" trgLang="fr-FR"><file id="f"><unit id="u"><segment '
        f"{state}><source>{TEXT}</source><target>{TARGET}</target></segment></unit></file></xliff>"
    )


@pytest.fixture
def read(tmp_path):
    """A function that writes a file and reads it as a memory."""

    def read_file(data, name="a.tmx", languages=("en", "fr")):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return Memory.read(path, languages=languages)

    return read_file


def find(memory, *sentences, number=-1):
    """Return the kind of match of the last sentence of a document, and what is reused."""
    matches = memory.match(Document.from_sentences(sentences or [TEXT]))
    return matches[range(len(sentences or [TEXT]))[number]][:2] if matches else None


FILES = {
    "TMX": ("a.tmx", tmx(unit())),
    "TMX of another name": ("memory.xml", tmx(unit())),
    "UTF-16": ("a.tmx", tmx(unit(), head='<?xml version="1.0" encoding="UTF-16"?>').encode("utf-16")),
    "big-endian UTF-16": ("a.tmx", b"\xfe\xff" + tmx(unit(), head="").encode("utf-16-be")),
    "lang in place of xml:lang": ("a.tmx", tmx(unit(name="lang"))),
    "regions": ("a.tmx", tmx(unit(languages=("en-US", "fr_CA")))),
    "codes of three letters": ("a.tmx", tmx(unit(languages=("eng", "fre")))),
    "capitals": ("a.tmx", tmx(unit(languages=("EN-GB", "FR-FR")))),
    "the other direction": ("a.tmx", tmx(unit(TARGET, TEXT, languages=("fr", "en")), header='srclang="fr"')),
    "no header": ("a.tmx", tmx(unit()).replace('<header srclang="en"/>', "")),
    "a document type": ("a.tmx", tmx(unit(), head='<!DOCTYPE tmx SYSTEM "tmx14.dtd">')),
    "a name space": ("a.tmx", tmx(unit()).replace("<tmx ", '<tmx xmlns="urn:x" ')),
    "codes of both sides at an end": ("a.tmx", tmx(unit(f'<ph x="1">a</ph>{TEXT}', f'<ph x="1">a</ph>{TARGET}'))),
    "marked text": ("a.tmx", tmx(unit(f"<hi>{TEXT}</hi>", f"<g>{TARGET}</g>"))),
    "several languages": ("a.tmx", tmx(unit().replace("</tu>", '<tuv xml:lang="de"><seg>Die Katze.</seg></tuv></tu>'))),
    "the region that fits": ("a.tmx", tmx(unit().replace("<tu >", '<tu><tuv xml:lang="fr-CA"><seg>x</seg></tuv>'))),
    "XLIFF 1.2": ("a.xlf", xliff(segment('state="translated"'))),
    "XLIFF without states": ("a.xlf", xliff(segment())),
    "approved": ("a.xlf", xliff(segment(attributes='approved="yes"'))),
    "XLIFF 2": ("a.xlf", xliff2('state="final"')),
    "XLIFF 2 without a state": ("a.xlf", xliff2("")),
    "without a target language": ("a.xlf", xliff(segment(), languages='source-language="en"')),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_files(name, read):
    assert find(read(FILES[name][1], FILES[name][0])) == ("exact", TARGET)


NOTHING = {
    "other languages": ("a.tmx", tmx(unit(languages=("en", "de"))), r"a\.tmx has nothing .* en to fr: .* in de, en"),
    "other languages of XLIFF": (
        "a.xlf",
        xliff(segment(), languages='source-language="en" target-language="ja"'),
        "in en, ja",
    ),
    "no languages": ("a.tmx", tmx(unit(name="id")), "nothing to reuse"),
    "nothing": ("a.tmx", tmx(), "has no translations"),
    "a table": ("a.csv", "cat,chat", r"a\.csv is neither TMX nor XLIFF"),
    "another root": ("a.tmx", "<tmxx/>", "its root is <tmxx>"),
    "half of a file": ("a.tmx", tmx(unit())[:-30], "broken XML"),
    "entities": ("a.tmx", tmx(unit(), head='<!DOCTYPE tmx [<!ENTITY a "b">]>'), "declares entities"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOTHING)
def test_files_without_use_are_errors(name, read):
    file, data, message = NOTHING[name]
    with pytest.raises(DocmtError, match=message):
        read(data, file)


@pytest.mark.parametrize(
    "data",
    [
        *(
            xliff(segment(f'state="{state}"'))
            for state in ("new", "needs-translation", "needs-adaptation", "needs-l10n")
        ),
        xliff(segment('state="translated" state-qualifier="fuzzy-match"')),
        xliff(segment(attributes='conf="RejectedTranslation"')),
        xliff2('state="initial"'),
        tmx(unit(target=" ")),
        *(
            tmx(unit("Another sentence."), unit(props=f'<prop type="x-ConfirmationLevel">{level}</prop>'))
            for level in ("Draft", "RejectedTranslation", "RejectedSignOff", "Unspecified")
        ),
        *(
            xliff(segment(attributes=f'xmlns:mq="MQXliff" mq:status="{status}"'))
            for status in ("Rejected", "PartiallyEdited", "NotStarted")
        ),
        xliff(segment(target=TEXT)),
        tmx(unit('The <ph x="1">a</ph>cat sleeps.', TARGET)),
    ],
)
def test_what_is_no_translation_is_not_used(data, read):
    other = tmx(unit("Another sentence.", "Une autre phrase."))
    memory = read(other) if "<tmx" not in data else None
    try:
        memory = (memory or read(other)).join(read(data, "a.xlf" if "<xliff" in data else "b.tmx"))
    except DocmtError as error:
        assert "nothing to reuse" in str(error)
    assert find(memory) is None and find(memory, "Another sentence.")


@pytest.mark.parametrize(
    ("attributes", "is_used"),
    [
        ('percent="80" origin="tm"', False),
        ('percent="80" origin="tm" conf="Translated"', True),
        ('percent="100" origin="tm"', True),
        ('status="PreTranslated" percent="75"', False),
        ('status="ManuallyConfirmed" percent="75"', True),
        ('status="Edited" percent="0"', True),
    ],
)
def test_a_similar_translation_counts_once_a_person_has_confirmed_it(attributes, is_used, read, tmp_path):
    memory = read(xliff(segment(source="Another one."), segment(attributes=attributes)), "a.xlf")
    assert (find(memory) is not None) is is_used
    (tmp_path / "old.txt").write_text(TEXT)
    memory = Memory.from_versions(tmp_path / "old.txt", tmp_path / "a.xlf", ("en", "fr"))
    assert (find(memory) is not None) is is_used and find(memory, "Another one.")


MACHINE, PERSON = '<prop type="x-origin">machine</prop>', '<prop type="x-state">confirmed</prop>'
UNREVIEWED = ("unconfirmed", "NotConfirmed", "Unapproved")
BEFORE, OTHER = unit("Yes, no.", "a"), unit("Other one.", "c")


def date(year, name="changedate"):
    return f'{name}="{year}0101T000000Z"'


TWICE = unit(target="b").replace("</tu>", '<tuv xml:lang="fr"><seg>c</seg></tuv></tu>')
RULES = {
    "after the same sentence": ([BEFORE, unit(target="b"), OTHER, unit(target="d")], "context", "b"),
    "not if that is another": ([unit(target="b"), OTHER, unit(target="b")], "exact", "b"),
    "that more than the date": ([BEFORE, unit(target="b"), unit(target="d", attributes=date(2025))], "context", "b"),
    "people over machines": ([unit(target="b"), unit(target="c", props=MACHINE, attributes=date(2025))], "exact", "b"),
    "reviewed over others": ([unit(target="b", props=PERSON), unit(target="c", attributes=date(2025))], "exact", "b"),
    "not what is not reviewed": (
        [unit(target=state, props=PERSON.replace("confirmed", state)) for state in UNREVIEWED]
        + [unit(target="e", props=PERSON)],
        "exact",
        "e",
    ),
    "the newest": (
        [unit(target="b", attributes=date(2024)), unit(target="c", attributes=date(2020, "creationdate"))],
        "exact",
        "b",
    ),
    "the date of a language": (
        [unit(target="b", attributes=date(2020)), unit(target="c", variant=date(2023))],
        "exact",
        "c",
    ),
    "with a date over without": ([unit(target="b", attributes=date(2020)), unit(target="c")], "exact", "b"),
    "none of two": ([unit(target="b"), unit(target="c")], "conflict", ""),
    "the order of a file decides nothing": ([unit(target="c"), unit(target="b")], "conflict", ""),
    "two that agree": ([unit(target="b"), unit(target="b ")], "exact", "b"),
    "machine": ([unit(target="b", props=MACHINE)], "exact", "b"),
    "none of two in one unit": ([TWICE], "conflict", ""),
    "the newest in one unit": (
        [TWICE.replace('<tuv xml:lang="fr"', f'<tuv xml:lang="fr" {date(2024)}', 1)],
        "exact",
        "b",
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_which_of_several_translations(name, read):
    units, kind, target = RULES[name]
    assert find(read(tmx(*units)), "Yes, no.", TEXT) == (kind, target)


def write_omegat(source, target, before=None):
    """Return a unit of OmegaT: a default translation, or one that is for a place alone."""
    place = '<prop type="file">a.docx</prop><prop type="prev">{}</prop><prop type="next">Thanks.</prop>'
    return unit(source, target, props="" if before is None else place.format(before))


def write_memoq(source, target, before):
    """Return a unit of memoQ, with its context at the source."""
    context = f'<prop type="x-context-pre">&lt;seg&gt;{before}&lt;/seg&gt;</prop>'
    return unit(source, target, attributes=date(2020)).replace("<seg>", f"{context}<seg>", 1)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("Cats & dogs < 3.", "Cats &amp;amp; dogs &amp;lt; 3."),
        ("The new file.", 'The &lt;bpt i="1"&gt;{}&lt;/bpt&gt;new&lt;ept i="1"&gt;{}&lt;/ept&gt; file.'),
    ],
)
def test_the_context_of_memoq_is_a_segment(text, written, tmp_path):
    path = tmp_path / "memory.tmx"
    path.write_text(tmx(write_memoq("Save it.", "Sauvez-le.", written)))
    memory = Memory.read(path, languages=("en", "fr"))
    assert memory.match(Document.from_sentences([text, "Save it."]))[1].kind == "context"


OMEGAT = [
    write_omegat("Save it.", "Enregistrez-le."),
    write_omegat("Save it.", "Sauvez-le.", "A cat fell into the water."),
    write_omegat("Save it.", "Gardez-le.", ""),
]
MEMOQ = [
    write_memoq("Save it.", "Enregistrez-le.", 'Edit &lt;bpt i="1"/&gt;the&lt;ept i="1"/&gt; file.'),
    write_memoq("Other text.", "Autre texte.", "Save it."),
    write_memoq("Save it.", "Sauvez-le.", "A cat fell into the water."),
    write_memoq("Save it.", "Gardez-le.", "").replace("2020", "2019"),
]
CONTEXTS = [
    (OMEGAT, "A cat fell into the water.", ("context", "Sauvez-le.")),
    (OMEGAT, "Other text.", ("exact", "Enregistrez-le.")),
    (OMEGAT, None, ("context", "Gardez-le.")),
    (MEMOQ, "A cat fell into the water.", ("context", "Sauvez-le.")),
    (MEMOQ, "Edit the file.", ("context", "Enregistrez-le.")),
    (MEMOQ, "Other text.", ("conflict", "")),
    (MEMOQ, None, ("context", "Gardez-le.")),
]


@pytest.mark.parametrize(("units", "before", "match"), CONTEXTS)
def test_the_sentence_before_is_that_which_a_unit_names(units, before, match, read):
    memory = read(tmx(*units))
    assert find(memory, *filter(None, [before]), "Save it.") == match
    if match[0] == "context":
        words = read(tmx(*(each.replace("Save it.", "Save") for each in units)))
        assert find(words, *filter(None, [before]), "Save") == match


def test_a_context_is_of_the_language_that_has_it(read):
    memory = read(tmx(*MEMOQ), languages=("fr", "en"))
    assert find(memory, "A cat fell into the water.", "Sauvez-le.") == ("exact", "Save it.")


def test_a_review_in_xliff_counts_more_than_a_machine(read):
    raw = segment('state="needs-review-translation" state-qualifier="mt-suggestion"', target="a")
    assert find(read(xliff(raw, segment('state="final"', target="b")), "a.xlf")) == ("exact", "b")
    assert find(read(xliff(raw), "a.xlf")) == ("exact", "a")
    confirmed = segment(target="c", attributes='m:confirmed="1" xmlns:m="urn:m"')
    assert find(read(xliff(segment(target="b"), confirmed), "a.xlf")) == ("exact", "c")


@pytest.mark.parametrize(
    ("source", "sentence", "is_same"),
    [
        ("It is 12 km.", "It is 12 km.", True),
        ("It is 12 km.", "It is 13 km.", False),
        ("It's the cat’s.", "It’s the cat's.", True),
        ("The  cat\u00a0sleeps.", TEXT, True),
        ("The cat\u00ad sleeps.", TEXT, True),
        ("Cafe\u0301 noir", "Café noir", True),
        ("the cat sleeps.", TEXT, False),
        ("The cat sleeps", TEXT, False),
        ("The cat does not sleep.", TEXT, False),
    ],
)
def test_what_is_the_same_sentence(source, sentence, is_same):
    memory = Memory.from_pairs([(source, "x y")])
    assert (find(memory, sentence) is not None) is is_same


def test_single_words_need_the_sentence_before():
    memory = Memory.from_pairs([("The file menu:", "Le menu Fichier :"), ("Open", "Ouvrir"), ("Open it", "Ouvrez-le")])
    assert find(memory, "Open") is None and find(memory, "Doors:", "Open") is None
    assert find(memory, "The file menu:", "Open") == ("context", "Ouvrir")
    assert find(memory, "Open it") == ("exact", "Ouvrez-le")


def open_file(*segments):
    """Return the units of an XLIFF file that is to be translated, and their documents."""
    file = read_units(FORMATS["xliff"], xliff(*segments, languages="").encode(), "a")
    return file, UnitDocuments(file, "en")


CODED = [
    ('Click <g id="1">here</g> now.', '<g id="1">Ici</g> cliquez.', True),
    ('Click <g id="1">here</g> <g id="2">now</g>.', '<g id="2">Maintenant</g> cliquez <g id="1">ici</g>.', True),
    ('Click<x id="2"/> <g id="1">here</g> now.', 'Cliquez<x id="2"/> <g id="1">ici</g>.', True),
    ('Click <ph id="2">a  b</ph> here.', 'Cliquez <ph id="2">a  b</ph> ici.', True),
    ('Click <g id="1">here</g> now.', "Cliquez ici.", False),
    ("Click here now.", 'Cliquez <g id="1">ici</g>.', False),
    ("You have {count} files.", "Vous avez {count} fichiers.", True),
    ("You have {count} files.", "Vous avez des fichiers.", False),
    ("You have {a} of {b} files.", "Fichiers : {b}, dont {a}.", True),
    ('Click <x id="2"\n  ctype="image"/> it  now.', 'Cliquez <x id="2"\n  ctype="image"/> donc.', True),
]


@pytest.mark.parametrize(("source", "target", "is_reused"), CODED)
def test_codes_come_back_where_the_memory_has_them(source, target, is_reused, read):
    more = segment(source="One more text.", target="Encore un texte.")
    memory = read(xliff(segment(source=source, target=target), more), "a.xlf")
    file, units = open_file(segment(source=source, target=""))
    match = memory.match(units.documents[0]).get(0)
    assert bool(match and match.target) is is_reused
    if is_reused:
        made = units.translate([[SentenceTranslation(match.target, match.links)]])
        assert f"<target >{target}</target>" in file.write(made.units, "fr").decode()
    for other in (
        "Click here now.",
        'Click <g id="1">here now</g>.',
        '<g id="1">Click</g> here now.',
        "You have files.",
    ):
        if other != source:
            assert not memory.match(open_file(segment(source=other, target=""))[1].documents[0])


def test_placeholders_are_text_where_a_file_has_them_as_text(read):
    memory = read(tmx(unit("You have {count} files.", "Vous avez {count} fichiers.")))
    assert find(memory, "You have {count} files.") == ("exact", "Vous avez {count} fichiers.")
    _, units = open_file(segment(source="You have {count} files.", target=""))
    assert memory.match(units.documents[0])[0].target == "Vous avez {count} fichiers."
    memory = read(tmx(unit("{count} files are in {place}", "{count} fichiers sont dans {place}")))
    _, units = open_file(segment(source="{count} files are in {place}", target=""))
    assert memory.match(units.documents[0])[0].target == "{count} fichiers sont dans {place}"
    assert find(memory, "files are in") is None


def test_memories_that_differ_have_other_checksums(read):
    first, second = Memory.from_pairs([(TEXT, TARGET)]), Memory.from_pairs([(TEXT, "x")])
    assert first.checksum() == Memory.from_pairs([(TEXT, TARGET)]).checksum() != second.checksum()
    assert find(first.join(second)) == ("conflict", "")


def test_only_spaces_that_may_break_are_joined():
    pairs = [(TEXT, "C'est  10\u202f000\u00a0€\n  net\u00a0!"), ("你好 吗", "你\n好"), (TEXT, "C’est 10 000 € net !")]
    memory = Memory.from_pairs(pairs)
    assert [each.target for each in memory.entries[TEXT]] == ["C'est 10\u202f000\u00a0€ net\u00a0!", pairs[2][1]]
    assert memory.entries["你好 吗"][0].target == "你好"
    assert find(memory)[0] == "exact"  # spaces and apostrophes alone are no other translation


def test_lines_of_subtitles_are_no_codes():
    data = b"1\n00:00:01,000 --> 00:00:02,000\nThe cat\nsleeps.\n"
    document = UnitDocuments(read_units(FORMATS["srt"], data, "a.srt"), "en").documents[0]
    assert document.marked and Memory.from_pairs([(TEXT, TARGET)]).match(document)[0].target == TARGET


@pytest.mark.parametrize(
    ("name", "old", "translation"),
    [
        ("json", '{"a": "One cat.", "b": ["Two dogs."], "c": "A bird."}', '{"b": ["Deux."], "c": "Un.", "x": "Non."}'),
        ("properties", "a=One cat.\nb=Two dogs.\nc=A bird.\n", "x=Autre.\nc=Un.\nb=Deux.\n"),
    ],
)  # fmt: skip
def test_texts_with_keys_are_paired_by_these(name, old, translation, tmp_path):
    for side, text in (("old", old), ("new", translation)):
        (tmp_path / f"{side}.{name}").write_text(text)
    paths = [tmp_path / f"{side}.{name}" for side in ("old", "new")]
    memory = Memory.from_versions(*paths, ("en", "fr"), fields=["*"] * (name == "json"))
    found = {source: each.target for source, (each,) in memory.entries.items()}
    assert found == {"Two dogs.": "Deux.", "A bird.": "Un."}
