"""The layouts in which Hugging Face directories hold pieces and vocabularies, found by the names of their files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from docmt.checkpoint.huggingface_names import Names
from docmt.checkpoint.loading import read_symbols
from docmt.core.errors import DocmtError
from docmt.core.files import parse_json, read_bytes, read_json
from docmt.text.bpe import parse_library
from docmt.text.pieces import JsonPieces, Pieces, SpmPieces, restrict_json
from docmt.text.sentencepiece_tokenizer import Kind, SpmPiece, read_pieces, restrict_spm
from docmt.text.tokenizer import SIDES, Side

_ADVICE = "copy the directory again, complete"
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
class Found:
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


def find_pieces(directory: Path, names: Names) -> dict[Side, Found]:
    """What a directory has for each side; one object where it is the same. Raises DocmtError naming what is missing."""
    for files, read in _LAYOUTS.items():
        if all((directory / file).is_file() for file in files):
            return read(directory, names)
    looked_for = ", ".join(" with ".join(files) for files in _LAYOUTS)
    raise DocmtError(f"{directory} has no tokenizer that docmt can read (it looked for {looked_for}): {_ADVICE}")


def _marian(directory: Path, names: Names) -> dict[Side, Found]:
    source = _with_added(_vocabulary(directory / "vocab.json"), directory, names)
    target = _vocabulary(directory / "target_vocab.json") if names.settings.get("separate_vocabs") else source
    paths = {side: directory / f"{side}.spm" for side in SIDES}
    marks = names.marks.union(*(_marks(_read_spm(path)) for path in paths.values()))
    return {"source": _spm(paths["source"], source, marks), "target": _spm(paths["target"], target, marks)}


def _m2m100(directory: Path, names: Names) -> dict[Side, Found]:
    path = directory / "sentencepiece.bpe.model"
    ids = _with_added(_vocabulary(directory / "vocab.json"), directory, names)
    known = _M2M100_LANGUAGES.get(str(names.settings.get("language_codes")), _M2M100_LANGUAGES["m2m100"])
    marks = [text for text in names.additional if text.startswith("__")] or [f"__{code}__" for code in known.split()]
    for text in marks:
        ids.setdefault(text, len(ids))
    return _both(_spm(path, ids, names.marks.union(marks)))


def _fairseq(directory: Path, names: Names) -> dict[Side, Found]:
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
    return _both(_spm(path, ids, names.marks))


def _t5(directory: Path, names: Names) -> dict[Side, Found]:
    path = directory / "spiece.model"
    pieces = _read_spm(path)
    ids = _with_added({piece.text: row for row, piece in enumerate(pieces)}, directory, names)
    count = names.settings.get("extra_ids", _T5_EXTRA_IDS)
    if type(count) is not int or not 0 <= count <= _MOST_EXTRA_IDS:
        raise DocmtError(f"{directory} has a tokenizer_config.json that says extra_ids {count!r}: {_ADVICE}")
    for number in range(count):
        ids.setdefault(f"<extra_id_{number}>", len(pieces) + count - 1 - number)
    return _both(_spm(path, ids, names.marks))


def _bart(directory: Path, names: Names) -> dict[Side, Found]:
    """Byte-level BPE in two files: the vocabulary, and merges, a line for each in the order of their ranks."""
    path = directory / "merges.txt"
    try:
        lines = read_bytes(path).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise DocmtError(f"{path} is no text in UTF-8 ({error}): {_ADVICE}") from error
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    before = {**byte_level, "add_prefix_space": names.settings.get("add_prefix_space") is True}
    merges = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    model = {"type": "BPE", "vocab": _vocabulary(directory / "vocab.json"), "merges": merges}
    values = {"version": "1.0", "model": model, "pre_tokenizer": before, "decoder": byte_level}
    return _both(_json(path, json.dumps(values).encode(), names))


def _bert(directory: Path, names: Names) -> dict[Side, Found]:
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
    return _both(_json(path, json.dumps(values).encode(), names))


def _tokenizer_json(directory: Path, names: Names) -> dict[Side, Found]:
    path = directory / "tokenizer.json"
    return _both(_json(path, read_bytes(path), names))


_LAYOUTS: dict[tuple[str, ...], Callable[[Path, Names], dict[Side, Found]]] = {
    ("source.spm", "target.spm", "vocab.json"): _marian,
    ("sentencepiece.bpe.model", "vocab.json"): _m2m100,
    ("tokenizer.json",): _tokenizer_json,
    ("sentencepiece.bpe.model",): _fairseq,
    ("spiece.model",): _t5,
    ("vocab.json", "merges.txt"): _bart,
    ("vocab.txt",): _bert,
}
"""The first whose files are there is read."""


def _json(path: Path, data: bytes, names: Names) -> Found:
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

    def open_(words: Mapping[str, int]) -> Pieces:
        return JsonPieces(restrict_json(values, words), words)

    return Found(path, ids, names.marks | special, open_, is_bpe=model["type"] == "BPE")


def _spm(path: Path, ids: Mapping[str, int], marks: frozenset[str]) -> Found:
    data = read_bytes(path, "the SentencePiece model")
    marks |= _marks(_read_spm(path))

    def open_(words: Mapping[str, int]) -> Pieces:
        return SpmPieces(restrict_spm(data, ids.keys() - words), words)

    return Found(path, ids, marks, open_)


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


def _both(found: Found) -> dict[Side, Found]:
    return {"source": found, "target": found}
