"""When each read of a run is complete: channels that read one molecule after the other.

A channel waits for a molecule, then reads it base by base. Both times are drawn from a seeded
source, so that equal seeds give equal runs. The clock is that of the run, in seconds.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from streamer.playing.raw_reads import RawRead

BASES_A_SECOND = 400.0
"""Of a channel; that of a read differs by up to ``_SPREAD`` of it."""

_SPREAD = 0.1
_WAIT_SECONDS = 2.0  # for a molecule, on average


class Played(NamedTuple):
    """A read on its channel, from 1: begun and complete at these seconds."""

    end: float
    channel: int
    start: float
    read: RawRead


def played(reads: Iterable[RawRead], channels: int, seed: int) -> Iterator[Played]:
    """The reads in the order in which they are complete; each free channel takes the next one."""
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
    """Reads that are complete within the same so many seconds, in parts of so many bases."""
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
