"""Names and noun phrases that a text repeats, and how each of them is translated, by links of words."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from docmt.checking.languages import FUNCTION_WORDS, are_related, fold, stem, tokenize
from docmt.checking.lexical_model import SentenceWords, link_words
from docmt.checking.terms import find_nouns
from docmt.documents.words import Span, WordLink

_MOST_WORDS, _LEAST_LETTERS = 3, 4
"""Words of the longest phrase, and letters of the shortest one."""
_MORE_WORDS = 3
"""How many words more than the phrase its translation may have."""
_BLOCK, _LONGEST = 20_000, 200
"""Sentences in which words are linked by counts together, and words of the longest of them."""
Lemma = Callable[[str], str]
"""Returns the same for all forms of a word."""
Phrases = Sequence[Sequence[tuple[Span, tuple[str, ...]]]]
"""The phrases of each sentence that do not overlap: characters, and base forms of the words."""
Links = Mapping[int, Sequence[WordLink]]
"""By the number of the sentence."""


@dataclass(frozen=True)
class Rendering:
    """An occurrence of a phrase, and its translation."""

    sentence: int
    source: Span
    source_text: str
    text: str
    key: tuple[str, ...]
    """base forms of its words"""


@dataclass(frozen=True)
class RepeatedPhrase:
    """A phrase with its translations as far as they are known, the most frequent one first."""

    text: str
    """its most frequent form"""
    groups: Sequence[Sequence[Rendering]]
    """forms of one translation are together"""

    @property
    def total(self) -> int:
        """How many translations are known."""
        return sum(map(len, self.groups))


class _Nouns:
    """The nouns and names of a text."""

    def __init__(self, sentences: Sequence[str], language: str) -> None:
        self.functions = FUNCTION_WORDS.get(language, frozenset())
        self._nouns = find_nouns([sentences], language)
        others = [word for text in sentences for _, _, word in tokenize(text)[1:]]
        small = {word for word in others if word[0].islower()}
        self._names = {fold(word) for word in others if word[0].isupper() and word.lower() not in small}

    def __contains__(self, word: str) -> bool:
        return word.isalpha() and (stem(word) in self._nouns or fold(word) in self._names)

    def is_function(self, word: str) -> bool:
        """Return whether a word only joins others."""
        return word.lower() in self.functions or len(word) == 1


def find_repeated_phrases(sentences: Sequence[str], language: str, lemma: Lemma) -> Phrases:
    """Return the nouns, names and phrases that end in one which a text repeats; longer ones win."""
    nouns = _Nouns(sentences, language)
    found = [list(_list_phrases(sentence, nouns, lemma)) for sentence in sentences]
    counts = Counter(key for phrases in found for _, key in phrases)
    chosen = []
    for phrases in found:
        rows, taken = [], set[int]()
        for span, key in phrases:
            if counts[key] > 1 and taken.isdisjoint(range(*span)):
                rows.append((span, key))
                taken.update(range(*span))
        chosen.append(sorted(rows))
    return chosen


def _list_phrases(sentence: str, nouns: _Nouns, lemma: Lemma) -> Iterator[tuple[Span, tuple[str, ...]]]:
    """Yield the phrases of a sentence, the longest ones first."""
    tokens = tokenize(sentence)
    for size in range(_MOST_WORDS, 0, -1):
        for first in range(len(tokens) - size + 1):
            part = tokens[first : first + size]
            words, start, end = [word for _, _, word in part], part[0][0], part[-1][1]
            if (
                words[-1] in nouns
                and end - start >= _LEAST_LETTERS
                and all(word.isalpha() and not nouns.is_function(word) for word in words)
                and all(sentence[one[1] : other[0]] in (" ", "-") for one, other in pairwise(part))
            ):
                yield (start, end), tuple(map(lemma, words))


def find_renderings(
    pairs: Sequence[tuple[str, str]], phrases: Phrases, links: Links, language: str, lemma: Lemma
) -> list[RepeatedPhrase]:
    """Return the phrases of a text with their translations, where these are words with a noun or name.

    phrases, links: by the number of the sentence. language, lemma: of the translation.
    """
    nouns = _Nouns([target for _, target in pairs], language)
    found: dict[tuple[str, ...], list[Rendering]] = defaultdict(list)
    for number, ((source, target), rows) in enumerate(zip(pairs, phrases, strict=True)):
        for span, key in rows:
            if translated := _find_translation(target, span, len(key), links.get(number, ()), nouns):
                (start, end), words = translated
                text = target[start:end]
                found[key].append(Rendering(number, span, source[slice(*span)], text, tuple(map(lemma, words))))
    repeated = []
    for renderings in found.values():
        groups: dict[tuple[str, ...], list[Rendering]] = defaultdict(list)
        for each in renderings:
            groups[each.key].append(each)
        ordered = sorted(groups.values(), key=lambda group: -len(group))
        repeated.append(RepeatedPhrase(most_common_text([each.source_text for each in renderings]), ordered))
    return repeated


def _find_translation(
    target: str, span: Span, size: int, links: Sequence[WordLink], nouns: _Nouns
) -> tuple[Span, list[str]] | None:
    """Return the words that translate a phrase, without function words: their characters, and the words."""
    mutual = [(span[0] <= link.source[0] < span[1], link.target[0]) for link in links if link.mutual]
    starts, others = ({start for is_inside, start in mutual if is_inside == side} for side in (True, False))
    tokens = [token for token in tokenize(target) if starts and min(starts) <= token[0] <= max(starts)]
    if len(tokens) > size + _MORE_WORDS or any(token[0] in others for token in tokens):
        return None
    tokens = [token for token in tokens if not nouns.is_function(token[2])]
    words = [word for _, _, word in tokens]
    return ((tokens[0][0], tokens[-1][1]), words) if any(word in nouns for word in words) else None


def most_common_text(texts: Collection[str]) -> str:
    """Return the most frequent text, the shortest of several; in small letters if it ever is."""
    counts = Counter(texts)
    merged = Counter({text: counts[text] + counts[text[:1].upper() + text[1:]] * text[:1].islower() for text in counts})
    return min(merged, key=lambda text: (-merged[text], len(text), text))


def is_other_rendering(one: Rendering, usual: Rendering) -> bool:
    """Return whether two translations have no word in common, nor forms of one; of a copied name, any other."""
    if usual.text.split()[-1] == usual.source_text.split()[-1]:
        return one.key != usual.key
    return not any(are_related(a, b) for a in one.key for b in usual.key)


def link_by_counts(pairs: Sequence[tuple[str, str]], languages: tuple[str, str], lemmas: tuple[Lemma, Lemma]) -> Links:
    """Return links of words that occur once in their sentence, learned from the sentences alone (IBM model 1)."""
    links: dict[int, list[WordLink]] = defaultdict(list)
    for first in range(0, len(pairs), _BLOCK):
        sides, positions = [], []
        for texts, language, lemma in zip(
            zip(*pairs[first : first + _BLOCK], strict=True), languages, lemmas, strict=True
        ):
            ids: dict[str, int] = {}
            functions = FUNCTION_WORDS.get(language, frozenset())
            rows = [
                [(ids.setdefault(lemma(word), len(ids)), (start, end)) for start, end, word in tokenize(text)
                 if word.lower() not in functions][:_LONGEST]
                for text in texts
            ]  # fmt: skip
            sides.append(SentenceWords.from_tokens([[id for id, _ in row] for row in rows], len(ids)))
            positions.append([dict(row) for row in rows])
        words, linked = link_words(*sides)
        for one, other in zip(words.source_index[linked].tolist(), words.target_index[linked].tolist(), strict=True):
            number = int(sides[0].sentence[one])
            source, target = (
                rows[number][int(side.ids[index])]
                for side, rows, index in zip(sides, positions, (one, other), strict=True)
            )
            links[first + number].append(WordLink(source, target, 1.0, True))
    return links
