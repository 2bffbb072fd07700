"""Alignment error rate (AER, Och and Ney 2003) of word links against links by people.

A file has one sentence pair a line: source tokens, target tokens and links, separated by tabs. `3-2` links source token
3 and target token 2, counted from 1; `3p2` is a possible link, which is neither required nor wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from docmt.core.errors import DocmtError
from docmt.core.plain_text import read_lines

Links = frozenset[tuple[int, int]]
"""(source token, target token), from 0"""
Span = tuple[int, int]
_LINK = re.compile(r"(\d+)([-p])(\d+)")


@dataclass(frozen=True)
class AlignedPair:
    """A sentence pair with links by people."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    sure: Links
    possible: Links
    """the sure ones included"""

    def match(self, links: Iterable[tuple[Span, Span]]) -> Links:
        """Return links between characters of the texts, whose tokens are joined by blanks, as links of tokens."""
        source, target = (_number_characters(tokens) for tokens in (self.source, self.target))
        pairs = [(source[slice(*one)], target[slice(*other)]) for one, other in links]
        return frozenset((i, j) for one, other in pairs for i in one for j in other)


@dataclass(frozen=True)
class AlignmentScore:
    """Errors of the links A of a system, with sure links S and possible links P of people; between 0 and 1."""

    aer: float
    """1 - (|A and S| + |A and P|) / (|A| + |S|)"""
    precision: float
    """|A and P| / |A|"""
    recall: float
    """|A and S| / |S|"""
    links: int
    """|A|"""


def score_alignments(pairs: Sequence[AlignedPair], links: Sequence[Links]) -> AlignmentScore:
    """Return the scores of the links of all pairs together. Without links, precision is 1."""
    linked, sure = sum(map(len, links)), sum(len(pair.sure) for pair in pairs)
    right = sum(len(each & pair.possible) for pair, each in zip(pairs, links, strict=True))
    covered = sum(len(each & pair.sure) for pair, each in zip(pairs, links, strict=True))
    error = 1 - (covered + right) / max(linked + sure, 1)
    return AlignmentScore(error, right / linked if linked else 1.0, covered / sure if sure else 1.0, linked)


def read_alignments(path: Path) -> list[AlignedPair]:
    """Read a file of aligned sentence pairs. Raises DocmtError, with the line, for other contents."""
    pairs = list(_parse_lines(path))
    if not pairs:
        raise DocmtError(f"{path} holds no sentence pairs: name a file with source, target and links on each line")
    return pairs


def _parse_lines(path: Path) -> Iterator[AlignedPair]:
    for number, line in read_lines(path):
        if not line.strip():
            continue
        columns = line.rstrip("\r\n").split("\t")
        if len(columns) != 3:
            raise DocmtError(
                f"{path}, line {number} has {len(columns)} columns: write source tokens, target tokens and links, "
                "separated by tabs"
            )
        source, target = (tuple(column.split()) for column in columns[:2])
        links = {"-": set[tuple[int, int]](), "p": set[tuple[int, int]]()}
        for word in columns[2].split():
            match = _LINK.fullmatch(word)
            if match is None or not (0 < int(match[1]) <= len(source) and 0 < int(match[3]) <= len(target)):
                raise DocmtError(
                    f"{path}, line {number} has the link {word[:40]!r}: write 3-2 (sure) or 3p2 (possible) for source "
                    f"token 3 and target token 2, counted from 1, of {len(source)} and {len(target)}"
                )
            links[match[2]].add((int(match[1]) - 1, int(match[3]) - 1))
        yield AlignedPair(source, target, frozenset(links["-"]), frozenset(links["-"] | links["p"]))


def _number_characters(tokens: Sequence[str]) -> list[int]:
    """Return the number of the token of each character; a blank belongs to the token before it."""
    return [number for number, token in enumerate(tokens) for _ in f"{token} "]
