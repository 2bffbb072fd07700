"""Fine-tuning: start from another model, freeze weights, set learning rates, and add low-rank adapters."""

from __future__ import annotations

import difflib
import logging
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docmt.checkpoint.model_directory import load_languages, load_model_config, load_model_tokenizer, load_model_weights
from docmt.checkpoint.weights import check_shapes, read_weights
from docmt.core.errors import DocmtError
from docmt.core.grouping import group_pairs
from docmt.core.settings import flatten, quote, to_mapping
from docmt.formats.language_codes import is_same_language
from docmt.model import ModelConfig, TranslationModel
from docmt.model.families import ENCODER_SIZES
from docmt.model.linear_attention import DIRECTIONS_SUFFIX
from docmt.model.systems import SYSTEMS, ContextSpec, System
from docmt.text import Tokenizer
from docmt.training.train_config import AdapterConfig, OptimizerConfig

Options = TypeVar("Options", ModelConfig, System)
_log = logging.getLogger(__name__)
_PRESET_FIELDS = ("width", "feed_forward", "heads", "encoder_layers", "decoder_layers")
_ENCODER_FIELDS = tuple(f"encoder_{name}" for name in ENCODER_SIZES)
# All other settings change what weights of equal shapes mean.
_SIZES = ("preset", "vocabulary_size", "source_vocabulary_size", "instance_tokens", "instance_sentences")
_MAY_DIFFER = (*_SIZES, "positions", "max_positions", "dropout", "attention_dropout", "linear", "system", *SYSTEMS)
_ARCHITECTURE_FIELDS = [setting.name for setting in fields(ModelConfig) if setting.name not in _MAY_DIFFER]
# Likewise for linear attention; a gate may be new, and random features are no weights.
_LINEAR_FIELDS = ("feature_map", "temperature_per", "rescale_keys")
_GATE_FIELDS = ("gate", "gate_per")
_SUGGESTIONS = 3  # names in the message on a pattern without matches
_MODULE_DEPTH = 4  # parts of a name in the message on new weights
ADAPTERS_FILE = "adapters.safetensors"
"""File of unmerged adapters and their base weights in checkpoints; the weights file has them merged."""


def initialize_from(
    model: TranslationModel,
    directory: Path,
    tokenizer: Tokenizer,
    reverse: Path | None = None,
    languages: tuple[str, str] = ("", ""),
) -> list[str]:
    """Copy the weights that `model` shares with a model directory; return the names of those that stay random.

    A model of the same system is copied whole. Every weight of a model of another system must have a counterpart here:
    `System.initial_weight` names the weight that each weight starts from. Random features that are drawn in another way
    or number are not copied.

    reverse: a sentence model of the other direction, from which some weights start (`System.initial_reverse_weight`).
    languages: source and target code of this training, if known; a start from a model of other languages logs a
    warning. Raises DocmtError for another vocabulary, other shapes, or a model that does not fit.
    """
    started, pretrained = _load_base(directory, model, tokenizer)
    if not all(map(is_same_language, languages, start_languages := load_languages(directory))):
        is_reverse = all(map(is_same_language, languages, reversed(start_languages)))
        message = "%s translates from %s to %s, but this training translates from %s to %s. If that is wrong, %s"
        advice = "change --reverse" if is_reverse else "start from another model"
        _log.warning(message, directory, *start_languages, *languages, advice)
    selectable = all(config.system_options.positions is None for config in (started, model.config))
    if selectable and started.restarts_positions != model.config.restarts_positions:
        habit, value = ("restart at each sentence", "sentence")
        if not started.restarts_positions:
            habit, value = ("count through", "document")
        message = "positions of %s %s, but not those of this model. Set --model.positions %s to match"
        _log.warning(message, directory, habit, value)
    state = model.state_dict()
    same_system = started.system == model.config.system
    same_drawing = started.linear.feature_sampling == model.config.linear.feature_sampling
    new_names, used_names = [], set()
    with torch.no_grad():
        for name, tensor in state.items():
            origin = _find_origin(name, model, pretrained, same_system)
            if origin is None:
                new_names.append(name)
                continue
            used_names.add(origin)
            if not name.endswith(DIRECTIONS_SUFFIX) or (same_drawing and tensor.shape == pretrained[origin].shape):
                weight = pretrained[origin]
                if model.system.splits_heads and (".local." in name or ".global." in name):
                    weight = cut_heads(name, weight, tensor.shape)
                _copy_weight(name, tensor, weight, directory)
    if unused := sorted(set(pretrained) - used_names):
        raise DocmtError(
            f"{directory} is a {started.system} model of {started.encoder_layers}+{started.decoder_layers} layers, and "
            f"its {unused[0]} has no counterpart in this {model.config.system} model. Start from a sentence model of "
            "the same sizes"
        )
    _log.info("loaded %d of %d weights from %s", len(state) - len(new_names), len(state), directory)
    if new_names:
        _log.info("%s", describe_new_weights(new_names, model))
    if reverse is None:
        return new_names
    _check_direction(directory, reverse)
    return _initialize_from_reverse(model, reverse, tokenizer, new_names)


