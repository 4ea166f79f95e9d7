"""Messages: the vectors of docs/protocol.md, round trips, and damage."""

from __future__ import annotations

import random
import re
import threading
import time

import msgpack
import numpy as np
import pytest

from streamer.errors import DataError
from streamer.protocol.header import Reason, WireError, pack, raw, seal, unpack, unseal
from streamer.protocol.payloads import (
    decode_batch,
    decode_feed,
    encode_batch,
    encode_feed,
    encode_notice,
    encode_reads,
)
from streamer.sequences.files import read_batches
from streamer.sequences.read_batch import ReadBatch
from tests.data_files import ROOT

PAGE = ROOT / "docs" / "protocol.md"
READS = [("r1", "ACGT"), ("r2", "NACG")]
STREAM = "00112233445566ff"
KEYS = {"v": 2, "type": "batch", "producer": "p", "epoch": 7, "seq": 1}


def vectors():
    """The frames of the vectors in the page, one message each."""
    columns = [bytes(frame) for frame in encode_reads(READS)]
    listed = msgpack.packb([list(read) for read in READS])
    state = {"stream": STREAM, "session": 9, "state": "running", "producer": "p", "epoch": 7}
    counts = {"received": 1, "durable": 1, "matched": 0, "credit": 4096}
    reads = {
        "read": np.array([0, 1], np.uint32),
        "matches": np.array([2, 0], np.int64),
        "best_target": np.array([0, -1], np.int32),
    }
    runs = {
        "read": np.array([0], np.uint32),
        "start": np.array([0], np.int64),
        "end": np.array([4], np.int64),
        "windows": np.array([2], np.int64),
        "target": np.array([5], np.uint32),
    }
    stamp = {"v": 2, "topic": "read.", "stream": STREAM, "epoch": 9, "at": 3}
    header = stamp | {"prev": 1, "time": 5}
    named = {"sets": [[5, [0, 2]]], "targets": [[0, "left"], [2, "right"]]}
    match = encode_feed("match", header | {"topic": "match."} | named, columns[0], runs)
    hello = {"v": 2, "type": "hello", "producer": "p", "epoch": 7, "versions": [2]}
    welcome = {"type": "welcome", "version": 2, "max_batch_bytes": 1024, "durability": "fsync"}
    beat = stamp | {"topic": "beat.", "time": 5, "heads": {"read.": 3}, "state": "running"}
    request = {"v": 2, "id": 1, "command": "drain"}
    reply = {"v": 2, "id": 1, "type": "reply", "ok": True}
    return {
        "A hello": seal([pack(hello)]),
        "Its welcome": seal([pack({"v": 2} | state | counts | welcome | {"mark": b"\x01\x02"})]),
        "A batch, form columns, with a mark": seal(
            [pack(KEYS | {"form": "columns", "mark": b"\x01\x02"}), *columns]
        ),
        "A batch, form list": seal([pack(KEYS | {"form": "list"}), listed]),
        "Its acknowledgement": seal([pack({"v": 2} | state | counts | {"type": "ack"})]),
        "A message on read. (some keys and columns left out)": [
            bytes(frame) for frame in encode_feed("read", header, columns[0], reads)
        ],
        "A message on match. (some keys left out)": [bytes(frame) for frame in match],
        "A beat (some keys left out)": encode_notice("beat", beat),
        "A request on control": seal([pack(request)]),
        "Its reply": seal([pack(reply)]),
    }


BLOCK = re.compile(r"^(### (.+)\n\n```\n)([0-9a-f\n]+)(```)$", re.MULTILINE)


def test_vectors_of_the_page(update_golden):
    """``--update-golden`` writes them anew."""
    want = {name: [frame.hex() for frame in frames] for name, frames in vectors().items()}
    if update_golden:
        lines = {name: "".join(f"{line}\n" for line in frames) for name, frames in want.items()}
        text = BLOCK.sub(lambda found: found[1] + lines[found[2]] + found[4], PAGE.read_text())
        PAGE.write_text(text)
    found = BLOCK.findall(PAGE.read_text())
    assert {name: text.split() for _, name, text, _ in found} == want


