"""A line between the daemon and a worker on its node: two pipes, and memory that both share.

For a request and its answer, a call of Ray takes 3 ms of CPU time and its object store as much
again, in which a worker matches a million bases. Here requests are written to memory that is used
again and again, and a pipe says where. The memory is divided into slots, and an answer takes the
slot of its request.

Pipes and memory have no names: the daemon finds them among the open files of the worker. So nothing
is left of them after a kill, and the pipe of a worker that has ended says so.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from streamer.cluster.shared_objects import Parts

SLOTS = 2
SLOT_BYTES = 1 << 26
"""Bytes of a slot, of which only those in use take memory; larger objects go through Ray."""

_ALIGN = 64
_MOST_PARTS = 8
_MESSAGE = struct.Struct(f"{3 + _MOST_PARTS}q")  # writes and reads of so few bytes are atomic


class Address(NamedTuple):
    """Where the daemon finds a line.

    host: names the view of process ids. memory, answers, requests: descriptors of the worker. name:
    of the pipe of answers, unlike that of any other.
    """

    host: str
    pid: int
    memory: int
    answers: int
    requests: int
    name: str


class NodeLine:
    """One end of a line, from its descriptors."""

    def __init__(self, memory: int, reads: int, writes: int) -> None:
        self._bytes = np.frombuffer(mmap.mmap(memory, SLOTS * SLOT_BYTES), dtype=np.uint8)
        self.reads = reads
        self._writes = writes

    @classmethod
    def new(cls) -> tuple[Self, Address]:
        """Create a line; return the worker's end."""
        memory = os.memfd_create("requests")
        os.truncate(memory, SLOTS * SLOT_BYTES)
        requests, answers = os.pipe(), os.pipe()
        pid = os.getpid()
        address = Address(
            _host(), pid, memory, answers[0], requests[1], os.readlink(_file(pid, answers[0]))
        )
        return cls(memory, requests[0], answers[1]), address

    @classmethod
    def at(cls, address: Address) -> Self | None:
        """Return the daemon's end; None if the worker is on another node, or has ended."""
        if address.host != _host():
            return None
        opened: list[int] = []
        try:
            # its process id may have been given to another process
            if os.readlink(_file(address.pid, address.answers)) != address.name:
                return None
            for descriptor, mode in (
                (address.memory, os.O_RDWR),
                (address.answers, os.O_RDONLY),
                (address.requests, os.O_WRONLY),
            ):
                opened.append(os.open(_file(address.pid, descriptor), mode))
            line = cls(*opened)
        except OSError:
            for descriptor in opened:
                os.close(descriptor)
            return None
        os.close(opened[0])
        return line

    def send(self, slot: int, parts: Parts, number: int = 0) -> bool:
        """Send a packed object, or no parts, and a number; return False if it does not fit."""
        sizes = [part.size for part in parts]
        if sum(map(_rounded, sizes)) > SLOT_BYTES:
            return False
        for there, part in zip(self._parts(slot, sizes), parts, strict=True):
            there[:] = part
        unused = [0] * (_MOST_PARTS - len(sizes))
        # that the other process has ended shows in ``receive``
        with contextlib.suppress(BrokenPipeError):
            os.write(self._writes, _MESSAGE.pack(slot, number, len(sizes), *sizes, *unused))
        return True

    def receive(self) -> tuple[int, Parts, int]:
        """Wait for what is sent: its slot, the parts, which stay there, and the number.

        EOFError if the worker has ended.
        """
        message = os.read(self.reads, _MESSAGE.size)
        if not message:
            raise EOFError
        slot, number, count, *sizes = _MESSAGE.unpack(message)
        return slot, self._parts(slot, sizes[:count]), number

    def close(self) -> None:
        """Close the pipes of this end."""
        os.close(self.reads)
        os.close(self._writes)

    def _parts(self, slot: int, sizes: list[int]) -> Parts:
        at = slot * SLOT_BYTES
        parts = []
        for size in sizes:
            parts.append(self._bytes[at : at + size])
            at += _rounded(size)
        return parts


def readable(lines: Iterable[NodeLine], seconds: float) -> list[NodeLine]:
    """Wait for the first of these to receive; return those that do not wait in ``receive``."""
    poll = select.poll()
    ends = {line.reads: line for line in lines}
    for end in ends:
        poll.register(end, select.POLLIN)
    return [ends[end] for end, _ in poll.poll(seconds * 1000)]


def _rounded(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _file(pid: int, descriptor: int) -> str:
    return f"/proc/{pid}/fd/{descriptor}"


def _host() -> str:
    """Name this boot of this machine, and this view of its process ids."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
