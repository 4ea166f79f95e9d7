"""The output of ``streamer filter``, from the texts of files, record by record."""

from __future__ import annotations

from tests.reference.targets import assigned


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


def filtered(texts, k, records, *, keep, pairs=False, **options):
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
