"""Work on items in forked processes, each with a GIL of its own.

    items ─▶ the least busy process ─▶ work ─▶ results, in the order of the items

Beside fifteen others a thread waits about a millisecond each time it needs the GIL. A fork takes a
few milliseconds and copies only the pages that are written to later, so a dictionary and its index
are shared. Items and results are pickled, arrays apart from the rest.

What the work does to other objects stays in the forked process, except for the time of its stages.
"""

import os
import pickle
import select
import signal
import socket
import struct
import sys
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar

import numpy as np

from trie.cpu.machine import end_with
from trie.cpu.stages import Stages
from trie.cpu.team import Failed

T = TypeVar("T")
R = TypeVar("R")

CAN_FORK = sys.platform == "linux"
"""Elsewhere, libraries of the system may not survive a fork."""

AHEAD = 4
"""Items per process by which the work may be ahead of the consumer."""

MOST_BYTES = 1 << 28
"""Of results that wait to be taken; beyond this, processes wait until those before them are."""

_END = object()
_EACH = 2  # items that a process has at a time: the current one and the next
_SIZE = struct.Struct("<Q")
_SOCKET_BYTES = 1 << 20
_SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP


def forked(
    items: Iterable[T],
    work: Callable[[T], Iterable[R]],
    processes: int,
    stages: Stages,
    *,
    works: str,
    takes: str,
) -> Generator[R]:
    """Yield the results of the work on each item, in order, from up to this many processes.

    The first result is made here before the first fork, so that what it loads or compiles is
    shared. Here, too, are made those that a process that ended early did not give, and all others
    if none can be forked, each when it is its turn: so the work must give the same results again.
    Exceptions are raised in their place. works, takes: the stages that work on an item and take a
    result; ``stages`` get the time of the processes at the end.
    """
    stages.shared.add(works)
    rest = iter(items)
    for first in rest:
        with stages.aside():
            results = list(islice(work(first), 1))
        if not results:
            continue
        forks = _Forks(chain((first,), rest), work, processes, stages, (works, takes))
        try:
            forks.give()
            yield from results
            yield from islice(forks, len(results), None)
            forks.finish()
        finally:
            forks.close()


class _Process(NamedTuple):
    """A forked process, and the numbers of the items that it has not answered."""

    pid: int
    connection: socket.socket
    numbers: deque[int]


@dataclass
class _Given:
    """An item that was handed out, and its results that are not yet taken, with their bytes.

    received: how many results have come. complete: there are no more. rest: makes those that no
    process will give.
    """

    item: Any
    results: deque[tuple[int, Any]] = field(default_factory=deque)
    received: int = 0
    complete: bool = False
    rest: Iterator[Any] | None = None


