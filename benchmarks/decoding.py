"""Translation speed: whole documents of known length through the real search, by a model with random weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

import numpy as np
import torch

from benchmarks.measure import Case, Finding, Result, interleave
from benchmarks.sentences import Sentences, draw_parallel_lengths, draw_words
from docmt.decoding import SearchConfig
from docmt.decoding.beam_search import search
from docmt.decoding.search_rules import SearchRow
from docmt.model import ModelConfig, ModelInput, TranslationModel, pack
from docmt.model.products import Precision, precision_context, prepare_products
from docmt.text import SpecialTokens

PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
# How many times as fast as the published code one document of 512 tokens was translated where both ran in one run on
# one machine (base size, two cores; docs/contributing/benchmarks), by precision of docmt and beam. The published code
# computes in float32. Tokens a second of another processor do not compare, so none are given.
SIDE_BY_SIDE: dict[Precision, dict[int, float]] = {"float32": {1: 1.92, 5: 1.98}, "bfloat16": {1: 1.49, 5: 2.54}}
SIDE_BY_SIDE_TOKENS = 512


@dataclass(frozen=True)
class Settings:
    """Sizes of the benchmark."""

    model: ModelConfig
    beams: tuple[int, ...] = (1, 5)
    document_tokens: tuple[int, ...] = (128, 512, 2048)
    rounds: dict[int, tuple[int, ...]] = field(default_factory=lambda: {1: (3, 2, 1), 16: (2, 1, 1)})
    """rounds of each length, by documents searched at a time: long ones take minutes"""
    growth: float | None = 1.5
    """target: cost of a token in the longest documents against the shortest"""
    side_by_side: dict[Precision, dict[int, float]] = field(default_factory=dict)
    """times the speed of the published code in one run, one document of SIDE_BY_SIDE_TOKENS, by precision and beam"""


FULL = Settings(
    ModelConfig(system="group", preset="base", vocabulary_size=30000, instance_tokens=4096), side_by_side=SIDE_BY_SIDE
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
    """Return tokens a second (boundary tokens included) by precision, beam, documents at a time and their length."""
    specials = SpecialTokens(settings.model.vocabulary_size)
    models = {precision: build_never_ending(settings.model, specials, precision) for precision in PRECISIONS}
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
    described = {**asdict(settings), "model": asdict(settings.model.resolve())}
    return Result(described, [case.to_row() for case in cases.values()], _make_findings(settings, speeds))


def build_never_ending(config: ModelConfig, specials: SpecialTokens, precision: Precision) -> TranslationModel:
    """Build a model with random weights that never chooses to end a sentence, so that lengths are known.

    One element of every decoder state is a large constant that only the logit of `</s>` sees.
    """
    torch.manual_seed(1)
    model = TranslationModel(config).eval()
    last: Any = model.decoder[-1]
    with torch.no_grad():
        last.feed_forward_residual.norm.bias[0] = 10.0
        embedding = model.head().weight
        embedding[:, 0] = 0.0
        embedding[specials.eos, 0] = -10.0
    return prepare_products(model, precision)


def _search(
    model: TranslationModel, precision: Precision, beam: int, totals: list[int], rounds: int
) -> Callable[[], int]:
    """Return the search for documents with `totals` target tokens, different ones in each round."""
    specials = SpecialTokens(model.config.vocabulary_size)
    generator = np.random.default_rng(totals)
    # Every sentence is closed at its limit, one word more than its source has.
    config = SearchConfig(beam=beam, max_length_ratio=1.0, max_length_extra=1.0)

    def document(total: int) -> Sentences:
        lengths, _ = draw_parallel_lengths(total, generator)
        return draw_words([length - 1 for length in lengths], specials, generator)

    batches = iter([[document(total) for total in totals] for _ in range(rounds)])

    def work() -> int:
        documents = next(batches)
        marked = [[[specials.bos, *sentence, specials.eos] for sentence in document] for document in documents]
        inputs = ModelInput(pack(marked), torch.arange(sum(map(len, documents))))
        rows: list[SearchRow] = []
        for document in documents:
            first = rows[-1].sentences[-1] + 1 if rows else 0
            rows.append(SearchRow(range(first, first + len(document)), [len(sentence) for sentence in document]))
        with precision_context(model, precision), torch.inference_mode():
            results = search(model, model.compute_memories(inputs), rows, specials, config)
        tokens = sum(len(sentence) + 2 for best, *_ in results for sentence in best.sentences)
        if tokens != sum(totals):
            raise RuntimeError(f"the search gave {tokens} tokens instead of {sum(totals)}")
        return tokens

    return work


def _make_findings(settings: Settings, speeds: dict[tuple[Precision, int, int, int], float]) -> list[Finding]:
    findings = []
    shortest, longest = min(settings.document_tokens), max(settings.document_tokens)
    for precision, beam, count in product(PRECISIONS, settings.beams, settings.rounds):
        label = f"{precision}, beam {beam}, {count} at a time"
        speed = {tokens: speeds[precision, beam, count, tokens] for tokens in settings.document_tokens}
        findings.append(
            Finding(
                f"{label}: cost of a token at {longest} against {shortest}",
                speed[shortest] / speed[longest],
                at_most=settings.growth,
            )
        )
        ratio = settings.side_by_side.get(precision, {}).get(beam)
        if ratio is not None and count == 1:
            text = f"{label}: speed at {SIDE_BY_SIDE_TOKENS}; side by side it was {ratio:g} times the published code's"
            findings.append(Finding(text, speed[SIDE_BY_SIDE_TOKENS], "tokens/s"))
    return findings
