"""Files of glossaries, as programs write them: what each holds, and what is refused."""

import gzip
import json

import pytest

from docmt import DocmtError
from docmt.terms import Glossary, Term
from docmt.terms.glossary import find_writer, render_tbx, render_tsv
from docmt.terms.glossary_files import read_entries
from docmt.terms.glossary_tables import read_table


@pytest.fixture
def read(tmp_path):
    """A function that writes a file and reads it as a glossary."""

    def read_file(name, data, languages=("en", "fr")):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return Glossary.read(path, languages=languages)

    return read_file


CAT = (Term("cat", ("chat",)),)
TABLES = {
    "two columns": "cat\tchat\n",
    "without a last line break": "cat,chat",
    "semicolons": "cat;chat\n",
    "old line breaks": "cat\tchat\rcat\tchat\r",
    "blank lines": "\r\n\r\ncat,chat\r\n\r\n",
    "Excel's line": "sep=;\r\ncat;chat\r\n",
    "quotes": '"cat";"chat"\n',
    "spaces": ' cat , "chat"\n',
    "four columns of DeepL": "cat,chat,EN,FR\ndog,Hund,en,de\n",
    "BabelDOC": "source,target,tgt_lng\ncat,chat,fr\ncat,Katze,de\n",
    "docutranslate": "src,dst\ncat,chat\n",
    "memoQ": "SourceTerm,TargetTerm,SourceLanguage,TargetLanguage\ncat,chat,eng,fre\n",
    "capitals and spaces": "Source Term;Target Term;Target Language\ncat;chat;French\n",
    "relevance": "cat\tchat\ten\tfr\t0.5\n",
    "languages": "en-US,fr_FR,de\ncat,chat,Katze\n",
    "names of languages": "English\tGerman\tFrench (Canada)\ncat\tKatze\tchat\n",
    "names in French": "anglais;français\ncat;chat\n",
    "names in German": "Englisch,Deutsch,Französisch\ncat,Katze,chat\n",
    "columns in German": "Begriff;Übersetzung\ncat;chat\n",
    "columns in French": "terme;traduction;commentaire\ncat;chat\n",
    "more columns in French": "source;cible;ne pas traduire;casse;remarque\ncat;chat;non;non;\n",
    "two words of French": "terme source;terme cible;domaine\ncat;chat;animaux\n",
    "more columns in German": "Quellterm;Zielterm;Groß-/Kleinschreibung;Nicht übersetzen\ncat;chat;nein;\n",
    "ISO 639-2": "ger;eng;fre\nKatze;cat;chat\n",
    "memoQ with definitions": "Entry_ID;English;English_Def;French\n1;cat;an animal;chat\n",
    "ids": "term_id,en,fr,pos\n17,cat,chat,noun\n",
    "the other way round": "target\tsource\nchat\tcat\n",
    "a row of one column": "# made by hand\ncat\tchat\n",
}


@pytest.mark.parametrize("text", TABLES.values(), ids=TABLES)
def test_tables(text, read):
    for suffix in ("tsv", "csv", "txt"):
        assert read(f"a.{suffix}", text).terms == CAT
    assert read("a.csv", "\ufeff" + text).terms == CAT
    assert read("a.csv", text.encode("utf-16")).terms == CAT
    assert read("a.csv.gz", gzip.compress(text.encode())).terms == CAT


def test_words_of_headers_may_be_terms(read):
    text = "source\torigine\nnote\tremarque\nis\test\nen\tfr\n"
    assert [term.source for term in read("a.tsv", "Thai\tThai\nLatin\tLatin\n", ("en", "de")).terms] == [
        "Thai",
        "Latin",
    ]
    assert [term.source for term in read("a.tsv", text).terms] == ["source", "note", "is", "en"]
    assert [term.source for term in read("a.tsv", "cat\tchat\ten\tfr\n").terms] == ["cat"]


@pytest.mark.parametrize("name", ["No", "Nr", "#"])
def test_a_column_of_numbers_is_no_language(name, read):
    assert read("a.csv", f"{name},en,fr\n1,dog,chien\n2.,cat,chat\n").terms == (
        Term("dog", ("chien",)),
        Term("cat", ("chat",)),
    )


