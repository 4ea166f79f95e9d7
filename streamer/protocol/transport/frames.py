"""Many messages of many frames through a ZeroMQ socket in one call, which runs without the GIL.

pyzmq releases and retakes the GIL for every frame. A batch and its results have 30 frames, several
threads want the GIL, and waiting for it took longer than everything else that the daemon does. So
kernels call libzmq's own functions, borrowed from pyzmq's wheel. Without these, pyzmq does it.

``Copier`` takes a message as one block of memory, with its checksum: the messages of the feed have
many small frames, and keeping one costs an object with a destructor, as much time as copying 30
kilobytes. ``receive`` takes many messages without copying, ``send_all`` sends them.

``UnsentBytes`` counts the bytes of messages that wait in libzmq, whose limits count messages. A
message that waits for several connections is in memory once, and libzmq calls a function when none
needs it any more: here one that subtracts its bytes from a counter and frees it. Each frame has its
own block of memory, which begins with four words:

        counted bytes | address of the counter | address of free | unused
"""

import ctypes
import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
import zmq
from numba import carray, types  # type: ignore[attr-defined]
from numpy.typing import NDArray

from streamer.protocol.checksum_kernels import continue_crc32c
from streamer.protocol.transport.curve import NOBODY, Sender, sender_of
from streamer.protocol.wire import Buffer, crc32c_address
from trie.cpu.borrowed import Borrowed
from trie.cpu.intrinsics import array_address, pointer
from trie.cpu.jit import njit
from trie.cpu.llvm import I64, foreign, instruction

# mypy: no-check-untyped-defs
# (kernels are typed by numba, by the arguments of their first call)


LIBZMQ = Borrowed(
    "libzmq",
    "zmq.backend.cython._zmq",
    (
        "zmq_msg_init",
        "zmq_msg_recv",
        "zmq_msg_close",
        "zmq_msg_data",
        "zmq_msg_size",
        "zmq_msg_more",
        "zmq_send",
        "memcpy",  # that of libc, which libzmq uses; numba's loops copy byte by byte
        "zmq_msg_gets",
    ),
)
INIT, RECV, CLOSE, DATA, SIZE, MORE, SEND, COPY, GETS = range(9)
"""Indices into ``LIBZMQ.addresses``."""

msg_init = foreign("int", "pointer")
msg_recv = foreign("int", "pointer", "pointer", "int")
msg_close = foreign("int", "pointer")
msg_data = foreign("pointer", "pointer")
msg_size = foreign("size", "pointer")
msg_more = foreign("int", "pointer")
msg_gets = foreign("pointer", "pointer", "pointer")

NOBLOCK = int(zmq.NOBLOCK)

MESSAGE_BYTES = 64
"""The size of a zmq_msg_t."""

# the frames of a message arrive together, but a signal can interrupt a call
_TRIES = 1_000

NOTHING, TORN = -1, -2


@njit(cache=True, nogil=True)
def receive_frames(api, socket, base, most):
    """Receive one message into zmq_msg_t from ``base`` on; returns how many frames it has.

    The caller closes the first ``most`` of them; later ones are dropped here. There must be room
    for most + 1. NOTHING: no message has come. TORN: the message was incomplete; nothing is left
    open.
    """
    frames = 0
    tries = 0
    while True:
        # an excess frame is overwritten by the next one
        place = base + np.uint64(min(frames, most) * MESSAGE_BYTES)
        msg_init(api[INIT], place)
        if msg_recv(api[RECV], place, socket, np.int32(NOBLOCK)) < 0:
            msg_close(api[CLOSE], place)
            tries += 1
            if frames and tries < _TRIES:
                continue
            for at in range(min(frames, most)):
                msg_close(api[CLOSE], base + np.uint64(at * MESSAGE_BYTES))
            return TORN if frames else NOTHING
        more = msg_more(api[MORE], place) != 0
        if frames >= most:
            msg_close(api[CLOSE], place)
        frames += 1
        if not more:
            return frames


# frames begin at multiples of this, so that numbers are aligned
_ALIGNMENT = 8
_copy = foreign("pointer", "pointer", "pointer", "size")


