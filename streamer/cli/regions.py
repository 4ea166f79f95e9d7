"""``streamer regions``: regions of a reference as FASTA, to be the targets of a panel."""

from typing import Annotated

import typer

from streamer.cli.choices import check_files
from streamer.output.output_file import OutputFile


def regions(
    bed: Annotated[str, typer.Argument(metavar="BED", help="Regions: record, start, end, name.")],
    reference: Annotated[
        str, typer.Option("--reference", "-r", metavar="FASTX", help="What they are regions of.")
    ],
    amplicons: Annotated[
        bool,
        typer.Option(
            "--amplicons",
            help="The lines are primers, NAME_LEFT and NAME_RIGHT: a region is from one to the "
            "other.",
        ),
    ] = False,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="Write FASTA there.")
    ] = None,
) -> None:
    """Write regions of a reference as FASTA, a record each: targets for match and the daemon."""
    from streamer.dictionary.regions import records_of

    check_files([bed, reference], output)
    with OutputFile(output, verb="cannot write regions") as file:
        for name, letters, region in records_of(bed, reference, amplicons=amplicons):
            place = f"{region.record}:{region.start}-{region.end}"
            file.write(f">{name} {place}\n{letters}\n".encode())
