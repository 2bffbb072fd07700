"""Label-smoothed cross entropy, fused with the output projection, and word dropout.

The logits [T, V] of a batch are by far its largest tensor and are never stored as a whole. A chunk of tokens at a time
is projected and turned into its loss and into the gradients of states and embedding. This is the idea of fused linear
cross-entropy kernels (e.g. Hsu et al. 2024, "Liger Kernel"). The softmax, always in float32, processes a few rows of a
chunk at a time, which stay in the processor's cache. Each chunk adds to the gradient of the embedding, at a cost of the
size of the embedding, so chunks are no smaller than necessary. Speeds: decision 0012.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from docmt.core.errors import DocmtError
from docmt.core.settings import quote
from docmt.data import Batch
from docmt.data.batches import PAD_MULTIPLE
from docmt.model import ModelConfig, Packed, TranslationModel
from docmt.text import SpecialTokens, Tokenizer
from docmt.text.tokenizer import Side
from docmt.training.train_config import ObjectiveConfig

CHUNK_BYTES = 2**26  # logits of a chunk
MIN_CHUNK_TOKENS = 512
_CACHED_LOGITS = 2**20  # logits per softmax step on a CPU
_GRADIENT_ROWS = 2**16  # vocabulary rows per step of the embedding gradient, to avoid a second full gradient


def smoothed_cross_entropy(
    states: Tensor,
    embedding: Tensor,
    labels: Tensor,
    smoothing: float,
    bias: Tensor | None = None,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return summed label-smoothed loss and summed negative log-likelihood, in nats. Only the loss has gradients.

    states [T, d], embedding [V, d], labels [T]. Logits are products of states and embedding plus a bias [V], which gets
    no gradient. The loss of a token is (1 - e) * nll + e / V * sum over the whole vocabulary of -log p (Szegedy et al.
    2016, section 7). weights [T] multiply the losses of tokens, but not the log-likelihood. Under autocast the
    products are computed in its dtype, the softmax always in float32.
    """
    device = states.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
    with torch.autocast(device, enabled=False):
        train = torch.is_grad_enabled()
        loss, nll = _ProjectedCrossEntropy.apply(states, embedding, labels, smoothing, dtype, train, bias, weights)  # type: ignore[no-untyped-call]
    return loss, nll


