"""Expand compact results on the host: bits to windows, event words to depths and nodes.

CPU kernels without the GIL, split over threads. Bits are as in gpu/card/packing.py: symbol s is bit
s % 32 of word s / 32.
"""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trie.cpu.intrinsics import popcount, trailing_zeros
from trie.cpu.jit import njit
from trie.cpu.threads import run_each, run_ranges, split_range

# elements worth a thread: waking one takes as long as several ten thousand of them
_PER_THREAD = 1 << 18


@njit(cache=True, nogil=True)
def _new(starts, matches, first, stop, origin, places):
    at = 0
    for word in range(first, stop):
        new = starts[word] & ~matches[word]
        while new != 0:
            places[at] = origin + 32 * word + np.int64(trailing_zeros(new))
            at += 1
            new &= new - np.uint32(1)


@njit(cache=True, nogil=True)
def _count(starts, matches, first, stop):
    total = np.int64(0)
    for word in range(first, stop):
        total += np.int64(popcount(starts[word] & ~matches[word]))
    return total


def mismatched(
    starts: NDArray[np.uint32], matches: NDArray[np.uint32], origin: int, threads: int
) -> NDArray[np.int64]:
    """``origin`` + the start of every mismatched window, ascending."""
    parts = split_range(0, starts.size, min(threads, 1 + (starts.size >> 15)))
    sizes = run_each(partial(_count, starts, matches), parts, threads)
    ends = np.cumsum([0, *sizes])
    places = np.empty(ends[-1], dtype=np.int64)

    def write(part: int) -> None:
        _new(starts, matches, *parts[part], origin, places[ends[part] : ends[part + 1]])

    run_each(write, [(i,) for i in range(len(parts))], threads)
    return places


@njit(cache=True, nogil=True)
def _scatter(words, depths, nodes, first, stop):
    for i in range(first, stop):
        word = words[i]
        depth = word & np.uint64(31)
        start = ((word >> np.uint64(32)) & np.uint64(0x7FFFFFFF)) + np.uint64(1) - depth
        depths[start] = depth
        nodes[start] = (word >> np.uint64(5)) & np.uint64(0x7FFFFFF)


def scatter_words(
    words: NDArray[np.uint64], depths: NDArray[np.uint8], nodes: NDArray[np.uint32], threads: int
) -> None:
    """Write the depth and the trie-node of every event word at its window's start in the chunk."""
    work = partial(_scatter, words, depths, nodes)
    run_ranges(work, 0, words.size, threads, grain=_PER_THREAD)


@njit(cache=True, nogil=True)
def copy_range(source, target, first, stop):
    """target[first:stop] = source[first:stop]; numba's own version is slow."""
    for i in range(first, stop):
        target[i] = source[i]


def copied(source: NDArray[np.uint64], threads: int) -> NDArray[np.uint64]:
    """A copy, made by ``threads`` threads because touching new pages is slow."""
    target = np.empty_like(source)
    copy_into(target, source, threads)
    return target


def copy_into(target: NDArray[Any], source: NDArray[Any], threads: int) -> None:
    """target[:source.size] = source, on ``threads`` threads."""
    work = partial(copy_range, source, target)
    run_ranges(work, 0, source.size, threads, grain=_PER_THREAD)
