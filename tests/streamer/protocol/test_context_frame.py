"""The context of reads in messages: there and back, and what is refused."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import msgpack
import numpy as np
import pytest

from streamer.client.producer import parts
from streamer.daemon.ingest import decode_batches
from streamer.protocol.header import Reason, WireError, seal
from streamer.protocol.payloads import decode_batch, decode_context, encode_batch, encode_context
from streamer.protocol.schema import MAX_LABEL_BYTES, MAX_LABELS
from streamer.sequences.context import LabelColumn, ReadContext
from streamer.sequences.read_batch import ReadBatch

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
