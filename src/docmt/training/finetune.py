"""Starting from another model: its weights, which of them are trained and how fast, and low-rank adapters."""

from __future__ import annotations

import difflib
import logging
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docmt.checkpoint.model_directory import (
    languages_differ,
    load_languages,
    load_model_config,
    load_model_tokenizer,
    load_model_weights,
)
from docmt.checkpoint.weights import check_shapes, read_shapes, read_weights
from docmt.core.errors import DocmtError
from docmt.core.settings import quote
from docmt.model import ModelConfig, TranslationModel
from docmt.model.families.conventions import ENCODER_SIZES
from docmt.model.linear_attention import DIRECTIONS_SUFFIX
from docmt.model.systems import SYSTEMS, ContextSpec, System
from docmt.text import Tokenizer
from docmt.training.reporting import new_weights_in_words
from docmt.training.train_config import AdapterConfig, OptimizerConfig

Options = TypeVar("Options", ModelConfig, System)
_log = logging.getLogger(__name__)
_OF_PRESET = ("width", "feed_forward", "heads", "encoder_layers", "decoder_layers")
_OF_ENCODER = tuple(f"encoder_{name}" for name in ENCODER_SIZES)
# What weights of equal shapes mean depends on all settings but these.
_SIZES = ("preset", "vocabulary_size", "source_vocabulary_size", "instance_tokens", "instance_sentences")
_FREE = (*_SIZES, "positions", "max_positions", "dropout", "attention_dropout", "linear", "system", *SYSTEMS)
_ARCHITECTURE = [each.name for each in fields(ModelConfig) if each.name not in _FREE]
# The same of linear attention; a gate may be new, and features are no weights.
_LINEAR = ("feature_map", "temperature_per", "rescale_keys")
_GATE = ("gate", "gates")
_NEAREST = 3  # names in the message on a pattern that fits none
ADAPTERS_FILE = "adapters.safetensors"
"""In the checkpoint that a run goes on from, whose weights have the adapters in them: both apart."""
BY_RUN = ("the run trains", "Copy the run directory again")
"""Who asks for the tensors of a checkpoint, and what to do where others are there (see `check_shapes`)."""


def initialize_from(
    model: TranslationModel,
    directory: Path,
    tokenizer: Tokenizer,
    reverse: Path | None = None,
    languages: tuple[str, str] = ("", ""),
) -> list[str]:
    """Copies the weights that `model` shares with a model directory; returns the names of those that stay random.

    A model of the same system is taken whole; of another one, which must have no weights without a place here, the
    system says which weight each of its own starts from (`System.initial_weight`). reverse: a sentence model of the
    other direction, from which some weights start (`System.initial_reverse_weight`). languages: codes of those that
    `model` will translate from and to, where they are known; a start from a model of others is told. Random features
    that are drawn in another way, or in another number, are no weights: `model` keeps its own.
    Raises DocmtError for another vocabulary, for weights of another shape, and for a model that does not fit.
    """
    started, pretrained = _load(directory, model, tokenizer)
    if languages_differ(languages, theirs := load_languages(directory)):
        here = " to ".join(languages)
        _log.warning("%s translates from %s to %s, but this model is to translate from %s", directory, *theirs, here)
    free = all(own.system_options.positions is None for own in (started, model.config))
    if free and started.restarts_positions != model.config.restarts_positions:
        _log.warning(
            "positions of %s %s, those of this model do not: --model.positions %s would agree",
            directory,
            *(("restart at each sentence", "sentence") if started.restarts_positions else ("run on", "document")),
        )
    own = model.state_dict()
    same = started.system == model.config.system
    drawn_alike = started.linear.feature_sampling == model.config.linear.feature_sampling
    new, used = [], set()
    with torch.no_grad():
        for name, tensor in own.items():
            origin = _origin(name, model, pretrained, same)
            if origin is None:
                new.append(name)
                continue
            used.add(origin)
            if not name.endswith(DIRECTIONS_SUFFIX) or (drawn_alike and tensor.shape == pretrained[origin].shape):
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
    theirs = started.resolve()
    names = [*_architecture_of(theirs), "max_positions", "source_vocabulary_size"]
    if not theirs.is_encoder and config.preset != ModelConfig().preset:
        names = [name for name in names if name not in _OF_PRESET]
    if theirs.system != config.system or not hasattr(config, config.system):
        return _with_values_of(config, theirs, names)
    options: dict[str, Any] = {
        config.system: _with_values_of(config.system_options, theirs.system_options, vars(config.system_options))
    }
    return replace(_with_values_of(config, theirs, [*names, "linear"]), **options)


