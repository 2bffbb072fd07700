"""The module of linear attention, in the place of a softmax attention, and its options."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from torch import Tensor, nn

from docmt.model.attention import Attention
from docmt.model.features import Features, LearnedFeatures, RandomFeatures, wide
from docmt.model.kernels import Pattern
from docmt.model.linear import Fading, attend_linear
from docmt.model.sight import Sight
from docmt.model.sizes import RANDOM_CROSS_FEATURES, RANDOM_FEATURES, Linear
from docmt.model.spans import Spans


def features_of(options: Linear, heads: int, width: int, *, own: bool) -> Features:
    """The map of queries and keys [.., H, k] of attention to the sequence itself (`own`), or to the source."""
    count = options.features if own else options.cross_features
    if options.map == "learned":
        return LearnedFeatures(heads, width, count or width)
    count = count or (RANDOM_FEATURES if own else RANDOM_CROSS_FEATURES)
    return RandomFeatures(heads, width, count, options.drawing, per_dimension=options.temperature == "dimension")


class Weighing(NamedTuple):
    """What keys weigh, as for `attend_linear`; each [T, H] or None. floor: least sum of weights."""

    floor: float
    fading: Tensor | None = None
    fresh: Tensor | None = None
    salience: Tensor | None = None


class LinearAttention(Attention):
    """Attention with features (Katharopoulos et al. 2020) over what the sight names, with the gate of Wu et al. (2022).

    The gate is that of attention to what was said before, one a head or one in all: at the end of each sentence it says
    how much of all so far is left to the next.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        sight: Sight,
        options: Linear,
        joined: bool = False,
        *,
        memory_width: int | None = None,
        head_width: int = 0,
        biases: bool = True,
    ) -> None:
        """joined: the first token of a sentence ends the one before (`SentenceFrame`), and belongs to it here."""
        super().__init__(width, heads, sight, memory_width=memory_width, head_width=head_width, biases=biases)
        own = sight.memory == "self"
        self.features = features_of(options, heads, head_width or width // heads, own=own)
        self.rescaled = options.rescale and not own
        self.averaging = options.gate == "average"
        self.joined = joined
        self.gate: nn.Linear | None = None
        if sight.causal and options.gate != "none":
            self.gate = nn.Linear(width, heads if options.gates == "head" else 1)
            nn.init.xavier_uniform_(self.gate.weight)
            nn.init.constant_(self.gate.bias, options.gate_start)

    def over(self, x: Tensor, memory: Tensor, pattern: Pattern, times: int = 1) -> Tensor:
        """x [Tq, d] attends to memory [Tk, d], the same tensor for self-attention: [Tq, d].

        Raises ValueError where queries ask several times, which needs weights that can be told apart.
        """
        if times != 1:
            raise ValueError("linear attention asks once: look at sentences one by one with softmax attention")
        return self.among(x, *self.shown(memory, pattern), pattern)

    def shown(self, memory: Tensor, pattern: Pattern) -> tuple[Tensor, Tensor, Weighing]:
        """Keys and values [Tk, H, k] of memory [Tk, d], and what the keys weigh."""
        key = self.split(self.key(memory))
        return key, self.split(self.value(memory)), self.weighing(memory, key, pattern)

    def among(self, x: Tensor, key: Tensor, value: Tensor, weighing: Weighing, pattern: Pattern) -> Tensor:
        """What x [Tq, d] finds among keys and values [Tk, H, k]: [Tq, d]."""
        query = self.split(self.query(x))
        found = attend_linear(query, key, value, pattern, features=self.feature_map(), **weighing._asdict())
        return found.to(x.dtype).flatten(-2)

    def feature_map(self) -> Callable[[Tensor], Tensor]:
        """What turns queries and keys [H, n, k] of this pass into features [H, n, F]."""
        return partial(self.features, directions=self.features.directions())

    def salience(self, key: Tensor) -> Tensor | None:
        """The salience of keys [T, H, k], where keys have any: [T, H]."""
        return self.features.salience(key) if self.rescaled else None

    def weighing(self, memory: Tensor, key: Tensor, pattern: Pattern) -> Weighing:
        """What keys [T, H, k] of memory [T, d] weigh, and how that fades."""
        if self.gate is None:
            return Weighing(self.features.floor, salience=self.salience(key))
        faded = Fading.of(*self.sentence_gates(memory, pattern), pattern.keys, self.averaging)
        return Weighing(self.features.floor, faded.fading, faded.fresh)

    def asked_and_shown(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """The features of what x [Tq, d] asks, [Tq, H, F], and of what memory [Tk, d] shows, [Tk, H, F]."""
        features = self.feature_map()  # one for both: in training each is another drawing
        query, key = self.split(self.query(x)), self.split(self.key(memory))
        return features(query.transpose(0, 1)).transpose(0, 1), features(key.transpose(0, 1)).transpose(0, 1)

    def asked_features(self, x: Tensor) -> Tensor:
        """The features of what x [T, d] asks, of keys that were shown before: [T, H, F]."""
        return self.feature_map()(self.split(self.query(x)).transpose(0, 1)).transpose(0, 1)

    def values(self, memory: Tensor) -> Tensor:
        """[T, d] -> [T, H, k], float32 or wider: sums of many are made of them."""
        return wide(self.split(self.value(memory)))

    def sentence_gates(self, memory: Tensor, pattern: Pattern) -> tuple[Tensor, Spans]:
        """The gates of the last tokens of the sentences of memory [T, d], before the sigmoid: [S, H]; and these
        sentences."""
        if pattern.sentences is None:
            raise ValueError("a gate needs to know where sentences end")
        sentences = pattern.sentences.borders_later(pattern.keys) if self.joined else pattern.sentences
        ends = (sentences.ends - 1).clamp(min=0).to(memory.device)
        return self.gates(memory[ends]), sentences

    def gates(self, x: Tensor) -> Tensor:
        """The gates of x [n, d] before the sigmoid: [n, H]."""
        assert self.gate is not None
        return wide(self.gate(x)).expand(-1, self.heads)
