"""Batches of reads and messages of the feed as frames, and back.

A batch comes as columns (names, offsets, letters) or as a list of pairs, perhaps with the context
of its reads: a msgpack map with a key for each column that is known. Its texts are a table of
distinct texts and an index for each read, so a barcode costs four bytes a read.

A message of the feed is a topic and a header, then the names of a batch and columns of numbers.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from streamer.protocol import wire
from streamer.protocol.schema import FEED, MAX_LABEL_BYTES, MAX_LABELS, RECORD_TOPICS, TOPICS
from streamer.sequences.context import TIME_BYTES, LabelColumn, ReadContext, check_times
from streamer.sequences.read_batch import BadReadError, PackedNames, ReadBatch, bad_name, offsets_of
from trie.codes import decode
from trie.cpu import array_pool
from trie.windows import ascending

_LABELS = ("run", "barcode", "sample")
_MOST_CHANNEL = 0x7FFFFFFF


def encode_context(context: ReadContext | None) -> bytes | None:
    """The frame; None if nothing is known.

    Texts that are too long or too many are left out, as if unknown.
    """
    if context is None:
        return None
    columns: dict[str, Any] = {}
    if (context.channel >= 0).any():
        columns["channel"] = bytes(wire.raw(context.channel))
    width = context.start_time.dtype.itemsize
    text = context.start_time.view(np.uint8).reshape(-1, width)
    if text.any():
        width = int(np.flatnonzero(text.any(axis=0))[-1]) + 1
        columns["start_time"] = [width, text[:, :width].tobytes()]
    for name in _LABELS:
        column: LabelColumn = getattr(context, name)
        column = column.of(lambda label: label if len(label.encode()) <= MAX_LABEL_BYTES else None)
        if len(column.labels) > MAX_LABELS:
            column = column.used()
        if (column.index >= 0).any():
            index = np.where(column.index < MAX_LABELS, column.index, -1).astype(np.int32)
            columns[name] = [list(column.labels[:MAX_LABELS]), bytes(wire.raw(index))]
    return msgpack.packb(columns) if columns else None


def too_many_labels(context: ReadContext | None) -> bool:
    """Whether a column has too many texts for a frame; then send several batches."""
    columns = () if context is None else (context.run, context.barcode, context.sample)
    return any(len(c.labels) > MAX_LABELS and len(c.used().labels) > MAX_LABELS for c in columns)


def decode_context(frame: wire.Buffer, reads: int) -> ReadContext:
    """The context of ``reads`` reads; WireError if it is invalid. Unknown keys are ignored."""
    columns = wire.unpack_frame(frame, "the context")
    if not isinstance(columns, dict):
        raise wire.malformed("the context must be a map")
    channel = np.full(reads, -1, np.int32)
    if "channel" in columns:
        channel = _numbers("channel", columns["channel"], reads, _MOST_CHANNEL)
    times = np.zeros((reads, TIME_BYTES), np.uint8)
    if "start_time" in columns:
        _take_times(columns["start_time"], times)
    labels = [
        _labels(name, columns[name], reads) if name in columns else LabelColumn.same(None, reads)
        for name in _LABELS
    ]
    return ReadContext(channel, times.view(f"S{TIME_BYTES}").reshape(-1), *labels)


def with_context(batch: ReadBatch, further: Sequence[wire.Buffer]) -> ReadBatch:
    """The batch, given the context in ``further``, if any; WireError as ``decode_context``."""
    if further:
        # a copy would be of another class if its letters are packed
        object.__setattr__(batch, "context", decode_context(further[0], len(batch)))
    return batch


def _take_times(column: Any, times: NDArray[np.uint8]) -> None:
    reads, most = times.shape
    match column:
        # a later producer may send more after these
        case [int(width), bytes(text), *_] if _fits(width, most) and len(text) == width * reads:
            letters = np.frombuffer(text, np.uint8).reshape(reads, width)
        case _:
            problem = f"'start_time' of the context must be a width up to {most} and its bytes"
            raise wire.malformed(problem)
    if (bad := int(check_times(letters, times))) >= 0:
        raise wire.malformed(
            f"read {bad + 1}: 'start_time' of the context is not a time", index=bad
        )


def _fits(width: int, most: int) -> bool:
    # True is an int, too
    return type(width) is int and 0 < width <= most


def _labels(name: str, column: Any, reads: int) -> LabelColumn:
    match column:
        case [list(labels), bytes(index), *_]:
            pass
        case _:
            raise wire.malformed(f"'{name}' of the context must be an array of texts and indices")
    fine = all(
        isinstance(label, str)
        and 0 < len(label.encode("utf-8", "surrogatepass")) <= MAX_LABEL_BYTES
        and label.isprintable()
        for label in labels
    )
    if len(labels) > MAX_LABELS or not fine:
        problem = f"{MAX_LABELS} printable texts of {MAX_LABEL_BYTES} bytes at most"
        raise wire.malformed(f"'{name}' of the context must have {problem}")
    return LabelColumn(labels, _numbers(name, index, reads, len(labels) - 1))


def _numbers(name: str, data: Any, reads: int, most: int) -> NDArray[np.int32]:
    if not isinstance(data, bytes) or len(data) != 4 * reads:
        raise wire.malformed(f"'{name}' of the context must have 4 bytes for each of {reads} reads")
    numbers = np.frombuffer(data, "<i4").astype(np.int32, copy=False)
    wrong = np.flatnonzero((numbers < -1) | (numbers > most))
    if wrong.size:
        index = int(wrong[0])
        problem = f"'{name}' of the context is {numbers[index]}, must be -1 to {most}"
        raise wire.malformed(f"read {index + 1}: {problem}", index=index)
    return numbers


_COLUMNS = 3
"""The number of frames of the form ``columns``; a context may follow."""

NO_NAMES = bytes(msgpack.packb([]))
"""The frame of names of a batch without reads."""

Make = Callable[[Sequence[str], NDArray[np.int64], wire.Buffer], ReadBatch]


def encode_batch(batch: ReadBatch) -> list[wire.Buffer]:
    """The data frames of a batch as columns; they are copies, so the batch may change later."""
    offsets = np.frombuffer(wire.raw(batch.offsets), dtype=np.uint8)
    memory = array_pool.empty(offsets.size + batch.bases.size, np.uint8)
    memory[: offsets.size] = offsets
    decode(batch.bases, memory[offsets.size :])
    columns = np.split(memory, [offsets.size])
    names = batch.names
    packed = names.packed if isinstance(names, PackedNames) else msgpack.packb(list(names))
    context = encode_context(batch.context)
    further = [] if context is None else [context]
    return [packed, *(column.data for column in columns), *further]


def encode_reads(reads: Iterable[tuple[str, str | bytes]]) -> list[wire.Buffer]:
    """The data frames of (name, sequence) pairs as columns; the daemon checks them."""
    names: list[str] = []
    sequences: list[bytes] = []
    for name, sequence in reads:
        names.append(name)
        sequences.append(_letters(sequence))
    # the daemon refuses surrogates, with the name of the read
    packed = msgpack.packb(names, unicode_errors="surrogatepass")
    return [packed, wire.raw(offsets_of(sequences)), b"".join(sequences)]


def decode_batch(
    header: wire.Header, frames: Sequence[wire.Buffer], make: Make = ReadBatch.from_letters
) -> tuple[ReadBatch, bytes]:
    """The reads of a batch message, and its names as a msgpack array. WireError for any fault.

    frames: those between the header and the checksum, which was verified before (``unseal``). make:
    builds the batch from names, offsets and joined letters; BadReadError for a bad letter.
    """
    match header.get("form"):
        case "columns":
            names, offsets, letters, packed = _from_columns(frames)
        case "list":
            names, offsets, letters, packed = _from_list(frames)
        case form:
            raise wire.malformed(f"form {wire.shown(form)}, must be 'columns' or 'list'")
    try:
        return with_context(make(names, offsets, letters), frames[_COLUMNS:]), packed
    except BadReadError as error:
        # shortened: a name may be as long as the batch, and unread refusals stay in memory
        name = names[error.index][: wire.MAX_NAME_BYTES]
        raise wire.WireError(
            wire.Reason.BASE,
            f"read {error.index + 1} ({name}), position {error.position + 1}: {error}",
            index=error.index,
            name=name,
            position=error.position,
        ) from None


def decode_names(frame: wire.Buffer) -> Sequence[str]:
    """The names in a frame, a msgpack array of printable strings; WireError if it is not one."""
    packed = PackedNames.of(frame)
    if packed is not None:
        return packed
    # names beyond ASCII, or damage
    names = wire.unpack_frame(frame, "the frame of names", "surrogateescape")
    if not isinstance(names, list) or not set(map(type, names)) <= {str}:
        raise wire.malformed("the frame of names must be an array of strings")
    _check_names(names)
    return names


_Reads = tuple[Sequence[str], NDArray[np.int64], wire.Buffer, bytes]


def _from_columns(frames: Sequence[wire.Buffer]) -> _Reads:
    if len(frames) != _COLUMNS + 1:
        _check_count(frames, "columns", _COLUMNS)
    names = decode_names(frames[0])
    if len(frames[1]) != 8 * (len(names) + 1):
        problem = f"{len(names)} names need {len(names) + 1} offsets of 8 bytes, not "
        raise wire.malformed(problem + f"{len(frames[1])} bytes")
    # a copy, because frames may be unaligned
    offsets = np.empty(len(names) + 1, dtype=np.int64)
    offsets.data.cast("B")[:] = frames[1]
    if sys.byteorder == "big":  # pragma: no cover
        offsets = offsets.byteswap()
    letters = frames[2]
    if offsets[0] != 0 or offsets[-1] != len(letters) or not ascending(offsets):
        raise wire.malformed(
            f"offsets must rise from 0 to the {len(letters)} letters of the last frame"
        )
    return names, offsets, letters, bytes(frames[0])


def _from_list(frames: Sequence[wire.Buffer]) -> _Reads:
    _check_count(frames, "list", 1)
    names: list[str] = []
    sequences: list[bytes] = []
    for index, read in enumerate(_entries(frames[0], "the list of reads")):
        match read:
            # a later producer may send more after the sequence
            case [str(name), str(sequence) | bytes(sequence), *_]:
                names.append(name)
                sequences.append(_letters(sequence))
            case _:
                raise wire.malformed(f"read {index + 1} must be [name, sequence]", index=index)
    _check_names(names)
    return names, offsets_of(sequences), b"".join(sequences), msgpack.packb(names)


def _letters(sequence: str | bytes) -> bytes:
    return sequence.encode("latin-1", "replace") if isinstance(sequence, str) else sequence


def _check_count(frames: Sequence[wire.Buffer], form: str, count: int) -> None:
    if len(frames) != count:
        raise wire.malformed(f"{len(frames)} frames after the header, form '{form}' has {count}")


def _check_names(names: Sequence[str]) -> None:
    bad = bad_name(names)
    if bad is not None:
        index, problem = bad
        raise wire.malformed(f"read {index + 1}: {problem}", index=index)


def _entries(frame: wire.Buffer, what: str) -> Iterator[Any]:
    """The elements of a msgpack array, one at a time; WireError if it is not an array.

    Unpacking everything at once would hold the GIL, and block all other threads, for up to a
    second.
    """
    unpacker = msgpack.Unpacker(
        unicode_errors="surrogateescape",
        max_buffer_size=len(frame) or 1,
        object_hook=wire.text_keys,
    )
    unpacker.feed(frame)
    try:
        if len(frame) and not (0x90 <= frame[0] <= 0x9F or 0xDC <= frame[0] <= 0xDD):
            raise wire.malformed(f"{what} must be an array")
        for _ in range(unpacker.read_array_header()):
            yield unpacker.unpack()
        if unpacker.tell() != len(frame):
            raise wire.malformed(
                f"{what} is not msgpack: {len(frame) - unpacker.tell()} bytes follow it"
            )
    except wire.UNPACK_ERRORS as error:
        raise wire.not_msgpack(what, error) from None


Columns = dict[str, NDArray[Any]]

DENIED_TOPIC = "denied."
"""Subscribe to exactly this to be told what one's own key may not watch."""

