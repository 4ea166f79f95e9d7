"""The routes of the page."""

from __future__ import annotations

from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from streamer.client import DaemonError, RefusedError
from streamer.daemon.control import MAX_BINS
from streamer.web.broadcast import Broadcast
from streamer.web.following import Follower

STATIC = Path(__file__).parent / "static"
_BINS = 200


def make_app(broadcast: Broadcast, follower: Follower) -> Starlette:
    """The page, its files, its events, and the coverage of a target on request."""

    async def page(request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def events(request: Request) -> Response:
        if broadcast.full:
            return JSONResponse({"problem": "too many pages are open"}, 503)
        return StreamingResponse(broadcast.events(), media_type="text/event-stream")

    async def coverage(request: Request) -> Response:
        target, bins = request.query_params.get("target", ""), request.query_params.get("bins", "")
        if bins and not (bins.isdecimal() and len(bins) < 10 and 1 <= int(bins) <= MAX_BINS):
            return JSONResponse({"problem": f"bins must be 1 to {MAX_BINS}"}, 400)
        try:
            rows = await follower.coverage(target, int(bins or _BINS))
        except RefusedError as error:
            return JSONResponse({"problem": str(error)}, 404)
        except DaemonError as error:
            return JSONResponse({"problem": str(error)}, 503)
        return JSONResponse({"target": target, "rows": rows})

    return Starlette(
        routes=[
            Route("/", page),
            Route("/events", events),
            Route("/coverage", coverage),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
    )
