"""The search for translations of a batch of documents, by whichever of the searches fits."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from docmt.core.errors import DocmtError
from docmt.decoding.beams import Beams
from docmt.decoding.config import SearchConfig
from docmt.decoding.ensemble import Memories, Model
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
    beams = Beams(model, memories, rows, specials, config)
    while beams.documents:
        beams.step()
    return beams.best()


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
