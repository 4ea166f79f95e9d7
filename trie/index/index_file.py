"""Files of arrays that are opened by mapping: nothing is read but the pages that are touched.

    0      8 bytes  magic
    8      uint32   version of the format
    12     uint32   bytes of the description
    16     uint32   its CRC-32
    20     JSON     description: facts, and for each array its name, type, size, offset and CRC-32
    ...    arrays, each at a multiple of PAGE, or if large of LARGE_PAGE

All numbers are little-endian. Opening checks the description, and that the file has all arrays;
``damaged`` reads every byte. Kernels check what they read, so a damaged file gives wrong results at
worst. If a mapped file becomes shorter, or its disk fails, the kernel sends SIGBUS: the process
writes one line and ends with the exit code 1.
"""

import ctypes
import errno
import json
import mmap
import os
import signal
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, BinaryIO, Final

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from trie.cpu.machine import LIBC
from trie.cpu.threads import prefetched
from trie.new_file import NewFile, naming

MAGIC: Final = b"kmrindex"
VERSION: Final = 2
PAGE: Final = 4096
LARGE_PAGE: Final = 1 << 21
"""A page that file systems may keep as one: look-ups are random, so smaller ones cost a fifth."""

_LARGE: Final = 16 * LARGE_PAGE
_HEAD: Final = struct.Struct("<8sIII")
_MOST_DESCRIPTION: Final = 1 << 26
_PIECE: Final = 1 << 24
_WAITING: Final = 7  # arrays that wait to be written, at most, while the next one is made
_MOST_ARRAYS, _SECTION = 32, 128  # bytes of the description for an array, at most

_ZIP_NAME: Final = 30  # where the name of an archive's first member is

Arrays = dict[str, NDArray[Any]]


