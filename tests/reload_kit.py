"""Shared by the tests of reloads: a daemon, the expected answers, and the given answers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import msgpack

from streamer.client import Control, Producer
from streamer.daemon.stored_messages import StoredMessages
from streamer.journal.reader import JournalReader
from tests.daemon_kit import Reads, Running, controlled, random_dna, reads_of, settings, write_fasta
from tests.faults.plain_client import PlainFold
from tests.reference.exact import match
from tests.waiting import DEADLINE, until

K = 11
TOPICS = ("match", "mismatch", "near", "ltb", "delta", "read", "retract", "upgrade", "settled")
GENOME = random_dna(random.Random(12), 3000)


def sources_of(rng: random.Random) -> Reads:
    """Pieces of the genome, of one to four targets, some of which overlap."""
    names = rng.sample(["one", "two", "three", "four", "five"], rng.randint(1, 4))
    starts = [rng.randrange(2500) for _ in names]
    return [
        (name, GENOME[start : start + rng.randint(100, 1500)])
        for name, start in zip(names, starts, strict=True)
    ]


def batches_of(rng: random.Random, count: int) -> list[Reads]:
    """Batches of reads from the genome; some are empty."""
    return [reads_of(GENOME, rng, rng.choice((0, 1, 5, 12)), f"b{n}-") for n in range(count)]


def configured(folder: Path, dictionary: str = "", durability: str = "os") -> str:
    """The configuration of a daemon with sources, and with a journal unless told otherwise."""
    path = settings(folder, f'k = {K}\nsources = ["ref.fa"]\n{dictionary}')
    more = f'[journal]\ndirectory = "journal"\ndurability = "{durability}"\n'
    Path(path).write_text(Path(path).read_text() + more)
    return path


def send(daemon: Running, batches: Sequence[Reads], name: str = "lab") -> None:
    """Send batches and wait until they are matched."""
    with Producer(daemon.endpoints["ingest"], name=name) as producer:
        for reads in batches:
            producer.send(reads)
        producer.flush(matched=True, timeout=DEADLINE)


@contextmanager
def reloadable(
    folder: Path,
    sources: Reads,
    dictionary: str = "",
    durability: str = "os",
    overrides: Sequence[str] = (),
) -> Iterator[tuple[Running, Control]]:
    """A daemon with these sources, and its control."""
    write_fasta(folder / "ref.fa", sources)
    path = configured(folder, dictionary, durability)
    with controlled(path, overrides) as (daemon, control):
        yield daemon, control


def answers(batches: Sequence[Reads], records: Reads, strands: str = "canonical") -> Any:
    """The expected answers by batch and read, from the definition, one window at a time."""
    said = iter(_answers([read for reads in batches for read in reads], records, strands))
    return {n: [next(said) for _ in reads] for n, reads in enumerate(batches)}


def _answers(reads: Reads, records: Reads, strands: str) -> list[dict[str, list[Any]]]:
    said: list[dict[str, list[Any]]] = [{} for _ in reads]
    rows = match(reads, K, strands=strands, records=records)
    names = [name for name, _ in records]
    place = enumerate(rows)
    for (read, _, event, owners), run in groupby(
        place, key=lambda item: (item[1][0], item[1][1] - item[0], item[1][2], item[1][3])
    ):
        starts = [start for _, (_, start, *_) in run]
        row = starts[0], starts[-1] + K, len(starts)
        if event == "match":
            row = *row, tuple(names[i] for i in owners) if owners else None
        said[read].setdefault(event, []).append(row)
    by_read = {read: list(own) for read, own in groupby(rows, key=lambda row: row[0])}
    for read, (_, sequence) in enumerate(reads):
        own = by_read.get(read, [])
        matches = sum(row[2] == "match" for row in own)
        counts = [sum(owner in row[3] for row in own) for owner in range(len(names))]
        best = names[counts.index(max(counts))] if any(counts) else None
        skipped = max(len(sequence) - K + 1, 0) - len(own)
        row = len(sequence), len(own), matches, len(own) - matches, skipped, best
        said[read]["read"] = [row]
    return said


def totals_of(said: Any) -> dict[str, int]:
    """The sums over these answers."""
    rows = [row for reads in said.values() for read in reads for row in read["read"]]
    return {
        "matches": sum(row[2] for row in rows),
        "mismatches": sum(row[3] for row in rows),
        "reads_on_target": sum(row[5] is not None for row in rows),
    }


def stored(folder: Path, after: int = 0) -> list[tuple[str, dict[str, Any], list[bytes]]]:
    """All messages that the journal has, in order: topic, header, frames."""
    said = []
    with closing(JournalReader(folder / "journal")) as reader:
        for record in reader.records(after):
            messages = StoredMessages(record, reader.stream, reader.epoch)
            for topic in messages.prev:
                if topic != "word":
                    _, header, *frames = messages.message(topic)
                    said.append((topic, msgpack.unpackb(header), [bytes(f) for f in frames]))
    return said


def folded(messages: Sequence[tuple[str, dict[str, Any], list[bytes]]]) -> PlainFold:
    """The result of these messages; checks what must hold for every revision."""
    fold = PlainFold()
    retracted = None
    for topic, header, frames in messages:
        assert (topic == "upgrade") == (retracted is not None), "an upgrade is right behind"
        if topic == "upgrade":
            assert (header["batch"], header["at"]) == retracted
            retracted = None
        elif topic == "retract":
            retracted = header["batch"], header["at"]
            before = fold.versions.get(header["batch"], (0, header["version_before"]))[1]
            assert header["version_before"] == before < header["version"]
        fold.take(topic, header, frames)
    return fold


def settle(control: Control) -> dict[str, Any]:
    """The status once nothing is left to match again."""
    until(lambda: control.status()["revision"] is None, "the revision is settled")
    return control.status()
