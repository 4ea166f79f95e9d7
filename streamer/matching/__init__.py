"""From batches of reads to events: chunks, engine, and the dictionary that grows beside it."""

from streamer.matching.matcher import Matcher
from streamer.matching.result import BatchResult, ChunkWords

__all__ = ["BatchResult", "ChunkWords", "Matcher"]
