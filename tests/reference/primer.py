"""The k-difference primer problem by plain dynamic programming; uses nothing of the project."""

from __future__ import annotations

from itertools import product

import numpy as np

BASES = {
    "A": "A", "C": "C", "G": "G", "T": "T", "R": "AG", "Y": "CT", "S": "CG", "W": "AT",
    "K": "GT", "M": "AC", "B": "CGT", "D": "AGT", "H": "ACT", "V": "ACG", "N": "ACGT",
}  # fmt: skip
COMPLEMENT = str.maketrans("ACGT", "TGCA")


def clean(sequence):
    """Upper case, U as T, every ambiguity letter as N."""
    sequence = sequence.upper().replace("U", "T")
    return "".join(letter if letter in "ACGT" else "N" for letter in sequence)


def longest_prefix(alpha, beta, k):
    """The longest prefix of alpha with fewer than k differences from a substring of beta."""
    text = np.frombuffer(beta.encode(), dtype=np.uint8)
    columns = np.arange(text.size + 1)
    row = np.zeros(text.size + 1, dtype=np.int64)
    for i, letter in enumerate(alpha, 1):
        differs = np.ones(text.size, dtype=np.int64)
        if letter != "N":
            differs[text == ord(letter)] = 0
        new = row + 1
        new[1:] = np.minimum(new[1:], row[:-1] + differs)
        # each further symbol of beta costs 1: take the least over the cells to the left
        row = np.minimum.accumulate(new - columns) + columns
        if row.min() >= k:
            return i - 1
    return len(alpha)


def texts(betas, strands):
    betas = [clean(beta) for beta in betas] + [""]
    if strands == "both":
        betas += [beta[::-1].translate(COMPLEMENT) for beta in betas]
    return betas


def longest(alpha, betas, k, strands="forward"):
    """As ``longest_prefix``, over every record of beta."""
    return max(longest_prefix(clean(alpha), beta, k) for beta in texts(betas, strands))


def differences(primer, betas, strands="forward"):
    """The least differences of a primer, over the variants that its letters stand for."""
    variants = map("".join, product(*(BASES[letter] for letter in primer)))
    return min(
        next(d for d in range(len(one) + 1) if longest(one, betas, d + 1, strands) == len(one))
        for one in variants
    )


def primers(alphas, betas, k, strands="forward"):
    """[(alpha, start, end, length)] of every solution."""
    rows = []
    for index, alpha in enumerate(alphas):
        for start in range(len(alpha)):
            end = start + longest(alpha[start:], betas, k, strands) + 1
            if end <= len(alpha):
                rows.append((index, start, end, end - start))
    return rows
