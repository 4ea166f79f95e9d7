"""The folder of ``[security] keys``: the daemon's own key, and the permissions of the others.

server.key         the daemon's key pair
permissions.toml   a table for each client: its public key, and what it may do
clients/NAME.key   the secret keys of clients, to be handed out; the daemon does not need them
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from streamer.daemon.core.rights import KeyLimits, Rights
from streamer.protocol.keys import (
    KeyPair,
    KeysError,
    check_key,
    check_pair,
    check_private,
    read_toml,
)

SERVER_FILE, PERMISSIONS_FILE = "server.key", "permissions.toml"


class Permission(BaseModel):
    """A table of the permissions; it refuses unknown keys and values of the wrong type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    public: str
    send: list[str] = []
    watch: list[str] = []
    sync: bool = False
    control: list[str] = []
    bytes_per_second: int = Field(default=0, ge=0, lt=1 << 50)
    waiting_bytes: int = Field(default=0, ge=0, lt=1 << 50)
    connections: int = Field(default=0, ge=0, lt=1 << 31)
    subscriptions: int = Field(default=0, ge=0, lt=1 << 31)
    jobs: int = Field(default=0, ge=0, lt=1 << 31)


class KeyFolder(NamedTuple):
    """The content of the folder. rights: by public key. state: changes when a file does."""

    server: KeyPair
    rights: Mapping[str, Rights]
    state: tuple[object, ...]

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> KeyFolder:
        """Read the folder; KeysError if it cannot be used."""
        state = state_of(folder)
        return cls(server_of(folder), permissions_of(folder), state)

    def to_json(self) -> str:
        """As text for another process; it contains the daemon's secret key."""
        return json.dumps([self.server, list(self.rights.values()), self.state])

    @classmethod
    def from_json(cls, text: str) -> KeyFolder:
        """The folder that ``to_json`` wrote."""
        server, rights, state = json.loads(text)
        found = [
            Rights(name, key, tuple(send), tuple(watch), sync, tuple(control), KeyLimits(*limits))
            for name, key, send, watch, sync, control, limits in rights
        ]
        return cls(
            KeyPair(*server),
            {one.key: one for one in found},
            tuple(tuple(one) if isinstance(one, list) else one for one in state),
        )


def state_of(folder: str | os.PathLike[str]) -> tuple[object, ...]:
    """A value that changes when one of the files or its permissions change."""
    state: list[object] = []
    for path in (Path(folder, SERVER_FILE), Path(folder, PERMISSIONS_FILE), Path(folder)):
        try:
            found = os.stat(path)
        except OSError as error:
            state.append(error.errno)
        else:
            state.append((found.st_mode, found.st_uid))
            # changes of clients' key files do not concern the daemon
            if path != Path(folder):
                state.append((found.st_mtime_ns, found.st_size, found.st_ino))
    return tuple(state)


def server_of(folder: str | os.PathLike[str]) -> KeyPair:
    """The daemon's key pair; KeysError if it is missing or others can read it."""
    if not os.path.isdir(folder):
        raise KeysError(folder, "no such folder: streamer keygen makes one")
    check_private(folder)
    path = Path(folder, SERVER_FILE)
    fields = read_toml(path)
    public, secret = (check_key(path, name, fields.get(name)) for name in KeyPair._fields)
    check_pair(path, public, secret)
    return KeyPair(public, secret)


def permissions_of(folder: str | os.PathLike[str]) -> dict[str, Rights]:
    """Who may do what, by public key; KeysError if the file cannot be used."""
    path = Path(folder, PERMISSIONS_FILE)
    found: dict[str, Rights] = {}
    for name, table in read_toml(path).items():
        rights = _rights(path, name, table)
        if rights.key in found:
            raise KeysError(path, f"{name} and {found[rights.key].name} have the same public key")
        found[rights.key] = rights
    return found


def _rights(path: Path, name: str, table: Any) -> Rights:
    if not isinstance(table, dict):
        raise KeysError(path, f"'{name}' is in no table: [CLIENT] comes first")
    try:
        held = Permission.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, (name, *first["loc"])))
        raise KeysError(path, f"{key}: {first['msg'].lower()}") from None
    return Rights(
        name,
        check_key(path, f"{name}.public", held.public),
        tuple(held.send),
        # the dot at the end of a topic is optional
        tuple(topic.removesuffix(".") for topic in held.watch),
        held.sync,
        tuple(held.control),
        KeyLimits(*(getattr(held, limit) for limit in KeyLimits._fields)),
    )