_STAMP = ("at", "prev", "epoch", "time")
_NOTICE_STAMP = ("at", "epoch", "time")
_STREAM_DIGITS = 16
_TOPIC_FRAMES = {topic.name: topic.wire.encode() for topic in FEED}
_WIRE = {topic.name: topic.wire for topic in FEED}
_NAMES = {topic.wire.encode(): topic.name for topic in FEED}
# cached, because NumPy makes a dtype's name, or a dtype from a name, again each time
_DTYPES = {column.type_name: column.dtype for topic in FEED for column in topic.columns}
_TYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True, slots=True)
class FeedMessage:
    """One message of the feed, its checksum verified.

    topic: its name without the dot, empty if unknown, since a later daemon may have more. header:
    as sent. names: those of all reads of the batch, indexed by column ``read``. columns: arrays by
    name, without unknown types; empty for topics that are not about a batch.
    """

    topic: str
    header: wire.Header
    names: Sequence[str]
    columns: Columns


def encode_feed(
    topic: str, header: wire.Header, names: bytes, columns: Columns
) -> list[wire.Buffer]:
    """The frames of a message about a batch; ``header`` gets the columns."""
    head = encode_head(topic, header, describe(columns))
    return wire.seal([*head, names, *(wire.raw(values) for values in columns.values())])


