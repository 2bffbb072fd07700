"""Target text that is read in one full pass, and its beginnings, after which search rows go on.

Notation as in `caches`; T tokens and S sentences of the pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from docmt.decoding.caches import SharedKeys, TargetKeys
from docmt.decoding.ensembles import Memories, Model, compute_next_logits, list_members, list_memories
from docmt.decoding.logits import log_normalizers
from docmt.decoding.search_rules import SearchRow
from docmt.model import Packed, pack
from docmt.model.attention import Attention
from docmt.model.contexts import FullContext, Memory, PackedStates
from docmt.model.linear_attention import KeyWeights, LinearAttention
from docmt.model.linear_kernels import compute_states_after
from docmt.model.spans import Spans
from docmt.model.transformer import TranslationModel
from docmt.text import SpecialTokens

_CHUNK = 1024
"""Labels whose logits are computed at once."""


class AttentionRecord(NamedTuple):
    """Keys and values [T, H, k] of a self-attention in a full pass."""

    keys: Tensor
    values: Tensor
    weighing: KeyWeights | None = None
    """weights of the keys in linear attention"""


class RecordingContext(FullContext):
    """Full pass that records the keys and values of every self-attention."""

    def __init__(self, *args: object) -> None:
        """See `FullContext`."""
        super().__init__(*args)  # type: ignore[arg-type]
        self.recorded: dict[Attention, AttentionRecord] = {}

    def find(self, attention: Attention, x: Tensor) -> PackedStates:
        """See `AttentionContext`: x [T, d]."""
        visible = super().find(attention, x)
        if attention.scope.memory != "self":
            return visible
        return _RecordedStates(visible, attention, self.recorded)


class _RecordedStates(PackedStates):
    """Visible states whose keys and values are recorded when an attention reads them."""

    def __init__(self, states: PackedStates, attention: Attention, recorded: dict[Attention, AttentionRecord]) -> None:
        super().__init__(states.memory, states.pattern, states.exists)
        self.attention, self.recorded = attention, recorded

    def attend(self, query: Tensor, key: Tensor | None, value: Tensor | None, **options: Any) -> Tensor:
        """See `VisibleStates`."""
        assert key is not None and value is not None
        self.recorded[self.attention] = AttentionRecord(key, value)
        return super().attend(query, key, value, **options)

    def attend_linear(self, attention: Any, x: Tensor) -> Tensor:
        """See `VisibleStates`."""
        key, value, weighing = attention.project_keys_values(self.memory, self.pattern)
        self.recorded[self.attention] = AttentionRecord(key, value, weighing)
        return attention.attend_keys(x, key, value, weighing, self.pattern)


class TargetPass:
    """Full pass of one model over the target side of documents; it keeps what the self-attentions computed."""

    def __init__(
        self, model: TranslationModel, memories: Mapping[str, Memory], target: Packed, aligned: Tensor, numbers: Tensor
    ) -> None:
        """aligned [S]: number of each target sentence in the packed source; numbers: of each document there."""
        context = RecordingContext(target, memories, aligned, numbers)
        self.states = model.decode(model.embed("target", target), context)  # [T, d]
        self.recorded, self.target, self.aligned = context.recorded, target, aligned.cpu()


@dataclass(frozen=True)
class Prefixes:
    """Beginnings of the documents of a pass, one for each of D search rows, each ending before or in a sentence."""

    read: TargetPass
    documents: Tensor
    """[D] number in the pass of each row's document"""
    next_sentences: Tensor
    """[D] number in the pass of each row's next sentence"""
    begun: Tensor | None = None
    """[D] tokens of this sentence that belong to the prefix; None: no row has any"""

    @property
    def starts(self) -> Tensor:
        """[D] first token after each prefix."""
        return self.sentence_starts if self.begun is None else self.sentence_starts + self.begun

    @property
    def sentence_starts(self) -> Tensor:
        """[D] first token of each row's next sentence."""
        return self.read.target.sentences.starts[self.next_sentences]

    @property
    def lengths(self) -> Tensor:
        """[D] number of tokens of each prefix."""
        return self.starts - self.document_starts

    @property
    def document_starts(self) -> Tensor:
        """[D] first token of each row's document."""
        return self.read.target.documents.starts[self.documents]

    def select_keys(self, attentions: Sequence[Attention]) -> TargetKeys:
        """Return the keys and values of these attentions, which have one scope."""
        records = [self.read.recorded[attention] for attention in attentions]
        device, sentences = records[0].keys.device, self.read.target.sentences
        is_word = torch.zeros(len(records[0].keys), dtype=torch.bool)
        is_word[sentences.trim(*attentions[0].scope.trim).indices()] = True
        in_sentence = attentions[0].scope.extent == "sentence"
        return TargetKeys(
            SharedKeys(
                [record.keys for record in records],
                [record.values for record in records],
                Spans(self.document_starts, self.lengths),
            ),
            self.read.aligned.repeat_interleave(sentences.lengths).to(device),
            is_word.to(device),
            (self.sentence_starts if in_sentence else self.starts).to(device),
            self.begun is not None,
        )

    def compute_state(self, attention: Attention, beams: int) -> tuple[Tensor, Tensor | None]:
        """Return the state [R, H, F, k + 1] of linear attention, and its decay [R, H] at the next sentence."""
        keys, values, weighing = self.read.recorded[attention]
        assert isinstance(attention, LinearAttention) and weighing is not None
        sentences = self.read.target.sentences
        number = torch.arange(len(sentences))
        first, next_sentence = sentences.find_segments(self.document_starts), self.next_sentences
        visible = (number >= first[:, None]) & (number < next_sentence[:, None])  # [D, S]
        starts = self.sentence_starts
        begun = Spans(starts, torch.zeros_like(starts) if self.begun is None else self.begun)
        log_decay = weighing.log_decay
        state = compute_states_after(
            *(keys, values, sentences, visible, begun),
            features=attention.build_feature_map(),
            log_decay=log_decay,
            input_weights=weighing.input_weights,
        ).repeat_interleave(beams, 0)
        if log_decay is None:
            return state, None
        has_prefix = (starts > self.document_starts)[:, None].to(log_decay)
        decay = (log_decay[starts] - log_decay[(starts - 1).clamp(min=0)]).clamp(max=0).exp() * has_prefix
        return state, decay.to(state.dtype).repeat_interleave(beams, 0)


