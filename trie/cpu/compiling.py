"""The compiled kernels of an installation: folder, locks, and a notice.

Kernels of the CPU and of GPUs are below ``NUMBA_CACHE_DIR`` if given, else below the user's cache
folder, else below this user's folder in the temporary directory; the first of them that can be
written. They are never beside the source: an uninstaller leaves files there that it has not
installed, and the folder that remains hides the package from then on.

Each installation (its sources and its environment) has a folder of its own. When one is created,
those whose installation is gone or was replaced are removed. The same wheel installed again, with
another extra, is the same installation.

A package may bring kernels compiled for a level of x86-64, in ``SHIPPED``. They are used where this
machine has none of its own, if the CPU has that level, and the sources and compilers are the same.

Several processes may fill one folder. The first that needs a kernel takes its lock and compiles it;
the others wait, then load it. A lock is released when its process ends. ``current`` counts what
this process loads and stores.
"""

import errno
import fcntl
import hashlib
import logging
import os
import shutil
import stat
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

log = logging.getLogger("trie.cpu.jit")

ADVICE = "set NUMBA_CACHE_DIR to a folder that can be written"
GPU_FOLDER = "gpu"
"""The folder of GPU kernels in that of the installation."""

ROOT = Path(__file__).parents[2]
"""The folder of the packages."""

_V3 = (
    "+cx16,+sahf,+popcnt,+sse3,+sse4.1,+sse4.2,+ssse3,+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,"
    "+movbe,+xsave"
)
LEVELS = {
    "x86-64-v4": f"{_V3},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl",
    "x86-64-v3": _V3,
}
"""What a CPU must have to run kernels of a level, by LLVM's names; the best level first."""

SHIPPED = ROOT / "trie" / "compiled"
"""The folder of kernels that came with the package, one folder for each level."""

MADE_FOR = "made-for"
"""A file in the folder of a level: ``made_for`` of its kernels."""

SHIP = "STREAMER_SHIP_KERNELS"
"""The environment variable that names a folder: kernels are stored there, to be shipped."""

_NAME = "kmer-streamer"
_RECORD = "installation"
"""A file that names the installation: the folder of its packages, their stamp, its environment."""


class KernelFolder(NamedTuple):
    """Where kernels are stored; None if nowhere. warning: what to report about it, or empty."""

    path: Path | None
    warning: str = ""


def kernel_folder() -> KernelFolder:
    """The folder of compiled kernels of this installation, created if needed."""
    return _first_usable(os.environ.get("NUMBA_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME"))


@cache
def _first_usable(named: str | None, user: str | None) -> KernelFolder:
    if named:
        with suppress(OSError):
            return KernelFolder(_made(Path(named) / _NAME, given=True))
    warning = f"NUMBA_CACHE_DIR={named}: cannot be written" if named else ""
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


def sealed(content: bytes) -> bytes:
    """A compiled kernel behind its checksum."""
    return zlib.crc32(content).to_bytes(4, "little") + content


def unsealed(stored: bytes) -> bytes:
    """The content; ValueError if it is damaged: running it could end the process."""
    if sealed(stored[4:]) != stored:
        raise ValueError("it is damaged")
    return stored[4:]


def private_folder() -> Path:
    """This user's folder under the temporary directory, created if needed.

    Raises OSError if it cannot be created, or if another user can write to it: its content is
    executed.
    """
    path = os.path.join(tempfile.gettempdir(), f"{_NAME}-{os.getuid()}")
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise OSError(errno.EPERM, "another user can write to it", path)
    return Path(path)


def _made(base: Path, *, given: bool = False) -> Path:
    """This installation's folder in ``base``; OSError if it cannot be written.

    given: the user chose it, so its owner is trusted, and one that can only be read will do if it
    has this installation's kernels.
    """
    written = _stamp(ROOT)
    name = hashlib.sha256(f"{ROOT}\n{written}\n{sys.prefix}".encode()).hexdigest()[:16]
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
        record.write_text(f"{ROOT}\n{written}\n{sys.prefix}\n")
        for other in base.glob(f"*/{_RECORD}"):
            if other != record and _is_stale(other):
                shutil.rmtree(other.parent, ignore_errors=True)
    return folder


@cache
def installed_files(root: Path) -> str:
    """A checksum of the files that an installer put there; empty where sources may change."""
    for record in root.glob("kmer_streamer-*.dist-info/RECORD"):
        return hashlib.sha256(record.read_bytes()).hexdigest()
    return ""


def _stamp(root: Path) -> str:
    return installed_files(root) or str((root / "streamer" / "__init__.py").stat().st_mtime_ns)


def _is_stale(record: Path) -> bool:
    """Whether the installation of a folder is gone or was replaced."""
    try:
        root, written, prefix = record.read_text().splitlines()
        stamp = _stamp(Path(root))
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
    return stamp != written or not os.path.isdir(prefix)


def gpu_compilers() -> str:
    """The compilers of GPU kernels, found without importing them."""
    from importlib.metadata import PackageNotFoundError, version

    versions = [f"Python {sys.version_info[0]}.{sys.version_info[1]}"]
    for name in ("numba-cuda", "numba"):
        with suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    return ", ".join(versions)


