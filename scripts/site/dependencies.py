"""The page of dependencies: what each extra brings, how large it is, and under which licence."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import NamedTuple

from scripts.site.markdown import cell, table

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "dependencies.md"
DEVELOPERS = ("bench", "coverage", "docs", "gpu-test", "lint", "matrix", "release", "test")
"""Extras for work on the package itself."""

HEAD = """\
# Dependencies

What `pip install` brings, with and without [extras](install.md#extras), its size and its licence.
The package itself is under the MIT licence; it contains uPlot, MIT, for the live page. numba and
LLVM, which compile all kernels, are two thirds of an installation.

Nearly all licences are permissive. Those to look at before you pass an installation on: `crc32c`
(LGPL), `primer3-py` (GPL, extra `primer`), `certifi` and `minknow-api` (MPL), and NVIDIA's own for
the CUDA libraries of the extra `gpu`. `ont-pybasecall-client-lib`, of readfish, names none.

*`scripts/dependencies` makes this page from the metadata of the packages, installed on x86-64 Linux
with Python {python}.*
"""


class Package(NamedTuple):
    """An installed distribution; licence as its metadata names it, size in bytes."""

    name: str
    version: str
    licence: str
    size: int


def extras() -> list[str]:
    """The extras for users."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return sorted(project["optional-dependencies"].keys() - set(DEVELOPERS))


def installed(extra: str, folder: Path) -> Iterator[Package]:
    """What the package brings with an extra, or with none, into an empty environment."""
    asked = f"{ROOT}[{extra}]" if extra else str(ROOT)
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    subprocess.run([*uv, "pip", "install", "--quiet", "--python", folder, asked], check=True)
    for found in distributions(path=[str(path) for path in folder.glob("lib/*/site-packages")]):
        if found.name != "kmer-streamer":
            # scripts and manual pages, too, but not what Python has compiled
            files = [Path(str(found.locate_file(file))) for file in found.files or ()]
            size = sum(path.stat().st_size for path in files if path.is_file())
            yield Package(found.name.lower(), found.version, licence(found), size)


def licence(found: Distribution) -> str:
    """The licence that a distribution names: as an expression, by classifiers, or in words."""
    said = found.metadata
    if expression := said.get("License-Expression"):
        return expression
    classes = [line.split(" :: ") for line in said.get_all("Classifier", [])]
    names = [words[-1] for words in classes if words[0] == "License" and len(words) > 2]
    if names:
        return ", ".join(names)
    first = (said.get("License") or "").strip().partition("\n")[0]
    return first or "not named"


def page() -> str:
    """The page, made by installing everything."""
    packages: dict[str, Package] = {}
    comes_with: dict[str, list[str]] = {}
    rows = []
    base: set[str] = set()
    for extra in ["", *extras()]:
        with tempfile.TemporaryDirectory() as folder:
            found = {package.name: package for package in installed(extra, Path(folder))}
        if not extra:
            base = set(found)
        new = found.keys() - base if extra else base
        size = sum(found[name].size for name in new) / 1e6
        rows.append((f"`{extra}`" if extra else "no extra", str(len(new)), f"{size:.0f}"))
        packages |= found
        for name in new:
            comes_with.setdefault(name, []).append(f"`{extra}`" if extra else "always")
    listed = [
        (cell(name), one.version, cell(one.licence), f"{one.size / 1e6:.1f}",
         ", ".join(comes_with[name]))
        for name, one in sorted(packages.items())
    ]  # fmt: skip
    return "\n".join([
        HEAD.format(python=f"{sys.version_info[0]}.{sys.version_info[1]}"),
        table(["with", "further packages", "MB"], rows),
        "## Licences\n",
        table(["package", "version", "licence", "MB", "comes with"], listed),
    ])  # fmt: skip


if __name__ == "__main__":
    PAGE.write_text(page())
