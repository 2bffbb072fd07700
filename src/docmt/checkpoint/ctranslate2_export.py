"""Sentence models of docmt as model directories of CTranslate2, which find the same."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from docmt.checkpoint.hf_model import BIAS, SOFTMAX
from docmt.checkpoint.model_directory import check_new, load_model, load_model_tokenizer
from docmt.core.errors import DocmtError
from docmt.core.files import atomic_directory, parse_json, read_json
from docmt.core.options import shown
from docmt.model import ModelConfig, TranslationModel
from docmt.model.embeddings import sinusoids
from docmt.model.layers import GATED
from docmt.model.scope import SentenceFrame
from docmt.model.systems import Needs
from docmt.model.transformer import Parts
from docmt.text import (
    BpeTokenizer,
    DictionaryTokenizer,
    PretrainedTokenizer,
    SentencePieceTokenizer,
    SpecialTokens,
    Tokenizer,
)
from docmt.text.bpe import parse_library
from docmt.text.pieces import JsonPieces, SpmPieces
from docmt.text.sentencepiece_tokenizer import spm_to_json
from docmt.text.tokenizer import SIDES, Side

UNCHANGED = "float32"
"""The type that weights have in docmt."""
TOKENIZER_FILE, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH"}
POSITIONS = 1024
"""Computed positions that are written at least: CTranslate2 reads no longer sentences unless told so."""
NEVER = -1e4
"""Bias of what the model never says: finite in float16, and its exponential is 0 in all types."""
_TABLES = ("tokens.weight", "source_tokens.weight", "target_tokens.weight")
_NAMES = {"bos_token": 0, "pad_token": 1, "eos_token": 2, "unk_token": 3}
_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<eod>", "<mask>")
_SAMPLE, _TOGETHER = 20_000, 25
"""Words with which a tokenizer is tried, and how many of them in a sentence."""


def export_ctranslate2(model_directory: Path | str, output: Path, quantization: str = UNCHANGED) -> dict[str, Any]:
    """Writes the sentence model in a model directory as one of CTranslate2, and returns its config.json.

    Tokens have docmt's ids. The entry `docmt` says what a caller has to give: the marks before and after the words of a
    source sentence, and what follows the first token of a translation (`target_prefix`); and which tokenizer is in the
    directory: the tokenizer.json of one that puts these marks around a sentence, or the files of transformers'
    MarianTokenizer, or docmt's own where there are neither. quantization: the type of the weights in the file, such as
    int8. Raises DocmtError, naming the setting, for a model that CTranslate2 cannot compute, and where its package is
    missing. The directory is complete or not there.
    """
    specs = _library()
    model, tokenizer = _load_sentence_model(model_directory, output)
    spec = _spec(specs, model)
    texts = {side: token_texts(tokenizer, side) for side in SIDES}
    _name_unknown(texts)
    spec.register_source_vocabulary(texts["source"])
    spec.register_target_vocabulary(texts["target"])
    config, frame, target = spec.config, model.parts.frame, texts["target"]
    config.bos_token, config.eos_token, config.unk_token = (
        target[token] for token in (SpecialTokens.bos, SpecialTokens.eos, SpecialTokens.unk)
    )
    config.decoder_start_token, *prefix = (target[mark] for mark in frame.target_opens)
    config.layer_norm_epsilon = model.parts.family.norm_epsilon
    before, after = ([texts["source"][mark] for mark in own] for own in (frame.source_opens, frame.source_closes))
    given: dict[str, Any] = {"source_opens": before, "source_closes": after, "target_prefix": prefix}
    with atomic_directory(output) as folder:
        config.add_attribute("docmt", {**given, "tokenizer": _write_tokenizer(folder, tokenizer, frame)})
        spec.validate()
        spec.optimize(quantization=None if quantization == UNCHANGED else quantization)
        spec.save(str(folder))
    values: dict[str, Any] = config.to_dict()
    return values


def _load_sentence_model(model_directory: Path | str, output: Path) -> tuple[TranslationModel, Tokenizer]:
    """The model in a model directory, and its tokenizer, to be written to `output`.

    Raises DocmtError where the output is there already, and for a model that is no sentence model or does not fit its
    tokenizer.
    """
    check_new(output)
    model, tokenizer = load_model(model_directory), load_model_tokenizer(model_directory)
    config = model.config
    if config.chosen.needs() != Needs(sentences=1):
        raise DocmtError(
            f"{model_directory} is a model of system {config.system}: only a sentence model, which reads nothing but "
            "one sentence, has a form in CTranslate2"
        )
    sizes = config.vocabulary_size, config.source_vocabulary_size or config.vocabulary_size
    if sizes != (tokenizer.vocabulary_size, tokenizer.source_vocabulary_size):
        raise DocmtError(
            "the model's tokenizer has another number of tokens than the model: copy the tokenizer's files again"
        )
    return model, tokenizer


def no_form(config: ModelConfig, name: str) -> DocmtError:
    """The error for a setting that CTranslate2 has no model for."""
    return DocmtError(
        f"the model has model.{name} {shown(getattr(config, name))}: with its other settings, that is no model of "
        "CTranslate2 that docmt can write"
    )


def _library() -> Any:
    """What CTranslate2's package writes models with. Raises DocmtError where it is missing."""
    try:
        from ctranslate2 import specs
    except ImportError as error:
        raise DocmtError(
            "models of CTranslate2 are written by its package, which is missing here: pip install docmt[ctranslate2]"
        ) from error
    return specs


