"""Clients of a running daemon: ``Producer`` sends reads, ``Subscriber`` follows the results,
``Control`` asks and orders. Each object belongs to one thread.
"""

from streamer.clients.control import Control
from streamer.clients.errors import (
    DaemonError,
    DaemonFailedError,
    DaemonLostError,
    DaemonSilentError,
    LostBatchesError,
    RefusedError,
    StalledError,
)
from streamer.clients.messages import (
    Automaton,
    Beat,
    Gap,
    Intervals,
    Message,
    Near,
    NewEpoch,
    NewKmers,
    ReadSummaries,
    Status,
    Words,
)
from streamer.clients.producer import Producer
from streamer.clients.subscriber import Subscriber

__all__ = [
    "Automaton",
    "Beat",
    "Control",
    "DaemonError",
    "DaemonFailedError",
    "DaemonLostError",
    "DaemonSilentError",
    "Gap",
    "Intervals",
    "LostBatchesError",
    "Message",
    "Near",
    "NewEpoch",
    "NewKmers",
    "Producer",
    "ReadSummaries",
    "RefusedError",
    "StalledError",
    "Status",
    "Subscriber",
    "Words",
]
