"""The table of ``filter --samples``: the files of each sample."""

import os
from dataclasses import replace
from typing import Any

from streamer.cli.filter_files import FilterRun
from streamer.errors import DataError

_NEEDED = ("sample", "reads1", "output1")
_OTHERS = ("reads2", "output2", "removed", "removed2")


def read_samples(path: str, run: FilterRun) -> list[FilterRun]:
    """Return a run of each sample, with the options of ``run``; DataError with the line of a fault.

    Lines of one sample are its lanes, and go to the same outputs.
    """
    samples: dict[str, FilterRun] = {}
    owners: dict[str, str] = {}
    inputs: set[str] = set()
    with open(path, encoding="utf-8-sig", errors="surrogateescape") as file:
        names = file.readline().strip("\r\n#").split("\t")
        unknown = [name for name in names if name not in (*_NEEDED, *_OTHERS)]
        if unknown or len({*names}) < len(names) or not {*_NEEDED} <= {*names}:
            columns = f"{', '.join(_NEEDED)} and, if wanted, {', '.join(_OTHERS)}"
            raise DataError(f"line 1: the columns are {columns}", file=path)
        for number, line in enumerate(file, 2):
            cells = line.rstrip("\r\n").split("\t")
            if cells == [""]:
                continue
            row = dict(zip(names, cells, strict=False))
            lacking = [name for name in _NEEDED if not row.get(name)]
            if lacking or len(cells) > len(names):
                problem = f"lacks {', '.join(lacking)}" if lacking else f"has {len(cells)} cells"
                raise DataError(f"line {number}: {problem}", file=path)
            own: dict[str, Any] = {
                "output": row["output1"],
                **{name: row.get(name) or None for name in _OTHERS[1:]},
                "pairs": bool(row.get("reads2")),
            }
            sample = row["sample"]
            reads = [row["reads1"], *filter(None, [row.get("reads2")])]
            inputs |= {os.path.realpath(name) for name in reads}
            before = samples.get(sample)
            if before is None:
                samples[sample] = replace(run, sample=sample, reads=reads, **own)
                for output in samples[sample].outputs:
                    owner = owners.setdefault(os.path.realpath(output), sample)
                    if owner != sample:
                        raise DataError(f"line {number}: {output} is one of {owner}", file=path)
            elif any(getattr(before, name) != value for name, value in own.items()):
                raise DataError(f"line {number}: {sample} has other outputs or pairs", file=path)
            else:
                samples[sample] = replace(before, reads=before.reads + reads)
    if both := inputs & owners.keys():
        raise DataError(f"{min(both)} is an input and an output", file=path)
    if not samples:
        raise DataError("holds no sample", file=path)
    return [*samples.values()]