class Copier:
    """Receives messages of up to ``frames`` frames from ``socket``."""

    def __init__(self, socket: zmq.Socket[bytes], *, frames: int) -> None:
        self._socket = socket
        self._frames = frames
        self._crc = np.uint64(crc32c_address())
        # one more, for frames to drop
        self._storage = np.empty((frames + 1) * MESSAGE_BYTES, dtype=np.uint8)
        self._sizes = np.empty(frames, dtype=np.int64)
        self._results = np.zeros(2, dtype=np.int64)
        if not LIBZMQ.missing:
            # compile now rather than while a client waits for an answer
            self._take(np.uint64(0))

    def take(self) -> tuple[list[memoryview], int | None] | None:
        """Receive a message, None if there is none; never waits.

        Returns its frames, none at all if there were too many, and the CRC-32C of all but the last,
        None if ISA-L is missing. The frames begin at multiples of eight bytes in one block of
        memory, which lives as long as any of them. zmq.ZMQError if the socket has been closed.
        """
        if LIBZMQ.missing:
            return self._take_plainly()
        block = self._take(np.uint64(self._socket.underlying))
        count, crc = self._results.tolist()
        if count == NOTHING:
            if self._socket.closed:
                raise zmq.ZMQError(zmq.ENOTSOCK)
            return None
        view = block.data
        frames: list[memoryview] = []
        at = 0
        for size in self._sizes[: max(count, 0)].tolist():
            frames.append(view[at : at + size])
            at += (size + _ALIGNMENT - 1) & -_ALIGNMENT
        return frames, crc if self._crc else None

    def _take(self, socket: np.uint64) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        arrays = self._storage, self._sizes, self._results
        return _take(LIBZMQ.addresses, self._crc, socket, *arrays)

    def _take_plainly(self) -> tuple[list[memoryview], int | None] | None:
        try:
            received = self._socket.recv_multipart(NOBLOCK, copy=False)
        except zmq.Again:
            return None
        return [frame.buffer for frame in received] if len(received) <= self._frames else [], None


@njit(cache=True, nogil=True)
def _take(api, crc, socket, storage, sizes, results):
    """The message as one block of memory; results: gets the frame count (or NOTHING), the CRC-32C.

    The results are not returned with it, because an interrupt would then raise a SystemError: numba
    calls Python to make an array, and does not check for failure if the array is part of a tuple.
    """
    base = np.uint64(storage.ctypes.data)
    frames = receive_frames(api, socket, base, sizes.size)
    results[0] = frames if frames <= sizes.size and frames >= NOTHING else 0
    total = 0
    for number in range(max(results[0], 0)):
        sizes[number] = msg_size(api[SIZE], base + np.uint64(number * MESSAGE_BYTES))
        total += (sizes[number] + _ALIGNMENT - 1) & -_ALIGNMENT
    block = np.empty(total, dtype=np.uint8)
    crc_so_far = np.uint32(0)
    at = 0
    for number in range(min(frames, sizes.size)):
        place = base + np.uint64(number * MESSAGE_BYTES)
        if results[0] and sizes[number]:
            begin = np.uint64(block.ctypes.data) + np.uint64(at)
            _copy(api[COPY], begin, msg_data(api[DATA], place), sizes[number])
            if crc and number < frames - 1:
                crc_so_far = continue_crc32c(crc, crc_so_far, begin, sizes[number])
            at += (sizes[number] + _ALIGNMENT - 1) & -_ALIGNMENT
        msg_close(api[CLOSE], place)
    results[1] = crc_so_far
    return block


# properties of a message, as text: its sender's key, and the descriptor of its connection
_PROPERTIES = np.frombuffer(b"User-Id\0__fd\0", np.uint8)
_SECOND = len(b"User-Id\0")
_TEXT_BYTES = 64


