"""Attention maps: the weights of a model over one document as arrays, with the tokens of their rows and columns.

Notation: H heads, Tq queries, Tk keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from docmt.analysis.attention_analysis import (
    AttentionRecord,
    SentenceAttentionRecord,
    TokenAttentionRecord,
    describe_site,
    record_attention,
)
from docmt.core.errors import DocmtError
from docmt.decoding import Translation, Translator
from docmt.decoding.scheduler import Task
from docmt.decoding.scoring import iterate_scoring_inputs
from docmt.documents import Document
from docmt.model import ModelInput
from docmt.model.contexts import Memory
from docmt.model.products import precision_context
from docmt.model.scope import SPECIAL_TOKEN_IDS
from docmt.model.spans import Packed
from docmt.model.transformer import evaluation_mode
from docmt.text import Tokenizer
from docmt.text.tokenizer import Side

MAX_TOKENS = 512
"""Longest side of a document: all maps of a `base` model of the system group then take 200 MB."""


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """Weights of one attention over one document."""

    weights: NDArray[np.float32]
    """[H, Tq, Tk], 0 where a query does not see a key. A row sums to 1, or to 1 for each sentence that the attention
    sees separately. Linear attention may have negative weights, with other sums"""
    queries: tuple[str, ...]
    """[Tq] tokens that attend, boundary tokens included; of a decoder, the tokens that it reads. They are in the order
    of the pass, in which windows repeat sentences, and the `sentence` system sorts them"""
    keys: tuple[str, ...]
    """[Tk] tokens that are attended to, or numbers of sentences or states where they are no tokens"""


def scoring_passes(
    translator: Translator, source: Sequence[str], target: Sequence[Sequence[int]]
) -> Iterator[tuple[ModelInput, Tensor]]:
    """Yield the passes that score a translation; see `iterate_scoring_inputs`. target: token ids of each sentence."""
    sources = [translator.encode(source, "source")]
    settings = translator.tokenizer.specials, translator.search, translator.context, translator.batch_tokens
    task = Task.from_documents(translator.model, sources, *settings, translator.draft_documents(sources))
    return iterate_scoring_inputs(task, [target])


@torch.inference_mode()
def attention_maps(translator: Translator, document: Translation | Document | str) -> dict[str, AttentionMap]:
    """Return the map of each attention by name, such as `decoder cross global 2`: the last number is the layer.

    document: a translation, of a search or of `Translator.score`; a source is translated first. The weights are those
    of scoring the translation: softmax(q k / sqrt(d)) of each head (Vaswani et al. 2017, equation 1).
    Raises DocmtError for an ensemble, and for a document of more than `MAX_TOKENS` tokens or more than one pass.
    """
    translation = document if isinstance(document, Translation) else translator.translate_all([document])[0]
    pairs = [sentence for sentence in translation if sentence.source and sentence.target]
    encoded = [sentence.token_ids or translator.encode([sentence.target], "target")[0] for sentence in pairs]
    passes = [inputs for inputs, _ in scoring_passes(translator, [sentence.source for sentence in pairs], encoded)]
    size = sum(max(len(side.tokens) for side in (inputs.source, inputs.target) if side) for inputs in passes)
    if len(passes) != 1 or size > MAX_TOKENS:
        raise DocmtError(
            f"there are no attention maps of {size:,} tokens in {len(passes)} passes. Give a part of the document, of "
            f"at most {MAX_TOKENS:,} tokens and not above batch_tokens"
        )
    model, (inputs,), maps = translator.model, passes, dict[str, AttentionMap]()

    def add(record: AttentionRecord) -> None:
        maps[describe_site(record.site)] = _read_map(record, inputs, translator.tokenizer)

    with evaluation_mode(model), precision_context(model, translator.precision), record_attention(model, add):
        model(inputs)
    return maps


def _read_map(record: AttentionRecord, inputs: ModelInput, tokenizer: Tokenizer) -> AttentionMap:
    """Return the weights of a record with the tokens of its queries and keys."""
    queries = keys = _list_query_tokens(record, inputs, tokenizer)
    if isinstance(record, SentenceAttentionRecord):
        keys = [f"sentence {number}" for number in range(1, len(inputs.source.sentences) + 1)]
    elif record.attention.scope.memory != "self":
        keys = _list_key_tokens(record, inputs, tokenizer)
    heads = record.weights.shape[1] if isinstance(record, SentenceAttentionRecord) else record.attention.heads
    weights = torch.zeros(heads, len(queries) * len(keys))
    for block in record.blocks():
        for rows, is_row, columns, values in zip(block.queries, block.is_query, block.keys, block.weights, strict=True):
            # Queries repeat where an attention sees several sentences separately. Padding of keys has weight 0.
            cells = (rows[is_row] % len(queries))[:, None] * len(keys) + columns
            weights.index_add_(1, cells.flatten().cpu(), values[:, is_row].flatten(1).cpu())
    return AttentionMap(weights.view(-1, len(queries), len(keys)).numpy(), tuple(queries), tuple(keys))


def _list_query_tokens(record: AttentionRecord, inputs: ModelInput, tokenizer: Tokenizer) -> list[str]:
    sequence = record.context.sequence
    if not isinstance(sequence, Packed):  # contexts of several source sentences
        return _list_positions(sequence, inputs, tokenizer)
    side: Side = "target" if sequence is inputs.target or sequence is inputs.drafts else "source"
    return _list_tokens(sequence.tokens, tokenizer, side)


def _list_key_tokens(record: TokenAttentionRecord, inputs: ModelInput, tokenizer: Tokenizer) -> list[str]:
    """Return the tokens of a memory, or numbers of its states if they are no tokens of the input."""
    name, count = record.attention.scope.memory, len(record.memory)
    memory = record.context.memories[name]
    if memory.source_positions is not None:
        return _list_positions(memory, inputs, tokenizer)
    translated, _ = inputs.source.select_sentences(inputs.alignment.unique())
    sources, drafts = (inputs.source, translated), (inputs.drafts,)
    known = {"source": sources, "context": sources, "drafts": drafts, "earlier": drafts}
    for packed in known.get(name, ()):
        if packed is not None and len(packed.tokens) == count:
            return _list_tokens(packed.tokens, tokenizer, "source" if packed is not inputs.drafts else "target")
    return list(map(str, range(1, count + 1)))


def _list_positions(memory: Memory, inputs: ModelInput, tokenizer: Tokenizer) -> list[str]:
    """Return the tokens of a memory that joins source sentences."""
    assert memory.source_positions is not None
    tokens = inputs.source.tokens
    return _list_tokens(tokens[memory.source_positions.to(tokens.device)], tokenizer, "source")


def _list_tokens(tokens: Tensor, tokenizer: Tokenizer, side: Side) -> list[str]:
    """Return the texts of tokens [T]: `<s>` and the like of boundary tokens."""
    special = {number: name for name, number in SPECIAL_TOKEN_IDS.items()}
    words = [number for number in tokens.unique().tolist() if number not in special]
    texts = special | dict(zip(words, tokenizer.decode_batch([[number] for number in words], side), strict=True))
    return [texts[number] or f"<{number}>" for number in tokens.tolist()]
