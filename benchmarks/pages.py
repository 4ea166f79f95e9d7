"""The cost of open pages and scrapes for the daemon: latency without and with them, in pairs.

Daemon, producer, subscriber and readers of the page are separate processes, over local sockets, on
the CPU.
"""

from __future__ import annotations

import http.client
import multiprocessing
import os
import selectors
import socket
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.durability import frozen_daemon, times_of
from benchmarks.processes import child_of, cpu_seconds
from benchmarks.serving import SECONDS, Endpoints, serving
from benchmarks.suite import Row
from streamer.client import Control

PAGES = 50
_PAIRS = 6
_SCRAPE_SECONDS = 1.0


def pages(seconds: float, pairs: int = _PAIRS, count: int = PAGES) -> Iterator[Row]:
    """Milliseconds from when a batch was due to the last message about it, at half load.

    A pair is two measurements of ``seconds`` each, without and with ``count`` open pages and a
    scrape a second; the next pair is in the opposite order. The pages are not drawn: their events
    are read and dropped. ``CPU ms`` is the CPU time of the daemon's process for a batch, ``page CPU
    %`` the share of a core that the page's process takes. The last row has medians, and quartiles
    of the changes.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = [
            *frozen_daemon(folder, "none"), "answers.targets=true",
            "web.endpoint=127.0.0.1:0", "metrics.endpoint=127.0.0.1:0",
        ]  # fmt: skip
        with serving(folder, settings) as (endpoints, daemon):
            with Control(endpoints["control"], answer_seconds=SECONDS) as control:
                addresses = control.status()["endpoints"]
            took, _ = times_of(endpoints, None, seconds)
            rate = took.size / took[-1] / 2
            rows = []
            for pair in range(pairs):
                found = {}
                for beside in (False, True) if pair % 2 == 0 else (True, False):
                    with _readers(addresses, count if beside else 0):
                        found[beside] = _figures(endpoints, daemon.pid, rate, seconds)
                rows.append([*found[False], *found[True]])
                yield {"pair": str(pair + 1), "batches/s": rate} | _row(np.array(rows[-1:]))
            yield {"pair": "median", "batches/s": rate} | _row(np.array(rows))


_FIGURES = ("p50 ms", "p99 ms", "CPU ms")


def _figures(endpoints: Endpoints, daemon: int, rate: float, seconds: float) -> list[float]:
    """The figures of one measurement, and the page process's CPU in percent of a core."""
    server = child_of(daemon, "streamer.web")
    before = cpu_seconds(daemon), cpu_seconds(server), time.monotonic()
    arrived, due = times_of(endpoints, rate, seconds)
    passed = time.monotonic() - before[2]
    late = (arrived - due) * 1e3
    spent = 1e3 * (cpu_seconds(daemon) - before[0]) / arrived.size
    served = 100 * (cpu_seconds(server) - before[1]) / passed
    return [*np.percentile(late, [50, 99]).tolist(), spent, served]


def _row(rows: NDArray[np.float64]) -> Row:
    """Medians of the figures without and with pages, and quartiles of their changes."""
    without, with_pages = rows[:, :3], rows[:, 4:7]
    row: Row = {}
    for at, name in enumerate(_FIGURES):
        row |= {name: float(np.median(without[:, at]))}
        row |= {f"{name}, pages": float(np.median(with_pages[:, at]))}
    changes = 100 * (with_pages / without - 1)
    for at, name in enumerate(_FIGURES):
        low, middle, high = np.percentile(changes[:, at], [25, 50, 75])
        quartiles = f" ({low:+.1f} to {high:+.1f})" if len(rows) > 1 else ""
        row[f"{name.split()[0]} %"] = f"{middle:+.1f}{quartiles}"
    return row | {"page CPU %": float(np.median(rows[:, 7]))}


@contextmanager
def _readers(addresses: Mapping[str, str], count: int) -> Iterator[None]:
    """Have another process keep this many pages open and, if there is one, scrape every second."""
    if not count:
        yield
        return
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    given = addresses["web"], addresses["metrics"], count, ready
    child = context.Process(target=_read, args=given, daemon=True)
    child.start()
    try:
        if not ready.wait(SECONDS):
            raise TimeoutError("the pages were not served")
        yield
    finally:
        child.kill()
        child.join()


def _read(web: str, metrics: str, count: int, ready: Any) -> None:
    """Read the events of all pages, and scrape; ready: set once every page got an event."""
    # low priority, since real browsers run on other machines
    os.nice(19)
    waiting = selectors.DefaultSelector()
    silent = set()
    for _ in range(count):
        connection = http.client.HTTPConnection(web, timeout=SECONDS)
        connection.connect()
        link: socket.socket = connection.sock
        link.sendall(f"GET /events HTTP/1.1\r\nHost: {web}\r\n\r\n".encode())
        waiting.register(link, selectors.EVENT_READ, connection)
        silent.add(link)
    due = time.monotonic()
    while True:
        for key, _ in waiting.select(max(0.0, due - time.monotonic())):
            link = key.fileobj  # type: ignore[assignment]
            if not link.recv(1 << 20):
                raise ConnectionError("a page was closed")
            silent.discard(link)
        if not silent:
            ready.set()
        if time.monotonic() >= due:
            with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=SECONDS) as reply:
                reply.read()
            due += _SCRAPE_SECONDS