def receive(
    socket: zmq.Socket[bytes],
    *,
    messages: int,
    frames: int,
    size: int,
    senders: list[Sender] | None = None,
) -> list[list[memoryview]]:
    """Receive up to ``messages`` messages and about ``size`` bytes; never waits.

    Frames of a message beyond ``frames`` are dropped. senders: gets the sender of each message.
    """
    if LIBZMQ.missing:
        return _receive_plainly(socket, messages, frames, size, senders)
    capacity = messages * frames
    # one more, for frames to drop
    storage = np.empty((capacity + 1) * MESSAGE_BYTES, dtype=np.uint8)
    places, sizes = np.empty(capacity, dtype=np.uint64), np.empty(capacity, dtype=np.int64)
    counts = np.zeros(messages, dtype=np.int64)
    # two texts for each message
    texts = np.zeros((messages if senders is not None else 0, 2, _TEXT_BYTES), dtype=np.uint8)
    arrays = storage, places, sizes, counts, _PROPERTIES, texts
    received = _receive(LIBZMQ.addresses, np.uint64(socket.underlying), *arrays, frames, size)
    taken: list[list[memoryview]] = []
    at = 0
    for count in counts[:received].tolist():
        taken.append(
            [
                _Frame(storage, i, int(places[i]), int(sizes[i])).view()
                for i in range(at, at + count)
            ]
        )
        at += count
    if senders is not None:
        senders += [_sender(*pair) for pair in texts[:received]]
    return taken


def _sender(user: NDArray[np.uint8], descriptor: NDArray[np.uint8]) -> Sender:
    who, where = (text.tobytes().partition(b"\0")[0].decode() for text in (user, descriptor))
    return Sender(who, int(where)) if who and where else NOBODY


def _receive_plainly(
    socket: zmq.Socket[bytes], messages: int, frames: int, size: int, senders: list[Sender] | None
) -> list[list[memoryview]]:
    taken: list[list[memoryview]] = []
    total = 0
    while len(taken) < messages and total < size:
        try:
            received = socket.recv_multipart(NOBLOCK, copy=False)
        except zmq.Again:
            break
        taken.append([frame.buffer for frame in received[:frames]])
        if senders is not None:
            senders.append(sender_of(received[0]))
        total += sum(map(len, taken[-1]))
    return taken


class _Frame:
    """A received frame, closed once its last view is gone."""

    __slots__ = ("__array_interface__", "_at", "_storage")

    def __init__(self, storage: NDArray[np.uint8], at: int, address: int, size: int) -> None:
        self._storage = storage
        self._at = at
        self.__array_interface__: dict[str, Any] = {
            "data": (address, True),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }

    def view(self) -> memoryview:
        return np.asarray(self).data if self.__array_interface__["shape"][0] else memoryview(b"")

    def __del__(self) -> None:
        _close(LIBZMQ.addresses, self._storage, self._at)


@njit(cache=True)
def _close(api, storage, at):
    msg_close(api[CLOSE], np.uint64(storage.ctypes.data) + np.uint64(at * MESSAGE_BYTES))


@njit(cache=True)
def _copy_text(address, text):
    """Copy a C string, if there is one, truncated to the space in ``text``."""
    if np.uint64(address) == 0:
        return
    letters = carray(pointer(np.uint64(address)), text.size, np.uint8)
    for i in range(text.size - 1):
        if letters[i] == 0:
            return
        text[i] = letters[i]


@njit(cache=True)
def _receive(api, socket, storage, places, sizes, counts, properties, texts, most, limit):
    """Receive whole messages; returns how many. counts: gets the frames of each, up to ``most``.

    texts: gets the properties of the senders, if it has room.
    """
    names = np.uint64(properties.ctypes.data)
    base = np.uint64(storage.ctypes.data)
    kept = 0
    total = 0
    for message in range(counts.size):
        frames = receive_frames(api, socket, base + np.uint64(kept * MESSAGE_BYTES), most)
        if frames < 0:
            return message
        counts[message] = min(frames, most)
        if texts.shape[0]:
            first = base + np.uint64(kept * MESSAGE_BYTES)
            _copy_text(msg_gets(api[GETS], first, names), texts[message, 0])
            second = names + np.uint64(_SECOND)
            _copy_text(msg_gets(api[GETS], first, second), texts[message, 1])
        for _ in range(counts[message]):
            place = base + np.uint64(kept * MESSAGE_BYTES)
            places[kept] = msg_data(api[DATA], place)
            sizes[kept] = msg_size(api[SIZE], place)
            total += sizes[kept]
            kept += 1
        if total >= limit:
            return message + 1
    return counts.size