def _name_unknown(texts: Mapping[Side, list[str]]) -> None:
    """Gives the token for what is not in a vocabulary one text on both sides, in place: there is one entry for it."""
    unk = SpecialTokens.unk
    taken = {text for own in texts.values() for token, text in enumerate(own) if token != unk}
    name = next(name for name in mark_names("<unk>") if name not in taken)
    for own in texts.values():
        own[unk] = name


def _spec(specs: Any, model: TranslationModel) -> Any:
    """The model as that package writes it. Raises DocmtError for what CTranslate2 cannot compute."""
    parts, config = model.parts, model.config
    if parts.encoder.family.norm_epsilon != parts.family.norm_epsilon:
        raise no_form(config, "family")  # one entry of config.json has that of both
    if not parts.frame.target_opens:
        raise no_form(config, "target_mark")
    encoder = _stack(specs, specs.TransformerEncoderSpec, parts.encoder, config.encoder_layers)
    decoder = _stack(specs, specs.TransformerDecoderSpec, parts, config.decoder_layers)
    fill(encoder, decoder, model)
    return specs.TransformerSpec(encoder, decoder)


def _stack(specs: Any, kind: Any, parts: Parts, layers: int) -> Any:
    """An encoder or a decoder without its weights."""
    sizes = parts.sizes
    activation = sizes.activation.removeprefix(GATED)
    spec = kind(
        layers,
        sizes.heads,
        pre_norm=parts.pre_norm,
        activation=getattr(specs.Activation, _ACTIVATIONS[activation]),
        layernorm_embedding=sizes.embedding_normalization,
        relative_attention_bias=sizes.position_encoding == "relative",
        ffn_glu=activation != sizes.activation,
        rms_norm=parts.family.norm == "rms",
    )
    spec.scale_embeddings = sizes.scale_embeddings
    return spec


def fill(encoder: Any, decoder: Any, model: TranslationModel) -> None:
    """Puts the model's weights into specifications of its stacks, which have their layers already.

    Raises DocmtError for a model that has weights which CTranslate2 has no place for.
    """
    weights = _Weights(model.state_dict())
    weights.projection(decoder.projection, model.parts)
    if model.config.output == "scaled":
        decoder.scale_outputs = model.config.width**-0.5
    weights.embeddings(encoder, "source", model.parts.encoder)
    weights.embeddings(decoder, "target", model.parts)
    weights.layers(encoder, "encoder", model.parts.encoder)
    weights.layers(decoder, "decoder", model.parts)
    if weights.left.keys() - set(_TABLES):
        raise no_form(model.config, "family")