def can_read_prefixes(model: Model) -> bool:
    """Return whether prefixes can be read in one pass: sentences are framed, and not joined by one token."""
    return all(member.system.rules == "frame" and not member.boundary_tokens.joined for member in list_members(model))


def read_prefixes(
    model: Model,
    memories: Memories,
    rows: Sequence[SearchRow],
    specials: SpecialTokens,
    words: Sequence[Sequence[int]] | None = None,
) -> list[Prefixes]:
    """Read the prefixes of these rows with each member of the model.

    words: read as well, the first word ids of the next sentence of each row. All but the last belong to the prefixes.
    """
    boundary_tokens, device = model.boundary_tokens, model.device
    closing = [specials.eos] if boundary_tokens.target_has_end else []
    whole = [[*row.prefix, after] for row, after in zip(rows, words or [()] * len(rows), strict=True)]
    target = pack(
        [[[*boundary_tokens.target_opening, *words, *closing] for words in sentences] for sentences in whole]
    ).to(device)
    aligned = torch.tensor([number for row in rows for number in row.sentences[: len(row.prefix) + 1]])
    documents, following = torch.arange(len(rows)), torch.tensor(list(map(len, whole))).cumsum(0) - 1
    opening = len(boundary_tokens.target_opening)
    begun = torch.tensor([len(each) + opening - 1 if each else 0 for each in words]) if words else None
    return [
        Prefixes(
            TargetPass(member, member_memories, target, aligned, number_documents(member_memories.values(), rows)),
            documents,
            following,
            begun,
        )
        for member, member_memories in zip(list_members(model), list_memories(memories), strict=True)
    ]


def score_words(
    model: Model, prefixes: Sequence[Prefixes], words: Sequence[Sequence[int]], temperature: float
) -> list[list[float]]:
    """Return the log-probabilities of words that `read_prefixes` has read."""
    first = prefixes[0].sentence_starts + len(model.boundary_tokens.target_opening) - 1
    index = torch.cat([start + torch.arange(len(each)) for start, each in zip(first, words, strict=True)])
    labels, scores = torch.tensor([word for each in words for word in each], dtype=torch.int64), list[float]()
    for part in torch.arange(len(index)).split(_CHUNK):
        states = [each.read.states[index[part]] for each in prefixes]
        logits = compute_next_logits(model, states, temperature).float()
        chosen = logits.gather(1, labels[part, None].to(logits.device)) - log_normalizers(logits)
        scores += chosen[:, 0].tolist()
    each = iter(scores)
    return [list(islice(each, len(row))) for row in words]


def number_documents(memories: Iterable[Memory], rows: Sequence[SearchRow]) -> Tensor:
    """Return the number of each row's document in the memories: [D]."""
    for memory in memories:
        if memory.documents is not None:
            sentences = torch.tensor([row.sentences[0] for row in rows])
            return memory.documents.find_segments(memory.sentences.starts[sentences])
    return torch.arange(len(rows))
