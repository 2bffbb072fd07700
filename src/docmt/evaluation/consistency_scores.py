"""LTCR, the lexical translation consistency rate: how alike the translations of what a document repeats are.

Names, nouns and phrases that a document repeats are found as for `docmt terms extract`, and their translations by links
of words. As in the terminology tasks of WMT 2023 and 2025, one translation t_i of phrase i is the pseudo-reference.
With n_is occurrences of the phrase in source sentence s, c_is of t_i in its translation, and sums over all phrases with
two known translations or more of all documents,

    LTCR    = sum_i sum_s min(n_is, c_is) / sum_i sum_s n_is                (t_i: the most frequent translation)
    LTCR-1  = sum_i (sum_s min(n_is, c_is) - 1) / sum_i (sum_s n_is - 1)    (t_i: the first one, s from there on)

LTCR-1 is that of DelTA (Wang et al. 2025), which compares aligned words. Lyu et al. (2021), who named the rate, count
pairs of translations. Forms of one word are equal here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from docmt.checking.languages import FUNCTION_WORDS, detect_language, tokenize
from docmt.checking.renderings import RepeatedPhrase, find_renderings, find_repeated_phrases, link_by_counts
from docmt.documents.words import Span
from docmt.evaluation.metric_config import CONSISTENCY_METRICS
from docmt.evaluation.metrics import MetricScore, Statistics
from docmt.evaluation.output_alignment import Documents
from docmt.evaluation.term_scores import score_share
from docmt.terms.word_forms import choose_lemma


def score_consistency(
    sources: Documents, translations: Documents, references: Documents, languages: tuple[str, str] = ("", "")
) -> dict[str, MetricScore | None]:
    """Return LTCR and LTCR-1 of D documents by name; none of documents without a repeated phrase.

    translations, references: with the numbers of sentences of the sources. languages: codes; empty ones are detected.
    The signatures have the same score of the references, and the number of occurrences that are counted there.
    """
    made, ceiling = (_count(sources, side, languages) for side in (translations, references))
    return {
        key: score_share(key, rows, best, np.arange(len(rows)), f"|counted:{best[:, 0].sum()}")
        for key, rows, best in zip(CONSISTENCY_METRICS, made, ceiling, strict=True)
    }


def _count(sources: Documents, translations: Documents, languages: tuple[str, str]) -> tuple[Statistics, Statistics]:
    """Return statistics of LTCR and of LTCR-1, [D, 2]: of how many, and how many."""
    documents = [list(zip(*sides, strict=True)) for sides in zip(sources, translations, strict=True)]
    pairs = list(chain.from_iterable(documents))
    source, target = (code or detect_language(pair[side] for pair in pairs) for side, code in enumerate(languages))
    lemmas, functions = (choose_lemma(source), choose_lemma(target)), FUNCTION_WORDS.get(target, frozenset())
    links, first, rows = link_by_counts(pairs, (source, target), lemmas), 0, list[list[tuple[int, int]]]()
    for document in documents:
        phrases = find_repeated_phrases([text for text, _ in document], source, lemmas[0])
        inside = {number: links.get(first + number, ()) for number in range(len(document))}
        first += len(document)
        keys = {(number, span): key for number, row in enumerate(phrases) for span, key in row}
        words = [[word for _, _, word in tokenize(text) if word.lower() not in functions] for _, text in document]
        forms = [[lemmas[1](word) for word in row if len(word) > 1] for row in words]
        rows.append(_count_document(keys, find_renderings(document, phrases, inside, target, lemmas[1]), forms))
    most, like_first = np.array(rows).swapaxes(0, 1)
    return most, like_first


def _count_document(
    keys: Mapping[tuple[int, Span], tuple[str, ...]], translated: Sequence[RepeatedPhrase], forms: Sequence[list[str]]
) -> list[tuple[int, int]]:
    """Return (occurrences, those with the most frequent translation) and the same for the first one, after it.

    keys: phrases of the source by sentence and place. translated: with their known translations. forms: base forms of
    each sentence of the translation, without function words.
    """
    uses: dict[tuple[str, ...], Counter[int]] = defaultdict(Counter)
    for (number, _), key in keys.items():
        uses[key][number] += 1
    total = most = later = like_first = 0
    for phrase in (each for each in translated if each.total > 1):
        first = min(chain.from_iterable(phrase.groups), key=lambda each: (each.sentence, each.source))
        counts = uses[keys[first.sentence, first.source]]
        met = {
            group[0].key: {n: min(count, _count_places(forms[n], group[0].key)) for n, count in counts.items()}
            for group in phrase.groups
        }
        total += counts.total()
        most += max(sum(each.values()) for each in met.values())
        later += sum(count for number, count in counts.items() if number >= first.sentence) - 1
        like_first += sum(count for number, count in met[first.key].items() if number >= first.sentence) - 1
    return [(total, most), (later, like_first)]


def _count_places(words: Sequence[str], key: tuple[str, ...]) -> int:
    """Return how often words stand in a row."""
    return sum(tuple(words[first : first + len(key)]) == key for first in range(len(words)))
