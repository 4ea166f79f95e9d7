"""What tells the records of one file from those of another, however files are cut and packed."""

from __future__ import annotations

from typing import NamedTuple

from streamer.protocol.checksums import crc32c
from streamer.sequences.packed_names import PackedNames
from streamer.sequences.read_batch import ReadBatch


class Digest(NamedTuple):
    """Of the first ``records`` of a file: CRC-32C of their names and of their bases."""

    records: int = 0
    names: int = 0
    bases: int = 0

    def after(self, reads: ReadBatch, stop: int | None = None) -> Digest:
        """With the first ``stop`` reads of a batch added, by default all."""
        stop = len(reads) if stop is None else stop
        if not stop:
            return self
        assert isinstance(reads.names, PackedNames)
        names = reads.names.text(stop)
        bases = reads.bases[: int(reads.offsets[stop])].data
        return Digest(self.records + stop, crc32c([names], self.names), crc32c([bases], self.bases))


def digest_of_first(reads: ReadBatch) -> int:
    """Of the first record, as 63 bits."""
    first = Digest().after(reads, 1)
    return (first.names << 32 | first.bases) >> 1
