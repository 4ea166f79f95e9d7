"""Who is admitted by a socket: every row of what was measured to be open must be closed here."""

from __future__ import annotations

import os
import socket

import pytest
import zmq
from zmq.utils import z85

from streamer.daemon.core.rights import EVERYTHING, Rights
from streamer.daemon.security.gatekeeper import Gatekeeper, check_listener
from streamer.daemon.security.key_folder import KeyFolder, state_of
from streamer.daemon.security.known_peers import KnownPeers, end
from streamer.errors import StreamerError
from streamer.protocol.keys import ClientKeys, KeysError
from streamer.protocol.transport.curve import Sender, demand, new_pair
from tests.keys_kit import PlainClient, change, key_folder
from tests.waiting import until

SENDER = Rights("sender", send=("*",))
WATCHER = Rights("watcher", watch=("match",))


@pytest.fixture
def keys(tmp_path):
    return key_folder(tmp_path / "keys", SENDER, WATCHER)


@pytest.fixture
def context():
    with zmq.Context() as made:
        yield made


@pytest.fixture
def gate(tmp_path, keys, context):
    made = Gatekeeper(str(tmp_path / "keys"), context, lambda: None)
    made.begin()
    yield made
    made.end()


def server(context, secret, domain="ingest", *, closed=True, domain_set=True, enforced=True):
    """A bound ROUTER, its listeners as asked for, and its endpoint."""
    made = context.socket(zmq.ROUTER)
    made.linger = 0
    if closed:
        demand(made, secret, domain)
    else:
        made.curve_server = True
        made.curve_secretkey = secret.encode()
        if domain_set:
            made.zap_domain = domain.encode()
        made.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, int(enforced))
    return made, f"tcp://127.0.0.1:{made.bind_to_random_port('tcp://127.0.0.1')}"


def is_admitted(endpoint, keys):
    with PlainClient(zmq.DEALER, endpoint, keys) as client:
        return client.event() == zmq.EVENT_HANDSHAKE_SUCCEEDED


def wrong(keys):
    return ClientKeys("wrong", *new_pair(), keys["all"].server)


def test_a_key_with_a_right_is_admitted_and_named(keys, context, gate):
    socket, endpoint = server(context, gate.server.secret)
    with socket, PlainClient(zmq.DEALER, endpoint, keys["sender"]) as client:
        assert client.event() == zmq.EVENT_HANDSHAKE_SUCCEEDED
        client.socket.send(b"hello")
        route, _ = socket.recv_multipart(copy=False)
        assert route.get("User-Id") == keys["sender"].public


@pytest.mark.parametrize("who", ["wrong key", "no key", "key of another socket", "other server"])
def test_all_others_are_refused(who, keys, context, gate):
    socket, endpoint = server(context, gate.server.secret)
    given = {
        "wrong key": wrong(keys),
        "no key": None,
        "key of another socket": keys["watcher"],
        "other server": keys["sender"]._replace(server=new_pair().public),
    }[who]
    with socket, PlainClient(zmq.DEALER, endpoint, given) as client:
        event = client.event()
        explained = who in ("wrong key", "key of another socket")
        assert event != zmq.EVENT_HANDSHAKE_SUCCEEDED
        assert (event == zmq.EVENT_HANDSHAKE_FAILED_AUTH) == explained
        assert not socket.poll(0)


@pytest.mark.parametrize("who", ["all", "wrong"])
def test_without_a_gatekeeper_nobody_is_admitted(who, keys, context):
    pair = new_pair()
    socket, endpoint = server(context, pair.secret)
    given = (keys | {"wrong": wrong(keys)})[who]._replace(server=pair.public)
    with socket:
        assert not is_admitted(endpoint, given)


