"""Words, symbols, and what models read of the characters of documents, in translation and in training."""

import pytest
from tiny_model import save_tiny_model

import docmt
from docmt import Document
from docmt.data import PrepareConfig, prepare
from docmt.documents.words import find_words, is_symbol, normalize_characters

ODD = "a\u00a0few \u202fwo\u00adrds\u200b, mu\u0308de\ufeff co\u2011op \ufb01n"
PLAIN = "a few  words, m\u00fcde co-op fin"


def test_characters():
    assert normalize_characters(ODD) == PLAIN
    kept = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \u3000 \u201ca\u201d \u2013 \u2019"
    assert normalize_characters(kept) == kept  # a joiner, an ideographic space, quotes and dashes
    assert normalize_characters("ascii\t ") == "ascii\t "


def test_a_translation_depends_on_plain_characters_alone(tmp_path):
    translator = docmt.Translator(save_tiny_model(tmp_path / "model"))
    odd, plain = (translator.translate(Document.from_sentences([text])) for text in (ODD, PLAIN))
    assert odd.document == plain.document and odd.sentences[0].score == plain.sentences[0].score
    assert odd.sentences[0].source == ODD
    scores = [translator.score(Document.from_sentences([text]), odd.document).score for text in (ODD, PLAIN)]
    assert scores[0] == scores[1]
    links = translator.align([odd])[0].sentences[0].alignment
    assert links and all(0 <= start < end <= len(ODD) for start, end in (link.source for link in links))


def test_stores_have_plain_characters_of_the_source(tmp_path):
    stores = []
    for name, text in (("odd", ODD), ("plain", PLAIN)):
        for side in ("en", "fr"):
            (tmp_path / f"{name}.{side}").write_text(f"{text if side == 'en' else ODD}\n" * 20)
        files = [tmp_path / f"{name}.en", tmp_path / f"{name}.fr"]
        languages = {"source_language": "en", "target_language": "fr", "vocabulary_size": 280}
        stores.append(prepare(PrepareConfig(tmp_path / name, train=files, **languages)))
    names = [path.name for path in (stores[0].directory / "train").iterdir()]
    assert len(names) > 2
    for name in names:
        contents = {(store.directory / "train" / name).read_bytes() for store in stores}
        assert len(contents) == 1, name


@pytest.mark.parametrize("text", ["X", "kV", "ºC", "°C", "mA", "µm", "m/s", " kg ", "Ω", "кг", "(b)", "km²"])
def test_labels_and_units_are_symbols(text):
    assert is_symbol(text)


@pytest.mark.parametrize("text", ["", "No", "Hi", "OK", "I?", "Él", "Да", "Dr.", "kWh", "the", "我", "いえ", "لا"])
def test_words_are_not(text):
    assert not is_symbol(text)


def test_soft_hyphens_are_within_words():
    text = "The Com\u00admis\u00adsion\u00ad, \u00adhere."
    assert [text[start:end] for start, end in find_words(text)] == ["The", "Com\u00admis\u00adsion", ",", "here", "."]
