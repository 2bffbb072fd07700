"""Names that are not written in one way in all translations of a document."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from docmt.documents import ParallelDocument
from docmt.evaluation.checking.config import CheckConfig
from docmt.evaluation.checking.finding import Finding
from docmt.evaluation.checking.renderings import Rendering, rendered
from docmt.evaluation.checking.vocabulary import SHORTEST_NAME, Vocabulary
from docmt.evaluation.checking.words import Token, folded, similar, tokens

_WHOLE = 4
"""Letters of the shortest name that is looked for inside of words."""
_ENDING = 3
"""Letters of the longest ending of a name in languages that inflect them."""
_INFLECTS_NOT = frozenset({"en", "fr", "es", "it", "pt", "nl"})


def names(
    document: ParallelDocument, config: CheckConfig, vocabulary: Vocabulary, target_language: str
) -> Iterator[Finding]:
    """Names that are copied, or written in nearly the same way, in one sentence and in another way in another one."""
    said = [tokens(target) for target in document.target]
    occurrences = _occurrences(document.source, vocabulary.names)
    known = {folded(name) for name in occurrences}
    for name, numbers in occurrences.items():
        if len(numbers) < 2:
            continue
        found: list[Rendering] = []
        for number in numbers:
            spelled = _spelled(name, said[number], known, config.name_similarity)
            if spelled is not None and not _is_part(document.source[number], name, said[number], spelled):
                _add(found, name, spelled, number, target_language)
        if len(found) > 1 and any(_holds(each.word, name) for each in found):
            yield rendered("name", document, name, found, name.__eq__)


def _spelled(name: str, said: Sequence[Token], known: set[str], least: float) -> Token | None:
    """The word of a translation that is most like the name, if any is like it; none that is another known name."""
    best, found = least, None
    for start, end, word in said:
        if _holds(word, name):
            return start, end, word
        if word[0].isupper() and folded(word) not in known and folded(word)[:1] == folded(name)[:1]:
            share = similar(name, word)
            if share >= best:
                best, found = share, (start, end, word)
    return found


def _holds(word: str, name: str) -> bool:
    """Whether the word is the name, perhaps with an ending or in a compound, which then has a capital as well."""
    if len(word) > len(name) + _ENDING and not word[0].isupper():
        return False
    word, name = folded(word), folded(name)
    if len(name) < _WHOLE:
        return word.startswith(name) and len(word) <= len(name) + _ENDING
    return word.startswith(name) or word.endswith(name)


def _is_part(source: str, name: str, said: Sequence[Token], spelled: Token) -> bool:
    """Whether the name is a part of a longer one that was copied, and that need not be translated as the part is."""
    ours = [word for _, _, word in tokens(source)]
    at, place = said.index(spelled), ours.index(name)
    before, after = [word for _, _, word in said[max(0, at - 1) : at]], [word for _, _, word in said[at + 1 : at + 2]]
    return bool(before and before == ours[max(0, place - 1) : place]) or bool(
        after and after == ours[place + 1 : place + 2]
    )


def _add(found: list[Rendering], name: str, spelled: Token, number: int, language: str) -> None:
    """Counts a rendering with those that it is a form of."""
    start, end, word = spelled
    same = next((each for each in found if _is_form(each.word, word, name, language)), None)
    if same is None:
        same = Rendering(word)
        found.append(same)
    same.add(number, ((start, end),))


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
    return common >= SHORTEST_NAME and len(other) - common <= ending


def _occurrences(sentences: Sequence[str], wanted: frozenset[str]) -> dict[str, list[int]]:
    """The numbers of the sentences that each wanted word stands in."""
    found = defaultdict[str, list[int]](list)
    for number, sentence in enumerate(sentences):
        for word in {word for _, _, word in tokens(sentence)} & wanted:
            found[word].append(number)
    return found
