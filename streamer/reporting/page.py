"""The page: one self-contained HTML file without scripts; sections without input are omitted."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib.resources import files
from typing import TypeVar

from streamer import __version__
from streamer.output.rows import time_now
from streamer.reporting import figures
from streamer.reporting.collection import AnyReport, Collection, Source
from streamer.reporting.reports import CoverageReport, NoveltyReport, ReadsReport, TargetReport, top

_R = TypeVar("_R", bound=AnyReport)


def sections(collection: Collection) -> Iterator[tuple[str, str, figures.Markup]]:
    """Yield id, heading and content of each section."""
    yield "summary", "Summary", _summary(collection)
    targets, barcodes = (collection.targets(by_barcode=by) for by in (False, True))
    reads = [(source, report) for source, report in collection.all(ReadsReport) if report.targets]
    if targets:
        yield "targets", "Targets", _each(targets, "targets", _targets)
    elif reads and not barcodes:
        yield "targets", "Targets", _each(reads, "best_targets", _best_targets)
    if barcodes:
        yield "barcodes", "Targets by barcode", _each(barcodes, "barcodes", _barcodes)
    if coverage := [*collection.all(CoverageReport)]:
        named = partial(_coverage, shown=collection.shown)
        yield "coverage", "Coverage along targets", _each(coverage, "coverage", named)
    if lengths := [*collection.all(ReadsReport)]:
        yield "lengths", "Read lengths", _each(lengths, "lengths", _lengths)
    if novelty := [*collection.all(NoveltyReport)]:
        yield "novelty", "Novelty", _each(novelty, "novelty", _novelty)


def _each(
    drawn: Sequence[tuple[Source, _R]], name: str, show: Callable[[_R, str], figures.Markup]
) -> figures.Markup:
    """Show one report after the other, each under its file name if there are several."""
    parts = []
    for at, (source, report) in enumerate(drawn):
        if len(drawn) > 1:
            parts.append(figures.tag("h3", source.name))
        parts.append(show(report, f"{name}-{at}"))
    return figures.joined(*parts)


def _summary(collection: Collection) -> figures.Markup:
    parts = []
    if (problem := collection.disagreement()) and len(collection.sources) > 1:
        parts.append(figures.tag("p", f"Note: {problem}", class_="note"))
    for source in collection.sources:
        if source.gone:
            gone = f"Note: {source.gone:,} earlier reads are no longer in {source.name}, nor here."
            parts.append(figures.tag("p", gone, class_="note"))
    parts += _missing(collection)
    if problem is None:
        tiles = [
            figures.tag("div", figures.tag("dt", name), figures.tag("dd", value, title=exact))
            for name, value, exact in _tiles(collection)
        ]
        parts.append(figures.tag("dl", *tiles, class_="tiles"))
    if len(collection.sources) > 1:
        parts.append(_files(collection.sources))
    return figures.joined(*parts)


def _missing(collection: Collection) -> Iterator[figures.Markup]:
    """Yield what is missing in each sample, the worst first, and what controls say of the run."""
    tables = collection.targets(by_barcode=True)
    if not tables:
        tables = [pair for pair in collection.targets(by_barcode=False) if pair[1].verdicts]
    for line in collection.alarms:
        yield figures.tag("p", f"Note: {line}.", class_="note")
    for source, report in tables:
        where = f" in {source.name}" if len(tables) > 1 else ""
        yield figures.missing_table(report, where)
    if collection.verdict_rule and any(report.verdicts for _, report in tables):
        yield figures.tag("p", f"The rule of verdicts: {collection.verdict_rule}.")


def _tiles(collection: Collection) -> Iterator[tuple[str, str, str]]:
    """Yield name, displayed number and exact number."""
    if counted := [*collection.counted]:
        _, reads, bases = counted[0]
        yield "Reads", figures.counted(reads), f"{reads:,}"
        yield "Bases", figures.counted(bases), f"{bases:,}"
    targets = [*collection.all(TargetReport)]
    reads_reports = [report for _, report in collection.all(ReadsReport)]
    if targets:
        report = targets[0][1]
        names = len(report.names)
        yield "Targets with reads", f"{report.with_reads:,} of {names:,}", ""
        yield (
            "Unassigned reads",
            figures.percent(report.unassigned, report.reads),
            f"{report.unassigned:,}",
        )
    elif reads_reports:
        off, every = reads_reports[0].off.reads, reads_reports[0].all.reads
        yield "Unassigned reads", figures.percent(off, every), f"{off:,}"
    for _, report in collection.targets(by_barcode=True)[:1]:
        yield "Barcodes", f"{sum(label is not None for label in report.groups):,}", ""
    if reads_reports:
        every_length = reads_reports[0].all
        yield "Read length N50", figures.counted(every_length.n50), f"{every_length.n50:,}"
        matches, windows = reads_reports[0].matches, reads_reports[0].windows
        # a growing dictionary knows what earlier reads had
        what = "known or seen before" if [*collection.all(NoveltyReport)] else "that match"
        yield f"Windows {what}", figures.percent(matches, windows), f"{matches:,} of {windows:,}"
    for _, curve in collection.all(NoveltyReport):
        if curve.points:
            kmers = curve.points[-1].kmers
            yield "New k-mers", figures.counted(kmers), f"{kmers:,}"
        break


def _files(sources: list[Source]) -> figures.Markup:
    head: list[figures.Child] = ["From", "Report", "Reads", "Bases", "Unassigned"]
    rows: list[list[figures.Child]] = []
    for source in sources:
        for report in source.reports:
            counts = [*Collection("", [Source(source.name, source.kind, [report])]).counted]
            reads, bases = (f"{value:,}" for value in counts[0][1:]) if counts else ("", "")
            off = ""
            if isinstance(report, TargetReport):
                off = f"{report.unassigned:,}"
            elif isinstance(report, ReadsReport):
                off = f"{report.off.reads:,}"
            rows.append([source.name, _kind_of(report), reads, bases, off])
    return figures.table(head, rows, caption="What this page is made of", numbers_from=2)


def _kind_of(report: object) -> str:
    if isinstance(report, TargetReport):
        return "targets by barcode" if report.by_barcode else "targets"
    words = {CoverageReport: "coverage", ReadsReport: "reads", NoveltyReport: "novelty"}
    return words[type(report)]


def _targets(report: TargetReport, identity: str) -> figures.Markup:
    note = ""
    if len(report.names) > figures.SHOWN_TARGETS:
        note = f" The {figures.SHOWN_TARGETS} with the most reads are shown, the others in one row."
    order = "in panel order"
    if note:
        order = "the most reads first"
    caption = f"{len(report.names):,} targets, {order}"
    return figures.joined(
        figures.tag(
            "p",
            "Breadth is the share of a target's k-mers that was seen, depth how often they "
            f"were matched on average.{note}",
        ),
        figures.target_table(report, caption),
    )


def _best_targets(report: ReadsReport, identity: str) -> figures.Markup:
    total = report.all.reads
    shown = top(report.targets, figures.SHOWN_TARGETS)
    rows: list[list[figures.Child]] = [
        [name, f"{reads:,}", figures.percent(reads, total), f"{bases:,}"]
        for name, reads, bases in shown
    ]
    if (rest := len(report.targets) - len(shown)) > 0:
        reads = report.on.reads - sum(reads for _, reads, _ in shown)
        bases = report.on.bases - sum(bases for *_, bases in shown)
        rows.append(
            [f"{rest:,} other targets", f"{reads:,}", figures.percent(reads, total), f"{bases:,}"]
        )
    off = report.off
    rows.append(
        ["unassigned", f"{off.reads:,}", figures.percent(off.reads, total), f"{off.bases:,}"]
    )
    head: list[figures.Child] = ["Target", "Reads", "of reads", "Bases"]
    return figures.table(head, rows, caption="Reads by their best target")


def _barcodes(report: TargetReport, identity: str) -> figures.Markup:
    if not report.groups or not report.names:
        return figures.tag("p", "There is no read.")
    targets, barcodes = figures.drawn_pairs(report)
    more = len(report.names) - len(targets), len(report.groups) - len(barcodes)
    note = ""
    if any(more):
        note = (f" Not drawn are the {more[0]:,} targets that are missing in the fewest samples, "
                f"and {more[1]:,} barcodes.")  # fmt: skip
    words = "Breadth in percent: how much of each target was seen. No colour: no read."
    if report.verdicts:
        words += " A frame: more is needed; a dotted frame: not detected."
    return figures.joined(
        figures.figure(
            f"{words}{note}",
            figures.heat_map(report, targets, barcodes, identity),
            figures.folded("Table of targets by barcode", figures.pair_table(report)),
        ),
        figures.barcode_table(report),
    )


def _coverage(report: CoverageReport, identity: str, shown: Callable[[str], str]) -> figures.Markup:
    drawn = len(report.drawn)
    note = ""
    what = "pairs of target and sample" if report.by_barcode else "targets"
    if report.count > drawn and not drawn:
        return figures.tag("p", f"Nothing of the {report.count:,} {what} was seen.")
    if report.count > drawn:
        note = (f" The {drawn} of {report.count:,} {what} with the most matches are drawn; all of "
                f"them have {report.seen:,} of {report.kmers:,} windows seen.")  # fmt: skip
    if not drawn:
        return figures.tag("p", "There is no target.")
    words = ("The area is the depth along a target, the strip below it the share of k-mers that "
             f"was seen, the darker the more.{note}")  # fmt: skip
    return figures.joined(figures.tag("p", words), figures.coverage_tracks(report, identity, shown))


def _lengths(report: ReadsReport, identity: str) -> figures.Markup:
    every = report.all
    if not every.reads:
        return figures.tag("p", "There is no read.")
    head: list[figures.Child] = [
        "Which reads",
        "Reads",
        "Bases",
        "N50",
        "Median",
        "Mean",
        "Longest",
    ]
    rows: list[list[figures.Child]] = []
    for name, counts in (("all", every), ("on a target", report.on), ("unassigned", report.off)):
        mean = counts.bases / counts.reads if counts.reads else 0
        numbers = (counts.reads, counts.bases, counts.n50, counts.middle(), round(mean),
                   counts.longest)  # fmt: skip
        rows.append([name, *(f"{value:,}" for value in numbers)])
    return figures.joined(
        figures.length_figure(report, identity),
        figures.table(head, rows, caption="Lengths of reads, in bases"),
    )


def _novelty(report: NoveltyReport, identity: str) -> figures.Markup:
    drawn = figures.novelty_figure(report, identity)
    return drawn or figures.tag("p", "There is no read.")


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"


def page(collection: Collection, options: Iterable[tuple[str, str]]) -> str:
    """Return the whole file; options: names and values, shown at the end with the files' facts."""
    parts = [*sections(collection)]
    links = [figures.tag("a", heading, href=f"#{identity}") for identity, heading, _ in parts]
    about = "about", "Version and parameters", _about(collection, options)
    content = [
        figures.tag(
            "section", figures.tag("h2", heading, id=identity), inside, aria_labelledby=identity
        )
        for identity, heading, inside in (*parts, about)
    ]
    links.append(figures.tag("a", about[1], href=f"#{about[0]}"))
    style = figures.Markup(files("streamer.reporting").joinpath("page.css").read_text("utf-8"))
    head = figures.tag(
        "head", figures.tag("meta", charset="utf-8"),
        figures.tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        figures.tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        figures.tag("meta", name="color-scheme", content="light dark"),
        figures.tag("meta", name="generator", content=f"streamer {__version__}"),
        figures.tag("title", collection.title), figures.tag("style", style),
    )  # fmt: skip
    body = figures.tag(
        "body",
        figures.tag("header", figures.tag("h1", collection.title),
            *(figures.tag("p", line) for line in collection.what),
            figures.tag("p", ", ".join(source.name for source in collection.sources)),
            figures.tag("nav", *links, aria_label="Sections")),
        figures.tag("main", *content),
        figures.tag("footer", figures.tag("p", f"Made by streamer {__version__} on {time_now()}.")),
    )  # fmt: skip
    return "<!DOCTYPE html>\n" + figures.tag("html", head, body, lang="en") + "\n"


def _about(collection: Collection, options: Iterable[tuple[str, str]]) -> figures.Markup:
    parts = [_facts([("streamer", __version__), *options])]
    for source in collection.sources:
        parts += [
            figures.tag("h3", source.name),
            _facts([("what it is", source.kind), *source.facts]),
        ]
    return figures.joined(*parts)


def _facts(facts: Iterable[tuple[str, str]]) -> figures.Markup:
    pairs = (
        figures.joined(figures.tag("dt", name), figures.tag("dd", value)) for name, value in facts
    )
    return figures.tag("dl", *pairs, class_="facts")
