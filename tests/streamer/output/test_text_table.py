"""Tables as lines: what Python's own formatting gives, in blocks of any size."""

from __future__ import annotations

import json
import random

import msgpack
import numpy as np
import pytest

from streamer.output import text_table
from streamer.output.text_table import NULL, Labels, Lookup, NameLists, Table, distinct, same, texts
from streamer.sequences.read_batch import PackedNames

EDGES = [0, 1, 9, 10, 99, 100, -1, -10, 10**18 - 1, 10**18, 2**63 - 1, 1 - 2**63, NULL]
NAMES = ["read1", "", "ü", 'a"b', "back\\slash", "x" * 300, "tab\there", None, 7, 58.25, 1e-7]


def as_tsv(rows):
    cells = [["." if value is None else str(value) for value in row.values()] for row in rows]
    return "".join("\t".join(row) + "\n" for row in cells)


def as_json(rows):
    lines = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows]
    return "".join(lines)


def table_and_rows(rng, size):
    numbers = np.array(EDGES + [rng.randrange(10 ** rng.randrange(1, 19)) for _ in range(size)])
    numbers = numbers[:size]
    narrow = np.array([rng.randrange(256) for _ in range(size)], dtype=np.uint8)
    at = np.array([rng.randrange(-1, len(NAMES)) for _ in range(size)], dtype=np.int32)
    own = [rng.choice(NAMES) for _ in range(size)]
    table = Table(
        {
            "name": Lookup(Labels(NAMES), at),
            "number": numbers,
            "narrow": narrow,
            "strided": np.repeat(narrow, 2)[::2],
            "own": texts(own),
            "same": same("s", size),
            "null": same(None, size),
            "distinct": distinct(narrow, lambda present: [f"<{n}>" for n in present.tolist()]),
        }
    )
    rows = [
        {
            "name": None if at[i] < 0 else NAMES[at[i]],
            "number": None if numbers[i] == NULL else int(numbers[i]),
            "narrow": int(narrow[i]),
            "strided": int(narrow[i]),
            "own": own[i],
            "same": "s",
            "null": None,
            "distinct": f"<{narrow[i]}>",
        }
        for i in range(size)
    ]
    return table, rows


@pytest.mark.parametrize("block", [1, 500, 7000, 1 << 20])
def test_lines_are_those_of_python(block, monkeypatch):
    for size in (0, 1, 2, 13, 50, 211):
        monkeypatch.setattr(text_table, "_BLOCK_BYTES", block)
        table, rows = table_and_rows(random.Random(size), size)
        assert table.rows == size
        assert b"".join(table.formatted("tsv")).decode() == as_tsv(rows)
        assert b"".join(table.formatted("jsonl")).decode() == as_json(rows)
        assert table.records() == rows


@pytest.mark.parametrize("few", [0, 100, 1000])
@pytest.mark.parametrize("long", [3, 70])
def test_packed_texts(few, long, monkeypatch):
    monkeypatch.setattr(text_table, "_FEW", few)
    names = ["r" * (i % long) + ["", "é", '"', "\\", "x"][i % 5] for i in range(200)]
    packed = PackedNames(msgpack.packb(names), len(names))
    at = np.array([199, -1, *range(200), 0])
    table = Table({"packed": Labels(packed).gather(at), "same": Labels(names).gather(at)})
    rows = [dict.fromkeys(table.columns, None if i < 0 else names[i]) for i in at]
    assert b"".join(table.formatted("tsv")).decode() == as_tsv(rows)
    assert b"".join(table.formatted("jsonl")).decode() == as_json(rows)


def test_rows_longer_than_a_block(monkeypatch):
    monkeypatch.setattr(text_table, "_BLOCK_BYTES", 500)
    names = ["x" * size for size in (1, 300, 3000, 0, 299)]
    blocks = list(Table({"n": np.arange(5), "name": texts(names)}).formatted("tsv"))
    assert len(blocks) > 2
    assert b"".join(blocks).decode() == "".join(f"{i}\t{n}\n" for i, n in enumerate(names))


def test_no_labels():
    table = Table({"name": Labels([]).gather(np.array([-1, -1])), "n": np.array([1, NULL])})
    assert b"".join(table.formatted("tsv")) == b".\t1\n.\t.\n"


def test_every_number_of_digits():
    values = [sign * (10**n + step) for n in range(19) for step in (-1, 0, 1) for sign in (1, -1)]
    lines = b"".join(Table({"n": np.array(values)}).formatted("tsv"))
    assert lines.decode().split() == list(map(str, values))


def test_head_and_padding():
    table = Table({"a": np.arange(5), "b": texts(list("vwxyz"))})
    assert table.head(2).records() == [{"a": 0, "b": "v"}, {"a": 1, "b": "w"}]
    assert table.head(9).rows == 5
    padded = table.head(1).padded(["b", "c", "a"])
    assert padded.records() == [{"b": "v", "c": None, "a": 0}]
    assert b"".join(padded.formatted("tsv")) == b"v\t.\t0\n"


def test_lists_of_names():
    lists = [["a"], ["b;c", 'd"\\', "é"], None, []]
    table = Table({"n": np.arange(4), "names": NameLists(lists).gather(np.array([1, 0, 2, 3]))})
    order = [lists[1], lists[0], None, []]
    assert table.records() == [{"n": n, "names": names} for n, names in enumerate(order)]
    rows = b"".join(table.formatted("tsv")).decode().splitlines()
    assert rows == ['0\tb;c;d"\\;é', "1\ta", "2\t.", "3\t"]