def describe_new_weights(names: Collection[str], model: nn.Module) -> str:
    """Return how many weights are new, and patterns of the modules that have them."""
    tensors = model.state_dict()
    names = [name for name in names if not name.endswith(DIRECTIONS_SUFFIX)]  # random features are no weights
    total = sum(tensors[name].numel() for name in names)
    # encoder.1.attention.global.query.weight -> encoder.*.attention.global
    modules = [".".join(name.split(".")[:_MODULE_DEPTH]) for name in names]
    patterns = dict.fromkeys(re.sub(r"\.\d+\b", ".*", module) for module in modules)
    return f"{len(names)} new tensors ({format_weights(total)} weights): {', '.join(patterns)}"


def format_weights(number: int) -> str:
    """Return a number of weights as text."""
    return f"{number / 1e6:.1f} million" if number >= 1e6 else f"{number:,}"


def adopt_architecture(config: ModelConfig, started: ModelConfig) -> ModelConfig:
    """Return the configuration with settings at their defaults replaced by those of the model to start from.

    A preset other than the default sets all sizes. A model of the same system gives its system options, too.
    """
    start = started.resolve()
    names = [*_architecture_fields(start), "max_positions", "source_vocabulary_size"]
    if not start.is_encoder and config.preset != ModelConfig().preset:
        names = [name for name in names if name not in _PRESET_FIELDS]
    if start.system != config.system or not hasattr(config, config.system):
        return _fill_defaults_from(config, start, names)
    filled = _fill_defaults_from(config.system_options, start.system_options, vars(config.system_options))
    options: dict[str, Any] = {config.system: filled}
    return replace(_fill_defaults_from(config, start, [*names, "linear"]), **options)


def check_explicit_settings(model: ModelConfig, adopted: ModelConfig, directory: Path, names: Iterable[str]) -> None:
    """Raise DocmtError for a setting that `adopt_architecture` has replaced although it was set.

    names: of the settings that were set, such as model.width. directory: of the start model.
    """
    wanted, used = (flatten({"model": to_mapping(config)}) for config in (model, adopted))
    for name in names:
        if name in wanted and wanted[name] not in ("auto", used[name]):
            raise DocmtError(
                f"{name} is {wanted[name]!r}, but {used[name]!r} in the start model {directory}. Leave it out, or "
                "start from another model"
            )


def _fill_defaults_from(config: Options, other: Options, names: Iterable[str]) -> Options:
    """Return `config` with those of the named fields that have default values set as in `other`."""
    defaults = type(config)()
    unset = [name for name in names if getattr(config, name) == getattr(defaults, name)]
    return replace(config, **{name: getattr(other, name) for name in unset})


def _check_direction(directory: Path, reverse: Path) -> None:
    """Raise DocmtError if the reverse model is known to translate in the same direction as `directory`."""
    source, target = load_languages(reverse)
    if source and target and source != target and (source, target) == load_languages(directory):
        raise DocmtError(
            f"initialize_reverse_from names {reverse}, which translates from {source} to {target} as {directory} does: "
            "name a model of the other direction (`docmt train --reverse true`)"
        )


