"""Keys of the daemon and its clients: their syntax, and the private files that hold them.

A key is a CurveZMQ key pair, public and secret, each 32 bytes written as 40 characters of Z85.
"""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from streamer.errors import StreamerError

ADMIN = "admin"
"""The key used from a folder with several keys."""

PRIVATE = "# Whoever can read this file can act as its owner."

KEY_CHARACTERS = 40
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
# five characters of Z85 encode four bytes
_GROUP = 5
CLIENTS, KEY_SUFFIX = "clients", ".key"
"""The subfolder of a folder of keys with those of the clients: ``clients/NAME.key``."""


class KeysError(StreamerError):
    """Keys that cannot be used; path: the faulty file or folder."""

    def __init__(self, path: str | os.PathLike[str], problem: str) -> None:
        self.path = os.fspath(path)
        super().__init__(f"{self.path}: {problem}")


class KeyPair(NamedTuple):
    """A public key and its secret key, 40 characters each."""

    public: str
    secret: str

    def __repr__(self) -> str:
        return f"KeyPair({self.public})"


class ClientKeys(NamedTuple):
    """The keys of a client: its own pair, and the public key of the daemon that it talks to.

    name: that of the key, for people.
    """

    name: str
    public: str
    secret: str
    server: str

    def __repr__(self) -> str:
        return f"ClientKeys({self.name}: {self.public})"

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> ClientKeys:
        """The keys in a file or in a folder that ``streamer keygen`` made; KeysError if none.

        From a folder with several clients, the key ``admin`` is used.
        """
        place = Path(path)
        if place.is_dir():
            place = _of_folder(place)
        fields = read_toml(place)
        try:
            keys = cls(*(fields[key] for key in cls._fields))
        except KeyError as missing:
            raise KeysError(place, f"is not the key of a client: it has no {missing}") from None
        if not isinstance(keys.name, str):
            raise KeysError(place, "name must be a string")
        for field in ("public", "secret", "server"):
            check_key(place, field, getattr(keys, field))
        check_pair(place, keys.public, keys.secret)
        return keys

    def text(self) -> str:
        """The content of a file of these keys."""
        lines = [
            PRIVATE,
            f'name = "{self.name}"',
            f'public = "{self.public}"',
            f'secret = "{self.secret}"',
            "# The daemon's.",
            f'server = "{self.server}"',
        ]
        return "\n".join(lines) + "\n"


def _of_folder(folder: Path) -> Path:
    check_private(folder)
    there = sorted((folder / CLIENTS).glob(f"*{KEY_SUFFIX}"))
    for path in there:
        if path.stem == ADMIN or len(there) == 1:
            return path
    names = ", ".join(path.stem for path in there[:8])
    problem = f"has the keys of several clients ({names}): name one of the files in {CLIENTS}"
    raise KeysError(folder, problem if there else f"has no {CLIENTS}/NAME{KEY_SUFFIX}")


def check_key(path: str | os.PathLike[str], field: str, key: object) -> str:
    """The key if it is valid; else a KeysError that does not repeat it."""
    if not isinstance(key, str) or len(key) != KEY_CHARACTERS or not set(_Z85).issuperset(key):
        raise KeysError(path, f"{field} must be a key: {KEY_CHARACTERS} characters of Z85")
    groups = (key[i : i + _GROUP] for i in range(0, KEY_CHARACTERS, _GROUP))
    if any(_number(group) >> 32 for group in groups):
        # libzmq does not accept these
        raise KeysError(path, f"{field} is not a key: it has invalid characters")
    return key


def check_pair(path: str | os.PathLike[str], public: str, secret: str) -> None:
    """KeysError, which repeats neither key, if the two are not a pair."""
    # imported late, since most commands have no keys to check
    import zmq

    if zmq.curve_public(secret.encode()).decode() != public:
        raise KeysError(path, "public and secret are not a pair")


def _number(group: str) -> int:
    number = 0
    for character in group:
        number = number * len(_Z85) + _Z85.index(character)
    return number


def check_private(path: str | os.PathLike[str]) -> os.stat_result:
    """KeysError if others may read or change a file or folder, or if another user owns it."""
    try:
        status = os.stat(path)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise KeysError(path, f"cannot be read: {why}") from None
    if status.st_mode & 0o077:
        mode = "700" if stat.S_ISDIR(status.st_mode) else "600"
        raise KeysError(path, f"others may read or change it: chmod {mode}")
    if status.st_uid not in (os.geteuid(), 0):
        raise KeysError(path, "belongs to another user")
    return status


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The content of a private file; KeysError if it is not private or not TOML."""
    check_private(path)
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    # includes numbers and tables that are too large for Python
    except (ValueError, RecursionError) as error:
        raise KeysError(path, f"not valid TOML: {error}") from None
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise KeysError(path, f"cannot be read: {why}") from None
