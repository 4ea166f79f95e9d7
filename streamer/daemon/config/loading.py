"""TOML and ``--set`` in, checked settings out, or every fault with the place of its key.

A fault concerns one key, whose value its type refuses, or several keys that do not fit together.
"""

import difflib
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from streamer.daemon.config.tables import Config, ConfigTable, Fault, PanelTable
from streamer.errors import ConfigError, StreamerError

# only a line with one of these can end a multi-line value
_CLOSING = ("]", "}", '"""', "'''")


def key_lines(text: str) -> dict[str, int]:
    """The line (from 1) on which each key and table of a valid document is first named.

    Keys are paths, ``table.key``. The document is cut into its shortest valid parts, each a table
    header or a key with its value, so ``tomllib`` alone defines the syntax.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    lines_of: dict[str, int] = {}
    table: tuple[str, ...] = ()
    start = 0
    while start < len(lines):
        end, content = _part(lines, start)
        paths = list(_paths(content))
        header = lines[start].lstrip().startswith("[")
        for path in paths:
            full = path if header else table + path
            for depth in range(1, len(full) + 1):
                lines_of.setdefault(".".join(full[:depth]), start + 1)
        if header:
            table = paths[-1]
        start = end
    return lines_of


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


def value_faults(table: str, model: type[ConfigTable], error: ValidationError) -> Iterator[Fault]:
    for fault in error.errors():
        key = ".".join([table, *map(str, fault["loc"])])
        value = fault.get("input")
        context = fault.get("ctx", {})
        match fault["type"]:
            case "extra_forbidden":
                name = str(fault["loc"][-1])
                yield key, "unknown key" + did_you_mean(name, model.model_fields)
            case "greater_than_equal":
                yield key, f"is {_shown(value)}, must be at least {context['ge']}"
            case "less_than_equal":
                yield key, f"is {_shown(value)}, must be at most {context['le']}"
            case "literal_error":
                yield key, f"is {_shown(value)}, must be {context['expected']}"
            case "int_type" | "float_type" | "string_type" | "list_type" | "bool_type" as kind:
                yield key, f"must be {_WANTED[kind]}, not {kind_of(value)}"
            case "value_error":
                yield key, str(context["error"])
            case _:
                yield key, fault["msg"]


def _shown(value: object) -> str:
    try:
        return repr(value)
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
    checked: dict[str, Any] = {}
    lacking: list[Fault] = []
    for name, model in _TABLES.items():
        try:
            raw = model.model_validate(tables.get(name, {}))
        except ValidationError as error:
            faults.extend(value_faults(name, model, error))
            continue
        checked[name] = located = raw.located(Path(path).parent if path else Path())
        if check_files:
            lacking.extend(located.missing(raw))
    # in place of a table with a fault, its defaults, so that faults between the others are found
    rest = {name: model.model_construct() for name, model in _TABLES.items()}
    config = Config.model_construct(**rest | checked)
    if config.answers.targets is None:
        # one of the metrics is about them
        counted = bool(config.metrics.endpoint and config.dictionary.sources)
        answers = config.answers.model_copy(update={"targets": counted})
        config = config.model_copy(update={"answers": answers})
    faults += lacking
    for name in checked:
        faults += getattr(config, name).faults()
    for fault in config.faults():
        key, _, *others = fault
        if all(involved.partition(".")[0] in checked for involved in (key, *others)):
            faults.append(fault)
    if check_targets and not (malformed or faults):
        faults.extend(_target_faults(config))
    if malformed or faults:
        placed = [(origin.of(key, *others), key, what) for key, what, *others in faults]
        raise ConfigError([*malformed, *placed])
    return config


def load_panel(path: str) -> dict[str, Any]:
    """The fields of table ``panel`` in a TOML file, whatever its other tables hold; ConfigError."""
    origin = SettingOrigin(path)
    fields = _read(path, origin).get("panel", {})
    try:
        table = PanelTable.model_validate(fields)
        faults = [*table.faults()]
    except ValidationError as error:
        faults = [*value_faults("panel", PanelTable, error)]
    if faults:
        raise ConfigError([(origin.of(key, *more), key, what) for key, what, *more in faults])
    return table.fields()


def _target_faults(config: Config) -> Iterator[Fault]:
    """Names of targets that the dictionary does not have, or that hold no k-mer."""
    decision, panel = config.decision, config.panel
    if not (decision.names or panel.groups or panel.limits):
        return
    # imported late, since they load kernels
    from streamer.dictionary.target_sets import first_names
    from streamer.dictionary.targets import target_names

    try:
        table = config.dictionary
        known = target_names(table.sources, table.k, table.targets or None, table.target_by)
    except StreamerError as error:
        yield "dictionary.sources", str(error)
        return
    lists = {"decision.enrich": decision.enrich, "decision.deplete": decision.deplete}
    lists |= {f"panel.groups.{group}": names for group, names in panel.groups.items()}
    for key, names in lists.items():
        for at, name in enumerate(names):
            if name not in known:
                yield f"{key}.{at}", f"no target of the dictionary is '{name}'"
            elif not known[name]:
                yield f"{key}.{at}", f"'{name}' can never match: {_NO_KMER}"
    without = [name for name, holds_kmers in known.items() if not holds_kmers]
    if panel.limits and not panel.groups and without:
        yield "panel", f"can never match: {first_names(without)}: {_NO_KMER}"


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
        old_value = content[table]
        if isinstance(old_value, dict):
            old_value[name] = value
            origin.overrides[f"{table}.{name}"] = override
    return malformed
