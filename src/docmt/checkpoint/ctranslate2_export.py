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
from torch import Tensor, nn

from docmt.checkpoint.model_directory import check_new, load_model, load_model_tokenizer
from docmt.core.errors import DocmtError
from docmt.core.files import atomic_directory, parse_json, read_json
from docmt.core.settings import shown
from docmt.model import ModelConfig, TranslationModel
from docmt.model.attention import Attention
from docmt.model.layers import GATED
from docmt.model.scope import BoundaryTokens
from docmt.model.systems import ContextSpec
from docmt.model.transformer import Parts
from docmt.text import BpeTokenizer, DictionaryTokenizer, PretrainedTokenizer, SentencePieceTokenizer, Tokenizer
from docmt.text.bpe import parse_library
from docmt.text.pieces import JsonPieces, SpmPieces
from docmt.text.sentencepiece_tokenizer import spm_to_json
from docmt.text.tokenizer import SIDES, Side, SpecialTokens

UNCHANGED = "float32"
"""The type that weights have in docmt."""
TOKENIZER_FILE, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH"}
POSITIONS = 1024
"""Computed positions that are written at least: CTranslate2 reads no longer sentences unless told so."""
NEVER = -1e4
"""Bias of what the model never says: finite in float16, and its exponential is 0 in all types."""
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
    if config.chosen.context_spec() != ContextSpec(sentences=1):
        raise DocmtError(
            f"{model_directory} is a model of system {config.system}: only a sentence model, which reads nothing but "
            "one sentence, has a form in CTranslate2"
        )
    sizes = config.vocabulary_size, config.source_vocabulary_size or config.vocabulary_size
    if sizes != (tokenizer.vocabulary_size, tokenizer.source_vocabulary_size):
        raise DocmtError(
            "the model's tokenizer has another number of tokens than the model: copy the tokenizer's files again"
        )
    return model.requires_grad_(False), tokenizer


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
        raise no_form(config, "target_language_ids")
    if parts.family.source_bias and parts.encoder.sizes.position_encoding == "relative":
        raise no_form(config, "family")  # the bias is part of the positions there
    encoder = _stack(specs, specs.TransformerEncoderSpec, model, "source")
    decoder = _stack(specs, specs.TransformerDecoderSpec, model, "target")
    _fill_head(decoder, model)
    return specs.TransformerSpec(encoder, decoder)


def _stack(specs: Any, kind: Any, model: TranslationModel, side: Side) -> Any:
    """The encoder or the decoder: what reads this side."""
    parts, stack = model.parts.of(side), "encoder" if side == "source" else "decoder"
    sizes, relative = parts.sizes, parts.sizes.position_encoding == "relative"
    activation = sizes.activation.removeprefix(GATED)
    spec = kind(
        len(getattr(model, stack)),
        sizes.heads,
        pre_norm=parts.pre_norm,
        activation=getattr(specs.Activation, _ACTIVATIONS[activation]),
        layernorm_embedding=sizes.embedding_normalization,
        relative_attention_bias=relative,
        ffn_glu=activation != sizes.activation,
        rms_norm=parts.family.norm == "rms",
    )
    spec.scale_embeddings = sizes.scale_embeddings
    tokens = spec.embeddings[0] if side == "source" else spec.embeddings
    tokens.weight = getattr(model, parts.table(side)).weight
    if not relative:
        spec.position_encodings.encodings = _positions(model, side)
    if sizes.embedding_normalization:
        _fill_norm(spec.layernorm_embedding, getattr(model, f"{side}_norm"))
    for place, layer in zip(spec.layer, getattr(model, stack), strict=True):
        _fill_attention(place.self_attention, layer.attention.local, layer.attention_residual.norm, parts)
        if relative:
            distances = layer.attention.local.distances
            place.self_attention.relative_attention_bias = distances.table.weight
            place.self_attention.relative_attention_max_distance = np.int32(sizes.relative_distance)
        if side == "target":
            _fill_attention(place.attention, layer.cross.local, layer.cross_residual.norm, parts)
        _fill_linear(place.ffn.linear_0, layer.feed_forward.inner)
        if layer.feed_forward.factor is not None:
            _fill_linear(place.ffn.linear_0_noact, layer.feed_forward.factor)
        _fill_linear(place.ffn.linear_1, layer.feed_forward.outer)
        _fill_norm(place.ffn.layer_norm, layer.feed_forward_residual.norm)
    if parts.pre_norm:
        _fill_norm(spec.layer_norm, getattr(model, f"{stack}_norm"))
    return spec


def _positions(model: TranslationModel, side: Side) -> Tensor:
    """Position vectors of a side [count, d]."""
    sizes = model.parts.of(side).sizes
    count = sizes.max_positions if sizes.position_encoding == "learned" else max(sizes.max_positions, POSITIONS)
    table: Tensor = getattr(model, f"{side}_positions")(torch.arange(count))
    return model.source_bias(table) if side == "source" and model.parts.family.source_bias else table


def _fill_head(spec: Any, model: TranslationModel) -> None:
    """Put in the matrix [V, d] and the bias [V] that make logits. What the model never says has a row, too."""
    head = model.whole_head()
    weight, bias = head.weight, head.bias
    missing = head.first, model.config.vocabulary_size - head.first - len(weight)
    if any(missing):
        bias = F.pad(torch.zeros(len(weight)) if bias is None else bias, missing, value=NEVER)
        weight = F.pad(weight, (0, 0, *missing))
    spec.projection.weight = weight
    if bias is not None:
        spec.projection.bias = bias.clamp(min=NEVER)
        if not model.parts.family.says_padding:
            spec.projection.bias[SpecialTokens.pad] = NEVER
    if head.scale != 1.0:
        spec.scale_outputs = head.scale


def _fill_attention(spec: Any, attention: Attention, norm: nn.Module, parts: Parts) -> None:
    """Put in attention and its norm; that to the sequence itself has queries, keys and values in one matrix."""
    sizes, query, key, value = parts.sizes, attention.query, attention.key, attention.value
    spec.queries_scale = (sizes.attention_width // sizes.heads) ** -0.5 if parts.family.scaled else 1.0
    groups = ((query, key, value),) if len(spec.linear) == 2 else ((query,), (key, value))
    for linear, group in zip(spec.linear, (*groups, (attention.output,)), strict=True):
        _fill_linear(linear, *group)
    _fill_norm(spec.layer_norm, norm)


def _fill_linear(spec: Any, *maps: nn.Linear) -> None:
    spec.weight = torch.cat([each.weight for each in maps])
    if maps[0].bias is not None:
        spec.bias = torch.cat([each.bias for each in maps])


def _fill_norm(spec: Any, norm: nn.Module) -> None:
    weights: dict[str, Tensor] = norm.state_dict()
    spec.gamma = weights["weight"]
    if "bias" in weights:
        spec.beta = weights["bias"]


def _write_tokenizer(folder: Path, tokenizer: Tokenizer, frame: BoundaryTokens) -> str:
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


def _tokenizer_json(tokenizer: Tokenizer, frame: BoundaryTokens) -> bytes | None:
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


def _template(frame: BoundaryTokens, texts: Sequence[str]) -> dict[str, Any]:
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
    data: bytes, tokenizer: Tokenizer, frame: BoundaryTokens, texts: Sequence[str], words: Sequence[int]
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
