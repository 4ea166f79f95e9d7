"""The automaton of thesis 3.3.14-3.3.17 as a set of states, from its definition.

A state is (prefix of a k-mer, dist-level). It uses nothing of the project: sequences are strings
over ACGT and N (which, like any other letter, equals nothing).
"""

from __future__ import annotations

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
