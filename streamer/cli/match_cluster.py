"""``streamer match --cluster``: the reads of files against a fixed dictionary, on Ray."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from streamer.cli import effort
from streamer.cli.choices import FormatChoice, say
from streamer.cli.match_files import Asked
from streamer.cli.progress import progress
from streamer.cluster.connecting import connected
from streamer.cluster.match_tasks import TASK_READS, match_lines, match_results, task_bases
from streamer.dictionary.saved_dictionary import save_dictionary
from streamer.matching.match_engine import NO_CODES
from streamer.matching.matcher import StreamMatcher
from streamer.matching.reports import REPORTS
from streamer.matching.spec import Device, MatchSpec
from streamer.matching.starting import load_dictionary
from streamer.output.rows import RowWriter
from streamer.sequences.files import read_batches
from streamer.sequences.prefetch import prefetched
from streamer.sequences.source import size_of_files
from trie.cpu.compiling import compile_notice


def match_on_cluster(
    address: str,
    reads: list[str],
    spec: MatchSpec,
    asked: Asked,
    format_: FormatChoice,
    output: str | None,
    save: str | None,
    *,
    quiet: bool,
) -> None:
    """As ``match_files``; the dictionary is loaded here and put on every node."""
    notice = None if quiet else say
    with connected(address, spec.threads) as cluster, compile_notice(quiet=quiet):
        device: Device = "cuda" if spec.device == "cuda" or spec.cuda_kernel else "cpu"
        if device == "cuda":
            cluster.check_gpu()
        elif spec.device == "auto" and cluster.gpus:
            device = "cuda"
        if not quiet:
            say(cluster.line())
        # this one has the dictionary and the totals; workers match
        here = replace(spec, device="cpu", kernel="auto" if spec.cuda_kernel else spec.kernel)
        there = replace(spec, device=device)
        as_stored = save is not None and spec.strands == "both"
        stored = load_dictionary(here, as_stored=as_stored, on_notice=notice)
        matcher = StreamMatcher(stored, here)
        with closing(matcher):
            answer = asked.answer(matcher)
            with (
                RowWriter(output, format_, answer.columns) as writer,
                progress("matching", size_of_files(reads), quiet=quiet) as show,
            ):
                bases = task_bases(
                    spec, effort.bases_of_files(reads), cluster.cpus, depths=answer.depths
                )
                if asked.report in REPORTS:
                    for lines in match_lines(
                        cluster, matcher, stored, there, asked.report, format_, reads, bases, show
                    ):
                        writer.put(lines.data)
                else:
                    batches = read_batches(
                        reads, batch_bases=bases,
                        batch_reads=TASK_READS, on_bytes=show, context=asked.by_barcode,
                    )  # fmt: skip
                    for result in match_results(
                        cluster, matcher, stored, there, prefetched(batches)
                    ):
                        for table in answer.after(result):
                            writer.write(table)
                    for table in answer.last():
                        writer.write(table)
            if save is not None:
                tree = matcher.latest_snapshot().tree
                save_dictionary(save, stored, NO_CODES, tree, spec.strands)
