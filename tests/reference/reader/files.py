"""The previous reader, with one object per record; same batches, pieces and errors."""

from __future__ import annotations

from contextlib import ExitStack

from streamer.errors import DataError
from streamer.sequences.read_batch import bad_name
from tests.reference.reader.record_buffer import ENCODED_AT_ONCE, RecordBuffer
from tests.reference.reader.source import SequenceSource


def read_batches(paths, *, batch_bases=4_000_000, batch_reads=100_000):
    for path in paths:
        with ExitStack() as stack:
            source = SequenceSource(path, stack)
            for piece in _pieces(source, RecordBuffer(source.shown, batch_bases, batch_reads)):
                yield piece.reads


def read_pieces(path, overlap, *, size):
    with ExitStack() as stack:
        source = SequenceSource(path, stack)
        room = overlap + size + ENCODED_AT_ONCE
        yield from _pieces(source, RecordBuffer(source.shown, size, 100_000, room=room), overlap)


def _pieces(source, buffer, overlap=None):
    """The records in pieces; whole records without ``overlap``."""
    fault = None
    try:
        for name, letters in source.parts():
            # a FASTA record is known to be whole once the next one begins
            if buffer.full and (name is not None or overlap is not None):
                yield buffer.piece(overlap if name is None else None)
            buffer.add(name, letters)
            if buffer.full and source.whole:
                yield buffer.piece()
        last = buffer.piece()
    except DataError as error:
        last, fault = buffer.before(error)
    if len(last.reads):
        yield last
    if fault is not None:
        raise fault


def read_letters(path):
    """(first word of the header, unchanged letters) of every record; DataError as above."""
    with ExitStack() as stack:
        source = SequenceSource(path, stack)
        current, parts = None, []
        number = 0
        for name, letters in source.parts():
            if name is not None:
                if current is not None:
                    yield current, "".join(parts)
                current, parts = name, []
                number += 1
                if bad := bad_name([name]):
                    raise DataError(bad[1], file=source.shown, record=number)
            parts.append(letters.decode("latin-1"))
        if current is not None:
            yield current, "".join(parts)
