"""Caches of what decoding steps read of earlier tokens and of memories, one for each kind of attention.

Notation: D search rows, B beams of each, R = D * B hypotheses (hypothesis = row * B + beam), H heads, k = d / H, L
keys, F features of a head in linear attention. All hypotheses are at the same step: they compete at equal length. A
step's query, key and value are [R, H, k]. A bias is 0 where a key is visible, and minus infinity elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from docmt.model.attention import Attention
from docmt.model.embeddings import DistanceBiases
from docmt.model.kernels import build_bias
from docmt.model.linear_attention import LinearAttention
from docmt.model.linear_kernels import read_states, step_linear
from docmt.model.scope import AttentionScope
from docmt.model.spans import Spans
from docmt.text import SpecialTokens

FORGET_EVERY = 16
"""Steps between two searches for slots that no hypothesis sees any more."""
_WORTH_FORGETTING = 0.75  # share of the slots that may stay, so that copying them is cheaper than reading all


def can_synchronize(device: torch.device) -> bool:
    """Return whether the host may read a value at every step: on a GPU it would wait for all queued work."""
    return device.type == "cpu"


class Step(NamedTuple):
    """Tokens that the hypotheses read at a step; all tensors are [R]."""

    tokens: Tensor
    """their ids"""
    offsets: Tensor
    """position of each in its sentence"""
    sentences: Tensor
    """number of its source sentence in the packed source"""


class Cache:
    """Cache of all attentions of one class and scope; layers are numbered."""

    def begin_step(self, step: Step) -> None:
        """Prepare for the tokens of a step."""

    def store(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Store the step's key and value of self-attention: [R, H, k] each."""

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """Return the attention output: [R, H, k] -> [R, H, k]."""
        raise NotImplementedError

    def reorder(self, hypotheses: Tensor) -> None:
        """Let hypothesis i continue hypothesis hypotheses[i] of the same search row."""

    def forget(self) -> None:
        """Drop what no hypothesis sees any more."""

    def select_rows(self, hypotheses: Tensor, rows: Tensor) -> None:
        """Keep these hypotheses and the search rows that they belong to (numbered as of now) only."""
        self.reorder(hypotheses)


Kernel = Callable[[Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, ...]]
"""Attends from queries [G, H, n, k] to keys and values [G, H, L, k] with a bias that is broadcast to [G, H, n, L], and
returns tensors [G, H, n, ...]."""


def attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> tuple[Tensor]:
    """Return the attention output (see `Kernel`)."""
    if not _has_fast_kernel(query):
        return (_score_keys(query, keys, bias).softmax(-1).to(values.dtype) @ values,)
    return (F.scaled_dot_product_attention(query, keys, values, attn_mask=bias),)


