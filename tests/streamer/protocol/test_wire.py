"""The bytes of messages: vectors of the page, context of reads, checksums."""

from __future__ import annotations

import random
import re
import sys
import threading
import time
from dataclasses import replace

import msgpack
import numpy as np
import pytest

from streamer.client.producer import parts
from streamer.daemon.ingest import decode_batches
from streamer.errors import DataError
from streamer.protocol import checksum_kernels, wire
from streamer.protocol.checksum_kernels import combine, continue_crc32c
from streamer.protocol.payloads import (
    decode_batch,
    decode_context,
    decode_feed,
    encode_batch,
    encode_context,
    encode_feed,
    encode_notice,
    encode_reads,
)
from streamer.protocol.schema import MAX_LABEL_BYTES, MAX_LABELS
from streamer.protocol.wire import (
    Reason,
    WireError,
    crc32c,
    crc32c_address,
    pack,
    raw,
    seal,
    unpack,
    unseal,
)
from streamer.sequences.context import LabelColumn, ReadContext
from streamer.sequences.files import read_batches
from streamer.sequences.read_batch import ReadBatch
from tests.data_files import ROOT
from tests.reference import crc32c as definition
from trie.cpu.intrinsics import array_address

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
    turns, ending = 0, threading.Event()

    def count():
        nonlocal turns
        while not ending.is_set():
            turns += 1
            time.sleep(0)

    counting = threading.Thread(target=count)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        counting.start()
        batch, _ = decode_batch(header, [memoryview(listed)])
        ending.set()
        counting.join()
    finally:
        sys.setswitchinterval(before)
    assert len(batch.names) == 300_000
    assert turns > 20  # one call for the whole frame gives a turn or two


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


TIMES = [b"2025-01-06T10:06:36.778+00:00", b"2024-02-29T23:59:60Z", b""]


def labels_of(texts):
    labels = sorted({text for text in texts if text is not None})
    index = [-1 if text is None else labels.index(text) for text in texts]
    return LabelColumn(labels, np.array(index, np.int32))


def some_context(reads, seed):
    rng = random.Random(seed)
    columns = [
        labels_of([rng.choice([None, "barcode04", "b" * MAX_LABEL_BYTES, "\u00e9 \u4e2d"])
                   for _ in range(reads)])
        for _ in range(3)
    ]  # fmt: skip
    channel = np.array([rng.choice([-1, 1, 3000, 2**31 - 1]) for _ in range(reads)], np.int32)
    times = np.array([rng.choice(TIMES) for _ in range(reads)], "S35")
    return ReadContext(channel, times, *columns)


def rows(context):
    texts = [column.texts() for column in (context.run, context.barcode, context.sample)]
    columns = context.channel.tolist(), context.start_time.tolist(), *texts
    return list(zip(*columns, strict=True))


def batch_of(reads, seed):
    batch = ReadBatch.from_sequences([f"r{n}" for n in range(reads)], ["ACGTN"] * reads)
    return ReadBatch(batch.names, batch.offsets, batch.bases, some_context(reads, seed))


@pytest.mark.parametrize("reads", [1, 2, 50])
def test_there_and_back(reads):
    for seed in range(20):
        context = some_context(reads, seed)
        frame = encode_context(context)
        found = [(-1, b"", None, None, None)] * reads
        assert rows(context if frame is None else decode_context(frame, reads)) == (
            rows(context) if frame is not None else found
        )


def test_nothing_known_is_nothing_sent():
    unknown = LabelColumn.same(None, 3)
    channel, times = np.full(3, -1, np.int32), np.zeros(3, "S35")
    assert encode_context(ReadContext(channel, times, unknown, unknown, unknown)) is None
    assert encode_context(None) is None


