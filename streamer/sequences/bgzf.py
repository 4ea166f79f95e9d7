"""BGZF, the gzip variant of BAM files (SAM specification 4.1).

    1f 8b 08 04  6 bytes  06 00 'BC' 02 00  size - 1 of the block  deflated text  CRC  size of it

Each block is a gzip member of at most 64 KB, so blocks can be decompressed in parallel. An empty
block ends the file; without it the file was truncated, even if its last block is whole.

A call of isal decompresses one block, and releases and reacquires the GIL: with many threads,
waiting for it takes longer than the call. So a kernel, without the GIL, calls the functions in
isal's wheel for megabytes of text, and writes the text directly to its destination. If these
functions are missing, isal's Python interface is used.

Only the first fields of ISA-L's ``inflate_state`` are used here:

    byte     0          8          12         16       24       32
    field    next_out | avail_out, total_out | next_in | read_in | avail_in | ...
"""

import io
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streamer.output.output_file import END_BLOCK
from streamer.sequences.raw_file import Packed, TextBlock, new_block
from trie.cpu import array_pool
from trie.cpu.borrowed import Borrowed
from trie.cpu.intrinsics import array_address
from trie.cpu.jit import inner, njit
from trie.cpu.llvm import foreign

# mypy: no-check-untyped-defs
# (numba types kernels by the arguments of their first call)


INFLATE = Borrowed(
    "ISA-L inflate",
    "isal.igzip_lib",
    ("isal_inflate_init", "isal_inflate_stateless", "crc32_gzip_refl"),
)
_INIT, _INFLATE, _CRC = range(3)

_init = foreign("int", "pointer")  # returns void: its declared result is never used
_inflate_at_once = foreign("int", "pointer")
_crc32 = foreign("unsigned", "unsigned", "pointer", "size")

_NEXT_OUT, _NEXT_IN = 0, 2  # indices of 8-byte words
_AVAIL_OUT, _AVAIL_IN = 2, 8  # indices of 4-byte words

_STATE_BYTES = 1 << 18  # ``inflate_state`` has 87 KB; untouched pages take no memory

LEAST, MOST = 26, 1 << 16
"""The most bytes in a BGZF block, compressed or not."""

_HEAD: Final = 18  # bytes of a block before its deflate data
_TAIL: Final = 8


class InflateState:
    """Memory for ISA-L's state, and the views of it that kernels take."""

    def __init__(self) -> None:
        self.memory = np.zeros(_STATE_BYTES, dtype=np.uint8)
        self.address = np.uint64(array_address(self.memory))
        self.words = self.memory[:64].view(np.uint64)
        self.halves = self.memory[:64].view(np.uint32)


_own = threading.local()


def state_of_thread() -> InflateState:
    """Return the thread's own state, which is valid until the caller returns."""
    try:
        state: InflateState = _own.state
    except AttributeError:
        state = _own.state = InflateState()
    return state


@inner
def _number(packed, at, size):
    value = np.int64(0)
    for i in range(size):
        value |= np.int64(packed[at + i]) << (8 * i)
    return value


@inner
def _block_end(packed, at, stop):
    """Return where the BGZF block at a place ends; 0 if no whole block begins there."""
    if at + LEAST > stop or _number(packed, at, 4) != 0x04088B1F:
        return 0
    # the extra field has six bytes and holds one subfield: BC, two bytes long
    if _number(packed, at + 10, 6) != 0x000243420006:
        return 0
    end = at + _number(packed, at + 16, 2) + 1
    if end < at + LEAST or end > stop or _number(packed, end - 4, 4) > MOST:
        return 0
    return end


@njit(cache=True, nogil=True)
def whole_blocks(packed, at, stop, most):
    """Return where the run of BGZF blocks from ``at`` on ends, and the bytes of text in it.

    packed: uint8; packed[at:stop] is examined. The run has at most ``most`` bytes of text, or is a
    single block. The third result is whether another whole block follows.
    """
    begin = at
    total = np.int64(0)
    while True:
        end = _block_end(packed, at, stop)
        if end == 0:
            return at, total, False
        size = _number(packed, end - 4, 4)
        if total + size > most and at > begin:
            return at, total, True
        at = end
        total += size


@njit(cache=True, nogil=True)
def inflate_blocks(api, state, words, halves, packed, packed_address, text_address, size):
    """Decompress BGZF blocks into exactly ``size`` bytes; return whether all of them are valid.

    api: ``INFLATE.addresses``. state, words, halves: of an ``InflateState``. packed: uint8, at
    packed_address. text_address: of the first byte to write.
    """
    at = np.int64(0)
    to = np.int64(0)
    _init(api[_INIT], state)
    while at < packed.size:
        end = _block_end(packed, at, packed.size)
        if end == 0:
            return False
        length = _number(packed, end - 4, 4)
        if to + length > size:
            return False
        place = text_address + np.uint64(to)
        words[_NEXT_OUT] = place
        halves[_AVAIL_OUT] = np.uint32(length)
        words[_NEXT_IN] = packed_address + np.uint64(at + _HEAD)
        halves[_AVAIL_IN] = np.uint32(end - at - _HEAD - _TAIL)
        # succeeds only at the end of the deflate data, and steps back to it
        if _inflate_at_once(api[_INFLATE], state) != 0:
            return False
        if halves[_AVAIL_IN] != 0 or halves[_AVAIL_OUT] != 0:
            return False
        sum_ = _crc32(api[_CRC], np.uint32(0), place, length)
        if np.int64(sum_) != _number(packed, end - _TAIL, 4):
            return False
        at = end
        to += length
    return to == size


