"""The configuration of the daemon: TOML in, checked settings out, every fault with its key.

One model a table. A key's type says what it may hold; the ``_..._faults`` functions check keys
against each other. A fault is reported where its key was set: on a line of the file, or by
``--set``.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from streamer.daemon.toml_lines import key_lines
from streamer.errors import ConfigError
from streamer.matching.spec import DEFAULT_CHUNK, Device, Kernel, MatchSpec, Mode, Semantics
from streamer.protocol.endpoints import check_endpoint, default_endpoint
from trie.codes import MAX_K
from trie.strands import Strands

MIB = 1 << 20
GIB = 1 << 30

# the key, what is wrong, and other keys involved
Fault = tuple[str, str, *tuple[str, ...]]
Endpoint = Annotated[str, AfterValidator(check_endpoint)]


class ConfigTable(BaseModel):
    """A table refuses unknown keys and values of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


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

    endpoint: Endpoint = Field(default_factory=lambda: default_endpoint("ingest"))
    memory_bytes: int = Field(default=256 * MIB, ge=MIB, le=1 << 50)
    max_batch_bytes: int = Field(default=16 * MIB, ge=1024, le=1 << 30)


class FeedTable(ConfigTable):
    """Where results go out."""

    endpoint: Endpoint = Field(default_factory=lambda: default_endpoint("feed"))
    buffer_bytes: int = Field(default=256 * MIB, ge=MIB, le=1 << 50)
    beat_seconds: float = Field(default=1.0, ge=0.05, le=3)


class ControlTable(ConfigTable):
    """Where requests come in."""

    endpoint: Endpoint = Field(default_factory=lambda: default_endpoint("control"))


class SyncTable(ConfigTable):
    """Where what was said before is asked for; served only with a journal."""

    endpoint: Endpoint = Field(default_factory=lambda: default_endpoint("sync"))
    connections: int = Field(default=64, ge=1, le=1 << 16)
    pulls: int = Field(default=16, ge=1, le=1 << 16)
    pull_bytes: int = Field(default=16 * MIB, ge=1 << 16, le=1 << 30)
    memory_bytes: int = Field(default=256 * MIB, ge=1 << 16, le=1 << 50)


class JournalTable(ConfigTable):
    """What outlives the daemon; a limit of 0 keeps everything."""

    durability: Literal["none", "os", "fsync"] = "none"
    directory: str = Field(default_factory=_journal_directory)
    keep_bytes: int = Field(default=64 * GIB, ge=0, le=1 << 50)
    keep_hours: float = Field(default=0, ge=0, le=1e6)


class DecisionTable(ConfigTable):
    """Which reads are worth sequencing; without names nothing is decided."""

    enrich: list[str] = []
    deplete: list[str] = []
    min_windows: int = Field(default=1, ge=1, lt=1 << 62)
    min_fraction: float = Field(default=0.0, ge=0, le=1)
    first_bases: int = Field(default=800, ge=1, lt=1 << 62)
    give_up_bases: int = Field(default=0, ge=0, lt=1 << 62)

    @property
    def names(self) -> list[str]:
        """Those that are listed; of the two lists one has some."""
        return self.enrich or self.deplete


class AnswersTable(ConfigTable):
    """What is counted of all reads so far."""

    targets: bool = False
    min_windows: int = Field(default=1, ge=1, lt=1 << 31)
    min_fraction: float = Field(default=0.0, ge=0, le=1)


class PanelTable(ConfigTable):
    """Targets that are watched together, and how much of them is enough."""

    groups: dict[str, list[str]] = {}
    enough_breadth: float = Field(default=0.0, ge=0, le=1)
    enough_depth: float = Field(default=0.0, ge=0, le=1e9)
    enough_reads: int = Field(default=0, ge=0, lt=1 << 53)

    @property
    def limits(self) -> bool:
        """Whether anything can be enough."""
        return bool(self.enough_breadth or self.enough_depth or self.enough_reads)


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
    decision: DecisionTable = Field(default_factory=lambda: DecisionTable())
    answers: AnswersTable = Field(default_factory=lambda: AnswersTable())
    panel: PanelTable = Field(default_factory=lambda: PanelTable())
    log: LogTable = Field(default_factory=lambda: LogTable())

    @property
    def spec(self) -> MatchSpec:
        """What to match."""
        spec = match_spec(self.dictionary, self.matching)
        return replace(spec, counted=self.answers.targets)


_TABLES: dict[str, type[ConfigTable]] = {
    name: field.annotation  # type: ignore[misc]
    for name, field in Config.model_fields.items()
}

_KEYS = {
    key: f"{table}.{key}"
    for table, model in reversed(_TABLES.items())
    for key in model.model_fields
    if key not in _TABLES
}
"""The full path of a key without its table: in the first table that has it."""


