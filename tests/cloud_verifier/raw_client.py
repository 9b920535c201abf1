"""A client that sends what it likes, and what the verifier's log and its next answer say about that."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import zmq

from specdec.edge.decoder import EdgeDecoder, connect
from specdec.link import wire
from specdec.link.convert import sampling_to_wire
from specdec.models import chat_prompt
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from tests.helpers.servers import Pair, RunningServer, StartServer

OPTIONS = GenerationOptions(24)


class RawClient:
    """A DEALER that sends what it likes."""

    def __init__(self, address: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        self.socket.connect(address)

    def send(self, message: wire.Up) -> None:
        self.socket.send(wire.encode(message))

    def receive(self, timeout_s: float = 5.0) -> wire.Down:
        assert self.socket.poll(timeout_s * 1000), "no reply"
        return wire.decode_down(self.socket.recv())

    def ask(self, message: wire.Up) -> wire.Down:
        """The reply; a Pong that the verifier sends to a silent client of its own accord is not one."""
        self.send(message)
        while isinstance(reply := self.receive(), wire.Pong) and not isinstance(message, wire.Ping):
            pass
        return reply

    def close(self) -> None:
        self.socket.close(linger=0)
        self._context.term()


def open_message(session: int, ids: list[int], stream: bool = False, limit: int = 24) -> wire.Open:
    return wire.Open(session, stream, sampling_to_wire(GenerationOptions(limit)), ids)


@pytest.fixture
def server(text_pair: Pair, start_server: StartServer) -> RunningServer:
    """The text target in this process."""
    return start_server(text_pair.target)


@pytest.fixture
def client(server: RunningServer) -> Iterator[RawClient]:
    """Of that server."""
    raw = RawClient(server.address)
    yield raw
    raw.close()


def events(server: RunningServer, name: str) -> list[dict[str, object]]:
    return [
        record for line in server.log.getvalue().splitlines() if (record := json.loads(line))["event"] == name
    ]


def still_works(pair: Pair, server: RunningServer) -> None:
    """A new client gets a right answer."""
    prompt = chat_prompt(pair.target, "still there?")
    with connect(server.address) as link:
        got = [t for chunk in EdgeDecoder(link, pair.draft).generate(prompt, OPTIONS) for t in chunk]
    assert got == generate_local(pair.target, prompt, OPTIONS)
