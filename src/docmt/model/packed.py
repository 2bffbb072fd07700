"""Documents laid end to end as one sequence of tokens, with nothing padded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from docmt.model.frame import SentenceFrame
from docmt.model.spans import Spans


@dataclass(frozen=True, eq=False)
class Packed:
    """T tokens of D documents with S sentences in all.

    `tokens` [T] int64; `sentences` and `documents` both tile the T positions, and a document begins where a
    sentence begins.
    """

    tokens: Tensor
    sentences: Spans
    documents: Spans
    counted: Spans | None = None
    """within which positions run on, where that is not `documents`"""

    def __repr__(self) -> str:
        sizes = f"{len(self.tokens)} tokens, {len(self.sentences)} sentences, {len(self.documents)} documents"
        return f"<Packed: {sizes}>"

    def to(self, device: torch.device | str) -> Packed:
        """The same with the tokens on `device` (spans stay on the host)."""
        return replace(self, tokens=self.tokens.to(device))

    def filled(self, multiple: int, filler: int) -> Packed:
        """The same with a last document of `filler` tokens (none, if it fits) up to a multiple of tokens.

        Matrix products are prepared anew for every new shape (about 1 ms each for bfloat16 on CPU): a training
        whose batches have few different sizes saves that.
        """
        missing = -len(self.tokens) % multiple
        tokens = torch.cat((self.tokens, self.tokens.new_full((missing,), filler)))
        return self._changed(tokens, lambda spans: Spans.tile([*spans.lengths.tolist(), missing]))

    @property
    def running(self) -> Spans:
        """The spans in which positions run on, unless they restart at each sentence."""
        return self.documents if self.counted is None else self.counted

    def apart(self) -> Packed:
        """The same with each sentence a document of its own, so that it sees no other; positions are as they were."""
        return replace(self, documents=self.sentences, counted=self.running)

    def document_of(self, sentences: Tensor) -> Tensor:
        """[n] the number of the document that each of these sentences is in."""
        return self._documents()[sentences]

    def only(self, sentences: Tensor) -> tuple[Packed, Tensor]:
        """These sentences alone [n, rising], and [T'] where their tokens stood."""
        index = self.sentences.select(sentences).indices()
        starts, lengths = self.sentences.starts[sentences], self.sentences.lengths[sentences]

        def kept(spans: Spans) -> Spans:
            if spans is self.sentences:
                return Spans.tile(lengths)
            per_span = torch.zeros(len(spans), dtype=torch.int64)
            return Spans.tile(per_span.index_add_(0, spans.holding(starts), lengths))

        return self._changed(self.tokens[index.to(self.tokens.device)], kept), index

    def contexts(self, count: int, frame: SentenceFrame) -> tuple[Spans, Tensor]:
        """For each sentence the `count` ones before it in its document, as one sequence (Zhang et al. 2018, 3.1).

        Returns the S contexts, laid end to end, and [T'] the position in this sequence of each of their tokens. Where
        no sentence is before it, a context is a single mark (the paper's section 3.1; the code has `</s>`, too).
        """
        numbers = torch.arange(len(self.sentences))
        documents = self._documents()
        first_of_document = torch.searchsorted(documents, documents)  # [S] sentences are in order of their documents
        first = torch.maximum(numbers - count, first_of_document)
        spans = []
        starts, lengths = self.sentences.starts.tolist(), self.sentences.lengths.tolist()
        marks = [frame.mark_of(start, length) for start, length in zip(starts, lengths, strict=True)]
        for own, begin in enumerate(first.tolist()):
            before = range(begin, own)
            spans.append(
                [frame.within_context(starts[i], lengths[i], last=i == own - 1) for i in before] or [marks[own]]
            )
        totals = [sum(length for _, length in parts) for parts in spans]
        flat = [part for parts in spans for part in parts]
        pieces = Spans(torch.tensor([start for start, _ in flat]), torch.tensor([length for _, length in flat]))
        return Spans.tile(totals), pieces.indices()

    def _changed(self, tokens: Tensor, change: Callable[[Spans], Spans]) -> Packed:
        """Other tokens, and all spans changed in the same way."""
        counted = None if self.counted is None else change(self.counted)
        return Packed(tokens, change(self.sentences), change(self.documents), counted)

    def _documents(self) -> Tensor:
        """[S] the number of the document of each sentence."""
        return self.documents.holding(self.sentences.starts)


def pack(documents: Sequence[Sequence[Sequence[int]]]) -> Packed:
    """Packs documents of sentences of token ids, marks included."""
    tokens = [token for document in documents for sentence in document for token in sentence]
    return Packed(
        torch.tensor(tokens, dtype=torch.int64),
        Spans.tile([len(sentence) for document in documents for sentence in document]),
        Spans.tile([sum(map(len, document)) for document in documents]),
    )
