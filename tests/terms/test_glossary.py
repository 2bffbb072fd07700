"""Glossaries: what terms may be, which rows fit two languages, and what becomes of rows with one source."""

import pytest

from docmt import DocmtError
from docmt.terms import Glossary, SkippedRow, Term


@pytest.fixture
def read(tmp_path):
    """A function that writes files of rows, and reads them as one glossary."""

    def read_all(*texts, languages=("en", "fr")):
        paths = [tmp_path / f"{number}.tsv" for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8", newline="")
        return Glossary.read(*paths, languages=languages)

    return read_all


def test_pairs_of_python_are_a_glossary():
    glossary = Glossary.from_pairs({"thesis": ["mémoire", "thèse"], "cat": "chat"}, languages=("en", "fr"))
    assert glossary.terms == (Term("thesis", ("mémoire", "thèse")), Term("cat", ("chat",)))
    assert Glossary.from_pairs([("cat", "chat"), ("cat", "matou")]).terms == (Term("cat", ("chat", "matou")),)
    with pytest.raises(DocmtError, match=r"terms, entry 2: '\.' has neither letters nor digits"):
        Glossary.from_pairs([("cat", "chat"), (".", "point")])


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        (".", "point", "neither letters nor digits"),
        ("— …", "tiret", "neither letters nor digits"),
        ("", "chat", "no source term"),
        ("\u200b", "chat", "no source term"),
        ("cat", "", "'cat' has no translation"),
        ("cat", "\u00a0", "'cat' has no translation"),
        ("c\x07at", "chat", r"control character U\+0007"),
        ("c\x85at", "chat", r"control character U\+0085"),
        ("c\u2028at", "chat", r"control character U\+2028"),
        ("cat", "\u202echat", r"control character U\+202E"),
        ("cat", "\u2066chat", r"control character U\+2066"),
        ("é" * 513, "chat", "longer than 1,024 bytes"),
        ("cat", "a" * 10_000, "longer than 1,024 bytes"),
    ],
)
def test_a_text_that_can_be_no_term_is_skipped_with_its_reason(source, target, reason, read):
    glossary = read(f"dog\tchien\n{source}\t{target}\n")
    assert glossary.terms == (Term("dog", ("chien",)),)
    assert [row.line for row in glossary.skipped] == [2]
    with pytest.raises(DocmtError, match=reason):
        read(f"{source}\t{target}\n")


def test_texts_are_composed_and_their_spaces_and_invisible_characters_folded(read):
    terms = read("cafe\u0301  au\u00a0lait \tcafé\u00ad cre\u0301me\n=SUM(1)\t-x\n%\tpour cent\nper cent\t%\n").terms
    assert terms == (Term("café au lait", ("café créme",)), Term("=SUM(1)", ("-x",)), Term("per cent", ("%",)))
    assert len(read(f"{'é' * 512}\tchat\n").terms) == 1


def test_rows_with_one_source_are_one_term_in_their_order(read):
    glossary = read("cat\tchat\ndog\tchien\ncat\tmatou\ncat\tchat\n", "dog\tchien\ncat\tminet\n")
    assert glossary.terms == (Term("cat", ("chat", "matou", "minet")), Term("dog", ("chien",)))
    assert glossary.duplicates == 2
    assert not glossary.skipped


HEADER = "source\ttarget\tforbidden\tkeep\tcase\tnote\n"


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        ("Apple\tpomme", "Apple\tApple\t\t\tyes", "only one of them has 'case'"),
        ("Apple\tApple", "Apple\t\t\tyes", "only one of them has 'keep'"),
        ("Apple\tpomme", "Apple\t\tpomme", "'pomme' is allowed and forbidden"),
    ],
)
def test_rows_that_contradict_each_other_are_an_error_that_names_both(first, second, problem, read):
    with pytest.raises(DocmtError, match=rf"0\.tsv, line 3: 'Apple' is also in .*0\.tsv, line 2, but {problem}"):
        read(f"{HEADER}{first}\n{second}\n")
    with pytest.raises(DocmtError, match=r"1\.tsv, line 2: 'Apple' is also in .*0\.tsv, line 2"):
        read(f"{HEADER}{first}\n", f"{HEADER}{second}\n")


