"""Every kernel of exact matching against brute force."""

from __future__ import annotations

import numpy as np
import pytest

from gpu.card.packing import pack_chunk
from gpu.exact import bucket_table, chunk_match, device_tree, walk
from gpu.exact.chunk_match import TooManyWordNodesError
from gpu.exact.device_tree import DeviceTree
from tests.gpu import cases, placement
from tests.gpu.cases import match_chunk
from tests.gpu.placement import SIMULATED
from tests.reference.exact import expected
from trie.trees.hybrid_tree import snapshot

pytestmark = placement.marks()


@pytest.fixture(scope="module", autouse=True)
def lockstep_warps():
    """Blocks and tables of a size that the simulator can carry."""
    with placement.small_blocks(64, bucket_table, device_tree, chunk_match, walk) as patch:
        if SIMULATED:
            for name in ("NAIVE_THREADS", "SHUFFLE_THREADS"):
                patch.setattr(chunk_match, name, 32)
            patch.setattr(walk, "JUMP_LEVEL", 1)
        yield


def chosen(one_in=1):
    """The simulator's cases, or a share of them; on a card many more, one in so many."""
    if not SIMULATED:
        return cases.small() + (cases.large()[::one_in] if placement.usable() else [])
    return cases.small()


def loaded(case, **options):
    tree = DeviceTree(snapshot(case.dictionary, case.k), **options)
    return tree, pack_chunk(case.bases, case.offsets, case.k)


def truth(case):
    return expected(
        case.bases, case.offsets, case.k, case.dictionary, canonical=case.strands == "canonical"
    )


def agrees(found, case):
    events, words = truth(case)
    np.testing.assert_array_equal(found.events(), events, err_msg=case.name)
    if found.words is not None:
        np.testing.assert_array_equal(found.words, words, err_msg=case.name)


KERNELS = [(method, words) for method in ("walk", "shuffle", "naive") for words in (False, True)]
"""The words come with the bits; the kernels that write bits alone are others."""


@pytest.mark.parametrize(("at", "case"), [*enumerate(chosen())], ids=str)
def test_every_kernel_gives_what_brute_force_gives(at, case):
    """In the simulator walk and one of the others for each case, in turn."""
    tree, chunk = loaded(case)
    for method, words in [*KERNELS[:2], KERNELS[2 + at % 4]] if SIMULATED else KERNELS:
        found = match_chunk(tree, chunk, method=method, strands=case.strands, with_words=words)
        agrees(found, case)


@pytest.mark.parametrize(
    ("case", "share"), [(case, (0.02, 0.9)[at % 2]) for at, case in enumerate(chosen(4))], ids=str
)
def test_the_bucket_table_gives_what_brute_force_gives(case, share, monkeypatch):
    monkeypatch.setattr(bucket_table, "OVERFLOWING", share)
    tree, chunk = loaded(case, with_buckets=True)
    agrees(match_chunk(tree, chunk, method="buckets", strands=case.strands), case)


@pytest.mark.parametrize("method", ["walk", "shuffle", "naive"])
def test_a_match_buffer_that_fills_is_never_cut(method):
    case = cases.make(4, "canonical", 40, 50, reads=2)
    tree, chunk = loaded(case)
    options = {"method": method, "strands": case.strands, "with_words": True}
    agrees(match_chunk(tree, chunk, word_capacity=3, **options), case)


def test_a_chunk_without_windows():
    for length in (0, 4):
        case = cases.make(5, "canonical", 20, 3)
        short = cases.Case(
            "short", 5, "canonical", case.bases[:length], np.array([0, length]), case.dictionary
        )
        tree, chunk = loaded(short)
        for method in ("walk", "shuffle", "naive"):
            found = match_chunk(tree, chunk, method=method, with_words=True)
            assert found.words.size == 0
            assert found.events().tolist() == [0] * length


def test_words_of_a_tree_with_too_many_nodes_are_refused():
    case = cases.make(5, "forward", 20, 3)
    tree, chunk = loaded(case)
    tree.node_count = 2**27 + 1
    with pytest.raises(TooManyWordNodesError, match="134217729 trie-nodes"):
        match_chunk(tree, chunk, with_words=True)
