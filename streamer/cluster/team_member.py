"""A worker of a team as the daemon sees it, and what its errors say."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Member:
    """A worker. learned: how many k-mers the team had learned when it was made.

    starting: what it does until it is ready. sign: the next sign of life until then. alive: it has
    given one. pid: once it has loaded its dictionary. ready: once it also knows all that was
    learned meanwhile. parts: under way, with their references, in order. since: when it answered
    last.
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
        """What it owes an answer to within HANG_SECONDS; None: nothing."""
        if self.parts:
            return self.parts[0][0]
        # the first sign comes when Ray has started its process
        return self.sign if self.alive and not self.ready else None


def fault_of(error: BaseException) -> BaseException:
    """What a worker raised, if it raised ``error``; else that."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, Exception) else error


def first_line(error: BaseException) -> str:
    """What happened to a worker; of an error that it raised, without the traceback."""
    cause = fault_of(error)
    if cause is not error:
        return f"{type(cause).__name__}: {first_line(cause)}"
    return " ".join(str(error).split())[:200] or type(error).__name__
