"""Snakemake wrapper of ``streamer index``."""

import shlex

from snakemake.shell import shell


def files(given):
    return [given] if isinstance(given, str) else list(given)


log = snakemake.log_fmt_shell(stdout=True, stderr=True)
extra = snakemake.params.get("extra", "--target-by file")
words = ["streamer", "index", *files(snakemake.input.fasta)]
for path in files(snakemake.input.get("subtract", [])):
    words += ["--subtract", path]
words += ["-k", str(snakemake.params.get("k", 31)), "-o", snakemake.output[0]]
command = shlex.join(words)

shell("{command} {extra} {log}")
