"""Word alignment by the model's own attention: which source word each target word translates.

A forced pass reads source and translation. The weights of one decoder layer's attention to the source sentence,
averaged over its heads, are read at the position where a target token is the decoder's input, not where it is predicted
(Shift-Att; Chen et al. 2020, arXiv 2004.14837). Training chooses the layer (`choose_alignment_layer`).

Notation: t tokens of a target sentence, s of its source sentence, both without boundary tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from threading import get_ident
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from docmt.checkpoint.model_directory import ALIGNMENT_KEY, AlignmentLayer
from docmt.checkpoint.weights import CONFIG_FILE
from docmt.core.errors import DocmtError
from docmt.data import SentenceTokens, collate
from docmt.decoding.ensembles import Memories, Model, list_members, list_memories
from docmt.decoding.incremental import Prefixes, read_prefixes
from docmt.decoding.scheduler import OnSentences, Task, find_nonempty_pairs, select_drafts, select_sentences
from docmt.decoding.search_config import BATCH_TOKENS, ContextConfig, SearchConfig, between_steps
from docmt.decoding.search_rules import SearchRow, WordIds
from docmt.decoding.translation_results import WordLink, non_finite_error
from docmt.documents.words import Span, find_words
from docmt.model import ModelInput, Packed, TranslationModel
from docmt.model.attention import Attention
from docmt.model.attention_weights import attention_weights
from docmt.model.contexts import FullContext
from docmt.model.kernels import AttentionPattern
from docmt.model.spans import Spans
from docmt.text import SpecialTokens, Tokenizer
from docmt.text.tokenizer import SIDES, locate_tokens

Weights = NDArray[np.float32]
"""Attention weights [t, s] of a sentence pair; those of boundary tokens and of other sentences are left out, so a row
sums to at most 1."""
NO_WEIGHTS: Weights = np.zeros((0, 0), dtype=np.float32)


def default_alignment_layer(model: TranslationModel) -> AlignmentLayer:
    """Return the layer for a model without a chosen one (such as a converted one).

    It is the middle one, such as the third of six: there Chen et al. (2020) see the best alignments.
    """
    return AlignmentLayer(max(1, len(model.decoder) // 2), shifted=True)


def align_words(
    source: str, target: str, weights: Weights, source_tokens: Sequence[Span], target_tokens: Sequence[Span]
) -> tuple[WordLink, ...]:
    """Return the links of a sentence pair: for each target word, in order, its best source word.

    weights: [t, s], of tokens with these spans in the texts. Words are joined from their tokens: the weight of a source
    word is the sum over its tokens, that of a target word the mean. The best source word has the highest product of its
    weight and of the share that this is of all weights on it: else words on which much attention rests, such as the
    full stop, attract links (on a small model, AER 42 without and 35 with the share). No links without words.
    """
    source_words, target_words = find_words(source), find_words(target)
    if not source_words or not target_words or not weights.size:
        return ()
    parts = _word_shares(target_tokens, target_words)  # [t, words]
    matrix = (parts / parts.sum(0).clip(min=1e-9)).T @ weights @ _word_shares(source_tokens, source_words)
    best, reverse = (matrix**2 / matrix.sum(0).clip(min=1e-9)).argmax(1), matrix.argmax(0)
    return tuple(
        WordLink(source_words[i], target_words[j], float(matrix[j, i]), bool(reverse[i] == j))
        for j, i in enumerate(best.tolist())
    )


def _word_shares(tokens: Sequence[Span], words: Sequence[Span]) -> NDArray[np.float64]:
    """Return [tokens, words] the share of each token that belongs to each word.

    A token without characters of a word, such as a blank, belongs to the next word, or the last one.
    """
    spans, bounds = np.array(tokens).reshape(-1, 2), np.array(words)
    overlap = np.minimum(spans[:, 1:], bounds[:, 1]) - np.maximum(spans[:, :1], bounds[:, 0])
    shares = overlap.clip(min=0).astype(np.float64)
    empty = np.flatnonzero(shares.sum(1) == 0)
    following = np.searchsorted(bounds[:, 1], spans[empty, 0], side="right").clip(max=len(words) - 1)
    shares[empty, following] = 1.0
    return shares / shares.sum(1, keepdims=True)


def link_sentences(
    tokenizer: Tokenizer,
    texts: Sequence[tuple[str, str]],
    source: WordIds,
    target: WordIds,
    weights: Mapping[int, Weights],
) -> dict[int, tuple[WordLink, ...]]:
    """Return the links of some sentences of a document.

    texts: source and target text of every sentence, which `source` and `target` have as word ids. weights: of the
    sentences to link, by number.
    """
    spans = []
    for index, (side, encoded) in enumerate(zip(SIDES, (source, target), strict=True)):
        sentences = [texts[number][index] for number in weights]
        spans.append(locate_tokens(tokenizer, sentences, [encoded[number] for number in weights], side))
    return {
        number: align_words(*texts[number], matrix, *pair)
        for (number, matrix), pair in zip(weights.items(), zip(*spans, strict=True), strict=True)
    }


@torch.inference_mode()
def align_documents(
    model: Model,
    sources: Sequence[WordIds],
    targets: Sequence[WordIds],
    specials: SpecialTokens,
    config: SearchConfig = SearchConfig(),
    *,
    layers: Sequence[AlignmentLayer],
    wanted: Sequence[Collection[int]],
    context: ContextConfig = ContextConfig(),
    batch_tokens: int = BATCH_TOKENS,
    drafts: Sequence[WordIds] | None = None,
    on_sentences: OnSentences = lambda count: None,
) -> list[dict[int, Weights]]:
    """Return the attention weights of the sentences of each document, by number (from 0).

    sources, targets, drafts: as in `score_documents`; empty pairs have `NO_WEIGHTS`. layers:
    one for each member of an ensemble, whose weights are averaged. wanted: numbers of the sentences to align; only
    instances with any of them are read. Raises DocmtError where weights are not numbers.
    """
    positions = find_nonempty_pairs(sources, targets)
    drafts = select_drafts(positions, sources, drafts)
    selected = [select_sentences(positions, side) for side in (sources, targets)]
    task = Task.from_documents(model, selected[0], specials, config, context, batch_tokens, drafts)
    sentences = [(document, number) for document, numbers in enumerate(positions) for number in numbers]
    needed = {index for index, (document, number) in enumerate(sentences) if number in wanted[document]}
    result: list[dict[int, Weights]] = [dict.fromkeys(sorted(numbers), NO_WEIGHTS) for numbers in wanted]
    words = SentenceTokens.from_documents(selected[1])
    for index, matrix in align_task(task, words, layers, needed, on_sentences).items():
        document, number = sentences[index]
        result[document][number] = matrix
    return result


def align_task(
    task: Task,
    targets: SentenceTokens,
    layers: Sequence[AlignmentLayer],
    wanted: Collection[int],
    on_sentences: OnSentences = lambda count: None,
) -> dict[int, Weights]:
    """Return the attention weights of these sentences of a task, by number; see `align_documents`."""
    result = {}
    for numbers, *weights in iterate_alignment_weights(task, targets, [[layer] for layer in layers], wanted):
        for number, *matrices in zip(numbers, *(member[0] for member in weights), strict=True):
            result[number] = _average(matrices)
        on_sentences(len(numbers))
    return result


@torch.inference_mode()
def align_rows(
    model: Model,
    memories: Memories,
    rows: Sequence[SearchRow],
    specials: SpecialTokens,
    words: Sequence[Sequence[int]],
    layers: Sequence[AlignmentLayer],
    prefixes: Sequence[Prefixes] = (),
) -> list[Weights]:
    """Return the attention weights of the last sentence of each search row, as `align_documents` does.

    memories: of the sources. words: word ids of the translation of this sentence; the prefix has those before it, or
    `prefixes`, see `search`.
    """
    weights, members = [], zip(list_members(model), list_memories(memories), layers, strict=True)
    for number, (member, memory, layer) in enumerate(members):
        with _recorded_attentions(member, [layer]) as recorded:
            read_prefixes(member, memory, rows, specials, words, prefixes[number : number + 1])
        attention, x, context = recorded[layer.layer]
        target = context.sequence
        assert isinstance(target, Packed) and context.alignment is not None
        sentences = target, context.alignment, target.last_sentences()
        weights.append(_sentence_weights(member, attention, x, context, *sentences, layer.shifted))
    return [_average(matrices) for matrices in zip(*weights, strict=True)]


def _average(matrices: Sequence[Weights]) -> Weights:
    """Return the mean of the weights of each member. Raises DocmtError where they are not numbers."""
    mean: Weights = np.mean(matrices, axis=0, dtype=np.float32)
    if not np.isfinite(mean).all():
        raise non_finite_error()
    return mean


def iterate_alignment_weights(
    task: Task, targets: SentenceTokens, layers: Sequence[Sequence[AlignmentLayer]], wanted: Collection[int]
) -> Iterator[tuple[Any, ...]]:
    """Yield for each batch the numbers of its aligned sentences and, for each member, their weights by layer."""
    cut, members = task.instances, list_members(task.model)
    outputs = [[number for number in task.outputs(i) if number in wanted] for i in range(len(cut))]
    for batch in task.batches([i for i, numbers in enumerate(outputs) if numbers]):
        between_steps()
        inputs = collate(
            task.words, targets, cut, batch, task.specials, task.model.boundary_tokens, drafts=task.drafts
        ).inputs.to(task.model.device)
        aligned = [(i, number) for i in batch for number in outputs[i]]
        starts = np.cumsum([0, *(cut.last[batch] - cut.first[batch])])
        offsets = {i: int(start - cut.first[i]) for i, start in zip(batch, starts, strict=False)}
        rows = torch.tensor([offsets[i] + number for i, number in aligned])
        yield (
            [number for _, number in aligned],
            *(_read_weights(*pair, inputs, rows) for pair in zip(members, layers, strict=True)),
        )


def _read_weights(
    model: TranslationModel, layers: Sequence[AlignmentLayer], inputs: ModelInput, rows: Tensor
) -> list[list[Weights]]:
    """Return the weights [t, s] of the target sentences with these indices [n], for each layer, from one pass."""
    assert inputs.target is not None
    with _recorded_attentions(model, layers) as recorded:
        model(inputs)
    sentences = inputs.target, inputs.alignment, rows
    return [_sentence_weights(model, *recorded[layer.layer], *sentences, layer.shifted) for layer in layers]


@contextmanager
def _recorded_attentions(
    model: TranslationModel, layers: Sequence[AlignmentLayer]
) -> Iterator[dict[int, tuple[Attention, Tensor, FullContext]]]:
    """Record the attention of each of these layers, with its input, in a pass that this thread makes meanwhile."""
    recorded: dict[int, tuple[Attention, Tensor, FullContext]] = {}
    thread = get_ident()

    def record(number: int, attention: Attention, arguments: tuple[Tensor, FullContext], _: Any) -> None:
        if get_ident() == thread:  # others may translate with this model meanwhile
            recorded[number] = attention, *arguments

    attentions = {number: _find_attention(model, number) for number in {layer.layer for layer in layers}}
    handles = [module.register_forward_hook(partial(record, number)) for number, module in attentions.items()]
    try:
        yield recorded
    finally:
        for handle in handles:
            handle.remove()


def _find_attention(model: TranslationModel, layer: int) -> Attention:
    """Return the attention of a decoder layer (from 1) to the source: within the sentence, if it has several."""
    if not 1 <= layer <= len(model.decoder):
        raise DocmtError(
            f"the model's {CONFIG_FILE} reads alignments from decoder layer {layer}, but there are "
            f'{len(model.decoder)} layers. Correct or remove its entry "{ALIGNMENT_KEY}".'
        )
    modules = [module for module in model.decoder[layer - 1].modules() if isinstance(module, Attention)]
    readers = [module for module in modules if module.scope.memory == "source"]
    return min(readers, key=lambda module: module.scope.extent != "sentence")


def _sentence_weights(
    model: TranslationModel,
    attention: Attention,
    x: Tensor,
    context: FullContext,
    target: Packed,
    alignment: Tensor,
    rows: Tensor,
    shifted: bool,
) -> list[Weights]:
    """Return the weights [t, s] of these target sentences [n] in one attention, from its input x [T, d].

    alignment [S]: see `ModelInput`.
    """
    boundaries = model.boundary_tokens
    words = target.sentences.trim(*boundaries.counts("target")).select(rows)
    queries = words if shifted else Spans(words.starts - 1, words.lengths)  # where the token before is the input
    pattern = context.find(attention, x).pattern
    memory = context.memories[attention.scope.memory].select_states(attention.scope)
    segments = rows if attention.scope.extent != "document" else target.documents.find_segments(words.starts)
    keys = pattern.keys.select(segments)
    sources = context.memories["source"].sentences.trim(*boundaries.counts("source")).select(alignment[rows])
    lengths = zip(words.lengths.tolist(), sources.lengths.tolist(), strict=True)
    weights = [np.zeros(size, dtype=np.float32) for size in lengths]
    tiles = Spans.tile(words.lengths)
    index = queries.indices()

    def select_numbers() -> tuple[Tensor, Tensor]:
        query_numbers, key_numbers = pattern.sentence_numbers()
        return query_numbers[index], key_numbers

    selected = AttentionPattern(tiles, keys, False, len(memory), number_sentences=select_numbers)
    x = x.index_select(0, index.to(x.device))
    columns, starts = (sources.starts - keys.starts).tolist(), tiles.starts.tolist()
    for block in attention_weights(attention, x, memory, selected):
        means = block.shares().mean(1).cpu()  # [n, q, l]
        positions, is_query = block.queries.cpu(), block.is_query.cpu()
        numbers = tiles.find_segments(positions[:, 0].contiguous()).tolist()
        for number, mean, at, real in zip(numbers, means, positions, is_query, strict=True):
            column, size = columns[number], weights[number].shape[1]
            weights[number][at[real] - starts[number]] = mean[real, column : column + size]
    return weights