@pytest.mark.parametrize("name", ["A batch, form columns, with a mark", "A batch, form list"])
def test_vectors_decode(name):
    header, *frames = unseal(vectors()[name])
    batch, names = decode_batch(unpack(header), frames)
    assert list(batch.names) == msgpack.unpackb(names) == ["r1", "r2"]
    assert batch.offsets.tolist() == [0, 4, 8]
    assert batch.bases.tolist() == [0, 1, 2, 3, 4, 0, 1, 2]


def test_batch_survives_the_way():
    rng = random.Random(3)
    reads = [(f"read {i}", "".join(rng.choices("ACGTN", k=rng.randrange(50)))) for i in range(99)]
    batch = ReadBatch.from_sequences([n for n, _ in reads], [s for _, s in reads])
    frames = encode_batch(batch)
    back, _ = decode_batch({"form": "columns"}, frames)
    assert list(back.names) == list(batch.names)
    assert np.array_equal(back.offsets, batch.offsets)
    assert np.array_equal(back.bases, batch.bases)
    assert frames == [bytes(frame) for frame in encode_reads(reads)]


def test_frames_of_a_batch_stay_as_they_are_whatever_its_arrays_become():
    batch = ReadBatch.from_sequences(["a", "b"], ["ACGT", "NAC"])
    frames = encode_batch(batch)
    sent = [bytes(frame) for frame in frames]
    batch.offsets[:] = 7
    batch.bases[:] = 0
    assert [bytes(frame) for frame in frames] == sent
    assert sent[2] == b"ACGTNAC"


def test_arrays_are_encoded_without_a_copy():
    values = np.arange(1000, dtype=np.uint64)
    frames = encode_feed("delta", {}, msgpack.packb([]), {"code": values})
    assert np.shares_memory(np.frombuffer(frames[3], np.uint64), values)


def feed_message():
    columns = {"code": np.arange(3, dtype=np.uint64), "start": np.zeros(0, np.int64)}
    header = {
        "v": 2,
        "topic": "delta.",
        "stream": STREAM,
        "epoch": 1,
        "at": 2,
        "prev": 0,
        "time": 3,
    }
    return [bytes(f) for f in encode_feed("delta", header, msgpack.packb(["a"]), columns)]


def test_feed_message_survives_the_way():
    message = decode_feed(feed_message())
    assert (message.topic, message.names) == ("delta", ["a"])
    assert {name: values.tolist() for name, values in message.columns.items()} == {
        "code": [0, 1, 2],
        "start": [],
    }
    notice = {"v": 2, "topic": "beat.", "stream": STREAM, "epoch": 1, "at": 2, "time": 3}
    assert decode_feed(encode_notice("beat", notice)).header == notice


def test_names_of_the_message_before_are_taken_over_if_they_are_the_same():
    frames = feed_message()
    before = decode_feed(frames).names
    assert decode_feed(frames, int.from_bytes(frames[-1], "little"), before).names is before
    other = seal([*frames[:2], msgpack.packb(["b"]), *frames[3:-1]])
    assert decode_feed(other, None, before).names == ["b"]


def test_a_checksum_that_is_known_is_compared():
    frames = feed_message()
    with pytest.raises(WireError) as caught:
        decode_feed(frames, int.from_bytes(frames[-1], "little") ^ 1)
    assert caught.value.reason == Reason.CHECKSUM


@pytest.mark.parametrize(
    "described",
    [
        None,
        [["code", "uint64", 3]],
        [["code", "uint64", 3], ["start", "int64"]],
        [["code", "uint64", 3], ["start", ["int64"], 0]],
        [["code", "uint64", 3], [1, "int64", 0]],
        [["code", "uint64", 3], ["start", "int64", "0"]],
        [["code", "uint64", 2], ["start", "int64", 0]],
        [["code", "uint64", 3], {"start": "int64"}],
    ],
)
def test_columns_that_are_not_described_are_refused(described):
    frames = feed_message()
    header = msgpack.unpackb(frames[1]) | {"columns": described}
    with pytest.raises(WireError) as caught:
        decode_feed(seal([frames[0], pack(header), *frames[2:-1]]))
    assert caught.value.reason == Reason.MALFORMED


NAMES = {
    "é".encode(): None,
    "読み 1".encode(): None,
    b"": None,
    b"a b": None,
    b"caf\xe9": "read 2: the name is not UTF-8: it holds byte 0xe9",
    b"\xed\xa0\x80": "read 2: the name is not UTF-8: it holds byte 0xed",
    b"a\x1b": "read 2: the name holds U+001B, which is not printable",
    b"a\x00": "read 2: the name holds U+0000, which is not printable",
    "a\u200e".encode(): "read 2: the name holds U+200E, which is not printable",
    "a\ue000".encode(): "read 2: the name holds U+E000, which is not printable",
    "a\xa0b".encode(): "read 2: the name holds U+00A0, which is not printable",
}


