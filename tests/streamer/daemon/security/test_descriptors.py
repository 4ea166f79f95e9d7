"""A descriptor outlives its connection: what a message says of it may be another's."""

from __future__ import annotations

import os
import socket

import pytest

from streamer.daemon.core.rights import EVERYTHING
from streamer.daemon.security.key_folder import KeyFolder, state_of
from streamer.daemon.security.known_peers import KnownPeers, end
from streamer.protocol.keys import KeysError
from streamer.protocol.transport.curve import Sender
from tests.keys_kit import key_folder


class Gate:
    """Everybody may do everything."""

    version = 0

    def rights(self, user, domain):
        return EVERYTHING._replace(key=user)


def test_a_connection_that_seems_to_have_two_keys_is_ended():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peers = KnownPeers(Gate(), "feed", strict=True)
        route = b"1"
        assert peers.rights(route, Sender("A", ours.fileno())).key == "A"
        assert peers.rights(route, Sender("A", ours.fileno())).key == "A"
        assert peers.rights(route, Sender("B", ours.fileno())) is None
        assert theirs.recv(1) == b""
    # another one with the same descriptor begins anew
    peers.sweep(10.0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peers.rights(route, Sender("B", ours.fileno())).key == "B"


def test_what_is_no_connection_is_left_alone(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener, open(tmp_path / "file", "w") as file:
        before = len(os.listdir("/proc/self/fd"))
        end(listener.fileno())
        end(file.fileno())
        end(-1)
        assert len(os.listdir("/proc/self/fd")) == before
        socket.create_connection(listener.getsockname(), timeout=5).close()


def test_the_keys_are_read_again_once_others_may_not_read_them(tmp_path):
    folder = tmp_path / "keys"
    key_folder(folder)
    folder.chmod(0o755)
    seen = state_of(folder)
    with pytest.raises(KeysError):
        KeyFolder.read(folder)
    folder.chmod(0o700)
    assert state_of(folder) != seen


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "1" * 5000])
def test_what_python_cannot_read_is_a_fault_of_the_file(text, tmp_path):
    folder = tmp_path / "keys"
    key_folder(folder)
    (folder / "permissions.toml").write_text(text)
    with pytest.raises(KeysError, match="not valid TOML") as caught:
        KeyFolder.read(folder)
    assert "\n" not in str(caught.value)
