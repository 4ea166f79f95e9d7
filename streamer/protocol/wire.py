"""Headers of messages, which are msgpack maps, checked field by field; errors; and checksums.

docs/protocol.md specifies what this package implements; the two change together.

The checksum of frames is CRC-32C, that of iSCSI and ext4: inverted before and after, 0 for no data,
0xE3069283 for ``123456789``. Kernels have it from ``checksum_kernels``; this module does not import
numba.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import cache
from typing import Any

import msgpack
import numpy as np
from crc32c import crc32c as _plain
from numpy.typing import NDArray

from streamer.errors import StreamerError
from trie.cpu.borrowed import Borrowed
from trie.cpu.threads import GIL_BYTES

_ALL = 0xFFFFFFFF

CALL_BYTES = 1 << 30
"""ISA-L is called with at most this many bytes, since the length is a C int."""

ISA_L = Borrowed("ISA-L", "isal.isal_zlib", ("crc32_iscsi",))
"""Without it the ``crc32c`` package computes all checksums."""


def crc32c_address() -> int:
    """The address of ISA-L's function, 0 if it is missing."""
    return 0 if ISA_L.missing else int(ISA_L.addresses[0])


@cache
def _function(address: int) -> Callable[[int, int, int], int]:
    # ctypes releases the GIL during a call
    kind = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32)
    return kind(address)


def crc32c(frames: Iterable[bytes | memoryview], value: int = 0) -> int:
    """CRC-32C over the concatenated frames; ``value``: the checksum of what precedes them.

    The GIL is released for large frames only.
    """
    for frame in frames:
        if len(frame) <= GIL_BYTES:
            value = _plain(frame, value, 0)
        elif address := crc32c_address():
            value = _large(_function(address), frame, value)
        else:
            value = _plain(frame, value, 1)
    return value


def _large(function: Callable[[int, int, int], int], frame: bytes | memoryview, value: int) -> int:
    array = np.frombuffer(frame, np.uint8)
    state = value ^ _ALL
    for at in range(0, array.size, CALL_BYTES):
        state = function(array.ctypes.data + at, min(array.size - at, CALL_BYTES), state)
    return state ^ _ALL


PROTOCOL = 2
SEAL_BYTES = 4
MAX_HEADER_BYTES = 64 * 1024
MAX_NAME_BYTES = 256

Buffer = bytes | memoryview
Header = dict[str, Any]

_MAX_INTEGER = 2**63 - 1


class Reason(StrEnum):
    """Why a message is refused, as a word of the protocol."""

    MALFORMED = "malformed"
    VERSION = "version"
    TOO_LARGE = "too-large"
    CHECKSUM = "checksum"
    BASE = "base"
    GAP = "gap"
    STALE_EPOCH = "stale-epoch"
    CREDIT = "credit"
    PRODUCERS = "producers"
    DRAINING = "draining"
    CONFLICT = "conflict"
    EPOCH = "epoch"
    DENIED = "denied"
    FULL = "full"
    DAMAGED = "damaged"
    BUSY = "busy"
    SOURCES = "sources"


class WireError(StreamerError):
    """An unacceptable message. ``reason`` is for programs, the text is for people.

    index, name: those of the faulty read, 0-based. position: that of the bad byte in it, 0-based.
    """

    def __init__(
        self,
        reason: Reason,
        problem: str,
        *,
        index: int | None = None,
        name: str | None = None,
        position: int | None = None,
    ) -> None:
        self.reason = reason
        self.index = index
        self.name = name
        self.position = position
        super().__init__(problem)

    def about(self, what: str) -> WireError:
        """The same error with ``what`` in front of its text."""
        where, name, position = self.index, self.name, self.position
        return WireError(self.reason, f"{what}: {self}", index=where, name=name, position=position)

    def fields(self) -> Header:
        """The error as header fields, without unknown ones."""
        fields = {"read": self.name, "index": self.index, "position": self.position}
        known = {key: value for key, value in fields.items() if value is not None}
        return {"reason": self.reason.value, "message": str(self), **known}


def malformed(problem: str, *, index: int | None = None) -> WireError:
    """The error for a message that is not as the protocol says."""
    return WireError(Reason.MALFORMED, problem, index=index)


def pack(fields: Header) -> bytes:
    """A header frame."""
    return msgpack.packb(fields)


def unpack(frame: Buffer, *, limited: bool = True) -> Header:
    """The fields of a header frame of this protocol version; WireError if it is not one.

    limited: whether its size is limited, as for all messages to the daemon.
    """
    if limited and len(frame) > MAX_HEADER_BYTES:
        raise malformed(
            f"the header has {len(frame)} bytes, at most {MAX_HEADER_BYTES} are allowed"
        )
    header = unpack_frame(frame, "the header")
    if not isinstance(header, dict):
        raise malformed(f"the header must be a map, not {type(header).__name__}")
    version = header.get("v")
    # excludes True and 2.0
    if type(version) is not int or version != PROTOCOL:
        sent = "none" if version is None else shown(version)
        raise WireError(Reason.VERSION, f"protocol version {sent}, must be {PROTOCOL}")
    return header


