"""Byte-pair encodings: of bytes, lossless; and after Moses tokenisation and truecasing, as in the published systems."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

from docmt.core.errors import DocmtError
from docmt.core.files import parse_json, read_bytes
from docmt.core.grouping import group_pairs
from docmt.text.tokenizer import (
    SIDES,
    Languages,
    Sentences,
    Side,
    SpecialTokens,
    Tokenizer,
    check_sentences,
    check_side,
    check_sided_sentences,
    check_vocabulary_size,
    too_large_error,
    too_small_error,
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
    split = pre_tokenizers.Split(Regex(PIECES), behavior="isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
    library.decoder = decoders.ByteLevel()
    return library


MOSES_FILE = "moses.json"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
"""Units for the UTF-8 bytes of unseen characters. No token looks like one, because "<" is written as an entity."""
MAX_REPETITIONS = 10_000
"""Most repetitions of a word in one line of training text."""


class MosesBpeTokenizer(Tokenizer):
    """Moses tokenisation and truecasing per language, then byte-pair encoding over the words of both languages.

    This is the pipeline of G-Transformer (Bao et al. 2021, section 4.1) and others. Merges inside words (Sennrich
    et al. 2016) are learned on both sides together. A blank ends each word and is a symbol like others, so the
    concatenated units of a sentence are its tokens.

    Decoding loses what `Moses` loses, and some case. The first word of a sentence, or after `. : ? !`, gets a capital:
    "iPhone" becomes "IPhone" there. Inside a sentence an unseen form becomes the word's most frequent form ("THE"
    becomes "the"). An unseen character becomes up to four byte units, so it is kept and nothing becomes <unk>.
    """

    kind: ClassVar[str] = "moses-bpe"
    default_size: ClassVar[int] = 30_000
    languages: Languages
    sides_alike = False

    def __init__(self, library: Any, languages: Languages, truecasers: Mapping[Side, Truecaser]) -> None:
        """Wrap a `tokenizers.Tokenizer` that `train` built. Raises DocmtError for invalid language codes."""
        self._library = library
        self.word_count = library.get_vocab_size()
        self.languages = languages
        self._truecasers = dict(truecasers)
        for code in languages:
            moses_language(code)

    def files(self) -> dict[str, bytes]:
        """Return the library's file, and a file of languages and truecasers (the forms of each word by frequency)."""
        sides = {side: truecaser.forms for side, truecaser in self._truecasers.items()}
        values = json.dumps({"languages": self.languages, **sides}, ensure_ascii=False)
        return {MODEL_FILE: self._library.to_str().encode(), MOSES_FILE: f"{values}\n".encode()}

    def _encode(self, sentences: Sequence[str], side: Side) -> list[list[int]]:
        scripts, truecaser = self._scripts(side), self._truecasers[side]
        tokenized = (truecaser.truecase(scripts.tokenize(sentence)) for sentence in sentences)
        lines = ["".join(f"{token} " for token in tokens) for tokens in tokenized]
        first = SpecialTokens.first_word
        encodings = self._library.encode_batch_fast(lines, add_special_tokens=False)
        return [[token + first for token in encoding.ids] for encoding in encodings]

    def _decode(self, batch: list[list[int]], side: Side) -> list[str]:
        scripts, lines = self._scripts(side), self._library.decode_batch(batch, skip_special_tokens=False)
        return [scripts.detokenize(detruecase(line.split())) for line in lines]

    def has_same_vocabulary(self, other: Tokenizer) -> bool:
        return isinstance(other, MosesBpeTokenizer) and self.files() == other.files()

    @classmethod
    def load(cls, directory: Path) -> Self:
        library = parse_tokenizer_json(read_bytes(directory / MODEL_FILE, "the tokenizer file", regular=True))
        values = parse_json(read_bytes(directory / MOSES_FILE, "the truecasing file", regular=True))
        source, target = map(str, values["languages"])
        return cls(library, (source, target), {side: Truecaser(values[side]) for side in SIDES})

    @classmethod
    def train(cls, sentences: Sentences, vocabulary_size: int, languages: Languages | None = None) -> Self:
        check_vocabulary_size(vocabulary_size)
        if languages is None:
            raise ValueError("moses-bpe needs the codes of both languages")
        scripts = {side: moses(code) for side, code in zip(SIDES, languages, strict=True)}
        counters = {side: CaseCounter() for side in SIDES}
        for side, sentence in check_sided_sentences(sentences):
            side = check_side(side)
            counters[side].add(scripts[side].tokenize(sentence))
        truecasers = {side: counter.build_truecaser() for side, counter in counters.items()}
        words: Counter[str] = Counter()
        for side, counter in counters.items():
            for (token, begins), count in counter.words.items():
                words[truecasers[side].truecase_token(token, begins)] += count
        return cls(_learn_merges(words, vocabulary_size), languages, truecasers)

    def _scripts(self, side: Side) -> Moses:
        return moses(self.languages[SIDES.index(side)])


