"""numba's ``njit`` with a kernel cache that never causes a failure.

With ``cache=True`` numba stores a kernel beside its source. If it can write nowhere, as in a
read-only container, it refuses to define the kernel; if a write fails later, on a full disk, the
call fails. Here kernels are stored in the folder that ``kernel_folder`` chooses, and one that could
not be stored is compiled again by the next process. This module's logger warns once.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import update_wrapper
from pathlib import Path
from types import ModuleType
from typing import Any

import llvmlite.binding
import numba.core.caching
import numba.core.codegen
import numba.core.config
import numba.core.environment
import numba.core.runtime.nrt
import numpy as np

from trie.cpu import compiling, machine
from trie.cpu.compiling import ADVICE, ROOT, installed_files, kernel_folder, log

# untyped: only later versions of numba have type annotations
config: Any = numba.core.config
caching: Any = numba.core.caching
codegen: Any = numba.core.codegen
FunctionCache: Any = caching.FunctionCache
NullCache: Any = caching.NullCache
environment: Any = numba.core.environment
runtime: Any = numba.core.runtime.nrt.rtsys

COMPILE_BYTES = 64 << 20
"""Memory that LLVM may need to load or compile one kernel; with less it aborts the process."""


_rebuilt: Any = getattr(environment, "_rebuild_env", None)


def _rebuild_env(module: str, constants: Any, name: str) -> Any:
    """numba's function of the same name, which imports the module of each function in a kernel.

    Functions of numba itself are not looked up by name: only compiling needs their modules, whose
    import takes as long as loading all kernels of a command.
    """
    if module in sys.modules or not module.startswith("numba."):
        return _rebuilt(module, constants, name)
    made = environment.lookup_environment(name)
    if made is None:
        made = environment.Environment({"__name__": module})
        made.consts[:] = constants
        made.env_name = name
        environment.Environment._memo[name] = made
    return made


if _rebuilt is not None:  # not part of numba's public API: without it commands start more slowly
    environment._rebuild_env = _rebuild_env


class _Library(codegen.JITCodeLibrary):  # type: ignore[misc]
    """Compiled code, whose bitcode, for kernels that call it, is parsed when one is compiled.

    numba's parses it whenever code is loaded, to know the symbols, which are stored with it here:
    half of the time that loading takes.
    """

    _bitcode = b""
    _shared_module: Any

    def serialize_using_object_code(self) -> Any:
        """The parts to store: numba's, and the names of all symbols."""
        name, kind, data = super().serialize_using_object_code()
        module = self._get_module_for_linking()
        values = (*module.functions, *module.global_variables)
        return name, kind, (*data, [each.name for each in values if not each.is_declaration])

    @classmethod
    def _unserialize(cls, codegen: Any, state: Any) -> Any:
        name, _, data = state
        if len(data) != 3:
            return super()._unserialize(codegen, state)
        self = codegen.create_library(name)
        code, self._bitcode, symbols = data
        self.enable_object_caching()
        self._set_compiled_object(code)
        self._finalize_final_module()
        codegen._engine._defined_symbols.update(symbols)
        return self

    def _get_module_for_linking(self) -> Any:
        if self._shared_module is None and self._bitcode:
            self._shared_module = llvmlite.binding.parse_bitcode(self._bitcode)
        return super()._get_module_for_linking()


codegen.JITCPUCodegen._library_class = _Library


class Kernel:
    """A function that is passed to numba on its first call, from Python or in another kernel.

    numba inspects each function's signature and looks for its cache folder, yet a command calls few
    of the kernels that it imports.
    """

    _made: Any = None

    def __init__(self, function: Callable[..., Any], options: dict[str, Any], stored: bool) -> None:
        update_wrapper(self, function)
        self.py_func = function
        self.targetoptions = options  # numba looks for inline="always" there
        self._stored = stored

    @property
    def dispatcher(self) -> Any:
        """numba's dispatcher of this kernel."""
        if self._made is None:
            made: Any = numba.njit(**self.targetoptions)(self.py_func)
            if self._stored:
                made._cache = _cache_of(self.py_func)
            # several threads may make the first call; all of them must use the same dispatcher
            vars(self).setdefault("_made", made)
        return self._made

    @property
    def _numba_type_(self) -> Any:
        return self.dispatcher._numba_type_

    def __call__(self, *arguments: Any) -> Any:
        return (self._made or self.dispatcher)(*arguments)


