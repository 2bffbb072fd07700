"""Given translations as the passes in which a model reads them: those of scoring, for whoever looks into the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from docmt.data import Words, collate
from docmt.data.batches import Placed
from docmt.decoding.config import SearchConfig
from docmt.decoding.frame import WordIds
from docmt.decoding.task import Task
from docmt.model import TranslationModel
from docmt.text import SpecialTokens


def passes(
    model: TranslationModel,
    sources: Sequence[WordIds],
    targets: Sequence[WordIds],
    specials: SpecialTokens,
    config: SearchConfig,
    drafts: Sequence[WordIds] | None = None,
) -> Iterator[Placed]:
    """Everything that the model reads to score these translations, on its device, pass by pass.

    sources, targets and drafts as `score_documents` has them, but without empty source sentences. Raises DocmtError
    where a sentence cannot fit.
    """
    task, words = Task.of(model, sources, specials, config, drafts), Words.of(targets)
    for indices in task.batches():
        batch = collate(task.words, words, task.instances, indices, specials, model.parts.frame, drafts=task.drafts)
        yield Placed.of(batch.reading.to(model.device), task.instances, indices)
