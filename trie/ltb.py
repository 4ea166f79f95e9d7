"""Approximate matching with the Levenshtein Tree Bitmap (thesis 3.3.14-3.3.17) on the CPU.

The automaton runs over a Tree Bitmap snapshot. A state is (trie node, dist-level d); (root, 0) is
always active. On a symbol c each active (v, d) activates

    K   (child of v on c, d)
    I   (v, d + 1)
    S   (child of v on x, d + 1) for every x other than c

provided that the node exists and the level is at most D. A state at depth h and level d accepts if
h >= d + (k - D) (equation 4) and reports the distance d + (k - h): of the deletions, only a subset
is found.
On a gap code there is no K, S goes to every child and there is no mismatch. Every read begins with
(root, 0) alone. The thesis's data structure is in gpu/ltb/sweeping.py.

``run_sliced`` takes 64 W symbols per step, depth first. It transposes the automaton: instead of the
set of states after each symbol, the set of symbols of each state. Bit p of E[d] says that the state
(v, d) is active after symbol p. Then

    P[d]  = E[d] << 1                      active before symbol p; the root's P[0] is all ones
    E[d]  = P[d] of the parent      where p is the symbol x that leads to v               K
          | P[d - 1] of the parent  where it is not (a gap code never is)                 S
          | P[d - 1] of v                                                                 I

and descending the trie needs only the P of the path: (k + 1) (D + 1) vectors of W words for a
dictionary of any size. A subtrie is skipped if no state of its root is active at any of the 64 W
symbols, so the work never exceeds that of the active states. Bits are cleared at the first symbol
of a read, where only the root is active: matches never cross reads, and short reads share a block.

    match bit d + k - h    |=  E[d] of a node at depth h >= d + k - D                  (equation 4)
    mismatch bit h + 1     |=  P[0] of a node at depth h < k, where no child's symbol stands

A block begins k + D - 1 symbols before its first result: no run of the automaton is longer once it
has left (root, 0). Cost: about 10 (D + 1) W operations for each node of the trie (not trie-node)
that is active in the block, and as much for each of its children.
"""

from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trie.codes import check_distance
from trie.cpu.intrinsics import popcount, trailing_zeros
from trie.cpu.jit import njit
from trie.cpu.threads import run_all, split_range
from trie.cpu.vectors import WORDS as W
from trie.cpu.vectors import common, difference, either, load, occupied, shifted_up, store
from trie.snapshots.tree_bitmap import TreeBitmap
from trie.windows import check_batch, read_at

SYMBOLS: Final = 64 * W  # symbols per block
_PLANES: Final = 6

_EXACT: Final = 2  # bit 1 of what ``_step`` returns; bit 0: some state of the child is active


@njit(cache=True, nogil=True)
def _slice(bases, offsets, read, first, stop, planes):
    """The bit planes from ``first`` on: same read as the symbol before; no gap; A, C, G, T."""
    planes[:] = 0
    for p in range(stop - first):
        word = p >> 6
        bit = np.uint64(1) << np.uint64(p & 63)
        base = bases[first + p]
        if base < 4:
            planes[W + word] |= bit
            planes[(2 + base) * W + word] |= bit
        while offsets[read + 1] <= first + p:
            read += 1
        if offsets[read] != first + p:
            planes[word] |= bit


@njit(cache=True, nogil=True)
def _root(levels, planes, before):
    """P of the root: (root, 0) always, (root, d) once d symbols of the read have been seen."""
    for w in range(W):
        before[w] = ~np.uint64(0)
    for d in range(1, levels):
        carry = np.uint64(0)
        for w in range(W):
            word = before[(d - 1) * W + w]
            before[d * W + w] = ((word << np.uint64(1)) | carry) & planes[w]
            carry = word >> np.uint64(63)