def test_a_batch_brings_its_context_also_in_parts_and_decoded_together():
    batch = batch_of(100, 1)
    want = rows(batch.context)
    header = {"form": "columns"}
    frames = encode_batch(batch)
    assert rows(decode_batch(header, frames)[0].context) == want
    sent = list(parts(batch, 2000, "ipc://x"))
    assert len(sent) > 2
    parted = [decode_batch(header, part.frames)[0] for part in sent]
    assert [row for part in parted for row in rows(part.context)] == want
    plain = ReadBatch(batch.names, batch.offsets, batch.bases)
    messages = [(header, [memoryview(bytes(one)) for one in seal([b"head", *frames])])
                for frames in (frames, encode_batch(plain), [*frames[:3], b"\x93"])]  # fmt: skip
    found = decode_batches(messages, together)
    assert [None if one is None else one[0].context and rows(one[0].context) for one in found] == [
        want, None, None,
    ]  # fmt: skip
    assert [one is None for one in found] == [False, False, True]


@pytest.mark.parametrize("column", ["run", "barcode", "sample"])
@pytest.mark.parametrize("labels", [MAX_LABELS, MAX_LABELS + 1, 3 * MAX_LABELS])
def test_reads_with_more_labels_than_a_frame_takes_are_sent_in_parts(column, labels):
    """So that none of them loses its barcode."""
    texts = [f"label{number % labels}" for number in range(labels + 10)]
    batch = batch_of(len(texts), 1)
    batch = replace(batch, context=replace(batch.context, **{column: labels_of(texts)}))
    sent = list(parts(batch, 10**9, "ipc://x"))
    assert (len(sent) == 1) == (labels <= MAX_LABELS)
    decoded = [decode_batch({"form": "columns"}, part.frames)[0] for part in sent]
    found = [text for part in decoded for text in getattr(part.context, column).texts()]
    assert found == texts
    assert [name for part in decoded for name in part.names] == list(batch.names)
    # labels that no read has cost nothing
    unused = LabelColumn([*map(str, range(2000)), "a"], np.full(len(texts), 2000, np.int32))
    batch = replace(batch, context=replace(batch.context, **{column: unused}))
    (part,) = parts(batch, 10**9, "ipc://x")
    (decoded, _) = decode_batch({"form": "columns"}, part.frames)
    assert set(getattr(decoded.context, column).texts()) == {"a"}


def together(raw_reads, sums):
    from crc32c import crc32c

    sums[:] = [crc32c(bytes(letters), int(value)) for (_, _, letters), value in
               zip(raw_reads, sums, strict=True)]  # fmt: skip
    return [ReadBatch.from_letters(*one) for one in raw_reads]


def test_a_barcode_costs_four_bytes():
    barcodes = [f"barcode{n % 96:02d}" for n in range(100_000)]
    unknown = LabelColumn.same(None, len(barcodes))
    channel, times = np.full(len(barcodes), -1, np.int32), np.zeros(len(barcodes), "S35")
    frame = encode_context(ReadContext(channel, times, unknown, labels_of(barcodes), unknown))
    assert len(frame) < 4.02 * len(barcodes)


def test_texts_that_are_too_many_or_too_long_are_not_sent():
    texts = [f"b{n:05d}" for n in range(MAX_LABELS + 2)] + ["x" * (MAX_LABEL_BYTES + 1)]
    unknown = LabelColumn.same(None, len(texts))
    channel, times = np.full(len(texts), -1, np.int32), np.zeros(len(texts), "S35")
    frame = encode_context(ReadContext(channel, times, unknown, labels_of(texts), unknown))
    assert decode_context(frame, len(texts)).barcode.texts() == [*texts[:MAX_LABELS], *[None] * 3]


TWO = np.array([0, -1], "<i4").tobytes()


