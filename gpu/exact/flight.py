"""One chunk on its way: packed, sent, matched, sent back; and what it found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.intrinsics import context_asked_once
from gpu.card.packing import PackedChunk, PackedParts
from gpu.card.timeline import Timeline
from gpu.exact.card import ExactCard
from gpu.exact.chunk_match import launch
from gpu.exact.device_tree import clear
from gpu.exact.kmer_set import KmerSet
from gpu.exact.kmer_set_kernels import STREAM
from gpu.exact.slot import Slot
from trie.snapshots.tree_bitmap import TreeBitmap
from trie.strands import Strands

Snapshot = Callable[[], tuple[TreeBitmap, int]]


@dataclass(frozen=True, slots=True)
class ChunkPiece:
    """A chunk to be matched.

    bases: uint8[n], offsets: int64[reads + 1], as gpu.card.packing.pack_chunk takes them; or a
    chunk, or parts of one, that is packed already, without offsets; ``pinned``: the arrays of a
    chunk are pinned, stay as they are and are sent from where they are. position: in the stream of
    the first symbol. grow: mismatched k-mers are added. snapshot: gives the Tree Bitmap to match
    with and its version, asked when the chunk is queued; None: the set of k-mers alone answers.
    method: the kernel. words, sets: event words, target sets too. settled: every earlier chunk is
    to be finished before. tag: the caller's.
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
        """How long it is."""
        bases = self.bases
        return bases.size if isinstance(bases, np.ndarray) else bases.symbols


@dataclass(frozen=True, slots=True)
class ChunkFound:
    """What became of a chunk; the arrays are buffers, good until the next result is asked for.

    version: of the snapshot, 0 without one. starts, matches: uint32[ceil(n / 32)], a bit a symbol,
    as in gpu/card/packing.py. codes: uint64, the new k-mers in stream order (their windows are
    those with a start and no match), ordered: the same ascending; None unless it grew. words:
    uint64, event words in no order. sets: uint32[n], 2**32 - 1 where there is none.
    """

    piece: ChunkPiece
    version: int
    starts: NDArray[np.uint32]
    matches: NDArray[np.uint32]
    codes: NDArray[np.uint64] | None = None
    ordered: NDArray[np.uint64] | None = None
    words: NDArray[np.uint64] | None = None
    sets: NDArray[np.uint32] | None = None


