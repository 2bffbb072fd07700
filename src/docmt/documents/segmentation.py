"""Sentence segmentation: the layout gives the blocks, the library sentencex cuts them, a few rules mend its cuts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate

import sentencex

from docmt.core.errors import DocmtError
from docmt.documents.layout import GERMAN_ORDINAL_NOUN, LINE_BREAK, blocks, has_words

# sentencex takes quadratic time on some long texts (Chinese without spaces, unclosed quotes), so long blocks are
# cut window by window. Boundaries near the end of a window have too little text after them to be trusted.
_WINDOW = 10_000
_MARGIN = 500

# sentencex 1.0.32 panics on a capital, white space outside ASCII and a full stop ("B\u00a0."): show it plain spaces.
_WHITE_SPACE = re.compile(r"\s")

# The languages that sentencex 1.0.32 has rules for (Chinese ends of sentences it knows everywhere), and those that it
# treats as one of them, as Czech as Slovak: tried out with the abbreviations of each language.
_OWN_RULES = "am ar bg bn ca da de el en es fi fr gu hi hy it ja kk kn ml mr my nl pa pl pt ru sk ta te uk zh"
_RULES_OF_ANOTHER = """
    ab an av ay ba bm ce co cs cv gl gn ht kl kv lb li ln mg oc os qu rm sg tt ty wa wo
    aae als alt arn ast atj avk bar bci bxr csb dsb dua egl eml ext fit fon frc frp frr fur gcf gcr gld gsw guc hke hrx
    hsb hyw inh jut kaa kab kbp kea kjh koi krc krl ksh kum lad lbe lez lij lld lmo lua mdf mhr mrj mwl myv nah nap nds
    olo pcd pdc pdt pfl pms pnt qug rgn rue rut sah scn sdc ses shy sjd sli smn srn sro stq sty szl tet tyv udm vec vls
    vmf vmw vot wls xal
