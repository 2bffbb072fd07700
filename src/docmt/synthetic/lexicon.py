"""Words and sentence patterns of the synthetic language, read from the YAML files of this package."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from docmt.core.settings import read_package_yaml


class Gender(StrEnum):
    """The grammatical gender of a German noun."""

    MASCULINE = "masculine"
    FEMININE = "feminine"
    NEUTER = "neuter"


class Case(StrEnum):
    """The grammatical cases of the synthetic language."""

    NOMINATIVE = "nominative"
    ACCUSATIVE = "accusative"
    DATIVE = "dative"


def _table(nominative: str, accusative: str, dative: str) -> dict[tuple[Case, Gender], str]:
    """Return words by case and gender; each argument lists masculine, feminine and neuter."""
    rows = zip(Case, (nominative, accusative, dative), strict=True)
    return {(case, gender): word for case, row in rows for gender, word in zip(Gender, row.split(), strict=True)}


PRONOUNS = _table("er sie es", "ihn sie es", "ihm ihr ihm")
INDEFINITE_ARTICLES = _table("ein eine ein", "einen eine ein", "einem einer einem")
DEFINITE_ARTICLES = _table("der die das", "den die das", "dem der dem")
# Endings of an adjective after the indefinite (mixed declension) and the definite article (weak declension).
INDEFINITE_ENDINGS = _table("er e es", "en e es", "en en en")
DEFINITE_ENDINGS = _table("e e e", "en e e", "en en en")


@dataclass(frozen=True)
class Word:
    """A word or phrase without inflection."""

    english: str
    german: str

    def __str__(self) -> str:
        return self.german


@dataclass(frozen=True)
class Noun(Word):
    """A topic noun in English and German, with the gender that decides the pronoun."""

    gender: Gender


@dataclass(frozen=True)
class NounPhrase:
    """A noun with article and adjective, or a name, in English and in the German cases."""

    english: str
    nominative: str
    accusative: str
    dative: str

    def __str__(self) -> str:
        return self.nominative


@dataclass(frozen=True)
class Person(NounPhrase):
    """A person. `possessive` is the English word (his, her)."""

    possessive: str


@dataclass(frozen=True)
class Room:
    """A room. German distinguishes its location (`at`, dative) from a destination (`to`, accusative)."""

    english: str
    at: str
    to: str


@dataclass(frozen=True)
class Trait(Word):
    """A property of a thing. A thing never gets two traits of one `aspect`."""

    aspect: str
    good: bool
    gradable: bool


@dataclass(frozen=True)
class Attribute:
    """An adjective before a noun; `stem` takes the German ending."""

    english: str
    stem: str
    aspect: str


@dataclass(frozen=True)
class SentencePattern:
    """One sentence of a story in both languages. `case` is that of its pronoun, or None."""

    english: str
    german: str
    case: Case | None = None
    aspects: tuple[str, ...] = ()
    last: bool = False

    @property
    def names_location(self) -> bool:
        """True if the sentence names a location, to which a following "it" might refer."""
        return any(slot in self.german for slot in ("{place}", "{outdoors}", "{landmark}"))


class Line(NamedTuple):
    """A sentence in both languages, with slots or without."""

    source: str
    target: str


def _parse_pattern(row: list[str], case: Case | None = None) -> SentencePattern:
    english, german, *labels = row
    return SentencePattern(english, german, case, tuple(label for label in labels if label != "last"), "last" in labels)


_LEXICON, _STORIES = read_package_yaml(__package__, "lexicon.yaml"), read_package_yaml(__package__, "stories.yaml")

NOUNS = tuple(
    Noun(english, german, gender) for gender in Gender for english, german in _LEXICON["nouns"][gender].items()
)
PEOPLE = (
    *(Person(name, name, name, name, possessive) for possessive, names in _LEXICON["names"].items() for name in names),
    *(Person(*row) for row in _LEXICON["relatives"]),
)
TRAITS = tuple(Trait(row[0], row[1], row[2], row[3] == "good", "gradable" in row) for row in _LEXICON["traits"])
ATTRIBUTES = tuple(Attribute(*row) for row in _LEXICON["attributes"])
ROOMS = tuple(Room(*row) for row in _LEXICON["rooms"])
WORDS = {slot: tuple(Word(*pair) for pair in words.items()) for slot, words in _LEXICON["words"].items()}
INTRODUCTIONS = tuple(map(_parse_pattern, _STORIES["introductions"]))
MENTIONS = tuple(_parse_pattern(row, case) for case in Case for row in _STORIES["mentions"][case])
DISTRACTORS = tuple(map(_parse_pattern, _STORIES["distractors"]))
