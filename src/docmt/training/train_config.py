"""Everything a training run can be told."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from docmt.core.errors import DocmtError
from docmt.core.settings import MANY, build, check_fields, check_number, field_range, quote, ranged, to_mapping
from docmt.core.settings import first_difference as first_of_all_differences
from docmt.model import ModelConfig
from docmt.model.model_config import Sizes
from docmt.model.systems import ContextSpec


@dataclass(frozen=True)
class BatchConfig:
    """What an update sees."""

    batch_tokens: int = ranged(4096, 1, MANY)
    """most tokens of a batch, the longer side of each instance counted; a longer instance is a batch of its own"""
    gradient_accumulation: int = ranged(1, 1, 1_000_000)
    """batches (of each process) whose gradients are summed in one update"""
    instance_lengths: list[int] = field(default_factory=list)
    """train on instances of several lengths, such as 64 128 256 512 (multi-resolution training, Sun et al. 2022): in
    every epoch each stretch of a document draws one of these limits and is cut at it, and each batch is of one limit;
    validation and translation keep to model.instance_tokens, which none may exceed"""
    train_share: float = ranged(1.0, 1e-9, 1)
    """share of the training documents that is used, from the first on, to see what more data would bring"""

    def __post_init__(self) -> None:
        check_fields(self, "batches.")
        lengths = self.instance_lengths
        for length in lengths:
            check_number("batches.instance_lengths", length, field_range(Sizes, "instance_tokens"))
        if twice := [length for length in lengths if lengths.count(length) > 1]:
            raise DocmtError(f"batches.instance_lengths has {twice[0]} twice: give each length once")


@dataclass(frozen=True)
class ObjectiveConfig:
    """What is minimised."""

    label_smoothing: float = ranged(0.1, 0, 0.99)
    """share of the target probability that is spread over the whole vocabulary"""
    word_dropout: float = ranged(0.0, 0, 0.99)
    """probability with which a word of source or decoder input is hidden behind <mask>"""
    word_dropout_epochs: int = ranged(0, 0, MANY)
    """word dropout acts in this many first epochs and is 0 after them"""

    def __post_init__(self) -> None:
        check_fields(self, "objective.")
        if self.word_dropout and not self.word_dropout_epochs:
            raise DocmtError(
                f"objective.word_dropout is {self.word_dropout} but objective.word_dropout_epochs is 0: "
                "choose for how many epochs it acts, or no word dropout"
            )


@dataclass(frozen=True)
class OptimizerConfig:
    """Adam with linear warm-up and inverse square root decay."""

    learning_rate: float = ranged(5e-4, 1e-12, 1000)
    """the highest learning rate, reached at the end of the warm-up"""
    warmup: int = ranged(4000, 0, MANY)
    """updates in which the learning rate rises from 0"""
    schedule: Literal["inverse_sqrt", "constant"] = "inverse_sqrt"
    """after the warm-up the rate falls with the square root of the updates, or stays (as it was in effect published for
    mBART, Bao et al. 2021)"""
    beta1: float = ranged(0.9, 0, 0.999999)
    """Adam: memory of the gradient mean"""
    beta2: float = ranged(0.98, 0, 0.999999)
    """Adam: memory of the squared gradient mean"""
    epsilon: float = ranged(1e-8, 1e-30, 1)
    """Adam: added to the denominator"""
    clip_norm: float = ranged(0.0, 0, 1_000_000)
    """gradients are scaled down to this norm; 0 = never"""
    pretrained_lr_scale: float = ranged(1.0, 1e-6, 1000)
    """learning rate of weights that came from initialize_from, as a share of that of new ones (0.2 as published)"""
    lr_factors: list[str] = field(default_factory=list)
    """factors of the learning rate of single weights: pattern=factor, such as encoder.*=0.1; patterns (* ? [..]) are of
    names of weights as `docmt inspect MODEL --json -` has them, and of those that fit a weight the last counts"""

    def __post_init__(self) -> None:
        check_fields(self, "optimizer.")
        self.factors  # noqa: B018 - raises for what is no pattern=factor

    @property
    def factors(self) -> list[tuple[str, float]]:
        """Patterns and factors of `rates`. Raises DocmtError for what is none."""
        return [_factor(rate) for rate in self.lr_factors]


def _factor(rate: str) -> tuple[str, float]:
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
class AdapterConfig:
    """Low-rank adapters (Hu et al. 2021): what was loaded is frozen, beside some of it a small change is trained."""

    rank: int = ranged(0, 0, 65_536)
    """inner size r of the two matrices B A that change a linear module's; 0 = no adapters"""
    alpha: float = ranged(16.0, 1e-6, 1_000_000)
    """the change is alpha / r * B A"""
    modules: str = "*.query,*.value"
    """patterns of names of linear modules (those of their weights without .weight), with commas between them"""

    def __post_init__(self) -> None:
        check_fields(self, "adapters.")
        self.patterns  # noqa: B018 - raises for empty ones
        for name in ("alpha", "modules"):
            if not self.rank and getattr(self, name) != getattr(AdapterConfig, name):
                raise DocmtError(f"adapters.{name} is set but adapters.rank is 0: choose a rank, or leave it out")

    @property
    def patterns(self) -> list[str]:
        """Those of `modules`. Raises DocmtError for empty ones."""
        return _words("adapters.modules", self.modules, "give patterns")


