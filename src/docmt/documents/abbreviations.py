"""Abbreviations, initials and ordinals, whose full stop ends no sentence: tables of words, and how they are read.

abbreviations.yaml has three tables for each of seven languages. The full stop of a word ends no sentence whatever
follows (`always`: titles), before a number (`before_number`), or before a capital, unless the next word is one that
often begins sentences (`before_name`). For other languages sentencex decides.
"""

from __future__ import annotations

import re

from docmt.core.settings import read_package_yaml

_TABLES = read_package_yaml(__package__, "abbreviations.yaml")
_STARTERS = {language: frozenset(words.split()) for language, words in _TABLES.pop("starters").items()}
"""Words that begin sentences, by language."""
_ORDINALS = {name: "|".join(patterns.split()) for name, patterns in _TABLES.pop("german_ordinals").items()}
GERMAN_ORDINAL_NOUN = rf"(?:{_ORDINALS['before']})(?!\w)"
"""German ordinals have a full stop: "3. Oktober" at the start of a line is a date, not item 3 of a list."""


def _index_tables(language: str) -> dict[str, set[str]]:
    """Return the names of the tables that have a word, by its forms: as written, with a capital, in capitals."""
    index: dict[str, set[str]] = {}
    for name, table in _TABLES.items():
        for word in f"{table.get('all', '')} {table[language]}".split():
            forms = {word, word.capitalize() if word.islower() else word}
            for form in forms if name == "before_name" else {*forms, word.upper()}:
                index.setdefault(form, set()).add(name)
    return index


_ABBREVIATIONS = {language: _index_tables(language) for language in _STARTERS}

_WORD_BEFORE_STOP = re.compile(r"(?<![\w.-])[^\W\d_]+(?=\.\s)")
_LAST_WORD = re.compile(r"(?<![\w.-])(?<!['’](?=\w\.))(\w(?:[\w-]|\.(?=[\w-]))*)\.$")
_LAST_INITIAL = re.compile(r"(?<![^\s(\[.„“\"«'’–-])[^\W\d_]\.$")
_WITHOUT_VOWELS = re.compile(r"(?<![\w.'’-])(?<!\d\s)[^\W\d_aeiouyAEIOUYÀ-ÿ][b-df-hj-np-tv-xz]{1,5}\.$")
"""An abbreviation in any language: Sgt, Blk. After a number it is a unit, which may end a sentence: 5 km."""
_TWO_STOPS = re.compile(r"\.\s\S+$")
_FIRST_WORD = re.compile(r"(?:[^\W\d_]['’]|[^\W\d_]+)(?![\w.])")
_NUMBER = re.compile(r"[§#(]?\d|[A-Z]{1,5}[-/]?\d|[IVXLC]{2,}\b|[B-HJ-Z]\b(?!['’])|[AI](?=[.,;:)\d–]|$| (?:of|and)\b)")
_GERMAN_ORDINAL = re.compile(r"(?<![\w.,])\d{1,3}\.$")
_GERMAN_NOUN = re.compile(GERMAN_ORDINAL_NOUN)
_ORDINAL_AFTER_DETERMINER = re.compile(
    rf"\b(?i:{_ORDINALS['after']}) (?:\d{{1,3}}\.,? ?(?:und|oder|bis|[/–-])? ?)*(?:\d{{1,3}}|[IVXL]+)\.$"
)


def hide_words(text: str, language: str) -> str:
    """Return the text, of the same length, with words before a full stop as no abbreviation that sentencex knows.

    Its lists have words such as no, ill and mar, after which it would end no sentence.
    """
    if language not in _STARTERS:
        return text
    return _WORD_BEFORE_STOP.sub(lambda word: f"{word[0][:-1][:1]:ø<{len(word[0])}}", text)


def is_abbreviated(preceding: str, following: str, language: str) -> bool:
    """Return whether the full stop at the end of a text ends no sentence, as far as abbreviations tell.

    preceding: the sentence up to the full stop. following: the text after it, without white space at its start.
    """
    initial = _LAST_INITIAL.search(preceding)
    tables = _find_tables(preceding, language)
    if "always" in tables or ("before_number" in tables and _NUMBER.match(following)):
        return True
    if following.lstrip('"“«„')[:1].islower():
        return bool(initial or tables)
    if language not in _STARTERS or following[0].isdigit() or _starts_sentence(following, language):
        return False
    if initial and initial[0].isupper() and following[0] != "-":
        return True
    first = following.split(maxsplit=1)[0]
    if (tables or initial) and (
        _TWO_STOPS.search(preceding) or _LAST_INITIAL.match(first) or _find_tables(first, language)
    ):
        return True  # "Reg. No. 5", "a. D."
    if not following[0].isupper():
        return False
    is_dated = _GERMAN_ORDINAL.search(preceding) and _GERMAN_NOUN.match(following)
    is_ordinal = language == "de" and bool(is_dated or _ORDINAL_AFTER_DETERMINER.search(preceding))
    return "before_name" in tables or is_ordinal


def _find_tables(text: str, language: str) -> set[str]:
    """Return the names of the tables that have the word before the full stop at the end of a text."""
    abbreviations, word = _ABBREVIATIONS.get(language, {}), _LAST_WORD.search(text)
    if word is None or not abbreviations:
        return set()
    forms = (word[1], word[1].rpartition("-")[2], f"-{word[1][-3:]}")
    tables = next((abbreviations[form] for form in forms if form in abbreviations), set())
    return tables | {"before_number"} if _WITHOUT_VOWELS.search(text) else tables


def _starts_sentence(text: str, language: str) -> bool:
    """Return whether the text begins with a word that often begins sentences."""
    word = _FIRST_WORD.match(text)
    return word is not None and word[0].replace("’", "'") in _STARTERS[language]
