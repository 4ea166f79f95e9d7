"""The Levenshtein kernels against the CPU's methods.

tests/trie/levenshtein compares those with brute force.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from gpu import levenshtein
from gpu.levenshtein import search
from tests.gpu import placement
from tests.gpu.cases import nearest_words
from tests.gpu.placement import SIMULATED
from tests.trie.levenshtein.piece_schemes import schemes
from trie.levenshtein import NOTHING, Patterns
from trie.levenshtein.lanes import nearest_words as on_the_cpu

pytestmark = placement.marks()


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    with placement.small_blocks(64, search):
        yield


FULL_WARPS = (1, 1 << 14)
"""How many warps fill the card: with few, each has many groups of places one after another."""


def made_up(seed, k, distance, total, number):
    """Patterns, and reads with edited copies of them, gap codes, repeats and short reads."""
    rng = np.random.default_rng(seed)
    codes = np.unique(rng.integers(0, 4**k, number, dtype=np.uint64))
    codes[0] = 0
    codes = np.unique(codes)
    bases = rng.integers(0, 4, total).astype(np.uint8)
    at = 5
    while at + k + 6 < total:
        code = int(codes[rng.integers(0, codes.size)])
        text = np.array([(code >> (2 * (k - 1 - i))) & 3 for i in range(k)], dtype=np.uint8)
        if rng.random() < 0.4:
            text = 3 - text[::-1]
        for _ in range(int(rng.integers(0, distance + 2)) if at > 5 else 0):
            place = int(rng.integers(0, text.size))
            kind = rng.integers(0, 3)
            if kind == 0:
                text[place] = rng.integers(0, 5)
            elif kind == 1:
                text = np.delete(text, place)
            else:
                text = np.insert(text, place, rng.integers(0, 5))
        bases[at : at + text.size] = text
        at += text.size + int(rng.integers(0, 12))
    cuts = np.sort(rng.choice(np.arange(40, total), 5, replace=False))
    offsets = np.concatenate(([0], cuts[:2], cuts[1:], [total])).astype(np.int64)
    return codes, bases, np.sort(offsets)


def cases():
    rng = random.Random(7)
    found = []
    for i, k in enumerate((4, 8, 15, 21, 24, 31) if SIMULATED else (4, 8, 15, 21, 24, 31) * 4):
        distances = range(min(4, k - 1) + 1)
        for distance in rng.sample(distances, 2) if SIMULATED else distances:
            some = list(schemes(k, distance))
            chosen = (
                rng.sample(some, 1) if SIMULATED else [None, *rng.sample(some, min(3, len(some)))]
            )
            for scheme in chosen:
                found.append((100 * i + distance, k, distance, scheme))
    return found


@pytest.mark.parametrize(("seed", "k", "distance", "scheme"), cases(), ids=str)
def test_every_scheme_equals_the_cpu(seed, k, distance, scheme, monkeypatch):
    monkeypatch.setattr(levenshtein, "FULL_WARPS", FULL_WARPS[(seed // 100 + distance) % 2])
    total = 160 if SIMULATED else 60_000
    codes, bases, offsets = made_up(seed, k, distance, total, 6 if SIMULATED else 300)
    patterns = Patterns.of(codes, k, distance, both=True)
    want = on_the_cpu(patterns, bases, offsets)
    assert (want != NOTHING).any()
    for first in (0, 45):
        got = nearest_words(patterns, bases, offsets, first=first, scheme=scheme)
        np.testing.assert_array_equal(got, want[first:], err_msg=f"{scheme} from {first}")


def test_a_word_an_end_where_everything_is_near():
    """Poly-A and a pattern a symbol away: more hits than the list has places."""
    total = 70 if SIMULATED else 100_000
    patterns = Patterns.of(np.array([0, 1, 4], dtype=np.uint64), 8, 2, both=False)
    bases = np.zeros(total, dtype=np.uint8)
    offsets = np.array([0, total], dtype=np.int64)
    want = on_the_cpu(patterns, bases, offsets)
    assert (want != NOTHING).sum() > total - 8
    np.testing.assert_array_equal(nearest_words(patterns, bases, offsets), want)


@pytest.mark.parametrize("total", [0, 1, 31, 32, 33, 64])
def test_short_chunks(total, monkeypatch):
    monkeypatch.setattr(levenshtein, "FULL_WARPS", FULL_WARPS[total % 2])
    bases = np.tile(np.array([0, 1, 2, 3], dtype=np.uint8), 16)[:total]
    offsets = np.array([0, total], dtype=np.int64)
    patterns = Patterns.of(np.array([0b00011011, 0b11], dtype=np.uint64), 4, 1, both=True)
    want = on_the_cpu(patterns, bases, offsets)
    np.testing.assert_array_equal(nearest_words(patterns, bases, offsets), want)
