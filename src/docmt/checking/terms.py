"""Names and terms that are translated in several ways in a document.

Which words translate each other is told by the sentences of a file alone: two lexical models (IBM model 1, Brown et al.
1993), one in each direction, over the sets of word stems of each pair of sentences; a link is where both prefer each
other. Notation: N pairs of stems that stand in one pair of sentences (one for each sentence that they stand in), K
kinds of such pairs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from docmt.checking.findings import CheckConfig, Finding, Place, Spans, place
from docmt.checking.languages import (
    DETERMINERS,
    FUNCTION_WORDS,
    NOUNS_ARE_CAPITALISED,
    NUMBER_WORDS,
    Token,
    alike,
    folded,
    found_tokens,
    quoted,
    similar,
    stem,
    tokens,
    words,
)
from docmt.documents import ParallelDocument

Ids = NDArray[np.int64]
Values = NDArray[np.float64]
_ITERATIONS = 5
_COMMON = 0.5
"""Share of sentences in which a stem is no term."""
_LONGEST_SENTENCE = 500
"""Stems of a sentence in which links are looked for: of a longer one, which is none, all pairs would be too many."""
_PRIOR = 0.05
"""Added to the counts of every kind of pair (Moore 2004), or else rare words explain everything in their sentences."""
_LEAST_POSTERIOR = 0.3
"""Probability that a link has in both directions, at least."""


@dataclass(frozen=True)
class Links:
    """Links of stems, by sentence, and how often each link was found."""

    links: Sequence[tuple[tuple[str, str], ...]]
    """(source, target) of every link of each sentence, sentences counted through all documents"""
    counts: Counter[tuple[str, str]]
    """sentences with each link"""
    translated: Counter[str]
    """sentences in which a source stem has a link"""


def find_links(documents: Sequence[ParallelDocument], languages: tuple[str, str]) -> Links:
    """The links of all sentences of these documents."""
    sides = [_Side.of(documents, number, language) for number, language in enumerate(languages)]
    pairs = _Pairs.of(*sides)
    source, target = sides
    forward = _posteriors(pairs.kind, pairs.target_place, target, pairs.kind_source)
    backward = _posteriors(pairs.kind, pairs.source_place, source, pairs.kind_target)
    linked = _is_best(forward, pairs.target_place) & _is_best(backward, pairs.source_place)
    linked &= np.minimum(forward, backward) >= _LEAST_POSTERIOR
    return _named(pairs, source, target, linked)


def _named(pairs: _Pairs, source: _Side, target: _Side, linked: NDArray[np.bool_]) -> Links:
    """The links by the names of their stems."""
    kinds = pairs.kind[linked]
    sentence = source.sentence[pairs.source_place[linked]]
    found: list[list[tuple[str, str]]] = [[] for _ in range(source.sentences)]
    names = zip(pairs.kind_source[kinds].tolist(), pairs.kind_target[kinds].tolist(), strict=True)
    for where, (one, other) in zip(sentence.tolist(), names, strict=True):
        found[where].append((source.names[one], target.names[other]))
    counts = Counter(link for links in found for link in links)
    translated = Counter(name for links in found for name in {one for one, _ in links})
    return Links([tuple(links) for links in found], counts, translated)


@dataclass(frozen=True)
class _Side:
    """The distinct stems of all sentences of one language, laid end to end."""

    names: list[str]
    ids: Ids
    sentence: Ids
    """of each stem"""
    sentences: int

    @classmethod
    def of(cls, documents: Sequence[ParallelDocument], side: int, language: str) -> _Side:
        """Without function words and stems that stand in very many sentences."""
        passed = {stem(word) for word in FUNCTION_WORDS.get(language, ())}
        texts = (text for document in documents for text in (document.source, document.target)[side])
        found = [{each for each in map(stem, words(text)) if len(each) > 1} - passed for text in texts]
        spread = Counter(each for stems in found for each in stems)
        most = max(_COMMON * len(found), 20)
        names = [name for name, count in spread.items() if count <= most]
        numbers = {name: number for number, name in enumerate(names)}
        kept = [sorted(numbers[each] for each in stems if each in numbers) for stems in found]
        kept = [own if len(own) <= _LONGEST_SENTENCE else [] for own in kept]
        sizes = np.array([len(own) for own in kept], dtype=np.int64)
        flat = np.fromiter((id for own in kept for id in own), dtype=np.int64, count=int(sizes.sum()))
        return cls(names, flat, np.repeat(np.arange(len(kept)), sizes), len(kept))


@dataclass(frozen=True)
class _Pairs:
    """All pairs of stems of the two sides of a sentence, [N], and their kinds, [K]."""

    source_place: Ids  # [N], in _Side.ids
    target_place: Ids  # [N]
    kind: Ids  # [N]
    kind_source: Ids  # [K], the id of the source stem
    kind_target: Ids  # [K]

    @classmethod
    def of(cls, source: _Side, target: _Side) -> _Pairs:
        sizes = np.bincount(source.sentence, minlength=source.sentences)
        starts = np.cumsum(sizes) - sizes
        repeats = sizes[target.sentence]
        target_place = np.repeat(np.arange(len(target.ids)), repeats)
        before = np.cumsum(repeats) - repeats
        source_place = np.arange(len(target_place)) - np.repeat(before - starts[target.sentence], repeats)
        keys = source.ids[source_place] * len(target.names) + target.ids[target_place]
        kinds, kind = np.unique(keys, return_inverse=True)
        return cls(source_place, target_place, kind, *np.divmod(kinds, max(1, len(target.names))))


def _posteriors(kind: Ids, place: Ids, told: _Side, given: Ids) -> Values:
    """The probability [N] of each pair to be what explains its word.

    kind: [N]; place: [N] those of the words of `told` that are explained; given: [K] the ids of the stems that explain
    them. Beside these there is always nothing (NULL), which explains each word by its frequency.
    """
    nothing = (np.bincount(told.ids) / max(1, len(told.ids)))[told.ids]
    probability = np.full(len(given), 1 / max(1, len(told.names)))
    posterior = np.zeros(len(kind))
    for _ in range(_ITERATIONS):
        weights = probability[kind]
        posterior = weights / (np.bincount(place, weights, minlength=len(told.ids)) + nothing)[place]
        counts = np.bincount(kind, posterior, minlength=len(given))
        probability = counts / np.bincount(given, counts + _PRIOR)[given]
    return posterior


def _is_best(posterior: Values, place: Ids) -> NDArray[np.bool_]:
    """Whether a pair [N] is the most probable of its word."""
    best = np.zeros(int(place.max(initial=-1)) + 1)
    np.maximum.at(best, place, posterior)
    return posterior >= best[place]


SHORTEST_NAME = 3
_NOUN_SHARE = 0.25
"""Share of the occurrences of a word after a determiner from which on it is taken for a noun."""
_CLOSING_SHARE = 0.4
"""And share of those that end a phrase, which adjectives seldom do."""
_MANY_DOCUMENTS = 10
_NAME_SHARE = 0.75
"""Share of the occurrences of a word inside sentences that have a capital, from which on it is a name."""
_NO_NAME_AFTER = frozenset('.!?:…"“«(-')


@dataclass(frozen=True)
class WordKinds:
    """What kind of words the words of one side are."""

    nouns: frozenset[str]
    """stems"""
    names: frozenset[str]
    """words as they are written"""
    numerals: frozenset[str]
    """numbers in words"""

    @classmethod
    def of(cls, documents: Sequence[Sequence[str]], language: str, most: float = 1.0) -> WordKinds:
        """Nouns are told by the determiners before them and the ends of phrases after them (all words are, where a
        language has no determiners that are known), names by their capitals inside sentences.

        documents: of sentences; most: share of them, if they are many, that a noun stands in at most.
        """
        counts = _Counts.of((sentence for document in documents for sentence in document), language)
        spread = Counter(
            each for document in documents for each in {stem(word) for sentence in document for word in words(sentence)}
        )
        widest = most * len(documents) if len(documents) >= _MANY_DOCUMENTS else len(documents)
        nouns = (word for word in spread if spread[word] <= widest and counts.is_noun(word, language))
        names = (word for word in counts.capital if counts.is_name(word, language))
        numerals = (word for beginnings in NUMBER_WORDS.get(language, {}).values() for word in beginnings)
        return cls(frozenset(nouns), frozenset(names), frozenset(numerals))


@dataclass
class _Counts:
    """How often stems stand where nouns do, and how often words have capitals."""

    seen: Counter[str] = field(default_factory=Counter)
    after: Counter[str] = field(default_factory=Counter)
    """stems, after a determiner"""
    closing: Counter[str] = field(default_factory=Counter)
    """stems, before a function word, a mark or nothing"""
    inside: Counter[str] = field(default_factory=Counter)
    """folded words, where no sentence begins"""
    capital: Counter[str] = field(default_factory=Counter)
    """words as written, those of `inside` that have a capital"""

    @classmethod
    def of(cls, sentences: Iterable[str], language: str) -> _Counts:
        determiners = DETERMINERS.get(language, frozenset[str]())
        functions = FUNCTION_WORDS.get(language, frozenset[str]())
        counts = cls()
        for sentence in sentences:
            said = found_tokens(sentence)
            for number, (start, end, word) in enumerate(said):
                own = stem(word)
                counts.seen[own] += 1
                following = said[number + 1] if number + 1 < len(said) else None
                counts.closing[own] += (
                    following is None or following[2].lower() in functions or not sentence[end : following[0]].isspace()
                )
                if number == 0:
                    continue
                _, before, previous = said[number - 1]
                counts.after[own] += previous.lower() in determiners
                if not _NO_NAME_AFTER.intersection(sentence[before:start]):
                    counts.inside[folded(word)] += 1
                    if word[0].isupper():
                        counts.capital[word] += 1
        return counts

    def is_noun(self, stem: str, language: str) -> bool:
        if language not in DETERMINERS:
            return True
        times = self.seen[stem]
        return self.after[stem] >= _NOUN_SHARE * times and self.closing[stem] >= _CLOSING_SHARE * times

    def is_name(self, word: str, language: str) -> bool:
        if len(word) < SHORTEST_NAME or word.lower() in FUNCTION_WORDS.get(language, ()):
            return False
        cased = language not in NOUNS_ARE_CAPITALISED
        return (cased and self.capital[word] >= _NAME_SHARE * self.inside[folded(word)]) or _is_odd(word)


def _is_odd(word: str) -> bool:
    """Whether no ordinary word is written so: with digits or capitals inside."""
    return not word.isdecimal() and (any(map(str.isdigit, word)) or not (word.islower() or word[1:].islower()))


@dataclass
class Rendering:
    """One way in which a word is translated in a document."""

    word: str
    sentences: dict[int, Spans] = field(default_factory=dict)
    """where the word stands, by the numbers of its sentences"""


def rendered(
    kind: str, document: ParallelDocument, word: str, found: Sequence[Rendering], is_form: Callable[[str], bool]
) -> Finding:
    """A word with all ways in which it is translated, the commonest first; a sentence of each before the others.

    is_form: says of words of the source whether they are the one that this is about.
    """
    found = sorted(found, key=lambda each: -len(each.sentences))
    ways = "; ".join(f"{quoted([each.word])} in {_numbers(each.sentences)}" for each in found)
    firsts: list[Place] = []
    others: list[Place] = []
    for each in found:
        for at, (number, spans) in enumerate(each.sentences.items()):
            source = [(start, end) for start, end, said in tokens(document.source[number]) if is_form(said)]
            (others if at else firsts).append(place(document, number, source, spans))
    return Finding(kind, f"{quoted([word])} translated as {ways}", (*firsts, *others))


def _numbers(numbers: Collection[int]) -> str:
    """Sentences by number from 1, in words."""
    shown = ", ".join(str(number + 1) for number in numbers)
    return f"sentence{'s' * (len(numbers) > 1)} {shown}"


_WHOLE = 4
"""Letters of the shortest name that is looked for inside of words."""
_ENDING = 3
"""Letters of the longest ending of a name in languages that inflect them."""
_EDGE = 2
"""Letters by which words that may hold a name are looked up."""
_INFLECTS_NOT = frozenset({"en", "fr", "es", "it", "pt", "nl"})


def names(
    document: ParallelDocument, config: CheckConfig, vocabulary: WordKinds, target_language: str
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
        self.theirs = [word for _, _, word in self.said]
        self.places = {word: place for place, word in reversed([*enumerate(self.ours)])}
        """the first place of each word of the source"""
        self.edges: dict[str, dict[str, int]] = {}
        """the words of the translation by how they begin, and how they end, with their first places"""
        self.capitals: dict[str, dict[str, int]] = {}
        """those with a capital that are no other known name, by their first letter, with their last places"""
        for position, (_, _, word) in enumerate(self.said):
            bare = folded(word)
            for edge in (bare[:_EDGE], bare[-_EDGE:]):
                self.edges.setdefault(edge, {}).setdefault(word, position)
            if word[0].isupper() and bare not in known:
                own = self.capitals.setdefault(bare[:1], {})
                own.pop(word, None)  # so that words are in the order of their last places
                own[word] = position

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
        for word, position in self.capitals.get(folded(name)[:1], {}).items():
            if (share := similar(name, word, best)) >= best:
                best, found = share, position
        return found

    def _is_part(self, name: str, place: int) -> bool:
        """Whether the name is a part of a longer one that was copied, which need not be translated as the part is."""
        at = self.places[name]
        before, after = self.theirs[max(0, place - 1) : place], self.theirs[place + 1 : place + 2]
        same_before = before == self.ours[max(0, at - 1) : at]
        return bool(before and same_before) or bool(after and after == self.ours[at + 1 : at + 2])


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
        same.sentences[number] = ((start, end),)

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


_SHORTEST_TERM = 4
"""Letters of the shortest term."""
_INFLECTION = 2
"""Letters of the longest ending of a term."""


def terms(
    first: int, document: ParallelDocument, config: CheckConfig, sides: tuple[WordKinds, WordKinds], links: Links
) -> Iterator[Finding]:
    """Nouns whose translation is settled in the file, and which are another noun as well in this document.

    first: the number of the first sentence of the document, as `links` counts them.
    """
    linked = defaultdict[str, dict[str, list[int]]](lambda: defaultdict(list))
    for number in range(len(document)):
        for one, other in links.links[first + number]:
            linked[one][other].append(number)
    forms = _forms(document, linked)
    for source, targets in linked.items():
        if len(source) < _SHORTEST_TERM or source not in sides[0].nouns or len(targets) < 2:
            continue
        established = _established(source, targets, config, sides[1], links)
        if sum(len(targets[target]) for target in established) < config.term_occurrences or len(established) < 2:
            continue
        form = forms[source].most_common(1)[0][0]
        found = _renderings(form, {target: targets[target] for target in established}, document)
        if sum(len(each.sentences) for each in found) < config.term_occurrences or form in sides[0].numerals:
            continue
        if len(found) > 1:
            yield rendered("term", document, form, found, partial(_is_inflected, form))


def _established(source: str, targets: Iterable[str], config: CheckConfig, words: WordKinds, links: Links) -> list[str]:
    """The translations of a stem in a document that it has in other places too, if one of them is the usual one.

    Of two that may be forms of one word the commoner one is taken.
    """
    by_count = sorted(targets, key=lambda target: -links.counts[source, target])
    if links.counts[source, by_count[0]] < config.term_share * links.translated[source]:
        return []
    found: list[str] = []
    for target in by_count:
        enough = links.counts[source, target] >= config.term_evidence and target in words.nouns
        if enough and not any(alike(target, other) for other in found):
            found.append(target)
    return found


def _renderings(form: str, targets: dict[str, list[int]], document: ParallelDocument) -> list[Rendering]:
    """The translations of a word with their sentences, but for those that have words of two of them."""
    found = []
    for target, numbers in targets.items():
        others = [other for other in targets if other != target]
        rendering = Rendering(target)
        words = Counter[str]()
        for number in numbers:
            said = tokens(document.target[number])
            if any(alike(word, other) for _, _, word in said for other in others if len(word) > 2):
                continue
            if any(_is_inflected(form, word) for _, _, word in tokens(document.source[number])):
                own = [token for token in said if stem(token[2]) == target]
                rendering.sentences[number] = tuple((start, end) for start, end, _ in own)
                words.update(word for _, _, word in own)
        if rendering.sentences:
            rendering.word = words.most_common(1)[0][0]
            found.append(rendering)
    return found


def _forms(document: ParallelDocument, wanted: Collection[str]) -> dict[str, Counter[str]]:
    """How often each word of the document stands there, by those stems that are wanted."""
    found = {source: Counter[str]() for source in wanted}
    for sentence in document.source:
        for _, _, word in tokens(sentence):
            if (own := found.get(stem(word))) is not None:
                own[word] += 1
    return found


def _is_inflected(one: str, other: str) -> bool:
    """Whether two words are one but for a short ending (commitments, commitment; not committee)."""
    one, other = sorted((folded(one), folded(other)), key=len)
    return other.startswith(one) and len(other) - len(one) <= _INFLECTION and len(one) >= _SHORTEST_TERM
