"""Scrapes a daemon and parses the result without the library that wrote it."""

from __future__ import annotations

import re
import urllib.request

from tests.waiting import DEADLINE

_SAMPLE = re.compile(r"([a-z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-z]\w*)="((?:[^"\\]|\\.)*)"')

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def fetch(endpoint: str, path: str = "/metrics", **headers: str) -> tuple[bytes, dict[str, str]]:
    """The body of an answer, and its headers."""
    request = urllib.request.Request(f"http://{endpoint}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
        return answer.read(), dict(answer.headers)


def parsed(text: str) -> Samples:
    """Samples by name and labels; each must occur once."""
    samples: Samples = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        match = _SAMPLE.fullmatch(line)
        assert match is not None, line
        name, labels, value = match.groups()
        key = name, frozenset(_LABEL.findall(labels or ""))
        assert key not in samples, line
        samples[key] = float(value)
    return samples


def scrape(endpoint: str) -> Samples:
    """All current samples of a daemon."""
    return parsed(fetch(endpoint)[0].decode())


def value(samples: Samples, name: str, **labels: str) -> float:
    """The value of one sample."""
    return samples[name, frozenset(labels.items())]
