"""Compares what was pulled, what was heard and healed, and a stored state plus what follows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.faults.plain_client import Header, Key, PlainFold, PlainHealer, PlainPuller


def compare_feeds(
    everything: PlainPuller,
    healer: PlainHealer,
    state: tuple[Header, bytes],
    totals: dict[str, Any],
) -> None:
    """AssertionError if they differ. state: the stored one, its k-mers; totals: the daemon's."""
    pulled, heard = everything.messages, healer.messages
    extra = set(heard) - set(pulled)
    assert not extra, f"published and not stored: {extra}"
    lost = set(pulled) - set(healer.order)
    assert not lost, f"lost by the subscriber, unnoticed: {lost}"
    assert all(heard[key] == message for key, message in pulled.items()), "said differently"
    stored, kmers = state
    tail = [key for key in everything.order if key[1] > stored["at"]]
    later = _totals(everything, tail)
    for name, count in _totals(everything, everything.order).items():
        sums = stored["totals"].get(name, 0) + later[name], count, totals[name]
        assert len({*sums}) == 1, f"divergent: {name} after the stored state: {sums}"
    all_kmers = _kmers(everything, everything.order)
    assert kmers + _kmers(everything, tail) == all_kmers, "divergent: k-mers after the stored state"


def _totals(everything: PlainPuller, keys: Sequence[Key]) -> Counter[str]:
    fold = PlainFold()
    for topic, at in keys:
        fold.take(topic, *everything.messages[topic, at])
    return fold.totals


def _kmers(everything: PlainPuller, keys: Sequence[Key]) -> bytes:
    """They are in the first column, after the names."""
    return b"".join(everything.messages[key][1][1] for key in keys if key[0] == "delta")