def describe(columns: Columns) -> list[tuple[str, str, int]]:
    """Name, type and rows of each column."""
    return [(name, _TYPE_NAMES[values.dtype], values.size) for name, values in columns.items()]


def encode_head(
    topic: str, header: wire.Header, described: Sequence[tuple[str, str, int]]
) -> list[wire.Buffer]:
    """The topic and the header of a message about a batch; ``header`` gets the columns.

    described: name, type and rows of each column.
    """
    header["columns"] = described
    return [_TOPIC_FRAMES[topic], msgpack.packb(header)]


def encode_notice(topic: str, header: wire.Header) -> list[wire.Buffer]:
    """The frames of a message that is not about a batch: it only has a header."""
    return wire.seal([_TOPIC_FRAMES[topic], msgpack.packb(header)])


def encode_denied(key: str, header: wire.Header) -> list[wire.Buffer]:
    """The frames of a message that tells the owner of a public key what it may not watch."""
    about = {"topic": DENIED_TOPIC, "reason": wire.Reason.DENIED.value}
    return wire.seal([f"{DENIED_TOPIC}{key}".encode(), msgpack.packb(header | about)])


def described(topic: str, header: wire.Header) -> str:
    """A message's topic and record, for error messages."""
    at = header.get("at")
    return f"topic '{topic[:40]}', record {at if type(at) is int else 'unnumbered'}"


