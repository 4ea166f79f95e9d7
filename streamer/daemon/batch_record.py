"""The record of a batch, which travels from ingest through the engine to the feed and back."""

from dataclasses import dataclass

from streamer.daemon.core.producers import ProducerState
from streamer.dictionary.targets import Dictionary
from streamer.journal.record import Key
from streamer.matching.result import BatchResult
from streamer.protocol.payloads import Columns
from streamer.protocol.wire import Header
from streamer.sequences.read_batch import ReadBatch


@dataclass(frozen=True, slots=True)
class GrowingReads:
    """Reads that are still being sequenced: they are decided on, but not counted or recorded.

    names: their names, as a msgpack array.
    """

    batch: ReadBatch
    names: bytes


@dataclass(frozen=True, slots=True)
class Accepted:
    """A batch that ingest has accepted: ``number`` is its place in the stream, from 0.

    size: bytes of its frames. names: those of its reads, as a msgpack array. at: when it was
    accepted, in monotonic seconds. growing: its reads if they are still being sequenced; ``batch``
    is empty then.
    """

    number: int
    producer: ProducerState
    key: Key
    size: int
    batch: ReadBatch
    names: bytes
    at: float
    growing: GrowingReads | None = None


@dataclass(frozen=True, slots=True)
class Matched:
    """A batch with what the engine found in it.

    at: the number of its record in the stream. dictionary: names the targets. stored: with a
    distance, the k-mers as they stand in the references; it names the targets of approximate
    matches. decides: whether the daemon decides on reads. decisions: those on its reads, as header
    fields and columns, if somebody subscribes to them.
    """

    at: int
    accepted: Accepted
    result: BatchResult
    dictionary: Dictionary
    stored: Dictionary | None = None
    decides: bool = False
    decisions: tuple[Header, Columns] | None = None
