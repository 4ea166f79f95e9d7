"""The targets and sets of targets that a message of the feed names."""

from __future__ import annotations

from streamer.dictionary.target_sets import label_of
from streamer.protocol.header import Header, Reason, WireError
from streamer.protocol.schema import BATCH_TOPICS, NO_TARGET

Sets = dict[int, tuple[str, ...]]
"""By number of a set, the names of its targets."""


_NONE: tuple[object, object, dict[int, str], Sets] = ((), (), {}, {})


class Named:
    """Caches what the last messages named, since the next one of a topic often names the same."""

    def __init__(self) -> None:
        self._last = dict.fromkeys(BATCH_TOPICS, _NONE)

    def of(self, topic: str, header: Header) -> tuple[dict[int, str], Sets]:
        """The names of targets by number, and those in each set by its number."""
        targets, sets = header.get("targets", ()), header.get("sets", ())
        last_targets, last_sets, names, members = self._last[topic]
        if targets != last_targets or sets != last_sets:
            names = named_in(header, "targets")
            members = _sets(header, names)
            # assigned in one step, as other threads may read it
            self._last[topic] = targets, sets, names, members
        return names, members


NAMED = Named()
"""Shared by all, since it is only a cache."""


def named_in(header: Header, field: str) -> dict[int, str]:
    """The names in a field, an array of [number, name], by number."""
    entries = header.get(field, [])
    try:
        _check_arrays(entries)
        # a later daemon may send more after the name
        names = {number: name for number, name, *_ in entries}
    except (TypeError, ValueError):
        names = {None: None}
    kinds = set(map(type, names)), set(map(type, names.values()))
    if names and (kinds != ({int}, {str}) or not 0 <= min(names) <= max(names) <= NO_TARGET):
        raise WireError(Reason.MALFORMED, f"field '{field}' must hold numbers and names")
    return names


def _sets(header: Header, names: dict[int, str]) -> Sets:
    """By number of a set, the names of its targets."""
    sets: Sets = {}
    entries = header.get("sets", [])
    try:
        _check_arrays(entries)
        # a later daemon may send more after the targets
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
    """TypeError unless it is an array of arrays, or of another type."""
    if not isinstance(entries, list) or not set(map(type, entries)) <= {of}:
        raise TypeError


def labels_of(sets: Sets) -> dict[int, str]:
    """By set, the names of its targets joined by ``;``, at most 8 and then ``...``."""
    return {number: label_of(names) for number, names in sets.items()}
