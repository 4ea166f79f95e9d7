"""Networks of full adders that find, for 32 windows per word, whether at most k symbols differ.

The inputs are one bit per symbol (1: it differs) and a constant, 2^planes - 1 - k, so that the
carry out of the top plane means "more than k". Words of equal weight are added three at a time:

    sum    a ^ b ^ c                  one three-input operation
    carry  at least two of a, b, c    one, with twice the weight

Unused results are omitted: the last sum of a weight; and with a constant among the three the carry
is only an "or". 12 symbols and k = 4 take 17 operations; the only output is one word.

A symbol known at the place of the operation needs no word of its own: "differs" is a function of
two planes of the text's codes, which become two more inputs of the sum.

    x      s ^ (low, high differ from c)       one operation
    sum    x ^ (low, high differ from c')      one
    carry  x ? not sum : s                     one

So a pair of such symbols is added in three operations, where a pair of words takes two operations
and two loads. The operations that contain c are generated four times, once per target of a branch
on the symbol.

``search_for`` makes the assembly by which ``bit_sliced`` searches a lane's words for one pattern: a
network for each word, with the preceding loads and the branches. numba took 16 seconds to compile
the same in Python statements. In numba's simulator the operations are interpreted.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.intrinsics import device_function, instruction
from trie.codes import GAP

BASES = 4

WHOLE = 32  # longest pattern that is added in one network
STEP = 16  # symbols added at once in longer patterns
WORDS = 8  # words per lane
SPAN = 32 * WORDS  # words in a tile; S, the windows of a segment
TILE = 32 * SPAN  # windows of a tile

BRANCHED, MOST_BRANCHED = 0.42, 5
"""Share, and most, of a pattern's symbols whose words are not loaded but computed from planes in
registers; the rows of b such symbols take 2 (6 + 2 b) registers.
"""


def place(row: int) -> int:
    """The index of a row in a plane: two words are skipped after every eight, a lane's words.

    So a lane loads two words at once from other banks than the next lane.
    """
    return row + row // WORDS * 2


@dataclass(frozen=True, slots=True)
class SlicedShape:
    """The parameters of a kernel: patterns of ``length`` symbols, k mismatches.

    length: up to WHOLE; 0 for all longer patterns, whose shapes differ only in ``planes``, those of
    the counters. k: -1 for these. halo: rows after a tile's, at least m - 1 and at most S.
    branched: symbols of a pattern that are handled by branches.
    """

    length: int
    k: int
    planes: int
    halo: int
    branched: int

    @property
    def row(self) -> int:
        """Words in a plane; even."""
        return place(SPAN + self.halo)

    @property
    def positions(self) -> list[int]:
        """The symbols of a whole pattern or a step, branched ones last.

        Branched symbols are odd ones, since two words are loaded at once if the first is even.
        """
        symbols = list(range(self.length or STEP))
        last = symbols[1::2][len(symbols) // 2 - self.branched :]
        return [j for j in symbols if j not in last] + last

    @property
    def loaded(self) -> int:
        """The number of symbols whose words are loaded, in a whole pattern or a step."""
        return (self.length or STEP) - self.branched

    @property
    def rows(self) -> int:
        """Rows of a plane that a lane keeps in registers."""
        return self.branched and 2 * self.branched + WORDS - 2

    @property
    def step(self) -> int:
        """Symbols in a step, or in a whole pattern, as in ``steps_of``."""
        return -(-(self.length or STEP) // 4) * 4

    @property
    def registers(self) -> int:
        """Most registers per thread."""
        return 96 if 0 < self.length <= 16 else 128

    def steps(self, length: int) -> int:
        """Steps of a pattern."""
        return -(-length // self.step)


def shape_for(length: int, k: int) -> SlicedShape:
    """The kernel for patterns of ``length`` symbols and k mismatches."""
    bits = k.bit_length()
    if length <= WHOLE:
        return SlicedShape(length, k, bits, 32, min(int(BRANCHED * length), MOST_BRANCHED))
    return SlicedShape(0, -1, max(1, bits), SPAN, 0)


def steps_of(patterns: NDArray[np.uint8], shape: SlicedShape) -> NDArray[np.uint32]:
    """The words that ``search`` reads per symbol of uint8[r, m] patterns: uint32[r, steps, step].

    The byte offset of the symbol's row in ``rows``, or for branched symbols the code. A gap code
    counts as A. Symbols after the end of a longer pattern use the row of zeros.
    """
    count, length = patterns.shape
    steps = shape.steps(length)
    places = np.full((count, steps * shape.step), BASES * shape.row, dtype=np.uint32)
    codes = np.where(patterns < GAP, patterns, 0).astype(np.uint32)
    if shape.length:
        places[:, :length] = codes[:, shape.positions]
        places[:, : shape.loaded] *= np.uint32(4 * shape.row)
    else:
        before = np.arange(length) // STEP * place(STEP)
        places[:, :length] = codes * np.uint32(shape.row) + before.astype(np.uint32)
        places *= np.uint32(4)
    return places.reshape(count, steps, shape.step)


# truth tables of three inputs, a 0xF0, b 0xCC, c 0xAA
SUM, CARRY, ANY = 0x96, 0xE8, 0xFE
BOTH, EITHER, ONE = 0xC0, 0xFC, 0x3C  # of the first two inputs: and, or, exclusive or
CARRY_OF_SUM = 0x74
"""b ? not c : a, the carry of a and two bits, if b is a ^ the first and c is b ^ the second."""
NOT = 0x0F

CODES = range(4)
LOW, HIGH = "low", "high"  # the planes' words in the operations after a branch

DIFFERS = tuple((0xCC ^ 0xFF * (c & 1)) | (0xAA ^ 0xFF * (c >> 1)) for c in CODES)
"""For each code, whether b and c, the low and high bit of a text's code, differ from it."""

