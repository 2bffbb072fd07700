"""Export of docmt sentence models to CTranslate2 model directories with equal results."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docmt.checkpoint.model_directory import check_not_existing, load_model, load_model_tokenizer
from docmt.core.errors import DocmtError, missing_package_error
from docmt.core.files import atomic_directory, parse_json
from docmt.core.settings import quote
from docmt.documents.segmentation import LINE_BREAK, UNSPACED_SCRIPT, unwrap_lines
from docmt.documents.words import PLAIN_CHARACTERS, normalize_characters
from docmt.model import ModelConfig, TranslationModel
from docmt.model.attention import Attention
from docmt.model.embeddings import Stack
from docmt.model.layers import GATED_PREFIX
from docmt.model.scope import BoundaryTokens
from docmt.model.systems import ContextSpec
from docmt.text import BpeTokenizer, DictionaryTokenizer, PretrainedTokenizer, SentencePieceTokenizer, Tokenizer
from docmt.text.bpe import parse_tokenizer_json
from docmt.text.pretrained import JsonSubwordModel, SpmSubwordModel
from docmt.text.sentencepiece_tokenizer import replace_step, spm_to_json
from docmt.text.tokenizer import SIDES, Side, SpecialTokens

UNQUANTIZED = "float32"
"""The type of docmt's weights."""
TOKENIZER_FILE, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH"}
MIN_POSITIONS = 1024
"""Fewest computed positions that are written. They limit the sentence length in CTranslate2."""
IMPOSSIBLE = -1e4
"""Logit bias of tokens that the model cannot generate: finite in float16, and its exponential is 0 in all types."""
_NAMES = {"bos_token": 0, "pad_token": 1, "eos_token": 2, "unk_token": 3}
_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<eod>", "<mask>")
_SAMPLE_WORDS, _WORDS_PER_SENTENCE = 20_000, 25
"""Number of words that a tokenizer.json is tested with, and how many in a sentence."""


def export_ctranslate2(model_directory: Path | str, output: Path, quantization: str = UNQUANTIZED) -> dict[str, Any]:
    """Write the sentence model in a model directory as a CTranslate2 model, and return its config.json.

    Tokens have docmt's ids. The entry `docmt` of the config holds the boundary tokens around a source sentence, the
    tokens after the first of a translation (`target_prefix`), and the kind of tokenizer: a tokenizer.json that adds
    the boundary tokens, files of transformers' MarianTokenizer, or else docmt's files. quantization: the type of the
    weights, such as int8. Raises DocmtError, naming the setting, for an unsupported model, and if the package is
    missing. Nothing is written on failure.
    """
    try:
        from ctranslate2 import specs
    except ImportError as error:
        raise missing_package_error("the export", "ctranslate2", "ctranslate2") from error
    model, tokenizer = _load_sentence_model(model_directory, output)
    spec = _build_spec(specs, model)
    texts = {side: list_token_texts(tokenizer, side) for side in SIDES}
    _share_unknown_text(texts)
    spec.register_source_vocabulary(texts["source"])
    spec.register_target_vocabulary(texts["target"])
    config, boundary_tokens, target = spec.config, model.boundary_tokens, texts["target"]
    config.bos_token, _, config.eos_token, config.unk_token = target[: SpecialTokens.first_word]
    config.decoder_start_token, *prefix = (target[mark] for mark in boundary_tokens.target_opening)
    config.layer_norm_epsilon = model.family.norm_epsilon
    entries: dict[str, Any] = {
        "source_opens": [texts["source"][mark] for mark in boundary_tokens.source_opening],
        "source_closes": [texts["source"][mark] for mark in boundary_tokens.source_closing],
        "target_prefix": prefix,
    }
    with atomic_directory(output) as folder:
        entries["tokenizer"] = _write_tokenizer(folder, tokenizer, boundary_tokens)
        config.add_attribute("docmt", entries)
        spec.validate()
        spec.optimize(quantization=None if quantization == UNQUANTIZED else quantization)
        spec.save(str(folder))
    values: dict[str, Any] = config.to_dict()
    return values


