"""Fixtures shared by the core's and the verifier's tests: tiny pairs, and a verifier in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest
import torch

from cloud_verifier.config import LOOKUP, ServerConfig
from cloud_verifier.engine.engine import own_engine
from cloud_verifier.engine.policy import Policy
from cloud_verifier.engine.work import Models
from cloud_verifier.logs import EventLog
from cloud_verifier.net.server import Server
from specdec.edge.decoder import connect
from specdec.link import Link
from specdec.models import LoadedModel, load_model
from tests.helpers import tiny_models as tiny

torch.set_num_threads(1)

PATIENCE_S = 60.0


def patiently_connected(address: str) -> Link:
    """A link for tests of what is answered, not of when: these run behind others, and may wait for a core."""
    return connect(address, connect_timeout_s=PATIENCE_S, reply_timeout_s=PATIENCE_S)


@dataclass(frozen=True)
class Pair:
    """A target and an imperfect draft of it."""

    target: LoadedModel
    draft: LoadedModel


@dataclass
class RunningServer:
    """A server in a thread of this process."""

    server: Server
    log: StringIO
    thread: threading.Thread

    @property
    def address(self) -> str:
        """Where it listens."""
        return self.server.bind

    def stop(self) -> None:
        """Stop it and wait for its end."""
        self.server.stop()
        self.thread.join(timeout=10)
        assert not self.thread.is_alive()


@pytest.fixture(scope="session")
def model_root() -> Path:
    """Folders: text-target, text-draft, vision-target, vision-draft; only to be read."""
    return tiny.built_pairs()


@pytest.fixture(scope="session")
def text_pair(model_root: Path) -> Pair:
    """Llama target and draft."""
    return Pair(load_model(model_root / "text-target"), load_model(model_root / "text-draft"))


@pytest.fixture(scope="session")
def vision_pair(model_root: Path) -> Pair:
    """Qwen2-VL target and draft."""
    return Pair(load_model(model_root / "vision-target"), load_model(model_root / "vision-draft"))


@pytest.fixture(scope="session", params=["text", "vision"])
def pair(request: pytest.FixtureRequest, text_pair: Pair, vision_pair: Pair) -> Pair:
    """Both kinds of models, one after the other."""
    return text_pair if request.param == "text" else vision_pair


StartServer = Callable[..., RunningServer]


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    """start_server(model, **settings) -> a running server, stopped at the end of the test."""
    running: list[RunningServer] = []

    def start(
        model: LoadedModel,
        bind: str = "tcp://127.0.0.1:0",
        draft_model: LoadedModel | None = None,
        **settings: float,
    ) -> RunningServer:
        log = StringIO()
        config = ServerConfig(model=model.path, bind=bind, **settings)
        models = Models(model, draft_model, looks_up=config.draft_model == LOOKUP)
        make_engine = own_engine(config.policy, models, shared_bytes=1 << 24)
        server = Server(config, model, EventLog(log), make_engine)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        running.append(RunningServer(server, log, thread))
        return running[-1]

    yield start
    for one in running:
        if one.thread.is_alive():
            one.stop()


@contextmanager
def serving(model: LoadedModel, draft_model: LoadedModel | None = None) -> Iterator[str]:
    """The address of a verifier in a thread of this process."""
    config = ServerConfig(model=model.path, bind="tcp://127.0.0.1:0")
    engine = own_engine(Policy(), Models(model, draft_model), shared_bytes=1 << 24)
    server = Server(config, model, EventLog(StringIO()), engine)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield server.bind
    server.stop()
    thread.join(timeout=10)


@pytest.fixture(scope="module")
def servers(text_pair: Pair, vision_pair: Pair) -> Iterator[dict[str, str]]:
    """Addresses of a verifier for each target, shared by a module's tests."""
    with serving(text_pair.target, text_pair.draft) as text, serving(vision_pair.target, vision_pair.draft) as vision:
        yield {text_pair.target.path: text, vision_pair.target.path: vision}
