"""README's Install and the scripts, one after the other, in one clone and one environment.

``pip`` here installs nothing but this package, from the clone: it needs no network.
"""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys

import pytest

from tests.data_files import ROOT
from tests.pages.session import blocks
from tests.waiting import DEADLINE

pytestmark = [pytest.mark.whole, pytest.mark.slow]

PIP = """
import shutil, sys, sysconfig
from pathlib import Path

PACKAGES = ("streamer", "trie", "gpu")
packages = Path(sysconfig.get_path("purelib"))
record = packages / "record.txt"
source = sys.argv[-1].partition("[")[0]

# an uninstaller removes the files that it has installed, and folders that are then empty
for name in record.read_text().split() if record.exists() else []:
    (packages / name).unlink()
for package in PACKAGES:
    for code in (packages / package).rglob("*.pyc"):
        code.unlink()
    for folder in sorted((packages / package).rglob("*"), reverse=True) + [packages / package]:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()

names = []
if "--editable" in sys.argv:
    # as setuptools' finder: after the folders of sys.path
    root = str(Path(source).resolve())
    (packages / "finder.py").write_text(
        "import sys\\n"
        "from importlib.machinery import PathFinder\\n"
        "class Finder:\\n"
        "    @staticmethod\\n"
        "    def find_spec(name, path=None, target=None):\\n"
        f"        if name in {PACKAGES!r}:\\n"
        f"            return PathFinder.find_spec(name, [{root!r}])\\n"
        "sys.meta_path.append(Finder)\\n"
    )
    (packages / "editable.pth").write_text("import finder\\n")
    names += ["finder.py", "editable.pth"]
else:
    for package in PACKAGES:
        shutil.copytree(Path(source) / package, packages / package, dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("__pycache__"))
        names += [str(path.relative_to(packages)) for path in (packages / package).rglob("*")
                  if path.is_file() and path.suffix not in (".nbi", ".pyc")]
record.write_text("\\n".join(names))
program = Path(sys.executable).with_name("streamer")
# processes that are spawned import it
main = "from streamer.__main__ import run\\nif __name__ == '__main__': run()"
program.write_text(f"#!{sys.executable}\\n{main}\\n")
program.chmod(0o755)
"""

LEFT_OUT = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "PYTHONPATH", "VIRTUAL_ENV")


@pytest.fixture
def clone(tmp_path):
    made = tmp_path / "clone"
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for file in files.split("\0")[:-1]:
        if (ROOT / file).exists() and (not file.startswith("tests/") or "/data/" in file):
            (made / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, made / file)
    return made


def shell(clone, script):
    """What a script prints that a user runs in the clone, with an empty home."""
    known = {key: value for key, value in os.environ.items() if key not in LEFT_OUT}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=clone, timeout=4 * DEADLINE,
        env=known | {"HOME": str(clone.parent), "PATH": os.defpath}, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def installation(clone):
    """README's block of Install: its lines, for an environment with the packages of this one."""
    (text,) = (block.text for block in blocks(ROOT / "README.md") if "pip install ." in block.text)
    make, *rest = text.splitlines()
    made = make.replace("python3 -m venv", f"{sys.executable} -m venv --without-pip", 1)
    assert made != make
    (clone.parent / "pip.py").write_text(PIP)
    others = "\n".join(site.getsitepackages())
    return [
        made,
        "packages=$(echo $PWD/.venv/lib/python*/site-packages)",
        f'cp ../pip.py "$packages" && echo "{others}" > "$packages/others.pth"',
        "pip() { python -m pip $@; }",
        *rest,
    ]


def test_the_demo_follows_the_installation(clone):
    out = shell(clone, "\n".join([*installation(clone), "scripts/demo", "streamer --version"]))
    assert "done: every read is accounted for" in out
    # it runs the copy that is installed, with the kernels that this has compiled
    assert "making the environment" not in out
    assert list(clone.glob(".venv/lib/python*/site-packages/streamer/__init__.py"))
    assert not list(clone.rglob("*.nb[ic]"))


def test_an_environment_that_stored_kernels_broke_heals(clone):
    *begin, selftest = installation(clone)
    assert selftest.startswith("streamer selftest")
    out = shell(clone, "\n".join([
        *begin,
        "mkdir -p $packages/streamer/daemon/__pycache__",
        "touch $packages/streamer/daemon/__pycache__/kernel.nbi",
        "pip install --editable .",
        "! streamer --version 2> error.txt",
        "grep -q ModuleNotFoundError error.txt",
        "touch .venv/.made-for",
        "(EXTRAS=; . scripts/environment)",
        "streamer --version",
        "pip install .",  # after the source has changed
        "(EXTRAS=; . scripts/environment)",
        "python -c 'import streamer; print(streamer.__file__)'",
    ]))  # fmt: skip
    assert out.splitlines()[-1] == f"{clone}/streamer/__init__.py"