def test_flags_notes_and_forbidden_translations(read):
    glossary = read(
        f"{HEADER}cat\tchat | matou\tminet|félin\tno\tYES\ta pet\nDocker\t\t\tx\nDocker Hub\tDocker Hub\t\tyes\n"
        "dog\tclebs\tyes\nkept\tgardé\t\tyes\ncow\tvache\tvache\nowl\thibou\t\tmaybe\n"
    )
    assert glossary.terms == (
        Term("cat", ("chat", "matou"), ("minet", "félin"), case=True, note="a pet"),
        Term("Docker", ("Docker",), keep=True),
        Term("Docker Hub", ("Docker Hub",), keep=True),
        Term("dog", forbidden=("clebs",)),
    )
    assert [(row.line, row.reason) for row in glossary.skipped] == [
        (6, "'kept' is not to be translated, but has the translation 'gardé'"),
        (7, "'vache' is both allowed and forbidden"),
        (8, "the column 'keep' has 'maybe': write yes or no"),
    ]


MANY = "en\tpt-BR\tpt-PT\tger\nbus\tônibus\tautocarro\tBus\ntrain\ttrem\t\tZug\n"


@pytest.mark.parametrize(
    ("languages", "terms"),
    [
        (("en", "pt-PT"), {"bus": ["autocarro"], "train": ["trem"]}),
        (("en", "pt-br"), {"bus": ["ônibus"], "train": ["trem"]}),
        (("eng_Latn", "por"), {"bus": ["ônibus", "autocarro"], "train": ["trem"]}),
        (("en-GB", "de-AT"), {"bus": ["Bus"], "train": ["Zug"]}),
        (("deu", "en"), {"Bus": ["bus"], "Zug": ["train"]}),
        (("pt-BR", "pt-PT"), {"ônibus": ["autocarro"]}),
    ],
)
def test_the_language_that_fits_best_is_taken(languages, terms, read):
    assert {term.source: list(term.targets) for term in read(MANY, languages=languages).terms} == terms


def test_of_rows_with_languages_those_that_fit_best_count(read):
    rows = "bus\tônibus\ten\tpt-BR\nbus\tautocarro\ten-US\tpt-PT\ntrem\ttrain\tpt\ten\nbus\tBus\ten\tde\n"
    glossary = read(rows, languages=("en", "pt-PT"))
    assert glossary.terms == (Term("bus", ("autocarro",)),) == read(rows[::1], languages=("en-US", "pt-PT")).terms
    assert {row.line: row.reason for row in glossary.skipped}[3] == "it is pt to en"
    assert "fits better" in {row.line: row.reason for row in glossary.skipped}[1]


def test_a_file_without_a_usable_term_names_its_languages(read):
    with pytest.raises(
        DocmtError, match=r"no term for en to ja \(its languages are de, en, pt-BR, pt-PT\): line 2, it has"
    ):
        read(MANY, languages=("en", "ja"))
    with pytest.raises(
        DocmtError, match=r"1\.tsv has no term for fr to en \(its languages are en, fr\): line 1, it is en to fr"
    ):
        read("chat\tcat\n", "cat\tchat\ten\tfr\n", languages=("fr", "en"))
    with pytest.raises(DocmtError, match=r"0\.tsv has no terms"):
        read("source\ttarget\n")


def test_an_unknown_language_is_never_guessed(read):
    assert read("cat\tchat\n", languages=("", "")).languages == ("", "")
    assert read("cat\tchat\ten\tfr-CA\n", languages=("", "")).languages == ("en", "fr-CA")
    assert read("en\tfr\ncat\tchat\n", languages=("fr", "")) == read("fr\ten\nchat\tcat\n", languages=("", "en"))
    for text in (MANY, "en\tfr\ncat\tchat\n", "cat\tchat\ten\tfr\ncat\tKatze\ten\tde\n"):
        with pytest.raises(DocmtError, match=r"is for several pairs of languages, .*: say which one is wanted"):
            read(text, languages=("", ""))


def test_the_checksum_is_that_of_the_content(read):
    assert read("cat\tchat\ndog\tchien\n").checksum() == read("cat\tchat\n", "dog;chien\n").checksum()
    others = ["dog\tchien\ncat\tchat\n", "cat\tchat\ndog\tchiens\n", f"{HEADER}cat\tchat\t\t\tyes\ndog\tchien\n"]
    assert len({read(text).checksum() for text in [*others, "cat\tchat\ndog\tchien\n"]}) == 4


def test_skipped_rows_are_named_by_file_and_line(read):
    glossary = read("cat\tchat\n\n;\n.\tpoint\n")
    assert [row.line for row in glossary.skipped] == [3, 4]
    assert glossary.skipped[0] == SkippedRow(glossary.skipped[1].path, 3, "it has one column")
