"""Networks of full adders that find, for 32 windows per word, whether at most k symbols differ.

The inputs are one bit per symbol (1: it differs) and a constant, 2^planes - 1 - k, so that the
carry out of the top plane means "more than k". Words of equal weight are added three at a time:

    sum    a ^ b ^ c                  one three-input operation
    carry  at least two of a, b, c    one, with twice the weight

Unused results are omitted: the last sum of a weight; and with a constant among the three the carry
is only an "or". 12 symbols and k = 4 take 17 operations, where adding four at a time to a counter
took 24; the only output is one word.

A symbol known at the place of the operation needs no word of its own: "differs" is a function of
two planes of the text's codes, which become two more inputs of the sum.

    x      s ^ (low, high differ from c)       one operation
    sum    x ^ (low, high differ from c')      one
    carry  x ? not sum : s                     one

So a pair of such symbols is added in three operations, where a pair of words takes two operations
and two loads. The operations that contain c are generated four times, once per target of a branch
on the symbol.
"""

from __future__ import annotations

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

    def _last_carry(self, bits: list[str], one: int, carries: list[str]) -> None:
        """The carry of the remaining bits of a weight."""
        if len(bits) == 3:
            carries.append(self._make(CARRY, *bits))
        elif len(bits) == 2:
            carries.append(self._make(EITHER if one else BOTH, *bits))
        elif bits and one:
            carries.append(bits[0])

    def _add_symbol(self, bits: list[str], left: int, one: int, carries: list[str]) -> int:
        """Add the next of ``left`` branched symbols to at most two bits; returns how many."""
        if bits and len(bits) + left + one > 3:
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
        if len(bits) == left == 1:
            carries.append(self._symbol(bits.pop(), EITHER if one else BOTH))
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
        left = branched
        while left:
            left -= self._add_symbol(bits, left, ones[0], carries[1])
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
