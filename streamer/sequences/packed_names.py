"""Names of reads as a msgpack array of strings, which is rarely decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import msgpack
import numpy as np

from trie.cpu.jit import njit


class PackedNames(Sequence[str]):
    """The strings of a msgpack array, decoded when one of them is first needed."""

    __slots__ = ("_count", "_frame", "_names")

    def __init__(self, frame: bytes, count: int) -> None:
        self._frame = frame
        self._count = count
        self._names: list[str] | None = None

    @classmethod
    def of(cls, frame: bytes | memoryview) -> PackedNames | None:
        """The names if the frame is an array of strings of printable ASCII, else None."""
        count = count_names(np.frombuffer(frame, dtype=np.uint8))
        return None if count < 0 else cls(bytes(frame), int(count))

    @property
    def packed(self) -> bytes:
        """The msgpack array."""
        return self._frame

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        """Whether the other sequence has the same names."""
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if self._names is None:
            self._names = msgpack.unpackb(self._frame)
        assert self._names is not None
        return self._names[index]


# too short to release the GIL
@njit(cache=True)
def _number(frame, at, size):
    """A big-endian number of ``size`` bytes."""
    value = 0
    for i in range(at, at + size):
        value = (value << 8) | np.int64(frame[i])
    return value


@njit(cache=True)
def count_names(frame):
    """The number of strings; -1 if the frame is not exactly an array of printable ASCII strings."""
    total = frame.size
    if total == 0:
        return -1
    first = frame[0]
    if 0x90 <= first <= 0x9F:  # fixarray
        count = np.int64(first & 0x0F)
        at = 1
    elif first == 0xDC or first == 0xDD:  # array 16, 32
        size = 2 if first == 0xDC else 4
        if total < 1 + size:
            return -1
        count = _number(frame, 1, size)
        at = 1 + size
    else:
        return -1
    for _ in range(count):
        if at >= total:
            return -1
        kind = frame[at]
        at += 1
        if 0xA0 <= kind <= 0xBF:  # fixstr
            length = np.int64(kind & 0x1F)
        elif 0xD9 <= kind <= 0xDB:  # str 8, 16, 32
            size = 1 << (kind - 0xD9)
            if at + size > total:
                return -1
            length = _number(frame, at, size)
            at += size
        else:
            return -1
        if at + length > total:
            return -1
        unprintable = np.uint8(0)
        for i in range(at, at + length):
            # 0x20..0x7e
            unprintable |= np.uint8(np.uint8(frame[i] - np.uint8(0x20)) > np.uint8(0x5E))
        if unprintable:
            return -1
        at += length
    return count if at == total else -1
