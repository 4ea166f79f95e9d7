"""A team of a bounded number of threads that share one chain of work.

    line      items, pulled one by one, by one thread at a time, and each worked on by the
              thread that pulled it, while others pull and work on the next ones
    chain     a line whose items are computed from the results of another line

Results come in the order of the items. A line runs at most ``ahead`` items ahead of the consumer of
its results, so memory is bounded and a slow consumer slows the producers down. The thread that
waits for a result helps to compute it: with one thread everything is done in turn, and nothing
ahead of time.

As in ``trie.cpu.threads`` nothing waits for a lock held by Python code, which an interrupt could
leave locked: locks are acquired without blocking, and each queue operation is one step of CPython.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import call
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, Self, TypeVar

from trie.cpu.stages import Stages
from trie.cpu.threads import most_threads, tasks_go_to

T = TypeVar("T")
R = TypeVar("R")

_POLL_SECONDS = 0.1  # covers a wake-up that went to a thread that had just begun
_END_SECONDS = 1.0  # a step takes some hundredths; a thread may wait forever for input


class Failed(NamedTuple):
    """An exception in the place of a result."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Done(Generic[R]):
    """The result of work that has been done, among calls that are still to do theirs."""

    result: R


Part = Callable[[], R] | Done[R]
"""Work to do, or done already."""


