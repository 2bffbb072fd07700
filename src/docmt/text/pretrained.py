"""The tokenizer of a pretrained model of any family: subword models, which split sentences, and vocabularies."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

import sentencepiece

from docmt.core.errors import DocmtError
from docmt.core.files import parse_json, read_bytes, read_json
from docmt.text.bpe import is_panic, parse_tokenizer_json
from docmt.text.sentencepiece_tokenizer import SPACE, TEXT_KINDS, PieceKind, is_bpe, read_pieces, restrict_spm
from docmt.text.tokenizer import SIDES, Side, SideSentence, SpecialTokens, Tokenizer, check_text

VOCABULARY_FILE = "vocabulary.json"
# Replacements in decoded text that some tokenizers apply, in this order.
_CLEAN_UP = {mark: mark.lstrip() for mark in (" .", " ?", " !", " ,")} | {" ' ": "'"}
_CLEAN_UP |= {ending: ending.lstrip() for ending in (" n't", " 'm", " 's", " 've", " 're")}
BYTE = re.compile(r"<0x[0-9A-F]{2}>")
"""Pattern of pieces for single bytes of characters without a piece."""


def find_merges(pieces: Iterable[str], rank: Callable[[str, str], float | None]) -> set[str]:
    """Return all merges that byte-pair encoding applies from characters to these pieces.

    rank: rank of a pair of neighbours, or None if it is never merged. The lowest rank is merged first, the leftmost
    of equal ones.
    """
    merges: set[str] = set()
    for piece in pieces:
        parts = list(piece)
        while ranks := [(number, i) for i, pair in enumerate(pairwise(parts)) if (number := rank(*pair)) is not None]:
            _, index = min(ranks)
            parts[index : index + 2] = [parts[index] + parts[index + 1]]
            merges.add(parts[index])
    return merges


_UNKNOWN = ""
"""The name of <unk> in a restricted Unigram or WordPiece model. No text is split into it."""


class JsonSubwordModel:
    """A tokenizer.json with its normaliser and splitter.

    It has no special tokens, so text that looks like one is split like any other. Pieces without an id become <unk>.
    """

    suffix: ClassVar[str] = ".json"

    def __init__(self, data: bytes, ids: Mapping[str, int]) -> None:
        """Load a file. ids: of its pieces in the vocabulary. Raises ValueError if it is damaged or lacks a piece."""
        self.data = data
        self._library = parse_tokenizer_json(data)
        vocabulary: dict[str, int] = self._library.get_vocab()
        if missing := ids.keys() - vocabulary.keys():
            raise ValueError(f"it lacks {min(missing)!r}")
        self._library_ids = {token: vocabulary[piece] for piece, token in ids.items()}
        self._docmt_ids = [SpecialTokens.unk] * (max(vocabulary.values(), default=-1) + 1)
        for token, library_id in self._library_ids.items():
            self._docmt_ids[library_id] = token

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return the ids of every sentence, on all processor cores."""
        docmt_ids = self._docmt_ids
        return [[docmt_ids[piece] for piece in pieces] for pieces in self._encode(sentences)]

    def decode(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of every sequence of ids. Ids that are no words are ignored."""
        library_ids = self._library_ids
        pieces = [[library_ids[token] for token in ids if token in library_ids] for ids in batch]
        return self._library.decode_batch(pieces, skip_special_tokens=False)

    def find_pieces(self, sentences: Sequence[str]) -> set[str]:
        """Return the pieces of these sentences, and text that becomes <unk>."""
        return {self._library.id_to_token(piece) for piece in set().union(*self._encode(sentences))}

    def add_required(self, used: Collection[str]) -> set[str]:
        """Return these pieces and all others that a restricted model needs to split the sentences equally."""
        model = parse_json(self.data)["model"]
        if model["type"] == "Unigram":
            scores = {piece: score for piece, score in model["vocab"] if piece != _UNKNOWN}
            # The lowest score sets the cost of an unknown character.
            lowest = {min(scores, key=scores.__getitem__)} if scores else set()
            return {*used, *lowest, *(piece for piece in scores if len(piece) == 1 or BYTE.fullmatch(piece))}
        if model["type"] == "WordPiece":
            prefix = model["continuing_subword_prefix"]
            return {*used, *(piece for piece in model["vocab"] if len(piece.removeprefix(prefix)) == 1)}
        ranks = {(first, second): rank for rank, (first, second) in enumerate(model["merges"])}
        merged = {first + second for first, second in ranks}
        never_merged = model["vocab"].keys() - merged
        return {*used, *never_merged, *find_merges(used, lambda first, second: ranks.get((first, second)))}

    def restrict(self, pieces: Collection[str]) -> bytes:
        """Return the file of a model with only these pieces and the entries that every model needs."""
        return restrict_tokenizer_json(parse_json(self.data), pieces)

    def _encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Split sentences. Raises DocmtError for one that the file's patterns cannot match in bounded time."""
        try:
            encodings = self._library.encode_batch_fast(list(sentences), add_special_tokens=False)
        except BaseException as error:
            if not is_panic(error):
                raise
            for sentence in sentences if len(sentences) > 1 else ():
                self._encode([sentence])
            raise DocmtError(
                f"the model's tokenizer cannot split the sentence {sentences[0][:60]!r} ({error}). Shorten or change "
                "this sentence"
            ) from error
        return [encoding.ids for encoding in encodings]


def restrict_tokenizer_json(values: Mapping[str, Any], pieces: Collection[str]) -> bytes:
    """Return a tokenizer.json with only these pieces. Text of other pieces is split into smaller ones.

    values: a tokenizer.json as the library writes it, of type Unigram, BPE or WordPiece. The result adds no special
    tokens and neither truncates nor pads.
    """
    allowed = frozenset(pieces)
    model = dict(values["model"])
    restrict = {"Unigram": _restrict_unigram, "BPE": _restrict_bpe, "WordPiece": _restrict_wordpiece}[model["type"]]
    restrict(model, allowed)
    vocabulary = {piece for piece, _ in model["vocab"]} if model["type"] == "Unigram" else model["vocab"]
    added = [dict(token) for token in values.get("added_tokens") or () if token["content"] in allowed]
    for number, token in enumerate(token for token in added if token["content"] not in vocabulary):
        token["id"] = len(vocabulary) + number
    disabled = {"post_processor": None, "truncation": None, "padding": None}
    return json.dumps({**values, **disabled, "model": model, "added_tokens": added}, ensure_ascii=False).encode()


def _restrict_unigram(model: dict[str, Any], allowed: frozenset[str]) -> None:
    entries: dict[str, float] = {}
    for number, (piece, score) in enumerate(model["vocab"]):
        if number == model["unk_id"]:
            entries[_UNKNOWN] = score
        elif piece in allowed:
            entries[piece] = score
    model["vocab"] = [[piece, score] for piece, score in entries.items()]
    if model["unk_id"] is not None:
        model["unk_id"] = list(entries).index(_UNKNOWN)


def _restrict_bpe(model: dict[str, Any], allowed: frozenset[str]) -> None:
    unknown = model.get("unk_token")
    in_order = sorted(model["vocab"], key=model["vocab"].__getitem__)
    model["vocab"] = _number_pieces(piece for piece in in_order if piece in allowed or piece == unknown)
    model["merges"] = [parts for parts in model["merges"] if allowed.issuperset((*parts, "".join(parts)))]
    model["dropout"] = None


def _restrict_wordpiece(model: dict[str, Any], allowed: frozenset[str]) -> None:
    in_order = sorted(model["vocab"], key=model["vocab"].__getitem__)
    words = [piece for piece in in_order if piece in allowed and piece != _UNKNOWN]
    model["vocab"] = _number_pieces([_UNKNOWN, *words])
    model["unk_token"] = _UNKNOWN


def _number_pieces(pieces: Iterable[str]) -> dict[str, int]:
    return {piece: number for number, piece in enumerate(pieces)}


class SpmSubwordModel:
    """A SentencePiece model, with the methods of `JsonSubwordModel`.

    Ids are found by the text of pieces, so two models can share a vocabulary (Marian).
    """

    suffix: ClassVar[str] = ".model"

    def __init__(self, data: bytes, ids: Mapping[str, int]) -> None:
        self.data = data
        self.ids = ids
        self._library: Any = sentencepiece.SentencePieceProcessor()
        read_pieces(data)
        try:
            self._library.LoadFromSerializedProto(data)
        except RuntimeError as error:
            raise ValueError("it is not a SentencePiece model") from error
        self._pieces = {token: piece for piece, token in ids.items()}

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        ids = self.ids
        return [[ids.get(piece, SpecialTokens.unk) for piece in pieces] for pieces in self._encode(sentences)]

    def decode(self, batch: Sequence[Sequence[int]]) -> list[str]:
        if not batch:
            return []  # the library would read [] as one sequence
        known = self._pieces
        pieces = [[known[token] for token in ids if token in known] for ids in batch]
        texts: list[str] = self._library.decode(pieces, num_threads=-1)
        return [text.replace(SPACE, " ").strip() for text in texts]  # pieces of the other model are not decoded

    def find_pieces(self, sentences: Sequence[str]) -> set[str]:
        return set().union(*self._encode(sentences))

    def add_required(self, used: Collection[str]) -> set[str]:
        pieces = read_pieces(self.data)
        normal = [piece for piece in pieces if piece.kind == PieceKind.NORMAL]
        # The lowest score sets the cost of an unknown character, the highest the score of user-defined symbols.
        extremes = [find(normal, key=lambda piece: piece.score).text for find in (min, max) if normal]
        smallest = (piece.text for piece in pieces if len(piece.text) == 1 or piece.kind == PieceKind.BYTE)
        required = {*used, *extremes, *smallest}
        if is_bpe(self.data):
            ranks = {piece.text: -piece.score for piece in pieces if piece.kind in TEXT_KINDS}
            required |= find_merges(ranks.keys() & used, lambda first, second: ranks.get(first + second))
        return required

    def restrict(self, pieces: Collection[str]) -> bytes:
        allowed = frozenset(pieces)
        return restrict_spm(self.data, {piece.text for piece in read_pieces(self.data) if piece.text not in allowed})

    def _encode(self, sentences: Sequence[str]) -> list[list[str]]:
        return self._library.encode(list(sentences), out_type=str, num_threads=-1)


SubwordModel: TypeAlias = JsonSubwordModel | SpmSubwordModel


@dataclass(frozen=True)
class Vocabulary:
    """Symbols by docmt id. The first four and the last two are special tokens (`SpecialTokens`)."""

    symbols: tuple[str | None, ...]
    """Text of every id, or None if unknown"""
    marks: frozenset[int]
    """Ids that text never becomes, besides special tokens: language codes, <mask> and so on"""
    rows: tuple[int, ...] = field(compare=False)
    """Row of every id in the embeddings of the converted model, or -1"""

    def __post_init__(self) -> None:
        known = [symbol for symbol in self.symbols if symbol is not None]
        is_valid = (
            len(self.symbols) == len(self.rows) >= SpecialTokens.count
            and all(isinstance(symbol, str) for symbol in known)
            and len(set(known)) == len(known)
            and all(type(number) is int for number in (*self.rows, *self.marks))
            and self.marks <= set(range(len(self.symbols)))
        )
        if not is_valid:
            raise ValueError("duplicate symbols, or symbols, marks and rows that do not match")
        "".join(known).encode()  # raises ValueError for lone surrogates

    def select(self, order: Sequence[int]) -> Vocabulary:
        """Return the vocabulary with only these ids, in this order."""
        symbols = tuple(self.symbols[token] for token in order)
        marks = frozenset(number for number, token in enumerate(order) if token in self.marks)
        return Vocabulary(symbols, marks, tuple(self.rows[token] for token in order))

    def with_last_symbols(self, ends: Sequence[str]) -> Vocabulary:
        """Return the vocabulary with these symbols as its last two ids, <eod> and <mask>.

        Raises ValueError for a missing symbol.
        """
        last = [self.symbols.index(end) for end in ends]
        first = [token for token in range(len(self.symbols) - len(ends)) if token not in last]
        reordered = self.select([*first, *last])
        return replace(reordered, symbols=(*reordered.symbols[: -len(ends)], *(None for _ in ends)))

    def word_ids(self) -> dict[str, int]:
        """Return the ids that text can become, by symbol."""
        first, end = SpecialTokens.first_word, len(self.symbols) - 2
        ids = enumerate(self.symbols[first:end], first)
        return {symbol: token for token, symbol in ids if symbol is not None and token not in self.marks}


class PretrainedTokenizer(Tokenizer):
    """A tokenizer with the ids and texts of the pretrained model's tokenizer, without special tokens.

    Every embedding row except those of <s> <pad> </s> <unk> is a "word" (see `rows`). This includes marks, which
    never come from or appear in text, and rows without a known symbol.
    """

    kind: ClassVar[str] = "pretrained"

    def __init__(
        self,
        vocabularies: Mapping[Side, Vocabulary],
        subword_models: Mapping[Side, SubwordModel],
        language_marks: Mapping[str, str],
        clean_up: bool = False,
    ) -> None:
        """Combine vocabularies and subword models.

        subword_models: with the ids of `word_ids` of the side's vocabulary. clean_up: remove blanks before punctuation
        and English endings ("n't") from decoded text.
        """
        self.vocabularies = dict(vocabularies)
        self.subword_models = dict(subword_models)
        self.clean_up = clean_up
        self._language_marks = dict(language_marks)
        self.word_count = len(self.vocabularies["target"].symbols) - SpecialTokens.count
        self.shares_vocabulary = self.vocabularies["source"] == self.vocabularies["target"]
        self.sides_alike = self.shares_vocabulary and subword_models["source"].data == subword_models["target"].data

    @property
    def source_vocabulary_size(self) -> int:
        return len(self.vocabularies["source"].symbols)

    def rows(self, side: Side) -> list[int]:
        """Return the row of every id in the embeddings of the converted model, or -1."""
        return list(self.vocabularies[side].rows)

    def find_id(self, symbol: str, side: Side) -> int | None:
        """Return the id of a symbol or mark such as "de_DE", or None if the side lacks it."""
        symbols = self.vocabularies[side].symbols
        return symbols.index(symbol) if symbol in symbols else None

    def with_last_symbols(self, eod: str, mask: str) -> PretrainedTokenizer:
        """Return the tokenizer with these symbols as <eod> and <mask>. Raises ValueError for a missing symbol."""
        vocabularies = {side: self.vocabularies[side].with_last_symbols((eod, mask)) for side in SIDES}
        models = {
            side: type(model)(model.data, vocabularies[side].word_ids()) for side, model in self.subword_models.items()
        }
        languages = {code: mark for code, mark in self._language_marks.items() if mark != eod}
        return PretrainedTokenizer(vocabularies, models, languages, self.clean_up)

    def language_marks(self) -> dict[str, str]:
        """Return the symbols of languages by the codes that users write, such as "__de__" for "de"."""
        return dict(self._language_marks)

    def _encode(self, sentences: Sequence[str], side: Side) -> list[list[int]]:
        batch = self.subword_models[side].encode(sentences)
        return [ids if sentence else [] for sentence, ids in zip(sentences, batch, strict=True)]

    def _decode(self, batch: list[list[int]], side: Side) -> list[str]:
        first = SpecialTokens.first_word
        texts = self.subword_models[side].decode([[word + first for word in words] for words in batch])
        return [_clean_up(text) for text in texts] if self.clean_up else texts

    def has_same_vocabulary(self, other: Tokenizer) -> bool:
        return isinstance(other, PretrainedTokenizer) and all(
            self.vocabularies[side] == other.vocabularies[side]
            and self.subword_models[side].data == other.subword_models[side].data
            for side in SIDES
        )

    def files(self) -> dict[str, bytes]:
        names = {side: "tokenizer" if self.sides_alike else side for side in SIDES}
        models = {
            f"{name}{self.subword_models[side].suffix}": self.subword_models[side].data for side, name in names.items()
        }
        values = {
            "pieces": list(models),
            "language_marks": self._language_marks,
            "clean_up": self.clean_up,
            "vocabularies": [
                {"symbols": vocabulary.symbols, "marks": sorted(vocabulary.marks), "rows": vocabulary.rows}
                for vocabulary in (self.vocabularies[side] for side in SIDES[self.shares_vocabulary :])
            ],
        }
        return {**models, VOCABULARY_FILE: f"{json.dumps(values, ensure_ascii=False)}\n".encode()}

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
        models: dict[Side, SubwordModel] = {}
        for side in SIDES[same:]:
            data = read_bytes(directory / names[side], "the subword model", regular=True)
            model_class = JsonSubwordModel if names[side].endswith(JsonSubwordModel.suffix) else SpmSubwordModel
            models[side] = model_class(data, vocabularies[side].word_ids())
        return cls(vocabularies, {"source": models["target"], **models}, marks, bool(values["clean_up"]))


def _by_side(values: Sequence[Any]) -> dict[Side, Any]:
    """Return the value of each side. A single value is for both."""
    if not 1 <= len(values) <= len(SIDES):
        raise ValueError(f"it has {len(values)} entries for {len(SIDES)} sides")
    return {"source": values[0], "target": values[-1]}


def _clean_up(text: str) -> str:
    for pattern, replacement in _CLEAN_UP.items():
        text = text.replace(pattern, replacement)
    return text


_BATCH_SENTENCES = 10_000
"""Number of sentences that are split at once."""


def restrict_vocabulary(tokenizer: PretrainedTokenizer, sentences: Iterable[SideSentence]) -> PretrainedTokenizer:
    """Return a tokenizer with only the tokens of these sentences, single characters, bytes and all language marks.

    Other text becomes smaller pieces, bytes or <unk>. `rows` of the result are the embedding rows to keep. Raises
    DocmtError for lone surrogates.
    """
    marks = set(tokenizer.language_marks().values())
    used = _collect_pieces(tokenizer, sentences)
    required = {side: tokenizer.subword_models[side].add_required(used[side] | marks) for side in SIDES}
    pruned = {side: tokenizer.subword_models[side].restrict(required[side]) for side in SIDES}
    if tokenizer.shares_vocabulary:
        required["source"] = required["target"] = required["source"] | required["target"]
    vocabularies = {side: _restrict_rows(tokenizer.vocabularies[side], required[side] | marks) for side in SIDES}
    models = {side: type(tokenizer.subword_models[side])(pruned[side], vocabularies[side].word_ids()) for side in SIDES}
    return PretrainedTokenizer(vocabularies, models, tokenizer.language_marks(), tokenizer.clean_up)


def _collect_pieces(tokenizer: PretrainedTokenizer, sentences: Iterable[SideSentence]) -> dict[Side, set[str]]:
    """Return the pieces of each side's sentences, or of all sentences if the sides are alike."""
    used: dict[Side, set[str]] = {side: set() for side in SIDES}
    iterator = iter(sentences)
    while batch := list(islice(iterator, _BATCH_SENTENCES)):
        for side in SIDES:
            side_sentences = [sentence for sentence_side, sentence in batch if sentence_side == side]
            check_text(side_sentences)
            used[side] |= tokenizer.subword_models[side].find_pieces(side_sentences)
    if tokenizer.sides_alike:
        used["source"] = used["target"] = used["source"] | used["target"]
    return used


def _restrict_rows(vocabulary: Vocabulary, required: Collection[str]) -> Vocabulary:
    """Return the vocabulary with only the special tokens and these symbols."""
    first, size = SpecialTokens.first_word, len(vocabulary.symbols)
    words = [token for token in range(first, size - 2) if vocabulary.symbols[token] in required]
    return vocabulary.select([*range(first), *words, size - 2, size - 1])
