"""The folder of compiled kernels, those of the CPU and of GPUs.

It is below ``NUMBA_CACHE_DIR`` if given, else below the user's cache folder, else below this user's
folder in the temporary directory; the first of them that can be written. It is never beside the
source: an uninstaller leaves files there that it has not installed, and the folder that remains
hides the package from then on.

Each installation (its sources and its environment) has a folder of its own. When one is created,
those whose installation is gone or was replaced are removed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

ADVICE = "set NUMBA_CACHE_DIR to a folder that can be written"
GPU_FOLDER = "gpu"
"""The folder of GPU kernels in that of the installation."""

_NAME = "kmer-streamer"
_RECORD = "installation"
"""A file that names the installation: the folder of its packages, when written, its environment."""


class KernelFolder(NamedTuple):
    """Where kernels are stored; None if nowhere. warning: what to report about it, or empty."""

    path: Path | None
    warning: str = ""


def kernel_folder() -> KernelFolder:
    """The folder of compiled kernels of this installation, created if needed."""
    return _first_usable(os.environ.get("NUMBA_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME"))


@cache
def _first_usable(given: str | None, user: str | None) -> KernelFolder:
    if given:
        with suppress(OSError):
            return KernelFolder(_made(Path(given) / _NAME, given=True))
    warning = f"NUMBA_CACHE_DIR={given}: cannot be written" if given else ""
    # RuntimeError: there is no home
    with suppress(OSError, RuntimeError):
        base = Path(user) if user else Path.home() / ".cache"
        made = _made(base / _NAME)
        return KernelFolder(made, f"{warning}; {base} is used" if warning else "")
    try:
        made = _made(private_folder())
    except OSError as error:
        where = f"{error.filename}: {error.strerror}" if error.filename else "no folder is writable"
        return KernelFolder(None, f"compiled kernels cannot be stored ({where}); {ADVICE}")
    warning = warning or "no other cache folder can be written"
    return KernelFolder(
        made,
        f"{warning}: compiled kernels are stored in {made}; set NUMBA_CACHE_DIR to keep them "
        "elsewhere",
    )


def private_folder() -> Path:
    """This user's folder under the temporary directory, created if needed.

    Raises OSError if it cannot be created, or if another user can write to it: its content is
    executed.
    """
    path = os.path.join(tempfile.gettempdir(), f"{_NAME}-{os.getuid()}")
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise OSError(errno.EPERM, "another user can write to it", path)
    return Path(path)


def _made(base: Path, *, given: bool = False) -> Path:
    """This installation's folder in ``base``; OSError if it cannot be written.

    given: the user chose it, so its owner is trusted, and one that can only be read will do if it
    has this installation's kernels.
    """
    root = Path(__file__).parents[2]
    written = (root / "streamer" / "__init__.py").stat().st_mtime_ns
    name = hashlib.sha256(f"{root}\n{written}\n{sys.prefix}".encode()).hexdigest()[:16]
    folder = base / name
    record = folder / _RECORD
    with suppress(OSError):
        if given and record.exists() and not os.access(folder, os.W_OK):
            return folder
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not given and folder.stat().st_uid != os.getuid():
        raise OSError(errno.EPERM, "it belongs to another user", str(folder))
    tempfile.TemporaryFile(dir=folder).close()
    if not record.exists():
        record.write_text(f"{root}\n{written}\n{sys.prefix}\n")
        for other in base.glob(f"*/{_RECORD}"):
            if other != record and _is_stale(other):
                shutil.rmtree(other.parent, ignore_errors=True)
    return folder


def _is_stale(record: Path) -> bool:
    """Whether the installation of a folder is gone or was replaced."""
    try:
        root, written, prefix = record.read_text().splitlines()
        found = os.stat(os.path.join(root, "streamer", "__init__.py")).st_mtime_ns
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
    return str(found) != written or not os.path.isdir(prefix)