def load(path: str | None, overrides: Sequence[str] = (), *, check_files: bool = True) -> Config:
    """The configuration of a TOML file (None: all defaults) with ``table.key=value`` overrides.

    ConfigError holds every fault. ``check_files`` also checks whether the dictionary's sources
    exist; clients need only the endpoints.
    """
    origin = _Origin(path or "<defaults>")
    content = _read(path, origin) if path else {}
    malformed = _override(content, overrides, origin)
    faults: list[Fault] = []
    folder = Path(path).parent if path else Path()
    tables: dict[str, Any] = {}
    for name, value in content.items():
        if name in _KEYS and not isinstance(value, dict):
            faults.append((name, f"is in no table, did you mean '{_KEYS[name]}'?"))
        elif name not in _TABLES:
            faults.append((name, "unknown table" + _did_you_mean(name, _TABLES)))
        elif not isinstance(value, dict):
            faults.append((name, f"must be a table, not {_kind(value)}"))
        else:
            tables[name] = value
    checked: dict[str, ConfigTable] = {}
    for name, model in _TABLES.items():
        try:
            checked[name] = model.model_validate(tables.get(name, {}))
        except ValidationError as error:
            faults.extend(_faults_of(name, model, error))
    dictionary = checked.get("dictionary")
    if isinstance(dictionary, DictionaryTable):
        absolute = [str(Path(os.path.abspath(folder / source))) for source in dictionary.sources]
        if check_files:
            faults.extend(_file_faults(dictionary.sources, absolute))
        checked["dictionary"] = dictionary.model_copy(update={"sources": absolute})
    journal = checked.get("journal")
    if isinstance(journal, JournalTable):
        directory = os.path.abspath(folder / os.path.expanduser(journal.directory))
        checked["journal"] = journal.model_copy(update={"directory": directory})
    faults.extend(_table_faults(checked))
    if malformed or faults:
        placed = [(origin.of(key, *others), key, what) for key, what, *others in faults]
        raise ConfigError([*malformed, *placed])
    return Config.model_construct(**checked)  # type: ignore[arg-type]


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


@dataclass
class _Origin:
    """Where settings come from: the ``text`` of a file and, by key, ``overrides`` of ``--set``."""

    source: str
    text: str = ""
    overrides: dict[str, str] = field(default_factory=dict)

    @cached_property
    def lines(self) -> dict[str, int]:
        """The lines of the keys in the file, found only if there is a fault to report."""
        return key_lines(self.text)

    def of(self, *keys: str) -> str:
        """Where the first of the keys was set; overrides come before the file."""
        paths = [path for key in keys for path in _outward(key)]
        for path in paths:
            if path in self.overrides:
                return f"--set {self.overrides[path]}"
        for path in paths:
            if path in self.lines:
                return f"{self.source}:{self.lines[path]}"
        return self.source


def _outward(key: str) -> Iterator[str]:
    """The key, then the keys that contain it, without the table."""
    yield key
    while key.count(".") > 1:
        key = key.rpartition(".")[0]
        yield key


def _read(path: str, origin: _Origin) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            origin.text = file.read().decode()
        return tomllib.loads(origin.text)
    except tomllib.TOMLDecodeError as error:
        what = f"not valid TOML: {error}"
    except UnicodeDecodeError:
        what = "not valid TOML: it is not UTF-8 text"
    except OSError as error:
        what = f"cannot be read: {(error.strerror or str(error)).lower()}"
    raise ConfigError([(path, "", what)])


def _override(
    content: dict[str, Any], overrides: Sequence[str], origin: _Origin
) -> list[tuple[str, str, str]]:
    """Put ``table.key=value`` settings into the content; returns the malformed ones as faults.

    A value is a TOML value or a bare word.
    """
    malformed = []
    for override in overrides:
        key, equals, text = override.partition("=")
        table, dot, name = (part.strip() for part in key.partition("."))
        if not (equals and dot and table and name):
            malformed.append((f"--set {override}", "", "must have the form table.key=value"))
            continue
        try:
            value: Any = tomllib.loads(f"value = {text}")["value"]
        except (tomllib.TOMLDecodeError, KeyError):
            value = text.strip()
        if table not in content:
            content[table] = {}
            origin.overrides[table] = override
        held = content[table]
        if isinstance(held, dict):
            held[name] = value
            origin.overrides[f"{table}.{name}"] = override
    return malformed


def _faults_of(table: str, model: type[ConfigTable], error: ValidationError) -> Iterator[Fault]:
    for fault in error.errors():
        key = ".".join([table, *map(str, fault["loc"])])
        given = fault.get("input")
        context = fault.get("ctx", {})
        match fault["type"]:
            case "extra_forbidden":
                name = str(fault["loc"][-1])
                yield key, "unknown key" + _did_you_mean(name, model.model_fields)
            case "greater_than_equal":
                yield key, f"is {given!r}, must be at least {context['ge']}"
            case "less_than_equal":
                yield key, f"is {given!r}, must be at most {context['le']}"
            case "literal_error":
                yield key, f"is {given!r}, must be {context['expected']}"
            case "int_type" | "float_type" | "string_type" | "list_type" | "bool_type" as kind:
                yield key, f"must be {_WANTED[kind]}, not {_kind(given)}"
            case "value_error":
                yield key, str(context["error"])
            case _:
                yield key, fault["msg"]