LIBZMQ_MEMORY = Borrowed(
    "libzmq memory",
    "zmq.backend.cython._zmq",
    ("zmq_msg_init_data", "zmq_msg_send", "malloc", "free"),
)
"""Without these, or without those of ``LIBZMQ``, nothing is counted."""

SMALL_BYTES = 32
"""Frames up to this size lie within libzmq's message structure and are not counted."""

_HEAD_BYTES = 32
FRAME_BYTES = 128
"""What libzmq and malloc need for a frame besides its bytes, once for all connections."""

_INIT_DATA, _SEND, _MALLOC, _FREE = range(4)

_init_data = foreign("int", "pointer", "pointer", "size", "pointer", "pointer")
_msg_send = foreign("int", "pointer", "pointer", "int")
_malloc = foreign("pointer", "size")
_free = foreign("int", "pointer")

# kept for ever: libzmq may still write to them when nobody else refers to them
_COUNTERS: list[NDArray[np.int64]] = []


@instruction(types.int64, types.uint64, types.int64)
def _add(builder: Any, address: Any, number: Any) -> Any:
    """Atomically add to a number in memory."""
    place = builder.inttoptr(address, I64.as_pointer())
    return builder.atomic_rmw("add", place, number, "monotonic")


class UnsentBytes:
    """The bytes of sent messages that wait in libzmq, including its overhead for each frame."""

    def __init__(self) -> None:
        self._counter = np.zeros(1, np.int64)
        _COUNTERS.append(self._counter)
        self._table = np.zeros(0, np.uint64)
        if not self.missing:
            addresses = [
                array_address(self._counter),
                _released().address,
                *LIBZMQ_MEMORY.addresses,
            ]
            self._table = np.array(addresses, np.uint64)

    @property
    def missing(self) -> bool:
        """Whether counting is impossible."""
        return bool(LIBZMQ_MEMORY.missing or LIBZMQ.missing)

    @property
    def bytes(self) -> int:
        """How many bytes wait now."""
        return int(self._counter[0])

    @property
    def table(self) -> NDArray[np.uint64]:
        """The table for ``send_counted``; empty if counting is impossible."""
        return self._table


@functools.cache
def _released() -> Any:
    """The callback for libzmq, compiled once a process; its threads call it without the GIL."""

    @numba.cfunc(types.void(types.uint64, types.uint64))
    def release(_data, block):
        head = carray(pointer(block), 3, np.int64)
        _add(np.uint64(head[1]), -head[0])
        _free(np.uint64(head[2]), block)

    return release


@njit(cache=True, nogil=True)
def send_counted(api, table, message, socket, place, size, further, flags):
    """Send a frame, copied and counted; returns a negative number if it could not be sent.

    api: addresses of libzmq's functions. table: ``UnsentBytes.table``. message: address of a
    zmq_msg_t. further: bytes that are counted with it.
    """
    block = np.uint64(_malloc(table[2 + _MALLOC], size + _HEAD_BYTES))
    if block == 0:
        return -1
    counted = size + FRAME_BYTES + further
    head = carray(pointer(block), 3, np.int64)
    head[0] = counted
    head[1] = np.int64(table[0])
    head[2] = np.int64(table[2 + _FREE])
    data = block + np.uint64(_HEAD_BYTES)
    _copy(api[COPY], data, place, size)
    _add(table[0], counted)
    _init_data(table[2 + _INIT_DATA], message, data, size, table[1], block)
    sent = _msg_send(table[2 + _SEND], message, socket, flags)
    if sent < 0:
        msg_close(api[CLOSE], message)
    return sent


_MORE = int(zmq.SNDMORE | zmq.NOBLOCK)
_LAST = int(zmq.NOBLOCK)
# smaller frames are copied into one buffer, which is faster than looking up their addresses
_SMALL = 1 << 13
_NOT_COUNTED = np.zeros(0, np.uint64)

_READ = 0x100  # PyBUF_READ
# a ctypes array would need a type for each size, and types stay until a rare garbage collection
_view_at = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)(
    ("PyMemoryView_FromMemory", ctypes.pythonapi)
)

# zmq_send(socket, data, size, flags)
_zmq_send = foreign("int", "pointer", "pointer", "size", "int")


