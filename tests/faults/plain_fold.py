"""The current answers about every read, in plain Python, written from docs/protocol.md alone."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from typing import Any

Header = dict[str, Any]
Rows = list[tuple[Any, ...]]

_FORMATS = {"uint8": "B", "uint32": "I", "int32": "i", "int64": "q", "uint64": "Q"}
_ANSWERS = ("match", "mismatch", "near", "ltb", "read")
# the version of the searched snapshot is not part of an answer
_LEFT_OUT = ("read", "snapshot")


class PlainFold:
    """Applies messages; those on one topic come in the order of their records.

    versions: by batch, the dictionary version of its last revision, or else its own. totals: the
    sums of the messages. settled: version and first batch of each ``settled.``.
    """

    def __init__(self) -> None:
        self.versions: dict[int, tuple[int, int]] = {}
        self.totals = Counter[str]()
        self.settled: list[tuple[int, int]] = []
        self._said: dict[int, list[_Read]] = {}

    def take(self, topic: str, header: Header, frames: Sequence[bytes]) -> None:
        """Apply a message; topic: without its dot; frames: those after its header."""
        if topic == "settled":
            self.settled.append((header["version"], header["from_batch"]))
        elif topic in ("retract", "upgrade", *_ANSWERS):
            batch, at = header["batch"], header["at"]
            reads = self._said.get(batch)
            if reads is None:
                reads = self._said[batch] = [_Read() for _ in range(header["reads"])]
            if topic == "upgrade":
                self.totals.update(header["totals"])
            self.versions[batch] = max(self.versions.get(batch, (0, 0)), (at, header["version"]))
            columns = _columns(header["columns"], frames[1:])
            if topic == "retract":
                assert columns["read"], "nothing is retracted"
                for read in columns["read"]:
                    reads[read].retract(at)
            elif topic == "upgrade":
                for wire, fields in header["parts"].items():
                    size = len(wire)
                    own = {n[size:]: v for n, v in columns.items() if n.startswith(wire)}
                    _add(reads, at, wire.removesuffix("."), fields, own)
            else:
                _add(reads, at, topic, header, columns)
                if topic == "read":
                    self.totals.update(_counts(columns))

    def answers(self) -> dict[int, list[dict[str, Rows]]]:
        """By batch, for each of its reads, the rows by topic; targets by name."""
        return {batch: [read.rows() for read in reads] for batch, reads in self._said.items()}


class _Read:
    """The valid rows of a read, by topic with their records, from record ``since`` on."""

    def __init__(self) -> None:
        self._since = 0
        self._rows: list[tuple[str, int, tuple[Any, ...]]] = []

    def retract(self, at: int) -> None:
        self._since = max(self._since, at)
        self._rows = [row for row in self._rows if row[1] >= self._since]

    def add(self, topic: str, at: int, row: tuple[Any, ...]) -> None:
        if at >= self._since:
            self._rows.append((topic, at, row))

    def rows(self) -> dict[str, Rows]:
        found: dict[str, Rows] = {}
        for topic, _, row in self._rows:
            found.setdefault(topic, []).append(row)
        return found


def _columns(described: Sequence[Any], frames: Sequence[bytes]) -> dict[str, tuple[Any, ...]]:
    found = {}
    for (name, kind, rows), frame in zip(described, frames, strict=True):
        found[name] = struct.unpack(f"<{rows}{_FORMATS[kind]}", frame)
    return found


def _add(
    reads: list[_Read],
    at: int,
    topic: str,
    fields: Header,
    columns: dict[str, tuple[Any, ...]],
) -> None:
    names = dict(fields.get("targets", ()))
    sets = {n: (*map(names.get, some), *more) for n, some, *more in fields.get("sets", ())}
    kept = [name for name in columns if name not in _LEFT_OUT]
    for row, read in enumerate(columns["read"]):
        values = []
        for name in kept:
            value = columns[name][row]
            if name == "target":
                value = None if value == 0xFFFFFFFF else sets[value]
            elif name == "best_target":
                value = None if value == -1 else names[value]
            values.append(value)
        reads[read].add(topic, at, tuple(values))


def _counts(columns: dict[str, tuple[Any, ...]]) -> dict[str, int]:
    return {
        "matches": sum(columns["matches"]),
        "mismatches": sum(columns["mismatches"]),
        "reads_on_target": sum(target != -1 for target in columns["best_target"]),
    }