def _load_sentence_model(model_directory: Path | str, output: Path) -> tuple[TranslationModel, Tokenizer]:
    """Load the model and tokenizer of a model directory.

    Raises DocmtError if `output` exists, if the model is not a sentence model, or if it does not match its tokenizer.
    """
    check_not_existing(output)
    model, tokenizer = load_model(model_directory), load_model_tokenizer(model_directory)
    config = model.config
    if config.system_options.context_spec() != ContextSpec(sentences=1):
        raise DocmtError(
            f"{model_directory} is a model of system {config.system}. CTranslate2 only supports sentence models"
        )
    sizes = config.vocabulary_size, config.source_vocabulary_size or config.vocabulary_size
    if sizes != (tokenizer.vocabulary_size, tokenizer.source_vocabulary_size):
        raise DocmtError(
            "the model's tokenizer has another number of tokens than the model. Copy the tokenizer's files again"
        )
    return model.requires_grad_(False), tokenizer


def unsupported_error(config: ModelConfig, name: str) -> DocmtError:
    """Return the error for a setting that the export does not support."""
    return DocmtError(
        f"the model has model.{name} {quote(getattr(config, name))}. With its other settings, docmt cannot export it "
        "to CTranslate2"
    )


def _share_unknown_text(texts: Mapping[Side, list[str]]) -> None:
    """Set one text for <unk> on both sides, in place, because CTranslate2 has one entry for it."""
    unk = SpecialTokens.unk
    used = {text for side_texts in texts.values() for token, text in enumerate(side_texts) if token != unk}
    name = next(name for name in mark_name_variants("<unk>") if name not in used)
    for side_texts in texts.values():
        side_texts[unk] = name


def _build_spec(specs: Any, model: TranslationModel) -> Any:
    """Convert the model to a CTranslate2 spec. Raises DocmtError for an unsupported setting."""
    config, source = model.config, model.stacks["source"]
    if source.family.norm_epsilon != model.family.norm_epsilon:
        raise unsupported_error(config, "family")  # config.json has one entry for both
    if not model.boundary_tokens.target_opening:
        raise unsupported_error(config, "target_language_ids")
    if model.family.source_bias and source.config.position_encoding == "relative":
        raise unsupported_error(config, "family")  # the export adds the bias to absolute positions
    encoder = _build_stack(specs, specs.TransformerEncoderSpec, model, "source")
    decoder = _build_stack(specs, specs.TransformerDecoderSpec, model, "target")
    _fill_head(decoder, model)
    return specs.TransformerSpec(encoder, decoder)


def _build_stack(specs: Any, kind: Any, model: TranslationModel, side: Side) -> Any:
    """Convert the encoder (source) or the decoder (target)."""
    stack, layers = model.stacks[side], "encoder" if side == "source" else "decoder"
    sizes, relative = stack.config, stack.config.position_encoding == "relative"
    activation = sizes.activation.removeprefix(GATED_PREFIX)
    spec = kind(
        len(getattr(model, layers)),
        sizes.heads,
        pre_norm=stack.pre_norm,
        activation=getattr(specs.Activation, _ACTIVATIONS[activation]),
        layernorm_embedding=sizes.embedding_normalization,
        relative_attention_bias=relative,
        ffn_glu=activation != sizes.activation,
        rms_norm=stack.family.norm == "rms",
    )
    spec.scale_embeddings = sizes.scale_embeddings
    tokens = spec.embeddings[0] if side == "source" else spec.embeddings
    tokens.weight = getattr(model, model.table_name(side)).weight
    if not relative:
        spec.position_encodings.encodings = _position_vectors(model, side)
    if sizes.embedding_normalization:
        _fill_norm(spec.layernorm_embedding, getattr(model, f"{side}_norm"))
    for layer_spec, layer in zip(spec.layer, getattr(model, layers), strict=True):
        _fill_attention(layer_spec.self_attention, layer.attention.local, layer.attention_residual.norm, stack)
        if relative:
            distances = layer.attention.local.distances
            layer_spec.self_attention.relative_attention_bias = distances.table.weight
            layer_spec.self_attention.relative_attention_max_distance = np.int32(sizes.relative_distance)
        if side == "target":
            _fill_attention(layer_spec.attention, layer.cross.local, layer.cross_residual.norm, stack)
        _fill_linear(layer_spec.ffn.linear_0, layer.feed_forward.inner)
        if layer.feed_forward.factor is not None:
            _fill_linear(layer_spec.ffn.linear_0_noact, layer.feed_forward.factor)
        _fill_linear(layer_spec.ffn.linear_1, layer.feed_forward.outer)
        _fill_norm(layer_spec.ffn.layer_norm, layer.feed_forward_residual.norm)
    if stack.pre_norm:
        _fill_norm(spec.layer_norm, getattr(model, f"{layers}_norm"))
    return spec


