"""Truecasing: the first word of a sentence as it is written inside of sentences, and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

SENTENCE_END = frozenset(".:?!")
"""A word after one of these tokens begins a sentence."""
OPENING = frozenset(["(", "[", '"', "'", "&apos;", "&quot;", "&#91;", "&#93;"])
"""A word after one of these begins a sentence if they do."""


class CaseCounter:
    """Counts how words are written inside of sentences, and which words there are at all.

    words: how often (token, begins a sentence) occurs; with a truecaser that gives the count of every truecased word,
    so that text needs to be read once only.
    """

    def __init__(self) -> None:
        self.words: Counter[tuple[str, bool]] = Counter()
        self._inside: Counter[str] = Counter()

    def add(self, tokens: Sequence[str]) -> None:
        """Counts the tokens of one sentence."""
        self.words.update(zip(tokens, _starts(tokens), strict=True))
        self._inside.update(_inside(tokens))

    def truecaser(self) -> Truecaser:
        """The truecaser that the sentences so far give."""
        forms: dict[str, list[str]] = {}
        for token, _ in self._inside.most_common():  # equal counts: first seen first
            forms.setdefault(token.lower(), []).append(token)
        return Truecaser(forms.values())


class Truecaser:
    """The Moses truecaser of one language (Koehn et al. 2007, truecase.perl).

    A word that begins a sentence takes its most frequent form inside of sentences; any other word keeps its form if
    it was seen with it and takes the most frequent form if it was not; a word never seen stays as it is.
    """

    def __init__(self, forms: Iterable[Sequence[str]]) -> None:
        """forms: for each word all forms it was seen in, most frequent first; none twice. Else ValueError."""
        self.forms = [list(of_word) for of_word in forms]
        self._best = {of_word[0].lower(): of_word[0] for of_word in self.forms}
        self._known = {form for of_word in self.forms for form in of_word}
        together = all(len({form.lower() for form in of_word}) == 1 for of_word in self.forms)
        if not together or len(self._best) != len(self.forms):
            raise ValueError("forms of one word do not stand together")

    def word(self, token: str, begins: bool) -> str:
        """The true case of a token; `begins`: whether it begins a sentence."""
        if not begins and token in self._known:
            return token
        return self._best.get(token.lower(), token)

    def truecase(self, tokens: Sequence[str]) -> list[str]:
        """The tokens of one sentence in their true case."""
        return [self.word(token, begins) for token, begins in zip(tokens, _starts(tokens), strict=True)]


def detruecase(tokens: Sequence[str]) -> list[str]:
    """The tokens of one sentence with a capital at each of its beginnings (detruecase.perl)."""
    return [_capital(token) if begins else token for token, begins in zip(tokens, _starts(tokens), strict=True)]


def _capital(token: str) -> str:
    # The capital of one letter may be two ("ß"); such a word stays, as it would not come back.
    first = token[:1].upper()
    return first + token[1:] if len(first) == 1 else token


def _starts(tokens: Sequence[str]) -> Iterator[bool]:
    """For each token whether a word there begins a sentence."""
    begins = True
    for token in tokens:
        yield begins
        if token in SENTENCE_END:
            begins = True
        elif token not in OPENING:
            begins = False


def _inside(tokens: Sequence[str]) -> Iterator[str]:
    """The words inside of sentences, whose form tells something (train-truecaser.perl)."""
    first = True
    for token in tokens:
        if token in OPENING:
            continue
        if not first and token in SENTENCE_END:
            first = True
            continue
        if not first and token.lower() != token.upper():
            yield token
        first = False
