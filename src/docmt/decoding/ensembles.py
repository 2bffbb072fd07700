"""Models of a translator: ensembles, loading from directories, and weights of lower precision.

At every step the probability of the next token is the mean over the members, p(w) = 1/n sum_i p_i(w): the arithmetic
mean, as in fairseq and (by default, "linear") Sockeye, not the mean of logarithms. A temperature divides the logits of
each member before its softmax, that is, before the mean. Lower precision means less memory to read, which bounds
decoding speed. How a product x W^T + b is computed depends on the precision, the processor and the number of rows;
decisions 0007 and 0009 have speeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docmt.checkpoint.model_directory import choose_device, find_model, load_languages, load_model, load_model_tokenizer
from docmt.checkpoint.model_names import find_named_model, warn_if_non_commercial
from docmt.core.errors import DocmtError
from docmt.core.settings import check_choice
from docmt.model import ModelInput, TranslationModel
from docmt.model.attention import Attention, Memory
from docmt.model.embeddings import OutputProjection
from docmt.model.systems import ContextSpec
from docmt.text import Tokenizer

Memories = Mapping[str, Memory] | Sequence[Mapping[str, Memory]]
"""Memories of a model, or of each member of an ensemble."""


class Ensemble:
    """Models with the same vocabulary, decoding order and rules, which decode together.

    Search and scoring use it as one model. Members may differ in everything else: sizes, layers, positions, limits of
    instances (the smallest one holds). Raises DocmtError, naming the two models, where what they must share differs.
    """

    def __init__(self, members: Sequence[TranslationModel], names: Sequence[str] = ()) -> None:
        """names: of the members, for messages."""
        if not members:
            raise DocmtError("an ensemble needs at least one model")
        self.members = tuple(members)
        names = names or [f"model {number}" for number in range(1, len(members) + 1)]
        first = members[0]
        self.system, self.parts = first.system, first.parts
        for name, member in zip(names, members, strict=True):
            if problem := _find_difference(first, member):
                raise DocmtError(f"{names[0]} and {name} cannot form an ensemble: {problem}")

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.members[0].device

    def compute_memories(self, inputs: ModelInput) -> Sequence[Mapping[str, Memory]]:
        """Compute the memories of each member for a model input."""
        return [member.compute_memories(inputs) for member in self.members]


Model = TranslationModel | Ensemble


def list_memories(memories: Memories) -> Sequence[Mapping[str, Memory]]:
    """Return the memories of each member."""
    return [memories] if isinstance(memories, Mapping) else memories


def list_members(model: Model) -> tuple[TranslationModel, ...]:
    """Return the members of an ensemble, or the one model."""
    return model.members if isinstance(model, Ensemble) else (model,)


def combine_context_specs(model: Model) -> ContextSpec:
    """Return the context spec that covers all members.

    In the order "sentences" a member that needs fewer earlier sentences, or no drafts, reads more than it attends to.
    """
    specs = [member.system.context_spec() for member in list_members(model)]
    if all(spec == specs[0] for spec in specs):
        return specs[0]
    return ContextSpec(
        source_context=max(spec.source_context for spec in specs),
        joined_context=any(spec.joined_context for spec in specs),
        drafts=any(spec.drafts for spec in specs),
    )


def average_probabilities(log_probabilities: Sequence[Tensor]) -> Tensor:
    """Return log(1/n sum_i p_i) of n tensors of log p_i of equal shape [...], computed in log space."""
    if len(log_probabilities) == 1:
        return log_probabilities[0]
    return torch.stack(list(log_probabilities)).logsumexp(0) - math.log(len(log_probabilities))


def compute_next_logits(model: Model, states: Sequence[Tensor], temperature: float) -> Tensor:
    """Return the logits [n, V] of the next token after the states [n, d] of each member.

    Those of one model without temperature have the precision of its products, all others are float32.
    """
    logits = [member.project(x) for member, x in zip(list_members(model), states, strict=True)]
    if temperature != 1.0:
        logits = [x.float() / temperature for x in logits]
    return logits[0] if len(logits) == 1 else average_probabilities([x.float().log_softmax(-1) for x in logits])


def _find_difference(one: TranslationModel, other: TranslationModel) -> str:
    """Return why two models cannot be members of one ensemble, or nothing if they can."""
    systems = one.config.system, other.config.system
    for first, second in (
        (one.system.decoding_order, other.system.decoding_order),
        (one.system.rules, other.system.rules),
    ):
        if first != second:
            return (
                f"a {systems[0]} and a {systems[1]} model decode differently ({first} and {second}). Choose models of "
                "one system."
            )
    if one.system.decoding_order != "sentences" and one.system.context_spec() != other.system.context_spec():
        return "their contexts have other numbers of sentences, or other sides. Choose models with the same context."
    specs = [member.system.context_spec() for member in (one, other)]
    if any(spec.reads_instances for spec in specs) and any(spec.source_context for spec in specs):
        return "one reads whole instances, the other a few sentences before. Choose models with the same context."
    if one.parts.boundary_tokens != other.parts.boundary_tokens:
        return f"families {one.config.family} and {other.config.family} have other boundary tokens. Choose one family."
    sizes = one.config.vocabulary_size, other.config.vocabulary_size
    return "" if sizes[0] == sizes[1] else f"their vocabularies have {sizes[0]} and {sizes[1]} entries."


Precision = Literal["float32", "bfloat16", "int8"]
_FEW_ROWS, _LARGE_WEIGHT = range(4, 32), 2**20
"""Rows, and values of a weight, for which oneDNN mostly gains. It keeps compiled code for each number of rows."""


class FloatLinear(nn.Module):
    """Product x W^T + b in float32, by oneDNN for a few rows and a large weight.

    There it is 0.9 to 2.2 times as fast as `linear` (MKL on x86).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    @staticmethod
    def available(device: torch.device) -> bool:
        """Return whether oneDNN's product exists for tensors on this device."""
        return device.type == "cpu" and hasattr(torch.ops.mkldnn, "_linear_pointwise")

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out]"""
        rows = x.numel() // x.shape[-1]
        gains = rows in _FEW_ROWS and self.weight.numel() >= _LARGE_WEIGHT
        if not gains or x.dtype != torch.float32 or torch.is_grad_enabled():
            return F.linear(x, self.weight, self.bias)
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return result


class PackedLinear(nn.Module):
    """Product x W^T + b with W in the layout in which the CPU multiplies bfloat16.

    1.2 to 1.8 times as fast for a few rows, no slower for many. The operators are those that torch's compiler generates
    for a frozen model.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().to(torch.bfloat16), 1)
        self.bias = None if bias is None else bias.detach().to(torch.bfloat16)

    @staticmethod
    def available(device: torch.device) -> bool:
        """Return whether this installation and processor can pack weights on this device."""
        operators = ("_reorder_linear_weight", "_linear_pointwise", "_is_mkldnn_bf16_supported")
        if device.type != "cpu" or not all(hasattr(torch.ops.mkldnn, name) for name in operators):
            return False
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out]"""
        result: Tensor = torch.ops.mkldnn._linear_pointwise(
            x.to(torch.bfloat16), self.weight, self.bias, "none", [], ""
        )
        return result


class Int8Linear(nn.Module):
    """Product x W^T + b in integers of 8 bits: W with a scale for each output, x with a scale for each row.

    A row's result does not depend on other rows, to the last bit: sums of integers are exact.
    """

    _ZERO = 128  # the value of 0: rows are unsigned

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        weight = weight.detach().float()
        self.scale = _scale(weight).flatten()
        rounded = (weight / self.scale[:, None]).round().to(torch.int8)
        self.packed = torch.ops.onednn.qlinear_prepack(rounded, None)
        self.zero = torch.zeros(len(weight), dtype=torch.int64)
        self.bias = None if bias is None else bias.detach().float()

    @staticmethod
    def available(device: torch.device) -> bool:
        """Return whether this installation and processor multiply such integers (without VNNI, sums would overflow)."""
        operators = ("qlinear_prepack", "qlinear_pointwise")
        if device.type != "cpu" or not all(hasattr(torch.ops.onednn, name) for name in operators):
            return False
        return bool(torch.cpu._is_vnni_supported())

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out], float32"""
        x = x.float()
        scale = _scale(x)
        # Conversion truncates, so adding a half rounds.
        rows = (x * scale.reciprocal()).add_(self._ZERO + 0.5).to(torch.uint8)
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            *(rows, 1.0, self._ZERO, self.packed, self.scale, self.zero), *(None, 1.0, 0, torch.float32, "none", [], "")
        )
        return product.mul_(scale) if self.bias is None else torch.addcmul(self.bias, product, scale)


