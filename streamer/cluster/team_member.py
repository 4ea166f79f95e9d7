"""A worker as seen by the daemon, and the messages of its errors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from streamer.cluster.node_line import SLOTS, NodeLine
from streamer.cluster.shared_objects import Parts, unpacked


@dataclass
class Question:
    """A packed request. put: gives an object to Ray."""

    parts: Parts
    put: Callable[[Parts], Any]

    @cached_property
    def reference(self) -> Any:
        """Ray's reference to it, for workers that cannot be asked by a line."""
        return self.put(self.parts)


class AskedPart(NamedTuple):
    """A request that a worker has not answered; reference: of a call of Ray, else by its line."""

    number: int
    question: Question
    reference: Any


@dataclass(eq=False)
class Member:
    """A worker. learned: how many k-mers the team had learned when it was created.

    starting: the call in progress until it is ready. sign: its next heartbeat until then. alive: it
    has sent one. pid: set once its dictionary is loaded. line: to it, if it is on this node. ready:
    it also knows everything learned meanwhile. parts: outstanding ones, in order. since: when it
    last answered.
    """

    actor: Any
    shard: int
    learned: int
    starting: Any
    sign: Any
    alive: bool = False
    pid: int = 0
    line: NodeLine | None = None
    ready: bool = False
    parts: deque[AskedPart] = field(default_factory=deque)
    since: float = 0.0
    _slot: int = 0

    @property
    def takes_more(self) -> bool:
        """Whether it can be given a part: it has at most the current one and the next."""
        return self.ready and len(self.parts) < SLOTS

    @property
    def asked(self) -> Any:
        """The call of Ray that it must answer within HANG_SECONDS, if any."""
        if self.parts:
            return self.parts[0].reference
        # the first heartbeat comes once Ray has started its process
        return self.sign if self.alive and not self.ready else None

    @property
    def awaited(self) -> NodeLine | None:
        """The line by which its next answer comes, if any."""
        return self.line if self.parts and self.parts[0].reference is None else None

    def ask(self, number: int, question: Question, learned: int) -> None:
        """Give it a part."""
        self._slot = (self._slot + 1) % SLOTS
        reference = None
        if self.line is None or not self.line.send(self._slot, question.parts, learned):
            reference = self._call(question, learned)
        self.parts.append(AskedPart(number, question, reference))

    def heard(self, learned: int) -> tuple[int, Any] | None:
        """Receive its next answer by its line; None if Ray has to carry it."""
        assert self.line is not None
        _, answer, _ = self.line.receive()
        number, question, _ = self.parts.popleft()
        if not answer:
            self.parts.appendleft(AskedPart(number, question, self._call(question, learned)))
            return None
        return number, unpacked(answer)

    def _call(self, question: Question, learned: int) -> Any:
        return self.actor.match.remote(question.reference, learned)

    def abandon(self) -> None:
        """Ignore the answers to its parts, which it may still write."""
        if self.parts:
            self.hang_up()
        self.parts.clear()

    def hang_up(self) -> None:
        """Do without the line."""
        if self.line is not None:
            self.line.close()
        self.line = None


def fault_of(error: BaseException) -> BaseException:
    """Return the exception that a worker raised, if it caused ``error``; else ``error``."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, Exception) else error


def first_line(error: BaseException) -> str:
    """Return what happened to a worker; without the traceback of an error that it raised."""
    cause = fault_of(error)
    if cause is not error:
        return f"{type(cause).__name__}: {first_line(cause)}"
    return " ".join(str(error).split())[:200] or type(error).__name__
