"""Noise in place of context: a control for what context adds (after Li et al. 2020, "Does Multi-Encoder Help?").

They found that a context encoder also acts as a generator of noise, which makes training robust. A model that scores as
well after noise as after the true context gains nothing from its content. Here noise replaces the embeddings of the
words of context sentences, in source, target and drafts. All systems read context through embeddings alone, so none
needs code of its own. (States of a context encoder, as in the paper, exist in few systems.) Boundary tokens and
positions stay.

A noise word is an id beyond all vocabularies: its noise vector and the word that it replaces. So copies, selections and
comparisons of tokens treat it as they treat words.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from docmt.core.settings import assigned

_VECTORS = 4096  # noise vectors
_STRIDE = 1 << 24  # above all vocabularies; a noise word is number of vector (from 1) * stride + word
_seed: ContextVar[int | None] = ContextVar("seed of the noise vectors", default=None)


@dataclass(frozen=True)
class ContextNoise:
    """Noise in place of all sentences but one of each document.

    The noise of a sentence depends on its words and the seed alone. So it is equal for all candidates of an item, in
    any batch.
    """

    kept: Sequence[int]
    """number of the sentence of each document that stays, from 0"""
    seed: int = 1

    def replace_context(self, documents: Sequence[Sequence[Sequence[int]]]) -> list[list[Sequence[int]]]:
        """Return documents of word ids with noise words in all sentences but the kept ones.

        Raises ValueError for another number of documents.
        """
        return [
            [words if number == kept else self._draw(words) for number, words in enumerate(document)]
            for document, kept in zip(documents, self.kept, strict=True)
        ]

    def _draw(self, words: Sequence[int]) -> list[int]:
        drawn = np.random.default_rng([self.seed, *words]).bit_generator.random_raw(len(words)) % _VECTORS
        return [(vector + 1) * _STRIDE + word for vector, word in zip(drawn.tolist(), words, strict=True)]

    def readable(self) -> AbstractContextManager[None]:
        """Let models read noise words while the block runs."""
        return assigned(_seed, self.seed)


def replaced_words(tokens: Tensor) -> Tensor:
    """Return tokens [...] with the replaced words in place of noise words."""
    return tokens % _STRIDE


def look_up(table: nn.Embedding, tokens: Tensor) -> Tensor:
    """Return the rows of the table for tokens [...]: [..., d]; for noise words, if readable, vectors from N(0, s^2).

    s is the root mean square of the table, so noise is as long as embeddings are.
    """
    seed = _seed.get()
    if seed is None:
        return table(tokens)
    vectors, numbers = table(replaced_words(tokens)), tokens // _STRIDE
    scale = table.weight.float().square().mean().sqrt()
    noise = (scale * _draw_vectors(table.embedding_dim, seed).to(scale.device)).to(vectors.dtype)
    return torch.where(numbers[..., None] > 0, noise[numbers - 1], vectors)


@lru_cache(maxsize=4)
def _draw_vectors(width: int, seed: int) -> Tensor:
    return torch.randn(_VECTORS, width, generator=torch.Generator().manual_seed(seed))
