"""The folder of ``[security] keys``: the daemon's own key, and the permissions of the others.

server.key         the daemon's key pair
permissions.toml   a table for each client: its public key, and what it may do
clients/NAME.key   the secret keys of clients, to be handed out; the daemon does not need them

Makes a folder of keys, and keys in it; existing files and keys are never changed.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from streamer.daemon.core.rights import KeyLimits, Rights
from streamer.protocol import keys
from streamer.protocol.transport.curve import new_pair

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

    server: keys.KeyPair
    rights: Mapping[str, Rights]
    state: tuple[object, ...]

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> KeyFolder:
        """Read the folder; KeysError if it cannot be used."""
        state = state_of(folder)
        return cls(server_of(folder), permissions_of(folder), state)

    def to_json(self) -> str:
        """The text for another process; it contains the daemon's secret key."""
        return json.dumps([self.server, list(self.rights.values()), self.state])

    @classmethod
    def from_json(cls, text: str) -> KeyFolder:
        """The folder that ``to_json`` wrote."""
        server, rights, state = json.loads(text)
        listed = [
            Rights(name, key, tuple(send), tuple(watch), sync, tuple(control), KeyLimits(*limits))
            for name, key, send, watch, sync, control, limits in rights
        ]
        return cls(
            keys.KeyPair(*server),
            {entry.key: entry for entry in listed},
            tuple(tuple(entry) if isinstance(entry, list) else entry for entry in state),
        )


def state_of(folder: str | os.PathLike[str]) -> tuple[object, ...]:
    """A value that changes when one of the files or its permissions change."""
    state: list[object] = []
    for path in (Path(folder, SERVER_FILE), Path(folder, PERMISSIONS_FILE), Path(folder)):
        try:
            status = os.stat(path)
        except OSError as error:
            state.append(error.errno)
        else:
            state.append((status.st_mode, status.st_uid))
            # changes of clients' key files do not concern the daemon
            if path != Path(folder):
                state.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(state)


def server_of(folder: str | os.PathLike[str]) -> keys.KeyPair:
    """The daemon's key pair; KeysError if it is missing or others can read it."""
    if not os.path.isdir(folder):
        raise keys.KeysError(folder, "no such folder: streamer keygen makes one")
    keys.check_private(folder)
    path = Path(folder, SERVER_FILE)
    fields = keys.read_toml(path)
    public, secret = (keys.check_key(path, name, fields.get(name)) for name in keys.KeyPair._fields)
    keys.check_pair(path, public, secret)
    return keys.KeyPair(public, secret)


def permissions_of(folder: str | os.PathLike[str]) -> dict[str, Rights]:
    """Who may do what, by public key; KeysError if the file cannot be used."""
    path = Path(folder, PERMISSIONS_FILE)
    by_key: dict[str, Rights] = {}
    for name, table in keys.read_toml(path).items():
        rights = _rights(path, name, table)
        if rights.key in by_key:
            raise keys.KeysError(
                path, f"{name} and {by_key[rights.key].name} have the same public key"
            )
        by_key[rights.key] = rights
    return by_key


def _rights(path: Path, name: str, table: Any) -> Rights:
    if not isinstance(table, dict):
        raise keys.KeysError(path, f"'{name}' is in no table: [CLIENT] comes first")
    try:
        permission = Permission.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, (name, *first["loc"])))
        raise keys.KeysError(path, f"{key}: {first['msg'].lower()}") from None
    return Rights(
        name,
        keys.check_key(path, f"{name}.public", permission.public),
        tuple(permission.send),
        # the dot at the end of a topic is optional
        tuple(topic.removesuffix(".") for topic in permission.watch),
        permission.sync,
        tuple(permission.control),
        KeyLimits(*(getattr(permission, limit) for limit in KeyLimits._fields)),
    )


# valid as a file name and as a bare TOML key
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

