"""The nodes of the Hybrid Tree Bitmap (thesis 3.3.13) and the kernels that work on them.

A node is a run of 64-bit words in a pool; its number is the offset of the first:

    word 0    exmap
    word 1    size class << 32 | inmap
    word 2..  one word for every set bit of the exmap, ascending; room for CAPACITY[size class]

A child's word is one of

    1 | 0 | code (62 bits)    a tail: the one k-mer below the child, not yet unfolded into nodes
    0 | offset of a node      a child on an inner level
    inmap                     a child on the last level k // 3, which has nothing else

and there are no child words if the last level uses no symbol (k % 3 == 0): the exmap is enough.
Beyond the thesis: a child takes a word only if it exists (allocating "the child's brothers and
sisters also" is the drawback that 3.4.2 names), the last level has no nodes, and a subtrie of one
k-mer stays a single word (a tail) until a second k-mer is added, which saves sparse tries long
chains of single children.

Each of the 64 first-level subtries (shards) is a separate tree in its own pool, with its root at
offset 0: one bit of the common root's exmap. A kernel processes many shards, so it takes the
addresses and sizes (in words) of their pools.
"""

from __future__ import annotations

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from trie.cpu.intrinsics import pointer, popcount, prefetch
from trie.cpu.jit import njit
from trie.snapshots.tree_bitmap import common_level, inner_inmap, leaf_inmap, symbol_at

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
    return carray(pointer(addresses[shard]), sizes[shard], np.uint64)


@njit(cache=True, nogil=True, inline="always")
def _child_word(code, level, k):
    """The word in a node for a child on ``level`` with one k-mer below it."""
    if level == k // 3:
        return np.uint64(leaf_inmap(code, k % 3))
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
    symbol = symbol_at(code, level, k)
    bit = np.uint64(1) << symbol
    exmap = pool[node]
    head = pool[node + 1]
    if not (level + 1 == k // 3 and k % 3 == 0):
        used = np.int64(popcount(exmap))
        rank = np.int64(popcount(exmap & (bit - np.uint64(1))))
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
            above = np.uint64(1) << symbol_at(code, level - 1, k)
            parent = path[level - 1]
            place = popcount(pool[parent] & (above - np.uint64(1)))
            pool[parent + 2 + np.int64(place)] = node
        for i in range(node + 1 + used, node + 1 + rank, -1):
            pool[i + 1] = pool[i]
        pool[node + 2 + rank] = _child_word(code, level + 1, k)
    pool[node] = exmap | bit
    pool[node + 1] = head | np.uint64(inner_inmap(symbol))


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
        level = min(common_level(code, previous, k), deepest)
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
            bit = np.uint64(1) << symbol_at(code, level, k)
            exmap = pool[node]
            if not exmap & bit:
                _add_child(pool, state, path, code, level, k)
                state[STARTED + level + 1] += 1
                fresh = True
                break
            if bare and level + 1 == last:
                break
            place = node + 2 + np.int64(popcount(exmap & (bit - np.uint64(1))))
            word = pool[place]
            if level + 1 == last:
                inmap = word | np.uint64(leaf_inmap(code, k % 3))
                fresh = inmap != word
                pool[place] = inmap
                break
            if word == TAIL | code:
                break
            level += 1
            if word & TAIL:
                # unfold the tail by one node and descend from there
                tail = word & ~TAIL
                room = 1 if common_level(code, tail, k) > level else 2
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
            for i in range(node + 2, node + 2 + np.int64(popcount(pool[node]))):
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
        found = np.int64(0)
        first_child = following[level + 1]
        kept = not (bare and level + 1 == last)
        at = following[level]
        for i in range(counts[level]):
            ahead = words[min(i + 16, counts[level] - 1)]
            if not ahead & TAIL:
                prefetch(pool, np.int64(ahead))
            word = words[i]
            if word & TAIL:
                code = word & ~TAIL
                symbol = symbol_at(code, level, k)
                inmaps[at + i] = inner_inmap(symbol)
                exmaps[at + i] = np.uint64(1) << symbol
                prefix_sums[at + i] = first_child + found
                if kept:
                    below[found] = _child_word(code, level + 1, k)
                found += 1
            else:
                node = np.int64(word)
                exmap = pool[node]
                inmaps[at + i] = np.uint32(pool[node + 1] & np.uint64(0xFFFFFFFF))
                exmaps[at + i] = exmap
                prefix_sums[at + i] = first_child + found
                children = np.int64(popcount(exmap))
                if kept:
                    for child in range(children):
                        below[found + child] = pool[node + 2 + child]
                found += children
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
