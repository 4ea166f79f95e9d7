"""How far an alignment gets with c edits: furthest-reaching points on diagonals.

The algorithm of Ukkonen and of Landau and Vishkin, on words. A side of a pattern (the symbols after
a piece that was found, or those before it, read backwards) and the text beside that piece are two
bit planes each, symbol i in bit i. On diagonal d, text symbol i + d is aligned to pattern symbol i:

    x[d] = (p.lo ^ t.lo >> d) | (p.hi ^ t.hi >> d) | bits from the side's length on

has a bit wherever a run of equal symbols ends. A place is a word with one bit set. The run from
place f ends at the lowest bit of x that is not below f,

    run(x, f) = lowest(x & -f),   lowest(n) = n & -n

and one more edit reaches a diagonal by a substitution, from the diagonal below by inserting a
symbol of text, or from the one above by deleting a symbol of the pattern:

    f[c][d] = run(x[d], max(f[c-1][d] << 1, f[c-1][d-1], f[c-1][d+1] << 1))

The side is aligned with c edits if some f[c][d] >= 1 << length, so its cost is the number of c for
which none is. For D edits that is (D + 1)^2 runs of eight operations and 5 for each of 2D + 1
words, without a branch or a count of zeros, so the CPU does it in vector lanes. Levels are unrolled
because neither numba target keeps a small array in registers. A side and its edits have at most 31
symbols.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Reach(NamedTuple):
    """run(x, f); above and below(plo, phi, tlo, thi, ends, d), which are x[d] and x[-d]; and
    costs: for each distance D the function (plo, phi, tlo, thi, ends, end) -> the least cost of a
    side, D + 1 if above D (end: 1 << length, ends: the bits from it upwards).
    """

    run: Any
    above: Any
    below: Any
    costs: tuple[Any, ...]


def reach(wrap: Callable[..., Any]) -> Reach:
    """The functions, compiled by ``wrap`` for a target; every argument and result is a uint32."""
    one = np.uint32(1)

    # 0 - word; via uint64, so that NumPy does not warn of overflow in numba's simulator
    whole = np.uint64(1 << 32)

    @wrap
    def run(x, place):
        x = np.uint32(x & np.uint32(whole - np.uint64(place)))
        return np.uint32(x & np.uint32(whole - np.uint64(x)))

    @wrap
    def step(x, below, same, above):
        place = max(np.uint32(same << one), np.uint32(above << one))
        return run(x, max(place, below))

    @wrap
    def above(plo, phi, tlo, thi, ends, d):
        """x[d] for d >= 0."""
        lo = np.uint32(plo ^ np.uint32(tlo >> np.uint32(d)))
        return np.uint32(np.uint32(lo | np.uint32(phi ^ np.uint32(thi >> np.uint32(d)))) | ends)

    @wrap
    def below(plo, phi, tlo, thi, ends, d):
        """x[-d]."""
        lo = np.uint32(plo ^ np.uint32(tlo << np.uint32(d)))
        return np.uint32(np.uint32(lo | np.uint32(phi ^ np.uint32(thi << np.uint32(d)))) | ends)

    @wrap
    def cost0(plo, phi, tlo, thi, ends, end):
        return np.uint32(run(above(plo, phi, tlo, thi, ends, 0), one) < end)

    @wrap
    def three(x1, x0, y1, f0):
        """Diagonals -1, 0, 1 after one edit."""
        zero = np.uint32(0)
        return step(y1, zero, zero, f0), step(x0, zero, f0, zero), step(x1, f0, zero, zero)

    @wrap
    def cost1(plo, phi, tlo, thi, ends, end):
        x0 = above(plo, phi, tlo, thi, ends, 0)
        x1 = above(plo, phi, tlo, thi, ends, 1)
        y1 = below(plo, phi, tlo, thi, ends, 1)
        f0 = run(x0, one)
        a, b, c = three(x1, x0, y1, f0)
        return np.uint32(np.uint32(f0 < end) + np.uint32(max(b, max(a, c)) < end))

    @wrap
    def five(x2, x1, x0, y1, y2, a, b, c):
        """Diagonals -2 .. 2 after two edits, from -1, 0, 1 after one."""
        zero = np.uint32(0)
        return (
            step(y2, zero, zero, a),
            step(y1, zero, a, b),
            step(x0, a, b, c),
            step(x1, b, c, zero),
            step(x2, c, zero, zero),
        )

    @wrap
    def seven(x3, x2, x1, x0, y1, y2, y3, a, b, c, d, e):
        """Diagonals -3 .. 3 after three edits, from -2 .. 2 after two."""
        zero = np.uint32(0)
        return (
            step(y3, zero, zero, a),
            step(y2, zero, a, b),
            step(y1, a, b, c),
            step(x0, b, c, d),
            step(x1, c, d, e),
            step(x2, d, e, zero),
            step(x3, e, zero, zero),
        )

    @wrap
    def cost2(plo, phi, tlo, thi, ends, end):
        x0 = above(plo, phi, tlo, thi, ends, 0)
        x1 = above(plo, phi, tlo, thi, ends, 1)
        x2 = above(plo, phi, tlo, thi, ends, 2)
        y1 = below(plo, phi, tlo, thi, ends, 1)
        y2 = below(plo, phi, tlo, thi, ends, 2)
        f0 = run(x0, one)
        a, b, c = three(x1, x0, y1, f0)
        p, q, r, s, t = five(x2, x1, x0, y1, y2, a, b, c)
        cost = np.uint32(f0 < end) + np.uint32(max(max(a, b), c) < end)
        return np.uint32(cost + np.uint32(max(max(max(p, q), max(r, s)), t) < end))

    @wrap
    def cost3(plo, phi, tlo, thi, ends, end):
        x0 = above(plo, phi, tlo, thi, ends, 0)
        x1 = above(plo, phi, tlo, thi, ends, 1)
        x2 = above(plo, phi, tlo, thi, ends, 2)
        x3 = above(plo, phi, tlo, thi, ends, 3)
        y1 = below(plo, phi, tlo, thi, ends, 1)
        y2 = below(plo, phi, tlo, thi, ends, 2)
        y3 = below(plo, phi, tlo, thi, ends, 3)
        f0 = run(x0, one)
        a, b, c = three(x1, x0, y1, f0)
        p, q, r, s, t = five(x2, x1, x0, y1, y2, a, b, c)
        h, i, j, k, u, m, n = seven(x3, x2, x1, x0, y1, y2, y3, p, q, r, s, t)
        cost = np.uint32(f0 < end) + np.uint32(max(max(a, b), c) < end)
        cost = np.uint32(cost + np.uint32(max(max(max(p, q), max(r, s)), t) < end))
        last = max(max(max(h, i), max(j, k)), max(max(u, m), n))
        return np.uint32(cost + np.uint32(last < end))

    @wrap
    def cost4(plo, phi, tlo, thi, ends, end):
        zero = np.uint32(0)
        x0 = above(plo, phi, tlo, thi, ends, 0)
        x1 = above(plo, phi, tlo, thi, ends, 1)
        x2 = above(plo, phi, tlo, thi, ends, 2)
        x3 = above(plo, phi, tlo, thi, ends, 3)
        x4 = above(plo, phi, tlo, thi, ends, 4)
        y1 = below(plo, phi, tlo, thi, ends, 1)
        y2 = below(plo, phi, tlo, thi, ends, 2)
        y3 = below(plo, phi, tlo, thi, ends, 3)
        y4 = below(plo, phi, tlo, thi, ends, 4)
        f0 = run(x0, one)
        a, b, c = three(x1, x0, y1, f0)
        p, q, r, s, t = five(x2, x1, x0, y1, y2, a, b, c)
        h, i, j, k, u, m, n = seven(x3, x2, x1, x0, y1, y2, y3, p, q, r, s, t)
        last = step(y4, zero, zero, h)
        last = max(last, step(y3, zero, h, i))
        last = max(last, step(y2, h, i, j))
        last = max(last, step(y1, i, j, k))
        last = max(last, step(x0, j, k, u))
        last = max(last, step(x1, k, u, m))
        last = max(last, step(x2, u, m, n))
        last = max(last, step(x3, m, n, zero))
        last = max(last, step(x4, n, zero, zero))
        cost = np.uint32(f0 < end) + np.uint32(max(max(a, b), c) < end)
        cost = np.uint32(cost + np.uint32(max(max(max(p, q), max(r, s)), t) < end))
        cost = np.uint32(cost + np.uint32(max(max(max(h, i), max(j, k)), max(max(u, m), n)) < end))
        return np.uint32(cost + np.uint32(last < end))

    return Reach(run, above, below, (cost0, cost1, cost2, cost3, cost4))


CENTRE = 5
"""The index of diagonal 0 in arrays of places or costs: one more than the largest distance."""

DIAGONALS = 2 * CENTRE + 1
UNREACHED = 9


class Sides(NamedTuple):
    """Align both sides of a piece exactly, with gap codes and read bounds; see ``sides``."""

    before: Any
    behind: Any


def sides(wrap: Callable[..., Any], reached: Reach) -> Sides:
    """The functions of a target, from its ``reach``.

    places is uint32[2, DIAGONALS], scratch; costs is uint32[DIAGONALS]. Both take the planes of the
    pattern and of the text, the text's gaps, the length of the side, and the number of read symbols
    there (``room``).

    before(plo, phi, tlo, thi, gap, length, room, distance, places) -> (cost, diagonal): the least
    cost of a side and the lowest of its diagonals, whose text is the shortest; UNREACHED, 0 if it
    is more than ``distance``.
    behind(plo, phi, tlo, thi, gap, length, room, distance, places, costs): fills in the cost of
    every diagonal, UNREACHED if more than ``distance``.
    """
    run, above, below = reached.run, reached.above, reached.below

    @wrap
    def level(plo, phi, tlo, thi, gap, ends, edits, places):
        """Replace the places after edits - 1 edits (row 0) by those after one more."""
        one = np.uint32(1)
        for d in range(-edits, edits + 1):
            at = CENTRE + d
            if d >= 0:
                x = above(plo, phi, tlo, thi, ends, d) | np.uint32(gap >> np.uint32(d))
            else:
                x = below(plo, phi, tlo, thi, ends, -d) | np.uint32(gap << np.uint32(-d))
            place = one
            if edits > 0:
                place = np.uint32(places[0, at - 1])
                place = max(place, np.uint32(np.uint32(places[0, at]) << one))
                place = max(place, np.uint32(np.uint32(places[0, at + 1]) << one))
            places[1, at] = run(np.uint32(x), place)
        for at in range(CENTRE - edits, CENTRE + edits + 1):
            places[0, at] = places[1, at]

    @wrap
    def clear(places):
        for at in range(DIAGONALS):
            places[0, at] = np.uint32(0)

    @wrap
    def before(plo, phi, tlo, thi, gap, length, room, distance, places):
        ends = np.uint32(np.uint64(0xFFFFFFFF) << np.uint64(length))
        end = np.uint32(np.uint32(1) << np.uint32(length))
        clear(places)
        cost = UNREACHED
        diagonal = 0
        for edits in range(distance + 1):
            level(plo, phi, tlo, thi, gap, ends, edits, places)
            for d in range(-edits, edits + 1):
                if (
                    cost == UNREACHED
                    and places[0, CENTRE + d] >= end
                    and length + d >= 0
                    and length + d <= room
                ):
                    cost = edits
                    diagonal = d
            if cost != UNREACHED:
                break
        return cost, diagonal

    @wrap
    def behind(plo, phi, tlo, thi, gap, length, room, distance, places, costs):
        ends = np.uint32(np.uint64(0xFFFFFFFF) << np.uint64(length))
        end = np.uint32(np.uint32(1) << np.uint32(length))
        clear(places)
        for at in range(DIAGONALS):
            costs[at] = np.uint32(UNREACHED)
        for edits in range(distance + 1):
            level(plo, phi, tlo, thi, gap, ends, edits, places)
            for d in range(-edits, edits + 1):
                at = CENTRE + d
                if (
                    costs[at] == UNREACHED
                    and places[0, at] >= end
                    and length + d >= 0
                    and length + d <= room
                ):
                    costs[at] = np.uint32(edits)

    return Sides(before, behind)
