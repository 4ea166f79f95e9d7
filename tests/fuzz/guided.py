"""Fuzzing by coverage, with atheris: inputs that reach new code become part of the corpus.

    python -m tests.fuzz.guided TARGET FOLDER OPTIONS-OF-LIBFUZZER

It runs in its own process, which libFuzzer ends.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import atheris

from tests.fuzz.corpus import kept, save_failure
from tests.fuzz.messages import Message, decoded, encoded
from tests.fuzz.targets import TARGETS

_ROOT = Path(__file__).parents[2]


def _with_kernels() -> list[str]:
    """Modules whose functions numba compiles, which is impossible once atheris instruments them."""
    paths = [
        path for package in ("streamer", "trie", "gpu") for path in (_ROOT / package).rglob("*.py")
    ]
    found = [path for path in paths if "njit" in path.read_text() or "numba" in path.read_text()]
    return [".".join(path.relative_to(_ROOT).with_suffix("").parts) for path in found]


def main() -> None:
    """Fuzz until libFuzzer has enough."""
    name, folder, *options = sys.argv[1:]
    with atheris.instrument_imports(include=["streamer"], exclude=_with_kernels()):
        target = TARGETS[name]()
    for number, data in enumerate([*target.seeds(), *kept(name)]):
        (Path(folder) / f"seed-{number}").write_bytes(data)
    target.begin(1)
    changed = None
    if name == "wire":
        from tests.fuzz.mutation import Mutator

        mutator = Mutator([*map(decoded, target.seeds())])

        def changed(data: bytes, most: int, seed: int) -> bytes:
            rng = random.Random(seed)
            if rng.random() < 0.3:
                return atheris.Mutate(data, most)
            socket, frames = decoded(data)
            made = Message(socket, mutator.changed(rng, socket, frames))
            return encoded(made)[:most]

    def one(data: bytes) -> None:
        try:
            target.one(data)
        except Exception:
            print(f"again: --replay {save_failure(name, target.seed, target.left())}", flush=True)
            raise

    atheris.Setup([sys.argv[0], folder, *options], one, custom_mutator=changed)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
