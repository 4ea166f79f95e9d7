"""Sends a few reads through all stages of a batch before the first batch comes.

This compiles every kernel on the way and wakes a GPU and its driver.
"""

from __future__ import annotations

import time

from streamer.daemon.batch_record import Accepted, Matched
from streamer.daemon.config import Config
from streamer.daemon.core.heads import Heads
from streamer.daemon.core.producers import ProducerState
from streamer.daemon.decoding import decode_together
from streamer.daemon.making_matchers import make_matcher
from streamer.daemon.publish import MatchedGroup
from streamer.daemon.stored_batch import to_record
from streamer.dictionary.targets import Dictionary
from streamer.journal.gathering import Gatherer
from streamer.journal.index_tables import flat
from streamer.matching.spec import MatchSpec
from streamer.protocol.batch_messages import decode_batch, encode_reads
from streamer.protocol.header import pack, seal, size_of
from streamer.sequences.read_batch import ReadBatch

_READS = [("warm-up", "ACGT" * 16), ("none", "")]


def warm_up(config: Config, spec: MatchSpec) -> None:
    """Decode, match, publish and store two reads, with a small dictionary made for them."""
    few = ReadBatch.from_sequences(*zip(*_READS, strict=True))
    stored = Dictionary.from_batches([few], spec.k, "forward" if spec.near else spec.strands)
    matcher = make_matcher(config, stored, spec)
    try:
        frames = [memoryview(frame) for frame in encode_reads(_READS)]
        header = {"form": "columns"}
        batch, names = decode_batch(header, frames, matcher.make_batch)
        if matcher.make_together is not None:
            message = [memoryview(frame) for frame in seal([pack(header), *frames])]
            decode_together([(header, message)], matcher.make_together)
        (result,) = matcher.match_all([batch])
    finally:
        matcher.close()
    producer = ProducerState("warm-up", 0)
    now = time.monotonic()
    accepted = Accepted(0, producer, 0, 1, size_of(frames), batch, names, now)
    matched = Matched(0, accepted, result, matcher.dictionary, stored if spec.near else None)
    (publication,) = MatchedGroup([matched], Heads()).publications(intervals=True)
    for topic in publication.prev:
        publication.message(topic, {})
    if config.journal.durability != "none":
        frames_of_record = [flat(frame) for frame in to_record(publication, 0).frames]
        Gatherer().gather([frames_of_record], before=0, size=size_of(frames_of_record))