def _words(name: str, text: str, advice: str, alone: tuple[str, ...] = ()) -> list[str]:
    """The words between commas. Raises DocmtError for an empty one, and for those that stand alone beside another."""
    words = [word.strip() for word in text.split(",")]
    if not all(words) or (len(words) > 1 and set(alone) & set(words)):
        raise DocmtError(f"{name} is {quote(text)}: {advice} with one comma between two")
    return words


@dataclass(frozen=True)
class ValidationConfig:
    """When the model is measured on the dev split, and what makes one better than another."""

    every: int = ranged(0, 0, MANY)
    """updates between validations; 0 = after each epoch"""
    best_by: Literal["loss", "d_bleu"] = "loss"
    """what chooses the best model: label-smoothed dev loss, or document BLEU of dev translations"""
    beam: int = ranged(1, 1, 10_000)
    """beam of the dev translations; used with best_by d_bleu"""
    entropy: bool = False
    """measure attention entropy (bits; encoder, decoder and cross-attention, local and global) at each validation"""

    def __post_init__(self) -> None:
        check_fields(self, "validation.")
        if self.beam > 1 and self.best_by == "loss":
            raise DocmtError(
                f"validation.beam is {self.beam}, but with validation.best_by loss nothing is translated: leave it "
                "out, or choose validation.best_by d_bleu"
            )


@dataclass(frozen=True)
class StopConfig:
    """When training ends: at the first limit reached. These may change when a run is resumed."""

    max_steps: int = ranged(0, 0, MANY)
    """updates; 0 = no limit"""
    max_epochs: int = ranged(0, 0, MANY)
    """passes over the training data; 0 = no limit"""
    max_minutes: float = ranged(0.0, 0, MANY)
    """training time, that before a resumption counted in; 0 = no limit"""
    patience: int = ranged(10, 0, MANY)
    """validations without improvement; 0 = no limit"""

    def __post_init__(self) -> None:
        check_fields(self, "stop.")
        limits = ("max_steps", "max_epochs", "max_minutes", "patience")
        if not any(getattr(self, name) for name in limits):
            raise DocmtError(f"the training would never end: set one of {', '.join(f'stop.{name}' for name in limits)}")


@dataclass(frozen=True)
class CheckpointConfig:
    """What is kept."""

    every: int = ranged(1000, 1, MANY)
    """updates between checkpoints, besides one at each validation and one at the end"""
    average: Literal["none", "last", "best"] = "none"
    """the final model: the best, or the mean of the weights at the last or best validations; without a dev split, none
    or the mean of the last checkpoints"""
    average_count: int = ranged(5, 1, 10_000)
    """how many are averaged"""
    keep: int = ranged(0, 0, 10_000)
    """checkpoints of so many last validations (without a dev split: so many last checkpoints) are kept, for docmt
    average"""

    def __post_init__(self) -> None:
        check_fields(self, "checkpoints.")