def _scale(x: Tensor) -> Tensor:
    """Return the size of one of 127 steps up to the largest value of each row: [..., n] -> [..., 1]."""
    return (x.abs().amax(-1, keepdim=True) / 127).clamp_(min=1e-30)


Product = type[FloatLinear] | type[PackedLinear] | type[Int8Linear]
_PRODUCTS: dict[Precision, Product] = {"float32": FloatLinear, "bfloat16": PackedLinear, "int8": Int8Linear}


def check_precision(precision: Precision, device: torch.device) -> None:
    """Raise DocmtError for an unknown precision, or one that this device lacks."""
    check_choice("precision", precision, get_args(Precision))
    if precision == "int8" and not Int8Linear.available(device):
        device_name = "this processor: it lacks the VNNI instructions" if device.type == "cpu" else f"device {device}"
        raise DocmtError(f"precision int8 is not available on {device_name}. Choose bfloat16 or float32.")


def prepare_products(model: TranslationModel, precision: Precision) -> TranslationModel:
    """Set up matrix products in `precision`, in place.

    Linear modules become those that are fastest on the device, in float32 too. With bfloat16, states are bfloat16
    (`precision_context`); norms compute in float32.
    Raises DocmtError where the model's device has no such products.
    """
    check_precision(precision, model.device)
    product = _PRODUCTS[precision]
    if precision == "bfloat16":
        for name in model.table_names():
            model.get_submodule(name).to(torch.bfloat16)
        for module in model.modules():
            if isinstance(module, nn.Linear | OutputProjection):
                module.to(torch.bfloat16)
    if not product.available(model.device):
        return model
    if precision != "float32":  # whose model can be saved
        for attention in [module for module in model.modules() if type(module) is Attention]:
            attention.join_projections()
    for parent in list(model.modules()):
        for name, module in list(parent.named_children()):
            if isinstance(module, nn.Linear) and (precision != "float32" or module.weight.numel() >= _LARGE_WEIGHT):
                setattr(parent, name, product(module.weight, module.bias))
    head = model.full_head()
    model.projection = product(head.weight.detach(), head.bias)  # detached: the parameter exists already
    return model


