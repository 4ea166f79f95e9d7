"""The clock of a played run: what each channel does, and which reads are complete together."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from streamer.playing.run_folder import BASES_A_SECOND, RawRead, group_played, played


def reads_of(lengths):
    texts = (f"@r{i}\n{'A' * n}\n+\n{'I' * n}\n".encode() for i, n in enumerate(lengths))
    return [RawRead("x", text, n) for text, n in zip(texts, lengths, strict=True)]


def some_lengths(seed, count=300):
    rng = random.Random(seed)
    return [rng.choice((0, 1, 150, 4000, rng.randrange(20_000))) for _ in range(count)]


@pytest.mark.parametrize("channels", [1, 2, 7, 299, 300, 1000])
def test_each_read_once_and_in_the_order_of_its_end(channels):
    reads = reads_of(some_lengths(channels))
    run = list(played(iter(reads), channels, seed=4))
    assert sorted(one.read.name for one in run) == sorted(read.name for read in reads)
    assert [one.end for one in run] == sorted(one.end for one in run)
    assert {one.channel for one in run} == set(range(1, min(channels, len(reads)) + 1))


@pytest.mark.parametrize("channels", [1, 5, 64])
def test_a_channel_reads_one_molecule_after_the_other_at_its_speed(channels):
    by_channel = defaultdict(list)
    for one in played(iter(reads_of(some_lengths(9))), channels, seed=2):
        assert one.read.bases / (1.1 * BASES_A_SECOND) <= one.end - one.start + 1e-9
        assert one.end - one.start <= one.read.bases / (0.9 * BASES_A_SECOND) + 1e-9
        by_channel[one.channel].append(one)
    for ones in by_channel.values():
        free = 0.0
        for one in ones:
            assert one.start >= free
            free = one.end


def test_the_next_read_goes_to_the_channel_that_is_free_first():
    reads = reads_of(some_lengths(5))
    run = list(played(iter(reads), 16, seed=1))
    ends = {one.read.name: (one.end, one.channel) for one in run}
    free = dict.fromkeys(range(1, 17), 0.0)
    for read in reads:
        end, channel = ends[read.name]
        assert free[channel] == min(free.values())
        free[channel] = end


def test_a_seed_is_a_run():
    reads = reads_of(some_lengths(3))
    assert list(played(reads, 30, seed=8)) == list(played(reads, 30, seed=8))
    assert list(played(reads, 30, seed=8)) != list(played(reads, 30, seed=9))


def test_a_run_is_read_as_it_is_played():
    """No more reads are taken from the input than there are channels."""
    taken = 0

    def source():
        nonlocal taken
        for read in reads_of([1000] * 50):
            taken += 1
            yield read

    for done, _ in enumerate(played(source(), 10, seed=1)):
        assert taken <= done + 11


@pytest.mark.parametrize("seconds", [0.5, 1.0, 60.0])
@pytest.mark.parametrize("bases", [1, 5000, 10**9])
def test_groups_are_the_run_cut_at_seconds_and_bases(seconds, bases):
    run = list(played(iter(reads_of(some_lengths(1))), 40, seed=1))
    groups = list(group_played(run, seconds, bases))
    assert [one for group in groups for one in group] == run
    for group, following in zip(groups, [*groups[1:], None], strict=True):
        assert len({one.end // seconds for one in group}) == 1
        assert sum(one.read.bases for one in group[:-1]) < bases
        if following is not None:
            full = sum(one.read.bases for one in group) >= bases
            assert full or following[0].end // seconds > group[-1].end // seconds
