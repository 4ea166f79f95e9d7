"""Makes a folder of keys, and keys in it; existing files and keys are never changed."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from streamer.daemon.core.rights import Rights
from streamer.daemon.security.key_folder import (
    PERMISSIONS_FILE,
    SERVER_FILE,
    permissions_of,
    server_of,
)
from streamer.protocol.keys import (
    CLIENTS,
    KEY_SUFFIX,
    PRIVATE,
    ClientKeys,
    KeyPair,
    KeysError,
    check_private,
)
from streamer.protocol.transport.curve import new_pair

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
    for one in wanted:
        if not _NAME.fullmatch(one.name):
            problem = f"{one.name!r} is not a valid key name: letters, digits, - and _, at most 64"
            raise KeysError(folder, problem)
        for pattern in (*one.send, *one.watch, *one.control):
            # other characters cannot be written as TOML, and no valid name has them
            if not pattern.isprintable():
                raise KeysError(folder, f"{pattern!r} has characters that cannot be printed")
    try:
        _make(folder)
        with _alone(folder):
            server = _prepare(folder)
            held = {rights.name for rights in permissions_of(folder).values()}
            for number, one in enumerate(wanted):
                there = client_file(folder, one.name)
                earlier = [other.name for other in wanted[:number]]
                if one.name in held or one.name in earlier or there.exists():
                    raise KeysError(folder, f"has a key '{one.name}' already: choose another name")
            return [_add(folder, server, one) for one in wanted]
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise KeysError(error.filename or folder, f"cannot be written: {why}") from None


def client_file(folder: Path, name: str) -> Path:
    """The file with the key of a client."""
    return folder / CLIENTS / f"{name}{KEY_SUFFIX}"


def _make(folder: Path) -> None:
    """Make the folder if it is missing."""
    if not folder.exists():
        # another keygen may make it at the same time
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    elif not any(folder.iterdir()):
        folder.chmod(0o700)
    check_private(folder)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock the folder: each keygen rewrites the permissions."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _prepare(folder: Path) -> KeyPair:
    """The daemon's key pair, made if the folder is new."""
    (folder / CLIENTS).mkdir(mode=0o700, exist_ok=True)
    check_private(folder / CLIENTS)
    if not (folder / SERVER_FILE).exists():
        pair = new_pair()
        text = f'{PRIVATE}\npublic = "{pair.public}"\nsecret = "{pair.secret}"\n'
        _write(folder / SERVER_FILE, text)
    if not (folder / PERMISSIONS_FILE).exists():
        _write(folder / PERMISSIONS_FILE, _PERMISSIONS)
    return server_of(folder)


def _add(folder: Path, server: KeyPair, wanted: Rights) -> Made:
    """Write first the key, then the permission, so that every permission has its key."""
    pair = new_pair()
    path = client_file(folder, wanted.name)
    _write(path, ClientKeys(wanted.name, *pair, server.public).text())
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
    """Write a file that only its owner can read, whole or not at all."""
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
