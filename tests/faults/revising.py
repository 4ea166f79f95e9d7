"""A round with a frozen dictionary whose sources change and which is reloaded all the time."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import msgpack

from streamer.daemon.config import load
from streamer.daemon.restore import fingerprint
from streamer.daemon.stored_messages import BATCH, DICTIONARY
from streamer.journal.reader import JournalReader
from streamer.matching.matcher import load_dictionary
from tests.daemon_kit import Reads, write_fasta
from tests.faults.nursery import POINTS, REVISE
from tests.faults.plain_client import PlainFold
from tests.faults.rounds import Round
from tests.reload_kit import GENOME, K, answers, sources_of

# probability in each step of a life
_RELOADS, _OFTEN = 0.02, 0.1


class Revising(Round):
    dictionary = f'k = {K}\nsources = ["{{folder}}/ref.fa"]'
    points = (*POINTS, REVISE)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._references: dict[int, Reads] = {}
        self._change()
        self._reload: int | None = None

    @classmethod
    def configure(cls, folder: Path, durability: str) -> Path:
        write_fasta(folder / "ref.fa", [("first", GENOME)])
        return super().configure(folder, durability)

    def read(self) -> str:
        length = self.rng.randrange(60)
        start = self.rng.randrange(len(GENOME) - length)
        letters = [*GENOME[start : start + length]]
        if length and self.rng.random() < 0.3:
            letters[self.rng.randrange(length)] = self.rng.choice("ACGTN")
        return "".join(letters)

    def _change(self) -> None:
        """Replace the sources atomically."""
        written = self.folder / "new.fa"
        self._reference = sources_of(self.rng)
        write_fasta(written, self._reference)
        os.replace(written, self.folder / "ref.fa")
        found = fingerprint(load_dictionary(load(str(self.config)).spec))
        self._references[found] = self._reference

    def disturb(self, *, often: bool) -> None:
        chance = self.rng.random()
        if chance < (_OFTEN if often else _RELOADS):
            self._change()
            # the answer to a request of an earlier life never comes
            self._reload = self.control.ask("reload")

    def settle(self) -> None:
        for _ in range(2):
            self._change()
            number = self.control.ask("reload")
            self.until(lambda asked=number: asked in self.control.replies, "a reload")
            reply = self.control.replies[number]
            assert reply["ok"], f"refused: {reply}"
        self.until(lambda: all(p.finished for p in self.producers), "all are durable")
        self.until(lambda: self.status()["revision"] is None, "the revision is settled")

    def check(self) -> int:
        """Check each batch against its dictionary, and at each ``settled`` all against the last."""
        with closing(JournalReader(self.folder / "journal")) as reader:
            records = list(reader.records(0))
        keys = [(r.key.producer, r.key.sequence) for r in records if r.kind == BATCH and r.key]
        assert len(set(keys)) == len(keys), "twice"
        assert set(keys) == set(self.sent), f"lost: {set(self.sent) - set(keys)}"
        metas = [msgpack.unpackb(record.meta) for record in records if record.kind == DICTIONARY]
        references = {meta["version"]: self._references[meta["fingerprint"]] for meta in metas}
        versions = [meta["version"] for meta in metas]
        assert versions == [*range(1, 1 + len(versions))], f"divergent versions: {versions}"
        assert references[versions[-1]] == self._reference, "the last sources were not read"
        batches = [self.sent[key] for key in keys]
        expected = {version: answers(batches, sources) for version, sources in references.items()}
        fold = self._folded(expected)
        assert fold.settled[-1] == (versions[-1], 0), f"divergent: settled {fold.settled[-1]}"
        # each topic by itself, as a healed subscriber has it
        healed = PlainFold()
        for topic, at in self.feed.order:
            healed.take(topic, *self.feed.messages[topic, at])
        assert healed.answers() == fold.answers() == expected[versions[-1]], "divergent"
        return len(keys)

    def _folded(self, expected: dict[int, Any]) -> PlainFold:
        """The fold of what was pulled, checked for each batch and whenever it is settled."""
        assert self.everything is not None
        fold, first = PlainFold(), dict[int, tuple[int, PlainFold]]()
        for topic, at in self.everything.order:
            header, frames = self.everything.messages[topic, at]
            fold.take(topic, header, frames)
            if topic in ("match", "mismatch", "read"):
                _, said = first.setdefault(header["batch"], (header["version"], PlainFold()))
                said.take(topic, header, frames)
            elif topic == "settled":
                version, batch = header["version"], header["from_batch"]
                for number, said in fold.answers().items():
                    assert number < batch or said == expected[version][number], (
                        f"divergent: batch {number} when version {version} is settled"
                    )
        for number, (version, said) in first.items():
            assert said.answers()[number] == expected[version][number], f"divergent: batch {number}"
        return fold