class _Weights:
    """The weights of a model by docmt's names; what has found its place is taken out, but for tables of tokens."""

    def __init__(self, state: dict[str, Tensor]) -> None:
        self.left = dict(state)

    def projection(self, spec: Any, parts: Parts) -> None:
        """The matrix [V, d] and the bias [V] that make logits."""
        first, last = parts.family.unpredicted
        own = self.left.pop(f"{SOFTMAX}.weight", None)
        # Of a table all rows are taken, so that it is in the file once; some have no logit in docmt.
        spec.weight = self._table("target") if own is None else F.pad(own, (0, 0, first, last))
        bias = self.left.pop(BIAS, None)
        if bias is None and (first or last):
            bias = torch.zeros(len(spec.weight) - first - last)
        if bias is not None:
            spec.bias = F.pad(bias, (first, last), value=NEVER)
            if not parts.family.says_padding:
                spec.bias[SpecialTokens.pad] = NEVER

    def embeddings(self, spec: Any, side: str, parts: Parts) -> None:
        """What turns the tokens of a side into vectors."""
        sizes, family = parts.sizes, parts.family
        tokens = spec.embeddings[0] if side == "source" else spec.embeddings
        tokens.weight = self._table(side)
        if sizes.position_encoding != "relative":
            count = max(sizes.max_positions, POSITIONS)
            table = self.left.pop(f"{side}_positions.table.weight", None)
            if table is None:
                table = sinusoids(count, sizes.width, family.first_position, frequencies=family.frequencies)
            if side == "source" and (vector := self.left.pop("source_bias.vector", None)) is not None:
                table = table + vector
            spec.position_encodings.encodings = table
        if sizes.embedding_normalization:
            self._norm(spec.layernorm_embedding, f"{side}_norm")

    def layers(self, spec: Any, stack: str, parts: Parts) -> None:
        """All layers of the encoder or of the decoder, and the norm above them."""
        distances = self.left.pop(f"{stack}_distances.table.weight", None)
        for number, layer in enumerate(spec.layer):
            name = f"{stack}.{number}"
            self._attention(layer.self_attention, f"{name}.attention", parts)
            if distances is not None:
                layer.self_attention.relative_attention_bias = distances
                layer.self_attention.relative_attention_max_distance = np.int32(parts.sizes.relative_distance)
            if stack == "decoder":
                self._attention(layer.attention, f"{name}.cross", parts)
            self._linear(layer.ffn.linear_0, f"{name}.feed_forward.inner")
            if f"{name}.feed_forward.factor.weight" in self.left:
                self._linear(layer.ffn.linear_0_noact, f"{name}.feed_forward.factor")
            self._linear(layer.ffn.linear_1, f"{name}.feed_forward.outer")
            self._norm(layer.ffn.layer_norm, f"{name}.feed_forward_residual.norm")
        if parts.pre_norm:
            self._norm(spec.layer_norm, f"{stack}_norm")

    def _attention(self, spec: Any, name: str, parts: Parts) -> None:
        """Attention and its norm; that to the sequence itself has queries, keys and values in one matrix."""
        sizes = parts.sizes
        spec.queries_scale = (sizes.attention_width // sizes.heads) ** -0.5 if parts.family.scaled else 1.0
        groups = (("query", "key", "value"),) if len(spec.linear) == 2 else (("query",), ("key", "value"))
        for linear, group in zip(spec.linear, (*groups, ("output",)), strict=True):
            self._linear(linear, *(f"{name}.local.{part}" for part in group))
        self._norm(spec.layer_norm, f"{name}_residual.norm")

    def _table(self, side: str) -> Tensor:
        return next(self.left[name] for name in (f"{side}_tokens.weight", "tokens.weight") if name in self.left)

    def _linear(self, spec: Any, *names: str) -> None:
        spec.weight = torch.cat([self.left.pop(f"{name}.weight") for name in names])
        if f"{names[0]}.bias" in self.left:
            spec.bias = torch.cat([self.left.pop(f"{name}.bias") for name in names])

    def _norm(self, spec: Any, name: str) -> None:
        spec.gamma = self.left.pop(f"{name}.weight")
        if f"{name}.bias" in self.left:
            spec.beta = self.left.pop(f"{name}.bias")


def _write_tokenizer(folder: Path, tokenizer: Tokenizer, frame: SentenceFrame) -> str:
    """Write the files of a tokenizer, and return what they are: tokenizer.json, `MarianTokenizer` or `docmt`.

    A tokenizer.json puts the marks of the frame around a sentence. MarianTokenizer is for two languages that are split
    in two ways. Where neither can do what docmt's tokenizer does, that one is written as docmt has it.
    """
    settings: dict[str, Any] = {"clean_up_tokenization_spaces": getattr(tokenizer, "clean_up", False)}
    if isinstance(tokenizer, PretrainedTokenizer) and not tokenizer.sides_alike:
        spm = all(isinstance(pieces, SpmPieces) for pieces in tokenizer.pieces.values())
        if spm and SpecialTokens.bos not in frame.source_opens:
            _write_marian(folder, tokenizer, settings)
            return "MarianTokenizer"
    elif (data := _tokenizer_json(tokenizer, frame)) is not None:
        (folder / TOKENIZER_FILE).write_bytes(data)
        texts = token_texts(tokenizer, "target")
        settings |= {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", "attention_mask"],
            "split_special_tokens": True,  # text that looks like a mark is text
            **{name: texts[token] for name, token in _NAMES.items()},
        }
        _write_json(folder / TOKENIZER_CONFIG, settings)
        return TOKENIZER_FILE
    tokenizer.save(folder)
    return "docmt"


def _write_marian(folder: Path, tokenizer: PretrainedTokenizer, settings: Mapping[str, Any]) -> None:
    """The files of transformers' MarianTokenizer, which puts `</s>` behind sentences itself."""
    for side in SIDES:
        (folder / f"{side}.spm").write_bytes(tokenizer.pieces[side].data)
        name = "target_vocab.json" if side == "target" and not tokenizer.shares_vocabulary else "vocab.json"
        symbols = tokenizer.vocabularies[side].symbols
        _write_json(folder / name, {symbol: token for token, symbol in enumerate(symbols) if symbol is not None})
    symbols = tokenizer.vocabularies["source"].symbols
    settings = {"tokenizer_class": "MarianTokenizer", **settings, "separate_vocabs": not tokenizer.shares_vocabulary}
    _write_json(folder / TOKENIZER_CONFIG, {**settings, **{name: symbols[token] for name, token in _NAMES.items()}})


def _tokenizer_json(tokenizer: Tokenizer, frame: SentenceFrame) -> bytes | None:
    """A tokenizer.json with docmt's ids and the marks of the frame; None where it would give other ids than docmt."""
    try:
        described = _described(tokenizer)
        if described is None:
            return None
        texts, words = token_texts(tokenizer, "target"), _words(tokenizer)
        values = _with_ids(described, texts, {texts[token] for token in words})
        values["post_processor"] = _template(frame, texts)
        data = json.dumps(values, ensure_ascii=False).encode()
        return data if _gives_same_ids(data, tokenizer, frame, texts, words) else None
    except ValueError:  # what the format cannot say, or the library cannot read
        return None


def _described(tokenizer: Tokenizer) -> dict[str, Any] | None:
    """What splits text into the words of a tokenizer, as a tokenizer.json. Raises ValueError where it cannot say so."""
    if isinstance(tokenizer, BpeTokenizer):
        values: dict[str, Any] = parse_json(tokenizer.to_json().encode())
        values["normalizer"] = {"type": "Prepend", "prepend": " "}
        strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
        values["decoder"] = {"type": "Sequence", "decoders": [values["decoder"], strip]}
        return values
    if isinstance(tokenizer, SentencePieceTokenizer):
        return spm_to_json(tokenizer.model)
    if isinstance(tokenizer, PretrainedTokenizer):
        pieces = tokenizer.pieces["target"]
        return dict(parse_json(pieces.data) if isinstance(pieces, JsonPieces) else spm_to_json(pieces.data, strip=True))
    return None


def _words(tokenizer: Tokenizer) -> range | list[int]:
    """The ids that text can become."""
    if isinstance(tokenizer, PretrainedTokenizer):
        return list(tokenizer.vocabularies["target"].words().values())
    return range(SpecialTokens.first_word, tokenizer.specials.eod)


def token_texts(tokenizer: Tokenizer, side: Side) -> list[str]:
    """What is written for each id of a side, each another text."""
    tokenizer = tokenizer.of(side)
    if isinstance(tokenizer, PretrainedTokenizer):
        symbols = list(tokenizer.vocabularies[side].symbols)
    else:
        words = _word_texts(tokenizer, side)
        known = set(words)
        marks = [next(name for name in mark_names(mark) if name not in known) for mark in _SPECIALS]
        symbols = [*marks[:4], *words, *marks[4:]]
    # What nobody has a text for has one with a blank in it, as no piece has.
    return [f"<unused {token}>" if text is None else text for token, text in enumerate(symbols)]


def _word_texts(tokenizer: Tokenizer, side: Side) -> list[str]:
    """The text of every id that is a word."""
    if isinstance(tokenizer, SentencePieceTokenizer):
        return tokenizer.pieces()
    if isinstance(tokenizer, DictionaryTokenizer):
        return list(tokenizer.source_symbols if side == "source" else tokenizer.symbols)
    with TemporaryDirectory() as folder:  # bpe and moses-bpe, which are what their library writes of them
        tokenizer.save(Path(folder))
        vocabulary = read_json(Path(folder, TOKENIZER_FILE))["model"]["vocab"]
    return sorted(vocabulary, key=vocabulary.__getitem__)


def mark_names(mark: str) -> Iterator[str]:
    """Names for a mark, the usual one first: text of the training corpus may have become a word like it."""
    yield mark
    yield from (f"{mark[:-1]}_{number}>" for number in count(1))


def _with_ids(values: dict[str, Any], texts: Sequence[str], words: Collection[str]) -> dict[str, Any]:
    """A tokenizer.json in which every text has its number for an id; those that are no words are marks.

    Raises ValueError where it splits text into pieces that are no words.
    """
    model, unk = dict(values["model"]), texts[SpecialTokens.unk]
    pieces = {piece for piece, _ in model["vocab"]} if model["type"] == "Unigram" else model["vocab"].keys()
    if more := pieces - set(words) - {unk, ""}:
        raise ValueError(f"{min(more)!r} is no word of the vocabulary")
    ordinary = {token["content"]: token for token in values["added_tokens"] if token["content"] in words}
    if model["type"] == "Unigram":
        scores = {piece: score for piece, score in model["vocab"] if piece in words}
        if model["unk_id"] is not None:
            scores[unk] = model["vocab"][model["unk_id"]][1]
        model |= {"vocab": [[text, scores.get(text, 0.0)] for text in texts], "unk_id": SpecialTokens.unk}
    else:
        model |= {"vocab": {text: token for token, text in enumerate(texts)}, "unk_token": unk}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [
        {**ordinary.get(text, {**flags, "special": True}), "id": token, "content": text}
        for token, text in enumerate(texts)
        if text in ordinary or text not in words
    ]
    return {**values, "model": model, "added_tokens": added, "truncation": None, "padding": None}


def _template(frame: SentenceFrame, texts: Sequence[str]) -> dict[str, Any]:
    """What puts marks around a sentence."""

    def around(sequence: str) -> list[dict[str, Any]]:
        before, after = (
            [{"SpecialToken": {"id": texts[mark], "type_id": 0}} for mark in marks]
            for marks in (frame.source_opens, frame.source_closes)
        )
        return [*before, {"Sequence": {"id": sequence, "type_id": 0}}, *after]

    marks = {*frame.source_opens, *frame.source_closes}
    special = {texts[mark]: {"id": texts[mark], "ids": [mark], "tokens": [texts[mark]]} for mark in marks}
    pair = [*around("A"), *around("B")]
    return {"type": "TemplateProcessing", "single": around("A"), "pair": pair, "special_tokens": special}


def _gives_same_ids(
    data: bytes, tokenizer: Tokenizer, frame: SentenceFrame, texts: Sequence[str], words: Sequence[int]
) -> bool:
    """Whether the library, with this tokenizer.json, gives sentences the ids of docmt's tokenizer."""
    library = parse_library(data)
    library.encode_special_tokens = True
    marks = set(texts) - {texts[token] for token in words}
    some = words[:: max(len(words) // _SAMPLE, 1)]
    parts = [some[first : first + _TOGETHER] for first in range(0, len(some), _TOGETHER)]
    sentences = [text for text in tokenizer.decode_batch(parts, "target") if not any(mark in text for mark in marks)]
    return all(
        library.encode(sentence).ids == [*frame.source_opens, *ids, *frame.source_closes]
        for sentence, ids in zip(sentences, tokenizer.encode_batch(sentences, "target"), strict=True)
    )


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
