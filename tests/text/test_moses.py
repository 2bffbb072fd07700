"""Our reading of the Moses scripts against the library's, and the two repairs of it."""

import random

import pytest
import sacremoses

from docmt.core.errors import DocmtError
from docmt.text.bpe import CaseCounter, Moses, Truecaser, detruecase, moses, moses_language

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
    reference = sacremoses.MosesTruecaser()
    reference.train(train)
    counter = CaseCounter()
    for tokens in train:
        counter.add(tokens)
    truecaser = counter.build_truecaser()
    assert {word_forms[0].lower(): word_forms[0] for word_forms in truecaser.forms} == reference.model["best"]
    assert {form for word_forms in truecaser.forms for form in word_forms[1:]} == set(reference.model["known"])
    changed = 0
    for tokens in test:
        expected = reference.truecase(" ".join(tokens), use_known=True)
        assert truecaser.truecase(tokens) == expected
        assert detruecase(tokens) == sacremoses.MosesDetruecaser().detruecase(" ".join(tokens))
        changed += expected != tokens
    assert changed > 100


def test_counted_words_give_the_truecased_text() -> None:
    counter = CaseCounter()
    train = lines(40, 3)
    for tokens in train:
        counter.add(tokens)
    truecaser = counter.build_truecaser()
    expected = sorted(token for tokens in train for token in truecaser.truecase(tokens))
    tokens = [truecaser.truecase_token(*word) for word, count in counter.words.items() for _ in range(count)]
    assert sorted(tokens) == expected


def test_forms_of_different_words_in_one_group_are_refused() -> None:
    assert Truecaser([["a", "A"], ["b"]]).truecase(["A", "B"]) == ["a", "b"]
    for forms in ([["a", "b"]], [["a"], ["A"]], [["a"], ["b", "A"]]):
        with pytest.raises(ValueError, match="not grouped by word"):
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
    scripts = Moses(language)
    for text in texts:
        normal = normalizer.normalize(text)
        assert scripts.tokenize(text) == tokenizer.tokenize(normal)
        assert scripts.tokenize(text, split_hyphens=True) == tokenizer.tokenize(normal, aggressive_dash_splits=True)
        assert scripts.detokenize(scripts.tokenize(text)) == sacremoses.MosesDetokenizer(language).detokenize(
            tokenizer.tokenize(normal)
        )
    assert "@-@" in scripts.tokenize(texts[-1], split_hyphens=True)


def test_a_czech_rule_that_raises_in_the_library_is_left_out() -> None:
    tokens = ["to", "x'", "-", "li", "je"]
    with pytest.raises(TypeError):  # when this fails, the repair can go
        sacremoses.MosesDetokenizer("cs").detokenize(tokens)
    assert moses("cs").detokenize(tokens) == "to x' - li je"


def test_language_codes() -> None:
    assert [moses_language(code) for code in ("en", "EN", "en-GB", "en_XX", "mni")] == ["en", "en", "en", "en", "mni"]
    for code in ("", "english", "e", "12", "-en"):
        with pytest.raises(DocmtError, match=r"is not the code of a language\. Use two"):
            moses_language(code)
    assert moses("fr") is moses("fr")
