"""Which sentences each sentence looks at: attention weights summed over the tokens of each sentence that is seen.

Notation: S sentences, H heads; in a block (`docmt.analysis.weights`), n segments of up to q queries and l keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from docmt.analysis.looks import GateLook, Look, Site
from docmt.analysis.weights import Block
from docmt.data.batches import Placed

_MOST_SHOWN = 25
"""Sentences of a document that a table has room for."""
TABLE = "percent of the weight of each sentence (row) on each (column), mean over layers and heads"
EVEN = -1
"""Instead of a head: attention that is even over all tokens that are seen."""
NOTHING_CHOSEN = "no attention of this model chooses among several sentences"


class Sums:
    """Weights of a block, summed over the tokens of each sentence that is seen. Sentences have their numbers in the
    packed source."""

    def __init__(self, look: Look, placed: Placed, block: Block) -> None:
        """block: one of the look's."""
        asking = look.query_sentences()
        seen = look.key_sentences(placed.reading.source.sentences)[block.keys.cpu()]  # [n, l]
        self.queries = block.queries.cpu()
        """[n, q] positions in what is computed"""
        self.asking = asking[self.queries]
        """[n, q] the sentence of each"""
        self.counts = block.real.cpu() & placed.own[self.asking]
        """[n, q] bool: whether they are queries of sentences that are translated in this pass"""
        self.seen = seen.amin(1)
        """[n] the first sentence that is seen"""
        columns = _one_hot(seen - self.seen[:, None]).to(block.weights.device)  # [n, l, c]
        even = block.seen / block.seen.sum(-1, keepdim=True).clamp(min=1)  # [n, q or 1, l]
        by_head = (block.shares() @ columns[:, None]).cpu()  # [n, H, q, c]
        self.weights = torch.cat((by_head, (even @ columns).cpu()[:, None].expand_as(by_head[:, :1])), dim=1)
        """[n, H + 1, q, c]: how much each query looks at sentence seen + c; the last head stands for attention that is
        even over all tokens that the query sees, as a long sentence gets more weight than a short one anyway"""

    def by_sentence(self) -> tuple[Tensor, Tensor]:
        """[n] the first sentence that asks, and [n, r, c, H + 1] what the queries that count of sentence first + r look
        at, added up."""
        first = self.asking.amin(1)
        rows = _one_hot(self.asking - first[:, None]) * self.counts[..., None]  # [n, q, r]
        return first, torch.einsum("nqr,nhqc->nrch", rows, self.weights)


def _one_hot(numbers: Tensor) -> Tensor:
    """[n, l] -> [n, l, largest + 1], float32"""
    return F.one_hot(numbers).to(torch.float32)


class Row(NamedTuple):
    """What a sentence looks at, from sentence `first` on."""

    first: int
    weights: Tensor
    """[c], or [c, H + 1]: of each head, and of even attention"""

    def of(self, head: int | None) -> Row:
        """Of one head (`EVEN`: of even attention), or the mean over the heads: [c, H + 1] -> [c]"""
        return Row(self.first, self.weights[:, :-1].mean(1) if head is None else self.weights[:, head])

    def plus(self, other: Row) -> Row:
        """Both, added up."""
        first = min(self.first, other.first)
        end = max(row.first + len(row.weights) for row in (self, other))
        total = self.weights.new_zeros(end - first, *self.weights.shape[1:])
        for row in (self, other):
            total[row.first - first : row.first - first + len(row.weights)] += row.weights
        return Row(first, total)


@dataclass
class Map:
    """Which sentences the sentences of one document look at in one attention."""

    site: Site
    sums: dict[int, Row] = field(default_factory=dict)
    """by sentence, over its tokens"""

    def add(self, sentence: int, row: Row) -> None:
        """Adds what tokens of a sentence look at."""
        self.sums[sentence] = self.sums[sentence].plus(row) if sentence in self.sums else row

    def rows(self, head: int | None = None) -> dict[int, Row]:
        """By sentence, on average over its tokens and over all heads (or of one, from 0): weights [c] that sum to 1.

        Sentences that see nothing are left out.
        """
        found = {}
        for sentence, row in self.sums.items():
            total = row.weights.sum(0, keepdim=True)  # [1, H + 1]: a weight of 1 for each token
            if float(total.max()) > 0:
                found[sentence] = Row(row.first, row.weights / total).of(head)
        return found


