"""CRC-32, the one of zlib and gzip: of frames, and for kernels that call ISA-L (isal's wheel)."""

from __future__ import annotations

from collections.abc import Iterable

from trie.cpu.foreign import Borrowed, foreign

try:  # six times as fast; on most machines xopen has installed it
    from isal.isal_zlib import crc32
except ImportError:  # pragma: no cover
    from zlib import crc32

_AT_ONCE, _WITHOUT_RELEASE = 1 << 17, 5_000

ISA_L = Borrowed("ISA-L", "isal.isal_zlib", ("crc32_gzip_refl",))
"""Without it ``checksum`` computes all sums."""

continue_crc32 = foreign("unsigned", "unsigned", "pointer", "size")
"""For kernels: continues a sum over data at an address. First argument: ``crc32_address``."""


def crc32_address() -> int:
    """The address of ISA-L's function, 0 if it is missing."""
    return 0 if ISA_L.missing else int(ISA_L.addresses[0])


def checksum(frames: Iterable[bytes | memoryview]) -> int:
    """CRC-32 over the frames, one after the other."""
    value = 0
    for frame in frames:
        if len(frame) > _AT_ONCE:
            value = crc32(frame, value)
            continue
        # above 5 KB isal releases the GIL; waiting for it again takes longer than this
        for begin in range(0, len(frame), _WITHOUT_RELEASE):
            value = crc32(frame[begin : begin + _WITHOUT_RELEASE], value)
    return value