@pytest.mark.parametrize(
    ("fields", "problem", "index"),
    [
        ([], "the context must be a map", None),
        ({"channel": b"1234"}, "'channel' of the context must have 4 bytes for each of 2", None),
        ({"channel": [1, 2]}, "'channel' of the context must have 4 bytes", None),
        ({"channel": np.array([1, -2], "<i4").tobytes()}, "read 2: 'channel'.* is -2", 1),
        ({"start_time": b"x"}, "'start_time' of the context must be a width", None),
        ({"start_time": [0, b""]}, "'start_time' of the context must be a width", None),
        ({"start_time": [36, b" " * 72]}, "'start_time' of the context must be a width", None),
        ({"start_time": [3, b"\0\0\0abc"]}, "read 2: 'start_time' of the context is not a time", 1),
        ({"start_time": [True, b"\0\0"]}, "'start_time' of the context must be a width", None),
        *(
            (
                {"start_time": [20, bytes(20) + b"2025-01-06T10:06:36Z".replace(part, other, 1)]},
                "read 2: 'start_time' of the context is not a time",
                1,
            )
            for part, other in ((b"-", b"\r"), (b":", b"\x1a"), (b"T", b"\x14"), (b"Z", b"\x1a"))
        ),
        ({"run": [["a"]]}, "'run' of the context must be an array of texts and indices", None),
        ({"run": [[], None]}, "'run' of the context must be an array of texts and indices", None),
        ({b"run": [["a"], TWO]}, "the context is not msgpack: a map key is not a string", None),
        ({"barcode": [[""], TWO]}, "'barcode' of the context must have", None),
        ({"barcode": [[1], TWO]}, "'barcode' of the context must have", None),
        ({"barcode": [["a\n"], TWO]}, "printable texts of 256 bytes", None),
        ({"barcode": [["\u00e9" * 129], TWO]}, "printable texts of 256 bytes", None),
        ({"barcode": [["a"] * 1025, TWO]}, "1024 printable texts", None),
        ({"sample": [[], TWO]}, "read 1: 'sample' of the context is 0, must be -1 to -1", 0),
    ],
)
def test_refused(fields, problem, index):
    with pytest.raises(WireError) as caught:
        decode_context(msgpack.packb(fields), 2)
    assert caught.value.reason is Reason.MALFORMED
    assert re.search(problem, str(caught.value))
    assert caught.value.index == index


def test_what_a_later_producer_adds_to_arrays_of_fixed_length_is_ignored():
    time = b"2025-01-06T10:06:36Z"
    plain = {"start_time": [20, time + bytes(20)], "run": [["a"], TWO]}
    later = {name: [*column, "more"] for name, column in plain.items()}
    assert rows(decode_context(msgpack.packb(later), 2)) == rows(
        decode_context(msgpack.packb(plain), 2)
    )


def test_keys_that_a_later_producer_adds_are_ignored():
    assert rows(decode_context(msgpack.packb({"later": 1}), 1)) == [(-1, b"", None, None, None)]


# around a table's byte, what is summed without releasing the GIL, and the lanes of the kernels
SIZES = [0, 1, 2, 7, 8, 9, 63, 64, 65, 255, 256, 1000, 4096, 12_289]
LARGE = [(1 << 18) - 1, 1 << 18, (1 << 18) + 1, 300_001]


def test_the_check_value():
    assert definition.crc32c(b"123456789") == 0xE3069283
    assert crc32c([b"123456789"]) == crc32c([b"", b"1234", b"5678", b"9"]) == 0xE3069283


