"""TOML and ``--set`` in, checked settings out, or every fault with the place of its key.

Where a setting comes from: a line of the file, or an option.

The lines of the keys of a TOML document, which ``tomllib`` does not report.

What is wrong with a configuration, in terms of its keys.

A fault concerns one key, whose value its type refuses, or several keys that do not fit together.
"""

from __future__ import annotations

import difflib
import importlib.util
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from streamer.daemon.config.tables import (
    AnswersTable,
    ClusterTable,
    Config,
    ConfigTable,
    DecisionTable,
    DictionaryTable,
    IngestTable,
    JobsTable,
    JournalTable,
    MatchingTable,
    MetricsTable,
    PanelTable,
    SecurityTable,
    SyncTable,
    WatchTable,
    WebTable,
    match_spec,
    read_token,
)
from streamer.daemon.security.key_folder import KeyFolder
from streamer.errors import ConfigError, StreamerError
from streamer.matching.spec import MatchSpec
from streamer.protocol import endpoints
from streamer.protocol.keys import KeysError

# only a line with one of these can end a multi-line value
_CLOSING = ("]", "}", '"""', "'''")


def key_lines(text: str) -> dict[str, int]:
    """The line (from 1) on which each key and table of a valid document is first named.

    Keys are paths, ``table.key``. The document is cut into its shortest valid parts, each a table
    header or a key with its value, so ``tomllib`` alone defines the syntax.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    found: dict[str, int] = {}
    table: tuple[str, ...] = ()
    start = 0
    while start < len(lines):
        end, content = _part(lines, start)
        paths = list(_paths(content))
        header = lines[start].lstrip().startswith("[")
        for path in paths:
            full = path if header else table + path
            for depth in range(1, len(full) + 1):
                found.setdefault(".".join(full[:depth]), start + 1)
        if header:
            table = paths[-1]
        start = end
    return found


def _part(lines: list[str], start: int) -> tuple[int, dict[str, Any]]:
    """The line after the part that begins on line ``start``, and the content of the part."""
    for end in range(start, len(lines)):
        if end > start and not any(sign in lines[end] for sign in _CLOSING):
            continue
        try:
            return end + 1, tomllib.loads("\n".join(lines[start : end + 1]))
        except tomllib.TOMLDecodeError:
            continue
    return len(lines), {}


def _paths(content: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """The path of every key, outer keys first."""
    for key, value in content.items():
        yield (key,)
        # [[table]] gives a list of one table
        inner = value[0] if isinstance(value, list) and value else value
        if isinstance(inner, dict):
            for path in _paths(inner):
                yield (key, *path)


@dataclass
class SettingOrigin:
    """Where settings come from: the ``text`` of a file, and ``overrides`` of ``--set`` by key."""

    source: str
    text: str = ""
    overrides: dict[str, str] = field(default_factory=dict)

    @cached_property
    def lines(self) -> dict[str, int]:
        """The lines of the keys in the file, computed only if there is a fault to report."""
        return key_lines(self.text)

    def of(self, *keys: str) -> str:
        """Where the first of the keys was set; overrides take precedence over the file."""
        paths = [path for key in keys for path in _outward(key)]
        for path in paths:
            if path in self.overrides:
                return f"--set {self.overrides[path]}"
        for path in paths:
            if path in self.lines:
                return f"{self.source}:{self.lines[path]}"
        return self.source


def _outward(key: str) -> Iterator[str]:
    """The key, then the keys that contain it, up to but without the table."""
    yield key
    while key.count(".") > 1:
        key = key.rpartition(".")[0]
        yield key


_NO_KMER = "no whole k-mer, its records are too short or full of ambiguity codes"

# the key, what is wrong, and other keys involved
Fault = tuple[str, str, *tuple[str, ...]]


def value_faults(table: str, model: type[ConfigTable], error: ValidationError) -> Iterator[Fault]:
    for fault in error.errors():
        key = ".".join([table, *map(str, fault["loc"])])
        given = fault.get("input")
        context = fault.get("ctx", {})
        match fault["type"]:
            case "extra_forbidden":
                name = str(fault["loc"][-1])
                yield key, "unknown key" + did_you_mean(name, model.model_fields)
            case "greater_than_equal":
                yield key, f"is {_shown(given)}, must be at least {context['ge']}"
            case "less_than_equal":
                yield key, f"is {_shown(given)}, must be at most {context['le']}"
            case "literal_error":
                yield key, f"is {_shown(given)}, must be {context['expected']}"
            case "int_type" | "float_type" | "string_type" | "list_type" | "bool_type" as kind:
                yield key, f"must be {_WANTED[kind]}, not {kind_of(given)}"
            case "value_error":
                yield key, str(context["error"])
            case _:
                yield key, fault["msg"]


def _shown(given: object) -> str:
    try:
        return repr(given)
    except ValueError:
        # Python does not convert integers of more than 4300 digits to text
        return "an integer of thousands of digits"


_WANTED = {
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "a string",
    "list_type": "a list",
    "bool_type": "true or false",
}


def kind_of(value: object) -> str:
    names = {bool: "a boolean", int: "an integer", float: "a float", str: "a string"}
    names |= {list: "a list", dict: "a table"}
    return names.get(type(value), f"a {type(value).__name__}")


def did_you_mean(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean '{close[0]}'?" if close else f" (known: {', '.join(known)})"


def file_faults(given: Sequence[str], absolute: Sequence[str]) -> Iterator[Fault]:
    for index, (name, path) in enumerate(zip(given, absolute, strict=True)):
        key = f"dictionary.sources.{index}"
        if os.path.isdir(path):
            yield key, f"'{name}' is a directory, not a sequence file"
        elif not os.path.exists(path):
            yield key, f"no such file: '{name}' (looked for {path})"
        elif not os.access(path, os.R_OK):
            yield key, f"'{name}' is not readable"


def folder_faults(given: str, absolute: str) -> Iterator[Fault]:
    if not os.path.isdir(absolute):
        missing = f"no such folder: '{given}' (looked for {absolute})"
        is_there = os.path.exists(absolute)
        yield "watch.directory", f"'{given}' is not a folder" if is_there else missing


def job_faults(jobs: JobsTable, absolute: Sequence[str]) -> Iterator[Fault]:
    """Faults in what jobs need. absolute: the absolute paths of its directories."""
    for at, (name, path) in enumerate(zip(jobs.directories, absolute, strict=True)):
        if not name:
            # joined to the folder of the configuration it would be that
            yield f"jobs.directories.{at}", "is empty: name a folder, '.' for that of this file"
        elif not os.path.isdir(path):
            yield f"jobs.directories.{at}", f"no such folder: '{name}' (looked for {path})"
    if jobs.directories and importlib.util.find_spec("pyarrow") is None:
        what = "results of jobs need pyarrow: pip install 'kmer-streamer[arrow]'"
        yield "jobs.directories", what


def target_faults(
    decision: DecisionTable, panel: PanelTable, known: Mapping[str, bool]
) -> Iterator[Fault]:
    """Names of targets that the dictionary does not have, or that hold no k-mer."""
    # imported late, since it loads kernels
    from streamer.dictionary.target_sets import first_names

    lists = {"decision.enrich": decision.enrich, "decision.deplete": decision.deplete}
    lists |= {f"panel.groups.{group}": names for group, names in panel.groups.items()}
    for key, names in lists.items():
        for at, name in enumerate(names):
            if name not in known:
                yield f"{key}.{at}", f"no target of the dictionary is '{name}'"
            elif not known[name]:
                yield f"{key}.{at}", f"'{name}' can never match: {_NO_KMER}"
    without = [name for name, held in known.items() if not held]
    if panel.limits and not panel.groups and without:
        yield "panel", f"can never match: {first_names(without)}: {_NO_KMER}"


def key_faults(given: str, absolute: str) -> Iterator[Fault]:
    """What is wrong with the folder of keys."""
    try:
        KeyFolder.read(absolute)
    except KeysError as error:
        yield "security.keys", str(error).replace(absolute, given, 1)


_NOT_COUNTED = "has no effect without answers.targets = true"

_WEB_PACKAGES = "starlette", "uvicorn"


def web_file_faults(web: WebTable) -> Iterator[Fault]:
    """Packages that the live page needs and this machine lacks."""
    if not web.endpoint:
        return
    missing = [name for name in _WEB_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        what = f"the live page needs {' and '.join(missing)}: pip install 'kmer-streamer[web]'"
        yield "web.endpoint", what
    if web.token_file:
        try:
            read_token(web.token_file)
        except ValueError as error:
            yield "web.token_file", str(error)


def _text_faults(tables: Mapping[str, ConfigTable]) -> Iterator[Fault]:
    """Paths that are passed to SQLite, or stored, and are not UTF-8 because of their folder."""
    journal, dictionary, jobs = (tables.get(name) for name in ("journal", "dictionary", "jobs"))
    paths: dict[str, str] = {}
    if isinstance(journal, JournalTable) and journal.durability != "none":
        paths["journal.directory"] = journal.directory
        if isinstance(dictionary, DictionaryTable):
            sources = enumerate(dictionary.sources)
            paths |= {f"dictionary.sources.{at}": source for at, source in sources}
    if isinstance(jobs, JobsTable) and jobs.directories:
        paths["jobs.results"] = jobs.results
    for key, path in paths.items():
        if not endpoints.is_utf8(path):
            yield key, f"'{path}' is not UTF-8"


def table_faults(tables: dict[str, ConfigTable]) -> Iterator[Fault]:
    """Faults between keys of tables that are each valid."""
    dictionary, matching = tables.get("dictionary"), tables.get("matching")
    if isinstance(dictionary, DictionaryTable):
        nothing = not dictionary.sources and not dictionary.seed_bases
        if dictionary.mode == "frozen" and nothing:
            what = "a frozen dictionary needs sources or seed_bases"
            yield "dictionary.mode", what, "dictionary.sources", "dictionary.seed_bases"
        if isinstance(matching, MatchingTable):
            yield from _match_faults(match_spec(dictionary, matching))
    cluster = tables.get("cluster")
    if isinstance(cluster, ClusterTable) and isinstance(matching, MatchingTable):
        yield from _cluster_faults(cluster, matching)
    answers, panel = tables.get("answers"), tables.get("panel")
    if isinstance(answers, AnswersTable):
        if answers.targets and isinstance(dictionary, DictionaryTable) and not dictionary.sources:
            what = "is true, but there are no targets: dictionary.sources is empty"
            yield "answers.targets", what, "dictionary.sources"
        asked = isinstance(panel, PanelTable) and [
            name for name in PanelTable.model_fields if getattr(panel, name)
        ]
        if answers.coverage and not answers.targets:
            yield "answers.coverage", _NOT_COUNTED, "answers.targets"
        for name in () if answers.targets else asked or ():
            yield f"panel.{name}", _NOT_COUNTED, "answers.targets"
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
    web = tables.get("web")
    if isinstance(web, WebTable):
        yield from _web_faults(web)
    yield from _address_faults(tables)
    yield from _text_faults(tables)
    seen: dict[str, str] = {}
    for name in ("ingest", "feed", "control", "sync", "metrics", "web"):
        endpoint = getattr(tables.get(name), "endpoint", None)
        if not endpoint or endpoint.endswith((":*", ":0")):
            continue
        if name in ("metrics", "web"):
            endpoint = f"tcp://{endpoint}"
        if endpoint in seen:
            other = f"{seen[endpoint]}.endpoint"
            yield f"{name}.endpoint", f"'{endpoint}' is already {other}", other
        seen.setdefault(endpoint, name)


def _address_faults(tables: dict[str, ConfigTable]) -> Iterator[Fault]:
    """Endpoints that other machines reach need keys."""
    security = tables.get("security")
    keys = isinstance(security, SecurityTable) and security.keys
    for name in ("ingest", "feed", "control", "sync"):
        endpoint = getattr(tables.get(name), "endpoint", None)
        if endpoint is None or endpoints.is_local(endpoint):
            continue
        if not endpoints.can_be_bound(endpoint):
            what = f"'{endpoint}' names no address to listen at: use an IP address, 0.0.0.0 for all"
            yield f"{name}.endpoint", what
        elif not keys:
            what = (
                f"'{endpoint}' can be reached from other machines: set security.keys "
                "(streamer keygen DIR makes them), or use ipc:// or tcp://127.0.0.1"
            )
            yield f"{name}.endpoint", what, "security.keys"


def _web_faults(web: WebTable) -> Iterator[Fault]:
    if web.token and web.token_file:
        yield "web.token_file", "give the token or its file, not both", "web.token"
    if web.endpoint and not (web.token or web.token_file):
        host, _ = endpoints.split_http_address(web.endpoint)
        if not endpoints.is_loopback(host):
            what = f"'{web.endpoint}' is not on this machine: set web.token_file, or use 127.0.0.1"
            yield "web.endpoint", what


def _decision_faults(decision: DecisionTable, dictionary: ConfigTable | None) -> Iterator[Fault]:
    if decision.enrich and decision.deplete:
        what = "name targets to enrich or to deplete, not both"
        yield "decision.deplete", what, "decision.enrich"
    key = "decision.enrich" if decision.enrich else "decision.deplete"
    if decision.names and isinstance(dictionary, DictionaryTable) and not dictionary.sources:
        yield key, "targets are records of dictionary.sources, which is empty", "dictionary.sources"


def _cluster_faults(cluster: ClusterTable, matching: MatchingTable) -> Iterator[Fault]:
    """Workers match exactly, by the index, on CPUs."""
    if not cluster.address:
        return
    key = "cluster.address"
    if matching.distance or matching.semantics != "levenshtein":
        yield key, "workers match without a distance", "matching.distance"
    if matching.kernel not in ("auto", "index"):
        yield key, "workers match with matching.kernel 'index'", "matching.kernel"
    if matching.device == "cuda":
        yield key, "workers match on CPUs", "matching.device"


def _match_faults(spec: MatchSpec) -> Iterator[Fault]:
    """The faults of ``MatchSpec.faults``, in words for users."""
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
"""The full path of a key that was given without its table: in the first table that has it."""


def load(
    path: str | None,
    overrides: Sequence[str] = (),
    *,
    check_files: bool = True,
    check_targets: bool = False,
) -> Config:
    """The configuration of a TOML file (None: all defaults) with ``table.key=value`` overrides.

    ConfigError holds every fault. ``check_files`` also checks that the dictionary's sources exist;
    clients need only the endpoints. ``check_targets`` reads the sources to check the names of
    targets in other tables; the daemon does that when it loads the dictionary.
    """
    origin = SettingOrigin(path or "<defaults>")
    content = _read(path, origin) if path else {}
    malformed = _override(content, overrides, origin)
    faults: list[Fault] = []
    folder = Path(path).parent if path else Path()
    tables: dict[str, Any] = {}
    for name, value in content.items():
        if name in _KEYS and not isinstance(value, dict):
            faults.append((name, f"is in no table, did you mean '{_KEYS[name]}'?"))
        elif name not in _TABLES:
            faults.append((name, "unknown table" + did_you_mean(name, _TABLES)))
        elif not isinstance(value, dict):
            faults.append((name, f"must be a table, not {kind_of(value)}"))
        else:
            tables[name] = value
    checked: dict[str, ConfigTable] = {}
    for name, model in _TABLES.items():
        try:
            checked[name] = model.model_validate(tables.get(name, {}))
        except ValidationError as error:
            faults.extend(value_faults(name, model, error))
    dictionary = checked.get("dictionary")
    if isinstance(dictionary, DictionaryTable):
        absolute = [str(Path(os.path.abspath(folder / source))) for source in dictionary.sources]
        if check_files:
            faults.extend(file_faults(dictionary.sources, absolute))
        checked["dictionary"] = dictionary.model_copy(update={"sources": absolute})
    journal, watch = checked.get("journal"), checked.get("watch")
    if isinstance(journal, JournalTable):
        directory = _absolute(folder, journal.directory)
        checked["journal"] = journal.model_copy(update={"directory": directory})
    if isinstance(watch, WatchTable) and watch.directory:
        places = {"directory": _absolute(folder, watch.directory)}
        if check_files:
            faults.extend(folder_faults(watch.directory, places["directory"]))
        if watch.ledger:
            places["ledger"] = _absolute(folder, watch.ledger)
        checked["watch"] = watch.model_copy(update=places)
    jobs = checked.get("jobs")
    if isinstance(jobs, JobsTable):
        directories = [_absolute(folder, one) for one in jobs.directories]
        if check_files:
            faults.extend(job_faults(jobs, directories))
        there = {"directories": directories, "results": _absolute(folder, jobs.results)}
        checked["jobs"] = jobs.model_copy(update=there)
    security = checked.get("security")
    if isinstance(security, SecurityTable) and security.keys:
        checked["security"] = SecurityTable(keys=_absolute(folder, security.keys))
        if check_files:
            faults.extend(key_faults(security.keys, _absolute(folder, security.keys)))
    web = checked.get("web")
    if isinstance(web, WebTable):
        if web.token_file:
            token_file = _absolute(folder, web.token_file)
            checked["web"] = web = web.model_copy(update={"token_file": token_file})
        if check_files:
            faults.extend(web_file_faults(web))
    answers, metrics = checked.get("answers"), checked.get("metrics")
    if isinstance(answers, AnswersTable) and answers.targets is None:
        # one of the metrics is about them
        served = isinstance(metrics, MetricsTable) and metrics.endpoint
        counted = served and isinstance(dictionary, DictionaryTable) and dictionary.sources
        checked["answers"] = answers.model_copy(update={"targets": bool(counted)})
    faults.extend(table_faults(checked))
    if check_targets and not (malformed or faults):
        faults.extend(_target_faults(Config.model_construct(**checked)))  # type: ignore[arg-type]
    if malformed or faults:
        placed = [(origin.of(key, *others), key, what) for key, what, *others in faults]
        raise ConfigError([*malformed, *placed])
    return Config.model_construct(**checked)  # type: ignore[arg-type]


def _target_faults(config: Config) -> Iterator[Fault]:
    """Check the names of targets, if there are any."""
    if not (config.decision.names or config.panel.groups or config.panel.limits):
        return
    # imported late, since it loads kernels
    from streamer.dictionary.targets import target_names

    try:
        known = target_names(config.dictionary.sources, config.dictionary.k)
    except StreamerError as error:
        yield "dictionary.sources", str(error)
        return
    if known is not None:
        yield from target_faults(config.decision, config.panel, known)


def _absolute(folder: Path, path: str) -> str:
    return os.path.abspath(folder / os.path.expanduser(path))


def _read(path: str, origin: SettingOrigin) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            origin.text = file.read().decode("utf-8-sig")
        return tomllib.loads(origin.text)
    except tomllib.TOMLDecodeError as error:
        what = f"not valid TOML: {error}"
    except UnicodeDecodeError:
        what = "not valid TOML: it is not UTF-8 text"
    except ValueError as error:
        # a number with thousands of digits
        what = f"not valid TOML: {error}"
    except RecursionError:
        what = "not valid TOML: arrays or tables are nested too deeply"
    except OSError as error:
        what = f"cannot be read: {(error.strerror or str(error)).lower()}"
    raise ConfigError([(path, "", what)])


def _override(
    content: dict[str, Any], overrides: Sequence[str], origin: SettingOrigin
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
        except (ValueError, KeyError, RecursionError):
            value = text.strip()
        if table not in content:
            content[table] = {}
            origin.overrides[table] = override
        held = content[table]
        if isinstance(held, dict):
            held[name] = value
            origin.overrides[f"{table}.{name}"] = override
    return malformed
