"""Run kernels that have released the GIL on several cores.

    run_all, run_chains, run_ranges   a list of tasks: returns once all are done
    in_lanes      a stream of tasks: each thread owns a resource, such as an engine on a GPU
    prefetched    a stream of items, made ahead by one thread
    Team.line     a stream of tasks: lines share a bounded team, the consumer helps (``team``)
    forked        a stream of tasks: in processes, each with a GIL of its own (``forks``)

All give results in the order of their tasks, and raise an error in the place of its result.

In lanes, threads take turns with tasks, while the caller takes their results in order:

    tasks    0  1  2  3  4 ...
    lane A   [ 0 ]  [ 2 ]  [ 4 ] ...
    lane B    [ 1 ]  [ 3 ] ...

A lane stands for a resource that only one thread may use at a time, such as an engine on a GPU.
Task i goes to lane i modulo the number of lanes, so the assignment does not depend on timing.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from trie.cpu.interrupts import interrupt_in

T = TypeVar("T")

GIL_BYTES = 1 << 18
"""Over this many bytes at most, a simple pass takes less time than getting the GIL back."""


def usable_cores() -> int:
    """The cores this process may run on: a container's or batch job's share of the host's."""
    return len(os.sched_getaffinity(0))


def most_threads() -> int:
    """The most threads of a pool or team: further ones would only compete for the cores."""
    return max(usable_cores(), 8)


class _Pool:
    """Up to ``most`` threads, started on demand, that run jobs in order; jobs must not raise.

    Unlike concurrent.futures it holds no lock in Python code: an interrupt between taking and
    releasing one would block every later caller. Operations on CPython's queues and lists are
    atomic.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._unfinished: list[None] = []
        self._threads: list[threading.Thread] = []
        atexit.register(self._end)

    def give(self, job: Callable[[], None]) -> None:
        """Run a job on the next idle thread, or never if no thread can be started."""
        self._unfinished.append(None)
        count = len(self._threads)
        if count < min(self._most, len(self._unfinished)):
            # a program that ends on an error waits for running jobs, not for queued ones
            thread = threading.Thread(target=self._run, name=f"{self._name}_{count}", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no memory, or a limit on threads
                if not self._threads:
                    self._unfinished.pop()
                    return
            else:
                self._threads.append(thread)
        self._jobs.put(job)

    @property
    def spare(self) -> int:
        """How many threads may be free: jobs of others do not occupy them for long."""
        return self._most

    def _run(self) -> None:
        for job in iter(self._jobs.get, None):
            job()
            del job  # releases its arrays before waiting for the next job
            self._unfinished.pop()
        self._jobs.put(None)

    def _end(self) -> None:
        """Kernels must not run on while the interpreter shuts down."""
        # each thread passes this on: an interrupt may have kept a thread out of the list
        self._jobs.put(None)
        for thread in self._threads:
            thread.join()


class Helpers(Protocol):
    """Threads that run jobs beside the thread that submits them."""

    def give(self, job: Callable[[], None]) -> None:
        """Run a job, which must not raise, on the next idle thread, or never."""

    @property
    def spare(self) -> int:
        """How many threads are free to help now."""


_caller = threading.local()


def tasks_go_to(helpers: Helpers | None) -> Helpers | None:
    """Set the helpers of this thread's tasks (None: the pool); returns the previous ones."""
    before: Helpers | None = getattr(_caller, "helpers", None)
    _caller.helpers = helpers
    return before


def in_background() -> None:
    """Run this thread's tasks in their own pool from now on.

    A pool runs jobs in order, so short jobs of other threads would wait for long ones.
    """
    tasks_go_to(_pool("background"))


@cache
def _pool(name: str) -> _Pool:
    return _Pool(name, most_threads())


def free_threads(threads: int) -> int:
    """How many of the threads are free to share a task now, this one included."""
    return threads if threads <= 1 else min(threads, 1 + _helpers().spare)


def _helpers() -> Helpers:
    """The helpers of this thread's tasks."""
    helpers: Helpers = getattr(_caller, "helpers", None) or _pool("kernel")
    return helpers


