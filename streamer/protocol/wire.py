"""Messages as they travel: msgpack headers, raw little-endian arrays, checksums.

``docs/protocol.md`` specifies what is written here; the two change together.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from streamer.errors import StreamerError
from streamer.sequences.packed_names import PackedNames
from streamer.sequences.read_batch import BadReadError, ReadBatch, bad_name, offsets_of
from trie.codes import decode
from trie.cpu import array_pool as kept
from trie.windows import ascending

try:  # six times as fast; it comes with xopen on most machines
    from isal.isal_zlib import crc32
except ImportError:  # pragma: no cover
    from zlib import crc32

PROTOCOL = 1
MAX_HEADER_BYTES = 64 * 1024
MAX_NAME_BYTES = 256

# topics about a batch, in the order in which they are sent, then those about the daemon
BATCH_TOPICS = ("match", "mismatch", "near", "ltb", "delta", "word", "read")
DAEMON_TOPICS = ("beat", "status")
TOPICS = BATCH_TOPICS + DAEMON_TOPICS
_TOPIC_FRAMES = {topic: topic.encode() for topic in TOPICS}

NO_TARGET = 0xFFFFFFFF

Buffer = bytes | memoryview
Header = dict[str, Any]

_MAX_INTEGER = 2**63 - 1
_STAMP = ("epoch", "seq", "prev", "time")
_AT_ONCE, _UNDER_LOCK = 1 << 17, 5_000
_DTYPES = ("uint8", "uint32", "int32", "int64", "uint64")
# NumPy makes a name, or a type from it, anew each time
_NAMES = {np.dtype(name): name for name in _DTYPES}
_NATIVE = {name: np.dtype(name) for name in _DTYPES}


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


class WireError(StreamerError):
    """A message that cannot be taken. ``reason`` is for programs, the text is for people.

    index, name: of the read at fault, 0-based. position: of the bad byte in it, 0-based.
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
        """The same error, said of something."""
        where, name, position = self.index, self.name, self.position
        return WireError(self.reason, f"{what}: {self}", index=where, name=name, position=position)

    def fields(self) -> Header:
        """The error as header fields; what is not known is left out."""
        fields = {"read": self.name, "index": self.index, "position": self.position}
        known = {key: value for key, value in fields.items() if value is not None}
        return {"reason": self.reason.value, "message": str(self), **known}


def pack(fields: Header) -> bytes:
    """A header frame."""
    return msgpack.packb(fields)


def unpack(frame: Buffer) -> Header:
    """The fields of a header frame of this protocol version; WireError if it is none."""
    if len(frame) > MAX_HEADER_BYTES:
        problem = f"the header has {len(frame)} bytes, at most {MAX_HEADER_BYTES} are allowed"
        raise WireError(Reason.MALFORMED, problem)
    header = _unpack(frame, "the header")
    if not isinstance(header, dict):
        problem = f"the header must be a map, not {type(header).__name__}"
        raise WireError(Reason.MALFORMED, problem)
    version = header.get("v")
    if version != PROTOCOL or isinstance(version, bool):
        given = "none" if version is None else shown(version)
        raise WireError(Reason.VERSION, f"protocol version {given}, must be {PROTOCOL}")
    return header


def shown(value: object) -> str:
    """What a message holds where something else must stand, in a few characters for people."""
    # what is nested deeply cannot be written out
    simple = value is None or isinstance(value, bool | int | float | str | bytes)
    return repr(value)[:40] if simple else f"of type {type(value).__name__}"


def _unpack(frame: Buffer, what: str, unicode_errors: str = "strict") -> Any:
    try:
        return msgpack.unpackb(frame, unicode_errors=unicode_errors)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        detail = str(error)[:80] or type(error).__name__
        raise WireError(Reason.MALFORMED, f"{what} is not msgpack: {detail}") from None


def integer(header: Header, key: str, least: int = 0, most: int = _MAX_INTEGER) -> int:
    """A field that must be an integer from ``least`` to ``most``."""
    value = header.get(key)
    # True and False are of a type of their own
    if type(value) is not int or not least <= value <= most:
        limits = f"at least {least}" if most == _MAX_INTEGER else f"{least} to {most}"
        raise WireError(Reason.MALFORMED, f"field '{key}' must be an integer, {limits}")
    return value