@pytest.mark.parametrize("form", ["columns", "list"])
@pytest.mark.parametrize(("name", "problem"), NAMES.items())
def test_names_are_printable_utf8(name, problem, form, tmp_path):
    """One rule for names on sockets and in files."""

    def string(value):
        return bytes([0xA0 + len(value)]) + value

    if form == "columns":
        names = b"\x92" + string(b"r1") + string(name)
        frames = [names, raw(np.array([0, 4, 8], np.int64)), b"ACGTACGT"]
    else:
        reads = [b"\x92" + string(one) + string(b"ACGT") for one in (b"r1", name)]
        frames = [b"\x92" + b"".join(reads)]
    header = KEYS | {"form": form}
    path = tmp_path / "reads.fa"
    rest = b" x\xff" if name else b""  # no more than the name is text
    path.write_bytes(b">r1\nACGT\n>" + name.replace(b" ", b"_") + rest + b"\nACGT\n")
    if problem is None:
        batch, _ = decode_batch(header, frames)
        assert list(batch.names) == ["r1", name.decode()]
        assert [list(batch.names) for batch in read_batches([str(path)])] == [
            ["r1", name.decode().replace(" ", "_")]
        ]
        return
    with pytest.raises(WireError) as caught:
        decode_batch(header, frames)
    assert (caught.value.reason, str(caught.value)) == (Reason.MALFORMED, problem)
    assert caught.value.index == 1
    with pytest.raises(DataError, match=re.escape(problem.replace("read 2", "record 2"))):
        list(read_batches([str(path)]))


@pytest.mark.parametrize("name", ["\ud800", "a\udcff"])
def test_a_surrogate_in_a_name_is_for_the_daemon_to_refuse(name):
    frames = encode_reads([("r1", "ACGT"), (name, "ACGT")])
    header = KEYS | {"form": "columns"}
    with pytest.raises(WireError, match="read 2: the name is not UTF-8"):
        decode_batch(header, frames)


def test_what_a_later_producer_adds_to_a_read_is_ignored():
    reads = [["a", "ACGT", b"IIII"], ["b", b"NNA"], ["", "", None, 7]]
    batch, names = decode_batch({"form": "list"}, [msgpack.packb(reads)])
    plain, right = decode_batch({"form": "list"}, [msgpack.packb([read[:2] for read in reads])])
    assert (names, batch.offsets.tolist()) == (right, plain.offsets.tolist())
    assert np.array_equal(batch.bases, plain.bases)


def test_a_large_list_leaves_the_other_threads_running():
    listed = msgpack.packb([["r", "ACGT"]] * 300_000)
    header = KEYS | {"form": "list"}
    longest, ending = 0.0, threading.Event()

    def look():
        nonlocal longest
        while not ending.is_set():
            began = time.perf_counter()
            time.sleep(0.001)
            longest = max(longest, time.perf_counter() - began)

    looking = threading.Thread(target=look)
    looking.start()
    began = time.perf_counter()
    batch, _ = decode_batch(header, [memoryview(listed)])
    seconds = time.perf_counter() - began
    ending.set()
    looking.join()
    assert len(batch.names) == 300_000
    assert longest < seconds / 6


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (b"", "not msgpack"),
        (b"\x81\x01\x02", "must be an array"),
        (b"\xdd\xff\xff\xff\xff", "not msgpack"),
        (b"\x92\x92\xa1r\xa1A", "not msgpack"),
        (b"\x90\x90", "1 bytes follow it"),
        (b"\x91\xc1", "not msgpack"),
        (b"\x91\x92\xa1r\x01", r"read 1 must be \[name, sequence\]"),
        (b"\x91\x93\xa1r\xa1A\x81\xc4\x01x\x01", "a map key is not a string"),
    ],
)
def test_a_list_that_is_none_is_malformed(frame, problem):
    header = KEYS | {"form": "list"}
    with pytest.raises(WireError, match=problem) as caught:
        decode_batch(header, [memoryview(frame)])
    assert caught.value.reason == "malformed"
