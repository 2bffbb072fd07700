"""SentencePiece models: trained here, or brought along."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Self

import sentencepiece

from docmt.core.errors import DocmtError
from docmt.core.files import atomic_path, read_bytes
from docmt.text.checks import check_text, check_vocabulary_size, checked, make_directory
from docmt.text.tokenizer import Side, SideSentence, SpecialTokens, Tokenizer, write_config

MODEL_FILE = "tokenizer.model"
BYTES = 256
TRAINING_SENTENCES = 1_000_000
"""At most this many sentences, drawn evenly, are used to learn a model: the trainer holds all in memory."""
LONGEST_TRAINING_SENTENCE = 1 << 16
"""In bytes. The trainer leaves longer ones out (its own limit, 4192, would leave out real sentences)."""


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model (Kudo and Richardson 2018); trained here: unigram, rare characters as bytes.

    Words are the model's normal, user-defined and byte pieces, in its order; its control, unused and unknown
    pieces have no ids of their own here (its unknown piece becomes <unk>).

    What is lost: with a model trained here, `decode(encode(s)) == s` except that "▁" (U+2581), the library's
    sign for a space, comes back as a space. A model brought along does what it was trained for: most
    normalise (NFKC) and squeeze spaces, and without byte pieces an unseen character becomes <unk>, which
    decodes to nothing.
    """

    kind: ClassVar[str] = "sentencepiece"

    def __init__(self, model: bytes) -> None:
        """`model`: the contents of a `.model` file. RuntimeError or ValueError if they are no such thing."""
        self.model = model
        self._library = library = sentencepiece.SentencePieceProcessor()
        library.LoadFromSerializedProto(model)
        size = library.get_piece_size()
        library.id_to_piece(list(range(size)))  # raises UnicodeDecodeError now, not for a sentence among thousands
        self._pieces = [
            piece
            for piece in range(size)
            if not (library.is_control(piece) or library.is_unknown(piece) or library.is_unused(piece))
        ]
        self._ids = [SpecialTokens.unk] * size
        for word, piece in enumerate(self._pieces):
            self._ids[piece] = word + SpecialTokens.first_word

    @classmethod
    def from_model(cls, path: Path) -> Self:
        """Takes an existing SentencePiece `.model` file. Raises DocmtError if it is missing or damaged."""
        data = read_bytes(path, "the SentencePiece model", regular=True)
        try:
            return cls(data)
        except (RuntimeError, ValueError) as error:  # ValueError: a piece, or what the library says, is no UTF-8
            raise DocmtError(f"{path} is damaged or not a SentencePiece model; give another .model file") from error

    @property
    def word_count(self) -> int:
        return len(self._pieces)

    def pieces(self) -> list[str]:
        """The text of every word."""
        return [self._library.id_to_piece(piece) for piece in self._pieces]

    def encode_batch(self, sentences: Sequence[str], side: Side | None = None) -> list[list[int]]:
        check_text(sentences)
        ids = self._ids
        batch = self._library.encode(list(sentences), out_type=int, num_threads=-1)
        return [[ids[piece] for piece in pieces] for pieces in batch]

    def decode_batch(self, batch: Sequence[Sequence[int]], side: Side | None = None) -> list[str]:
        pieces = [[self._pieces[word] for word in self.words(ids)] for ids in batch]
        if not pieces:
            return []  # the library takes [] for one sequence
        texts: list[str] = self._library.decode(pieces, num_threads=-1)
        return texts

    def save(self, directory: Path) -> None:
        make_directory(directory)
        with atomic_path(directory / MODEL_FILE) as temporary:
            temporary.write_bytes(self.model)
        write_config(directory, self.kind, [MODEL_FILE])

    @classmethod
    def load(cls, directory: Path) -> Self:
        return cls.from_model(directory / MODEL_FILE)

    @classmethod
    def train(
        cls,
        sentences: Iterable[str | SideSentence],
        vocabulary_size: int,
        languages: tuple[str, str] | None = None,
    ) -> Self:
        check_vocabulary_size(vocabulary_size, BYTES + SpecialTokens.count)
        unknown = 1  # the library insists on a piece for it, which has no id of ours
        reader = _Reader(checked(sentences))
        model = io.BytesIO()
        sentencepiece.set_random_generator_seed(1)  # of the draw of TRAINING_SENTENCES
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=reader,
                model_writer=model,
                model_type="unigram",
                vocab_size=vocabulary_size - SpecialTokens.count + unknown,
                byte_fallback=True,
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                input_sentence_size=TRAINING_SENTENCES,
                max_sentence_length=LONGEST_TRAINING_SENTENCE,
                unk_id=0,
                bos_id=-1,
                eos_id=-1,
                pad_id=-1,
                minloglevel=3,
            )
        except RuntimeError as error:
            if reader.failure is not None:
                raise reader.failure from None
            raise DocmtError(_training_error(str(error), vocabulary_size, SpecialTokens.count - unknown)) from error
        return cls(model.getvalue())


class _Reader(Iterator[str]):
    """Remembers what went wrong while reading: the library makes of it a RuntimeError without a cause."""

    def __init__(self, sentences: Iterator[str]) -> None:
        self._sentences = sentences
        self.failure: BaseException | None = None

    def __next__(self) -> str:
        try:
            return next(self._sentences)
        except StopIteration:
            raise
        except BaseException as error:
            self.failure = error
            raise


def _training_error(message: str, vocabulary_size: int, more: int) -> str:
    """The library's complaint in our words; `more`: how many ids ours has that its vocabulary has not."""
    too_large = re.search(r"value <= (\d+)", message)
    if too_large:
        return (
            f"a vocabulary of {vocabulary_size} is larger than the training text allows; set "
            f"--vocabulary_size: the largest possible here is {int(too_large[1]) + more}"
        )
    too_small = re.search(r"required_chars\. \d+ vs (\d+)", message)
    if too_small:
        return (
            f"a vocabulary of {vocabulary_size} is too small for the characters of the training text; "
            f"the smallest possible here is {int(too_small[1]) + more}"
        )
    reason = _reason(message)
    return f"SentencePiece could not learn a vocabulary of {vocabulary_size} ({reason}); try another size"


def _reason(error: object) -> str:
    return " ".join(str(error).split()).rstrip(".")
