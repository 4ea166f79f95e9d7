"""Snakemake wrapper of ``streamer match``."""

import shlex

from snakemake.shell import shell


def files(given):
    return [given] if isinstance(given, str) else list(given)


log = snakemake.log_fmt_shell(stdout=True, stderr=True)
extra = snakemake.params.get("extra", "")
words = ["streamer", "match", *files(snakemake.input.reads)]
for source in files(snakemake.input.dictionary):
    words += ["--dictionary", source]
words += ["-k", str(snakemake.params.get("k", 21))]
words += ["--report", snakemake.params.get("report", "intervals")]
words += ["--threads", str(snakemake.threads), "--quiet", "-o", snakemake.output[0]]
command = shlex.join(words)

shell("{command} {extra} {log}")