def _initialize_from_reverse(
    model: TranslationModel, directory: Path, tokenizer: Tokenizer, new: list[str]
) -> list[str]:
    """Copy weights of a sentence model of the other direction; return those of `new` that stay random."""
    origins = {name: model.system.initial_reverse_weight(name) for name in model.state_dict()}
    if not any(origins.values()):
        raise DocmtError(
            f"initialize_reverse_from is set, but this {model.config.system} model does not encode target text: "
            "leave it out"
        )
    if not tokenizer.shares_vocabulary:
        raise DocmtError("initialize_reverse_from needs a vocabulary that source and target share: leave it out")
    started, pretrained = _load_base(directory, model, tokenizer)
    if started.system_options.context_spec() != ContextSpec(sentences=1):
        raise DocmtError(f"{directory} is a {started.system} model: name a sentence model in initialize_reverse_from")
    loaded = [name for name, origin in origins.items() if origin in pretrained]
    with torch.no_grad():
        for name in loaded:
            _copy_weight(name, model.state_dict()[name], pretrained[str(origins[name])], directory)
    _log.info("loaded %d weights from %s, a model of the other direction", len(loaded), directory)
    return [name for name in new if name not in loaded]


def _load_base(directory: Path, model: TranslationModel, tokenizer: Tokenizer) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Return architecture and weights of the model to start from. Raises DocmtError if it does not fit."""
    started = load_model_config(directory, encoders=True)
    check_vocabulary(directory, started, tokenizer)
    _check_architecture(directory, started, model.config)
    return started, load_model_weights(directory)


def check_vocabulary(directory: Path, started: ModelConfig, tokenizer: Tokenizer) -> None:
    """Raise DocmtError if a model to start from has another vocabulary than the training data (tokenizer: of these)."""
    words = tokenizer.for_side("source") if started.is_encoder else tokenizer
    if not load_model_tokenizer(directory).has_same_vocabulary(words):
        raise DocmtError(
            f"{directory} has another vocabulary than the training data: prepare the data with its tokenizer "
            f"(`docmt prepare --{'source-' * started.is_encoder}tokenizer {directory}`)"
        )


def cut_heads(name: str, weight: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the heads of a sentence model's attention that start an attention with fewer heads, of this shape.

    Attention within sentences gets the first heads, that over the document the last ones.
    """
    for axis, size in enumerate(shape):
        if size < weight.shape[axis]:
            return weight.narrow(axis, weight.shape[axis] - size if ".global." in name else 0, size)
    return weight


def _copy_weight(name: str, tensor: Tensor, pretrained: Tensor, directory: Path) -> None:
    if pretrained.shape != tensor.shape:
        raise DocmtError(
            f"{name} has shape {list(tensor.shape)} but {list(pretrained.shape)} in {directory}. "
            "Set the model sizes of that model"
        )
    tensor.copy_(pretrained)


def _find_origin(name: str, model: TranslationModel, pretrained: Mapping[str, Tensor], same_system: bool) -> str | None:
    """Return the pretrained weight that `name` starts from, or None."""
    if same_system and name in pretrained:
        return name
    origin = model.system.initial_weight(name)
    if origin is None:
        return None
    # The only attention of a document model covers the whole document and is named `global`.
    return next((match for match in (origin, origin.replace(".local.", ".global.")) if match in pretrained), None)


def _architecture_fields(started: ModelConfig) -> Sequence[str]:
    """Return the settings that must equal those of the model or encoder to start from."""
    return ("family", "encoder_layers", *_ENCODER_FIELDS) if started.is_encoder else _ARCHITECTURE_FIELDS


def _check_architecture(directory: Path, started: ModelConfig, config_here: ModelConfig) -> None:
    for name in _architecture_fields(started):
        _check_equal(directory, name, getattr(started.resolve(), name), getattr(config_here.resolve(), name))
    if started.system == config_here.system:
        joins = [getattr(each.resolve().system_options, "fusion", None) for each in (started, config_here)]
        _check_equal(directory, f"{config_here.system}.fusion", *joins)
    if not started.system_options.has_linear_attention:
        return
    if not config_here.system_options.has_linear_attention:
        raise DocmtError(
            f"{directory} has linear attention, but this {config_here.system} model has none. Set linear attention, "
            "or start from another model"
        )
    for name in (*_LINEAR_FIELDS, *(_GATE_FIELDS if started.linear.gate != "none" else ())):
        _check_equal(directory, f"linear.{name}", getattr(started.linear, name), getattr(config_here.linear, name))


