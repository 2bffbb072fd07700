"""Tokenizers of pretrained models, as Hugging Face directories hold them.

Marian, mBART, mBART-50, M2M100, NLLB-200, BART, T5, mT5 and MADLAD, and the encoders BERT, RoBERTa and XLM-R: as a
tokenizer.json, or as the SentencePiece models and vocabularies that came before it. What a directory's files say
counts, also where a version of transformers does something else with them (MBartTokenizer of version 5 does not
normalise, although mBART was trained so).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docmt.checkpoint.weights import read_symbols
from docmt.core.errors import DocmtError
from docmt.core.files import parse_json, read_bytes, read_json
from docmt.text.bpe import parse_library
from docmt.text.pieces import JsonPieces, Pieces, SpmPieces, restrict_json
from docmt.text.pretrained import PretrainedTokenizer, Vocabulary
from docmt.text.sentencepiece_tokenizer import Kind, SpmPiece, read_pieces, restrict_spm
from docmt.text.tokenizer import SIDES, Side

_ADVICE = "copy the directory again, complete"
_SPECIAL_NAMES = ("bos", "pad", "eos", "unk")  # in the order of our ids
_LANGUAGE_MARKS = {
    "marian": r">>(.+)<<",
    "m2m_100": r"__([a-z]{2,3})__|([a-z]{3}_[A-Z][a-z]{3})",  # M2M100, NLLB
    "mbart": r"([a-z]{2}_[A-Z]{2})",
    "t5": r"<2([\w-]+)>",  # MADLAD
}
_SENTINEL = re.compile("▁?<extra_id_[0-9]+>")  # of T5's training; in mT5 they are pieces like others


def read_tokenizer(directory: Path, config: Mapping[str, Any], rows: tuple[int, int]) -> PretrainedTokenizer:
    """The tokenizer of a Hugging Face directory.

    config: the parsed config.json; rows: how many embeddings the model has for the source and for the target.
    Raises DocmtError where files are missing or damaged, or are not those of such a model.
    """
    model_type = str(config.get("model_type"))
    names = read_names(directory, model_type)
    is_language = re.compile(_LANGUAGE_MARKS.get(model_type, "(?!)")).fullmatch
    found = find_pieces(directory, names)
    if found["source"].ids is found["target"].ids and rows[0] != rows[1]:
        raise DocmtError(
            f"the model has {rows[0]} embeddings for the source and {rows[1]} for the target, where {directory} has "
            f"one vocabulary: {_ADVICE}"
        )
    given = read_if_there(directory / "generation_config.json"), config
    special_ids = {name: value for values in given for name, value in values.items() if value is not None}
    vocabularies: dict[Side, Vocabulary] = {}
    pieces: dict[Side, Pieces] = {}
    languages: dict[str, str] = {}
    alike = found["source"] is found["target"]
    for side, size in zip(SIDES[alike:], rows[alike:], strict=True):
        own = found[side]
        marks = {match[0]: code for text in own.ids if (match := is_language(text)) for code in match.groups() if code}
        sentinels = frozenset(filter(_SENTINEL.fullmatch, own.ids))
        # The configuration has one id for each, that of the source.
        known = special_ids if own.ids is found["source"].ids else {}
        try:
            vocabularies[side] = _side_vocabulary(own, own.marks | marks.keys() | sentinels, size, names, known)
            pieces[side] = own.open(vocabularies[side].words())
        except ValueError as error:
            raise DocmtError(f"{own.path} or a file beside it is damaged ({error}): {_ADVICE}") from error
        languages |= {code: mark for mark, code in marks.items() if own.ids[mark] < size}
    clean_up = names.settings.get("clean_up_tokenization_spaces") is True and not found["target"].is_bpe
    both = {"source": vocabularies["target"], **vocabularies}, {"source": pieces["target"], **pieces}
    return PretrainedTokenizer(*both, languages, clean_up)


def _side_vocabulary(
    found: TokenizerSide, marks: frozenset[str], size: int, names: Names, special_ids: Mapping[str, Any]
) -> Vocabulary:
    """The rows of a model in the order of our ids, with what the tokenizer knows about them."""
    texts: dict[int, str] = {}
    for text, row in found.ids.items():
        if row >= size and text in marks:
            continue  # the model has no embedding for this mark: it was made without it
        if type(row) is not int or not 0 <= row < size or texts.setdefault(row, text) != text:
            raise DocmtError(
                f"{found.path.parent} has a tokenizer that gives {text!r} the id {row}, where the model has {size} "
                f"embeddings, or another token has that id: {_ADVICE}"
            )
    specials = _special_rows(found, size, names, special_ids)
    order = [specials[name] for name in _SPECIAL_NAMES]
    order += [row for row in range(size) if row not in specials.values()]
    symbols = [texts.get(row) for row in order]
    marked = frozenset(token for token, text in enumerate(symbols) if token >= len(_SPECIAL_NAMES) and text in marks)
    return Vocabulary((*symbols, None, None), marked, (*order, -1, -1))


def _special_rows(found: TokenizerSide, size: int, names: Names, special_ids: Mapping[str, Any]) -> dict[str, int]:
    """The rows of <s>, <pad>, </s> and <unk>, each another one; -1 for what the model has none for."""
    rows: dict[str, int] = {}
    for name in ("eos", "unk", "pad", "bos"):  # where two are one row, it is that of the first
        row = special_ids.get(f"{name}_token_id", found.ids.get(names.special[name]))
        row = row[0] if isinstance(row, list) and row else row
        if row is None and name in ("eos", "unk"):
            raise DocmtError(
                f"the vocabulary of {found.path} has no {names.special[name]!r}, its {name} token: {_ADVICE}"
            )
        if row is not None and (type(row) is not int or not 0 <= row < size):
            raise DocmtError(
                f"the configuration in {found.path.parent} says {name}_token_id {row!r}, where the model has {size} "
                f"embeddings: {_ADVICE}"
            )
        rows[name] = -1 if row is None or row in rows.values() else row
    return rows


TOKENIZER_CONFIG = "tokenizer_config.json"
_FILES = (TOKENIZER_CONFIG, "special_tokens_map.json", "added_tokens.json")
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
    settings, specials, added = (read_if_there(directory / name) for name in _FILES)
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
            f"{directory / TOKENIZER_CONFIG} or a file beside it is damaged (its tokens: {error!r}): {_ADVICE}"
        ) from error
    return Names(special, tuple(dict.fromkeys(additional)), rows, frozenset(rows.keys() - listed), settings)


def read_if_there(path: Path) -> dict[str, Any]:
    """The object in a JSON file, an empty one where there is no file. Raises DocmtError for a damaged one."""
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


# In the order of their ids. Directories that transformers 5 writes do not name them.
_M2M100_LANGUAGES = {
    "m2m100": (
        "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu "
        "hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt "
        "ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu"
    ),
    "wmt21": "en ha is ja cs ru zh de",
}
_T5_EXTRA_IDS, _MOST_EXTRA_IDS = 100, 10_000


@dataclass(frozen=True)
class TokenizerSide:
    """What a directory has for one side."""

    path: Path
    """the file with the pieces"""
    ids: Mapping[str, int]
    """the row of every token by its text; the same object for both sides where they share a vocabulary"""
    marks: frozenset[str]
    """tokens that text never becomes"""
    open: Callable[[Mapping[str, int]], Pieces]
    """the pieces, where words have these ids; raises ValueError if the file is damaged"""
    is_bpe: bool = False
    """whether it is a tokenizer.json of type BPE"""


def find_pieces(directory: Path, names: Names) -> dict[Side, TokenizerSide]:
    """What a directory has for each side; one object where it is the same. Raises DocmtError naming what is missing."""
    for files, read in _LAYOUTS.items():
        if all((directory / file).is_file() for file in files):
            return read(directory, names)
    looked_for = ", ".join(" with ".join(files) for files in _LAYOUTS)
    raise DocmtError(f"{directory} has no tokenizer that docmt can read (it looked for {looked_for}): {_ADVICE}")


def _marian(directory: Path, names: Names) -> dict[Side, TokenizerSide]:
    source = _with_added(_vocabulary(directory / "vocab.json"), directory, names)
    target = _vocabulary(directory / "target_vocab.json") if names.settings.get("separate_vocabs") else source
    paths = {side: directory / f"{side}.spm" for side in SIDES}
    marks = names.marks.union(*(_marks(_read_spm(path)) for path in paths.values()))
    return {"source": _spm(paths["source"], source, marks), "target": _spm(paths["target"], target, marks)}


def _m2m100(directory: Path, names: Names) -> dict[Side, TokenizerSide]:
    path = directory / "sentencepiece.bpe.model"
    ids = _with_added(_vocabulary(directory / "vocab.json"), directory, names)
    known = _M2M100_LANGUAGES.get(str(names.settings.get("language_codes")), _M2M100_LANGUAGES["m2m100"])
    marks = [text for text in names.additional if text.startswith("__")] or [f"__{code}__" for code in known.split()]
    for text in marks:
        ids.setdefault(text, len(ids))
    return dict.fromkeys(SIDES, _spm(path, ids, names.marks.union(marks)))


def _fairseq(directory: Path, names: Names) -> dict[Side, TokenizerSide]:
    """mBART and NLLB: the four special tokens in fairseq's order, pieces, codes of languages, the mask."""
    path = directory / "sentencepiece.bpe.model"
    pieces = _read_spm(path)
    if [piece.text for piece in pieces[:3]] != ["<unk>", "<s>", "</s>"]:
        raise DocmtError(f"{path} does not begin with <unk>, <s>, </s> as the models of mBART and NLLB do: {_ADVICE}")
    begin = [names.special[name] for name in ("bos", "pad", "eos", "unk")]
    ids = {text: row for row, text in enumerate([*begin, *(piece.text for piece in pieces[3:])])}
    ids = _with_added(ids, directory, names)
    if not {*names.additional, *names.rows} - {*names.special.values()}:
        raise DocmtError(
            f"{directory} does not name its codes of languages (additional_special_tokens in special_tokens_map.json): "
            "save its tokenizer again, with a tokenizer.json"
        )
    for text in (*names.additional, names.special["mask"]):
        ids.setdefault(text, len(ids))
    return dict.fromkeys(SIDES, _spm(path, ids, names.marks))


