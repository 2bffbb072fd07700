"""Words of a sentence, and the characters of tokens, for tokenizers that keep, change or drop characters."""

import pytest

from docmt.documents.words import find_words
from docmt.text import BpeTokenizer, MosesBpeTokenizer
from docmt.text.tokenizer import locate_tokens

CORPUS = ["a few words that are written, and others", "It's said: \"don't go\" & l'été (œuvre).", "漢字かな"] * 20


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("It's 3,5 km!", ["It", "'", "s", "3", ",", "5", "km", "!"]),
        ("漢字かな ไทย x", ["漢", "字", "か", "な", "ไ", "ท", "ย", "x"]),
        ("e\u0301te\u0301 \u0e01\u0e34\u0e19", ["e\u0301te\u0301", "\u0e01\u0e34", "\u0e19"]),
        ("한국어 слово", ["한국어", "слово"]),
        (" \n", []),
    ],
)
def test_words(sentence, words):
    assert [sentence[slice(*span)] for span in find_words(sentence)] == words


@pytest.fixture(scope="module")
def tokenizers():
    sided = [(side, sentence) for side in ("source", "target") for sentence in CORPUS]
    return {"bpe": BpeTokenizer.train(CORPUS, 320), "moses": MosesBpeTokenizer.train(sided, 350, ("en", "fr"))}


@pytest.mark.parametrize("kind", ["bpe", "moses"])
@pytest.mark.parametrize(
    "sentence", [*CORPUS[:3], "A FEW words", "It's  said:\n don't", "Ω few Ωέ words", "ﬁve 𝒂 few", "", " ", "?!"]
)
def test_tokens_cover_the_words_in_order(tokenizers, kind, sentence):
    tokenizer = tokenizers[kind]
    ids = tokenizer.encode(sentence, "target")
    (spans,) = locate_tokens(tokenizer, [sentence], [ids], "target")
    assert len(spans) == len(ids)
    assert all(0 <= start <= end <= len(sentence) for start, end in spans)
    assert spans == sorted(spans)
    covered = {position for span in spans for position in range(*span)}
    assert {position for span in find_words(sentence) for position in range(*span)} <= covered


def test_tokens_of_bytes_share_their_character(tokenizers):
    sentence = "few Ω words"
    ids = tokenizers["bpe"].encode(sentence, "source")
    (spans,) = locate_tokens(tokenizers["bpe"], [sentence], [ids], "source")
    assert spans.count((4, 5)) >= 2
    assert (0, 3) in spans and spans[-1][1] == len(sentence)
