"""Clients of a running daemon: ``Producer`` sends reads, ``Subscriber`` follows the results,
``Control`` asks and orders. Each object belongs to one thread.
"""

from streamer.client.client_errors import (
    CursorError,
    DaemonError,
    DaemonFailedError,
    DaemonLostError,
    DaemonSilentError,
    KeysRefusedError,
    LostBatchesError,
    RefusedError,
    StalledError,
    TooLargeError,
)
from streamer.client.control import Control
from streamer.client.core.subscriber import Cursor, StoredState
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
    ReadDecisions,
    ReadSummaries,
    Reset,
    Retract,
    Settled,
    Status,
    Upgrade,
    Words,
)
from streamer.client.producer import Producer
from streamer.client.subscriber import Subscriber
from streamer.client.sync import Sync

__all__ = [
    "Automaton",
    "Beat",
    "Control",
    "Cursor",
    "CursorError",
    "DaemonError",
    "DaemonFailedError",
    "DaemonLostError",
    "DaemonSilentError",
    "Gap",
    "Intervals",
    "KeysRefusedError",
    "LostBatchesError",
    "Message",
    "Near",
    "NewEpoch",
    "NewKmers",
    "NewStream",
    "Producer",
    "ReadDecisions",
    "ReadSummaries",
    "RefusedError",
    "Reset",
    "Retract",
    "Settled",
    "StalledError",
    "Status",
    "StoredState",
    "Subscriber",
    "Sync",
    "TooLargeError",
    "Upgrade",
    "Words",
]