def _check_equal(directory: Path, name: str, start_value: object, value: object) -> None:
    if start_value != value:
        raise DocmtError(
            f"model.{name} is {value!r}, but {start_value!r} in {directory}, the start model. Set the same value, or "
            "leave out sizes and preset"
        )


def match_names(option: str, pattern: str, names: Collection[str], kind: str = "weight") -> list[str]:
    """Return the names that match a pattern (* ? [..]). Raises DocmtError with the nearest names if none does.

    kind: kind of the names, for the message.
    """
    matches = [name for name in names if fnmatchcase(name, pattern)]
    if not matches:
        nearest = difflib.get_close_matches(pattern, names, n=_SUGGESTIONS, cutoff=0)
        raise DocmtError(
            f"{option} has {quote(pattern)}, which matches no {kind}. The nearest names: {', '.join(nearest)}"
        )
    return matches


def freeze(model: TranslationModel, words: Sequence[str], new_weights: Collection[str]) -> None:
    """Freeze the loaded weights that these words or patterns (`TrainConfig.freeze_patterns`) match.

    New weights are random and stay trainable. Raises DocmtError if nothing stays trainable or a pattern matches
    nothing.
    """
    loaded = [name for name, _ in model.named_parameters() if name not in new_weights]
    frozen = {name for word in words for name in match_freeze_word(model, word, loaded)}
    if not any(parameter.requires_grad and name not in frozen for name, parameter in model.named_parameters()):
        raise DocmtError(
            f"freeze {','.join(words)} would freeze everything, as initialize_from has every weight of this model. "
            "Freeze less, or choose a system with additional weights"
        )
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)


def match_freeze_word(model: TranslationModel, word: str, loaded: Sequence[str]) -> Iterable[str]:
    """Return the loaded weights that a word or pattern of `freeze` matches."""
    if word == "pretrained":
        return loaded
    modules = {
        "embeddings": (*model.table_names(), "source_positions", "target_positions"),
        "encoder": ("encoder", "encoder_norm"),
        "decoder": ("decoder", "decoder_norm"),
    }.get(word)
    if modules is None:
        return match_names("freeze", word, loaded, "loaded weight")
    return [name for name in loaded if name.startswith(tuple(f"{module}." for module in modules))]


def trainable_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that are not frozen, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def build_parameter_groups(
    parameters: Mapping[str, nn.Parameter], names: list[str], settings: OptimizerConfig, new_weights: Collection[str]
) -> list[dict[str, Any]]:
    """Return parameter groups for the optimizer, each with the factor (`scale`) of its learning rate.

    parameters: trainable ones. names: all weights of the model, including frozen ones. Raises DocmtError for a pattern
    without matches and for settings without effect on any trainable weight.
    """
    loaded = [name for name in parameters if name not in new_weights]
    scales = dict.fromkeys(parameters, 1.0) | dict.fromkeys(loaded, settings.pretrained_lr_scale)
    if settings.pretrained_lr_scale != 1 and not loaded:
        raise DocmtError("optimizer.pretrained_lr_scale has no effect, as all loaded weights are frozen: leave it out")
    for name, factor in _rate_factors(settings, names, parameters).items():
        scales[name] *= factor
    groups = group_pairs((scale, parameters[name]) for name, scale in scales.items())
    return [{"params": group, "scale": scale} for scale, group in groups.items()]


