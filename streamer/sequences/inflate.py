"""Call ISA-L's gzip functions, taken from isal's wheel, in kernels that run without the GIL.

A call of isal decompresses at most 64 KB of BGZF, or 128 KB of other gzip, and releases and
reacquires the GIL each time. When several threads compete for the GIL, waiting for it takes longer
than the call. So a kernel makes the calls for megabytes of text, and writes the text directly to
its destination. If these functions are unavailable, isal's Python interface is used.

Only the first fields of ISA-L's ``inflate_state`` are used here:

    byte     0          8          12         16       24       32        36
    field    next_out | avail_out, total_out | next_in | read_in | avail_in, read_in_length | ...
"""

# mypy: no-check-untyped-defs
# (numba types kernels by the arguments of their first call)

from __future__ import annotations

import threading
from typing import Final

import numpy as np

from trie.cpu.foreign import Borrowed, foreign
from trie.cpu.intrinsics import array_address
from trie.cpu.jit import inner, njit

INFLATE = Borrowed(
    "ISA-L inflate",
    "isal.igzip_lib",
    (
        "isal_inflate_init",
        "isal_inflate",
        "isal_inflate_stateless",
        "isal_gzip_header_init",
        "isal_read_gzip_header",
        "crc32_gzip_refl",
    ),
)
_INIT, _INFLATE, _AT_ONCE, _HEADER_INIT, _HEADER, _CRC = range(6)

# the first and the fourth return void: their declared result is never used
_init = foreign("int", "pointer")
_inflate = foreign("int", "pointer")
_inflate_at_once = foreign("int", "pointer")
_header_init = foreign("int", "pointer")
_read_header = foreign("int", "pointer", "pointer")
_crc32 = foreign("unsigned", "unsigned", "pointer", "size")

_NEXT_OUT, _NEXT_IN, _READ_IN = 0, 2, 3  # indices of 8-byte words
_AVAIL_OUT, _AVAIL_IN, _READ_IN_BITS = 2, 8, 9  # indices of 4-byte words

# ``inflate_state`` has 87 KB and a header 100 bytes; untouched pages take no memory
_STATE_BYTES: Final = 1 << 18
_HEADER_BYTES: Final = 1 << 12

LEAST, MOST = 26, 1 << 16
"""The most bytes in a BGZF block, compressed or not."""

_HEAD: Final = 18  # bytes of a block before its deflate data
_TAIL: Final = 8

STEP_BYTES = 1 << 17
"""Bytes of text per call of ISA-L; they are lost if the call fails."""

PUSHED = 16
"""Bytes before the compressed input that ``inflate_members`` may overwrite."""

PHASE, AT, STOP, TO, CRC, SIZE, AFTER = range(7)
"""Indices into a stream's state; see ``inflate_members``."""

BETWEEN, HEADER, BODY, TRAILER = range(4)
"""Phases of a stream."""

NEED_INPUT, FULL, TRAILING = 100, 101, 102
"""Why ``inflate_members`` returned; any other value is an error, by ISA-L's number."""

_END_INPUT, _BAD_SUM = 1, -6

_BEGIN: Final = 0x088B1F  # of a member


class InflateState:
    """Memory for ISA-L's state, and the views of it that kernels take."""

    def __init__(self) -> None:
        self.memory = np.zeros(_STATE_BYTES + _HEADER_BYTES, dtype=np.uint8)
        self.address = np.uint64(array_address(self.memory))
        self.words = self.memory[:64].view(np.uint64)
        self.halves = self.memory[:64].view(np.uint32)


_own = threading.local()


def state_of_thread() -> InflateState:
    """Return the thread's own state, which is valid until the caller returns."""
    try:
        found: InflateState = _own.state
    except AttributeError:
        found = _own.state = InflateState()
    return found


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
        if _inflate_at_once(api[_AT_ONCE], state) != 0:
            return False
        if halves[_AVAIL_IN] != 0 or halves[_AVAIL_OUT] != 0:
            return False
        found = _crc32(api[_CRC], np.uint32(0), place, length)
        if np.int64(found) != _number(packed, end - _TAIL, 4):
            return False
        at = end
        to += length
    return to == size


