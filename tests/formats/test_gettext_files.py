"""PO catalogs: empty and fuzzy messages are filled, and nothing else changes."""

import shutil
import subprocess

import polib
import pytest
from generated_files import check_files, read_mutants
from hypothesis import strategies as st
from real_files import NEEDS_FILES, find_files
from test_xliff_files import pseudo_translate

from docmt.core.errors import DocmtError
from docmt.core.settings import read_package_yaml
from docmt.documents.input_formats import find_format
from docmt.formats.gettext_files import find_markup, hide_markup, load_markup, read
from docmt.formats.placeholders import tidy_spaces
from docmt.formats.units import ReadConfig

HEADER = (
    'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    '"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n'
)


def load(text, encoding="utf-8", **config):
    return read(text.encode(encoding), "x.po", ReadConfig(**config))


def translate(text, language="", encoding="utf-8"):
    file = load(text, encoding)
    data = text.encode(encoding)
    assert file.write(file.units) == data
    return file.write([pseudo_translate(each) for each in file.units], language).decode(encoding)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('msgid "Text"\nmsgstr ""\n', '#, fuzzy\nmsgid "Text"\nmsgstr "[Ťéxt]"\n'),
        ('msgid "Text"\nmsgstr ""', '#, fuzzy\nmsgid "Text"\nmsgstr "[Ťéxt]"'),
        ('#, fuzzy\nmsgid "e"\nmsgstr "old"\n', '#, fuzzy\nmsgid "e"\nmsgstr "[é]"\n'),
        ('#, c-format\nmsgid "e"\nmsgstr ""\n', '#, fuzzy, c-format\nmsgid "e"\nmsgstr "[é]"\n'),
        ('#, c-format\n#,fuzzy\nmsgid "e"\nmsgstr "x"\n', '#, c-format\n#,fuzzy\nmsgid "e"\nmsgstr "[é]"\n'),
        (
            '#. A\n#: b.c\n#| msgid "x"\nmsgid "e"\nmsgstr ""\n',
            '#. A\n#: b.c\n#, fuzzy\n#| msgid "x"\nmsgid "e"\nmsgstr "[é]"\n',
        ),
        ('msgctxt "menu"\nmsgid "e"\nmsgstr ""\n', '#, fuzzy\nmsgctxt "menu"\nmsgid "e"\nmsgstr "[é]"\n'),
        ('msgid ""\n"a "\n"e"\nmsgstr ""\n', '#, fuzzy\nmsgid ""\n"a "\n"e"\nmsgstr "[a é]"\n'),
        ('msgid "a\\"\\\\e"\nmsgstr ""\n""\n', '#, fuzzy\nmsgid "a\\"\\\\e"\nmsgstr "[a\\"\\\\é]"\n'),
        ('msgid "a\\te\\n"\nmsgstr ""\n', '#, fuzzy\nmsgid "a\\te\\n"\nmsgstr ""\n"[a\\té\\n"\n"]\\n"\n'),
        ('msgid "e"\r\nmsgstr ""\r\n', '#, fuzzy\r\nmsgid "e"\r\nmsgstr "[é]"\r\n'),
        ('msgid "e"\n\nmsgstr ""\nmsgid "a"\nmsgstr "b"', '#, fuzzy\nmsgid "e"\n\nmsgstr "[é]"\nmsgid "a"\nmsgstr "b"'),
        ('msgid "1"\nmsgstr ""\n', 'msgid "1"\nmsgstr ""\n'),
        ('#~ msgid "old"\n#~ msgstr ""\n', '#~ msgid "old"\n#~ msgstr ""\n'),
        (
            '#, fuzzy\n#~ msgid "old"\n#~ msgstr ""\nmsgid "e"\nmsgstr "d"',
            '#, fuzzy\n#~ msgid "old"\n#~ msgstr ""\nmsgid "e"\nmsgstr "d"',
        ),
    ],
)
def test_messages(before, after):
    assert translate(before) == after
    header = HEADER.replace("\n", "\r\n") if "\r" in before else HEADER
    assert translate(header + before) == header + after


def test_translated_messages_stay():
    file = load(HEADER + 'msgid "e"\nmsgstr "d"\n')
    assert file.units == []
    assert [(each.reason, each.text) for each in file.skipped] == [("translated messages", "e")]


PLURAL = 'msgid "one file"\nmsgid_plural "{} files"\nmsgstr[0] ""\nmsgstr[1] ""\n'


