"""Chunks on several streams of several devices, answered in order (thesis 3.3.12).

    threads    prepare | prepare | prepare | ...
    stream A             HtoD | kernels | DtoH |      answer | HtoD | kernels | ...
    stream B                    HtoD | kernels | DtoH |        answer | HtoD | ...

The host queues chunks on the slots in turn and waits for one only when its slot is needed again
(thesis Fig. 20); a single slot gives the serial loop (Fig. 17). Each of several devices has its own
thread for this.

slots        a card and its streams, each with the buffers of one chunk
flights      chunks in flight on the slots
look_ahead   threads that prepare chunks before their turn
engine       the three together; exact, levenshtein and ltb derive theirs from it
"""

from gpu.card.streams.flights import Flight, Flights
from gpu.card.streams.look_ahead import LookAhead
from gpu.card.streams.slots import CardShare, StreamCard, StreamSlot
from gpu.card.streams.stream_engine import BatchChunk, StreamEngine, StreamOptions, overlapping

__all__ = [
    "BatchChunk",
    "CardShare",
    "Flight",
    "Flights",
    "LookAhead",
    "StreamCard",
    "StreamEngine",
    "StreamOptions",
    "StreamSlot",
    "overlapping",
]