def test_when_the_gatekeeper_is_dead_nobody_is_admitted(tmp_path, keys, context):
    gate = Gatekeeper(str(tmp_path / "keys"), context, lambda: None)
    gate.begin()
    socket, endpoint = server(context, gate.server.secret)
    with socket:
        assert is_admitted(endpoint, keys["sender"])
        gate.end()
        assert not is_admitted(endpoint, keys["sender"])
        assert not is_admitted(endpoint, wrong(keys))


OPEN = {
    "a domain alone, no handler": (False, {"enforced": False}),
    "no domain, no handler": (False, {"domain_set": False, "enforced": False}),
    "enforcement without a domain": (True, {"domain_set": False}),
}


@pytest.mark.parametrize("row", OPEN)
def test_the_self_test_finds_what_libzmq_leaves_open(row, tmp_path, keys, context):
    handler, options = OPEN[row]
    gate = Gatekeeper(str(tmp_path / "keys"), context, lambda: None)
    if handler:
        gate.begin()
    socket, endpoint = server(context, gate.server.secret, closed=False, **options)
    try:
        # libzmq admits anybody
        assert is_admitted(endpoint, wrong(keys))
        with pytest.raises(StreamerError, match="a client with a wrong key on ingest was admitted"):
            check_listener("ingest", endpoint, wrong(keys))
    finally:
        socket.close()
        if handler:
            gate.end()


def test_the_self_test_wants_a_failed_authentication(keys, context):
    """A socket that refuses everybody because its gatekeeper is dead is none to serve with."""
    pair = new_pair()
    socket, endpoint = server(context, pair.secret)
    with socket, pytest.raises(StreamerError, match="was broken: nothing is served"):
        check_listener("ingest", endpoint, wrong(keys)._replace(server=pair.public))


def test_the_self_test_passes_where_all_is_well(keys, context, gate):
    socket, endpoint = server(context, gate.server.secret)
    with socket:
        gate.test("ingest", endpoint)
        # nobody else was refused
        assert gate.refused == 0
        assert not is_admitted(endpoint, wrong(keys))
    assert gate.refused == 1


def test_no_secret_is_shown(keys):
    assert keys["all"].secret not in repr(keys)
    assert keys["all"].public in repr(keys)


def test_keys_are_followed(tmp_path, keys, context, gate):
    folder = tmp_path / "keys"
    socket, endpoint = server(context, gate.server.secret)
    with socket:
        assert not is_admitted(endpoint, keys["watcher"])
        change(folder, "watcher", send=["w"])
        until(lambda: is_admitted(endpoint, keys["watcher"]), "the new right")
        before = gate.version
        # a file that cannot be read changes nothing
        (folder / "permissions.toml").write_text("[watcher")
        until(lambda: gate._fault, "the look at it")
        assert gate.version == before
        assert is_admitted(endpoint, keys["watcher"])


def test_keys_are_followed_after_a_fault_that_passes(tmp_path, keys, context, gate, monkeypatch):
    """As a lack of descriptors, after which nothing in the folder has changed."""
    folder = tmp_path / "keys"
    lacking = KeysError(folder, "cannot be read: too many open files")
    tried = []

    def read(folder):
        tried.append(folder)
        raise lacking

    socket, endpoint = server(context, gate.server.secret)
    with socket:
        monkeypatch.setattr(KeyFolder, "read", read)
        change(folder, "sender")
        until(lambda: len(tried) > 1, "a second look at it")
        assert is_admitted(endpoint, keys["sender"])
        monkeypatch.undo()
        until(lambda: not is_admitted(endpoint, keys["sender"]), "the end of the right")


def test_keys_are_the_same_in_another_process(tmp_path, keys):
    held = KeyFolder.read(tmp_path / "keys")
    assert KeyFolder.from_json(held.to_json()) == held


def test_a_key_of_the_daemon_itself_is_admitted(keys, context, gate):
    socket, endpoint = server(context, gate.server.secret)
    with socket:
        assert is_admitted(endpoint, gate.issue(Rights("page", send=("*",))))


MODES = {
    "keys": (0o750, "chmod 700"),
    "keys/server.key": (0o640, "chmod 600"),
    "keys/permissions.toml": (0o602, "chmod 600"),
}


