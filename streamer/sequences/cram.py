"""CRAM as SAM text, decoded by pysam (htslib): its codecs are not worth a second implementation.

    file -> thread -> pipe -> pysam -> lines -> streamer.sequences.sam

A pipe is needed because standard input has already been read to recognize the format.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

from streamer.errors import DataError
from streamer.sequences.raw_file import Readable
from streamer.sequences.record_limit import most_bases, over_limit
from streamer.sequences.sam import NOT_PRIMARY
from streamer.sequences.text_window import BLOCK_BYTES, TextBlock, new_block

MAGIC = b"CRAM"

END = b"\xe0EOF"  # in the container that ends a file, and in no other one (CRAM specification 9)
_READ_BYTES = 1 << 17

_NEEDED = "CRAM needs pysam: pip install 'kmer-streamer[cram]'"
_DAMAGED = (
    "damaged or truncated CRAM, or its reference is not found: set REF_PATH, or convert the file "
    "with samtools fastq -T '*' --reference FASTA"
)


def cram_blocks(file: Readable, shown: str) -> Iterator[TextBlock]:
    """Yield blocks of header and records as SAM text; raise DataError if the CRAM is invalid."""
    try:
        import pysam
    except ImportError:
        raise DataError(_NEEDED, file=shown) from None
    # errors are raised, so htslib need not print them as well
    pysam.set_verbosity(0)
    pump = _Pump(file)
    try:
        with (
            open(pump.end, "rb", closefd=False) as pipe,
            pysam.AlignmentFile(pipe, "rc", check_sq=False) as cram,
        ):
            yield from _blocks(cram, shown)
        pump.finish()
    except (OSError, ValueError, EOFError):
        pump.check()
        raise DataError(_DAMAGED, file=shown) from None
    finally:
        pump.close()


def _blocks(cram: Any, shown: str) -> Iterator[TextBlock]:
    number = 1
    lines = [str(cram.header).encode()]
    size = len(lines[0])
    for record in cram.fetch(until_eof=True):
        if record.query_length > most_bases():
            if size:
                yield _block(b"".join(lines))
            raise DataError(over_limit(), file=shown, record=number, name=record.query_name)
        number += not record.flag & NOT_PRIMARY
        lines.append(record.to_string().encode() + b"\n")
        size += len(lines[-1])
        if size > BLOCK_BYTES:
            yield _block(b"".join(lines))
            lines, size = [], 0
    if size:
        yield _block(b"".join(lines))


def _block(data: bytes) -> TextBlock:
    block = new_block(len(data))
    block.array.data[block.first : block.stop] = data
    return block


class _Pump:
    """A thread that writes a file into a pipe; ``end`` is the reading end."""

    _LAST = 38  # bytes of the container that ends a file

    def __init__(self, file: Readable) -> None:
        self._file = file
        self.end, self._begin = os.pipe()
        self._error: BaseException | None = None
        self._tail = b""
        self._thread = threading.Thread(target=self._run, name="cram", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with open(self._begin, "wb", buffering=0) as pipe:
                while data := memoryview(self._file.read1(_READ_BYTES)):
                    self._tail = (self._tail + data[-self._LAST :])[-self._LAST :]
                    while data:
                        data = data[pipe.write(data) :]
        except BrokenPipeError:
            pass  # the reader has closed the pipe
        except BaseException as error:
            self._error = error

    def finish(self) -> None:
        """Raise the error of reading, or EOFError if the end container is missing."""
        while os.read(self.end, _READ_BYTES):
            pass
        self.check()
        if END not in self._tail:
            raise EOFError

    def check(self) -> None:
        """Raise the error of the thread, if any."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Stop the thread."""
        with contextlib.suppress(OSError):
            os.close(self.end)
        self._thread.join(1.0)
