"""What a page of another site, or a number that is none, gets of `specnav api`: a refusal in OpenAI's form."""

# ruff: noqa: E501 (requests and what they ask for stand on one line)

from __future__ import annotations

import asyncio
import io
import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cloud_verifier.logs import EventLog
from specnav.api import replies
from specnav.api.app import Routes
from specnav.api.config import ApiConfig
from specnav.api.counters import Counters
from specnav.api.errors import ApiError
from specnav.api.keys import ApiKeys, new_key
from specnav.api.request_queue import RequestQueue

BODY = {"model": "m", "messages": [{"role": "user", "content": "a"}]}
JSON = {"content-type": "application/json", "host": "127.0.0.1:8000"}



class Nobody:
    """A house that answers nothing."""

    name = "m"

    async def is_called(self, model: str) -> bool:
        return True

    async def told_name(self) -> str:
        return "m"

    async def compiled(self, asked: Any, owner: str) -> None: ...

    def start(self, asked: Any, *_: Any) -> Any:
        raise ApiError(418, "it would be answered")


def ask(
    headers: dict[str, str],
    fields: Any = None,
    method: str = "POST",
    path: str = "/v1/chat/completions",
    keys: Any = None,
) -> tuple[int, dict[str, Any]]:
    """The status and the error of a request."""
    desk = RequestQueue(4, 4)
    config = ApiConfig("tcp://a:1", metrics=True)
    counters = Counters(None, lambda: 0, lambda: 0)  # type: ignore[arg-type]
    log = EventLog(io.StringIO())
    app = Routes(config, Nobody(), desk, keys, counters, log).app()  # type: ignore[arg-type]
    data = fields if isinstance(fields, bytes) else json.dumps({**BODY, **(fields or {})}).encode()
    coming = [{"type": "http.request", "body": data}, {"type": "http.disconnect"}]
    said: list[Any] = []

    async def receive() -> Any:
        return coming.pop(0) if len(coming) > 1 else await asyncio.sleep(5, coming[0])

    async def send(message: Any) -> None:
        said.append(message)

    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
        "root_path": "", "scheme": "http", "http_version": "1.1", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    with suppress(ZeroDivisionError):  # passed on once it is answered
        asyncio.run(app(scope, receive, send))
    body = b"".join(message.get("body", b"") for message in said)
    told = json.loads(body) if body.startswith(b"{") else {}
    error = told.get("error", {})
    return said[0]["status"], error | {"headers": dict(said[0]["headers"])} if error else error


def test_a_proper_request_comes_through() -> None:
    assert ask(JSON)[0] == 418
    for kind in ("application/json; charset=utf-8", "Application/JSON"):
        assert ask({**JSON, "content-type": kind})[0] == 418
    for origin in ("http://localhost:3000", "http://127.0.0.1", "http://[::1]:80"):
        assert ask({**JSON, "origin": origin})[0] == 418


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a", "", "text/json"],
)
def test_a_body_that_a_form_could_have_sent_is_refused_with_and_without_keys(
    kind: str, tmp_path: Path
) -> None:
    headers = {**JSON, "content-type": kind} if kind else {"host": "localhost"}
    status, error = ask(headers)
    assert (
        status == 415 and error["code"] == "unsupported_media_type" and "application/json" in error["message"]
    )
    secret = new_key(tmp_path / "keys", "anna")
    keys = ApiKeys(tmp_path / "keys", EventLog(io.StringIO()))
    assert ask({**headers, "authorization": f"Bearer {secret}"}, keys=keys)[0] == 415


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://[::1"},
        {"origin": "http://127.0.0.1.evil.example"},
        {"host": "evil.example"},
        {"host": "evil.example:8000"},
        {"host": "127.0.0.1.evil.example:8000"},
        {"sec-fetch-site": "cross-site"},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/chat/completions"), ("GET", "/v1/models"), ("GET", "/metrics"), ("GET", "/healthz")],
)
def test_pages_of_other_sites_get_nothing_where_nobody_has_a_key(
    headers: dict[str, str], method: str, path: str
) -> None:
    assert ask({**JSON, **headers}, method=method, path=path)[0] == 403


