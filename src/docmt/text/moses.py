"""Moses tokens, truecased, in joint byte-pair units: the pipeline of the published systems."""

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
from tokenizers import decoders, models, pre_tokenizers, trainers

from docmt.core.errors import DocmtError
from docmt.core.files import parse_json, read_bytes
from docmt.text.bpe import parse_library
from docmt.text.tokenizer import (
    SIDES,
    Languages,
    Sentences,
    Side,
    SpecialTokens,
    Tokenizer,
    check_vocabulary_size,
    checked_sides,
    known_side,
    too_large,
    too_small,
)

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
    languages: Languages
    sides_alike = False

    def __init__(self, library: Any, languages: Languages, truecasers: Mapping[Side, Truecaser]) -> None:
        """`library`: a `tokenizers.Tokenizer` as `train` makes it. Raises DocmtError for no codes of languages."""
        self._library = library
        self.word_count = library.get_vocab_size()
        self.languages = languages
        self._truecasers = dict(truecasers)
        for code in languages:
            moses_language(code)

    def files(self) -> dict[str, bytes]:
        """The library's file, and that of languages and truecasers: for each word its forms by frequency."""
        sides = {side: truecaser.forms for side, truecaser in self._truecasers.items()}
        values = json.dumps({"languages": self.languages, **sides}, ensure_ascii=False)
        return {MODEL_FILE: self._library.to_str().encode(), MOSES_FILE: f"{values}\n".encode()}

    def _encode(self, sentences: Sequence[str], side: Side) -> list[list[int]]:
        scripts, truecaser = self._scripts(side), self._truecasers[side]
        lines = [_line(truecaser.truecase(scripts.tokenize(sentence))) for sentence in sentences]
        first = SpecialTokens.first_word
        encodings = self._library.encode_batch_fast(lines, add_special_tokens=False)
        return [[token + first for token in encoding.ids] for encoding in encodings]

    def _decode(self, batch: list[list[int]], side: Side) -> list[str]:
        scripts, lines = self._scripts(side), self._library.decode_batch(batch, skip_special_tokens=False)
        return [scripts.detokenize(detruecase(line.split())) for line in lines]

    def same_words(self, other: Tokenizer) -> bool:
        return isinstance(other, MosesBpeTokenizer) and self.files() == other.files()

    @classmethod
    def load(cls, directory: Path) -> Self:
        library = parse_library(read_bytes(directory / MODEL_FILE, "the tokenizer file", regular=True))
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
        for side, sentence in checked_sides(sentences):
            side = known_side(side)
            counters[side].add(scripts[side].tokenize(sentence))
        truecasers = {side: counter.truecaser() for side, counter in counters.items()}
        words: Counter[str] = Counter()
        for side, counter in counters.items():
            for (token, begins), count in counter.words.items():
                words[truecasers[side].word(token, begins)] += count
        return cls(_learn_merges(words, vocabulary_size), languages, truecasers)

    def _scripts(self, side: Side) -> Moses:
        return moses(self.languages[SIDES.index(side)])


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
        raise too_small(vocabulary_size, smallest)
    library = _pipeline(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=vocabulary_size - fixed, special_tokens=[], show_progress=False)
    library.train_from_iterator(_lines(words), trainer=trainer)
    learned = json.loads(library.to_str())["model"]
    units = BYTES + sorted(learned["vocab"], key=learned["vocab"].__getitem__)
    if len(units) + SpecialTokens.count < vocabulary_size:
        raise too_large(vocabulary_size, len(units) + SpecialTokens.count)
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


LANGUAGE_CODE = re.compile(r"[A-Za-z]{2,3}")


def moses_language(code: str, option: str = "") -> str:
    """The language of a code such as "en", "en-GB" or "en_XX", as the Moses scripts name it.

    option: what an error names before the code.
    Raises DocmtError for what is no such code: the scripts would silently take it for a language without rules.
    """
    language = re.split(r"[-_]", code)[0]
    if not LANGUAGE_CODE.fullmatch(language):
        raise DocmtError(
            f"{option}{code!r} is not the code of a language; give one of two or three letters, such as en or de"
        )
    return language.lower()


class Moses:
    """Sentences of one language to Moses tokens and back (Koehn et al. 2007, as sacremoses ports the scripts).

    Text is composed (NFC), its punctuation normalised, split into tokens, and `& | < > ' " [ ]` are written as
    entities (`&amp;`), as in the published pipelines. `detokenize(tokenize(s)) == s` for prose in ASCII quotes and
    apostrophes with the language's usual spaces. What does not come back as it was:

    - Typographic signs become ASCII ones: quotes of all kinds `"`, apostrophes and backticks `'`, dashes `-`, `…` three
      dots; a period or comma beside a quote may change places with it, and the no-break space in a number becomes the
      language's separator.
    - Spaces: every run of white space is one space; those at the ends go, and those around brackets and before
      `: ; % ? !` become what the language has (French: one before each, the others: none).
    - Signs inside words and numbers get spaces: `and/or` is `and / or`, likewise `& @ _ + = # § < >`, addresses, URLs,
      and the parts of joined emoji; a backslash goes to the word before it, a currency sign to the one after it
      (`5 € mehr` is `5 €mehr`).
    - `'` and `"` are opening and closing by turns: `6'2"`, or `geht's` where the language is not English, French or
      Italian, get a space on another side.

    Only control characters (U+0000-U+001F) are dropped; no other character is lost.
    """

    def __init__(self, code: str) -> None:
        """`code`: of the language. Raises DocmtError if it is none. The first call takes half a second to import."""
        import sacremoses

        self.language = moses_language(code)
        self._normalizer: Any = sacremoses.MosesPunctNormalizer(self.language)
        self._tokenizer: Any = sacremoses.MosesTokenizer(self.language)
        self._detokenizer: Any = sacremoses.MosesDetokenizer(self.language)
        _repair(self._tokenizer, self._detokenizer)

    def tokenize(self, text: str, *, split_hyphens: bool = False) -> list[str]:
        """The tokens of a sentence, none of which holds white space or one of `| < > ' " [ ]`.

        split_hyphens: write hyphens inside of words as tokens `@-@` (the script's option -a).
        """
        text = self._normalizer.normalize(unicodedata.normalize("NFC", text))
        return self._tokenizer.tokenize(text, aggressive_dash_splits=split_hyphens)

    def detokenize(self, tokens: Sequence[str]) -> str:
        """The text of one sentence."""
        return self._detokenizer.detokenize(tokens)


@cache
def moses(code: str) -> Moses:
    """The one `Moses` of a language."""
    return Moses(code)


def _repair(tokenizer: Any, detokenizer: Any) -> None:
    """The same results, faster, and without an exception."""
    # The library makes a set of 100,000 letters for every word with a period in it.
    lower, letters = frozenset(tokenizer.IsLower), frozenset(tokenizer.IsAlpha)
    tokenizer.islower = lower.issuperset
    tokenizer.isanyalpha = lambda text: not letters.isdisjoint(text)
    tokenizer.NONBREAKING_PREFIXES = frozenset(tokenizer.NONBREAKING_PREFIXES)
    tokenizer.NUMERIC_ONLY_PREFIXES = frozenset(tokenizer.NUMERIC_ONLY_PREFIXES)
    if detokenizer.lang == "cs":
        # Its rule for "x' - li" raises TypeError; a pattern that never matches leaves the rule out.
        detokenizer.IS_FRENCH_CONRTACTION = re.compile(r"(?!)")


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
