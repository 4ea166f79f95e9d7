"""The part of ``bit_sliced`` that searches a thread's words for one pattern.

It is made as Python text, a statement a word: unrolled loops over local arrays take longer to
compile.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu.assembly import instruction
from gpu.intrinsics import device_function, load_pair
from gpu.kernels.hamming import network
from gpu.kernels.hamming.shape import STEP, Shape
from gpu.shared_memory import store_word


def _mark(some, word, bit):  # type: ignore[no-untyped-def]
    return np.uint32(some | bit) if word else some


mark = instruction(
    "{ .reg .pred p; setp.ne.u32 p, $2, 0; mov.b32 $0, $1; @p or.b32 $0, $1, $3; }",
    ("u32",), ("u32", "u32", "u32"), _mark,
)  # fmt: skip
"""some, with ``bit`` if ``word`` is not zero."""


def _addresses(count: int, step: str) -> list[str]:
    """Statements for the addresses a0, a1, ... of ``count`` symbols, four in a pair of words."""
    lines = []
    for j in range(count):
        if j % 4 == 0:
            lines.append(f"ab, cd = load_pair(steps, np.uint32({step} + np.uint32({j // 4})))")
        half = "ab" if j % 4 < 2 else "cd"
        word = f"{half} >> np.uint64(32)" if j % 2 else half
        lines.append(f"a{j} = np.uint32(np.uint32({word}) + own)")
    return lines


def _whole(shape: Shape) -> list[str]:
    """The body of ``search`` for patterns of one length up to WHOLE."""
    addresses = ", ".join(f"a{j}" for j in range(shape.length))
    return [
        *_addresses(shape.length, "step"),
        *(f"hits_{i} = add(rows, np.uint32({128 * i}), {addresses})" for i in range(shape.words)),
    ]


def _counted(shape: Shape) -> list[str]:
    """The body of ``search`` for longer patterns."""
    addresses = ", ".join(f"a{j}" for j in range(STEP))
    lines = []
    body = _addresses(STEP, "step")
    for i in range(shape.words):
        for plane in range(shape.planes):
            bit = f"np.uint32(np.uint32(begin >> np.uint32({plane})) & np.uint32(1))"
            lines.append(f"c{plane}_{i} = np.uint32({bit} * np.uint32(0xFFFFFFFF))")
        lines.append(f"c{shape.planes}_{i} = np.uint32(0)")
        counter = ", ".join(f"c{plane}_{i}" for plane in range(shape.planes + 1))
        offset = f"np.uint32({128 * i})"
        body.append(f"{counter} = add(rows, {offset}, {addresses}, {counter})")
    body.append(f"step = np.uint32(step + np.uint32({STEP // 4}))")
    lines += ["last = np.uint32(step + pairs)", "while step < last:"]
    lines += [f"    {line}" for line in body]
    lines += [f"hits_{i} = np.uint32(~c{shape.planes}_{i})" for i in range(shape.words)]
    return lines


def search_for(shape: Shape) -> Any:
    """The device function that searches a thread's words for one pattern.

    ``search(rows, masks, steps, step, pairs, begin, own, mine)``: the pattern's steps begin at pair
    ``step`` and are ``pairs``; own and mine: addresses in ``rows`` and ``masks``. Returns a bit for
    each word that has hits. They are stored when all words have been loaded, which the compiler
    does not move across.
    """
    lines = ["def search(rows, masks, steps, step, pairs, begin, own, mine):"]
    body = [*(_whole(shape) if shape.length else _counted(shape)), "some = np.uint32(0)"]
    for i in range(shape.words):
        place = f"np.uint32(mine + np.uint32({128 * i}))"
        body.append(f"store_word(masks, {place}, hits_{i})")
        body.append(f"some = mark(some, hits_{i}, np.uint32({1 << i}))")
    lines += [f"    {line}" for line in [*body, "return some"]]
    scope = {
        "np": np, "load_pair": load_pair, "store_word": store_word, "mark": mark,
        "add": network.at_most(shape.length, shape.k)
        if shape.length
        else network.counting(STEP, shape.planes),
    }  # fmt: skip
    exec("\n".join(lines), scope)
    return device_function(scope["search"])