@pytest.mark.parametrize(
    ("forms", "targets"),
    [
        ("2", 'msgstr[0] "[oné filé]"\nmsgstr[1] "[{} filés]"\n'),
        ("3", 'msgstr[0] "[oné filé]"\nmsgstr[1] "[{} filés]"\nmsgstr[2] "[{} filés]"\n'),
        ("1", 'msgstr[0] "[{} filés]"\n'),
        ("", 'msgstr[0] "[oné filé]"\nmsgstr[1] "[{} filés]"\n'),
    ],
)
def test_plural_forms_are_those_of_the_header(forms, targets):
    text = HEADER.replace("nplurals=2", f"nplurals={forms}") + PLURAL
    assert translate(text).endswith(targets)
    assert [each.render() for each in load(text).units] == ["one file", "{} files"]


def test_placeholders_are_codes():
    assert [each.text for each in load(HEADER + PLURAL).units] == ["one file", "files"]
    assert translate('msgid "Saved %s to {x}\\nin %(time).2f s"\nmsgstr ""\n').endswith(
        'msgstr ""\n"[Savéd %s to {x}\\n"\n"in %(time).2f s]"\n'
    )
    file = load('msgid "{n, plural, one {e} other {es}}"\nmsgstr ""\n')
    assert [each.reason for each in file.skipped] == ["ICU messages"]
    assert load('msgid "%s"\nmsgstr ""\n').units == []


@pytest.mark.parametrize(("forms", "pairs"), [(2, [("one file", "A"), ("files", "B")]), (1, [("one file", "A")])])
def test_pairs_are_those_of_both_numbers(forms, pairs):
    text = HEADER.replace("nplurals=2", f"nplurals={forms}") + PLURAL.replace('[0] ""', '[0] "A"').replace(
        '[1] ""', '[1] "B"'
    )
    found = [(each.source.text, each.target.text) for each in load(text).list_pairs()]
    assert found == pairs


def test_only_empty_plural_forms_are_filled():
    text = translate(HEADER + PLURAL.replace('[0] ""', '[0] "eine"'))
    assert text.endswith('msgstr[0] "eine"\nmsgstr[1] "[{} filés]"\n')


def test_the_charset_of_the_header_is_read_and_kept():
    text = HEADER.replace("UTF-8", "ISO-8859-1") + 'msgid "e ä"\nmsgstr ""\n'
    assert translate(text, encoding="latin-1").endswith('msgstr "[é ä]"\n')
    file = load(text.replace("e ä", "T"), "latin-1")
    result = file.write([pseudo_translate(each) for each in file.units]).decode()
    assert "charset=UTF-8" in result
    assert 'msgstr "[Ť]"' in result
    assert load("\ufeff" + HEADER + 'msgid "e"\nmsgstr ""\n').units
    with pytest.raises(DocmtError, match="is not text in utf-8"):
        load('msgid "ä"\nmsgstr ""\n', "latin-1")
    with pytest.raises(DocmtError, match="not text in klingon"):
        load(HEADER.replace("UTF-8", "klingon"))


def test_the_language_of_the_header():
    body = 'msgid "e"\nmsgstr ""\n'
    template = HEADER.replace("Language: de", "Language: ") + body
    assert '\n"Language: pt_BR\\n"\n"Content' in translate(template, "pt-BR")
    assert translate(template).count("Language: \\n") == 1
    without = HEADER.replace('"Language: de\\n"\n', "") + body
    assert '(n != 1);\\n"\n"Language: de\\n"\n\n#, fuzzy' in translate(without, "deu_Latn")
    assert "Language: de\\n" in translate(HEADER + body, "de-AT")
    with pytest.raises(DocmtError, match="language of the file is de, not fr"):
        load(HEADER + body, target_language="fr")
    assert load(HEADER + body, target_language="deu_Latn").units


def test_equal_translations_are_written_where_a_language_is_given():
    file = load('msgid "OK"\nmsgstr ""\n')
    header = b'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    assert file.write(file.units, "de") == header + b'#, fuzzy\nmsgid "OK"\nmsgstr "OK"\n'


@pytest.mark.parametrize(
    "text",
    ["msgid", 'msgid "a', '"a"\n', 'msgid "a"\n', 'msgstr "a"\n', "hello\n", 'msgid "a"\nmsgstr b\n', 'msgctxt "a"\n'],
)
def test_broken_files_are_refused(text):
    with pytest.raises(DocmtError, match=r"x\.po, line \d"):
        load(text)


def test_an_empty_file_has_no_units():
    assert load("").units == []


