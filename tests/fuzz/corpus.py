"""The corpus: useful inputs of each target, one line of base64 each, in tests/data/fuzz."""

from __future__ import annotations

import tempfile
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "data" / "fuzz"


def kept(target: str) -> list[bytes]:
    """The inputs of a target."""
    path = FOLDER / f"{target}.txt"
    return [b64decode(line) for line in path.read_text().split()] if path.exists() else []


def save_failure(target: str, seed: int, inputs: Sequence[bytes]) -> Path:
    """Write the inputs that lead to a failure from a seed on, for ``--replay``."""
    place = Path(tempfile.mkdtemp(prefix=f"fuzz-{target}-")) / "inputs"
    lines = [str(seed), *(b64encode(data).decode() for data in inputs)]
    place.write_text("".join(f"{line}\n" for line in lines))
    return place


def saved_failure(path: str) -> tuple[int, list[bytes]]:
    """The seed and the inputs of such a file."""
    seed, *lines = Path(path).read_text().split()
    return int(seed), [b64decode(line) for line in lines]
