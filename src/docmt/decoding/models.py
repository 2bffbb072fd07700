"""The models of a translator: ensembles, loaded from directories, with weights of lower precision.

At every step the probability of the next token is the mean of those that the members give it,
p(w) = 1/n sum_i p_i(w): the arithmetic mean, as fairseq and (by default, "linear") Sockeye compute it, not the mean of
logarithms. A temperature divides the logits of each member before its own softmax, that is, before the mean.
Lower precision means less memory to read, which is what decoding waits for. How a product x W^T + b is computed depends
on the precision, the processor and the number of rows; speeds are in
docs/contributing/decisions/0009-decoding-step.md and 0007-int8.md.
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

from docmt.checkpoint.model_directory import choose_device, load_languages, load_model, load_model_tokenizer
from docmt.core.errors import DocmtError
from docmt.core.settings import one_of
from docmt.model import ModelInput, TranslationModel
from docmt.model.attention import Attention, Memory
from docmt.model.embeddings import Softmax
from docmt.model.systems import ContextSpec
from docmt.text import Tokenizer

Memories = Mapping[str, Memory] | Sequence[Mapping[str, Memory]]
"""What a model's decoder can look at, or for an ensemble that of each member."""


class Ensemble:
    """Models that decode in the same order by the same rules and have the same vocabulary.

    To search and scoring it is one model: they ask it for what all members have in common. Members may differ in
    everything else: sizes, layers, how positions run, the limits of instances (the least of them holds).
    Raises DocmtError, naming the two that do not fit, where what they must have in common differs.
    """

    def __init__(self, members: Sequence[TranslationModel], names: Sequence[str] = ()) -> None:
        """names: of the members, for messages."""
        if not members:
            raise DocmtError("an ensemble needs at least one model: name some")
        self.members = tuple(members)
        names = names or [f"model {number}" for number in range(1, len(members) + 1)]
        first = members[0]
        self.system, self.parts = first.system, first.parts
        for name, member in zip(names, members, strict=True):
            if problem := _difference(first, member):
                raise DocmtError(f"{names[0]} and {name} cannot translate as one: {problem}")

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.members[0].device

    def memories(self, inputs: ModelInput) -> Sequence[Mapping[str, Memory]]:
        """What the decoder of each member can look at, computed once for what is read."""
        return [member.memories(inputs) for member in self.members]


Model = TranslationModel | Ensemble


def of_members(memories: Memories) -> Sequence[Mapping[str, Memory]]:
    """What each member can look at."""
    return [memories] if isinstance(memories, Mapping) else memories


def members_of(model: Model) -> tuple[TranslationModel, ...]:
    """The members of an ensemble, or the one model."""
    return model.members if isinstance(model, Ensemble) else (model,)


def common_context_spec(model: Model) -> ContextSpec:
    """Which sentences all members read together.

    In the order of sentences a member that needs fewer sentences before one only reads more than it looks at, and so
    does one that needs no drafts.
    """
    context_spec = [member.system.context_spec() for member in members_of(model)]
    if all(own == context_spec[0] for own in context_spec):
        return context_spec[0]
    return ContextSpec(
        before=max(own.before for own in context_spec),
        joined=any(own.joined for own in context_spec),
        drafts=any(own.drafts for own in context_spec),
    )


def mean_probability(log_probabilities: Sequence[Tensor]) -> Tensor:
    """log(1/n sum_i p_i) of n tensors of log p_i of the same shape [...], without leaving the logarithms."""
    if len(log_probabilities) == 1:
        return log_probabilities[0]
    return torch.stack(list(log_probabilities)).logsumexp(0) - math.log(len(log_probabilities))


def next_logits(model: Model, states: Sequence[Tensor], temperature: float) -> Tensor:
    """[n, V]: logits of the next token after states [n, d] of each member.

    Of an ensemble in float32, of one model in the precision of its product.
    """
    logits = [member.project(own) for member, own in zip(members_of(model), states, strict=True)]
    if temperature != 1.0:
        logits = [own.float() / temperature for own in logits]
    return logits[0] if len(logits) == 1 else mean_probability([own.float().log_softmax(-1) for own in logits])