def decode_feed(
    frames: Sequence[wire.Buffer], crc: int | None = None, previous: Sequence[str] = ()
) -> FeedMessage:
    """Decode a message of the feed; WireError if it is damaged or of another protocol.

    The columns are views of the frames. crc: the checksum of all frames but the last, if known.
    previous: the names in the previous message, which are reused if they are the same.
    """
    return decode_body(wire.unseal(frames, crc=crc), previous)


def decode_body(frames: Sequence[wire.Buffer], previous: Sequence[str] = ()) -> FeedMessage:
    """Do ``decode_feed`` for frames without the checksum, which was verified before."""
    if len(frames) < 2:
        raise wire.malformed("a message has a topic and a header")
    topic = _NAMES.get(bytes(frames[0]), "")
    try:
        header = msgpack.unpackb(frames[1], object_hook=wire.text_keys)
    except wire.UNPACK_ERRORS as error:
        raise wire.not_msgpack(f"{_shown(frames)}: the header", error) from None
    version = header.get("v") if isinstance(header, dict) else None
    if type(version) is not int or version != wire.PROTOCOL:
        raise wire.WireError(
            wire.Reason.VERSION, f"{_shown(frames)}: not protocol version {wire.PROTOCOL}"
        )
    if not topic:
        return FeedMessage("", header, (), {})
    try:
        return _decode(topic, header, frames[2:], previous)
    except wire.WireError as error:
        raise error.about(described(topic, header)) from None


def _shown(frames: Sequence[wire.Buffer]) -> str:
    topic = bytes(frames[0]).decode("ascii", "replace")
    return f"topic '{topic.removesuffix('.')[:40]}'"


def _decode(
    topic: str, header: wire.Header, data: Sequence[wire.Buffer], previous: Sequence[str]
) -> FeedMessage:
    if header.get("topic") != _WIRE[topic]:
        raise wire.malformed("the header names another topic")
    stream = header.get("stream")
    if not isinstance(stream, str) or len(stream) != _STREAM_DIGITS:
        raise wire.malformed(f"field 'stream' must have {_STREAM_DIGITS} characters")
    if not TOPICS[topic].columns:
        wire.integers(header, _STAMP if topic in RECORD_TOPICS else _NOTICE_STAMP)
        return FeedMessage(topic, header, (), {})
    wire.integers(header, _STAMP)
    if not data:
        raise wire.malformed("no names")
    packed = bytes(data[0])
    same = isinstance(previous, PackedNames) and previous.packed == packed
    names = previous if same else decode_names(packed)
    return FeedMessage(topic, header, names, decode_columns(header, data[1:]))


def decode_columns(header: wire.Header, frames: Sequence[wire.Buffer]) -> Columns:
    """The columns that a header describes, without unknown types; WireError if they do not fit."""
    entries = header.get("columns")
    if not isinstance(entries, list) or len(entries) != len(frames):
        raise wire.malformed("columns and frames do not agree")
    columns: Columns = {}
    for entry, frame in zip(entries, frames, strict=True):
        # plain steps: a match pattern takes six times as long as all of them
        if not isinstance(entry, list) or len(entry) < 3:
            raise wire.malformed("a column without a description")
        name, type_name, rows = entry[:3]
        if not isinstance(type_name, str) or not isinstance(name, str) or type(rows) is not int:
            raise wire.malformed("a column without a description")
        dtype = _DTYPES.get(type_name)
        if dtype is None:
            continue
        if len(frame) != rows * dtype.itemsize or name in columns:
            raise wire.malformed(f"column '{name[:40]}' has the wrong length or comes twice")
        values = np.frombuffer(frame, dtype)
        columns[name] = values if sys.byteorder == "little" else values.byteswap()
    return columns
