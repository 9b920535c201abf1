"""`specnav api` before a verifier, both as processes, and what the tests ask of them."""

from __future__ import annotations

import base64
import json
import re
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from specdec.models import LoadedModel, Prompt, load_model
from specdec.models.local import generate_local
from specdec.models.prompt import Message, conversation_prompt
from specdec.options import GenerationOptions
from specnav.paths import DEFAULT_TEXT_TARGET
from specnav.supervise.processes import ChildSpec, Supervisor
from tests.graph.forking import forking_parent
from tests.helpers.tiny_models import picture

if TYPE_CHECKING:
    import openai

WAIT_S = 60.0
QUESTIONS = [
    f"Write a story about {what}." for what in ("a fox", "rain", "a well", "two kings", "ships", "a loaf")
]


@dataclass
class Process:
    """A process that is ready. log: what it writes; bind: where it listens."""

    handle: Any
    log: Path
    bind: str

    def events(self, name: str) -> list[dict[str, Any]]:
        """The log's lines about one kind of event."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == name]


@contextmanager
def started(folder: Path, arguments: Sequence[str]) -> Iterator[Process]:
    """`python -m arguments…`, once it is ready."""
    log = folder / f"{len(list(folder.iterdir()))}.log"
    with log.open("wb") as stream:
        spec = ChildSpec("", [sys.executable, "-m", *arguments])
        handle = forking_parent().start(spec, stream) or Supervisor.launch(spec, stream)
    try:
        process = Process(handle, log, "")
        until(lambda: process.events("ready") or handle.poll() is not None)
        assert handle.poll() is None, log.read_text()
        process.bind = process.events("ready")[0]["bind"]
        yield process
    finally:
        if handle.poll() is None:
            handle.kill()
        handle.wait(10)


def until(happened: Callable[[], object], seconds: float = WAIT_S) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.02)


def verifier(folder: Path, model: Path, bind: str = "tcp://127.0.0.1:0", *more: str) -> Any:
    return started(folder, ["cloud_verifier", "--model", str(model), "--bind", bind, *more])


def api(folder: Path, connect: str, *more: str) -> Any:
    return started(folder, ["specnav.cli", "api", "--connect", connect, "--bind", "127.0.0.1:0", *more])


def client_of(process: Process, key: str = "unused") -> openai.OpenAI:
    import openai  # importing it takes a second, and most tests of this folder ask no API

    return openai.OpenAI(base_url=f"{process.bind}/v1", api_key=key, max_retries=0, timeout=WAIT_S)


@pytest.fixture(scope="module")
def target() -> LoadedModel:
    return load_model(DEFAULT_TEXT_TARGET)


@dataclass
class Served:
    api: Process
    verifier: Process
    client: openai.OpenAI
    model: str = "text-target"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The default text pair; drafts are made in any case."""
    folder = tmp_path_factory.mktemp("api")
    with ExitStack() as stack:
        up = stack.enter_context(
            verifier(folder, DEFAULT_TEXT_TARGET, "tcp://127.0.0.1:0", "--metrics", "127.0.0.1:0")
        )
        server = stack.enter_context(api(folder, up.bind, "--method", "fsd", "--metrics"))
        yield Served(server, up, stack.enter_context(client_of(server)))


def right(model: LoadedModel, prompt: Prompt, options: GenerationOptions) -> tuple[list[int], str]:
    """What the target alone says: ids and text."""
    ids = generate_local(model, prompt, options)
    return ids, model.tokenizer.decode(ids, skip_special_tokens=True)


def question(model: LoadedModel, text: str) -> Prompt:
    return conversation_prompt(model, [Message("user", (text,))])


def asked(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def streamed(client: openai.OpenAI, **fields: Any) -> tuple[list[int], str, Any]:
    """Ids, text, and the last chunk with a choice."""
    ids: list[int] = []
    text, last = "", None
    for chunk in client.chat.completions.create(stream=True, extra_body={"return_token_ids": True}, **fields):
        (choice,) = chunk.choices
        ids += choice.token_ids  # type: ignore[attr-defined]
        text += choice.delta.content or ""
        last = choice
    return ids, text, last


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def data_url(content: bytes | None = None) -> str:
    return "data:image/jpeg;base64," + base64.b64encode(content or picture(1)).decode()


def metric(url: str, name: str) -> float:
    with urllib.request.urlopen(url, timeout=WAIT_S) as reply:
        lines = reply.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if re.match(rf"{name}(\{{| )", line))


def sessions(served: Served) -> float:
    """Sessions that are open at the verifier."""
    bind = served.verifier.events("metrics")[0]["bind"]
    return metric(f"http://{bind}/metrics", "specdec_sessions")


def answers(server: Process) -> int:
    with urllib.request.urlopen(f"{server.bind}/healthz", timeout=WAIT_S) as reply:
        return int(json.load(reply)["answers"])


def gone(served: Served) -> list[dict[str, Any]]:
    return [line for line in served.api.events("request") if line["status"] == 499]