def njit(function: Callable[..., Any] | None = None, *, cache: bool = False, **options: Any) -> Any:
    """numba's decorator of the same name and options; ``cache`` as this module describes it."""

    def decorate(function: Callable[..., Any]) -> Any:
        return function if config.DISABLE_JIT else Kernel(function, options, cache)

    return decorate if function is None else decorate(function)


def inner(function: Callable[..., Any]) -> Any:
    """For a kernel that only other kernels call, never Python, and that allocates no array.

    It compiles in half the time, is stored as part of its callers, and does not count references to
    its arrays, which saves two atomic operations per array and call.
    """
    return njit(function, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def warn(kind: str, message: str) -> None:
    """Log only the first warning of each kind."""
    if kind not in _warned:
        _warned.add(kind)
        log.warning(message)


_warned: set[str] = set()


def warn_unstored(folder: str, error: OSError) -> None:
    """Log that kernels cannot be stored in a folder."""
    warn("stored", f"{folder}: cannot store compiled kernels: {error.strerror}; {ADVICE}")


def _add_facts(function: Any, facts: dict[Any, Any]) -> None:
    """Add what a kernel's code follows from: its source, that of what it calls, and constants.

    numba looks at the kernel's own file, and would use it unchanged after a change elsewhere.
    """
    code, scope = function.__code__, function.__globals__
    key = code.co_filename, code.co_firstlineno
    if key in facts:
        return
    written = os.stat(code.co_filename)
    facts[key] = written.st_mtime_ns, written.st_size
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    values = [(name, scope.get(name)) for name in code.co_names]
    values += [(name, cell.cell_contents) for name, cell in cells]
    modules = [value for _, value in values if isinstance(value, ModuleType)]
    values += [(name, getattr(one, name, None)) for one in modules for name in code.co_names]
    for name, value in values:
        called = getattr(value, "py_func", getattr(value, "_defn", None))
        if hasattr(called, "__code__"):
            _add_facts(called, facts)
        elif isinstance(value, (int, float, str, tuple, np.generic)):
            facts[*key, name] = repr(value)


class _Locator(caching._SourceFileBackedLocatorMixin, caching._CacheLocator):  # type: ignore[misc]
    """Where numba stores a kernel: in this installation's folder, by the folder of its source."""

    def __init__(self, function: Callable[..., Any], file: str, folder: Path) -> None:
        self._function = function
        self._py_file = file
        self._lineno = function.__code__.co_firstlineno
        self._cache_path = str(folder / self.get_suitable_cache_subpath(file))

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Locator | None:
        """numba's constructor; None if the kernel has no source file, or no folder can be used."""
        folder = kernel_folder().path
        return cls(function, file, folder) if folder and os.path.exists(file) else None

    def get_source_stamp(self) -> Any:
        """A digest of the sources; if they are installed, the kernel's folder stands for them."""
        if Path(self._py_file).is_relative_to(ROOT) and (installed := installed_files(ROOT)):
            return installed
        facts: dict[Any, Any] = {}
        _add_facts(self._function, facts)
        return hashlib.sha256(repr(sorted(facts.items())).encode()).hexdigest()

    def get_cache_path(self) -> str:
        """The folder of the kernel's files; numba creates it when it stores one."""
        return self._cache_path


class _ShippedLocator(_Locator):
    """Where kernels that are shipped lie, whatever the installation."""

    def __init__(self, function: Callable[..., Any], file: str, folder: Path) -> None:
        super().__init__(function, file, folder)
        self._cache_path = str(folder / Path(file).parent.relative_to(ROOT))

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Locator | None:
        """numba's constructor; None if the kernel has no source file here."""
        folder = os.environ.get(compiling.SHIP) or compiling.shipped_folder()
        inside = Path(file).is_relative_to(ROOT)
        return cls(function, file, Path(folder)) if folder and inside else None

    def get_source_stamp(self) -> str:
        """All sources are compared at once (``made_for``)."""
        return ""


class _Implementation(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)

    def reduce(self, data: Any) -> bytes:
        return compiling.sealed(caching.dumps(super().reduce(data)))

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        return super().rebuild(target_context, pickle.loads(compiling.unsealed(payload)))


class _Cache(FunctionCache):  # type: ignore[misc]
    """numba's cache of one kernel, which is compiled if it cannot be loaded or stored."""

    _impl_class = _Implementation

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled kernel for these argument types; None if it cannot be loaded."""
        machine.require(COMPILE_BYTES, "a kernel")
        shared = compiling.current
        if shared is None:
            return self._loaded(sig, target_context)
        return shared.load(self._cache_file._index_path, lambda: self._loaded(sig, target_context))

    def _loaded(self, sig: Any, target_context: Any) -> Any:
        try:
            # unlike numba's, without the registries that only compiling needs: saves a third of a
            # second
            runtime.initialize(target_context)
            return self._load_overload(sig, target_context)
        except MemoryError:
            raise
        except Exception as error:  # unpickling a damaged file can raise anything
            warn("unread", f"{self.cache_path}: a kernel is unreadable, so it is compiled: {error}")
            self._forget()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        problem = None
        try:
            super().save_overload(sig, data)
        except OSError as error:
            # the index may name a file with the code of an older source
            self._forget()
            warn_unstored(self.cache_path, error)
            problem = f"{self.cache_path}: {error.strerror}"
        else:
            if (warning := kernel_folder().warning) and not os.environ.get(compiling.SHIP):
                warn("stored", warning)
        if compiling.current is not None:
            compiling.current.stored(self._cache_file._index_path, problem)

    def _forget(self) -> None:
        with suppress(OSError):
            os.unlink(self._cache_file._index_path)


class _ShippedImplementation(_Implementation):
    _locator_classes = (_ShippedLocator,)


class _ShippedCache(_Cache):
    """Kernels of one function that are shipped: for a level of the CPU, not for this machine."""

    _impl_class = _ShippedImplementation

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        signature, _, *others = super()._index_key(sig, codegen)
        return signature, *others

    def _forget(self) -> None:
        return


class _LayeredCache(NullCache):  # type: ignore[misc]
    """This machine's kernels of one function and, where one is missing, those that are shipped."""

    def __init__(self, own: Any, shipped: _ShippedCache) -> None:
        self._own = own
        self._shipped = shipped

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        loaded = self._own.load_overload(sig, target_context)
        # processes that compile for this machine want its own
        if loaded is None and compiling.current is None:
            loaded = self._shipped.load_overload(sig, target_context)
        return loaded

    def save_overload(self, sig: Any, data: Any) -> None:
        self._own.save_overload(sig, data)


class _NoCache(NullCache):  # type: ignore[misc]
    """Stores nothing, and warns about the reason."""

    def __init__(self, why: str) -> None:
        self._why = why

    def save_overload(self, sig: Any, data: Any) -> None:
        warn("stored", self._why)
        if compiling.current is not None:
            compiling.current.stored("", self._why)


def source_digest() -> str:
    """A digest of the sources of all kernels, of the packages that compile them, and of the CPU."""
    digest = hashlib.sha256()
    versions = numba.__version__, llvmlite.__version__, sys.version, np.__version__
    target = llvmlite.binding.get_host_cpu_name(), str(config.CPU_FEATURES), str(config.OPT)
    digest.update(repr((versions, target)).encode())
    if installed := installed_files(ROOT):
        digest.update(installed.encode())
        return digest.hexdigest()
    for package in ("gpu", "streamer", "trie"):
        for path in sorted((ROOT / package).rglob("*.py")):
            # as numba, which recompiles when the modification time changes
            stat = path.stat()
            digest.update(f"{path} {stat.st_mtime_ns} {stat.st_size}".encode())
    return digest.hexdigest()


def _cache_of(function: Callable[..., Any]) -> Any:
    try:
        if os.environ.get(compiling.SHIP):
            return _ShippedCache(function)
        own = _Cache(function) if kernel_folder().path else _NoCache(kernel_folder().warning)
        return _LayeredCache(own, _ShippedCache(function)) if compiling.shipped_folder() else own
    except RuntimeError as error:  # it has no source file
        return _NoCache(f"compiled kernels cannot be stored: {error}")
