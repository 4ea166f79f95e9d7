"""Queue the kernels that match one chunk of the stream against a snapshot on the GPU.

**shuffle** (thesis 3.3.8): one lane per depth, ``shfl`` passes the trie-node on. A sub-warp of 8,
16 or 32 lanes (k <= 7, 15, 31) reads a piece of the stream, a symbol at a time. Lane d holds the
state at depth d, which belongs to the window that began d symbols ago:

    lane      0         1         2         3         4     ...   k-1
    depth     0  shfl>  1  shfl>  2  shfl>  3  shfl>  4     ...   k-1 -> match
    symbol    internal  internal  external  internal  internal

Lane 0 holds the root wherever a window may begin. Every third lane does the external transition: a
bit of the exmap, equation 2, and one 16-byte load of the child's record (the interleaved ``nodes``
of gpu/exact/walk.py). The others test a bit of the inmap. Then all states move up one lane:

    state   uint32   25 active | 24-21 symbols since the node's own depth (b0, b0 b1) | 20-0 inmap
    exmap   uint64,  prefix sum uint32,  and, with event words, the node's index uint32

Words are written by ballot: a warp reserves its share of the match buffer with one atomic addition
(one word per window), and on each symbol the reporting lanes write adjacent words. Operations per
symbol and warp: about 50, of them 4 shuffles (5 with event words), for 4, 2 or 1 windows; 16 bytes
loaded in every third lane whose state continues.

**naive** (thesis 3.3.7, Fig. 12-15): visit every trie-node on every symbol. Blocks take pieces of
the stream; the threads of a block take turns with the trie-nodes of a level, deepest level first,
with ``syncthreads`` between levels, so that no state moves twice on a symbol. Each block has its
own active inmaps in global memory, laid out like inmaps:

    bit 0 the node (depth 3l) | bits 1-4 depth 3l + 1 | bits 5-20 depth 3l + 2

A node's step on symbol c: its depth-2 bits form the exmap mask (Fig. 14); each of its bits that is
set in the exmap activates the root bit of a child (equation 2). Its other bits form the next depths
of the same inmap (Fig. 13). Active states missing from the queried bitmaps are mismatches and are
cleared. States at depth k are matches and end there.

Both read the stream in one direction, but a canonical window is the smaller of its code and that of
its reverse complement. So the stream is read twice: forward for the windows whose own code is the
smaller (or equal), and as its reverse complement for the others. Symbol r of the mirrored stream is
the complement of symbol n - 1 - r, and the window at s becomes the one at n - k - s.

    split   one thread per symbol: two start masks, and the mirrored stream  (two ballots)
    merge   one thread per symbol: the mirrored matches back in place        (one ballot)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu.card.intrinsics import (
    ALL_LANES,
    as_signed,
    bit_mask_below,
    cuda,
    device_function,
    load_pair,
    load_word,
    population,
)
from gpu.card.kernel_cache import made, plain, with_threads
from gpu.card.memory import Workspace
from gpu.card.packing import packed_sizes
from gpu.exact import bucket_table, walk
from gpu.exact.device_tree import WORD_NODES, DeviceTree, clear
from gpu.exact.window_bits import (
    bit_of,
    children_before,
    event_word,
    first_symbols,
    has_bit,
    reverse_complement_left,
    symbol_of,
    window_at,
)
from trie.strands import Strands

SHUFFLE_THREADS = 128  # threads per block; any multiple of 32


def sub_warp(k: int) -> int:
    """Lanes for the depths 0..k - 1 and, as in the thesis, for depth k."""
    return 8 if k <= 7 else 16 if k <= 15 else 32


def shuffle(k: int, with_words: bool) -> Callable[..., None]:
    """The kernel; 32 | block, one sub-warp per piece of the stream.

    Arguments: bases uint32[], starts uint32[W], symbols uint32, mirror uint32, piece uint32, nodes
    uint64[2 N], matches uint32[W], words uint64[capacity], counter uint32[1].
    32 | piece, and grid * block / sub_warp(k) * piece >= 32 W. Every word of ``matches`` is
    written. ``mirror`` is 0, or the number of symbols if the stream is the reverse complement of
    the chunk: then the words use positions of the chunk, and ``matches`` those of the stream.
    """
    width = sub_warp(k)
    flush = (k + 30) & 31  # the symbol of a group of 32 that completes a word of window starts
    tail = 0 if k == 1 else 1

    def kernel(bases, starts, symbols, mirror, piece, nodes, matches, words, counter):
        thread = np.uint32(cuda.grid(1))
        warp_lane = np.uint32(thread & np.uint32(31))
        lane = np.uint32(thread & np.uint32(width - 1))
        role = np.uint32(lane % np.uint32(3))
        first = np.uint32(np.uint32(thread // np.uint32(width)) * piece)
        shift = np.uint32(1)
        if role == np.uint32(1):
            shift = np.uint32(5)
        root_exmap, root_more = load_pair(nodes, np.uint32(0))
        root_state = np.uint32(root_more >> np.uint64(32))
        state = np.uint32(0)
        exmap = np.uint64(0)
        prefix = np.uint32(0)
        node = np.uint32(0)
        bits = np.uint32(0)
        slots = np.uint32(0)
        if with_words:
            # one word per window, so a warp's share of the match buffer is known beforehand
            at = np.uint32(np.uint32(first >> np.uint32(5)) + lane)
            stop = np.uint32(np.uint32(first + piece) >> np.uint32(5))
            while at < stop:
                if at < np.uint32(starts.size):
                    slots = np.uint32(slots + population(np.uint64(load_word(starts, at))))
                at = np.uint32(at + np.uint32(width))
            for step in range(5):
                other = cuda.shfl_xor_sync(ALL_LANES, as_signed(slots), 1 << step)
                slots = np.uint32(slots + np.uint32(other))
            if warp_lane == np.uint32(0) and slots != np.uint32(0):
                slots = np.uint32(cuda.atomic.add(counter, 0, slots))
            slots = np.uint32(cuda.shfl_sync(ALL_LANES, as_signed(slots), 0))
        groups = np.uint32(np.uint32(piece >> np.uint32(5)) + np.uint32(tail))
        for group in range(groups):
            base = np.uint32(first + np.uint32(np.uint32(group) << np.uint32(5)))
            codes = np.uint64(0)
            begins = np.uint32(0)
            if base < symbols:
                at = np.uint32(base >> np.uint32(4))
                codes = np.uint64(np.uint64(load_word(bases, at)) << np.uint64(32))
                codes = np.uint64(codes | load_word(bases, np.uint32(at + np.uint32(1))))
                if lane == np.uint32(0) and np.uint32(group << np.uint32(5)) < piece:
                    begins = np.uint32(load_word(starts, np.uint32(base >> np.uint32(5))))
            for j in range(32):
                symbol = np.uint32(np.uint32(codes >> np.uint64(62 - 2 * j)) & np.uint32(3))
                if lane == np.uint32(0):
                    begun = np.uint32(np.uint32(begins >> np.uint32(j)) & np.uint32(1))
                    state = np.uint32(root_state | np.uint32(begun << np.uint32(25)))
                    exmap = root_exmap
                    prefix = np.uint32(root_more)
                    node = np.uint32(0)
                path = np.uint32(np.uint32(state >> np.uint32(21)) & np.uint32(15))
                path = np.uint32(np.uint32(path << np.uint32(2)) | symbol)
                active = np.uint32(np.uint32(state >> np.uint32(25)) & np.uint32(1))
                exists = np.uint32(
                    np.uint32(state >> np.uint32(shift + np.uint32(path & np.uint32(15))))
                    & np.uint32(1)
                )
                inmap = np.uint32(state & np.uint32(0x1FFFFF))
                holder = node
                if role == np.uint32(2):
                    exists = np.uint32(has_bit(exmap, path))
                    if np.uint32(active & exists):
                        node = np.uint32(prefix + children_before(exmap, path))
                        if lane != np.uint32(k - 1):
                            exmap, more = load_pair(nodes, node)
                            inmap = np.uint32(more >> np.uint64(32))
                            prefix = np.uint32(more)
                    path = np.uint32(0)
                going = np.uint32(active & exists)
                if lane == np.uint32(k - 1):
                    bits = np.uint32(bits | np.uint32(going << np.uint32((j + 33 - k) & 31)))
                    if j == flush:
                        at = np.uint32(base + np.uint32(j))
                        # the first group has symbols before the piece's first window ends
                        if at >= np.uint32(first + np.uint32(k - 1)):
                            out = np.uint32(np.uint32(at - np.uint32(k - 1)) >> np.uint32(5))
                            if out < np.uint32(matches.size):
                                matches[out] = bits
                        bits = np.uint32(0)
                if with_words:
                    report = np.uint32(active & np.uint32(exists ^ np.uint32(1)))
                    if lane == np.uint32(k - 1):
                        report = active
                    votes = np.uint32(cuda.ballot_sync(ALL_LANES, report != np.uint32(0)))
                    below = np.uint32(votes & np.uint32(bit_mask_below(warp_lane)))
                    slot = np.uint32(slots + population(np.uint64(below)))
                    slots = np.uint32(slots + population(np.uint64(votes)))
                    if report and np.uint64(slot) < np.uint64(words.size):
                        index = np.uint32(base + np.uint32(j))
                        if mirror:
                            # from the window's start, plus the depth
                            begin = np.uint32(index - lane)
                            index = np.uint32(np.uint32(mirror - np.uint32(k)) - begin)
                            index = np.uint32(index + lane)
                        if not exists:
                            node = holder
                        words[slot] = event_word(
                            exists == np.uint32(0), index, node, np.uint32(lane + np.uint32(1))
                        )
                if lane >= np.uint32(k - 1):
                    going = np.uint32(0)
                state = np.uint32(
                    inmap
                    | np.uint32(
                        np.uint32(np.uint32(path & np.uint32(15)) << np.uint32(21))
                        | np.uint32(going << np.uint32(25))
                    )
                )
                state = np.uint32(cuda.shfl_up_sync(ALL_LANES, as_signed(state), 1))
                exmap = np.uint64(cuda.shfl_up_sync(ALL_LANES, as_signed(exmap), 1))
                prefix = np.uint32(cuda.shfl_up_sync(ALL_LANES, as_signed(prefix), 1))
                if with_words:
                    node = np.uint32(cuda.shfl_up_sync(ALL_LANES, as_signed(node), 1))

    return kernel


NAIVE_THREADS = 256  # threads per block; any multiple of 32


@device_function
def generate_next_depth(states, symbol):
    """Thesis Fig. 13-14: set bit i of a depth leads to bit 4 i + symbol of the next. uint64."""
    following = np.uint64(0)
    for i in range(16):
        if np.uint32(states >> np.uint32(i)) & np.uint32(1):
            position = np.uint64(np.uint64(4 * i) + np.uint64(symbol))
            following = np.uint64(following | np.uint64(np.uint64(1) << position))
    return following


@device_function
def report(mismatch, symbol, depth, node, k, mirror, out):
    """Write the event at a symbol and depth: the bit of a match, and the word if it fits.

    out: (matches, words, counter).
    """
    matches, words, counter = out
    start = np.uint32(symbol + np.uint32(1) - depth)
    if mirror:
        start = np.uint32(np.uint32(mirror - k) - start)
    if not mismatch:
        bit = np.uint32(np.uint32(1) << np.uint32(start & np.uint32(31)))
        cuda.atomic.or_(matches, np.uint32(start >> np.uint32(5)), bit)
    if words.size:
        slot = cuda.atomic.add(counter, 0, np.uint32(1))
        if slot < words.size:
            index = np.uint32(start + depth - np.uint32(1))
            words[slot] = event_word(mismatch, index, node, depth)


CHILDREN = np.uint32(0x1E)
GRANDCHILDREN = np.uint32(0x1FFFE0)


def naive(
    bases, starts, symbols, k, mirror, piece, level_offsets, inmaps, exmaps, prefix_sums, active,
    matches, words, counter,
):  # fmt: skip
    """The kernel, for any grid.

    Arguments: bases uint32[], starts uint32[W], symbols uint32, k uint32, mirror uint32 (as for the
    shuffle kernel, but ``matches`` also uses positions of the chunk), piece uint32 >= 1,
    level_offsets uint32[k // 3 + 2], inmaps uint32[N], exmaps uint64[N], prefix_sums uint32[N],
    active uint32[grid, N] (zeros before and after), matches uint32[W] (zeros before), words
    uint64[capacity] (size 0: no words), counter uint32[1].
    """
    out = (matches, words, counter)
    levels = k // np.uint32(3)
    block = cuda.blockIdx.x
    first = np.uint32(np.uint32(block) * piece)
    while first < symbols:
        stop = np.uint32(min(np.uint32(symbols - first), piece) + first)
        end = np.uint32(min(np.uint32(symbols - stop), np.uint32(k - np.uint32(1))) + stop)
        for at in range(first, end):
            position = np.uint32(at)
            symbol = symbol_of(bases, position)
            begins = np.uint32(0)
            if position < stop:
                begins = bit_of(starts, position)
            for up in range(levels + np.uint32(1)):
                level = np.uint32(levels - np.uint32(up))
                node = np.uint32(level_offsets[level] + np.uint32(cuda.threadIdx.x))
                while node < level_offsets[level + 1]:
                    states = np.uint32(active[block, node])
                    if level == 0:
                        states = np.uint32(states | begins)
                    if states != np.uint32(0):
                        depth = np.uint32(np.uint32(3) * level)
                        following = np.uint32(0)
                        if depth + 3 <= k:  # Fig. 14, before the inmap changes
                            mask = generate_next_depth(np.uint32(states >> np.uint32(5)), symbol)
                            exmap = exmaps[node]
                            if mask & exmap:
                                for group in range(64):
                                    if (mask & exmap) >> np.uint64(group) & np.uint64(1):
                                        child = np.uint32(
                                            prefix_sums[node]
                                            + children_before(exmap, np.uint64(group))
                                        )
                                        if depth + 3 == k:
                                            report(False, position, k, child, k, mirror, out)
                                        else:
                                            active[block, child] |= np.uint32(1)
                            if mask & ~exmap:
                                deeper = np.uint32(depth + np.uint32(3))
                                report(True, position, deeper, node, k, mirror, out)
                        if depth + 1 <= k:  # Fig. 13, depth 1 before depth 0
                            own = generate_next_depth(np.uint32(states & np.uint32(1)), symbol)
                            following = np.uint32(np.uint32(own) << np.uint32(1))
                        if depth + 2 <= k:
                            ones = np.uint32(np.uint32(states >> np.uint32(1)) & np.uint32(15))
                            two = generate_next_depth(ones, symbol)
                            following = np.uint32(
                                following | np.uint32(np.uint32(two) << np.uint32(5))
                            )
                        queried = np.uint32(inmaps[node])
                        missing = np.uint32(following & np.uint32(~queried))
                        following = np.uint32(following & queried)
                        for inner in range(1, 3):
                            of_depth = CHILDREN if inner == 1 else GRANDCHILDREN
                            deeper = np.uint32(depth + np.uint32(inner))
                            if missing & of_depth:
                                report(True, position, deeper, node, k, mirror, out)
                            if deeper == k and following & of_depth:
                                report(False, position, deeper, node, k, mirror, out)
                                following = np.uint32(following & np.uint32(~of_depth))
                        active[block, node] = following
                    node = np.uint32(node + np.uint32(cuda.blockDim.x))
                cuda.syncthreads()
        first = np.uint32(first + np.uint32(np.uint32(cuda.gridDim.x) * piece))


ORIENT_THREADS = 256  # threads per block; any multiple of 32


def split(bases, starts, symbols, k, forward, mirrored_bases, mirrored):
    """The kernel; at least 32 W threads, 32 | block.

    Arguments: bases uint32[], starts uint32[W], symbols uint32, k uint32, forward uint32[W],
    mirrored_bases uint32[] (as many as bases), mirrored uint32[W].
    """
    thread = np.uint32(cuda.grid(1))
    word = np.uint32(thread >> np.uint32(5))
    if word >= np.uint32(starts.size):
        return  # the whole warp
    straight = False
    if bit_of(starts, thread):
        window = window_at(bases, thread)
        straight = first_symbols(window, k) <= reverse_complement_left(window, k)
    turned = False
    if np.uint32(thread + k) <= symbols:
        start = np.uint32(symbols - np.uint32(thread + k))
        if bit_of(starts, start):
            window = window_at(bases, start)
            turned = first_symbols(window, k) > reverse_complement_left(window, k)
    straight_bits = np.uint32(cuda.ballot_sync(ALL_LANES, straight))
    turned_bits = np.uint32(cuda.ballot_sync(ALL_LANES, turned))
    if np.uint32(thread & np.uint32(31)) == np.uint32(0):
        forward[word] = straight_bits
        mirrored[word] = turned_bits
    if np.uint32(thread & np.uint32(15)) == np.uint32(0):
        value = np.uint32(0)
        for i in range(16):
            at = np.uint32(thread + np.uint32(i))
            value = np.uint32(value << np.uint32(2))
            if at < symbols:
                symbol = symbol_of(bases, np.uint32(np.uint32(symbols - np.uint32(1)) - at))
                value = np.uint32(value | np.uint32(np.uint32(3) - symbol))
        mirrored_bases[np.uint32(thread >> np.uint32(4))] = value


def merge(mirrored, symbols, k, matches):
    """The kernel; launch as ``split``.

    Arguments: mirrored uint32[W], symbols uint32, k uint32, matches uint32[W].
    """
    thread = np.uint32(cuda.grid(1))
    word = np.uint32(thread >> np.uint32(5))
    if word >= np.uint32(matches.size):
        return  # the whole warp
    matched = False
    if np.uint32(thread + k) <= symbols:
        start = np.uint32(symbols - np.uint32(thread + k))
        matched = bit_of(mirrored, start) != np.uint32(0)
    bits = np.uint32(cuda.ballot_sync(ALL_LANES, matched))
    if np.uint32(thread & np.uint32(31)) == np.uint32(0):
        matches[word] = np.uint32(matches[word] | bits)


KERNELS = ("buckets", "walk", "shuffle", "naive")  # names of the methods

NAIVE_ACTIVE_BYTES = 1 << 30
"""Memory for the active inmaps of the naive kernel; it limits the number of blocks."""

NAIVE_BLOCKS = 528
SHUFFLE_PIECES = (64, 1024)  # the shortest and the longest piece of a sub-warp, in symbols

SHUFFLE_SUB_WARPS = 1 << 14
"""Sub-warps that fill a large GPU; short chunks are cut into shorter pieces to have as many."""

CACHED_LENGTHS = 64  # number of chunk lengths whose buffer views are cached
Arrays = tuple[Any, Any, Any]  # bases, starts and matches of a chunk on the GPU


class TooManyWordNodesError(ValueError):
    """A snapshot with more trie-nodes than an event word can name."""

    def __init__(self, node_count: int) -> None:
        super().__init__(
            f"the dictionary has {node_count} trie-nodes, event words can name {WORD_NODES}"
        )


class ChunkBuffers:
    """Device memory for one chunk of at most ``max_symbols``, reused from chunk to chunk.

    bases, starts, matches: uint32, as in gpu/card/packing.py. words: uint64[word_capacity] event
    words, counter: uint32[1], their number (those beyond the capacity are counted but not written).
    scratch: for the kernels that need more.
    """

    def __init__(self, max_symbols: int, *, word_capacity: int = 0) -> None:
        base_words, start_words = packed_sizes(max_symbols)
        self.max_symbols = max_symbols
        self.bases = cuda.device_array(base_words, np.uint32)
        self.starts = cuda.device_array(start_words, np.uint32)
        self.matches = cuda.device_array(start_words, np.uint32)
        self.words = cuda.device_array(word_capacity, np.uint64)
        self.counter = cuda.device_array(1, np.uint32)
        self.scratch = Workspace()
        self._views: dict[int, Arrays] = {}

    def views(self, symbols: int) -> Arrays:
        """The part of each array that a chunk of that length uses; cached, as slicing is slow."""
        arrays = self._views.get(symbols)
        if arrays is None:
            if len(self._views) == CACHED_LENGTHS:
                self._views.clear()
            base_words, start_words = packed_sizes(symbols)
            arrays = self._views[symbols] = (
                self.bases[:base_words],
                self.starts[:start_words],
                self.matches[:start_words],
            )
        return arrays


def launch(
    tree: DeviceTree,
    buffers: ChunkBuffers,
    symbols: int,
    *,
    method: str = "default",
    strands: Strands = "canonical",
    with_words: bool = False,
    stream: Any = 0,
) -> None:
    """Queue the kernels that match the chunk of ``symbols`` symbols in the buffers.

    ``method`` is one of KERNELS or ``default``, the fastest for this k. With words ``buckets``
    means ``walk``, since only the trie knows depths and trie-nodes. Afterwards ``buffers.matches``
    holds a bit per window and, with ``with_words``, ``buffers.words`` and ``buffers.counter`` hold
    the event words in no particular order. With strands ``both`` the snapshot holds both
    orientations and windows are matched as given.

    Raises TooManyWordNodesError for words of a snapshot above 2**27 nodes.
    """
    if method == "default":
        method = bucket_table.default_method(tree.k)
    assert method in KERNELS
    assert symbols <= buffers.max_symbols
    if with_words:
        if tree.node_count > WORD_NODES:
            raise TooManyWordNodesError(tree.node_count)
        clear(buffers.counter, stream)
    if symbols == 0:
        return
    chunk = _Chunk(tree, buffers, symbols, with_words, stream)
    arrays = buffers.views(symbols)
    canonical = strands == "canonical"
    if method == "buckets" and not with_words:
        chunk.look_up(arrays, canonical)
    elif method in ("walk", "buckets"):
        chunk.walk(arrays, canonical)
    elif method == "shuffle":
        chunk.shuffle(arrays, canonical)
    else:
        clear(arrays[2], stream)
        chunk.naive(arrays, canonical)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A chunk in buffers, and the launches for it."""

    tree: DeviceTree
    buffers: ChunkBuffers
    symbols: int
    with_words: bool
    stream: Any

    def look_up(self, arrays: Arrays, canonical: bool) -> None:
        bases, starts, matches = arrays
        tree = self.tree
        assert tree.shape is not None, "sent with its bucket table"
        run = made(bucket_table.lookup, tree.shape, canonical)
        with_threads(run, 32 * starts.size, bucket_table.THREADS, self.stream)(
            bases, starts, tree.table, tree.jump, tree.nodes, tree.leaves, matches
        )

    def walk(self, arrays: Arrays, canonical: bool) -> None:
        bases, starts, matches = arrays
        tree, buffers = self.tree, self.buffers
        make = walk.walk_words if self.with_words else walk.walk_bits
        kernel = made(make, tree.k, canonical)
        run = with_threads(kernel, 32 * starts.size, walk.THREADS, self.stream)
        if self.with_words:
            run(bases, starts, tree.nodes, matches, buffers.words, buffers.counter)
        else:
            run(bases, starts, tree.jump, tree.nodes, tree.leaves, matches)

    def shuffle(self, arrays: Arrays, canonical: bool) -> None:
        if not canonical:
            self._shuffle(arrays, 0)
            return
        forward, mirrored = self._split(arrays)
        there = self._scratch("mirrored_matches", self.buffers.starts)[: arrays[1].size]
        self._shuffle(forward, 0)
        self._shuffle((*mirrored[:2], there), self.symbols)
        with_threads(plain(merge), 32 * there.size, ORIENT_THREADS, self.stream)(
            there, np.uint32(self.symbols), np.uint32(self.tree.k), arrays[2]
        )

    def naive(self, arrays: Arrays, canonical: bool) -> None:
        if not canonical:
            self._naive(arrays, 0)
            return
        forward, mirrored = self._split(arrays)
        self._naive(forward, 0)
        self._naive(mirrored, self.symbols)

    def _split(self, arrays: Arrays) -> tuple[Arrays, Arrays]:
        """The chunk forward and mirrored (``symbol_kernels``), with the matches of ``arrays``."""
        bases, starts, matches = arrays
        forward = self._scratch("forward", self.buffers.starts)[: starts.size]
        mirrored = self._scratch("mirrored", self.buffers.starts)[: starts.size]
        mirrored_bases = self._scratch("mirrored_bases", self.buffers.bases)[: bases.size]
        threads = ORIENT_THREADS
        with_threads(plain(split), 32 * starts.size, threads, self.stream)(
            bases, starts, np.uint32(self.symbols), np.uint32(self.tree.k), forward, mirrored_bases,
            mirrored,
        )  # fmt: skip
        return (bases, forward, matches), (mirrored_bases, mirrored, matches)

    def _scratch(self, name: str, like: Any) -> Any:
        return self.buffers.scratch.array(name, like.size, np.uint32)

    def _shuffle(self, arrays: Arrays, mirror: int) -> None:
        bases, starts, matches = arrays
        tree, buffers, symbols = self.tree, self.buffers, self.symbols
        piece = -(-symbols // (32 * SHUFFLE_SUB_WARPS)) * 32
        piece = min(max(piece, SHUFFLE_PIECES[0]), SHUFFLE_PIECES[1])
        assert piece % 32 == 0
        threads = -(-symbols // piece) * sub_warp(tree.k)
        run = made(shuffle, tree.k, self.with_words)
        with_threads(run, threads, SHUFFLE_THREADS, self.stream)(
            bases, starts, np.uint32(symbols), np.uint32(mirror), np.uint32(piece), tree.nodes,
            matches, buffers.words, buffers.counter,
        )  # fmt: skip

    def _naive(self, arrays: Arrays, mirror: int) -> None:
        bases, starts, matches = arrays
        tree, buffers, symbols = self.tree, self.buffers, self.symbols
        fit = max(1, NAIVE_ACTIVE_BYTES // (4 * tree.node_count))
        blocks = min(NAIVE_BLOCKS, fit, -(-symbols // 32))
        states = blocks * tree.node_count
        active = buffers.scratch.array("active", states, np.uint32)[:states]
        clear(active, self.stream)
        words = buffers.words if self.with_words else buffers.words[:0]
        threads = NAIVE_THREADS
        with_threads(plain(naive), blocks * threads, threads, self.stream)(
            bases, starts, np.uint32(symbols), np.uint32(tree.k), np.uint32(mirror),
            np.uint32(-(-symbols // blocks)), tree.level_offsets, tree.inmaps, tree.exmaps,
            tree.prefix_sums, active.reshape(blocks, tree.node_count), matches, words,
            buffers.counter,
        )  # fmt: skip
