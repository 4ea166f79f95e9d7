"""Hypothesis strategies for k-mers that share prefixes of every length."""

from __future__ import annotations

from hypothesis import strategies as st

EDGE_K = (1, 2, 3, 4, 5, 6, 11, 12, 15, 16, 21, 30, 31)


@st.composite
def kmers(draw: st.DrawFn) -> tuple[int, list[int]]:
    """A k and codes: random ones, and relatives that differ from one only in its last symbols."""
    k = draw(st.sampled_from(EDGE_K))
    code = st.integers(0, 4**k - 1)
    codes = draw(st.lists(code, max_size=30))
    if codes:
        relative = st.builds(
            lambda base, symbols, change: base ^ (change % 4 ** min(symbols, k)),
            st.sampled_from(codes),
            st.integers(0, 12),
            st.integers(0, 4**12 - 1),
        )
        codes = draw(st.permutations(codes + draw(st.lists(relative, max_size=30))))
    return k, codes


@st.composite
def batches(draw: st.DrawFn) -> tuple[int, list[list[int]]]:
    """A k and the codes of ``kmers`` cut into up to four batches, some of them in order."""
    k, codes = draw(kmers())
    cuts = sorted(draw(st.lists(st.integers(0, len(codes)), max_size=3)))
    parts = [codes[a:b] for a, b in zip([0, *cuts], [*cuts, len(codes)], strict=True)]
    return k, [sorted(part) if draw(st.booleans()) else part for part in parts]