"""
_KNOWN_LANGUAGES = frozenset(f"{_OWN_RULES} {_RULES_OF_ANOTHER}".split())

_LAST_INITIAL = re.compile(r"(?<!\w)[^\W\d_]\.$")
_LAST_WORD = re.compile(r"(?<!\w)(\w+)\.$")
_GERMAN_ORDINAL = re.compile(r"(?<![\w.,])\d{1,2}\.$")
_GERMAN_ORDINAL_NOUN = re.compile(GERMAN_ORDINAL_NOUN)
_MAY_END_SENTENCE = re.compile(r"[^\w\s,;‚„«‹(\[{]$")
_NEVER_STARTS_SENTENCE = re.compile(r"[-‐‑’”»›)\]},;]|‘\s")

# Abbreviations that sentencex does not know, by what must follow for the full stop not to end a sentence.
_BEFORE_NAME = {
    "de": {"Hr", "Hrn", "Frl", "Fa", "Inkl", "inkl", "Exkl", "exkl", "zzgl", "Zzgl", "MwSt"},
    "fr": {"M", "MM", "Mme", "Mmes", "Mlle", "Mlles", "Mgr", "Me", "Dr", "Pr", "St", "Ste"},
}
_BEFORE_NUMBER = {
    "en": {"Approx", "approx"},
    "fr": {"art", "Art", "n", "no", "No", "al", "p", "pp"},
}

_WHITE_SPACES = re.compile(r"\s+")
_UNSPACED_SCRIPT = re.compile("[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]")


def sentence_spans(text: str, language: str = "en", join_lines: bool = False) -> list[tuple[int, int]]:
    """The (start, end) of every sentence of `text` in characters, in order.

    No sentence is empty, starts or ends with white space, or lacks a letter or digit. Time is linear in the text.
    `language` is a code such as "de" or "de-AT"; English rules serve for languages that sentencex does not know.
    `join_lines`: see `layout.blocks`. Raises DocmtError for lone surrogates.
    """
    language = _base(language)
    spans: list[tuple[int, int]] = []
    for block_start, block_end in blocks(text, language, join_lines):
        block = text[block_start:block_end]
        start = 0
        for end in _boundaries(block, language):
            piece = block[start:end]
            if has_words(piece):
                first = block_start + start + len(piece) - len(piece.lstrip())
                spans.append((first, first + len(piece.strip())))
            start = end
    return spans


def knows_language(language: str) -> bool:
    """Whether there are rules for this language; without any, those of English serve."""
    return _base(language) in _KNOWN_LANGUAGES


def _base(language: str) -> str:
    """The code of a language without that of its country or script."""
    return re.split("[-_]", language.lower(), maxsplit=1)[0]


def one_line(sentence: str) -> str:
    """A sentence without the line breaks (and indentation) of its hard-wrapped text, as a translator wants it.

    A break becomes one space, or nothing between Chinese or Japanese characters.
    """
    return _WHITE_SPACES.sub(_join, sentence)


def _join(spaces: re.Match[str]) -> str:
    if not LINE_BREAK.search(spaces[0]):
        return spaces[0]
    text, (start, end) = spaces.string, spaces.span()
    unspaced = _UNSPACED_SCRIPT.match(text[start - 1 : start]) and _UNSPACED_SCRIPT.match(text[end : end + 1])
    return "" if unspaced else " "


def _boundaries(block: str, language: str) -> Iterator[int]:
    """Yields where the pieces of a block end; the last one ends the block."""
    plain = _WHITE_SPACE.sub(" ", block)
    start, size = 0, _WINDOW
    while start < len(plain):
        window = _window(plain, start, size)
        ends = _sentencex_ends(window, language)
        if start + len(window) < len(plain):
            ends = [end for end in ends if end <= len(window) - _MARGIN]
            if not ends:  # a sentence longer than the window
                size *= 2
                continue
        for end in ends:
            boundary = start + end
            if boundary == len(plain) or not _must_join(plain, boundary, language):
                yield boundary
        start, size = start + ends[-1], _WINDOW


def _window(text: str, start: int, size: int) -> str:
    """About `size` characters from `start` on, not ending within straight quotes.

    sentencex cuts within all straight quotes of a text that has an odd number of them.
    """
    window = text[start : start + size]
    if start + size < len(text) and window.count('"') % 2:
        quote = window.rindex('"')
        if size - quote < 4 * _MARGIN:
            return window[:quote]
    return window


def _sentencex_ends(text: str, language: str) -> list[int]:
    try:
        pieces = sentencex.segment(language, text)
    except UnicodeEncodeError as error:
        raise DocmtError(
            f"the text holds a lone surrogate (U+{ord(text[error.start]):04X}), which is no character; remove it"
        ) from error
    except BaseException as error:
        # A panic of the Rust library is no Exception. One sentence too long is better than no translation at all.
        if type(error).__name__ != "PanicException":
            raise
        return [len(text)]
    if "".join(pieces) != text:
        return [len(text)]
    return list(accumulate(map(len, pieces)))


def _must_join(text: str, boundary: int, language: str) -> bool:
    """Whether the cut at `boundary` is one of the plain mistakes of sentencex, so that no sentence ends there."""
    left = text[max(0, boundary - 40) : boundary]
    right = text[boundary : boundary + 40]
    before, after = left.rstrip(), right.lstrip()
    if not before or not after:
        return False
    initial = _LAST_INITIAL.search(before) is not None
    if before == left and after == right:  # no space: "J.-C.", "O.N.U.", an opening quote cut from its sentence
        return bool(initial or not _MAY_END_SENTENCE.search(before) or _NEVER_STARTS_SENTENCE.match(after))
    if initial and after[0].islower():  # "5 h. du matin"
        return True
    if language == "de" and _GERMAN_ORDINAL.search(before) and _GERMAN_ORDINAL_NOUN.match(after):
        return True
    word = _LAST_WORD.search(before)
    if word is None:
        return False
    if word[1] in _BEFORE_NAME.get(language, ()):
        return after[0].isupper()
    return word[1] in _BEFORE_NUMBER.get(language, ()) and after[0].isdigit()
