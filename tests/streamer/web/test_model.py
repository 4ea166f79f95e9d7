"""What the live page is given, and by whom it is followed."""

from __future__ import annotations

import asyncio
import json
import threading

import numpy as np
import pytest

from streamer.client.messages import NewEpoch, Stamp, Status
from streamer.matching.target_tally import Panel
from streamer.sequences.sample_sheet import SampleSheet
from streamer.web import model as history
from streamer.web.follower import Follower
from streamer.web.model import (
    EDGES,
    MAX_MAP_TARGETS,
    MAX_PRODUCERS,
    MAX_TARGETS,
    History,
    Lengths,
    Point,
    RunModel,
    Senders,
    TargetRows,
    quantile,
)
from streamer.web.routes import event
from tests.waiting import DEADLINE


def test_a_day_takes_no_more_than_ten_minutes():
    curve = History()
    for second in range(24 * 3600):
        slow = 9.0 if second == 40_000 else 0.1
        curve.add(Point(second, second, 10 * second, 0, None, slow))
        assert len(curve.points) <= history.MAX_POINTS
    times = [point.time for point in curve.points]
    assert times == sorted(times)
    assert curve.points[-1][:3] == (86399, 86399, 863990)
    assert len(curve.points) > history.MAX_POINTS // 3
    # what was slow once is not forgotten
    assert max(point.p99 for point in curve.points) == 9.0
    assert curve.points[0].p50 is None


def test_a_point_of_the_same_cell_replaces_the_last():
    curve = History()
    assert not curve.add(Point(1.0, 1, 1, 0, 0.2, 0.3))
    assert curve.add(Point(1.9, 5, 5, 0, 0.1, None))
    assert curve.points == [Point(1.9, 5, 5, 0, 0.2, 0.3)]


@pytest.mark.parametrize(
    ("q", "counts", "want"),
    [(0.5, [0, 0, 0], None), (0.5, [2, 0, 0], 0.5), (0.99, [0, 100, 0], 1.99), (0.5, [0, 0, 3], 2)],
)
def test_quantiles_are_those_of_prometheus(q, counts, want):
    assert quantile(q, [1.0, 2.0], counts) == pytest.approx(want)


def test_lengths_are_counted_once():
    lengths = Lengths()
    values = np.array([0, 15, 16, 22, 23, 1 << 22, 1 << 30, 700])
    lengths.add(values)
    found = lengths.fields()
    for at, (low, high) in enumerate(zip(EDGES, [*EDGES[1:], 1 << 62], strict=True)):
        inside = values[(values >= low) & (values < high)]
        assert (found["reads"][at], found["bases"][at]) == (inside.size, inside.sum())


def test_silent_producers_are_forgotten_first():
    producers = Senders()
    for at in range(MAX_PRODUCERS + 5):
        producers.add(f"p{at}", 2, 100, float(at))
        producers.add("steady", 1, 10, float(at))
    rows = producers.rows()
    assert len(rows) == MAX_PRODUCERS
    assert rows[0][:4] == ["steady", MAX_PRODUCERS + 5, MAX_PRODUCERS + 5, 10 * MAX_PRODUCERS + 50]
    assert "p0" not in {row[0] for row in rows}


def target(name, reads, seen, kmers=100):
    return [name, reads, 10 * reads, 2 * seen, kmers, seen, seen / kmers, 2 * seen / kmers]


def test_barcodes_have_the_sums_of_their_rows():
    rows = TargetRows(Panel())
    none = [None] * 5
    rows.take([["b2", *target("one", 3, 1)], ["b2", *target("two", 0, 1)]], by_barcode=True)
    rows.take([["b2", None, 4, 40, *none], [None, None, 1, 10, *none]], by_barcode=True)
    sums = [[row[0], *row[3:6], row[9]] for row in rows.samples()]
    assert sums == [[None, 1, 10, 0, 0], ["b2", 7, 70, 1, 3]]


def test_the_last_state_that_the_feed_announces_stays():
    def status(state, epoch=1):
        return Status(Stamp("status", "aa", epoch, 0, 0, 0, {}), {}, state, {})

    model = RunModel(Panel())
    model.message(status("draining"), 1.0)
    assert not model.ended
    model.message(status("ended"), 2.0)
    assert model.ended == "ended"
    # a daemon that is started again
    model.message(NewEpoch(1, 2), 3.0)
    assert not model.ended


def test_the_page_gets_the_targets_with_most_reads():
    rows = TargetRows(Panel())
    rows.take([target(f"t{n}", n, 1) for n in range(2000)], by_barcode=False)
    rows.take([["b1", *target(f"t{n}", n, 1)] for n in range(2000)], by_barcode=True)
    rows.take([[None, 7, 70, *[None] * 5]], by_barcode=False)
    found = rows.fields()
    assert [row[0] for row in found["targets"]] == [f"t{1999 - n}" for n in range(MAX_TARGETS)]
    assert found["of"] == {"targets": 2000, "barcodes": 1}
    assert found["unassigned"][1] == 7
    # in the order of the file
    first = 2000 - MAX_MAP_TARGETS
    assert found["map_targets"] == [f"t{n}" for n in range(first, 2000)]
    assert found["map"] == [["b1", [[n, 0.01, 0.02, 0] for n in range(first, 2000)]]]
    assert found["rule"] is None
    assert found["samples"][0][6:9] == [None] * 3