@njit(cache=True, nogil=True, forceinline=True)
def _step(levels, before, above, below, planes, letter, states):
    """The states of a child, and its row of ``before``.

    Returns whether some state is active (bit 0), and whether one of level 0 can continue (_EXACT).

    P of the node is read at ``above``, that of the child written at ``below``, E at the start of
    ``states``. Operations per level and vector: 4 for E (3 with three-input logic), 6 for P.
    """
    chosen = load(planes, letter)
    same_read = load(planes, 0)
    own = load(before, above)
    here = every = common(own, chosen)
    store(states, 0, here)
    following = common(shifted_up(here), same_read)
    store(before, below, following)
    exact = occupied(following)
    for level in range(1, levels):
        offset = np.uint64(level * W)
        shallower, own = own, load(before, above + offset)
        differing = common(difference(own, shallower), chosen)
        here = either(difference(shallower, differing), following)
        every = either(every, here)
        store(states, offset, here)
        following = common(shifted_up(here), same_read)
        store(before, below + offset, following)
    state = np.uint64(occupied(every) != 0)
    return state | np.uint64(_EXACT) if exact else state


@njit(cache=True, nogil=True, inline="always")
def _children(inmaps, exmaps, node, path, depth):
    """Bits 0-3: which children the trie has of the node ``path`` below the trie-node."""
    inside = depth % np.uint64(3)
    if inside == np.uint64(0):
        children = np.uint64(inmaps[node] >> np.uint32(1))
    elif inside == np.uint64(1):
        children = np.uint64(inmaps[node] >> np.uint32(5)) >> (np.uint64(4) * path)
    else:
        children = exmaps[node] >> (np.uint64(4) * path)
    return children & np.uint64(15)


@njit(cache=True, nogil=True)
def _miss(children, planes, before, row, missed, depth):
    """Mark where level 0 is active at a node without a child for the symbol."""
    for w in range(W):
        covered = ~planes[W + w]
        for x in range(4):
            if (children >> np.uint64(x)) & np.uint64(1):
                covered |= planes[(2 + x) * W + w]
        missed[depth * W + w] |= before[row + np.uint64(w)] & ~covered


@njit(cache=True, nogil=True)
def _descend(
    inmaps, exmaps, prefix_sums, k, distance, planes, before, states, nodes, paths, todo, matched,
    missed,
):  # fmt: skip
    """Walk the trie over one block: fill in the planes of ``matched`` and ``missed``.

    before uint64[(k + 1) (D + 1) W]: P of the nodes of the path. nodes uint64[k + 1]: the
    trie-node of each depth. paths: the symbols below the trie-node's depth. todo: the children
    still to be visited. matched uint64[(D + 1) W], missed uint64[(k + 1) W].
    """
    one = np.uint64(1)
    levels = distance + 1
    row = np.uint64(levels * W)
    length = np.uint64(k)
    near = np.uint64(k - distance)
    depth = np.uint64(0)
    nodes[0] = 0
    paths[0] = 0
    children = _children(inmaps, exmaps, np.uint64(0), np.uint64(0), depth)
    _miss(children, planes, before, np.uint64(0), missed, 1)
    while True:
        if children == np.uint64(0):
            if depth == np.uint64(0):
                break
            depth -= one
            children = todo[depth]
            continue
        x = np.uint64(trailing_zeros(children))
        children &= children - one
        below = (depth + one) * row
        state = _step(
            levels, before, below - row, below, planes, (x + np.uint64(2)) * np.uint64(W), states
        )
        if state == np.uint64(0):
            continue
        path = np.uint64(4) * paths[depth] + x
        node = nodes[depth]
        if depth + one >= near:
            short = np.int64(length - depth) - 1
            for at in range((levels - short) * W):
                matched[short * W + at] |= states[at]
            if short == 0:
                continue
        todo[depth] = children
        if depth % np.uint64(3) == np.uint64(2):
            node = np.uint64(prefix_sums[node]) + popcount(exmaps[node] & ((one << path) - one))
            path = np.uint64(0)
        depth += one
        nodes[depth] = node
        paths[depth] = path
        children = _children(inmaps, exmaps, node, path, depth)
        if state & np.uint64(_EXACT) and children != np.uint64(15):
            _miss(children, planes, before, below, missed, depth + one)


@njit(cache=True, nogil=True)
def _spread_out(planes, plane, bit, begin, end, first, bitmaps):
    """OR ``bit`` into the bitmaps of the symbols in [begin, end) that are set in a plane."""
    for w in range(begin >> 6, (end + 63) >> 6):
        word = planes[plane * W + w]
        if 64 * w < begin:
            word &= ~np.uint64(0) << np.uint64(begin - 64 * w)
        while word:
            p = 64 * w + np.int64(trailing_zeros(word))
            if p >= end:
                break
            bitmaps[first + p] |= bit
            word &= word - np.uint64(1)


