"""Test sets for context by name or from files, and what is to be told of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from docmt.core.errors import DocmtError
from docmt.core.plain_text import GZIP_SUFFIX
from docmt.evaluation import suite_formats
from docmt.evaluation.suite_items import Item

_LANGUAGES = re.compile(r"[._]([a-z]{2})-([a-z]{2})(?=[._]|$)")


@dataclass(frozen=True)
class Suite:
    """A test set."""

    name: str
    items: tuple[Item, ...]
    languages: tuple[str, str] | None = None
    """codes of source and target; None where nothing says so"""

    @property
    def generative(self) -> bool:
        """Whether it asks for translations."""
        return not self.items[0].candidates

    def remarks(self) -> list[str]:
        """What somebody should know who reads its numbers, a sentence each."""
        alone = sum(not item.has_context for item in self.items)
        distinct = [len(set(item.candidates)) for item in self.items]
        equal = sum(1 < count < len(item.candidates) for count, item in zip(distinct, self.items, strict=True))
        found = (
            (alone, "have no context, so that nothing decides them"),
            (equal, "have candidates that are equal, which count as one"),
            (distinct.count(1), "have nothing but equal candidates, so that they are ties, which count as wrong"),
        )
        return [f"{count:,} of {len(self.items):,} items of {self.name} {what}" for count, what in found if count]

    def check_languages(self, model: str, languages: tuple[str, str]) -> None:
        """Raises DocmtError for a model that translates between other languages, as far as both are known."""
        for wanted, known in zip(self.languages or (), languages, strict=False):
            if known and re.split("[-_]", known.lower())[0] != wanted:
                raise DocmtError(
                    f"the test set {self.name} is {'-'.join(self.languages or ())}, but {model} translates "
                    f"{'-'.join(code or '?' for code in languages)}: name a model of its languages"
                )


SHIPPED = ("pronouns", "phenomena")
"""Names of the English-German test sets that come with docmt, in the synthetic language of `docmt demo`."""
_FOLDER = Path(__file__).with_name("test_sets")


def read_suite(given: Path | str) -> Suite:
    """The test set of that name or in that file. Raises DocmtError for a name that is unknown and a file that is none.

    The languages are those between dots in the name of the file: lcpt.en-fr.jsonl.
    """
    path = Path(given)
    if str(given) in SHIPPED and not path.is_file():
        return Suite(str(given), tuple(read_items(_FOLDER / f"{given}.en-de.jsonl.gz")), ("en", "de"))
    if not path.exists() and path.name == str(given) and not path.suffix:
        raise DocmtError(f"there is no test set {str(given)!r}: choose one of {', '.join(SHIPPED)}, or name a file")
    found = _LANGUAGES.search(path.name.removesuffix(GZIP_SUFFIX))
    return Suite(path.name, tuple(read_items(path)), (found[1], found[2]) if found else None)


def read_items(path: Path) -> list[Item]:
    """The items of a test set in any known format. Raises DocmtError, naming the line, for what is none."""
    return suite_formats.read_items(path)
