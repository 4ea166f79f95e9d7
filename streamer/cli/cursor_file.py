"""The file in which ``streamer watch`` stores its position in the stream."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from streamer.errors import StreamerError

if TYPE_CHECKING:
    from streamer.client.core.positions import Cursor

# between two times that it is stored, each of which waits for the disk
_STORE_SECONDS = 0.2


class CursorFile:
    """A cursor in a file, which is replaced as a whole.

    live: rows are final once they are written, so the cursor is stored now and then; otherwise they
    are final when their file is complete, and the cursor is stored then. found: the file existed.
    """

    def __init__(self, path: str, *, live: bool) -> None:
        self.path = path
        self.live = live
        self.found = False
        self._cursor: Cursor | None = None
        self._stored: Cursor | None = None
        self._next = 0.0

    def read(self) -> Cursor | None:
        """The cursor in the file; None if there is no file, StreamerError if it has no cursor."""
        from streamer.client.core.positions import Cursor

        try:
            self._stored = Cursor.from_json(Path(self.path).read_text())
        except FileNotFoundError:
            return None
        except OSError as error:
            message = f"{self.path}: cannot read: {error.strerror}"
            raise StreamerError(message) from error
        except (StreamerError, UnicodeDecodeError):
            message = f"{self.path}: not a cursor: delete it to begin with the oldest record"
            raise StreamerError(message) from None
        self.found = True
        return self._stored

    def reach(self, cursor: Cursor | None) -> None:
        """Everything up to this cursor is written."""
        self._cursor = cursor
        now = time.monotonic()
        if self.live and now >= self._next:
            self.store()
            self._next = time.monotonic() + _STORE_SECONDS

    def store(self) -> None:
        """Store the current position."""
        from streamer.output.output_file import write_file

        if self._cursor is not None and self._cursor != self._stored:
            # read back without regard to its suffix
            write_file(self.path, [self._cursor.to_json().encode()], plain=True)
            self._stored = self._cursor