@njit(cache=True, nogil=True)
def run_sliced(
    inmaps, exmaps, prefix_sums, level_offsets, k, distance, bases, offsets, read, warm, start,
    stop, matches, mismatches,
):  # fmt: skip
    """Fill in the bitmaps of the symbols [start, stop), which hold 0.

    The automaton begins with the initial state at ``warm``.
    """
    levels = distance + 1
    overlap = k + distance - 1
    planes = np.empty(_PLANES * W, dtype=np.uint64)
    before = np.zeros((k + 1) * levels * W, dtype=np.uint64)
    states = np.empty(levels * W, dtype=np.uint64)
    nodes = np.zeros(k + 1, dtype=np.uint64)
    paths = np.zeros(k + 1, dtype=np.uint64)
    todo = np.zeros(k + 1, dtype=np.uint64)
    matched = np.empty(levels * W, dtype=np.uint64)
    missed = np.empty((k + 1) * W, dtype=np.uint64)
    first = warm
    begin = start
    while begin < stop:
        end = min(first + SYMBOLS, stop)
        while offsets[read + 1] <= first:
            read += 1
        _slice(bases, offsets, read, first, end, planes)
        matched[:] = 0
        missed[:] = 0
        _root(levels, planes, before)
        _descend(
            inmaps, exmaps, prefix_sums, k, distance, planes, before, states, nodes, paths, todo,
            matched, missed,
        )  # fmt: skip
        for e in range(levels):
            bit = np.uint32(1) << np.uint32(e)
            _spread_out(matched, e, bit, begin - first, end - first, first, matches)
        for h in range(1, k + 1):
            bit = np.uint32(1) << np.uint32(h)
            _spread_out(missed, h, bit, begin - first, end - first, first, mismatches)
        begin = end
        first = max(end - overlap, warm)


_PARALLEL_FROM: Final = 1 << 12
_PARTS_A_THREAD: Final = 4
_MOST_BLOCKS: Final = 16
_MOST_NODES: Final = 1 << 25
"""Blocks in a call of a kernel, and those times trie-nodes, since a block may visit all of them:
the main thread notices an interrupt only between two."""


def overlap_of(k: int, distance: int) -> int:
    """The number of symbols that a chunk repeats of the previous one, k + D - 1.

    Once it has left (root, 0), a run of the automaton takes at most k + D symbols, one for each
    unit of depth or level.
    """
    return k + distance - 1


def approximate(
    tree: TreeBitmap,
    bases: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    distance: int,
    *,
    threads: int = 1,
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The match and mismatch bitmaps (thesis Fig. 31) of every symbol of a batch.

    ``bases`` uint8[total] (codes, 4 = gap), ``offsets`` int64[reads + 1]. Returns two
    uint32[total]. At the symbol e - 1, bit i of the first is set if a k-mer ends at e at distance
    i, and bit h + 1 of the second if the state of depth h < k at level 0 has no transition on the
    symbol. For strands ``both`` the tree holds both orientations. Raises ValueError unless 0 <=
    distance <= 4 and distance < k, BatchShapeError for invalid offsets.
    """
    bases, offsets = check_batch(bases, offsets)
    check_distance(distance, tree.k)
    total = bases.size
    matches = np.zeros(total, dtype=np.uint32)
    mismatches = np.zeros(total, dtype=np.uint32)
    overlap = overlap_of(tree.k, distance)
    parts = _PARTS_A_THREAD * threads if threads > 1 and total >= _PARALLEL_FROM else 1
    blocks = min(_MOST_BLOCKS, 1 + _MOST_NODES // tree.node_count)
    # each block repeats the overlap, and so does each part: with whole blocks none is added
    parts = max(parts, -(-total // (blocks * (SYMBOLS - overlap))))
    tasks = []
    for start, stop in split_range(0, total, parts):
        read = read_at(offsets, start)
        # earlier symbols have no effect from ``start`` on
        warm = max(start - overlap, int(offsets[read]))
        tasks.append(
            partial(
                run_sliced, tree.inmaps, tree.exmaps, tree.prefix_sums, tree.level_offsets,
                tree.k, distance, bases, offsets, read, warm, start, stop, matches, mismatches,
            )
        )  # fmt: skip
    run_all(tasks, threads)
    return matches, mismatches
