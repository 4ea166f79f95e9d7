"""Compiled kernels, once per process and device and in a cache on disk, and their launch sizes.

numba's ``cache=True`` never hits for our kernels: it names a kernel by the pickled values of its
closure, and intrinsics are pickled with a random number. Here a kernel is named by its function, or
the function that makes it and the arguments; by a digest of all source files of the packages
``gpu`` and ``trie``, from which all that it calls comes; and by the options, the argument types,
the versions of numba-cuda and Python, and the architecture. If no folder can be written, it is
compiled every time. ``trie/cpu/compiling.py`` chooses the folder.

Kernels that came with the package (``scripts/gpu_kernels.py``) are looked for first, by function,
options and argument types alone.
"""

import hashlib
import logging
import pickle
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any

from gpu.card.intrinsics import SIMULATED, cuda
from trie.cpu import compiling
from trie.cpu.compiling import GPU_FOLDER, kernel_folder
from trie.cpu.jit import warn, warn_unstored
from trie.new_file import NewFile

_log = logging.getLogger(__name__)

_ROOT = Path(__file__).parents[2]
PACKAGES = ("gpu", "trie")  # the packages that kernels and the functions they call come from

ARCHITECTURES = ((8, 0), (9, 0), (10, 0), (12, 0))
"""Compute capabilities that a package's kernels are for, and later ones of the same generation."""


def _kernel(origin: Callable[..., Any], arguments: tuple[Any, ...] | None, **options: Any) -> Any:
    """The kernel of ``origin(*arguments)``, or of ``origin`` if they are None.

    It is compiled or loaded at its first launch on each device. options: those of ``cuda.jit``.
    """
    assert "<locals>" not in origin.__qualname__, "functions of one name"
    function = origin if arguments is None else origin(*arguments)
    kernel = cuda.jit(function, **({} if SIMULATED else options))
    if not SIMULATED:
        named = origin.__module__, origin.__qualname__
        name = named if arguments is None else (named, arguments)
        compile_for = partial(dispatcher._Kernel, function, **kernel.targetoptions)
        kernel._cache = _Stored((name, sorted(options.items())), compile_for)
    return kernel


def one_at_a_time(load: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``load`` for a kernel's library, by one thread at a time.

    Otherwise threads that use one device would both load it there, and numba-cuda 0.30.4 stops one
    of them with an AssertionError. Others can be launched meanwhile: loading one that has just been
    compiled includes its linking, which takes seconds. A package's kernel that is used on one GPU
    is compiled for another that the package has no code for.
    """

    @wraps(load)
    def loaded(library: Any) -> Any:
        with vars(library).setdefault("_loading", threading.RLock()):
            anew = vars(library).get("compile_anew")
            if anew and not (library._llvm_strs or shipped_folder(library._ensure_cc(None)[:2])):
                library._llvm_strs = anew().library.llvm_strs
            return load(library)

    return loaded


if not SIMULATED:
    from numba.cuda import codegen, dispatcher

    _libraries: Any = codegen.CUDACodeLibrary
    _libraries.get_cufunc = one_at_a_time(_libraries.get_cufunc)


@cache
def _sources() -> str:
    """A digest of all source files that kernels can come from."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((_ROOT / package).rglob("*.py")):
            digest.update(str(path.relative_to(_ROOT)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _directory() -> Path | None:
    """The folder of the cache; None if there is none."""
    folder = kernel_folder().path
    if folder is not None:
        folder /= GPU_FOLDER
        with suppress(OSError):
            folder.mkdir(exist_ok=True)
    return folder


@cache
def made_for() -> str:
    """What compiled kernels depend on besides the device."""
    return f"{compiling.gpu_compilers()}, sources {_sources()[:16]}"


@cache
def shipped_folder(capability: tuple[int, int]) -> Path | None:
    """The folder of the package's kernels; None, with a line, if none fits such a device."""
    folder = compiling.SHIPPED / GPU_FOLDER
    record = folder / compiling.MADE_FOR
    if not record.is_file():
        return None
    made = record.read_text()
    if made != made_for():
        warn(made, f"the package's GPU kernels are not used, they are for {made}")
        return None
    if any(capability[0] == least[0] and capability >= least for least in ARCHITECTURES):
        return folder
    compiling.log.warning("the package has no kernels for GPUs of %d.%d", *capability)
    return None


class _Stored:
    """The cache, with what numba's dispatcher calls to launch a kernel."""

    def __init__(self, name: Any, compile_for: Callable[..., Any]) -> None:
        self._name, self._compile_for = name, compile_for
        self.cache_path = _directory()

    def path(self, folder: Path, signature: Any, codegen: Any = None) -> Path:
        """The file of a kernel for a code generator, or of a package's, for all devices."""
        machine = codegen and (made_for(), sys.version_info[:3], codegen.magic_tuple())
        key = repr((self._name, str(signature), machine))
        return folder / f"{hashlib.sha256(key.encode()).hexdigest()}.kernel"

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The kernel for these argument types; None if it must be compiled.

        The implementations of all functions, half a second of imports, are only for compiling.
        """
        folder = shipped_folder(cuda.get_current_device().compute_capability)
        if found := folder and _load(self.path(folder, signature)):
            found.library.compile_anew = partial(self._compile_for, signature)
        if found or not self.cache_path:
            return found
        path = self.path(self.cache_path, signature, target.codegen())
        shared = compiling.current
        return _load(path) if shared is None else shared.load(str(path), lambda: _load(path))

    def save_overload(self, signature: Any, kernel: Any) -> None:
        """Store a compiled kernel, if possible."""
        if not self.cache_path:
            return
        path = self.path(self.cache_path, signature, kernel.codegen)
        problem = _store(path, kernel)
        if compiling.current is not None:
            compiling.current.stored(str(path), problem)


def _load(path: Path) -> Any:
    """The kernel in a file; None if it is missing or unreadable."""
    try:
        content = compiling.unsealed(path.read_bytes())
        return dispatcher._Kernel._rebuild(**pickle.loads(content))
    except FileNotFoundError:
        return None
    except Exception as error:
        warn("unread", f"{path}: a kernel is unreadable, so it is compiled: {error}")
        return None


def _store(path: Path, kernel: Any) -> str | None:
    """Store a compiled kernel; returns the reason in one line if it could not be stored."""
    from numba.cuda.serialize import dumps

    try:
        with NewFile(path) as new:
            new.file.write(compiling.sealed(dumps(kernel._reduce_states())))
    except OSError as error:
        warn_unstored(str(path.parent), error)
        return f"{path.parent}: {error.strerror}"
    except Exception as error:
        _log.debug("a kernel is not cached: %s", error)
    return None


@cache
def plain(function: Callable[..., None]) -> Any:
    """The kernel of a function of a module."""
    return _kernel(function, None)


@cache
def made(make: Callable[..., Callable[..., None]], *arguments: Any, registers: int = 0) -> Any:
    """The kernel of the function that ``make(*arguments)`` returns; make: a function of a module.

    arguments: numbers, or tuples and dataclasses of them. registers: the limit per thread; 0 leaves
    it to the compiler.
    """
    return _kernel(make, arguments, **({"max_registers": registers} if registers else {}))


def grid(size: int, threads: int) -> int:
    """The number of blocks of ``threads`` that cover ``size`` elements, at least one."""
    return max(1, -(-size // threads))


def with_threads(kernel: Any, threads: int, block: int, stream: Any = 0) -> Any:
    """``kernel`` with a grid of at least ``threads`` threads in blocks of ``block``, 32 | block."""
    assert block % 32 == 0, "whole warps"
    return kernel[grid(threads, block), block, stream]