def integers(header: Header, keys: Iterable[str]) -> list[int]:
    """Fields as ``integer`` has them, in a third of the time."""
    values: list[Any] = [header.get(key) for key in keys]
    if set(map(type, values)) == {int} and min(values) >= 0 and max(values) <= _MAX_INTEGER:
        return values
    return [integer(header, key) for key in keys]


def text(header: Header, key: str, most: int = MAX_NAME_BYTES) -> str:
    """A field that must be a string of 1 to ``most`` printable characters."""
    value = header.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= most or not value.isprintable():
        problem = f"field '{key}' must be a string of 1 to {most} printable characters"
        raise WireError(Reason.MALFORMED, problem)
    return value


def checksum(frames: Iterable[Buffer]) -> int:
    """CRC-32 (the one of zlib and gzip) of the frames, one after the other."""
    value = 0
    for frame in frames:
        if len(frame) > _AT_ONCE:
            value = crc32(frame, value)
            continue
        # above 5 KB the interpreter's lock is given up, and waiting for it takes longer than this
        for begin in range(0, len(frame), _UNDER_LOCK):
            value = crc32(frame[begin : begin + _UNDER_LOCK], value)
    return value


def size_of(frames: Iterable[Buffer]) -> int:
    """What a batch counts against credit and limits: the bytes of the frames after its header."""
    return sum(map(len, frames))


def raw(array: NDArray[Any]) -> memoryview:
    """The bytes of an array, little-endian, without a copy where it lies so already."""
    if sys.byteorder == "big":  # pragma: no cover
        array = array.astype(array.dtype.newbyteorder("<"))
    return np.ascontiguousarray(array).data.cast("B") if array.size else memoryview(b"")


# ---- batches of reads ----------------------------------------------------------------------


def encode_batch(batch: ReadBatch) -> list[Buffer]:
    """The data frames of a batch as columns: names, offsets, letters; copies, whatever changes."""
    offsets = np.frombuffer(raw(batch.offsets), dtype=np.uint8)
    memory = kept.empty(offsets.size + batch.bases.size, np.uint8)
    memory[: offsets.size] = offsets
    decode(batch.bases, memory[offsets.size :])
    columns = np.split(memory, [offsets.size])
    return [msgpack.packb(list(batch.names)), *(column.data for column in columns)]


def encode_reads(reads: Iterable[tuple[str, str | bytes]]) -> list[Buffer]:
    """The data frames of (name, sequence) pairs as columns; the daemon checks them."""
    names: list[str] = []
    sequences: list[bytes] = []
    for name, sequence in reads:
        names.append(name)
        if isinstance(sequence, str):
            sequence = sequence.encode("latin-1", "replace")
        sequences.append(sequence)
    # the daemon refuses surrogates, and says of which read
    packed = msgpack.packb(names, unicode_errors="surrogatepass")
    return [packed, raw(offsets_of(sequences)), b"".join(sequences)]


Make = Callable[[Sequence[str], NDArray[np.int64], Buffer], ReadBatch]


def decode_batch(
    header: Header, frames: Sequence[Buffer], make: Make = ReadBatch.from_letters
) -> tuple[ReadBatch, bytes]:
    """The reads of a batch message, and its names as a msgpack array. WireError for any fault.

    make: the batch of names, offsets and joined letters; BadReadError if one of them is no base.
    """
    given = integer(header, "checksum")
    if given != (found := checksum(frames)):
        problem = f"checksum {given:#010x} in the header, {found:#010x} over the frames"
        raise WireError(Reason.CHECKSUM, problem)
    match header.get("form"):
        case "columns":
            names, offsets, letters, packed = _columns(frames)
        case "list":
            names, offsets, letters, packed = _list(frames)
        case form:
            problem = f"form {shown(form)}, must be 'columns' or 'list'"
            raise WireError(Reason.MALFORMED, problem)
    try:
        batch = make(names, offsets, letters)
    except BadReadError as error:
        # a name may be as long as the batch, and refusals wait for producers that do not read them
        name = names[error.index][:MAX_NAME_BYTES]
        problem = f"read {error.index + 1} ({name}), position {error.position + 1}: {error}"
        raise WireError(
            Reason.BASE, problem, index=error.index, name=name, position=error.position
        ) from None
    return batch, packed


