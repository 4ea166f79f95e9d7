"""Frames that libzmq does not give at once, or never: whatever was received is closed, and once."""

from __future__ import annotations

import ctypes
import random
from ctypes import CFUNCTYPE, c_int, c_size_t, c_void_p

import numpy as np
import pytest

from streamer.protocol.transport import frames
from streamer.protocol.transport.frames import LIBZMQ, MESSAGE_BYTES

SOCKET = np.uint64(1)


class Library:
    """Six functions of libzmq on ``messages``; a few calls to receive fail, from ``end`` on all."""

    def __init__(self, messages, rng, end):
        self._frames = [(frame, n + 1 < len(m)) for m in messages for n, frame in enumerate(m)]
        self._rng = rng
        self._end = min(end, len(self._frames))
        self._rate = rng.choice((0, 0.3))
        self.taken = 0
        self.held = {}
        self.wrong = []
        kept = (
            CFUNCTYPE(c_int, c_void_p)(self._init),
            CFUNCTYPE(c_int, c_void_p, c_void_p, c_int)(self._receive),
            CFUNCTYPE(c_int, c_void_p)(self.close),
            CFUNCTYPE(c_void_p, c_void_p)(lambda at: ctypes.addressof(self.held[at][0])),
            CFUNCTYPE(c_size_t, c_void_p)(lambda at: len(self.held[at][1])),
            CFUNCTYPE(c_int, c_void_p)(lambda at: self.held[at][2]),
        )
        self._kept = kept

    def api(self):
        """Addresses as the kernels take them: these functions in the place of libzmq's."""
        addresses = LIBZMQ.addresses.copy()
        own = [ctypes.cast(function, c_void_p).value for function in self._kept]
        addresses[: len(own)] = own
        return addresses

    @property
    def ended(self):
        return self.taken == self._end

    def _init(self, at):
        if at in self.held:
            self.wrong.append("made twice")
        self.held[at] = None
        return 0

    def _receive(self, at, socket, flags):
        if self.ended or self._rng.random() < self._rate:
            return -1
        frame, more = self._frames[self.taken]
        self.taken += 1
        self.held[at] = ctypes.create_string_buffer(frame, len(frame) + 1), frame, int(more)
        return len(frame)

    def close(self, at):
        if self.held.pop(at, 0) == 0:
            self.wrong.append("closed, but not made")
        return 0


def case(seed):
    rng = random.Random(seed)
    sizes = (0, 1, 8, 33)
    messages = [
        [rng.randbytes(rng.choice(sizes)) for _ in range(rng.choice((1, 2, 4, 7)))]
        for _ in range(rng.randrange(1, 5))
    ]
    library = Library(messages, rng, rng.choice((99, rng.randrange(9))))
    return messages, library, rng.choice((1, 3, 5))


def whole(messages, taken):
    """How many messages have come to their end."""
    ends = np.cumsum([len(message) for message in messages])
    return int(np.searchsorted(ends, taken, side="right"))


@pytest.mark.parametrize("seed", range(30))
def test_copied(seed):
    messages, library, most = case(seed)
    api = library.api()
    storage, sizes = np.empty((most + 1) * MESSAGE_BYTES, np.uint8), np.empty(most, np.int64)
    told = np.zeros(2, np.int64)
    found = []
    while not library.ended:
        block = frames._take(api, np.uint64(0), SOCKET, storage, sizes, told)
        count = int(told[0])
        if count >= 0:
            places = np.cumsum([0, *((sizes[:count] + 7) // 8 * 8)]).tolist()
            data = block.tobytes()
            found.append([data[a : a + n] for a, n in zip(places, sizes[:count], strict=False)])
    assert (library.wrong, library.held) == ([], {})
    expected = [m if len(m) <= most else [] for m in messages[: whole(messages, library.taken)]]
    # one that never came to its end is none
    assert found in (expected, [*expected, []])


NO_TEXTS = np.zeros((0, 2, frames._TEXT_BYTES), np.uint8)


@pytest.mark.parametrize("seed", range(30))
def test_received(seed):
    messages, library, most = case(seed)
    api = library.api()
    storage = np.empty((2 * most + 1) * MESSAGE_BYTES, np.uint8)
    where, sizes = np.empty(2 * most, np.uint64), np.empty(2 * most, np.int64)
    counts = np.zeros(2, np.int64)
    found = []
    while not library.ended:
        arrays = storage, where, sizes, counts, frames._PROPERTIES, NO_TEXTS
        given = frames._receive(api, SOCKET, *arrays, most, 1 << 20)
        at = 0
        for count in counts[:given].tolist():
            places = range(at, at + count)
            found.append([ctypes.string_at(int(where[i]), int(sizes[i])) for i in places])
            for i in places:
                library.close(storage.ctypes.data + MESSAGE_BYTES * i)
            at += count
    assert (library.wrong, library.held) == ([], {})
    assert found == [m[:most] for m in messages[: whole(messages, library.taken)]]
