"""The schema of the feed: every topic, header field and column, defined once.

The daemon lays out its messages by it, clients check and decode them by it, ``streamer watch``
takes its columns from it, and the tables of docs/protocol.md are generated from it (tests/golden).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

NO_TARGET = 0xFFFFFFFF
"""In a column ``target``: no target."""


ACTIONS = ("proceed", "stop_receiving", "unblock")
"""The meaning of the numbers in the column ``action``."""


class Field(NamedTuple):
    """A field of a header."""

    name: str
    meaning: str


class Column(NamedTuple):
    """A column of a topic.

    limits: its least and its most value, the latter a number or what in the message gives it:
    ``reads`` (an index of a read), ``k`` (the code of a k-mer) or ``distance``. key_of: the header
    field whose keys its values are, besides ``no_key``. per_chunk: it has a value for each chunk of
    windows.
    """

    name: str
    type_name: str
    unit: str
    meaning: str
    limits: tuple[int, int | str] | None = None
    key_of: str = ""
    per_chunk: bool = False

    @property
    def no_key(self) -> int:
        """The value that is no key: -1, or the greatest value of an unsigned type."""
        return -1 if self.dtype.kind == "i" else int(np.iinfo(self.dtype).max)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type, in this machine's byte order."""
        return np.dtype(self.type_name)


class Topic(NamedTuple):
    """A topic of the feed, ``name`` without the dot that ends it on the wire.

    when: what makes the daemon send a message. fields: header fields that other topics lack.
    shown: the columns of ``streamer watch``, without ``topic`` and ``batch``. needs: the
    configuration without which there are no messages. parts: the topics whose columns it has, each
    prefixed with the name of its topic. optional: columns that only some of its messages have,
    after the others.
    """

    name: str
    when: str
    columns: tuple[Column, ...] = ()
    fields: tuple[Field, ...] = ()
    shown: str = ""
    needs: str = ""
    parts: tuple[str, ...] = ()
    optional: tuple[Column, ...] = ()

    @property
    def wire(self) -> str:
        """Its name in messages and subscriptions; the dot keeps topics from being prefixes."""
        return f"{self.name}."


_COUNT = 0, 2**63 - 1
_FLAG = 0, 1
_CODE = 0, "k"

_READ = Column("read", "uint32", "index", "the read, as an index into the names", (0, "reads"))
_START = Column("start", "int64", "bases", "where it starts in the read", _COUNT)
_END = Column("end", "int64", "bases", "where it ends in the read, exclusive", _COUNT)
_RUN = (
    _READ,
    Column("start", "int64", "bases", "start of the first window in the read", _COUNT),
    Column("end", "int64", "bases", "start of the last window in the read + k", _COUNT),
    Column("windows", "int64", "windows", "length of the run", (1, 2**63 - 1)),
)
_SET = Column("target", "uint32", "number", "key of `sets`; 0xFFFFFFFF: no target", key_of="sets")
_TARGET = Column(
    "target", "uint32", "number", "key of `targets`; 0xFFFFFFFF: no target", key_of="targets"
)
_BEST = Column(
    "best_target", "int32", "number", "key of `targets`; -1: no target", key_of="targets"
)
_CONTEXT = (
    Column("channel", "int32", "number", "of the sequencer; -1: unknown", (-1, 2**31 - 1)),
    Column("barcode", "int32", "number", "key of `barcodes`; -1: none", key_of="barcodes"),
)
_SNAPSHOT = Column("snapshot", "int64", "version", "of the dictionary that was searched")

_TARGETS = Field("targets", "all targets that the message refers to, an array of [number, name]")
_SETS = Field("sets", "all sets of targets that it refers to, an array of [number, targets]")
_BARCODES = Field("barcodes", "those of its reads, an array of [number, name]")
_DISTANCE = Field("distance", "the limit, in edits")

_GROWS = "a dictionary that grows or is seeded"
_RELOADED = "dictionary.sources"
_REVISABLE = "dictionary.sources, mode 'frozen' and a journal"

_HEADS = Field("heads", "map of topic to the last `at` on it, 0: none")

_RUN_SHOWN = "read start end event windows target"
_TOTALS_SHOWN = (
    "state reads bases windows matches mismatches reads_on_target new_kmers bases_per_second"
)

