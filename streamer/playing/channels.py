"""Simulate when each read of a run is complete: channels read one molecule after another.

A channel waits for a molecule, then reads it base by base. Both times come from a seeded generator,
so equal seeds give equal runs. Times are in seconds of the run.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from streamer.playing.raw_reads import RawRead

BASES_A_SECOND = 400.0
"""Bases per second of a channel; that of a read differs by up to the fraction ``_SPREAD``."""

_SPREAD = 0.1
_WAIT_SECONDS = 2.0  # average wait for a molecule


class Played(NamedTuple):
    """A read on its channel (from 1), with the seconds at which it began and was complete."""

    end: float
    channel: int
    start: float
    read: RawRead


def played(reads: Iterable[RawRead], channels: int, seed: int) -> Iterator[Played]:
    """Yield the reads in order of completion; each free channel takes the next one."""
    chance = random.Random(f"channels {seed}")
    under_way: list[Played] = []
    for read in reads:
        channel, free = len(under_way) + 1, 0.0
        if channel > channels:
            done = heapq.heappop(under_way)
            yield done
            channel, free = done.channel, done.end
        start = free - _WAIT_SECONDS * math.log(1 - chance.random())
        speed = BASES_A_SECOND * (1 + _SPREAD * (2 * chance.random() - 1))
        heapq.heappush(under_way, Played(start + read.bases / speed, channel, start, read))
    while under_way:
        yield heapq.heappop(under_way)


def together(run: Iterable[Played], seconds: float, bases: int) -> Iterator[list[Played]]:
    """Group reads completed within the same ``seconds``, in parts of up to ``bases`` bases."""
    group: list[Played] = []
    total = 0
    for one in run:
        if group and (total >= bases or one.end // seconds > group[-1].end // seconds):
            yield group
            group, total = [], 0
        group.append(one)
        total += one.read.bases
    if group:
        yield group