@dataclass(frozen=True)
class TrainConfig:
    """A training run: the same object is the flags, the recipe file and the copy kept in the run directory."""

    store: Path
    """prepared store"""
    run: Path
    """run directory, made new: checkpoints, metrics, log, and the final model in `model`"""
    model: ModelConfig = field(default_factory=ModelConfig)
    """architecture"""
    batches: BatchConfig = field(default_factory=BatchConfig)
    """what an update sees"""
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    """what is minimised"""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """how it is minimised"""
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    """how models are compared"""
    stop: StopConfig = field(default_factory=StopConfig)
    """when training ends"""
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)
    """what is kept"""
    initialize_from: Path | None = None
    """model directory whose weights are the start; what it lacks stays random"""
    initialize_reverse_from: Path | None = None
    """with initialize_from: model directory of a sentence model of the other direction, from the target to the source
    language, whose encoder is the start of what reads target text (multihop)"""
    drafter: Path | None = None
    """for systems that read drafts (multihop): the model directory that writes them at translation; it becomes a part
    of the trained model. Without it, the model of initialize_from"""
    reverse: bool = False
    """train the model of the other direction: source and target of the store change places"""
    freeze: str = "none"
    """with initialize_from: loaded weights that are not trained: none, pretrained (all: Zhang et al. 2018, step 2), any
    of embeddings, encoder, decoder and patterns of names (as for optimizer.lr_factors), with commas between them"""
    adapters: AdapterConfig = field(default_factory=AdapterConfig)
    """with initialize_from: a small change of the loaded weights is trained, not these"""
    precision: Literal["float32", "bfloat16", "bfloat16-weights"] = "float32"
    """number format of products, and with bfloat16-weights of weights and gradients, too: the optimiser then has exact
    weights besides; its state and the models that are written are float32 in all"""
    activation_checkpointing: bool = False
    """compute layers again in the backward pass: the same numbers, in less memory and more time"""
    seed: int = ranged(1, 0, 2**63 - 1)
    """of everything random: initialisation, order, dropout"""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """where to compute; auto takes a GPU if there is one"""
    devices: int = ranged(1, 1, 1024)
    """processes on this machine, one device each; under torchrun it is taken from there"""
    log_every: int = ranged(100, 1, MANY)
    """updates between lines of metrics.jsonl"""
    tensorboard: Literal["auto", "true", "false"] = "auto"
    """write the metrics for TensorBoard, too, into `tensorboard` of the run; auto: if it is installed (docmt[track])"""

    def __post_init__(self) -> None:
        check_fields(self, "")
        if self.initialize_from is None:
            for name, used in (
                ("optimizer.pretrained_lr_scale", self.optimizer.pretrained_lr_scale != 1),
                ("initialize_reverse_from", self.initialize_reverse_from is not None),
                ("freeze", bool(self.frozen)),
                ("adapters.rank", self.adapters.rank > 0),
                (
                    f"model.{self.model.system}.{self.model.system_options.initialization_option}",
                    bool(self.model.system_options.initialization_option),
                ),
            ):
                if used:
                    raise DocmtError(f"{name} is set but initialize_from is not: name the model to start from")
        self._check_instance_lengths()
        if self.reverse and self.model.system_options.context_spec().drafts:
            raise DocmtError(
                f"reverse is true, but the {self.model.system} system reads drafts, which are translations of the "
                "store's source: choose another system, or reverse false"
            )
        if self.drafter is not None and not self.model.system_options.context_spec().drafts:
            raise DocmtError(f"drafter is set, but the {self.model.system} system reads no drafts: leave it out")
        if self.adapters.rank and self.frozen:
            raise DocmtError(
                f"freeze is {quote(self.freeze)}, but adapters.rank is {self.adapters.rank}, with which all loaded "
                "weights are frozen: leave one of them out"
            )
        if (self.adapters.rank or self.frozen == ["pretrained"]) and self.optimizer.pretrained_lr_scale != 1:
            way = "do without adapters" if self.adapters.rank else "freeze none"
            raise DocmtError(f"optimizer.pretrained_lr_scale has no effect on frozen weights: leave it out, or {way}")

    @property
    def frozen(self) -> list[str]:
        """The words and patterns of `freeze`; empty for none. Raises DocmtError for what is neither."""
        advice = "choose none, pretrained, or any of embeddings, encoder, decoder and patterns of names,"
        words = _words("freeze", self.freeze, advice, alone=("none", "pretrained"))
        return [] if words == ["none"] else words

    @property
    def products(self) -> Literal["float32", "bfloat16"]:
        """The number format of products, which is that of translation as well."""
        return "float32" if self.precision == "float32" else "bfloat16"

    def _check_instance_lengths(self) -> None:
        """Raises DocmtError for lengths that the model never sees whole, and for systems to which none matters."""
        lengths, model = self.batches.instance_lengths, self.model
        if not lengths:
            return
        if max(lengths) > model.instance_tokens:
            raise DocmtError(
                f"batches.instance_lengths has {max(lengths)}, but model.instance_tokens is {model.instance_tokens}: "
                "leave it out, or raise model.instance_tokens"
            )
        if model.system_options.context_spec() != ContextSpec():
            raise DocmtError(
                f"batches.instance_lengths has no effect on the {model.system} system, which looks at a fixed number "
                "of sentences: leave it out, or choose a system that looks at whole instances, such as group"
            )

    def to_dict(self) -> dict[str, Any]:
        """The configuration in types that JSON and YAML have."""
        return to_mapping(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "the recipe") -> TrainConfig:
        """The inverse of `to_dict`. Raises DocmtError naming an unknown or missing field and `where` it is."""
        return build(cls, values, where)


# Fields that may differ between a run and its resumption: they change neither the data nor the weights.
MAY_CHANGE = ("store", "run", "stop", "device", "log_every", "tensorboard", "checkpoints.keep")


def first_difference(
    stored: Mapping[str, Any], wanted: Mapping[str, Any], but: Sequence[str] = MAY_CHANGE
) -> str | None:
    """The first setting in which two configurations (as `to_dict` gives them) train differently, in words.

    Of the model to start from only the name counts: its directory may have moved.
    """
    return first_of_all_differences(_without_folder(stored), _without_folder(wanted), but)


def _without_folder(values: Mapping[str, Any]) -> Mapping[str, Any]:
    names = [name for name in ("initialize_from", "initialize_reverse_from", "drafter") if values.get(name)]
    return {**values, **{name: absolute(Path(values[name])).name for name in names}}


def absolute(path: Path) -> Path:
    """The path from the root on, without dots in it; links stay."""
    return Path(os.path.abspath(path))  # noqa: PTH100 (Path.absolute keeps the dots, Path.resolve follows links)
