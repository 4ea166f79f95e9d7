"""The results of a matcher, in the form of the definitions in ``tests/reference``."""

from __future__ import annotations

import numpy as np

from streamer.dictionary.targets import Dictionary
from streamer.matching import reports
from streamer.matching.matcher import Start
from streamer.sequences.read_batch import ReadBatch

EVENTS = {1: "match", 2: "mismatch"}


def batch_of(reads):
    return ReadBatch.from_sequences([name for name, _ in reads], [text for _, text in reads])


def dictionary_of(records, k, strands):
    if not records:
        return Dictionary.empty(k, strands)
    return Dictionary.from_batches([batch_of(records)], k, strands)


def intervals_by_event(result):
    """The intervals of matches and of mismatches, with the columns of the feed."""
    rows = reports.intervals(result)
    rows["read"], events = rows["read"].astype(np.uint32), rows.pop("event")
    hits, misses = ({name: v[events == e] for name, v in rows.items()} for e in EVENTS)
    del misses["target"]
    return hits, misses


def rows_of(results, targets):
    """[(read index, start, event, owners)], in the form of the oracle."""
    rows, before = [], 0
    for result in results:
        offsets = result.batch.offsets
        for at in np.flatnonzero(result.events):
            read = int(np.searchsorted(offsets, at, side="right")) - 1
            event = EVENTS[int(result.events[at])]
            owners = ()
            if event == "match":
                (index,) = result.sets_at(np.array([at]))
                if index != 0xFFFFFFFF:
                    begin, end = targets.starts[index], targets.starts[index + 1]
                    owners = tuple(targets.members[begin:end])
            rows.append((before + read, int(at - offsets[read]), event, owners))
        before += len(result.batch)
    return rows


def start_of(results):
    """The state for a matcher that continues, computed from the results alone."""
    if not results:
        return None
    last = results[-1]
    return Start(
        number=last.number + 1,
        position=last.base + last.batch.symbols,
        version=last.version,
        grown=np.concatenate([result.new_kmers for result in results]),
        learned=np.concatenate([result.learned for result in results]),
    )
