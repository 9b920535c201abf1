"""Whatever the other side says, the edge gives an answer or one clear error, and the cloud serves all other
clients.
"""

from __future__ import annotations

import random
import string
from collections.abc import Iterator

import pytest
import zmq
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from specdec.edge.decoder import EdgeDecoder, connect
from specdec.errors import LinkLost, SpecdecError
from specdec.link import wire
from specdec.link.convert import sampling_to_wire
from specdec.models import chat_prompt
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from tests.helpers.servers import Pair, RunningServer, StartServer
from tests.helpers.table_models import PROMPT
from tests.specdec.checks import COMBINATIONS, PARTS_OF_ROWS, SAMPLED, UNLIKE, Unhurried
from tests.specdec.wired import WiredLink

pytestmark = [pytest.mark.realtime, pytest.mark.slow]

SMALL = st.integers(0, 6)
BLOB = st.binary(max_size=24) | st.sampled_from([b"\0" * 20, b"\0\0\x80\x3e" * 5, b"\0\0\xc0\x7f" * 5])
WORD = st.text(string.ascii_letters, max_size=9)
SESSION = st.sampled_from([1, 1, 1, 1, 2, 0])
IDS = st.lists(st.integers(0, 6), max_size=6)
PARENTS = st.none() | st.lists(st.integers(-1, 5), max_size=6)
SAID_DOWN = st.one_of(
    st.builds(wire.Welcome, SMALL),
    st.builds(wire.Opened, SESSION, SMALL, SMALL, SMALL, SMALL),
    st.builds(wire.VerdictDown, SESSION, SMALL, SMALL, st.none() | SMALL, SMALL, SMALL),
    st.builds(wire.RowDown, SESSION, SMALL, SMALL, BLOB, BLOB, SMALL, st.floats(0, 1), SMALL, SMALL),
    st.builds(wire.HintDown, SESSION, SMALL, SMALL, SMALL, st.floats(0, 1), SMALL, SMALL),
    st.builds(wire.Tokens, SESSION, SMALL, IDS, SMALL, SMALL, SMALL),
    st.builds(wire.Pong, SESSION, SMALL, SMALL),
    st.builds(wire.ErrorDown, SESSION, WORD | st.sampled_from(["shutdown", "unknown_session"]), WORD),
)


class LyingLink(WiredLink):
    """Puts messages of its own among the cloud's."""

    def __init__(self, lies: list[wire.Down], seed: int) -> None:
        super().__init__(UNLIKE.target, UNLIKE.draft, slowness=0.3, seed=seed)
        self._lies = list(lies)
        self._when = random.Random(seed)
        self._asked = 0

    def receive(self, timeout_s: float) -> tuple[wire.Down, int] | None:
        """Also what nobody has sent; an edge that was led astray is told that the link is lost."""
        self._asked += 1
        if self._asked > 500:
            raise LinkLost("nothing was heard")
        if self._lies and self._when.random() < 0.4:
            return self._lies.pop(0), 20
        return super().receive(timeout_s)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["ar", "cloud-sd", "sd", "specedge", "dsd", *PARTS_OF_ROWS, *COMBINATIONS]),
    st.lists(SAID_DOWN, min_size=1, max_size=6),
    st.integers(0, 1000),
    st.sampled_from([0.0, 1.0]),
)
def test_whatever_the_cloud_says_the_edge_ends_with_an_answer_or_a_clear_error(
    method: str, lies: list[wire.Down], seed: int, temperature: float
) -> None:
    options = GenerationOptions(12, temperature=temperature, seed=seed)
    decoder = EdgeDecoder(LyingLink(lies, seed), UNLIKE.draft, method, gamma=3)
    got: list[int] = []
    try:
        for chunk in decoder.generate(PROMPT, options, Unhurried()):
            got += chunk
    except SpecdecError as error:
        assert "\n" not in str(error)
    assert len(got) <= 12
    assert decoder.stats.finish in ("eos", "length", "failed")


