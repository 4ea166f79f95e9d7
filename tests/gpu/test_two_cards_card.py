"""Two GPUs give the rows of one, byte for byte; only on a host that has two (``pytest -m gpu``)."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from numba import cuda

from gpu.card.device import devices
from streamer.batch import asm, hamming, primer
from streamer.cli.app import main
from streamer.client import Intervals, Producer, Subscriber
from streamer.daemon import config
from streamer.daemon.service import Service
from streamer.matching import cuda as cuda_packed
from streamer.matching import match_engine
from streamer.sequences.files import read_batches
from tests.gpu import placement
from tests.waiting import DEADLINE

pytestmark = placement.marks()

ASM = "asm text.fa --patterns some.fa -k 2"
HAMMING = "hamming text.fa --patterns alike.fa"
PRIMER = "primer alpha.fa text.fa --strands both"
MATCH = "match reads.fa -d known.fa -k 15"

COMMANDS = [
    ASM,
    f"{ASM} --report best",
    "asm text.fa --pattern ACGTTGCAT -k 2 --method wspasm",
    f"{HAMMING} -k 4",
    f"{HAMMING} -k 4 --method pigeonhole",
    f"{HAMMING} -k 3 --method pmasm-shared",
    f"{PRIMER} -k 4",
    f"{PRIMER} -k 12 --method windows",
    *(
        f"{MATCH} --report {name}"
        for name in ("windows", "intervals", "reads", "targets", "coverage")
    ),
    f"{MATCH} --report windows --kernel walk",
    *(f"match reads.fa -d one.fa -k 15 --report {name}" for name in ("intervals", "reads")),
    f"{MATCH} --distance 1",
    f"{MATCH} --distance 1 --semantics ltb",
    "match reads.fa --seed 1000 -k 15 --report intervals",
    "match reads.fa --seed 1000 -k 15 --report novelty",
]


@pytest.fixture(scope="module")
def two():
    found = len(devices())
    if found < 2:
        pytest.skip(f"two GPUs are needed, there is {found}")


@pytest.fixture(scope="module", autouse=True)
def small_parts():
    """Parts so small that both GPUs have many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asm, "SHARED_BLOCK", 1 << 16)
        patch.setattr(hamming, "LEAST_SHARE", 1 << 14)
        patch.setattr(primer, "LEAST_STARTS", 256)
        patch.setattr(cuda_packed, "_STEP", 1 << 12)
        patch.setattr(cuda_packed, "_PER_CARD", 1 << 14)
        patch.setattr(cuda_packed, "_PER_ROUND", 1 << 15)
        patch.setattr(cuda_packed, "PACKED_SPANS", 1)
        for module in (match_engine, cuda_packed):
            patch.setattr(module, "LONG_SPAN", 1 << 15)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("two")
    rng = np.random.default_rng(41)
    genome = rng.choice(list("ACGT"), 400_000)
    genome[rng.integers(0, genome.size, 50)] = "N"
    whole = "".join(genome)

    def near(length, changes):
        start = int(rng.integers(0, len(whole) - length))
        letters = list(whole[start : start + length].replace("N", "A"))
        for at in rng.integers(0, length, changes):
            letters[at] = rng.choice(list("ACGT"))
        return "".join(letters)

    texts = {
        "text": [whole, near(5, 0), near(90_000, 900)],
        "some": [near(length, 2) for length in (12, 20, 20, 33, 64)],
        "alike": [near(24, 3) for _ in range(40)],
        "alpha": [near(700, 40), near(1500, 300)],
        "one": [whole[:200_000]],
        "known": [whole[:150_000], whole[140_000:300_000]],
        "reads": [near(int(length), int(length) // 50) for length in rng.integers(10, 6000, 150)],
    }
    for name, sequences in texts.items():
        records = (f">{name}{i}\n{sequence}\n" for i, sequence in enumerate(sequences))
        (path / f"{name}.fa").write_text("".join(records))
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_gives_the_rows_of_one(command, folder, two, capfd):
    words = [str(folder / word) if word.endswith(".fa") else word for word in command.split()]
    rows = []
    for gpus in (1, 2, 2):
        assert main([*words, "--device", "cuda", "--gpus", str(gpus), "--quiet"]) == 0
        out, err = capfd.readouterr()
        assert err == ""
        assert out.count("\n") > 1
        rows.append(out)
    assert rows[1] == rows[0]
    assert rows[2] == rows[0]


def test_both_gpus_work(folder, two, monkeypatch):
    """As seen by the driver: each has had memory taken by every kind of search."""
    used = set()
    make = cuda.device_array

    def noted(*arguments, **options):
        used.add(int(cuda.get_current_device().id))
        return make(*arguments, **options)

    monkeypatch.setattr(cuda, "device_array", noted)
    for command in (ASM, f"{HAMMING} -k 4", f"{PRIMER} -k 4", MATCH):
        used.clear()
        words = [str(folder / word) if word.endswith(".fa") else word for word in command.split()]
        out = str(folder / "rows.tsv")
        assert main([*words, "--device", "cuda", "--gpus", "2", "--quiet", "-o", out]) == 0
        assert used == {0, 1}, command


@pytest.mark.parametrize("mode", ["frozen", "grow"])
def test_the_feed_of_a_daemon(mode, folder, two):
    batches = list(read_batches([str(folder / "reads.fa")], batch_bases=20_000))
    rows = [_feed(mode, gpus, folder, batches) for gpus in (1, 2)]
    assert rows[0] == rows[1]
    assert len(rows[0]) > len(batches)


def _feed(mode, gpus, folder, batches, device="cuda"):
    settings = [
        "dictionary.k=15",
        f"dictionary.mode='{mode}'",
        f"dictionary.sources=['{folder / 'known.fa'}']",
        f"matching.device='{device}'",
        f"matching.gpus={gpus}",
        *(f"{name}.endpoint='tcp://127.0.0.1:*'" for name in ("ingest", "feed", "control", "sync")),
    ]
    service = Service(config.load(None, settings))
    endpoints = service.start()
    ended = threading.Thread(target=service.wait, daemon=True)
    ended.start()
    rows = []
    with Subscriber(endpoints["feed"], ("match", "mismatch")) as feed:
        assert feed.wait_for_daemon(DEADLINE)
        with Producer(endpoints["ingest"], name="one", answer_seconds=DEADLINE) as producer:
            for batch in batches:
                producer.send(batch, timeout=DEADLINE)
            producer.flush(timeout=DEADLINE, matched=True)
        used = service.status.cards
        service.drain("all is sent")
        for message in feed:
            if isinstance(message, Intervals):
                columns = (message.read, message.start, message.end, message.windows)
                values = zip(*(column.tolist() for column in columns), strict=True)
                rows += [(message.stamp.topic, message.origin.batch, *row) for row in values]
        assert (feed.gaps, feed.damaged) == (0, 0)
    ended.join(DEADLINE)
    assert not ended.is_alive()
    assert device == "cpu" or used == tuple(range(gpus if mode == "frozen" else 1))
    return rows
