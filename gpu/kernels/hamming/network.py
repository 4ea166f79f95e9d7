"""Networks of full adders that tell, for 32 windows a word, whether at most k symbols differ.

One bit a symbol goes in (1: it differs), and a constant, 2^planes - 1 - k, so that the carry out of
the top plane means "more than k". Words of one weight are added three at a time:

    sum    a ^ b ^ c                  one three-input operation
    carry  at least two of a, b, c    one, with twice the weight

What nobody reads is not made: the last sum of a weight, and with a constant among the three the
carry is only an "or". 12 symbols and k = 4 take 17 operations, where adding four at a time to a
counter took 24; nothing is left of the count but the one word.

A network and the loads from shared memory before it are one function for kernels, made as the text
of its instructions: numba took 16 seconds to compile the same as statements. In numba's simulator
the operations are interpreted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from gpu.intrinsics import SIMULATED

# truth tables of three inputs, a 0xF0, b 0xCC, c 0xAA
SUM, CARRY, ANY = 0x96, 0xE8, 0xFE
BOTH, EITHER, ONE = 0xC0, 0xFC, 0x3C
"""Of the first two: and, or, exclusive or."""


@dataclass
class Network:
    """Operations (name, truth table, three names) that add words to a counter of ``planes``."""

    planes: int
    operations: list[tuple[str, int, str, str, str]] = field(default_factory=list)

    def _name(self, table: int, a: str, b: str, c: str = "") -> str:
        name = f"t{len(self.operations)}"
        self.operations.append((name, table, a, b, c or b))
        return name

    def _three(self, bits: list[str], carries: list[str]) -> None:
        """Replace the first three of ``bits`` by their sum, and hand on the carry."""
        carries.append(self._name(CARRY, *bits[:3]))
        bits.append(self._name(SUM, *bits[:3]))
        del bits[:3]

    def any(self, bits: list[str]) -> str:
        """Whether one of the bits is set."""
        bits = list(bits)
        while len(bits) > 2:
            bits.append(self._name(ANY, *bits[:3]))
            del bits[:3]
        return self._name(EITHER, *bits) if len(bits) == 2 else bits[0]

    def more_than(self, inputs: list[str], k: int) -> str:
        """Whether more than k of the inputs are set, k < len(inputs)."""
        begin = (1 << self.planes) - 1 - k
        bits = list(inputs)
        for plane in range(self.planes):
            carries: list[str] = []
            one = (begin >> plane) & 1
            while len(bits) + one > 3:
                self._three(bits, carries)
            if len(bits) == 3:
                carries.append(self._name(CARRY, *bits))
            elif len(bits) == 2:
                carries.append(self._name(EITHER if one else BOTH, *bits))
            elif bits and one:
                carries.append(bits[0])
            bits = carries
        return self.any(bits)

    def add(self, inputs: list[str], counters: list[str], over: str) -> list[str]:
        """The counters, lowest first, and what ran over, once the inputs are added."""
        bits = list(inputs)
        results = []
        for counter in counters:
            carries: list[str] = []
            bits = [*bits, counter]
            while len(bits) > 2:
                self._three(bits, carries)
            if len(bits) == 2:
                carries.append(self._name(BOTH, *bits))
                bits = [self._name(ONE, *bits)]
            results.append(bits[0])
            bits = carries
        return [*results, self.any([over, *bits])]


def at_most(length: int, k: int) -> Any:
    """``f(rows, offset, a0, a1, ...)``: where at most k of ``length`` words in a tile are set.

    a0, ...: their addresses in bytes, less ``offset``; uint32.
    """
    network = Network(k.bit_length())
    over = network.more_than([f"x{j}" for j in range(length)], k)
    return _function(network, length, 0, [over], inverted=True)


def counting(length: int, planes: int) -> Any:
    """``f(rows, offset, a0, ..., c0, c1, ..., over)``: a counter with those words added to it.

    Returns the counter's words, lowest first, and what ran over.
    """
    network = Network(planes)
    counters = [f"s{i}" for i in range(planes + 1)]
    results = network.add([f"x{j}" for j in range(length)], counters[:-1], counters[-1])
    return _function(network, length, planes + 1, results, inverted=False)


def _value(table: int, a: int, b: int, c: int) -> int:
    result = 0
    for i in range(8):
        if table >> i & 1:
            result |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
    return result & 0xFFFFFFFF


def _function(
    network: Network, loads: int, states: int, results: list[str], *, inverted: bool
) -> Any:
    """A function of rows, offset, ``loads`` addresses and ``states`` words."""
    if SIMULATED:

        def simulated(rows: Any, offset: Any, *given: Any) -> Any:
            words = {
                f"x{j}": int(rows[(int(address) + int(offset)) // 4])
                for j, address in enumerate(given[:loads])
            }
            words |= {f"s{i}": int(word) for i, word in enumerate(given[loads:])}
            for name, table, a, b, c in network.operations:
                words[name] = _value(table, words[a], words[b], words[c])
            flip = 0xFFFFFFFF if inverted else 0
            found = tuple(np.uint32(words[name] ^ flip) for name in results)
            return found if len(found) > 1 else found[0]

        return simulated

    count = len(results)
    lines = [f".reg .b32 at, {', '.join(f'x{j}' for j in range(loads))};"]
    operands = {f"s{i}": f"${count + 1 + loads + i}" for i in range(states)}
    if network.operations:
        lines.append(f".reg .b32 {', '.join(name for name, *_ in network.operations)};")
    for j in range(loads):
        lines.append(f"add.u32 at, ${count + 1 + j}, ${count};")
        lines.append(f"ld.shared.u32 x{j}, [at];")
    for name, table, *inputs in network.operations:
        a, b, c = (operands.get(given, given) for given in inputs)
        lines.append(f"lop3.b32 {name}, {a}, {b}, {c}, {table};")
    move = "not" if inverted else "mov"
    for i, name in enumerate(results):
        lines.append(f"{move}.b32 ${i}, {operands.get(name, name)};")
    return _intrinsic("{ " + " ".join(lines) + " }", count, 1 + loads + states)


def _intrinsic(text: str, results: int, arguments: int) -> Any:
    from numba.cuda.extending import intrinsic

    word = ir.IntType(32)
    returned: Any = types.uint32
    returns: Any = word
    if results > 1:
        returned = types.UniTuple(types.uint32, results)  # type: ignore[no-untyped-call, unused-ignore]
        returns = ir.LiteralStructType([word] * results)
    constraints = ",".join(["=&r"] * results + ["r"] * arguments)

    def make(*_: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            values = [
                context.cast(builder, value, given, types.uint32)
                for value, given in zip(args[1:], signature.args[1:], strict=True)
            ]
            # with a side effect, so that it stays behind the barrier that it stands behind
            asm = ir.InlineAsm(
                ir.FunctionType(returns, [word] * arguments), text, constraints, side_effect=True
            )
            answer = builder.call(asm, values)
            if results == 1:
                return answer
            parts = [builder.extract_value(answer, i) for i in range(results)]
            return context.make_tuple(builder, signature.return_type, parts)

        return codegen

    # an intrinsic must name its arguments
    names = ", ".join(f"x{i}" for i in range(arguments))
    scope: dict[str, Any] = {"returned": returned, "make": make}
    exec(f"def typed(typingctx, rows, {names}):\n return returned(rows, {names}), make()\n", scope)
    return intrinsic(scope["typed"])