RECOVERY = st.integers(0, 5)
OPEN = st.builds(
    wire.Open,
    SESSION,
    st.booleans(),
    st.sampled_from([sampling_to_wire(SAMPLED), sampling_to_wire(GenerationOptions(6))]),
    st.lists(st.integers(0, 300), max_size=4),
    st.just([]),
    IDS,
    RECOVERY,
    SMALL,
    SMALL,
    st.booleans(),
    st.sampled_from([0, 0, 0, 1, 2, 9]),
)
SAID_UP = st.one_of(
    OPEN,
    st.builds(wire.Hello, SMALL, WORD),
    st.builds(wire.DraftUp, SESSION, SMALL, SMALL, IDS, PARENTS, SMALL),
    st.builds(wire.SampledUp, SESSION, SMALL, SMALL, IDS, BLOB, st.none() | SMALL, SMALL),
    st.builds(wire.More, SESSION, SMALL),
    st.builds(wire.HiddenUp, SESSION, SMALL, BLOB | st.binary(min_size=256, max_size=256)),
    st.builds(wire.Close, SESSION),
    st.builds(wire.Ping, SESSION),
    st.builds(wire.AloneUp, SESSION, SMALL),
)


@pytest.fixture(scope="module")
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield made
    made.destroy(linger=0)


@pytest.fixture
def server(text_pair: Pair, start_server: StartServer) -> RunningServer:
    return start_server(text_pair.target, max_sessions=500)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(opening=OPEN, said=st.lists(SAID_UP | st.binary(max_size=40), min_size=1, max_size=8))
@example(
    opening=wire.Open(1, False, sampling_to_wire(SAMPLED), [1], recovery=4, recovery_size=2, ahead=True),
    said=[wire.SampledUp(1, 1, 1, [3, 4], b"\0\0\x80\x3e" * 2), wire.More(1, 1), wire.More(1, 1)],
)
@example(
    opening=wire.Open(1, False, sampling_to_wire(SAMPLED), [], recovery=0),
    said=[wire.More(1, 0), wire.Ping(1)],
)
def test_whatever_an_edge_says_the_cloud_lives_and_answers_it_or_refuses(
    server: RunningServer,
    context: zmq.Context[zmq.Socket[bytes]],
    opening: wire.Open,
    said: list[wire.Up | bytes],
) -> None:
    edge = context.socket(zmq.DEALER)
    edge.connect(server.address)
    try:
        for message in (opening, *said):
            edge.send(message if isinstance(message, bytes) else wire.encode(message))
        edge.send(wire.encode(wire.Ping(0)))
        while True:
            assert edge.poll(10_000), "the cloud is silent"
            reply = wire.decode_down(edge.recv())
            assert "\n" not in getattr(reply, "message", "")
            if reply == wire.Pong(0, 0, 0):
                break
        for number in (0, 1, 2):
            edge.send(wire.encode(wire.Close(number)))
    finally:
        edge.close(linger=200)
    assert server.thread.is_alive()
    assert '"session_failed"' not in server.log.getvalue()


def test_an_honest_edge_gets_its_answers_between_hostile_ones(
    text_pair: Pair, server: RunningServer, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    prompt = chat_prompt(text_pair.target, "honest")
    options = GenerationOptions(30)
    noise = random.Random(1)
    hostile = context.socket(zmq.DEALER)
    hostile.connect(server.address)
    said = [
        wire.encode(wire.Open(1, False, sampling_to_wire(SAMPLED), [1], recovery=2)),
        wire.encode(wire.DraftUp(1, 1, 900, [1])),
        wire.encode(wire.SampledUp(1, 1, 1, [1], b"123")),
        wire.encode(wire.HiddenUp(1, 0, b"abc")),
        b"\xdd\xff\xff\xff\xff",
    ]
    with connect(server.address) as link:
        for chunk_of in (
            EdgeDecoder(link, text_pair.draft, "sd+overlap:stream"),
            EdgeDecoder(link, method="ar"),
        ):
            got: list[int] = []
            for chunk in chunk_of.generate(prompt, options):
                got += chunk
                for _ in range(5):
                    hostile.send(noise.choice(said))
            assert got == generate_local(text_pair.target, prompt, options)
    hostile.close(linger=0)
