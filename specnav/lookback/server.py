# SPDX-License-Identifier: Apache-2.0
"""Web server of the look-back page: loopback only, for one walk. Needs starlette and uvicorn (the extra console)."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from spec_vlm_nav.console.access import check_origin
from spec_vlm_nav.console.web import HEADERS
from spec_vlm_nav.console.web import PAGE as CONSOLE_PAGE
from specnav.bounded_http import bounded_config
from specnav.errors import UsageError
from specnav.lookback.clip import MEDIA_TYPES, make_clip
from specnav.lookback.replay_runner import ReplayRunner, offered_methods
from specnav.lookback.walk import Labels, Walk
from specnav.results.errors import EvaluationError

PAGE = Path(__file__).parent / "page"
FILES = {
    "/": PAGE / "lookback.html",
    "/lookback.js": PAGE / "lookback.js",
    "/lookback.css": PAGE / "lookback.css",
    "/console.css": CONSOLE_PAGE / "console.css",
    "/cards.js": CONSOLE_PAGE / "cards.js",
}
MOST_BYTES = 10_000
OWN_NAMES = ["127.0.0.1", "localhost"]


def make_app(walk: Walk, labels: Labels, again: ReplayRunner) -> Starlette:
    """The web application: the page, the walk as JSON, its pictures, labels and clips, and replays."""

    def file(path: Path) -> Callable[[Request], Any]:
        async def serve(request: Request) -> Response:
            return FileResponse(path, headers=HEADERS)

        return serve

    clips = asyncio.Semaphore(1)  # one at a time, because a clip uses a whole core

    def told() -> dict[str, Any]:
        return {**walk.told(), "labels": labels_told(), "methods": offered_methods()}

    def labels_told() -> dict[str, str]:
        return {str(stamp): action for stamp, action in labels.by_stamp.items()}

    async def whole(request: Request) -> Response:
        return JSONResponse(told(), headers=HEADERS)

    async def picture(request: Request) -> Response:
        data = walk.pictures.get(int(request.path_params["number"]))
        if data is None:
            return Response("no such picture", 404, HEADERS)
        kind = "image/png" if data[:4] == b"\x89PNG" else "image/jpeg"
        return Response(data, media_type=kind, headers={**HEADERS, "Cache-Control": "max-age=3600"})

    async def label(request: Request) -> Response:
        def put(said: dict[str, Any]) -> dict[str, Any]:
            labels.put(int(said["stamp_ns"]), str(said["action"]))
            return labels_told()

        return await _posted(request, put, "give stamp_ns and action")

    async def decide(request: Request) -> Response:
        def act(said: dict[str, Any]) -> dict[str, Any]:
            if said.get("cancel") is True:
                again.cancel()
            else:
                again.start(str(said["method"]))
            return again.told()

        return await _posted(request, act, "give method, or cancel")

    async def decided(request: Request) -> Response:
        since = request.query_params.get("since", "0")
        if not since.isascii() or not since.isdigit() or len(since) > 9:
            return JSONResponse({"why": "since is a number from 0"}, 400, HEADERS)
        return JSONResponse(again.told(int(since)), headers=HEADERS)

    async def clip(request: Request) -> Response:
        kind = f".{request.path_params['kind']}"
        try:
            begin, end = (float(request.query_params[name]) for name in ("from", "to"))
            async with clips:
                data = await run_in_threadpool(make_clip, walk, begin, end, kind)
        except (KeyError, ValueError):
            return JSONResponse({"why": "give from and to, in seconds"}, 400, HEADERS)
        except EvaluationError as error:
            return JSONResponse({"why": str(error)}, 400, HEADERS)
        named = {"Content-Disposition": f'attachment; filename="clip-{begin:.0f}-{end:.0f}{kind}"'}
        return Response(data, media_type=MEDIA_TYPES[kind], headers={**HEADERS, **named})

    routes = [Route(path, file(where)) for path, where in FILES.items()]
    routes += [
        Route("/walk.json", whole),
        Route("/frames/{number:int}", picture),
        Route("/label", label, methods=["POST"]),
        Route("/again", decided),
        Route("/again", decide, methods=["POST"]),
        Route("/clip.{kind}", clip),
    ]
    # Checks the host name, against DNS rebinding by other pages.
    return Starlette(routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=OWN_NAMES)])


async def _posted(request: Request, act: Callable[[dict[str, Any]], dict[str, Any]], wanted: str) -> Response:
    """Answer a page's POST request; an error is one line. wanted: the message for a malformed request."""
    if wrong := check_origin(request.headers.get("origin"), request.headers.get("host"), True):
        return JSONResponse({"why": wrong}, 403, HEADERS)
    try:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > MOST_BYTES:
                raise ValueError
        said = json.loads(body)
        if not isinstance(said, dict):
            raise ValueError
        return JSONResponse(act(said), headers=HEADERS)
    except EvaluationError as error:
        return JSONResponse({"why": str(error)}, 400, HEADERS)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return JSONResponse({"why": wanted}, 400, HEADERS)


def serve(walk: Walk, labels: Labels, again: ReplayRunner, port: int, say: Callable[[str], None]) -> None:
    """Serve until Ctrl-C. Raises UsageError if the port is not available."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
        listening.listen(64)  # so that a port in use fails here, not with a traceback later
    except OSError as error:
        listening.close()
        raise UsageError(f"port {port}: {error.strerror}; give another with --port") from error
    say(f"look back: http://127.0.0.1:{listening.getsockname()[1]}/ (Ctrl-C ends it)")
    config = bounded_config(make_app(walk, labels, again), own_files=64)
    try:
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        again.close()
