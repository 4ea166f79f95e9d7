"""FASTQ that is still written: its whole records at every length, from every record on."""

from __future__ import annotations

import io
import random

import pytest

from streamer.errors import DataError
from streamer.sequences.fastq import WholeRecords

RECORDS = [
    f"@r{i} more\n{letters}\n+\n{'I' * len(letters)}\n"
    for i in range(6)
    for letters in ["".join(random.Random(i).choices("ACGTN", k=7 * i + 1))]
]


def read(data, offset=0, records=0, *, last=False, reads=4):
    """Names, the place behind them, what is left and the problem."""
    whole = WholeRecords("f", io.BytesIO(data), offset, records, last=last, batch_bases=50,
                         batch_reads=reads)  # fmt: skip
    names = [name for batch in whole for name in batch.names]
    return names, whole.offset, whole.rest, whole.problem


@pytest.mark.whole
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_length_from_every_record(end):
    records = [record.replace("\n", end).encode() for record in RECORDS]
    text = b"".join(records)
    ends = [sum(map(len, records[:count])) for count in range(len(records) + 1)]
    for size in range(len(text) + 1):
        whole = max(count for count in range(len(ends)) if ends[count] <= size)
        for begin in {size % (whole + 1), whole}:
            found = read(text[:size], ends[begin], begin, reads=1 + size % 4)
            names = [f"r{i}" for i in range(begin, whole)]
            assert found == (names, ends[whole], size - ends[whole], None)
            names, offset, rest, problem = read(text[:size], ends[begin], begin, last=True)
            without_end = whole < len(records) and size >= ends[whole + 1] - len(end)
            assert names == [f"r{i}" for i in range(begin, whole + without_end)]
            assert (rest == 0) == (problem is None)
            if rest:
                assert offset == ends[whole]
                assert str(problem).startswith(f"f: record {whole + 1}")


def test_a_fault_comes_behind_the_records_before_it():
    text = "".join([*RECORDS[:3], RECORDS[3].replace("A", "!"), *RECORDS[4:]]).encode()
    begin = len(RECORDS[0])
    whole = WholeRecords(
        "f", io.BytesIO(text), begin, 1, last=False, batch_bases=1000, batch_reads=9
    )
    batches = iter(whole)
    assert list(next(batches).names) == ["r1", "r2"]
    with pytest.raises(DataError, match=r"f: record 4 \(r3\), position \d+: '!' is not a base"):
        next(batches)
    bad = b"".join(r.encode() for r in RECORDS[:2]) + b"@r2\nAC\n+\nIII\n"
    with pytest.raises(DataError, match=r"f: record 3 \(r2\): not valid FASTQ \(line 12\)"):
        read(bad)
