"""A verifier that is slow to greet is heard in the end."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator

import pytest
import zmq

from specdec.errors import LinkLost
from specdec.link import channel, wire
from specdec.link.channel import connect

GREETS_AFTER_S = 0.25
TRIES_FOR_S = 0.3


@pytest.fixture
def slow() -> Iterator[str]:
    """The address of a verifier that greets every client so long after they came."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.bind("tcp://127.0.0.1:*")
    over = threading.Event()

    def serve() -> None:
        due: deque[tuple[float, bytes]] = deque()
        while not over.is_set():
            if router.poll(5):
                identity, data = router.recv_multipart()
                if isinstance(wire.decode_up(data), wire.Hello):
                    due.append((time.monotonic() + GREETS_AFTER_S, identity))
            while due and due[0][0] <= time.monotonic():
                told = wire.Welcome(wire.PROTOCOL_VERSION, "slow", 10, b"", [0], 512)
                router.send_multipart([due.popleft()[1], wire.encode(told)])
        router.close(linger=0)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield router.getsockopt_string(zmq.LAST_ENDPOINT)
    over.set()
    thread.join(5)
    context.term()


@pytest.mark.slow
def test_patience_grows_from_one_attempt_to_the_next(slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an answer that is to be resumed tries: each time only for a while, and longer and longer in it."""
    monkeypatch.setattr(channel, "_FIRST_BACKOFF_S", 0.02)
    with connect(slow, connect_timeout_s=TRIES_FOR_S) as link:
        with pytest.raises(LinkLost):
            link.ensure_connected()
        for _ in range(3):
            try:
                assert link.ensure_connected().model == "slow"
                break
            except LinkLost:
                continue
        else:
            pytest.fail("it was hung up on each time before it could greet")


@pytest.mark.slow
def test_who_has_been_greeted_is_as_impatient_as_before(slow: str) -> None:
    with connect(slow) as link:
        link.ensure_connected()
        assert link._backoff_s == channel._FIRST_BACKOFF_S
