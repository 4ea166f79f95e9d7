"""``streamer devices``: what it can run on."""

from __future__ import annotations

import typer


def devices() -> None:
    """List what this program can run on here."""
    from streamer.machine import memory_bytes, processor_name
    from trie.parallel import usable_cores

    typer.echo("#device\tname\tcores\tmemory_bytes")
    typer.echo(f"cpu\t{processor_name()}\t{usable_cores()}\t{memory_bytes()}")
    from gpu.device import devices as cuda_devices

    try:
        for device in cuda_devices():
            typer.echo(f"cuda:{device.number}\t{device.name}\t.\t{device.memory_bytes}")
    except RuntimeError as error:
        typer.echo(f"streamer: no CUDA: {error}", err=True)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("devices")(devices)
