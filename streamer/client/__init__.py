"""Clients of a running daemon: ``Producer`` sends reads, ``Subscriber`` follows the results,
``Control`` asks and orders. Each object belongs to one thread.
"""

from streamer.client.control import Control
from streamer.client.errors import (
    DaemonError,
    DaemonFailedError,
    DaemonLostError,
    DaemonSilentError,
    LostBatchesError,
    RefusedError,
    StalledError,
)
from streamer.client.messages import (
    Automaton,
    Beat,
    Gap,
    Intervals,
    Message,
    Near,
    NewEpoch,
    NewKmers,
    NewStream,
    ReadSummaries,
    Status,
    Words,
)
from streamer.client.producer import Producer
from streamer.client.subscriber import Subscriber

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
    "NewStream",
    "Producer",
    "ReadSummaries",
    "RefusedError",
    "StalledError",
    "Status",
    "Subscriber",
    "Words",
]
