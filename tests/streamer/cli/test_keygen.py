"""``streamer keygen``, and the commands that show a key."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor

import pytest

from streamer.daemon.core.rights import Rights
from streamer.daemon.security import key_folder as new_keys
from streamer.daemon.security.key_folder import make_keys
from streamer.protocol.keys import ClientKeys
from tests.data_files import ROOT
from tests.keys_kit import guarded, key_folder

WATCHER = Rights("watcher", watch=("match",))


def modes(folder):
    return {
        str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode)
        for path in [folder, *folder.rglob("*")]
    }


def test_a_folder_with_one_key(tmp_path, streamer):
    folder = tmp_path / "new" / "keys"
    before = os.umask(0)
    try:
        code, out, err = streamer("keygen", folder)
    finally:
        os.umask(before)
    assert code == 0, err
    assert out == f"{folder}/clients/admin.key\n"
    assert modes(folder) == {
        ".": 0o700,
        "clients": 0o700,
        "clients/admin.key": 0o600,
        "permissions.toml": 0o600,
        "server.key": 0o600,
    }
    held = tomllib.loads((folder / "permissions.toml").read_text())
    keys = ClientKeys.read(folder)
    assert held == {
        "admin": {
            "public": keys.public,
            "send": ["*"],
            "watch": ["*"],
            "sync": True,
            "control": ["*"],
        }
    }
    assert keys.server == tomllib.loads((folder / "server.key").read_text())["public"]
    assert keys.secret not in (folder / "permissions.toml").read_text()


def test_keys_are_added_and_none_is_changed(tmp_path, streamer):
    folder = tmp_path / "keys"
    assert streamer("keygen", folder)[0] == 0
    path = folder / "permissions.toml"
    path.write_text(path.read_text() + "# a comment\n")
    before = {p: p.read_text() for p in folder.rglob("*") if p.is_file()}
    names = "--name", "a", "--name", "b-1"
    rights = "--send", 'x"\\*', "--watch", "match", "--control", "status"
    assert streamer("keygen", folder, *names, *rights)[0] == 0
    held = tomllib.loads(path.read_text())
    assert list(held) == ["admin", "a", "b-1"]
    assert held["a"] == {
        "public": ClientKeys.read(folder / "clients" / "a.key").public,
        "send": ['x"\\*'],
        "watch": ["match"],
        "sync": False,
        "control": ["status"],
    }
    assert path.read_text().startswith(before.pop(path).rstrip("\n"))
    assert {p: p.read_text() for p in before} == before
    for name, said in (("a", "has a key 'a' already"), ("a b", "is not a valid key name")):
        code, out, err = streamer("keygen", folder, "--name", "new", "--name", name)
        assert (code, out) == (1, "")
        assert said in err
        assert err.count("\n") == 1
    assert list(tomllib.loads(path.read_text())) == ["admin", "a", "b-1"]
    assert streamer("keygen", folder, "--name", "c", "--name", "c")[0] == 1


@pytest.mark.parametrize(
    ("option", "pattern"), [("--send", "a\nb"), ("--watch", "a\tb"), ("--control", "a\udcffb")]
)
def test_what_could_not_be_written_is_refused(tmp_path, streamer, option, pattern):
    folder = tmp_path / "keys"
    assert streamer("keygen", folder)[0] == 0
    before = {p: p.read_text() for p in folder.rglob("*") if p.is_file()}
    code, out, err = streamer("keygen", folder, "--name", "new", option, pattern)
    assert (code, out) == (1, "")
    assert err.endswith(f"{pattern!r} has characters that cannot be printed\n")
    assert err.count("\n") == 1
    assert {p: p.read_text() for p in folder.rglob("*") if p.is_file()} == before


def test_several_keygens_at_a_time_lose_no_permission(tmp_path):
    folder = tmp_path / "keys"
    names = [f"client{i}" for i in range(16)]
    with ThreadPoolExecutor(len(names)) as pool:
        made = [pool.submit(make_keys, folder, [Rights(name, send=("*",))]) for name in names]
    for one in made:
        one.result()
    held = tomllib.loads((folder / "permissions.toml").read_text())
    files = {path.stem: ClientKeys.read(path) for path in (folder / "clients").iterdir()}
    assert sorted(held) == sorted(files) == sorted(names)
    server = tomllib.loads((folder / "server.key").read_text())["public"]
    assert all(held[name]["public"] == files[name].public for name in names)
    assert {keys.server for keys in files.values()} == {server}


def test_a_disk_without_room_for_the_permission_leaves_no_key(tmp_path, streamer, monkeypatch):
    folder = tmp_path / "keys"
    assert streamer("keygen", folder)[0] == 0
    before = {p: p.read_text() for p in folder.rglob("*") if p.is_file()}
    write = new_keys._write

    def without_room(path, text):
        if path.name == "permissions.toml":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, text)

    monkeypatch.setattr(new_keys, "_write", without_room)
    code, _, err = streamer("keygen", folder, "--name", "new")
    assert code == 1
    assert err.endswith("permissions.toml: cannot be written: no space left on device\n")
    assert {p: p.read_text() for p in folder.rglob("*") if p.is_file()} == before
    monkeypatch.undo()
    assert streamer("keygen", folder, "--name", "new")[0] == 0


def test_a_folder_that_others_can_read_is_refused(tmp_path, streamer):
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o755)
    (folder / "something").touch()
    code, _, err = streamer("keygen", folder)
    assert code == 1
    assert err == f"streamer: error: {folder}: others may read or change it: chmod 700\n"


@pytest.mark.whole
@pytest.mark.parametrize(
    ("encoding", "folder", "said"),
    [
        ("latin-1", "\u2713".encode(), b"\\u2713"),
        ("latin-1", "\u00e4".encode(), b"\xe4"),
        ("utf-8:strict", b"k\xff", b"k\xff"),
    ],
)
def test_what_the_output_cannot_encode_is_escaped(tmp_path, encoding, folder, said):
    run = subprocess.run(
        [sys.executable, "-X", "utf8", "-m", "streamer", "keygen", folder],
        cwd=tmp_path,
        env=os.environ | {"PYTHONIOENCODING": encoding, "PYTHONPATH": str(ROOT)},
        capture_output=True,
    )
    assert (run.returncode, run.stdout) == (0, said + b"/clients/admin.key\n"), run.stderr


def test_which_key_of_a_folder(tmp_path, streamer):
    folder = tmp_path / "keys"
    assert streamer("keygen", folder, "--name", "only")[0] == 0
    assert ClientKeys.read(folder).name == "only"
    assert streamer("keygen", folder, "--name", "other")[0] == 0
    code, _, err = streamer("status", "--keys", folder)
    assert code == 1
    assert "has the keys of several clients (only, other): name one of the files in clients" in err
    assert streamer("keygen", folder)[0] == 0
    assert ClientKeys.read(folder).name == "admin"


def test_remote_endpoints_need_keys(streamer, tmp_path):
    code, _, err = streamer("status", "--at", "tcp://192.0.2.1:5")
    assert code == 2
    assert "is not on this machine: give the key of this client (--keys FILE)" in err
    code, _, err = streamer("run", "--set", "feed.endpoint=tcp://*:0")
    assert code == 1
    assert "feed.endpoint: 'tcp://0.0.0.0:0' can be reached from other machines" in err
    assert err.count("\n") == 1


@pytest.mark.whole
def test_commands_show_their_key(tmp_path, streamer):
    folder = tmp_path / "keys"
    keys = key_folder(folder, WATCHER)
    every, none = folder / "clients" / "all.key", tmp_path / "elsewhere"
    assert streamer("keygen", none)[0] == 0
    reads = tmp_path / "reads.fa"
    reads.write_text(">r\nACGTACGTACGT\n")
    with guarded(tmp_path, keys) as daemon:
        at = daemon.endpoints
        commands = {
            ("send", reads, "--to", at["ingest"]): 0,
            ("play", reads.with_suffix(".fq"), "--speed", 0, "--to", at["ingest"]): 0,
            ("status", "--at", at["control"]): 0,
            ("top", "--at", at["control"], "--count", 1): 0,
            ("targets", "--at", at["control"]): 1,
            ("reload", "--to", at["control"]): 1,
            ("watch", "--from", at["feed"], "--for", 0.1): 0,
        }
        reads.with_suffix(".fq").write_text("@r\nACGTACGTACGT\n+\nIIIIIIIIIIII\n")
        for command, wanted in commands.items():
            code, _, err = streamer(*command, "--keys", every)
            assert code == wanted, (command, err)
            assert "admitted" not in err
            assert code == 0 or "refused (sources)" in err
            code, out, err = streamer(*command)
            assert (code, out) == (1, "")
            assert "not admitted: the daemon needs a key (--keys FILE)" in err, command
            code, _, err = streamer(*command, "--keys", none)
            assert code == 1
            assert "not admitted: the daemon's key is not" in err, command
        # the configuration names the folder
        config = tmp_path / "with_keys.toml"
        text = (tmp_path / "streamer.toml").read_text()
        config.write_text(text + f'[security]\nkeys = "{folder}"\n')
        code, _, err = streamer("status", "--config", config)
        assert code == 1
        assert "several clients (all, watcher)" in err
        watcher = folder / "clients" / "watcher.key"
        code, _, err = streamer("status", "--config", config, "--keys", watcher)
        assert code == 1
        assert "the key 'watcher'" in err
        assert "has no right on this socket" in err
