"""The target reports from their definition, with strings, dicts and sets (see ``exact``)."""

from __future__ import annotations

from fractions import Fraction

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


def records_of(text):
    """[(unchanged record, name, letters)] of a FASTQ or FASTA text (bytes)."""
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        lines[-1] += b"\n"
    if text.startswith(b"@"):
        parts = [lines[at : at + 4] for at in range(0, len(lines), 4)]
        letters = [part[1] for part in parts]
    else:
        starts = [at for at, line in enumerate(lines) if line.startswith(b">")]
        parts = [lines[a:b] for a, b in zip(starts, [*starts[1:], len(lines)], strict=False)]
        letters = [b"".join(part[1:]) for part in parts]
    return [
        (b"".join(part), (part[0][1:].split() or [b""])[0].decode(), b"".join(own.split()).decode())
        for part, own in zip(parts, letters, strict=True)
    ]


def together(letters, k, *, records, strands="canonical", min_windows=1, min_fraction=0):
    """The record index that a pair is assigned to, by its distinct matching windows, or None."""
    known = dictionary_of(records, k, strands)
    kmers = [kmer for one in letters for _, kmer in windows_of(one, k) if kmer is not None]
    owners = [known.get(form, ()) for form in {stored(kmer, strands) for kmer in kmers}]
    counts = [sum(index in own for own in owners) for index in range(len(records))]
    most = max(counts, default=0)
    enough = most >= max(min_windows, 1) and Fraction(most, len(kmers)) >= Fraction(min_fraction)
    return counts.index(most) if enough else None


def renamed(text, marks):
    """Records named by numbers, with these marks in turn."""
    found = b""
    for at, (record, *_) in enumerate(records_of(text)):
        lines = record.splitlines(keepends=True)
        end = b"\r\n" if lines[0].endswith(b"\r\n") else b"\n"
        name = b"%d%b" % (at // len(marks) + 1, marks[at % len(marks)])
        lines[0] = lines[0][:1] + name + end
        if text.startswith(b"@"):
            lines[2] = b"+" + end
        found += b"".join(lines)
    return found


def filtered(texts, k, records, *, keep, pairs=False, rule="either", **options):
    """The bytes for R1 (or all), for R2, and both interleaved; then [(letters, target, out)]."""
    files = [records_of(text) for text in texts]
    groups = (
        [pair for one, other in zip(files[::2], files[1::2], strict=True)
         for pair in zip(one, other, strict=True)]
        if pairs
        else [(record,) for file in files for record in file]
    )  # fmt: skip
    flat = [record for group in groups for record in group]
    chosen = assigned([(name, letters) for _, name, letters in flat], k, records=records, **options)
    if rule == "together":
        of_pairs = [[one[2] for one in group] for group in groups]
        chosen = [together(both, k, records=records, **options) for both in of_pairs for _ in both]
    outputs, reads = [b"", b"", b""], []
    for at, group in enumerate(groups):
        own = chosen[at * len(group) : (at + 1) * len(group)]
        out = any(target is not None for target in own) == keep
        for number, (record, target) in enumerate(zip(group, own, strict=True)):
            reads.append((record[2], target, out))
            if out:
                outputs[number] += record[0]
                outputs[2] += record[0]
    return outputs, reads


def summary(reads, targets, barcodes):
    """The counts of the summary; barcodes: one per read."""

    def counts(own):
        return {
            "reads_in": len(own),
            "bases_in": sum(len(letters) for letters, _, _ in own),
            "reads_out": sum(out for _, _, out in own),
            "bases_out": sum(len(letters) for letters, _, out in own if out),
        }

    by_target = [
        {"target": name} | counts([read for read in reads if read[1] == number])
        for number, name in [*enumerate(targets), (None, None)]
    ]
    told = list(zip(reads, barcodes, strict=True))
    by_barcode = [
        {"barcode": name} | counts([read for read, own in told if own == name])
        for name in sorted(set(barcodes), key=lambda name: name or ".")
    ]
    return counts(reads) | {"targets": by_target, "barcodes": by_barcode}


def decisions(
    reads, k, *, enrich=(), deplete=(), first, give_up=0, records, strands="canonical", **limits
):
    """[(action, target or None, matches, windows, bases)] of (name, letters)."""
    heads = [(name, letters[:first]) for name, letters in reads]
    options = {"records": records, "strands": strands, "mode": "frozen"}
    chosen = assigned(heads, k, **options, **limits)
    matched, windows = tallies(heads, match(heads, k, **options))
    rows = []
    for (_, letters), (_, head), owner, by_owner, count in zip(
        reads, heads, chosen, matched, windows, strict=True
    ):
        target = None if owner is None else records[owner][0]
        if target is None:
            action = "proceed"
            if give_up and len(letters) >= give_up:
                action = "unblock" if enrich else "stop_receiving"
        elif enrich:
            action = "stop_receiving" if target in enrich else "unblock"
        else:
            action = "unblock" if target in deplete else "stop_receiving"
        rows.append((action, target, max(by_owner.values(), default=0), count, len(head)))
    return rows
