"""A growing set of k-mers on the GPU: an open-addressing table that threads fill without locks.

A slot is 16 bytes, half a sector, so that one request fetches a key and its value:

    word 2i      the code of a k-mer, or EMPTY; written once, by compare-and-swap
    word 2i + 1  the place of its first window; only ever lowered, by an atomic minimum

The value is 2**32 + the position in the stream of the first window of the k-mer, or for a k-mer of
the initial dictionary its target set, below 2**32. So the window at p is a mismatch if and only if
the value is 2**32 + p once every earlier window is in the table. A minimum does not depend on the
order of threads, chunks, streams and devices (thesis 3.3.9 and 3.3.10, one window at a time,
without the CPU loop over mismatches).

    claim     insert every window; those whose k-mer came before this chunk match at once
    decide    the others match unless they are the first of their k-mer      (after every claim)
    compact   the codes of the new k-mers, in stream order
    find      look up: a bit per window
    values    look up: the target set of each window
    add       insert codes with their values: the initial dictionary, or what another device found
    rehash    move to a larger table
    wipe      empty a table

The top bits of the mixed code give the slot, and collisions go to the next slot. So both tables of
``rehash`` are in nearly the same order, and are read and written from front to back.

Operations per window: the code (about 20, 35 if canonical), the mix (6), then 1.5 slots on average
at a load of one half. CuPy (CUB and Thrust) sums counts and sorts new k-mers; in numba's simulator
NumPy does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.cuda_errors import CudaEngineError
from gpu.card.intrinsics import ALL_LANES, SIMULATED, bit_mask_below, cuda, device_function, product
from gpu.card.kernel_cache import made, plain, with_threads
from gpu.card.memory import Budget
from gpu.exact.window_bits import bit_of, window_reader, write_votes
from trie.windows import NO_SET

THREADS = 256  # threads per block; any multiple of 32
EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
STREAM = np.uint64(1 << 32)  # the value of a k-mer whose first window begins the stream
_ODD = np.uint64(0x9E3779B97F4A7C15)
_OTHER = np.uint64(0xD6E8FEB86659FD93)


@device_function
def slot_of(code, shift):
    """The slot where the search for a code begins: the top 64 - shift bits of its mixed code."""
    mixed = np.uint64(code ^ np.uint64(code >> np.uint64(32)))
    mixed = product(mixed, _ODD)
    mixed = np.uint64(mixed ^ np.uint64(mixed >> np.uint64(29)))
    return np.uint64(np.uint64(product(mixed, _OTHER)) >> shift)


@device_function
def place_of(code, table, shift):
    """The word of a code in the table, or of the empty slot where it belongs."""
    last = np.uint64(np.uint64(table.size) - np.uint64(2))
    place = np.uint64(slot_of(code, shift) * np.uint64(2))
    while True:
        key = np.uint64(table[place])
        if key == code or key == EMPTY:  # noqa: SIM109
            break
        place = np.uint64(np.uint64(place + np.uint64(2)) & last)
    return place


@device_function
def put(code, value, known, table, shift):
    """Insert a code and lower its value; whether the value was below ``known`` before."""
    last = np.uint64(np.uint64(table.size) - np.uint64(2))
    place = np.uint64(slot_of(code, shift) * np.uint64(2))
    before = False
    while True:
        key = np.uint64(table[place])
        if key == EMPTY:
            key = np.uint64(cuda.atomic.cas(table, place, EMPTY, code))
            if key == EMPTY:
                key = code
        if key == code:
            at = np.uint64(place + np.uint64(1))
            stored = np.uint64(table[at])
            before = stored < known
            if value < stored:
                cuda.atomic.min(table, at, value)
            break
        place = np.uint64(np.uint64(place + np.uint64(2)) & last)
    return before


def coder(k: int, canonical: bool) -> Any:
    """The device function that returns the code of the window at a symbol."""
    read = window_reader(k, canonical)

    @device_function
    def code_at(bases, start):
        return np.uint64(read(bases, start) >> np.uint64(64 - 2 * k))

    return code_at


def claim(k: int, canonical: bool, filtered: bool = False) -> Callable[..., None]:
    """The kernel; at least 32 W threads, 32 | block.

    Arguments: bases uint32[], starts uint32[W], table uint64[2 slots], shift uint64, base uint64
    (the value of the chunk's first symbol), matches uint32[W]. ``filtered``: skip windows whose bit
    in ``matches`` is set (by a snapshot); otherwise every word is written.
    """
    code_at = coder(k, canonical)

    def kernel(bases, starts, table, shift, base, matches):
        start = np.uint32(cuda.grid(1))
        word = np.uint32(start >> np.uint32(5))
        if word >= np.uint32(starts.size):
            return  # the whole warp
        lane = np.uint32(start & np.uint32(31))
        before = np.uint32(0)
        if filtered:
            before = np.uint32(matches[word])
        known = False
        open_ = np.uint32(np.uint32(before >> lane) & np.uint32(1)) == np.uint32(0)
        if open_ and bit_of(starts, start) != np.uint32(0):
            value = np.uint64(base + np.uint64(start))
            known = put(code_at(bases, start), value, base, table, shift)
        bits = np.uint32(cuda.ballot_sync(ALL_LANES, known))
        if lane == np.uint32(0):
            matches[word] = np.uint32(before | bits)

    return kernel


def claim_filtered(k: int, canonical: bool) -> Callable[..., None]:
    """``claim`` with ``filtered``."""
    return claim(k, canonical, True)


def decide(k: int, canonical: bool) -> Callable[..., None]:
    """The kernel, after ``claim`` of this chunk and all earlier ones; launch as ``claim``.

    Arguments: those of ``claim``, then counts uint32[W] (new k-mers per word), total uint32[1] (0
    before). Afterwards only the first windows of new k-mers are not set in ``matches``.
    """
    code_at = coder(k, canonical)

    def kernel(bases, starts, table, shift, base, matches, counts, total):
        start = np.uint32(cuda.grid(1))
        word = np.uint32(start >> np.uint32(5))
        if word >= np.uint32(starts.size):
            return  # the whole warp
        lane = np.uint32(start & np.uint32(31))
        begins = np.uint32(starts[word])
        unmatched = np.uint32(begins & np.uint32(~np.uint32(matches[word])))
        first = False
        if np.uint32(np.uint32(unmatched >> lane) & np.uint32(1)) != np.uint32(0):
            place = place_of(code_at(bases, start), table, shift)
            stored = np.uint64(table[np.uint64(place + np.uint64(1))])
            first = stored == np.uint64(base + np.uint64(start))
        bits = np.uint32(cuda.ballot_sync(ALL_LANES, first))
        if lane == np.uint32(0):
            new = np.uint32(cuda.popc(bits))
            matches[word] = np.uint32(begins & np.uint32(~bits))
            counts[word] = new
            if new != np.uint32(0):
                cuda.atomic.add(total, 0, new)

    return kernel


def compact(k: int, canonical: bool) -> Callable[..., None]:
    """The kernel that lists the new k-mers of a decided chunk in stream order; launch as ``claim``.

    Arguments: bases uint32[], starts uint32[W], matches uint32[W], sums uint32[W] (inclusive sums
    of new k-mers per word), codes uint64[at least the last sum].
    """
    code_at = coder(k, canonical)

    def kernel(bases, starts, matches, sums, codes):
        start = np.uint32(cuda.grid(1))
        word = np.uint32(start >> np.uint32(5))
        if word >= np.uint32(starts.size):
            return
        lane = np.uint32(start & np.uint32(31))
        new = np.uint32(np.uint32(starts[word]) & np.uint32(~np.uint32(matches[word])))
        if np.uint32(np.uint32(new >> lane) & np.uint32(1)) != np.uint32(0):
            # this and the following new k-mers of the word
            rest = np.uint32(new & np.uint32(~np.uint32(bit_mask_below(lane))))
            at = np.uint32(np.uint32(sums[word]) - np.uint32(cuda.popc(rest)))
            codes[at] = code_at(bases, start)

    return kernel


def find(k: int, canonical: bool) -> Callable[..., None]:
    """The kernel that writes a bit per window; launch as ``claim``.

    Arguments: bases uint32[], starts uint32[W], table uint64[2 slots], shift uint64,
    matches uint32[W].
    """
    code_at = coder(k, canonical)

    def kernel(bases, starts, table, shift, matches):
        start = np.uint32(cuda.grid(1))
        word = np.uint32(start >> np.uint32(5))
        if word >= np.uint32(starts.size):
            return  # the whole warp
        there = False
        if bit_of(starts, start) != np.uint32(0):
            place = place_of(code_at(bases, start), table, shift)
            there = np.uint64(table[place]) != EMPTY
        write_votes(matches, word, start, there)

    return kernel


def values(k: int, canonical: bool) -> Callable[..., None]:
    """The kernel that writes the target set of each window, or NO_SET; launch as ``claim``.

    Arguments: bases uint32[], starts uint32[W], table uint64[2 slots], shift uint64,
    sets uint32[32 W].
    """
    code_at = coder(k, canonical)

    def kernel(bases, starts, table, shift, sets):
        start = np.uint32(cuda.grid(1))
        if np.uint32(start >> np.uint32(5)) >= np.uint32(starts.size):
            return
        target = np.uint32(NO_SET)
        if bit_of(starts, start) != np.uint32(0):
            place = place_of(code_at(bases, start), table, shift)
            value = np.uint64(table[np.uint64(place + np.uint64(1))])
            if np.uint64(table[place]) != EMPTY and value < STREAM:
                target = np.uint32(value)
        sets[start] = target

    return kernel


def add(codes, values, table, shift):
    """The kernel: codes uint64[n] with their values uint64[n]; one thread per code."""
    at = np.uint64(cuda.grid(1))
    if at < np.uint64(codes.size):
        put(np.uint64(codes[at]), np.uint64(values[at]), np.uint64(0), table, shift)


def rehash(old, table, shift):
    """The kernel: move ``old`` to the larger, empty ``table``; one thread per slot."""
    slot = np.uint64(cuda.grid(1))
    if slot < np.uint64(old.size >> 1):
        code = np.uint64(old[np.uint64(slot * np.uint64(2))])
        if code != EMPTY:
            value = np.uint64(old[np.uint64(np.uint64(slot * np.uint64(2)) + np.uint64(1))])
            last = np.uint64(np.uint64(table.size) - np.uint64(2))
            place = np.uint64(slot_of(code, shift) * np.uint64(2))
            # each code occurs once, so the thread that gets the slot may simply write the value
            while np.uint64(cuda.atomic.cas(table, place, EMPTY, code)) != EMPTY:
                place = np.uint64(np.uint64(place + np.uint64(2)) & last)
            table[np.uint64(place + np.uint64(1))] = value


def wipe(table):
    """The kernel: set every slot to no key and the highest value; one thread per word."""
    at = np.uint64(cuda.grid(1))
    if at < np.uint64(table.size):
        table[at] = EMPTY


SLOT_BYTES = 16
LOAD = 0.6  # the table grows above this share of used slots
MODEST = 16  # a table below 1 / MODEST of the memory grows in large steps
FIRST_BITS = 12
_PIECE = 1 << 22


def bits_for(kmers: int) -> int:
    """Bits of a slot number in the smallest table for that number of k-mers."""
    return max(FIRST_BITS, int(np.ceil(np.log2(max(1, kmers) / LOAD))))


def set_bytes(kmers: int) -> int:
    """Bytes of the table for that number of k-mers: 27 to 53 for each."""
    return SLOT_BYTES << bits_for(kmers)


class KmerSet:
    """The k-mers known so far, with their values, on the current device.

    canonical: a window counts as the smaller of itself and its reverse complement. Work is queued
    on the given stream. ``known``: k-mers in the set, counted by the caller; windows in flight may
    have added more.
    """

    def __init__(self, k: int, canonical: bool, expected: int, budget: Budget, stream: Any) -> None:
        self.k = k
        self.canonical = canonical
        self.known = 0
        self._budget = budget
        self._allocate(bits_for(min(expected, 4**k)), stream)

    def _allocate(self, bits: int, stream: Any) -> None:
        size = SLOT_BYTES << bits
        self._budget.take(f"the set of k-mers ({1 << bits} slots)", size)
        self._bits = bits
        self.shift = np.uint64(64 - bits)
        self.table = cuda.device_array(2 << bits, np.uint64)
        _run(wipe, 2 << bits, stream, self.table)

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return SLOT_BYTES << self._bits

    def room(self, more: int) -> bool:
        """Whether the table has room for ``more`` windows."""
        return min(self.known + more, 4**self.k) <= LOAD * (1 << self._bits)

    def enlarge(self, more: int, stream: Any) -> None:
        """Make room for ``more`` windows; nothing else may use the table meanwhile.

        Raises CardMemoryError, and leaves the set unchanged, if the larger table does not fit
        beside the old one.
        """
        old, old_size = self.table, self.nbytes
        # grow eightfold while that takes little memory, then double
        large = SLOT_BYTES << (self._bits + 3)
        step = 3 if large <= min(self._budget.limit // MODEST, self._budget.left) else 1
        wanted = bits_for(min(self.known + more, 4**self.k))
        self._allocate(max(min(self._bits + step, bits_for(4**self.k)), wanted), stream)
        _run(rehash, old.size // 2, stream, old, self.table, self.shift)
        stream.synchronize()
        self._budget.give(old_size)

    def add(self, codes: NDArray[np.uint64], values: NDArray[np.uint64], stream: Any) -> None:
        """Insert codes (uint64[n]) with their values (uint64[n]) and wait; there must be room.

        The caller knows which of them are new and counts them in ``known``.
        """
        sent = 16 * min(codes.size, _PIECE)
        self._budget.take("k-mers on their way into the set", sent)
        for start in range(0, codes.size, _PIECE):
            part = slice(start, start + _PIECE)
            on_card = cuda.to_device(np.ascontiguousarray(codes[part]), stream=stream)
            theirs = cuda.to_device(np.ascontiguousarray(values[part]), stream=stream)
            _run(add, on_card.size, stream, on_card, theirs, self.table, self.shift)
            stream.synchronize()
        self._budget.give(sent)

    def codes(self) -> NDArray[np.uint64]:
        """All k-mer codes, ascending: uint64[known]; no chunk may be in flight."""
        parts = []
        for start in range(0, self.table.size, _PIECE):
            keys = self.table[start : start + _PIECE].copy_to_host()[::2]
            parts.append(keys[keys != EMPTY])
        return np.sort(np.concatenate(parts))

    def launch(self, make: Any, windows: int, stream: Any, *arguments: Any) -> None:
        """Queue the kernel of ``make`` with one thread per window."""
        kernel = made(make, self.k, self.canonical)
        with_threads(kernel, windows, THREADS, stream)(*arguments)


def _run(function: Any, threads: int, stream: Any, *arguments: Any) -> None:
    with_threads(plain(function), threads, THREADS, stream)(*arguments)


MISSING = "growing on CUDA needs CuPy: pip install '.[gpu]' in a clone"


class DeviceLists:
    """Sums and sorts the lists of one slot, on its stream.

    counts, sums: uint32[W]; codes, ordered: uint64[n]; device arrays of numba.
    """

    def __init__(self, counts: Any, sums: Any, codes: Any, ordered: Any, stream: Any) -> None:
        self._arrays = (counts, sums, codes, ordered)
        if SIMULATED:
            return
        try:
            import cupy
        except ImportError:
            raise CudaEngineError(MISSING) from None
        self._cupy = cupy
        self._stream = _borrowed(cupy, stream)
        self._views = tuple(cupy.asarray(array) for array in self._arrays)

    def sum(self, words: int) -> None:
        """sums[i] = counts[0] + ... + counts[i] for the first ``words``."""
        if SIMULATED:
            counts, sums, _, _ = self._arrays
            sums[:words] = np.cumsum(counts.copy_to_host()[:words], dtype=np.uint32)
            return
        with self._stream:
            self._cupy.cumsum(self._views[0][:words], dtype=np.uint32, out=self._views[1][:words])

    def sort(self, number: int) -> None:
        """ordered = the first ``number`` codes, ascending."""
        if SIMULATED:
            _, _, codes, ordered = self._arrays
            ordered[:number] = np.sort(codes.copy_to_host()[:number])
            return
        with self._stream:
            ordered = self._views[3][:number]
            ordered[...] = self._views[2][:number]
            ordered.sort()


def _borrowed(cupy: Any, stream: Any) -> Any:
    """numba's stream as a CuPy stream."""
    handle = stream.handle
    number = int(getattr(handle, "value", handle) or 0)
    if hasattr(cupy.cuda.Stream, "from_external"):

        class Handle:
            def __cuda_stream__(self) -> tuple[int, int]:
                return 0, number

        return cupy.cuda.Stream.from_external(Handle())
    return cupy.cuda.ExternalStream(number)
