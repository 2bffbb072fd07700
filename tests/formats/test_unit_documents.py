"""Units as documents of sentences, and back."""

from docmt.formats.unit_documents import SentenceTranslation, UnitDocuments
from docmt.formats.units import Code, Unit, UnitFile


class Listed(UnitFile):
    """A file that is its units."""

    def write(self, units, language=""):
        return "\n".join(unit.render() for unit in units).encode()


def bold(text, start, end):
    return Unit(text, (Code(start, "open", "1", "<b>"), Code(end, "close", "1", "</b>")))


UNITS = [bold("One two. Three four.", 0, 7), Unit("12"), bold("Five six.", 5, 8), Unit("Seven.")]


def test_sentences_are_cut_inside_of_units():
    documents = UnitDocuments(Listed(UNITS, document_starts=[0, 3]), "en", "book")
    assert [document.sentences for document in documents.documents] == [
        ("One two.", "Three four.", "Five six."),
        ("Seven.",),
    ]
    assert [document.id for document in documents.documents] == ["book 1", "book 2"]
    assert documents.documents[0].text() == "One two. Three four.\n\n12\n\nFive six."
    assert [documents.needs_alignment(0, n) for n in range(3)] == [True, False, True]


def test_translations_go_back_to_their_units():
    documents = UnitDocuments(Listed(UNITS), "en")
    targets = [["Eins zwei.", "Drei vier.", "Sechs fünf.", "Sieben."]]
    links = {2: [(5, 8, 0, 5), (0, 4, 6, 10)]}
    rows = [[SentenceTranslation(text, links.get(n), -n) for n, text in enumerate(row)] for row in targets]
    translated = documents.translate(rows)
    assert documents.file.write(translated.units).decode().split("\n") == [
        "<b>Eins zwei</b>. Drei vier.",
        "12",
        "<b>Sechs</b> fünf.",
        "Sieben.",
    ]
    assert [each.score for each in translated.sentences] == [0, -1, -2, -3]
    for unit, spans in zip(translated.units, translated.target_spans, strict=True):
        assert all(unit.text[start:end] in targets[0] for start, end in spans)
    assert sum(map(len, translated.target_spans)) == 4


def test_a_file_without_units_has_an_empty_document():
    documents = UnitDocuments(Listed([]), "en")
    assert [len(document) for document in documents.documents] == [0]
    assert documents.translate([[]]).units == []


def test_symbols_stay():
    documents = UnitDocuments(Listed([Unit(text) for text in ("X", "kV", "One two.", "ºC")]), "en")
    assert documents.documents[0].sentences == ("One two.",)
    assert documents.documents[0].text() == "X\n\nkV\n\nOne two.\n\nºC"
    translated = documents.translate([[SentenceTranslation("Eins zwei.")]])
    assert [unit.text for unit in translated.units] == ["X", "kV", "Eins zwei.", "ºC"]


def test_codes_stay_where_a_translation_equals_its_source():
    codes = (Code(0, "open", "1", "<a>"), Code(4, "close", "1", "</a>"), Code(9, "single", "2", "<x/>"))
    unit = Unit("John met Ann there.", codes)
    documents = UnitDocuments(Listed([unit]), "en")
    crossed = [(0, 4, 13, 18), (13, 18, 0, 4)]
    assert documents.translate([[SentenceTranslation(unit.text, crossed)]]).units == [unit]