def _rate_factors(settings: OptimizerConfig, names: Sequence[str], trainable: Collection[str]) -> dict[str, float]:
    """Return the factor of each trainable weight that a pattern matches; the last match counts."""
    last_match: dict[str, int] = {}
    for number, (pattern, _) in enumerate(settings.factors):
        last_match |= {
            name: number for name in match_names("optimizer.lr_factors", pattern, names) if name in trainable
        }
    for number, rate in enumerate(settings.lr_factors):
        if number not in last_match.values():
            raise DocmtError(
                f"optimizer.lr_factors has {quote(rate)}, which has no effect: its weights are frozen, or a later "
                "pattern matches them. Leave it out"
            )
    return {name: settings.factors[number][1] for name, number in last_match.items()}


class LowRankLinear(nn.Linear):
    """Linear module with a low-rank adapter: x W^T + b + alpha / r * x A^T B^T.

    A [r, in] is `down`; B [out, r] is `up` and starts at zero. W and b belong to the replaced module.
    """

    def __init__(self, base: nn.Linear, rank: int, alpha: float) -> None:
        nn.Module.__init__(self)  # skip the random initialization of nn.Linear
        self.in_features, self.out_features = base.in_features, base.out_features
        self.weight = base.weight
        self.register_parameter("bias", base.bias)
        self.scale = alpha / rank
        self.down = nn.Parameter(torch.empty(rank, base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))  # as in nn.Linear and the authors' code

    def forward(self, input: Tensor) -> Tensor:
        """Return x [..., in] -> [..., out]."""
        return super().forward(input) + self.scale * F.linear(F.linear(input, self.down), self.up)


def add_adapters(model: nn.Module, config: AdapterConfig, new_weights: Collection[str]) -> None:
    """Freeze all loaded weights and add adapters to the linear modules that the configuration names.

    Modules that the system does not train are skipped. Raises DocmtError if a pattern matches no loaded linear module,
    or if the rank is larger than a matrix.
    """
    linear = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module.weight.requires_grad and f"{name}.weight" not in new_weights
    }
    adapted = {
        name for glob in config.patterns for name in match_names("adapters.modules", glob, linear, "linear module")
    }
    for name, parameter in model.named_parameters():
        if name not in new_weights:
            parameter.requires_grad_(False)
    for name, module in linear.items():
        if name not in adapted:
            continue
        if config.rank > min(module.weight.shape):
            raise DocmtError(
                f"adapters.rank is {config.rank}, but {name} has {' x '.join(map(str, module.weight.shape))} weights: "
                f"choose at most {min(module.weight.shape)}, or leave it out of adapters.modules"
            )
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, LowRankLinear(module, config.rank, config.alpha))
    _log.info("added adapters of rank %d to %d linear modules", config.rank, len(adapted))


def find_adapters(model: nn.Module) -> dict[str, LowRankLinear]:
    """Return the adapted modules by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, LowRankLinear)}


def merge_adapters(model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights of the equivalent model without adapters, W + alpha / r * B A, by the names of its state."""
    merged = dict(weights)
    for name, module in find_adapters(model).items():
        change = module.scale * (merged.pop(f"{name}.up") @ merged.pop(f"{name}.down"))
        merged[f"{name}.weight"] = merged[f"{name}.weight"] + change.to(merged[f"{name}.weight"].device)
    return merged


def remove_adapters(model: nn.Module) -> None:
    """Replace adapted modules by linear ones. What adapters have learned is lost."""
    for name, module in find_adapters(model).items():
        with torch.device("meta"):
            linear = nn.Linear(module.in_features, module.out_features, bias=module.bias is not None)
        linear.weight, linear.bias = module.weight, module.bias
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, linear)


def adapter_tensors(model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return those of the weights that belong to adapted modules."""
    parts = ("weight", "down", "up")
    return {f"{name}.{part}": weights[f"{name}.{part}"] for name in find_adapters(model) for part in parts}


def restore_adapters(model: nn.Module, path: Path) -> None:
    """Load tensors of `adapter_tensors`. Raises DocmtError for a damaged file or one of another model."""
    model.load_state_dict(read_run_tensors(path, adapter_tensors(model, model.state_dict())), strict=False)


def read_run_tensors(path: Path, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a file of a run. Raises DocmtError if it is damaged, or has other names or shapes."""
    tensors = read_weights(path)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    check_shapes(expected, shapes, path, ("the run trains", "Copy the run directory again"))
    return tensors