@pytest.mark.parametrize("name", MODES)
def test_what_others_may_read_or_change_is_refused(name, tmp_path, keys, context):
    mode, advice = MODES[name]
    os.chmod(tmp_path / name, mode)
    with pytest.raises(KeysError, match=f"others may read or change it: {advice}") as caught:
        Gatekeeper(str(tmp_path / "keys"), context, lambda: None)
    assert "\n" not in str(caught.value)


def test_the_key_of_a_client_that_others_may_read_is_refused(tmp_path, keys):
    path = tmp_path / "keys" / "clients" / "all.key"
    path.chmod(0o644)
    with pytest.raises(KeysError, match="chmod 600"):
        ClientKeys.read(path)


@pytest.mark.parametrize("group", ["%nSc0", "%nSc1", "#####"])
def test_characters_of_a_key_that_are_no_number_of_32_bits(tmp_path, keys, streamer, group):
    """libzmq takes the largest, which is written first here, and none above it."""
    path = tmp_path / "keys" / "clients" / "all.key"
    secret = "x" * 35 + group
    public = zmq.curve_public(secret.encode()).decode() if group == "%nSc0" else "x" * 40
    path.write_text(keys["all"]._replace(public=public, secret=secret).text())
    if group == "%nSc0":
        assert z85.decode(group) == b"\xff" * 4
        assert ClientKeys.read(path).secret.endswith(group)
        return
    code, out, err = streamer("status", "--at", f"ipc://{tmp_path}/nobody", "--keys", path)
    assert (code, out) == (1, "")
    assert err == f"streamer: error: {path}: secret is not a key: it has invalid characters\n"


@pytest.mark.parametrize("name", ["server.key", "clients/all.key"])
def test_two_keys_of_different_pairs(name, tmp_path, keys, streamer):
    """No daemon could start with them, and no client would be admitted."""
    path = tmp_path / "keys" / name
    lines = path.read_text().splitlines()
    public = [f'public = "{new_pair().public}"' if "public" in line else line for line in lines]
    path.write_text("\n".join(public))
    config = tmp_path / "streamer.toml"
    config.write_text('[dictionary]\nseed_bases = 10\n[security]\nkeys = "keys"\n')
    said = "public and secret are not a pair\n"
    if name == "server.key":
        code, _, err = streamer("validate", "--config", config)
        assert err == f"streamer: error: {config}:4: security.keys: keys/server.key: {said}"
    else:
        code, _, err = streamer("status", "--at", f"ipc://{tmp_path}/nobody", "--keys", path)
        assert err == f"streamer: error: {path}: {said}"
    assert code == 1


FAULTS = {
    "[a]\npublic = 'short'": "a.public must be a key: 40 characters of Z85",
    f"[a]\npublic = '{'x' * 40}'\nsends = ['a']": "a.sends: extra inputs are not permitted",
    f"[a]\npublic = '{'x' * 40}'\nsend = 'a'": "a.send: input should be a valid list",
    f"[a]\npublic = '{'x' * 40}'\n[b]\npublic = '{'x' * 40}'": "have the same public key",
    f"[a]\npublic = '{'x' * 35}%nSc1'": "a.public is not a key: it has invalid characters",
    "a = 1": "'a' is in no table",
    "[a": "not valid TOML",
}


@pytest.mark.parametrize("text", FAULTS)
def test_faults_of_permissions_are_told(text, tmp_path, keys, streamer):
    (tmp_path / "keys" / "permissions.toml").write_text(text)
    config = tmp_path / "streamer.toml"
    config.write_text('[dictionary]\nseed_bases = 10\n[security]\nkeys = "keys"\n')
    code, out, err = streamer("validate", "--config", config)
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert FAULTS[text] in err
    assert err.startswith(f"streamer: error: {config}:4: security.keys: keys/permissions.toml: ")


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