TEXTS = st.text(alphabet='e T\n\t"\\{}%s<>日é', max_size=20)


@st.composite
def catalogs(draw):
    file = polib.POFile(wrapwidth=draw(st.sampled_from([20, 78])))
    file.metadata = {"Content-Type": "text/plain; charset=UTF-8", "Plural-Forms": "nplurals=2; plural=n>1;"}
    for number, text in enumerate(draw(st.lists(TEXTS, max_size=6))):
        entry = polib.POEntry(
            msgid=f"e{text}",
            msgctxt=str(number),
            comment=draw(TEXTS),
            flags=draw(st.sampled_from([[], ["fuzzy"], ["c-format"]])),
        )
        if draw(st.booleans()):
            entry.msgid_plural = f"e{draw(TEXTS)}e" + "\n" * text.endswith("\n")
            entry.msgstr_plural = {0: "", 1: ""}
        else:
            entry.msgstr = draw(st.sampled_from(["", "", "done"]))
        entry.obsolete = draw(st.integers(0, 9)) == 0
        entry.previous_msgid = draw(st.sampled_from([None, "before"]))
        file.append(entry)
    return file


def end_as(text, source):
    return text + "\n" if source.endswith("\n") and not text.endswith("\n") else text


@check_files(catalogs())
def test_generated_catalogs(catalog):
    data = str(catalog).encode()
    file = read(data, "x.po", ReadConfig())
    assert file.write(file.units) == data
    result = polib.pofile(file.write([pseudo_translate(each) for each in file.units], "de").decode())
    assert not file.units or result.metadata["Language"] == "de"
    targets = []
    for old, new in zip(polib.pofile(data.decode()), result, strict=True):
        assert (old.msgid, old.msgctxt, old.comment) == (new.msgid, new.msgctxt, new.comment)
        if old.obsolete or (old.msgstr and "fuzzy" not in old.flags):
            assert (old.msgstr, old.flags) == (new.msgstr, new.flags)
            continue
        assert new.flags == ["fuzzy", *(flag for flag in old.flags if flag != "fuzzy")]
        targets += [new.msgstr_plural[0], new.msgstr_plural[1]] if old.msgid_plural else [new.msgstr]
    assert targets == [end_as(tidy_spaces(pseudo_translate(each)).render(), each.render()) for each in file.units]


@NEEDS_FILES
@pytest.mark.parametrize("path", find_files("po"), ids=lambda path: path.name)
def test_real_files(path):
    data = path.read_bytes()
    file = read(data, path.name, ReadConfig())
    assert file.write(file.units) == data
    translated = [pseudo_translate(each) for each in file.units]
    result = polib.pofile(file.write(translated, "de").decode())
    assert [entry.msgstr for entry in result if entry.msgstr.startswith("[")] == [
        tidy_spaces(each).render() for each in translated
    ]


@pytest.mark.full
def test_mutants():
    sample = (
        HEADER + '#, c-format\nmsgctxt "x"\nmsgid "Te"\n"xt\\n"\nmsgstr ""\n\n' + PLURAL + '#~ msgid "a"\n'
    ).encode()
    for file in read_mutants(lambda data: read(data, "x.po", ReadConfig()), sample):
        file.write([pseudo_translate(each) for each in file.units], "de")


@pytest.mark.parametrize("head", ["", "# Of Anna.\n#, fuzzy\n", "\ufeff\n#: x.c:1\n"])
def test_a_catalog_without_a_name(head):
    format = find_format("-", f'{head}msgid ""\nmsgstr ""\n"Language: fr\\n"\n'.encode())
    assert format is not None and format.name == "po"
    assert find_format("-", b"msgid is a keyword.\n") is None


RST, POD, PLAIN = "See :ref:`the page <x>`, *now*", "Use B<--all> in I<a> file_", "Print *a*b* in file_,"


@pytest.mark.parametrize(
    ("messages", "texts"),
    [
        ([("a.rst:1", RST), ("b.pod:2", POD), ("c.c:3", PLAIN)], ["See the page, now", "Use in a file_", PLAIN]),
        ([("", RST), ("", POD), ("", "The *old* page")], ["See the page, now", "Use in a file_", "The old page"]),
        ([("a.txt:1", "The *old* page"), ("a.txt:2", RST), ("c.txt:3", "The *old* page")],
         ["The old page", "See the page, now", "The *old* page"]),
    ],
)  # fmt: skip
def test_catalogs_may_mix_languages_of_markup(messages, texts):
    entries = [f'#: {place}\nmsgid "{text}"\nmsgstr ""\n' for place, text in messages]
    file = load("\n".join(each.removeprefix("#: \n") for each in entries))
    assert [unit.text for unit in file.units] == texts


