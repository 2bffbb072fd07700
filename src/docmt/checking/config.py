"""What is looked for in a translation, and from where on it is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from docmt.core.settings import MANY, check_fields, ranged

KINDS: Mapping[str, str] = {
    "sentence_count": "documents whose translation has another number of sentences",
    "empty": "sentences without a translation",
    "untranslated": "sentences left as they are in the source, or in its language",
    "loop": "words that are said again and again",
    "duplicate": "different sentences with the same translation",
    "length": "translations that are far too short or too long for their source",
    "number": "numbers that are lost or new",
    "url": "web and mail addresses that are lost or new",
    "placeholder": "placeholders and tags that are lost or new",
    "bracket": "brackets without their partners",
    "name": "names translated in several ways in a document",
    "term": "terms translated in several ways in a document",
    "repetition": "the same sentence translated in several ways in a document",
    "formality": "formal and informal address in a document",
}
"""What is looked for, by the names that options and JSON have for it, in the order of reports."""
CERTAINTIES = ("sure", "likely", "possible")


@dataclass(frozen=True)
class CheckConfig:
    """From where on something in a translation is told; a share is between 0 and 1."""

    source_language: str = ""
    """code of the language of the source, such as en; found by its commonest words if left out"""
    target_language: str = ""
    """code of the language of the translation, as source_language. Formality needs it, numbers in words do too"""
    certainty: Literal["sure", "likely", "possible"] = "likely"
    """the least certain findings that are shown; less certain ones are counted"""
    length_factor: float = ranged(2.0, 1, 1000)
    """a translation is too short or too long by this factor, against the ratio of characters in the whole file"""
    length_deviation: float = ranged(6.0, 0, 1000)
    """and lies this many (robust) standard deviations off; they grow with the root of the length (Gale and Church
    1993), so that short sentences may differ more"""
    loop_repetitions: int = ranged(3, 2, 1000)
    """how often one or two words follow each other to be a loop; of three words and more, twice are enough"""
    duplicate_words: int = ranged(6, 1, 1000)
    """words that a translation of several different sentences has at least"""
    similarity: float = ranged(0.5, 0, 1)
    """share of words that two source sentences have in common to be the same in other words: their translations may
    be equal"""
    copied_share: float = ranged(0.8, 0, 1)
    """share of the words of a translation that stand in its source, in the same order, to be left untranslated"""
    number_words: int = ranged(12, 0, 100)
    """numbers up to this one may be written in words in languages whose number words are not known"""
    term_occurrences: int = ranged(3, 2, MANY)
    """sentences of a document with a term, at least, to ask whether it is translated in one way"""
    term_share: float = ranged(0.6, 0, 1)
    """share of the commonest translation of a term in the whole file, at least: words without one are no terms"""
    term_documents: float = ranged(0.2, 0, 1)
    """share of the documents of a file (of ten and more) that a term stands in at most: it is what some are about"""
    term_evidence: int = ranged(3, 1, MANY)
    """sentences of the file in which a word translates the term, at least, to be one of its translations"""
    name_similarity: float = ranged(0.7, 0, 1)
    """share of letters that a word has in common with a name to be another spelling of it"""
    repetition_words: int = ranged(4, 1, 1000)
    """words that a source sentence has at least, to be asked whether it is translated in one way"""
    portion: int = ranged(25_000, 100, MANY)
    """sentences checked together: memory grows with it; what words translate each other is found in a portion alone"""

    def __post_init__(self) -> None:
        check_fields(self, "check.")
