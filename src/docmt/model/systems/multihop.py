"""The Multi-Hop Transformer (2021): one sentence of context after the other, on both sides.

Notation: S source sentences, d model width; H^n the states of layer n, A^n those behind its self-attention.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from docmt.core.errors import DocmtError
from docmt.core.settings import ranged
from docmt.model.scope import AttentionScope, ContextSpec
from docmt.model.systems.base import System

if TYPE_CHECKING:
    from torch import nn

    from docmt.model.attention import Memory
    from docmt.model.layers import Layer
    from docmt.model.model_config import Sizes
    from docmt.model.spans import ModelInput, Packed
    from docmt.model.transformer import Parts, TranslationModel

_EMBEDDINGS = "target_sentences.embeddings."


@dataclass(frozen=True)
class MultiHop(System):
    """Layers hop over the k sentences before: their source in the encoder, drafts of their translation in the decoder.

    Sentence encoders, one a side, read each sentence of a document once; layer n looks at layer n of theirs. Where the
    paper is silent: a hop has a residual branch and adds nothing where its sentence is missing; hops have weights of
    their own; one gate without bias, sigmoid(W a + U (b - a)), joins what entered and left the hops (the functions of
    the paper's, W a + U b); a feed-forward block ends each layer; drafts are read with embeddings of their own, as the
    reverse model, from which their encoder starts, has others; that of the sentence itself is never its reference.
    """

    sentences: int = ranged(3, 1, 100)
    """k, the sentences before each that it hops over"""
    direction: Literal["L2R", "R2L"] = "L2R"
    """hops from the farthest sentence to the nearest (L2R, published) or back"""
    side: Literal["both", "source", "target"] = "both"
    """where context is read: of the source (in the encoder), of the target (drafts, also its own; in the decoder)"""
    target_context: Literal["drafts", "references"] = "drafts"
    """what the target sentences before are in training: drafts, as in translation, or the references"""
    keys: Literal["attention", "output"] = "attention"
    """what hops look at: states behind the self-attention of a sentence encoder's layer (A^n, as in the paper's
    equations), or behind the whole layer (H^n)"""
    sentence_encoders: Literal["tuned", "frozen"] = "tuned"
    """whether the sentence encoders are trained further (embeddings that they share with the model always are)"""
    fusion: Literal["identity", "published"] = "identity"
    """published: a norm after the gate and after the attention to the draft, so that new weights change what a sentence
    model says; exact: no norms there, and new attentions begin at zero: the sentence model exactly"""

    @property
    def from_start(self) -> str:
        """Frozen encoders need something to be."""
        return "" if self.sentence_encoders == "tuned" else "sentence_encoders"

    def check(self, sizes: Sizes) -> None:
        """Raises DocmtError for references where no target is read."""
        if self.side == "source" and self.target_context == "references":
            raise DocmtError(
                "model.multihop.target_context is references, but side source reads no target: leave it out"
            )

    def context_spec(self) -> ContextSpec:
        """Sentences of a document and the k before them, with drafts where the target side is read."""
        drafts = self.side != "source"
        return ContextSpec(
            before=self.sentences, drafts=drafts, references=drafts and self.target_context == "references"
        )

    def encoder(self, parts: Parts) -> list[Layer]:
        """Self-attention, hops, feed-forward."""
        layers = super().encoder(parts)
        for number, layer in enumerate(layers if self.side != "target" else ()):
            self._insert_hops(layer, AttentionScope("context", depth=number), "attention", parts)
        return layers

    def decoder(self, parts: Parts) -> list[Layer]:
        """Self-attention, attention to the draft, hops, cross-attention, feed-forward."""
        layers = super().decoder(parts)
        for number, layer in enumerate(layers if self.side != "source" else ()):
            draft = parts.attention(AttentionScope("drafts", depth=number), at_zero=self.fusion == "identity")
            layer.insert("draft", draft, parts.residual(normed=self.fusion == "published"), after="attention")
            self._insert_hops(layer, AttentionScope("earlier", depth=number), "draft", parts)
        return layers

    def _insert_hops(self, layer: Layer, memory: AttentionScope, after: str, parts: Parts) -> None:
        places, exact = range(1, self.sentences + 1), self.fusion == "identity"
        order = reversed(places) if self.direction == "L2R" else places
        hops = parts.hops([replace(memory, part="before", back=back) for back in order], at_zero=exact)
        layer.insert("hops", hops, parts.gated_residual(additive=True, normed=not exact), after)

    def modules(self, parts: Parts) -> dict[str, nn.Module]:
        """The sentence encoders."""
        sides = ("source", "target") if self.side == "both" else (self.side,)
        whole, frozen = self.keys == "output", self.sentence_encoders == "frozen"
        return {f"{side}_sentences": parts.sentence_encoder(side, whole=whole, frozen=frozen) for side in sides}

    def memories(self, model: TranslationModel, inputs: ModelInput) -> Mapping[str, Memory]:
        """The encoded sentences and, by layer, what sentence encoders give. Raises ValueError without drafts."""
        from docmt.model.attention import FullContext, Memory

        source, found = inputs.source, {}
        if self.side != "target":
            found["context"] = model.get_submodule("source_sentences")(model.embed("source", source), source)
        current, _ = source.only(numbers := inputs.aligned.unique())
        states = model.run_encoder(model.embed("source", current), FullContext(current, found, numbers))
        found["source"] = Memory(states, source.sentences.with_only(numbers))
        if self.side != "source":
            if inputs.drafts is None:
                raise ValueError("this model reads drafts: give one of every source sentence (`drafts`)")
            found["drafts"] = found["earlier"] = self._read_target(model, inputs.drafts)
            if inputs.references is not None:
                found["earlier"] = self._read_target(model, inputs.references)
        return found

    def _read_target(self, model: TranslationModel, text: Packed) -> Memory:
        from docmt.model.layers import SentenceEncoder

        encoder = model.get_submodule("target_sentences")
        assert isinstance(encoder, SentenceEncoder)
        memory: Memory = encoder(model.embed("source", text, encoder.embeddings), text)
        return memory

    def origin(self, name: str) -> str | None:
        """Hops and attention to drafts are new; sentence encoders are the encoder, their embeddings the target's."""
        if ".hops" in name or ".draft" in name or "_sentences.norms." in name:
            return None
        if name.startswith(_EMBEDDINGS):
            return name.removeprefix(_EMBEDDINGS).replace("source_tokens", "target_tokens")
        return re.sub(r"^(source|target)_sentences\.layers\.", "encoder.", name)

    def origin_reverse(self, name: str) -> str | None:
        """What reads drafts is the encoder of a model that translates from the target language, with its embeddings."""
        own = self.origin(name) if name.startswith("target_sentences.") else None
        return name.removeprefix(_EMBEDDINGS) if name.startswith(_EMBEDDINGS) else own
