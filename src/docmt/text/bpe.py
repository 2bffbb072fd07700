"""Byte-level byte-pair encoding: lossless, without unknown words."""

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
    check_sentences,
    check_vocabulary_size,
    too_large_error,
)

MODEL_FILE = "tokenizer.json"

# Merges never cross these pieces. A piece includes one space before it, so a word has the same tokens everywhere.
# Digits stand alone, so numbers are copied or reformatted digit by digit. Combining marks belong to the letters
# before them (Devanagari, Thai, decomposed Latin). Everything else is punctuation.
PIECES = r" ?[\p{L}\p{M}]+| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"


class BpeTokenizer(Tokenizer):
    """Byte-pair encoding over UTF-8 bytes (Sennrich et al. 2016; bytes as in Radford et al. 2019).

    `decode(encode(s)) == s` for every string with a UTF-8 form. Nothing is normalised and nothing becomes <unk>.
    The exception is a tokenizer.json with a normalizer, as in the package's models: `encode` reads ’ as ' and “ as ".
    A space is added before each sentence, so a word has the same tokens at the beginning and inside.
    """

    kind: ClassVar[str] = "bpe"

    def __init__(self, library: Any) -> None:
        """Wrap a `tokenizers.Tokenizer` that `train` built, without added tokens."""
        self._library = library
        self.word_count = library.get_vocab_size()

    def to_json(self) -> str:
        """Return the library's tokenizer.json, in which words are counted from 0."""
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
        return cls(parse_tokenizer_json(read_bytes(directory / MODEL_FILE, "the tokenizer file", regular=True)))

    @classmethod
    def train(cls, sentences: Sentences, vocabulary_size: int, languages: Languages | None = None) -> Self:
        check_vocabulary_size(vocabulary_size)
        library = _untrained_tokenizer()
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary_size - SpecialTokens.count,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            special_tokens=[],
            show_progress=False,
        )
        library.train_from_iterator((" " + sentence for sentence in check_sentences(sentences)), trainer=trainer)
        tokenizer = cls(library)
        if tokenizer.vocabulary_size < vocabulary_size:
            raise too_large_error(vocabulary_size, tokenizer.vocabulary_size)
        return tokenizer


def parse_tokenizer_json(data: bytes) -> Any:
    """Return the `tokenizers.Tokenizer` that a tokenizer.json describes. Raises ValueError if it is damaged."""
    try:
        return tokenizers.Tokenizer.from_str(data.decode("utf-8"))
    except BaseException as error:  # the library raises bare Exception, and a BaseException where it panics
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise ValueError(str(error)) from error


def is_panic(error: BaseException) -> bool:
    """Return whether the error is a panic of the Rust library tokenizers."""
    return type(error).__name__ == "PanicException"


def _untrained_tokenizer() -> Any:
    """Build the pipeline without merges: split into pieces, map to bytes, and decode."""
    library: Any = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    library.decoder = decoders.ByteLevel()
    return library
