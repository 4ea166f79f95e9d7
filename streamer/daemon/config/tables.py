"""The tables, each a model: what a key may hold, which keys fit together, what must be there.

The secret token of the live page: its syntax, and a file that holds it.
"""

import importlib.util
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from streamer.daemon.security.key_folder import KeyFolder
from streamer.errors import DataError, StreamerError
from streamer.matching.spec import (
    DEFAULT_CHUNK,
    Device,
    Kernel,
    MatchSpec,
    Mode,
    Semantics,
    TargetBy,
)
from streamer.protocol import endpoints
from streamer.protocol.keys import KeysError
from streamer.protocol.wire import MAX_NAME_BYTES
from streamer.sequences.record_limit import MOST_BASES
from streamer.sequences.sample_sheet import SampleSheet, SampleSheetError
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

Endpoint = Annotated[str, AfterValidator(endpoints.check_endpoint)]
HttpAddress = Annotated[str, AfterValidator(endpoints.check_http_address)]
WebToken = Annotated[str, AfterValidator(check_token)]


def _check_producer(name: str) -> str:
    if len(name) > MAX_NAME_BYTES or not name.isprintable():
        raise ValueError(f"the name of a producer has up to {MAX_NAME_BYTES} printable characters")
    return name


ProducerName = Annotated[str, AfterValidator(_check_producer)]


Fault = tuple[str, str, *tuple[str, ...]]
"""The key, what is wrong, and other keys involved, all as ``table.key``."""


