"""Names that are not written in one way in all translations of a document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set

from docmt.checking.config import CheckConfig
from docmt.checking.finding import Finding
from docmt.checking.renderings import Rendering, rendered
from docmt.checking.vocabulary import SHORTEST_NAME, Vocabulary
from docmt.checking.words import Token, folded, similar, tokens
from docmt.documents import ParallelDocument

_WHOLE = 4
"""Letters of the shortest name that is looked for inside of words."""
_ENDING = 3
"""Letters of the longest ending of a name in languages that inflect them."""
_EDGE = 2
"""Letters by which words that may hold a name are looked up."""
_INFLECTS_NOT = frozenset({"en", "fr", "es", "it", "pt", "nl"})


def names(
    document: ParallelDocument, config: CheckConfig, vocabulary: Vocabulary, target_language: str
) -> Iterator[Finding]:
    """Names that are copied, or written in nearly the same way, in one sentence and in another way in another one.

    The time grows with the words of the document alone, however long it or a sentence is.
    """
    standing = [
        list(dict.fromkeys(word for _, _, word in tokens(sentence) if word in vocabulary.names))
        for sentence in document.source
    ]
    occurrences = Counter(name for own in standing for name in own)
    known = {folded(name) for name in occurrences}
    spellings = {name: _Spellings(name, target_language) for name, count in occurrences.items() if count > 1}
    for number, own in enumerate(standing):
        if wanted := [name for name in own if name in spellings]:
            pair = _Pair(document.source[number], document.target[number], known)
            for name in wanted:
                if (spelled := pair.spelled(name, config.name_similarity)) is not None:
                    spellings[name].add(spelled, number)
    for name, found in spellings.items():
        if len(found.renderings) > 1 and any(_holds(each.word, name) for each in found.renderings):
            yield rendered("name", document, name, found.renderings, name.__eq__)


class _Pair:
    """The words of a sentence and of its translation, by how they are written: each is looked at once, and not again
    for every name."""

    def __init__(self, source: str, target: str, known: Set[str]) -> None:
        """known: names, folded, which are no spellings of other names."""
        self.ours = [word for _, _, word in tokens(source)]
        self.said = tokens(target)
        self.places = {word: place for place, word in reversed([*enumerate(self.ours)])}
        """the first place of each word of the source"""
        self.edges: dict[str, dict[str, int]] = {}
        """the words of the translation by how they begin, and how they end, with their first places"""
        self.capitals: dict[str, dict[str, int]] = {}
        """those with a capital that are no other known name, by their first letter, with their last places"""
        for place, (_, _, word) in enumerate(self.said):
            bare = folded(word)
            for edge in (bare[:_EDGE], bare[-_EDGE:]):
                self.edges.setdefault(edge, {}).setdefault(word, place)
            if word[0].isupper() and bare not in known:
                own = self.capitals.setdefault(bare[:1], {})
                own.pop(word, None)  # so that words are in the order of their last places
                own[word] = place

    def spelled(self, name: str, least: float) -> Token | None:
        """The word of the translation that is most like the name, if any is like it, and if the name is not a part of a
        longer one."""
        place = self._holding(name)
        if place is None:
            place = self._similar(name, least)
        return None if place is None or self._is_part(name, place) else self.said[place]

    def _holding(self, name: str) -> int | None:
        """The first word that holds the name."""
        bare = folded(name)
        found = {**self.edges.get(bare[:_EDGE], {}), **self.edges.get(bare[-_EDGE:], {})}
        return min((place for word, place in found.items() if _holds(word, name)), default=None)

    def _similar(self, name: str, least: float) -> int | None:
        """The most similar word, of several the last one."""
        best, found = least, None
        for word, place in self.capitals.get(folded(name)[:1], {}).items():
            if (share := similar(name, word, best)) >= best:
                best, found = share, place
        return found

    def _is_part(self, name: str, place: int) -> bool:
        """Whether the name is a part of a longer one that was copied, which need not be translated as the part is."""
        at = self.places[name]
        said = [word for _, _, word in self.said[max(0, place - 1) : place + 2]]
        before, after = said[: place > 0], said[1 + (place > 0) :]
        return bool(before and before == self.ours[max(0, at - 1) : at]) or bool(
            after and after == self.ours[at + 1 : at + 2]
        )


class _Spellings:
    """The ways in which a name is written in a document."""

    def __init__(self, name: str, language: str) -> None:
        self.name, self.language = name, language
        self.renderings: list[Rendering] = []
        self._by_start: dict[str, list[int]] = {}
        """numbers of renderings by what two forms of one word have in common: all but an ending"""
        self._copy: list[int] = []
        """the number of the first rendering that holds the name"""

    def add(self, spelled: Token, number: int) -> None:
        """Counts a rendering with the first one that it is a form of."""
        start, end, word = spelled
        bare = folded(word)
        starts = {bare[: max(0, len(bare) - ending)] for ending in range(_ENDING + 1)}
        candidates = sorted({*self._copy, *(found for each in starts for found in self._by_start.get(each, ()))})
        forms = (own for own in map(self.renderings.__getitem__, candidates) if self._is_form(own.word, word))
        if (same := next(forms, None)) is None:
            same = Rendering(word)
            for each in starts:
                self._by_start.setdefault(each, []).append(len(self.renderings))
            if not self._copy and _holds(word, self.name):
                self._copy = [len(self.renderings)]
            self.renderings.append(same)
        same.add(number, ((start, end),))

    def _is_form(self, one: str, other: str) -> bool:
        """Whether two spellings of the name are one, with the endings that their places in sentences ask for.

        Where one of them is the name as it stands in the source, only languages that inflect names write it otherwise.
        """
        copies = [_holds(word, self.name) for word in (one, other)]
        if all(copies):
            return True
        one, other = sorted((folded(one), folded(other)), key=len)
        ending = 0 if any(copies) and self.language in _INFLECTS_NOT else _ENDING
        common = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
        return common >= SHORTEST_NAME and len(other) - common <= ending


def _holds(word: str, name: str) -> bool:
    """Whether the word is the name, perhaps with an ending or in a compound, which then has a capital as well."""
    if len(word) > len(name) + _ENDING and not word[0].isupper():
        return False
    word, name = folded(word), folded(name)
    if len(name) < _WHOLE:
        return word.startswith(name) and len(word) <= len(name) + _ENDING
    return word.startswith(name) or word.endswith(name)
