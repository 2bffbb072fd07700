"""Which short texts are symbols, and which are words."""

import pytest

from docmt.documents.words import find_words, is_symbol


@pytest.mark.parametrize("text", ["X", "kV", "ºC", "°C", "mA", "µm", "m/s", " kg ", "Ω", "кг", "(b)", "km²"])
def test_labels_and_units_are_symbols(text):
    assert is_symbol(text)


@pytest.mark.parametrize("text", ["", "No", "Hi", "OK", "I?", "Él", "Да", "Dr.", "kWh", "the", "我", "いえ", "لا"])
def test_words_are_not(text):
    assert not is_symbol(text)


def test_soft_hyphens_are_within_words():
    text = "The Com\u00admis\u00adsion\u00ad, \u00adhere."
    assert [text[start:end] for start, end in find_words(text)] == ["The", "Com\u00admis\u00adsion", ",", "here", "."]
