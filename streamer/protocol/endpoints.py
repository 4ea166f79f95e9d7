"""Endpoints: which are allowed, the private directory of the default ones, and who uses which.

Unix-domain sockets (``ipc:///path``), which the file system protects, and TCP are allowed.
Addresses that other machines can reach, unlike ``tcp://127.0.0.1:port``, need keys (``is_local``).
HTTP servers have addresses: ``HOST:PORT``, an IPv6 host in brackets, port 0 for a free one.
"""

import fcntl
import ipaddress
import json
import os
import re
import secrets
import socket
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from streamer.errors import StreamerError, UsageError

# size of sockaddr_un.sun_path, with the zero byte at its end
_MAX_PATH = 107
_TCP = re.compile(r"tcp://(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]/]+):(?P<port>\*|[0-9]{1,5})")
_PROBE_SECONDS = 1.0


class EndpointError(StreamerError):
    """An endpoint that cannot be bound, with the configuration key that names it."""

    def __init__(self, key: str, endpoint: str, problem: str) -> None:
        self.key = key
        self.endpoint = endpoint
        super().__init__(f"{key}: {endpoint}: {problem}")


def run_directory() -> Path:
    """The private directory of a user's default sockets."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime):
        return Path(runtime) / "kmer-streamer"
    return Path(f"/tmp/kmer-streamer-{os.getuid()}")


def default_endpoint(name: str) -> str:
    """The default endpoint of the socket ``name``."""
    return f"ipc://{run_directory()}/{name}.sock"


def check_endpoint(endpoint: str) -> str:
    """The endpoint as it is bound; ValueError if it is not allowed."""
    if not is_utf8(endpoint):
        # pydantic accepts no other text
        shown = endpoint.encode(errors="backslashreplace").decode()
        raise ValueError(f"'{shown}' is not UTF-8")
    if endpoint.startswith("ipc://"):
        path = endpoint[len("ipc://") :]
        if not path or path.startswith("@") or path == "*":
            raise ValueError(
                f"'{endpoint}' must name a socket file, as in ipc:///run/streamer.sock"
            )
        if len(os.fsencode(path)) > _MAX_PATH:
            raise ValueError(f"'{endpoint}': the path of a socket has at most {_MAX_PATH} bytes")
        return endpoint
    match = _TCP.fullmatch(endpoint)
    if match is None or (match["port"] != "*" and int(match["port"]) > 65535):
        raise ValueError(
            f"'{endpoint}' is not an endpoint: use ipc:///PATH or tcp://127.0.0.1:PORT"
        )
    host, port = match["host"], match["port"]
    if host == "localhost":
        return f"tcp://127.0.0.1:{port}"
    if host == "*":
        return f"tcp://0.0.0.0:{port}"
    return endpoint


def is_utf8(path: str) -> bool:
    """Whether a path is valid UTF-8, as ZeroMQ, SQLite and messages require."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_local(endpoint: str) -> bool:
    """Whether only this machine can reach an endpoint."""
    address = _address(endpoint)
    return endpoint.startswith("ipc://") or (address is not None and address.is_loopback)


def is_ipv6(endpoint: str) -> bool:
    """Whether an endpoint is an IPv6 address, for which sockets need an option."""
    return endpoint.startswith("tcp://[")


def can_be_bound(endpoint: str) -> bool:
    """Whether an endpoint is an address to listen at, not a host name."""
    return endpoint.startswith("ipc://") or _address(endpoint) is not None


def reachable(endpoint: str, via: str = "tcp://127.0.0.1:*") -> str:
    """Where to connect to a bound endpoint; one bound to all addresses has the address of ``via``.

    via: an endpoint on the same machine.
    """
    address, through = _address(endpoint), _TCP.fullmatch(via)
    if address is None or not address.is_unspecified:
        return endpoint
    host = "127.0.0.1" if through is None else through["host"]
    return f"tcp://{host}:{endpoint.rpartition(':')[2]}"