def test_semicolons_between_translations(read):
    glossary = read("a.tsv", "source\ttranslations\ndog\tchien; clebs\n")
    assert glossary.terms == (Term("dog", ("chien", "clebs")),) and not glossary.remarks
    glossary = read("a.tsv", "en\tfr\ndog\tchien; clebs\n")
    assert glossary.terms == (Term("dog", ("chien; clebs",)),)
    assert [row.reason for row in glossary.remarks] == [
        "has a semicolon in a term: write | between several translations"
    ]


def test_quotes(read):
    assert read("a.csv", '"the ""A"" list, long","liste ""A"""\n').terms == (
        Term('the "A" list, long', ('liste "A"',)),
    )
    assert read("a.tsv", '"A" list\tliste "A"\nx"\t"y\n').terms == (
        Term('"A" list', ('liste "A"',)),
        Term('x"', ('"y',)),
    )
    glossary = read("a.csv", 'dog,"chien\ncow,vache\nsheep",mouton\ncat,chat\n')
    assert glossary.terms == CAT
    assert [(row.line, row.reason) for row in glossary.skipped] == [(1, "a cell has a line break: close its quotes")]
    for text in ('cat,chat\n"A" list,liste\n', 'cat,chat\n"dog,chien\n'):
        with pytest.raises(DocmtError, match=r"a\.csv, line 2: quotes do not pair"):
            read("a.csv", text)


def test_columns_that_do_not_fit_are_told(read):
    glossary = read("a.csv", "cat,chat\ndog, big,chien\n")
    assert [(row.line, row.reason[:20]) for row in glossary.skipped] == [(2, "3 columns instead of")]
    glossary = read("a.csv", "source,target,colour,note,remark\ncat,chat,red,a pet,x\n")
    assert [row.reason for row in glossary.remarks] == [
        "the column 'colour' is not used",
        "the column 'remark' is not used",
    ]
    assert glossary.terms == (Term("cat", ("chat",), note="a pet"),)
    assert read("a.tsv", "cat\tchat\ndog\tchien\tan animal\n").terms[1].note == "an animal"
    for text in ("cat\n", "cat chat\ndog chien\n"):
        with pytest.raises(DocmtError, match="has no columns: separate"):
            read("a.csv", text)


def test_a_table_of_languages_may_forbid_rows(read):
    glossary = read("a.csv", "en;fr;Status\ncat;chat;approved\ncat;minet;Deprecated\ndog;clebs;déconseillé\n")
    assert glossary.terms == (Term("cat", ("chat",), ("minet",)), Term("dog", (), ("clebs",)))
    glossary = read("a.csv", "en;fr;forbidden\ncat;chat;no\ncow;bovin;yes\ndog;chien;clebs\n")
    assert glossary.terms == (*CAT, Term("cow", (), ("bovin",)))
    assert [row.line for row in glossary.skipped] == [4] and "'clebs': write yes or no" in glossary.skipped[0].reason


def test_formulas_are_text_and_an_apostrophe_before_one_is_told(read):
    glossary = read("a.csv", "=1+1,@x\n'-5 V,-5 V\n'tis,c'est\n")
    assert [term.source for term in glossary.terms] == ["=1+1", "'-5 V", "'tis"]
    assert [(row.line, row.reason[:24]) for row in glossary.remarks] == [(2, "begins with an apostroph")]


def tbx2(*entries, doctype='<!DOCTYPE martif SYSTEM "TBXcdv04.dtd">'):
    return (
        f'<?xml version="1.0"?>{doctype}<martif type="TBX-Basic" xml:lang="en"><martifHeader/>'
        f"<text><body>{''.join(entries)}</body></text></martif>"
    )


def tbx3(*entries, space=' xmlns="urn:iso:std:iso:30042:ed-2" xmlns:b="http://www.tbxinfo.net/ns/basic"'):
    return f'<tbx style="dct" type="TBX-Basic" xml:lang="en"{space}><text><body>{"".join(entries)}</body></text></tbx>'


def concept(*sections, data="", name="termEntry", section="langSet"):
    inner = "".join(f'<{section} xml:lang="{language}">{terms}</{section}>' for language, terms in sections)
    return f"<{name}>{data}{inner}</{name}>"


def concept3(*sections, data=""):
    return concept(*sections, data=data, name="conceptEntry", section="langSec")


