"""Configuration of a training run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from docmt.core.errors import DocmtError
from docmt.core.settings import MANY, CheckedSettings, Excludes, Needs, build, check_number, quote, ranged, to_mapping
from docmt.core.settings import first_difference as first_settings_difference
from docmt.model import ModelConfig

_NO_START = "is set but {} is not: name the model to start from"
_FROZEN = "has no effect on frozen weights: leave it out, or do without {}"
_NO_ADAPTERS = "is set but {} is 0: choose a rank, or leave it out"


@dataclass(frozen=True)
class BatchConfig(CheckedSettings, prefix="batches."):
    """Batches of an update."""

    batch_tokens: int = ranged(4096, 1, MANY)
    """maximum tokens per batch, counting the longer side of each instance"""
    gradient_accumulation: int = ranged(1, 1, 1_000_000)
    """batches per update and process, with summed gradients (a resumed run keeps the batches per update)"""
    train_share: float = ranged(1.0, 1e-9, 1)
    """share of the training documents to use, from the first on"""


@dataclass(frozen=True)
class ObjectiveConfig(CheckedSettings, prefix="objective."):
    """Training objective."""

    label_smoothing: float = ranged(0.1, 0, 0.99)
    """share of the target probability spread over the whole vocabulary"""
    word_dropout: float = ranged(0.0, 0, 0.99)
    """probability that a word of source or decoder input becomes <mask>"""
    word_dropout_epochs: int = ranged(0, 0, MANY)
    """number of first epochs with word dropout"""
    weighted_words: list[str] = field(default_factory=list, metadata={"metavar": "WORD"})
    """target words, in any case and one token each, whose loss counts `word_weight` times"""
    word_weight: float = ranged(2.0, 0, 1000)
    """weight of the loss of `weighted_words`; that of the other words is 1"""


@dataclass(frozen=True)
class OptimizerConfig(CheckedSettings, prefix="optimizer."):
    """Adam with linear warm-up and inverse square root decay."""

    learning_rate: float = ranged(5e-4, 1e-12, 1000)
    """highest learning rate, reached at the end of the warm-up"""
    warmup: int = ranged(4000, 0, MANY)
    """updates in which the learning rate rises from 0"""
    schedule: Literal["inverse_sqrt", "constant"] = "inverse_sqrt"
    """learning rate after the warm-up: inverse square root, or constant"""
    beta2: float = ranged(0.98, 0, 0.999999)
    """Adam: decay rate of the squared gradient mean"""
    epsilon: float = ranged(1e-8, 1e-30, 1)
    """Adam: constant in the denominator"""
    clip_norm: float = ranged(0.0, 0, 1_000_000)
    """maximum gradient norm; 0 = no clipping"""
    pretrained_lr_scale: float = ranged(1.0, 1e-6, 1000)
    """learning rate factor of weights from initialize_from"""
    lr_factors: list[str] = field(default_factory=list)
    """learning rate factors of weights: pattern=factor, such as encoder.*=0.1"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.factors  # noqa: B018 - raises for malformed entries

    @property
    def factors(self) -> list[tuple[str, float]]:
        """Patterns and factors of `lr_factors`. Raises DocmtError for a malformed entry."""
        return [_parse_rate(rate) for rate in self.lr_factors]


def _parse_rate(rate: str) -> tuple[str, float]:
    pattern, equals, factor = rate.rpartition("=")
    try:
        number = float(factor)
    except ValueError:
        equals = ""
    if not (equals and pattern):
        raise DocmtError(f"optimizer.lr_factors has {quote(rate)}: give pattern=factor, such as encoder.*=0.1")
    check_number(f"optimizer.lr_factors, factor of {quote(pattern)},", number, (0, 1000), whole=False)
    return pattern, number