Operation = tuple[str, tuple[int, ...], str, str, str]
"""A name, the truth table for each code, three inputs."""


class Network:
    """Operations in stages: the first, one for each branch, the last."""

    def __init__(self) -> None:
        self.stages: list[list[Operation]] = [[]]
        self._count = 0

    def names(self) -> list[str]:
        """The names of all operations, each of which runs once."""
        return [operation[0] for stage in self.stages for operation in stage]

    def _make(self, table: int | tuple[int, ...], a: str, b: str, c: str = "") -> str:
        self._count += 1
        tables = table if isinstance(table, tuple) else (table,) * len(CODES)
        self.stages[-1].append((f"t{self._count}", tables, a, b, c or b))
        return f"t{self._count}"

    def _three(self, bits: list[str], carries: list[str]) -> None:
        """Replace the first three of ``bits`` by their sum, and append the carry."""
        carries.append(self._make(CARRY, *bits[:3]))
        bits.append(self._make(SUM, *bits[:3]))
        del bits[:3]

    def _symbol(self, s: str, table: int = ONE) -> str:
        """An operation on s and the symbol of this stage."""
        return self._make(tuple(value(table, 0xF0, d, d) & 0xFF for d in DIFFERS), s, LOW, HIGH)

    def _next(self) -> None:
        """Begin the stage of the next branch, or the one after the last branch."""
        self.stages.append([])

    def any(self, bits: list[str]) -> str:
        """Whether one of the bits is set."""
        bits = list(bits)
        while len(bits) > 2:
            bits.append(self._make(ANY, *bits[:3]))
            del bits[:3]
        return self._make(EITHER, *bits) if len(bits) == 2 else bits[0]

    def _any_symbol(self, bits: list[str], branched: int) -> str:
        """Whether one of the bits is set or one of the branched symbols differs."""
        some = self.any(bits) if bits else ""
        for _ in range(branched):
            self._next()
            some = self._symbol(some, EITHER) if some else self._make(DIFFERS, LOW, LOW, HIGH)
        self._next()
        return some

    def _last_carry(self, bits: list[str], carried: int, carries: list[str]) -> None:
        """The carry of the remaining bits of a weight."""
        if len(bits) == 3:
            carries.append(self._make(CARRY, *bits))
        elif len(bits) == 2:
            carries.append(self._make(EITHER if carried else BOTH, *bits))
        elif bits and carried:
            carries.append(bits[0])

    def _add_symbol(self, bits: list[str], pending: int, carried: int, carries: list[str]) -> int:
        """Add the next of ``pending`` branched symbols to at most two bits; returns how many."""
        if bits and len(bits) + pending + carried > 3:
            s, added = bits[0], 1
            if len(bits) == 2:
                x = self._make(ONE, *bits)
            else:
                self._next()
                x, added = self._symbol(s), 2
            self._next()
            bits[:] = [self._symbol(x)]
            carries.append(self._make(CARRY_OF_SUM, s, x, bits[0]))
            return added
        self._next()
        if len(bits) == pending == 1:
            carries.append(self._symbol(bits.pop(), EITHER if carried else BOTH))
        else:
            bits.append(self._make(DIFFERS, LOW, LOW, HIGH))
        return 1

    def more_than(self, length: int, branched: int, k: int) -> str:
        """Whether more than k < length symbols differ.

        The words x0, x1, ... are the first symbols; the last ``branched`` ones come from the
        planes.
        """
        planes = k.bit_length()
        constant = (1 << planes) - 1 - k
        ones = [constant >> plane & 1 for plane in range(planes)]
        bits = [f"x{j}" for j in range(length - branched)]
        if not planes:
            return self._any_symbol(bits, branched)
        carries: list[list[str]] = [[] for _ in range(planes + 1)]
        while len(bits) > 2 and len(bits) + branched + ones[0] > 3:
            self._three(bits, carries[1])
        # carries are added early, so that few are live
        outstanding = (length + ones[0]) // 2
        while planes > 1 and len(carries[1]) > 2 and outstanding + ones[1] > 3:
            self._three(carries[1], carries[2])
            outstanding -= 2
        pending = branched
        while pending:
            pending -= self._add_symbol(bits, pending, ones[0], carries[1])
        self._next()
        self._last_carry(bits, ones[0], carries[1])
        for plane in range(1, planes):
            bits = carries[plane]
            while len(bits) + ones[plane] > 3:
                self._three(bits, carries[plane + 1])
            self._last_carry(bits, ones[plane], carries[plane + 1])
        return self.any(carries[planes])

    def complement(self, bit: str) -> str:
        """The complement of the last operation's result, or of any other bit."""
        if self.stages[-1] and self.stages[-1][-1][0] == bit:
            name, tables, a, b, c = self.stages[-1].pop()
            self.stages[-1].append((name, tuple(t ^ 0xFF for t in tables), a, b, c))
            return bit
        return self._make(NOT, bit, bit)

    def add(self, inputs: list[str], counter: list[str]) -> list[str]:
        """The words of a counter, lowest first, once the inputs are added.

        Its last word marks an overflow.
        """
        bits = list(inputs)
        results = []
        for word in counter[:-1]:
            carries: list[str] = []
            bits = [*bits, word]
            while len(bits) > 2:
                self._three(bits, carries)
            if len(bits) == 2:
                carries.append(self._make(BOTH, *bits))
                bits = [self._make(ONE, *bits)]
            results.append(bits[0])
            bits = carries
        self._next()
        return [*results, self.any([counter[-1], *bits])]


