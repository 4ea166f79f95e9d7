"""``streamer selftest``: whether it works here, how fast, and why not if it is slow."""

from typing import Annotated

import typer

from streamer.matching.spec import Device


def selftest(
    device: Annotated[
        Device, typer.Option(help="cpu, cuda (the CPU too), or all that works here.")
    ] = "auto",
) -> None:
    """Match synthetic reads with every engine and kernel, compare the results, and measure.

    One line for each test: what was tested, whether the results are right, and the measured and the
    expected speed. Exit 1 if a result is wrong.
    """
    from streamer import selftest as tests
    from streamer.device_choice import choose_device, cuda_problem
    from streamer.errors import StreamerError
    from trie.cpu.compiling import compile_notice

    problem = None
    if device != "cpu":
        problem = cuda_problem()
        if device == "cuda":
            choose_device("cuda")
    with compile_notice(quiet=False):
        outcomes = list(tests.on_cpu())
        if device != "cpu" and problem is None:
            outcomes += tests.on_cuda()
    for outcome in outcomes:
        typer.echo(outcome.line())
    if device == "auto" and problem is not None:
        typer.echo(f"cuda\tnot tested: {problem}")
    wrong = [outcome.what for outcome in outcomes if not outcome.right]
    if wrong:
        raise StreamerError(f"wrong results: {', '.join(wrong)}")
