"""Addresses of HTTP servers: ``HOST:PORT``, an IPv6 host in brackets, port 0 for a free one."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

_ADDRESS = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9.-]*):(?P<port>[0-9]{1,5})"
)


def check_http_address(address: str) -> str:
    """The address if it is valid or empty; else a ValueError."""
    match = _ADDRESS.fullmatch(address)
    if address and (match is None or int(match["port"]) > 65535):
        problem = f"'{address}' is not an address: use HOST:PORT, as in 127.0.0.1:9771"
        raise ValueError(problem)
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
