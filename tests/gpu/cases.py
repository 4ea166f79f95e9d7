"""Inputs around the edges that matter to the kernels, from fixed seeds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.reference.exact_events import reverse_complements, windows
from trie.strands import STRANDS


@dataclass(frozen=True)
class Case:
    name: str
    k: int
    strands: str
    bases: np.ndarray
    offsets: np.ndarray
    dictionary: np.ndarray

    def __str__(self):
        return self.name


def make(k, strands, length, seed, *, reads=1, gaps=0, kmers=40, share=0.5):
    """A case: random reads; of the dictionary a share comes from the stream, others nearly do."""
    rng = np.random.default_rng(seed)
    bases = rng.integers(0, 4, length).astype(np.uint8)
    if gaps:
        bases[rng.integers(0, length, gaps)] = 4
    cuts = np.sort(rng.integers(0, length + 1, reads - 1))
    offsets = np.concatenate(([0], cuts, [length])).astype(np.int64)
    codes, _ = windows(bases, offsets, k)
    taken = codes[rng.random(codes.size) < share][: max(kmers, codes.size // 2)]
    # leave the path at a random depth
    near = codes[rng.random(codes.size) < 0.3]
    near = near ^ (np.uint64(1) << (2 * rng.integers(0, k, near.size)).astype(np.uint64))
    dictionary = np.concatenate((taken, near, rng.integers(0, 4**k, 3, dtype=np.uint64)))
    if strands == "canonical":
        dictionary = np.minimum(dictionary, reverse_complements(dictionary, k))
    elif strands == "both":
        dictionary = np.concatenate((dictionary, reverse_complements(dictionary, k)))
    name = f"k{k}-{strands}-{length}-{reads}r-{gaps}g-seed{seed}"
    return Case(name, k, strands, bases, offsets, np.unique(dictionary))


def empty_dictionary(k, strands, length, seed):
    case = make(k, strands, length, seed)
    return Case(f"{case.name}-empty", k, strands, case.bases, case.offsets, case.dictionary[:0])


def small():
    """Few symbols: what the simulator can do."""
    cases = []
    for at, k in enumerate((1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 17, 21, 30, 31)):
        strands = STRANDS[at % 3]
        # around one word of packed bases, one mask word, a warp
        cases.append(make(k, strands, k + (16, 33, 31, 32, 48)[at % 5], at, reads=1 + at % 3))
    cases += [
        make(7, "canonical", 64, 30, reads=4, gaps=3),
        make(15, "canonical", 97, 31, reads=2, gaps=1),
        make(15, "forward", 15, 32),
        make(16, "both", 15, 33),
        make(31, "canonical", 95, 34, gaps=1),
        make(2, "canonical", 65, 35, reads=30, gaps=5),
        empty_dictionary(6, "canonical", 40, 36),
        empty_dictionary(2, "forward", 33, 37),
    ]
    return cases


def large():
    """Around block and piece edges, for a card: every k, all strands."""
    cases = []
    lengths = (31, 32, 33, 63, 64, 65, 255, 256, 257, 1023, 1024, 1025, 4097, 20_011)
    for k in range(1, 32):
        for at, strands in enumerate(STRANDS):
            length = lengths[(3 * k + at) % len(lengths)]
            cases.append(make(k, strands, length, 100 * k + at, reads=1 + k % 4, gaps=k % 7))
    for at, length in enumerate(lengths):
        cases.append(make(15, STRANDS[at % 3], length, 9000 + at, reads=3, gaps=2))
        cases.append(make(21, STRANDS[at % 3], length, 9100 + at))
    cases += [empty_dictionary(k, "canonical", 300, k) for k in (1, 3, 15, 31)]
    return cases