def precision_context(model: Model, precision: Precision) -> AbstractContextManager[object]:
    """Return the context manager in which models of this precision run."""
    if precision != "bfloat16":
        return nullcontext()
    return torch.autocast(model.device.type, dtype=torch.bfloat16)


class LoadedModels(NamedTuple):
    """Models and what belongs to them, read from directories."""

    model: Model
    tokenizer: Tokenizer
    languages: tuple[str, str]
    """codes of the source and target language, empty where no directory has them"""


def parse_model_paths(model: Path | str | Sequence[Path | str]) -> list[Path]:
    """Return the directories in a path or name, in several with commas between them, or in a list.

    An existing path with a comma is one directory. Raises DocmtError for a comma without a name, and for values that
    are not paths.
    """
    for name in model if isinstance(model, list | tuple) else [model]:
        if not isinstance(name, str | Path):
            raise DocmtError(f"{name!r} is not a model. Give the path of a model or run directory, or a list of paths.")
    if isinstance(model, Path) or (isinstance(model, str) and ("," not in model or Path(model).exists())):
        return [_find_path(model)]
    names = [str(name).strip() for name in (model.split(",") if isinstance(model, str) else model)]
    if not names or not all(names):
        raise DocmtError(f"{str(model)!r} lacks the name of a model. Give directories separated by single commas.")
    return [_find_path(name) for name in names]


def _find_path(name: Path | str) -> Path:
    """Return the directory of a model that has a name, or the path as it is.

    It is looked up once, as another model of a pair may be pulled while this one is read.
    """
    path = Path(name)
    return path if path.exists() else find_named_model(str(name)) or path


def load_members(paths: Sequence[Path], device: torch.device | str, precision: Precision) -> LoadedModels:
    """Load the model, or the members of an ensemble, ready to translate.

    Raises DocmtError for directories that are missing, incomplete or damaged, and for models with different tokenizers,
    languages, or ways of decoding.
    """
    device = choose_device(device)
    check_precision(precision, device)
    tokenizer, languages = read_tokenizer_and_languages(paths)
    models = [load_checked(path, device, precision, tokenizer) for path in paths]
    for path in paths:
        warn_if_non_commercial(find_model(path))
    return LoadedModels(
        models[0] if len(models) == 1 else Ensemble(models, [str(path) for path in paths]), tokenizer, languages
    )


def read_tokenizer_and_languages(paths: Sequence[Path]) -> tuple[Tokenizer, tuple[str, str]]:
    """Return the tokenizer and language codes of a model or of the members of an ensemble, without loading weights.

    Raises DocmtError as `load_members` does for members that do not belong together.
    """
    tokenizer, languages = load_model_tokenizer(paths[0]), load_languages(paths[0])
    for number, path in enumerate(paths[1:], 1):
        languages = _merge_languages(paths[:number], path, tokenizer, languages)
    return tokenizer, languages


def load_checked(path: Path, device: torch.device, precision: Precision, tokenizer: Tokenizer) -> TranslationModel:
    """Load the model of a directory in this precision. Raises DocmtError if the tokenizer has another vocabulary."""
    model = prepare_products(load_model(path, device=device), precision)
    if tokenizer.vocabulary_size != model.config.vocabulary_size:
        raise DocmtError(
            f"the tokenizer in {path} has {tokenizer.vocabulary_size} entries but the model has "
            f"{model.config.vocabulary_size}. Copy the directory again."
        )
    return model


def _merge_languages(
    earlier_paths: Sequence[Path], path: Path, tokenizer: Tokenizer, languages: tuple[str, str]
) -> tuple[str, str]:
    """Return the languages of these members together, as far as any of them has them."""
    if not load_model_tokenizer(path).has_same_vocabulary(tokenizer):
        raise DocmtError(
            f"{earlier_paths[0]} and {path} cannot form an ensemble: their tokenizers differ. Choose models trained on "
            "one store."
        )
    member_languages = load_languages(path)
    if any(one and other and one != other for one, other in zip(languages, member_languages, strict=True)):
        raise DocmtError(
            f"{', '.join(map(str, earlier_paths))} and {path} cannot form an ensemble: they translate "
            f"{'-'.join(languages)} and {'-'.join(member_languages)}."
        )
    return languages[0] or member_languages[0], languages[1] or member_languages[1]
