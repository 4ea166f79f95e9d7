"""Kills workers of a cluster at random, adds and removes nodes: results must stay the same.

python -m tests.faults.lost_workers [KILLS] [--seed N]
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time

import numpy as np

from tests.cluster_kit import Trouble, ray_nodes


def dna(rng, size):
    return "".join(rng.choices("ACGT", k=size))


def job(nodes, rng, folder):
    """Kills during a search; the rows must be those of a single process."""
    from streamer.cli.app import main
    from streamer.cluster import batch_tasks

    text = os.path.join(folder, "text.fa")
    with open(text, "w") as file:
        file.write(f">t\n{dna(rng, 2_000_000)}\n")
    words = ["asm", text, "-k", "9", "--device", "cpu", "-q"]
    words += [word for _ in range(150) for word in ("--pattern", dna(rng, 30))]
    words += ["--report", rng.choice(["all", "best"])]
    alone, there = (os.path.join(folder, name) for name in ("alone", "there"))
    batch_tasks.MOST_PIECE = rng.choice([20_000, 60_000])
    assert main([*words, "-o", alone]) == 0
    with Trouble(nodes, rng.random(), 0.8, with_nodes=True) as trouble:
        assert main([*words, "-o", there, "--cluster", "auto"]) == 0
    with open(alone, "rb") as one, open(there, "rb") as other:
        assert one.read() == other.read(), "rows differ"
    return trouble.kills


def stream(nodes, rng, folder):
    """Kills during a stream; events, versions and new k-mers must be those of a single machine."""
    import ray

    from streamer.cluster.cluster_matcher import ClusterMatcher
    from streamer.cluster.connecting import Cluster
    from streamer.dictionary.targets import Dictionary
    from streamer.matching.matcher import StreamMatcher
    from streamer.matching.spec import MatchSpec
    from streamer.sequences.read_batch import ReadBatch

    genome = dna(rng, 300_000)
    path = os.path.join(folder, "targets.fa")
    with open(path, "w") as file:
        file.write(f">a\n{genome[:90_000]}\n>b\n{genome[80_000:150_000]}\n")
    spec = MatchSpec.of(k=13, sources=(path,), mode=rng.choice(["frozen", "grow"]))
    shards = rng.choice([1, 2])
    loaded = Dictionary.from_files(spec.sources, 13)
    here = StreamMatcher(loaded, spec)
    begun, said = time.monotonic(), []

    def say(line):
        said.append(f"{time.monotonic() - begun:.1f} s: {line}")

    there = ClusterMatcher(loaded, spec, Cluster(ray), workers=2 // shards, shards=shards, say=say)
    try:
        with Trouble(nodes, rng.random(), 1.2, with_nodes=True, doing="MatchWorker") as trouble:
            end = time.monotonic() + 20
            while time.monotonic() < end:
                reads = [genome[at : at + 900] for at in rng.sample(range(299_000), 200)]
                batch = ReadBatch.from_sequences([f"r{i}" for i in range(200)], reads)
                one, other = here.match(batch), there.match(batch)
                np.testing.assert_array_equal(one.events, other.events)
                np.testing.assert_array_equal(one.new_kmers, other.new_kmers)
                assert (one.version, one.number) == (other.version, other.number)
        return trouble.kills
    except Exception:
        print(f"{spec.mode}, shards {shards}:", *said, sep="\n", file=sys.stderr)
        raise
    finally:
        here.close()
        there.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kills", nargs="?", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rng, kills, rounds = random.Random(asked.seed), 0, 0
    with ray_nodes() as nodes:
        while kills < asked.kills:
            with tempfile.TemporaryDirectory() as folder:
                kind = rng.choice([job, stream])
                killed = kind(nodes, rng, folder)
            kills, rounds = kills + killed, rounds + 1
            line = f"{kind.__name__}: {killed} killed, {kills} of {asked.kills}"
            print(line, file=sys.stderr, flush=True)
    print(f"{kills} workers killed in {rounds} jobs and streams, nothing lost (seed {asked.seed})")


if __name__ == "__main__":
    main()