def _learn_merges(words: Counter[str], vocabulary_size: int) -> Any:
    """Train a byte-pair tokenizer on counted words. docmt's special tokens count towards `vocabulary_size`."""
    if not words:
        raise DocmtError("the training text is empty after Moses tokenisation. Use a corpus with sentences in it")
    fixed = len(BYTES) + SpecialTokens.count
    smallest = fixed + len(set().union(*words)) + 1  # the blank
    if vocabulary_size < smallest:
        raise too_small_error(vocabulary_size, smallest)
    library = _build_pipeline(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=vocabulary_size - fixed, special_tokens=[], show_progress=False)
    library.train_from_iterator(_repeat_words(words), trainer=trainer)
    learned = json.loads(library.to_str())["model"]
    units = BYTES + sorted(learned["vocab"], key=learned["vocab"].__getitem__)
    if len(units) + SpecialTokens.count < vocabulary_size:
        raise too_large_error(vocabulary_size, len(units) + SpecialTokens.count)
    merges = [tuple(merge) for merge in learned["merges"]]
    vocabulary = {unit: id for id, unit in enumerate(units)}
    return _build_pipeline(models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True))


def _build_pipeline(model: Any) -> Any:
    """Build the pipeline: split after each blank, apply the model, and join units when decoding."""
    library: Any = tokenizers.Tokenizer(model)
    library.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    library.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return library


def _repeat_words(words: Counter[str]) -> Iterator[str]:
    """Yield lines that repeat every word by its count, because the trainer only takes text."""
    for word, count in words.items():
        for start in range(0, count, MAX_REPETITIONS):
            yield f"{word} " * min(MAX_REPETITIONS, count - start)


LANGUAGE_CODE = re.compile(r"[A-Za-z]{2,3}")


def moses_language(code: str, option: str = "") -> str:
    """Return the Moses scripts' name of the language of a code such as "en", "en-GB" or "en_XX".

    option: prefix of the error message. Raises DocmtError for an invalid code, for which the scripts would silently
    use no language rules.
    """
    language = re.split(r"[-_]", code)[0]
    if not LANGUAGE_CODE.fullmatch(language):
        raise DocmtError(f"{option}{code!r} is not the code of a language. Use two or three letters, such as en or de")
    return language.lower()


class Moses:
    """The Moses tokenizer and detokenizer of one language (Koehn et al. 2007, as ported by sacremoses).

    Text is composed (NFC), its punctuation is normalised, and `& | < > ' " [ ]` become entities (`&amp;`).
    `detokenize(tokenize(s)) == s` for prose in ASCII quotes and apostrophes with the language's usual spaces.
    Other text changes:

    - Typographic signs become ASCII: all quotes `"`, apostrophes and backticks `'`, dashes `-`, `…` three dots. A
      period or comma beside a quote may swap with it. A no-break space in a number becomes the language's separator.
    - Runs of white space become one space, and spaces at the ends are dropped. Spaces around brackets and before
      `: ; % ? !` follow the language (French: one before each, others: none).
    - Signs inside words and numbers get spaces: `and/or` becomes `and / or`. So do `& @ _ + = # § < >`, addresses, URLs
      and the parts of joined emoji. A backslash joins the word before it, a currency sign the one after it (`5 € mehr`
      becomes `5 €mehr`).
    - `'` and `"` alternate between opening and closing. `6'2"`, or `geht's` outside English, French and Italian, get a
      space on the wrong side.

    Only control characters (U+0000-U+001F) are dropped. No other character is lost.
    """

    def __init__(self, code: str) -> None:
        """Load the rules of a language. Raises DocmtError for an invalid code. The first import takes 0.5 s."""
        import sacremoses

        self.language = moses_language(code)
        self._normalizer: Any = sacremoses.MosesPunctNormalizer(self.language)
        self._tokenizer: Any = sacremoses.MosesTokenizer(self.language)
        self._detokenizer: Any = sacremoses.MosesDetokenizer(self.language)
        _patch_scripts(self._tokenizer, self._detokenizer)

    def tokenize(self, text: str, *, split_hyphens: bool = False) -> list[str]:
        """Return the tokens of a sentence. No token contains white space or one of `| < > ' " [ ]`.

        split_hyphens: write hyphens inside words as tokens `@-@` (the script's option -a).
        """
        text = self._normalizer.normalize(unicodedata.normalize("NFC", text))
        return self._tokenizer.tokenize(text, aggressive_dash_splits=split_hyphens)

    def detokenize(self, tokens: Sequence[str]) -> str:
        """Return the text of one sentence."""
        return self._detokenizer.detokenize(tokens)