_ANSWERS = (
    Topic("match", "the batch has a match", (*_RUN, _SET), (_SETS, _TARGETS), _RUN_SHOWN),
    Topic("mismatch", "the batch has a mismatch", _RUN, (), _RUN_SHOWN),
    Topic(
        "near",
        "an end of a read has a k-mer within the distance",
        (
            _READ,
            _START,
            _END,
            Column(
                "distance",
                "uint8",
                "edits",
                "least distance of a k-mer at this end",
                (0, "distance"),
            ),
            Column("strand", "uint8", "0 or 1", "0: `+`, 1: `-`", _FLAG),
            Column("code", "uint64", "code", "the k-mer, as stored", _CODE),
            _SET,
            _SNAPSHOT,
            Column("best", "uint8", "0 or 1", "1: the best of a run of adjacent ends", _FLAG),
        ),
        (_SETS, _TARGETS, _DISTANCE),
        "read start end distance strand kmer target best snapshot",
        "a matching.distance and matching.semantics 'levenshtein'",
    ),
    Topic(
        "ltb",
        "an end of a read has a match or a mismatch word",
        (
            _READ,
            _END,
            Column("distances", "uint32", "bitmap", "bit e: a match at distance e"),
            Column("depths", "uint32", "bitmap", "bit h + 1: a mismatch below depth h"),
            _SNAPSHOT,
        ),
        (_DISTANCE,),
        "read end distances depths snapshot",
        "a matching.distance and matching.semantics 'ltb'",
    ),
    Topic(
        "delta",
        "the batch added k-mers to the dictionary",
        (
            Column("code", "uint64", "code", "the new k-mer", _CODE),
            _READ,
            Column("start", "int64", "bases", "start of the window in the read", _COUNT),
        ),
        (Field("seeded", "how many of the first rows are seeds"),),
        "read start end kmer",
        _GROWS,
    ),
    Topic(
        "word",
        "the batch has a window, and somebody subscribes",
        (
            Column("word", "uint64", "word", "event word of a window, see below"),
            Column(
                "chunk_base",
                "int64",
                "bases",
                "first symbol of the chunk in the stream",
                per_chunk=True,
            ),
            Column("chunk_version", "int64", "version", "of the chunk's snapshot", per_chunk=True),
            Column("chunk_words", "int64", "words", "how many words the chunk has", per_chunk=True),
        ),
        (Field("error", "only if words cannot express the events: why"),),
        "word chunk_base chunk_version",
    ),
    Topic(
        "read",
        "every batch",
        (
            _READ,
            Column("length", "int64", "bases", "length of the read", _COUNT),
            Column("windows", "int64", "windows", "without an ambiguity code", _COUNT),
            Column("matches", "int64", "windows", "that match", _COUNT),
            Column("mismatches", "int64", "windows", "that do not", _COUNT),
            Column("skipped", "int64", "windows", "with an ambiguity code", _COUNT),
            _BEST,
        ),
        (_TARGETS, _BARCODES),
        "read length windows matches mismatches skipped best_target channel barcode",
        optional=_CONTEXT,
    ),
    Topic(
        "decision",
        "every batch, and somebody subscribes",
        (
            _READ,
            *_CONTEXT,
            Column(
                "action",
                "uint8",
                "0 to 2",
                "0: `proceed`, 1: `stop_receiving`, 2: `unblock`",
                (0, 2),
            ),
            _TARGET,
            Column("matches", "int64", "windows", "that match the best target", _COUNT),
            Column("windows", "int64", "windows", "without an ambiguity code", _COUNT),
            Column("bases", "int64", "bases", "that were looked at", _COUNT),
        ),
        (_TARGETS, _BARCODES),
        "read channel barcode action target matches windows bases",
        "names in decision.enrich or decision.deplete",
    ),
)

LIVE_ONLY = frozenset({"word", "decision"})
"""Topics about records that are not stored."""

_REVISED = tuple(t for t in _ANSWERS if t.name != "delta" and t.name not in LIVE_ONLY)

_ROWS = (
    Field("columns", "names of the values of a row"),
    Field("rows", "array of rows, each an array; nil: none"),
    Field("version", "of the dictionary; with another one all counts start over"),
    Field("complete", "false while kept batches are still to be counted"),
)
_COUNTED = "answers.targets"
_TARGET_SHOWN = "target reads bases matches kmers seen breadth depth"

_TALLIES = (
    Topic(
        "targets",
        "a row of `match --report targets` has changed, every second",
        fields=_ROWS,
        shown=_TARGET_SHOWN,
        needs=_COUNTED,
    ),
    Topic(
        "barcodes",
        "a row of `match --report targets --by barcode` has changed, every second",
        fields=_ROWS,
        shown=f"barcode {_TARGET_SHOWN}",
        needs=_COUNTED,
    ),
    Topic(
        "enough",
        "there is enough of a target, or of all targets of a group, once for each barcode",
        fields=_ROWS,
        shown="barcode group target reads breadth depth",
        needs=f"{_COUNTED} and what is enough in [panel]",
    ),
    Topic(
        "novelty",
        "reads have come, every second",
        fields=(*_ROWS[:2], Field("version", "of the dictionary")),
        shown="reads bases kmers new",
        needs=_GROWS,
    ),
)

