"""Tables of targets: counts, and a bar for breadth; many targets are summed in one row."""

from __future__ import annotations

from streamer.reporting.markup import Child, Markup, joined, table, tag
from streamer.reporting.quantities import percent, ratio
from streamer.reporting.target_report import TargetReport

SHOWN_TARGETS, SHOWN_PAIRS = 200, 500


def target_table(report: TargetReport, caption: str) -> Markup:
    """Return the targets with the most reads, the others in one row, and the unassigned reads."""
    lines = [*report.lines()]
    *targets, unassigned = lines
    total = report.reads
    ranked = report.ranked()
    head: list[Child] = [
        "Target", "Reads", "of reads", "Bases", "Breadth", "Depth", "K-mers seen", "K-mers",
        "Matches",
    ]  # fmt: skip
    rows: list[list[Child]] = []
    for at in ranked[:SHOWN_TARGETS]:
        line = targets[at]
        rows.append([
            line.target, f"{line.reads:,}", percent(line.reads, total), f"{line.bases:,}",
            joined(breadth_bar(line.breadth), ratio(line.breadth)), ratio(line.depth),
            f"{line.seen:,}", f"{line.kmers:,}", f"{line.matches:,}",
        ])  # fmt: skip
    rest = [targets[at] for at in ranked[SHOWN_TARGETS:]]
    if rest:
        reads, bases = sum(line.reads for line in rest), sum(line.bases for line in rest)
        rows.append([f"{len(rest):,} other targets", f"{reads:,}", percent(reads, total),
                     f"{bases:,}", *[""] * 5])  # fmt: skip
    rows.append(["unassigned", f"{unassigned.reads:,}", percent(unassigned.reads, total),
                 f"{unassigned.bases:,}", *[""] * 5])  # fmt: skip
    return table(head, rows, caption=caption)


def barcode_table(report: TargetReport) -> Markup:
    """Return one row per barcode, with all its reads."""
    head: list[Child] = ["Barcode", "Reads", "Bases", "On a target", "Targets with reads"]
    rows: list[list[Child]] = []
    for barcode in report.barcodes:
        reads, bases, *_ = counts = report.groups[barcode]
        on = int(reads[:-1].sum())
        rows.append([
            barcode or "none", f"{int(reads.sum()):,}", f"{int(bases.sum()):,}",
            percent(on, int(reads.sum())), f"{int((counts[0, :-1] > 0).sum()):,}",
        ])  # fmt: skip
    return table(head, rows, caption="Reads by barcode")


def pair_table(report: TargetReport) -> Markup:
    """Return a row per pair of barcode and target with anything seen, then the rest."""
    head: list[Child] = ["Barcode", "Target", "Reads", "Bases", "Breadth", "Depth", "K-mers seen"]
    rows: list[list[Child]] = []
    left = reads_left = 0
    ranked = report.ranked()
    for barcode in report.barcodes:
        lines = [*report.lines(barcode)]
        for at in [*ranked, -1]:
            line = lines[at]
            if not (line.reads or line.seen):
                continue
            if len(rows) == SHOWN_PAIRS:
                left, reads_left = left + 1, reads_left + line.reads
                continue
            known = line.target is not None
            rows.append([
                barcode or "none", line.target if known else "unassigned", f"{line.reads:,}",
                f"{line.bases:,}", *([ratio(line.breadth), ratio(line.depth), f"{line.seen:,}"]
                                     if known else [""] * 3),
            ])  # fmt: skip
    if left:
        rows.append([f"{left:,} more", "", f"{reads_left:,}", *[""] * 4])
    return table(head, rows, caption="Targets by barcode, where anything was seen", numbers_from=2)


def breadth_bar(breadth: float | None) -> Markup:
    """Return a bar as long as the share seen, next to the number."""
    if breadth is None:
        return Markup("")
    return tag(
        "svg",
        joined(tag("rect", width="100%", height=8, rx=2, class_="cell"),
               tag("rect", width=f"{100 * breadth:.2f}%", height=8, rx=2, class_="bar on")),
        width=96, height=8, aria_hidden="true", class_="inline",
    )  # fmt: skip