_PERMISSIONS = """\
# Who may do what: a table for each key. The daemon follows changes of this file within two seconds:
# delete a table, and the connections of that key are ended.
#
# send: names of producers, watch: topics of the feed, control: commands, each with * as a wildcard.
# sync: whether it may replay past messages on the topics that it may watch.
# Limits, 0 or missing: none. bytes_per_second: of batches. waiting_bytes: of its batches in the
# daemon. connections: of each socket. subscriptions: to topics of the feed, of all its connections.
"""


class Made(NamedTuple):
    """A new key: the file of a client, and its rights."""

    path: Path
    rights: Rights


def make_keys(folder: Path, wanted: Sequence[Rights]) -> list[Made]:
    """Make the folder if it is missing, and a key for each of these; KeysError if that fails.

    Existing names are refused before anything is made.
    """
    for wish in wanted:
        if not _NAME.fullmatch(wish.name):
            raise keys.KeysError(
                folder,
                f"{wish.name!r} is not a valid key name: letters, digits, - and _, at most 64",
            )
        for pattern in (*wish.send, *wish.watch, *wish.control):
            # other characters cannot be written as TOML, and no valid name has them
            if not pattern.isprintable():
                raise keys.KeysError(folder, f"{pattern!r} has characters that cannot be printed")
    try:
        _make(folder)
        with _alone(folder):
            server = _prepare(folder)
            existing = {rights.name for rights in permissions_of(folder).values()}
            for number, wish in enumerate(wanted):
                there = client_file(folder, wish.name)
                earlier = [other.name for other in wanted[:number]]
                if wish.name in existing or wish.name in earlier or there.exists():
                    raise keys.KeysError(
                        folder, f"has a key '{wish.name}' already: choose another name"
                    )
            return [_add(folder, server, wish) for wish in wanted]
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise keys.KeysError(error.filename or folder, f"cannot be written: {why}") from None


def client_file(folder: Path, name: str) -> Path:
    """The file with the key of a client."""
    return folder / keys.CLIENTS / f"{name}{keys.KEY_SUFFIX}"


def _make(folder: Path) -> None:
    if not folder.exists():
        # another keygen may make it at the same time
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    elif not any(folder.iterdir()):
        folder.chmod(0o700)
    keys.check_private(folder)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock the folder: each keygen rewrites the permissions."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _prepare(folder: Path) -> keys.KeyPair:
    """The daemon's key pair, made if the folder is new."""
    (folder / keys.CLIENTS).mkdir(mode=0o700, exist_ok=True)
    keys.check_private(folder / keys.CLIENTS)
    if not (folder / SERVER_FILE).exists():
        pair = new_pair()
        text = f'{keys.PRIVATE}\npublic = "{pair.public}"\nsecret = "{pair.secret}"\n'
        _write(folder / SERVER_FILE, text)
    if not (folder / PERMISSIONS_FILE).exists():
        _write(folder / PERMISSIONS_FILE, _PERMISSIONS)
    return server_of(folder)


def _add(folder: Path, server: keys.KeyPair, wanted: Rights) -> Made:
    """Write first the key, then the permission, so that every permission has its key."""
    pair = new_pair()
    path = client_file(folder, wanted.name)
    _write(path, keys.ClientKeys(wanted.name, *pair, server.public).text())
    permissions = folder / PERMISSIONS_FILE
    table = [
        f"[{wanted.name}]",
        f'public = "{pair.public}"',
        f"send = {_array(wanted.send)}",
        f"watch = {_array(wanted.watch)}",
        f"sync = {str(wanted.sync).lower()}",
        f"control = {_array(wanted.control)}",
    ]
    limits = wanted.limits._asdict().items()
    table += [f"{name} = {limit}" for name, limit in limits if limit]
    before = permissions.read_text(encoding="utf-8")
    try:
        _write(permissions, before.rstrip("\n") + "\n\n" + "\n".join(table) + "\n")
    except BaseException:
        # a key without a permission would only block its name
        path.unlink()
        raise
    return Made(path, wanted._replace(key=pair.public))


def _array(texts: Sequence[str]) -> str:
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return "[" + ", ".join(f'"{text}"' for text in quoted) + "]"


def _write(path: Path, text: str) -> None:
    descriptor, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.rename(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