def answer(fields: Header, frames: Sequence[Buffer] = ()) -> list[Buffer]:
    """The frames of an answer."""
    return seal([pack(fields), *frames])


def seal(frames: Iterable[Buffer], crc: int | None = None) -> list[Buffer]:
    """The frames of a message followed by their checksum; ``crc``: that checksum, if known."""
    sealed = [*frames]
    sealed.append((crc32c(sealed) if crc is None else crc).to_bytes(SEAL_BYTES, "little"))
    return sealed


def unseal(frames: Sequence[Buffer], *, crc: int | None = None) -> Sequence[Buffer]:
    """The frames of a message without the last one, their checksum; WireError if it is wrong.

    crc: the checksum of all frames but the last, if known.
    """
    body = frames[:-1]
    if not body or len(frames[-1]) != SEAL_BYTES:
        raise malformed(f"the last frame of a message is its checksum of {SEAL_BYTES} bytes")
    sent = int.from_bytes(frames[-1], "little")
    if sent != (computed := crc32c(body) if crc is None else crc):
        raise WireError(
            Reason.CHECKSUM,
            f"checksum {sent:#010x} in the last frame, {computed:#010x} over the others",
        )
    return body


UNPACK_ERRORS = (ValueError, TypeError, RecursionError, msgpack.UnpackException)


def unpack_frame(frame: Buffer, what: str, unicode_errors: str = "strict") -> Any:
    """The msgpack object in a frame; WireError if there is none. what: the frame, for messages."""
    try:
        return msgpack.unpackb(frame, unicode_errors=unicode_errors, object_hook=text_keys)
    except UNPACK_ERRORS as error:
        raise not_msgpack(what, error) from None


def text_keys(fields: Header) -> Header:
    """The unpacked map; one of UNPACK_ERRORS if a key is not a string.

    msgpack accepts bytes, too.
    """
    try:
        # takes a tenth of the time of checking each key
        "".join(fields)
    except TypeError:
        raise ValueError("a map key is not a string") from None
    return fields


def not_msgpack(what: str, error: Exception) -> WireError:
    """The error for a frame that msgpack could not unpack."""
    detail = str(error)[:80] or type(error).__name__
    return malformed(f"{what} is not msgpack: {detail}")


def shown(value: object) -> str:
    """An unexpected value of a message, abbreviated for people."""
    # deeply nested values cannot be printed
    simple = value is None or isinstance(value, bool | int | float | str | bytes)
    return repr(value)[:40] if simple else f"of type {type(value).__name__}"


def integer(header: Header, key: str, least: int = 0, most: int = _MAX_INTEGER) -> int:
    """A field that must be an integer from ``least`` to ``most``."""
    value = header.get(key)
    # a type check, since True and False are integers, too
    if type(value) is not int or not least <= value <= most:
        limits = f"at least {least}" if most == _MAX_INTEGER else f"{least} to {most}"
        raise malformed(f"field '{key}' must be an integer, {limits}")
    return value


def integers(header: Header, keys: Iterable[str]) -> list[int]:
    """Several fields as ``integer`` returns them, in a third of the time."""
    values: list[Any] = [header.get(key) for key in keys]
    if set(map(type, values)) == {int} and min(values) >= 0 and max(values) <= _MAX_INTEGER:
        return values
    return [integer(header, key) for key in keys]


def flag(header: Header, key: str) -> bool:
    """A field that must be true or false; false if it is missing."""
    value = header.get(key, False)
    if not isinstance(value, bool):
        raise malformed(f"field '{key}' must be true or false")
    return value


def text(header: Header, key: str, most: int = MAX_NAME_BYTES) -> str:
    """A field that must be a string of 1 to ``most`` printable characters."""
    value = header.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= most or not value.isprintable():
        raise malformed(f"field '{key}' must be a string of 1 to {most} printable characters")
    return value


def size_of(frames: Iterable[Buffer]) -> int:
    """The bytes of a batch that count against credit and limits: its frames after the header."""
    return sum(map(len, frames))


def raw(array: NDArray[Any]) -> memoryview:
    """The bytes of an array, little-endian, without a copy where possible."""
    if sys.byteorder == "big":  # pragma: no cover
        array = array.astype(array.dtype.newbyteorder("<"))
    return np.ascontiguousarray(array).data.cast("B") if array.size else memoryview(b"")


def request(kind: str, number: int, **fields: Any) -> list[Buffer]:
    """The frames of a request; number: its id, which the answers repeat."""
    return seal([pack({"v": PROTOCOL, "type": kind, "id": number} | fields)])


def opened(frames: Sequence[Buffer], crc: int | None = None) -> tuple[Header, Sequence[Buffer]]:
    """The header and the frames after it; WireError if the message is damaged.

    crc: the checksum of all frames but the last, if known.
    """
    head, *body = unseal(frames, crc=crc)
    return unpack(head), body
