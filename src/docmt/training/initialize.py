"""Starting from the weights of another model."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from docmt.checkpoint.model_directory import (
    differ,
    load_languages,
    load_model_config,
    load_model_tokenizer,
    load_model_weights,
)
from docmt.core.errors import DocmtError
from docmt.model import ModelConfig, TranslationModel
from docmt.model.families.family import ENCODER_SIZES
from docmt.model.features import DIRECTIONS
from docmt.model.systems import Needs, System
from docmt.text import Tokenizer
from docmt.training.summary import new_weights_in_words

_log = logging.getLogger(__name__)


def initialize_from(
    model: TranslationModel,
    directory: Path,
    tokenizer: Tokenizer,
    reverse: Path | None = None,
    languages: tuple[str, str] = ("", ""),
) -> list[str]:
    """Copies the weights that `model` shares with a model directory; returns the names of those that stay random.

    A model of the same system is taken whole; of another one, which must have no weights without a place here, the
    system says which weight each of its own starts from (`System.origin`). reverse: a sentence model of the other
    direction, from which some weights start (`System.origin_reverse`). languages: codes of those that `model` will
    translate from and to, where they are known; a start from a model of others is told. Random features that are drawn
    in another way, or in another number, are no weights: `model` keeps its own.
    Raises DocmtError for another vocabulary, for weights of another shape, and for a model that does not fit.
    """
    started, pretrained = _load(directory, model, tokenizer)
    if differ(languages, theirs := load_languages(directory)):
        here = " to ".join(languages)
        _log.warning("%s translates from %s to %s, but this model is to translate from %s", directory, *theirs, here)
    free = all(own.chosen.positions is None for own in (started, model.config))
    if free and started.restarts != model.config.restarts:
        _log.warning(
            "positions of %s %s, those of this model do not: --model.positions %s would agree",
            directory,
            *(("restart at each sentence", "sentence") if started.restarts else ("run on", "document")),
        )
    own = model.state_dict()
    same = started.system == model.config.system
    drawn_alike = started.linear.drawing == model.config.linear.drawing
    new, used = [], set()
    with torch.no_grad():
        for name, tensor in own.items():
            origin = _origin(name, model, pretrained, same)
            if origin is None:
                new.append(name)
                continue
            used.add(origin)
            if not name.endswith(DIRECTIONS) or (drawn_alike and tensor.shape == pretrained[origin].shape):
                _copy(name, tensor, pretrained[origin], directory)
    if unused := sorted(set(pretrained) - used):
        raise DocmtError(
            f"{directory} is a {started.system} model of {started.encoder_layers}+{started.decoder_layers} layers, and "
            f"this {model.config.system} model has no place for its {unused[0]}: start from a sentence model of the "
            "same sizes"
        )
    _log.info("took %d of %d weights from %s", len(own) - len(new), len(own), directory)
    if new:
        _log.info("%s", new_weights_in_words(new, model))
    if reverse is None:
        return new
    _check_direction(directory, reverse)
    return _initialize_from_reverse(model, reverse, tokenizer, new)


def with_architecture_of(config: ModelConfig, started: ModelConfig) -> ModelConfig:
    """The configuration with the architecture of the model to start from, as far as it was left at its defaults.

    A preset other than the usual one says all sizes; of a model of the same system its options are taken as well.
    """
    theirs, usual = started.filled(), ModelConfig()
    names = [*_architecture_of(theirs), "max_positions", "source_vocabulary_size"]
    if not theirs.is_encoder and config.preset != usual.preset:
        names = [name for name in names if name not in _OF_PRESET]
    left = [name for name in names if getattr(config, name) == getattr(usual, name)]
    taken = {name: getattr(theirs, name) for name in left}
    if theirs.system == config.system and hasattr(usual, config.system):
        taken[config.system] = _with_options_of(config.chosen, theirs.chosen)
        taken["linear"] = theirs.linear if config.linear == usual.linear else config.linear
    return replace(config, **taken)


def _with_options_of(system: System, theirs: System) -> System:
    """The options of a system with those of another model of it, where they were left at their defaults."""
    usual = type(system)()
    left = [name for name, value in vars(usual).items() if getattr(system, name) == value]
    return replace(system, **{name: getattr(theirs, name) for name in left})


def _check_direction(directory: Path, reverse: Path) -> None:
    """Raises DocmtError for a reverse model that is known to translate in the same direction as the other one."""
    source, target = load_languages(reverse)
    if source and target and source != target and (source, target) == load_languages(directory):
        raise DocmtError(
            f"initialize_reverse_from names {reverse}, which translates from {source} to {target} as {directory} does: "
            "name a model of the other direction (`docmt train --reverse true`)"
        )


def _initialize_from_reverse(
    model: TranslationModel, directory: Path, tokenizer: Tokenizer, new: list[str]
) -> list[str]:
    """Copies what starts from a sentence model of the other direction; returns what of `new` stays random."""
    origins = {name: model.system.origin_reverse(name) for name in model.state_dict()}
    if not any(origins.values()):
        raise DocmtError(
            f"initialize_reverse_from is set, but this {model.config.system} model has no encoder of target text: "
            "leave it out"
        )
    if not tokenizer.shares_vocabulary:
        raise DocmtError(
            "initialize_reverse_from is for vocabularies that both languages share, as a reverse model reads the other "
            "side: leave it out"
        )
    started, pretrained = _load(directory, model, tokenizer)
    if started.chosen.needs() != Needs(sentences=1):
        raise DocmtError(f"{directory} is a {started.system} model: name a sentence model in initialize_reverse_from")
    taken = [name for name, origin in origins.items() if origin in pretrained]
    with torch.no_grad():
        for name in taken:
            _copy(name, model.state_dict()[name], pretrained[str(origins[name])], directory)
    _log.info("took %d weights from %s, a model of the other direction", len(taken), directory)
    return [name for name in new if name not in taken]


def _load(directory: Path, model: TranslationModel, tokenizer: Tokenizer) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Architecture and weights of a model to start from. Raises DocmtError where they cannot be a start."""
    started = load_model_config(directory, encoders=True)
    if started.is_encoder:
        _check_vocabulary(directory, tokenizer.of("source"), "--source_tokenizer")
    else:
        _check_vocabulary(directory, tokenizer, "--tokenizer")
    _check_architecture(directory, started, model.config)
    return started, load_model_weights(directory)


