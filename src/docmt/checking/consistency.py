"""Names and terms that a document translates inconsistently.

Word translations are learned from the sentences of a file alone: two lexical models (IBM model 1, Brown et al. 1993),
one in each direction, over the sets of word stems of each sentence pair. A link is a pair of stems that both prefer
each other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from docmt.checking.findings import CheckConfig, Finding, MarkedSentence, Spans, mark_sentence
from docmt.checking.languages import (
    DETERMINERS,
    FUNCTION_WORDS,
    NOUNS_ARE_CAPITALISED,
    NUMBER_WORDS,
    Token,
    are_related,
    fold,
    letter_similarity,
    quote,
    split_words,
    stem,
    tokenize,
    tokenize_uncached,
)
from docmt.checking.lexical_model import SentenceWords, WordPairs, link_words
from docmt.documents import ParallelDocument

_MAX_FREQUENCY = 0.5
"""Largest share of sentences with a stem that can be a term."""
_LONGEST_SENTENCE = 500
"""Most stems of a sentence in which links are searched. The number of pairs is quadratic in it."""


@dataclass(frozen=True)
class Links:
    """Alignment links of stems, by sentence, and their counts."""

    links: Sequence[tuple[tuple[str, str], ...]]
    """(source, target) links of each sentence, over all documents in order"""
    counts: Counter[tuple[str, str]]
    """number of sentences with each link"""
    translated: Counter[str]
    """number of sentences in which a source stem has a link"""


def find_links(documents: Sequence[ParallelDocument], languages: tuple[str, str]) -> Links:
    """Return the links of all sentences of these documents."""
    source, target = (_Stems.from_documents(documents, number, language) for number, language in enumerate(languages))
    return _collect_links(*link_words(source, target), source, target)


def _collect_links(pairs: WordPairs, linked: NDArray[np.bool_], source: _Stems, target: _Stems) -> Links:
    """Return the linked pairs as links between stems."""
    kinds = pairs.kind[linked]
    sentence = source.sentence[pairs.source_index[linked]]
    by_sentence: list[list[tuple[str, str]]] = [[] for _ in range(source.sentences)]
    ids = zip(pairs.kind_source[kinds].tolist(), pairs.kind_target[kinds].tolist(), strict=True)
    for index, (source_id, target_id) in zip(sentence.tolist(), ids, strict=True):
        by_sentence[index].append((source.names[source_id], target.names[target_id]))
    counts = Counter(link for links in by_sentence for link in links)
    translated = Counter(name for links in by_sentence for name in {stem for stem, _ in links})
    return Links([tuple(links) for links in by_sentence], counts, translated)


@dataclass(frozen=True)
class _Stems(SentenceWords):
    """The distinct stems of all sentences of one language, concatenated."""

    names: list[str]

    @classmethod
    def from_documents(cls, documents: Sequence[ParallelDocument], side: int, language: str) -> _Stems:
        """Return the stems without function words and stems of very many sentences."""
        excluded = {stem(word) for word in FUNCTION_WORDS.get(language, ())}
        texts = (text for document in documents for text in (document.source, document.target)[side])
        by_sentence = [{each for each in map(stem, split_words(text)) if len(each) > 1} - excluded for text in texts]
        frequencies = Counter(each for stems in by_sentence for each in stems)
        most = max(_MAX_FREQUENCY * len(by_sentence), 20)
        names = [name for name, count in frequencies.items() if count <= most]
        numbers = {name: number for number, name in enumerate(names)}
        ids = [sorted(numbers[each] for each in stems if each in numbers) for stems in by_sentence]
        ids = [row if len(row) <= _LONGEST_SENTENCE else [] for row in ids]
        sizes = np.array([len(row) for row in ids], dtype=np.int64)
        flat = np.fromiter((id for row in ids for id in row), dtype=np.int64, count=int(sizes.sum()))
        return cls(flat, np.repeat(np.arange(len(ids)), sizes), len(ids), len(names), names)


SHORTEST_NAME = 3
_NOUN_SHARE = 0.25
"""Share of occurrences after a determiner that makes a word a noun."""
_CLOSING_SHARE = 0.4
"""Share that must also end a phrase, as adjectives seldom do."""
_MANY_DOCUMENTS = 10
_NAME_SHARE = 0.75
"""Share of capitalised occurrences inside sentences that makes a word a name."""
_SENTENCE_OPENERS = frozenset('.!?:…"“«(-')


@dataclass(frozen=True)
class WordKinds:
    """The nouns, names and numerals of one side."""

    nouns: frozenset[str]
    """stems"""
    names: frozenset[str]
    """as written"""
    numerals: frozenset[str]
    """numbers in words"""

    @classmethod
    def from_documents(cls, documents: Sequence[Sequence[str]], language: str, max_share: float = 1.0) -> WordKinds:
        """Classify the words of documents, which are sequences of sentences.

        Nouns follow determiners and end phrases. In languages without known determiners all words are nouns. Names
        have capitals inside sentences. max_share: largest share of the documents, if there are many, that may contain
        a noun.
        """
        counts = _WordCounts.from_sentences((sentence for document in documents for sentence in document), language)
        vocabularies = ({stem(word) for text in document for word in split_words(text)} for document in documents)
        frequencies = Counter(each for vocabulary in vocabularies for each in vocabulary)
        max_documents = max_share * len(documents) if len(documents) >= _MANY_DOCUMENTS else len(documents)
        nouns = (word for word in frequencies if frequencies[word] <= max_documents and counts.is_noun(word, language))
        names = (word for word in counts.capital if counts.is_name(word, language))
        numerals = (word for beginnings in NUMBER_WORDS.get(language, {}).values() for word in beginnings)
        return cls(frozenset(nouns), frozenset(names), frozenset(numerals))


@dataclass
class _WordCounts:
    """Counts of the positions of stems and of the capitals of words."""

    occurrences: Counter[str] = field(default_factory=Counter)
    after_determiner: Counter[str] = field(default_factory=Counter)
    """stems"""
    closing: Counter[str] = field(default_factory=Counter)
    """stems before a function word, punctuation or the end"""
    inside: Counter[str] = field(default_factory=Counter)
    """folded words that do not begin a sentence"""
    capital: Counter[str] = field(default_factory=Counter)
    """words as written, those of `inside` with a capital"""

    @classmethod
    def from_sentences(cls, sentences: Iterable[str], language: str) -> _WordCounts:
        determiners = DETERMINERS.get(language, frozenset[str]())
        functions = FUNCTION_WORDS.get(language, frozenset[str]())
        counts = cls()
        for sentence in sentences:
            tokens = tokenize_uncached(sentence)
            for index, (start, end, word) in enumerate(tokens):
                word_stem = stem(word)
                counts.occurrences[word_stem] += 1
                following = tokens[index + 1] if index + 1 < len(tokens) else None
                counts.closing[word_stem] += (
                    following is None or following[2].lower() in functions or not sentence[end : following[0]].isspace()
                )
                if index == 0:
                    continue
                _, before, previous = tokens[index - 1]
                counts.after_determiner[word_stem] += previous.lower() in determiners
                if not _SENTENCE_OPENERS.intersection(sentence[before:start]):
                    counts.inside[fold(word)] += 1
                    if word[0].isupper():
                        counts.capital[word] += 1
        return counts

    def is_noun(self, stem: str, language: str) -> bool:
        if language not in DETERMINERS:
            return True
        times = self.occurrences[stem]
        return self.after_determiner[stem] >= _NOUN_SHARE * times and self.closing[stem] >= _CLOSING_SHARE * times

    def is_name(self, word: str, language: str) -> bool:
        if len(word) < SHORTEST_NAME or word.lower() in FUNCTION_WORDS.get(language, ()):
            return False
        cased = language not in NOUNS_ARE_CAPITALISED
        return (cased and self.capital[word] >= _NAME_SHARE * self.inside[fold(word)]) or _has_unusual_spelling(word)


def _has_unusual_spelling(word: str) -> bool:
    """Return whether the word has digits or capitals inside, as no ordinary word has."""
    return not word.isdecimal() and (any(map(str.isdigit, word)) or not (word.islower() or word[1:].islower()))


@dataclass
class Rendering:
    """One translation of a word in a document."""

    word: str
    sentences: dict[int, Spans] = field(default_factory=dict)
    """spans of the translation, by sentence index"""


def describe_renderings(
    kind: str, document: ParallelDocument, word: str, renderings: Sequence[Rendering], is_form: Callable[[str], bool]
) -> Finding:
    """Return the finding for a word and its renderings, the most frequent one first.

    The first sentence of each rendering precedes all others. is_form: whether a source word is a form of `word`.
    """
    renderings = sorted(renderings, key=lambda rendering: -len(rendering.sentences))
    descriptions = "; ".join(f"{quote([each.word])} in {_list_sentences(each.sentences)}" for each in renderings)
    firsts: list[MarkedSentence] = []
    others: list[MarkedSentence] = []
    for rendering in renderings:
        for rank, (index, spans) in enumerate(rendering.sentences.items()):
            source = [(start, end) for start, end, token in tokenize(document.source[index]) if is_form(token)]
            (others if rank else firsts).append(mark_sentence(document, index, source, spans))
    return Finding(kind, f"{quote([word])} translated as {descriptions}", (*firsts, *others))


def _list_sentences(indices: Collection[int]) -> str:
    """Return sentence numbers, counted from 1, as text."""
    listed = ", ".join(str(index + 1) for index in indices)
    return f"sentence{'s' * (len(indices) > 1)} {listed}"


_MIN_INSIDE = 4
"""Letters of the shortest name that is also searched at the end of words."""
_MAX_NAME_ENDING = 3
"""Letters of the longest inflectional ending of a name."""
_EDGE = 2
"""Letters at the edges of words by which they are indexed."""
_UNINFLECTED = frozenset({"en", "fr", "es", "it", "pt", "nl"})


def find_inconsistent_names(
    document: ParallelDocument, config: CheckConfig, vocabulary: WordKinds, target_language: str
) -> Iterator[Finding]:
    """Yield names that one sentence copies, or nearly copies, and another one spells differently.

    The time is linear in the words of the document, whatever the length of a sentence.
    """
    by_sentence = [
        list(dict.fromkeys(word for _, _, word in tokenize(sentence) if word in vocabulary.names))
        for sentence in document.source
    ]
    occurrences = Counter(name for sentence_names in by_sentence for name in sentence_names)
    known = {fold(name) for name in occurrences}
    spellings = {name: _Spellings(name, target_language) for name, count in occurrences.items() if count > 1}
    for index, sentence_names in enumerate(by_sentence):
        if wanted := [name for name in sentence_names if name in spellings]:
            pair = _NameIndex(document.source[index], document.target[index], known)
            for name in wanted:
                if (spelled := pair.find_spelling(name, config.name_similarity)) is not None:
                    spellings[name].add(spelled, index)
    for name, spelling in spellings.items():
        if len(spelling.renderings) > 1 and any(_contains_name(each.word, name) for each in spelling.renderings):
            yield describe_renderings("name", document, name, spelling.renderings, name.__eq__)


class _NameIndex:
    """The words of a sentence and its translation, indexed by spelling, so that no name reads all words again."""

    def __init__(self, source: str, target: str, known: Set[str]) -> None:
        """Index a sentence. known: names, folded, that are no spellings of other names."""
        self.source_words = [word for _, _, word in tokenize(source)]
        self.tokens = tokenize(target)
        self.target_words = [word for _, _, word in self.tokens]
        self.positions = {word: position for position, word in reversed([*enumerate(self.source_words)])}
        """first position of each source word"""
        self.edges: dict[str, dict[str, int]] = {}
        """target words and their first positions, by their beginning and by their end"""
        self.capitals: dict[str, dict[str, int]] = {}
        """capitalised target words other than known names, and their last positions, by first letter"""
        for position, (_, _, word) in enumerate(self.tokens):
            bare = fold(word)
            for edge in (bare[:_EDGE], bare[-_EDGE:]):
                self.edges.setdefault(edge, {}).setdefault(word, position)
            if word[0].isupper() and bare not in known:
                candidates = self.capitals.setdefault(bare[:1], {})
                candidates.pop(word, None)  # keeps the order of last positions
                candidates[word] = position

    def find_spelling(self, name: str, least: float) -> Token | None:
        """Return the target word most similar to the name.

        None if no word is similar enough, or if the name is a part of a longer one.
        """
        position = self._find_copy(name)
        if position is None:
            position = self._find_similar(name, least)
        return None if position is None or self._is_part(name, position) else self.tokens[position]

    def _find_copy(self, name: str) -> int | None:
        """Return the first position of a word that contains the name."""
        bare = fold(name)
        candidates = {**self.edges.get(bare[:_EDGE], {}), **self.edges.get(bare[-_EDGE:], {})}
        return min((position for word, position in candidates.items() if _contains_name(word, name)), default=None)

    def _find_similar(self, name: str, least: float) -> int | None:
        """Return the position of the most similar word, the last one of equals."""
        best_share, best_position = least, None
        for word, position in self.capitals.get(fold(name)[:1], {}).items():
            if (share := letter_similarity(name, word, best_share)) >= best_share:
                best_share, best_position = share, position
        return best_position

    def _is_part(self, name: str, position: int) -> bool:
        """Return whether the name is a part of a longer copied one, which need not be translated like its parts."""
        first = self.positions[name]
        target, source = self.target_words, self.source_words
        before, after = target[max(0, position - 1) : position], target[position + 1 : position + 2]
        same_before = before == source[max(0, first - 1) : first]
        return bool(before and same_before) or bool(after and after == source[first + 1 : first + 2])


class _Spellings:
    """The spellings of a name in a document."""

    def __init__(self, name: str, language: str) -> None:
        self.name, self.language = name, language
        self.renderings: list[Rendering] = []
        self._by_start: dict[str, list[int]] = {}
        """indices of renderings by the beginnings of their word, up to an ending"""
        self._copy: list[int] = []
        """index of the first rendering that contains the name, if any"""

    def add(self, spelled: Token, index: int) -> None:
        """Add a sentence to the first rendering of which the word is a form, or to a new one."""
        start, end, word = spelled
        bare = fold(word)
        starts = {bare[: max(0, len(bare) - ending)] for ending in range(_MAX_NAME_ENDING + 1)}
        candidates = sorted({*self._copy, *(number for each in starts for number in self._by_start.get(each, ()))})
        forms = (each for each in map(self.renderings.__getitem__, candidates) if self._is_form(each.word, word))
        if (match := next(forms, None)) is None:
            match = Rendering(word)
            for each in starts:
                self._by_start.setdefault(each, []).append(len(self.renderings))
            if not self._copy and _contains_name(word, self.name):
                self._copy = [len(self.renderings)]
            self.renderings.append(match)
        match.sentences[index] = ((start, end),)

    def _is_form(self, one: str, other: str) -> bool:
        """Return whether two spellings are one name with different endings.

        If one of them is the name as in the source, endings count only in languages that inflect names.
        """
        copies = [_contains_name(word, self.name) for word in (one, other)]
        if all(copies):
            return True
        one, other = sorted((fold(one), fold(other)), key=len)
        ending = 0 if any(copies) and self.language in _UNINFLECTED else _MAX_NAME_ENDING
        common = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
        return common >= SHORTEST_NAME and len(other) - common <= ending


def _contains_name(word: str, name: str) -> bool:
    """Return whether the word is the name, with an ending, or capitalised in a compound."""
    if len(word) > len(name) + _MAX_NAME_ENDING and not word[0].isupper():
        return False
    word, name = fold(word), fold(name)
    if len(name) < _MIN_INSIDE:
        return word.startswith(name) and len(word) <= len(name) + _MAX_NAME_ENDING
    return word.startswith(name) or word.endswith(name)


_SHORTEST_TERM = 4
"""Letters of the shortest term."""
_MAX_TERM_ENDING = 2
"""Letters of the longest ending of a term."""


def find_inconsistent_terms(
    first: int, document: ParallelDocument, config: CheckConfig, sides: tuple[WordKinds, WordKinds], links: Links
) -> Iterator[Finding]:
    """Yield nouns with a usual translation in the file and another noun as translation in this document.

    first: the index in `links` of the first sentence of the document.
    """
    linked = defaultdict[str, dict[str, list[int]]](lambda: defaultdict(list))
    for index in range(len(document)):
        for source, target in links.links[first + index]:
            linked[source][target].append(index)
    forms = _count_forms(document, linked)
    for source, targets in linked.items():
        if len(source) < _SHORTEST_TERM or source not in sides[0].nouns or len(targets) < 2:
            continue
        usual = _find_usual(source, targets, config, sides[1], links)
        if sum(len(targets[target]) for target in usual) < config.term_occurrences or len(usual) < 2:
            continue
        form = forms[source].most_common(1)[0][0]
        renderings = _collect_renderings(form, {target: targets[target] for target in usual}, document)
        if sum(len(each.sentences) for each in renderings) < config.term_occurrences or form in sides[0].numerals:
            continue
        if len(renderings) > 1:
            yield describe_renderings("term", document, form, renderings, partial(_are_inflections, form))


def _find_usual(source: str, targets: Iterable[str], config: CheckConfig, words: WordKinds, links: Links) -> list[str]:
    """Return the document's translations of a stem that enough sentences of the file have, this document's included.

    Empty if none of them is the usual one. Of two that may be forms of one word, only the more frequent one counts.
    """
    by_count = sorted(targets, key=lambda target: -links.counts[source, target])
    if links.counts[source, by_count[0]] < config.term_share * links.translated[source]:
        return []
    usual: list[str] = []
    for target in by_count:
        enough = links.counts[source, target] >= config.term_evidence and target in words.nouns
        if enough and not any(are_related(target, other) for other in usual):
            usual.append(target)
    return usual


def _collect_renderings(form: str, targets: dict[str, list[int]], document: ParallelDocument) -> list[Rendering]:
    """Return the translations of a word with their sentences, except sentences with words of two of them."""
    renderings = []
    for target, indices in targets.items():
        others = [other for other in targets if other != target]
        rendering = Rendering(target)
        words = Counter[str]()
        for index in indices:
            target_tokens = tokenize(document.target[index])
            if any(are_related(word, other) for _, _, word in target_tokens for other in others if len(word) > 2):
                continue
            if any(_are_inflections(form, word) for _, _, word in tokenize(document.source[index])):
                matches = [token for token in target_tokens if stem(token[2]) == target]
                rendering.sentences[index] = tuple((start, end) for start, end, _ in matches)
                words.update(word for _, _, word in matches)
        if rendering.sentences:
            rendering.word = words.most_common(1)[0][0]
            renderings.append(rendering)
    return renderings


def _count_forms(document: ParallelDocument, wanted: Collection[str]) -> dict[str, Counter[str]]:
    """Return how often the document has each word, by wanted stem."""
    forms = {source: Counter[str]() for source in wanted}
    for sentence in document.source:
        for _, _, word in tokenize(sentence):
            if (counts := forms.get(stem(word))) is not None:
                counts[word] += 1
    return forms


def _are_inflections(one: str, other: str) -> bool:
    """Return whether two words differ in a short ending only (commitments and commitment, not committee)."""
    one, other = sorted((fold(one), fold(other)), key=len)
    return other.startswith(one) and len(other) - len(one) <= _MAX_TERM_ENDING and len(one) >= _SHORTEST_TERM