def mean_rows(maps: Sequence[Mapping[int, Row]]) -> dict[int, Row]:
    """The rows of several attentions on average; of each sentence over those in which it sees something."""
    found: dict[int, Row] = {}
    counts: dict[int, int] = {}
    for rows in maps:
        for sentence, row in rows.items():
            found[sentence] = found[sentence].plus(row) if sentence in found else row
            counts[sentence] = counts.get(sentence, 0) + 1
    return {sentence: Row(row.first, row.weights / counts[sentence]) for sentence, row in sorted(found.items())}


class DocumentLooks:
    """What the sentences of one document look at, and how far gates are open at their tokens; it grows pass by pass."""

    def __init__(self, sentences: int, sentence: int | None = None) -> None:
        """sentences: how many the document has; sentence: one of them, of which each token is told apart."""
        self.sentences, self.sentence = sentences, sentence
        self.maps: dict[Site, Map] = {}
        """of attentions that see several sentences and choose among them"""
        self.token_maps: dict[Site, dict[int, Row]] = {}
        """the same for the tokens of one sentence, by position"""
        self.gates: dict[Site, dict[int, list[float | None]]] = {}
        """by sentence, for each token of the source (gates of the encoder) or of the decoder input: how far context
        is let in, on average over the elements; None: there is none"""
        self.tokens: dict[str, dict[int, list[int]]] = {"source": {}, "target": {}}
        """ids by side and sentence, marks included"""

    def read(self, placed: Placed) -> None:
        """Notes the tokens of a pass."""
        reading = placed.reading
        assert reading.target is not None
        for side, packed, numbers in (
            ("source", reading.source, torch.arange(len(reading.source.sentences))),
            ("target", reading.target, reading.aligned),
        ):
            own = packed.tokens.split(packed.sentences.lengths.tolist())
            for number, tokens in zip(numbers.tolist(), own, strict=True):
                if placed.own[number]:
                    self.tokens[side][int(placed.numbers[number])] = tokens.tolist()

    def look(self, look: Look, placed: Placed) -> None:
        """Adds what one attention looks at in a pass."""
        if not look.chooses:
            return
        own = self.maps.setdefault(look.site, Map(look.site))
        for block in look.blocks():
            sums = Sums(look, placed, block)
            firsts, weights = sums.by_sentence()
            for segment, offset in weights.flatten(2).any(2).nonzero().tolist():
                number = int(placed.numbers[firsts[segment] + offset])
                own.add(number, _row_of(weights[segment, offset], int(sums.seen[segment]), placed))
            if self.sentence is not None:
                self._look_at_tokens(look.site, sums, placed)

    def _look_at_tokens(self, site: Site, sums: Sums, placed: Placed) -> None:
        """Notes what each token of the one sentence looks at, by position."""
        own = self.token_maps.setdefault(site, {})
        chosen = sums.counts & (placed.numbers[sums.asking] == self.sentence)
        for segment, query in chosen.nonzero().tolist():
            weights = sums.weights[segment, :, query].T  # [c, H]
            own[int(sums.queries[segment, query])] = _row_of(weights, int(sums.seen[segment]), placed)

    def gate(self, gate: GateLook, placed: Placed) -> None:
        """Adds how far a gate was open in a pass."""
        found = self.gates.setdefault(gate.site, {})
        numbers, shares = gate.query_sentences(), gate.shares.mean(-1).tolist()
        there = gate.there(placed.reading.source.sentences).tolist()
        for position, number in enumerate(numbers.tolist()):
            if placed.own[number]:
                share = shares[position] if there[position] else None
                found.setdefault(int(placed.numbers[number]), []).append(share)

    def kinds(self) -> list[str]:
        """Of the maps, in the order of the model's modules."""
        return list(dict.fromkeys(site.kind for site in self.maps))

    def rows(self, kind: str, layer: int | None = None, head: int | None = None) -> dict[int, Row]:
        """Of one kind of attention, on average over layers and heads, or of one layer (from 1) or head (from 0)."""
        chosen = [own for site, own in self.maps.items() if site.kind == kind and layer in (None, site.layer)]
        return mean_rows([own.rows(head) for own in chosen])

    def token_rows(self, kind: str, layer: int | None = None, head: int | None = None) -> dict[int, Row]:
        """The same for the tokens of the one sentence, in their order."""
        chosen = [own for site, own in self.token_maps.items() if site.kind == kind and layer in (None, site.layer)]
        found = mean_rows([{place: row.of(head) for place, row in own.items()} for own in chosen])
        return dict(enumerate(found[place] for place in sorted(found)))

    def to_json(self) -> dict[str, Any]:
        """Maps and gates, of all layers; sentences are counted from 1.

        Of each sentence (and of each token of the one sentence) there is what it looks at, from sentence `first` on
        (null: nothing), and what it would with even attention; of each token how far gates let context in.
        """
        return {
            "attention": [
                {
                    "kind": kind,
                    "rows": _json_rows(self.rows(kind), self.rows(kind, head=EVEN), self.sentences),
                    "layers": [
                        {"layer": site.layer, "rows": _json_rows(own.rows(), own.rows(EVEN), self.sentences)}
                        for site, own in self.maps.items()
                        if site.kind == kind
                    ],
                    **self._json_tokens(kind),
                }
                for kind in self.kinds()
            ],
            "gates": [
                {
                    "kind": site.kind,
                    "layer": site.layer,
                    "tokens": [
                        [None if share is None else round(share, 4) for share in tokens.get(sentence, [])]
                        for sentence in range(self.sentences)
                    ],
                }
                for site, tokens in self.gates.items()
            ],
        }

    def format(self) -> str:
        """A table for each kind of attention, in percent; of a long document the words where to find it."""
        if not self.maps:
            return NOTHING_CHOSEN
        if self.sentences > _MOST_SHOWN:
            return f"which sentences its {self.sentences} sentences look at is in the picture (--figure) and in --json"
        return "\n\n".join(
            f"{kind.replace('_', ' ')}: {TABLE}\n{self._table(self.rows(kind))}" for kind in self.kinds()
        )

    def _table(self, rows: Mapping[int, Row]) -> str:
        numbers = range(self.sentences)
        lines = [" " * 4 + "".join(f"{number + 1:>4}" for number in numbers)]
        for sentence in numbers:
            row = rows.get(sentence)
            cells = ["   ."] * self.sentences
            for place, weight in enumerate(
                [] if row is None else row.weights.tolist(), 0 if row is None else row.first
            ):
                cells[place] = f"{100 * weight:4.0f}"
            lines.append(f"{sentence + 1:>4}" + "".join(cells))
        return "\n".join(lines)

    def _json_tokens(self, kind: str) -> dict[str, Any]:
        if self.sentence is None:
            return {}
        rows, even = self.token_rows(kind), self.token_rows(kind, head=EVEN)
        return {"sentence": self.sentence + 1, "tokens": _json_rows(rows, even, len(rows))}


def _row_of(weights: Tensor, first: int, placed: Placed) -> Row:
    """Weights [c, H], not all 0, on the sentences from `first` on, numbered in the packed source.

    At both ends there may be sentences that are not seen, of other instances even.
    """
    seen = weights.any(1).nonzero().flatten().tolist()
    return Row(int(placed.numbers[first + seen[0]]), weights[seen[0] : seen[-1] + 1])


def _json_rows(rows: Mapping[int, Row], even: Mapping[int, Row], count: int) -> list[dict[str, Any] | None]:
    found: list[dict[str, Any] | None] = [None] * count
    for number, row in rows.items():
        weights, evenly = ([round(weight, 5) for weight in own[number].weights.tolist()] for own in (rows, even))
        found[number] = {"first": row.first + 1, "weights": weights, "even": evenly}
    return found


def side_of(kind: str) -> str:
    """Whose tokens an attention or a gate of this kind stands at: of the source, or of the decoder input."""
    return "target" if "decoder" in kind.split("_")[:2] else "source"
