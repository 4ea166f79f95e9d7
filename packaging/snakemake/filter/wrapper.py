"""Snakemake wrapper of ``streamer filter``."""

import shlex

from snakemake.shell import shell


def files(given):
    return [given] if isinstance(given, str) else list(given)


log = snakemake.log_fmt_shell(stdout=True, stderr=True)
extra = snakemake.params.get("extra", "--deplete --preset host-short")
reads, outputs = files(snakemake.input.reads), files(snakemake.output.reads)
words = ["streamer", "filter", *reads, "--dictionary", snakemake.input.index]
if len(outputs) == 2:
    words += ["--pairs", "--output2", outputs[1]]
if summary := snakemake.output.get("summary"):
    words += ["--summary", summary]
words += ["--threads", str(snakemake.threads), "--quiet", "-o", outputs[0]]
command = shlex.join(words)

shell("{command} {extra} {log}")
