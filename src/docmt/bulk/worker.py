"""A worker of a bulk job: it plans the job, if nobody has, and claims shards until none is left."""

from __future__ import annotations

import logging
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, TypeVar

from docmt.bulk.job_directory import PLAN, Claim, JobDirectory, Plan, Shard, ShardFacts
from docmt.bulk.shards import ShardItem, ShardKind, Versions, describe_error, open_kind
from docmt.core.errors import DocmtError, is_out_of_memory, map_or_error, missing_package_error
from docmt.core.progress import progress
from docmt.core.settings import quote
from docmt.decoding.document_translator import TOKEN_CHARACTERS, DocumentTranslator
from docmt.decoding.translation_results import non_finite_error
from docmt.documents import Document
from docmt.terms.memory import QUALITY

POLL_SECONDS = 1.0
"""Time between two looks at what other workers do."""
_LOOKS = 150  # after which a shard that is nowhere counts as lost; NFS shows a rename a minute late
_RESTARTS = 20  # of an actor of Ray: a document that ends its process must not restart it for ever
_log = logging.getLogger(__name__)
Result = TypeVar("Result")


class Worker:
    """A model that works on a job."""

    def __init__(self, job: JobDirectory, name: str, translator: DocumentTranslator, samples: int = 1) -> None:
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
                    made = self._make_plan(claim, kind, settings, shard_tokens)
                if made is not None:
                    return made
            elif not self._job.return_dead_claims():
                if not is_told:
                    _log.info("%s is being planned by another worker", self._job.path)
                is_told = True
                time.sleep(POLL_SECONDS)
        check_settings(self._job, plan, settings)
        return plan

    def _make_plan(self, claim: Claim, kind: ShardKind, settings: dict[str, Any], shard_tokens: int) -> Plan | None:
        """Split the input into shards of about so many source tokens, and write them and the plan.

        Return None if the claim was returned because this worker seemed dead. Raises DocmtError for input that cannot
        be read, or without documents.
        """
        self._job.clear_shards()
        shards: list[Shard] = []
        with progress("planning (documents)") as bar:
            for number, part in enumerate(kind.split(self._count_tokens, shard_tokens), 1):
                if not claim.is_held:
                    return None
                name = f"{number:06d}"
                self._job.write_shard(name, part.data)
                shards.append(Shard(name, part.documents, part.tokens, f"{zlib.crc32(part.data):08x}"))
                bar.advance(part.documents)
        if not shards:
            raise DocmtError("there are no documents in the input: name files with a document a row")
        if not claim.is_held:
            return None
        plan = Plan(settings, shards, kind.describe())
        self._job.write_plan(plan)
        self._job.drop(claim)
        return plan

    def _count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the number of source tokens of each text; about that of one which the tokenizer cannot read."""
        try:
            return self._translator.prepare(Document.from_sentences(texts)).lengths()
        except Exception:  # whoever translates the document reports it
            if len(texts) > 1:
                return [count for text in texts for count in self._count_tokens([text])]
            return [len(text) // TOKEN_CHARACTERS for text in texts]

    def work(self, plan: Plan, share: tuple[int, int] = (1, 1), folders: Sequence[Path] = ()) -> None:
        """Translate shards until all of a share are done: of (i, n), every n-th from the i-th on, i from 1.

        folders: see `open_kind`. Raises DocmtError if the worker cannot go on. Its claim is released then, as after
        Ctrl-C.
        """
        kind = open_kind(plan.kind, folders)
        shards = {shard.name: shard for shard in plan.shards[share[0] - 1 :: share[1]]}
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
        started, before = time.monotonic(), self._translator.use
        data = self._job.read_shard(claim, shard)
        items = kind.read(data)
        readable = [item for item in items if not item.error]
        translator = self._translator.with_seed_for(shard.name)  # equal documents elsewhere get other samples
        outcomes = list(zip(readable, self._translate_items(translator, readable), strict=True))
        errors = [(item, str(outcome)) for item, outcome in outcomes if isinstance(outcome, DocmtError)]
        if errors:
            self._check_translator()
        if not claim.is_held:  # another worker has it, because this one seemed dead
            return
        results = [(item, outcome) for item, outcome in outcomes if not isinstance(outcome, DocmtError)]
        files, unwritten = kind.write(self._job.output, shard.name, data, results, self._translator.align)
        failures = [*((item, item.error) for item in items if item.error), *errors, *unwritten]
        seconds, warnings = round(time.monotonic() - started, 3), _count_warnings(results)
        versions = (version for _, documents in results for document in documents for version in document)
        sentences = [sentence for version in versions for sentence in version]
        terms = dict(sorted(Counter[str](use.status for sentence in sentences for use in sentence.terms).items()))
        counts = len(items), len(failures), shard.tokens, seconds, warnings, terms, files
        reused = sum(sentence.memory in QUALITY for sentence in sentences)
        use = self._translator.use  # failed documents included
        use = use - before if use and before else use
        facts = ShardFacts(*counts, asdict(use) if use else {}, reused)
        self._job.finish(claim, facts, [item.failure(reason) for item, reason in failures])

    def _translate_items(
        self, translator: DocumentTranslator, items: Sequence[ShardItem]
    ) -> list[Versions | DocmtError]:
        """Return the translations of each item, or why it has none. One that fails is found by halving."""
        firsts = accumulate((len(item.documents) for item in items), initial=0)
        numbered = list(zip(firsts, items, strict=False))  # the last sum is that of all
        return [
            non_finite_error()
            if not isinstance(versions, DocmtError)
            and not all(each.has_finite_scores for document in versions for each in document)
            else versions
            for versions in map_or_error(numbered, partial(self._translate_together, translator))
        ]

    def _translate_together(
        self, translator: DocumentTranslator, items: Sequence[tuple[int, ShardItem]]
    ) -> list[Versions]:
        """Translate the documents of items in common batches. Raises DocmtError, or for a lack of memory.

        items: each with the number of its first document in the shard. Samples of equal documents differ by it, so they
        do not depend on what else is in a call.
        """
        numbered = [each for first, item in items for each in enumerate(item.documents, first)]
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
        versions = (tuple(version for each in group for version in (each, *each.alternatives)) for group in groups)
        return [[next(versions) for _ in item.documents] for _, item in items]

    def _check_translator(self) -> None:
        """Raise DocmtError if the worker cannot translate at all: then no document is to blame."""
        try:
            (translation,) = self._translator.translate_all([Document.from_sentences(["1."])])
        except Exception as error:
            raise DocmtError(f"this worker cannot translate any more ({error}): start it again") from error
        if not translation.has_finite_scores:
            raise non_finite_error()


def _count_warnings(results: Sequence[tuple[ShardItem, Versions]]) -> dict[str, int]:
    """Return the number of documents with each warning."""
    documents = (document for _, versions in results for document in versions)
    named = ({name for version in document for names in version.warnings() for name in names} for document in documents)
    return dict(sorted(Counter(chain.from_iterable(named)).items()))


def check_settings(job: JobDirectory, plan: Plan, settings: Mapping[str, Any]) -> None:
    """Raise DocmtError if a worker has other settings than the plan, apart from those that it lacks."""
    names = [name for name, value in settings.items() if plan.settings.get(name) != value]
    if names:
        others = [f"{name} ({quote(plan.settings.get(name))})" if name.startswith("-") else name for name in names]
        raise DocmtError(
            f"{job.path} was planned with another {', '.join(others)}: use the same, or choose another -o DIR"
        )


# Actors of Ray, which starts them on the machines of a cluster and restarts dead ones


def run_actors(work: Callable[[], Result], actors: int, use_gpus: bool) -> Result:
    """Run the same work in every actor. Return the result of the last one that ended.

    The cluster is that of RAY_ADDRESS or of this machine, or else a new one of this machine, which ends with the call.
    use_gpus: give each actor a GPU if the cluster has any. Raises DocmtError of the work, or if no actor ends well.
    """
    ray = _import_ray()
    is_new = not ray.is_initialized()
    if is_new:
        ray.init(include_dashboard=False, logging_level=logging.WARNING)
    try:
        gpus = 1 if use_gpus and ray.cluster_resources().get("GPU") else 0
        make = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=_RESTARTS, max_task_retries=_RESTARTS)(_Actor)
        handles = [make.remote() for _ in range(actors)]
        return _wait(ray, [handle.work.remote(work) for handle in handles])
    finally:
        if is_new:
            ray.shutdown()


class _Actor:
    """A process of Ray."""

    def work(self, work: Callable[[], Any]) -> Any:
        """Return the result of the work."""
        return work()


def _wait(ray: Any, tasks: list[Any]) -> Any:
    """Return the result of the last task that ended. Actors that are lost are logged, as others do their shards."""
    results, lost = [], DocmtError("")
    while tasks:
        (ended, *_), tasks = ray.wait(tasks)
        try:
            results.append(ray.get(ended))
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except ray.exceptions.RayError as error:
            lost = DocmtError(f"an actor of Ray is lost ({str(error).splitlines()[0]}): start the job again")
            _log.warning("%s", lost)
    if not results:
        raise lost
    return results[-1]


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise missing_package_error("--ray", "ray", "ray") from error
    return ray