def made_for() -> str:
    """The facts that kernels depend on besides the CPU: the compilers, and the sizes of sources."""
    import llvmlite
    import numba

    sizes = hashlib.sha256("".join(sorted(_source_sizes(ROOT))).encode())
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return (
        f"Python {python}, numba {numba.__version__}, llvmlite {llvmlite.__version__}, "
        f"sources {sizes.hexdigest()[:16]}"
    )


def _source_sizes(root: Path) -> Iterator[str]:
    """A line for each module that has kernels of the CPU; those of an installation are listed."""
    for record in root.glob("kmer_streamer-*.dist-info/RECORD"):
        for line in record.read_text().splitlines():
            name, _, size = line.split(",")
            if name.endswith(".py") and name.startswith(("streamer/", "trie/")):
                yield f"{name} {size}\n"
        return
    for package in ("streamer", "trie"):
        for path in (root / package).rglob("*.py"):
            yield f"{path.relative_to(root)} {path.stat().st_size}\n"


def cpu_levels() -> list[str]:
    """The levels that this machine's CPU has, the best first."""
    from llvmlite.binding import get_host_cpu_features

    has = get_host_cpu_features()
    return [
        level
        for level, features in LEVELS.items()
        if all(has.get(name[1:]) for name in features.split(","))
    ]


@cache
def shipped_folder() -> Path | None:
    """The folder of shipped kernels that this machine can run; None, with a line, if none fits."""
    if not SHIPPED.is_dir():
        return None
    # kernels for another CPU may be wanted
    for level in cpu_levels() if "NUMBA_CPU_NAME" not in os.environ else ():
        record = SHIPPED / level / MADE_FOR
        if record.is_file():
            made = record.read_text()
            if made == made_for():
                return record.parent
            log.warning("the package's compiled kernels are not used, they are for %s", made)
            return None
    cpu = os.environ.get("NUMBA_CPU_NAME", "this CPU")
    log.warning("the package has no compiled kernels for %s", cpu)
    return None


_T = TypeVar("_T")


class SharedCompiling:
    """Compiling under locks in ``folder``.

    files: cache files that kernels were loaded from or stored in. compiled: number of kernels.
    problem: why one could not be stored, in one line.
    """

    def __init__(self, folder: str) -> None:
        self.files: set[str] = set()
        self.compiled = 0
        self.problem: str | None = None
        self._folder = folder
        self._locks: dict[str, IO[bytes]] = {}

    def load(self, file: str, load: Callable[[], _T | None]) -> _T | None:
        """Load a kernel from its cache file; None if this process is to compile it."""
        loaded = load()
        if loaded is None and file not in self._locks:
            name = hashlib.sha256(file.encode()).hexdigest()
            lock = open(os.path.join(self._folder, name), "wb")
            fcntl.flock(lock, fcntl.LOCK_EX)
            loaded = load()
            if loaded is None:
                self._locks[file] = lock
                return None
            lock.close()
        if loaded is not None:
            self.files.add(file)
        return loaded

    def stored(self, file: str, problem: str | None = None) -> None:
        """Note that a kernel was compiled, and stored in that file unless there is a problem."""
        self.compiled += 1
        if problem is None and os.path.exists(file):
            self.files.add(file)
        self.problem = self.problem or problem
        lock = self._locks.pop(file, None)
        if lock is not None:
            lock.close()


current: SharedCompiling | None = None
"""None if processes do not wait for each other."""


NOTICE = (
    "compiling for this machine, once (later runs start at once; `streamer warm-up` compiles for "
    "all commands) ..."
)
NOTICE_SECONDS = 2.0
"""Compiling that takes less in total is not worth a line."""


def _to_stderr(line: str) -> None:
    print(f"streamer: {line}", file=sys.stderr, flush=True)


@contextmanager
def compile_notice(*, quiet: bool, report: Callable[[str], object] = _to_stderr) -> Iterator[None]:
    """Report the notice, once, when kernels that are missing from the cache take long to compile.

    Warnings about that cache are reported too. ``report`` writes to standard error by default.
    """
    from numba.core import event

    class Compilations(event.Listener):
        """Compilations nest, and threads compile at the same time: ``running`` counts them."""

        running = 0
        began = 0.0
        seconds = NOTICE_SECONDS
        reported = quiet
        timer: threading.Timer | None = None
        lock = threading.Lock()

        def on_start(self, event: Any) -> None:
            with self.lock:
                self.running += 1
                if self.running == 1 and not self.reported:
                    self.began = time.monotonic()
                    self.timer = threading.Timer(self.seconds, self.expire)
                    self.timer.daemon = True
                    self.timer.start()

        def on_end(self, event: Any) -> None:
            with self.lock:
                self.running -= 1
                if self.running == 0 and self.timer is not None:
                    self.timer.cancel()
                    self.timer = None
                    self.seconds -= time.monotonic() - self.began
            if self.seconds <= 0:
                self.expire()

        def expire(self) -> None:
            with self.lock:
                reported, self.reported = self.reported, True
            if not reported:
                report(NOTICE)

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not quiet:
                report(record.getMessage())

    handler = Handler()
    log.addHandler(handler)
    try:
        with event.install_listener("numba:compile", Compilations()):
            yield
    finally:
        log.removeHandler(handler)