def attend_part(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Attend to a part of all keys (see `Kernel`); outputs over several parts are averaged by their exponentials.

    Returns the output, and the logarithm of the sum of the exponentials of scores [G, H, n], at least in float32. Both
    are finite and mean nothing for a query that sees no key.
    """
    if query.device.type == "cpu":
        output, total = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, keys, values, attn_mask=bias)
        return output, total
    scores = _score_keys(query, keys, bias)
    scores = scores.clamp(min=torch.finfo(scores.dtype).min)
    return scores.softmax(-1).to(values.dtype) @ values, scores.logsumexp(-1)


def _has_fast_kernel(query: Tensor) -> bool:
    """Return whether the kernel of PyTorch is faster than products and a softmax: not with 16 bits on CPU."""
    return query.device.type != "cpu" or query.element_size() > 2


def _score_keys(query: Tensor, keys: Tensor, bias: Tensor | None) -> Tensor:
    """Return the scores [G, H, n, L] with their bias, at least in float32."""
    scores = query @ keys.transpose(2, 3)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    scale = query.shape[-1] ** -0.5
    return scores * scale if bias is None else torch.add(bias, scores, alpha=scale)


class Groups(NamedTuple):
    """Some groups of search rows, each of as many rows; the rows of a group see keys that are stored once."""

    rows: slice
    """their rows"""
    size: int
    """number G of groups"""
    keys: list[Tensor]
    """of each layer [G, H, L, k]"""
    values: list[Tensor]

    def gather(self, x: Tensor) -> Tensor:
        """Gather what rows have by group: [D, n, H, ...] -> [G, H, m n, ...], for groups of m rows."""
        x = x[self.rows]
        return x.reshape(self.size, -1, *x.shape[2:]).transpose(1, 2)


class SharedKeys:
    """Keys and values of packed states, stored once for all search rows whose spans begin at the same position."""

    def __init__(self, keys: Sequence[Tensor], values: Sequence[Tensor], spans: Spans) -> None:
        """keys, values: for each layer [T, H, k]; spans: what each search row may see."""
        self.packed, self.spans = (keys, values), spans
        self.device = keys[0].device
        self._arrange()

    def _arrange(self) -> None:
        """Group the rows; groups that follow each other with as many rows are read together."""
        starts, longest = self.spans.starts, max(int(self.spans.lengths.max()), 1)
        last = len(self.packed[0][0]) - 1
        self.tokens = (starts[:, None] + torch.arange(longest)).clamp(max=last).to(self.device)
        """[D, L] position in the packed states of each key of each row"""
        self.visible = (torch.arange(longest) < self.spans.lengths[:, None]).to(self.device)
        """[D, L] whether the key lies in the span of the row"""
        order = starts.argsort(stable=True)
        self.order: Tensor | None = None  # of the rows by group; None: as they are
        if not torch.equal(order, torch.arange(len(starts))):
            self.order, self.inverse_order = order.to(self.device), order.argsort().to(self.device)
        _, sizes = starts[order].unique_consecutive(return_counts=True)
        self.groups, first = list[Groups](), 0
        for size, alike in groupby(sizes.tolist()):
            count = len(list(alike))
            rows = order[first : first + count * size]
            length = max(int(self.spans.lengths[rows].max()), 1)
            tokens = self.tokens[rows[::size].to(self.device), :length].flatten()  # [G * L]
            keys, values = (
                [x.index_select(0, tokens).unflatten(0, (count, length)).transpose(1, 2).contiguous() for x in side]
                for side in self.packed
            )
            self.groups.append(Groups(slice(first, first + len(rows)), count, keys, values))
            first += len(rows)

    def build_biases(self, visible: Tensor, added: Tensor | None = None) -> list[Tensor | None]:
        """Return biases for `attend`, None where all keys are visible.

        visible: bool [D, n, L]; added [D, H, n, L]: further biases.
        """
        dtype, result = self.packed[0][0].dtype, list[Tensor | None]()
        if self.order is not None:
            visible, added = visible[self.order], None if added is None else added[self.order]
        for groups in self.groups:
            length = groups.keys[0].shape[2]
            part = groups.gather(visible[:, :, None, :length])  # [G, 1, m n, L]
            if added is not None:
                bias = groups.gather(added[..., :length].transpose(1, 2)).to(dtype)
                result.append(bias.masked_fill(~part, -math.inf))
            else:
                hides = not can_synchronize(self.device) or not bool(part.all())
                result.append(build_bias(part, dtype) if hides else None)
        return result

    def attend(self, layer: int, query: Tensor, biases: Sequence[Tensor | None], kernel: Kernel) -> list[Tensor]:
        """Attend to what each row sees: [D, n, H, k] -> tensors [D, n, H, ...] that the kernel returns."""
        query = query if self.order is None else query.index_select(0, self.order)
        parts = [
            kernel(groups.gather(query), groups.keys[layer], groups.values[layer], bias)
            for groups, bias in zip(self.groups, biases, strict=True)
        ]
        shape = query.shape[1:3]
        results = []
        for outputs in zip(*parts, strict=True):
            by_row = [x.transpose(1, 2).reshape(-1, *shape, *x.shape[3:]) for x in outputs]
            joined = by_row[0] if len(by_row) == 1 else torch.cat(by_row)
            results.append(joined if self.order is None else joined.index_select(0, self.inverse_order))
        return results

    def select_rows(self, rows: Tensor) -> None:
        """Keep these rows only, and the keys that they may see."""
        self.spans = self.spans.select(rows.cpu())
        self._arrange()


class CrossCache(Cache):
    """Keys and values of a memory, stored once for the search rows that see the same."""

    def __init__(
        self, keys: Sequence[Tensor], values: Sequence[Tensor], spans: Spans, beams: int, sentences: Spans | None = None
    ) -> None:
        """keys, values: for each layer [T, H, k]; spans: what each search row sees; sentences: the part of it that each
        sentence of the packed source sees (None: all)."""
        self.beams, self.shared, self.sentences = beams, SharedKeys(keys, values, spans), sentences
        if sentences is not None:
            self.starts, self.ends = (x.to(keys[0].device) for x in (sentences.starts, sentences.ends))  # [S]
        self._set_biases(self.shared.visible[:, None])

    def _set_biases(self, visible: Tensor) -> None:
        """Set the biases of the keys that rows [D, 1, L] or hypotheses [D, B, L] see; attention to none gives 0."""
        exists, self.exists = visible.any(-1), None
        if not can_synchronize(exists.device) or not bool(exists.all()):
            self.exists, visible = exists[..., None, None], visible | ~exists[..., None]
        self.biases = self.shared.build_biases(visible.expand(-1, self.beams, -1))

    def begin_step(self, step: Step) -> None:
        """See `Cache`."""
        if self.sentences is not None:
            tokens = self.shared.tokens[:, None]  # [D, 1, L]
            starts, ends = (x[step.sentences].view(-1, self.beams, 1) for x in (self.starts, self.ends))
            self._set_biases((tokens >= starts) & (tokens < ends) & self.shared.visible[:, None])

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """Attend to the memory: [R, H, k]."""
        by_row = query.view(-1, self.beams, *query.shape[1:])
        (output,) = self.shared.attend(layer, by_row, self.biases, attend)  # [D, B, H, k]
        return (output if self.exists is None else output * self.exists).flatten(0, 1)

    def select_rows(self, hypotheses: Tensor, rows: Tensor) -> None:
        """See `Cache`."""
        self.shared.select_rows(rows)
        if self.sentences is None:
            self._set_biases(self.shared.visible[:, None])


class TargetKeys(NamedTuple):
    """Keys of target tokens in a full pass, of which the first tokens of each search row are read."""

    shared: SharedKeys
    numbers: Tensor
    """[T] number in the packed source of each token's sentence"""
    is_word: Tensor
    """[T] bool, see `SelfCache`"""
    starts: Tensor
    """[D] position of each search row's first own token, or of its sentence if the scope is that"""


class SelfCache(Cache):
    """Keys and values of the target tokens so far.

    Each step stores those of the B hypotheses of a row in B slots, which stay where they are when beams change: a bias
    says which slots a hypothesis sees. What no hypothesis sees any more is forgotten from time to time, so few slots
    are more than one for each token of the row. Tokens before the search (`prefix`) are read from `SharedKeys`.
    """

    def __init__(
        self,
        attentions: Sequence[Attention],
        rows: int,
        beams: int,
        like: Tensor,
        single: bool,
        prefix: TargetKeys | None = None,
    ) -> None:
        """like: has the type and the device of keys, and their size [H, k]; single: each row has one sentence."""
        self.scope: AttentionScope = attentions[0].scope
        self.distances: DistanceBiases | None = attentions[0].distances
        self.beams, self.prefix = beams, prefix
        # Whether sentences other than the current one are stored in slots, and do not look like it.
        self.selects = self.scope.extent == "neighbour" or (not single and self.scope.extent != "document")
        heads, width = like.shape
        # Of each layer, keys and values [2, D, H, capacity, k].
        self.pairs = [like.new_zeros(2, rows, heads, FORGET_EVERY * beams, width) for _ in attentions]
        self.length = self.steps = 0  # slots in use; tokens read
        # Whether slots that are not in use are read, too: products need no copy of the others then.
        self.reads_all = self.prefix is None and not _has_fast_kernel(like)
        self.sees = like.new_zeros(rows, beams, 0)  # [D, B, L] bias: the slots of each hypothesis's own tokens
        # Of each slot [D, L]: number of its sentence in the packed source, whether it is a word (no boundary token).
        self.numbers = torch.zeros(rows, 0, dtype=torch.int64, device=like.device)
        self.is_word = torch.zeros(rows, 0, dtype=torch.bool, device=like.device)
        self.positions = torch.zeros(rows, 0, dtype=torch.int64, device=like.device)  # in the sentence, or the search
        self.bias: Tensor | None = None
        self.prefix_biases: list[Tensor | None] = []
        self.sees_prefix: Tensor | None = None
        self.sees_slots: Tensor | None = None
        new = torch.full((beams, beams), -math.inf, dtype=like.dtype, device=like.device).fill_diagonal_(0.0)
        self.new_slots = new[None]  # [1, B, B]

    def begin_step(self, step: Step) -> None:
        """Make room for one more token of each hypothesis, and find what each sees."""
        self.length += self.beams
        if self.length > self.pairs[0].shape[3]:
            kept = torch.arange(self.length - self.beams, device=self.sees.device).expand(len(self.sees), -1)
            self._select_slots(kept)
        if self.beams > 1 or self.selects:
            self.sees = torch.cat((self.sees, self.new_slots.expand(len(self.sees), -1, -1)), dim=2)
        self.current = step.sentences.view(-1, self.beams)  # [D, B]
        if self.selects:
            opening, closing = self.scope.trim
            is_word = (step.offsets >= opening) & ~((step.tokens == SpecialTokens.eos) & bool(closing))
            self.numbers = torch.cat((self.numbers, self.current), dim=1)
            self.is_word = torch.cat((self.is_word, is_word.view_as(self.current)), dim=1)
        if self.distances is not None:
            by_sentence = self.scope.extent == "sentence"
            self.current_positions = (
                step.offsets if by_sentence else torch.full_like(step.offsets, self.steps)
            ).view_as(self.current)
            self.positions = torch.cat((self.positions, self.current_positions), dim=1)
        self.steps += 1
        self._set_biases()
        if self.reads_all:
            bias = self.sees.new_zeros(1, 1, 1, self.length) if self.bias is None else self.bias
            self.bias = F.pad(bias, (0, self.pairs[0].shape[3] - self.length), value=-math.inf)

    def _set_biases(self) -> None:
        """Set the biases [D, H or 1, B n, L] of slots and of the prefix; n: sentences that are attended to apart."""
        sees = self.sees
        if self.selects:
            sees = sees[:, :, None] + build_bias(self._find_visible(self.numbers, self.is_word), sees.dtype)
            sees = sees.flatten(1, 2)  # [D, B n, L]
        self.bias = sees[:, None] if self.beams > 1 or self.selects else None
        if self.distances is not None:
            biases = self.distances.look_up_biases(
                self.distances.assign_buckets(self.positions[:, None] - self.current_positions[..., None])
            )  # [D, H, B, L]
            self.bias = biases.to(sees.dtype) if self.bias is None else self.bias + biases.to(sees.dtype)
        moves = self.scope.extent != "document" or self.distances is not None
        if self.prefix is not None and (moves or not self.prefix_biases):
            self._set_prefix_biases(self.prefix)
        if self.scope.extent == "neighbour":
            assert self.bias is not None
            self.sees_slots = self.bias[:, 0].isfinite().any(-1)  # [D, B n]
            visible = self.sees_slots if self.sees_prefix is None else self.sees_slots | self.sees_prefix
            self.exists = visible.view(-1, self.scope.offset)  # [R, n]
            # A missing sentence would give NaN: all slots are visible instead, and the result is set to zero.
            self.bias = self.bias.masked_fill(~visible[:, None, :, None], 0.0)

    def _set_prefix_biases(self, prefix: TargetKeys) -> None:
        """Set the biases of the tokens before the search, and which attentions [D, B n] see any of them."""
        shared = prefix.shared
        visible = shared.visible[:, None, None]  # [D, 1, 1, L]
        if self.scope.extent != "document":
            visible = visible & self._find_visible(prefix.numbers[shared.tokens], prefix.is_word[shared.tokens])
        visible = visible.expand(-1, self.beams, -1, -1).flatten(1, 2)
        biases = None
        if self.distances is not None:
            back = shared.tokens - prefix.starts[:, None]  # the last token of the prefix is at -1
            distances = back[:, None] - self.current_positions[..., None]
            biases = self.distances.look_up_biases(self.distances.assign_buckets(distances))  # [D, H, B, L]
        self.prefix_biases, self.sees_prefix = shared.build_biases(visible, biases), visible.any(-1)

    def _find_visible(self, numbers: Tensor, is_word: Tensor) -> Tensor:
        """Return which keys lie in the sentences that the scope sees: bool [D, B, n, L].

        numbers, is_word [D, L]: of the keys.
        """
        numbers, current = numbers[:, None, None], self.current[:, :, None, None]
        if self.scope.extent == "neighbour":
            back = torch.arange(self.scope.offset, 0, -1, device=numbers.device)[:, None]
            return (numbers == current - back) & is_word[:, None, None]
        return numbers == current if self.scope.extent == "sentence" else numbers >= current - self.scope.offset

    def store(self, layer: int, key: Tensor, value: Tensor) -> None:
        """See `Cache`."""
        for pairs, new in zip(self.pairs[layer], (key, value), strict=True):
            by_row = new.view(-1, self.beams, *new.shape[1:]).transpose(1, 2)  # [D, H, B, k]
            pairs[:, :, self.length - self.beams : self.length] = by_row

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """Attend to the tokens so far: [R, H, k]; or to each sentence before, oldest first: [R, n, H, k]."""
        if not self.scope.sees_each_preceding:
            return self._attend(layer, query.view(-1, self.beams, *query.shape[1:])).flatten(0, 1)
        count = self.scope.offset
        queries = query[:, None].expand(-1, count, -1, -1).unflatten(0, (-1, self.beams)).flatten(1, 2)
        return self._attend(layer, queries).flatten(0, 1).unflatten(0, (-1, count)) * self.exists[..., None, None]

    def _attend(self, layer: int, query: Tensor) -> Tensor:
        """Attend to the prefix and the slots: [D, n, H, k] -> [D, n, H, k]."""
        keys, values = self.pairs[layer][:, :, :, : None if self.reads_all else self.length]  # [D, H, L, k]
        by_head = query.transpose(1, 2)
        if self.prefix is None or self.sees_prefix is None:
            return attend(by_head, keys, values, self.bias)[0].transpose(1, 2)
        before, total_before = self.prefix.shared.attend(layer, query, self.prefix_biases, attend_part)
        after, total_after = (x.transpose(1, 2) for x in attend_part(by_head, keys, values, self.bias))
        share = (total_before - total_after).sigmoid()  # [D, n, H] of the exponentials, of the prefix
        if self.sees_slots is not None:
            share = share.masked_fill(~self.sees_slots[..., None], 1.0)
        share = share.masked_fill(~self.sees_prefix[..., None], 0.0)
        return torch.lerp(after, before, share[..., None].to(after.dtype))

    def reorder(self, hypotheses: Tensor) -> None:
        """See `Cache`."""
        self.sees = self.sees.flatten(0, 1).index_select(0, hypotheses).unflatten(0, (-1, self.beams))

    def forget(self) -> None:
        """Drop slots that no hypothesis sees any more, of a search row or of all earlier sentences."""
        if not self.sees.shape[2]:
            return
        seen = self.sees.isfinite()  # [D, B, L]
        if self.selects:
            current = self.current.amin(1)[:, None]  # [D, 1]
            seen = seen & (self.numbers >= current - self.scope.offset)[:, None]
        seen = seen.any(1)
        most = int(seen.sum(1).max())
        if most > _WORTH_FORGETTING * self.length:
            return
        index = (~seen).long().argsort(dim=1, stable=True)[:, :most]  # [D, most] those that are seen, in order
        self.length = most
        self._select_slots(index)
        self.sees = self.sees.masked_fill(~seen[:, None], -math.inf).gather(
            2, index[:, None].expand(-1, self.beams, -1)
        )
        if self.selects:
            self.numbers, self.is_word = self.numbers.gather(1, index), self.is_word.gather(1, index)
        if self.distances is not None:
            self.positions = self.positions.gather(1, index)

    def _select_slots(self, index: Tensor) -> None:
        """Keep the keys and values of these slots of each row [D, n], with room for more."""
        count, (_, rows, heads, capacity, _) = index.shape[1], self.pairs[0].shape
        room = max(count // 2, FORGET_EVERY * self.beams)
        first = torch.arange(2 * rows * heads, device=index.device).view(2, rows, heads, 1) * capacity
        slots = (first + index[:, None]).flatten()
        for layer, x in enumerate(self.pairs):
            self.pairs[layer] = x.new_zeros(*x.shape[:3], count + room, x.shape[4])
            self.pairs[layer][:, :, :, :count] = x.flatten(0, 3).index_select(0, slots).view(*x.shape[:3], count, -1)

    def select_rows(self, hypotheses: Tensor, rows: Tensor) -> None:
        """See `Cache`."""
        self.reorder(hypotheses)
        self.pairs = [x.index_select(1, rows) for x in self.pairs]
        if self.selects:
            self.numbers, self.is_word, self.current = self.numbers[rows], self.is_word[rows], self.current[rows]
        if self.distances is not None:
            self.positions = self.positions[rows]
        if self.prefix is not None:
            self.prefix.shared.select_rows(rows)
            self.prefix, self.prefix_biases = self.prefix._replace(starts=self.prefix.starts[rows]), []


class LinearSelfCache(Cache):
    """State of linear attention of each hypothesis, with the gate that applies when its sentence ends."""

    def __init__(self, like: LinearAttention, starts: Sequence[tuple[Tensor | None, Tensor | None]]) -> None:
        """like: one of the attentions, which differ in their weights alone.

        starts: for each layer the state [R, H, F, k + 1] and the decay [R, H] with which it begins, if it has any.
        """
        self.averaging, self.floor, self.joined = like.is_averaging, like.features.min_denominator, like.joined
        self.opened: Tensor | None = None  # [R, 1] whether the last token opened a sentence (not the first)
        self.states = [state for state, _ in starts]  # [R, H, F, k + 1]
        self.gates = [decay for _, decay in starts]  # [R, H] after the last token, in 0..1
        self.fresh = [None if decay is None else 1.0 - decay for decay in self.gates]  # [R, H] weight of new keys

    def begin_step(self, step: Step) -> None:
        """See `Cache`."""
        is_opening = (step.offsets == 0)[:, None]
        if self.joined:
            # The joining token belongs to the sentence that it ends; the decay applies from the next token on.
            self.sentence_begins = torch.zeros_like(is_opening) if self.opened is None else self.opened
            self.opened = torch.zeros_like(is_opening) if self.opened is None else is_opening
        else:
            self.sentence_begins = is_opening

    def update(self, layer: int, key: Tensor, value: Tensor, gates: Tensor | None) -> None:
        """Add features [R, H, F] and values [R, H, k]; gates [R, H], before the sigmoid, if there are any."""
        self.key, self.value = key, value
        self.decay: Tensor | None = None
        if gates is None:
            return
        before, fresh = self.gates[layer], self.fresh[layer]
        self.gates[layer] = gates.sigmoid()
        if before is None or fresh is None:  # the first sentence weighs all
            self.fresh[layer] = torch.ones_like(gates)
            return
        self.decay = torch.where(self.sentence_begins, before, 1.0)
        self.fresh[layer] = fresh = torch.where(self.sentence_begins, 1.0 - before, fresh)
        if self.averaging:
            self.key = key * fresh[..., None]

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """Attend to the state: [R, H, F] -> [R, H, k]."""
        state = self.states[layer]
        if state is None:
            state = self.key.new_zeros(*self.key.shape, self.value.shape[-1] + 1)
        result, self.states[layer] = step_linear(state, query, self.key, self.value, self.decay, self.floor)
        return result

    def reorder(self, hypotheses: Tensor) -> None:
        """Let hypothesis i continue hypothesis hypotheses[i]."""
        for tensors in (self.states, self.gates, self.fresh):
            tensors[:] = [None if x is None else x.index_select(0, hypotheses) for x in tensors]
        self.opened = None if self.opened is None else self.opened.index_select(0, hypotheses)


class LinearCrossCache(Cache):
    """States of linear attention over what each search row sees."""

    def __init__(self, states: Sequence[Tensor], beams: int, floor: float) -> None:
        """states: for each layer [D, H, F, k + 1]; floor: least denominator."""
        self.states, self.beams, self.floor = list(states), beams, floor

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """Attend to the states: [R, H, F] -> [R, H, k]."""
        by_row = query.unflatten(0, (-1, self.beams)).transpose(1, 2)  # [D, H, B, F]
        return read_states(by_row, self.states[layer], self.floor).transpose(1, 2).flatten(0, 1)

    def select_rows(self, hypotheses: Tensor, rows: Tensor) -> None:
        """See `Cache`."""
        self.states = [x.index_select(0, rows) for x in self.states]
