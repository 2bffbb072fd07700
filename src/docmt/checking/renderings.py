"""Terms, names and noun phrases of a text, and how each of them is translated, by links of words.

Word translations are learned from the sentences of a file alone: two lexical models (IBM model 1, Brown et al. 1993),
one in each direction. A link is a pair of words that both prefer each other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from docmt.checking.findings import CheckConfig, Finding, MarkedSentence, Spans, mark_sentence, quote
from docmt.checking.languages import DETERMINERS, FUNCTION_WORDS, are_related, fold, split_words, stem, tokenize
from docmt.checking.lexical_model import SentenceWords, link_words
from docmt.core.grouping import group_pairs
from docmt.documents import ParallelDocument
from docmt.documents.words import Span, WordLink

_MAX_FREQUENCY = 0.5
"""Largest share of sentences with a stem that can be a term."""
_LONGEST_SENTENCE = 500
"""Most stems of a sentence in which links are searched. The number of pairs is quadratic in it."""
_NOUN_SHARE = 0.25
"""Share of occurrences after a determiner that makes a word a noun."""
_CLOSING_SHARE = 0.4
"""Share that must also end a phrase, as adjectives seldom do."""
_MANY_DOCUMENTS = 10
_SHORTEST_TERM = 4
"""Letters of the shortest term."""
_MAX_ENDING = 2
"""Letters of the longest ending of a term."""


def _number_stems(sentences: Iterable[str], language: str) -> tuple[SentenceWords, list[str]]:
    """Return the distinct stems of sentences, without function words and stems of very many sentences, by number."""
    excluded = {stem(word) for word in FUNCTION_WORDS.get(language, ())}
    rows = [{each for each in map(stem, split_words(text)) if len(each) > 1} - excluded for text in sentences]
    frequencies = Counter(each for stems in rows for each in stems)
    most = max(_MAX_FREQUENCY * len(rows), 20)
    names = [name for name, count in frequencies.items() if count <= most]
    numbers = {name: number for number, name in enumerate(names)}
    ids = [sorted(numbers[each] for each in stems if each in numbers) for stems in rows]
    return SentenceWords.from_tokens([row if len(row) <= _LONGEST_SENTENCE else [] for row in ids], len(names)), names


class TermStatistics:
    """Word translations and nouns of documents."""

    def __init__(self, documents: Sequence[ParallelDocument], languages: tuple[str, str], max_share: float) -> None:
        """Learn from documents. max_share: see `find_nouns`, for the source."""
        sides = [document.source for document in documents], [document.target for document in documents]
        (source, names), (target, target_names) = map(_number_stems, map(chain.from_iterable, sides), languages)
        pairs, linked = link_words(source, target)
        kinds, sentences = pairs.kind[linked], source.sentence[pairs.source_index[linked]]
        ids = pairs.kind_source[kinds].tolist(), pairs.kind_target[kinds].tolist()
        self.links: list[list[tuple[str, str]]] = [[] for _ in range(source.sentences)]
        """(source, target) links of stems of each sentence, over all documents in order"""
        for sentence, source_id, target_id in zip(sentences.tolist(), *ids, strict=True):
            self.links[sentence].append((names[source_id], target_names[target_id]))
        self.counts = Counter(chain.from_iterable(self.links))
        """number of sentences with each link"""
        self.translated = Counter(name for row in self.links for name in {source_stem for source_stem, _ in row})
        """number of sentences in which a source stem has a link"""
        sizes = dict(zip(names, np.bincount(source.ids, minlength=len(names)).tolist(), strict=True))
        self.usual = {name for name, count in self.translated.items() if 2 * count >= max(sizes[name], 6)}
        """source stems with a link in half of their sentences, and in at least three"""
        self.nouns = find_nouns(sides[0], languages[0], max_share), find_nouns(sides[1], languages[1])
        """stems of the source, stems of the target"""


def find_nouns(documents: Sequence[Sequence[str]], language: str, max_share: float = 1.0) -> frozenset[str]:
    """Return the stems of the nouns of documents, which are sequences of sentences.

    Nouns follow determiners and end phrases: before a function word, punctuation or the end. In languages without known
    determiners all words are nouns. max_share: largest share of the documents, if there are many, that may contain a
    noun.
    """
    determiners, functions = DETERMINERS.get(language, frozenset()), FUNCTION_WORDS.get(language, frozenset())
    documents_with, occurrences, after_determiner, closing = (Counter[str]() for _ in range(4))
    for document in documents:
        documents_with.update({stem(word) for text in document for word in split_words(text)})
        for sentence in document:
            tokens, previous = tokenize(sentence), ""
            for index, (_, end, word) in enumerate(tokens):
                start, _, following = tokens[index + 1] if index + 1 < len(tokens) else (len(sentence), 0, "")
                word_stem = stem(word)
                occurrences[word_stem] += 1
                after_determiner[word_stem] += previous in determiners
                is_last = not following or not sentence[end:start].isspace()
                closing[word_stem] += is_last or following.lower() in functions
                previous = word.lower()
    most = max_share * len(documents) if len(documents) >= _MANY_DOCUMENTS else len(documents)
    nouns = {word: times for word, times in occurrences.items() if documents_with[word] <= most}
    if determiners:
        nouns = {word: times for word, times in nouns.items() if after_determiner[word] >= _NOUN_SHARE * times}
        nouns = {word: times for word, times in nouns.items() if closing[word] >= _CLOSING_SHARE * times}
    return frozenset(nouns)


def find_inconsistent_terms(
    first: int, document: ParallelDocument, config: CheckConfig, statistics: TermStatistics
) -> Iterator[Finding]:
    """Yield nouns with a usual translation in the file and another noun as translation in this document.

    first: the index in `statistics.links` of the first sentence of the document.
    """
    linked = defaultdict[str, dict[str, list[int]]](lambda: defaultdict(list))
    for index in range(len(document)):
        for source, target in statistics.links[first + index]:
            linked[source][target].append(index)
    forms = group_pairs((stem(word), word) for sentence in document.source for _, _, word in tokenize(sentence))
    for source, targets in linked.items():
        if len(source) < _SHORTEST_TERM or source not in statistics.nouns[0] or len(targets) < 2:
            continue
        usual = _find_usual(source, targets, config, statistics)
        if sum(len(targets[target]) for target in usual) < config.term_occurrences or len(usual) < 2:
            continue
        form = Counter(forms[source]).most_common(1)[0][0]
        renderings = _collect_renderings(form, {target: targets[target] for target in usual}, document)
        if len(renderings) > 1 and sum(map(len, renderings.values())) >= config.term_occurrences:
            yield _describe_term(document, form, renderings)


def _find_usual(source: str, targets: Iterable[str], config: CheckConfig, statistics: TermStatistics) -> list[str]:
    """Return the document's translations of a stem that enough sentences of the file have, this document's included.

    Empty if none of them is the usual one. Of two that may be forms of one word, only the more frequent one counts.
    """
    by_count = sorted(targets, key=lambda target: -statistics.counts[source, target])
    if statistics.counts[source, by_count[0]] < config.term_share * statistics.translated[source]:
        return []
    usual: list[str] = []
    for target in by_count:
        enough = statistics.counts[source, target] >= config.term_evidence and target in statistics.nouns[1]
        if enough and not any(are_related(target, other) for other in usual):
            usual.append(target)
    return usual


def _collect_renderings(
    form: str, targets: dict[str, list[int]], document: ParallelDocument
) -> dict[str, dict[int, Spans]]:
    """Return the translations of a word with their spans by sentence, except sentences with words of two of them."""
    renderings = {}
    for target, indices in targets.items():
        others = [other for other in targets if other != target]
        sentences = dict[int, Spans]()
        words = Counter[str]()
        for index in indices:
            target_tokens = tokenize(document.target[index])
            if any(are_related(word, other) for _, _, word in target_tokens for other in others if len(word) > 2):
                continue
            if any(_are_inflections(form, word) for _, _, word in tokenize(document.source[index])):
                matches = [token for token in target_tokens if stem(token[2]) == target]
                sentences[index] = tuple((start, end) for start, end, _ in matches)
                words.update(word for _, _, word in matches)
        if sentences:
            renderings[words.most_common(1)[0][0]] = sentences
    return renderings


def _are_inflections(one: str, other: str) -> bool:
    """Return whether two words differ in a short ending only (commitments and commitment, not committee)."""
    one, other = sorted((fold(one), fold(other)), key=len)
    return other.startswith(one) and len(other) - len(one) <= _MAX_ENDING and len(one) >= _SHORTEST_TERM


def _describe_term(document: ParallelDocument, form: str, renderings: dict[str, dict[int, Spans]]) -> Finding:
    """Return the finding for a word and its renderings, the most frequent one first.

    The first sentence of each rendering precedes all others.
    """
    descriptions: list[str] = []
    firsts: list[MarkedSentence] = []
    others: list[MarkedSentence] = []
    for word, sentences in sorted(renderings.items(), key=lambda rendering: -len(rendering[1])):
        numbers = ", ".join(str(index + 1) for index in sentences)
        descriptions.append(f"{quote([word])} in sentence{'s' * (len(sentences) > 1)} {numbers}")
        for rank, (index, spans) in enumerate(sentences.items()):
            source = [span for *span, word in tokenize(document.source[index]) if _are_inflections(form, word)]
            marked = mark_sentence(document, index, map(tuple, source), spans)
            (others if rank else firsts).append(marked)
    return Finding("term", f"{quote([form])} translated as {'; '.join(descriptions)}", (*firsts, *others))


_MOST_WORDS, _LEAST_LETTERS = 3, 4
"""Words of the longest phrase, and letters of the shortest one."""
_MORE_WORDS = 3
"""Words that a translation may have more than its phrase."""
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
        """Number of known translations."""
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
    lists = [list(_list_phrases(sentence, nouns, lemma)) for sentence in sentences]
    counts = Counter(key for phrases in lists for _, key in phrases)
    chosen = []
    for phrases in lists:
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
    by_phrase: dict[tuple[str, ...], list[Rendering]] = defaultdict(list)
    for number, ((source, target), rows) in enumerate(zip(pairs, phrases, strict=True)):
        for span, key in rows:
            if translated := _find_translation(target, span, len(key), links.get(number, ()), nouns):
                (start, end), words = translated
                text = target[start:end]
                by_phrase[key].append(Rendering(number, span, source[slice(*span)], text, tuple(map(lemma, words))))
    repeated = []
    for renderings in by_phrase.values():
        groups = group_pairs((each.key, each) for each in renderings)
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
        texts = zip(*pairs[first : first + _BLOCK], strict=True)
        for side, language, lemma in zip(texts, languages, lemmas, strict=True):
            ids, rows = dict[str, int](), list[list[tuple[int, Span]]]()
            functions = FUNCTION_WORDS.get(language, frozenset())
            for text in side:
                words = (token for token in tokenize(text) if token[2].lower() not in functions)
                row = [(ids.setdefault(lemma(word), len(ids)), (start, end)) for start, end, word in words]
                rows.append(row[:_LONGEST])
            sides.append(SentenceWords.from_tokens([[id for id, _ in row] for row in rows], len(ids)))
            positions.append([dict(row) for row in rows])
        word_pairs, linked = link_words(*sides)
        linked_words = word_pairs.source_index[linked].tolist(), word_pairs.target_index[linked].tolist()
        for indices in zip(*linked_words, strict=True):
            number = int(sides[0].sentence[indices[0]])
            located = zip(sides, positions, indices, strict=True)
            source, target = (spans[number][int(words.ids[index])] for words, spans, index in located)
            links[first + number].append(WordLink(source, target, 1.0, True))
    return links