def _position_vectors(model: TranslationModel, side: Side) -> Tensor:
    """Return the position vectors of a side [count, d]."""
    sizes = model.stacks[side].config
    count = sizes.max_positions if sizes.position_encoding == "learned" else max(sizes.max_positions, MIN_POSITIONS)
    table: Tensor = getattr(model, f"{side}_positions")(torch.arange(count))
    return model.source_bias(table) if side == "source" and model.family.source_bias else table


def _fill_head(spec: Any, model: TranslationModel) -> None:
    """Set the output matrix [V, d] and bias [V]. Tokens that the model cannot generate get a row, too."""
    head = model.full_head()
    weight, bias = head.weight, head.bias
    missing = head.first, model.config.vocabulary_size - head.first - len(weight)
    if any(missing):
        bias = F.pad(torch.zeros(len(weight)) if bias is None else bias, missing, value=IMPOSSIBLE)
        weight = F.pad(weight, (0, 0, *missing))
    spec.projection.weight = weight
    if bias is not None:
        spec.projection.bias = bias.clamp(min=IMPOSSIBLE)
        if not model.family.can_generate_padding:
            spec.projection.bias[SpecialTokens.pad] = IMPOSSIBLE
    if head.scale != 1.0:
        spec.scale_outputs = head.scale


def _fill_attention(spec: Any, attention: Attention, norm: nn.Module, stack: Stack) -> None:
    """Set the weights of an attention and its norm. Self-attention has one matrix for queries, keys and values."""
    query, key, value = attention.query, attention.key, attention.value
    spec.queries_scale = attention.head_width**-0.5 if stack.family.scaled else 1.0
    groups = ((query, key, value),) if len(spec.linear) == 2 else ((query,), (key, value))
    for linear, group in zip(spec.linear, (*groups, (attention.output,)), strict=True):
        _fill_linear(linear, *group)
    _fill_norm(spec.layer_norm, norm)


def _fill_linear(spec: Any, *maps: nn.Linear) -> None:
    spec.weight = torch.cat([linear.weight for linear in maps])
    if maps[0].bias is not None:
        spec.bias = torch.cat([linear.bias for linear in maps])


def _fill_norm(spec: Any, norm: nn.Module) -> None:
    weights: dict[str, Tensor] = norm.state_dict()
    spec.gamma = weights["weight"]
    if "bias" in weights:
        spec.beta = weights["bias"]


def _write_tokenizer(folder: Path, tokenizer: Tokenizer, boundary_tokens: BoundaryTokens) -> str:
    """Write the files of a tokenizer, and return their kind: tokenizer.json, `MarianTokenizer` or `docmt`.

    A tokenizer.json adds the boundary tokens. MarianTokenizer is for languages with two subword models. docmt's files
    are written if neither can express the tokenizer.
    """
    settings: dict[str, Any] = {"clean_up_tokenization_spaces": getattr(tokenizer, "clean_up", False)}
    if isinstance(tokenizer, PretrainedTokenizer) and not tokenizer.sides_alike:
        spm = all(isinstance(pieces, SpmSubwordModel) for pieces in tokenizer.subword_models.values())
        if spm and SpecialTokens.bos not in boundary_tokens.source_opening:
            _write_marian(folder, tokenizer, settings)
            return "MarianTokenizer"
    elif (data := _build_tokenizer_json(tokenizer, boundary_tokens)) is not None:
        (folder / TOKENIZER_FILE).write_bytes(data)
        texts = list_token_texts(tokenizer, "target")
        settings |= {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", "attention_mask"],
            "split_special_tokens": True,  # text that looks like a special token is text
            **{name: texts[token] for name, token in _NAMES.items()},
        }
        _write_json(folder / TOKENIZER_CONFIG, settings)
        return TOKENIZER_FILE
    tokenizer.save(folder)
    return "docmt"