class IndexFileError(ValueError):
    """A file cannot be used as an index."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


def is_index(path: str) -> bool:
    """Whether a regular file begins as an index does."""
    return _begins(path, MAGIC)


def is_old_dictionary(path: str) -> bool:
    """Whether a regular file begins as dictionaries did before indexes: a zip of such a member."""
    return _begins(path, b"PK\x03\x04") and _begins(path, b"inmaps.npy", _ZIP_NAME)


def _begins(path: str, magic: bytes, at: int = 0) -> bool:
    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            return file.read(at + len(magic))[at:] == magic
    except OSError:
        return False


def write_index(
    path: str, facts: Mapping[str, Any], arrays: Iterable[tuple[str, NDArray[Any]]]
) -> None:
    """Write a file atomically; OSError if that fails, and nothing is left of it.

    arrays: by name; each is written while the next ones are made, in another thread. facts: those
    after the last one, which take no more room in the description than at first.
    """
    size = len(_description(facts, [])) + _MOST_ARRAYS * _SECTION
    sections: list[list[Any]] = []
    with naming(path), NewFile(path) as new:
        file = new.file
        file.write(bytes(_HEAD.size + size))
        for name, array in prefetched(arrays, _WAITING):
            raw = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
            file.write(bytes(-file.tell() % (PAGE if raw.size < _LARGE else LARGE_PAGE)))
            kind = array.dtype.newbyteorder("<").str
            sections.append([name, kind, array.size, file.tell(), _checksum(raw)])
            for at in range(0, raw.size, _PIECE):
                file.write(raw[at : at + _PIECE].data)
            if raw.size > _PIECE and new.replaces:
                os.fdatasync(file.fileno())
        text = _description(facts, sections).ljust(size)
        file.seek(0)
        file.write(_HEAD.pack(MAGIC, VERSION, size, zlib.crc32(text)) + text)


def _description(facts: Mapping[str, Any], sections: list[list[Any]]) -> bytes:
    return json.dumps({**facts, "arrays": sections}, ensure_ascii=False).encode()


def _checksum(array: NDArray[Any]) -> int:
    found = 0
    raw = array.view(np.uint8).reshape(-1)
    for at in range(0, raw.size, _PIECE):
        found = zlib.crc32(raw[at : at + _PIECE].data, found)
    return found


class _Mapping:
    """The base of all arrays of a mapped file, which stays mapped while one of them is used.

    They count as writable, as kernels compiled for other arrays are used; writing ends the process.
    """

    def __init__(self, file: mmap.mmap) -> None:
        self.file = file
        view = np.frombuffer(file, np.uint8)
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (view.size,),
            "data": (view.__array_interface__["data"][0], False),
        }
        self._view = view


def facts_of(path: str) -> dict[str, Any] | None:
    """What the description of an index says; None for another file. Errors as ``open_index``."""
    if not is_index(path):
        return None
    with open(path, "rb") as file:
        return _described(path, file)


def open_index(path: str) -> tuple[dict[str, Any], Arrays]:
    """The facts and arrays of a file; OSError if it cannot be read, IndexFileError if damaged."""
    facts, sections, whole, _ = _mapped(path)
    arrays = {
        name: whole[at : at + count * np.dtype(kind).itemsize].view(kind)
        for name, kind, count, at, _ in sections
    }
    return facts, arrays


def _mapped(path: str) -> tuple[dict[str, Any], list[Any], NDArray[np.uint8], int]:
    """The facts, the descriptions of the arrays, all bytes, and where the description ends."""
    with open(path, "rb") as file:
        facts = _described(path, file)
        head = file.tell()
        length = os.fstat(file.fileno()).st_size
        sections = facts.pop("arrays")
        end = max(at + count * np.dtype(kind).itemsize for _, kind, count, at, _ in sections)
        if length < end:
            raise IndexFileError(path, f"is cut: it has {length:,} of {end:,} bytes")
        try:
            mapped = mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ)
            with suppress(OSError):  # of a kernel without large pages
                # look-ups are random: pages of 2 MB, where files have them, are a third faster
                mapped.madvise(mmap.MADV_HUGEPAGE)
        except OSError as error:
            raise OSError(error.errno or errno.ENODEV, "cannot be mapped", path) from error
    _end_in_one_line(path)
    return facts, sections, np.asarray(_Mapping(mapped)), head


def _described(path: str, file: BinaryIO) -> dict[str, Any]:
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size or head[:8] != MAGIC:
        raise IndexFileError(path, "is not an index")
    _, version, size, checksum = _HEAD.unpack(head)
    if version != VERSION:
        raise IndexFileError(path, f"is an index of version {version}, not {VERSION}")
    text = file.read(size) if size <= _MOST_DESCRIPTION else b""
    if len(text) < size or zlib.crc32(text) != checksum:
        raise IndexFileError(path, "is damaged: its description is not as it was written")
    facts: dict[str, Any] = json.loads(text)
    return facts


def damaged(path: str, on_bytes: Callable[[int], None] = lambda done: None) -> list[str]:
    """The names of the arrays of a file that are not as they were written, and what is between."""
    _, sections, whole, done = _mapped(path)
    found = []
    for name, kind, count, at, checksum in sections:
        if whole[done:at].any():
            found.append(f"the space before {name}")
        done = at + count * np.dtype(kind).itemsize
        if _checksum(whole[at:done]) != checksum:
            found.append(name)
        on_bytes(done)
    return found if done == whole.size else [*found, "its end"]


_handler: Any = None
_handled = ""


def _end_in_one_line(path: str) -> None:
    """Let SIGBUS end the process with one line: Python's handlers run too late, namely never."""
    global _handler, _handled
    if path == _handled:
        return
    _handled = path
    message = f"streamer: error: {path}: an index changed or could not be read while it was open\n"
    _handler = _compiled_handler(message.encode())
    _, address = _handler
    LIBC.signal.argtypes, LIBC.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    LIBC.signal(int(signal.SIGBUS), address)


def _compiled_handler(message: bytes) -> tuple[Any, int]:
    """A signal handler that writes a message and ends the process, in machine code."""
    write, leave = (ctypes.cast(f, ctypes.c_void_p).value for f in (LIBC.write, LIBC._exit))
    text = ctypes.create_string_buffer(message)
    i32, i64 = ir.IntType(32), ir.IntType(64)
    byte = ir.IntType(8).as_pointer()
    module = ir.Module()
    kind = ir.FunctionType(ir.VoidType(), [i32])
    function = ir.Function(module, kind, "ended_by_sigbus")
    builder = ir.IRBuilder(function.append_basic_block())
    writes = ir.FunctionType(i64, [i32, byte, i64]).as_pointer()
    leaves = ir.FunctionType(ir.VoidType(), [i32]).as_pointer()
    where = builder.inttoptr(i64(ctypes.addressof(text)), byte)
    builder.call(builder.inttoptr(i64(write), writes), [i32(2), where, i64(len(message))])
    builder.call(builder.inttoptr(i64(leave), leaves), [i32(1)])
    builder.ret_void()
    llvmlite.binding.initialize_native_target()
    llvmlite.binding.initialize_native_asmprinter()
    target = llvmlite.binding.Target.from_default_triple().create_target_machine()
    engine = llvmlite.binding.create_mcjit_compiler(
        llvmlite.binding.parse_assembly(str(module)), target
    )
    engine.finalize_object()
    return (engine, text), engine.get_function_address("ended_by_sigbus")
