"""Documents laid end to end as one sequence of tokens, with nothing padded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from docmt.model.spans import Spans


@dataclass(frozen=True)
class Packed:
    """T tokens of D documents with S sentences in all.

    `tokens` [T] int64; `sentences` and `documents` both tile the T positions, and a document begins where a
    sentence begins.
    """

    tokens: Tensor
    sentences: Spans
    documents: Spans

    def to(self, device: torch.device | str) -> Packed:
        """The same with the tokens on `device` (spans stay on the host)."""
        return Packed(self.tokens.to(device), self.sentences, self.documents)

    def filled(self, multiple: int, filler: int) -> Packed:
        """The same with a last document of `filler` tokens (none, if it fits) up to a multiple of tokens.

        Matrix products are prepared anew for every new shape (about 1 ms each for bfloat16 on CPU): a training
        whose batches have few different sizes saves that.
        """
        missing = -len(self.tokens) % multiple
        return Packed(
            torch.cat((self.tokens, self.tokens.new_full((missing,), filler))),
            Spans.tile([*self.sentences.lengths.tolist(), missing]),
            Spans.tile([*self.documents.lengths.tolist(), missing]),
        )


def pack(documents: Sequence[Sequence[Sequence[int]]]) -> Packed:
    """Packs documents of sentences of token ids, marks included."""
    tokens = [token for document in documents for sentence in document for token in sentence]
    return Packed(
        torch.tensor(tokens, dtype=torch.int64),
        Spans.tile([len(sentence) for document in documents for sentence in document]),
        Spans.tile([sum(map(len, document)) for document in documents]),
    )
