"""Networks of full adders against counting: no card, no simulator."""

from __future__ import annotations

import random

import pytest

from gpu.hamming.network import HIGH, LOW, Network, value

ONES = 0xFFFFFFFF


def ran(network, length, branched, pattern, symbols):
    """The words of all operations; symbols: two planes' words each, the low and the high bits."""
    loaded = length - branched
    known = {f"x{j}": differing(symbols[j], pattern[j]) for j in range(loaded)}
    for number, stage in enumerate(network.stages):
        code = 0
        if 0 < number <= branched:
            code = pattern[loaded + number - 1]
            known[LOW], known[HIGH] = symbols[loaded + number - 1]
        for name, tables, *inputs in stage:
            known[name] = value(tables[code], *(known[word] for word in inputs))
    return known


def differing(symbol, code):
    low, high = symbol
    return (low ^ ONES * (code & 1)) | (high ^ ONES * (code >> 1))


@pytest.mark.parametrize("length", [1, 2, 3, 7, 12, 13, 16, 31, 32])
def test_at_most_k_symbols_differ(length):
    random_ = random.Random(length)
    for k in sorted({0, 1, 2, 3, 4, 6, length // 2, length - 1} & set(range(length))):
        for branched in sorted({0, 1, 2, 3, 5, length // 2, length} & set(range(length + 1))):
            network = Network()
            result = network.complement(network.more_than(length, branched, k))
            assert len(network.stages) == branched + 2
            pattern = [random_.randrange(4) for _ in range(length)]
            symbols = []
            for code in pattern:  # in most windows the pattern's own
                other = random_.getrandbits(32) & random_.getrandbits(32)
                planes = (ONES * (code & 1), ONES * (code >> 1))
                symbols.append(tuple(plane ^ other & random_.getrandbits(32) for plane in planes))
            found = ran(network, length, branched, pattern, symbols)[result]
            wrong = [differing(*pair) for pair in zip(symbols, pattern, strict=True)]
            for i in range(32):
                count = sum(word >> i & 1 for word in wrong)
                assert found >> i & 1 == (count <= k), (length, k, branched, i)


def test_counters():
    random_ = random.Random(3)
    network = Network()
    counter = ["c0", "c1", "c2", "over"]
    results = network.add([f"x{j}" for j in range(6)], counter)
    words = {name: random_.getrandbits(32) for name in [*counter, *(f"x{j}" for j in range(6))]}
    known = dict(words)
    for stage in network.stages:
        for name, tables, *inputs in stage:
            known[name] = value(tables[0], *(known[word] for word in inputs))
    for i in range(32):
        bits = {name: word >> i & 1 for name, word in words.items()}
        total = sum(bits[f"x{j}"] for j in range(6))
        total += bits["c0"] + 2 * bits["c1"] + 4 * bits["c2"]
        got = [known[name] >> i & 1 for name in results]
        assert got[0] + 2 * got[1] + 4 * got[2] == total % 8
        assert got[3] == (bits["over"] or total >= 8)
