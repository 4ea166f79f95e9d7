"""What the feed says of every read now, in plain Python, written from docs/protocol.md alone."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from typing import Any

Header = dict[str, Any]
Rows = list[tuple[Any, ...]]

_FORMATS = {"uint8": "B", "uint32": "I", "int32": "i", "int64": "q", "uint64": "Q"}
_ANSWERS = ("match", "mismatch", "near", "ltb", "read")
# which snapshot was searched is no answer
_LEFT_OUT = ("read", "snapshot")


class PlainFold:
    """Takes messages; on each topic, they come in the order of their records.

    versions: the dictionary that the last revision of a batch names, or else the batch. totals: the
    sums that messages tell. settled: version and first batch of each ``settled.``.
    """

    def __init__(self) -> None:
        self.versions: dict[int, tuple[int, int]] = {}
        self.totals = Counter[str]()
        self.settled: list[tuple[int, int]] = []
        # by batch, for each of its reads the record before which nothing counts, and rows by topic
        self._said: dict[int, list[tuple[int, dict[str, Rows]]]] = {}

    def take(self, topic: str, header: Header, frames: Sequence[bytes]) -> None:
        """Apply a message; topic: without its dot; frames: those behind its header."""
        if topic == "settled":
            self.settled.append((header["version"], header["from_batch"]))
        elif topic in ("retract", "upgrade", *_ANSWERS):
            batch, at = header["batch"], header["at"]
            reads = self._said.get(batch)
            if reads is None and topic in _ANSWERS:
                reads = self._said[batch] = [(0, {}) for _ in range(header["reads"])]
            if topic == "upgrade":
                self.totals.update(header["totals"])
            if reads is None:
                return
            self.versions[batch] = max(self.versions.get(batch, (0, 0)), (at, header["version"]))
            columns = _columns(header["columns"], frames[1:])
            if topic == "retract":
                _retract(reads, at, columns["read"])
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
        """By batch, for each of its reads the rows by topic; targets by name."""
        return {batch: [rows for _, rows in reads] for batch, reads in self._said.items()}


def _retract(reads: list[tuple[int, dict[str, Rows]]], at: int, index: Sequence[int]) -> None:
    assert index, "nothing is retracted"
    for read in index:
        if reads[read][0] < at:
            reads[read] = at, {}


def _columns(described: Sequence[Any], frames: Sequence[bytes]) -> dict[str, tuple[Any, ...]]:
    found = {}
    for (name, kind, rows), frame in zip(described, frames, strict=True):
        found[name] = struct.unpack(f"<{rows}{_FORMATS[kind]}", frame)
    return found


def _add(
    reads: list[tuple[int, dict[str, Rows]]],
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
        if at >= reads[read][0]:
            reads[read][1].setdefault(topic, []).append(tuple(values))


def _counts(columns: dict[str, tuple[Any, ...]]) -> dict[str, int]:
    return {
        "matches": sum(columns["matches"]),
        "mismatches": sum(columns["mismatches"]),
        "reads_on_target": sum(target != -1 for target in columns["best_target"]),
    }