class ConfigTable(BaseModel):
    """A table refuses unknown keys and values of another type. paths: keys that hold paths."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    paths: ClassVar[Sequence[str]] = ()

    def located(self, folder: Path) -> Self:
        """The table with absolute paths, relative ones from ``folder``; an empty default stays."""
        places: dict[str, Any] = {}
        for key in self.paths:
            value = getattr(self, key)
            if isinstance(value, list):
                places[key] = [_absolute(folder, path) for path in value]
            elif value or type(self).model_fields[key].default != "":
                places[key] = _absolute(folder, value)
        return self.model_copy(update=places)

    def missing(self, raw: Self) -> Iterator[Fault]:
        """Yield faults that depend on the machine; raw: the table with its paths as written."""
        return iter(())

    def faults(self) -> Iterator[Fault]:
        """Keys of the table that do not fit together."""
        return iter(())

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
    return Field(default_factory=lambda: endpoints.default_endpoint(name), validate_default=True)


def _state(name: str) -> Any:
    """A default below the folder for the state of programs."""

    def folder() -> str:
        state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        return os.path.join(state, "kmer-streamer", name)

    return Field(default_factory=folder)


def _absolute(folder: Path, path: str) -> str:
    return os.path.abspath(folder / os.path.expanduser(path))


class DictionaryTable(ConfigTable):
    """The k-mers that reads are matched against."""

    paths = ("sources", "targets")
    k: int = Field(default=21, ge=1, le=MAX_K)
    mode: Mode | None = None
    strands: Strands | None = None
    sources: list[str] = []
    targets: str = ""
    target_by: TargetBy = "record"
    seed_bases: int = Field(default=0, ge=0, lt=1 << 63)
    max_kmers: int = Field(default=16_000_000, ge=0, lt=1 << 62)
    at_limit: Literal["freeze", "refuse"] = "freeze"

    def located(self, folder: Path) -> Self:
        """Like that of other tables; k and strands, if not given, are those of an index."""
        table = super().located(folder)
        if not table.sources or {"k", "strands"} <= self.model_fields_set:
            return table
        from streamer.sequences.files import reference_files
        from trie.index.index_file import IndexFileError, facts_of

        files = list[str]()
        with suppress(OSError, StreamerError):
            files = reference_files(table.sources)
        for path in files:
            with suppress(OSError, IndexFileError):
                if (facts := facts_of(path)) is not None:
                    own = {"k": facts["k"], "strands": facts["strands"]}
                    if own["strands"] == "canonical":
                        # the default, but for a distance
                        del own["strands"]
                    named = self.model_fields_set
                    return table.model_copy(
                        update={key: value for key, value in own.items() if key not in named}
                    )
        return table

    def missing(self, raw: Self) -> Iterator[Fault]:
        from streamer.sequences.files import reference_files

        for index, (name, path) in enumerate(zip(raw.sources, self.sources, strict=True)):
            key = f"dictionary.sources.{index}"
            try:
                files = reference_files([path])
            except (OSError, StreamerError) as error:
                yield key, f"'{name}': {str(error).removeprefix(path + ': ')}"
                continue
            if not os.path.exists(files[0]):
                yield key, f"no such file: '{name}' (looked for {path})"
            for file in files:
                if os.path.exists(file) and not os.access(file, os.R_OK):
                    yield key, f"'{name if file == path else file}' is not readable"
        if self.targets:
            from streamer.dictionary.target_table import read_targets

            try:
                read_targets(self.targets)
            except DataError as error:
                yield "dictionary.targets", str(error)

    def faults(self) -> Iterator[Fault]:
        names = {"targets": bool(self.targets), "target_by": self.target_by != "record"}
        for key, named in names.items():
            if named and not self.sources:
                what = "names targets of dictionary.sources, which is empty"
                yield f"dictionary.{key}", what, "dictionary.sources"
        if self.mode == "frozen" and not self.sources and not self.seed_bases:
            what = "a frozen dictionary needs sources or seed_bases"
            yield "dictionary.mode", what, "dictionary.sources", "dictionary.seed_bases"


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
    max_record_bases: int = Field(default=MOST_BASES, ge=1, lt=1 << 62)

    def faults(self) -> Iterator[Fault]:
        if self.max_batch_bytes > self.memory_bytes:
            what = f"is {self.max_batch_bytes}, more than ingest.memory_bytes = {self.memory_bytes}"
            yield "ingest.max_batch_bytes", what, "ingest.memory_bytes"


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

    def faults(self) -> Iterator[Fault]:
        if self.pull_bytes > self.memory_bytes:
            what = f"is {self.pull_bytes}, more than sync.memory_bytes = {self.memory_bytes}"
            yield "sync.pull_bytes", what, "sync.memory_bytes"


class JournalTable(ConfigTable):
    """The records that survive the daemon; a limit of 0 keeps everything."""

    paths = ("directory",)
    durability: Literal["none", "os", "fsync"] = "none"
    directory: str = _state("journal")
    keep_bytes: int = Field(default=64 * GIB, ge=0, le=1 << 50)
    keep_hours: float = Field(default=0, ge=0, le=1e6)


class ClusterTable(ConfigTable):
    """The Ray cluster whose workers match reads; without an address this process does."""

    address: str = ""
    workers: int = Field(default=0, ge=0, le=1 << 16)
    shards: int = Field(default=1, ge=1, le=1 << 10)


class WatchTable(ConfigTable):
    """The folder of a sequencing run to watch for reads; without one none is watched."""

    paths = ("directory", "ledger")
    directory: str = ""
    settle: float = Field(default=SETTLE_SECONDS, ge=0, le=86_400)
    until: list[str] = []
    name: ProducerName = ""
    ledger: str = ""

    def missing(self, raw: Self) -> Iterator[Fault]:
        if self.directory and not os.path.isdir(self.directory):
            missing = f"no such folder: '{raw.directory}' (looked for {self.directory})"
            is_there = os.path.exists(self.directory)
            yield (
                "watch.directory",
                f"'{raw.directory}' is not a folder" if is_there else missing,
            )


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

    def faults(self) -> Iterator[Fault]:
        if self.enrich and self.deplete:
            what = "name targets to enrich or to deplete, not both"
            yield "decision.deplete", what, "decision.enrich"


class JobsTable(ConfigTable):
    """Batch jobs: which files they may read and what they may use; without directories none run."""

    paths = ("directories", "results")
    directories: list[str] = []
    results: str = _state("jobs")
    at_once: int = Field(default=1, ge=1, le=64)
    kept: int = Field(default=100, ge=1, le=10_000)
    keep_bytes: int = Field(default=16 * GIB, ge=MIB, le=1 << 50)
    device_bytes: int = Field(default=0, ge=0, le=1 << 50)
    nice: int = Field(default=19, ge=0, le=19)

    def missing(self, raw: Self) -> Iterator[Fault]:
        for at, (name, path) in enumerate(zip(raw.directories, self.directories, strict=True)):
            if not name:
                # joined to the folder of the configuration it would be that
                yield f"jobs.directories.{at}", "is empty: name a folder, '.' for that of this file"
            elif not os.path.isdir(path):
                yield f"jobs.directories.{at}", f"no such folder: '{name}' (looked for {path})"
        if self.directories and importlib.util.find_spec("pyarrow") is None:
            what = "results of jobs need pyarrow: pip install '.[arrow]' in a clone"
            yield "jobs.directories", what


NOT_COUNTED = "has no effect without answers.targets = true"


class AnswersTable(ConfigTable):
    """The counts over all reads so far; after loading, ``targets`` is true or false."""

    targets: bool | None = None
    coverage: Literal["barcode"] | bool = False
    barcodes: int = Field(default=1000, ge=1, lt=1 << 62)
    min_windows: int = Field(default=1, ge=1, lt=1 << 31)
    min_fraction: float = Field(default=0.0, ge=0, le=1)

    def faults(self) -> Iterator[Fault]:
        if self.coverage and not self.targets:
            yield "answers.coverage", NOT_COUNTED, "answers.targets"


class PanelTable(ConfigTable):
    """Targets that are watched together, and when there is enough of them."""

    groups: dict[str, list[str]] = {}
    enough_breadth: float = Field(default=0.0, ge=0, le=1)
    enough_depth: float = Field(default=0.0, ge=0, le=1e9)
    enough_reads: int = Field(default=0, ge=0, lt=1 << 53)
    enough_windows: int = Field(default=0, ge=0, lt=1 << 62)
    control_factor: float = Field(default=0.0, ge=0, le=1e9)
    sample_reads: int = Field(default=0, ge=0, lt=1 << 53)
    positive: list[str] = []

    @property
    def limits(self) -> bool:
        """Whether any limit is set."""
        keys = [key for key in type(self).model_fields if key.startswith("enough_")]
        return any(getattr(self, key) for key in keys)

    def faults(self) -> Iterator[Fault]:
        for key in ("control_factor", "sample_reads", "positive"):
            if getattr(self, key) and not self.limits:
                yield f"panel.{key}", "has no effect without enough_reads or another threshold"

    def fields(self) -> dict[str, Any]:
        """The arguments of ``matching.panel.Panel``; older clients know only the first four."""
        fields = {
            key.removeprefix("enough_"): getattr(self, key) for key in type(self).model_fields
        }
        return {key: value for at, (key, value) in enumerate(fields.items()) if at < 4 or value}


class SamplesTable(ConfigTable):
    """Which samples the barcodes stand for; without a sheet reads are counted by barcode alone."""

    paths = ("sheet",)
    sheet: str = ""
    run: str = ""

    def missing(self, raw: Self) -> Iterator[Fault]:
        if self.sheet:
            try:
                SampleSheet.read(self.sheet)
            except SampleSheetError as error:
                yield "samples.sheet", str(error)


class SecurityTable(ConfigTable):
    """Who is admitted; without a folder of keys, everybody who can reach a socket."""

    paths = ("keys",)
    keys: str = ""

    def missing(self, raw: Self) -> Iterator[Fault]:
        if self.keys:
            try:
                KeyFolder.read(self.keys)
            except KeysError as error:
                yield "security.keys", str(error).replace(self.keys, raw.keys, 1)


class MetricsTable(ConfigTable):
    """Where Prometheus scrapes; without an address nothing is served."""

    endpoint: HttpAddress = ""
    target_series: int = Field(default=1000, ge=0, le=1_000_000)
    hosts: list[str] = []


class WebTable(ConfigTable):
    """Where the live page is served, and who may see it; without an address it is not."""

    paths = ("token_file",)
    endpoint: HttpAddress = ""
    token: WebToken = ""
    token_file: str = ""
    hosts: list[str] = []

    def missing(self, raw: Self) -> Iterator[Fault]:
        if not self.endpoint:
            return
        packages = "starlette", "uvicorn"
        missing = [name for name in packages if importlib.util.find_spec(name) is None]
        if missing:
            need = f"the live page needs {' and '.join(missing)}"
            yield "web.endpoint", f"{need}: pip install '.[web]' in a clone"
        if self.token_file:
            try:
                read_token(self.token_file)
            except ValueError as error:
                yield "web.token_file", str(error)

    def faults(self) -> Iterator[Fault]:
        if self.token and self.token_file:
            yield "web.token_file", "give the token or its file, not both", "web.token"
        if self.endpoint and not (self.token or self.token_file):
            host, _ = endpoints.split_http_address(self.endpoint)
            if not endpoints.is_loopback(host):
                what = f"'{self.endpoint}' is not on this machine: set web.token_file"
                yield "web.endpoint", f"{what}, or use 127.0.0.1"


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
    samples: SamplesTable = Field(default_factory=lambda: SamplesTable())
    security: SecurityTable = Field(default_factory=lambda: SecurityTable())
    metrics: MetricsTable = Field(default_factory=lambda: MetricsTable())
    web: WebTable = Field(default_factory=lambda: WebTable())
    cluster: ClusterTable = Field(default_factory=lambda: ClusterTable())
    log: LogTable = Field(default_factory=lambda: LogTable())

    @property
    def spec(self) -> MatchSpec:
        """The description of matching."""
        spec = match_spec(self.dictionary, self.matching)
        return replace(spec, counted=bool(self.answers.targets))

    def faults(self) -> Iterator[Fault]:
        """Keys of different tables that do not fit together; each names all tables involved."""
        yield from _match_faults(self.spec)
        yield from self._cluster_faults()
        sources, targets = self.dictionary.sources, self.answers.targets
        if targets and not sources:
            what = "is true, but there are no targets: dictionary.sources is empty"
            yield "answers.targets", what, "dictionary.sources"
        for name in PanelTable.model_fields:
            if getattr(self.panel, name) and not targets:
                yield f"panel.{name}", NOT_COUNTED, "answers.targets"
        if self.samples.sheet and not targets:
            yield "samples.sheet", NOT_COUNTED, "answers.targets"
        if self.panel.control_factor and not self.samples.sheet:
            what = "needs a sample sheet, which names the negative control"
            yield "panel.control_factor", what, "samples.sheet"
        if self.decision.names and not sources:
            key = "decision.enrich" if self.decision.enrich else "decision.deplete"
            what = "targets are records of dictionary.sources, which is empty"
            yield key, what, "dictionary.sources"
        yield from self._address_faults()
        yield from self._text_faults()
        yield from self._shared_endpoints()

    def _cluster_faults(self) -> Iterator[Fault]:
        """Workers match exactly, by the index, on CPUs."""
        key, matching = "cluster.address", self.matching
        if not self.cluster.address:
            return
        if matching.distance or matching.semantics != "levenshtein":
            yield key, "workers match without a distance", "matching.distance"
        if matching.kernel not in ("auto", "index"):
            yield key, "workers match with matching.kernel 'index'", "matching.kernel"
        if matching.device == "cuda":
            yield key, "workers match on CPUs", "matching.device"

    def _address_faults(self) -> Iterator[Fault]:
        """Endpoints that other machines reach need keys."""
        for name in ("ingest", "feed", "control", "sync"):
            key, endpoint = f"{name}.endpoint", getattr(self, name).endpoint
            if endpoints.is_local(endpoint):
                continue
            if not endpoints.can_be_bound(endpoint):
                what = f"'{endpoint}' names no address to listen at: use an IP address"
                yield key, f"{what}, 0.0.0.0 for all"
            elif not self.security.keys:
                what = (
                    f"'{endpoint}' can be reached from other machines: set security.keys "
                    "(streamer keygen DIR makes them), or use ipc:// or tcp://127.0.0.1"
                )
                yield key, what, "security.keys"

    def _text_faults(self) -> Iterator[Fault]:
        """Paths that are passed to SQLite, or stored, and are not UTF-8 because of their folder."""
        paths = [("jobs.results", self.jobs.results)] if self.jobs.directories else []
        if self.journal.durability != "none":
            paths.append(("journal.directory", self.journal.directory))
            paths.append(("dictionary.targets", self.dictionary.targets))
            sources = enumerate(self.dictionary.sources)
            paths += [(f"dictionary.sources.{at}", source) for at, source in sources]
        for key, path in paths:
            if not endpoints.is_utf8(path):
                yield key, f"'{path}' is not UTF-8"

    def _shared_endpoints(self) -> Iterator[Fault]:
        seen: dict[str, str] = {}
        for name in ("ingest", "feed", "control", "sync", "metrics", "web"):
            endpoint = getattr(self, name).endpoint
            if not endpoint or endpoint.endswith((":*", ":0")):
                continue
            if name in ("metrics", "web"):
                endpoint = f"tcp://{endpoint}"
            if endpoint in seen:
                other = f"{seen[endpoint]}.endpoint"
                yield f"{name}.endpoint", f"'{endpoint}' is already {other}", other
            seen.setdefault(endpoint, name)


def match_spec(dictionary: DictionaryTable, matching: MatchingTable) -> MatchSpec:
    """Make the description of matching from its two tables."""
    spec = MatchSpec.of(
        k=dictionary.k,
        sources=tuple(dictionary.sources),
        targets=dictionary.targets,
        target_by=dictionary.target_by,
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


def _match_faults(spec: MatchSpec) -> Iterator[Fault]:
    """The faults of ``MatchSpec.faults``, in words for users."""
    near = f"with semantics '{spec.semantics}'" if spec.near else "without a distance"
    kernels = f"is '{spec.kernel}', {near} it must be one of {', '.join(spec.kernels)}"
    limits = "is {}, must be {} dictionary.k = {}".format
    faults: dict[str, Fault] = {
        "kernel": ("matching.kernel", kernels, "matching.distance", "dictionary.k"),
        "distance": (
            "matching.distance", limits(spec.distance, "less than", spec.k), "dictionary.k"
        ),
        "strands": (
            "dictionary.strands",
            f"'{spec.strands}' is not supported with a distance: use forward or both",
            "matching.distance",
        ),
        "device": (
            "matching.kernel",
            f"'{spec.kernel}' needs matching.device 'auto' or 'cuda'",
            "matching.device",
            "dictionary.k",
        ),
        "chunk": (
            "matching.chunk_bases", limits(spec.chunk, "at least", spec.k), "dictionary.k"
        ),
    }  # fmt: skip
    for fault in spec.faults():
        yield faults[fault]