def _copy(name: str, tensor: Tensor, pretrained: Tensor, directory: Path) -> None:
    if pretrained.shape != tensor.shape:
        raise DocmtError(
            f"{name} has shape {list(tensor.shape)} but {list(pretrained.shape)} in {directory}: "
            "choose the model sizes of the model to start from"
        )
    tensor.copy_(pretrained)


def _origin(name: str, model: TranslationModel, pretrained: Mapping[str, torch.Tensor], same: bool) -> str | None:
    """The pretrained weight that `name` starts from, if any; same: the pretrained model is of the same system."""
    if same and name in pretrained:
        return name
    origin = model.system.origin(name)
    if origin is None:
        return None
    # A document model's one attention sees the whole document, and is named so.
    return next((found for found in (origin, origin.replace(".local.", ".whole.")) if found in pretrained), None)


_OF_PRESET = ("width", "feed_forward", "heads", "encoder_layers", "decoder_layers")
_OF_ENCODER = tuple(f"encoder_{name}" for name in ENCODER_SIZES)
# What weights of equal shapes mean depends on these.
_ARCHITECTURE = (
    "family",
    *_OF_PRESET,
    *_OF_ENCODER,
    "head_width",
    "normalization",
    "activation",
    "embedding_normalization",
    "scale_embeddings",
    "output",
    "position_encoding",
    "relative_buckets",
    "relative_distance",
    "source_mark",
    "target_mark",
)


# The same of a system that has it.
_OF_SYSTEM = ("join",)
# The same of linear attention; a gate may be new, and features are no weights.
_LINEAR = ("map", "temperature", "rescale")
_GATE = ("gate", "gates")


def _architecture_of(started: ModelConfig) -> Sequence[str]:
    """The settings that a model has to have as the one that it starts from, or as the encoder that it starts from."""
    return ("family", "encoder_layers", *_OF_ENCODER) if started.is_encoder else _ARCHITECTURE


def _check_architecture(directory: Path, started: ModelConfig, wanted: ModelConfig) -> None:
    for name in _architecture_of(started):
        _check_same(directory, name, getattr(started.filled(), name), getattr(wanted.filled(), name))
    if started.system == wanted.system:
        for name in _OF_SYSTEM:
            theirs, ours = (getattr(own.filled().chosen, name, None) for own in (started, wanted))
            _check_same(directory, f"{wanted.system}.{name}", theirs, ours)
    if not started.chosen.linear:
        return
    if not wanted.chosen.linear:
        raise DocmtError(
            f"{directory}, which this {wanted.system} model is to start from, has linear attention, and this one has "
            "none: choose linear attention for it as well, or another model to start from"
        )
    for name in (*_LINEAR, *(_GATE if started.linear.gate != "none" else ())):
        _check_same(directory, f"linear.{name}", getattr(started.linear, name), getattr(wanted.linear, name))


def _check_same(directory: Path, name: str, theirs: object, ours: object) -> None:
    if theirs != ours:
        raise DocmtError(
            f"model.{name} is {ours!r}, but {theirs!r} in {directory}, which this model is to start from: choose "
            "the same"
        )


def _check_vocabulary(directory: Path, tokenizer: Tokenizer, option: str) -> None:
    if not load_model_tokenizer(directory).same_words(tokenizer):
        raise DocmtError(
            f"{directory} has another vocabulary than the training data: prepare the data with its tokenizer "
            f"(`docmt prepare {option} {directory}`)"
        )
