"""Write rows to an Arrow IPC file of several record batches, and read such a file.

Memory is bounded: a batch has up to 65,536 rows, is compressed with LZ4, and is written
immediately. ``arrow_schema`` gives each column the type of its name, so a file without rows has a
schema too.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamer.errors import StreamerError
from streamer.output.output_file import OutputFile
from streamer.output.rows import Rows
from streamer.output.text_table import NULL, Column, Labels, Lookup, Table, texts

ROWS_A_BATCH = 1 << 16

TEXTS = frozenset(
    ("text", "pattern", "strand", "cigar", "alpha", "sequence", "a", "b")
)  # fmt: skip
REALS = frozenset(
    ("gc", "tm", "hairpin_tm", "dimer_tm", "pair_dimer_tm", "identity", "column_identity")
)


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the column types of ``asm``, ``hamming``, ``primer`` and ``lcs``."""
    return pa.schema([(name, _type(name)) for name in columns])


def _type(name: str) -> pa.DataType:
    if name in TEXTS:
        return pa.string()
    return pa.float64() if name in REALS else pa.int64()


class ArrowWriter(Rows):
    """Writes tables to an Arrow IPC file, or to standard output (None or ``-``), as one file."""

    def __init__(self, path: str | None, columns: Sequence[str]) -> None:
        self._schema = arrow_schema(columns)
        self._file = OutputFile(path, verb="cannot write rows")
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        self._sink = _Sink(self._file)
        self._writer = pa.ipc.new_file(
            pa.PythonFile(self._sink, "w"), self._schema, options=options
        )

    def write(self, table: Table) -> None:
        """Write the rows of a table; raise StreamerError if that fails."""
        table = table.padded(self._schema.names)
        for first in range(0, table.rows, ROWS_A_BATCH):
            arrays = [
                _array(_part(column, first), _type(name)) for name, column in table.columns.items()
            ]
            with self._sink.errors():
                self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))

    def commit(self) -> None:
        """Finish the file and put it in its place."""
        try:
            with self._sink.errors():
                self._writer.close()
        except BaseException:
            self._file.discard()
            raise
        self._file.commit()

    def discard(self) -> None:
        """Leave the place as it was."""
        self._file.discard()


class _Sink(io.RawIOBase):
    """A file for Arrow to write to; it keeps errors that Arrow would turn into text."""

    def __init__(self, file: OutputFile) -> None:
        super().__init__()
        self._to = file
        self._at = 0
        self._error: BaseException | None = None

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write all of the data."""
        try:
            self._to.write(memoryview(data))
        except BaseException as error:
            self._error = error
            raise
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._at

    def errors(self) -> _Errors:
        """Raise our own errors instead of those that Arrow makes of them."""
        return _Errors(self)

    def raised(self) -> BaseException | None:
        """Return the error of a write, once."""
        error, self._error = self._error, None
        return error


class _Errors:
    def __init__(self, sink: _Sink) -> None:
        self._sink = sink

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        ours = self._sink.raised()
        if kind is not None and ours is not None:
            raise ours


def _part(column: Column, first: int) -> Column:
    stop = first + ROWS_A_BATCH
    if isinstance(column, Lookup):
        return Lookup(column.labels, column.at[first:stop])
    return column[first:stop]


def _array(column: Column, type_: pa.DataType) -> pa.Array:
    if not isinstance(column, Lookup):
        numbers = column.astype(np.int64)
        return pa.array(numbers, mask=numbers == NULL).cast(type_)
    known, at = np.unique(column.at, return_inverse=True)
    values = [None if index < 0 else column.labels.texts[index] for index in known.tolist()]
    return pa.array(values, type_).take(pa.array(at))


def arrow_tables(path: str) -> tuple[list[str], Iterator[Table]]:
    """Return the columns of an Arrow IPC file, and its rows, one batch at a time.

    Raises StreamerError if it cannot be read.
    """
    try:
        reader = pa.ipc.open_file(pa.OSFile(path))
    except (OSError, pa.ArrowException) as error:
        message = f"{path}: cannot be read: {error}"
        raise StreamerError(message) from error
    return reader.schema.names, _tables(path, reader)


def _tables(path: str, reader: Any) -> Iterator[Table]:
    for index in range(reader.num_record_batches):
        try:
            batch = reader.get_batch(index)
        except (OSError, pa.ArrowException) as error:
            message = f"{path}: batch {index + 1}: cannot be read: {error}"
            raise StreamerError(message) from error
        names = batch.schema.names
        yield Table({name: _column(batch.column(at)) for at, name in enumerate(names)})


def _column(array: Any) -> Column:
    if pa.types.is_int64(array.type):
        return _filled(array, NULL)
    if pa.types.is_string(array.type):
        coded = array.dictionary_encode()
        return Labels(coded.dictionary.to_pylist()).gather(_filled(coded.indices, -1))
    return texts(array.to_pylist())


def _filled(array: Any, null: int) -> NDArray[Any]:
    found: NDArray[Any] = array.cast(pa.int64()).fill_null(null).to_numpy()
    return found
