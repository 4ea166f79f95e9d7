"""The tables, each a model whose types say what a key may hold.

The secret token of the live page: its syntax, and a file that holds it.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from streamer.matching.spec import DEFAULT_CHUNK, Device, Kernel, MatchSpec, Mode, Semantics
from streamer.protocol.endpoints import check_endpoint, check_http_address, default_endpoint
from streamer.protocol.header import MAX_NAME_BYTES
from streamer.watching import SETTLE_SECONDS
from trie.codes import MAX_K
from trie.strands import Strands

_FEWEST, _MOST = 16, 256
# no blanks, and nothing that a cookie, a header or a URL would change
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")


def check_token(token: str) -> str:
    """The token if it is valid or empty; else a ValueError that does not repeat it."""
    if not token:
        return token
    if not _FEWEST <= len(token) <= _MOST:
        raise ValueError(f"has {len(token)} characters, must have {_FEWEST} to {_MOST}")
    if not _TOKEN.fullmatch(token):
        raise ValueError("must consist of letters, digits and . _ ~ + / = -")
    return token


def read_token(path: str) -> str:
    """The token in a file; ValueError if there is none, or if others can read it."""
    try:
        with open(path, encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise ValueError(f"'{path}' can be read by others: chmod 600")
            token = file.read(_MOST + 2).strip()
    except UnicodeDecodeError:
        raise ValueError(f"'{path}' is not text") from None
    except OSError as error:
        raise ValueError(
            f"'{path}' cannot be read: {(error.strerror or str(error)).lower()}"
        ) from None
    if not token:
        raise ValueError(f"'{path}' is empty")
    try:
        return check_token(token)
    except ValueError as error:
        raise ValueError(f"the token in '{path}' {error}") from None


MIB = 1 << 20
GIB = 1 << 30

Endpoint = Annotated[str, AfterValidator(check_endpoint)]
HttpAddress = Annotated[str, AfterValidator(check_http_address)]
WebToken = Annotated[str, AfterValidator(check_token)]


def _check_producer(name: str) -> str:
    if len(name) > MAX_NAME_BYTES or not name.isprintable():
        raise ValueError(f"the name of a producer has up to {MAX_NAME_BYTES} printable characters")
    return name


ProducerName = Annotated[str, AfterValidator(_check_producer)]


class ConfigTable(BaseModel):
    """A table refuses unknown keys and values of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @field_validator("*")
    @classmethod
    def _without_nul(cls, value: Any) -> Any:
        """Refuse NUL: most strings are paths, which cannot hold one."""
        texts = [value] if isinstance(value, str) else value if isinstance(value, list) else ()
        if any("\0" in text for text in texts):
            raise ValueError("holds a NUL")
        return value


def _endpoint(name: str) -> Any:
    """A default that depends on the environment; it is checked like a given value."""
    return Field(default_factory=lambda: default_endpoint(name), validate_default=True)


def _journal_directory() -> str:
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "kmer-streamer", "journal")


class DictionaryTable(ConfigTable):
    """The k-mers that reads are matched against."""

    k: int = Field(default=21, ge=1, le=MAX_K)
    mode: Mode | None = None
    strands: Strands | None = None
    sources: list[str] = []
    seed_bases: int = Field(default=0, ge=0, lt=1 << 63)
    max_kmers: int = Field(default=16_000_000, ge=0, lt=1 << 62)
    at_limit: Literal["freeze", "refuse"] = "freeze"


class MatchingTable(ConfigTable):
    """How reads are matched."""

    device: Device = "auto"
    kernel: Kernel = "auto"
    distance: int = Field(default=0, ge=0, le=4)
    semantics: Semantics = "levenshtein"
    chunk_bases: int = Field(default=DEFAULT_CHUNK, ge=1, le=1 << 30)
    threads: int = Field(default=0, ge=0, le=4096)
    streams: int = Field(default=2, ge=1, le=8)
    gpus: int = Field(default=1, ge=0, le=64)
    device_bytes: int = Field(default=0, ge=0, le=1 << 50)


class IngestTable(ConfigTable):
    """Where reads come in."""

    endpoint: Endpoint = _endpoint("ingest")
    memory_bytes: int = Field(default=256 * MIB, ge=MIB, le=1 << 50)
    max_batch_bytes: int = Field(default=16 * MIB, ge=1024, le=1 << 30)


class FeedTable(ConfigTable):
    """Where results go out."""

    endpoint: Endpoint = _endpoint("feed")
    buffer_bytes: int = Field(default=256 * MIB, ge=MIB, le=1 << 50)
    beat_seconds: float = Field(default=1.0, ge=0.05, le=3)


class ControlTable(ConfigTable):
    """Where requests come in."""

    endpoint: Endpoint = _endpoint("control")


class SyncTable(ConfigTable):
    """Where clients replay past messages; served only with a journal."""

    endpoint: Endpoint = _endpoint("sync")
    connections: int = Field(default=64, ge=1, le=1 << 16)
    pulls: int = Field(default=16, ge=1, le=1 << 16)
    pull_bytes: int = Field(default=16 * MIB, ge=1 << 16, le=1 << 30)
    memory_bytes: int = Field(default=256 * MIB, ge=1 << 16, le=1 << 50)


class JournalTable(ConfigTable):
    """What survives the daemon; a limit of 0 keeps everything."""

    durability: Literal["none", "os", "fsync"] = "none"
    directory: str = Field(default_factory=_journal_directory)
    keep_bytes: int = Field(default=64 * GIB, ge=0, le=1 << 50)
    keep_hours: float = Field(default=0, ge=0, le=1e6)


