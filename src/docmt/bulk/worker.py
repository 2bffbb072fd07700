"""A worker of a bulk job: it claims shards until none is left."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from docmt.bulk.job_directory import PLAN, Claim, JobDirectory, Plan, Shard, ShardFacts
from docmt.bulk.planning import check_settings, make_plan, open_kind, select_shards
from docmt.bulk.shard_kinds import ShardFile, ShardKind, Task, Versions, describe_error
from docmt.core.errors import DocmtError, is_out_of_memory, map_or_error
from docmt.core.progress import progress
from docmt.decoding.translation_results import Translation, non_finite_error
from docmt.documents import Document

if TYPE_CHECKING:
    from typing import Any

    from docmt.decoding import Translator

POLL_SECONDS = 1.0
"""Time between two looks at what other workers do."""
_LOOKS = 150  # after which a shard that is nowhere counts as lost; NFS shows a rename a minute late
_TOKEN_CHARACTERS = 4
_log = logging.getLogger(__name__)


class Worker:
    """A model that works on a job."""

    def __init__(self, job: JobDirectory, name: str, translator: Translator, samples: int = 1) -> None:
        """name: that of its sign of life. samples: translations of each document, by sampling."""
        self._job, self._name, self._translator, self._samples = job, name, translator, samples

    def plan(self, kind: ShardKind | None, settings: dict[str, Any], shard_tokens: int) -> Plan:
        """Return the plan: that of the job, or a new one; wait while another worker makes it.

        kind: of the input, None if it is not named. settings: see `check_settings`. Raises DocmtError for a plan with
        other settings, and if there is neither plan nor input.
        """
        is_told = False
        while (plan := self._job.read_plan()) is None:
            if kind is None:
                raise DocmtError(f"{self._job.path} is not planned: name the input files")
            if claim := self._job.claim(self._name, [PLAN]):
                with self._job.holding(claim):
                    made = make_plan(self._job, claim, kind, settings, self._count_tokens, shard_tokens)
                if made is not None:
                    return made
            elif not self._job.return_dead_claims():
                if not is_told:
                    _log.info("%s is being planned by another worker", self._job.path)
                is_told = True
                time.sleep(POLL_SECONDS)
        check_settings(self._job, plan, settings)
        return plan

    def _count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the number of source tokens of each text; about that of one which the tokenizer cannot read."""
        try:
            return list(map(len, self._translator.prepare(Document.from_sentences(texts)).words))
        except Exception:  # whoever translates the document reports it
            if len(texts) > 1:
                return [count for text in texts for count in self._count_tokens([text])]
            return [len(text) // _TOKEN_CHARACTERS for text in texts]

    def work(self, plan: Plan, share: tuple[int, int] = (1, 1), folders: Sequence[Path] = ()) -> None:
        """Translate shards until all of the share are done; see `select_shards`. folders: see `open_kind`.

        Raises DocmtError if the worker cannot go on. Its claim is released then, as after Ctrl-C.
        """
        kind = open_kind(plan.kind, folders)
        shards = {shard.name: shard for shard in select_shards(plan, share)}
        if deleted := self._job.reopen(self._name, shards):
            first = self._job.path / deleted[0]
            _log.warning("deleted results: %s (first: %s): their shards are translated again", len(deleted), first)
        done = len(self._job.list_done() & shards.keys())
        lost, is_told = Counter[str](), False
        with progress("shards", len(shards), done) as bar:
            while True:
                if claim := self._job.claim(self._name, shards):
                    with self._job.holding(claim):
                        self._translate(kind, claim, shards[claim.name])
                elif not self._job.return_dead_claims():
                    if not (left := self._find_left(shards)):
                        break
                    self._check_lost(left, lost)
                    if not is_told:
                        _log.info("waiting for other workers, which have %s shards", len(left))
                    is_told = True
                    time.sleep(POLL_SECONDS)
                bar.advance(len(self._job.list_done() & shards.keys()) - bar.done)

    def _find_left(self, shards: Mapping[str, Shard]) -> dict[str, bool]:
        """Return the shards that are not done, and whether each has a file."""
        files = self._job.list_waiting() | self._job.list_claimed().keys()
        return {name: name in files for name in shards.keys() - self._job.list_done()}

    def _check_lost(self, left: Mapping[str, bool], lost: Counter[str]) -> None:
        """Raise DocmtError for a shard whose file has been missing for several looks: a look may miss a rename."""
        for name, has_file in left.items():
            lost[name] = 0 if has_file else lost[name] + 1
            if lost[name] > _LOOKS:
                raise DocmtError(
                    f"shard {name} of {self._job.path} is missing: start the job again in another directory"
                )

    def _translate(self, kind: ShardKind, claim: Claim, shard: Shard) -> None:
        """Translate and write a claimed shard."""
        started = time.monotonic()
        data = self._job.read_shard(claim, shard)
        tasks = kind.read(data)
        readable = [task for task in tasks if not task.error]
        translator = self._choose_translator(shard)
        outcomes = list(zip(readable, self._translate_tasks(translator, readable), strict=True))
        errors = [(task, str(outcome)) for task, outcome in outcomes if isinstance(outcome, DocmtError)]
        if errors:
            self._check_translator()
        if not claim.is_held:  # another worker has it, because this one seemed dead
            return
        results = [(task, outcome) for task, outcome in outcomes if not isinstance(outcome, DocmtError)]
        written = kind.write(self._job.output, ShardFile(shard.name, data), results, self._translator.align)
        failures = [*((task, task.error) for task in tasks if task.error), *errors, *written.failures]
        seconds, warnings = round(time.monotonic() - started, 3), _count_warnings(results)
        facts = ShardFacts(len(tasks), len(failures), shard.tokens, seconds, warnings, written.files)
        self._job.finish(claim, facts, [task.failure(reason) for task, reason in failures])

    def _choose_translator(self, shard: Shard) -> Translator:
        """Return the translator, with a seed for this shard if it samples: equal documents elsewhere get others."""
        search = self._translator.search
        if not search.sampling:
            return self._translator
        digest = blake2b(f"{search.seed} {shard.name}".encode(), digest_size=8).digest()
        return self._translator.with_search(replace(search, seed=int.from_bytes(digest) >> 1))

    def _translate_tasks(self, translator: Translator, tasks: Sequence[Task]) -> list[Versions | DocmtError]:
        """Return the translations of each task, or why it has none. One that fails is found by halving."""
        firsts = accumulate((len(task.documents) for task in tasks), initial=0)
        numbered = list(zip(firsts, tasks, strict=False))  # the last sum is that of all
        return [
            non_finite_error()
            if not isinstance(versions, DocmtError)
            and not all(each.has_finite_scores for document in versions for each in document)
            else versions
            for versions in map_or_error(numbered, partial(self._translate_together, translator))
        ]

    def _translate_together(self, translator: Translator, tasks: Sequence[tuple[int, Task]]) -> list[Versions]:
        """Translate the documents of tasks in common batches. Raises DocmtError, or for a lack of memory.

        tasks: each with the number of its first document in the shard. Samples of equal documents differ by it, so they
        do not depend on what else is in a call.
        """
        numbered = [each for first, task in tasks for each in enumerate(task.documents, first)]
        repeated = [(number * self._samples + i, each) for number, each in numbered for i in range(self._samples)]
        copies, documents = [number for number, _ in repeated], [each for _, each in repeated]
        try:
            translations = translator.translate_all(documents, copies=copies)
        except DocmtError:
            raise
        except Exception as error:  # whatever a document causes must not stop the others
            if is_out_of_memory(error):
                raise
            raise DocmtError(describe_error(error)) from error
        groups = zip(*[iter(translations)] * self._samples, strict=True)
        versions = (tuple(version for each in group for version in _list_versions(each)) for group in groups)
        return [[next(versions) for _ in task.documents] for _, task in tasks]

    def _check_translator(self) -> None:
        """Raise DocmtError if the worker cannot translate at all: then no document is to blame."""
        try:
            (translation,) = self._translator.translate_all([Document.from_sentences(["1."])])
        except Exception as error:
            raise DocmtError(f"this worker cannot translate any more ({error}): start it again") from error
        if not translation.has_finite_scores:
            raise non_finite_error()


def _list_versions(translation: Translation) -> list[Translation]:
    """Return the translation and its alternatives."""
    return [translation, *translation.alternatives]


def _count_warnings(results: Sequence[tuple[Task, Versions]]) -> dict[str, int]:
    """Return the number of documents with each warning."""
    counts = Counter[str]()
    for _, versions in results:
        for document in versions:
            counts.update({name for version in document for names in version.warnings() for name in names})
    return dict(sorted(counts.items()))
