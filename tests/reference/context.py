"""The context of a read from its header line, by regular expressions alone."""

from __future__ import annotations

import re
from datetime import datetime

NAMED = r"(barcode[0-9]+|unclassified)"
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


def time_of(text):
    """A time in RFC 3339 format, or None; a time without an offset is UTC."""
    found = re.fullmatch(
        r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d):(\d\d)(\.\d{1,9})?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)?",
        text,
        re.ASCII,
    )
    if not found or int(found[3]) > 60:
        return None
    try:
        datetime.fromisoformat(f"{found[1].replace('0000', '2000', 1)}T{found[2]}:00")
    except ValueError:
        return None
    return text if found[5] else f"{text}Z"


def channel_of(text):
    return int(text) if re.fullmatch("[0-9]+", text) and int(text) < 1 << 31 else None


def plain(text):
    return text or None


def values(header, *keys):
    """The values of fields, unchanged."""
    words = re.split("[ \t]+", header.strip(" \t"))[1:]
    return [
        word.removeprefix(key)
        for word in words
        for key in keys
        if word.startswith(key) and len(word) > len(key)
    ]


def first(candidates):
    return next((one for one in candidates if one is not None), None)


def barcode_of_file(name):
    """The last barcode among the words of a file's name, without what follows a dot in a word."""
    words = [word.split(".")[0] for word in name.split("_")]
    found = [word for word in words if re.fullmatch(NAMED, word, re.ASCII)]
    return found[-1] if found else None


def context_of(header, folder="", groups=None, file="reads.fastq.gz"):
    """(channel, start_time, run, barcode, sample) of a header line without @; None: unknown.

    groups: {ID: (run, sample, library)} of the file's read groups.
    """
    group = first(map(printable, values(header, "RG:Z:")[:1]))
    of_run, of_sample, of_library = (groups or {}).get(group, (None, None, None))
    run = first([*map(printable, values(header, "runid=")[:1]), of_run])
    if run is None and group is not None:
        by_tool = re.match(rf"({UUID}|[0-9a-f]{{40}})(_|$)", group)
        if by_tool:
            run = by_tool[1]
        else:
            run = group.split("_")[0] if re.search(f"[_-]{NAMED}$", group) else group
    given = first(map(printable, values(header, "barcode=", "BC:Z:")[:1]))
    given = None if given == "." else given
    if given is not None and (kit := re.search(f"[_-]{NAMED}$", given)):
        given = kit[1]
    sample = first([*map(printable, values(header, "SM:Z:")[:1]), of_sample])
    library = first(
        [*map(printable, values(header, "LB:Z:", "sample_id=", "sampleid=")[:1]), of_library]
    )
    named = sample is not None and re.fullmatch(NAMED, sample, re.ASCII)
    suffix = group is not None and re.search(f"[_-]{NAMED}$", group)
    barcodes = [
        given,
        sample if named else None,
        suffix[1] if suffix else None,
        folder if re.fullmatch(NAMED, folder, re.ASCII) else None,
        barcode_of_file(file),
    ]
    barcode = first([None if one == "unclassified" else one for one in barcodes] + barcodes)
    of_file = re.fullmatch(r"(.+)_S\d+(_L\d\d\d)?_[RI]\d_\d\d\d\..*", file, re.ASCII)
    return (
        first(map(channel_of, values(header, "ch=", "ch:i:"))),
        first(map(time_of, values(header, "start_time=", "st:Z:"))),
        run,
        barcode,
        first([None if named else sample, library, sample, of_file[1] if of_file else None]),
    )


def printable(text):
    return text if text.isprintable() else None