def _write_marian(folder: Path, tokenizer: PretrainedTokenizer, settings: Mapping[str, Any]) -> None:
    """Write the files of transformers' MarianTokenizer, which adds `</s>` to sentences itself."""
    for side in SIDES:
        (folder / f"{side}.spm").write_bytes(tokenizer.subword_models[side].data)
        name = "target_vocab.json" if side == "target" and not tokenizer.shares_vocabulary else "vocab.json"
        symbols = tokenizer.vocabularies[side].symbols
        _write_json(folder / name, {symbol: token for token, symbol in enumerate(symbols) if symbol is not None})
    symbols = tokenizer.vocabularies["source"].symbols
    settings = {"tokenizer_class": "MarianTokenizer", **settings, "separate_vocabs": not tokenizer.shares_vocabulary}
    _write_json(folder / TOKENIZER_CONFIG, {**settings, **{name: symbols[token] for name, token in _NAMES.items()}})


def _build_tokenizer_json(tokenizer: Tokenizer, boundary_tokens: BoundaryTokens) -> bytes | None:
    """Return a tokenizer.json with docmt's ids and boundary tokens, or None if its ids would differ from docmt's."""
    try:
        splitter = _describe_splitter(tokenizer)
        if splitter is None:
            return None
        texts, words = list_token_texts(tokenizer, "target"), _word_ids(tokenizer)
        values = _assign_ids(splitter, texts, {texts[token] for token in words})
        steps = [*_reading_steps(), *filter(None, [values["normalizer"]])]
        values["normalizer"] = {"type": "Sequence", "normalizers": steps}
        values["post_processor"] = _boundary_template(boundary_tokens, texts)
        data = json.dumps(values, ensure_ascii=False).encode()
        return data if _has_same_ids(data, tokenizer, boundary_tokens, texts, words) else None
    except ValueError:  # the format cannot express it, or the library cannot read it
        return None


def _describe_splitter(tokenizer: Tokenizer) -> dict[str, Any] | None:
    """Return a tokenizer.json that splits text into words, or None. Raises ValueError if it cannot express this."""
    if isinstance(tokenizer, BpeTokenizer):
        values: dict[str, Any] = parse_json(tokenizer.to_json().encode())
        space, normalizer = {"type": "Prepend", "prepend": " "}, values["normalizer"]
        values["normalizer"] = {"type": "Sequence", "normalizers": [space, normalizer]} if normalizer else space
        strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
        values["decoder"] = {"type": "Sequence", "decoders": [values["decoder"], strip]}
        return values
    if isinstance(tokenizer, SentencePieceTokenizer):
        return spm_to_json(tokenizer.model)
    if isinstance(tokenizer, PretrainedTokenizer):
        pieces = tokenizer.subword_models["target"]
        return dict(
            parse_json(pieces.data) if isinstance(pieces, JsonSubwordModel) else spm_to_json(pieces.data, strip=True)
        )
    return None


def _reading_steps() -> list[dict[str, Any]]:
    """Return normalizers that do what `normalize_characters` and `unwrap_lines` do to a source sentence."""
    texts = sorted(set(PLAIN_CHARACTERS.values()))
    characters = ["".join(each for each, plain in PLAIN_CHARACTERS.items() if plain == text) for text in texts]
    steps = [replace_step(f"[{group}]", text, regex=True) for group, text in zip(characters, texts, strict=True)]
    blanks, script = r"[\s\x1c-\x1f]", UNSPACED_SCRIPT.pattern
    lines = rf"{blanks}*(?:{LINE_BREAK.pattern}){blanks}*"
    unspaced = rf"(?<={script})(?<!{blanks}){lines}(?={script})(?!{blanks})"
    return [*steps, {"type": "NFC"}, replace_step(unspaced, "", regex=True), replace_step(lines, " ", regex=True)]


def _word_ids(tokenizer: Tokenizer) -> range | list[int]:
    """Return the ids that text can become."""
    if isinstance(tokenizer, PretrainedTokenizer):
        return list(tokenizer.vocabularies["target"].word_ids().values())
    return range(SpecialTokens.first_word, tokenizer.specials.eod)


