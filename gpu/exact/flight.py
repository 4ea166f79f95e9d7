"""One chunk in flight: packed, sent, matched, sent back; and its results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.copies import fetch
from gpu.card.packing import PackedChunk, PackedParts, packed_sizes
from gpu.card.streams import Flight
from gpu.exact import kmer_set_kernels as kernels
from gpu.exact.card import ExactCard
from gpu.exact.chunk_match import launch
from gpu.exact.device_tree import clear
from gpu.exact.slot import PackedArrays, Slot
from trie.snapshots.tree_bitmap import TreeBitmap

Snapshot = Callable[[], tuple[TreeBitmap, int]]


@dataclass(frozen=True, slots=True)
class ChunkPiece:
    """A chunk to be matched.

    bases: uint8[n], offsets: int64[reads + 1], as gpu.card.packing.pack_chunk takes them; or a
    packed chunk, or parts of packed chunks, without offsets. pinned: the arrays of a packed chunk
    are pinned, do not change and are sent in place. position: of the first symbol in the stream.
    grow: mismatched k-mers are added. snapshot: called when the chunk is queued, returns the Tree
    Bitmap to match with and its version; None: only the set of k-mers is used. method: the kernel.
    words, sets: also return event words, target sets. settled: every earlier chunk must have
    landed. tag: for the caller.
    """

    bases: NDArray[np.uint8] | PackedChunk | PackedParts
    offsets: NDArray[np.int64] | None = None
    position: int = 0
    grow: bool = False
    snapshot: Snapshot | None = None
    method: str = "default"
    words: bool = False
    sets: bool = False
    settled: bool = False
    pinned: bool = False
    tag: Any = None

    @property
    def symbols(self) -> int:
        """Symbols of the chunk."""
        bases = self.bases
        return bases.size if isinstance(bases, np.ndarray) else bases.symbols


@dataclass(frozen=True, slots=True)
class ChunkFound:
    """The results of a chunk; the arrays are buffers, valid until the next result is requested.

    version: of the snapshot, 0 without one. starts, matches: uint32[ceil(n / 32)], a bit per
    symbol, as in gpu/card/packing.py. codes: uint64, the new k-mers in stream order (their windows
    are those with a start and no match), ordered: the same ascending; None unless it grew. words:
    uint64, event words in no particular order. sets: uint32[n], NO_SET where there is none.
    """

    piece: ChunkPiece
    version: int
    starts: NDArray[np.uint32]
    matches: NDArray[np.uint32]
    codes: NDArray[np.uint64] | None = None
    ordered: NDArray[np.uint64] | None = None
    words: NDArray[np.uint64] | None = None
    sets: NDArray[np.uint32] | None = None


class ExactFlight(Flight[ChunkFound]):
    """A chunk on a slot of a device; ``buffer`` holds it if it was packed ahead."""

    card: ExactCard
    slot: Slot
    chunk: ChunkPiece
    buffer: PackedArrays | None
    version = 0

    @property
    def base(self) -> np.uint64:
        """The value (gpu/exact/kmer_set_kernels.py) of the chunk's first window."""
        return np.uint64(int(kernels.STREAM) + self.chunk.position)

    def send(self) -> None:
        """Pack the chunk and queue its copies and kernels."""
        slot, piece = self.slot, self.chunk
        with self.bar("CPU"):
            self._pack()
        with self.bar("HtoD"):
            slot.upload(piece.symbols, self._source())
            tree = None
            if piece.snapshot is not None:
                snapshot, self.version = piece.snapshot()
                tree = self.card.tree(snapshot, self.version, piece.method, slot, words=piece.words)
        with self.bar("kernel"):
            if piece.symbols:
                self._match(tree)
            elif piece.grow:
                clear(slot.growth.total, slot.stream)
        with self.bar("DtoH"):
            self._download()
            if piece.sets:
                fetch(*slot.sets, slot.stream, piece.symbols)

    def _pack(self) -> None:
        slot, piece, threads = self.slot, self.chunk, self.card.threads
        if self.buffer is not None or piece.pinned:
            return
        if isinstance(piece.bases, PackedChunk):
            slot.copy(piece.bases, threads)
        elif isinstance(piece.bases, PackedParts):
            slot.lay(piece.bases, threads)
        elif piece.offsets is not None:
            slot.pack(piece.bases, piece.offsets, threads)

    def _source(self) -> PackedArrays:
        """The pinned arrays to send."""
        piece = self.chunk
        if piece.pinned and isinstance(piece.bases, PackedChunk):
            return piece.bases.bases, piece.bases.starts
        return self.slot.pinned if self.buffer is None else self.buffer

    def _match(self, tree: Any) -> None:
        slot, piece, kmers = self.slot, self.chunk, self.card.kmers
        bases, starts, matches = slot.buffers.views(piece.symbols)
        if piece.words:
            slot.make_words(piece.symbols)
        if tree is not None:
            launch(
                tree, slot.buffers, piece.symbols, method=piece.method, strands=self.card.strands,
                with_words=piece.words, stream=slot.stream,
            )  # fmt: skip
            if not (piece.grow or piece.sets):
                return
        assert kmers is not None
        windows = 32 * starts.size
        # wait for the insertions of other streams
        self.card.claimed.wait(slot.stream)
        if piece.grow:
            kmers.launch(
                kernels.claim if tree is None else kernels.claim_filtered, windows, slot.stream,
                bases, starts, kmers.table, kmers.shift, self.base, matches,
            )  # fmt: skip
            self.card.claimed.record(slot.stream)
            self._decide()
        elif tree is None:
            kmers.launch(
                kernels.find, windows, slot.stream, bases, starts, kmers.table, kmers.shift, matches
            )
        if piece.sets:
            kmers.launch(
                kernels.values, windows, slot.stream, bases, starts, kmers.table, kmers.shift,
                slot.sets[0],
            )  # fmt: skip

    def _decide(self) -> None:
        """Queue ``decide``: find first windows among those not matched by earlier chunks."""
        slot, growth, kmers = self.slot, self.slot.growth, self.card.kmers
        assert kmers is not None
        bases, starts, matches = slot.buffers.views(self.chunk.symbols)
        clear(growth.total, slot.stream)
        kmers.launch(
            kernels.decide, 32 * starts.size, slot.stream,
            bases, starts, kmers.table, kmers.shift, self.base, matches, growth.counts,
            growth.total,
        )  # fmt: skip

    def _download(self) -> None:
        slot = self.slot
        slot.download(self.chunk.symbols)
        if self.chunk.grow:
            fetch(slot.growth.total, slot.growth.pinned_total, slot.stream)

    def land(self) -> ChunkFound:
        """Wait for the results."""
        slot, piece, symbols = self.slot, self.chunk, self.chunk.symbols
        slot.stream.synchronize()
        codes, ordered = self._new() if piece.grow else (None, None)
        words = None
        if piece.words:
            with self.bar("DtoH"):
                words = slot.download_words() if symbols else np.zeros(0, np.uint64)
        slot.tree = None
        used = packed_sizes(symbols)[1]
        starts, matches = self._source()[1][:used], slot.matches[:used]
        sets = slot.sets[1][:symbols] if piece.sets else None
        return ChunkFound(piece, self.version, starts, matches, codes, ordered, words, sets)

    def _new(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Wait for the new k-mers, in stream order and ascending."""
        slot, growth, kmers = self.slot, self.slot.growth, self.card.kmers
        total = int(growth.pinned_total[0])
        if total:
            assert kmers is not None
            growth.pin(total)
            views = slot.buffers.views(self.chunk.symbols)
            words = views[1].size
            with self.bar("kernel"):
                growth.lists.sum(words)
                kmers.launch(
                    kernels.compact, 32 * words, slot.stream, *views, growth.sums, growth.codes
                )
                growth.lists.sort(total)
            with self.bar("DtoH"):
                fetch(growth.codes, growth.pinned_codes, slot.stream, total)
                fetch(growth.ordered, growth.pinned_ordered, slot.stream, total)
            slot.stream.synchronize()
        return growth.pinned_codes[:total], growth.pinned_ordered[:total]