def tig(term, data=""):
    return f"<tig><term>{term}</term>{data}</tig>"


def ntig(term, data=""):
    return f"<ntig><termGrp><term>{term}</term>{data}</termGrp></ntig>"


def term_sec(term, data=""):
    return f"<termSec><term>{term}</term>{data}</termSec>"


def status(value):
    return f'<termNote type="administrativeStatus">{value}</termNote>'


NEEDED = '<descrip type="Translation needed">No</descrip>'
BASES = {
    "tig": tbx2(concept(("en", tig("cat")), ("fr", tig("chat")))),
    "ntig": tbx2(concept(("fr", ntig("chat")), ("en", ntig("cat")))),
    "no DOCTYPE": tbx2(concept(("en", tig("cat")), ("fr", tig("chat"))), doctype=""),
    "empty DOCTYPE": tbx2(concept(("en", tig("cat")), ("fr", tig("chat"))), doctype="<!DOCTYPE martif []>"),
    "regions": tbx2(concept(("en-US", tig("cat")), ("de", tig("Katze")), ("FR-ca", tig("chat")))),
    "lang": tbx2(concept(("en", tig("cat")), ("fr", tig("chat")))).replace("xml:lang", "lang"),
    "line breaks": tbx2(concept(("en", tig("\n  cat\n")), ("fr", tig("\n  <hi>ch</hi>at\n")))),
    "version 3": tbx3(concept3(("en", term_sec("cat")), ("fr", term_sec("chat")))),
    "no namespace": tbx3(concept3(("en", term_sec("cat")), ("fr", term_sec("chat"))), space=""),
    "first languages are others": tbx3(
        concept3(("de", term_sec("Katze")), ("es", term_sec("gato")), ("fr", term_sec("chat")), ("en", term_sec("cat")))
    ),
    "a concept without a language": tbx2(
        concept(("de", tig("Hund"))), concept(("en", tig("cat")), ("fr", tig("chat"))), concept(("fr", tig("vache")))
    ),
}


@pytest.mark.parametrize("text", BASES.values(), ids=BASES)
def test_term_bases(text, read):
    assert read("a.tbx", text).terms == read("a", text).terms == CAT
    wide = '<?xml version="1.0" encoding="UTF-16"?>' + text.removeprefix('<?xml version="1.0"?>')
    assert read("a.xml", wide.encode("utf-16")).terms == CAT
    with pytest.raises(
        DocmtError, match=r"a\.tbx has no term for en to ja \(its languages are .*en.*fr.*\): line 1, it has"
    ):
        read("a.tbx", text, ("en", "ja"))


@pytest.mark.parametrize("value", ["deprecatedTerm-admn-sts", "supersededTerm-admn-sts", "forbidden", "Obsolete"])
def test_terms_that_must_not_be_used(value, read):
    expected = (Term("cat", ("chat", "matou"), ("minet",)),)
    first, others = tig("minet", status(value)), tig("matou") + tig("chat", status("preferredTerm-admn-sts"))
    assert read("a.tbx", tbx2(concept(("en", tig("cat")), ("fr", first + others)))).terms == expected
    first, others = (text.replace("tig>", "termSec>") for text in (first, others))
    assert read("a.tbx", tbx3(concept3(("en", term_sec("cat")), ("fr", first + others)))).terms == expected
    by_element = f"<b:administrativeStatus>{value}</b:administrativeStatus>"
    preferred = "<b:administrativeStatus>preferredTerm-admn-sts</b:administrativeStatus>"
    sections = term_sec("minet", by_element) + term_sec("matou") + term_sec("chat", preferred)
    assert read("a.tbx", tbx3(concept3(("en", term_sec("cat")), ("fr", sections)))).terms == expected