FEED = (
    *_ANSWERS,
    Topic(
        "retract",
        "reads of a kept batch have other answers with a new dictionary",
        (_READ,),
        shown="read version_before version",
        needs=_REVISABLE,
    ),
    Topic(
        "upgrade",
        "right after each `retract.`",
        tuple(
            column._replace(name=f"{topic.name}.{column.name}")
            for topic in _REVISED
            for column in topic.columns
        ),
        (
            Field("parts", "map of each topic that it has rows of to its further keys"),
            Field("totals", "map of totals to what changes in them, which may be negative"),
        ),
        " ".join(dict.fromkeys(["table", *" ".join(t.shown for t in _REVISED).split()])),
        _REVISABLE,
        tuple(topic.name for topic in _REVISED),
    ),
    Topic(
        "settled",
        "everything that follows from a new dictionary has been published",
        fields=(
            Field("version", "of that dictionary"),
            Field("from_batch", "from this batch on all answers are of it, or of a later one"),
        ),
        shown="version from_batch",
        needs=_RELOADED,
    ),
    Topic(
        "beat",
        "every second",
        fields=(
            _HEADS,
            Field("state", "of the daemon, as in an `ack`"),
            Field("totals", "as in the reply to `status`"),
            Field("version", "of the dictionary"),
            Field("published", "array of the topics that this daemon can have messages on"),
        ),
        shown=_TOTALS_SHOWN,
    ),
    Topic(
        "status",
        "the state changes, the dictionary has reached its limit, or there is a new one",
        fields=(_HEADS, Field("status", "as in the reply to `status`")),
        shown=_TOTALS_SHOWN,
    ),
    *_TALLIES,
)
"""All topics: those about records, in the order of their messages, then those about the daemon."""

TOPICS = {topic.name: topic for topic in FEED}
BATCH_TOPICS = {name: topic for name, topic in TOPICS.items() if topic.columns}
TALLIES = frozenset(topic.name for topic in _TALLIES)
"""Topics with rows of counts so far."""
TALLY_TYPES: dict[str, tuple[str, set[type]]] = {
    **dict.fromkeys(["barcode", "group", "target"], ("strings", {str})),
    **dict.fromkeys(["breadth", "depth"], ("numbers", {float, int})),
}
"""The types of values in such rows by column, unless they are nil; integers in all others."""
RECORD_TOPICS = {n: t for n, t in TOPICS.items() if n not in {"beat", "status", *TALLIES}}
"""Topics whose messages have ``prev``: those about a batch or about the stream."""
NAMES = {topic.wire: topic.name for topic in FEED}
"""Topics by their names on the wire."""

SHOWN_TARGETS = 8
"""The most targets of a set that rows and messages name."""


def shown_targets(names: Sequence[str]) -> list[str]:
    """Return the names of a set's targets, at most SHOWN_TARGETS and then ``...``."""
    return [*names[:SHOWN_TARGETS], *["..."][: len(names) > SHOWN_TARGETS]]


MAX_LABELS = 1024
"""The most distinct texts of a context column in one batch."""
MAX_LABEL_BYTES = 256
"""The most bytes of such a text, in UTF-8."""

BATCH_CONTEXT = (
    Field("channel", "bytes: int32 a read, -1: unknown"),
    Field(
        "start_time",
        "array of [width, bytes], of so many ASCII characters a read, 1 to 35: a time as RFC 3339 "
        "has it, perhaps without an offset, with zeros behind it, or only zeros: unknown",
    ),
    Field("run", "array of [texts, bytes], int32 a read: which of the texts, -1: unknown"),
    Field("barcode", "as `run`"),
    Field("sample", "as `run`"),
)
"""Keys of the context of a batch, all optional."""

STAMP = (
    Field("stream", "16 hexadecimal digits: which stream of records"),
    Field("epoch", "which run of the daemon, a higher number after every start"),
    Field("at", "number of the record, from 1; of a topic without `prev` the last one published"),
    Field("prev", "the last `at` before it **on the same topic**, 0: none; only of records"),
    Field("time", "nanoseconds since 1970"),
)
"""Fields in the header of every message, besides ``v`` and ``topic``."""

ORIGIN = (
    Field("batch", "number of the batch in the order of acceptance, from 0"),
    Field("base", "position in the stream of its first symbol"),
    Field("reads", "number of its reads"),
    Field("bases", "number of its symbols"),
    Field("producer", "name of its producer"),
    Field("producer_epoch", "epoch of its producer"),
    Field("producer_seq", "its number in that epoch"),
    Field("version_before", "of the dictionary, before the batch"),
    Field("version", "of the dictionary, after the batch"),
    Field("k", "length of a k-mer"),
    Field(
        "columns",
        "array of [name, type, length], one for each frame after the names; the types stand below",
    ),
)
"""Further fields in the header of a message about a batch."""
