"""Sentence segmentation: `text_layout` finds blocks, sentencex segments them, and a few rules correct it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate

import sentencex

from docmt.core.errors import DocmtError
from docmt.documents.addresses import find_addresses
from docmt.documents.text_layout import GERMAN_ORDINAL_NOUN, LINE_BREAK, find_blocks, has_words

# sentencex takes quadratic time on some long texts (Chinese without spaces, unclosed quotes), so long blocks are
# segmented in windows. Boundaries near the end of a window lack the context to be reliable.
_WINDOW = 10_000
_MARGIN = 500

# sentencex 1.0.32 panics on a capital, white space outside ASCII and a full stop ("B\u00a0."): pass ASCII spaces.
_WHITE_SPACE = re.compile(r"\s")

# The languages with rules in sentencex 1.0.32 (it knows Chinese punctuation in all), and those that share the rules of
# another one, as Czech shares those of Slovak. Measured with the abbreviations of each language.
_WITH_RULES = "am ar bg bn ca da de el en es fi fr gu hi hy it ja kk kn ml mr my nl pa pl pt ru sk ta te uk zh"
_WITH_SHARED_RULES = """
    ab an av ay ba bm ce co cs cv gl gn ht kl kv lb li ln mg oc os qu rm sg tt ty wa wo
    aae als alt arn ast atj avk bar bci bxr csb dsb dua egl eml ext fit fon frc frp frr fur gcf gcr gld gsw guc hke hrx
    hsb hyw inh jut kaa kab kbp kea kjh koi krc krl ksh kum lad lbe lez lij lld lmo lua mdf mhr mrj mwl myv nah nap nds
    olo pcd pdc pdt pfl pms pnt qug rgn rue rut sah scn sdc ses shy sjd sli smn srn sro stq sty szl tet tyv udm vec vls
    vmf vmw vot wls xal