class _Forks(Iterator[Any]):
    def __init__(
        self, items: Iterator[Any], work: Callable[[Any], Iterable[Any]], most: int,
        stages: Stages, names: tuple[str, str],
    ) -> None:  # fmt: skip
        self._items = items
        self._work = work
        self._most = most
        self._stages = stages
        self._works, self._takes = names
        self._processes: list[_Process] = []
        self._given: dict[int, _Given] = {}
        self._count = self._taken = 0  # items given, and those of which all results are taken
        self._bytes = 0
        self._ended = False

    def __next__(self) -> Any:
        """The next result."""
        while True:
            self.give()
            if self._taken == self._count:
                raise StopIteration
            item = self._given[self._taken]
            if item.results:
                size, result = item.results.popleft()
                self._bytes -= size
                if isinstance(result, Failed):
                    raise result.error
                return result
            if item.complete:
                del self._given[self._taken]
                self._taken += 1
            elif any(self._taken in each.numbers for each in self._processes):
                self._receive()
            else:
                with self._stages.spent(self._works):
                    if item.rest is None:
                        item.rest = islice(self._work(item.item), item.received, None)
                    result = next(item.rest, _END)
                if result is not _END:
                    return result
                item.complete = True

    def finish(self) -> None:
        """Add up what the processes spent on the stages."""
        for each in self._processes:
            try:
                each.connection.shutdown(socket.SHUT_WR)
                self._stages.add_all(_receive(each.connection)[1])
            except (OSError, EOFError):
                continue

    def close(self) -> None:
        """End the processes."""
        _end(self._processes)
        self._processes.clear()

    def give(self) -> None:
        """Hand out items until all processes have enough."""
        while not self._ended and self._room():
            try:
                item = _Given(next(self._items))
            except StopIteration:
                self._ended = True
                return
            except Exception as error:
                self._given[self._count] = _Given(None, deque([(0, Failed(error))]), 1, True)
                self._ended = True
            else:
                self._given[self._count] = item
                if self._processes:
                    self._hand_out(self._count)
            self._count += 1

    def _room(self) -> bool:
        """Whether another item may be handed out now; forks a process if all are busy."""
        busy = [len(each.numbers) for each in self._processes]
        if self._count - self._taken >= max(1, AHEAD * len(busy)):
            return False
        if len(busy) < self._most and all(busy) and self._fork():
            return True
        return not busy or min(busy) < _EACH

    def _hand_out(self, number: int) -> None:
        each = min(self._processes, key=lambda each: len(each.numbers))
        each.numbers.append(number)
        try:
            _send(each.connection, self._given[number].item)
        except OSError:
            self._lost(each)

    def _receive(self) -> None:
        """Wait for results: if many wait to be taken, for those of the next item only."""
        full = self._bytes > MOST_BYTES
        there = {
            each.connection.fileno(): each
            for each in self._processes
            if not full or self._taken in each.numbers
        }
        poll = select.poll()
        for connection in there:
            poll.register(connection, select.POLLIN)
        with self._stages.spent(self._takes, "input"):
            ready = poll.poll()
        with self._stages.spent(self._takes):
            for connection, _ in ready:
                self._receive_from(there[connection])

    def _receive_from(self, process: _Process) -> None:
        try:
            size, results = _receive(process.connection)
        except Exception:  # it has ended, or sent an exception that cannot be unpickled
            self._lost(process)
            return
        item = self._given[process.numbers[0]]
        for result in results:
            item.results.append((size, result))
            item.received += 1
            self._bytes += size
        if not results:
            item.complete = True
            process.numbers.popleft()

    def _lost(self, process: _Process) -> None:
        """Go on without a process that has ended, perhaps killed for its memory."""
        self._processes.remove(process)
        self._most = len(self._processes)
        _end([process])

    def _fork(self) -> bool:
        """Fork a process; if that fails, none is tried again."""
        try:
            ours, theirs = socket.socketpair()
        except OSError:
            self._most = 0
            return False
        for end in ours, theirs:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
        parent = os.getpid()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        try:
            # they are for this process, or for handlers that the new one sets
            signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
            with warnings.catch_warnings():
                # other threads hold no locks: those of a team wait
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if not pid:
                try:
                    self._serve(parent, theirs, ours)
                finally:
                    # runs, flushes and closes nothing that is the parent's
                    os._exit(0)
            self._processes.append(_Process(pid, ours, deque()))
        except BaseException as error:
            ours.close()
            if not isinstance(error, OSError):
                raise
            self._most = 0
            return False
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        return True

    def _serve(self, parent: int, connection: socket.socket, other: socket.socket) -> None:
        """Work on items until there are no more, in the forked process."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in signal.SIGTERM, signal.SIGHUP:
            # unfinished files are the parent's
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        end_with(parent)
        # the parent speaks for all; another thread of it may have held the lock of its stream
        sys.stderr = open(os.devnull, "w")
        for end in other, *(each.connection for each in self._processes):
            end.close()
        self._stages.restart()
        # if it ends early, the parent works on its items
        with suppress(Exception):
            with suppress(EOFError):
                while True:
                    _, item = _receive(connection)
                    for result in self._results(item):
                        _send(connection, [result])
                    _send(connection, [])
            _send(connection, self._stages.all())

    def _results(self, item: Any) -> Iterator[Any]:
        """Yield the results of an item, the last of which may be an error."""
        try:
            with self._stages.spent(self._works):
                results = iter(self._work(item))
            while True:
                with self._stages.spent(self._works):
                    result = next(results, _END)
                if result is _END:
                    return
                yield result
        except MemoryError:
            raise  # one process alone may have enough
        except Exception as error:
            yield Failed(error)


def _end(processes: list[_Process]) -> None:
    for each in processes:
        with suppress(ProcessLookupError):
            os.kill(each.pid, signal.SIGKILL)
    for each in processes:
        with suppress(ChildProcessError):  # if SIGCHLD is ignored
            os.waitpid(each.pid, 0)
        each.connection.close()


def _send(connection: socket.socket, item: Any) -> None:
    arrays: list[pickle.PickleBuffer] = []
    head = pickle.dumps(item, protocol=5, buffer_callback=arrays.append)
    parts = [memoryview(head), *(array.raw() for array in arrays)]
    sizes = struct.pack(f"<{1 + len(parts)}Q", len(parts), *map(len, parts))
    for part in (memoryview(sizes), *parts):
        connection.sendall(part, socket.MSG_NOSIGNAL)


def _receive(connection: socket.socket) -> tuple[int, Any]:
    """Receive an item, with its bytes; EOFError or OSError if the other end is closed."""
    (count,) = _SIZE.unpack(_received(connection, _SIZE.size))
    sizes = struct.unpack(f"<{count}Q", _received(connection, count * _SIZE.size))
    head, *arrays = [_received(connection, size) for size in sizes]
    return sum(sizes), pickle.loads(head, buffers=arrays)


def _received(connection: socket.socket, size: int) -> memoryview:
    # unlike a bytearray it is not filled with zeros first
    memory = np.empty(size, np.uint8).data
    at = 0
    while at < size:
        count = connection.recv_into(memory[at:], 0, socket.MSG_WAITALL)
        if not count:
            raise EOFError
        at += count
    return memory