def _t5(directory: Path, names: Names) -> dict[Side, TokenizerSide]:
    path = directory / "spiece.model"
    pieces = _read_spm(path)
    ids = _with_added({piece.text: row for row, piece in enumerate(pieces)}, directory, names)
    count = names.settings.get("extra_ids", _T5_EXTRA_IDS)
    if type(count) is not int or not 0 <= count <= _MOST_EXTRA_IDS:
        raise DocmtError(f"{directory} has a tokenizer_config.json that says extra_ids {count!r}: {_ADVICE}")
    for number in range(count):
        ids.setdefault(f"<extra_id_{number}>", len(pieces) + count - 1 - number)
    return dict.fromkeys(SIDES, _spm(path, ids, names.marks))


def _bart(directory: Path, names: Names) -> dict[Side, TokenizerSide]:
    """Byte-level BPE in two files: the vocabulary, and merges, a line for each in the order of their ranks."""
    path = directory / "merges.txt"
    lines = read_symbols(path, "the list of merges")
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    before = {**byte_level, "add_prefix_space": names.settings.get("add_prefix_space") is True}
    merges = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    model = {"type": "BPE", "vocab": _vocabulary(directory / "vocab.json"), "merges": merges}
    values = {"version": "1.0", "model": model, "pre_tokenizer": before, "decoder": byte_level}
    return dict.fromkeys(SIDES, _json(path, json.dumps(values).encode(), names))


