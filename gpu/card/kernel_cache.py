"""Compiled kernels in a cache on disk, loaded by later runs of the program.

numba's ``cache=True`` never hits for our kernels: it names a kernel by the pickled values of its
closure, and intrinsics are pickled with a random number. It would also miss a changed constant or a
function in another module. Here a kernel is named by everything that it is compiled from:

- its byte code, constants, the values of its closure and of the globals that it reads, and those of
every function that it calls;
- a digest of all source files of the packages ``gpu`` and ``trie``;
- the options, the argument types, the versions of numba-cuda and Python, and the architecture.

If some part has no stable name, or no folder can be written, the kernel is compiled every time.
``trie/cpu/compiling.py`` chooses the folder.

Kernels compiled once per process and device, and their launch sizes.
"""

import dataclasses
import hashlib
import logging
import os
import pickle
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from gpu.card.intrinsics import SIMULATED, cuda
from trie.cpu import compiling
from trie.cpu.compiling import GPU_FOLDER, kernel_folder
from trie.cpu.jit import warn_unstored

_log = logging.getLogger(__name__)

_ROOT = Path(__file__).parents[2]
PACKAGES = ("gpu", "trie")  # the packages that kernels and the functions they call come from


def jit(function: Callable[..., None], **options: Any) -> Any:
    """The kernel of a plain function, compiled or loaded at its first launch on each device.

    options: those of ``cuda.jit``.
    """
    kernel = cuda.jit(function, **options)
    if not SIMULATED:
        try:
            kernel._cache = _Stored((identity(function), sorted(options.items())))
        except (UnknownError, OSError, ImportError) as error:
            _log.debug("%s is not cached: %s", function.__qualname__, error)
    return kernel


def one_at_a_time(load: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``load`` for a kernel's library, by one thread at a time.

    Otherwise threads that use one device would both load it there, and numba-cuda 0.30.4 stops one
    of them with an AssertionError. Others can be launched meanwhile: loading one that has just been
    compiled includes its linking, which takes seconds.
    """

    @wraps(load)
    def loaded(library: Any) -> Any:
        with vars(library).setdefault("_loading", threading.RLock()):
            return load(library)

    return loaded


if not SIMULATED:
    from numba.cuda import codegen

    _libraries: Any = codegen.CUDACodeLibrary
    _libraries.get_cufunc = one_at_a_time(_libraries.get_cufunc)


class UnknownError(TypeError):
    """A value has no name that is stable across processes."""


def identity(function: Callable[..., Any]) -> str:
    """A digest of all that a function depends on, stable across processes."""
    return hashlib.sha256(repr(_described(function, set())).encode()).hexdigest()


def _described(value: Any, seen: set[int]) -> Any:
    """Nested tuples of plain values that identify ``value``."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if isinstance(value, np.generic | np.dtype):
        return type(value).__name__, str(value)
    if isinstance(value, tuple | list):
        return type(value).__name__, tuple(_described(item, seen) for item in value)
    if isinstance(value, dict):
        return tuple((str(key), _described(value[key], seen)) for key in sorted(value, key=str))
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, type | ModuleType) or value is Ellipsis:
        return getattr(value, "__qualname__", getattr(value, "__name__", "..."))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = tuple(getattr(value, field.name) for field in dataclasses.fields(value))
        return type(value).__qualname__, _described(fields, seen)
    # the Python function of a device function or an intrinsic
    function = getattr(value, "py_func", getattr(value, "_defn", value))
    if isinstance(function, FunctionType):
        return _described_function(function, seen)
    if type(value).__module__.split(".")[0] in ("numba", "llvmlite"):
        return type(value).__name__, str(value)
    if callable(value) and hasattr(value, "__qualname__"):
        return value.__module__, value.__qualname__
    raise UnknownError(f"a value of type {type(value).__name__}")


def _described_function(function: FunctionType, seen: set[int]) -> Any:
    name = (function.__module__, function.__qualname__)
    if id(function) in seen:
        return name
    seen.add(id(function))
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    read = _names(function.__code__)
    known = function.__globals__
    found = {key: known[key] for key in read if key in known}
    for module in [m for m in found.values() if isinstance(m, ModuleType)]:
        if module.__name__.split(".")[0] in PACKAGES:
            used = {key: getattr(module, key) for key in read if hasattr(module, key)}
            found |= {f"{module.__name__}.{key}": item for key, item in used.items()}
    return (
        name,
        _described_code(function.__code__),
        _described(cells, seen),
        _described(function.__defaults__, seen),
        _described(found, seen),
    )


