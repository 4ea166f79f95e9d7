"""Search with k mismatches on the GPU: from a chunk of text to ascending hit words.

``bit-sliced`` and ``pigeonhole`` search a chunk of text packed as bit planes. ``pigeonhole`` looks
up pieces of every window in an index of nearby pattern pieces:

    records    uint64[2 s 4^q / 64]  two a word of a piece's bitmap: bit c of the bitmap, whether
                                     some pattern's piece is within e of the q-mer c; how many bits
                                     are set before the word, in all pieces
    starts     uint32[lists + 1]     where the list of each set bit begins in ``members``
    members    uint32                patterns, by number
    pieces     uint32[s, 1 + blocks] where a piece begins, and its symbols, a bit each

Of at most k mismatches, one of s pieces has at most e = k // s, so every hit is in a list of one of
its window's pieces; the patterns in these lists are compared in full. A pattern that an earlier
piece also found is skipped. A gap code counts as A in the index, which can only bring a piece
nearer, and as a mismatch in the comparison.

One thread per window; 32 of them read the same words of the text. A look-up is one 16-byte load;
further loads follow only if there is a list. Each hit takes its place by its own atomic addition:
hits are few.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gpu.card.intrinsics import bit_count, cuda, device_function, load_pair, load_word, population
from gpu.card.kernel_cache import made
from gpu.card.memory import Workspace, free_memory
from gpu.exact.device_tree import clear
from gpu.hamming import bit_sliced, network
from gpu.hamming.bit_sliced import PLANES
from gpu.hamming.paper import TableSearcher
from gpu.hamming.sorting import ID, START, HitSorter
from trie.codes import GAP
from trie.cpu.jit import njit
from trie.cpu.threads import run_all, split_range, usable_cores
from trie.cpu.vectors import marked

LEAST_PART = 1 << 18  # symbols worth a thread

MOST_PACKERS = 8
"""Threads that pack: 34 M symbols took 1.9 ms with one, 0.8 with eight, 1.1 with sixteen."""


@njit(cache=True, nogil=True)
def pack(codes, first, stop, planes):
    """The words of ``planes`` for the symbols [first, stop), 64 | first.

    planes: uint64[3, words], word w for the 64 symbols from 64 w on (``bit_sliced``). Symbols after
    ``stop`` are A. Returns whether there is a gap code; the gap plane is written in any case.

    Three comparisons of 64 bytes per word; bound by memory.
    """
    some = np.uint64(0)
    for word in range(first >> 6, (stop + 63) >> 6):
        at = 64 * word
        if at + 64 <= stop:
            low = marked(codes, at, 1)
            high = marked(codes, at, 2)
            gap = marked(codes, at, 4)
        else:
            low = high = gap = np.uint64(0)
            for i in range(stop - at):
                code = np.uint64(codes[at + i])
                low |= (code & np.uint64(1)) << np.uint64(i)
                high |= ((code >> np.uint64(1)) & np.uint64(1)) << np.uint64(i)
                gap |= (code >> np.uint64(2)) << np.uint64(i)
        planes[0, word] = low
        planes[1, word] = high
        planes[2, word] = gap
        some |= gap
    return some != 0


class Planes:
    """A chunk as bit planes on the GPU: 0.25 bytes per symbol are sent, 0.375 with gap codes.

    text: uint32[3, words] once ``send`` was called. gaps: uint32, all ones if there is a gap code.
    ``sent`` is recorded on ``stream`` after the transfer.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.sent = cuda.event()
        self.text: Any = None
        self.gaps = np.uint32(0)
        self._space = Workspace()

    def send(self, codes: NDArray[np.uint8], words: int) -> None:
        """Pack the codes and queue the transfer; words: per plane, even, enough for the codes."""
        self.text = None  # its memory may have to grow
        there = self._space.array("planes", PLANES * words, np.uint32)
        here = self._space.on_host("packed", PLANES * words // 2, np.uint64)
        self.text = there[: PLANES * words].reshape(PLANES, words)
        self.sent.synchronize()
        planes = here[: PLANES * words // 2].reshape(PLANES, words // 2)
        threads = max(1, min(usable_cores(), MOST_PACKERS, codes.size // LEAST_PART))
        ranges = split_range(0, codes.size, threads, align=64)
        gapped = run_all([partial(pack, codes, a, b, planes) for a, b in ranges], threads)
        self.gaps = np.uint32(0xFFFFFFFF if any(gapped) else 0)
        # one copy, with the unused ends of planes: queuing another copy takes longer than these
        used = (PLANES if any(gapped) else PLANES - 1) * words
        there[:used].copy_to_device(here.view(np.uint32)[:used], stream=self.stream)
        self.sent.record(self.stream)


THREADS = 128  # threads per block; any number


@device_function
def _spread(bits):
    """Bit i of 16 moved to 2 i."""
    bits = np.uint32(np.uint32(bits | np.uint32(bits << np.uint32(8))) & np.uint32(0x00FF00FF))
    bits = np.uint32(np.uint32(bits | np.uint32(bits << np.uint32(4))) & np.uint32(0x0F0F0F0F))
    bits = np.uint32(np.uint32(bits | np.uint32(bits << np.uint32(2))) & np.uint32(0x33333333))
    return np.uint32(np.uint32(bits | np.uint32(bits << np.uint32(1))) & np.uint32(0x55555555))


@device_function
def _named_before(text, patterns, blocks, pieces, piece, errors, p, start):
    """Whether an earlier piece also finds pattern p."""
    named = False
    for other in range(piece):
        wrong = np.uint32(0)
        for block in range(blocks):
            word = np.uint32(np.uint32(start >> np.uint32(5)) + np.uint32(block))
            differ = bit_sliced.differing(
                text, text, np.uint32(0), np.uint32(0), patterns,
                np.uint32(np.uint32(p * blocks) + np.uint32(block)), word,
                np.uint32(start & np.uint32(31)),
            )  # fmt: skip
            differ = np.uint32(differ & pieces[other, np.uint32(block) + np.uint32(1)])
            wrong = np.uint32(wrong + bit_count(differ))
        named = named or wrong <= errors
    return named


def pigeonhole(length: int) -> Callable[..., None]:
    """The kernel for pieces of ``length`` symbols, at most 12."""
    words = 4**length // 64 or 1
    mask = (1 << length) - 1

    def kernel(
        text, gaps, windows, records, starts, members, pieces, errors, patterns, blocks, k,
        counters, own, hits,
    ):  # fmt: skip
        """``[grid, THREADS]``, grid * THREADS >= windows.

        Arguments: text uint32[3, words], gaps (``bit_sliced``), windows uint32, the index as
        above, errors uint32 (e), patterns uint64[2 r blocks] (``bit_sliced``), blocks, k uint32,
        counters uint32[], own uint32, found uint64[] as for ``bit_sliced``.
        """
        start = np.uint32(cuda.grid(1))
        if start >= windows:
            return
        for piece in range(pieces.shape[0]):
            at = np.uint32(start + pieces[piece, 0])
            word = np.uint32(at >> np.uint32(5))
            shift = np.uint32(at & np.uint32(31))
            low = np.uint32(bit_sliced.from_bit(text[0], word, shift) & np.uint32(mask))
            high = np.uint32(bit_sliced.from_bit(text[1], word, shift) & np.uint32(mask))
            kmer = np.uint32(_spread(low) | np.uint32(_spread(high) << np.uint32(1)))
            place = np.uint32(np.uint32(piece * words) + np.uint32(kmer >> np.uint32(6)))
            bitmap, before = load_pair(records, place)
            rest = np.uint64(bitmap >> np.uint64(kmer & np.uint32(63)))
            if np.uint64(rest & np.uint64(1)) != np.uint64(0):
                # lists before this bit: all before the next word, less those from this bit on
                number = np.uint32(np.uint32(before) + population(bitmap))
                number = np.uint32(number - population(rest))
                entry = load_word(starts, number)
                stop = load_word(starts, np.uint32(number + np.uint32(1)))
                while entry < stop:
                    p = load_word(members, entry)
                    wrong = bit_sliced.distance_of(
                        text, text, gaps, np.uint32(0), patterns, blocks, p, start
                    )
                    if wrong <= k and not _named_before(
                        text, patterns, blocks, pieces, piece, errors, p, start
                    ):
                        to = cuda.atomic.add(counters, own, np.uint32(1))
                        if np.uint32(to) < np.uint32(hits.size):
                            where = np.uint64(np.uint64(start) << np.uint64(START))
                            what = np.uint64(np.uint64(p) << np.uint64(ID))
                            hits[to] = np.uint64(np.uint64(where | what) | np.uint64(wrong))
                    entry = np.uint32(entry + np.uint32(1))

    return kernel


CHUNKS = (1 << 10, 1 << 26)  # the fewest and the most windows in a chunk

MOST_HITS = 1 << 28
"""Most hit words of a chunk (2 GiB), unless it has the fewest windows."""

FIRST_CAPACITY = 1 << 22  # most hit words in the first buffer

WINDOW_SHARE, HIT_SHARE = 16, 64
"""Bytes of free memory for each window of a chunk, and for each hit word of the first buffer."""

COUNTERS = 256
"""Hit counters, one per scan, cleared together, as a launch costs more than a short scan."""

BLOCKS = 2112  # blocks that fill a large GPU several times over


class PlaneKernel(Protocol):
    """A kernel for one set of patterns."""

    def words(self, windows: int) -> int:
        """The words of a plane of a text with that many windows, an even number."""

    def launch(
        self, text: Planes, windows: int, counter: tuple[Any, np.uint32], hits: Any, stream: Any
    ) -> None:
        """Queue the kernel: it counts hits and writes those that fit to ``hits``, unordered.

        counter: an array and the index of the hit count in it.
        """


class BitSliced:
    """The kernel ``bit-sliced`` (gpu/hamming/bit_sliced.py) for uint8[r, m] patterns."""

    def __init__(self, patterns: NDArray[np.uint8], k: int) -> None:
        self.count, self.length = patterns.shape
        self.shape = network.shape_for(self.length, k)
        self._gaps = np.uint32((patterns >= GAP).any())
        self._patterns = cuda.to_device(bit_sliced.packed(patterns))
        steps = network.steps_of(patterns, self.shape)
        self._steps = cuda.to_device(steps.ravel())
        self._quads = steps[0].size // 4
        self._begin = (1 << self.shape.planes) - 1 - k
        self._k = k

    def words(self, windows: int) -> int:
        """See ``PlaneKernel.words``."""
        return (-(-windows // network.TILE) + 1) * network.SPAN

    def launch(
        self, text: Planes, windows: int, counter: tuple[Any, np.uint32], hits: Any, stream: Any
    ) -> None:
        """See ``PlaneKernel.launch``."""
        tiles = -(-windows // network.TILE)
        # the patterns are divided among blocks, so that even a short text fills the GPU
        shares = max(1, min(-(-self.count // bit_sliced.BATCH), BLOCKS // tiles))
        shares = max(shares, -(-self.count // bit_sliced.MOST_SHARED))
        share = -(-self.count // (shares * bit_sliced.BATCH)) * bit_sliced.BATCH
        grid = (tiles, -(-self.count // share))
        made(bit_sliced.bit_sliced, self.shape, registers=self.shape.registers)[grid, 32, stream](
            text.text, text.gaps, np.uint32(text.gaps | self._gaps), np.uint32(windows),
            self._steps, np.uint32(self._quads), np.uint32(self._begin), np.uint32(self._k),
            self._patterns, np.uint32(bit_sliced.blocks_of(self.length)), np.uint32(share),
            np.uint32(self.count), *counter, hits,
        )  # fmt: skip


class Pigeonhole:
    """The kernel ``pigeonhole`` for uint8[r, m] patterns.

    index: bitmap and rank [s, 4^q / 64], starts, members (gpu/hamming.py); places
    int64[s], where the pieces begin; length: q; errors: e.
    """

    def __init__(self, patterns: NDArray[np.uint8], k: int, index: Any) -> None:
        self._blocks = bit_sliced.blocks_of(patterns.shape[1])
        self._kernel = made(pigeonhole, index.length)
        records = np.stack([index.bitmap, index.rank.astype(np.uint64)], axis=2).ravel()
        inside = np.zeros((index.places.size, 32 * self._blocks), dtype=np.uint8)
        for piece, place in zip(inside, index.places, strict=True):
            piece[place : place + index.length] = 1
        bits = np.packbits(inside, axis=1, bitorder="little").view("<u4")
        pieces = np.concatenate([index.places[:, None].astype(np.uint32), bits], axis=1)
        self._index = (
            cuda.to_device(records), cuda.to_device(index.starts), cuda.to_device(index.members),
            cuda.to_device(pieces), np.uint32(index.errors),
            cuda.to_device(bit_sliced.packed(patterns)), np.uint32(self._blocks), np.uint32(k),
        )  # fmt: skip

    def words(self, windows: int) -> int:
        """See ``PlaneKernel.words``."""
        return 2 * (-(-windows // 64) + self._blocks + 1)

    def launch(
        self, text: Planes, windows: int, counter: tuple[Any, np.uint32], hits: Any, stream: Any
    ) -> None:
        """See ``PlaneKernel.launch``."""
        self._kernel[-(-windows // THREADS), THREADS, stream](
            text.text, text.gaps, np.uint32(windows), *self._index, *counter, hits
        )


class PlaneSearcher:
    """A search for patterns of ``shape`` (r, m), and its buffers.

    ids: uint64[r], ascending, shifted to their place in a hit word. chunk: most windows in a call
    of ``words``, which bounds memory: at most ``most``, and what fits into free memory.
    """

    def __init__(
        self, kernel: PlaneKernel, shape: tuple[int, ...], ids: NDArray[np.uint64], most: int
    ) -> None:
        self._kernel = kernel
        count, self._length = shape
        memory = free_memory()
        windows = max(CHUNKS[0], min(CHUNKS[1], MOST_HITS // count, memory // WINDOW_SHARE))
        self.chunk = min(most, windows)
        self._counters = cuda.device_array(COUNTERS, np.uint32)
        self._counter = COUNTERS - 1
        capacity = max(1, min(FIRST_CAPACITY, memory // HIT_SHARE))
        self.found = cuda.device_array(capacity, np.uint64)
        self._sorter = HitSorter(ids)
        self._stream = cuda.stream()
        self._texts = (Planes(cuda.stream()), Planes(cuda.stream()))
        self._ahead: tuple[NDArray[np.uint8], int, int] | None = None
        """The windows whose text was sent while the previous chunk was searched."""

    def send(self, codes: NDArray[np.uint8], windows: int) -> Planes:
        """Queue the text of that many windows."""
        text = self._texts[0]
        text.send(codes, self._kernel.words(windows))
        return text

    def scan(self, text: Planes, windows: int, stream: Any = 0) -> None:
        """Queue the search: ``count`` hits; those that fit are in ``found``, unordered."""
        self._counter += 1
        if self._counter == COUNTERS:
            self._counter = 0
            clear(self._counters, stream)
        place = (self._counters, np.uint32(self._counter))
        self._kernel.launch(text, windows, place, self.found, stream)

    def count(self, stream: Any = 0) -> int:
        """Wait for the last scan; its number of hits."""
        counted = self._counters.copy_to_host(stream=stream)
        stream = stream or cuda.default_stream()
        stream.synchronize()
        return int(counted[self._counter])

    def words(
        self, codes: NDArray[np.uint8], first: int, stop: int, then: tuple[int, int] | None = None
    ) -> list[NDArray[np.uint64]]:
        """Ascending hit words of the windows [first, stop) of a text, base codes on the host.

        They are valid until the next call. Meanwhile the next chunk, ``then`` or the one that
        follows, is packed and sent.
        """
        ahead = self._ahead
        if ahead is None or ahead[0] is not codes or ahead[1:] != (first, stop):
            self._send_part(codes, first, stop)
        text = self._texts[0]
        self._texts = self._texts[::-1]
        self._ahead = None
        windows = stop - first
        text.sent.wait(self._stream)
        self.scan(text, windows, self._stream)
        if then is None:
            then = stop, min(stop + self.chunk, codes.size - self._length + 1)
        if then[1] > then[0]:
            self._send_part(codes, *then)
            self._ahead = (codes, *then)
        hits = self.count(self._stream)
        if hits > self.found.size:
            self.found = None
            self.found = cuda.device_array(hits + hits // 4, np.uint64)
            self.scan(text, windows, self._stream)
        return self._sorter.fetch(self.found, hits, windows, self._stream)

    def _send_part(self, codes: NDArray[np.uint8], first: int, stop: int) -> None:
        self.send(codes[first : stop + self._length - 1], stop - first)


def searcher_for(
    method: str,
    patterns: NDArray[np.uint8],
    ids: NDArray[np.uint64],
    k: int,
    index: Any = None,
    most: int = CHUNKS[1],
) -> PlaneSearcher | TableSearcher:
    """A searcher for patterns uint8[r, m] on the current device.

    ids: uint64[r], ascending, shifted to their place in a hit word. index: for ``pigeonhole``
    (streamer/batch/hamming/pigeonhole.py). most: most windows in a chunk.
    """
    if method == "pigeonhole":
        return PlaneSearcher(Pigeonhole(patterns, k, index), patterns.shape, ids, most)
    if method == "bit-sliced":
        return PlaneSearcher(BitSliced(patterns, k), patterns.shape, ids, most)
    return TableSearcher(method, patterns, ids, k, most)
