"""The targets that a message of the feed names, and its sets of targets."""

from __future__ import annotations

from streamer.dictionary.target_sets import label_of
from streamer.protocol.header import Header, Reason, WireError
from streamer.protocol.schema import BATCH_TOPICS, NO_TARGET

Sets = dict[int, tuple[str, ...]]
"""The names of the targets in each set, by its number."""


_NONE: tuple[object, object, dict[int, str], Sets] = ((), (), {}, {})


class Named:
    """What a message names; mostly the next one of its topic names the same."""

    def __init__(self) -> None:
        self._last = dict.fromkeys(BATCH_TOPICS, _NONE)

    def of(self, topic: str, header: Header) -> tuple[dict[int, str], Sets]:
        """The names of targets by number, and of those in each set by its number."""
        targets, sets = header.get("targets", ()), header.get("sets", ())
        last_targets, last_sets, names, members = self._last[topic]
        if targets != last_targets or sets != last_sets:
            names = named_in(header, "targets")
            members = _sets(header, names)
            # at once, as other threads may read it
            self._last[topic] = targets, sets, names, members
        return names, members


NAMED = Named()
"""Shared: its state only saves time."""


def named_in(header: Header, field: str) -> dict[int, str]:
    """The names in a field, which is an array of [number, name], by their numbers."""
    entries = header.get(field, [])
    try:
        _check_arrays(entries)
        # behind the name, a later daemon may say more
        names = {number: name for number, name, *_ in entries}
    except (TypeError, ValueError):
        names = {None: None}
    kinds = set(map(type, names)), set(map(type, names.values()))
    if names and (kinds != ({int}, {str}) or not 0 <= min(names) <= max(names) <= NO_TARGET):
        raise WireError(Reason.MALFORMED, f"field '{field}' must hold numbers and names")
    return names


def _sets(header: Header, names: dict[int, str]) -> Sets:
    """The names of the targets of each set by its number."""
    sets: Sets = {}
    entries = header.get("sets", [])
    try:
        _check_arrays(entries)
        # behind the targets, a later daemon may say more
        for number, targets, *_ in entries:
            _check_arrays(targets, of=int)
            sets[number] = tuple([names[target] for target in targets])
    except (TypeError, ValueError, KeyError):
        sets = {-1: ()}
    if sets and (set(map(type, sets)) != {int} or not 0 <= min(sets) <= max(sets) <= NO_TARGET):
        problem = "field 'sets' must hold numbers and arrays of named targets"
        raise WireError(Reason.MALFORMED, problem)
    return sets


def _check_arrays(entries: object, of: type = list) -> None:
    """TypeError unless it is an array of arrays, or of others."""
    if not isinstance(entries, list) or not set(map(type, entries)) <= {of}:
        raise TypeError


def labels_of(sets: Sets) -> dict[int, str]:
    """The names of each set's targets joined by ``;``, at most 8 and then ``...``."""
    return {number: label_of(names) for number, names in sets.items()}