@njit(cache=True, nogil=True)
def inflate_members(
    api, state, words, halves, stream, packed, packed_address, text_address, stop, ended
):
    """Decompress gzip members until the text is full or more compressed bytes are needed.

    api, state, words, halves: as above, for this stream only. stream: int64[7], initially zero,
    but AFTER is 1 if members of the file, the last with SIZE bytes of text, came before these.
    packed[stream[AT]:stream[STOP]] comes next, after PUSHED bytes that may be overwritten; what
    remains of it must precede the bytes supplied next. ended: no input follows. Text goes to
    ``text_address`` plus stream[TO], up to ``stop``. Returns NEED_INPUT, FULL, TRAILING
    (bytes that begin no member follow the last one), or an error; the text then ends before the
    call of ISA-L that failed.
    """
    header = state + np.uint64(_STATE_BYTES)
    before = stream[TO]
    while True:
        at = stream[AT]
        left = stream[STOP] - at
        code = np.int64(0)
        if stream[PHASE] == BETWEEN:
            while left > 0 and packed[at] == 0:
                at += 1
                left -= 1
            stream[AT] = at
            if left == 0:
                return NEED_INPUT
            if stream[AFTER]:
                if left < 3 and not ended:
                    return NEED_INPUT
                if not _may_begin(packed, at, min(left, 3)):
                    return TRAILING
            _init(api[_INIT], state)
            _header_init(api[_HEADER_INIT], header)
            stream[PHASE] = HEADER
        elif stream[PHASE] == HEADER:
            words[_NEXT_IN] = packed_address + np.uint64(at)
            halves[_AVAIL_IN] = np.uint32(left)
            code = np.int64(_read_header(api[_HEADER], state, header))
            stream[AT] = stream[STOP] - np.int64(halves[_AVAIL_IN])
            if code == _END_INPUT:
                return NEED_INPUT
            stream[PHASE] = BODY
            stream[CRC] = 0
            stream[SIZE] = 0
            before = stream[TO]
        elif stream[PHASE] == BODY:
            if stream[TO] == stop:
                return FULL
            before = stream[TO]
            place = text_address + np.uint64(before)
            words[_NEXT_OUT] = place
            halves[_AVAIL_OUT] = np.uint32(min(STEP_BYTES, stop - before))
            words[_NEXT_IN] = packed_address + np.uint64(at)
            halves[_AVAIL_IN] = np.uint32(left)
            code = np.int64(_inflate(api[_INFLATE], state))
            size = np.int64(words[_NEXT_OUT] - place)
            stream[AT] = stream[STOP] - np.int64(halves[_AVAIL_IN])
            stream[CRC] = np.int64(_crc32(api[_CRC], np.uint32(stream[CRC]), place, size))
            stream[SIZE] += size
            stream[TO] += size
            if code == 0 and halves[_AVAIL_OUT] != 0:
                # either all input is used up, or the rest comes after the end of the member
                if halves[_AVAIL_IN] == 0 and not (ended and _at_end(api, state, words, halves)):
                    return NEED_INPUT
                _push_back(words, halves, stream, packed)
                stream[PHASE] = TRAILER
        else:
            if left < _TAIL:
                return NEED_INPUT
            total = stream[SIZE] & 0xFFFFFFFF
            if _number(packed, at, 4) != stream[CRC] or _number(packed, at + 4, 4) != total:
                code = np.int64(_BAD_SUM)
            stream[AT] = at + _TAIL
            stream[PHASE] = BETWEEN
            stream[AFTER] = 1
        if code != 0:
            stream[TO] = before
            return code


@inner
def _may_begin(packed, at, size):
    """Return whether a member begins here, perhaps with a damaged byte (``bz2_xz.Members``)."""
    same = np.int64(0)
    for i in range(size):
        same += packed[at + i] == (_BEGIN >> 8 * i) & 0xFF
    return same >= size - (size == 3)


@inner
def _at_end(api, state, words, halves):
    """Return whether a member without further input has ended; if not, it consumes another byte."""
    words[_NEXT_IN] = state + np.uint64(_STATE_BYTES)  # any readable byte will do
    halves[_AVAIL_IN] = np.uint32(1)
    halves[_AVAIL_OUT] = np.uint32(0)
    return _inflate(api[_INFLATE], state) == 0 and halves[_AVAIL_IN] == 1


@inner
def _push_back(words, halves, stream, packed):
    """Return whole bytes read past the deflate data to the front of the input."""
    bits = np.int64(halves[_READ_IN_BITS])
    word = words[_READ_IN] >> np.uint64(bits & 7)
    count = bits >> 3
    for i in range(count):
        packed[stream[AT] - count + i] = np.uint8(word >> np.uint64(8 * i))
    stream[AT] -= count
