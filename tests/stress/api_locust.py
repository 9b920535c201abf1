"""Load for `specnav api`: users that stream one answer after another. For locust, in an environment of its own:

    python -m venv /tmp/locust && /tmp/locust/bin/pip install locust
    /tmp/locust/bin/locust -f tests/stress/api_locust.py --headless -u 16 -r 16 -t 60s --host http://127.0.0.1:8000

Its table has, beside the requests, the time to the first text, the whole answer's, and what a token took behind the
first text; "Average size" of those is in tokens.
"""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

from locust import HttpUser, constant, task

TOKENS = 64
_numbers = itertools.count(1)


class Reader(HttpUser):
    """Asks, reads, asks again."""

    wait_time = constant(0)

    def on_start(self) -> None:
        """Whatever the model is called here."""
        self.model = self.client.get("/v1/models").json()["data"][0]["id"]

    @task
    def read(self) -> None:
        """One answer of TOKENS tokens, as a stream."""
        number = next(_numbers)
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": f"Write a story about number {number}."}],
            "max_tokens": TOKENS,
            "min_tokens": TOKENS,
            "seed": number,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        began = time.perf_counter()
        first, last = None, b""
        with self.client.post("/v1/chat/completions", json=body, stream=True, catch_response=True) as reply:
            for line in reply.iter_lines():
                if line.startswith(b"data: {"):
                    first, last = first or time.perf_counter(), line
            told: dict[str, Any] = json.loads(last[6:]) if last else {}
            tokens = (told.get("usage") or {}).get("completion_tokens")
            if first is None or tokens != TOKENS:
                reply.failure(f"an answer of {tokens} tokens: {last[:200]!r}")
                return
        ended = time.perf_counter()
        self._tell("first text", first - began, tokens)
        self._tell("whole answer", ended - began, tokens)
        self._tell("a token behind it", (ended - first) / (tokens - 1), tokens)

    def _tell(self, name: str, seconds: float, tokens: int) -> None:
        fire = self.environment.events.request.fire
        told = {"name": name, "response_time": seconds * 1e3, "response_length": tokens}
        fire(request_type="", exception=None, context={}, **told)
