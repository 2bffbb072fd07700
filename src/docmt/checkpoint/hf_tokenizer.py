"""Readers of tokenizers in Hugging Face directories.

Supported are Marian, mBART, mBART-50, M2M100, NLLB-200, BART, T5, mT5 and MADLAD, and the encoders BERT, RoBERTa and
XLM-R, as a tokenizer.json or as the older SentencePiece models. The directory's files decide, even
where a version of transformers deviates (MBartTokenizer of version 5 does not normalise, but mBART was trained so).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docmt.core.errors import DocmtError
from docmt.core.files import parse_json, read_bytes, read_json
from docmt.core.settings import read_package_yaml
from docmt.text.bpe import parse_tokenizer_json
from docmt.text.pretrained import (
    JsonSubwordModel,
    PretrainedTokenizer,
    SpmSubwordModel,
    SubwordModel,
    Vocabulary,
    restrict_tokenizer_json,
)
from docmt.text.sentencepiece_tokenizer import PieceKind, SpmPiece, read_pieces, restrict_spm
from docmt.text.tokenizer import SIDES, Side

_ADVICE = "Copy the whole directory again"
_SPECIAL_NAMES = ("bos", "pad", "eos", "unk")  # in the order of docmt's ids
_LANGUAGE_MARKS = {
    "marian": r">>(.+)<<",
    "m2m_100": r"__([a-z]{2,3})__|([a-z]{3}_[A-Z][a-z]{3})",  # M2M100, NLLB
    "mbart": r"([a-z]{2}_[A-Z]{2})",
    "t5": r"<2([\w-]+)>",  # MADLAD
}
_SENTINEL = re.compile("▁?<extra_id_[0-9]+>")  # of T5's training, ordinary pieces in mT5


def read_tokenizer(directory: Path, config: Mapping[str, Any], sizes: tuple[int, int]) -> PretrainedTokenizer:
    """Return the tokenizer of a Hugging Face directory.

    config: the parsed config.json. sizes: numbers of embeddings of source and target. Raises DocmtError for missing,
    damaged or inconsistent files.
    """
    model_type = str(config.get("model_type"))
    settings = read_settings(directory, model_type)
    match_language = re.compile(_LANGUAGE_MARKS.get(model_type, "(?!)")).fullmatch
    sides = read_sides(directory, settings)
    source_ids = sides["source"].ids
    if source_ids is sides["target"].ids and sizes[0] != sizes[1]:
        raise DocmtError(
            f"the model has {sizes[0]} source embeddings and {sizes[1]} target embeddings, but {directory} has one "
            f"vocabulary. {_ADVICE}"
        )
    configs = read_optional_json(directory / "generation_config.json"), config
    special_ids = {name: value for values in configs for name, value in values.items() if value is not None}
    vocabularies: dict[Side, Vocabulary] = {}
    models: dict[Side, SubwordModel] = {}
    languages: dict[str, str] = {}
    for name, size in zip(SIDES, sizes, strict=True):
        if name == "source" and sides["source"] is sides["target"]:
            continue  # read once, as the target
        side = sides[name]
        language_marks = {
            match[0]: code for text in side.ids if (match := match_language(text)) for code in match.groups() if code
        }
        sentinels = frozenset(filter(_SENTINEL.fullmatch, side.ids))
        # The configuration has the special ids of the source only.
        known = special_ids if side.ids is source_ids else {}
        marks = side.marks | language_marks.keys() | sentinels
        try:
            vocabularies[name] = _build_vocabulary(side, marks, size, settings, known)
            models[name] = side.open_model(vocabularies[name].word_ids())
        except ValueError as error:
            raise DocmtError(f"{side.path} or a file beside it is damaged ({error}). {_ADVICE}") from error
        languages |= {code: mark for mark, code in language_marks.items() if side.ids[mark] < size}
    clean_up = settings.config.get("clean_up_tokenization_spaces") is True and not sides["target"].is_bpe
    both = {"source": vocabularies["target"], **vocabularies}, {"source": models["target"], **models}
    return PretrainedTokenizer(*both, languages, clean_up)


def _build_vocabulary(
    side: TokenizerSide, marks: frozenset[str], size: int, settings: TokenizerSettings, special_ids: Mapping[str, Any]
) -> Vocabulary:
    """Return the vocabulary of a side in the order of docmt's ids. size: number of embeddings."""
    texts: dict[int, str] = {}
    for text, row in side.ids.items():
        if row >= size and text in marks:
            continue  # the model has no embedding for this mark
        if type(row) is not int or not 0 <= row < size or texts.setdefault(row, text) != text:
            raise DocmtError(
                f"the tokenizer in {side.path.parent} gives {text!r} the id {row}, but the model has {size} embeddings "
                f"or another token has that id. {_ADVICE}"
            )
    specials = _find_special_rows(side, size, settings, special_ids)
    order = [specials[name] for name in _SPECIAL_NAMES]
    order += [row for row in range(size) if row not in specials.values()]
    symbols = [texts.get(row) for row in order]
    marked = frozenset(token for token, text in enumerate(symbols) if token >= len(_SPECIAL_NAMES) and text in marks)
    return Vocabulary((*symbols, None, None), marked, (*order, -1, -1))


