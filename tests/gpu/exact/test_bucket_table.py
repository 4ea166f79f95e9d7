"""The table of buckets, and batches that are packed for several GPUs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpu.exact.bucket_table import OVERFLOWING, BucketShape, choose_shape, overflowing
from gpu.exact.device_tree import device_bytes, kmer_count
from streamer.matching.cuda import _PER_CARD, _ROUNDS, PackedMatching
from trie.trees.hybrid_tree import snapshot


@pytest.mark.parametrize("kmers", [0, 1, 1000, 10_000_000, 400_000_000])
def test_a_table_holds_its_kmers(kmers):
    for k in range(1, 32):
        count = min(kmers, 4**k)
        shape = choose_shape(k, count)
        assert 1 <= shape.field <= 2 * k - 1
        assert shape.fields >= 1
        assert shape.fields * shape.field <= 63
        assert overflowing(shape, count) < OVERFLOWING
        # not more than six times what the k-mers' codes alone would take
        assert shape.size * 8 <= max(64, 6 * count * 8)


def test_the_share_of_overflowing_buckets():
    # one bucket in two words of one field each, on average two k-mers a bucket
    shape = BucketShape(20, 7, 2)
    assert (shape.field, shape.fields) == (33, 1)
    assert overflowing(shape, 256) == pytest.approx(1 - 5 * 2.718281828**-2, abs=1e-6)
    assert overflowing(shape, 0) == 0


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6, 13])
def test_kmers_of_a_snapshot_are_counted(k):
    codes = sorted({(i * 7919) % 4**k for i in range(50)})
    tree = snapshot(codes, k)
    assert kmer_count(tree) == len(codes)
    plain, more = (
        device_bytes(k, tree.node_count, len(codes), with_buckets=there) for there in (False, True)
    )
    assert 32 * tree.node_count < plain < more
    assert kmer_count(snapshot([], k)) == 0


@pytest.mark.parametrize("cards", [1, 2, 3])
@pytest.mark.parametrize("chunk", [64, 1 << 20, 1 << 25])
def test_packed_batches_are_shared_by_all_cards(cards, chunk):
    """Each gets a chunk that is worth it, and no more of them than fit or overlap."""
    engine = SimpleNamespace(chunk=chunk, cards=[None] * cards, k=5)
    path = PackedMatching(engine, "default", 1, in_text=False, index=None)
    for words in (1, 2, 100, 1 << 16, 1 << 18, (1 << 20) - 1, 1 << 20, 1 << 23, 12_345_678):
        room = path._shared_room(words)
        assert 2 <= room <= chunk // 32
        # a chunk that ends in a cut holds one word less
        chunks = -(-words // (room - 1))
        if 32 * words > 2 * cards * _PER_CARD:
            assert chunks >= cards
        fit = -(-words // cards // (chunk // 32 - 1)) + 1
        assert chunks <= cards * max(_ROUNDS, fit)
