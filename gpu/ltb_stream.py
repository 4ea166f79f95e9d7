"""Chunks through the Levenshtein Tree Bitmap kernels: streams side by side (thesis 3.3.12).

A chunk begins k + D - 1 symbols before the first that it answers for (thesis 3.3.5), so results do
not depend on where chunks are cut. Every stream has a chunk and a result buffer of its own:

    stream A   pack | HtoD | kernel | DtoH |         copy out | pack | HtoD | ...
    stream B                    pack | HtoD | kernel | DtoH |         copy out | ...

1 byte a symbol goes to the card, 8 come back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gpu.engine.budget import Budget
from gpu.engine.errors import driver_errors_told
from gpu.engine.leaving import several_used
from gpu.engine.place import OnCard
from gpu.intrinsics import cuda
from gpu.ltb import ACTIVE_BYTES, KERNELS, DeviceLtb, LtbBuffers, launch, pack_symbols
from trie.ltb import check_distance, overlap_of
from trie.tree_bitmap import TreeBitmap

MAX_CHUNK = 1 << 25
"""Symbols of the largest chunk: it bounds a stream's buffers, 0.4 GB on the card, 0.3 pinned."""

_SYMBOL_BYTES = 11
"""Of a chunk on the card: a symbol, two bitmaps, and the planes of ``ltb-sliced``."""


class _Slot:
    """A stream, its chunk buffer and its result buffers, pinned and on the card."""

    def __init__(self, size: int) -> None:
        self.stream = cuda.stream()
        self.buffers = LtbBuffers(size)
        self.symbols = cuda.pinned_array(size, np.uint8)
        self.matches = cuda.pinned_array(size, np.uint32)
        self.mismatches = cuda.pinned_array(size, np.uint32)

    def send(
        self, tree: DeviceLtb, symbols: NDArray[np.uint8], distance: int, method: str, active: int
    ) -> None:
        """Queue a chunk: there, through the kernel, and back."""
        size = symbols.size
        self.symbols[:size] = symbols
        held = self.buffers
        held.symbols[:size].copy_to_device(self.symbols[:size], stream=self.stream)
        launch(tree, held, size, distance, method=method, stream=self.stream, active_bytes=active)
        held.matches[:size].copy_to_host(self.matches[:size], stream=self.stream)
        held.mismatches[:size].copy_to_host(self.mismatches[:size], stream=self.stream)


class _Card(OnCard):
    """One device: its slots and the snapshot that it holds."""

    def __init__(self, number: int, size: int, streams: int, memory: int, *, alone: bool) -> None:
        super().__init__(number, alone=alone)
        with self.active():
            self.budget = Budget(memory)
            self.budget.take("the buffers of a chunk", streams * _SYMBOL_BYTES * size)
            self.slots = [_Slot(size) for _ in range(streams)]
        self.tree: DeviceLtb | None = None
        self._source: TreeBitmap | None = None

    def load(self, tree: TreeBitmap, distance: int) -> int:
        """Have a snapshot here; the bytes that a slot may take for active bitmaps."""
        if self._source is not tree:
            if self._source is not None:
                self.budget.give(_tree_bytes(self._source))
            self.tree = self._source = None
            for slot in self.slots:
                slot.buffers.drop_active()
            self.budget.take(f"a dictionary of {tree.node_count} trie-nodes", _tree_bytes(tree))
            stream = self.slots[0].stream
            self.tree, self._source = DeviceLtb(tree, stream), tree
            stream.synchronize()
        room = (self.budget.limit - self.budget.held) // len(self.slots)
        self.budget.check("the active bitmaps", 4 * (distance + 1) * tree.node_count)
        return min(room, ACTIVE_BYTES)


def _tree_bytes(tree: TreeBitmap) -> int:
    return 32 * tree.node_count + (1 << 16)


class LtbEngine:
    """Matches batches with the Levenshtein Tree Bitmap on one or more cards.

    distance: D. chunk: symbols of a chunk at most, without its overlap. streams: 2, or 1 for the
    serial loop, on each of ``cards``. memory_bytes: to be used on each, 0 for nine tenths of what
    is free. method: a kernel. Raises CudaEngineError with one line if a card fails or is too small.
    """

    def __init__(
        self,
        k: int,
        distance: int,
        *,
        method: str = "ltb-sliced",
        chunk: int = 1_000_000,
        streams: int = 2,
        cards: Sequence[int] = (0,),
        memory_bytes: int = 0,
    ) -> None:
        check_distance(distance, k)
        if method not in KERNELS:
            message = f"no kernel is called {method!r}: {', '.join(KERNELS)}"
            raise ValueError(message)
        self._distance = distance
        self._method = method
        self._overlap = overlap_of(k, distance)
        self._chunk = min(max(chunk, k), MAX_CHUNK)
        size = self._chunk + self._overlap
        alone = len(cards) == 1
        with driver_errors_told():
            self._cards = [
                _Card(number, size, streams, memory_bytes, alone=alone) for number in cards
            ]
            several_used(cards)

    def match(
        self, tree: TreeBitmap, bases: NDArray[np.uint8], offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Match and mismatch bitmaps of a batch of any size, as ``trie.ltb.approximate``."""
        symbols = pack_symbols(bases, offsets)
        matches = np.empty(symbols.size, dtype=np.uint32)
        mismatches = np.empty(symbols.size, dtype=np.uint32)
        with driver_errors_told():
            active = []
            for card in self._cards:
                with card.active():
                    active.append(card.load(tree, self._distance))
            self._run(symbols, active, matches, mismatches)
        return matches, mismatches

    def _run(
        self,
        symbols: NDArray[np.uint8],
        active: Sequence[int],
        matches: NDArray[np.uint32],
        mismatches: NDArray[np.uint32],
    ) -> None:
        places = [
            (card, card.slots[i], most)
            for i in range(len(self._cards[0].slots))
            for card, most in zip(self._cards, active, strict=True)
        ]
        flying: deque[tuple[_Card, _Slot, int, int, int]] = deque()

        def land() -> None:
            card, slot, warm, start, stop = flying.popleft()
            with card.active():
                slot.stream.synchronize()
            matches[start:stop] = slot.matches[start - warm : stop - warm]
            mismatches[start:stop] = slot.mismatches[start - warm : stop - warm]

        try:
            for number, start in enumerate(range(0, symbols.size, self._chunk)):
                if len(flying) == len(places):
                    land()
                card, slot, most = places[number % len(places)]
                warm = max(start - self._overlap, 0)
                stop = min(start + self._chunk, symbols.size)
                assert card.tree is not None
                with card.active():
                    slot.send(card.tree, symbols[warm:stop], self._distance, self._method, most)
                flying.append((card, slot, warm, start, stop))
            while flying:
                land()
        finally:
            for card, slot, *_ in flying:  # leave no copy into a buffer under way behind
                with card.active():
                    slot.stream.synchronize()

    def close(self) -> None:
        """Give the memory back; nothing can be matched afterwards."""
        self._cards.clear()
