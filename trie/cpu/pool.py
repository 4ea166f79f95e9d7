"""Threads that run what they are given, made when there is more to do than threads.

Whoever gives takes no lock of Python code: an interrupt can come behind the step that takes one and
before the step that sees to its release, as in concurrent.futures, and all would wait for it from
then on. Queues and lists of CPython do each step in one.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from queue import SimpleQueue


class Helpers:
    """At most so many threads, which run jobs that raise nothing in the order they are given."""

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._unfinished: list[None] = []
        self._threads: list[threading.Thread] = []
        atexit.register(self._end)

    def give(self, job: Callable[[], None]) -> None:
        """Have a job run by the next thread that has nothing else to do.

        Where not one thread can be started, nobody runs it: who gives can do the work as well.
        """
        self._unfinished.append(None)
        count = len(self._threads)
        if count < min(self._most, len(self._unfinished)):
            # a program that ends on an error waits for what runs, not for what may come
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

    def _run(self) -> None:
        for job in iter(self._jobs.get, None):
            job()
            del job  # and what it holds, before the next is waited for
            self._unfinished.pop()
        self._jobs.put(None)

    def _end(self) -> None:
        """Kernels must not run on while the interpreter takes itself to pieces."""
        # each thread hands it to the next, as an interrupt may have come before one was listed
        self._jobs.put(None)
        for thread in self._threads:
            thread.join()