def run_all(tasks: Sequence[Callable[[], T]], threads: int) -> list[T]:
    """The results of all tasks, in order, run on up to ``threads`` threads, this one included.

    After an exception no further task begins, and the first exception is raised once all tasks have
    ended, so no kernel writes into an array that the caller has dropped. An interrupt, which this
    thread notices at the end of a task, takes precedence over other exceptions, which the caller
    might handle.
    """
    if threads <= 1 or len(tasks) <= 1:
        return [task() for task in tasks]
    waiting = deque(range(len(tasks)))
    results: dict[int, T] = {}
    errors: dict[int, BaseException] = {}

    def work() -> None:
        while True:
            try:
                index = waiting.popleft()
            except IndexError:
                return
            try:
                results[index] = tasks[index]()
            except BaseException as error:
                errors[index] = error
                waiting.clear()

    begun: list[None] = []
    ended: SimpleQueue[None] = SimpleQueue()
    # emptied at the end: jobs may stay queued for long and must not keep arrays alive
    works = [work]

    def help_() -> None:
        begun.append(None)
        for some in works:
            some()
        ended.put(None)

    helpers = _helpers()
    try:
        for _ in range(min(threads, len(tasks)) - 1):
            helpers.give(help_)
        work()
    finally:
        waiting.clear()
        # a helper that starts late finds nothing to do, but still reports its end
        count = 0
        while count < len(begun):
            ended.get()
            count += 1
        works.clear()
    if errors:
        raise next(filter(interrupt_in, errors.values()), errors[min(errors)])
    return [results[index] for index in range(len(tasks))]


def run_each(work: Callable[..., T], arguments: Iterable[Iterable[Any]], threads: int) -> list[T]:
    """The results of ``work(*arguments)`` for each element, in order, run as by ``run_all``."""
    return run_all([partial(work, *each) for each in arguments], threads)


def run_chains(chains: Iterable[Iterable[Callable[[], object]]], threads: int) -> None:
    """Run the steps of each chain one after the other, and chains side by side, as ``run_all``.

    After an exception no further step begins: the main thread notices an interrupt between two.
    """
    failed: list[None] = []

    def run(chain: Iterable[Callable[[], object]]) -> None:
        try:
            for step in chain:
                if failed:
                    return
                step()
        except BaseException:
            failed.append(None)
            raise

    run_each(run, [(chain,) for chain in chains], threads)


