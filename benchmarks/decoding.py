"""Translation speed: whole documents of known length through the real search, by a model with random weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

import numpy as np
import torch

from benchmarks.measure import Case, Finding, Result, interleave
from benchmarks.sentences import Sentences, parallel_lengths, random_words
from docmt.decoding import SearchConfig
from docmt.decoding.frame import Row
from docmt.decoding.precision import Precision, computing_in, lower_precision
from docmt.decoding.search import search
from docmt.model import ModelConfig, Reading, TranslationModel, pack
from docmt.text import SpecialTokens

PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
# Target tokens a second of the published code at base size on two cores, one document at a time, by beam and target
# tokens of the document. For orientation: measured on another day, in float32, on a machine of the same kind.
PUBLISHED = {1: {128: 57, 512: 59, 1024: 51}, 5: {128: 37, 512: 31, 1024: 22}}


@dataclass(frozen=True)
class Settings:
    """What is measured."""

    model: ModelConfig
    beams: tuple[int, ...] = (1, 5)
    document_tokens: tuple[int, ...] = (128, 512, 2048)
    rounds: dict[int, tuple[int, ...]] = field(default_factory=lambda: {1: (3, 2, 1), 16: (2, 1, 1)})
    """how often each length is done, by documents searched at a time: the long ones take minutes"""
    growth: float | None = 1.5
    """target: cost of a token in the longest documents against the shortest"""
    published: dict[int, dict[int, int]] = field(default_factory=dict)
    """target tokens a second by beam and tokens of a document"""
    aims: dict[int, float] = field(default_factory=dict)
    """how many times as fast as that it should be, by documents at a time"""


FULL = Settings(
    ModelConfig(system="group", preset="base", vocabulary_size=30000, instance_tokens=4096),
    published=PUBLISHED,
    aims={1: 3.0, 16: 10.0},
)
QUICK = Settings(
    ModelConfig(
        system="group",
        preset="tiny",
        width=64,
        feed_forward=128,
        encoder_layers=2,
        decoder_layers=2,
        vocabulary_size=500,
        instance_tokens=1024,
    ),
    document_tokens=(32, 128),
    rounds={1: (2, 1), 4: (1, 1)},
    growth=None,
)


def run(settings: Settings) -> Result:
    """Tokens a second (marks included) by precision, beam, documents at a time and their length."""
    specials = SpecialTokens(settings.model.vocabulary_size)
    models = {precision: never_ending(settings.model, specials, precision) for precision in PRECISIONS}
    cases: dict[tuple[Precision, int, int, int], Case] = {}
    for precision, beam, count in product(PRECISIONS, settings.beams, settings.rounds):
        for tokens, rounds in zip(settings.document_tokens, settings.rounds[count], strict=True):
            cases[precision, beam, count, tokens] = Case(
                {"precision": precision, "beam": beam, "documents": count, "document_tokens": tokens},
                _search(models[precision], precision, beam, [tokens] * count, rounds),
                rounds,
            )
    interleave("decoding (searches)", list(cases.values()))
    speeds = {key: case.tokens_per_second for key, case in cases.items()}
    described = {**asdict(settings), "model": asdict(settings.model.filled())}
    return Result(described, [case.to_row() for case in cases.values()], _findings(settings, speeds))


def never_ending(config: ModelConfig, specials: SpecialTokens, precision: Precision) -> TranslationModel:
    """A model with random weights that never ends a sentence of its own will, so that lengths are known.

    One element of every decoder state is made a large constant that only the logit of `</s>` sees.
    """
    torch.manual_seed(1)
    model = TranslationModel(config).eval()
    last: Any = model.decoder[-1]
    with torch.no_grad():
        last.feed_forward_residual.norm.bias[0] = 10.0
        embedding = model.head().weight
        embedding[:, 0] = 0.0
        embedding[specials.eos, 0] = -10.0
    return lower_precision(model, precision)


def _search(
    model: TranslationModel, precision: Precision, beam: int, totals: list[int], rounds: int
) -> Callable[[], int]:
    """The search for translations of documents with `totals` target tokens, of other ones in each round."""
    specials = SpecialTokens(model.config.vocabulary_size)
    generator = np.random.default_rng(totals)
    # Every sentence is closed at its limit, one word more than its source has.
    config = SearchConfig(beam=beam, max_length_ratio=1.0, max_length_extra=1.0)

    def document(total: int) -> Sentences:
        lengths, _ = parallel_lengths(total, generator)
        return random_words([length - 1 for length in lengths], specials, generator)

    batches = iter([[document(total) for total in totals] for _ in range(rounds)])

    def work() -> int:
        documents = next(batches)
        marked = [[[specials.bos, *sentence, specials.eos] for sentence in document] for document in documents]
        reading = Reading(pack(marked), torch.arange(sum(map(len, documents))))
        rows: list[Row] = []
        for document in documents:
            first = rows[-1].sentences[-1] + 1 if rows else 0
            rows.append(Row(range(first, first + len(document)), [len(sentence) for sentence in document]))
        with computing_in(model, precision), torch.inference_mode():
            found = search(model, model.memories(reading), rows, specials, config)
        made = sum(len(sentence) + 2 for best, *_ in found for sentence in best.sentences)
        if made != sum(totals):
            raise RuntimeError(f"the search gave {made} tokens instead of {sum(totals)}")
        return made

    return work


def _findings(settings: Settings, speeds: dict[tuple[Precision, int, int, int], float]) -> list[Finding]:
    findings = []
    shortest, longest = min(settings.document_tokens), max(settings.document_tokens)
    for precision, beam, count in product(PRECISIONS, settings.beams, settings.rounds):
        what = f"{precision}, beam {beam}, {count} at a time"
        speed = {tokens: speeds[precision, beam, count, tokens] for tokens in settings.document_tokens}
        findings.append(
            Finding(
                f"{what}: cost of a token at {longest} against {shortest}",
                speed[shortest] / speed[longest],
                at_most=settings.growth,
            )
        )
        published = settings.published.get(beam, {})
        for tokens in settings.document_tokens if published else ():
            # The published code was not measured beyond 1024 tokens.
            near = min(published, key=lambda length: abs(length - tokens))
            findings.append(
                Finding(
                    f"{what}: speed at {tokens} against the published code's {published[near]} tokens/s at {near}",
                    speed[tokens] / published[near],
                    at_least=settings.aims.get(count),
                )
            )
    return findings
