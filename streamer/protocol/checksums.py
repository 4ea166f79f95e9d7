"""CRC-32, the one of zlib and gzip, for kernels: ISA-L's, which isal brings along."""

from __future__ import annotations

from trie.cpu.foreign import address_of, foreign

crc32 = foreign("unsigned", "unsigned", "pointer", "size")
"""Continues a sum over data at an address; its first argument is ``crc32_address``."""


def crc32_address() -> int:
    """Where the function is, 0 if there is none."""
    return address_of("crc32_gzip_refl", "isal.isal_zlib")
