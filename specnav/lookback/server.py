"""The look-back page's web server: loopback only, one walk. Needs starlette and uvicorn (the extra console)."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from evaluation.errors import EvaluationError
from harness.errors import UsageError
from spec_vlm_nav.console.access import check_origin
from spec_vlm_nav.console.web import HEADERS
from spec_vlm_nav.console.web import PAGE as CONSOLE_PAGE
from specnav.lookback.clip import make_clip
from specnav.lookback.labels import Labels
from specnav.lookback.walk import Walk

PAGE = Path(__file__).parent / "page"
FILES = {
    "/": PAGE / "lookback.html",
    "/lookback.js": PAGE / "lookback.js",
    "/lookback.css": PAGE / "lookback.css",
    "/console.css": CONSOLE_PAGE / "console.css",
    "/cards.js": CONSOLE_PAGE / "cards.js",
}
MOST_BYTES = 10_000


def make_app(walk: Walk, labels: Labels) -> Starlette:
    """The page, the walk as JSON, its pictures, labels and clips."""

    def file(path: Path) -> Callable[[Request], Any]:
        async def serve(request: Request) -> Response:
            return FileResponse(path, headers=HEADERS)

        return serve

    def told() -> dict[str, Any]:
        return {**walk.told(), "labels": {str(stamp): action for stamp, action in labels.by_stamp.items()}}

    async def whole(request: Request) -> Response:
        return JSONResponse(told(), headers=HEADERS)

    async def picture(request: Request) -> Response:
        data = walk.pictures.get(int(request.path_params["number"]))
        if data is None:
            return Response("no such picture", 404, HEADERS)
        kind = "image/png" if data[:4] == b"\x89PNG" else "image/jpeg"
        return Response(data, media_type=kind, headers={**HEADERS, "Cache-Control": "max-age=3600"})

    async def label(request: Request) -> Response:
        wrong = check_origin(request.headers.get("origin"), request.headers.get("host"), True)
        if wrong:
            return JSONResponse({"why": wrong}, 403, HEADERS)
        try:
            body = await request.body()
            if len(body) > MOST_BYTES:
                raise ValueError
            said = await request.json()
            labels.put(int(said["stamp_ns"]), str(said["action"]))
        except EvaluationError as error:
            return JSONResponse({"why": str(error)}, 400, HEADERS)
        except (ValueError, KeyError, TypeError):
            return JSONResponse({"why": "give stamp_ns and action"}, 400, HEADERS)
        return JSONResponse(
            {str(stamp): action for stamp, action in labels.by_stamp.items()}, headers=HEADERS
        )

    async def clip(request: Request) -> Response:
        try:
            begin, end = (float(request.query_params[name]) for name in ("from", "to"))
            data = make_clip(walk, begin, end)
        except (KeyError, ValueError):
            return JSONResponse({"why": "give from and to, in seconds"}, 400, HEADERS)
        except EvaluationError as error:
            return JSONResponse({"why": str(error)}, 400, HEADERS)
        named = {"Content-Disposition": f'attachment; filename="clip-{begin:.0f}-{end:.0f}.gif"'}
        return Response(data, media_type="image/gif", headers={**HEADERS, **named})

    routes = [Route(path, file(where)) for path, where in FILES.items()]
    routes += [
        Route("/walk.json", whole),
        Route("/frames/{number:int}", picture),
        Route("/label", label, methods=["POST"]),
        Route("/clip.gif", clip),
    ]
    return Starlette(routes=routes)


def serve(walk: Walk, labels: Labels, port: int, say: Callable[[str], None]) -> None:
    """Serve until Ctrl-C. Raises UsageError where the port cannot be had."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
    except OSError as error:
        listening.close()
        raise UsageError(f"port {port}: {error.strerror}; give another with --port") from error
    say(f"look back: http://127.0.0.1:{listening.getsockname()[1]}/ (Ctrl-C ends it)")
    config = uvicorn.Config(make_app(walk, labels), log_level="warning", server_header=False)
    uvicorn.Server(config).run(sockets=[listening])
