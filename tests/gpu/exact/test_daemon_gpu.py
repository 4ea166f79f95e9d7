"""A daemon that matches on a GPU publishes what the CPU finds, and every message of it."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from gpu.exact import bucket_table, chunk_match, device_tree, walk
from streamer.client import Intervals, Producer, ReadSummaries, Subscriber
from streamer.daemon import config, engine
from streamer.daemon.service import Service
from streamer.dictionary.targets import Dictionary
from streamer.matching import cuda, match_engine, reports
from streamer.matching.matcher import StreamMatcher
from streamer.sequences.read_batch import ReadBatch
from tests.gpu import placement
from tests.matching_results import intervals_by_event
from tests.waiting import DEADLINE

pytestmark = placement.marks()

K = 9
TOPICS = ("match", "mismatch", "read")


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    with placement.small_blocks(32, bucket_table, device_tree, chunk_match, walk) as patch:
        patch.setattr(cuda, "PACKED_SPANS", 1)
        patch.setattr(match_engine, "LONG_SPAN", 1)  # several batches a chunk, and cut ones
        if placement.SIMULATED:
            patch.setattr(walk, "JUMP_LEVEL", 1)
            # the simulator is no device that could be listed
            patch.setattr(engine, "choose_device", lambda *_, **__: "cuda")
            patch.setattr(engine, "stream_cards", lambda *_, **__: (0,))
        yield


def made(rng, genome, number):
    """Batches of pieces of the genome, some with gaps, some shorter than k, some without reads."""
    batches = []
    for _ in range(number):
        texts = []
        for _ in range(rng.integers(0, 6)):
            start, length = rng.integers(0, len(genome)), rng.integers(0, 60)
            text = list(genome[start : start + length])
            if text and rng.random() < 0.5:
                text[rng.integers(0, len(text))] = rng.choice(list("ACGTN"))
            texts.append("".join(text))
        batches.append(ReadBatch.from_sequences([f"r{i}" for i in range(len(texts))], texts))
    return batches


def test_the_feed_says_what_the_cpu_finds(tmp_path):
    rng = np.random.default_rng(7)
    genome = "".join(rng.choice(list("ACGT"), 300))
    (tmp_path / "genome.fa").write_text(f">genome\n{genome[:200]}\n")
    settings = [
        f"dictionary.sources=['{tmp_path / 'genome.fa'}']",
        f"dictionary.k={K}",
        "dictionary.strands='both'",
        "matching.device='cuda'",
        "matching.chunk_bases=150",
        "feed.beat_seconds=0.1",
        *(f"{name}.endpoint='ipc://{tmp_path / name}'" for name in ("ingest", "feed", "control")),
    ]
    service = Service(config.load(None, settings))
    endpoints = service.start()
    ended = threading.Thread(target=service.wait, daemon=True)
    ended.start()
    sent = {name: made(rng, genome, 12) for name in ("one", "two")}
    heard = []
    with Subscriber(endpoints["feed"], TOPICS) as feed:
        assert feed.wait_for_daemon(DEADLINE)
        producers = [
            Producer(endpoints["ingest"], name=name, answer_seconds=DEADLINE) for name in sent
        ]
        # all of them, so that some wait and are matched together
        for pair in zip(*sent.values(), strict=True):
            for producer, batch in zip(producers, pair, strict=True):
                producer.send(batch, timeout=DEADLINE)
        for producer in producers:
            producer.flush(timeout=DEADLINE, matched=True)
            producer.close()
        service.drain("all is sent")
        heard = list(feed)
        assert (feed.gaps, feed.damaged) == (0, 0)
    ended.join(DEADLINE)
    assert not ended.is_alive()
    check(heard, sent, Dictionary.from_files([str(tmp_path / "genome.fa")], K, "both"))


def check(heard, sent, dictionary):
    summaries = [m for m in heard if isinstance(m, ReadSummaries)]
    assert [m.origin.batch for m in summaries] == list(range(len(sent["one"]) + len(sent["two"])))
    said = {
        (m.origin.batch, m.stamp.topic): m
        for m in heard
        if isinstance(m, Intervals | ReadSummaries)
    }
    matcher = StreamMatcher.of(dictionary, mode="frozen", threads=1)
    for summary in summaries:
        origin = summary.origin
        result = matcher.match([sent[origin.producer][origin.producer_sequence - 1]])[0]
        reads = reports.reads(result, dictionary.targets)
        matched, mismatched = intervals_by_event(result)
        assert origin.base == result.base
        wanted = {"read": reads, "match": matched, "mismatch": mismatched}
        for topic, columns in wanted.items():
            message = said.pop((origin.batch, topic), None)
            if message is None:
                assert not columns["read"].size
                assert topic != "read"
                continue
            for name, values in columns.items():
                np.testing.assert_array_equal(getattr(message, name), values, f"{topic} {name}")
    assert not said
    matcher.close()
