"""Connect to a Ray cluster: one started on this machine for one command, or a running one.

Objects are byte arrays, which all processes of a node share without a copy. Ray's arrays
are read-only, for which numba would compile each kernel again. So arrays are rebuilt over the same
memory with their original flags: writable if they were. Nobody writes to them.
"""

import atexit
import contextlib
import io
import logging
import os
import pickle
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.batch.choice import Choice, Device
from streamer.device_choice import log_fallback
from streamer.errors import StreamerError, UsageError
from trie.cpu.threads import most_threads

LOCAL = "local"
INSTALL = "pip install '.[cluster]' in a clone"
CONNECT_SECONDS = 5.0
_MOST_FOLDER = 40
"""Longest path of a folder for sockets: with the names that Ray adds, the limit is 107."""

_AGAIN_SECONDS = 1.0  # how old cached resource numbers of a cluster may be

HEAD_SECONDS = 30.0
"""A cluster is lost if its head does not answer for this long."""

SETTINGS = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "1000000",
}
"""Ray's environment, unless the user has set it: members authenticate with a token, no usage data
is sent, signals go to this program, and Ray does not exit it if the head is lost.
"""

LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray's switch for systems that it supports on one machine only: 0 makes it listen on 127.0.0.1."""

_FOLDERS: set[str] = set()
"""Of the clusters that this process has started."""

_LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")


class Cluster:
    """A cluster that this process is connected to."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray
        self._resources: dict[str, float] = {}
        self._asked = -_AGAIN_SECONDS
        self._lost = ""

    def lose(self, why: str) -> None:
        """Note that the cluster is lost."""
        self._lost = why

    @property
    def lost(self) -> str:
        """Why the cluster was lost, else empty; calls to a lost Ray may never return."""
        self._now()
        return self._lost

    def check(self) -> None:
        """Raise StreamerError if the cluster is lost."""
        if self.lost:
            raise StreamerError(f"{self.lost}: start the cluster again, then this command")

    @property
    def cpus(self) -> int:
        """The current number of CPUs of all nodes."""
        return int(self._now().get("CPU", 0))

    @property
    def gpus(self) -> int:
        """The current number of GPUs of all nodes."""
        return int(self._now().get("GPU", 0))

    def _now(self) -> dict[str, float]:
        if not self._lost and time.monotonic() - self._asked > _AGAIN_SECONDS:
            # without a head, this call never returns
            asking = threading.Thread(target=self._ask, name="head", daemon=True)
            asking.start()
            asking.join(HEAD_SECONDS)
            if asking.is_alive():
                self.lose(f"the head of the cluster has not answered for {HEAD_SECONDS:g} s")
            self._asked = time.monotonic()
        return self._resources

    def _ask(self) -> None:
        # try again after an error
        with contextlib.suppress(Exception):
            self._resources = self.ray.cluster_resources()

    def line(self) -> str:
        """Return one line for the user that describes the cluster."""
        nodes = sum(node["Alive"] for node in self.ray.nodes())
        gpus = f", {self.gpus} GPUs" if self.gpus else ""
        return f"running on a Ray cluster: nodes {nodes}, CPUs {self.cpus}{gpus}"

    def choose(
        self,
        methods: Mapping[str, tuple[Device, ...]],
        default: str,
        method: str | None,
        device: str,
    ) -> Choice:
        """Like ``streamer.batch.choice.choose``, for the GPUs of the cluster."""
        name = method or default
        has = methods[name]
        if device != "auto" and device not in has:
            raise UsageError(f"the method '{method}' runs on {', '.join(has)}, not on {device}")
        needs = device == "cuda" or "cpu" not in has
        if needs:
            self.check_gpu()
        if device == "cpu" or "cuda" not in has or not self.gpus:
            return Choice(name, "cpu")
        on_fallback = log_fallback if device == "auto" else None
        return Choice(name, "cuda", None, name if "cpu" in has else default, on_fallback)

    def check_gpu(self) -> None:
        """Raise StreamerError if the cluster has no GPU."""
        if not self.gpus:
            raise StreamerError("no node of the cluster has a GPU; use --device cpu or auto")


@contextlib.contextmanager
def connected(
    address: str, threads: int = 0, on_end: Callable[[str], None] = lambda _: None
) -> Iterator[Cluster]:
    """Connect to a cluster for the duration of the context.

    address: ``local`` for one on this machine with ``threads`` CPUs (0: all), HOST:PORT, or
    ``auto`` for the one that this machine is a node of. A process that is already connected uses
    that cluster. Raises StreamerError, in one line, if there is no cluster or it refuses access.
    on_end: called in another thread, with the reason, if Ray ends on this machine meanwhile.
    """
    with contextlib.ExitStack() as stack:
        cluster = Cluster(_start(address, threads, stack))
        with _watched(cluster, on_end):
            yield cluster


@contextlib.contextmanager
def _watched(cluster: Cluster, on_end: Callable[[str], None]) -> Iterator[None]:
    """Notice at once if Ray ends on this machine: 15 seconds later it would end this process."""
    name = import_module("ray._private.worker").global_worker.node.raylet_socket_name
    over = threading.Event()

    def watch() -> None:
        # Ray sends nothing to an unknown client
        with contextlib.suppress(OSError):
            raylet.recv(1)
        if not over.is_set():
            cluster.lose("Ray has ended on this machine")
            on_end(cluster.lost)

    with socket.socket(socket.AF_UNIX) as raylet:
        raylet.connect(name)
        watching = threading.Thread(target=watch, name="ray", daemon=True)
        watching.start()
        try:
            yield
        finally:
            over.set()
            raylet.shutdown(socket.SHUT_RDWR)
            watching.join()


def abandon() -> None:
    """End the clusters that this process has started, and remove their files, without Ray.

    For a process that is about to end at once, whatever its threads do.
    """
    for folder in list(_FOLDERS):
        for file in Path("/proc/self/task").glob("*/children"):
            for pid in file.read_text().split():
                # a child may just have ended
                with contextlib.suppress(OSError):
                    if folder.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                        os.kill(int(pid), signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def _start(address: str, threads: int, stack: contextlib.ExitStack) -> Any:
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    if address == LOCAL:
        os.environ |= {"RAY_AUTH_MODE": "token", LOOPBACK: "0"}
        os.environ["RAY_AUTH_TOKEN"] = _token()
    elif address != "auto":
        _check_address(address)
        if address.rpartition(":")[0] in _LOOPBACK_HOSTS:
            os.environ.setdefault(LOOPBACK, "0")
    try:
        ray = import_module("ray")
    except ImportError as error:
        raise StreamerError(f"--cluster needs Ray ({error}): {INSTALL}") from None
    if ray.is_initialized():
        return ray
    silence()
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if address == LOCAL:
        short = len(tempfile.gettempdir()) <= _MOST_FOLDER
        folder = tempfile.mkdtemp(prefix="streamer-", dir=None if short else "/tmp")
        _FOLDERS.add(folder)
        stack.callback(_FOLDERS.discard, folder)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        # interrupting ``ray.init`` may leave processes that write there until Ray stops them
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        cpus = min(threads, most_threads()) or None
        options |= {"num_cpus": cpus, "include_dashboard": False, "_temp_dir": folder}
    else:
        options["address"] = address
    try:
        if address not in (LOCAL, "auto"):
            _check_token(address)
        stack.callback(ray.shutdown)
        with _own_signals(stack):
            ray.init(**options)
    except (ray.exceptions.RayError, RuntimeError, ValueError, OSError) as error:
        raise StreamerError(f"--cluster {address}: {_reason(error)}") from None
    return ray


@cache
def _token() -> str:
    """Return the token of this process; Ray reads it once."""
    return secrets.token_hex(32)


@contextlib.contextmanager
def _own_signals(stack: contextlib.ExitStack) -> Iterator[None]:
    """Undo Ray's SIGTERM handler in the main thread: SIGTERM unwinds what is open and exits.

    A handler of another program is kept.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit:
        # an exit from Ray's handler has a different code
        _leave(signal.SIGTERM, None)
    finally:
        ours = before == signal.SIG_DFL or getattr(before, "__module__", "").startswith("streamer")
        signal.signal(signal.SIGTERM, _leave if ours else before)
        stack.callback(signal.signal, signal.SIGTERM, before)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _check_address(address: str) -> None:
    """Raise UsageError for an invalid address; StreamerError if nothing listens there."""
    host, colon, port = address.rpartition(":")
    if not (colon and host and "/" not in host and port.isdecimal() and 0 < int(port) < 1 << 16):
        raise UsageError(
            f"--cluster {address}: give local, auto, or the HOST:PORT of a Ray cluster"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise StreamerError(
            f"--cluster {address}: {error.strerror or error}; "
            f"start a cluster there with 'ray start --head'"
        ) from None


def silence() -> None:
    """Keep Ray off standard output, which is for rows: it would report dead workers there."""
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    printing: Any = import_module("ray._private.worker")
    printing.print_to_stdstream = lambda *_, **__: None


def _check_token(address: str) -> None:
    """Try the token once: ``ray.init`` would retry for minutes."""
    inner: Any = import_module("ray._raylet")
    if os.environ["RAY_AUTH_MODE"] == "token" and not (
        inner.AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True)
    ):
        raise ValueError("no token")
    # Ray writes to the file descriptor directly
    sys.stderr.flush()
    before, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        inner.GcsClient(address=address)
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(nowhere)