@dataclass(frozen=True)
class AdapterConfig(CheckedSettings, prefix="adapters."):
    """Low-rank adapters (Hu et al. 2021): train small additions to frozen loaded weights."""

    rank: int = ranged(0, 0, 65_536)
    """rank r of the adapter matrices B A; 0 = no adapters"""
    alpha: float = ranged(16.0, 1e-6, 1_000_000)
    """scale of adapters: they add alpha / r * B A"""
    modules: str = "*.query,*.value"
    """name patterns of the linear modules to adapt, separated by commas"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.patterns  # noqa: B018 - raises for empty ones

    @property
    def patterns(self) -> list[str]:
        """Patterns of `modules`. Raises DocmtError for empty ones."""
        return _split_words("adapters.modules", self.modules, "give patterns")


def _split_words(name: str, value: str, advice: str, exclusive: tuple[str, ...] = ()) -> list[str]:
    """Return the words between commas. Raises DocmtError for empty words and for exclusive ones beside others."""
    words = [word.strip() for word in value.split(",")]
    if not all(words) or (len(words) > 1 and set(exclusive) & set(words)):
        raise DocmtError(f"{name} is {quote(value)}: {advice} separated by single commas")
    return words


@dataclass(frozen=True)
class ValidationConfig(CheckedSettings, prefix="validation."):
    """Validation on the dev split, and choice of the best model."""

    every: int = ranged(0, 0, MANY)
    """updates between validations; 0 = after each epoch"""
    best_by: Literal["loss", "d_bleu"] = "loss"
    """score that selects the best model: dev loss or document BLEU"""
    beam: int = ranged(1, 1, 10_000)
    """beam size of dev translations (for best_by d_bleu)"""
    entropy: bool = False
    """measure attention entropy in bits at each validation"""


@dataclass(frozen=True)
class StopConfig(CheckedSettings, prefix="stop."):
    """Limits of training; the first one reached ends it. Resumed runs may change them."""

    max_steps: int = ranged(0, 0, MANY)
    """maximum number of updates; 0 = no limit"""
    max_epochs: int = ranged(0, 0, MANY)
    """maximum passes over the training data; 0 = no limit"""
    max_minutes: float = ranged(0.0, 0, MANY)
    """maximum training time in minutes, including earlier sessions; 0 = no limit"""
    patience: int = ranged(10, 0, MANY)
    """validations without improvement; 0 = no limit"""

    def __post_init__(self) -> None:
        super().__post_init__()
        limits = ("max_steps", "max_epochs", "max_minutes", "patience")
        if not any(getattr(self, name) for name in limits):
            raise DocmtError(f"the training would never end: set one of {', '.join(f'stop.{name}' for name in limits)}")


@dataclass(frozen=True)
class CheckpointConfig(CheckedSettings, prefix="checkpoints."):
    """Checkpoints and averaging."""

    every: int = ranged(1000, 1, MANY)
    """updates between checkpoints, besides those at validations"""
    average: Literal["none", "last", "best"] = "none"
    """final model: that of the best validation, or the mean at the last or best validations"""
    average_count: int = ranged(5, 1, 10_000)
    """number of validations whose weights are averaged (without a dev split: of checkpoints)"""
    keep: int = ranged(0, 0, 10_000)
    """last validations (without a dev split: checkpoints) whose weights are kept, for docmt average"""


@dataclass(frozen=True)
class TrainConfig(CheckedSettings):
    """Configuration of a training run, as command-line options, as recipe file and in the run directory."""

    store: Path
    """directory written by docmt prepare"""
    run: Path
    """new directory for checkpoints, metrics, log and final model"""
    model: ModelConfig = field(default_factory=ModelConfig)
    """model architecture"""
    batches: BatchConfig = field(default_factory=BatchConfig)
    """batches of an update"""
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    """training objective"""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """optimizer and learning rate"""
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    """validation and choice of the best model"""
    stop: StopConfig = field(default_factory=StopConfig)
    """limits of training"""
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)
    """checkpoints and averaging"""
    initialize_from: Path | None = None
    """model directory to start from; missing weights stay random"""
    initialize_reverse_from: Path | None = None
    """reverse-direction sentence model to initialize target-text encoders (multihop)"""
    drafter: Path | None = None
    """model directory that writes drafts at translation for systems that read them (such as multihop)"""
    reverse: bool = False
    """exchange source and target of the store"""
    freeze: str = "none"
    """weights to freeze: none, pretrained (all loaded weights), or embeddings, encoder, decoder, name patterns"""
    adapters: AdapterConfig = field(default_factory=AdapterConfig)
    """low-rank adapters on loaded weights"""
    precision: Literal["float32", "bfloat16", "bfloat16-weights"] = "float32"
    """number format: of products (bfloat16) or also of weights (bfloat16-weights)"""
    activation_checkpointing: bool = False
    """recompute activations in the backward pass: less memory, more time"""
    seed: int = ranged(1, 0, 2**63 - 1)
    """seed of initialization, data order and dropout"""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """device; auto uses a GPU if there is one"""
    devices: int = ranged(1, 1, 1024)
    """processes on this machine, one device each (torchrun and Slurm override it)"""
    strategy: Literal["auto", "ddp", "fsdp"] = "auto"
    """what each process holds: the whole model (ddp), or a part of it (fsdp); auto: ddp if that fits"""
    cpu_offload: bool = False
    """keep weights and optimizer state in the memory of the host (for strategy fsdp on GPUs)"""
    log_every: int = ranged(100, 1, MANY)
    """updates between lines of metrics.jsonl"""
    tensorboard: Literal["auto", "true", "false"] = "auto"
    """write metrics for TensorBoard; auto: if it is installed (the extra track)"""

    option_rules = (
        Needs(
            "objective.word_dropout",
            "objective.word_dropout_epochs",
            "is {value} but {} is 0: set the number of epochs with word dropout, or leave out word dropout",
        ),
        Needs(
            "validation.beam",
            "validation.best_by",
            "is {value}, but with {} loss nothing is translated: leave it out, or choose {} d_bleu",
        ),
        Needs(
            "checkpoints.average_count",
            "checkpoints.average",
            "is set but {} is none: choose last or best, or leave it out",
        ),
        Needs("adapters.alpha", "adapters.rank", _NO_ADAPTERS),
        Needs("adapters.modules", "adapters.rank", _NO_ADAPTERS),
        Needs("adapters.rank", "initialize_from", _NO_START),
        Needs("freeze", "initialize_from", _NO_START),
        Needs("optimizer.pretrained_lr_scale", "initialize_from", _NO_START),
        Needs("initialize_reverse_from", "initialize_from", _NO_START),
        Needs("cpu_offload", "strategy fsdp"),
        Excludes("freeze", "adapters.rank", "is set, but so is {}, which freezes all loaded weights: leave one out"),
        Excludes("optimizer.pretrained_lr_scale", "adapters.rank", _FROZEN),
        Excludes("optimizer.pretrained_lr_scale", "freeze pretrained", _FROZEN),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        system, drafts = self.model.system, self.model.system_options.context_spec().drafts
        start_setting = self.model.system_options.initialization_setting
        self.freeze_patterns  # noqa: B018 - raises for malformed ones
        if start_setting and self.initialize_from is None:
            raise DocmtError(f"{start_setting} {_NO_START.format('initialize_from')}")
        if self.reverse and drafts:
            raise DocmtError(
                f"reverse is true, but the {system} system reads drafts, which are translations of the store's source: "
                "choose another system, or reverse false"
            )
        if self.drafter is not None and not drafts:
            raise DocmtError(f"drafter is set, but the {system} system reads no drafts: leave it out")

    @property
    def freeze_patterns(self) -> list[str]:
        """Words and patterns of `freeze`; empty for none. Raises DocmtError for a malformed value."""
        advice = "choose none, pretrained, or any of embeddings, encoder, decoder and patterns of names,"
        words = _split_words("freeze", self.freeze, advice, exclusive=("none", "pretrained"))
        return [] if words == ["none"] else words

    @property
    def compute_dtype(self) -> Literal["float32", "bfloat16"]:
        """Number format of products, in training and in translation."""
        return "float32" if self.precision == "float32" else "bfloat16"

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration in types that JSON and YAML have."""
        return to_mapping(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str = "the recipe") -> TrainConfig:
        """Build a configuration from `to_dict` output. Raises DocmtError for unknown or missing fields of `source`."""
        return build(cls, values, source)


# Fields that may differ between a run and its resumption: they change neither the data nor, but for rounding, weights.
MAY_CHANGE = (
    *("store", "run", "stop", "device", "devices", "strategy", "cpu_offload", "activation_checkpointing"),
    *("log_every", "tensorboard", "checkpoints.keep"),
)


def first_difference(
    stored: Mapping[str, Any], requested: Mapping[str, Any], ignored: Sequence[str] = MAY_CHANGE
) -> str | None:
    """Return the first setting in which two configurations (of `to_dict`) train differently, as text.

    Of model paths only the name counts, as directories may have moved.
    """
    return first_settings_difference(_strip_folders(stored), _strip_folders(requested), ignored)


def _strip_folders(values: Mapping[str, Any]) -> Mapping[str, Any]:
    names = [name for name in ("initialize_from", "initialize_reverse_from", "drafter") if values.get(name)]
    return {**values, **{name: absolute_path(Path(values[name])).name for name in names}}


def absolute_path(path: Path) -> Path:
    """Return the absolute path without dots. Symbolic links stay."""
    return Path(os.path.abspath(path))  # noqa: PTH100 (Path.absolute keeps the dots, Path.resolve follows links)
