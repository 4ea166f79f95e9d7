"""The task of the live page's process, which the daemon writes to its standard input."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from streamer.daemon.logs import Level

UNBEGUN_ENDS = signal.SIGUSR1
"""Ends a process that is still importing, which may take seconds; afterwards it is ignored."""


@dataclass(frozen=True)
class WebTask:
    """The task. endpoint: HOST:PORT as bound. listener: the descriptor of that socket, inherited.

    feed, control: endpoints of the daemon. token: "" if the page needs none. hosts: further host
    names of the page. keys: the fields of ``ClientKeys``, none if the daemon needs no keys.
    """

    endpoint: str
    listener: int
    feed: str
    control: str
    token: str
    hosts: Sequence[str]
    level: Level
    format: Literal["console", "json"]
    keys: Mapping[str, str] | None = None

    @classmethod
    def from_json(cls, text: str) -> WebTask:
        """The task that ``to_json`` wrote."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """As one line."""
        return json.dumps(asdict(self))
