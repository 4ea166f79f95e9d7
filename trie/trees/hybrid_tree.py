r"""The Hybrid Tree Bitmap (thesis 3.3.13): a growing trie whose nodes look like trie-nodes.

A node is a run of 64-bit words in a pool; its number is the offset of the first:

    word 0    exmap
    word 1    size class << 32 | inmap
    word 2..  one word for every set bit of the exmap, ascending; room for CAPACITY[size class]

A child's word is one of

    1 | 0 | code (62 bits)    a tail: the one k-mer below the child, not yet unfolded into nodes
    0 | offset of a node      a child on an inner level
    inmap                     a child on the last level k // 3, which has nothing else

and there are no child words if the last level uses no symbol (k % 3 == 0): the exmap is enough.
Beyond the thesis: a child takes a word only if it exists (3.4.2 names the drawback), the last level
has no nodes, and a subtrie of one k-mer stays a single word (a tail).

Each of the 64 first-level subtries (shards) is a separate tree in its own pool, with its root at
offset 0: one bit of the common root's exmap. A kernel processes many shards, so it takes the
addresses and sizes (in words) of their pools.

Ascending k-mers are merged into a shard in one linear pass, without a look-up:

    old pool --list--> codes  \
                               join --> codes --build--> new pool
    new k-mers         codes  /

``build`` keeps the nodes on the path to the last k-mer open: their exmaps, and the words of their
children so far. A k-mer hangs from the deepest node that it shares with the previous or next k-mer.
A node that the next k-mer does not share is complete: it is written in the size that it needs, and
its offset becomes a word of its parent. So children precede their parents, and each word is written
once, in order. The steps pass on blocks of 1,024 codes, which stay in the first-level cache.
"""

import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import NoReturn

import numpy as np
from numba import carray  # type: ignore[attr-defined]
from numpy.typing import ArrayLike, NDArray

from trie.ascending import merge_into
from trie.codes import check_k
from trie.cpu import array_pool, intrinsics
from trie.cpu.jit import njit
from trie.cpu.threads import run_each, split_range, usable_cores
from trie.snapshots import tree_bitmap
from trie.trees.shards import SHARDS, SMALL, as_codes, check_range, group, sort_unique

CAPACITY = np.array([0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64])
TAIL = np.uint64(1 << 63)

# the int64 state of a shard: words used from the front of the pool, how many of them are in free
# nodes, k-mers, heads of the free lists by size class (0: empty), and for every level how many
# k-mers were the first to need a node there
USED = 0
FREED = 1
KMERS = 2
FREE = 3
STARTED = FREE + len(CAPACITY)
STATE = STARTED + 12

# more words than one k-mer can take from the end of a pool: a tail unfolded down to the last level,
# four words per node, and a full node moved to the next size
MARGIN = 128


@njit(cache=True, nogil=True, inline="always")
def _pool_at(addresses, sizes, shard):
    """The pool of a shard. Its owner keeps it alive and in place while a kernel runs."""
    return carray(intrinsics.pointer(addresses[shard]), sizes[shard], np.uint64)


@njit(cache=True, nogil=True, inline="always")
def _child_word(code, level, k):
    """The word in a node for a child on ``level`` with one k-mer below it."""
    if level == k // 3:
        return np.uint64(tree_bitmap.leaf_inmap(code, k % 3))
    return TAIL | code


@njit(cache=True, nogil=True)
def _new_node(pool, state, size_class):
    """The number of an unused node, from the free list if possible."""
    node = state[FREE + size_class]
    if node:
        state[FREE + size_class] = pool[node]
        state[FREED] -= 2 + CAPACITY[size_class]
    else:
        node = state[USED]
        state[USED] = node + 2 + CAPACITY[size_class]
    pool[node] = 0
    pool[node + 1] = np.uint64(size_class) << np.uint64(32)
    return node


