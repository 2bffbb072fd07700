"""The search for translations of a batch of documents, by whichever of the searches fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

import torch

from docmt.core.errors import DocmtError
from docmt.decoding.abreast import Abreast, can_decode_abreast
from docmt.decoding.beams import Beams
from docmt.decoding.committed import Committed, check_can_commit
from docmt.decoding.config import SearchConfig
from docmt.decoding.drafts import DraftedSentence, Drafts, has_pasts
from docmt.decoding.ensemble import Memories, Model, members_of
from docmt.decoding.frame import Row
from docmt.decoding.hypothesis import Hypothesis, not_numbers
from docmt.decoding.pooled import GenerateSearch, PooledSearch, ThumtSearch
from docmt.text import SpecialTokens

_POOLED: dict[str, type[PooledSearch]] = {"thumt": ThumtSearch, "huggingface": GenerateSearch}


@torch.inference_mode()
def search(
    model: Model,
    memories: Memories,
    rows: Sequence[Row],
    specials: SpecialTokens,
    config: SearchConfig,
) -> list[list[Hypothesis]]:
    """The best `config.n_best` translations of each row, best first; the rows are searched as one batch.

    memories: what `model.memories` has computed for the source in which the rows' sentences lie. Raises DocmtError
    where the model's scores are not numbers.
    """
    if config.compatibility in _POOLED:
        return _pooled_search(model, memories, rows, specials, config)
    if can_decode_abreast(model, rows, config):
        abreast = Abreast(model, memories, rows, specials, config)
        return abreast.hypotheses() if abreast.run() else _one_by_one(abreast)
    if config.commit == "sentence" and config.beam > 1 and any(len(row.sentences) > 1 for row in rows):
        check_can_commit(model)
        return Committed(model, memories, rows, specials, config).run()
    if any(row.prefix for row in rows) and config.compatibility == "none" and all(map(has_pasts, members_of(model))):
        return _one_by_one(Drafts(model, memories, rows, specials, config))
    return _beams(Beams(model, memories, rows, specials, config))


def _beams(beams: Beams) -> list[list[Hypothesis]]:
    while beams.documents:
        beams.step()
    return beams.best()


def _one_by_one(drafts: Drafts) -> list[list[Hypothesis]]:
    """What a search token after token finds of each row, after those of its first sentences that are final, which are
    read in one pass."""
    config = drafts.config
    if not any(own.final for own in drafts.sentences):
        return _beams(Beams(drafts.model, drafts.memories, drafts.rows, drafts.specials, config))
    read = drafts.read or drafts.read_drafts()
    going = [row for row in range(len(drafts.rows)) if not all(own.final for own in drafts.of_row(row))]
    said = [list(takewhile(lambda own: own.final, drafts.of_row(row))) for row in going]
    repeated = [number for number in drafts.next_ones() for _ in range(config.beam)]
    pasts = drafts.pasts(*read, repeated, [0] * len(repeated))
    begins = pasts[0].limit[:: config.beam].tolist()
    rows = [replace(drafts.rows[row], prefix=()) for row in going]
    output = drafts.output.of(drafts.next_ones())
    beams = Beams(drafts.model, drafts.memories, rows, drafts.specials, config, pasts, begins, output)
    beams.go_on_after(said)
    drafts.read = None  # (whose keys and values it has)
    del read, pasts
    found = {row: _with_rounds(ranks, done) for row, ranks, done in zip(going, _beams(beams), said, strict=True)}
    return [found[row] if row in found else drafts.hypothesis(row) for row in range(len(drafts.rows))]


def _with_rounds(ranks: list[Hypothesis], done: Sequence[DraftedSentence]) -> list[Hypothesis]:
    """Translations of which these sentences were found at the same time as others, if they were not given."""
    if not any(own.round for own in done):
        return ranks
    rounds = [own.round for own in done]
    return [replace(each, rounds=rounds + [0] * (len(each.sentences) - len(rounds))) for each in ranks]


def _pooled_search(
    model: Model,
    memories: Memories,
    rows: Sequence[Row],
    specials: SpecialTokens,
    config: SearchConfig,
) -> list[list[Hypothesis]]:
    if any(len(row.sentences) > 1 for row in rows):
        raise DocmtError(
            f"search.compatibility {config.compatibility} is for systems that translate sentence by sentence: choose "
            "none for this model"
        )
    found = _POOLED[config.compatibility](model, memories, rows, specials, config).run()
    if not all(found):
        raise not_numbers()
    return [
        [
            Hypothesis([words], [total], [length], score, length)
            for words, total, score, length in ranks[: config.n_best]
        ]
        for ranks in found
    ]
