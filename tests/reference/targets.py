"""The target reports from their definition, with strings, dicts and sets (see ``exact``)."""

from __future__ import annotations

from tests.reference.exact import clean, dictionary_of, match, stored, windows_of


def tallies(reads, found):
    """For each read {record index: windows that match it}, and the number of its windows."""
    matched = [{} for _ in reads]
    windows = [0] * len(reads)
    for index, _, _, owners in found:
        windows[index] += 1
        for owner in owners:
            matched[index][owner] = matched[index].get(owner, 0) + 1
    return matched, windows


def assigned(reads, k, *, min_windows=1, min_fraction=0, **options):
    """The record index that each read is assigned to, or None.

    min_fraction: anything that Fraction accepts.
    """
    from fractions import Fraction

    chosen = []
    for matched, windows in zip(*tallies(reads, match(reads, k, **options)), strict=True):
        best = min(matched, key=lambda owner, of=matched: (-of[owner], owner), default=None)
        if best is not None and (
            matched[best] < min_windows or Fraction(matched[best], windows) < Fraction(min_fraction)
        ):
            best = None
        chosen.append(best)
    return chosen


def hits_of(reads, k, strands, **options):
    """{k-mer as stored: windows that matched it while it belonged to a record}."""
    hits = {}
    for index, start, _, owners in match(reads, k, strands=strands, **options):
        if owners:
            form = stored(clean(reads[index][1])[start : start + k], strands)
            hits[form] = hits.get(form, 0) + 1
    return hits


def ratio(part, whole):
    return f"{part / whole:.4f}" if whole else "."


def targets_report(reads, k, *, barcodes=None, **options):
    """Rows as in TSV; barcodes: one per read, for a table per barcode as with ``--by barcode``."""
    limits = {name: value for name, value in options.items() if name.startswith("min_")}
    matching = {"strands": "canonical"} | {n: v for n, v in options.items() if n not in limits}
    chosen = assigned(reads, k, **matching, **limits)
    if barcodes is not None:
        rows = []
        for barcode in sorted(set(barcodes)):
            own = [index for index, one in enumerate(barcodes) if one == barcode]
            part = _rows(own, chosen, reads, k, matching)
            rows += [(barcode, *row) for row in part]
        return rows
    return _rows(range(len(reads)), chosen, reads, k, matching)


def _rows(own, chosen, reads, k, matching):
    records, strands = matching["records"], matching["strands"]
    # k-mers that other reads add to a growing dictionary have no target, so they change no numbers
    hits = hits_of([reads[index] for index in own], k, **matching)
    known = dictionary_of(records, k, strands)
    rows = []
    for number, (name, _) in enumerate(records):
        mine = [index for index in own if chosen[index] == number]
        kmers = [form for form, owners in known.items() if number in owners]
        seen = [form for form in kmers if form in hits]
        matches = sum(hits[form] for form in seen)
        rows.append(
            (
                name, len(mine), sum(len(reads[index][1]) for index in mine), matches,
                len(kmers), len(seen), ratio(len(seen), len(kmers)), ratio(matches, len(kmers)),
            )
        )  # fmt: skip
    left = [index for index in own if chosen[index] is None]
    rows.append((".", len(left), sum(len(reads[index][1]) for index in left), *["."] * 5))
    return rows


def coverage_report(reads, k, *, records, strands="canonical", mode="frozen", bins=100):
    """Rows as in TSV."""
    hits = hits_of(reads, k, strands, records=records, mode=mode)
    rows = []
    for name, sequence in records:
        size, larger = divmod(len(sequence), bins)
        ends = [0]
        for number in range(bins):
            ends.append(ends[-1] + size + (number < larger))
        per_bin = [[0, 0, 0] for _ in range(bins)]
        for start, kmer in windows_of(sequence, k):
            if kmer is None:
                continue
            row = per_bin[next(b for b in range(bins) if ends[b] <= start < ends[b + 1])]
            found = hits.get(stored(kmer, strands), 0)
            row[0] += 1
            row[1] += found > 0
            row[2] += found
        for number, row in enumerate(per_bin):
            rows.append((name, ends[number], ends[number + 1], *row))
    return rows