def _described_code(code: CodeType) -> Any:
    constants = tuple(
        _described_code(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts
    )
    return code.co_code, constants, code.co_names, code.co_varnames


def _names(code: CodeType) -> list[str]:
    inner = [_names(c) for c in code.co_consts if isinstance(c, CodeType)]
    return sorted({*code.co_names, *(name for names in inner for name in names)})


@cache
def _sources() -> str:
    """A digest of all source files that kernels can come from."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((_ROOT / package).rglob("*.py")):
            digest.update(str(path.relative_to(_ROOT)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _directory() -> Path:
    """The folder of the cache; OSError if none can be written."""
    folder, warning = kernel_folder()
    if folder is None:
        raise OSError(warning)
    made = folder / GPU_FOLDER
    made.mkdir(exist_ok=True)
    return made


class _Stored:
    """The cache, with the interface that numba's dispatcher expects."""

    def __init__(self, key: Any) -> None:
        from importlib.metadata import version

        self._key = (key, _sources(), sys.version_info[:3], version("numba-cuda"), version("numba"))
        self.cache_path = str(_directory())

    def _path(self, signature: Any, codegen: Any) -> Path:
        key = repr((self._key, str(signature), codegen.magic_tuple()))
        return Path(self.cache_path) / f"{hashlib.sha256(key.encode()).hexdigest()}.kernel"

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The kernel for these argument types; None if it must be compiled."""
        target.refresh()
        path = self._path(signature, target.codegen())
        shared = compiling.current
        return _load(path) if shared is None else shared.load(str(path), lambda: _load(path))

    def save_overload(self, signature: Any, kernel: Any) -> None:
        """Store a compiled kernel, if possible."""
        path = self._path(signature, kernel.codegen)
        problem = _store(path, kernel)
        if compiling.current is not None:
            compiling.current.stored(str(path), problem)

    def enable(self) -> None:
        """Part of numba's interface; always enabled."""

    def disable(self) -> None:
        """Part of numba's interface; never disabled."""

    def flush(self) -> None:
        """Part of numba's interface; files stay, as a changed kernel has another name."""


def _load(path: Path) -> Any:
    """The kernel in a file; None if it is missing or unreadable."""
    from numba.cuda.dispatcher import _Kernel

    try:
        return _Kernel._rebuild(**pickle.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except Exception as error:
        _log.debug("a cached kernel cannot be loaded: %s", error)
        return None


def _store(path: Path, kernel: Any) -> str | None:
    """Store a compiled kernel; returns the reason in one line if it could not be stored."""
    from numba.cuda.serialize import dumps

    try:
        content = dumps(kernel._reduce_states())
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            try:
                file.write(content)
                file.flush()
            except OSError:
                os.unlink(file.name)
                raise
        os.replace(file.name, path)
    except OSError as error:
        warn_unstored(str(path.parent), error)
        return f"{path.parent}: {error.strerror}"
    except Exception as error:
        _log.debug("a kernel is not cached: %s", error)
    return None


@cache
def plain(function: Callable[..., None]) -> Any:
    """The kernel of a plain function."""
    return jit(function)


@cache
def made(make: Callable[..., Callable[..., None]], *arguments: Any, registers: int = 0) -> Any:
    """The kernel of the function that ``make(*arguments)`` returns.

    registers: the limit per thread; 0 leaves it to the compiler.
    """
    options = {"max_registers": registers} if registers and not SIMULATED else {}
    return jit(make(*arguments), **options)


def grid(size: int, threads: int) -> int:
    """The number of blocks of ``threads`` that cover ``size`` elements, at least one."""
    return max(1, -(-size // threads))


def with_threads(kernel: Any, threads: int, block: int, stream: Any = 0) -> Any:
    """``kernel`` with a grid of at least ``threads`` threads in blocks of ``block``, 32 | block."""
    assert block % 32 == 0, "whole warps"
    return kernel[grid(threads, block), block, stream]
