"""Approximate string matching from its definition (WsPASM paper, equation 1), in plain Python.

An independent reference: it uses nothing of the project.
"""

from __future__ import annotations

import re

BASES = {
    "A": "A", "C": "C", "G": "G", "T": "T", "U": "T", "R": "AG", "Y": "CT", "S": "CG", "W": "AT",
    "K": "GT", "M": "AC", "B": "CGT", "D": "AGT", "H": "ACT", "V": "ACG", "N": "ACGT",
}  # fmt: skip
COMPLEMENT = dict(zip("ACGTURYSWKMBDHVN", "TGCAAYRSWMKVHDBN", strict=True))


def equal(p, t, iupac=False):
    """Whether a pattern letter matches a text letter; an ambiguous text letter matches nothing."""
    p, t = p.upper(), t.upper().replace("U", "T")
    if t not in "ACGT" or (p not in "ACGTU" and not iupac):
        return False
    return t in BASES[p]


def turned(pattern):
    return "".join(COMPLEMENT[letter] for letter in reversed(pattern.upper()))


def last_row(text, pattern, iupac=False):
    """D[m, 0..n]."""
    column = list(range(len(pattern) + 1))
    row = [column[-1]]
    matches = {t: [equal(p, t, iupac) for p in pattern] for t in {*text}}
    for t in text:
        above_left, column[0] = column[0], 0
        for i, same in enumerate(matches[t], 1):
            best = above_left if same else 1 + min(column[i - 1], column[i], above_left)
            above_left, column[i] = column[i], best
        row.append(column[-1])
    return row


def oriented(patterns, strands):
    for index, pattern in enumerate(patterns):
        if strands != "reverse":
            yield index, "+", pattern
        if strands != "forward":
            yield index, "-", turned(pattern)


def every_end(texts, patterns, k, strands="both", iupac=False):
    """[(text, end, distance, strand, pattern)] in row order."""
    rows = []
    for number, text in enumerate(texts):
        for index, strand, pattern in oriented(patterns, strands):
            for end, distance in enumerate(last_row(text, pattern, iupac)):
                if end and distance <= k:
                    rows.append((number, end, index, strand, distance))
    rows.sort()
    return [(text, end, distance, strand, index) for text, end, index, strand, distance in rows]


def start_of(text, end, distance, pattern, iupac=False):
    """The start of an optimal alignment: as long as the pattern if possible, else the shortest."""
    column = list(range(len(pattern) + 1))
    lengths = [0] if column[-1] == distance else []
    for length, t in enumerate(text[:end][::-1], 1):
        above_left, column[0] = column[0], length
        for i, p in enumerate(reversed(pattern), 1):
            best = above_left + (not equal(p, t, iupac))
            best = min(best, column[i - 1] + 1, column[i] + 1)
            above_left, column[i] = column[i], best
        if column[-1] == distance:
            lengths.append(length)
        if length == len(pattern) + distance:
            break
    return end - min(lengths, key=lambda length: (length != len(pattern), length))


def without_overlaps(hits):
    """Hits (start, end, distance) in the order of distance, then end, but none of a taken span."""
    taken = []
    for start, end, distance in sorted(hits, key=lambda hit: (hit[2], hit[1])):
        if all(end <= other[0] or other[1] <= start for other in taken):
            taken.append((start, end, distance))
    return taken


def best_ends(texts, patterns, k, strands="both", iupac=False):
    """The least distance of each maximal run of adjacent ends, leftmost; none that overlap."""
    runs = {}
    for text, end, distance, strand, index in every_end(texts, patterns, k, strands, iupac):
        of_one = runs.setdefault((text, index, strand), [])
        if of_one and of_one[-1][-1][0] == end - 1:
            of_one[-1].append((end, distance))
        else:
            of_one.append([(end, distance)])
    rows = []
    for (text, index, strand), found in runs.items():
        pattern = patterns[index] if strand == "+" else turned(patterns[index])
        hits = []
        for run in found:
            distance, end = min((d, e) for e, d in run)
            hits.append((start_of(texts[text], end, distance, pattern, iupac), end, distance))
        for _, end, distance in without_overlaps(hits):
            rows.append((text, end, index, strand, distance))
    rows.sort()
    return [(text, end, distance, strand, index) for text, end, index, strand, distance in rows]


def check_alignment(text, start, end, distance, pattern, cigar, iupac=False):
    """Assert that the CIGAR aligns the whole pattern with text[start:end] at that distance."""
    assert re.fullmatch(r"(\d+[=XID])+", cigar), cigar
    operations = re.findall(r"(\d+)([=XID])", cigar)
    assert all(a[1] != b[1] for a, b in zip(operations, operations[1:], strict=False)), cigar
    at, row, cost = start, 0, 0
    for count, operation in operations:
        for _ in range(int(count)):
            if operation in "=X":
                assert equal(pattern[row], text[at], iupac) == (operation == "="), (cigar, at)
            cost += operation != "="
            at += operation != "I"
            row += operation != "D"
    assert (at, row, cost) == (end, len(pattern), distance), cigar
