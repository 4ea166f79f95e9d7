"""Repeats of a text against a dict of its k-mers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.index import windows
from tests.trie.index.test_text_index import ADVERSARIAL, Codes, joined, reference
from trie.index import repeats
from trie.index.reference_text import ReferenceText, gap_codes
from trie.index.repeats import find_repeats
from trie.index.text_index import TextIndex


def firsts(text: Codes, k: int, *, canonical: bool) -> dict[int, int]:
    """By window: the first window with its k-mer, if that is another."""
    first: dict[str, int] = {}
    whole = windows(text, np.array([0, text.size]), k, canonical=canonical)
    return {at: seen for at, kmer in whole if (seen := first.setdefault(kmer, at)) != at}


def check(records: list[Codes], k: int, *, canonical: bool) -> None:
    text = ReferenceText.of(*joined(records))
    codes = gap_codes(text, 0, text.size)
    for threads, made in (1, True), (2, True), (2, False):
        if made:  # else k-mers are listed again
            index = TextIndex.of(text, k, canonical=canonical, threads=threads)
        columns, steps = find_repeats(index, text, threads)
        rows = np.column_stack((*columns.astype(np.int64), steps))
        found: dict[int, int] = {}
        for begin, end, first, step in rows.tolist():
            for window in range(begin, end):
                assert window not in found
                found[window] = first + step * (window - begin)
        assert found == firsts(codes, k, canonical=canonical)
    of_records = [
        sum(1 for _ in windows(record, np.array([0, record.size]), k, canonical=False))
        for record in records
    ]
    assert text.windows(k).tolist() == of_records


@pytest.mark.parametrize("canonical", [True, False])
@pytest.mark.parametrize("k", [2, 11, 16, 21, 30, 31])
def test_repeats_of_hard_texts(k: int, canonical: bool) -> None:
    rng = np.random.default_rng(k)
    check(reference(rng, k), k, canonical=canonical)


def test_repeats_are_sorted_in_parts_of_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "_SORTED", 333)
    check(reference(np.random.default_rng(2), 21), 21, canonical=True)


@pytest.mark.whole
@pytest.mark.parametrize("name", ["satellites", "equal records", "gaps everywhere", "palindromes"])
def test_repeats_of_adversarial_texts(name: str) -> None:
    rng = np.random.default_rng(1)
    records = [record[:40_000] for record in ADVERSARIAL[name](rng)]
    for k in (11, 31):
        check(records, k, canonical=True)
