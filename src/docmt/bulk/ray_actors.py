"""Workers of a bulk job as actors of Ray, which starts them on the machines of a cluster and restarts dead ones."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from docmt.core.errors import DocmtError

Result = TypeVar("Result")
_RESTARTS = 20  # of an actor: a document that ends its process must not restart it for ever
_log = logging.getLogger(__name__)


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
        raise DocmtError("--ray needs the library ray: pip install 'docmt[ray]'") from error
    return ray
