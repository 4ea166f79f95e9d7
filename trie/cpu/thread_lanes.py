"""Lanes: threads that take turns with tasks, while the caller takes their results in order.

    tasks    0  1  2  3  4 ...
    lane A   [ 0 ]  [ 2 ]  [ 4 ] ...
    lane B    [ 1 ]  [ 3 ] ...

A lane stands for a resource that only one thread may use at a time, such as an engine on a GPU.
Task i goes to lane i modulo the number of lanes, so the assignment does not depend on timing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

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
        self._taken: SimpleQueue[bool] = SimpleQueue()
        for _ in range(ready):
            self._taken.put(True)
        self.thread = threading.Thread(target=self._work, name=name, daemon=True)
        self.thread.start()

    def _work(self) -> None:
        try:
            running: Any = iter(self._run(iter(self.tasks.get, _NO_MORE)))
            try:
                for part in running:
                    self.parts.put(part)
                    if part is not DONE and not self._taken.get():
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
            self._taken.put(True)

    def stop(self) -> None:
        """End the lane after its current part, and those that it may have ready."""
        self.tasks.put(_NO_MORE)
        self._taken.put(False)


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
