"""Compile each kernel once although several processes fill one cache.

The first process that needs a kernel takes its lock and compiles it; the others wait, then load it.
A lock is released when its process ends. ``current`` counts what this process loads and stores.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable
from typing import IO, TypeVar

_T = TypeVar("_T")


class SharedCompiling:
    """Compiling under locks in ``folder``.

    files: cache files that kernels were loaded from or stored in. compiled: number of kernels.
    problem: why one could not be stored, in one line.
    """

    def __init__(self, folder: str) -> None:
        self.files: set[str] = set()
        self.compiled = 0
        self.problem: str | None = None
        self._folder = folder
        self._locks: dict[str, IO[bytes]] = {}

    def load(self, file: str, load: Callable[[], _T | None]) -> _T | None:
        """What ``load`` finds in a cache file; None if this process is to compile the kernel."""
        found = load()
        if found is None and file not in self._locks:
            name = hashlib.sha256(file.encode()).hexdigest()
            lock = open(os.path.join(self._folder, name), "wb")
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = load()
            if found is None:
                self._locks[file] = lock
                return None
            lock.close()
        if found is not None:
            self.files.add(file)
        return found

    def stored(self, file: str, problem: str | None = None) -> None:
        """Note that a kernel was compiled, and stored in that file unless there is a problem."""
        self.compiled += 1
        if problem is None and os.path.exists(file):
            self.files.add(file)
        self.problem = self.problem or problem
        lock = self._locks.pop(file, None)
        if lock is not None:
            lock.close()


current: SharedCompiling | None = None
"""None if processes do not wait for each other."""