_Reads = tuple[Sequence[str], NDArray[np.int64], Buffer, bytes]


def _checked(names: Sequence[str]) -> None:
    bad = bad_name(names)
    if bad is not None:
        index, problem = bad
        raise WireError(Reason.MALFORMED, f"read {index + 1}: {problem}", index=index)


def _names(frame: Buffer) -> Sequence[str]:
    """The names of reads in a frame, a msgpack array of strings."""
    packed = PackedNames.of(frame)
    if packed is not None:
        return packed
    names = _unpack(
        frame, "the frame of names", "surrogateescape"
    )  # not as simple as they mostly are
    if not isinstance(names, list) or not set(map(type, names)) <= {str}:
        raise WireError(Reason.MALFORMED, "the frame of names must be an array of strings")
    _checked(names)
    return names


def _columns(frames: Sequence[Buffer]) -> _Reads:
    if len(frames) != 3:
        problem = f"{len(frames)} frames after the header, form 'columns' has 3"
        raise WireError(Reason.MALFORMED, problem)
    names = _names(frames[0])
    if len(frames[1]) != 8 * (len(names) + 1):
        problem = f"{len(names)} names need {len(names) + 1} offsets of 8 bytes, not "
        raise WireError(Reason.MALFORMED, problem + f"{len(frames[1])} bytes")
    offsets = _offsets(frames[1])
    letters = frames[2]
    if offsets[0] != 0 or offsets[-1] != len(letters) or not ascending(offsets):
        problem = f"offsets must rise from 0 to the {len(letters)} letters of the last frame"
        raise WireError(Reason.MALFORMED, problem)
    return names, offsets, letters, bytes(frames[0])