@pytest.mark.parametrize("missing", [False, True], ids=["ISA-L", "plain"])
@pytest.mark.parametrize("size", [*SIZES, *LARGE])
def test_any_length(size, missing, monkeypatch):
    if missing:
        monkeypatch.setattr(wire.ISA_L, "missing", ["crc32_iscsi"])
    data = random.Random(size).randbytes(size)
    want = definition.crc32c(data)
    assert crc32c([data]) == crc32c([memoryview(data)]) == want
    assert crc32c([data[size // 3 :]], crc32c([data[: size // 3]])) == want


@pytest.mark.parametrize("size", [*SIZES, *LARGE])
def test_the_sum_of_a_kernel(size, monkeypatch):
    data = random.Random(size).randbytes(size + 1)[1:]
    array = np.frombuffer(data, np.uint8)
    address = np.uint64(array_address(array) if size else 0)
    found = continue_crc32c(np.uint64(crc32c_address()), np.uint32(7), address, size)
    assert found == crc32c([data], 7)


def test_a_kernel_sums_in_calls_that_an_int_of_c_can_count():
    """As over 2 GiB, with the size of a call lowered."""
    data = np.frombuffer(random.Random(1).randbytes(1000), np.uint8)
    plain = getattr(continue_crc32c, "py_func", continue_crc32c)
    taken = []

    def sum_of(_, address, size, state):
        taken.append(int(size))
        begin = int(address) - array_address(data)
        part = data[begin : begin + int(size)].tobytes()
        return np.uint32(crc32c([part], int(state) ^ 0xFFFFFFFF) ^ 0xFFFFFFFF)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checksum_kernels, "_crc32_iscsi", sum_of)
        patch.setattr(checksum_kernels, "CALL_BYTES", 300)
        found = plain(0, 0, array_address(data), data.size)
    assert taken == [300, 300, 300, 100]
    assert found == crc32c([data.tobytes()])


def test_a_frame_is_summed_in_calls_that_an_int_of_c_can_count(monkeypatch):
    data = random.Random(2).randbytes(LARGE[-1])
    want = crc32c([data], 7)
    monkeypatch.setattr(wire, "CALL_BYTES", 100_000)
    assert crc32c([data], 7) == want


@pytest.mark.parametrize("seed", range(30))
def test_the_sum_of_parts(seed):
    rng = random.Random(seed)
    data = rng.randbytes(rng.choice([0, 1, 10, 1000, 5000, 1 << 18]))
    cut = rng.randint(0, len(data))
    first, second, whole = (crc32c([part]) for part in (data[:cut], data[cut:], data))
    assert combine(first, second, len(data) - cut) == whole
    assert combine(first, whole, len(data) - cut) == second


def test_the_sum_of_parts_that_are_huge():
    """In front of 2^45 bytes of value 0, which are halves of halves."""
    zeros, size = crc32c([b"\0"]), 1
    while size < 1 << 45:
        zeros, size = combine(zeros, zeros, size), 2 * size
    head = crc32c([b"head"])
    step = combine(head, zeros, size)
    for _ in range(2):
        size //= 2
        half = crc32c([b"\0"])
        at = 1
        while at < size:
            half, at = combine(half, half, at), 2 * at
        assert combine(combine(head, half, size), half, size) == step
        step = combine(head, half, size)


HEADER = msgpack.packb({"v": 2, "type": "hello"})


def test_a_sealed_message_is_unsealed():
    frames = [HEADER, b"", b"data"]
    sealed = seal(frames)
    assert sealed[:-1] == frames
    assert sealed[-1] == definition.crc32c(b"".join(frames)).to_bytes(4, "little")
    assert unseal(sealed) == frames
    assert unseal([memoryview(frame) for frame in sealed]) == frames
    assert unseal(seal(frames, 5), crc=5) == frames


def refusal(frames, **options):
    with pytest.raises(WireError) as caught:
        unseal(frames, **options)
    return caught.value.reason


def test_every_flipped_bit_is_noticed():
    sealed = seal([HEADER, b"ab"])
    for at, frame in enumerate(sealed):
        for bit in range(8 * len(frame)):
            damaged = bytearray(frame)
            damaged[bit // 8] ^= 1 << bit % 8
            assert refusal([*sealed[:at], bytes(damaged), *sealed[at + 1 :]]) == Reason.CHECKSUM
    assert refusal(sealed, crc=1) == Reason.CHECKSUM


@pytest.mark.parametrize(
    "frames",
    [[], [b""], [b"1234"], [HEADER], [HEADER, b""], [HEADER, b"123"], [HEADER, b"12345"]],
)
def test_messages_without_a_checksum(frames):
    assert refusal(frames) == Reason.MALFORMED