def test_what_is_not_to_be_translated_may_be_so_in_some_languages_only(read):
    name = "McDonald's"
    text = tbx2(concept(("en", tig(name)), ("zh", tig("麦当劳")), ("fr", tig(name)), data=NEEDED))
    kept = (Term(name, (name,), keep=True),)
    assert read("a.tbx", text).terms == read("a.tbx", text, ("en", "ja")).terms == kept
    assert read("a.tbx", text, ("en", "zh")).terms == (Term(name, ("麦当劳",)),)
    one = concept(("en", tig(name)), ("fr", NEEDED + tig(name)), ("de", tig("McDo")))
    assert read("a.tbx", tbx2(one)).terms == kept
    assert read("a.tbx", tbx2(one), ("en", "de")).terms == (Term(name, ("McDo",)),)
    assert read("a.tbx", tbx2(concept(("en", tig(name, NEEDED.replace("descrip", "termNote")))))).terms == kept
    assert (
        not read("a.tbx", tbx2(concept(("en", tig("cat")), ("fr", tig("chat")), data=NEEDED.replace("No", "Yes"))))
        .terms[0]
        .keep
    )


def test_notes_capitals_and_synonyms_of_term_bases(read):
    case = '<termNote type="caseSensitive">yes</termNote>'
    text = tbx2(
        concept(
            ("en", tig("Apple", case + "<note>a\n firm</note>") + tig("Apple Inc.")),
            ("fr", tig("Apple")),
            data="<note>US</note>",
        )
    )
    expected = [Term(source, ("Apple",), case=True, note="US; a firm") for source in ("Apple", "Apple Inc.")]
    assert list(read("a.tbx", text).terms) == expected


def tmx(*units, head='<?xml version="1.0"?><!DOCTYPE tmx SYSTEM "tmx14.dtd">'):
    return f'{head}<tmx version="1.4"><header/><body>{"".join(units)}</body></tmx>'


def unit(attribute="xml:lang", data="", **segments):
    variants = (
        f'<tuv {attribute}="{code.replace("_", "-")}"><seg>{text}</seg></tuv>' for code, text in segments.items()
    )
    return f"<tu>{data}{''.join(variants)}</tu>"


MEMORIES = {
    "two languages": tmx(unit(en="cat", fr="chat")),
    "many": tmx(unit(de="Katze", fr="chat", es="gato", en="cat"), unit(de="Hund", es="perro")),
    "lang": tmx(unit("lang", en_US="cat", FR_FR="chat")),
    "codes": tmx(
        unit(
            en='<bpt i="1">&lt;b&gt;</bpt>c<ph>x<sub>y</sub></ph>a<it pos="begin">z</it>t<ept i="1"/>',
            fr="<g id='1'>ch<hi>at</hi></g>",
        )
    ),
}


@pytest.mark.parametrize("text", MEMORIES.values(), ids=MEMORIES)
def test_translation_memories(text, read):
    assert read("a.tmx", text).terms == read("a.txt", text).terms == CAT
    wide = text.replace("?>", ' encoding="UTF-16"?>', 1)
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        assert read("a.tmx", wide.encode(encoding)).terms == CAT
    assert read("a.tmx", text, ("fr", "en")).terms == (Term("chat", ("cat",)),)
    assert read("a.tmx", tmx(unit(data="<note>a pet</note>", en="cat", fr="chat"))).terms[0].note == "a pet"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (tmx(unit(en="&a;"), head='<!DOCTYPE tmx [<!ENTITY a "b">]>'), "declares entities"),
        (tmx(unit(en="&a;"), head='<!DOCTYPE tmx [<!ENTITY a SYSTEM "file:///etc/hostname">]>'), "declares entities"),
        (tmx(unit(en="cat"), head='<!DOCTYPE tmx [<!ENTITY % a SYSTEM "x"> %a;]>'), "declares entities"),
        (tmx(unit(en="c&eacute;t", fr="x")), "line 1, it has an entity that is not declared"),
        (tmx(unit(en="cat", fr="chat"))[:-9], r"broken XML \("),
        ("<tmx>" * 300, r"broken XML \("),
        (b"<tmx>\xff</tmx>", r"broken XML \("),
        ("<html><body/></html>", "neither TBX nor TMX: its root is <html>"),
        ("<tmx/>", "has no terms"),
        ("", r"broken XML \("),
        (tmx("<tu><tuv><seg>cat</seg></tuv></tu>"), "a term has no language"),
        (tbx2("<termEntry/>"), "it has no terms"),
    ],
)
def test_xml_that_is_refused(data, message, read):
    with pytest.raises(DocmtError, match=message):
        read("a.tmx", data)