def _reason(error: BaseException) -> str:
    """Return the first sentence of Ray's message, which spans many lines."""
    text = " ".join(str(error).split()) or type(error).__name__
    if "oken" in text or "uthenti" in text:
        return (
            "the cluster does not accept this token: every node and this command need the same "
            "one, in RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token"
        )
    return text.split(". ")[0]


Parts = list[NDArray[np.uint8]]
"""An object: its pickle, followed by the memory of its arrays."""


class _Pickler(pickle.Pickler):
    """Pickles locks as new locks, and memoryviews as arrays to view."""

    def reducer_override(self, obj: Any) -> Any:
        for new_lock in (threading.Lock, threading.RLock):
            if isinstance(obj, type(new_lock())):
                return new_lock, ()
        if isinstance(obj, memoryview):
            return memoryview, (pickle.PickleBuffer(obj),)
        return NotImplemented


def packed(obj: Any) -> Parts:
    """Pack an object into parts; arrays are not copied."""
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    _Pickler(file, protocol=5, buffer_callback=buffers.append).dump(obj)
    memory: list[Any] = [file.getvalue(), *(buffer.raw() for buffer in buffers)]
    return [np.frombuffer(block, dtype=np.uint8) for block in memory]


def unpacked(parts: Parts) -> Any:
    """Rebuild the object; its arrays are views of the parts, which must not be written to."""
    head, *rest = parts
    return pickle.loads(head.tobytes(), buffers=[np.asarray(_Memory(part)) for part in rest])


class _Memory:
    """Exposes the memory of an array as writable."""

    def __init__(self, array: NDArray[np.uint8]) -> None:
        self._array = array  # keeps it alive
        place = array.ctypes.data, False
        self.__array_interface__ = {**array.__array_interface__, "data": place}
