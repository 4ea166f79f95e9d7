"""One chunk through the kernels without streams: upload, launch, download."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpu.card.packing import PackedChunk
from gpu.exact.chunk_match import ChunkBuffers
from gpu.levenshtein import DeviceIndex, NearBuffers
from gpu.levenshtein.search import PLANES, plane_words
from gpu.ltb import LtbBuffers
from trie.levenshtein import NOTHING
from trie.windows import check_batch


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
