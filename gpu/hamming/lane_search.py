"""The part of ``bit_sliced`` that searches a lane's words for one pattern, as assembly.

The text is a network (network.py) for each of the lane's words, with the preceding loads and the
branches. numba took 16 seconds to compile the same in Python statements. In numba's simulator the
operations are interpreted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu.card.assembly import instruction
from gpu.card.intrinsics import device_function
from gpu.hamming.network import CODES, HIGH, LOW, Network, Operation, value
from gpu.hamming.shape import STEP, WORDS, SlicedShape, place

# the operands of ``search_for``; rows and masks, $1 and $2, are for the simulator
_SOME, _STEPS, _STEP, _QUADS, _BEGIN, _OWN, _MINE = "$0", "$3", "$4", "$5", "$6", "$7", "$8"
_KEPT = 9

OVER = "over"  # whether more symbols differ than a counter can hold


def _counter(shape: SlicedShape) -> list[str]:
    """The words passed between a longer pattern's steps: the counter's, lowest first, and OVER."""
    return [] if shape.length else [*(f"c{plane}" for plane in range(shape.planes)), OVER]


def _network(shape: SlicedShape) -> tuple[Network, list[str]]:
    """The network of a step, and its results: "at most k", or the new words of the counter."""
    network = Network()
    if shape.length:
        over = network.more_than(shape.length, shape.branched, shape.k)
        return network, [network.complement(over)]
    return network, network.add([f"x{j}" for j in range(STEP)], _counter(shape))


def _lines(operations: list[Operation], i: int, code: int, planes: dict[str, str]) -> list[str]:
    """Instructions for word i, in the branch of a code; planes: the operands LOW and HIGH."""
    lines = []
    for name, tables, *inputs in operations:
        operands = ", ".join(planes.get(given, f"{given}_{i}") for given in inputs)
        lines.append(f"lop3.b32 {name}_{i}, {operands}, {tables[code]};")
    return lines


def _pair(name: str, i: int, address: str, position: int) -> list[str]:
    """Loads of words i and i + 1 of a symbol; if its position is odd, of i + 1 and i + 2."""
    at = 4 * place(i + position)
    if position % 2 == 0:
        return [f"ld.shared.v2.u32 {{{name}_{i}, {name}_{i + 1}}}, [{address}+{at}];"]
    one = [f"ld.shared.u32 {name}_{i}, [{address}+{at}];"] if i == 0 else []
    at = 4 * place(i + 1 + position)
    if i + 2 < WORDS:
        return [*one, f"ld.shared.v2.u32 {{{name}_{i + 1}, {name}_{i + 2}}}, [{address}+{at}];"]
    return [*one, f"ld.shared.u32 {name}_{i + 1}, [{address}+{at}];"]


def _branches(shape: SlicedShape, stages: list[list[Operation]]) -> list[str]:
    """Instructions of the branched stages: each ends with a jump to the code of the next."""
    lines = []
    for number in range(len(stages)):
        targets = ", ".join(f"CODE{number}_{code}" for code in CODES)
        lines.append(f"TARGETS{number}: .branchtargets {targets};")
    jumps = [
        f"brx.idx.uni s{shape.loaded + number}, TARGETS{number};" for number in range(len(stages))
    ]
    jumps.append("bra.uni JOINED;")
    lines.append(jumps[0])
    for number, stage in enumerate(stages):
        for code in CODES:
            lines.append(f"CODE{number}_{code}:")
            for i in range(WORDS):
                low, high = (f"${_KEPT + plane * shape.rows + 2 * number + i}" for plane in (0, 1))
                lines += _lines(stage, i, code, {LOW: low, HIGH: high})
            lines.append(jumps[number + 1])
    return [*lines, "JOINED:"]


def _text(shape: SlicedShape) -> str:
    """The instructions of ``search_for``."""
    network, results = _network(shape)
    before, *behind, last = network.stages
    counter = _counter(shape)
    steps = shape.step
    names = [*(f"x{j}" for j in range(shape.loaded)), *counter, *network.names()]
    lines = [
        f".reg .b32 {', '.join(f'{name}_{i}' for name in names for i in range(WORDS))};",
        f".reg .b32 bit, {', '.join(f's{j}' for j in range(steps))};",
        ".reg .b64 at, stop; .reg .pred p;",
        f"mad.wide.u32 at, {_STEP}, 16, {_STEPS};",
        f"mad.wide.u32 stop, {_QUADS}, 16, at;",
    ]
    for plane, name in enumerate(counter):
        lines.append(f"bfe.u32 bit, {_BEGIN}, {plane}, 1; neg.s32 bit, bit;")
        lines += [f"mov.b32 {name}_{i}, {'0' if name == OVER else 'bit'};" for i in range(WORDS)]
    lines.append("STEP:")
    for j in range(0, steps, 4):
        four = ", ".join(f"s{j + i}" for i in range(4))
        lines.append(f"ld.global.nc.v4.u32 {{{four}}}, [at+{4 * j}];")
    lines += [f"add.u32 s{j}, s{j}, {_OWN};" for j in range(shape.loaded)]
    for first in range(0, WORDS, 2):
        for j in range(shape.loaded):
            lines += _pair(f"x{j}", first, f"s{j}", shape.positions[j])
    for i in range(WORDS):
        lines += _lines(before, i, 0, {})
    if behind:
        lines += _branches(shape, behind)
    for i in range(WORDS):
        lines += _lines(last, i, 0, {})
        lines += [
            f"mov.b32 {old}_{i}, {new}_{i};" for old, new in zip(counter, results, strict=False)
        ]
    if counter:
        lines += [f"add.u64 at, at, {4 * STEP}; setp.lt.u64 p, at, stop; @p bra.uni STEP;"]
        lines += [f"not.b32 {OVER}_{i}, {OVER}_{i};" for i in range(WORDS)]
    # stored after all loads: the compiler does not move loads across stores
    hits = OVER if counter else results[0]
    lines.append(f"mov.b32 {_SOME}, 0;")
    for i in range(WORDS):
        lines.append(f"st.shared.u32 [{_MINE}+{128 * i}], {hits}_{i};")
        lines.append(f"setp.ne.u32 p, {hits}_{i}, 0; @p or.b32 {_SOME}, {_SOME}, {1 << i};")
    return "{ " + "\n".join(lines) + " }"


def _simulated(shape: SlicedShape) -> Callable[..., Any]:
    """``search_for`` in plain Python."""
    network, results = _network(shape)
    counter = _counter(shape)

    def word(rows: Any, steps: list[int], begin: int, own: int, kept: Any, i: int) -> int:
        """The hits in word i."""
        known = {f"c{plane}": -(begin >> plane & 1) & 0xFFFFFFFF for plane in range(shape.planes)}
        known[OVER] = 0
        for first in range(0, len(steps), shape.step):
            here = steps[first : first + shape.step]
            for j in range(shape.loaded):
                at = (own + here[j]) // 4 + place(i + shape.positions[j])
                known[f"x{j}"] = int(rows[at])
            for number, stage in enumerate(network.stages):
                code = 0
                if 0 < number <= shape.branched:
                    code = here[shape.loaded + number - 1]
                    known[LOW] = int(kept[2 * (number - 1) + i])
                    known[HIGH] = int(kept[shape.rows + 2 * (number - 1) + i])
                for name, tables, *inputs in stage:
                    known[name] = value(tables[code], *(known[given] for given in inputs))
            known |= dict(zip(counter, [known[result] for result in results], strict=False))
        return known[OVER] ^ 0xFFFFFFFF if counter else known[results[0]]

    def search(rows, masks, steps, step, quads, begin, own, mine, *kept):
        given = steps.view(np.uint32)[4 * int(step) : 4 * int(step + quads)].tolist()
        some = 0
        for i in range(WORDS):
            hits = word(rows, given, int(begin), int(own), kept, i)
            masks[int(mine) // 4 + 32 * i] = np.uint32(hits)
            some |= (hits != 0) << i
        return np.uint32(some)

    return search


def search_for(shape: SlicedShape) -> Any:
    """The function that searches a lane's words for one pattern.

    ``search(rows, masks, steps, step, quads, begin, own, mine, *kept)``: the pattern has ``quads``
    times four steps, starting at 4 step; begin: of a longer pattern's counter; own and mine:
    addresses of the lane's first word in ``rows`` and in ``masks``; kept: what ``rows_for`` loaded.
    Word i of the hits is stored 128 i bytes after ``mine``; bit i of the result is set if it is
    nonzero.
    """
    kinds = ("shared", "shared", "global", *("u32",) * (5 + 2 * shape.rows))
    return instruction(_text(shape), ("u32",), kinds, _simulated(shape), volatile=True)


def rows_for(shape: SlicedShape) -> Any:
    """The function ``rows(planes, own)``: the words of the planes that a lane keeps in registers.

    own: the address of the lane's first row in the low plane. First those of the low plane, then of
    the high: row i is that of the first branched symbol, i words further.
    """
    first = shape.positions[shape.loaded] if shape.branched else 0
    places = [plane * shape.row + place(first + i) for plane in (0, 1) for i in range(shape.rows)]
    count = len(places)

    def simulated(planes, own):
        return tuple(planes[int(own) // 4 + at] for at in places)

    if not count:
        return device_function(lambda planes, own: ())
    lines = []
    for i in range(count):
        row = first + i % shape.rows
        if row % 2 == 0 and i % shape.rows + 1 < shape.rows:
            lines.append(f"ld.shared.v2.u32 {{${i}, ${i + 1}}}, [${count + 1}+{4 * places[i]}];")
        elif row % 2 == 0 or i % shape.rows == 0:
            lines.append(f"ld.shared.u32 ${i}, [${count + 1}+{4 * places[i]}];")
    kinds = ("shared", "u32")
    return instruction(" ".join(lines), ("u32",) * count, kinds, simulated, volatile=True)