def test_entities_are_never_expanded(read):
    levels = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10 if n else "x" * 10}">' for n in range(10))
    with pytest.raises(DocmtError):
        read("a.tmx", tmx(unit(en="&a9;"), head=f"<!DOCTYPE tmx [{levels}]>"))
    with pytest.raises(DocmtError):
        read("a.tmx", tmx(unit(en="x", data='<note lang="&a9;"/>'), head=f"<!DOCTYPE tmx [{levels}]>"))


@pytest.mark.parametrize(
    "values",
    [
        {"cat": "chat"},
        {"cat": ["chat"]},
        {"terms": {"cat": "chat"}},
        {"terms": [{"source": "cat", "target": "chat"}], "doNotTranslate": []},
        [{"source": "cat", "targets": ["chat"], "forbidden": [], "keep": False, "case": False, "note": ""}],
        [{"source": "cat", "target": "chat"}, {"source": ".", "target": "point"}],
    ],
)
def test_json(values, read):
    assert read("a.json", json.dumps(values)).terms == read("a", json.dumps(values, indent=1)).terms == CAT


def test_all_that_json_may_say(read):
    text = '{"terms": {"cat": "chat", "terms": ["termes"], "cat": "matou"}, "doNotTranslate": ["Docker"]}'
    expected = (Term("cat", ("chat", "matou")), Term("terms", ("termes",)), Term("Docker", ("Docker",), keep=True))
    assert read("a.json", text).terms == expected
    objects = [{"source": "Apple", "forbidden": "pomme", "case": True, "note": "firm"}, {"source": "X", "keep": True}]
    expected = (Term("Apple", (), ("pomme",), case=True, note="firm"), Term("X", ("X",), keep=True))
    assert read("a.json", json.dumps(objects)).terms == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        ("[" * 100_000, "too many nested brackets"),
        ("3", "must hold an object"),
        ('{"cat": {"fr": "chat"}}', "entry 1: target is .*: give text"),
        ('{"cat": [1]}', "entry 1: target is .*: give text"),
        ("[1]", "entry 1 is no object"),
        ('[{"source": "cat", "taget": "chat"}]', "entry 1 has the unknown setting taget"),
        ('[{"source": "cat", "keep": "yes"}]', "entry 1: keep is 'yes': choose true or false"),
        ('[{"target": "chat"}]', "entry 1 has no setting source"),
        ('{"terms": {}, "dnt": []}', "unknown key 'dnt' beside terms and doNotTranslate"),
        ('{"doNotTranslate": {"a": "b"}}', "must hold an object"),
        ('{"doNotTranslate": [2]}', "entry 1: source is 2: give text"),
        ('{"cat": "\\ud800"}', r"entry 1, .* control character U\+D800"),
        ("{}", "has no terms"),
    ],
)
def test_json_that_is_refused(text, message, read):
    with pytest.raises(DocmtError, match=message):
        read("a.json", text)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("cat\tkočka šedá\n".encode("cp1250"), "not UTF-8"),
        ("cat\tmâle\n".encode("mac-roman"), "not UTF-8"),
        ("cat\tmâle\n".encode("cp850"), "not UTF-8"),
        ("кот\tchat\n".encode("cp1251"), "not UTF-8"),
        (b"cat\tch\x81t\n", "not UTF-8"),
        ("cat\tchat\n".encode("utf-16-le"), "UTF-16 without a mark"),
        (b"PK\x03\x04\xff", "an office document or an archive: save its table as CSV"),
        (b"cat\tchat\n" + b"x" * 200_000 + b"\ty\n", "a cell is too long"),
    ],
)
def test_other_files_are_refused(data, message, read):
    with pytest.raises(DocmtError, match=message):
        read("a.tsv", data)


def test_windows_1252_is_read_where_its_letters_are_those_of_the_languages(read):
    data = "fur\tpelage mâle – l’été\n".encode("cp1252")
    glossary = read("a.csv", data)
    assert glossary.terms[0].targets == ("pelage mâle – l’été",)
    assert [row.reason for row in glossary.remarks] == ["is no UTF-8, and is read as Windows-1252 (all of the file)"]
    for languages in (("en", "hu"), ("en", "de"), ("", "")):
        with pytest.raises(DocmtError, match="not UTF-8"):
            read("a.csv", data, languages)