def _bert(directory: Path, names: Names) -> dict[Side, TokenizerSide]:
    """WordPiece in one file, a piece a line."""
    path = directory / "vocab.txt"
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": names.settings.get("tokenize_chinese_chars", True),
        "strip_accents": names.settings.get("strip_accents"),  # null: where letters are made lower-case, too
        "lowercase": names.settings.get("do_lower_case", True),
    }
    model = {
        "type": "WordPiece",
        "unk_token": names.special["unk"],
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {piece: row for row, piece in enumerate(read_symbols(path, "the vocabulary"))},
    }
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    splitter = {"type": "BertPreTokenizer"}
    values = {"version": "1.0", "model": model, "normalizer": normalizer, "pre_tokenizer": splitter, "decoder": decoder}
    return dict.fromkeys(SIDES, _json(path, json.dumps(values).encode(), names))


def _tokenizer_json(directory: Path, names: Names) -> dict[Side, TokenizerSide]:
    path = directory / "tokenizer.json"
    return dict.fromkeys(SIDES, _json(path, read_bytes(path), names))


_LAYOUTS: dict[tuple[str, ...], Callable[[Path, Names], dict[Side, TokenizerSide]]] = {
    ("source.spm", "target.spm", "vocab.json"): _marian,
    ("sentencepiece.bpe.model", "vocab.json"): _m2m100,
    ("tokenizer.json",): _tokenizer_json,
    ("sentencepiece.bpe.model",): _fairseq,
    ("spiece.model",): _t5,
    ("vocab.json", "merges.txt"): _bart,
    ("vocab.txt",): _bert,
}
"""The first whose files are there is read."""