_WANTED = {
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "a string",
    "list_type": "a list",
    "bool_type": "true or false",
}


def _kind(value: object) -> str:
    names = {bool: "a boolean", int: "an integer", float: "a float", str: "a string"}
    names |= {list: "a list", dict: "a table"}
    return names.get(type(value), f"a {type(value).__name__}")


def _did_you_mean(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean '{close[0]}'?" if close else f" (known: {', '.join(known)})"


def _file_faults(given: Sequence[str], absolute: Sequence[str]) -> Iterator[Fault]:
    for index, (name, path) in enumerate(zip(given, absolute, strict=True)):
        key = f"dictionary.sources.{index}"
        if os.path.isdir(path):
            yield key, f"'{name}' is a directory, not a sequence file"
        elif not os.path.exists(path):
            yield key, f"no such file: '{name}' (looked for {path})"
        elif not os.access(path, os.R_OK):
            yield key, f"'{name}' is not readable"


def _table_faults(tables: dict[str, ConfigTable]) -> Iterator[Fault]:
    """Faults between keys of the tables that are valid by themselves."""
    dictionary, matching = tables.get("dictionary"), tables.get("matching")
    if isinstance(dictionary, DictionaryTable):
        nothing = not dictionary.sources and not dictionary.seed_bases
        if dictionary.mode == "frozen" and nothing:
            what = "a frozen dictionary needs sources or seed_bases"
            yield "dictionary.mode", what, "dictionary.sources", "dictionary.seed_bases"
        if isinstance(matching, MatchingTable):
            yield from _match_faults(match_spec(dictionary, matching))
    answers, panel = tables.get("answers"), tables.get("panel")
    if isinstance(answers, AnswersTable):
        if answers.targets and isinstance(dictionary, DictionaryTable) and not dictionary.sources:
            what = "is true, but there are no targets: dictionary.sources is empty"
            yield "answers.targets", what, "dictionary.sources"
        asked = isinstance(panel, PanelTable) and [
            name for name in PanelTable.model_fields if getattr(panel, name)
        ]
        for name in () if answers.targets else asked or ():
            yield f"panel.{name}", "has no effect without answers.targets = true", "answers.targets"
    ingest = tables.get("ingest")
    if isinstance(ingest, IngestTable) and ingest.max_batch_bytes > ingest.memory_bytes:
        what = f"is {ingest.max_batch_bytes}, more than ingest.memory_bytes = {ingest.memory_bytes}"
        yield "ingest.max_batch_bytes", what, "ingest.memory_bytes"
    decision = tables.get("decision")
    if isinstance(decision, DecisionTable):
        yield from _decision_faults(decision, dictionary)
    sync = tables.get("sync")
    if isinstance(sync, SyncTable) and sync.pull_bytes > sync.memory_bytes:
        what = f"is {sync.pull_bytes}, more than sync.memory_bytes = {sync.memory_bytes}"
        yield "sync.pull_bytes", what, "sync.memory_bytes"
    seen: dict[str, str] = {}
    for name in ("ingest", "feed", "control", "sync"):
        endpoint = getattr(tables.get(name), "endpoint", None)
        if endpoint is None or endpoint.endswith((":*", ":0")):
            continue
        if endpoint in seen:
            other = f"{seen[endpoint]}.endpoint"
            yield f"{name}.endpoint", f"'{endpoint}' is already {other}", other
        seen.setdefault(endpoint, name)


def _decision_faults(decision: DecisionTable, dictionary: ConfigTable | None) -> Iterator[Fault]:
    if decision.enrich and decision.deplete:
        what = "name targets to enrich or to deplete, not both"
        yield "decision.deplete", what, "decision.enrich"
    key = "decision.enrich" if decision.enrich else "decision.deplete"
    if decision.names and isinstance(dictionary, DictionaryTable) and not dictionary.sources:
        yield key, "targets are records of dictionary.sources, which is empty", "dictionary.sources"


def _match_faults(spec: MatchSpec) -> Iterator[Fault]:
    """For users, what ``MatchSpec.faults`` names."""
    near = f"with semantics '{spec.semantics}'" if spec.near else "without a distance"
    kernels = f"is '{spec.kernel}', {near} it must be one of {', '.join(spec.kernels)}"
    limits = "is {}, must be {} dictionary.k = {}".format
    faults: dict[str, Fault] = {
        "kernel": ("matching.kernel", kernels, "matching.distance", "matching.semantics"),
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
        ),
        "chunk": (
            "matching.chunk_bases", limits(spec.chunk, "at least", spec.k), "dictionary.k"
        ),
    }  # fmt: skip
    for fault in spec.faults():
        yield faults[fault]
