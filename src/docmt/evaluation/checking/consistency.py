"""Terms and names that are translated in several ways in one document."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from docmt.documents import ParallelDocument
from docmt.evaluation.checking.association import Links
from docmt.evaluation.checking.config import CheckConfig
from docmt.evaluation.checking.finding import Finding, Place, Spans, place
from docmt.evaluation.checking.vocabulary import Vocabulary
from docmt.evaluation.checking.words import alike, folded, quoted, similar, stem, tokens

_SHORTEST = 4
"""Letters of the shortest term."""
_SHORTEST_NAME = 3
_INFLECTION = 2
"""Letters of the ending of a term."""
_ENDING = 3
"""Letters of the longest ending of a name in languages that inflect them."""
_INFLECTS_NOT = frozenset({"en", "fr", "es", "it", "pt", "nl"})
Occurrences = dict[str, list[int]]


@dataclass
class _Rendering:
    """One way in which a word is translated in a document."""

    word: str
    sentences: list[int] = field(default_factory=list)
    spans: list[Spans] = field(default_factory=list)


def names(
    document: ParallelDocument, config: CheckConfig, vocabulary: Vocabulary, target_language: str
) -> Iterator[Finding]:
    """Names that are copied, or written in nearly the same way, in one sentence and in another way in another one."""
    said = [list(tokens(target)) for target in document.target]
    occurrences = _occurrences(document.source, vocabulary.names)
    known = {folded(name) for name in occurrences}
    for name, numbers in occurrences.items():
        if len(numbers) < 2:
            continue
        found: list[_Rendering] = []
        for number in numbers:
            spelled = _spelled(name, said[number], known, config.name_similarity)
            if spelled is not None and not _is_part(document.source[number], name, said[number], spelled):
                _add(found, name, spelled, number, target_language)
        if len(found) > 1 and any(_holds(each.word, name) for each in found):
            yield _finding("name", document, name, found)


def _spelled(
    name: str, said: Sequence[tuple[int, int, str]], known: set[str], least: float
) -> tuple[int, int, str] | None:
    """The word of a translation that is most like the name, if any is like it; none that is another known name."""
    best, found = least, None
    for start, end, word in said:
        if _holds(word, name):
            return start, end, word
        if word[0].isupper() and folded(word) not in known and folded(word)[0] == folded(name)[0]:
            share = similar(name, word)
            if share >= best:
                best, found = share, (start, end, word)
    return found


def _holds(word: str, name: str) -> bool:
    """Whether the word is the name, perhaps with an ending or in a compound."""
    word, name = folded(word), folded(name)
    if len(name) < _SHORTEST:
        return word.startswith(name) and len(word) <= len(name) + _ENDING
    return word.startswith(name) or word.endswith(name)


def _is_part(source: str, name: str, said: Sequence[tuple[int, int, str]], spelled: tuple[int, int, str]) -> bool:
    """Whether the name is a part of a longer one that was copied, and that need not be translated as the part is."""
    ours = [word for _, _, word in tokens(source)]
    at, place = said.index(spelled), ours.index(name)
    before, after = [word for _, _, word in said[max(0, at - 1) : at]], [word for _, _, word in said[at + 1 : at + 2]]
    return bool(before and before == ours[max(0, place - 1) : place]) or bool(
        after and after == ours[place + 1 : place + 2]
    )


def _add(found: list[_Rendering], name: str, spelled: tuple[int, int, str], number: int, language: str) -> None:
    """Counts a rendering with those that it is a form of."""
    start, end, word = spelled
    same = next((each for each in found if _is_form(each.word, word, name, language)), None)
    if same is None:
        same = _Rendering(word)
        found.append(same)
    same.sentences.append(number)
    same.spans.append(((start, end),))


def _is_form(one: str, other: str, name: str, language: str) -> bool:
    """Whether two spellings of a name are one, with the endings that their places in sentences ask for.

    Where one of them is the name as it stands in the source, only languages that inflect names write it otherwise.
    """
    copies = [_holds(word, name) for word in (one, other)]
    if all(copies):
        return True
    one, other = sorted((folded(one), folded(other)), key=len)
    ending = 0 if any(copies) and language in _INFLECTS_NOT else _ENDING
    common = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    return common >= _SHORTEST_NAME and len(other) - common <= ending


def terms(
    first: int, document: ParallelDocument, config: CheckConfig, vocabulary: Vocabulary, links: Links
) -> Iterator[Finding]:
    """Words whose translation is settled in the file, and which have another one beside it in this document.

    first: the number of the first sentence of the document, as `links` counts them.
    """
    linked: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number in range(len(document)):
        for one, other in links.links[first + number]:
            linked[one][other].append(number)
    for source, targets in linked.items():
        if source not in vocabulary.nouns or len(source) < _SHORTEST:
            continue
        if len(targets) < 2 or sum(map(len, targets.values())) < config.term_occurrences:
            continue
        form = _commonest_form(source, document)
        if form in vocabulary.numerals:
            continue
        with_form = {number for number in range(len(document)) if _has_form(document.source[number], form)}
        kept = {target: [n for n in numbers if n in with_form] for target, numbers in targets.items()}
        if sum(map(len, kept.values())) < config.term_occurrences:
            continue
        found = _renderings(source, {target: own for target, own in kept.items() if own}, document, config, links)
        if len(found) > 1:
            yield _finding("term", document, form, found)


def _renderings(
    source: str, targets: dict[str, list[int]], document: ParallelDocument, config: CheckConfig, links: Links
) -> list[_Rendering]:
    """The established ways in which a stem is translated in a document, if one of them is the usual one in the file.

    Sentences that have words of two of these ways tell nothing.
    """
    usual = max(targets, key=lambda target: links.counts[source, target])
    if links.counts[source, usual] < config.term_share * links.translated[source]:
        return []
    established = [
        target
        for target in targets
        if target == usual or (links.counts[source, target] >= config.term_evidence and not alike(target, usual))
    ]
    found = []
    for target in established:
        rendering = _Rendering(target)
        for number in targets[target]:
            said = [(start, end, word) for start, end, word in tokens(document.target[number])]
            others = [other for other in established if other != target]
            if any(alike(word, other) for _, _, word in said for other in others if len(word) > 2):
                continue
            rendering.sentences.append(number)
            rendering.spans.append(tuple((start, end) for start, end, word in said if stem(word) == target))
        if rendering.sentences:
            words = (
                document.target[n][a:b]
                for n, spans in zip(rendering.sentences, rendering.spans, strict=True)
                for a, b in spans
            )
            rendering.word = Counter(words).most_common(1)[0][0]
            found.append(rendering)
    return found


def _commonest_form(source: str, document: ParallelDocument) -> str:
    """The commonest word of the document with that stem."""
    said = (word for sentence in document.source for _, _, word in tokens(sentence) if stem(word) == source)
    return Counter(said).most_common(1)[0][0]


def _has_form(sentence: str, form: str) -> bool:
    """Whether a sentence has the word, or a form of it with another ending."""
    return any(_is_inflected(word, form) for _, _, word in tokens(sentence))


def _is_inflected(one: str, other: str) -> bool:
    """Whether two words are one but for a short ending (commitments, commitment; not committee)."""
    one, other = sorted((folded(one), folded(other)), key=len)
    return other.startswith(one) and len(other) - len(one) <= _INFLECTION and len(one) >= _SHORTEST_NAME


def _occurrences(sentences: Iterable[str], wanted: frozenset[str]) -> Occurrences:
    """The numbers of the sentences that each wanted word stands in."""
    found: Occurrences = defaultdict(list)
    for number, sentence in enumerate(sentences):
        for word in {word for _, _, word in tokens(sentence)} & wanted:
            found[word].append(number)
    return found


def _finding(kind: str, document: ParallelDocument, name: str, found: Sequence[_Rendering]) -> Finding:
    """A word with all ways in which it is translated, the commonest first; a sentence of each before the others."""
    found = sorted(found, key=lambda each: -len(each.sentences))
    ways = "; ".join(f"{quoted([each.word])} in {_numbers(each.sentences)}" for each in found)
    firsts: list[Place] = []
    others: list[Place] = []
    for each in found:
        for at, (number, spans) in enumerate(zip(each.sentences, each.spans, strict=True)):
            source = [(a, b) for a, b, word in tokens(document.source[number]) if _is_marked(kind, word, name)]
            (others if at else firsts).append(place(document, number, source, spans))
    places = [*firsts, *others]
    return Finding(kind, f"{quoted([name])} translated as {ways}", tuple(places))


def _is_marked(kind: str, word: str, name: str) -> bool:
    return word == name if kind == "name" else _is_inflected(word, name)


def _numbers(numbers: Sequence[int]) -> str:
    """Sentences by number from 1, in words."""
    shown = ", ".join(str(number + 1) for number in numbers)
    return f"sentence{'s' * (len(numbers) > 1)} {shown}"
