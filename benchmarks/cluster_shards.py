"""The memory of a dictionary in shards on a cluster of this machine, beside that of its parts.

A part is the least that a shard needs: 12 bytes per k-mer, its code and its target set, and an
index of the codes, built in this process.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.inputs import batch_of, cut, random_kmers
from benchmarks.suite import Row
from streamer.cluster.cluster_matcher import ClusterMatcher
from streamer.cluster.connecting import LOCAL, connected
from streamer.dictionary.targets import Dictionary
from streamer.matching.spec import MatchSpec
from trie.codes import bases_of_kmers
from trie.cpu.threads import run_each, usable_cores
from trie.index.kmer_index import KmerIndex
from trie.windows import MATCH

K = 21
_LOOKED_UP = 10_000  # k-mers of the dictionary; as many random ones, which it lacks


def shards(counts: Sequence[int], kmers: int) -> Iterator[Row]:
    """A row for each number of shards greater than one, with one worker each."""
    dictionary = spread(kmers)
    spec = MatchSpec.of(k=K, mode="frozen", strands="forward", threads=1)
    rng = np.random.default_rng(1)
    known = dictionary.codes[rng.integers(0, kmers, _LOOKED_UP)]
    looked_up = np.concatenate([known, random_kmers(_LOOKED_UP, K, 2)])
    bases = bases_of_kmers(looked_up, K).reshape(-1)
    for count in counts:
        if count < 2:
            continue
        parts = [(part,) for part in np.array_split(dictionary.codes, count)]
        alone = sum(run_each(_part_bytes, parts, usable_cores()))
        with connected(LOCAL, count) as cluster:
            begun = time.perf_counter()
            matcher = ClusterMatcher(
                dictionary, spec, cluster, workers=1, shards=count, say=lambda line: None
            )
            result = matcher.match([batch_of(bases, cut(bases.size, K))])[0]
            took = time.perf_counter() - begun
            there = _bytes_of_processes("ray::MatchWorker")
            matcher.close()
        yield {
            "k-mers": kmers, "shards": count, "until the first answer, s": took,
            "found": int((result.events == MATCH).sum()), "of": _LOOKED_UP,
            "parts, GB": alone / 1e9, "workers, GB": there / 1e9, "ratio": there / alone,
        }  # fmt: skip


def spread(kmers: int) -> Dictionary:
    """A dictionary of that many k-mers with random gaps between their codes."""
    widest = int(1.9 * 4**K / kmers)  # 2 on average would reach the last code
    codes = np.random.default_rng(3).integers(1, widest, kmers, dtype=np.uint64)
    np.cumsum(codes, out=codes)
    return Dictionary.empty(K, "forward").with_grown(codes)


def _part_bytes(codes: NDArray[np.uint64]) -> int:
    index = KmerIndex(K, expected=codes.size)
    index.add(codes)
    return 12 * codes.size + index.memory_bytes()


def _bytes_of_processes(name: str) -> int:
    """Memory of the processes whose command begins so; what n of them share counts 1/n in each."""
    total = 0
    for process in Path("/proc").iterdir():
        try:
            if (process / "cmdline").read_bytes().startswith(name.encode()):
                lines = (process / "smaps_rollup").read_text().splitlines()
                total += sum(1024 * int(line.split()[1]) for line in lines if line[:4] == "Pss:")
        except OSError:  # not a process, or it has ended
            continue
    return total