@pytest.mark.slow
@pytest.mark.parametrize("field", ["response_format", "tools", "metadata", "foo", "logit_bias"])
def test_a_body_that_is_nested_deeply_is_refused_wherever_that_shows(field: str) -> None:
    """A body may be just shallow enough to be decoded, and too deep to be written or shown again."""
    for deep in range(700, 1000, 2):
        value = "[" * deep + "]" * deep
        if field == "response_format":
            value = f'{{"type": "json_schema", "json_schema": {{"schema": {{"enum": {value}}}}}}}'
        status, error = ask(JSON, (json.dumps(BODY)[:-1] + f', "{field}": {value}}}').encode())
        assert status in (400, 418), error


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/completions"), ("OPTIONS", "/v1/models"), ("PUT", "/healthz")])
def test_a_wrong_method_is_told_the_right_ones(method: str, path: str) -> None:
    status, error = ask(JSON, method=method, path=path)
    assert status == 405 and error["code"] == "method_not_allowed"
    right = {"POST"} if path == "/v1/completions" else {"GET", "HEAD"}
    assert set(error["headers"][b"allow"].decode().split(", ")) == right


def test_a_long_address_is_told_shortened() -> None:
    status, error = ask(JSON, method="GET", path="/" + "a" * 20_000)
    assert status == 404 and error["code"] == "unknown_url" and len(error["message"]) < 200


def test_an_error_that_nothing_expects_is_told_in_the_same_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "models", lambda *_: 1 / 0)
    status, error = ask(JSON, method="GET", path="/v1/models")
    assert status == 500 and "ZeroDivisionError" in error["message"]


def test_what_is_read_answers_head_too() -> None:
    assert ask(JSON, method="HEAD", path="/v1/models")[0] == 200


def test_with_keys_a_host_may_have_any_name(tmp_path: Path) -> None:
    secret = new_key(tmp_path / "keys", "anna")
    headers = {
        **JSON,
        "host": "api.example",
        "origin": "https://app.example",
        "authorization": f"Bearer {secret}",
    }
    assert ask(headers, keys=ApiKeys(tmp_path / "keys", EventLog(io.StringIO())))[0] == 418


RANGES = {
    "top_p": (-1, -0.01, 1.01, 1e308, "0.5", True, [1]),
    "temperature": (-0.1, 2.01, 1e308, "1", True),
    "top_k": (-1, -(2**40), 2**40, 2**70, 1.5, "5", True),
    "min_p": (-0.1, 1.1, "0", True),
    "repetition_penalty": (0, -1, 0.001, 101, 1e300, "1", True),
    "max_tokens": (0, -1, 2**21, 2**70, 1.5, "5", True),
    "max_completion_tokens": (0, -1, 2**21, True),
    "min_tokens": (-1, 2**21, 2**70, "1", True),
    "seed": (2**63, -(2**63) - 1, 2**200, 1.5, "1", True),
    "n": (0, -1, 2, 2**70, "1", True),
    "presence_penalty": (-3, 0.5, "0", True),
    "frequency_penalty": (-3, 0.5, "0", True),
    "top_logprobs": (-1, 5, 2**70, True),
    "logprobs": (5, -1, "1"),
    "logit_bias": (
        {"1": 101},
        {"1": -1e9},
        {"1": "5"},
        {"1": True},
        {"-1": 1},
        {"1_0": 1},
        {"١": 1},
        {" 1": 1},
        {"1": 1, "01": 2},
        [1],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in RANGES.items() for value in values]
)
def test_a_number_out_of_its_range_is_refused_by_its_name(name: str, value: object) -> None:
    status, error = ask(JSON, {name: value})
    assert status == 400 and error["type"] == "invalid_request_error", (status, error)
    assert re.split(r"[.\[]", error["param"] or "")[0] == name and len(error["message"]) < 400


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "01", "0x1", "1" * 5000])
@pytest.mark.parametrize("name", ["top_p", "temperature", "max_tokens", "seed"])
def test_what_is_no_number_is_refused_too(name: str, text: str) -> None:
    data = json.dumps(BODY)[:-1] + f', "{name}": {text}}}'
    status, error = ask(JSON, data.encode())
    assert status == 400 and error["type"] == "invalid_request_error" and len(error["message"]) < 400


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_p", 0),
        ("top_p", 1),
        ("temperature", 2),
        ("seed", -1),
        ("seed", 2**63 - 1),
        ("max_tokens", 1 << 20),
    ],
)
def test_the_ends_of_ranges_are_taken(name: str, value: object) -> None:
    assert ask(JSON, {name: value})[0] == 418
