"""Scores that need the source: terms, consistency, and scores of sentences that are aligned with it.

Terms: how many of those that the source has stand in a translation, and how alike they are within a document. The count
is that of WMT 2026: an occurrence needs words of its own, any listed translation will do, and the most occurrences that
can be met at once are met. Notation: G sentences, D documents.

LTCR, the lexical translation consistency rate: how alike the translations of what a document repeats are.

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

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from docmt.checking.languages import FUNCTION_WORDS, detect_language, tokenize
from docmt.checking.renderings import RepeatedPhrase, find_renderings, find_repeated_phrases, link_by_counts
from docmt.core.errors import DocmtError
from docmt.core.grouping import group_pairs
from docmt.documents.words import Span
from docmt.evaluation.metric_config import CONSISTENCY_METRICS, METRIC_NAMES, TERM_METRICS, MetricConfig
from docmt.evaluation.metrics import Evaluation, MetricScore, Scores, Statistics, evaluate_documents
from docmt.evaluation.output_alignment import Documents, Ranges, align_output
from docmt.terms import Term
from docmt.terms.matching import TermMatcher
from docmt.terms.word_forms import choose_lemma

_MOST_STATES = 2000
"""Sets of met terms that are kept at each character. With fewer, which is usual, the count is exact."""
Wanted = Mapping[Term, int]
"""How often each term stands in a source sentence."""
Tier = Mapping[tuple[Term, int], Sequence[Span]]
"""Where each translation of a term, by number, stands."""


def share_from_sums(sums: Statistics) -> Scores:
    """Return the second of two sums in percent of the first, [*, 2] -> [*]; 0 of nothing."""
    return np.asarray(100 * sums[..., 1] / np.maximum(sums[..., 0], 1), dtype=np.float64)


def score_share(
    key: str, rows: Statistics, reference_rows: Statistics, documents: NDArray[np.int64], details: str
) -> MetricScore | None:
    """Return the share of summed rows, [G, 2], with that of the reference in its signature; None of nothing."""
    value, reference = (float(share_from_sums(each.sum(axis=0))) for each in (rows, reference_rows))
    fields = METRIC_NAMES[key], rows, documents, share_from_sums, key == "repeated", reference
    return MetricScore(value, f"reference:{reference:.2f}{details}", *fields) if rows[:, 0].any() else None


def score_terms(
    matcher: TermMatcher, sources: Documents, translations: Documents, references: Documents
) -> dict[str, MetricScore | None]:
    """Return the scores of the terms of a glossary in D documents, with the same numbers of sentences, by name.

    The signatures have the same score of the references. No consistency without a term that a document repeats. Raises
    DocmtError if the source has no term.
    """
    found = [[[each.term for each in matcher.find(text)] for text in document] for document in sources]
    wanted = [[Counter(term for term in terms if term.targets) for terms in document] for document in found]
    if not any(map(any, wanted)):
        raise DocmtError("no term of the glossary stands in the source: is it for the other direction?")
    system_rows, reference_rows = (_count_terms(matcher, wanted, side) for side in (translations, references))
    sentences = np.repeat(np.arange(len(translations)), list(map(len, translations)))
    scores, forms = dict[str, MetricScore | None](), "simplemma" if matcher.target.has_table else "endings"
    for key in TERM_METRICS:
        details = "" if key == "repeated" else f"|asked:{system_rows[key][:, 0].sum()}|forms:{forms}"
        documents = np.arange(len(translations)) if key == "consistency" else sentences
        scores[key] = score_share(key, system_rows[key], reference_rows[key], documents, details)
    return scores


def _count_terms(
    matcher: TermMatcher, wanted: Sequence[Sequence[Wanted]], translations: Documents
) -> dict[str, Statistics]:
    """Return statistics, [G, 2] or for consistency [D, 2]: of how many, and how many."""
    rows: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for term_counts, document in zip(wanted, translations, strict=True):
        renderings: dict[Term, Counter[int]] = defaultdict(Counter)
        for terms, text in zip(term_counts, document, strict=True):
            for key, (most, exact) in _TIERS.items():
                met = match_terms(terms, _find_terms(matcher, terms, text, most, exact)) if terms else []
                rows[key].append((sum(terms.values()), len(met)))
            for term, number in met:  # of the last tier, in any form
                renderings[term][number] += 1
            words = re.findall(r"\w+", text.lower())
            rows["repeated"].append((len(words), sum(a == b for a, b in pairwise(words))))
        repeated = {term: count for term, count in sum(map(Counter, term_counts), Counter[Term]()).items() if count > 1}
        same = sum(max(renderings[term].values(), default=0) for term in repeated)
        rows["consistency"].append((sum(repeated.values()), same))
    return {key: np.array(each) for key, each in rows.items()}


def _find_terms(matcher: TermMatcher, terms: Wanted, text: str, most: int | None, exact: bool) -> Tier:
    """Return where the translations of terms stand. most: how many of each. exact: only as they are listed."""
    places = {}
    for term in terms:
        for number, target in enumerate(term.targets[:most]):
            spans = matcher.list_places(term, target, text, True)
            places[term, number] = spans if exact else spans + matcher.list_places(term, target, text)
    return places


_TIERS = {"terms_base": (1, True), "terms_listed": (None, True), "terms": (None, False)}
"""How many translations of a term count, and whether only as they are listed."""


def match_terms(wanted: Wanted, tier: Tier) -> list[tuple[Term, int]]:
    """Return which translations meet terms: as many occurrences as can be met by spans that do not overlap."""
    starts = group_pairs((start, (end, key)) for key, spans in tier.items() for start, end in spans)
    numbers = {term: number for number, term in enumerate(wanted)}
    counts, last = tuple(wanted.values()), max((end for each in starts.values() for end, _ in each), default=0)
    # For each set of met terms that ends before a character, one way to meet it.
    states: list[dict[tuple[int, ...], tuple[tuple[Term, int], ...]]] = [{} for _ in range(last + 1)]
    states[0][(0,) * len(counts)] = ()
    for position in range(last):
        for met, way in sorted(states[position].items(), key=lambda each: -sum(each[0]))[:_MOST_STATES]:
            for end, key in starts.get(position, ()):
                number = numbers[key[0]]
                if met[number] < counts[number]:
                    more = (*met[:number], met[number] + 1, *met[number + 1 :])
                    states[end].setdefault(more, (*way, key))
            states[position + 1].setdefault(met, way)
        states[position] = {}
    return list(max(states[last].items(), key=lambda each: sum(each[0]))[1])


def score_consistency(
    sources: Documents, translations: Documents, references: Documents, languages: tuple[str, str] = ("", "")
) -> dict[str, MetricScore | None]:
    """Return LTCR and LTCR-1 of D documents by name; none of documents without a repeated phrase.

    translations, references: with the numbers of sentences of the sources. languages: codes; empty ones are detected.
    The signatures have the same score of the references, and the number of occurrences that are counted there.
    """
    system_rows, reference_rows = (_count_uses(sources, side, languages) for side in (translations, references))
    return {
        key: score_share(key, rows, best, np.arange(len(rows)), f"|counted:{best[:, 0].sum()}")
        for key, rows, best in zip(CONSISTENCY_METRICS, system_rows, reference_rows, strict=True)
    }


def _count_uses(
    sources: Documents, translations: Documents, languages: tuple[str, str]
) -> tuple[Statistics, Statistics]:
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


Sides = tuple[Documents, Documents, Documents]
"""Source, translation and reference in pairs of sentences, or of the units of an alignment."""


def score_system(
    sources: Documents,
    hypotheses: Documents,
    references: Sequence[Documents],
    config: MetricConfig,
    *,
    matcher: TermMatcher | None = None,
    languages: tuple[str, str] = ("", ""),
    instances: Ranges | None = None,
    miscounted: int = 0,
) -> tuple[Evaluation, Sides | None]:
    """Score translated documents; see `evaluate_documents`. Return the scores and what was paired, if anything was.

    sources: with the sentences of the references; empty if neither consistency nor terms are scored and nothing is
    aligned. With the units sentence and paragraph, hypotheses with other sentences are aligned. matcher: of terms that
    are scored. languages: codes for consistency; empty ones are detected.
    """
    first, *more = references
    is_paired = not miscounted and list(map(len, hypotheses)) == list(map(len, first))
    is_aligned = config.unit in ("sentence", "paragraph") and not is_paired
    aligned = align_output(sources, hypotheses, first) if is_aligned else None
    scores = evaluate_documents(
        hypotheses, first, config, instances, more_references=more, miscounted=miscounted, aligned=aligned
    )
    extra: dict[str, MetricScore | None] = dict.fromkeys(TERM_METRICS) if matcher else {}
    sides: Sides | None = None
    if sources and not scores.undefined:
        translation, reference, source = aligned.pair(first, sources) if aligned else (hypotheses, first, sources)
        sides = source, translation, reference
        if not scores.metrics.keys().isdisjoint(CONSISTENCY_METRICS):
            rates = score_consistency(source, translation, reference, languages)
            extra |= {key: rate for key, rate in rates.items() if key in scores.metrics}
        if matcher:
            extra |= score_terms(matcher, source, translation, reference)
    return replace(scores, metrics={**scores.metrics, **extra}), sides