def test_a_first_row_like_a_header_is_remarked(read):
    glossary = read("a.csv", "Term;Foreign word\ncat;chat\n")
    assert [term.source for term in glossary.terms] == ["Term", "cat"]
    assert [row.reason for row in glossary.remarks] == ["looks like names of columns, but is read as a term"]
    assert not read("a.csv", "dog;chien\ncat;chat\n").remarks


def test_a_file_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("docmt.terms.glossary_files.MAX_BYTES", 2**20)
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress(b"cat\tchat\n" * 2**17))
    with pytest.raises(DocmtError, match="larger than 1 MiB: split it"):
        read_entries(path)


WRITTEN = Glossary(
    ("en", "fr-CA"),
    (
        Term("cat", ("chat", "matou"), ("minet",), note="a pet; 5 < 6"),
        Term('"A" & <B>', ("=1+1",), case=True),
        Term("Docker", ("Docker",), keep=True),
        Term("never", forbidden=('"jamais"', "onc")),
        Term("'s", ("'",)),
        Term("not", forbidden=("no",)),
    ),
)


@pytest.mark.parametrize("name", ["a.tsv", "a.tbx", "a.TSV.gz", "-"])
def test_what_is_written_is_read_again(name, read):
    text = find_writer(name)(WRITTEN)
    data = gzip.compress(text.encode()) if name.endswith("gz") else text
    again = read(name, data, ("en", "fr-CA"))
    assert again.terms == WRITTEN.terms
    assert again.checksum() == WRITTEN.checksum()
    assert not again.skipped


def test_what_cannot_be_written():
    with pytest.raises(DocmtError, match=r"end it in \.tsv or \.tbx"):
        find_writer("a.csv")
    with pytest.raises(DocmtError, match="which separates"):
        render_tsv(Glossary.from_pairs({"a|b": "c"}))
    with pytest.raises(DocmtError, match="add --from CODE"):
        render_tbx(Glossary.from_pairs({"a": "c"}))


def test_a_translation_that_alone_has_an_article_is_told(tmp_path):
    """Sentences have an article already. Names have one on both sides."""
    (tmp_path / "t.tsv").write_text("clinic\tla clinique\nwater\tl’eau\nThe Hague\tLa Haye\nplan\tle\nlaw\tlaxisme\n")
    glossary = Glossary.read(tmp_path / "t.tsv", languages=("en", "fr"))
    assert [(row.line, row.reason) for row in glossary.remarks] == [
        (1, "'la clinique' has an article, which may stand there twice: write 'clinique'"),
        (2, "'l’eau' has an article, which may stand there twice: write 'eau'"),
    ]
    (tmp_path / "t.tsv").write_text("clinique\tthe clinic\n")
    assert len(Glossary.read(tmp_path / "t.tsv", languages=("fr", "en")).remarks) == 1
    assert not Glossary.read(tmp_path / "t.tsv", languages=("fr", "sv")).remarks  # no table of its articles


def test_what_would_never_be_found_or_would_stand_in_the_text_is_told(tmp_path):
    rows = (
        "source;target;garder\nstaff;agents / agentes\nmeasure;mesure (f.)\nreport (noun);rapport\nto date;à ce jour\n"
    )
    (tmp_path / "t.csv").write_text(f"{rows}and/or;et/ou\nFifa (club);Fifa (club)\nA (b) / c;;oui\n")
    glossary = Glossary.read(tmp_path / "t.csv", languages=("en", "fr"))
    assert [(row.line, row.reason) for row in glossary.remarks] == [
        (2, "'agents / agentes' has a slash: write | between several translations"),
        (3, "'mesure (f.)' has brackets, which would stand in the text: move them to the note"),
        (4, "'report (noun)' is found only with its brackets: move them to the note"),
        (5, "'to date' is found only after 'to': write it without"),
        (7, "'Fifa (club)' is found only with its brackets: move them to the note"),
    ]
    assert glossary.terms[-1].keep and len(glossary.terms) == 7 and not glossary.skipped


def test_a_long_cell_of_signs_takes_no_time():
    """A pattern with two runs of signs beside each other would take hours."""
    file = read_table(f"no;fr;en\n{' -' * 60_000}x;chat;cat\n", "t.csv")
    assert len(file.entries) == 1
