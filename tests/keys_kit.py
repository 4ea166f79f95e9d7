"""Shared by the tests of keys: folders of keys, daemons that need keys, sockets that try them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zmq

from streamer.client import Producer
from streamer.daemon.core.rights import EVERYTHING, Rights
from streamer.daemon.security.key_folder import make_keys
from streamer.protocol.keys import ClientKeys
from tests.daemon_kit import DEADLINE, Running, drained, settings

ALL = EVERYTHING._replace(name="all")


def key_folder(folder: Path, *rights: Rights) -> dict[str, ClientKeys]:
    """Make a folder with keys of these rights and one with all rights; returns them by name."""
    made = make_keys(folder, [ALL, *rights])
    return {one.rights.name: ClientKeys.read(one.path) for one in made}


def change(folder: Path, name: str, **fields: Any) -> None:
    """Change a table of the permissions; without fields, remove it."""
    path = folder / "permissions.toml"
    tables = tomllib.loads(path.read_text())
    if fields:
        tables[name] |= fields
    else:
        del tables[name]
    lines = [
        f"[{table}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in fields.items())
        for table, fields in tables.items()
    ]
    path.write_text("\n".join(lines))


def _toml(value: Any) -> str:
    # strings, arrays and numbers of JSON are valid TOML
    return json.dumps(value)


class Guarded(Running):
    """A daemon that needs keys, in threads of this process."""

    def wait_until_open_for(self, keys: ClientKeys) -> None:
        """Return once there is credit."""
        assert self.service._engine.ready.wait(DEADLINE)
        with Producer(
            self.endpoints["ingest"], name="opening", answer_seconds=DEADLINE, keys=keys
        ) as first:
            first.connect()


@contextmanager
def guarded(
    folder: Path, keys: dict[str, ClientKeys], overrides: Sequence[str] = ()
) -> Iterator[Guarded]:
    """A daemon with the keys in ``folder / "keys"``, drained at the end."""
    path = settings(folder, "k = 5\nmode = 'grow'")
    made = Guarded(path, [f"security.keys={folder / 'keys'}", *overrides])
    with drained(made):
        made.wait_until_open_for(keys["all"])
        yield made


class PlainClient:
    """A pyzmq socket with CURVE, independent of this project, that follows its handshakes.

    routing: its routing id.
    """

    def __init__(
        self, kind: int, endpoint: str, keys: ClientKeys | None, routing: bytes = b""
    ) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(kind)
        self.socket.linger = 0
        if routing:
            self.socket.routing_id = routing
        if keys is not None:
            self.socket.curve_publickey = keys.public.encode()
            self.socket.curve_secretkey = keys.secret.encode()
            self.socket.curve_serverkey = keys.server.encode()
        self.monitor = self.socket.get_monitor_socket()
        self.socket.connect(endpoint)

    def event(self) -> int:
        """The next event that ends a handshake."""
        from zmq.utils.monitor import recv_monitor_message

        ends = (
            zmq.EVENT_HANDSHAKE_SUCCEEDED,
            zmq.EVENT_HANDSHAKE_FAILED_AUTH,
            zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
            zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
        )
        while self.monitor.poll(DEADLINE * 1000):
            event = int(recv_monitor_message(self.monitor)["event"])
            if event in ends:
                return event
        raise AssertionError("no handshake ended")

    def __enter__(self) -> PlainClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.disable_monitor()
        self.monitor.close(linger=0)
        self.socket.close()
        self.context.term()
