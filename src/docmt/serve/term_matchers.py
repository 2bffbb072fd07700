"""What finds terms for the models of a service: glossaries of the server, and those of requests beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from weakref import WeakValueDictionary

from docmt.core.errors import DocmtError
from docmt.terms.glossary import Glossary, GlossaryBuilder
from docmt.terms.glossary_files import read_entries
from docmt.terms.glossary_tables import Entry, EntryFile, EntryWord, split_alternatives
from docmt.terms.matching import TermMatcher, TermMode

_KEPT_TERMS = 200_000
"""Terms that stay in memory though no text has them (about 1.5 kB each)."""
_MOST_TERMS = 1_000_000
"""Terms of all texts that are translated; others wait."""
_WAIT_SECONDS = 0.1


class TermMatchers:
    """Matchers by languages of models and entries of requests. Each is made once, and dropped when it is not used."""

    def __init__(self, paths: Sequence[str], mode: TermMode, languages: Mapping[str, tuple[str, str]]) -> None:
        """paths: glossaries of the server. languages: of the models, by name.

        Raises DocmtError for files that cannot be read, that have no term for any model, or that contradict each other.
        """
        self._languages, self._mode = languages, mode
        self._made: WeakValueDictionary[tuple[tuple[str, str], str], TermMatcher] = WeakValueDictionary()
        self._recent: list[TermMatcher] = []  # the last one first
        self._lock = asyncio.Lock()
        builders = {pair: GlossaryBuilder(pair) for pair in languages.values()}
        only = next(iter(builders)) if len(builders) == 1 else ("", "")
        for file in (read_entries(path, only) for path in paths):
            problems = []
            for builder in builders.values():
                try:
                    builder.add(file)
                except DocmtError as error:  # it is for other languages
                    problems.append(error)
            if len(problems) == len(builders):
                raise problems[0]
        self._server = {pair: TermMatcher(builder.build(), mode) for pair, builder in builders.items() if builder.terms}

    def find(self, model: str) -> TermMatcher | None:
        """Return the matcher of the server's terms, if there are any for a model."""
        return self._server.get(self._languages[model])

    async def make(self, model: str, entries: str) -> TermMatcher:
        """Return the matcher of entries of a request, which win over the server's terms.

        entries: lines of a source, a tab and its target, perhaps several with | between them.
        """
        key = self._languages[model], entries
        async with self._lock:  # one at a time, as it takes seconds of a large glossary
            while (matcher := self._made.get(key)) is None and _count(self._made.values()) > _MOST_TERMS:
                await asyncio.sleep(_WAIT_SECONDS)
            if matcher is None:
                glossary = await asyncio.to_thread(_read_terms, *key)
                matcher = self._made[key] = await asyncio.to_thread(TermMatcher, glossary, self._mode, self.find(model))
            self._recent = [matcher, *(each for each in self._recent if each is not matcher)]
            while len(self._recent) > 1 and _count(self._recent) > _KEPT_TERMS:
                self._recent.pop()
        return matcher


def _count(matchers: Iterable[TermMatcher]) -> int:
    """Return the number of terms."""
    return sum(len(each.glossary.terms) for each in matchers)


def _read_terms(languages: tuple[str, str], entries: str) -> Glossary:
    """Return the terms of entries. One without letters and digits is no term."""
    file, builder = EntryFile("the glossary", "TSV"), GlossaryBuilder(languages)
    for line, row in enumerate(entries.split("\n"), 1):
        source, target = row.split("\t")
        words = [EntryWord(text) for text in (source, *(split_alternatives(target) or [target]))]
        file.entries.append(Entry(line, words, directed=True))
    with suppress(DocmtError):  # it has no term
        builder.add(file)
    return builder.build()