igzip_lib: Any = None
with suppress(ImportError):  # as in streamer.sequences.decompression
    from isal import igzip_lib

GZIP_WITH_EXTRA = END_BLOCK[:4]
_EXTRA = slice(12, 16)  # name and size of BGZF's field, which comes first among gzip's extra fields
_READ_BYTES = 1 << 18  # per read
_GROUP_BYTES = 1 << 21  # compressed, per group: many blocks if their text is short
_TO_ZEROS = END_BLOCK.rstrip(b"\0")
_ZEROS = len(END_BLOCK) - len(_TO_ZEROS)
_ENOUGH = 4 * len(END_BLOCK)  # bytes at the end of a file that usually suffice to recognize it


class Watched(io.RawIOBase):
    """Records the first and last bytes of a file as it is read, since a pipe is read only once."""

    def __init__(self, file: Packed) -> None:
        self._file = file
        self._begin = b""
        self._end = b""
        self._zeros = 0

    def read1(self, size: int = -1, /) -> bytes:
        """Read at most ``size`` bytes; none at the end."""
        data = self._file.read1(size)
        self._watch(data)
        return data

    def readinto(self, buffer: Any, /) -> int:
        """Read at most as many bytes as fit; 0 at the end."""
        count = self._file.readinto(buffer)
        self._watch(buffer[:count])
        return count

    def readable(self) -> bool:
        """Implement ``RawIOBase``."""
        return True

    def _watch(self, data: Any) -> None:
        if len(self._begin) < _EXTRA.stop:
            self._begin += bytes(data[: _EXTRA.stop])
        # the last block may be followed by any number of zeros, as any gzip member may
        end = bytes(data[-_ENOUGH:])
        body = end.rstrip(b"\0")
        if len(body) < len(_TO_ZEROS):
            end = bytes(data)
            body = end.rstrip(b"\0")
        if body:
            before = self._end + bytes(min(self._zeros, len(_TO_ZEROS)))
            self._end = (before + body[-len(_TO_ZEROS) :])[-len(_TO_ZEROS) :]
            self._zeros = 0
        self._zeros += len(end) - len(body)

    @property
    def bgzf(self) -> bool:
        """Whether the file begins with a block of BGZF."""
        return self._begin.startswith(GZIP_WITH_EXTRA) and self._begin[_EXTRA] == END_BLOCK[_EXTRA]

    def lacks_end_block(self) -> bool:
        """Whether the file, once fully read, is BGZF without its end block."""
        return self.bgzf and not (self._end == _TO_ZEROS and self._zeros >= _ZEROS)


def block_groups(file: Packed, most: int, *, whole: bool) -> Iterator[NDArray[np.uint8]]:
    """Split the file into pieces (uint8) of whole blocks; anything else is a piece of its own.

    most: bytes of text per piece, unless it is a single block. whole: fill pieces to about that
    size; otherwise (a pipe) no block waits for later ones.
    """
    room = _GROUP_BYTES if whole else MOST + 2 * _READ_BYTES
    packed = array_pool.empty(room, np.uint8)
    begin = stop = 0
    while True:
        end, _, full = whole_blocks(packed, begin, stop, most)
        if not full and end == begin and stop - begin >= MOST:
            # not a block: pass on everything read, whatever it is
            end, full = stop, True
        if full or (end > begin and (stop == room or not whole)):
            yield packed[begin:end]
            begin = end
            continue
        if begin:
            rest = packed[begin:stop]
            packed = array_pool.empty(room, np.uint8)
            packed[: rest.size] = rest
            begin, end, stop = 0, end - begin, rest.size
        count = file.readinto(packed.data[stop : stop + _READ_BYTES])
        if not count:
            yield from filter(len, (packed[:end], packed[end:stop]))
            return
        stop += count


def inflated(packed: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], TextBlock | None]:
    """Return a piece of ``block_groups`` and its text, or None if its blocks are invalid."""
    end, size, _ = whole_blocks(packed, 0, packed.size, 1 << 62)
    if end != packed.size:
        return packed, None
    block = new_block(size)
    inflate = _inflate_plainly if INFLATE.missing else _inflate
    return packed, block if inflate(packed, block, size) else None


def _inflate(packed: NDArray[np.uint8], block: TextBlock, size: int) -> bool:
    state = state_of_thread()
    text = np.uint64(array_address(block.array) + block.first)
    return inflate_blocks(
        INFLATE.addresses, state.address, state.words, state.halves, packed,
        np.uint64(array_address(packed)), text, size,
    )  # fmt: skip


def _inflate_plainly(packed: NDArray[np.uint8], block: TextBlock, size: int) -> bool:
    at, to = 0, block.first
    while at < packed.size:
        end, length, _ = whole_blocks(packed, at, packed.size, -1)
        data = packed[at:end].tobytes()
        try:
            text = igzip_lib.decompress(data, igzip_lib.DECOMP_GZIP, bufsize=length or 1)
        except (igzip_lib.IsalError, EOFError, ValueError):
            return False
        if len(text) != length:
            return False
        block.array.data[to : to + length] = text
        at, to = end, to + length
    return True