def test_enough_is_what_the_daemon_calls_enough():
    rows = TargetRows(Panel({"pair": ["a", "b"]}, breadth=0.5, reads=3))
    everything = [target("a", 3, 50), target("b", 9, 49), target("c", 9, 90)]
    rows.take(everything, by_barcode=False)
    rows.take([["x", *row] for row in everything], by_barcode=True)
    found = rows.fields()
    marks = dict(zip(found["map_targets"], [cell[3] for cell in found["map"][0][1]], strict=True))
    # c is in no group, so nobody watches it
    assert marks == {"a": 1, "b": 0, "c": 0}
    assert found["map_groups"] == ["pair", "pair", None]
    [sample] = found["samples"]
    assert (found["watched"], sample[6:9], sample[10]) == (2, [1, 1, 0], [])
    rows.take([["x", *target("b", 9, 50)]], by_barcode=True)
    [sample] = rows.samples()
    assert (sample[6:9], sample[10]) == ([2, 0, 0], ["pair"])


def test_what_most_samples_lack_is_on_the_map():
    rows = TargetRows(Panel(reads=3))
    every = [target(f"t{n}", 9, 50) for n in range(MAX_MAP_TARGETS + 1)]
    rows.take(every, by_barcode=False)
    rows.take([["x", *row] for row in every[:-1]], by_barcode=True)
    assert rows.fields()["map_targets"] == [f"t{n}" for n in [*range(99), 100]]


def test_how_long_until_there_is_enough():
    rows = TargetRows(Panel(reads=12, breadth=0.75))
    rows.take([target("t", 4, 50)], by_barcode=False)
    for now, reads in ((100.0, 2), (110.0, 4)):
        rows.now = now
        rows.take([["x", *target("t", reads, 50)]], by_barcode=True)
        waits = [row[11] for row in rows.samples()]
    # 8 reads more, of which there are 2 in 10 s; half of the k-mers need as much again
    assert waits == [40.0]
    assert Panel(breadth=0.75).times(4, 8, 100, 50) == 2.0
    assert Panel(reads=1).times(0, 0, 100, 0) == float("inf")


def test_what_is_wrong_with_a_run():
    sheet = SampleSheet.of([["p", None, None, "positive"], ["n", None, None, "negative"], ["s"]])
    panel = Panel(reads=1, positive=["a", "b"])
    said = panel.alarms(sheet, {"p": ["a"], "n": ["b"]}, {"p": 1, "n": 1, "x": 1})
    assert [*said] == [
        "in the positive control p was not found: b", "in the negative control n was found: b",
        "without a read: s", "the sample sheet does not name x",
    ]  # fmt: skip
    # without thresholds a read is enough to be found
    rows = TargetRows(Panel(), sheet)
    rows.take([["n", *target("b", 1, 1)], ["p", *target("a", 1, 1)]], by_barcode=True)
    assert rows.fields()["alarms"] == [
        "in the negative control n was found: b", "without a read: s",
    ]  # fmt: skip


def test_what_is_enough_takes_a_look_at_rows_only():
    looks = 0

    class Name(str):
        def __hash__(self):
            nonlocal looks
            looks += 1
            return super().__hash__()

    targets, barcodes = 2000, 50
    rows = TargetRows(Panel(reads=3))
    rows.take([target(Name(f"t{n}"), n, 1) for n in range(targets)], by_barcode=False)
    rows.take([[f"b{n:02}", *target("t7", n, 1)] for n in range(barcodes)], by_barcode=True)
    looks = 0
    found = {row[0]: row[6] for row in rows.fields()["samples"]}
    assert found == {f"b{n:02}": int(n >= 3) for n in range(barcodes)}
    assert looks < 20 * targets


def test_an_event_is_one_line_whatever_names_hold():
    name = "evil\n\ndata: x\r\u2028</script>"
    made = event("tick", {"name": name})
    head, data, *rest = made.decode().split("\n")
    assert (head, rest) == ("event: tick", ["", ""])
    assert "\r" not in data
    assert json.loads(data.removeprefix("data: ")) == {"name": name}


STATUS = {
    "stream": "s", "totals": {"reads": 1, "bases": 1}, "queue": {"bytes": 0},
    "durations": {"bounds": [1.0], "counts": [0, 0]},
}  # fmt: skip


class SlowControl:
    """Has 100,000 targets, say: they come once they may."""

    def __init__(self):
        self.may = threading.Event()

    def status(self):
        return STATUS

    def request(self, command):
        return {command: {}}

    def targets(self, **_):
        assert self.may.wait(DEADLINE)
        return [], [["t", 1, 10, 1, 1, 1, 1.0, 1.0]]

    def novelty(self):
        return []

    def close(self):
        self.may.set()


def test_pages_hear_something_while_rows_come(tmp_path, monkeypatch):
    control = SlowControl()
    monkeypatch.setattr(Follower, "_open", lambda self: control)

    async def follow():
        ticks = asyncio.Semaphore(0)
        model = RunModel(Panel())
        follower = Follower(
            model, f"ipc://{tmp_path}/feed", f"ipc://{tmp_path}/c", ticks.release, seconds=0.01
        )
        following = asyncio.create_task(follower.run())
        try:
            for _ in range(5):
                await ticks.acquire()
            assert model.stale
            control.may.set()
            while model.stale:
                await ticks.acquire()
            assert [row[0] for row in model.rows.fields()["targets"]] == ["t"]
        finally:
            control.may.set()
            following.cancel()

    asyncio.run(asyncio.wait_for(follow(), DEADLINE))
