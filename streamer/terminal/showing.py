"""The page of one daemon, until that ends, is lost, or the user leaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection

from streamer.client.client_errors import DaemonFailedError, RefusedError
from streamer.client.control import Control
from streamer.matching.target_tally import Panel
from streamer.protocol.endpoints import reachable
from streamer.protocol.keys import ClientKeys
from streamer.terminal.top_page import TopPage, reader
from streamer.web.following import Follower
from streamer.web.model import RunModel


def show(
    control: Control, keys: ClientKeys | None, seconds: float, signals: Collection[int]
) -> bool:
    """Show the page of the daemon that answers on ``control``; whether the daemon has ended.

    keys: of this client, also for the feed. seconds: between two requests. signals: the page ends
    once there is one.

    DaemonError: nobody answers, or the daemon is lost or has failed. KeyboardInterrupt: by Ctrl-C.
    """
    status = control.status()
    try:
        panel = Panel(**control.panel())
    except RefusedError:
        # a daemon of an earlier version does not say what is enough
        panel = Panel()
    model = RunModel(panel)
    feed = reachable(status["endpoints"]["feed"], control.endpoint)
    asyncio.run(_show(model, feed, control, keys, seconds, signals))
    if model.ended == "failed":
        raise DaemonFailedError(feed)
    return bool(model.ended)


async def _show(
    model: RunModel,
    feed: str,
    control: Control,
    keys: ClientKeys | None,
    seconds: float,
    signals: Collection[int],
) -> None:
    page = TopPage(
        reader(model),
        lambda: bool(signals or model.ended or follower.error or following.done()),
    )
    follower = Follower(model, feed, control.endpoint, page.note_change, keys, seconds=seconds)
    following = asyncio.create_task(follower.run())
    try:
        await page.run_async()
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
    if page.interrupted:
        raise KeyboardInterrupt
    if follower.error is not None and not model.ended:
        raise follower.error
