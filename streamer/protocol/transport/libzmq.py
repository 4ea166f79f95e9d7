"""libzmq's own functions, which pyzmq brings along, for kernels that run without the lock.

pyzmq gives the interpreter's lock back and asks for it again with every frame. A batch and what is
said about it have 30 frames, several threads want the lock, and waiting for it took longer than all
that the daemon does otherwise. So frames are sent and received many in a row.
"""

from __future__ import annotations

import zmq

from trie.cpu import foreign

MESSAGE_BYTES = 64
"""Of a zmq_msg_t."""

NOBLOCK = int(zmq.NOBLOCK)

TRIES = 1_000
"""How often the next frame is asked for: it has come with the first, but calls are interrupted."""

MESSAGE_FUNCTIONS = tuple(
    f"zmq_msg_{name}" for name in ("init", "recv", "close", "data", "size", "more")
)
"""The next six, in their order."""

msg_init = foreign.foreign("int", "pointer")
msg_recv = foreign.foreign("int", "pointer", "pointer", "int")
msg_close = foreign.foreign("int", "pointer")
msg_data = foreign.foreign("pointer", "pointer")
msg_size = foreign.foreign("size", "pointer")
msg_more = foreign.foreign("int", "pointer")


def address_of(name: str) -> int:
    """Where the function is, 0 if it cannot be found."""
    return foreign.address_of(name, "zmq.backend.cython._zmq")
