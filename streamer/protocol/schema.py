"""The schema of the feed: every topic and column, defined once.

The daemon lays out its messages by it, clients check and decode them by it, and ``streamer watch``
takes its columns from it. docs/protocol.md has the meaning and unit of each, and the header fields.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

NO_TARGET = 0xFFFFFFFF
"""In a column ``target``: no target."""


ACTIONS = ("proceed", "stop_receiving", "unblock")
"""The meaning of the numbers in the column ``action``."""


class Column(NamedTuple):
    """A column of a topic.

    limits: its least and its most value, the latter a number or what in the message gives it:
    ``reads`` (an index of a read), ``k`` (the code of a k-mer) or ``distance``. key_of: the header
    field whose keys its values are, besides ``no_key``. per_chunk: it has a value for each chunk of
    windows.
    """

    name: str
    type_name: str
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

    shown: the columns of ``streamer watch``, without ``topic`` and ``batch``. needs: the
    configuration without which there are no messages. parts: the topics whose columns it has, each
    prefixed with the name of its topic. optional: columns that only some of its messages have,
    after the others.
    """

    name: str
    columns: tuple[Column, ...] = ()
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

_READ = Column("read", "uint32", (0, "reads"))
_START = Column("start", "int64", _COUNT)
_END = Column("end", "int64", _COUNT)
_RUN = _READ, _START, _END, Column("windows", "int64", (1, 2**63 - 1))
_SET = Column("target", "uint32", key_of="sets")
_TARGET = Column("target", "uint32", key_of="targets")
_BEST = Column("best_target", "int32", key_of="targets")
_CONTEXT = (
    Column("channel", "int32", (-1, 2**31 - 1)),
    Column("barcode", "int32", key_of="barcodes"),
)
_SNAPSHOT = Column("snapshot", "int64")

_GROWS = "a dictionary that grows or is seeded"
_RELOADED = "dictionary.sources"
_REVISABLE = "dictionary.sources, mode 'frozen' and a journal"

_RUN_SHOWN = "read start end event windows target"
_TOTALS_SHOWN = (
    "state reads bases windows matches mismatches reads_on_target new_kmers bases_per_second"
)

_ANSWERS = (
    Topic("match", (*_RUN, _SET), _RUN_SHOWN),
    Topic("mismatch", _RUN, _RUN_SHOWN),
    Topic(
        "near",
        (
            _READ,
            _START,
            _END,
            Column("distance", "uint8", (0, "distance")),
            Column("strand", "uint8", _FLAG),
            Column("code", "uint64", _CODE),
            _SET,
            _SNAPSHOT,
            Column("best", "uint8", _FLAG),
        ),
        "read start end distance strand kmer target best snapshot",
        "a matching.distance and matching.semantics 'levenshtein'",
    ),
    Topic(
        "ltb",
        (_READ, _END, Column("distances", "uint32"), Column("depths", "uint32"), _SNAPSHOT),
        "read end distances depths snapshot",
        "a matching.distance and matching.semantics 'ltb'",
    ),
    Topic("delta", (Column("code", "uint64", _CODE), _READ, _START), "read start end kmer", _GROWS),
    Topic(
        "word",
        (
            Column("word", "uint64"),
            Column("chunk_base", "int64", per_chunk=True),
            Column("chunk_version", "int64", per_chunk=True),
            Column("chunk_words", "int64", per_chunk=True),
        ),
        "word chunk_base chunk_version",
    ),
    Topic(
        "read",
        (
            _READ,
            Column("length", "int64", _COUNT),
            Column("windows", "int64", _COUNT),
            Column("matches", "int64", _COUNT),
            Column("mismatches", "int64", _COUNT),
            Column("skipped", "int64", _COUNT),
            _BEST,
        ),
        "read length windows matches mismatches skipped best_target channel barcode",
        optional=_CONTEXT,
    ),
    Topic(
        "decision",
        (
            _READ,
            *_CONTEXT,
            Column("action", "uint8", (0, 2)),
            _TARGET,
            Column("matches", "int64", _COUNT),
            Column("windows", "int64", _COUNT),
            Column("bases", "int64", _COUNT),
        ),
        "read channel barcode action target matches windows bases",
        "names in decision.enrich or decision.deplete",
    ),
)

LIVE_ONLY = frozenset({"word", "decision"})
"""Topics about records that are not stored."""

_REVISED = tuple(t for t in _ANSWERS if t.name != "delta" and t.name not in LIVE_ONLY)

_COUNTED = "answers.targets"
_TARGET_SHOWN = "target reads bases matches kmers seen breadth depth"

_TALLIES = (
    Topic("targets", shown=_TARGET_SHOWN, needs=_COUNTED),
    Topic("barcodes", shown=f"barcode {_TARGET_SHOWN}", needs=_COUNTED),
    Topic(
        "enough",
        shown="barcode group target reads breadth depth",
        needs=f"{_COUNTED} and what is enough in [panel]",
    ),
    Topic("novelty", shown="reads bases kmers new", needs=_GROWS),
)

FEED = (
    *_ANSWERS,
    Topic("retract", (_READ,), "read version_before version", _REVISABLE),
    Topic(
        "upgrade",
        tuple(
            column._replace(name=f"{topic.name}.{column.name}")
            for topic in _REVISED
            for column in topic.columns
        ),
        " ".join(dict.fromkeys(["table", *" ".join(t.shown for t in _REVISED).split()])),
        _REVISABLE,
        tuple(topic.name for topic in _REVISED),
    ),
    Topic("settled", shown="version from_batch", needs=_RELOADED),
    Topic("beat", shown=_TOTALS_SHOWN),
    Topic("status", shown=_TOTALS_SHOWN),
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
