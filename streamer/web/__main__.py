"""The process of the live page: ``python -m streamer.web``, its task on standard input.

The daemon starts it (``streamer.daemon.child``) and ends it by closing its standard input.
"""

import asyncio
import os
import signal
import socket
import sys
import time

import uvicorn

from streamer.daemon import logs
from streamer.daemon.process import UNBEGUN_ENDS, WebTask, give_way
from streamer.protocol.endpoints import Hosts, split_http_address
from streamer.protocol.keys import ClientKeys
from streamer.web import routes
from streamer.web.follower import Follower, steady
from streamer.web.model import Fields, RunModel

NICE = 10

# between the end of the daemon's words and that of the process: pages show the end
_END_SECONDS = 0.5
# for the follower to close its sockets
_CLOSING_SECONDS = 0.1


async def serve(task: WebTask) -> None:
    """Serve the page until standard input ends."""
    model = RunModel()
    broadcast = routes.Broadcast(lambda: _event("everything", model.everything(steady())))
    follower = Follower(
        model,
        task.feed,
        task.control,
        lambda: broadcast.send(_event("tick", model.tick(steady()))),
        None if task.keys is None else ClientKeys(**task.keys),
    )
    token = routes.Token(task.token, split_http_address(task.endpoint)[1])
    login = (routes.STATIC / "login.html").read_bytes()
    app = routes.Guard(
        routes.make_app(broadcast, follower), Hosts(task.endpoint, task.hosts), token, login
    )
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=routes.REQUEST_SECONDS,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=1 << 14,
            http=routes.RequestTimed,
            ws="none",
        )
    )
    following = asyncio.create_task(follower.run())
    serving = asyncio.create_task(server.serve([socket.socket(fileno=task.listener)]))
    ending = asyncio.create_task(_end_of_input())
    try:
        await asyncio.wait({following, serving, ending}, return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            await asyncio.sleep(_END_SECONDS)
    finally:
        broadcast.end()
        server.should_exit = True
        following.cancel()
        await asyncio.wait({following}, timeout=_CLOSING_SECONDS)
        await serving
    if following.done() and not following.cancelled():
        # it never returns: this raises what it ended with
        following.result()


def _event(name: str, fields: Fields) -> bytes:
    """An event; began: when the clock of its times was 0, in seconds since 1970."""
    return routes.event(name, fields | {"began": round(time.time() - steady(), 1)})


async def _end_of_input() -> None:
    """Return once the daemon has closed its end."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def look() -> None:
        if not os.read(sys.stdin.fileno(), 1 << 16):
            loop.remove_reader(sys.stdin.fileno())
            ended.set()

    loop.add_reader(sys.stdin.fileno(), look)
    await ended.wait()


def main() -> None:
    """The body of the process."""
    # the daemon says when to end; from here on by standard input
    for number in (signal.SIGINT, UNBEGUN_ENDS):
        signal.signal(number, signal.SIG_IGN)
    give_way(NICE)
    task = WebTask.from_json(sys.stdin.readline())
    logs.configure(task.level, task.format)
    asyncio.run(serve(task))
    # not after the thread that waits for control, which a daemon that ends no longer answers
    os._exit(0)


if __name__ == "__main__":
    main()
