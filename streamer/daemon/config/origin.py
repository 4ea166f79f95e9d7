"""Where a setting comes from: a line of the file, or an option."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from streamer.daemon.config.toml_lines import key_lines


@dataclass
class SettingOrigin:
    """Where settings come from: the ``text`` of a file, and ``overrides`` of ``--set`` by key."""

    source: str
    text: str = ""
    overrides: dict[str, str] = field(default_factory=dict)

    @cached_property
    def lines(self) -> dict[str, int]:
        """The lines of the keys in the file, computed only if there is a fault to report."""
        return key_lines(self.text)

    def of(self, *keys: str) -> str:
        """Where the first of the keys was set; overrides take precedence over the file."""
        paths = [path for key in keys for path in _outward(key)]
        for path in paths:
            if path in self.overrides:
                return f"--set {self.overrides[path]}"
        for path in paths:
            if path in self.lines:
                return f"{self.source}:{self.lines[path]}"
        return self.source


def _outward(key: str) -> Iterator[str]:
    """The key, then the keys that contain it, up to but without the table."""
    yield key
    while key.count(".") > 1:
        key = key.rpartition(".")[0]
        yield key
