"""What the small files of a Hugging Face directory say about tokens that are no pieces of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docmt.core.errors import DocmtError
from docmt.core.files import read_json

_SETTINGS = "tokenizer_config.json"
_SPECIALS = "special_tokens_map.json"
_ADDED = "added_tokens.json"
_USUAL = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>", "sep": "</s>", "cls": "<s>"}
_BERT = {name: f"[{name.upper()}]" for name in ("pad", "unk", "mask", "sep", "cls")}


@dataclass(frozen=True)
class Names:
    """Special tokens by their text."""

    special: Mapping[str, str]
    """the text of bos, pad, eos, unk, mask, sep and cls"""
    additional: tuple[str, ...]
    """more tokens that text never becomes, such as codes of languages, in the order of their ids"""
    rows: Mapping[str, int]
    """ids of tokens that were added to a vocabulary"""
    ordinary: frozenset[str]
    """those of them that text may become"""
    settings: Mapping[str, Any]
    """all of tokenizer_config.json"""

    @property
    def marks(self) -> frozenset[str]:
        """All that text never becomes."""
        return frozenset({*self.special.values(), *self.additional, *self.rows} - self.ordinary)


def read_names(directory: Path, model_type: str = "") -> Names:
    """Reads what there is of these files. Raises DocmtError for one that is damaged.

    model_type: as config.json has it. BERT, whose sentences are `[CLS] w [SEP]`, has other names, and these two for bos
    and eos.
    """
    is_bert = model_type == "bert"
    settings, specials, added = (_read(directory / name) for name in (_SETTINGS, _SPECIALS, _ADDED))
    try:
        special = {**_USUAL, **_BERT} if is_bert else dict(_USUAL)
        for values in (specials, settings):
            special |= {name: _text(values[f"{name}_token"]) for name in _USUAL if values.get(f"{name}_token")}
        if is_bert:
            special |= {"bos": special["cls"], "eos": special["sep"]}
        additional = [text for values in (specials, settings) for text in _additional(values)]
        decoder = dict(settings.get("added_tokens_decoder") or {}).items()
        rows = {str(text): int(row) for text, row in added.items()}
        rows |= {_text(token): int(row) for row, token in decoder}
        listed = {_text(token) for _, token in decoder if token.get("special")} | {*special.values(), *additional}
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise DocmtError(
            f"{directory / _SETTINGS} or a file beside it is damaged (its tokens: {error!r}): copy the directory "
            "again, complete"
        ) from error
    return Names(special, tuple(dict.fromkeys(additional)), rows, frozenset(rows.keys() - listed), settings)


def _read(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _additional(values: Mapping[str, Any]) -> Iterator[str]:
    for name in ("additional_special_tokens", "extra_special_tokens"):
        tokens = values.get(name) or []
        yield from map(_text, tokens.values() if isinstance(tokens, dict) else tokens)


def _text(token: Any) -> str:
    """A token is written as its text, or with properties beside it."""
    text = token["content"] if isinstance(token, dict) else token
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is no token")
    return text
