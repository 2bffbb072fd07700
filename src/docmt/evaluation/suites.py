"""Test sets for context by name or from files, and what is to be told of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from docmt.core.errors import DocmtError
from docmt.core.plain_text import GZIP_SUFFIX
from docmt.evaluation import suite_formats
from docmt.evaluation.suite_items import Item
from docmt.synthetic import contrastive_items, generate, generate_phenomena, phenomenon_items
from docmt.synthetic.corpus import ContrastiveItem

SEED = 5_303
"""Of the test sets that are made; not a seed that anybody is likely to make a training corpus with."""
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


def _pronouns() -> list[ContrastiveItem]:
    return contrastive_items(generate(150, SEED))


def _phenomena() -> list[ContrastiveItem]:
    return list(phenomenon_items(generate_phenomena(288, SEED)))


MADE: Mapping[str, Callable[[], list[ContrastiveItem]]] = {"pronouns": _pronouns, "phenomena": _phenomena}
"""English-German test sets of the synthetic language, written when they are asked for, always the same."""


def read_suite(given: Path | str) -> Suite:
    """The test set of that name or in that file. Raises DocmtError for a name that is unknown and a file that is none.

    The languages are those between dots in the name of the file: lcpt.en-fr.jsonl.
    """
    path = Path(given)
    if str(given) in MADE and not path.is_file():
        items = [_item(made, str(given)) for made in MADE[str(given)]()]
        return Suite(str(given), tuple(items), ("en", "de"))
    if not path.exists() and path.name == str(given) and not path.suffix:
        raise DocmtError(f"there is no test set {str(given)!r}: choose one of {', '.join(MADE)}, or name a file")
    found = _LANGUAGES.search(path.name.removesuffix(GZIP_SUFFIX))
    return Suite(path.name, tuple(read_items(path)), (found[1], found[2]) if found else None)


def _item(made: ContrastiveItem, name: str) -> Item:
    phenomenon = getattr(made, "phenomenon", name.removesuffix("s"))
    return Item(made.id, phenomenon, made.distance, made.source, made.candidates, made.correct, made.sentence)


def read_items(path: Path) -> list[Item]:
    """The items of a test set in any known format. Raises DocmtError, naming the line, for what is none."""
    return suite_formats.read_items(path)
