"""Byte-level byte-pair encoding: loses nothing, knows no unknown words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

from docmt.core.files import read_bytes
from docmt.text.tokenizer import (
    Languages,
    Sentences,
    Side,
    SpecialTokens,
    Tokenizer,
    check_vocabulary_size,
    checked,
    too_large,
)

MODEL_FILE = "tokenizer.json"

# Merges never cross these pieces. A piece takes one space before it along, so that a word has the same tokens
# wherever it stands; digits stand alone, so that any number is copied or reformatted digit by digit;
# combining marks belong to the letters before them (Devanagari, Thai, decomposed Latin); what is left is punctuation.
PIECES = r" ?[\p{L}\p{M}]+| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"


class BpeTokenizer(Tokenizer):
    """Byte-pair encoding over UTF-8 bytes (Sennrich et al. 2016; bytes as in Radford et al. 2019).

    `decode(encode(s)) == s` for every string that has a UTF-8 form: nothing is normalised, nothing is <unk>.
    A sentence is encoded with one space before it, so a word has the same tokens at the beginning and inside.
    """

    kind: ClassVar[str] = "bpe"

    def __init__(self, library: Any) -> None:
        """`library`: a `tokenizers.Tokenizer` as `train` makes it, without added tokens."""
        self._library = library
        self.word_count = library.get_vocab_size()

    def to_json(self) -> str:
        """What the library writes of it; words are counted from 0."""
        return self._library.to_str()

    def files(self) -> dict[str, bytes]:
        return {MODEL_FILE: self.to_json().encode()}

    def _encode(self, sentences: Sequence[str], side: Side) -> list[list[int]]:
        spaced = [" " + sentence if sentence else "" for sentence in sentences]
        first = SpecialTokens.first_word
        encodings = self._library.encode_batch_fast(spaced, add_special_tokens=False)
        return [[token + first for token in encoding.ids] for encoding in encodings]

    def _decode(self, batch: list[list[int]], side: Side) -> list[str]:
        texts = self._library.decode_batch(batch, skip_special_tokens=False)
        return [text.removeprefix(" ") for text in texts]

    @classmethod
    def load(cls, directory: Path) -> Self:
        return cls(parse_library(read_bytes(directory / MODEL_FILE, "the tokenizer file", regular=True)))

    @classmethod
    def train(cls, sentences: Sentences, vocabulary_size: int, languages: Languages | None = None) -> Self:
        check_vocabulary_size(vocabulary_size)
        library = _without_words()
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary_size - SpecialTokens.count,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            special_tokens=[],
            show_progress=False,
        )
        library.train_from_iterator((" " + sentence for sentence in checked(sentences)), trainer=trainer)
        tokenizer = cls(library)
        if tokenizer.vocabulary_size < vocabulary_size:
            raise too_large(vocabulary_size, tokenizer.vocabulary_size)
        return tokenizer


def parse_library(data: bytes) -> Any:
    """The `tokenizers.Tokenizer` that a tokenizer.json describes. Raises ValueError if it is damaged."""
    try:
        return tokenizers.Tokenizer.from_str(data.decode("utf-8"))
    except BaseException as error:  # the library raises bare Exception, and where it panics not even that
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise ValueError(str(error)) from error


def is_panic(error: BaseException) -> bool:
    """Return whether the library tokenizers, which is written in Rust, failed in its own code."""
    return type(error).__name__ == "PanicException"


def _without_words() -> Any:
    """The pipeline: pieces, their bytes, merges that are yet to be learned, and back."""
    library: Any = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    library.decoder = decoders.ByteLevel()
    return library
