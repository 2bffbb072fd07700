"""SentencePiece models in the format of the library tokenizers."""

from __future__ import annotations

import base64
from typing import Any

from docmt.text.spm_pieces import SPACE, Kind, SpmPiece, read_pieces, read_settings

_READ = (Kind.NORMAL, Kind.BYTE)
_ONLY_MARKS = (Kind.UNKNOWN, Kind.CONTROL)


def spm_to_json(data: bytes, *, strip: bool = False) -> dict[str, Any]:
    """A tokenizer.json that splits text as this model does, and joins pieces; its marks are left out.

    It does so on the whole sentence, as SentencePiece does, without splitting it at blanks before. strip: decoded text
    has no blanks at its ends. Raises ValueError for a model that does what that format cannot say.
    """
    settings, pieces = read_settings(data), read_pieces(data)
    if settings.odd or any(piece.kind not in (*_READ, *_ONLY_MARKS) for piece in pieces):
        raise ValueError("its SentencePiece model has symbols that its user defined, or settings that are rarely used")
    pieces = [piece for piece in pieces if piece.kind in _READ]
    blanks = r"\A +| +\z" if strip else r"\A +" if settings.remove_extra else r"\A " if settings.dummy_prefix else ""
    steps = [_replace(SPACE, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    steps += [_replace(blanks, "", regex=True)] if blanks else []
    normalizers: list[dict[str, Any]] = []
    if settings.charsmap:
        charsmap = base64.b64encode(settings.charsmap).decode()
        normalizers.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    if settings.remove_extra:
        normalizers += [_replace(r"\A +| +\z", "", regex=True), _replace(" {2,}", " ", regex=True)]
    if settings.dummy_prefix:
        normalizers.append({"type": "Prepend", "prepend": SPACE})
    return {
        "version": "1.0",
        "normalizer": {"type": "Sequence", "normalizers": [*normalizers, _replace(" ", SPACE)]},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": steps},
        "model": {**(_bpe(pieces) if settings.is_bpe else _unigram(pieces)), "byte_fallback": settings.byte_fallback},
        "added_tokens": [],
    }


def _replace(pattern: str, content: str, *, regex: bool = False) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex" if regex else "String": pattern}, "content": content}


def _unigram(pieces: list[SpmPiece]) -> dict[str, Any]:
    return {"type": "Unigram", "vocab": [[piece.text, piece.score] for piece in pieces], "unk_id": None}


def _bpe(pieces: list[SpmPiece]) -> dict[str, Any]:
    """SentencePiece merges any two neighbours that make a piece, those of the best piece first."""
    known = {piece.text for piece in pieces}
    merges = [
        [piece.text[:place], piece.text[place:]]
        for piece in sorted(pieces, key=lambda piece: -piece.score)
        if piece.kind == Kind.NORMAL
        for place in range(1, len(piece.text))
        if piece.text[:place] in known and piece.text[place:] in known
    ]
    vocabulary = {piece.text: number for number, piece in enumerate(pieces)}
    return {"type": "BPE", "vocab": vocabulary, "merges": merges, "unk_token": None, "fuse_unk": True}