def _find_special_rows(
    side: TokenizerSide, size: int, settings: TokenizerSettings, special_ids: Mapping[str, Any]
) -> dict[str, int]:
    """Return distinct rows of <s>, <pad>, </s> and <unk>, or -1 for tokens that the model lacks."""
    rows: dict[str, int] = {}
    for name in ("eos", "unk", "pad", "bos"):  # if two share a row, the first gets it
        row = special_ids.get(f"{name}_token_id", side.ids.get(settings.special[name]))
        row = row[0] if isinstance(row, list) and row else row
        if row is None and name in ("eos", "unk"):
            raise DocmtError(
                f"the vocabulary of {side.path} has no {settings.special[name]!r}, its {name} token. {_ADVICE}"
            )
        if row is not None and (type(row) is not int or not 0 <= row < size):
            raise DocmtError(
                f"the configuration in {side.path.parent} has {name}_token_id {row!r}, but the model has {size} "
                f"embeddings. {_ADVICE}"
            )
        rows[name] = -1 if row is None or row in rows.values() else row
    return rows


TOKENIZER_CONFIG = "tokenizer_config.json"
_FILES = (TOKENIZER_CONFIG, "special_tokens_map.json", "added_tokens.json")
_DEFAULT_TEXTS = {name: f"<{name}>" for name in ("pad", "unk", "mask")}
_DEFAULT_TEXTS |= {"bos": "<s>", "cls": "<s>", "eos": "</s>", "sep": "</s>"}
_BERT_TEXTS = {name: f"[{name.upper()}]" for name in ("pad", "unk", "mask", "sep", "cls")}


@dataclass(frozen=True)
class TokenizerSettings:
    """Special and added tokens of a directory's JSON files."""

    special: Mapping[str, str]
    """Texts of bos, pad, eos, unk, mask, sep and cls"""
    additional: tuple[str, ...]
    """Further tokens that text never becomes, such as language codes, in the order of their ids"""
    added: Mapping[str, int]
    """Ids of tokens that were added to a vocabulary"""
    ordinary: frozenset[str]
    """Added tokens that text may become"""
    config: Mapping[str, Any]
    """Entries of tokenizer_config.json"""

    @property
    def marks(self) -> frozenset[str]:
        """Return all tokens that text never becomes."""
        return frozenset({*self.special.values(), *self.additional, *self.added} - self.ordinary)


def read_settings(directory: Path, model_type: str = "") -> TokenizerSettings:
    """Read the settings files that exist. Raises DocmtError for a damaged one.

    model_type: of config.json. BERT has other token texts, with `[CLS]` as bos and `[SEP]` as eos.
    """
    is_bert = model_type == "bert"
    config, specials, added = (read_optional_json(directory / name) for name in _FILES)
    try:
        special = {**_DEFAULT_TEXTS, **_BERT_TEXTS} if is_bert else dict(_DEFAULT_TEXTS)
        for values in (specials, config):
            tokens = {name: values.get(f"{name}_token") for name in _DEFAULT_TEXTS}
            special |= {name: _token_text(token) for name, token in tokens.items() if token}
        if is_bert:
            special |= {"bos": special["cls"], "eos": special["sep"]}
        additional = [text for values in (specials, config) for text in _additional_tokens(values)]
        decoder = dict(config.get("added_tokens_decoder") or {}).items()
        added_ids = {str(text): int(row) for text, row in added.items()}
        added_ids |= {_token_text(token): int(row) for row, token in decoder}
        listed = {_token_text(token) for _, token in decoder if token.get("special")} | {*special.values(), *additional}
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise DocmtError(
            f"{directory / TOKENIZER_CONFIG} or a file beside it is damaged (its tokens: {error!r}). {_ADVICE}"
        ) from error
    ordinary = frozenset(added_ids.keys() - listed)
    return TokenizerSettings(special, tuple(dict.fromkeys(additional)), added_ids, ordinary, config)


