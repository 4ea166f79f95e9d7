"""Cases for kernels of exact matching, and their launches in plain form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpu.card.packing import PackedChunk
from gpu.exact.chunk_match import ChunkBuffers
from gpu.levenshtein import DeviceIndex, NearBuffers
from gpu.levenshtein.search import PLANES, plane_words
from gpu.ltb import LtbBuffers
from tests.reference.exact import reverse_complements, windows
from trie.levenshtein import NOTHING
from trie.strands import STRANDS
from trie.windows import check_batch


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


@dataclass(frozen=True)
class ChunkMatches:
    """What became of the windows of a chunk: a bit a window and, if asked for, its event word.

    words: uint64 by window start, or None.
    """

    chunk: PackedChunk
    matches: np.ndarray
    words: np.ndarray | None

    def events(self):
        """uint8[symbols]: at a window's start 1 for a match and 2 for a mismatch, 0 elsewhere."""
        begins, found = (
            np.unpackbits(bits.view(np.uint8), bitorder="little")[: self.chunk.symbols]
            for bits in (self.chunk.starts, self.matches)
        )
        return begins * np.uint8(2) - (found & begins)


def match_chunk(tree, chunk, *, with_words=False, word_capacity=None, **options):
    """Match a packed chunk; ``options`` as those of ``gpu.exact.chunk_match.launch``.

    word_capacity: of the match buffer at first, by default a word a window. A buffer that fills is
    replaced by one of the size that the counter asks for, and the chunk is matched again.
    """
    from gpu.exact.chunk_match import launch

    capacity = (chunk.windows() if word_capacity is None else word_capacity) if with_words else 0
    while True:
        buffers = ChunkBuffers(chunk.symbols, word_capacity=capacity)
        if chunk.symbols:
            buffers.bases.copy_to_device(chunk.bases)
            buffers.starts.copy_to_device(chunk.starts)
        launch(tree, buffers, chunk.symbols, with_words=with_words, **options)
        needed = int(buffers.counter.copy_to_host()[0]) if with_words else 0
        if needed <= capacity:
            break
        assert needed == chunk.windows()
        capacity = needed
    matches = buffers.matches.copy_to_host()
    if not with_words:
        return ChunkMatches(chunk, matches, None)
    words = buffers.words.copy_to_host()[:needed]
    index, depth = words >> np.uint64(32) & np.uint64(2**31 - 1), words & np.uint64(31)
    return ChunkMatches(chunk, matches, words[np.argsort(index + np.uint64(1) - depth)])


def nearest_words(patterns, bases, offsets, *, first=0, scheme=None):
    """uint32[n - first]: the words of the ends first + 1 .. n (trie/levenshtein)."""
    from gpu.levenshtein import launch
    from gpu.levenshtein.search import packing

    bases, offsets = check_batch(bases, offsets)
    symbols = bases.size
    planes = np.empty(PLANES * plane_words(symbols), dtype=np.uint32)
    for part in packing(bases, offsets, 0, symbols, planes):
        part()
    if not patterns.words.size or symbols <= first:
        return np.full(max(symbols - first, 0), NOTHING, dtype=np.uint32)
    index = DeviceIndex(patterns, scheme)
    buffers = NearBuffers(symbols)
    buffers.upload(planes, symbols)
    launch(index, buffers, symbols, first, all_words=True)
    return buffers.out.copy_to_host()[first:]


def ltb_bitmaps(tree, bases, offsets, distance, *, method="ltb-sliced"):
    """Match and mismatch bitmaps of a chunk, as ``trie.ltb.approximate`` gives them."""
    from gpu.ltb import launch, packing

    bases, offsets = check_batch(bases, offsets)
    symbols = np.empty_like(bases)
    for part in packing(bases, offsets, 0, bases.size, symbols):
        part()
    buffers = LtbBuffers(symbols.size)
    if symbols.size:
        buffers.symbols.copy_to_device(symbols)
    launch(tree, buffers, symbols.size, distance, method=method)
    return buffers.matches.copy_to_host(), buffers.mismatches.copy_to_host()