def batch_loss(
    model: TranslationModel, states: Tensor, labels: Tensor, smoothing: float, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return `smoothed_cross_entropy` of decoder states [n, d] under the output head of the model."""
    head = model.head()
    states = states if head.scale == 1.0 else states * head.scale
    labels = labels - head.first if head.first else labels
    return smoothed_cross_entropy(states, head.weight, labels, smoothing, head.bias, weights)


def model_loss(
    model: TranslationModel, batch: Batch, smoothing: float, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return summed loss and negative log-likelihood of a batch, as `batch_loss` does."""
    return batch_loss(model, model(batch.inputs)[: batch.tokens], batch.labels, smoothing, weights)  # without padding


def loss(model: TranslationModel, batch: Batch, label_smoothing: float = 0.1) -> Tensor:
    """Return the loss [] that `train` minimizes, in nats per label token, with gradients; without `weighted_words`.

    Of several batches, `train` takes the mean over all their label tokens: that of losses times `batch.tokens`.
    Its logits [T, V] are never stored as a whole (`smoothed_cross_entropy`). Dropout is on in training mode.
    """
    batch = pad_batch(batch, model.config).to(model.device)
    total, _ = model_loss(model, batch, label_smoothing)
    return total / batch.tokens


class BatchLoss(nn.Module):
    """Module whose output is the loss, so that wrappers (gradient exchange, precision) cover all of it."""

    token_weights: Tensor | None

    def __init__(self, model: TranslationModel, objective: ObjectiveConfig, weighted_tokens: Sequence[int]) -> None:
        super().__init__()
        self.model, self.smoothing, weights = model, objective.label_smoothing, None
        if weighted_tokens:
            weights = torch.ones(model.config.vocabulary_size)
            weights[list(weighted_tokens)] = objective.word_weight
        self.register_buffer("token_weights", weights, persistent=False)

    def forward(self, read_batch: Callable[[], Batch]) -> tuple[Tensor, Tensor]:
        """Return summed loss and negative log-likelihood of a batch. Word weights count in training only.

        The batch comes from a function, as Fabric would rebuild it as an argument, which frozen dataclasses forbid.
        """
        batch = read_batch()
        weights = self.token_weights[batch.labels] if self.model.training and self.token_weights is not None else None
        return model_loss(self.model, batch, self.smoothing, weights)


class _ProjectedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        embedding: Tensor,
        labels: Tensor,
        smoothing: float,
        dtype: torch.dtype,
        train: bool,
        bias: Tensor | None,
        weights: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        needs_states, needs_embedding = (train and needed for needed in ctx.needs_input_grad[:2])
        states_grad = torch.empty(states.shape, device=states.device) if needs_states else None
        embedding_grad = torch.zeros(embedding.shape, device=states.device) if needs_embedding else None
        states_cast, table = states.to(dtype), embedding.to(dtype)
        mean_embedding = table.float().mean(dim=0)  # [d]; its product with a state is the mean logit
        mean_bias = 0.0 if bias is None else bias.float().mean()
        factors = None if weights is None else weights[:, None].float()  # [T, 1]
        nll = torch.zeros((), dtype=torch.float64, device=states.device)
        weighted_nll = torch.zeros_like(nll)
        uniform = torch.zeros_like(nll)  # weighted sum of -log p averaged over the vocabulary
        count = max(MIN_CHUNK_TOKENS, CHUNK_BYTES // (len(table) * table.element_size()))
        for start in range(0, len(states_cast), count):
            chunk = states_cast[start : start + count]  # [c, d]
            gold = labels[start : start + count, None]  # [c, 1]
            logits = chunk @ table.t()  # [c, V]
            rows = max(1, _CACHED_LOGITS // len(table)) if logits.device.type == "cpu" else len(logits)
            first = start
            for part, part_gold, part_x in zip(logits.split(rows), gold.split(rows), chunk.split(rows), strict=True):
                factor, first = None if factors is None else factors[first : first + len(part)], first + len(part)
                p = part.float()
                if bias is not None:
                    p += bias
                gold_logits = p.gather(1, part_gold)
                highest = p.amax(dim=1, keepdim=True)
                p.sub_(highest).exp_()
                normalizer = p.sum(dim=1, keepdim=True)
                log_normalizer = normalizer.log() + highest  # [r, 1]
                token_nll = log_normalizer - gold_logits
                token_uniform = log_normalizer[:, 0] - part_x.float() @ mean_embedding - mean_bias
                p.div_(normalizer).scatter_add_(1, part_gold, torch.full_like(highest, smoothing - 1))
                nll += token_nll.sum()
                if factor is not None:
                    weighted_nll += (token_nll * factor).sum()
                    token_uniform *= factor[:, 0]
                    p *= factor
                uniform += token_uniform.sum()
                part.copy_(p)
            if states_grad is not None:
                states_grad[start : start + count] = logits @ table
            if embedding_grad is not None:
                for row in range(0, len(table), _GRADIENT_ROWS):
                    embedding_grad[row : row + _GRADIENT_ROWS] += logits[:, row : row + _GRADIENT_ROWS].t() @ chunk
        # The uniform part of the target is equal for all tokens and words: two vectors instead of [T, V].
        if states_grad is not None:
            states_grad.sub_(smoothing * mean_embedding if factors is None else smoothing * factors * mean_embedding)
        if embedding_grad is not None:
            total = states_cast.float() if factors is None else factors * states_cast.float()
            embedding_grad.sub_(smoothing / len(table) * total.sum(dim=0))
        ctx.save_for_backward(states_grad, embedding_grad)
        ctx.dtypes = states.dtype, embedding.dtype
        loss = (1 - smoothing) * (nll if factors is None else weighted_nll) + smoothing * uniform
        loss, nll = loss.float(), nll.float()
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        saved = zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        # In place, to save a copy of a large gradient. torch itself reports a second backward pass.
        scaled = [None if gradient is None else gradient.mul_(gradients[0]).to(dtype) for gradient, dtype in saved]
        return *scaled, *[None] * 6


def find_word_tokens(tokenizer: Tokenizer, words: Sequence[str]) -> list[int]:
    """Return the ids of the target tokens that are one of these words, in any case, with or without a blank before it.

    Raises DocmtError for words that no token is.
    """
    if not words:
        return []  # a large vocabulary takes seconds to decode
    first, last = SpecialTokens.first_word, tokenizer.specials.eod
    texts = tokenizer.decode_batch([[number] for number in range(first, last)], "target")
    ids: dict[str, list[int]] = {word.casefold(): [] for word in words}
    for number, text in enumerate(texts, first):
        ids.get(text.strip().casefold(), []).append(number)
    if missing := [word for word in words if not ids[word.casefold()]]:
        names = ", ".join(map(quote, missing))
        raise DocmtError(f"no token of the target language is {names}. Weight words that are one token")
    return sorted(number for numbers in ids.values() for number in numbers)


def pad_batch(batch: Batch, config: ModelConfig) -> Batch:
    """Return the batch padded to few sizes, which is faster, unless the model has too few positions."""
    limit = config.position_limit
    return batch.pad() if limit is None or limit >= PAD_MULTIPLE else batch


def drop_words(batch: Batch, rate: float, model: TranslationModel) -> Batch:
    """Return the batch with each word of source and decoder input replaced by <mask> with probability `rate`.

    Boundary tokens, <unk>, <eod> and <mask> stay, and so do labels (Bao et al. 2021, section 4.1 and published code).
    It uses torch's global generator.
    """
    if rate == 0:
        return batch

    def drop(packed: Packed, side: Side, vocabulary_size: int) -> Packed:
        words = packed.sentences.trim(*model.boundary_tokens.counts(side)).indices()
        return replace(packed, tokens=drop_tokens(packed.tokens, rate, SpecialTokens(vocabulary_size), words))

    inputs, size = batch.inputs, model.config.vocabulary_size
    source = drop(inputs.source, "source", model.config.source_vocabulary_size or size)
    target = None if inputs.target is None else drop(inputs.target, "target", size)
    return replace(batch, inputs=replace(inputs, source=source, target=target))


def drop_tokens(tokens: Tensor, rate: float, specials: SpecialTokens, positions: Tensor) -> Tensor:
    """Return tokens [T] with the words at these positions [n] replaced by <mask> with probability `rate`."""
    droppable = torch.zeros_like(tokens, dtype=torch.bool).index_fill_(0, positions.to(tokens.device), True)
    droppable &= (tokens >= specials.first_word) & (tokens < specials.eod)
    dropped = torch.rand(tokens.shape, device=tokens.device) < rate
    return tokens.masked_fill(droppable & dropped, specials.mask)