def read_optional_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, or an empty one if the file is missing. Raises DocmtError if damaged."""
    return read_json(path) if path.is_file() else {}


def _additional_tokens(values: Mapping[str, Any]) -> Iterator[str]:
    for name in ("additional_special_tokens", "extra_special_tokens"):
        tokens = values.get(name) or []
        yield from map(_token_text, tokens.values() if isinstance(tokens, dict) else tokens)


def _token_text(token: Any) -> str:
    """Return the text of a token that is stored as text or as an object with properties."""
    text = token["content"] if isinstance(token, dict) else token
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is not a token")
    return text


_T5_EXTRA_IDS, _MAX_EXTRA_IDS = 100, 10_000


@dataclass(frozen=True)
class TokenizerSide:
    """Tokenizer files of one side."""

    path: Path
    """File of the subword model"""
    ids: Mapping[str, int]
    """Embedding row by token text, the same object for both sides if they share a vocabulary"""
    marks: frozenset[str]
    """Tokens that text never becomes"""
    open_model: Callable[[Mapping[str, int]], SubwordModel]
    """Loads the subword model for these word ids, and raises ValueError if the file is damaged"""
    is_bpe: bool = False
    """True for a tokenizer.json of type BPE"""


def read_sides(directory: Path, settings: TokenizerSettings) -> dict[Side, TokenizerSide]:
    """Return the tokenizer files of each side, as one object if they are equal. Raises DocmtError if missing."""
    for files, read in _LAYOUTS.items():
        if all((directory / file).is_file() for file in files):
            return read(directory, settings)
    layouts = ", ".join(" with ".join(files) for files in _LAYOUTS)
    raise DocmtError(
        f"{directory} has no tokenizer that docmt can read ({layouts}). {_ADVICE}, or save its tokenizer again, with a "
        "tokenizer.json"
    )


def _read_marian(directory: Path, settings: TokenizerSettings) -> dict[Side, TokenizerSide]:
    source = _add_tokens(_read_vocabulary(directory / "vocab.json"), directory, settings)
    target = _read_vocabulary(directory / "target_vocab.json") if settings.config.get("separate_vocabs") else source
    paths = {side: directory / f"{side}.spm" for side in SIDES}
    marks = settings.marks.union(*(_control_symbols(_read_spm(path)) for path in paths.values()))
    return {side: _side_from_spm(paths[side], ids, marks) for side, ids in zip(SIDES, (source, target), strict=True)}


def _read_m2m100(directory: Path, settings: TokenizerSettings) -> dict[Side, TokenizerSide]:
    path = directory / "sentencepiece.bpe.model"
    ids = _add_tokens(_read_vocabulary(directory / "vocab.json"), directory, settings)
    lists = read_package_yaml("docmt.checkpoint", "m2m100_languages.yaml")
    known = lists.get(str(settings.config.get("language_codes")), lists["m2m100"])
    codes = [text for text in settings.additional if text.startswith("__")] or [f"__{code}__" for code in known.split()]
    for text in codes:
        ids.setdefault(text, len(ids))
    return dict.fromkeys(SIDES, _side_from_spm(path, ids, settings.marks.union(codes)))


def _read_fairseq(directory: Path, settings: TokenizerSettings) -> dict[Side, TokenizerSide]:
    """Read mBART or NLLB: the four special tokens in fairseq's order, pieces, language codes, the mask."""
    path = directory / "sentencepiece.bpe.model"
    pieces = _read_spm(path)
    if [piece.text for piece in pieces[:3]] != ["<unk>", "<s>", "</s>"]:
        raise DocmtError(f"{path} does not begin with <unk>, <s>, </s>, as models of mBART and NLLB do. {_ADVICE}")
    begin = [settings.special[name] for name in ("bos", "pad", "eos", "unk")]
    ids = {text: row for row, text in enumerate([*begin, *(piece.text for piece in pieces[3:])])}
    ids = _add_tokens(ids, directory, settings)
    if not {*settings.additional, *settings.added} - {*settings.special.values()}:
        raise DocmtError(
            f"{directory} lacks its language codes (additional_special_tokens in special_tokens_map.json). Save its "
            "tokenizer again, with a tokenizer.json"
        )
    for text in (*settings.additional, settings.special["mask"]):
        ids.setdefault(text, len(ids))
    return dict.fromkeys(SIDES, _side_from_spm(path, ids, settings.marks))


