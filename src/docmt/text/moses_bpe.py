"""Moses tokens, truecased, in joint byte-pair units: the pipeline of the published systems."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from docmt.core.errors import DocmtError
from docmt.core.files import parse_json, read_bytes, write_text
from docmt.text.checks import check_text, check_vocabulary_size, checked_sides, load_library, make_directory
from docmt.text.moses import moses, moses_language
from docmt.text.tokenizer import SIDES, Side, SideSentence, SpecialTokens, Tokenizer, write_config
from docmt.text.truecasing import CaseCounter, Truecaser, detruecase

MODEL_FILE = "tokenizer.json"
MOSES_FILE = "moses.json"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
"""Units for the UTF-8 bytes of characters that training did not see; no token looks like one, as "<" is an entity."""
LONGEST_LINE = 10_000
"""Repetitions of a word given to the trainer at a time."""


class MosesBpeTokenizer(Tokenizer):
    """Moses tokens, truecased per language, then byte-pair encoding over the words of both languages.

    The pipeline of G-Transformer (Bao et al. 2021, section 4.1) and others: punctuation normalised and text tokenised
    by the Moses scripts of the side's language, the truecaser of the side, and merges of characters inside of words
    (Sennrich et al. 2016) learned on both sides together. The end of a word is a blank, a symbol like others, so the
    units of a sentence laid end to end are its tokens. Decoding undoes it step by step, for each sentence alone.

    What is lost is what `docmt.text.moses.Moses` says, and case: the word that begins a sentence, or follows
    `. : ? !`, has a capital afterwards; there "IT" or "iPhone" may become "It" or "IPhone". Inside of a sentence a
    form that training never saw becomes the word's usual form ("THE" becomes "the"). A character that training did
    not see becomes up to four units for its bytes: it is not lost, and nothing becomes <unk>.
    """

    kind: ClassVar[str] = "moses-bpe"
    usual_size: ClassVar[int] = 30_000

    def __init__(self, library: Any, languages: tuple[str, str], truecasers: Mapping[Side, Truecaser]) -> None:
        """`library`: a `tokenizers.Tokenizer` as `train` makes it. Raises DocmtError for no codes of languages."""
        self._library = library
        self._word_count: int = library.get_vocab_size()
        self._languages = languages
        self._truecasers = dict(truecasers)
        for code in languages:
            moses_language(code)

    @property
    def word_count(self) -> int:
        return self._word_count

    @property
    def languages(self) -> tuple[str, str]:
        return self._languages

    def encode_batch(self, sentences: Sequence[str], side: Side | None = None) -> list[list[int]]:
        check_text(sentences)
        scripts, truecaser = moses(self._language(side)), self._truecasers[_known(side)]
        lines = [_line(truecaser.truecase(scripts.tokenize(sentence))) for sentence in sentences]
        first = SpecialTokens.first_word
        encodings = self._library.encode_batch_fast(lines, add_special_tokens=False)
        return [[token + first for token in encoding.ids] for encoding in encodings]

    def decode_batch(self, batch: Sequence[Sequence[int]], side: Side | None = None) -> list[str]:
        scripts = moses(self._language(side))
        lines = self._library.decode_batch([self.words(ids) for ids in batch], skip_special_tokens=False)
        return [scripts.detokenize(detruecase(line.split())) for line in lines]

    def same_words(self, other: Tokenizer) -> bool:
        return isinstance(other, MosesBpeTokenizer) and (self._library.to_str(), self._moses_json()) == (
            other._library.to_str(),
            other._moses_json(),
        )

    def save(self, directory: Path) -> None:
        make_directory(directory)
        write_text(directory / MODEL_FILE, self._library.to_str())
        write_text(directory / MOSES_FILE, self._moses_json())
        write_config(directory, self.kind, [MODEL_FILE, MOSES_FILE])

    @classmethod
    def load(cls, directory: Path) -> Self:
        return cls(_load_library(directory / MODEL_FILE), *_load_moses(directory / MOSES_FILE))

    @classmethod
    def train(
        cls,
        sentences: Iterable[str | SideSentence],
        vocabulary_size: int,
        languages: tuple[str, str] | None = None,
    ) -> Self:
        check_vocabulary_size(vocabulary_size, len(BYTES) + SpecialTokens.count)
        if languages is None:
            raise ValueError("moses-bpe needs the codes of both languages")
        scripts = {side: moses(code) for side, code in zip(SIDES, languages, strict=True)}
        counters = {side: CaseCounter() for side in SIDES}
        for side, sentence in checked_sides(sentences):
            counters[_known(side)].add(scripts[_known(side)].tokenize(sentence))
        truecasers = {side: counter.truecaser() for side, counter in counters.items()}
        words: Counter[str] = Counter()
        for side, counter in counters.items():
            for (token, begins), count in counter.words.items():
                words[truecasers[side].word(token, begins)] += count
        return cls(_learn_merges(words, vocabulary_size), languages, truecasers)

    def _language(self, side: Side | None) -> str:
        return self._languages[SIDES.index(_known(side))]

    def _moses_json(self) -> str:
        """Languages and truecasers; a line for each word, its forms by frequency."""
        sides = [
            f'"{side}": [\n'
            + ",\n".join(json.dumps(of_word, ensure_ascii=False) for of_word in truecaser.forms)
            + "\n]"
            for side, truecaser in self._truecasers.items()
        ]
        return f'{{\n"languages": {json.dumps(self._languages)},\n' + ",\n".join(sides) + "\n}\n"


def _known(side: Side | None) -> Side:
    if side not in SIDES:
        raise ValueError(f"moses-bpe depends on the language: the side must be source or target, not {side!r}")
    return side


def _line(tokens: Sequence[str]) -> str:
    return "".join(f"{token} " for token in tokens)


def _learn_merges(words: Counter[str], vocabulary_size: int) -> Any:
    """A byte-pair tokenizer of exactly that vocabulary, special tokens of ours included, from counted words."""
    if not words:
        raise DocmtError(
            "the Moses tokenizer leaves nothing of the training text; give a training corpus with sentences in it"
        )
    fixed = len(BYTES) + SpecialTokens.count
    smallest = fixed + len(set().union(*words)) + 1  # and the blank
    if vocabulary_size < smallest:
        raise DocmtError(
            f"a vocabulary of {vocabulary_size} is too small for the characters of the training text; "
            f"the smallest possible here is {smallest}"
        )
    library = _pipeline(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=vocabulary_size - fixed, special_tokens=[], show_progress=False)
    library.train_from_iterator(_lines(words), trainer=trainer)
    learned = json.loads(library.to_str())["model"]
    units = BYTES + sorted(learned["vocab"], key=learned["vocab"].__getitem__)
    if len(units) + SpecialTokens.count < vocabulary_size:
        raise DocmtError(
            f"a vocabulary of {vocabulary_size} is larger than the training text allows; set "
            f"--vocabulary_size: the largest possible here is {len(units) + SpecialTokens.count}"
        )
    merges = [tuple(merge) for merge in learned["merges"]]
    return _pipeline(models.BPE(vocab={unit: id for id, unit in enumerate(units)}, merges=merges, byte_fallback=True))


def _pipeline(model: Any) -> Any:
    """Words with the blank after them, units of the model, and back."""
    library: Any = tokenizers.Tokenizer(model)
    library.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    library.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return library


def _lines(words: Counter[str]) -> Iterator[str]:
    """Every word as often as it was counted: the trainer takes text only."""
    for word, count in words.items():
        for start in range(0, count, LONGEST_LINE):
            yield f"{word} " * min(LONGEST_LINE, count - start)


def _load_library(path: Path) -> Any:
    library = load_library(path, _pipeline(models.BPE(byte_fallback=True)), "Moses BPE")
    ids = library.get_vocab()
    units = sorted(ids, key=ids.__getitem__)
    if units[: len(BYTES)] != BYTES or [ids[unit] for unit in units] != list(range(len(units))):
        raise DocmtError(
            f"{path} is not a Moses BPE tokenizer of docmt (its vocabulary has holes or lacks bytes); "
            "copy the tokenizer's files again"
        )
    return library


def _load_moses(path: Path) -> tuple[tuple[str, str], dict[Side, Truecaser]]:
    data = read_bytes(path, "the truecasing file", regular=True)
    try:
        values = parse_json(data)
        source, target = map(str, values["languages"])
        return (source, target), {side: Truecaser(values[side]) for side in SIDES}
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise DocmtError(f"{path} is damaged; copy the tokenizer's files again") from error
