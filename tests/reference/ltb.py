"""The automaton of thesis 3.3.14-3.3.17 as a set of states, from its definition.

A state is (prefix of a k-mer, dist-level). It uses nothing of the project: sequences are strings
over ACGT and N (which, like any other letter, equals nothing).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from tests.reference import ltb as ltb_oracle

COMPLEMENT = str.maketrans("ACGT", "TGCA")


def trie_of(kmers, strands="forward"):
    """Every node of the trie, as the prefix that leads to it; the root always exists."""
    kmers = set(kmers)
    if strands == "both":
        kmers |= {kmer[::-1].translate(COMPLEMENT) for kmer in kmers}
    return {""} | {kmer[:depth] for kmer in kmers for depth in range(len(kmer) + 1)}


def step(trie, k, distance, states, symbol):
    """(the states after a symbol, the depths at which level 0 has no transition)."""
    after = {("", 0)}
    missed = set()
    for node, level in states | {("", 0)}:
        children = {x: node + x for x in "ACGT" if node + x in trie}
        if symbol in children:
            after.add((children[symbol], level))  # K
        elif level == 0 and len(node) < k and symbol in "ACGT":
            missed.add(len(node) + 1)
        if level < distance:
            after.add((node, level + 1))  # I
            after |= {(child, level + 1) for x, child in children.items() if x != symbol}  # S
    return after, missed


def run(kmers, k, distance, read, strands="forward"):
    """[(distances, depths)] of every end 1..len(read), both as sorted lists."""
    trie = trie_of(kmers, strands)
    states = {("", 0)}
    rows = []
    for symbol in read:
        states, missed = step(trie, k, distance, states, symbol)
        found = {
            level + k - len(node)
            for node, level in states
            if len(node) >= level + (k - distance)  # equation 4
        }
        rows.append((sorted(found), sorted(missed)))
    return rows


def bitmaps(kmers, k, distance, reads, strands="forward"):
    """Two lists over all symbols of all reads: match and mismatch bitmaps (thesis Fig. 31)."""
    rows = [row for read in reads for row in run(kmers, k, distance, read, strands)]
    return tuple([sum(1 << bit for bit in row[side]) for row in rows] for side in (0, 1))


def words(kmers, k, distance, reads, strands="forward"):
    """The words of a chunk of these reads, by index, match before mismatch."""
    found = []
    for index, pair in enumerate(zip(*bitmaps(kmers, k, distance, reads, strands), strict=True)):
        found += [kind << 63 | index << 32 | bits for kind, bits in enumerate(pair) if bits]
    return found


def report(kmers, k, distance, reads, strands="forward"):
    """Rows (read, end, distances, depths) of [(name, sequence)]."""
    return [
        (name, end, ",".join(map(str, distances)) or ".", ",".join(map(str, depths)) or ".")
        for name, sequence in reads
        for end, (distances, depths) in enumerate(
            run(kmers, k, distance, sequence, strands), start=1
        )
        if distances or depths
    ]


EDGE_K = (1, 2, 3, 4, 5, 6, 7, 9, 12, 15, 31)


@dataclass(frozen=True)
class Case:
    name: str
    k: int
    distance: int
    kmers: tuple[str, ...]
    reads: tuple[str, ...]

    def __str__(self):
        return self.name

    @property
    def bases(self):
        return np.array(["ACGTN".index(x) for read in self.reads for x in read], dtype=np.uint8)

    @property
    def offsets(self):
        return np.cumsum([0, *map(len, self.reads)]).astype(np.int64)

    @property
    def codes(self):
        return np.array(
            [int("".join(str("ACGT".index(x)) for x in kmer), 4) for kmer in self.kmers],
            dtype=np.uint64,
        )

    def expected(self):
        """Match and mismatch bitmaps, uint32 each."""
        found = ltb_oracle.bitmaps(self.kmers, self.k, self.distance, self.reads)
        return tuple(np.array(bitmaps, dtype=np.uint32) for bitmaps in found)


def mutated(rng, sequence, edits):
    """A sequence after that many random edits."""
    letters = list(sequence)
    for _ in range(edits):
        at = rng.randrange(len(letters) + 1)
        kind = rng.randrange(3)
        if kind == 0:
            letters.insert(at, rng.choice("ACGT"))
        elif at < len(letters) and kind == 1:
            letters[at] = rng.choice("ACGTN")
        elif at < len(letters):
            del letters[at]
    return "".join(letters)


def make(k, distance, seed, *, kmers=30, reads=4, length=40, alphabet="ACGT", gaps=0.05):
    """Random reads, some of them dictionary k-mers with about as many edits as allowed."""
    rng = random.Random(f"{k} {distance} {seed}")
    length = max(length, 3 * k)
    known = sorted({"".join(rng.choices(alphabet, k=k)) for _ in range(kmers)})
    texts = []
    for _ in range(reads):
        text = "".join(rng.choices(alphabet, k=rng.randrange(length + 1)))
        while known and len(text) < length:
            text += mutated(rng, rng.choice(known), rng.randrange(distance + 2))
        text = "".join("N" if rng.random() < gaps else x for x in text)
        texts.append(text[rng.randrange(3) : length + rng.randrange(3)])
    name = f"k{k}-D{distance}-{len(known)}kmers-{len(alphabet)}letters-seed{seed}"
    return Case(name, k, distance, tuple(known), tuple(texts))


def edges(seed=0, **options):
    """Every k of EDGE_K with every allowed D."""
    return [make(k, d, seed, **options) for k in EDGE_K for d in range(min(5, k))]


def awkward():
    """Empty, nearly empty and maximally dense cases."""
    rng = random.Random(7)
    long = "".join(rng.choices("ACG", k=31))
    near = sorted({"A" * i + x + "A" * (8 - i) for i in range(9) for x in "ACGT"})
    return [
        Case("no-kmers", 5, 2, (), ("ACGTN", "", "TT")),
        Case("no-reads", 5, 2, ("ACGTA",), ()),
        Case("empty-reads", 3, 1, ("ACG",), ("", "", "")),
        Case("reads-shorter-than-k", 9, 3, ("ACGTACGTA",), ("ACGTACG", "A", "GTACGTA", "CGTACG")),
        Case("every-kmer", 3, 2, tuple(a + b + c for a in "ACGT" for b in "ACGT" for c in "ACGT"),
             ("ACGTNNACGTTTGCA", "NNNN")),
        Case("every-depth", 31, 1, (long,), tuple(long[:h] + "T" for h in range(32))),
        Case("poly-A", 12, 4, ("A" * 12,), ("A" * 40, "A" * 11, "AAANAAAAAAAAAAAN")),
        Case("near-identical", 9, 4, tuple(near), ("A" * 30, "AAAACAAAAGAAAAATAAAANAAAACAA")),
        Case("D-close-to-k", 5, 4, ("ACGTA", "CCCCC", "TGCAT"),
             ("".join(rng.choices("ACGTN", k=60)), "N" * 12)),
        Case("two-letters", 31, 4, tuple("".join(rng.choices("AC", k=31)) for _ in range(40)),
             ("".join(rng.choices("AC", k=90)),)),
        make(6, 3, 1, kmers=300, reads=12),
        make(7, 2, 2, kmers=800, reads=3, length=70, gaps=0),
    ]  # fmt: skip


def stream(k, kmers, total, reads, seed):
    """Too many states for the oracle: codes, bases (a third from the dictionary) and offsets."""
    rng = np.random.default_rng(seed)
    bases = rng.integers(0, 4, total).astype(np.uint8)
    codes = rng.integers(0, 4**k, kmers, dtype=np.uint64)
    for at in range(0, total - 2 * k, 3 * k):
        code = int(codes[rng.integers(kmers)])
        bases[at : at + k] = [(code >> (2 * (k - 1 - i))) & 3 for i in range(k)]
    bases[rng.integers(0, total, total // 50)] = 4
    cuts = np.sort(rng.integers(0, total + 1, reads - 1))
    return codes, bases, np.concatenate(([0], cuts, [total])).astype(np.int64)
