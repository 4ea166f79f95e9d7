"""What a search with k mismatches must give, from its definition, with strings only.

Nothing of the project is used here: it is what the project is held against.
"""

from __future__ import annotations

COMPLEMENT = str.maketrans("ACGT", "TGCA")


def clean(sequence):
    return sequence.upper().replace("U", "T")


def distance(window, pattern):
    """Positions in which they differ; a letter other than A, C, G, T differs from every letter."""
    return sum(a != b or a not in "ACGT" for a, b in zip(window, pattern, strict=True))


def search(texts, patterns, k, strands="both"):
    """[(text, start, end, distance, strand, pattern)], by text, end, pattern, + before -."""
    rows = []
    searched = []
    for number, pattern in enumerate(map(clean, patterns)):
        if strands != "reverse":
            searched.append((number, "+", pattern))
        if strands != "forward":
            searched.append((number, "-", pattern[::-1].translate(COMPLEMENT)))
    for index, text in enumerate(map(clean, texts)):
        for start in range(len(text) - len(searched[0][2]) + 1):
            for number, strand, pattern in searched:
                window = text[start : start + len(pattern)]
                found = distance(window, pattern)
                if found <= k:
                    rows.append((index, start, start + len(pattern), found, strand, number))
    return rows
