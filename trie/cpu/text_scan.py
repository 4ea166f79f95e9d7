"""Sixty-four bytes of a text at once, for kernels that look for the ends of lines and words.

Texts are uint8 arrays. Each load reads 64 bytes, so a text needs that many readable bytes after its
end (``SLACK``); their values do not matter.
"""

from __future__ import annotations

from typing import Any

from numba import types

from trie.cpu import llvm
from trie.cpu.llvm import BYTES, I64, INDEX, instruction

SLACK = 64


@instruction(types.uint64, None, INDEX, types.uint8)
def equals(builder: Any, text: Any, at: Any, byte: Any) -> Any:
    """uint64: bit i is set where text[at + i] is ``byte``."""
    found = builder.icmp_unsigned(
        "==", llvm.load(builder, text, at, BYTES), llvm.spread(builder, byte, BYTES)
    )
    return builder.bitcast(found, I64)


@instruction(types.uint64, None, INDEX, types.uint8, types.uint8)
def outside(builder: Any, text: Any, at: Any, low: Any, high: Any) -> Any:
    """uint64: bit i is set where text[at + i] is less than ``low`` or greater than ``high``."""
    above = builder.sub(llvm.load(builder, text, at, BYTES), llvm.spread(builder, low, BYTES))
    span = llvm.spread(builder, builder.sub(high, low), BYTES)
    return builder.bitcast(builder.icmp_unsigned(">", above, span), I64)


@instruction(types.void, None, INDEX, None, INDEX)
def copy_line(builder: Any, text: Any, at: Any, out: Any, to: Any) -> None:
    """out[to : to + 64] = text[at : at + 64]."""
    llvm.store(builder, llvm.load(builder, text, at, BYTES), out, to)
