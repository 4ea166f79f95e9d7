"""``streamer devices``: what it can run on."""

import json

import typer

from streamer.cli.choices import FormatOption, say

COLUMNS = ("device", "name", "cores", "memory_bytes")


def devices(context: typer.Context, format_: FormatOption = "tsv") -> None:
    """List what this program can run on here.

    One row for the CPU, then one for each CUDA device (without cores).
    """
    from gpu.card.device import devices as cuda_devices
    from trie.cpu.machine import memory_bytes, processor_name
    from trie.cpu.threads import usable_cores

    rows: list[tuple[str, str, int | None, int]] = [
        ("cpu", processor_name(), usable_cores(), memory_bytes())
    ]
    problem = None
    try:
        rows += [
            (f"cuda:{device.number}", device.name, None, device.memory_bytes)
            for device in cuda_devices()
        ]
    except RuntimeError as error:
        problem = error
    if format_ == "jsonl":
        for row in rows:
            typer.echo(json.dumps(dict(zip(COLUMNS, row, strict=True))))
    else:
        typer.echo("#" + "\t".join(COLUMNS))
        for row in rows:
            typer.echo("\t".join("." if value is None else str(value) for value in row))
    if problem is not None:
        say(f"no CUDA: {problem}")
    if context.obj:  # --debug
        from streamer.protocol.transport.frames import LIBZMQ, LIBZMQ_MEMORY
        from streamer.protocol.wire import ISA_L
        from streamer.sequences.bgzf import INFLATE

        for borrowed in (LIBZMQ, LIBZMQ_MEMORY, ISA_L, INFLATE):
            say(f"{borrowed.library} symbols: {borrowed.choice}")