def _with_values_of(config: Options, other: Options, names: Iterable[str]) -> Options:
    """The configuration with the values of another one for those of these names that were left at their defaults."""
    usual = type(config)()
    left = [name for name in names if getattr(config, name) == getattr(usual, name)]
    return replace(config, **{name: getattr(other, name) for name in left})


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
    origins = {name: model.system.initial_reverse_weight(name) for name in model.state_dict()}
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
    if started.system_options.context_spec() != ContextSpec(sentences=1):
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
    words, option = (
        (tokenizer.for_side("source"), "source-tokenizer") if started.is_encoder else (tokenizer, "tokenizer")
    )
    if not load_model_tokenizer(directory).has_same_vocabulary(words):
        raise DocmtError(
            f"{directory} has another vocabulary than the training data: prepare the data with its tokenizer "
            f"(`docmt prepare --{option} {directory}`)"
        )
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
    origin = model.system.initial_weight(name)
    if origin is None:
        return None
    # A document model's one attention sees the whole document, and is named so.
    return next((found for found in (origin, origin.replace(".local.", ".whole.")) if found in pretrained), None)


def _architecture_of(started: ModelConfig) -> Sequence[str]:
    """The settings that a model has to have as the one that it starts from, or as the encoder that it starts from."""
    return ("family", "encoder_layers", *_OF_ENCODER) if started.is_encoder else _ARCHITECTURE


def _check_architecture(directory: Path, started: ModelConfig, wanted: ModelConfig) -> None:
    for name in _architecture_of(started):
        _check_same(directory, name, getattr(started.resolve(), name), getattr(wanted.resolve(), name))
    if started.system == wanted.system:
        theirs, ours = (getattr(own.resolve().system_options, "fusion", None) for own in (started, wanted))
        _check_same(directory, f"{wanted.system}.fusion", theirs, ours)
    if not started.system_options.has_linear_attention:
        return
    if not wanted.system_options.has_linear_attention:
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


def fitting(flag: str, pattern: str, names: Collection[str], what: str = "weight") -> list[str]:
    """Those of the names that a pattern (* ? [..]) fits. Raises DocmtError, with the nearest names, if there are none.

    what: the names are of, for the message.
    """
    found = [name for name in names if fnmatchcase(name, pattern)]
    if not found:
        nearest = difflib.get_close_matches(pattern, names, n=_NEAREST, cutoff=0)
        raise DocmtError(
            f"{flag} has {quote(pattern)}, which fits no {what} here: the nearest are {', '.join(nearest)}"
        )
    return found


def freeze(model: TranslationModel, words: Sequence[str], new_weights: Collection[str]) -> None:
    """Keeps the loaded weights that these words or patterns (`TrainConfig.frozen`) mean from being trained.

    What is new is random and always trained. Raises DocmtError where nothing would be, and for a pattern that fits
    nothing.
    """
    loaded = [name for name, _ in model.named_parameters() if name not in new_weights]
    frozen = {name for word in words for name in _meant(model, word, loaded)}
    if not any(own.requires_grad and name not in frozen for name, own in model.named_parameters()):
        raise DocmtError(
            f"freeze {','.join(words)} would freeze everything, as initialize_from has every weight of this model: "
            "freeze less, or choose a system with weights of its own"
        )
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)


def _meant(model: TranslationModel, word: str, loaded: Sequence[str]) -> Iterable[str]:
    """The names of the loaded weights that a word of `freeze`, or a pattern, means."""
    if word == "pretrained":
        return loaded
    modules = {
        "embeddings": (*model.table_names(), "source_positions", "target_positions"),
        "encoder": ("encoder", "encoder_norm"),
        "decoder": ("decoder", "decoder_norm"),
    }.get(word)
    if modules is None:
        return fitting("freeze", word, loaded, "loaded weight")
    return [name for name in loaded if name.startswith(tuple(f"{module}." for module in modules))]


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are not frozen, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def parameter_groups(
    parameters: Mapping[str, nn.Parameter], names: list[str], settings: OptimizerConfig, new_weights: Collection[str]
) -> list[dict[str, Any]]:
    """What the optimiser trains, `parameters` by name, in groups with the factor (`scale`) of their learning rate.

    names: of all weights of the model, frozen ones too. Raises DocmtError for a pattern that fits none, and for
    settings without an effect on any that is trained.
    """
    loaded = [name for name in parameters if name not in new_weights]
    scales = dict.fromkeys(parameters, 1.0) | dict.fromkeys(loaded, settings.pretrained_lr_scale)
    if settings.pretrained_lr_scale != 1 and not loaded:
        raise DocmtError("optimizer.pretrained_lr_scale has no effect, as all loaded weights are frozen: leave it out")
    for name, factor in _factors(settings, names, parameters).items():
        scales[name] *= factor
    groups: dict[float, list[nn.Parameter]] = {}
    for name, scale in scales.items():
        groups.setdefault(scale, []).append(parameters[name])
    return [{"params": group, "scale": scale} for scale, group in groups.items()]


