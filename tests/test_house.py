"""The code is in order: each name means one thing, and docs/architecture.md is up to date."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("streamer", "trie", "gpu")
MODULES = [
    path.relative_to(ROOT)
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
    if path.stem not in ("__init__", "__main__")
]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
SUBJECTS = {"exact", "levenshtein", "ltb", "asm", "hamming", "primer", "lcs"}
SIDES = {  # both sides of one subject, in packages with different names
    "intrinsics": {"gpu/card", "trie/cpu"},
    "reports": {"streamer/matching", "streamer/reporting"},
    "walk": {"gpu/exact", "trie/snapshots"},
}
SHELLS = {"Producer", "Subscriber"}
"""Blocking and for asyncio, by the same names (``streamer.client``, ``streamer.aio``)."""


def one_subject(name: str, rooms: list[str]) -> bool:
    """Whether modules of one name in these packages are about the same thing.

    A command or a benchmark is named after its subject; a subject has a package in each part of the
    program, and subjects name equal parts alike; so do the two ends of a socket and their cores.
    """
    rooms = [room for room in rooms if room not in ("streamer/cli", "benchmarks")]
    if len(rooms) < 2 or set(rooms) == SIDES.get(name):
        return True
    if all(SUBJECTS & set(room.split("/")) for room in rooms):
        return True
    ends = ("streamer/client", "streamer/daemon")
    return all(room.removesuffix("/core") in ends for room in rooms)


def test_a_module_name_means_one_thing():
    rooms = defaultdict(list)
    for module in MODULES:
        rooms[module.stem].append(module.parent.as_posix())
    assert {name: found for name, found in rooms.items() if not one_subject(name, found)} == {}


def test_a_class_name_means_one_thing():
    found = defaultdict(list)
    for module in MODULES:
        for node in ast.walk(ast.parse((ROOT / module).read_text())):
            if isinstance(node, ast.ClassDef) and node.name not in SHELLS:
                found[node.name].append(module.as_posix())
    assert {name: modules for name, modules in found.items() if len(modules) > 1} == {}


def test_few_modules_lie_loose():
    assert len([module for module in MODULES if module.parent == Path("streamer")]) <= 5


def exists(path: str) -> bool:
    return (ROOT / path).is_dir() or (ROOT / f"{path.removesuffix('.py')}.py").is_file()


def shown_paths(text: str) -> list[str]:
    """Paths of modules, and the names after them that are in the same folder."""
    found = []
    for run in re.findall(r"(?:streamer|trie|gpu)/[\w/]+(?:\.py)?(?:[,:] [\w/]+)*", text):
        folder = ""
        for name in re.split("[,:] ", run):
            path = name if name.split("/")[0] in PACKAGES else f"{folder}/{name}"
            folder = str(Path(path).parent) if path == name else folder
            found.append(path.rstrip("/"))
    return found


def test_the_architecture_names_modules_that_exist():
    paths = shown_paths(PAGE)
    assert len(paths) > 80
    assert [path for path in paths if not exists(path)] == []
    names = re.findall(r"`((?:\w+/)*\w+\.py)`", PAGE)
    assert [name for name in names if not any(m.match(name) for m in MODULES)] == []


def test_a_read_passes_few_modules():
    way = PAGE.split("### The modules a read passes")[1].split("```")[1]
    passed = [
        path for line in way.splitlines() if " GPU " not in line for path in shown_paths(line)
    ]
    assert 12 < len(passed) <= 20


def test_the_drawing_shows_every_room():
    drawing = PAGE.split("## Where things are")[1].split("```")[1]
    shown, package = set(), ""
    for line in drawing.splitlines():
        names = re.match(r"(\s*)((?:\w+/ ?)+)", line)
        if names is None:
            continue
        rooms = names[2].replace(" ", "").rstrip("/").split("/")
        if names[1]:
            shown |= {f"{package}/{room}" for room in rooms}
        else:
            package = rooms[0]
    rooms = {"/".join(module.parts[:2]) for module in MODULES if len(module.parts) > 2}
    assert shown == rooms
