"""A worker as seen by the daemon, and the messages of its errors."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Member:
    """A worker. learned: how many k-mers the team had learned when it was created.

    starting: the call in progress until it is ready. sign: its next heartbeat until then. alive: it
    has sent one. pid: set once its dictionary is loaded. ready: it also knows everything learned
    meanwhile. parts: outstanding ones with their references, in order. since: when it last
    answered.
    """

    actor: Any
    shard: int
    learned: int
    starting: Any
    sign: Any
    alive: bool = False
    pid: int = 0
    ready: bool = False
    parts: deque[tuple[Any, int]] = field(default_factory=deque)
    since: float = 0.0

    @property
    def asked(self) -> Any:
        """The call that it must answer within HANG_SECONDS, if any."""
        if self.parts:
            return self.parts[0][0]
        # the first heartbeat comes once Ray has started its process
        return self.sign if self.alive and not self.ready else None


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
