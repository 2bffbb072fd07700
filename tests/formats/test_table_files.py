"""TSV and CSV: only cells of named columns change."""

import csv
import io

import pytest
from generated_files import check_files, read_mutants
from hypothesis import strategies as st

from docmt.core.errors import DocmtError
from docmt.formats.table_files import read
from docmt.formats.units import ReadConfig, Unit

TSV = 'id\ttext \tnote\r\n1\tA "word"\tkeep\r\n\r\n2\r\n3\t12\tx\n4\tMore text\t\n'
CSV = 'id,text,"a note"\r\n1,"One, two","say ""hi"""\r\n2,Plain,"two\nlines"\r\n'


def parse(text, name, *fields):
    return read(text.encode(), name, ReadConfig(fields))


def texts(file):
    return [unit.text for unit in file.units]


def test_columns_of_tsv():
    file = parse(TSV, "x.tsv", "text")
    assert [(unit.id, unit.text) for unit in file.units] == [("row 2, text", 'A "word"'), ("row 6, text", "More text")]
    assert file.write(file.units, "cs").decode() == TSV
    new = file.write([Unit('[Ťéxt]\t<&\n">'), Unit("b")]).decode()
    assert new == TSV.replace('A "word"', '[Ťéxt] <& ">').replace("More text", "b")
    assert texts(parse(TSV, "x.tsv", "note", "2")) == ['A "word"', "keep", "x", "More text"]


@pytest.mark.parametrize("name", ["-", "x", "x.csv.gz"])
def test_csv_without_its_name_is_found_by_its_first_row(name):
    assert texts(parse(CSV, name, "text")) == ["One, two", "Plain"]
    assert texts(parse(CSV.replace(",", ";"), name, "text")) == ["One; two", "Plain"]


def test_tsv_without_its_name_keeps_its_quotes():
    assert texts(parse('id\ttext, long\n1\t"A", she said\n', "-", "2")) == ["text, long", '"A", she said']


def test_quoted_cells_of_tsv():
    """As spreadsheets and pandas write them."""
    table = 'id\ttext\n1\t"Two\nlines"\n2\t"say ""hi"""\n3\tplain\n'
    file = parse(table, "x.tsv", "text")
    assert texts(file) == ["Two lines", 'say "hi"', "plain"]
    assert file.write(file.units).decode() == table
    new = file.write([file.units[0], Unit('"Hallo"'), Unit("a\tb")]).decode()
    assert new == 'id\ttext\n1\t"Two\nlines"\n2\t"""Hallo"""\n3\t"a\tb"\n'
    speech = 'id\ttext\n1\t"I am tired.\n2\tI go home."\n3\tShe left.\n'
    assert texts(parse(speech, "x.tsv", "text")) == ['"I am tired.', 'I go home."', "She left."]
    assert texts(parse('text\n"I am tired.\nI go home."\n', "x.tsv", "text")) == ['"I am tired.', 'I go home."']
    assert texts(parse('id\ttext\n1\t"All"\n', "x.tsv", "text")) == ['"All"']
    for row in ('1\t"A" is a letter', '1\t"A', '1\t"A\t"B'):
        assert texts(parse(f"id\ttext\n{row}\n", "x.tsv", "text")) == [row.split("\t")[1]]


def test_numbers_without_names_take_the_first_row():
    assert texts(parse("One\tTwo\nThree\tFour\n", "x.tsv", "2")) == ["Two", "Four"]


def test_columns_of_csv():
    file = parse(CSV, "x.csv", "text", "a note")
    assert texts(file) == ["One, two", 'say "hi"', "Plain", "two lines"]
    assert file.write(file.units).decode() == CSV
    new = file.write([Unit("a"), Unit('"'), Unit("x, y"), file.units[3]]).decode()
    assert new == 'id,text,"a note"\r\n1,"a",""""\r\n2,"x, y","two\nlines"\r\n'


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_separators(separator):
    text = f'"a,b;c"{separator}b{separator}d\n1{separator}Text{separator}\n'
    file = parse(text, "x.CSV", "b")
    assert texts(file) == ["Text"]
    assert file.write([Unit(f"x{separator}y")]).decode() == text.replace("Text", f'"x{separator}y"')


def test_marks_and_placeholders():
    data = "a\nHello %s\n".encode("utf-8-sig")
    file = read(data, "x.csv", ReadConfig(("a",)))
    assert texts(file) == ["Hello"] and file.write(file.units) == data
    file = parse("a\n{n, plural, other {#}}\nYes\n", "x.tsv", "a")
    assert texts(file) == ["Yes"] and file.skipped[0].reason == "ICU messages"


@pytest.mark.parametrize(
    ("text", "name", "fields", "message"),
    [
        (TSV, "x.tsv", ("txt",), "no column txt. Its columns are id, text, note"),
        (TSV, "x.tsv", ("4",), "no column 4"),
        (TSV, "x.tsv", ("0",), "no column 0"),
        (TSV, "x.tsv", (), "--fields. The columns are id, text, note"),
        ("", "x.csv", ("a",), "no column"),
        ('a\n"b', "x.csv", ("a",), "line 2: a cell begins with a quote"),
        ('a\n"b"c', "x.csv", ("a",), "line 2: text after the closing quote"),
    ],
)
def test_broken_input(text, name, fields, message):
    with pytest.raises(DocmtError, match=message):
        parse(text, name, *fields)


@pytest.mark.parametrize("name", ["x.tsv", "x.csv"])
def test_other_encodings_are_refused(name):
    with pytest.raises(DocmtError, match="not UTF-8"):
        read("a\n\u00e9t\u00e9 long text".encode("cp1252"), name, ReadConfig(("a",)))


CELLS = st.text(st.sampled_from('ab ,;"\n\té%s{}'), max_size=6)


@check_files(
    st.lists(st.tuples(CELLS, CELLS), max_size=5), st.sampled_from([",", ";", "\t"]), st.sampled_from(["\n", "\r\n"])
)
def test_generated_files(rows, separator, newline):
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=separator, lineterminator=newline).writerows([("x", "y"), *rows])
    text = buffer.getvalue()
    file = parse(text, "x.csv", "y")
    assert file.write(file.units).decode() == text
    new = file.write([Unit('Ťé,;"xt')] * len(file.units)).decode()
    table = list(csv.reader(io.StringIO(new, newline=""), delimiter=separator))
    assert [row[0] for row in table] == ["x", *(row[0] for row in rows)]
    assert sum(row[1] == 'Ťé,;"xt' for row in table) == len(file.units)


@pytest.mark.full
def test_mutants():
    for name, text in (("x.csv", CSV), ("x.tsv", TSV)):
        assert list(read_mutants(lambda data, name=name: read(data, name, ReadConfig(("2",))), text.encode()))
