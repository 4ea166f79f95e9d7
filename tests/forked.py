"""Processes of ``streamer`` that start in milliseconds: forks of a process that has imported it.

A process of its own imports for 0.4 to 0.8 seconds of a core. ``Forked`` is ``subprocess.Popen``
for commands ``[sys.executable, "-m", MODULE, ...]`` or ``"-c", CODE``, without most of the options
that Popen applies in the child. What happens before or during imports, limits on memory and the
variables that Python itself reads need a process of its own.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import numba
import pytest

from tests.data_files import ROOT
from tests.waiting import DEADLINE

_ASKED = 1 << 20  # bytes of a request
_ABOVE = 1000  # descriptors in use are below
_SUBREAPER = 36  # of prctl
COMMANDS: dict[int, list[str]] = {}
"""What has been started: /proc has the command of the process that forks."""

_lock = threading.Lock()


class Forked(subprocess.Popen[Any]):
    """A process that runs a module or code.

    terminal: its standard input becomes its controlling one. bare: nothing of the project has been
    imported, only numba; the process has no rights beyond those of its user, whoever runs it.
    """

    def __init__(
        self, command: Sequence[Any], *, terminal: bool = False, bare: bool = False, **options: Any
    ) -> None:
        self._terminal, self._bare = terminal, bare
        super().__init__(command, **options)

    def _execute_child(  # type: ignore[override]
        self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any,
        env: Any, startupinfo: Any, creationflags: Any, shell: Any, *pipes: Any,
    ) -> None:  # fmt: skip
        """Ask the server for a child, which then is one of this process."""
        reads_in, writes_in, reads_out, writes_out, reads_err, writes_err, *_, session, _ = pipes
        words = [*map(os.fspath, args)]
        at = 2 if words[1] == "-P" else 1
        assert (words[0], words[at] in ("-c", "-m"), preexec_fn) == (sys.executable, True, None)
        asked = {
            "argv": words[at:], "cwd": os.fspath(cwd or os.getcwd()),
            "env": dict(env or os.environ), "session": session, "terminal": self._terminal,
            "bare": self._bare, "places": [0, 1, 2, *pass_fds],
        }  # fmt: skip
        given = [at if at >= 0 else to for to, at in enumerate((reads_in, writes_out, writes_err))]
        with _lock:
            # the child, whose own parent ends, becomes one of this process; later orphans do not
            ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
            server = _server(os.getpid(), self._bare)
            socket.send_fds(server, [json.dumps(asked).encode()], [*given, *pass_fds])
            self.pid = int(server.recv(100))
            COMMANDS[self.pid] = words
            ctypes.CDLL(None).prctl(_SUBREAPER, 0, 0, 0, 0)
        self._child_created = True
        self._close_pipe_fds(  # type: ignore[attr-defined]
            reads_in, writes_in, reads_out, writes_out, reads_err, writes_err
        )


@contextmanager
def children() -> Iterator[None]:
    """In this context, daemons in this process start theirs as ``Forked``."""
    _server(os.getpid(), False)
    with pytest.MonkeyPatch.context() as patch:
        module = SimpleNamespace(**vars(subprocess) | {"Popen": Forked})
        patch.setattr("streamer.daemon.child.subprocess", module)
        yield


def run(
    command: Sequence[Any], *, input: Any = None, timeout: float = DEADLINE, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """As ``subprocess.run``; what it writes is captured unless ``options`` say otherwise."""
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    if input is not None:
        pipes["stdin"] = subprocess.PIPE
    with Forked(command, **(pipes | options)) as child:
        try:
            out, err = child.communicate(input, timeout)
        finally:
            child.kill()
    return subprocess.CompletedProcess(command, child.returncode, out, err)


@cache
def _server(owner: int, bare: bool) -> socket.socket:
    """The end of a socket to a server of the process ``owner``."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with there:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked", str(there.fileno()), "bare"[: 4 * bare]],
            cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[there.fileno()],
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # a fork has no threads
        )  # fmt: skip

    def end() -> None:
        if os.getpid() == owner:
            here.close()
            process.kill()
            process.wait()

    atexit.register(end)
    return here


def _serve(server: socket.socket) -> dict[str, Any]:
    """Fork for each request; returns in a child, which has its descriptors. Ends with its owner."""
    while True:
        data, given, _, _ = socket.recv_fds(server, _ASKED, 100)
        if not data:
            os._exit(0)
        reader, writer = os.pipe()
        parent = os.fork()
        if parent == 0:
            parent = os.getpid()
            child = os.fork()
            if child == 0:
                break
            os.write(writer, b"%d" % child)
            os._exit(0)
        os.waitpid(parent, 0)
        server.send(os.read(reader, 100))
        for descriptor in (reader, writer, *given):
            os.close(descriptor)
    asked: dict[str, Any] = json.loads(data)
    while os.getppid() == parent:
        time.sleep(0.0002)
    raised = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _ABOVE) for descriptor in given]
    server.detach()
    os.closerange(3, _ABOVE)
    for descriptor, place in zip(raised, asked["places"], strict=True):
        os.dup2(descriptor, place)
        os.close(descriptor)
    return asked


def _become(asked: dict[str, Any]) -> None:
    """Run the module as a fresh Python would."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if asked["session"]:
        os.setsid()
    if asked["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    if asked["bare"]:
        numba.core.config.reload_config()
        sys.path[:1] = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        no_rights = bytes(24)  # capset(2)
        ctypes.CDLL(None).capset(struct.pack("Ii", 0x20080522, 0), no_rights)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)
    buffering = 1 if os.isatty(1) else -1
    sys.stdout = sys.__stdout__ = open(1, "w", buffering, closefd=False)
    sys.stderr = sys.__stderr__ = open(2, "w", 1, closefd=False, errors="backslashreplace")
    option, what, *words = asked["argv"]
    sys.argv = [option, *words]
    if option == "-c":
        sys.modules["__main__"] = ModuleType("__main__")
        exec(what, vars(sys.modules["__main__"]))
    else:
        for name in {"streamer.__main__", what} - {"streamer"}:
            sys.modules.pop(name, None)  # imported by others, and not run
        runpy.run_module(what, run_name="__main__", alter_sys=True)


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not sys.argv[2]:
        import streamer.cli

        for found in pkgutil.iter_modules(streamer.cli.__path__):
            importlib.import_module(f"streamer.cli.{found.name}")
        importlib.import_module("streamer.daemon.service")
    # a collection would copy all pages
    gc.freeze()
    _become(_serve(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    _main()