class Team:
    """Up to ``threads`` threads including the caller's; a context manager that ends the others.

    ``threads`` is then their number: there are never more than ``most_threads``.

    Meanwhile, tasks that these threads give to ``trie.cpu.threads`` are shared among them too.
    live: input may be slow to arrive, and results are wanted at once, so the thread that takes them
    does nothing else if there are others.
    """

    def __init__(self, threads: int, *, live: bool = False, stages: Stages | None = None) -> None:
        self.threads = min(threads, most_threads())
        self.stages = stages or Stages()
        self.stopped = False
        self.lent = 0
        self._lent_for = ""
        self._back: SimpleQueue[None] = SimpleQueue()
        self.helps = self.threads == 1 or not live
        self._jobs: deque[Callable[[], None]] = deque()
        self._lines: tuple[Line, ...] = ()  # type: ignore[type-arg]
        self._idle: deque[SimpleQueue[None]] = deque()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._before = tasks_go_to(self)
        for number in range(self.threads - self.helps):
            thread = threading.Thread(
                target=self._run, args=(number,), name=f"team_{number}", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # no memory, or a limit on threads
                self.helps = self.helps or not self._threads
                break
            self._threads.append(thread)
        return self

    def __exit__(self, *error: object) -> None:
        self.stopped = True
        tasks_go_to(self._before)
        for _ in self._threads:
            self.wake()
            self._back.put(None)
        deadline = time.monotonic() + _END_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for line in self._lines:
            line.close()

    def line(
        self,
        items: Iterable[T],
        work: Callable[[T], R],
        ahead: int,
        *,
        pulls: str = "",
        works: str = "",
        takes: str = "",
    ) -> Line[T, R]:
        """The results of ``work`` for each item, in order; exceptions are raised in their place.

        pulls, works, takes: the stages that get an item, work on it, and take the result.
        """
        self.stages.shared.add(works)
        line = Line(self, iter(items), work, ahead, (pulls, works, takes))
        # lines at the end of the chain are pulled from first, and come first
        self._lines = (*self._lines, line)
        for _ in self._threads:
            self.wake()
        return line

    def results(
        self, parts: Iterable[Part[R]], *, pulls: str = "", works: str = "", takes: str = ""
    ) -> Iterator[R]:
        """The results of parts, in order; calls go through a line, a ``Done`` wakes no thread."""

        def line(calls: Iterator[Callable[[], R]]) -> Iterator[R]:
            return self.line(calls, call, self.threads + 2, pulls=pulls, works=works, takes=takes)

        return results_of(parts, line)

    def forget(self, line: Line[T, R]) -> None:
        """Remove a line that has ended."""
        self._lines = tuple(each for each in self._lines if each is not line)

    def give(self, job: Callable[[], None]) -> None:
        """Run a job on the next idle thread, or never if none becomes idle."""
        self._jobs.append(job)
        self.wake()

    @property
    def spare(self) -> int:
        """The number of idle threads."""
        return len(self._idle)

    def wake(self) -> None:
        """Wake an idle thread: there is work to do."""
        try:
            self._idle.popleft().put(None)
        except IndexError:
            return

    @contextmanager
    def lend(self, threads: int, stage: str) -> Iterator[None]:
        """Let a library's threads replace up to ``threads`` of the team's, for a stage."""
        self._lent_for = stage
        self.stages.shared.add(stage)
        self.lent += threads
        try:
            yield
        finally:
            self.lent -= threads
            for _ in range(threads):
                self._back.put(None)

    def _run(self, number: int) -> None:
        tasks_go_to(self)
        bell: SimpleQueue[None] = SimpleQueue()
        while not self.stopped:
            if number < self.lent:
                with self.stages.spent(self._lent_for):
                    wait_for(self._back)
                continue
            if self._step():
                continue
            self._idle.append(bell)
            if not self._step():
                self._wait(bell)
            try:
                self._idle.remove(bell)
            except ValueError:
                continue

    def _wait(self, bell: SimpleQueue[None]) -> None:
        if not self._lines:
            wait_for(bell)
            return
        last = self._lines[0]
        with self.stages.spent(last.works, "output" if last.full else "input"):
            wait_for(bell)

    def _step(self) -> bool:
        """Do one piece of work; whether there was any."""
        return any(line.help() for line in self._lines) or self.do_job()

    def do_job(self) -> bool:
        """Do a job that a thread has given; whether there was any."""
        try:
            job = self._jobs.popleft()
        except IndexError:
            return False
        job()
        return True

    def rest(self, bell: SimpleQueue[None]) -> None:
        """Wait for a bell, which is also rung when a job is given."""
        self._idle.append(bell)
        if not self._jobs:
            wait_for(bell)
        try:
            self._idle.remove(bell)
        except ValueError:
            if not self._jobs:
                self.wake()  # there is work of another kind


class Line(Generic[T, R], Iterator[R]):
    """A line of a team; one thread at a time takes its results."""

    def __init__(
        self,
        team: Team,
        items: Iterator[T],
        work: Callable[[T], R],
        ahead: int,
        names: tuple[str, str, str],
    ) -> None:
        self._team = team
        self._items = items
        self._work = work
        self._ahead = max(1, ahead)
        self._pulls, self.works, self._takes = names
        self._turn = threading.Lock()  # its holder pulls
        self._closed = False
        self._results: dict[int, R | Failed] = {}
        self._pulled = self._taken = 0
        self._ended = False
        self._full_since = 0.0
        self._bell: SimpleQueue[None] = SimpleQueue()

    @property
    def full(self) -> bool:
        """Whether the line is as far ahead as it may be."""
        return self._pulled - self._taken >= self._ahead

    def help(self) -> bool:
        """Pull an item and work on it, if possible now."""
        if self._ended or self.full or not self._turn.acquire(blocking=False):
            return False
        try:
            if self._ended or self.full or self._team.stopped:
                return False
            number = self._pulled
            try:
                with self._team.stages.spent(self._pulls):
                    item = next(self._items)
            except StopIteration:
                self._ended = True
                return False
            except BaseException as error:
                self._results[number] = Failed(error)
                self._pulled += 1
                self._ended = True
                return True
            self._pulled += 1
            if self.full:
                self._full_since = time.perf_counter()
        finally:
            self._turn.release()
            self._bell.put(None)
            self._team.wake()
            self._close_items()
        try:
            with self._team.stages.spent(self.works):
                self._results[number] = self._work(item)
        except BaseException as error:
            self._results[number] = Failed(error)
            self._ended = True
        self._bell.put(None)
        return True

    def __next__(self) -> R:
        """The next result; RuntimeError if the team has ended."""
        number = self._taken
        # a thread that pulls for another line helps here in any case, but does no jobs
        assists = self._team.helps and bool(self._takes)
        wait = self._team.rest if assists else wait_for
        while number not in self._results:
            if self._ended and number == self._pulled:
                self._team.forget(self)
                raise StopIteration
            if self._team.stopped:
                raise RuntimeError("the team has ended")
            if (assists or not self._takes) and self.help():
                continue
            if assists and self._team.do_job():
                continue
            with self._team.stages.spent(self._takes or self._pulls, "input"):
                wait(self._bell)
        result = self._results.pop(number)
        if self.full and self._full_since:
            self._team.stages.add(self._pulls, "output", time.perf_counter() - self._full_since)
        self._taken += 1
        self._team.wake()
        if isinstance(result, Failed):
            raise result.error
        return result

    def close(self) -> None:
        """End the line early; its items are closed, by the thread that waits for one if any."""
        self._ended = self._closed = True
        self._team.forget(self)
        self._results.clear()
        self._close_items()

    def _close_items(self) -> None:
        # the last holder keeps the lock
        if self._closed and self._turn.acquire(blocking=False) and hasattr(self._items, "close"):
            self._items.close()


def results_of(
    parts: Iterable[Part[R]],
    in_order: Callable[[Iterator[Callable[[], R]]], Iterator[R]] = partial(map, call),
) -> Generator[R]:
    """The results of parts, in order; ``in_order`` makes each run of calls."""
    for done, run in groupby(parts, lambda part: isinstance(part, Done)):
        some: Iterator[Any] = run
        yield from (part.result for part in some) if done else in_order(some)


def wait_for(bell: SimpleQueue[None]) -> None:
    """Wait for the bell, at most _POLL_SECONDS."""
    try:
        bell.get(timeout=_POLL_SECONDS)
    except Empty:
        return
