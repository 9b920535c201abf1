# SPDX-License-Identifier: Apache-2.0
"""The routes: a request is authorised, read, queued, answered whole or streamed, and logged in one line."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from cloud_verifier.logs import EventLog
from cloud_verifier.observing.counts import SLOW_S, STUCK_S
from specdec.link.binding import is_loopback
from specnav.api import replies
from specnav.api.answer import AnswerOutcome, ApiAnswer, Piece
from specnav.api.asking.asked import ApiRequest, Kind, chat_asked, completion_asked
from specnav.api.asking.bodies import ChatBody, CompletionBody, read_body, too_deep
from specnav.api.config import ApiConfig
from specnav.api.counters import Counters
from specnav.api.edge_pool import EdgePool
from specnav.api.errors import CLIENT_GONE, ApiError
from specnav.api.keys import ApiKeys
from specnav.api.request_queue import RequestQueue

Say = Callable[[bytes, bool], Awaitable[None]]

READING = ["GET", "HEAD"]
EVENT_EVERY_S = 0.02
EVENTS_PER_S = 200
"""The first text of an answer is sent at once. Later text is collected for EVENT_EVERY_S per event, or longer if many
answers stream: all together send at most EVENTS_PER_S events a second.
"""
_READ_ASIDE_BYTES = 1 << 17


@dataclass
class RequestRecord:
    """Log fields of a request."""

    route: str
    client: str
    began_s: float
    status: int = 200
    stream: bool = False
    first_s: float | None = None
    outcome: AnswerOutcome | None = None
    code: str | None = None
    text: str = ""


class Routes:
    """The server's request handlers. keys: None: any process on this machine may ask."""

    def __init__(
        self,
        config: ApiConfig,
        pool: EdgePool,
        queue: RequestQueue,
        keys: ApiKeys | None,
        counters: Counters,
        log: EventLog,
        workers_wrong: Callable[[], str] = lambda: "",
    ) -> None:
        """workers_wrong: see `Launcher.wrong`."""
        self._workers_wrong = workers_wrong
        self._config = config
        self._pool = pool
        self._queue = queue
        self._keys = keys
        self._counters = counters
        self._log = log
        self._since = int(time.time())

    def app(self) -> FastAPI:
        """The application, without documentation pages: those would load scripts from other sites."""
        app = FastAPI(title="specnav api", docs_url=None, redoc_url=None, openapi_url=None)
        app.add_api_route("/v1/chat/completions", self.chat, methods=["POST"])
        app.add_api_route("/v1/completions", self.completion, methods=["POST"])
        app.add_api_route("/v1/models", self.models, methods=READING)
        app.add_api_route("/v1/models/{name:path}", self.model, methods=READING)
        app.add_api_route("/healthz", self.health, methods=READING)
        app.add_api_route("/readyz", self.ready, methods=READING)
        if self._config.metrics:
            app.add_api_route("/metrics", self.metrics, methods=READING)
        app.add_exception_handler(ApiError, refused)
        app.add_exception_handler(HTTPException, no_such_page)
        app.add_exception_handler(Exception, self.failed)
        return app

    async def health(self, request: Request) -> Response:
        """Whether this server works, regardless of the verifier."""
        self._check_site(request)
        wrong = self._pool.stuck(STUCK_S) or self._workers_wrong()
        return self._state(wrong)

    async def ready(self, request: Request) -> Response:
        """Whether it accepts requests and its loops run."""
        self._check_site(request)
        ends = "the server is shutting down" if self._queue.closed else ""
        return self._state(ends or self._pool.stuck(SLOW_S) or self._workers_wrong())

    def _state(self, wrong: str) -> Response:
        state = {"status": wrong or "ok", "answers": self._queue.busy, "waiting": self._queue.waiting}
        return JSONResponse(state, 503 if wrong else 200)

    async def metrics(self, request: Request) -> Response:
        """Counters, for Prometheus."""
        self._check_site(request)
        return Response(self._counters.page(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def models(self, request: Request) -> Response:
        """The list of the one model."""
        self._owner(request)
        return JSONResponse(replies.models(await self._pool.told_name(), self._since))

    async def model(self, request: Request, name: str) -> Response:
        """The model with this name."""
        self._owner(request)
        ours = await self._pool.told_name()
        if not await self._pool.is_called(name):
            raise no_model(name, ours)
        return JSONResponse(replies.model(ours, self._since))

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        return await self._answered(request, "chat")

    async def completion(self, request: Request) -> Response:
        """POST /v1/completions."""
        return await self._answered(request, "text")

    async def _answered(self, request: Request, kind: Kind) -> Response:
        """Answer a request; every request is logged in one line, whatever its result."""
        record = RequestRecord(request.url.path, "", time.perf_counter())
        try:
            record.client = self._owner(request)
            self._queue.check()  # before a long body is read in vain
            asked = await self._asked(request, kind)
            record.stream = asked.stream
            if not await self._pool.is_called(asked.model):
                raise no_model(asked.model, self._pool.name)
            async with watched(request) as gone:
                answer = await self._started(asked, record.client, gone)
                shapes = replies.Shapes(asked, asked.model)
                if asked.stream:
                    first = await unless(gone, answer.next(), answer)
                    record.first_s = time.perf_counter()
                    return EventResponse(
                        lambda say: self._events(answer, shapes, first, record, say),
                        lambda: self._left(answer, record),
                    )
                piece = await unless(gone, answer.whole(), answer)
            outcome = answer.ended
            assert isinstance(outcome, AnswerOutcome)
            if outcome.finish is None:
                raise ended_early()
            record.outcome, record.text = outcome, piece.text
            self._write(record)
            return JSONResponse(shapes.whole(piece, outcome))
        except ApiError as error:
            record.status, record.code = error.status, error.code
            self._write(record)
            raise
        except asyncio.CancelledError:
            record.status = CLIENT_GONE
            self._write(record)
            raise
        except Exception:
            record.status = 500
            self._write(record)
            raise

    async def failed(self, request: Request, error: Exception) -> Response:
        """The response for an error that nothing else handles."""
        self._log.error("request_failed", traceback=self._log.trace_of(error))
        return await refused(request, ApiError(500, f"the server failed on this request ({type(error).__name__})"))

    async def _events(
        self, answer: ApiAnswer, shapes: replies.Shapes, piece: Piece | None, record: RequestRecord, say: Say
    ) -> None:
        """Stream an answer, starting with its first piece; the last text is sent together with the end."""
        record.status = CLIENT_GONE
        ready = b""
        try:
            while piece is not None:
                if self._config.log_contents:
                    record.text += piece.text
                ready += replies.event(shapes.part(piece))
                if answer.ended is None:
                    await say(ready, True)
                    ready = b""
                    await answer.rest(max(EVENT_EVERY_S, self._queue.busy / EVENTS_PER_S))
                piece = await answer.next()
            outcome = answer.ended
            assert isinstance(outcome, AnswerOutcome)
            if outcome.finish is None:
                raise ended_early()
            record.outcome = outcome
            ready += b"".join(map(replies.event, shapes.last(outcome))) + replies.DONE
            record.status = 200
        except ApiError as error:  # the status was sent already: report the error as an event
            record.status, record.code = error.status, error.code
            ready += replies.event(error.body)
        await say(ready, False)

    def _left(self, answer: ApiAnswer, record: RequestRecord) -> None:
        """The response is over, because all was sent or the client has gone."""
        answer.cancel.set()
        self._write(record)

    async def _started(self, asked: ApiRequest, owner: str, gone: asyncio.Event) -> ApiAnswer:
        """Start an answer once the queue has a place for it."""
        await unless(gone, self._pool.compiled(asked, owner))
        await unless(gone, self._queue.take())
        return self._pool.start(asked, owner, self._queue.give_back)

    def _owner(self, request: Request) -> str:
        """Owner of a request. Raises ApiError for a missing or wrong key."""
        if self._keys is not None:
            return self._keys.owner(request.headers.get("authorization", ""))
        self._check_site(request)
        return ""

    def _check_site(self, request: Request) -> None:
        """Without API keys, raise ApiError for requests that a browser on this machine sends for another site's page.
        """
        if self._keys is not None:
            return
        host = request.headers.get("host", "localhost")
        # Against DNS rebinding: another site's name may resolve to this machine.
        if not is_loopback(_with_port(host)):
            raise ApiError(403, f"without API keys only local host names are served, not {host[:100]}")
        origin = request.headers.get("origin")
        if origin is not None and not is_loopback(_with_port(origin.partition("://")[2])):
            raise ApiError(403, f"without API keys pages of other sites, such as {origin[:100]}, are not served")
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin", "same-site"):
            raise ApiError(403, "without API keys pages of other sites are not served")

    async def _asked(self, request: Request, kind: Kind) -> ApiRequest:
        """Read and check the body; a long one is parsed in another thread. Raises ApiError."""
        kind_of_body = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind_of_body != "application/json":  # other types can come from a form without a CORS preflight
            shown = kind_of_body[:100] or "none"
            raise ApiError(415, f"Content-Type must be application/json, got {shown}", code="unsupported_media_type")
        data = await self._body(request)
        if len(data) < _READ_ASIDE_BYTES:
            return self._read(data, kind)
        return await asyncio.get_running_loop().run_in_executor(None, self._read, data, kind)

    def _read(self, data: bytes, kind: Kind) -> ApiRequest:
        try:
            if kind == "chat":
                return chat_asked(read_body(data, ChatBody), self._config.max_tokens)
            return completion_asked(read_body(data, CompletionBody))
        except RecursionError:
            raise too_deep() from None

    async def _body(self, request: Request) -> bytes:
        most = self._config.max_body_bytes
        told = request.headers.get("content-length", "0")
        found = bytearray()
        if told.isdecimal() and int(told) <= most:
            try:
                async for part in request.stream():
                    found += part
                    if len(found) > most:
                        break
                else:
                    return bytes(found)
            except ClientDisconnect:
                raise left() from None
        raise ApiError(413, f"the request is longer than {most} bytes: send smaller pictures", code="too_large")

    def _write(self, record: RequestRecord) -> None:
        """Log a request and count it."""
        now = time.perf_counter()
        outcome = record.outcome
        fields: dict[str, Any] = {"route": record.route, "status": record.status, "stream": record.stream}
        fields |= {"client": record.client} if record.client else {}
        fields |= {"code": record.code} if record.code else {}
        if record.first_s is not None:
            fields["first_ms"] = round((record.first_s - record.began_s) * 1e3, 1)
        fields["ms"] = round((now - record.began_s) * 1e3, 1)
        if outcome is not None:
            fields |= {"finish": outcome.finish, "prompt_tokens": outcome.prompt_tokens}
            fields |= {"tokens": outcome.stats.tokens, "rounds": len(outcome.stats.rounds)}
            fields |= {"drafted": outcome.drafted, "accepted": outcome.accepted}
            fields |= {"resumes": outcome.stats.resumes} if outcome.stats.resumes else {}
        if self._config.log_contents:
            fields["answer"] = record.text
        self._counters.request(record.status, now - record.began_s, outcome)
        self._log.info("request", **fields)


def _with_port(host: str) -> str:
    return host if ":" in host.rpartition("]")[2] else f"{host}:80"


class EventResponse(Response):
    """Server-sent events. `events` sends them by calling its argument with (bytes, whether more follow) until it ends
    or the client goes away; `ended` is always called afterwards.
    """

    media_type = "text/event-stream"

    def __init__(self, events: Callable[[Say], Awaitable[None]], ended: Callable[[], None]) -> None:
        # Keep browsers and proxies from buffering events.
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]  # the length of a stream is unknown
        self._events = events
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""

        async def say(data: bytes, more: bool) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": more})

        async def send_all() -> None:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._events(say)

        sending, leaving = asyncio.ensure_future(send_all()), asyncio.ensure_future(left_by(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            sending.cancel()
            leaving.cancel()
            self._ended()


async def refused(request: Request, error: Exception) -> Response:
    """The response for an ApiError."""
    assert isinstance(error, ApiError)
    return JSONResponse(error.body, error.status, error.headers)


async def no_such_page(request: Request, error: Exception) -> Response:
    """The response for an error of the framework, in the same shape."""
    assert isinstance(error, HTTPException)
    code = "method_not_allowed" if error.status_code == 405 else "unknown_url"
    said = ApiError(error.status_code, f"{request.method} {request.url.path[:100]}: {error.detail}", code=code)
    return JSONResponse(said.body, said.status, error.headers)


def no_model(name: str, ours: str) -> ApiError:
    """The error for an unknown model name."""
    return ApiError(404, f"there is no model {name[:100]!r} here, only {ours!r}", param="model", code="model_not_found")


def left() -> ApiError:
    """The error for a client that has gone."""
    return ApiError(CLIENT_GONE, "the client has gone away", code="client_gone")


def ended_early() -> ApiError:
    """The error for an answer that the server's shutdown cut short."""
    return ApiError(503, "the server is shutting down: the answer is not complete", code="shutting_down")


@contextlib.asynccontextmanager
async def watched(request: Request) -> AsyncIterator[asyncio.Event]:
    """Yields an event that is set when the client goes away. The body must have been read."""
    gone = asyncio.Event()

    async def watch() -> None:
        await left_by(request.receive)
        gone.set()

    task = asyncio.ensure_future(watch())
    try:
        yield gone
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def left_by(receive: Receive) -> None:
    """Return when the client has gone away. The body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless(gone: asyncio.Event, doing: Any, answer: ApiAnswer | None = None) -> Any:
    """The result of `doing`. If the client goes away first, cancel it and the answer, and raise ApiError."""
    work, leaves = asyncio.ensure_future(doing), asyncio.ensure_future(gone.wait())
    try:
        await asyncio.wait((work, leaves), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        raise left()
    finally:
        leaves.cancel()
        if not work.done():
            work.cancel()
            if answer is not None:
                answer.cancel.set()


