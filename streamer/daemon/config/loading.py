"""TOML and ``--set`` in, checked settings out, or every fault with the place of its key."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from streamer.daemon.config.faults import (
    Fault,
    did_you_mean,
    file_faults,
    folder_faults,
    job_faults,
    key_faults,
    kind_of,
    table_faults,
    target_faults,
    value_faults,
    web_file_faults,
)
from streamer.daemon.config.origin import SettingOrigin
from streamer.daemon.config.tables import (
    AnswersTable,
    Config,
    ConfigTable,
    DictionaryTable,
    JobsTable,
    JournalTable,
    MetricsTable,
    SecurityTable,
    WatchTable,
    WebTable,
)
from streamer.errors import ConfigError, StreamerError

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
