"""Draft, check, repair: the order of systems whose decoder sees the translations of earlier sentences.

1. Draft: a greedy search of all sentences side by side, none of which sees the translation of an earlier one.
2. Check: one full pass over the drafts, as in training, gives every token its score after all drafts before it, and the
   token that the model would choose there.
3. Repair: sentences that would be translated otherwise are searched again, side by side, each after the states of that
   pass.

Steps 2 and 3 come again for what stands behind a changed sentence, until nothing fails: the first sentences of an
instance are exact by induction. With one beam a sentence fails where the model would choose another token. So a
translation that passes equals that of the sequential search, but for near ties. With more beams every sentence is
searched after the drafts of earlier ones, and again if its log-probability has changed since (decision 37).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from docmt.data import Batch, SentenceTokens, collate
from docmt.decoding.beam_search import search
from docmt.decoding.ensembles import Memories, Model, combine_context_specs, compute_next_logits, pair_members
from docmt.decoding.incremental import Prefixes, TargetPass, can_read_prefixes
from docmt.decoding.logits import log_normalizers
from docmt.decoding.scheduler import POOL_FACTOR, OnSentences, SearchResults, Task, batch_rows
from docmt.decoding.scoring import CHUNK, find_forced_labels, split_scores
from docmt.decoding.search_config import ContextConfig, SearchConfig, between_steps
from docmt.decoding.search_rules import SearchRow
from docmt.decoding.translation_results import Hypothesis
from docmt.model import ModelInput

MARGIN = 0.5
"""Log-probability (nats) by which a sentence may differ from that of its search with beams, after other translations of
earlier sentences."""


def can_repair(model: Model, config: SearchConfig, context: ContextConfig, order: str) -> bool:
    """Return whether sentences may be drafted side by side.

    The search is docmt's own, and no token joins sentences. With beams, no instance sees translations of another:
    within the margin the result would depend on what is translated together.
    """
    chooses = config.implementation == "docmt" and not config.sampling and not config.sequential
    spec = combine_context_specs(model)
    is_chained = bool(context.overlap or spec.windows or spec.target_context)
    possible = order in ("documents", "sequential") and can_read_prefixes(model)
    return chooses and possible and (config.beam == 1 or not is_chained)


def search_with_repair(task: Task, on_sentences: OnSentences) -> SearchResults:
    """Search the sentences of all instances, for systems whose decoder sees earlier translations."""
    spans: SearchResults = {}
    if (task.instances.first_output > task.instances.first).any():  # instances see translations of others
        return _Repair(task, range(len(task.instances)), on_sentences).run()
    for batch in task.batches(times=POOL_FACTOR):
        spans |= _Repair(task, batch, on_sentences).run()
    return spans


class _Repair:
    """Translation of some instances of a task."""

    def __init__(self, task: Task, numbers: Sequence[int], on_sentences: OnSentences) -> None:
        self.task, self.on_sentences = task, on_sentences
        self.numbers = sorted(numbers)
        self.outputs = {i: task.list_searched(i) for i in self.numbers}
        self.ranked: dict[int, list[Hypothesis]] = {}  # translations of each sentence, best first
        self.checked: dict[int, Hypothesis] = {}  # the best one of each, with its scores after all earlier ones
        self._last_read: tuple[tuple[int, ...], Memories] = ((), [])
        self.counted: set[int] = set()  # sentences that `on_sentences` knows
        self.drafts: set[int] = set()  # sentences that no search with all beams has translated
        self.exact: set[int] = set()  # sentences that were searched after the present translations of earlier ones

    def run(self) -> SearchResults:
        """Return the translation of each sentence."""
        task = self.task
        self._draft()
        stale = set(self.numbers)  # instances to check
        while stale:
            for batch in task.batches(sorted(stale), times=POOL_FACTOR):
                between_steps()
                memories, passes, failed = self._check(batch)
                stale -= set(batch)
                if failed:
                    stale |= self._repair(batch, memories, passes, failed)
        spans: SearchResults = {}
        for n, hypotheses in self.ranked.items():
            # Beside alternatives, which are not checked, the best has the score by which the search ranked them.
            score = hypotheses[0].score if task.config.n_best > 1 else self.checked[n].score
            best = replace(self.checked[n], at_limit=hypotheses[0].at_limit, score=score)
            task.keep(spans, range(n, n + 1), [best, *hypotheses[1:]])
        return spans

    def _draft(self) -> None:
        """Search every sentence greedily without earlier translations, windows without earlier sentences.

        A sentence that has no others in its instance is searched with all beams.
        """
        task, instances, windows = self.task, self.task.instances, combine_context_specs(self.task.model).windows
        if windows:
            cut = replace(instances, before=instances.first_output, first=instances.first_output)
            task = replace(task, instances=cut)
        greedy = replace(task.config, beam=1, n_best=1)
        for batch in task.batches(self.numbers, times=POOL_FACTOR):
            inputs = task.read_sources(batch)
            memories = task.model.compute_memories(inputs) if windows else self._compute_memories(batch, inputs)
            parts: list[tuple[list[int], list[SearchRow]]] = [([], []), ([], [])]  # with others, and alone
            for i, aligned in zip(batch, task.split_aligned(inputs, batch), strict=True):
                outputs, first = self.outputs[i], int(task.instances.first[i])
                has_history = outputs[0] > int(instances.first[i])
                numbers, rows = parts[len(outputs) == 1 and not has_history]
                numbers += outputs
                rows += task.make_rows(outputs, aligned[[n - first for n in outputs]].tolist())
                if not has_history and (task.config.beam == 1 or len(outputs) == 1):
                    self.exact.add(outputs[0])
            for (numbers, rows), config in zip(parts, (greedy, task.config), strict=True):
                self.ranked |= dict(zip(numbers, self._search(memories, rows, config), strict=True))
                self.drafts |= set(numbers) if config.beam < task.config.beam else set()

    def _search(
        self,
        memories: Memories,
        rows: Sequence[SearchRow],
        config: SearchConfig,
        prefixes: Sequence[Prefixes] = (),
        numbers: Sequence[int] = (),
    ) -> list[list[Hypothesis]]:
        """Return the translations of these rows of one sentence, searched in batches of similar length.

        numbers: of the sentences, if these are repairs.
        """
        task, results = self.task, dict[int, list[Hypothesis]]()
        for indices in map(sorted, batch_rows(rows, task.batch_tokens)):  # rows of a document beside each other
            index = torch.tensor(indices)
            selected = [
                replace(each, documents=each.documents[index], next_sentences=each.next_sentences[index])
                for each in prefixes
            ]
            ranked = search(task.model, memories, [rows[i] for i in indices], task.specials, config, selected)
            results |= dict(zip(indices, ranked, strict=True))
            self._count({numbers[i] for i in indices} if numbers else set())
        return [results[index] for index in range(len(rows))]

    def _count(self, sentences: set[int]) -> None:
        """Count sentences that passed the check, or were repaired, for the first time."""
        self.on_sentences(len(sentences - self.counted))
        self.counted |= sentences

    def _compute_memories(self, batch: Sequence[int], inputs: ModelInput) -> Memories:
        """Return the memories of these instances; those that were read last are kept."""
        if self._last_read[0] != tuple(batch):
            self._last_read = tuple(batch), self.task.model.compute_memories(inputs)
        return self._last_read[1]

    def _translation(self, sentence: int) -> list[int]:
        """Return the present translation of a sentence."""
        if sentence in self.ranked:
            return self.ranked[sentence][0].sentences[0]
        return self.task.history.ranked_translations(sentence)[0]

    def _check(self, batch: Sequence[int]) -> tuple[Memories, list[TargetPass], list[int]]:
        """Score the translations of these instances in one pass.

        Returns the memories, the pass of each member, and the sentences that have to be searched again.
        """
        task, model = self.task, self.task.model
        translations = [self._translation(n) for n in range(len(task.words.lengths))]
        target = SentenceTokens.from_documents([translations])
        boundaries = model.boundary_tokens
        collated = collate(task.words, target, task.instances, batch, task.specials, boundaries, "last", task.drafts)
        collated = collated.to(model.device)
        inputs, memories = collated.inputs, self._compute_memories(batch, collated.inputs)
        assert inputs.target is not None
        documents = torch.arange(len(batch))
        passes = [
            TargetPass(member, member_memories, inputs.target, inputs.alignment, documents)
            for member, member_memories in pair_members(model, memories)
        ]
        scores, gaps = (x.cpu() for x in _judge_labels(task, collated, passes))
        failed, first = [], 0
        hypotheses = split_scores(task, target, collated.labels, scores, batch, free_at_limit=True)
        for i, hypothesis in zip(batch, hypotheses, strict=True):
            outputs = task.outputs(i)
            sizes = [len(translations[n]) + 1 + boundaries.predicts_boundary for n in outputs]
            forced = find_forced_labels(task, target, outputs)
            gaps[[first + position for position in forced]] = 0.0
            largest = [float(each.max()) for each in gaps[first : first + sum(sizes)].split(sizes)]
            first += sum(sizes)
            for number, n in enumerate(outputs):
                if n in task.history.fixed:
                    continue
                score, tokens = hypothesis.sentence_scores[number], hypothesis.sentence_tokens[number]
                rank = task.config.normalize_score(score, tokens)
                self.checked[n] = Hypothesis([translations[n]], [score], [tokens], rank, tokens)
                # With one beam, by how much the model prefers another token counts, else how the score has changed.
                change = abs(score - self.ranked[n][0].sentence_scores[0])
                fails = largest[number] > 0.0 if task.config.beam == 1 else change > MARGIN
                if n in self.drafts or (n not in self.exact and fails):
                    failed.append(n)
        self._count({n for i in batch for n in self.outputs[i]}.difference(failed))
        return memories, passes, failed

    def _repair(
        self, batch: Sequence[int], memories: Memories, passes: Sequence[TargetPass], failed: Sequence[int]
    ) -> set[int]:
        """Search sentences again, after the states of their passes; return the instances that see a change."""
        task, instances = self.task, self.task.instances
        wanted, rows, documents, following = set(failed), list[SearchRow](), [], []
        position = 0  # of the instance's first sentence in the pass
        for document, i in enumerate(batch):
            first, numbers = int(instances.first[i]), [n for n in self.outputs[i] if n in wanted]
            positions = [position + n - first for n in numbers]
            rows += task.make_rows(numbers, passes[0].aligned[positions].tolist())
            documents += [document] * len(numbers)
            following += positions
            position += int(instances.last[i]) - first
        prefixes = [Prefixes(each, torch.tensor(documents), torch.tensor(following)) for each in passes]
        numbers = [n for i in batch for n in self.outputs[i] if n in wanted]
        changed = []
        self.drafts -= wanted
        for n, hypotheses in zip(numbers, self._search(memories, rows, task.config, prefixes, numbers), strict=True):
            if hypotheses[0].sentences[0] != self._translation(n):
                changed.append(n)
            self.ranked[n] = hypotheses
            self.exact.add(n)
        return self._find_stale(changed)

    def _find_stale(self, changed: Sequence[int]) -> set[int]:
        """Return the instances that see these sentences; later sentences of them are not exact any more."""
        instances, stale = self.task.instances, set[int]()
        for n in changed:
            for i in self.numbers:
                if instances.first[i] <= n < instances.last[i]:
                    stale.add(i)
                    self.exact -= {each for each in self.outputs[i] if each > n}
        return stale


def _judge_labels(task: Task, batch: Batch, passes: Sequence[TargetPass]) -> tuple[Tensor, Tensor]:
    """Return the log-probability [n] of each label, and by how much the model prefers another token [n], at least 0."""
    inputs, labels, config = batch.inputs, batch.labels, task.config
    assert inputs.target is not None
    positions = torch.arange(len(labels)) if inputs.label_positions is None else inputs.label_positions
    offsets = inputs.target.sentences.positions()[positions.cpu()].to(labels.device)
    words = offsets - len(task.model.boundary_tokens.target_opening) + 1  # words before each label
    specials = task.specials
    excluded = torch.tensor([specials.bos, specials.pad, specials.unk, specials.eod, specials.mask])
    scores, gaps = torch.zeros(2, len(labels), device=labels.device)
    for part in torch.arange(len(labels)).split(CHUNK):
        index = positions[part]
        logits = compute_next_logits(task.model, [each.states[index] for each in passes], config.temperature).float()
        label = labels[part, None]
        chosen = logits.gather(1, label)[:, 0]
        scores[part] = chosen - log_normalizers(logits)[:, 0]
        logits[:, excluded] = -torch.inf
        logits[words[part] < config.min_length, specials.eos] = -torch.inf
        gaps[part] = (logits.amax(1) - chosen).clamp(min=0.0)
    return scores, gaps
