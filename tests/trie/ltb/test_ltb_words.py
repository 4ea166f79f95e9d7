"""Words of the Levenshtein Tree Bitmap against their drawing (thesis Fig. 31), bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference.ltb_words import pack_words, unpack_words
from trie.snapshots.tree_bitmap import MAX_INDEX, WordOverflowError

bitmap = st.one_of(st.just(0), st.integers(0, 2**32 - 1))


@given(st.lists(st.tuples(bitmap, bitmap), max_size=30), st.integers(0, MAX_INDEX - 30))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_words_are_what_the_figure_draws(pairs: list[tuple[int, int]], first: int) -> None:
    matches = np.array([pair[0] for pair in pairs], dtype=np.uint32)
    mismatches = np.array([pair[1] for pair in pairs], dtype=np.uint32)
    words = pack_words(matches, mismatches, first)
    expected = [
        (kind, first + index, bits)
        for index, pair in enumerate(pairs)
        for kind, bits in enumerate(pair)
        if bits
    ]
    assert [f"{word:064b}" for word in words.tolist()] == [
        f"{kind:01b}{index:031b}{bits:032b}" for kind, index, bits in expected
    ]
    fields = unpack_words(words)
    assert list(zip(*(field.tolist() for field in fields), strict=True)) == expected


def test_an_index_too_large_is_an_error_that_says_so() -> None:
    matches = np.array([1, 0, 1], dtype=np.uint32)
    none = np.zeros(3, dtype=np.uint32)
    assert pack_words(matches, none, MAX_INDEX - 3).size == 2
    with pytest.raises(WordOverflowError, match="index 2147483648"):
        pack_words(matches, none, MAX_INDEX - 2)
    # a symbol without a word does not matter
    assert pack_words(matches[:2], none[:2], MAX_INDEX - 1).size == 1


def test_arrays_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ValueError, match="match bitmaps"):
        pack_words(np.zeros(2, np.uint32), np.zeros(3, np.uint32))
