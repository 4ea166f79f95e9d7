"""The state at a record, fetched over sync part by part. Without I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.client.core.positions import Cursor
from streamer.client.core.pull import WINDOW, Refused
from streamer.protocol.header import Buffer, Header, Reason, WireError, integer, integers, text
from streamer.protocol.schema import NAMES
from streamer.protocol.sync_messages import opened, request


@dataclass(frozen=True, slots=True)
class StoredState:
    """The state after the records up to ``cursor``; pulling from the cursor gives the rest.

    version: that of the dictionary. batch, base: number and stream position of the next batch.
    heads: by topic, the last record with a message on it. totals: as in ``status``. kmers: uint64,
    those that the stream has added to the dictionary, in order.
    """

    cursor: Cursor
    version: int
    batch: int
    base: int
    heads: Mapping[str, int]
    totals: Mapping[str, Any]
    kmers: NDArray[np.uint64]


class FetchCore:
    """One request for the state; send what is in ``requests``."""

    def __init__(self, number: int, window: int = WINDOW) -> None:
        self.requests: deque[list[Buffer]] = deque()
        self._number = number
        self._parts: list[bytes] = []
        self._ask("snapshot", credit=window)

    def take(
        self, frames: Sequence[Buffer], crc: int | None = None
    ) -> StoredState | Refused | None:
        """Process an answer; returns the state with its last part. WireError if it is damaged."""
        header, body = opened(frames, crc)
        if header.get("id") != self._number:
            return None
        if header.get("type") == "refused":
            return Refused(header)
        if header.get("type") != "snapshot":
            return None
        part, parts = integers(header, ("part", "parts"))
        if part != len(self._parts) + 1 or part > parts or len(body) != 1:
            raise WireError(Reason.MALFORMED, f"part {part} after {len(self._parts)} parts")
        self._parts.append(bytes(body[0]))
        self._ask("credit", bytes=max(1, len(body[0])))
        return self._state(header) if part == parts else None

    def _state(self, header: Header) -> StoredState:
        joined = b"".join(self._parts)
        version, batch, base, kmers = integers(header, ("version", "batch", "base", "kmers"))
        heads, totals = header.get("heads"), header.get("totals")
        if len(joined) != 8 * kmers or not isinstance(heads, dict) or not isinstance(totals, dict):
            raise WireError(Reason.MALFORMED, "the state is incomplete")
        named = {NAMES[topic]: integer(heads, topic) for topic in heads if topic in NAMES}
        cursor = Cursor(text(header, "stream"), integer(header, "at"))
        codes = np.frombuffer(joined, "<u8").astype(np.uint64, copy=False)
        return StoredState(cursor, version, batch, base, named, totals, codes)

    def _ask(self, kind: str, **fields: Any) -> None:
        self.requests.append(request(kind, self._number, **fields))