def run_ranges(
    work: Callable[[int, int], T],
    start: int,
    stop: int,
    threads: int,
    *,
    grain: int = 1,
    align: int = 1,
    most: int | None = None,
) -> list[T]:
    """The results of ``work(a, b)`` for ranges that cover [start, stop), in order, on threads.

    There is a range for each free thread, but at most one per ``grain`` and one more: each range
    costs a hand-over of the GIL. Cuts as in ``split_range``. most: the longest range; more ranges
    are made if needed, as the main thread notices an interrupt only between two.
    """
    parts = free_threads(min(threads, 1 + (stop - start) // grain))
    if most is not None:
        parts = max(parts, -(-(stop - start) // most))
    ranges = split_range(start, stop, parts, align=align)
    return run_each(work, ranges, threads)


def split_range(start: int, stop: int, parts: int, *, align: int = 1) -> list[tuple[int, int]]:
    """Cut [start, stop) into up to ``parts`` ranges of nearly equal length.

    Cuts lie at multiples of ``align`` from ``start``.
    """
    parts = max(1, min(parts, (stop - start) // max(align, 1)))
    cuts = [start + (stop - start) * i // parts // align * align for i in range(parts)] + [stop]
    cuts[0] = start
    return [(a, b) for a, b in zip(cuts, cuts[1:], strict=False) if b > a]


Lane = TypeVar("Lane")
Task = TypeVar("Task")
Part = TypeVar("Part")

DONE: Any = object()
"""Yielded by a lane after the last part of each task."""

_NO_MORE: Any = object()


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Runner(Generic[Task, Part]):
    """The thread of a lane."""

    def __init__(
        self, run: Callable[[Iterator[Task]], Iterator[Part]], name: str, ready: int
    ) -> None:
        self._run = run
        self.tasks: SimpleQueue[Any] = SimpleQueue()
        self.parts: SimpleQueue[Any] = SimpleQueue()
        self.taken: SimpleQueue[bool] = SimpleQueue()
        for _ in range(ready):
            self.taken.put(True)
        self.thread = threading.Thread(target=self._work, name=name, daemon=True)
        self.thread.start()

    def _work(self) -> None:
        try:
            running: Any = iter(self._run(iter(self.tasks.get, _NO_MORE)))
            try:
                for part in running:
                    self.parts.put(part)
                    if part is not DONE and not self.taken.get():
                        return
            finally:
                running.close()
        except BaseException as error:
            self.parts.put(_Failure(error))

    def results(self) -> Iterator[Part]:
        """The parts of the next task; a part has been used when the next one is requested."""
        while (part := self.parts.get()) is not DONE:
            if isinstance(part, _Failure):
                raise part.error
            yield part
            self.taken.put(True)

    def stop(self) -> None:
        """End the lane after its current part, and those that it may have ready."""
        self.tasks.put(_NO_MORE)
        self.taken.put(False)


def in_lanes(
    lanes: Sequence[Lane],
    tasks: Iterable[Task],
    run: Callable[[Lane, Iterator[Task]], Iterator[Part]],
    *,
    ahead: int = 2,
    ready: int = 0,
) -> Iterator[Part]:
    """The parts that the lanes yield, in the order of the tasks, which are taken one by one.

    run: a generator of the parts of one lane's tasks, with DONE after each task. It runs on its own
    thread, or on the caller's if there is a single lane. ahead: tasks that a lane may take before
    its first is done. ready: parts that a lane may yield before its first has been used; by default
    it is resumed only when the next part is requested, so a part may lie in a buffer of the lane.
    An error in a lane is raised where its part would have come, one of ``tasks`` after the parts of
    those before; then, or if the caller stops, every lane ends after its current part, and those
    that it may have ready.
    """
    if len(lanes) == 1:
        # no thread for one lane
        yield from (part for part in run(lanes[0], iter(tasks)) if part is not DONE)
        return
    runners: list[_Runner[Task, Part]] = []
    waiting: deque[_Runner[Task, Part]] = deque()
    fault: list[Exception] = []
    try:
        for lane in lanes:
            runners.append(_Runner(partial(run, lane), f"lane_{len(runners)}", ready))
        for number, task in enumerate(_before_fault(tasks, fault)):
            if len(waiting) == ahead * len(runners):
                yield from waiting.popleft().results()
            runner = runners[number % len(runners)]
            runner.tasks.put(task)
            waiting.append(runner)
        for runner in runners:
            runner.tasks.put(_NO_MORE)
        while waiting:
            yield from waiting.popleft().results()
        if fault:
            raise fault.pop()
    finally:
        for runner in runners:
            runner.stop()
        for runner in runners:
            runner.thread.join()


def _before_fault(tasks: Iterable[Task], fault: list[Exception]) -> Iterator[Task]:
    """The tasks; ``fault`` gets an error that ends them."""
    try:
        yield from tasks
    except Exception as error:
        fault.append(error)


def each_task(
    work: Callable[[Lane, Task], Iterable[Part]],
) -> Callable[[Lane, Iterator[Task]], Iterator[Part]]:
    """``run`` for ``in_lanes``: the parts of ``work``, task by task."""

    def run(lane: Lane, tasks: Iterator[Task]) -> Iterator[Part]:
        for task in tasks:
            yield from work(lane, task)
            yield DONE

    return run


def prefetched(
    items: Iterable[T],
    ahead: int = 2,
    *,
    idle: Callable[[], object] | None = None,
    idle_seconds: float = 0.2,
    pause: T | None = None,
) -> Iterator[T]:
    """Yield the items in order; a thread, a lane of its own, makes up to ``ahead`` in advance.

    Its errors are raised here. idle: called every ``idle_seconds`` while waiting for the next item.
    pause: yielded as often while no item is ready.
    """

    def run(_: Iterator[None]) -> Iterator[T]:
        yield from items
        yield DONE

    waits = None if idle is None and pause is None else idle_seconds
    lane: _Runner[None, T] = _Runner(run, "read-ahead", ahead)
    try:
        while True:
            try:
                item: Any = lane.parts.get(timeout=waits)
            except Empty:
                if idle is not None:
                    idle()
                if pause is not None:
                    yield pause
                continue
            if isinstance(item, _Failure):
                raise item.error
            if item is DONE:
                return
            yield item
            lane.taken.put(True)
    finally:
        # not joined: it may wait for a pipe
        lane.stop()