def value(table: int, a: int, b: int, c: int) -> int:
    """The result of an operation, a uint32."""
    result = 0
    for i in range(8):
        if table >> i & 1:
            result |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
    return result & 0xFFFFFFFF


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
        operands = ", ".join(planes.get(item, f"{item}_{i}") for item in inputs)
        lines.append(f"lop3.b32 {name}_{i}, {operands}, {tables[code]};")
    return lines


def _pair(name: str, i: int, address: str, position: int) -> list[str]:
    """Loads of words i and i + 1 of a symbol; if its position is odd, of i + 1 and i + 2."""
    at = 4 * place(i + position)
    if position % 2 == 0:
        return [f"ld.shared.v2.u32 {{{name}_{i}, {name}_{i + 1}}}, [{address}+{at}];"]
    single = [f"ld.shared.u32 {name}_{i}, [{address}+{at}];"] if i == 0 else []
    at = 4 * place(i + 1 + position)
    if i + 2 < WORDS:
        return [*single, f"ld.shared.v2.u32 {{{name}_{i + 1}, {name}_{i + 2}}}, [{address}+{at}];"]
    return [*single, f"ld.shared.u32 {name}_{i + 1}, [{address}+{at}];"]


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
                    known[name] = value(tables[code], *(known[item] for item in inputs))
            known |= dict(zip(counter, [known[result] for result in results], strict=False))
        return known[OVER] ^ 0xFFFFFFFF if counter else known[results[0]]

    def search(rows, masks, steps, step, quads, begin, own, mine, *kept):
        words = steps.view(np.uint32)[4 * int(step) : 4 * int(step + quads)].tolist()
        some = 0
        for i in range(WORDS):
            hits = word(rows, words, int(begin), int(own), kept, i)
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