def list_token_texts(tokenizer: Tokenizer, side: Side) -> list[str]:
    """Return distinct texts for all ids of a side."""
    tokenizer = tokenizer.for_side(side)
    if isinstance(tokenizer, PretrainedTokenizer):
        symbols = list(tokenizer.vocabularies[side].symbols)
    else:
        words = _word_texts(tokenizer, side)
        known = set(words)
        marks = [next(name for name in mark_name_variants(mark) if name not in known) for mark in _SPECIALS]
        symbols = [*marks[:4], *words, *marks[4:]]
    # A blank makes the text of an unknown symbol unique, because no piece has one.
    return [f"<unused {token}>" if text is None else text for token, text in enumerate(symbols)]


def _word_texts(tokenizer: Tokenizer, side: Side) -> list[str]:
    """Return the text of every word."""
    if isinstance(tokenizer, SentencePieceTokenizer):
        return tokenizer.pieces()
    if isinstance(tokenizer, DictionaryTokenizer):
        return list(tokenizer.source_symbols if side == "source" else tokenizer.symbols)
    vocabulary = parse_json(tokenizer.files()[TOKENIZER_FILE])["model"]["vocab"]  # bpe and moses-bpe
    return sorted(vocabulary, key=vocabulary.__getitem__)


def mark_name_variants(mark: str) -> Iterator[str]:
    """Yield names for a special token, the usual one first, because a word may have the same text."""
    yield mark
    yield from (f"{mark[:-1]}_{number}>" for number in count(1))


def _assign_ids(values: dict[str, Any], texts: Sequence[str], words: Collection[str]) -> dict[str, Any]:
    """Return a tokenizer.json in which ids are indices in `texts`, and all texts but words are special tokens.

    Raises ValueError if it splits text into other pieces than words.
    """
    model, unk = dict(values["model"]), texts[SpecialTokens.unk]
    pieces = {piece for piece, _ in model["vocab"]} if model["type"] == "Unigram" else model["vocab"].keys()
    if unknown := pieces - set(words) - {unk, ""}:
        raise ValueError(f"{min(unknown)!r} is no word of the vocabulary")
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


def _boundary_template(boundary_tokens: BoundaryTokens, texts: Sequence[str]) -> dict[str, Any]:
    """Return a post-processor that adds boundary tokens to a sentence."""

    def add_boundaries(sequence: str) -> list[dict[str, Any]]:
        before, after = (
            [{"SpecialToken": {"id": texts[mark], "type_id": 0}} for mark in marks]
            for marks in (boundary_tokens.source_opening, boundary_tokens.source_closing)
        )
        return [*before, {"Sequence": {"id": sequence, "type_id": 0}}, *after]

    marks = {*boundary_tokens.source_opening, *boundary_tokens.source_closing}
    special = {texts[mark]: {"id": texts[mark], "ids": [mark], "tokens": [texts[mark]]} for mark in marks}
    single, pair = add_boundaries("A"), [*add_boundaries("A"), *add_boundaries("B")]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}


def _has_same_ids(
    data: bytes, tokenizer: Tokenizer, boundary_tokens: BoundaryTokens, texts: Sequence[str], words: Sequence[int]
) -> bool:
    """Return whether the library with this tokenizer.json gives sample sentences the ids of docmt's tokenizer."""
    library = parse_tokenizer_json(data)
    library.encode_special_tokens = True
    marks = set(texts) - {texts[token] for token in words}
    sample = words[:: max(len(words) // _SAMPLE_WORDS, 1)]
    batch = [sample[start : start + _WORDS_PER_SENTENCE] for start in range(0, len(sample), _WORDS_PER_SENTENCE)]
    sentences = [text for text in tokenizer.decode_batch(batch, "target") if not any(mark in text for mark in marks)]
    encoded = tokenizer.encode_batch([unwrap_lines(normalize_characters(text)) for text in sentences], "target")
    return all(
        library.encode(sentence).ids == [*boundary_tokens.source_opening, *ids, *boundary_tokens.source_closing]
        for sentence, ids in zip(sentences, encoded, strict=True)
    )


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
