"""The cores do no I/O: a simulator runs them unchanged, and equal inputs give equal outputs."""

from __future__ import annotations

import ast

import pytest

from tests.data_files import ROOT

ROOMS = ("streamer/daemon/core", "streamer/client/core")
FORBIDDEN = {
    *("apsw", "asyncio", "datetime", "multiprocessing", "os", "pathlib", "random", "secrets"),
    *("select", "signal", "socket", "sqlite3", "structlog", "subprocess", "sys", "threading"),
    *("time", "uuid", "zmq"),
}
# rooms of this project that do I/O, store, or know of threads
FORBIDDEN_ROOMS = (
    *("streamer.journal.", "streamer.protocol.transport.", "streamer.daemon.worker."),
    *("streamer.daemon.daemon_status.", "streamer.client.connection.", "trie.cpu."),
)
DATA = "streamer.journal.record"  # data alone, by the same law


def imported(source: str) -> set[str]:
    """All modules that a source imports anywhere, also within functions, but not for types only."""
    names = set()
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "a relative import"
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def faults(source: str) -> set[str]:
    """Imports that a core may not have, and calls that would hide one."""
    found = imported(source)
    bad = {name for name in found if name.split(".")[0] in FORBIDDEN}
    bad |= {n for n in found if f"{n}.".startswith(FORBIDDEN_ROOMS) and f"{DATA}." not in f"{n}."}
    names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    return bad | names & {"open", "print", "input", "__import__", "exec", "eval"}


MODULES = sorted(path for room in ROOMS for path in (ROOT / room).glob("**/*.py"))
DATA_MODULE = ROOT / f"{DATA.replace('.', '/')}.py"


@pytest.mark.parametrize("path", [*MODULES, DATA_MODULE], ids=lambda path: path.stem)
def test_a_core_imports_nothing_that_does_io(path):
    assert not faults(path.read_text())


def test_every_room_has_modules():
    assert {str(path.parent.relative_to(ROOT)) for path in MODULES} == set(ROOMS)
