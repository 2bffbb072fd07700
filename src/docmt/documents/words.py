"""The words of a sentence. Spans are (first character, one after the last)."""

from __future__ import annotations

import re

Span = tuple[int, int]
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Scripts without spaces between words: Thai, Lao, Myanmar, Khmer, kana, Chinese characters."""
_MARKS = "\u0300-\u036f\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u3099\u309a"
_WORD = re.compile(rf"[{_UNSPACED}][{_MARKS}]*|(?:(?![{_UNSPACED}])[\w{_MARKS}])+|[^\w\s]")


def find_words(sentence: str) -> list[Span]:
    """Return the words: runs of letters and digits, single other signs, and single characters of unspaced scripts."""
    return [match.span() for match in _WORD.finditer(sentence)]
