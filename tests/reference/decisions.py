"""Decisions about reads, from the definition of targets: strings and dicts only."""

from __future__ import annotations

from tests.reference.exact import match
from tests.reference.targets import assigned, tallies


def decisions(
    reads, k, *, enrich=(), deplete=(), first, give_up=0, records, strands="canonical", **limits
):
    """[(action, target or None, matches, windows, bases)] of (name, letters)."""
    heads = [(name, letters[:first]) for name, letters in reads]
    options = {"records": records, "strands": strands, "mode": "frozen"}
    chosen = assigned(heads, k, **options, **limits)
    matched, windows = tallies(heads, match(heads, k, **options))
    rows = []
    for (_, letters), (_, head), owner, by_owner, count in zip(
        reads, heads, chosen, matched, windows, strict=True
    ):
        target = None if owner is None else records[owner][0]
        if target is None:
            action = "proceed"
            if give_up and len(letters) >= give_up:
                action = "unblock" if enrich else "stop_receiving"
        elif enrich:
            action = "stop_receiving" if target in enrich else "unblock"
        else:
            action = "unblock" if target in deplete else "stop_receiving"
        rows.append((action, target, max(by_owner.values(), default=0), count, len(head)))
    return rows