class Placed(NamedTuple):
    """Frames in memory: at ``address`` are ``pairs`` of int64, each frame's address and size.

    size: bytes of all frames. owner: keeps that memory alive.
    """

    address: int
    pairs: int
    size: int
    owner: Any

    def frames(self) -> list[bytes]:
        """Copies of the frames."""
        return [ctypes.string_at(*pair) for pair in self._pairs()]

    def views(self) -> list[memoryview]:
        """Views of the frames, valid while ``owner`` lives."""
        return [_view_at(*pair, _READ) for pair in self._pairs()]

    def _pairs(self) -> list[list[int]]:
        numbers = _view_at(self.address, 16 * self.pairs, _READ)
        pairs: list[list[int]] = numbers.cast("q", (self.pairs, 2)).tolist()
        return pairs


Message = Sequence[Buffer | Placed]


def send_all(
    socket: zmq.Socket[bytes],
    messages: Sequence[Message],
    unsent: UnsentBytes | None = None,
    shares: Sequence[int] = (),
) -> None:
    """Send messages; never waits. unsent: counts them as long as they wait in libzmq.

    shares: bytes to count with each message besides its frames, none by default.

    For sockets that drop messages for a full peer. zmq.ZMQError if one cannot be sent.
    """
    if not messages:
        return
    sent = 0
    if not LIBZMQ.missing:
        # address (0: next in the joined bytes), size (below 0: pairs), whether it is the last,
        # bytes to count with it
        parts: list[int] = []
        small: list[Buffer] = []
        for message, share in zip(messages, shares or [0] * len(messages), strict=True):
            for frame in message:
                if isinstance(frame, Placed):
                    parts += (frame.address, -frame.pairs, 0, share)
                elif (size := len(frame)) < _SMALL:
                    small.append(frame)
                    parts += (0, size, 0, share)
                else:
                    parts += (np.frombuffer(frame, np.uint8).ctypes.data, size, 0, share)
                share = 0
            parts[-2] = 1
        joined = np.frombuffer(b"".join(small) or b"\0", np.uint8)
        table = np.array(parts, np.int64)
        counting = _NOT_COUNTED if unsent is None else unsent.table
        sent = _send(LIBZMQ.addresses, counting, np.uint64(socket.underlying), joined, table)
    if sent < 0:
        return
    # pyzmq sends the rest, or raises the error
    for number, (frame, last) in enumerate(_each(messages)):
        if number >= sent:
            socket.send(frame, _LAST if last else _MORE)


def measure(message: Message) -> tuple[int, int]:
    """The bytes and the number of the frames of a message."""
    size = count = 0
    for frame in message:
        if isinstance(frame, Placed):
            size += frame.size
            count += frame.pairs
        else:
            size += len(frame)
            count += 1
    return size, count


def _each(messages: Sequence[Message]) -> Iterator[tuple[Buffer, bool]]:
    for message in messages:
        frames: list[Buffer] = []
        for frame in message:
            frames += frame.frames() if isinstance(frame, Placed) else [frame]
        for number, each in enumerate(frames, 1):
            yield each, number == len(frames)


@njit(cache=True, nogil=True)
def _send(api, counting, socket, joined, table):
    """Send the frames of ``table``; returns -1, or the index of the one that could not be sent."""
    message = np.empty(MESSAGE_BYTES // 8, np.uint64)
    at = np.uint64(joined.ctypes.data)
    number = 0
    further = np.int64(0)
    for part in range(0, table.size, 4):
        where, size, last = table[part], table[part + 1], table[part + 2]
        further += table[part + 3]
        count = -size if size < 0 else 1
        for i in range(count):
            place = np.uint64(where)
            length = size
            if size < 0:
                pair = carray(pointer(place + np.uint64(16 * i)), 2, np.int64)
                place = np.uint64(pair[0])
                length = pair[1]
            elif where == 0:
                place = at
                at += np.uint64(size)
            flags = np.int32(_LAST if last and i == count - 1 else _MORE)
            if counting.size and length > SMALL_BYTES:
                there = np.uint64(message.ctypes.data)
                sent = send_counted(api, counting, there, socket, place, length, further, flags)
                further = np.int64(0)
            else:
                sent = _zmq_send(api[SEND], socket, place, length, flags)
            if sent < 0:
                return number
            number += 1
    return -1
