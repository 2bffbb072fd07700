"""The tokenizer of somebody else's pretrained model, whatever its family: a model of pieces, and a vocabulary."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Self

from docmt.core.errors import DocmtError
from docmt.core.files import read_bytes, read_json
from docmt.text.pieces import JsonPieces, Pieces, SpmPieces
from docmt.text.tokenizer import SIDES, Side, SideSentence, SpecialTokens, Tokenizer, check_text

VOCABULARY_FILE = "vocabulary.json"
# What some tokenizers do with their text at the end, in this order.
_CLEANED = {mark: mark.lstrip() for mark in (" .", " ?", " !", " ,")} | {" ' ": "'"}
_CLEANED |= {ending: ending.lstrip() for ending in (" n't", " 'm", " 's", " 've", " 're")}


@dataclass(frozen=True)
class Vocabulary:
    """What every id of ours stands for; the first four and the last two are special tokens (`SpecialTokens`)."""

    symbols: tuple[str | None, ...]
    """the text of every id; None where nobody knows one"""
    marks: frozenset[int]
    """ids that are no special tokens of ours, but never come from text: codes of languages, <mask> and the like"""
    rows: tuple[int, ...] = field(compare=False)
    """for each id the row of the embeddings of the model that was converted; -1 where it has none"""

    def __post_init__(self) -> None:
        known = [symbol for symbol in self.symbols if symbol is not None]
        sound = (
            len(self.symbols) == len(self.rows) >= SpecialTokens.count
            and all(isinstance(symbol, str) for symbol in known)
            and len(set(known)) == len(known)
            and all(type(number) is int for number in (*self.rows, *self.marks))
            and self.marks <= set(range(len(self.symbols)))
        )
        if not sound:
            raise ValueError("a symbol is there twice, or symbols, marks and rows do not belong together")
        "".join(known).encode()  # raises ValueError for lone surrogates

    def ordered(self, order: Sequence[int]) -> Vocabulary:
        """The vocabulary with these of its ids alone, in this order."""
        marks = frozenset(number for number, token in enumerate(order) if token in self.marks)
        return Vocabulary(
            tuple(self.symbols[token] for token in order), marks, tuple(self.rows[token] for token in order)
        )

    def ending_in(self, ends: Sequence[str]) -> Vocabulary:
        """The same with these symbols as its last ones, <eod> and <mask>, in place of ours.

        Raises ValueError for a symbol that it has not.
        """
        last = [self.symbols.index(end) for end in ends]
        kept = [token for token in range(len(self.symbols) - len(ends)) if token not in last]
        found = self.ordered([*kept, *last])
        return replace(found, symbols=(*found.symbols[: -len(ends)], *(None for _ in ends)))

    def words(self) -> dict[str, int]:
        """The ids of what text can become."""
        first, end = SpecialTokens.first_word, len(self.symbols) - 2
        ids = enumerate(self.symbols[first:end], first)
        return {symbol: token for token, symbol in ids if symbol is not None and token not in self.marks}


class PretrainedTokenizer(Tokenizer):
    """The ids that the model's own tokenizer gives a sentence without marks, and the text that it gives for ids.

    Every row of the model's embeddings but those of <s> <pad> </s> <unk> is a "word" (see `rows`): also its marks,
    which text never becomes and which are left out of text, and rows that nobody knows a symbol for.
    """

    kind: ClassVar[str] = "pretrained"

    def __init__(
        self,
        vocabularies: Mapping[Side, Vocabulary],
        pieces: Mapping[Side, Pieces],
        language_marks: Mapping[str, str],
        clean_up: bool = False,
    ) -> None:
        """`pieces` have the ids of the words of the side's vocabulary; `language_marks`: see the method; `clean_up`:
        whether blanks before punctuation and English endings ("n't") are removed from decoded text."""
        self.vocabularies = dict(vocabularies)
        self.pieces = dict(pieces)
        self.clean_up = clean_up
        self._language_marks = dict(language_marks)
        self._ids = {
            side: {symbol: token for token, symbol in enumerate(vocabulary.symbols) if symbol is not None}
            for side, vocabulary in vocabularies.items()
        }
        self.word_count = len(self.vocabularies["target"].symbols) - SpecialTokens.count
        self.shares_vocabulary = self.vocabularies["source"] == self.vocabularies["target"]
        self.sides_alike = self.shares_vocabulary and self.pieces["source"].data == self.pieces["target"].data

    @property
    def source_vocabulary_size(self) -> int:
        return len(self.vocabularies["source"].symbols)

    def rows(self, side: Side) -> list[int]:
        """For each id the row of the embeddings of the model that was converted; -1 where it has none."""
        return list(self.vocabularies[side].rows)

    def id_of(self, symbol: str, side: Side) -> int | None:
        """The id of a symbol by its text, marks such as "de_DE" included; None where the side has none."""
        return self._ids[side].get(symbol)

    def ending_in(self, eod: str, mask: str) -> PretrainedTokenizer:
        """The same where these symbols of its vocabulary are <eod> and <mask>. Raises ValueError where it has not."""
        vocabularies = {side: own.ending_in((eod, mask)) for side, own in self.vocabularies.items()}
        pieces = {side: type(own)(own.data, vocabularies[side].words()) for side, own in self.pieces.items()}
        languages = {code: mark for code, mark in self._language_marks.items() if mark != eod}
        return PretrainedTokenizer(vocabularies, pieces, languages, self.clean_up)

    def language_marks(self) -> dict[str, str]:
        """Codes of languages as users write them, and the symbols that stand for them: "de" and "__de__"."""
        return dict(self._language_marks)

    def _encode(self, sentences: Sequence[str], side: Side) -> list[list[int]]:
        batch = self.pieces[side].encode(sentences)
        return [ids if sentence else [] for sentence, ids in zip(sentences, batch, strict=True)]

    def _decode(self, batch: list[list[int]], side: Side) -> list[str]:
        first = SpecialTokens.first_word
        texts = self.pieces[side].decode([[word + first for word in words] for words in batch])
        return [_clean(text) for text in texts] if self.clean_up else texts

    def same_words(self, other: Tokenizer) -> bool:
        return isinstance(other, PretrainedTokenizer) and all(
            self.vocabularies[side] == other.vocabularies[side] and self.pieces[side].data == other.pieces[side].data
            for side in SIDES
        )

    def files(self) -> dict[str, bytes]:
        names = {side: "tokenizer" if self.sides_alike else side for side in SIDES}
        pieces = {f"{name}{self.pieces[side].suffix}": self.pieces[side].data for side, name in names.items()}
        values = {
            "pieces": list(pieces),
            "language_marks": self._language_marks,
            "clean_up": self.clean_up,
            "vocabularies": [
                {"symbols": vocabulary.symbols, "marks": sorted(vocabulary.marks), "rows": vocabulary.rows}
                for vocabulary in (self.vocabularies[side] for side in SIDES[self.shares_vocabulary :])
            ],
        }
        return {**pieces, VOCABULARY_FILE: f"{json.dumps(values, ensure_ascii=False)}\n".encode()}

    @classmethod
    def load(cls, directory: Path) -> Self:
        values = read_json(directory / VOCABULARY_FILE)
        vocabularies = _by_side(
            [
                Vocabulary(tuple(entry["symbols"]), frozenset(entry["marks"]), tuple(entry["rows"]))
                for entry in values["vocabularies"]
            ]
        )
        names = _by_side([Path(str(name)).name for name in values["pieces"]])
        marks = {str(code): str(mark) for code, mark in values["language_marks"].items()}
        same = names["source"] == names["target"] and vocabularies["source"] is vocabularies["target"]
        pieces: dict[Side, Pieces] = {}
        for side in SIDES[same:]:
            data = read_bytes(directory / names[side], "the model of pieces", regular=True)
            kind = JsonPieces if names[side].endswith(JsonPieces.suffix) else SpmPieces
            pieces[side] = kind(data, vocabularies[side].words())
        return cls(vocabularies, {"source": pieces["target"], **pieces}, marks, bool(values["clean_up"]))


def _by_side(values: Sequence[Any]) -> dict[Side, Any]:
    """What is said once is for both sides."""
    if not 1 <= len(values) <= len(SIDES):
        raise ValueError(f"it has {len(values)} entries for {len(SIDES)} sides")
    return {"source": values[0], "target": values[-1]}


def _clean(text: str) -> str:
    for written, cleaned in _CLEANED.items():
        text = text.replace(written, cleaned)
    return text


_TOGETHER = 10_000
"""Sentences that are split at once."""


def kept(
    tokenizer: PretrainedTokenizer, sentences: Iterable[SideSentence], always: Collection[str] | None = None
) -> PretrainedTokenizer:
    """A tokenizer with the tokens that these sentences need, single characters and bytes, and these marks.

    always: symbols that are kept besides; by default all marks of languages. Other text falls into smaller pieces,
    bytes or <unk>. `rows` of the result are those of the directory that was converted: rows of embeddings to keep.
    Raises DocmtError for a symbol that there is not, and for lone surrogates.
    """
    marks = set(tokenizer.language_marks().values() if always is None else always)
    symbols = {side: set(tokenizer.vocabularies[side].symbols) for side in SIDES}
    if unknown := marks - symbols["source"] - symbols["target"]:
        raise DocmtError(f"the tokenizer has no symbol {min(unknown)!r}: name one of its vocabulary")
    used = _used(tokenizer, sentences)
    needed = {side: tokenizer.pieces[side].needed(used[side] | marks) for side in SIDES}
    pruned = {side: tokenizer.pieces[side].restricted(needed[side]) for side in SIDES}
    if tokenizer.shares_vocabulary:
        needed["source"] = needed["target"] = needed["source"] | needed["target"]
    vocabularies = {side: _without(tokenizer.vocabularies[side], needed[side] | marks) for side in SIDES}
    pieces = {side: type(tokenizer.pieces[side])(pruned[side], vocabularies[side].words()) for side in SIDES}
    languages = {code: mark for code, mark in tokenizer.language_marks().items() if mark in marks}
    return PretrainedTokenizer(vocabularies, pieces, languages, tokenizer.clean_up)


def _used(tokenizer: PretrainedTokenizer, sentences: Iterable[SideSentence]) -> dict[Side, set[str]]:
    """The pieces of each side's sentences; those of both where the sides are alike."""
    used: dict[Side, set[str]] = {side: set() for side in SIDES}
    iterator = iter(sentences)
    while batch := list(islice(iterator, _TOGETHER)):
        for side in SIDES:
            own = [sentence for of, sentence in batch if of == side]
            check_text(own)
            used[side] |= tokenizer.pieces[side].used(own)
    if tokenizer.sides_alike:
        used["source"] = used["target"] = used["source"] | used["target"]
    return used


def _without(vocabulary: Vocabulary, needed: Collection[str]) -> Vocabulary:
    """The vocabulary with special tokens of ours and these symbols only."""
    first, size = SpecialTokens.first_word, len(vocabulary.symbols)
    words = [token for token in range(first, size - 2) if vocabulary.symbols[token] in needed]
    return vocabulary.ordered([*range(first), *words, size - 2, size - 1])
