"""Our reading of the Moses scripts against the library's, and the two repairs of it."""

import random

import pytest
import sacremoses

from docmt.core.errors import DocmtError
from docmt.text.moses import CaseCounter, Moses, Truecaser, detruecase, moses, moses_language

WORDS = [
    "the",
    "The",
    "THE",
    "cat",
    "Cat",
    "iPhone",
    "a",
    "A",
    "1996",
    "5",
    "&amp;",
    "&apos;s",
    "là",
    "Là",
    "über",
    "i.",
]
MARKS = [".", ":", "?", "!", "(", "[", '"', "'", "&apos;", "&quot;", "&#91;", "&#93;", ",", "-", "..."]


def lines(count: int, seed: int) -> list[list[str]]:
    chance = random.Random(seed)
    return [chance.choices(WORDS * 2 + MARKS, k=chance.randint(1, 14)) for _ in range(count)]


def test_truecasing_is_that_of_the_library() -> None:
    train, test = lines(60, 1), lines(300, 2)
    theirs = sacremoses.MosesTruecaser()
    theirs.train(train)
    counter = CaseCounter()
    for tokens in train:
        counter.add(tokens)
    ours = counter.truecaser()
    assert {of_word[0].lower(): of_word[0] for of_word in ours.forms} == theirs.model["best"]
    assert {form for of_word in ours.forms for form in of_word[1:]} == set(theirs.model["known"])
    changed = 0
    for tokens in test:
        expected = theirs.truecase(" ".join(tokens), use_known=True)
        assert ours.truecase(tokens) == expected
        assert detruecase(tokens) == sacremoses.MosesDetruecaser().detruecase(" ".join(tokens))
        changed += expected != tokens
    assert changed > 100


def test_counted_words_give_the_truecased_text() -> None:
    counter = CaseCounter()
    train = lines(40, 3)
    for tokens in train:
        counter.add(tokens)
    truecaser = counter.truecaser()
    expected = sorted(token for tokens in train for token in truecaser.truecase(tokens))
    found = [truecaser.word(*word) for word, count in counter.words.items() for _ in range(count)]
    assert sorted(found) == expected


def test_forms_that_do_not_stand_together() -> None:
    assert Truecaser([["a", "A"], ["b"]]).truecase(["A", "B"]) == ["a", "b"]
    for forms in ([["a", "b"]], [["a"], ["A"]], [["a"], ["b", "A"]]):
        with pytest.raises(ValueError, match="stand together"):
            Truecaser(forms)


@pytest.mark.parametrize("language", ["en", "de", "fr", "cs", "ru", "xx"])
def test_tokens_are_those_of_the_library(language: str) -> None:
    texts = [
        "Mr. Smith lives in the U.S. since Jan. 5. He went. no. 7 ended.",
        "Das ist z.B. Nr. 5 od. ähnl. Straßen.",
        "L'homme n'est pas là… « oui » !",
        "Он жил в г. Москве. 你好，世界。 a.b.c x. y",
        "well-known & e-mail <b> [c] | d",
    ]
    normalizer, tokenizer = sacremoses.MosesPunctNormalizer(language), sacremoses.MosesTokenizer(language)
    ours = Moses(language)
    for text in texts:
        normal = normalizer.normalize(text)
        assert ours.tokenize(text) == tokenizer.tokenize(normal)
        assert ours.tokenize(text, split_hyphens=True) == tokenizer.tokenize(normal, aggressive_dash_splits=True)
        assert ours.detokenize(ours.tokenize(text)) == sacremoses.MosesDetokenizer(language).detokenize(
            tokenizer.tokenize(normal)
        )
    assert "@-@" in ours.tokenize(texts[-1], split_hyphens=True)


def test_a_czech_rule_that_raises_in_the_library_is_left_out() -> None:
    tokens = ["to", "x'", "-", "li", "je"]
    with pytest.raises(TypeError):  # when this fails, the repair can go
        sacremoses.MosesDetokenizer("cs").detokenize(tokens)
    assert moses("cs").detokenize(tokens) == "to x' - li je"


def test_language_codes() -> None:
    assert [moses_language(code) for code in ("en", "EN", "en-GB", "en_XX", "mni")] == ["en", "en", "en", "en", "mni"]
    for code in ("", "english", "e", "12", "-en"):
        with pytest.raises(DocmtError, match="is not the code of a language; give one"):
            moses_language(code)
    assert moses("fr") is moses("fr")
