"""Records of the journal, and what is stored beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

Frame = bytes | memoryview

LOST = "lost"
"""Begins the kind of a record that was damaged and given up, as the index has it."""


class Key(NamedTuple):
    """What makes a batch the same batch: it has one effect for ever.

    content: CRC-32C of the frames as the producer sent them. mark: the producer's own place, b""
    for none. Numbers are at most 2^63 - 1.
    """

    producer: str
    epoch: int
    sequence: int
    content: int
    mark: bytes


@dataclass(frozen=True, slots=True)
class Record:
    """One record. The journal does not know what is in ``meta`` and ``frames``.

    at: 1, 2, 3, ... without holes. meta: everything that is not an array; it is stored in the
    index, so large things belong in a frame. time: nanoseconds since 1970. about: the earlier
    record that this one is about, if it is about one.
    """

    at: int
    kind: str
    meta: bytes
    frames: tuple[Frame, ...]
    key: Key | None
    time: int
    about: int | None = None


class Outline(NamedTuple):
    """A record without its frames; kind and meta are empty if nothing is known of it."""

    at: int
    kind: str
    meta: bytes


class Skimmed(NamedTuple):
    """A record whose frames were not asked for."""

    at: int
    kind: str
    meta: bytes


class Snapshot(NamedTuple):
    """The state after record ``at``: recovery starts from it. No frames: they were given up."""

    at: int
    meta: bytes
    frames: tuple[Frame, ...]


class Begun(NamedTuple):
    """An epoch of a producer that has begun. time: nanoseconds since 1970."""

    producer: str
    epoch: int
    time: int


class Received(NamedTuple):
    """What is stored of a producer's name: its last epoch, and the last batch of that.

    sequence: 0 if it has none. mark: of the last batch in any epoch. time: of that, or when the
    epoch began, in nanoseconds since 1970.
    """

    producer: str
    epoch: int
    sequence: int
    mark: bytes
    time: int


class Usage(NamedTuple):
    """bytes: of the records kept; disk: of all files, with what is set aside.

    oldest: the first record kept, head + 1 if none is.
    """

    bytes: int
    disk: int
    oldest: int
    head: int
