"""What finds terms for the models of a service: glossaries of the server, and those of requests beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
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
        for path in paths:
            file, problems = _read_file(path, list(builders)), []
            for builder in builders.values():
                try:
                    builder.add(file)
                except DocmtError as error:  # it is for other languages
                    problems.append(error)
            if len(problems) == len(builders):
                raise problems[0]
        glossaries = {pair: builder.build() for pair, builder in builders.items() if builder.terms}
        for pair, glossary in glossaries.items():
            replace(glossary, skipped=tuple(builders[pair].skipped)).log_problems()  # rows of other languages are usual
        self._server = {pair: TermMatcher(glossary, mode) for pair, glossary in glossaries.items()}

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


def _read_file(path: str, pairs: Sequence[tuple[str, str]]) -> EntryFile:
    """Return the entries of a file. In Windows-1252, its letters must be those of a pair of languages."""
    for pair in pairs[:-1]:
        with suppress(DocmtError):
            return read_entries(path, pair)
    return read_entries(path, pairs[-1])


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
