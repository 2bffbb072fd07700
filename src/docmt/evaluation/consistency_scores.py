"""LTCR, the lexical translation consistency rate: how alike the translations of what a document repeats are.

Names, nouns and phrases that a document repeats are found as `docmt check` and `docmt terms extract` find them, and
their translations by links of words. Only occurrences count whose translation is known. With n_i translations t_i1,
t_i2, ... of phrase i of a document in their order, and sums over all phrases with n_i > 1 of all documents,

    LTCR    = sum_i max_t #{j: t_ij = t} / sum_i n_i               (most frequent; the vote of DelTA's scripts)
    LTCR-1  = sum_i #{j > 1: t_ij = t_i1} / sum_i (n_i - 1)        (first; DelTA, Wang et al. 2025)

Lyu et al. (2021), who named the rate, count pairs of translations. Forms of one word are equal here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from docmt.checking.languages import detect_language
from docmt.checking.renderings import Links, find_renderings, find_repeated_phrases, link_by_counts
from docmt.evaluation.metric_config import CONSISTENCY_METRICS
from docmt.evaluation.metrics import MetricScore, Statistics
from docmt.evaluation.output_alignment import Documents
from docmt.evaluation.term_scores import share_from_sums
from docmt.terms.word_forms import choose_lemma


@dataclass(frozen=True)
class ConsistencyTask:
    """What D documents repeat. sources: [D] sentences. languages: codes; those that are empty are detected."""

    sources: Documents
    languages: tuple[str, str] = ("", "")

    def score(self, translations: Documents, references: Documents) -> dict[str, MetricScore | None]:
        """Return the scores of translations, by name; none of documents without a repeated phrase.

        translations, references: with the numbers of sentences of the sources. The signatures have the same score of
        the references, and the number of translations that are known there.
        """
        made, ceiling = self._count(translations), self._count(references)
        scores: dict[str, MetricScore | None] = {}
        for key, rows, best in zip(CONSISTENCY_METRICS, made, ceiling, strict=True):
            value, reference = (float(share_from_sums(each.sum(axis=0))) for each in (rows, best))
            signature = f"reference:{reference:.2f}|known:{best[:, 0].sum()}"
            fields = value, signature, CONSISTENCY_METRICS[key], rows, np.arange(len(rows)), share_from_sums
            scores[key] = MetricScore(*fields, reference=reference) if rows[:, 0].any() else None
        return scores

    def _count(self, translations: Documents) -> tuple[Statistics, Statistics]:
        """Return statistics of LTCR and of LTCR-1, [D, 2]: of how many, and how many."""
        pairs = [list(zip(*sides, strict=True)) for sides in zip(self.sources, translations, strict=True)]
        flat = [pair for document in pairs for pair in document]
        source, target = (
            code or detect_language(pair[side] for pair in flat) for side, code in enumerate(self.languages)
        )
        lemmas = choose_lemma(source), choose_lemma(target)
        links, first, rows = link_by_counts(flat, (source, target), lemmas), 0, list[list[tuple[int, int]]]()
        for document in pairs:
            phrases = find_repeated_phrases([text for text, _ in document], source, lemmas[0])
            inside: Links = {number: links.get(first + number, ()) for number in range(len(document))}
            first += len(document)
            found = find_renderings(document, phrases, inside, target, lemmas[1])
            uses = [
                sorted(chain.from_iterable(phrase.groups), key=lambda each: (each.sentence, each.source))
                for phrase in found
            ]
            rows.append(count_consistency([[each.key for each in renderings] for renderings in uses]))
        most, first_ones = np.array(rows).swapaxes(0, 1)
        return most, first_ones


def count_consistency(renderings: Sequence[Sequence[Hashable]]) -> list[tuple[int, int]]:
    """Return (translations, those like the most frequent one) and (translations after the first one, those like it).

    renderings: of each phrase of a document, in their order.
    """
    repeated = [each for each in renderings if len(each) > 1]
    most = sum(max(Counter(each).values()) for each in repeated)
    like_first = sum(each.count(each[0]) - 1 for each in repeated)
    total = sum(map(len, repeated))
    return [(total, most), (total - len(repeated), like_first)]
