"""The folder of results: an Arrow IPC file for each job, ``ID.arrow``, and the job database."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Collection
from pathlib import Path

from streamer.errors import StreamerError
from trie.new_file import make_private

_OURS = re.compile(r"\.?[0-9a-f]{8}\.arrow(\..*\.part)?")
MAX_PIECE_BYTES = 1 << 16
"""The most bytes of a result in one reply."""


class JobResults:
    """The folder, used by one daemon at a time; StreamerError if it cannot be used."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        try:
            make_private(self.folder)
            self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            message = f"jobs.results: {folder}: {(error.strerror or str(error)).lower()}"
            raise StreamerError(message) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            message = f"jobs.results: {folder} is in use by another daemon"
            raise StreamerError(message) from None

    @property
    def database(self) -> Path:
        """The database in which jobs are stored."""
        return self.folder / "jobs.db"

    def path(self, id_: str) -> Path:
        """The file with the result of a job."""
        return self.folder / f"{id_}.arrow"

    def size(self, id_: str) -> int | None:
        """The size of a result in bytes, None if there is none."""
        try:
            return self.path(id_).stat().st_size
        except OSError:
            return None

    def piece(self, id_: str, offset: int) -> bytes:
        """At most MAX_PIECE_BYTES of a result from an offset on; OSError if it cannot be read."""
        with open(self.path(id_), "rb") as file:
            return os.pread(file.fileno(), MAX_PIECE_BYTES, offset)

    def remove(self, id_: str) -> None:
        """Remove the result of a job, complete or not; what cannot be removed stays."""
        with contextlib.suppress(OSError):
            self.path(id_).unlink()
        with contextlib.suppress(OSError):
            for file in self.folder.glob(f".{id_}.arrow.*.part"):
                file.unlink()

    def clear(self, known: Collection[str]) -> None:
        """Remove results of unknown jobs and incomplete results."""
        for file in self.folder.iterdir():
            name = file.name
            if _OURS.fullmatch(name) and (name[0] == "." or name.split(".")[0] not in known):
                with contextlib.suppress(OSError):
                    file.unlink()

    def forget_database(self) -> None:
        """Remove the database: nothing shall survive this daemon."""
        for suffix in ("", "-wal", "-journal"):
            with contextlib.suppress(OSError):
                os.unlink(f"{self.database}{suffix}")

    def close(self) -> None:
        """Release the folder for other daemons."""
        os.close(self._lock)