moses = cache(Moses)
"""Return the cached `Moses` of a language."""


def _patch_scripts(tokenizer: Any, detokenizer: Any) -> None:
    """Make sacremoses faster with equal results, and avoid an exception for Czech."""
    # The library builds a set of 100,000 letters for every word with a period in it.
    lower, letters = frozenset(tokenizer.IsLower), frozenset(tokenizer.IsAlpha)
    tokenizer.islower = lower.issuperset
    tokenizer.isanyalpha = lambda text: not letters.isdisjoint(text)
    tokenizer.NONBREAKING_PREFIXES = frozenset(tokenizer.NONBREAKING_PREFIXES)
    tokenizer.NUMERIC_ONLY_PREFIXES = frozenset(tokenizer.NUMERIC_ONLY_PREFIXES)
    if detokenizer.lang == "cs":
        # Its rule for "x' - li" raises TypeError. A pattern that never matches disables the rule.
        detokenizer.IS_FRENCH_CONRTACTION = re.compile(r"(?!)")


SENTENCE_END = frozenset(".:?!")
"""A word after one of these tokens begins a sentence."""
OPENING = frozenset(["(", "[", '"', "'", "&apos;", "&quot;", "&#91;", "&#93;"])
"""A word after one of these begins a sentence if they do."""


class CaseCounter:
    """Counts of words, and of their forms inside sentences, to build a truecaser.

    words: counts of (token, begins a sentence). With a truecaser they give the counts of truecased words, so the
    corpus is read once.
    """

    def __init__(self) -> None:
        self.words: Counter[tuple[str, bool]] = Counter()
        self._inner_forms: Counter[str] = Counter()

    def add(self, tokens: Sequence[str]) -> None:
        """Count the tokens of one sentence."""
        self.words.update(_mark_sentence_starts(tokens))
        self._inner_forms.update(_inner_words(tokens))

    def build_truecaser(self) -> Truecaser:
        """Build the truecaser of the sentences counted so far."""
        by_count = (token for token, _ in self._inner_forms.most_common())  # equal counts: first seen first
        return Truecaser(group_pairs((token.lower(), token) for token in by_count).values())


class Truecaser:
    """The Moses truecaser of one language (Koehn et al. 2007, truecase.perl).

    The first word of a sentence takes its most frequent form inside sentences. Any other word keeps a known form, and
    otherwise takes the most frequent one. Unknown words are unchanged.
    """

    def __init__(self, forms: Iterable[Sequence[str]]) -> None:
        """Take the forms of each word, most frequent first. Raises ValueError for duplicates or mixed words."""
        self.forms = [list(word_forms) for word_forms in forms]
        self._best = {word_forms[0].lower(): word_forms[0] for word_forms in self.forms}
        self._known = {form for word_forms in self.forms for form in word_forms}
        is_grouped = all(len({form.lower() for form in word_forms}) == 1 for word_forms in self.forms)
        if not is_grouped or len(self._best) != len(self.forms):
            raise ValueError("forms are not grouped by word")

    def truecase_token(self, token: str, begins: bool) -> str:
        """Return a token in its true case. `begins`: it begins a sentence."""
        if not begins and token in self._known:
            return token
        return self._best.get(token.lower(), token)

    def truecase(self, tokens: Sequence[str]) -> list[str]:
        """Return the tokens of one sentence in their true case."""
        return [self.truecase_token(token, begins) for token, begins in _mark_sentence_starts(tokens)]


def detruecase(tokens: Sequence[str]) -> list[str]:
    """Return the tokens of one sentence with a capital at each sentence start in it (detruecase.perl)."""
    return [_capitalize(token) if begins else token for token, begins in _mark_sentence_starts(tokens)]


def _capitalize(token: str) -> str:
    # A capital may be two letters ("ß"). Such a word is unchanged, because truecasing could not undo it.
    first = token[:1].upper()
    return first + token[1:] if len(first) == 1 else token


def _mark_sentence_starts(tokens: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield each token, and whether a word at this position begins a sentence."""
    begins = True
    for token in tokens:
        yield token, begins
        if token in SENTENCE_END:
            begins = True
        elif token not in OPENING:
            begins = False


def _inner_words(tokens: Sequence[str]) -> Iterator[str]:
    """Yield the words inside sentences, whose case is informative (train-truecaser.perl)."""
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
