"""Tasks of seconds on a cluster: their results in order, whatever happens to workers.

A task is a function, what all tasks of a command share (patterns, a dictionary), and its own part
of the work. What is shared is put once a node; each worker prepares it once and keeps it. A task
has no effect but its result, so that a lost one is simply run again.
"""

from __future__ import annotations

import contextlib
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from streamer import __version__
from streamer.cluster.connecting import Cluster
from streamer.cluster.shared_objects import Parts, packed, unpacked
from streamer.errors import StreamerError
from trie.cpu.team import Team

RETRIES = 7
"""How often a task is run again whose worker has died, before its input is blamed."""

_CHECK_SECONDS = 1.0  # of waiting, after which the head is asked whether it is there

_kept: dict[str, Any] = {}


class Work(NamedTuple):
    """Functions of modules that workers import too.

    prepare: from what is shared, what ``run`` takes beside a part; once in a process.
    """

    prepare: Callable[[Any], Any]
    run: Callable[[Any, Any], Any]


TASKS_A_WORKER = 8
"""The fewest tasks that a job is cut into, for each worker: else some would idle at its end."""


def part_size(usual: int, least: int, whole: int | None, workers: int) -> int:
    """The size of a part, of about ``whole`` in all if that is known."""
    if whole is None:
        return usual
    return max(min(least, usual), min(usual, whole // (TASKS_A_WORKER * max(1, workers))))


class TaskFailed(NamedTuple):
    """In the place of a result: what a StreamerError says."""

    lines: list[str]
    exit_code: int


class RemoteError(StreamerError):
    """An error of a worker."""

    def __init__(self, failed: TaskFailed) -> None:
        self._lines = failed.lines
        self.exit_code = failed.exit_code
        super().__init__("; ".join(failed.lines))

    def lines(self) -> list[str]:
        """As the worker had them."""
        return self._lines


def check_version(version: str) -> None:
    """On a worker: StreamerError unless it has the version of the command."""
    if version != __version__:
        message = f"a worker has version {__version__} of kmer-streamer, this command {version}"
        raise StreamerError(message)


def perform(version: str, work: Work, key: str, shared: Parts, part: Parts) -> Parts:
    """On a worker: one task, on one thread. The result is packed."""
    try:
        check_version(version)
        with Team(1):
            if key not in _kept:
                # what another command has left is not needed any more
                _kept.clear()
                _kept[key] = work.prepare(unpacked(shared))
            return packed(work.run(_kept[key], unpacked(part)))
    except StreamerError as error:
        return packed(TaskFailed(error.lines(), error.exit_code))


class ClusterTasks:
    """The tasks of one kind of work, which share an object.

    gpu: each needs one.
    """

    def __init__(self, cluster: Cluster, work: Work, shared: Any, *, gpu: bool = False) -> None:
        self.cluster = cluster
        self._gpu = gpu
        self._work = work
        self._key = secrets.token_hex(8)
        self._shared = cluster.ray.put(packed(shared))
        self._remote = cluster.ray.remote(perform).options(
            num_cpus=1, num_gpus=int(gpu), max_retries=RETRIES, scheduling_strategy="SPREAD"
        )

    @property
    def ahead(self) -> int:
        """Tasks that are submitted at a time at most: each worker has one that waits."""
        return 2 * max(1, self.cluster.gpus if self._gpu else self.cluster.cpus) + 1

    def submit(self, part: Any) -> Any:
        """A reference to the result of a task."""
        return self._remote.remote(__version__, self._work, self._key, self._shared, packed(part))

    def result(self, reference: Any) -> Any:
        """The result, once it is there; StreamerError in its place."""
        return result_of(self.cluster, reference, unpacked)

    def in_order(self, parts: Iterable[Any]) -> Iterator[Any]:
        """The results of all parts, in order; a bounded number of tasks is ahead of them.

        What the parts raise comes behind the results of those before. If the iterator is left
        early, the tasks that are still there are cancelled.
        """
        waiting: deque[Any] = deque()
        rest = iter(parts)
        fault: BaseException | None = None
        ended = False
        try:
            while True:
                while not ended and len(waiting) < self.ahead:
                    try:
                        waiting.append(self.submit(next(rest)))
                    except StopIteration:
                        ended = True
                    except StreamerError as error:
                        fault, ended = error, True
                if not waiting:
                    break
                yield self.result(waiting.popleft())
            if fault is not None:
                raise fault
        finally:
            cancel(self.cluster, waiting)


def result_of(cluster: Cluster, reference: Any, read: Callable[[Any], Any]) -> Any:
    """What a task returned, as ``read`` makes it; StreamerError if it failed or was lost."""
    errors = cluster.ray.exceptions
    try:
        found = read(_got(cluster, reference))
    except errors.RayTaskError as error:
        cause = error.cause if isinstance(error.cause, Exception) else error
        message = f"a worker failed: {type(cause).__name__}: {' '.join(str(cause).split())[:400]}"
        raise StreamerError(message) from error
    except (errors.RayError, ConnectionError) as error:
        message = (
            f"workers died {RETRIES + 1} times in the same part of the work, or the cluster is "
            f"lost ({type(error).__name__})"
        )
        raise StreamerError(message) from error
    if isinstance(found, TaskFailed):
        raise RemoteError(found)
    return found


def _got(cluster: Cluster, reference: Any) -> Any:
    """What a task returned, once it has; StreamerError if the cluster is lost meanwhile."""
    while True:
        try:
            return cluster.ray.get(reference, timeout=_CHECK_SECONDS)
        except cluster.ray.exceptions.GetTimeoutError:
            cluster.check()


def cancel(cluster: Cluster, references: Iterable[Any]) -> None:
    """End tasks whose results nobody wants any more."""
    for reference in references:
        with contextlib.suppress(Exception):
            cluster.ray.cancel(reference, force=True)