def _read_t5(directory: Path, settings: TokenizerSettings) -> dict[Side, TokenizerSide]:
    path = directory / "spiece.model"
    pieces = _read_spm(path)
    ids = _add_tokens({piece.text: row for row, piece in enumerate(pieces)}, directory, settings)
    count = settings.config.get("extra_ids", _T5_EXTRA_IDS)
    if type(count) is not int or not 0 <= count <= _MAX_EXTRA_IDS:
        raise DocmtError(f"{directory} has a tokenizer_config.json with extra_ids {count!r}. {_ADVICE}")
    for number in range(count):
        ids.setdefault(f"<extra_id_{number}>", len(pieces) + count - 1 - number)
    return dict.fromkeys(SIDES, _side_from_spm(path, ids, settings.marks))


def _read_tokenizer_json(directory: Path, settings: TokenizerSettings) -> dict[Side, TokenizerSide]:
    path = directory / "tokenizer.json"
    return dict.fromkeys(SIDES, _side_from_json(path, read_bytes(path), settings))


_LAYOUTS: dict[tuple[str, ...], Callable[[Path, TokenizerSettings], dict[Side, TokenizerSide]]] = {
    ("source.spm", "target.spm", "vocab.json"): _read_marian,
    ("sentencepiece.bpe.model", "vocab.json"): _read_m2m100,
    ("tokenizer.json",): _read_tokenizer_json,
    ("sentencepiece.bpe.model",): _read_fairseq,
    ("spiece.model",): _read_t5,
}
"""Readers by their files. The first one with all files is used."""


def _side_from_json(path: Path, data: bytes, settings: TokenizerSettings) -> TokenizerSide:
    try:
        values = parse_json(parse_tokenizer_json(data).to_str().encode())  # in the library's current format
    except ValueError as error:
        raise DocmtError(f"{path} is damaged ({error}). {_ADVICE}") from error
    model = values["model"]
    if model["type"] not in ("Unigram", "BPE", "WordPiece"):
        raise DocmtError(f"{path} has a model of type {model['type']}. docmt reads Unigram, BPE and WordPiece")
    ids = dict(model["vocab"])
    if model["type"] == "Unigram":
        ids = {text: row for row, (text, _) in enumerate(model["vocab"])}
        if model["unk_id"] is None:
            model["unk_id"] = ids.get(settings.special["unk"])
    ids |= {token["content"]: token["id"] for token in values["added_tokens"]}
    ids = _add_tokens(ids, path.parent, settings)
    special = {token["content"] for token in values["added_tokens"] if token["special"]}

    def open_model(words: Mapping[str, int]) -> JsonSubwordModel:
        return JsonSubwordModel(restrict_tokenizer_json(values, words), words)

    return TokenizerSide(path, ids, settings.marks | special, open_model, is_bpe=model["type"] == "BPE")


def _side_from_spm(path: Path, ids: Mapping[str, int], marks: frozenset[str]) -> TokenizerSide:
    data = read_bytes(path, "the SentencePiece model")
    marks |= _control_symbols(_read_spm(path))
    return TokenizerSide(path, ids, marks, lambda words: SpmSubwordModel(restrict_spm(data, ids.keys() - words), words))


def _read_spm(path: Path) -> list[SpmPiece]:
    try:
        return read_pieces(read_bytes(path, "the SentencePiece model", advice="copy the whole directory again"))
    except ValueError as error:
        raise DocmtError(f"{path} is damaged ({error}). {_ADVICE}") from error


def _control_symbols(pieces: list[SpmPiece]) -> frozenset[str]:
    return frozenset(piece.text for piece in pieces if piece.kind in (PieceKind.UNKNOWN, PieceKind.CONTROL))


def _read_vocabulary(path: Path) -> dict[str, int]:
    values = read_json(path)
    if not all(type(row) is int for row in values.values()):
        raise DocmtError(f"{path} is not a vocabulary (an id is not a number). {_ADVICE}")
    return values


def _add_tokens(ids: Mapping[str, int], directory: Path, settings: TokenizerSettings) -> dict[str, int]:
    """Add tokens to a vocabulary. Raises DocmtError for one that text can become but the model lacks."""
    if unknown := settings.ordinary - ids.keys():
        raise DocmtError(
            f"text can become {min(unknown)!r}, which was added to the tokenizer in {directory} but is no piece of its "
            "model. Save that tokenizer again, with a tokenizer.json"
        )
    return {**ids, **settings.added}
