"""Write rows to an Arrow IPC or Parquet file, and read an Arrow IPC file.

It needs the extra ``arrow``, so nothing imports this module before such a file is asked for.

Memory is bounded: a batch of IPC has up to 65,536 rows, is compressed with LZ4, and is written
immediately; a row group of Parquet has at least as many, except for the last one. ``arrow_schema``
gives each column the type of its name, so a file without rows has a schema too.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow.parquet import ParquetWriter

from streamer.errors import StreamerError
from streamer.output.output_file import OutputFile
from streamer.output.text_table import NULL, Column, Labels, Lookup, Rows, Table, texts

ROWS_A_BATCH = 1 << 16

TEXTS = frozenset(
    ("text", "pattern", "strand", "cigar", "alpha", "sequence", "a", "b",
     "read", "event", "target", "best_target", "kmer", "distances", "depths", "barcode", "group",
     "sample", "alias", "control", "verdict")
)  # fmt: skip
REALS = frozenset(
    ("gc", "tm", "hairpin_tm", "dimer_tm", "pair_dimer_tm", "identity", "column_identity")
)


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the types of the columns of any table."""
    # the depth of a target is a ratio, that of a window is not
    reals = REALS | {"breadth", "depth"} if "breadth" in columns else REALS
    types = {name: pa.string() for name in TEXTS} | {name: pa.float64() for name in reals}
    if {"event", "kmer"} & set(columns):
        types["target"] = pa.list_(pa.string())  # the targets of a k-mer; elsewhere it is one
    return pa.schema([(name, types.get(name, pa.int64())) for name in columns])


def arrow_table(columns: Sequence[str], tables: Iterable[Table]) -> pa.Table:
    """Return the rows of tables as one table in memory."""
    schema = arrow_schema(columns)
    batches = [batch for table in tables for batch in _batches(table, schema)]
    return pa.Table.from_batches(batches, schema)


def _batches(table: Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    columns = table.padded(schema.names).columns.values()
    for first in range(0, table.rows, ROWS_A_BATCH):
        arrays = map(_array, (_part(column, first) for column in columns), schema.types)
        yield pa.record_batch(list(arrays), schema=schema)


class ArrowWriter(Rows):
    """Writes tables to an Arrow IPC or Parquet file, or to standard output (None or ``-``)."""

    def __init__(
        self, path: str | None, columns: Sequence[str], *, parquet: bool = False,
        facts: Mapping[str, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        # file names may be any bytes
        pairs = {key: value.encode(errors="surrogateescape") for key, value in facts.items()}
        self._schema = arrow_schema(columns).with_metadata(pairs or None)
        self._file = OutputFile(path, verb="cannot write rows")
        self._sink = _Sink(self._file)
        sink = pa.PythonFile(self._sink, "w")
        self._parquet = parquet
        self._waiting: list[pa.RecordBatch] = []
        if parquet:
            self._writer: Any = ParquetWriter(sink, self._schema)
        else:
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            self._writer = pa.ipc.new_file(sink, self._schema, options=options)

    def write(self, table: Table) -> None:
        """Write the rows of a table; raise StreamerError if that fails."""
        for batch in _batches(table, self._schema):
            self._write(batch)

    def formatted(self, tables: Iterable[Table]) -> Iterator[memoryview]:
        """Yield the rows of tables as messages of Arrow IPC for ``put``; thread-safe."""
        for table in tables:
            for batch in _batches(table, self._schema):
                yield memoryview(batch.serialize())

    def put(self, data: bytes | memoryview) -> None:
        """Write rows that ``formatted`` made."""
        self._write(pa.ipc.read_record_batch(pa.py_buffer(data), self._schema))

    def _write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        if not self._parquet or sum(map(len, self._waiting)) >= ROWS_A_BATCH:
            self._flush()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            with self._sink.errors():
                self._writer.write_table(pa.Table.from_batches(waiting))

    def commit(self) -> None:
        """Finish the file and put it in its place."""
        try:
            self._flush()
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
        raise StreamerError(f"{path}: cannot be read: {error}") from error
    return reader.schema.names, _tables(path, reader)


def _tables(path: str, reader: Any) -> Iterator[Table]:
    for index in range(reader.num_record_batches):
        try:
            batch = reader.get_batch(index)
        except (OSError, pa.ArrowException) as error:
            raise StreamerError(f"{path}: batch {index + 1}: cannot be read: {error}") from error
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
    values: NDArray[Any] = array.cast(pa.int64()).fill_null(null).to_numpy()
    return values