@dataclass(slots=True)
class Flight:
    """A chunk under way on a slot of a card. ``number`` counts chunks."""

    number: int
    card: ExactCard
    slot: Slot
    piece: ChunkPiece
    strands: Strands
    threads: int
    timeline: Timeline | None
    version: int = 0

    @property
    def symbols(self) -> int:
        """Symbols of the chunk."""
        return self.piece.symbols

    @property
    def base(self) -> np.uint64:
        """The value (gpu/exact/kmer_set_kernels.py) of the chunk's first window."""
        return np.uint64(int(STREAM) + self.piece.position)

    def bar(self, row: str) -> AbstractContextManager[None]:
        """What is done in the block belongs to that row of the timeline."""
        if self.timeline is None:
            return nullcontext()
        if row == "CPU":
            return self.timeline.host(self.number, self.slot.number)
        return self.timeline.device(row, self.number, self.slot.number, self.slot.stream)

    def send(self) -> None:
        """Pack the chunk and queue all that the card does with it."""
        with self.bar("CPU"):
            self._pack()
        with self.card.active():
            self._queue()

    def _pack(self) -> None:
        slot, piece = self.slot, self.piece
        if isinstance(piece.bases, PackedChunk):
            if not piece.pinned:
                slot.take(piece.bases, self.threads)
        elif isinstance(piece.bases, PackedParts):
            slot.lay(piece.bases)
        elif piece.offsets is not None:
            slot.pack(piece.bases, piece.offsets, self.threads)

    @context_asked_once
    def _queue(self) -> None:
        slot, piece = self.slot, self.piece
        with self.bar("HtoD"):
            slot.upload(self.symbols, self._sent_from_there())
            tree = self._snapshot()
        with self.bar("kernel"):
            self._match(tree)
        with self.bar("DtoH"):
            slot.download(self.symbols)
            if piece.grow:
                slot.growth.total.copy_to_host(slot.growth.pinned_total, stream=slot.stream)
            if piece.sets:
                on_card, pinned = slot.sets
                used = slice(self.symbols)
                on_card[used].copy_to_host(pinned[used], stream=slot.stream)

    def _sent_from_there(self) -> PackedChunk | None:
        packed = self.piece.bases if self.piece.pinned else None
        return packed if isinstance(packed, PackedChunk) else None

    def _snapshot(self) -> Any:
        if self.piece.snapshot is None:
            return None
        tree, self.version = self.piece.snapshot()
        piece = self.piece
        return self.card.tree(tree, self.version, piece.method, self.slot, words=piece.words)

    def _match(self, tree: Any) -> None:
        slot, piece = self.slot, self.piece
        if not self.symbols:
            if piece.grow:
                clear(slot.growth.total, slot.stream)
            return
        views = slot.views(self.symbols)
        if piece.words:
            slot.make_words()
        if tree is not None:
            launch(
                tree, slot.buffers, self.symbols, method=piece.method, strands=self.strands,
                with_words=piece.words, stream=slot.stream,
            )  # fmt: skip
        kmers = self.card.kmers
        if kmers is not None and (piece.grow or piece.sets or tree is None):
            # what other streams have put in is there
            self.card.claimed.wait(slot.stream)
        if piece.grow:
            assert kmers is not None
            bases, starts, matches = views.on_card
            kmers.launch(
                "claim" if tree is None else "claim_filtered", 32 * views.words, slot.stream,
                bases, starts, kmers.table, kmers.shift, self.base, matches,
            )  # fmt: skip
            self.card.claimed.record(slot.stream)
            self.decide(kmers)
        elif tree is None:
            assert kmers is not None
            bases, starts, matches = views.on_card
            kmers.launch(
                "find", 32 * views.words, slot.stream,
                bases, starts, kmers.table, kmers.shift, matches,
            )  # fmt: skip
        if piece.sets:
            assert kmers is not None
            kmers.launch(
                "values", 32 * views.words, slot.stream,
                *views.on_card[:2], kmers.table, kmers.shift, slot.sets[0],
            )  # fmt: skip

    def decide(self, kmers: KmerSet) -> None:
        """Queue the choice of first windows among those that no earlier chunk has answered."""
        slot = self.slot
        views = slot.views(self.symbols)
        growth = slot.growth
        bases, starts, matches = views.on_card
        clear(growth.total, slot.stream)
        kmers.launch(
            "decide", 32 * views.words, slot.stream,
            bases, starts, kmers.table, kmers.shift, self.base, matches, growth.counts,
            growth.total,
        )  # fmt: skip

    def decide_again(self) -> None:
        """Once other cards have put their k-mers in: fewer windows may be the first."""
        kmers = self.card.kmers
        assert kmers is not None
        if not self.symbols:
            return
        with self.card.active():
            with self.bar("kernel"):
                self.decide(kmers)
            with self.bar("DtoH"):
                self.slot.download(self.symbols)
                growth = self.slot.growth
                growth.total.copy_to_host(growth.pinned_total, stream=self.slot.stream)

    def land(self) -> ChunkFound:
        """Wait for the results."""
        slot, piece = self.slot, self.piece
        with self.card.active():
            slot.stream.synchronize()
            codes, ordered = self._new() if piece.grow else (None, None)
            words = None
            if piece.words:
                with self.bar("DtoH"):
                    words = slot.download_words() if self.symbols else np.zeros(0, np.uint64)
        slot.tree = None
        _, starts, matches = slot.views(self.symbols).pinned
        there = self._sent_from_there()
        if there is not None:
            starts = there.starts
        sets = slot.sets[1][: self.symbols] if piece.sets else None
        return ChunkFound(piece, self.version, starts, matches, codes, ordered, words, sets)

    def _new(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """The new k-mers in stream order and ascending; waits."""
        slot, growth = self.slot, self.slot.growth
        total = int(growth.pinned_total[0])
        if total:
            kmers = self.card.kmers
            assert kmers is not None
            growth.pin(total)
            views = slot.views(self.symbols)
            with self.bar("kernel"):
                growth.lists.sum(views.words)
                kmers.launch(
                    "compact", 32 * views.words, slot.stream, *views.on_card, growth.sums,
                    growth.codes,
                )  # fmt: skip
                growth.lists.sort(total)
            with self.bar("DtoH"):
                for on_card, pinned in (
                    (growth.codes, growth.pinned_codes),
                    (growth.ordered, growth.pinned_ordered),
                ):
                    on_card[:total].copy_to_host(pinned[:total], stream=slot.stream)
            slot.stream.synchronize()
        return growth.pinned_codes[:total], growth.pinned_ordered[:total]