def _address(endpoint: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    match = _TCP.fullmatch(endpoint)
    try:
        return None if match is None else ipaddress.ip_address(match["host"].strip("[]"))
    except ValueError:
        return None


def socket_path(endpoint: str) -> Path | None:
    """The socket file of an ``ipc`` endpoint."""
    return Path(endpoint[len("ipc://") :]) if endpoint.startswith("ipc://") else None


def claim(key: str, endpoint: str) -> None:
    """Prepare the path of a socket: make its directory, remove a dead socket file.

    EndpointError if a process listens there, if a file that is not a socket is there, or if the
    default directory is not private. (libzmq itself would silently replace a live socket.)
    """
    path = socket_path(endpoint)
    if path is None:
        return
    try:
        if path.parent == run_directory():
            _make_private(key, endpoint, path.parent)
        mode = path.lstat().st_mode
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise EndpointError(key, endpoint, "its directory does not exist") from None
        return
    except OSError as error:
        raise EndpointError(key, endpoint, (error.strerror or str(error)).lower()) from None
    if not stat.S_ISSOCK(mode):
        raise EndpointError(key, endpoint, "a file that is not a socket is in the way")
    if _listens(path):
        raise EndpointError(key, endpoint, in_use(endpoint))
    path.unlink(missing_ok=True)


def _make_private(key: str, endpoint: str, directory: Path) -> None:
    directory.mkdir(mode=0o700, exist_ok=True)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise EndpointError(key, endpoint, f"{directory} must be your own directory with mode 0700")


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
        return True


class RunningDaemon(NamedTuple):
    """A daemon of this user. config: the path of its configuration, empty if it has none."""

    process: int
    config: str
    endpoints: Mapping[str, str]

    def __str__(self) -> str:
        config = f"with {self.config}" if self.config else "without a configuration"
        return f"the daemon {config} (process {self.process})"


@contextmanager
def announced(config: str | None, endpoints: Mapping[str, str]) -> Iterator[None]:
    """Have others of this user see which daemon is at these endpoints.

    A file in the directory of default sockets describes it, locked as long as the process lives.
    If it cannot be written, messages about these endpoints name no daemon.
    """
    daemon = RunningDaemon(os.getpid(), os.path.realpath(config) if config else "", endpoints)
    path = run_directory() / f"{daemon.process}-{secrets.token_hex(4)}{_DAEMON}"
    beside = path.with_suffix(".new")
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        file = beside.open("x")
    except OSError:
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        json.dump(daemon, file)
        file.flush()
        beside.rename(path)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def running_daemons() -> list[RunningDaemon]:
    """The daemons that this user runs, if they are announced."""
    running = []
    for path in run_directory().glob(f"*{_DAEMON}"):
        with suppress(OSError, ValueError, TypeError), path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                running.append(RunningDaemon(*json.load(file)))
            else:
                # its process was killed
                path.unlink(missing_ok=True)
    return running


_DAEMON = ".daemon"


def in_use(endpoint: str) -> str:
    """Why an endpoint cannot be bound that a process listens at."""
    for daemon in running_daemons():
        if endpoint in daemon.endpoints.values():
            return f"endpoint in use by {daemon}: stop that one, or set other endpoints"
    return "endpoint in use (is another daemon running?)"


def unset_endpoint(name: str, config: str | None) -> str:
    """Where clients with a configuration that sets no endpoint for a socket connect to.

    That is the default, or where ``--set`` has put the daemon with this configuration. Without a
    configuration any daemon at the default will do; else one with another configuration is a
    StreamerError.
    """
    default = default_endpoint(name)
    if config is None:
        return default
    path = os.path.realpath(config)
    at = [(daemon, daemon.endpoints.get(name)) for daemon in running_daemons()]
    own = [endpoint for daemon, endpoint in at if daemon.config == path and endpoint]
    if len(own) == 1 or default in own:
        return default if default in own else own[0]
    if own:
        raise UsageError(f"several daemons run with {path}: name one of {', '.join(own)}")
    for daemon, endpoint in at:
        if endpoint == default:
            raise StreamerError(
                f"{default} is that of {daemon}, not of {path}: stop that one, or set "
                f"{name}.endpoint in yours"
            )
    return default


_ADDRESS = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9.-]*):(?P<port>[0-9]{1,5})"
)


def check_http_address(address: str) -> str:
    """The address if it is valid or empty; else a ValueError."""
    match = _ADDRESS.fullmatch(address)
    if address and (match is None or int(match["port"]) > 65535):
        raise ValueError(f"'{address}' is not an address: use HOST:PORT, as in 127.0.0.1:9771")
    return address


def split_http_address(address: str) -> tuple[str, int]:
    """The host, without brackets, and port of a checked address."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host: ``localhost`` or a loopback address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Hosts:
    """The names that an HTTP server may be called by.

    Addresses are always good: only a name can be pointed at another machine. At a loopback address
    no other than loopback ones are.
    """

    def __init__(self, endpoint: str, names: Iterable[str]) -> None:
        host, _ = split_http_address(endpoint)
        self._local = is_loopback(host)
        self._names = {"localhost", host.lower(), *(name.lower() for name in names)}

    def allow(self, header: str) -> bool:
        """Whether a ``Host`` header names this server; its port may be that of a tunnel."""
        host, colon, port = header.rpartition(":")
        if not colon or not port.isdigit():
            host = header
        host = host.lower().strip("[]").rstrip(".")
        if host in self._names:
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return address.is_loopback or not self._local
