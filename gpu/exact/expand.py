"""Expand compact results on the host: bits to bytes, event words to depths and nodes.

CPU kernels without the GIL, split over threads. Bits are as in gpu/card/packing.py: symbol s is bit
s % 32 of word s / 32.
"""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trie.cpu.intrinsics import popcount, trailing_zeros
from trie.cpu.jit import njit
from trie.cpu.threads import run_all, split_range

# elements worth a thread: waking one takes as long as several ten thousand of them
_PER_THREAD = 1 << 18

# bit i of the index becomes byte i of the value
SPREAD = np.array(
    [sum((byte >> i & 1) << (8 * i) for i in range(8)) for byte in range(256)], dtype=np.uint64
)


def fill_events(
    starts: NDArray[np.uint32], matches: NDArray[np.uint32], events: NDArray[np.uint8], threads: int
) -> None:
    """events[s] = 1 for a match, 2 for a mismatch, 0 where no window starts; uint8[symbols]."""
    parts = _parts(events.size, threads, 1 << 21, align=32)
    run_all([partial(_fill, starts, matches, SPREAD, a, b, events) for a, b in parts], threads)


@njit(cache=True, nogil=True)
def _fill(starts, matches, spread, first, stop, events):
    at = first
    while at < stop:
        begins = np.uint64(starts[at >> 5])
        missed = begins & ~np.uint64(matches[at >> 5])
        if at + 32 <= stop:
            for part in range(4):
                low = np.uint64(8 * part)
                value = (
                    spread[(begins >> low) & np.uint64(255)]
                    + spread[(missed >> low) & np.uint64(255)]
                )
                for i in range(8):
                    events[at + 8 * part + i] = np.uint8(value >> np.uint64(8 * i))
        else:
            for i in range(stop - at):
                bit = np.uint64(i)
                one = (begins >> bit) & np.uint64(1)
                events[at + i] = np.uint8(one + ((missed >> bit) & np.uint64(1)))
        at += 32


@njit(cache=True, nogil=True)
def _new(starts, matches, first, stop, origin, found):
    at = 0
    for word in range(first, stop):
        new = starts[word] & ~matches[word]
        while new != 0:
            found[at] = origin + 32 * word + np.int64(trailing_zeros(new))
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
    parts = _parts(starts.size, threads, 1 << 15)
    sizes = run_all([partial(_count, starts, matches, a, b) for a, b in parts], threads)
    ends = np.cumsum([0, *sizes])
    found = np.empty(ends[-1], dtype=np.int64)
    run_all(
        [
            partial(_new, starts, matches, a, b, origin, found[ends[i] : ends[i + 1]])
            for i, (a, b) in enumerate(parts)
        ],
        threads,
    )
    return found


@njit(cache=True, nogil=True)
def _scatter(words, first, stop, depths, nodes):
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
    parts = _parts(words.size, threads)
    run_all([partial(_scatter, words, a, b, depths, nodes) for a, b in parts], threads)


@njit(cache=True, nogil=True)
def copy_range(source, first, stop, target):
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
    parts = _parts(source.size, threads)
    run_all([partial(copy_range, source, a, b, target) for a, b in parts], threads)


def _parts(
    size: int, threads: int, each: int = _PER_THREAD, align: int = 1
) -> list[tuple[int, int]]:
    return split_range(0, size, min(threads, 1 + size // each), align=align) if size else []
