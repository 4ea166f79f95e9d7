"""libzmq's own functions, borrowed from pyzmq's wheel, for kernels that run without the GIL.

pyzmq releases and retakes the GIL for every frame. A batch and its results have 30 frames, several
threads want the GIL, and waiting for it took longer than everything else that the daemon does. So
many frames are sent and received in one call. Without these functions pyzmq is used.
"""

# mypy: no-check-untyped-defs
# (kernels are typed by numba, by the arguments of their first call)

from __future__ import annotations

import numpy as np
import zmq

from trie.cpu.foreign import Borrowed, foreign
from trie.cpu.jit import njit

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
