"""The model of every system: a system composes the layers of an encoder and a decoder, and computes memories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from docmt.model.builder import EncoderDecoder, ModelBuilder
from docmt.model.contexts import FullContext, Memory, SharedContext
from docmt.model.model_config import ModelConfig
from docmt.model.spans import ModelInput, pack

SentenceIds = Sequence[Sequence[int]]


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Turn dropout off while the block runs, then restore the mode of the model."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


class TranslationModel(EncoderDecoder):
    """Transformer over packed documents, with the parts of a family in the composition of a system.

    Token streams include boundary tokens. Source and decoder input are `<s> w .. </s>` per sentence. Labels are the
    decoder input shifted left by one, with the end-of-document token at the end. Families may have other ones.
    """

    def __init__(self, config: ModelConfig) -> None:
        config = config.resolve()
        builder = ModelBuilder(config)
        super().__init__(builder)
        self.config, self.system = config, config.system_options
        self.restarts_positions = config.restarts_positions
        self.encoder.extend(self.system.build_encoder(builder.encoder))
        self.decoder.extend(self.system.build_decoder(builder))
        self.above_encoder.extend(self.system.build_above_encoder(builder.encoder))
        self.above_decoder.extend(self.system.build_above_decoder(builder))
        for name, module in self.system.build_modules(builder).items():
            self.add_module(name, module)
        for name, weights in self.named_parameters():
            if self.system.is_frozen(name):
                weights.requires_grad_(False)

    def __repr__(self) -> str:
        millions = sum(weights.numel() for weights in self.parameters()) / 1e6
        return f"<TranslationModel: {millions:.1f} million parameters on {self.device}, {self.config}>"

    def compute_memories(self, inputs: ModelInput) -> Mapping[str, Memory]:
        """Compute the memories of the decoder, once per input."""
        return self.system.compute_memories(self, inputs)

    def forward(self, inputs: ModelInput) -> Tensor:
        """Return decoder states before the output projection: [Tt, d], or [n, d] of the label positions.

        Raises ValueError for an input without a target.
        """
        target = inputs.target
        if target is None:
            raise ValueError("a forward pass needs decoder input: set the target of the input")
        x, memories = self.embed("target", target), self.compute_memories(inputs)
        context = FullContext(target, memories, inputs.alignment, inputs.document_alignment)
        if inputs.representatives is None:
            states = self.decode(x, context)
            return states if inputs.label_positions is None else states.index_select(0, inputs.label_positions)
        shared = SharedContext(context, inputs.representatives)
        states = self.decode(x.index_select(0, shared.unique), shared)
        positions = shared.inverse if inputs.label_positions is None else shared.inverse[inputs.label_positions]
        return states.index_select(0, positions)

    @torch.no_grad()
    def logits(
        self, pairs: Sequence[tuple[SentenceIds, SentenceIds]], drafts: Sequence[SentenceIds] = ()
    ) -> list[Tensor]:
        """Return the logits [decoder input tokens, V] of each document.

        `pairs` holds (source sentences, target sentences) of token ids with boundary tokens (`<s> .. </s>`). The target
        sentences are the decoder input. `drafts` has a document per pair, laid out as its source, for systems that read
        drafts. Dropout is off, and the mode of the model is restored. Raises ValueError for a document with unequal
        numbers of sentences, except in the document system.
        """
        for number, (source_sentences, target_sentences) in enumerate(pairs if self.system.rules == "frame" else (), 1):
            if len(source_sentences) != len(target_sentences):
                raise ValueError(
                    f"document {number} has {len(source_sentences)} source but {len(target_sentences)} target "
                    "sentences: give one target sentence per source sentence"
                )
        with evaluation_mode(self):
            source, target = (pack([pair[side] for pair in pairs]) for side in (0, 1))
            # If counts differ, no attention uses the alignment.
            alignment = torch.arange(len(target.sentences))
            inputs = ModelInput(source, alignment, target, drafts=pack(drafts) if drafts else None)
            logits = self.project(self(inputs.to(self.device)))
        return list(logits.split(target.documents.lengths.tolist()))