@pytest.mark.parametrize("markup", load_markup(), ids=["rst", "pod"])
def test_documentation_is_recognised(markup):
    name, language = ("x.rst", load_markup()[0]) if markup.separator else ("x.pod", load_markup()[1])
    assert find_markup(f"#: docs/{name}:12\n", "text") is language
    assert find_markup("#: a.c:1\n", "a `b' ``c'' *d*, List<B> a < b > c") is None


EXAMPLES = [
    (markup, *example)
    for markup, entry in zip(
        load_markup(), read_package_yaml("docmt.formats", "documentation_markup.yaml"), strict=True
    )
    for example in entry["examples"].items()
]


@pytest.mark.parametrize(("markup", "message", "text"), EXAMPLES)
def test_markup_of_documentation_is_codes(markup, message, text):
    unit = hide_markup(message, markup, "")
    assert " ".join(unit.text.split()) == text
    if "`_" not in message:  # a reference gets the name of its target
        assert unit.render() == message


def test_translated_documentation_keeps_its_markup():
    text = '#: a.rst:1\nmsgid "See `a page`_, :ref:`the e <x_y>` and ``e*e``s."\nmsgstr ""\n'
    assert translate(text).endswith('"[Séé `a pagé <a page_>`_, :ref:`thé é <x_y>` and ``e*e``\\\\ s.]"\n')
    assert translate('msgid "B<-e>, C<e> B<e e>"\nmsgstr ""\n').endswith('"[B<-e>, C<e> B<é é>]"\n')
    file = load('#. type: verbatim\nmsgid "e = e"\nmsgstr ""\n')
    assert [each.reason for each in file.skipped] == ["code"]


TEMPLATE = (
    '# A title\nmsgid ""\nmsgstr ""\n"Language: \\n"\n"Content-Type: text/plain; charset=CHARSET\\n"\n'
    '"Content-Transfer-Encoding: ENCODING\\n"\n"Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;\\n"\n\n'
)


@pytest.mark.parametrize(
    "header", [TEMPLATE, "", 'msgid ""\nmsgstr ""\n\n', HEADER.replace("Language: de", "Language: ")]
)
@pytest.mark.parametrize("language", ["fr", "pt_BR", "pl", "ar", "ja", "deu_Latn"])
def test_a_template_becomes_a_catalog(header, language, tmp_path):
    file = load(header + PLURAL + '\nmsgid "e"\nmsgstr ""\n', target_language=language)
    written = file.write([pseudo_translate(each) for each in file.units], language)
    catalog = polib.pofile(written.decode())
    forms = catalog.metadata["Plural-Forms"]
    assert f"nplurals={len(catalog[0].msgstr_plural)};" in forms and all(catalog[0].msgstr_plural.values())
    assert catalog.metadata["Language"] and "charset=UTF-8" in catalog.metadata["Content-Type"]
    assert b"ENCODING" not in written
    if header != HEADER.replace("Language: de", "Language: "):
        assert f"nplurals={ {'pl': 3, 'ar': 6, 'ja': 1}.get(language, 2) };" in forms
    if shutil.which("msgfmt"):
        (tmp_path / "x.po").write_bytes(written)
        subprocess.run(["msgfmt", "-c", "-o", tmp_path / "x.mo", tmp_path / "x.po"], check=True)


@pytest.mark.parametrize(
    ("message", "is_kept"),
    [
        ('#, fuzzy\nmsgid "OK"\nmsgstr "old"\n', True),
        ('#, fuzzy, c-format\n#| msgid "x"\nmsgid "%s: %d"\nmsgstr "%d: %s"\n', True),
        ('#, fuzzy\nmsgid "One"\nmsgid_plural "%d"\nmsgstr[0] "Eins"\nmsgstr[1] "Zwei"\n', True),
        ('#, fuzzy\nmsgid "OK"\nmsgstr ""\n', False),
        ('msgid "OK"\nmsgstr ""\n', False),
    ],
)
def test_messages_that_nobody_translated_stay(message, is_kept):
    """A fuzzy one keeps its old text, and one that failed is not filled with its source."""
    file = load(HEADER + message)
    assert (file.write(file.units, "de").decode() == HEADER + message) == is_kept
    file.failed = frozenset(range(len(file.units)))
    assert file.write(file.units, "de").decode() == HEADER + message