class ClusterTable(ConfigTable):
    """The Ray cluster whose workers match reads; without an address this process does."""

    address: str = ""
    workers: int = Field(default=0, ge=0, le=1 << 16)
    shards: int = Field(default=1, ge=1, le=1 << 10)


class WatchTable(ConfigTable):
    """The folder of a sequencing run to watch for reads; without one none is watched."""

    directory: str = ""
    settle: float = Field(default=SETTLE_SECONDS, ge=0, le=86_400)
    until: list[str] = []
    name: ProducerName = ""
    ledger: str = ""


class DecisionTable(ConfigTable):
    """Which reads are worth sequencing; without target names nothing is decided."""

    enrich: list[str] = []
    deplete: list[str] = []
    min_windows: int = Field(default=1, ge=1, lt=1 << 62)
    min_fraction: float = Field(default=0.0, ge=0, le=1)
    first_bases: int = Field(default=800, ge=1, lt=1 << 62)
    give_up_bases: int = Field(default=0, ge=0, lt=1 << 62)

    @property
    def names(self) -> list[str]:
        """The listed targets; only one of the two lists may be filled."""
        return self.enrich or self.deplete


def _results_directory() -> str:
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "kmer-streamer", "jobs")


class JobsTable(ConfigTable):
    """Batch jobs: which files they may read and what they may use; without directories none run."""

    directories: list[str] = []
    results: str = Field(default_factory=_results_directory)
    at_once: int = Field(default=1, ge=1, le=64)
    kept: int = Field(default=100, ge=1, le=10_000)
    keep_bytes: int = Field(default=16 * GIB, ge=MIB, le=1 << 50)
    device_bytes: int = Field(default=0, ge=0, le=1 << 50)


class AnswersTable(ConfigTable):
    """What is counted over all reads so far; after loading, ``targets`` is true or false."""

    targets: bool | None = None
    coverage: bool = False
    barcodes: int = Field(default=1000, ge=1, lt=1 << 62)
    min_windows: int = Field(default=1, ge=1, lt=1 << 31)
    min_fraction: float = Field(default=0.0, ge=0, le=1)


class PanelTable(ConfigTable):
    """Targets that are watched together, and when there is enough of them."""

    groups: dict[str, list[str]] = {}
    enough_breadth: float = Field(default=0.0, ge=0, le=1)
    enough_depth: float = Field(default=0.0, ge=0, le=1e9)
    enough_reads: int = Field(default=0, ge=0, lt=1 << 53)

    @property
    def limits(self) -> bool:
        """Whether any limit is set."""
        return bool(self.enough_breadth or self.enough_depth or self.enough_reads)

    def fields(self) -> dict[str, Any]:
        """The arguments of ``matching.target_tally.Panel``."""
        return {
            "groups": self.groups,
            "breadth": self.enough_breadth,
            "depth": self.enough_depth,
            "reads": self.enough_reads,
        }


class SecurityTable(ConfigTable):
    """Who is admitted; without a folder of keys, everybody who can reach a socket."""

    keys: str = ""


class MetricsTable(ConfigTable):
    """Where Prometheus scrapes; without an address nothing is served."""

    endpoint: HttpAddress = ""
    target_series: int = Field(default=1000, ge=0, le=1_000_000)
    hosts: list[str] = []


class WebTable(ConfigTable):
    """Where the live page is served, and who may see it; without an address it is not."""

    endpoint: HttpAddress = ""
    token: WebToken = ""
    token_file: str = ""
    hosts: list[str] = []


class LogTable(ConfigTable):
    """The daemon's log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "console", "json"] = "auto"


class Config(ConfigTable):
    """All tables; paths in them are absolute once loaded, relative ones from the file's folder."""

    dictionary: DictionaryTable = Field(default_factory=lambda: DictionaryTable())
    matching: MatchingTable = Field(default_factory=lambda: MatchingTable())
    ingest: IngestTable = Field(default_factory=lambda: IngestTable())
    feed: FeedTable = Field(default_factory=lambda: FeedTable())
    control: ControlTable = Field(default_factory=lambda: ControlTable())
    sync: SyncTable = Field(default_factory=lambda: SyncTable())
    journal: JournalTable = Field(default_factory=lambda: JournalTable())
    watch: WatchTable = Field(default_factory=lambda: WatchTable())
    decision: DecisionTable = Field(default_factory=lambda: DecisionTable())
    jobs: JobsTable = Field(default_factory=lambda: JobsTable())
    answers: AnswersTable = Field(default_factory=lambda: AnswersTable())
    panel: PanelTable = Field(default_factory=lambda: PanelTable())
    security: SecurityTable = Field(default_factory=lambda: SecurityTable())
    metrics: MetricsTable = Field(default_factory=lambda: MetricsTable())
    web: WebTable = Field(default_factory=lambda: WebTable())
    cluster: ClusterTable = Field(default_factory=lambda: ClusterTable())
    log: LogTable = Field(default_factory=lambda: LogTable())

    @property
    def spec(self) -> MatchSpec:
        """What to match."""
        spec = match_spec(self.dictionary, self.matching)
        return replace(spec, counted=bool(self.answers.targets))


def match_spec(dictionary: DictionaryTable, matching: MatchingTable) -> MatchSpec:
    """What to match, from its two tables."""
    spec = MatchSpec.of(
        k=dictionary.k,
        sources=tuple(dictionary.sources),
        seed_bases=dictionary.seed_bases,
        mode=dictionary.mode,
        max_kmers=dictionary.max_kmers,
        strands=dictionary.strands,
        distance=matching.distance or None,
        semantics=matching.semantics,
        kernel=matching.kernel,
        chunk=matching.chunk_bases,
        threads=matching.threads,
        device=matching.device,
        streams=matching.streams,
        device_bytes=matching.device_bytes,
    )
    return replace(spec, track_tree=spec.grows)
