"""Characters of documents as models read them, in training and in translation."""

from __future__ import annotations

import unicodedata

INVISIBLE = "\u00ad\u200b\u200e\u200f\u2060\ufeff"
"""Soft hyphen, space of no width, marks of direction, word joiner, byte order mark."""
_NORMAL = str.maketrans(
    dict.fromkeys("\u00a0\u202f\u205f" + "".join(map(chr, range(0x2000, 0x200B))), " ")
    | dict.fromkeys(INVISIBLE, "")
    | dict.fromkeys("\u2010\u2011", "-")
    | {chr(0xFB00 + number): text for number, text in enumerate(("ff", "fi", "fl", "ffi", "ffl", "st", "st"))}
)


def normalize_characters(sentence: str) -> str:
    """Return a source sentence as models know it: from corpora without the invisible characters of documents.

    Spaces and hyphens of all kinds become ordinary ones. Soft hyphens, marks of direction and spaces of no width
    vanish. Letters and their accents are composed (NFC), and Latin ligatures divided. Joiners of Indic scripts and
    emoji stay.
    """
    if sentence.isascii():
        return sentence
    return unicodedata.normalize("NFC", sentence.translate(_NORMAL))