def _difference(one: TranslationModel, other: TranslationModel) -> str:
    """Why two models cannot be members of one ensemble; nothing if they can."""
    systems = one.config.system, other.config.system
    for ours, theirs in ((one.system.order, other.system.order), (one.system.rules, other.system.rules)):
        if ours != theirs:
            return (
                f"a {systems[0]} and a {systems[1]} model decode differently ({ours} and {theirs}); choose models of "
                "one system"
            )
    if one.system.order != "sentences" and one.system.context_spec() != other.system.context_spec():
        return "they look at other numbers of sentences, or on other sides; choose models with the same windows"
    if one.parts.frame != other.parts.frame:
        return f"families {one.config.family} and {other.config.family} mark sentences differently; choose one family"
    sizes = one.config.vocabulary_size, other.config.vocabulary_size
    return "" if sizes[0] == sizes[1] else f"their vocabularies have {sizes[0]} and {sizes[1]} entries"


Precision = Literal["float32", "bfloat16", "int8"]
_FEW_ROWS = range(2, 257)
_LEAST_SIZE = 8192


class FloatLinear(nn.Module):
    """x W^T + b in float32, by oneDNN for a few rows of large products, where it is 1.1 to 1.7 times as fast as what
    `linear` takes (MKL on x86)."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    @staticmethod
    def available(device: torch.device) -> bool:
        """Whether oneDNN's product is there for tensors on this device."""
        return device.type == "cpu" and hasattr(torch.ops.mkldnn, "_linear_pointwise")

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out]"""
        rows = x.numel() // x.shape[-1]
        gains = rows in _FEW_ROWS and rows * max(self.weight.shape) >= _LEAST_SIZE
        if not gains or x.dtype != torch.float32 or torch.is_grad_enabled():
            return F.linear(x, self.weight, self.bias)
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return result


class PackedLinear(nn.Module):
    """x W^T + b with W in the layout in which the CPU multiplies bfloat16, so that it is not rearranged every time.

    1.2 to 1.8 times as fast for a few rows, no slower for many. The operators are those that torch's own compiler
    generates for a frozen model; `available` says whether this installation and processor have them.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().to(torch.bfloat16), 1)
        self.bias = None if bias is None else bias.detach().to(torch.bfloat16)

    @staticmethod
    def available(device: torch.device) -> bool:
        """Whether weights on this device can be packed."""
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
    """x W^T + b in integers of 8 bits: W with a scale for each output, x with one for each row.

    So a row's result does not depend on what other rows there are, to the last bit: sums of integers are exact.
    """

    _ZERO = 128  # what 0 becomes: rows are unsigned

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
        """Whether this installation and processor multiply such integers (without VNNI, sums would overflow)."""
        operators = ("qlinear_prepack", "qlinear_pointwise")
        if device.type != "cpu" or not all(hasattr(torch.ops.onednn, name) for name in operators):
            return False
        return bool(torch.cpu._is_vnni_supported())

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out], float32"""
        x = x.float()
        scale = _scale(x)
        # (Conversion cuts off: what is a half more is rounded.)
        rows = (x * scale.reciprocal()).add_(self._ZERO + 0.5).to(torch.uint8)
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            *(rows, 1.0, self._ZERO, self.packed, self.scale, self.zero),
            *(None, 1.0, 0, torch.float32, "none", [], ""),
        )
        return product.mul_(scale) if self.bias is None else torch.addcmul(self.bias, product, scale)


def _scale(x: Tensor) -> Tensor:
    """[..., n] -> [..., 1]: what 1 of 127 steps is worth, up to the largest of each row."""
    return (x.abs().amax(-1, keepdim=True) / 127).clamp_(min=1e-30)


Product = type[FloatLinear] | type[PackedLinear] | type[Int8Linear]
_PRODUCTS: dict[Precision, Product] = {"float32": FloatLinear, "bfloat16": PackedLinear, "int8": Int8Linear}


def check_precision(precision: Precision, device: torch.device) -> None:
    """Raises DocmtError for a precision that there is not, or not on this device."""
    one_of("precision", precision, get_args(Precision))
    if precision == "int8" and not Int8Linear.available(device):
        where = "this processor, which lacks the instructions (VNNI)" if device.type == "cpu" else f"device {device}"
        raise DocmtError(f"precision int8 is not for {where}: choose bfloat16 or float32")


def lower_precision(model: TranslationModel, precision: Precision) -> TranslationModel:
    """Puts weights of matrix products into `precision`, in place; norms and sums stay in float32.

    Raises DocmtError where the model's device has no such products.
    """
    check_precision(precision, model.device)
    made = _PRODUCTS[precision]
    if precision == "bfloat16":
        for name in model.tables():
            model.get_submodule(name).to(torch.bfloat16)
        for module in model.modules():
            if isinstance(module, nn.Linear | Softmax):
                module.to(torch.bfloat16)
    if not made.available(model.device):
        return model
    if precision != "float32":
        for attention in [module for module in model.modules() if type(module) is Attention]:
            attention.join_projections()
    for parent in list(model.modules()):
        for name, module in list(parent.named_children()):
            if isinstance(module, nn.Linear):
                setattr(parent, name, made(module.weight, module.bias))
    head = model.whole_head()
    model.projection = made(head.weight.detach(), head.bias)  # (not a parameter once more)
    return model


def computing_in(model: Model, precision: Precision) -> AbstractContextManager[object]:
    """The context in which such a model, or an ensemble of such, is run."""
    if precision != "bfloat16":
        return nullcontext()
    return torch.autocast(model.device.type, dtype=torch.bfloat16)


class Loaded(NamedTuple):
    """What translating needs of one or several model directories."""

    model: Model
    tokenizer: Tokenizer
    languages: tuple[str, str]
    """codes of the source and the target language, empty where no directory says"""


def model_paths(model: Path | str | Sequence[Path | str]) -> list[Path]:
    """The directories meant by a path, by several with commas between them, or by a list.

    What exists with a comma in its name is one directory. Raises DocmtError where there is a comma but no name, and
    for what is no path.
    """
    for name in model if isinstance(model, list | tuple) else [model]:
        if not isinstance(name, str | Path):
            raise DocmtError(f"{name!r} is no model: give the path of a model or run directory, or a list of such")
    if isinstance(model, Path) or (isinstance(model, str) and ("," not in model or Path(model).exists())):
        return [Path(model)]
    names = [str(name).strip() for name in (model.split(",") if isinstance(model, str) else model)]
    if not names or not all(names):
        raise DocmtError(f"{str(model)!r} lacks the name of a model: give directories, with one comma between two")
    return [Path(name) for name in names]


def load_members(paths: Sequence[Path], device: torch.device | str, precision: Precision) -> Loaded:
    """Loads the model, or the members of an ensemble, ready to translate.

    Raises DocmtError for directories that are missing, incomplete or damaged, and for models that do not belong
    together: of other tokenizers, other languages, or another way of decoding.
    """
    device = choose_device(device)
    check_precision(precision, device)
    tokenizer, languages = read_tokenizer_and_languages(paths)
    models = [load_checked(path, device, precision, tokenizer) for path in paths]
    return Loaded(
        models[0] if len(models) == 1 else Ensemble(models, [str(path) for path in paths]), tokenizer, languages
    )


def read_tokenizer_and_languages(paths: Sequence[Path]) -> tuple[Tokenizer, tuple[str, str]]:
    """Return the tokenizer and the language codes of a model, or of the members of an ensemble, without their weights.

    Raises DocmtError as `load_members` does for members that do not belong together.
    """
    tokenizer, languages = load_model_tokenizer(paths[0]), load_languages(paths[0])
    for number, path in enumerate(paths[1:], 1):
        languages = _check_same(paths[:number], path, tokenizer, languages)
    return tokenizer, languages


def load_checked(path: Path, device: torch.device, precision: Precision, tokenizer: Tokenizer) -> TranslationModel:
    """The model of a directory in this precision. Raises DocmtError if the tokenizer is of another vocabulary."""
    model = lower_precision(load_model(path, device=device), precision)
    if tokenizer.vocabulary_size != model.config.vocabulary_size:
        raise DocmtError(
            f"the tokenizer in {path} has {tokenizer.vocabulary_size} entries, but the model "
            f"{model.config.vocabulary_size}: they do not belong together, copy the directory again"
        )
    return model


def _check_same(
    before: Sequence[Path], path: Path, tokenizer: Tokenizer, languages: tuple[str, str]
) -> tuple[str, str]:
    """The languages of the members before and of this one, as far as any of them says."""
    if not load_model_tokenizer(path).same_words(tokenizer):
        raise DocmtError(
            f"{before[0]} and {path} cannot translate as one: their tokenizers differ; choose models trained on one "
            "store"
        )
    theirs = load_languages(path)
    if any(one and other and one != other for one, other in zip(languages, theirs, strict=True)):
        raise DocmtError(
            f"{', '.join(map(str, before))} and {path} cannot translate as one: they are for {'-'.join(languages)} and "
            f"{'-'.join(theirs)}"
        )
    return languages[0] or theirs[0], languages[1] or theirs[1]
