"""Smaller vocabularies for pretrained models: without the tokens that a corpus does not need.

A model for a hundred languages has ten times the embeddings that two of them use. What is dropped cannot change how
the sentences of the corpus are split: a unigram model's best path is still there, and nothing better has come;
byte-pair encoding keeps whatever it makes on its way to a piece that is used, in the same order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice

from docmt.core.errors import DocmtError
from docmt.text.checks import check_text
from docmt.text.pretrained import PretrainedTokenizer, Vocabulary
from docmt.text.tokenizer import SIDES, Side, SideSentence, SpecialTokens

_TOGETHER = 10_000
"""Sentences that are split at once."""


def kept(
    tokenizer: PretrainedTokenizer, sentences: Iterable[SideSentence], always: Collection[str] | None = None
) -> PretrainedTokenizer:
    """A tokenizer with the tokens that these sentences need, single characters and bytes, and these marks.

    always: symbols that are kept besides; by default all marks of languages. Other text falls into smaller pieces,
    bytes or <unk>. `rows` of the result are those of the directory that was converted: rows of embeddings to keep.
    Raises DocmtError for a symbol that there is not, and for lone surrogates.
    """
    marks = set(tokenizer.language_marks().values() if always is None else always)
    symbols = {side: set(tokenizer.vocabularies[side].symbols) for side in SIDES}
    if unknown := marks - symbols["source"] - symbols["target"]:
        raise DocmtError(f"the tokenizer has no symbol {min(unknown)!r}: name one of its vocabulary")
    used = _used(tokenizer, sentences)
    needed = {side: tokenizer.pieces[side].needed(used[side] | marks) for side in SIDES}
    pruned = {side: tokenizer.pieces[side].restricted(needed[side]) for side in SIDES}
    if tokenizer.shares_vocabulary:
        needed["source"] = needed["target"] = needed["source"] | needed["target"]
    vocabularies = {side: _without(tokenizer.vocabularies[side], needed[side] | marks) for side in SIDES}
    pieces = {side: type(tokenizer.pieces[side])(pruned[side], vocabularies[side].words()) for side in SIDES}
    languages = {code: mark for code, mark in tokenizer.language_marks().items() if mark in marks}
    return PretrainedTokenizer(vocabularies, pieces, languages, tokenizer.clean_up)


def _used(tokenizer: PretrainedTokenizer, sentences: Iterable[SideSentence]) -> dict[Side, set[str]]:
    """The pieces of each side's sentences; those of both where the sides are alike."""
    used: dict[Side, set[str]] = {side: set() for side in SIDES}
    for batch in _batches(sentences):
        for side in SIDES:
            own = [sentence for of, sentence in batch if of == side]
            check_text(own)
            used[side] |= tokenizer.pieces[side].used(own)
    if tokenizer.sides_alike:
        used["source"] = used["target"] = used["source"] | used["target"]
    return used


def _batches(sentences: Iterable[SideSentence]) -> Iterator[list[SideSentence]]:
    iterator = iter(sentences)
    while batch := list(islice(iterator, _TOGETHER)):
        yield batch


def _without(vocabulary: Vocabulary, needed: Collection[str]) -> Vocabulary:
    """The vocabulary with special tokens of ours and these symbols only."""
    first, size = SpecialTokens.first_word, len(vocabulary.symbols)
    words = [token for token in range(first, size - 2) if vocabulary.symbols[token] in needed]
    return vocabulary.ordered([*range(first), *words, size - 2, size - 1])
