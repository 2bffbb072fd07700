"""The encoder-decoder in which every system is composed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docmt.model.attention import FullView, Memory, SharedView, View
from docmt.model.config import ModelConfig
from docmt.model.layers import Dropout, run
from docmt.model.parts import Head, Parts
from docmt.model.spans import Packed, Reading, pack

SentenceIds = Sequence[Sequence[int]]


class TranslationModel(nn.Module):
    """A Transformer over packed documents, made of the parts of its family in the way of its system.

    Streams (marks included): source and decoder input are `<s> w .. </s>` per sentence, labels are the decoder
    input shifted left by one with the end-of-document mark in the end; families may have other marks.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        config = config.filled()
        self.config, self.system = config, config.chosen
        self.parts = Parts(config)
        reading = self.parts.encoder
        for name, module in self.parts.embeddings().items():
            self.add_module(name, module)
        self.encoder = nn.ModuleList(self.system.encoder(reading))
        self.decoder = nn.ModuleList(self.system.decoder(self.parts))
        self.encoder_norm = reading.norm() if reading.pre_norm else None
        self.decoder_norm = self.parts.norm() if self.parts.pre_norm else None
        self.above_encoder = nn.ModuleList(self.system.above_encoder(reading))
        self.above_decoder = nn.ModuleList(self.system.above_decoder(self.parts))
        for name, module in self.system.modules(self.parts).items():
            self.add_module(name, module)
        self.dropout = Dropout(config.dropout)
        # Stands in for the product with the head, or with the whole one, where a translator has rearranged its weights.
        self.projection: nn.Module | None = None

    def __repr__(self) -> str:
        millions = sum(weights.numel() for weights in self.parameters()) / 1e6
        return f"<TranslationModel: {millions:.1f} million parameters on {self.device}, {self.config}>"

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def memories(self, reading: Reading) -> Mapping[str, Memory]:
        """What the decoder can look at, computed once for what is read."""
        return self.system.memories(self, reading)

    def forward(self, reading: Reading) -> Tensor:
        """Decoder states before the output projection: [Tt, d], or [n, d] of the predicted positions alone.

        Raises ValueError where source and target do not belong together.
        """
        target = reading.target
        if target is None:
            raise ValueError("a forward pass needs decoder input: give the reading a target")
        x, memories = self.embed("target", target), self.memories(reading)
        if reading.same is None:
            states = self.decode(x, FullView(target, memories, reading.aligned, reading.documents))
            return states if reading.predicted is None else states.index_select(0, reading.predicted)
        view = SharedView(target, memories, reading.aligned, reading.documents, reading.same)
        states = self.decode(x.index_select(0, view.computed), view)
        return states.index_select(0, view.place if reading.predicted is None else view.place[reading.predicted])

    def encode(self, source: Packed) -> Tensor:
        """Encoder states [Ts, d] of a source that looks at nothing but itself."""
        return self.run_encoder(self.embed("source", source), FullView(source))

    def memory(self, source: Packed) -> Memory:
        """What `encode` gives, as something to look at."""
        return Memory.of(self.encode(source), source)

    def run_encoder(self, x: Tensor, view: View) -> Tensor:
        """Embedded source [Ts, d] -> encoder states [Ts, d]."""
        x = run(self.encoder, x, view)
        return run(self.above_encoder, self.encoder_norm(x) if self.encoder_norm is not None else x, view)

    def decode(self, x: Tensor, view: View) -> Tensor:
        """Embedded decoder input [..., d] -> decoder states [..., d]."""
        x = run(self.decoder, x, view)
        return run(self.above_decoder, self.decoder_norm(x) if self.decoder_norm is not None else x, view)

    def embed(self, side: str, packed: Packed, own: nn.Module | None = None) -> Tensor:
        """Tokens embedded with their positions, as the first layer reads them: [T, d].

        own: embeddings to take instead of the model's, in a module that has them by the same names.
        """
        return self.place(side, self.parts.lookup(own or self, side, packed.tokens), packed, own)

    def place(self, side: str, vectors: Tensor, packed: Packed, own: nn.Module | None = None) -> Tensor:
        """Embedded tokens [T, d] with their positions; own: as `embed` has it."""
        placed: Tensor = self.dropout(self.parts.place(own or self, side, vectors, self.positions(packed)))
        return placed

    def embed_step(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Decoder input of single tokens [R] at positions [R]: [R, d]."""
        placed: Tensor = self.dropout(
            self.parts.place(self, "target", self.parts.lookup(self, "target", tokens), positions)
        )
        return placed

    def positions(self, packed: Packed) -> Tensor:
        """[T] position of every token in its document or sentence, as the model counts them."""
        spans = packed.sentences if self.config.restarts else packed.running
        return spans.positions().to(packed.tokens.device)

    def head(self) -> Head:
        """The matrix that states are multiplied with, and the id of its first row."""
        return self.parts.head(self)

    def project(self, states: Tensor) -> Tensor:
        """States [..., d] to logits [..., V]; minus infinity for ids that the head lacks."""
        head = self.head()
        if head.scale != 1.0:
            states = states * head.scale
        product = partial(F.linear, weight=head.weight, bias=head.bias) if self.projection is None else self.projection
        logits: Tensor = product(states)
        missing = self.config.vocabulary_size - logits.shape[-1]
        return F.pad(logits, (head.first, missing - head.first), value=-torch.inf) if missing else logits

    @torch.no_grad()
    def logits(
        self, pairs: Sequence[tuple[SentenceIds, SentenceIds]], drafts: Sequence[SentenceIds] = ()
    ) -> list[Tensor]:
        """Logits [decoder input tokens, V] of each document, one row for each decoder input position.

        `pairs` holds (source sentences, target sentences) as lists of token ids with their marks (`<s> .. </s>`);
        the target sentences are the decoder input. `drafts`, for systems that need them, has a document for each pair,
        laid out as its source. Dropout is off; the model's mode is left as it was. Raises
        ValueError where a document has unequal numbers of them, but for the plain document system.
        """
        self.system.check_counts(pairs)
        was_training = self.training
        self.eval()
        try:
            source, target = (pack([pair[side] for pair in pairs]) for side in (0, 1))
            # Where counts differ no attention asks which sentences belong together.
            aligned = torch.arange(len(target.sentences))
            reading = Reading(source, aligned, target, drafts=pack(drafts) if drafts else None)
            logits = self.project(self(reading.to(self.device)))
        finally:
            self.train(was_training)
        return list(logits.split(target.documents.lengths.tolist()))