def _offsets(frame: Buffer) -> NDArray[np.int64]:
    """A copy of the numbers: frames need not be aligned."""
    offsets = np.empty(len(frame) // 8, dtype=np.int64)
    offsets.data.cast("B")[:] = frame
    return offsets if sys.byteorder == "little" else offsets.byteswap()  # pragma: no cover


def _entries(frame: Buffer, what: str) -> Iterator[Any]:
    """The elements of a msgpack array, one at a time; WireError if it is none.

    Unpacking all at once would hold the GIL for up to a second, and with it every other thread.
    """
    unpacker = msgpack.Unpacker(unicode_errors="surrogateescape", max_buffer_size=len(frame) or 1)
    unpacker.feed(frame)
    try:
        if len(frame) and not (0x90 <= frame[0] <= 0x9F or 0xDC <= frame[0] <= 0xDD):
            raise WireError(Reason.MALFORMED, f"{what} must be an array")
        for _ in range(unpacker.read_array_header()):
            yield unpacker.unpack()
        if unpacker.tell() != len(frame):
            problem = f"{what} is not msgpack: {len(frame) - unpacker.tell()} bytes follow it"
            raise WireError(Reason.MALFORMED, problem)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        detail = str(error)[:80] or type(error).__name__
        raise WireError(Reason.MALFORMED, f"{what} is not msgpack: {detail}") from None


def _list(frames: Sequence[Buffer]) -> _Reads:
    if len(frames) != 1:
        problem = f"{len(frames)} frames after the header, form 'list' has 1"
        raise WireError(Reason.MALFORMED, problem)
    names: list[str] = []
    sequences: list[bytes] = []
    for index, read in enumerate(_entries(frames[0], "the list of reads")):
        match read:
            case [str(name), str(sequence)]:
                sequences.append(sequence.encode("latin-1", "replace"))
            case [str(name), bytes(sequence)]:
                sequences.append(sequence)
            case _:
                problem = f"read {index + 1} must be [name, sequence]"
                raise WireError(Reason.MALFORMED, problem, index=index)
        names.append(name)
    _checked(names)
    return names, offsets_of(sequences), b"".join(sequences), msgpack.packb(names)


# ---- messages of the feed ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FeedMessage:
    """One message of the feed, checked.

    header: as sent. names: of all reads of the batch, to which column ``read`` is an index.
    columns: equally long arrays by name; empty for topics about the daemon.
    """

    topic: str
    header: Header
    names: Sequence[str]
    columns: dict[str, NDArray[Any]]


def encode_feed(
    topic: str, header: Header, names: bytes, columns: dict[str, NDArray[Any]]
) -> list[Buffer]:
    """The frames of a message about a batch; ``header`` gets the columns and the checksum."""
    frames: list[Buffer] = [names, *(raw(values) for values in columns.values())]
    described = [(name, _NAMES[values.dtype], values.size) for name, values in columns.items()]
    return [*encode_head(topic, header, described, checksum(frames)), *frames]


def encode_head(
    topic: str, header: Header, described: Sequence[tuple[str, str, int]], found: int
) -> list[Buffer]:
    """The topic and the header of a message about a batch, with what else the header holds.

    described: name, type and rows of each column. found: the checksum of the frames that follow.
    """
    header["columns"] = described
    header["checksum"] = found
    return [_TOPIC_FRAMES[topic], msgpack.packb(header)]


def encode_notice(topic: str, header: Header) -> list[Buffer]:
    """The frames of a message about the daemon, which has a header only."""
    return [topic.encode(), msgpack.packb(header | {"checksum": checksum(())})]


def described(topic: str, header: Header) -> str:
    """Which message of the feed, for people."""
    sequence = header.get("seq")
    return f"topic '{topic[:40]}', message {sequence if type(sequence) is int else 'unnumbered'}"


def decode_feed(
    frames: Sequence[Buffer], found: int | None = None, before: Sequence[str] = ()
) -> FeedMessage:
    """A message of the feed from its frames; WireError if it is damaged or of another protocol.

    The columns are views of the frames. found: the checksum of the frames after the header, where
    it is known. before: the names in the message before; the same are not looked at again.
    """
    if len(frames) < 2:
        raise WireError(Reason.MALFORMED, f"a message of {len(frames)} frames")
    topic = bytes(frames[0]).decode("ascii", "replace")
    header = _unpack(frames[1], f"topic '{topic[:40]}': the header")
    if not isinstance(header, dict) or header.get("v") != PROTOCOL:
        raise WireError(Reason.VERSION, f"topic '{topic[:40]}': not protocol version {PROTOCOL}")
    try:
        return _decode_feed(topic, header, frames[2:], found, before)
    except WireError as error:
        raise error.about(described(topic, header)) from None


def _decode_feed(
    topic: str, header: Header, data: Sequence[Buffer], found: int | None, before: Sequence[str]
) -> FeedMessage:
    if integer(header, "checksum") != (checksum(data) if found is None else found):
        raise WireError(Reason.CHECKSUM, "the checksum is wrong")
    integers(header, _STAMP)
    if header.get("topic") != topic:
        raise WireError(Reason.MALFORMED, "the header names another topic")
    if topic in DAEMON_TOPICS:
        return FeedMessage(topic, header, (), {})
    if not data:
        raise WireError(Reason.MALFORMED, "no names")
    names = _names_of(data[0], before)
    return FeedMessage(topic, header, names, _decode_columns(header, data[1:]))


def _names_of(frame: Buffer, before: Sequence[str]) -> Sequence[str]:
    packed = bytes(frame)
    if isinstance(before, PackedNames) and before.packed == packed:
        return before
    return _names(packed)


def _decode_columns(header: Header, frames: Sequence[Buffer]) -> dict[str, NDArray[Any]]:
    entries = header.get("columns")
    if not isinstance(entries, list) or len(entries) != len(frames):
        raise WireError(Reason.MALFORMED, "columns and frames do not agree")
    columns: dict[str, NDArray[Any]] = {}
    for entry, frame in zip(entries, frames, strict=True):
        # plain steps: a pattern takes six times as long as all of them
        if not isinstance(entry, list) or len(entry) != 3:
            raise WireError(Reason.MALFORMED, "a column that is not described")
        name, type_name, rows = entry
        type_ = _NATIVE.get(type_name) if isinstance(type_name, str) else None
        if type_ is None or not isinstance(name, str) or not isinstance(rows, int):
            raise WireError(Reason.MALFORMED, "a column that is not described")
        if len(frame) != rows * type_.itemsize or name in columns:
            problem = f"column '{name[:40]}' has the wrong length or comes twice"
            raise WireError(Reason.MALFORMED, problem)
        values = np.frombuffer(frame, type_)
        columns[name] = values if sys.byteorder == "little" else values.byteswap()
    return columns
