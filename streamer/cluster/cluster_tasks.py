"""Tasks of a few seconds on a cluster: results come in order, even if workers fail.

A ``Task`` holds what all tasks of a command share (patterns, a dictionary), and runs on one part of
the work after the other. It is stored once per node; each worker prepares it once and keeps it. A
run has no side effects, so a lost one is simply repeated.
"""

from __future__ import annotations

import contextlib
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from streamer import __version__
from streamer.cluster.connecting import Cluster, Parts, packed, unpacked
from streamer.errors import StreamerError
from trie.cpu.team import Team

T = TypeVar("T")

RETRIES = 7
"""How often to retry a task whose worker has died, before its input is blamed."""

_CHECK_SECONDS = 1.0  # how long to wait for results before checking that the head is alive

_kept: dict[str, Task] = {}


class Task:
    """Work of a class from a module that workers can import."""

    def prepare(self) -> None:
        """Called once per process, before ``run``."""

    def run(self, part: Any) -> Any:
        """Return the result of a part."""
        raise NotImplementedError


TASKS_A_WORKER = 8
"""The fewest tasks per worker that a job is cut into; with fewer, some would idle at the end."""


def part_size(usual: int, least: int, whole: int | None, workers: int) -> int:
    """Return the size of a part; ``whole``: the approximate total, if known."""
    if whole is None:
        return usual
    return max(min(least, usual), min(usual, whole // (TASKS_A_WORKER * max(1, workers))))


class TaskFailed(NamedTuple):
    """Stands for a result: the message of a StreamerError."""

    lines: list[str]
    exit_code: int


class RemoteError(StreamerError):
    """An error of a worker."""

    def __init__(self, failed: TaskFailed) -> None:
        self._lines = failed.lines
        self.exit_code = failed.exit_code
        super().__init__("; ".join(failed.lines))

    def lines(self) -> list[str]:
        """Return the worker's message lines."""
        return self._lines


def check_version(version: str, other: str = "this command") -> None:
    """On a worker: raise StreamerError unless its version is that of the ``other`` process."""
    if version != __version__:
        raise StreamerError(
            f"a worker has version {__version__} of kmer-streamer, {other} {version}"
        )


def perform(version: str, key: str, task: Parts, part: Parts) -> Parts:
    """On a worker: run a task on one part, on one thread; return the packed result."""
    try:
        check_version(version)
        with Team(1):
            if key not in _kept:
                # drop what another command has left
                _kept.clear()
                made: Task = unpacked(task)
                made.prepare()
                _kept[key] = made
            return packed(_kept[key].run(unpacked(part)))
    except StreamerError as error:
        return packed(TaskFailed(error.lines(), error.exit_code))


class ClusterTasks:
    """Runs of one task. gpu: each needs a GPU."""

    def __init__(self, cluster: Cluster, task: Task, *, gpu: bool = False) -> None:
        self.cluster = cluster
        self._gpu = gpu
        self._key = secrets.token_hex(8)
        self._task = cluster.ray.put(packed(task))
        self._remote = cluster.ray.remote(perform).options(
            num_cpus=1, num_gpus=int(gpu), max_retries=RETRIES, scheduling_strategy="SPREAD"
        )

    @property
    def workers(self) -> int:
        """How many tasks run at a time."""
        return max(1, self.cluster.gpus if self._gpu else self.cluster.cpus)

    def in_order(self, parts: Iterable[Any]) -> Iterator[Any]:
        """Yield the results of all parts, as ``paired`` does."""
        for _, result in self.paired((None, part) for part in parts):
            yield result

    def paired(self, parts: Iterable[tuple[T, Any]]) -> Iterator[tuple[T, Any]]:
        """Yield the results of all parts, in order, each beside what stood beside its part here.

        A bounded number of tasks runs ahead. An error raised by ``parts`` follows the results of
        the parts before it. If the iterator is closed early, outstanding tasks are cancelled.
        """
        waiting: deque[tuple[T, Any]] = deque()
        rest = iter(parts)
        fault: BaseException | None = None
        ended = False
        # each worker has one waiting
        ahead = 2 * self.workers + 1
        try:
            while True:
                while not ended and len(waiting) < ahead:
                    try:
                        own, part = next(rest)
                    except StopIteration:
                        ended = True
                    except StreamerError as error:
                        fault, ended = error, True
                    else:
                        part = packed(part)
                        task = self._remote.remote(__version__, self._key, self._task, part)
                        waiting.append((own, task))
                if not waiting:
                    break
                own, task = waiting.popleft()
                yield own, result_of(self.cluster, task, unpacked)
            if fault is not None:
                raise fault
        finally:
            cancel(self.cluster, (task for _, task in waiting))


def result_of(cluster: Cluster, reference: Any, read: Callable[[Any], Any]) -> Any:
    """Return a task's result, converted by ``read``; StreamerError if it failed or was lost."""
    errors = cluster.ray.exceptions
    try:
        result = read(_got(cluster, reference))
    except errors.RayTaskError as error:
        cause = error.cause if isinstance(error.cause, Exception) else error
        raise StreamerError(
            f"a worker failed: {type(cause).__name__}: {' '.join(str(cause).split())[:400]}"
        ) from error
    except (errors.RayError, ConnectionError) as error:
        raise StreamerError(
            f"workers died {RETRIES + 1} times in the same part of the work, or the cluster is "
            f"lost ({type(error).__name__})"
        ) from error
    if isinstance(result, TaskFailed):
        raise RemoteError(result)
    return result


def _got(cluster: Cluster, reference: Any) -> Any:
    """Wait for a task's result; raise StreamerError if the cluster is lost meanwhile."""
    while True:
        try:
            return cluster.ray.get(reference, timeout=_CHECK_SECONDS)
        except cluster.ray.exceptions.GetTimeoutError:
            cluster.check()


def cancel(cluster: Cluster, references: Iterable[Any]) -> None:
    """Cancel tasks whose results are no longer needed."""
    for reference in references:
        with contextlib.suppress(Exception):
            cluster.ray.cancel(reference, force=True)