@njit(cache=True, nogil=True)
def _add_child(pool, state, path, code, level, k):
    """Add a code's child to the path's node on ``level``, which may move to grow."""
    node = path[level]
    symbol = tree_bitmap.symbol_at(code, level, k)
    bit = np.uint64(1) << symbol
    exmap = pool[node]
    head = pool[node + 1]
    if not (level + 1 == k // 3 and k % 3 == 0):
        used = np.int64(intrinsics.popcount(exmap))
        rank = np.int64(intrinsics.popcount(exmap & (bit - np.uint64(1))))
        size_class = np.int64(head >> np.uint64(32))
        if used == CAPACITY[size_class]:
            old = node
            node = _new_node(pool, state, size_class + 1)
            head += np.uint64(1 << 32)
            for i in range(2, 2 + used):
                pool[node + i] = pool[old + i]
            pool[old] = state[FREE + size_class]
            state[FREE + size_class] = old
            state[FREED] += 2 + CAPACITY[size_class]
            path[level] = node
            above = np.uint64(1) << tree_bitmap.symbol_at(code, level - 1, k)
            parent = path[level - 1]
            place = intrinsics.popcount(pool[parent] & (above - np.uint64(1)))
            pool[parent + 2 + np.int64(place)] = node
        for i in range(node + 1 + used, node + 1 + rank, -1):
            pool[i + 1] = pool[i]
        pool[node + 2 + rank] = _child_word(code, level + 1, k)
    pool[node] = exmap | bit
    pool[node + 1] = head | np.uint64(tree_bitmap.inner_inmap(symbol))


@njit(cache=True, nogil=True)
def insert(codes, start, k, addresses, sizes, states):
    """Insert codes[start:], in any order, until one might not fit its pool; where to resume.

    ``path`` holds the nodes on the path to the previous code, so a code starts at the deepest node
    that both share: ascending codes take few steps. The shard can change only on level 0.
    """
    last = k // 3
    bare = k % 3 == 0  # children on the last level have no words
    path = np.zeros(12, dtype=np.int64)
    deepest = np.int64(0)
    previous = np.uint64(0)
    pool = _pool_at(addresses, sizes, 0)
    state = states[0]
    for i in range(start, codes.size):
        code = codes[i]
        level = min(tree_bitmap.common_level(code, previous, k), deepest)
        previous = code
        if level == 0:
            shard = np.int64(code >> np.uint64(2 * (k - 3)))
            pool = _pool_at(addresses, sizes, shard)
            state = states[shard]
            if state[USED] == 0:
                _new_node(pool, state, 0 if bare and last == 1 else 1)
        if state[USED] + MARGIN > pool.size:
            return i
        fresh = False
        while True:
            node = path[level]
            bit = np.uint64(1) << tree_bitmap.symbol_at(code, level, k)
            exmap = pool[node]
            if not exmap & bit:
                _add_child(pool, state, path, code, level, k)
                state[STARTED + level + 1] += 1
                fresh = True
                break
            if bare and level + 1 == last:
                break
            place = node + 2 + np.int64(intrinsics.popcount(exmap & (bit - np.uint64(1))))
            word = pool[place]
            if level + 1 == last:
                inmap = word | np.uint64(tree_bitmap.leaf_inmap(code, k % 3))
                fresh = inmap != word
                pool[place] = inmap
                break
            if word == TAIL | code:
                break
            level += 1
            if word & TAIL:
                # unfold the tail by one node and descend from there
                tail = word & ~TAIL
                room = 1 if tree_bitmap.common_level(code, tail, k) > level else 2
                path[level] = _new_node(pool, state, 0 if bare and level + 1 == last else room)
                pool[place] = np.uint64(path[level])
                _add_child(pool, state, path, tail, level, k)
            else:
                path[level] = np.int64(word)
        deepest = level
        state[KMERS] += fresh
    return codes.size


@njit(cache=True, nogil=True)
def _copy_node(old, node, pool, at):
    """Copy a node to another pool; the index of the first word after the copy."""
    words = 2 + CAPACITY[np.int64(old[node + 1] >> np.uint64(32))]
    for i in range(words):
        pool[at + i] = old[node + i]
    return at + words


@njit(cache=True, nogil=True)
def move(old, pool, k, state):
    """Copy the nodes in use, breadth-first, to a pool with room for them; drop the free ones.

    A copied node holds its children's old offsets until the scan reaches it, copies the children to
    the end and replaces the offsets.
    """
    end = _copy_node(old, np.int64(0), pool, np.int64(0))
    level_end = end
    level = 0
    node = np.int64(0)
    while node < end:
        if node == level_end:
            level += 1
            level_end = end
        if level + 1 < k // 3:
            for i in range(node + 2, node + 2 + np.int64(intrinsics.popcount(pool[node]))):
                word = pool[i]
                if not word & TAIL:
                    pool[i] = end
                    end = _copy_node(old, np.int64(word), pool, end)
        node += 2 + CAPACITY[np.int64(pool[node + 1] >> np.uint64(32))]
    state[USED] = end
    state[FREED] = 0
    state[FREE : FREE + CAPACITY.size] = 0


@njit(cache=True, nogil=True)
def _emit_shard(pool, k, counts, following, words, below, inmaps, exmaps, prefix_sums):
    """Write the nodes of one shard from level 1 down, carrying the child words of one level.

    ``counts`` and ``following`` hold the shard's nodes and its first index on every level;
    ``words`` and ``below`` have room for the nodes of its widest level.
    """
    last = k // 3
    bare = k % 3 == 0
    words[0] = pool[2]
    for level in range(1, last):
        number = np.int64(0)
        first_child = following[level + 1]
        kept = not (bare and level + 1 == last)
        at = following[level]
        for i in range(counts[level]):
            ahead = words[min(i + 16, counts[level] - 1)]
            if not ahead & TAIL:
                intrinsics.prefetch(pool, np.int64(ahead))
            word = words[i]
            if word & TAIL:
                code = word & ~TAIL
                symbol = tree_bitmap.symbol_at(code, level, k)
                inmaps[at + i] = tree_bitmap.inner_inmap(symbol)
                exmaps[at + i] = np.uint64(1) << symbol
                prefix_sums[at + i] = first_child + number
                if kept:
                    below[number] = _child_word(code, level + 1, k)
                number += 1
            else:
                node = np.int64(word)
                exmap = pool[node]
                inmaps[at + i] = np.uint32(pool[node + 1] & np.uint64(0xFFFFFFFF))
                exmaps[at + i] = exmap
                prefix_sums[at + i] = first_child + number
                children = np.int64(intrinsics.popcount(exmap))
                if kept:
                    for child in range(children):
                        below[number + child] = pool[node + 2 + child]
                number += children
        words, below = below, words
    at = following[last]
    for i in range(counts[last]):
        inmaps[at + i] = 1 if bare else np.uint32(words[i])
        exmaps[at + i] = 0
        prefix_sums[at + i] = following[last + 1]


@njit(cache=True, nogil=True)
def emit(first, stop, k, addresses, sizes, counts, starts, inmaps, exmaps, prefix_sums):
    """Write the nodes of the shards first..stop - 1: ``counts`` of them, from ``starts`` on."""
    widest = counts[first:stop].max()
    words = np.empty(widest, dtype=np.uint64)
    below = np.empty(widest, dtype=np.uint64)
    for shard in range(first, stop):
        if counts[shard, k // 3]:
            pool = _pool_at(addresses, sizes, shard)
            _emit_shard(
                pool, k, counts[shard], starts[shard], words, below, inmaps, exmaps, prefix_sums
            )


BLOCK = 1024
LEVELS = 12
# words that a block may add: a pair of k-mers may need its own chain of nodes down to the last
# level, at most 4 words each, and the open nodes may be full
SLACK = 20 * BLOCK + 66 * LEVELS

# the smallest size class for each number of children
CLASS_OF = np.searchsorted(CAPACITY, np.arange(65)).astype(np.uint64)
SIZE_OF = CAPACITY.astype(np.uint64)


@njit(cache=True, nogil=True, inline="always")
def _inmap_of(exmap):
    """The inmap of an inner node: itself, and the path to each child in its exmap."""
    x = exmap | (exmap >> np.uint64(2))
    x = (x | (x >> np.uint64(1))) & np.uint64(0x1111111111111111)
    x = (x | (x >> np.uint64(3))) & np.uint64(0x0303030303030303)
    x = (x | (x >> np.uint64(6))) & np.uint64(0x000F000F000F000F)
    x = (x | (x >> np.uint64(12))) & np.uint64(0x000000FF000000FF)
    x = (x | (x >> np.uint64(24))) & np.uint64(0xFFFF)
    y = x | (x >> np.uint64(2))
    y = (y | (y >> np.uint64(1))) & np.uint64(0x1111)
    y = (y | (y >> np.uint64(3))) & np.uint64(0x0303)
    y = (y | (y >> np.uint64(6))) & np.uint64(0xF)
    return np.uint64(1) | (y << np.uint64(1)) | (x << np.uint64(5))


@njit(cache=True, nogil=True)
def _list(pool, k, depth, pending, place, prefix, block):
    """The next k-mers of a tree, up to BLOCK, ascending: (their number, the depth to resume at).

    ``pending``, ``place``, ``prefix`` describe the node being read on every level above ``depth``:
    the remaining bits of its exmap, where their words begin, and the symbols that lead to it. Depth
    0 means the end.
    """
    one = np.uint64(1)
    six = np.uint64(6)
    last = np.uint64(k // 3)
    symbols = np.uint64(k % 3)
    full = np.uint64(BLOCK - 16)
    filled = np.uint64(0)
    rest = pending[depth - one]
    at = place[depth - one]
    while filled <= full:
        if rest == 0:
            depth -= one
            if depth == 0:
                break
            rest = pending[depth - one]
            at = place[depth - one]
        elif depth < last:
            word = pool[at]
            at += one
            if word & TAIL:
                block[filled] = word ^ TAIL
                filled += one
                rest &= rest - one
            else:
                pending[depth - one] = rest & (rest - one)
                place[depth - one] = at
                prefix[depth] = (prefix[depth - one] << six) | np.uint64(
                    intrinsics.trailing_zeros(rest)
                )
                rest = pool[word]
                at = word + np.uint64(2)
                depth += one
        else:
            code = (prefix[depth - one] << six) | np.uint64(intrinsics.trailing_zeros(rest))
            rest &= rest - one
            if symbols == 0:
                block[filled] = code
                filled += one
            else:
                leaves = pool[at] >> np.uint64(1 if symbols == 1 else 5)
                at += one
                code <<= np.uint64(2) * symbols
                while leaves != 0:
                    block[filled] = code | np.uint64(intrinsics.trailing_zeros(leaves))
                    leaves &= leaves - one
                    filled += one
    if depth != 0:
        pending[depth - one] = rest
        place[depth - one] = at
    return filled, depth


@njit(cache=True, nogil=True)
def _join(old, i, stop_i, ended, codes, j, stop_j, out):
    """Merge old[i:stop_i] and codes[j:stop_j] until ``out`` is full or more old codes are needed.

    ended: the old codes end at stop_i. Equal codes may appear twice. Returns (i, j, number
    written).
    """
    one = np.uint64(1)
    filled = np.uint64(0)
    limit = np.uint64(out.size)
    while True:
        # steps in which neither side can end
        steps = min(limit - filled, min(stop_i - i, stop_j - j))
        if steps == 0:
            break
        for _ in range(steps):
            a = old[i]
            b = codes[j]
            out[filled] = min(a, b)
            filled += one
            i += np.uint64(a <= b)
            j += np.uint64(b <= a)
    if i == stop_i and ended:
        count = min(stop_j - j, limit - filled)
        for n in range(count):
            out[filled + n] = codes[j + n]
        j += count
        filled += count
    elif j == stop_j:
        count = min(stop_i - i, limit - filled)
        for n in range(count):
            out[filled + n] = old[i + n]
        i += count
        filled += count
    return i, j, filled


@njit(cache=True, nogil=True)
def _levels(codes, k, previous, levels):
    """levels[i] = the deepest level on which codes[i] and the code before it have the same node.

    previous: the code before the first. The loop is branch-free, so that it vectorizes.
    """
    short = np.uint64(64 - 2 * k)
    before = previous
    for i in range(codes.size):
        code = codes[i]
        unlike = np.uint64(intrinsics.leading_zeros(code ^ before)) - short
        levels[i] = np.uint8((unlike * np.uint64(43)) >> np.uint64(8))  # a sixth, below 64
        before = code


@njit(cache=True, nogil=True)
def _build(codes, levels, k, waiting, shared, exmaps, counts, children, pool, state):
    """Place ``waiting`` and all codes but the last; close the nodes that are complete.

    waiting: the code that waits for its successor; shared: the level down to which it shares nodes
    with its predecessor. Both are returned for the next block. levels: of ``_levels``. ``exmaps``
    and ``counts`` (of children) belong to the open node of each level; ``children`` holds its
    words, 64 per level. The first code of a shard is counted when the shard ends.
    """
    # unsigned throughout: numba checks the sign of a signed index
    one = np.uint64(1)
    eight = np.uint64(8)
    bottom = np.uint64(k // 3 - 1)
    bare = k % 3 == 0
    symbols = k % 3
    wide = np.uint64(2 * (k - 3))
    used = np.uint64(state[USED])
    kmers = state[KMERS]
    for i in range(np.uint64(codes.size)):
        code = codes[i]
        if code == waiting:
            continue
        following = np.uint64(levels[i])
        state[np.uint64(STARTED + 1) + following] += 1
        kmers += 1
        level = min(max(shared, following), bottom)
        number = counts[level]
        at = (level << np.uint64(6)) + number
        if shared > bottom:
            children[at - one] |= np.uint64(tree_bitmap.leaf_inmap(waiting, symbols))
        else:
            word = TAIL | waiting
            if level == bottom:
                word = np.uint64(tree_bitmap.leaf_inmap(waiting, symbols))
            children[at] = word
            exmaps[level] |= one << ((waiting >> (wide - np.uint64(6) * level)) & np.uint64(63))
            counts[level] = number + one
        while level > following:
            exmap = exmaps[level]
            number = counts[level]
            if bare and level == bottom:
                number = np.uint64(0)
            exmaps[level] = 0
            counts[level] = 0
            size_class = CLASS_OF[number]
            pool[used] = exmap
            pool[used + one] = (size_class << np.uint64(32)) | _inmap_of(exmap)
            first = np.uint64(0)
            node = used + np.uint64(2)
            at = level << np.uint64(6)
            while first < number:
                # the next node overwrites the excess
                for n in range(eight):
                    pool[node + n] = children[at + n]
                node += eight
                at += eight
                first += eight
            level -= one
            at = counts[level]
            children[(level << np.uint64(6)) + at] = used
            exmaps[level] |= one << ((waiting >> (wide - np.uint64(6) * level)) & np.uint64(63))
            counts[level] = at + one
            used += np.uint64(2) + SIZE_OF[size_class]
        shared = following
        waiting = code
    state[USED] = used
    state[KMERS] = kmers
    return waiting, shared


@njit(cache=True, nogil=True)
def rebuild(old, old_state, codes, pool, k, state):
    """Write the nodes of a shard and of ``codes`` to ``pool``; False if it is too small.

    codes: ascending, of this shard only. ``state`` (zeros at first) becomes that of the new pool.
    The old pool stays unchanged.
    """
    pending = np.zeros(LEVELS, dtype=np.uint64)
    place = np.zeros(LEVELS, dtype=np.uint64)
    prefix = np.zeros(LEVELS, dtype=np.uint64)
    exmaps = np.zeros(LEVELS, dtype=np.uint64)
    counts = np.zeros(LEVELS, dtype=np.uint64)
    children = np.empty(64 * LEVELS, dtype=np.uint64)
    levels = np.empty(BLOCK, dtype=np.uint8)
    block = np.empty(BLOCK, dtype=np.uint64)
    joined = np.empty(BLOCK, dtype=np.uint64)
    depth = np.uint64(0)
    if old_state[USED]:
        depth = np.uint64(1)
        pending[0] = old[0]
        place[0] = 2
    root_words = 2 + CAPACITY[0 if k == 3 else 1]
    state[USED] = root_words
    only = ~np.uint64(0)
    shared = np.uint64(0)
    i = stop_i = j = np.uint64(0)
    end = np.uint64(codes.size)
    while True:
        if i == stop_i and depth != 0:
            i = np.uint64(0)
            stop_i, depth = _list(old, k, depth, pending, place, prefix, block)
        i, j, filled = _join(block, i, stop_i, depth == 0, codes, j, end, joined)
        if filled == 0 and depth == 0:
            break
        if state[USED] + SLACK > pool.size:
            return False
        first = np.uint64(0)
        if only == ~np.uint64(0) and filled != 0:
            only = joined[0]
            first = np.uint64(1)
        part = joined[first:filled]
        _levels(part, k, only, levels)
        only, shared = _build(part, levels, k, only, shared, exmaps, counts, children, pool, state)
    # a sentinel that shares only the root: it places the last code and closes all other nodes
    joined[0] = ~only
    levels[0] = 0
    _build(joined[:1], levels, k, only, shared, exmaps, counts, children, pool, state)
    pool[0] = exmaps[0]
    pool[1] = (CLASS_OF[root_words - 2] << np.uint64(32)) | _inmap_of(exmaps[0])
    if root_words > 2:
        pool[2] = children[0]
    return True


def _joined(runs: Sequence[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """Ascending runs merged pairwise; repeats may remain."""
    runs = [run for run in runs if run.size]
    while len(runs) > 1:
        level = []
        for own, other in zip(runs[::2], [*runs[1::2], runs[-1][:0]], strict=False):
            # fresh memory costs as much as the work, and more when several threads allocate it
            level.append(array_pool.empty(own.size + other.size, np.uint64))
            merge_into(own, other, level[-1])
        runs = level
    return runs[0]


# of a shard's pool; a cache line above a power of two, or all roots would share one cache set
FIRST_WORDS = 512 + 8
SMALL_POOL = 4096
NOT_ASCENDING = "the k-mers of a run do not ascend"
# words per k-mer in a new tree; a shard whose pool was too small is written again
FIRST_WORDS_EACH = 2.0
# a linear pass merges at least MERGED_FROM ascending k-mers if the shard holds at most MERGED_SHARE
# times as many: a search takes about ten times as long as passing a k-mer
MERGED_FROM = 256
MERGED_SHARE = 8


class HybridTreeBitmap:
    """A growing set of k-mers that turns into a snapshot fast. One writer at a time."""

    def __init__(self, k: int) -> None:
        self.k = operator.index(k)
        check_k(self.k)
        self._tiny = np.zeros(4**self.k if self.k < 3 else 0, dtype=np.bool_)  # k < 3: a root only
        self._state = np.zeros((SHARDS, STATE), dtype=np.int64)
        self._first_pools = np.empty((SHARDS, FIRST_WORDS), dtype=np.uint64)
        self._grown_pools: dict[int, NDArray[np.uint64]] = {}
        self._sizes = np.full(SHARDS, FIRST_WORDS, dtype=np.int64)
        self._addresses = np.arange(SHARDS, dtype=np.uint64)
        self._addresses *= np.uint64(self._first_pools.strides[0])
        self._addresses += np.uint64(intrinsics.array_address(self._first_pools))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a HybridTreeBitmap cannot be copied or pickled; its snapshot can")

    def __len__(self) -> int:
        """The number of k-mers."""
        return int(self._tiny.sum() + self._state[:, KMERS].sum())

    def memory_bytes(self) -> int:
        """Bytes of the pools, including unused room, and of their state."""
        tables = (self._tiny, self._state, self._sizes, self._addresses, self._first_pools)
        return sum(array.nbytes for array in (*tables, *self._grown_pools.values()))

    def insert(self, codes: ArrayLike, threads: int | None = None) -> None:
        """Add k-mers (uint64[n], in any order; ascending is fastest), shards in parallel.

        Raises ValueError, and adds nothing, if a code is not below 4**k.
        """
        codes = as_codes(codes)
        if self.k < 3:
            self._insert_tiny(codes)
            return
        if codes.size < SMALL or 4**self.k <= SMALL:  # grouping would cost more than it gains
            check_range(codes, self.k)
            self._insert(codes, SHARDS)
            return
        threads = threads or usable_cores()
        # shard by shard even on one thread: a shard stays in the cache
        grouped, bounds, ascending = group(codes, self.k, threads)

        def add(shard: int, start: int, stop: int) -> None:
            if ascending:
                self._merge_into_shard(shard, grouped[start:stop])
            else:
                self._insert(grouped[start:stop], 1)

        filled = [(n, a, b) for n, (a, b) in enumerate(pairwise(bounds)) if b > a]
        run_each(add, filled, threads)

    def merge(self, runs: Sequence[ArrayLike], threads: int | None = None) -> None:
        """Add ascending runs of k-mers (uint64[n] each; repeats allowed, within and between runs).

        Much faster than ``insert`` for runs that are long compared to the tree: a shard that grows
        by an eighth or more is rewritten in one linear pass (trie/trees/hybrid_tree.py), shards in
        parallel. Raises ValueError, and adds nothing, if a run does not ascend or a code is not
        below 4**k.
        """
        threads = threads or usable_cores()
        codes = [run for run in map(as_codes, runs) if run.size]
        if self.k < 3:
            for run in codes:
                check_range(run, self.k)
                if np.any(run[1:] < run[:-1]):
                    raise ValueError(NOT_ASCENDING)
            for run in codes:
                self._insert_tiny(run)
            return
        cut = []
        for run in codes:
            grouped = group(run, self.k, threads)
            if not grouped.ascending:
                raise ValueError(NOT_ASCENDING)
            cut.append(grouped.bounds)
        sizes = sum((np.diff(bounds) for bounds in cut), start=np.zeros(SHARDS, np.int64))
        # most work first, so that the cores finish together
        work = np.argsort(-(sizes + self._state[:, KMERS]))

        def merge_shard(shard: int) -> None:
            parts = [run[b[shard] : b[shard + 1]] for run, b in zip(codes, cut, strict=True)]
            self._merge_into_shard(shard, _joined(parts))

        run_each(merge_shard, [[int(shard)] for shard in work if sizes[shard]], threads)

    def _insert_tiny(self, codes: NDArray[np.uint64]) -> None:
        check_range(codes, self.k)
        self._tiny[codes] = True

    def _merge_into_shard(self, shard: int, codes: NDArray[np.uint64]) -> None:
        """Insert ascending codes of one shard."""
        state = self._state[shard]
        before = int(state[KMERS])
        if codes.size < MERGED_FROM or MERGED_SHARE * codes.size < before:
            self._insert(codes, 1)
            return
        old = self._pool_of(shard)
        kmers = before + codes.size
        each = int(state[USED] - state[FREED]) / before if before else FIRST_WORDS_EACH
        while True:
            # untouched pages take no memory; the excess is released below
            pool = np.empty(int(1.5 * each * kmers) + SLACK, dtype=np.uint64)
            fresh = np.zeros(STATE, dtype=np.int64)
            if rebuild(old, state, codes, pool, self.k, fresh):
                break
            each *= 2
        pool.resize(int(fresh[USED]) + MARGIN, refcheck=False)
        self._replace(shard, pool)
        self._state[shard] = fresh

    def _insert(self, codes: NDArray[np.uint64], shards: int) -> None:
        """Insert codes, in any order, of about ``shards`` shards."""
        pools = (self._addresses, self._sizes, self._state)
        start = 0
        while True:
            start = insert(codes, start, self.k, *pools)
            if start == codes.size:
                return
            shard = int(codes[start]) >> (2 * (self.k - 3))
            self._grow(shard, (codes.size - start) // shards)

    def _pool_of(self, shard: int) -> NDArray[np.uint64]:
        return self._grown_pools.get(shard, self._first_pools[shard])

    def _replace(self, shard: int, pool: NDArray[np.uint64]) -> None:
        self._grown_pools[shard] = pool
        self._sizes[shard] = pool.size
        self._addresses[shard] = intrinsics.array_address(pool)

    def _grow(self, shard: int, to_come: int) -> None:
        """Grow a pool by half of what is in use; by more in a small tree or for a large batch."""
        state = self._state[shard]
        live = int(state[USED] - state[FREED])
        room = max(live // 2, min(live, SMALL_POOL), min(3 * to_come, 4 * live))
        pool = np.empty(live + room + 2 * MARGIN, dtype=np.uint64)
        move(self._pool_of(shard), pool, self.k, state)
        self._replace(shard, pool)

    def to_tree_bitmap(self, threads: int | None = None) -> tree_bitmap.TreeBitmap:
        """The snapshot: every shard writes its nodes, level by level, to their final places.

        Raises TooManyNodesError above 2**32 - 1 trie-nodes.
        """
        if self.k < 3:
            codes = np.flatnonzero(self._tiny).astype(np.uint64)
            return tree_bitmap.allocate(self.k, np.zeros((1, 1), dtype=np.int64), codes)[0]
        threads = threads or usable_cores()
        counts = np.cumsum(self._state[:, STARTED : STARTED + self.k // 3 + 1], axis=1)
        present = np.flatnonzero(self._state[:, KMERS])
        tree, starts = tree_bitmap.allocate(self.k, counts, present.astype(np.uint64))
        pools = (self._addresses, self._sizes)
        arrays = (tree.inmaps, tree.exmaps, tree.prefix_sums)
        parts = split_range(0, SHARDS, 1 if tree.node_count < SMALL else 8 * threads)
        run_each(lambda a, b: emit(a, b, self.k, *pools, counts, starts, *arrays), parts, threads)
        return tree


def snapshot(codes: ArrayLike, k: int, threads: int | None = None) -> tree_bitmap.TreeBitmap:
    """The Tree Bitmap of a set of k-mers given as codes (uint64[n]) in any order, repeats allowed.

    Raises ValueError unless 1 <= k <= 31 and every code is an integer in 0..4**k - 1, and
    TooManyNodesError if the trie is too large. Thesis 3.3.2-3.3.3.

    >>> import numpy as np
    >>> import trie
    >>> codes = np.array([0b00_01_10_11, 0b00_01_10_00], np.uint64)  # ACGT and ACGA
    >>> made = trie.snapshot(codes, 4)
    >>> made.level_offsets.tolist(), made.exmaps.tolist()
    ([0, 1, 2], [64, 0])
    """
    tree, threads = HybridTreeBitmap(k), threads or usable_cores()
    tree.merge([sort_unique(as_codes(codes), tree.k, threads)], threads)
    return tree.to_tree_bitmap(threads)
