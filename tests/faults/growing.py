"""A round with a growing dictionary: every batch depends on all earlier ones."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import msgpack
import numpy as np

from streamer.daemon.stored_batch import StoredBatch
from streamer.daemon.stored_messages import BATCH
from streamer.dictionary.targets import Dictionary
from streamer.journal.reader import JournalReader
from streamer.matching import reports
from streamer.matching.matcher import StreamMatcher
from streamer.sequences.read_batch import ReadBatch
from tests.faults.rounds import Round
from tests.matching_results import intervals_by_event

K = 9


class Growing(Round):
    dictionary = f"k = {K}"

    def read(self) -> str:
        return "".join(self.rng.choices("ACGTN", (9, 9, 9, 9, 1), k=self.rng.randrange(60)))

    def check(self) -> int:
        with closing(JournalReader(self.folder / "journal")) as reader:
            records = [record for record in reader.records(0) if record.kind == BATCH]
            stored = [StoredBatch(record) for record in records]
        keys = [(record.key.producer, record.key.sequence) for record in records if record.key]
        assert len(set(keys)) == len(keys), "twice"
        assert set(keys) == set(self.sent), f"lost: {set(self.sent) - set(keys)}"
        matcher = StreamMatcher.of(
            Dictionary.empty(K, "canonical"), k=K, mode="grow", strands="canonical", threads=1
        )
        heads: dict[str, int] = {}
        for key, batch in zip(keys, stored, strict=True):
            names, sequences = [[*some] for some in zip(*self.sent[key], strict=True)] or [[], []]
            reads = ReadBatch.from_sequences(names, sequences)
            assert msgpack.unpackb(bytes(batch.names)) == names
            assert np.array_equal(batch.reads.bases, reads.bases)
            self._check_batch(batch, matcher.match([reads])[0], matcher, heads)
        matcher.close()
        return len(keys)

    def _check_batch(
        self, batch: StoredBatch, result: Any, matcher: StreamMatcher, heads: dict[str, int]
    ) -> None:
        about = batch.about
        facts = about["batch"], about["base"], about["version_before"], about["version"]
        expected = result.number, result.base, result.version_before, result.version
        assert facts == expected, f"divergent: {facts}, one pass gives {expected}"
        hits, misses = intervals_by_event(result)
        summary = reports.reads(result, matcher.dictionary.targets)
        tables = {"match": hits, "mismatch": misses, "read": summary}
        for topic, content in batch.contents.items():
            assert batch.prev[topic] == heads.get(topic, 0), f"{topic}: prev"
            heads[topic] = batch.at
            if topic != "word":
                header, frames = self.feed.messages[topic, batch.at]
                assert frames[1:] == [bytes(frame) for frame in content.frames], "divergent feed"
                assert header["prev"] == batch.prev[topic]
            for (name, type_name, _), frame in zip(content.described, content.frames, strict=True):
                values = np.frombuffer(frame, type_name)
                if topic == "delta":
                    if name == "code":
                        assert np.array_equal(values, result.new_kmers), "divergent k-mers"
                    continue
                right = np.asarray(tables[topic][name], values.dtype)
                assert np.array_equal(values, right), f"divergent: {topic} {name}"