def _factors(settings: OptimizerConfig, names: Sequence[str], trained: Collection[str]) -> dict[str, float]:
    """The factor of each trained weight that a pattern fits, by name."""
    chosen: dict[str, int] = {}
    for number, (pattern, _) in enumerate(settings.factors):
        chosen |= {name: number for name in fitting("optimizer.lr_factors", pattern, names) if name in trained}
    for number, rate in enumerate(settings.lr_factors):
        if number not in chosen.values():
            raise DocmtError(
                f"optimizer.lr_factors has {quote(rate)}, which has no effect: its weights are frozen, or a later "
                "pattern fits them. Leave it out"
            )
    return {name: settings.factors[number][1] for name, number in chosen.items()}


class Adapted(nn.Linear):
    """x W^T + b + alpha / r * x A^T B^T, with A [r, in] (`down`), B [out, r] (`up`) at first zero.

    W and b are those of the module that it takes the place of.
    """

    def __init__(self, base: nn.Linear, rank: int, alpha: float) -> None:
        nn.Module.__init__(self)  # no weights are drawn that nobody needs
        self.in_features, self.out_features = base.in_features, base.out_features
        self.weight = base.weight
        self.register_parameter("bias", base.bias)
        self.scale = alpha / rank
        self.down = nn.Parameter(torch.empty(rank, base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))  # as nn.Linear begins, and the authors' code

    def forward(self, input: Tensor) -> Tensor:
        """x [..., in] -> [..., out]"""
        return super().forward(input) + self.scale * F.linear(F.linear(input, self.down), self.up)


def adapt(model: nn.Module, config: AdapterConfig, new_weights: Collection[str]) -> None:
    """Freezes all loaded weights and puts adapters beside those that the configuration names.

    Modules that the system does not train are left. Raises DocmtError for patterns that fit no loaded linear module,
    and for a rank that would save nothing.
    """
    linear = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module.weight.requires_grad and f"{name}.weight" not in new_weights
    }
    chosen = {
        name for pattern in config.patterns for name in fitting("adapters.modules", pattern, linear, "linear module")
    }
    for name, parameter in model.named_parameters():
        if name not in new_weights:
            parameter.requires_grad_(False)
    for name, module in linear.items():
        if name not in chosen:
            continue
        if config.rank > min(module.weight.shape):
            raise DocmtError(
                f"adapters.rank is {config.rank}, but {name} has {' x '.join(map(str, module.weight.shape))} weights: "
                f"choose at most {min(module.weight.shape)}, or leave it out of adapters.modules"
            )
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, Adapted(module, config.rank, config.alpha))
    _log.info("adapters of rank %d beside %d linear modules", config.rank, len(chosen))


def adapters_of(model: nn.Module) -> dict[str, Adapted]:
    """The adapted modules by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Adapted)}


def without_adapters(model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights (by the names of the model's state) of the same function without adapters: W + alpha / r * B A."""
    plain = dict(weights)
    for name, module in adapters_of(model).items():
        change = module.scale * (plain.pop(f"{name}.up") @ plain.pop(f"{name}.down"))
        plain[f"{name}.weight"] = plain[f"{name}.weight"] + change.to(plain[f"{name}.weight"].device)
    return plain


def remove_adapters(model: nn.Module) -> None:
    """Puts linear modules back in the place of adapted ones; what adapters have learned is gone with them."""
    for name, module in adapters_of(model).items():
        with torch.device("meta"):
            linear = nn.Linear(module.in_features, module.out_features, bias=module.bias is not None)
        linear.weight, linear.bias = module.weight, module.bias
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, linear)


def adapter_tensors(model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those of the weights that adapted modules are made of."""
    parts = ("weight", "down", "up")
    return {f"{name}.{part}": weights[f"{name}.{part}"] for name in adapters_of(model) for part in parts}


def restore_adapters(model: nn.Module, path: Path) -> None:
    """Copies what `adapter_tensors` gave into the model. Raises DocmtError for a file that is damaged or of another."""
    tensors = read_weights(path)
    check_shapes(adapter_tensors(model, model.state_dict()), read_shapes(path), path, BY_RUN)
    model.load_state_dict(tensors, strict=False)
