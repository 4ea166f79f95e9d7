"""Search with k mismatches, from its definition: strings; NumPy for large searches.

An independent reference: it uses nothing of the project.
"""

from __future__ import annotations

import numpy as np

COMPLEMENT = str.maketrans("ACGT", "TGCA")


def clean(sequence):
    return sequence.upper().replace("U", "T")


def reverse_complement(pattern):
    return pattern[::-1].translate(COMPLEMENT)


def oriented(patterns, strands):
    """(number, strand, sequence) in row order."""
    searched = []
    for number, pattern in enumerate(map(clean, patterns)):
        if strands != "reverse":
            searched.append((number, "+", pattern))
        if strands != "forward":
            searched.append((number, "-", reverse_complement(pattern)))
    return searched


def distance(window, pattern):
    """The Hamming distance; a letter other than A, C, G, T differs from every letter."""
    return sum(a != b or a not in "ACGT" for a, b in zip(window, pattern, strict=True))


def search(texts, patterns, k, strands="both"):
    """[(text, start, end, distance, strand, pattern)], by text, end, pattern, + before -."""
    rows = []
    searched = oriented(patterns, strands)
    for index, text in enumerate(map(clean, texts)):
        for start in range(len(text) - len(searched[0][2]) + 1):
            for number, strand, pattern in searched:
                window = text[start : start + len(pattern)]
                found = distance(window, pattern)
                if found <= k:
                    rows.append((index, start, start + len(pattern), found, strand, number))
    return rows


def _letters(sequence):
    return np.frombuffer(sequence.encode(), dtype=np.uint8)


def search_large(texts, patterns, k, strands="both"):
    """As ``search``, one pattern at a time over all windows."""
    rows = []
    for index, text in enumerate(map(clean, texts)):
        letters = _letters(text)
        base = np.isin(letters, _letters("ACGT"))
        for rank, (number, strand, pattern) in enumerate(oriented(patterns, strands)):
            length = len(pattern)
            if length > letters.size:
                continue
            windows = letters.size - length + 1
            found = np.zeros(windows, dtype=np.uint16)
            for j, letter in enumerate(_letters(pattern)):
                here = slice(j, j + windows)
                found += (letters[here] != letter) | ~base[here]
            for start in np.flatnonzero(found <= k).tolist():
                row = (index, start, start + length, int(found[start]), strand, number)
                rows.append((start, rank, row))
    rows.sort(key=lambda entry: (entry[2][0], entry[0], entry[1]))
    return [row for _, _, row in rows]
