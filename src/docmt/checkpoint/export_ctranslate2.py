"""Sentence models of docmt as model directories of CTranslate2, which find the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docmt.checkpoint.ctranslate2_weights import fill, no_form
from docmt.checkpoint.export import load_sentence_model
from docmt.checkpoint.export_tokenizer import TOKENIZER_FILE, Framed, mark_names, token_texts, write_tokenizer
from docmt.core.errors import DocmtError
from docmt.core.files import atomic_directory
from docmt.model import TranslationModel
from docmt.model.layers import GATED
from docmt.model.parts import Parts
from docmt.text import SpecialTokens, Tokenizer
from docmt.text.tokenizer import SIDES, Side

UNCHANGED = "float32"
"""The type that weights have in docmt."""
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH"}


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
    model, tokenizer = load_sentence_model(model_directory, output, "CTranslate2")
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
        config.add_attribute("docmt", {**given, "tokenizer": _write_tokenizer(folder, tokenizer, model)})
        spec.validate()
        spec.optimize(quantization=None if quantization == UNCHANGED else quantization)
        spec.save(str(folder))
    values: dict[str, Any] = config.to_dict()
    return values


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


def _write_tokenizer(folder: Path, tokenizer: Tokenizer, model: TranslationModel) -> str:
    """Writes the files of a tokenizer, and returns what they are: tokenizer.json, `MarianTokenizer` or `docmt`."""
    sizes = (tokenizer.source_vocabulary_size, tokenizer.vocabulary_size)
    rows: Mapping[Side, range] = {side: range(size) for side, size in zip(SIDES, sizes, strict=True)}
    frame = model.parts.frame
    try:
        write_tokenizer(folder, Framed(tokenizer, rows, frame.source_opens, frame.source_closes), None)
    except DocmtError:
        tokenizer.save(folder)
        return "docmt"
    return TOKENIZER_FILE if (folder / TOKENIZER_FILE).exists() else "MarianTokenizer"
