"""What is known of the run: messages and replies in, fields for the page out. Without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamer import __version__
from streamer.client.core.subscriber import FINAL
from streamer.client.messages import (
    Gap,
    Message,
    NewEpoch,
    NewStream,
    ReadSummaries,
    Status,
    TallyRows,
)
from streamer.matching.target_tally import Panel
from streamer.web.history import History, Point
from streamer.web.lengths import Lengths
from streamer.web.quantiles import quantile
from streamer.web.senders import Senders
from streamer.web.target_rows import TargetRows

TOPICS = ("read", "targets", "barcodes", "novelty", "status")
"""Of the feed."""

MAX_CURVE = 1024
"""Points of the novelty curve between two replies of control, which has 512 at most."""

Fields = dict[str, Any]


class RunModel:
    """The state of one daemon, of its present stream.

    stale: rows may have been missed, so all are to be asked for. problem: why the daemon does not
    answer, empty if it does. ended: the last state that the feed has announced, ``ended`` or
    ``failed``, empty before.
    """

    def __init__(self, panel: Panel) -> None:
        self.stale = True
        self.problem = "the daemon has not been heard yet"
        self._panel = panel
        self._status: Fields = {}
        self._replaces = False
        self._begin()

    def _begin(self) -> None:
        """Know nothing of the stream."""
        self.stale = True
        self.ended = ""
        self.history = History()
        self.lengths = Lengths()
        self.producers = Senders()
        self.rows = TargetRows(self._panel)
        self.novelty: list[Sequence[int]] = []
        self._gaps = 0
        self._durations: list[int] = []
        # what has changed since the last tick
        self._new = {"history", "lengths", "producers", "novelty", "rows"}

    # ---- what comes in -------------------------------------------------------------------------

    def message(self, message: Message, now: float) -> None:
        """A message of the feed; now: in seconds since 1970."""
        match message:
            case ReadSummaries():
                self.lengths.add(message.length)
                bases = int(message.length.sum())
                self.producers.add(message.origin.producer, message.length.size, bases, now)
                self._new |= {"lengths", "producers"}
            case TallyRows():
                self._tally(message)
            case NewStream():
                self._begin()
            case NewEpoch():
                self.stale = True
                self.ended = ""
                self._durations = []
            case Gap():
                self._gaps += 1
                self.stale = True
            case Status():
                if self._status:
                    self._status["state"] = message.state
                self.ended = message.state if message.state in FINAL else ""

    def _tally(self, message: TallyRows) -> None:
        topic = message.stamp.topic
        if topic == "novelty":
            self._curve_to(message.rows[-1])
            return
        rows = self.rows
        if message.version != rows.version:
            # a frozen dictionary that was replaced: all counts begin anew
            if rows.version is not None and self._frozen:
                rows.clear()
                self.stale = True
            rows.version = message.version
        rows.complete = message.complete
        rows.take(message.rows, by_barcode=topic == "barcodes")
        self._new.add("rows")

    @property
    def _frozen(self) -> bool:
        return bool(self._status.get("dictionary", {}).get("mode") == "frozen")

    def _curve_to(self, row: Sequence[int]) -> None:
        """The curve goes on to this point."""
        if self.novelty and row[1] <= self.novelty[-1][1]:
            return
        if len(self.novelty) > MAX_CURVE:
            self.novelty = self.novelty[::2]
        self.novelty.append(list(row))
        self._new.add("novelty")

    def status(self, status: Fields, now: float) -> None:
        """The reply to ``status``."""
        self.problem = ""
        if self._status.get("stream") not in (None, status["stream"]):
            self._begin()
        self._status = status
        totals, durations = status["totals"], status["durations"]
        bounds, counts = durations["bounds"], durations["counts"]
        recent = [n - m for n, m in zip(counts, self._durations or counts, strict=True)]
        self._durations = counts
        waiting = status["queue"]["bytes"]
        latency = quantile(0.5, bounds, recent), quantile(0.99, bounds, recent)
        point = Point(round(now, 1), totals["reads"], totals["bases"], waiting, *latency)
        thinned = self.history.thinned
        self._replaces = self.history.add(point)
        if self.history.thinned > thinned:
            self._new.add("history")

    def clock_was_set(self, step: float) -> None:
        """The time of day was set forward by ``step`` seconds, or back if that is negative."""
        self.history.shift(step)
        self.producers.shift(step)
        self._new |= {"history", "producers"}

    def all_rows(
        self,
        targets: Sequence[Sequence[Any]] | None,
        barcodes: Sequence[Sequence[Any]] | None,
        novelty: Sequence[Sequence[int]] | None,
    ) -> None:
        """All rows, as control has them; None of what the daemon does not count."""
        for rows, by_barcode in ((targets, False), (barcodes, True)):
            if rows is not None:
                self.rows.replace(rows, by_barcode=by_barcode)
                self._new.add("rows")
        if novelty is not None:
            self.novelty = [list(point) for point in novelty]
            self._new.add("novelty")
        self.stale = False

    # ---- what the page gets --------------------------------------------------------------------

    def everything(self, now: float) -> Fields:
        """All that the page shows."""
        return self._state(now) | {name: self._part(name) for name in _PARTS}

    def tick(self, now: float) -> Fields:
        """What has changed since the last tick; ``point``: the last one of the history.

        replaces: it stands in place of the one before.
        """
        fields = self._state(now) | {name: self._part(name) for name in sorted(self._new)}
        if "history" not in self._new and self.history.points:
            fields |= {"point": self.history.points[-1], "replaces": self._replaces}
        self._new = set()
        return fields

    def _state(self, now: float) -> Fields:
        status = {name: self._status[name] for name in _SHOWN if name in self._status}
        return {
            "program": __version__,
            "now": round(now, 1),
            "problem": self.problem,
            "gaps": self._gaps,
            "status": status,
        }

    def _part(self, name: str) -> Any:
        match name:
            case "history":
                return self.history.points
            case "lengths":
                return self.lengths.fields()
            case "producers":
                return self.producers.rows()
            case "novelty":
                return self.novelty
        return self.rows.fields()


_PARTS = ("history", "lengths", "producers", "novelty", "rows")
# of the status
_SHOWN = (
    "state", "epoch", "uptime_seconds", "dictionary", "revision", "queue", "undurable", "stuck",
    "producers", "refused", "durability", "published", "totals", "counted", "durations", "feed",
    "gpus",
)  # fmt: skip
