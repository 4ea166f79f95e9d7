"""The novelty curve from its definition: point by point, read by read."""

from __future__ import annotations

from tests.reference.exact import dictionary_of, stored, windows_of


def novelty_curve(reads, k, *, strands="canonical", mode="grow", records=(), seed=0, points=512):
    """[[reads, bases, kmers, new]] at the least power-of-two step that gives few enough points."""
    sums = _sums(reads, k, strands, mode, records, seed)
    step = 1
    while len(chosen := _behind_multiples(sums, step)) >= points:
        step *= 2
    if sums and (not chosen or chosen[-1] != sums[-1]):
        chosen.append(sums[-1])
    before = [0, *(kmers for _, _, kmers in chosen)]
    return [[*point, point[2] - last] for point, last in zip(chosen, before, strict=False)]


def _sums(reads, k, strands, mode, records, seed):
    """(reads, bases, new k-mers) after each read."""
    known = set(dictionary_of(records, k, strands))
    bases, kmers, sums = 0, 0, []
    for number, (_, letters) in enumerate(reads, 1):
        for start, kmer in windows_of(letters, k):
            learns = mode == "grow" or bases + start + k <= seed
            if kmer is not None and learns and stored(kmer, strands) not in known:
                known.add(stored(kmer, strands))
                kmers += 1
        bases += len(letters)
        sums.append((number, bases, kmers))
    return sums


def _behind_multiples(sums, step):
    found, before = [], 0
    for point in sums:
        if any(bases % step == 0 for bases in range(before + 1, point[1] + 1)):
            found.append(point)
        before = point[1]
    return found