def _json(path: Path, data: bytes, names: Names) -> TokenizerSide:
    try:
        values = parse_json(parse_library(data).to_str().encode())  # as the library writes it today
    except ValueError as error:
        raise DocmtError(f"{path} is damaged ({error}): {_ADVICE}") from error
    model = values["model"]
    if model["type"] not in ("Unigram", "BPE", "WordPiece"):
        raise DocmtError(f"{path} has a model of type {model['type']}, where docmt reads Unigram, BPE and WordPiece")
    ids = dict(model["vocab"])
    if model["type"] == "Unigram":
        ids = {text: row for row, (text, _) in enumerate(model["vocab"])}
        if model["unk_id"] is None:
            model["unk_id"] = ids.get(names.special["unk"])
    ids |= {token["content"]: token["id"] for token in values["added_tokens"]}
    ids = _with_added(ids, path.parent, names)
    special = {token["content"] for token in values["added_tokens"] if token["special"]}

    is_bpe = model["type"] == "BPE"
    return TokenizerSide(
        path, ids, names.marks | special, lambda words: JsonPieces(restrict_json(values, words), words), is_bpe
    )


def _spm(path: Path, ids: Mapping[str, int], marks: frozenset[str]) -> TokenizerSide:
    data = read_bytes(path, "the SentencePiece model")
    marks |= _marks(_read_spm(path))
    return TokenizerSide(path, ids, marks, lambda words: SpmPieces(restrict_spm(data, ids.keys() - words), words))


def _read_spm(path: Path) -> list[SpmPiece]:
    try:
        return read_pieces(read_bytes(path, "the SentencePiece model", advice=_ADVICE))
    except ValueError as error:
        raise DocmtError(f"{path} is damaged ({error}): {_ADVICE}") from error


def _marks(pieces: list[SpmPiece]) -> frozenset[str]:
    return frozenset(piece.text for piece in pieces if piece.kind in (Kind.UNKNOWN, Kind.CONTROL))


def _vocabulary(path: Path) -> dict[str, int]:
    values = read_json(path)
    if not all(type(row) is int for row in values.values()):
        raise DocmtError(f"{path} is no vocabulary (a token has no number for an id): {_ADVICE}")
    return values


def _with_added(ids: Mapping[str, int], directory: Path, names: Names) -> dict[str, int]:
    """A vocabulary with the tokens that were added to it. They must be marks: no model splits text into others."""
    if unknown := names.ordinary - ids.keys():
        raise DocmtError(
            f"text can become {min(unknown)!r}, which was added to the tokenizer in {directory} but is no piece of its "
            "model: save that tokenizer again, with a tokenizer.json"
        )
    return {**ids, **names.rows}