"""
_KNOWN_LANGUAGES = frozenset(f"{_WITH_RULES} {_WITH_SHARED_RULES}".split())

_LAST_INITIAL = re.compile(r"(?<!\w)[^\W\d_]\.$")
_LAST_WORD = re.compile(r"(?<!\w)(\w+)\.$")
_GERMAN_ORDINAL = re.compile(r"(?<![\w.,])\d{1,2}\.$")
_GERMAN_ORDINAL_NOUN = re.compile(GERMAN_ORDINAL_NOUN)
_MAY_END_SENTENCE = re.compile(r"[^\w\s,;‚„«‹(\[{]$")
_NEVER_STARTS_SENTENCE = re.compile(r"[-‐‑’”»›)\]},;]|‘\s")

# Abbreviations unknown to sentencex. Their full stop ends no sentence before a name or a number.
_BEFORE_NAME = {
    "de": {"Hr", "Hrn", "Frl", "Fa", "Inkl", "inkl", "Exkl", "exkl", "zzgl", "Zzgl", "MwSt"},
    "fr": {"M", "MM", "Mme", "Mmes", "Mlle", "Mlles", "Mgr", "Me", "Dr", "Pr", "St", "Ste"},
}
_BEFORE_NUMBER = {"en": {"Approx", "approx"}, "fr": {"art", "Art", "n", "no", "No", "al", "p", "pp"}}

_WHITE_SPACES = re.compile(r"\s+")
_UNSPACED_SCRIPT = re.compile("[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]")


def sentence_spans(text: str, language: str = "en", join_lines: bool = False) -> list[tuple[int, int]]:
    """Return the (start, end) of every sentence of `text` in characters, in order.

    No sentence is empty, starts or ends with white space, or lacks a letter or digit. Time is linear in the text.
    `language` is a code such as "de" or "de-AT". English rules are used for languages unknown to sentencex.
    `join_lines`: see `text_layout.find_blocks`. Raises DocmtError for lone surrogates.
    """
    language = base_language(language)
    spans: list[tuple[int, int]] = []
    for block_start, block_end in find_blocks(text, language, join_lines):
        block = text[block_start:block_end]
        start = 0
        for end in _find_boundaries(block, language):
            piece = block[start:end]
            if has_words(piece):
                first = block_start + start + len(piece) - len(piece.lstrip())
                spans.append((first, first + len(piece.strip())))
            start = end
    return spans


def knows_language(language: str) -> bool:
    """Return whether there are segmentation rules for this language. Others use those of English."""
    return base_language(language) in _KNOWN_LANGUAGES


def base_language(language: str) -> str:
    """Return a language code without country or script: de for de_AT."""
    return re.split("[-_]", language.lower(), maxsplit=1)[0]


def unwrap_lines(sentence: str) -> str:
    """Return a sentence without the line breaks and indentation of hard-wrapped text.

    A break becomes one space, or nothing between Chinese or Japanese characters.
    """
    return _WHITE_SPACES.sub(_replace_break, sentence)


def _replace_break(spaces: re.Match[str]) -> str:
    if not LINE_BREAK.search(spaces[0]):
        return spaces[0]
    text, (start, end) = spaces.string, spaces.span()
    unspaced = _UNSPACED_SCRIPT.match(text[start - 1 : start]) and _UNSPACED_SCRIPT.match(text[end : end + 1])
    return "" if unspaced else " "


def _find_boundaries(block: str, language: str) -> Iterator[int]:
    """Yield the ends of the sentences of a block. The last one is the end of the block."""
    normalized = _WHITE_SPACE.sub(" ", block)
    inside = {place for start, end in find_addresses(normalized, with_paths=True) for place in range(start + 1, end)}
    start, size = 0, _WINDOW
    while start < len(normalized):
        window = _cut_window(normalized, start, size)
        ends = _sentencex_ends(window, language)
        if start + len(window) < len(normalized):
            ends = [end for end in ends if end <= len(window) - _MARGIN]
            if not ends:  # a sentence longer than the window
                size *= 2
                continue
        for end in ends:
            boundary = start + end
            if boundary == len(normalized) or not (boundary in inside or _must_join(normalized, boundary, language)):
                yield boundary
        start, size = start + ends[-1], _WINDOW


def _cut_window(text: str, start: int, size: int) -> str:
    """Return about `size` characters from `start`, not ending within straight quotes.

    sentencex splits within all straight quotes of a text with an odd number of them.
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
        raise DocmtError(f"the text contains a lone surrogate (U+{ord(text[error.start]):04X}). Remove it.") from error
    except BaseException as error:
        # A panic of the Rust library is no Exception. One long sentence is better than no translation.
        if type(error).__name__ != "PanicException":
            raise
        return [len(text)]
    if "".join(pieces) != text:
        return [len(text)]
    return list(accumulate(map(len, pieces)))


def _must_join(text: str, boundary: int, language: str) -> bool:
    """Return whether the boundary is a mistake of sentencex, so that no sentence ends there."""
    left = text[max(0, boundary - 40) : boundary]
    right = text[boundary : boundary + 40]
    preceding, following = left.rstrip(), right.lstrip()
    if not preceding or not following:
        return False
    initial = _LAST_INITIAL.search(preceding) is not None
    if preceding == left and following == right:  # no space: "J.-C.", "O.N.U.", an opening quote cut from its sentence
        return bool(initial or not _MAY_END_SENTENCE.search(preceding) or _NEVER_STARTS_SENTENCE.match(following))
    if initial and following[0].islower():  # "5 h. du matin"
        return True
    if language == "de" and _GERMAN_ORDINAL.search(preceding) and _GERMAN_ORDINAL_NOUN.match(following):
        return True
    word = _LAST_WORD.search(preceding)
    if word is None:
        return False
    if word[1] in _BEFORE_NAME.get(language, ()):
        return following[0].isupper()
    return word[1] in _BEFORE_NUMBER.get(language, ()) and following[0].isdigit()
