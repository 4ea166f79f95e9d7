"""Change events from the file system: hints that may be missing or wrong."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from watchfiles import watch

_GROUP_MS = 400  # window in which events are grouped
_STEP_MS = 100
_MOST = 1000


class Hints:
    """A thread that collects the changed paths below a folder.

    note: called with a line if events are unavailable.
    """

    def __init__(self, folder: str, note: Callable[[str], None]) -> None:
        self._roots = {os.path.abspath(folder), os.path.realpath(folder)}
        self._folder = folder
        self._note = note
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._any = threading.Event()
        self._stop = threading.Event()
        threading.Thread(target=self._run, name="hints", daemon=True).start()

    def wait(self, seconds: float) -> set[str] | None:
        """Return the paths changed since the last call; None if they are too many.

        Returns on the first change, or after ``seconds`` at the latest.
        """
        self._any.wait(seconds)
        with self._lock:
            changed, self._changed = self._changed, set()
            self._any.clear()
        return None if len(changed) > _MOST else changed

    def close(self) -> None:
        """Stop collecting."""
        self._stop.set()

    def _run(self) -> None:
        try:
            for changes in watch(
                self._folder,
                watch_filter=None,
                debounce=_GROUP_MS,
                step=_STEP_MS,
                stop_event=self._stop,
                raise_interrupt=False,
                ignore_permission_denied=True,
            ):
                paths = {below for _, path in changes if (below := self._below(path))}
                with self._lock:
                    self._changed |= paths
                    if self._changed:
                        self._any.set()
        except Exception as error:  # whatever the library raises, the folder is still scanned
            if not self._stop.is_set():
                self._note(f"no events from the file system ({error}): looks every few seconds")

    def _below(self, path: str) -> str:
        for root in self._roots:
            if path.startswith(root + os.sep):
                return path[len(root) + 1 :]
        return ""
