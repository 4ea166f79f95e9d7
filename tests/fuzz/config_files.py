"""Configurations: every fault is reported in one line, and accepted values are those written."""

from __future__ import annotations

import re
import tempfile
import tomllib
from pathlib import Path

from streamer.daemon.config import load
from streamer.errors import ConfigError
from tests.data_files import ROOT
from tests.fuzz.targets import OfBytes

_PATHS = {"sources", "directory", "ledger", "directories", "results", "keys", "token_file"}
_PAIRS = ROOT / "tests" / "streamer" / "daemon" / "configs"


class ConfigFiles(OfBytes):
    """The target."""

    name = "config"
    words = (
        *(b"[", b"]", b"=", b"\n", b'"', b"'", b'"""', b"{", b"}", b"#", b",", b".", b"\\", b"\0"),
        *(
            b"[" * 1500,
            b"9" * 5000,
            b"0x" + b"f" * 5000,
            b"1e999",
            b"nan",
            b"-inf",
            b"true",
            b"[[a]]",
        ),
        *(b"~", b'"~\\u0000"', b'"\\u0000"', b"1979-05-27", b"\xff", b"\xc3\xa9", b"\r", b"\r\n"),
        *(b"k = ", b"sources = ", b"[dictionary]\n", b"[web]\n", b"keys = ", b"endpoint = "),
        *(b'"tcp://', b'"ipc://', b"-1", b"9223372036854775808", b'"x"', b"[]", b"{}", b"1_0"),
    )

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="fuzz-")
        self._path = Path(self.folder.name) / "f.toml"

    def take(self, data: bytes) -> str:
        """Load a configuration."""
        self._path.write_bytes(data)
        try:
            config = load(str(self._path))
        except ConfigError as error:
            lines = error.lines()
            assert lines
            for line in lines:
                assert line.startswith(str(self._path)) and line.isprintable(), line
            return "refused"
        for table, keys in tomllib.loads(data.decode()).items():
            made = getattr(config, table)
            for key, value in keys.items():
                kept = getattr(made, key)
                if key == "endpoint":
                    # a host name of this machine is returned as its address
                    value = re.sub("^tcp://localhost:", "tcp://127.0.0.1:", value)
                if key not in _PATHS:
                    assert kept == value, (table, key, kept, value)
        return "accepted"

    def seeds(self) -> list[bytes]:
        """Valid configurations, invalid ones, and the shipped ones."""
        paths = [*sorted(_PAIRS.rglob("*.toml")), *sorted((ROOT / "configs").glob("*.toml"))]
        return [path.read_bytes() for path in paths if path.stat().st_size < 20_000]
