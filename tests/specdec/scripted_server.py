"""A verifier whose answers a function decides, in a thread, and the answer that an edge makes of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import zmq

from specdec.edge.decoder import EdgeDecoder
from specdec.link import wire
from specdec.models import Prompt
from specdec.options import GenerationOptions
from tests.helpers.servers import Pair

OPTIONS = GenerationOptions(30)


class ScriptedServer:
    """A ROUTER whose answers a function decides: (message, send) -> None."""

    def __init__(self, script: Callable[[wire.Up, Callable[[wire.Down], None]], None]) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.bind("tcp://127.0.0.1:*")
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._script = script
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.seen: list[wire.Up] = []

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self._socket.poll(20):
                continue
            identity, data = self._socket.recv_multipart()
            message = wire.decode_up(data)
            self.seen.append(message)

            def send(reply: wire.Down, identity: bytes = identity) -> None:
                self._socket.send_multipart([identity, wire.encode(reply)])

            self._script(message, send)
        self._socket.close(linger=0)
        self._context.term()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(5)


def welcome(pair: Pair) -> wire.Welcome:
    """How a verifier with the pair's target greets."""
    target = pair.target
    return wire.Welcome(
        wire.PROTOCOL_VERSION,
        "scripted",
        target.vocab_size,
        target.vocabulary_fingerprint,
        sorted(target.eos_token_ids),
        512,
    )


@pytest.fixture
def scripted() -> Iterator[Callable[..., ScriptedServer]]:
    made: list[ScriptedServer] = []

    def make(script: Callable[[wire.Up, Callable[[wire.Down], None]], None]) -> ScriptedServer:
        made.append(ScriptedServer(script))
        return made[-1]

    yield make
    for server in made:
        server.close()


def collect(decoder: EdgeDecoder, prompt: Prompt, **settings: object) -> list[int]:
    return [token for chunk in decoder.generate(prompt, OPTIONS, **settings) for token in chunk]  # type: ignore[arg-type]
