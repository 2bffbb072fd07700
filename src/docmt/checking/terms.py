"""Terms that have several translations in a document."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import partial

from docmt.checking.association import Links
from docmt.checking.config import CheckConfig
from docmt.checking.finding import Finding
from docmt.checking.renderings import Rendering, rendered
from docmt.checking.vocabulary import Vocabulary
from docmt.checking.words import alike, folded, stem, tokens
from docmt.documents import ParallelDocument

_SHORTEST = 4
"""Letters of the shortest term."""
_INFLECTION = 2
"""Letters of the longest ending of a term."""


def terms(
    first: int, document: ParallelDocument, config: CheckConfig, sides: tuple[Vocabulary, Vocabulary], links: Links
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
        if len(source) < _SHORTEST or source not in sides[0].nouns or len(targets) < 2:
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


def _established(
    source: str, targets: Sequence[str] | dict[str, list[int]], config: CheckConfig, words: Vocabulary, links: Links
) -> list[str]:
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
                rendering.add(number, tuple((start, end) for start, end, _ in own))
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
    return other.startswith(one) and len(other) - len(one) <= _INFLECTION and len(one) >= _SHORTEST
