"""Digests that identify the records of a file, however files are cut and compressed."""

from __future__ import annotations

from typing import NamedTuple

from streamer.protocol.checksums import crc32c
from streamer.sequences.packed_names import PackedNames
from streamer.sequences.read_batch import ReadBatch


class Digest(NamedTuple):
    """CRC-32C of the names and of the bases of a file's first ``records`` records."""

    records: int = 0
    names: int = 0
    bases: int = 0

    def after(self, reads: ReadBatch, stop: int | None = None) -> Digest:
        """Return the digest with the first ``stop`` reads of a batch added, by default all."""
        stop = len(reads) if stop is None else stop
        if not stop:
            return self
        assert isinstance(reads.names, PackedNames)
        names = reads.names.text(stop)
        bases = reads.bases[: int(reads.offsets[stop])].data
        return Digest(self.records + stop, crc32c([names], self.names), crc32c([bases], self.bases))


def digest_of_first(reads: ReadBatch) -> int:
    """Return a digest of the first record, in 63 bits."""
    first = Digest().after(reads, 1)
    return (first.names << 32 | first.bases) >> 1
