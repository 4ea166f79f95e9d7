"""The daemon: reads in over one socket, matched in order, results out over another.

Four threads, each with sockets of its own: ingest accepts batches, the engine matches them, the
feed publishes what was found, control answers questions. A batch flows through them in this
order, and its credit flows back to its producer when its results are out.
"""

from streamer.daemon.service import Service, run

__all__ = ["Service", "run"]
