"""The server in this process: bad messages, limits, time-outs, several sessions; each fault stays where it is."""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator

import conftest_models as tiny
import msgspec
import pytest
import zmq
from conftest_servers import Pair, RunningServer, StartServer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloud_verifier.config import ServerConfig
from cloud_verifier.errors import VerifierError
from cloud_verifier.net.sessions import SessionTable
from specdec.edge.decoder import EdgeDecoder, connect
from specdec.errors import ProtocolError
from specdec.link import wire
from specdec.link.convert import sampling_to_wire
from specdec.models import Prompt, chat_prompt
from specdec.models.local import generate_local
from specdec.models.timing.pacing import pace
from specdec.models.timing.row_times import ROWS_TRIED, time_rows
from specdec.options import GenerationOptions
from specdec.row_ms import read_ms
from specdec.verifying import Verifier

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
        self.send(message)
        return self.receive()

    def close(self) -> None:
        self.socket.close(linger=0)
        self._context.term()


def open_message(session: int, ids: list[int], stream: bool = False, limit: int = 24) -> wire.Open:
    return wire.Open(session, stream, sampling_to_wire(GenerationOptions(limit)), ids)


@pytest.fixture
def server(text_pair: Pair, start_server: StartServer) -> RunningServer:
    return start_server(text_pair.target)


@pytest.fixture
def client(server: RunningServer) -> Iterator[RawClient]:
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


class TestHandshake:
    def test_welcome_says_who_is_there(self, text_pair: Pair, client: RawClient) -> None:
        welcome = client.ask(wire.Hello(wire.PROTOCOL_VERSION, "test"))
        assert isinstance(welcome, wire.Welcome)
        assert welcome.vocab_size == text_pair.target.vocab_size
        assert welcome.vocabulary == text_pair.target.vocabulary_fingerprint
        assert set(welcome.eos_ids) == text_pair.target.eos_token_ids
        assert welcome.row_us == []

    def test_welcome_tells_what_rows_cost(self, text_pair: Pair, server: RunningServer, client: RawClient) -> None:
        prices = time_rows(text_pair.target)
        assert [rows for rows, _ in prices] == list(ROWS_TRIED) and all(us > 0 for _, us in prices)
        assert time_rows(text_pair.target, read_ms("50:1,90:32"))[-1] == (32, 90_000)
        passing = itertools.count()
        assert len(time_rows(text_pair.target, clock=lambda: float(next(passing)))) == 1, "no more than a second"
        server.server.tell_prices(prices)
        welcome = client.ask(wire.Hello(wire.PROTOCOL_VERSION, "test"))
        assert isinstance(welcome, wire.Welcome) and welcome.row_us == prices

    def test_other_version_is_refused_with_both_numbers(
        self, client: RawClient, server: RunningServer
    ) -> None:
        error = client.ask(wire.Hello(99, "future"))
        assert isinstance(error, wire.ErrorDown) and error.code == wire.ERROR_VERSION
        assert "99" in error.message and str(wire.PROTOCOL_VERSION) in error.message
        assert events(server, "version_mismatch")


class TestBadMessages:
    @pytest.mark.parametrize("data", [b"", b"\x00", b"garbage" * 100, b"\x95\x03\x01", b"\xff" * 40])
    def test_garbage_is_refused_and_logged(self, text_pair: Pair, server: RunningServer, data: bytes) -> None:
        raw = RawClient(server.address)
        raw.socket.send(data)
        reply = raw.receive()
        raw.close()
        assert isinstance(reply, wire.ErrorDown) and reply.code == wire.ERROR_MALFORMED
        assert events(server, "malformed")
        still_works(text_pair, server)

    def test_a_flood_of_garbage_does_not_flood_the_log(self, text_pair: Pair, server: RunningServer) -> None:
        raw = RawClient(server.address)
        for _ in range(200):
            raw.socket.send(b"garbage")
        for _ in range(200):
            raw.receive()
        raw.close()
        assert 0 < len(events(server, "malformed")) <= 5
        still_works(text_pair, server)

    def test_several_frames_are_refused(self, server: RunningServer, client: RawClient) -> None:
        client.socket.send_multipart([b"a", b"b", b"c"])
        reply = client.receive()
        assert isinstance(reply, wire.ErrorDown) and "3 frames" in reply.message

    def test_bytes_that_are_not_even_zeromq_are_ignored(self, text_pair: Pair, server: RunningServer) -> None:
        host, port = server.address.removeprefix("tcp://").split(":")
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100_000, b""):
            with socket.create_connection((host, int(port)), timeout=2) as plain:
                plain.sendall(data)
        still_works(text_pair, server)

    def test_too_large_a_message_is_refused_with_what_is_allowed_and_the_connection_stays(
        self, text_pair: Pair, start_server: StartServer
    ) -> None:
        server = start_server(text_pair.target, max_message_mb=0.1)
        raw = RawClient(server.address)
        raw.socket.send(b"x" * 1_000_000)
        reply = raw.receive()
        assert isinstance(reply, wire.ErrorDown) and reply.code == wire.ERROR_TOO_LARGE
        assert "1000000 bytes" in reply.message and str(int(0.1 * 2**20)) in reply.message
        assert isinstance(raw.ask(wire.Ping(0)), wire.Pong)
        raw.socket.send(b"x" * (70 << 20))  # ZeroMQ takes no more than that and hangs up
        assert not raw.socket.poll(300)
        raw.close()
        still_works(text_pair, server)

    def test_replies_of_a_server_sent_to_the_server_are_refused(self, client: RawClient) -> None:
        client.socket.send(wire.encode(wire.VerdictDown(1, 1, 1, 1, 1, 1)))
        reply = client.receive()
        assert isinstance(reply, wire.ErrorDown) and reply.code == wire.ERROR_MALFORMED

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        st.lists(
            st.binary(max_size=80)
            | st.tuples(
                st.integers(1, 5),
                st.lists(
                    st.integers(-2, 5) | st.lists(st.integers(-1, 300), max_size=4) | st.booleans(),
                    max_size=6,
                ),
            ).map(lambda pair: msgspec.msgpack.encode([pair[0], *pair[1]])),
            max_size=6,
        )
    )
    def test_any_conversation_leaves_the_server_alive(
        self, server: RunningServer, frames: list[bytes]
    ) -> None:
        raw = RawClient(server.address)
        for frame in frames:
            raw.socket.send(frame)
        raw.send(wire.Ping(0))
        while not isinstance(raw.receive(), wire.Pong):
            pass
        raw.close()
        assert server.thread.is_alive()
        assert not events(server, "session_failed")


class TestBadRequests:
    """Well-formed messages that ask for the impossible: refused on that session, no other notices."""

    @pytest.mark.parametrize(
        ("message", "words"),
        [
            (open_message(1, []), "empty"),
            (open_message(1, [5000]), "vocabulary"),
            (wire.Open(1, False, sampling_to_wire(OPTIONS), [1], [tiny.picture(1)]), "takes no images"),
            (wire.Open(1, False, wire.Sampling(5, -3.0, 0, 0, 1.0, 0.0), [1]), "temperature"),
            (wire.Open(1, False, wire.Sampling(5, 0.0, 2**63, 0, 1.0, 0.0), [1]), "seed"),
            (wire.Open(1, False, sampling_to_wire(OPTIONS), [1], [], [2] * 99), "no room"),
            (wire.Open(1, True, sampling_to_wire(OPTIONS), [1], recovery=2), "without drafts"),
            (wire.Open(1, False, sampling_to_wire(OPTIONS), [1], front_layers=99), "cannot be split off"),
            (
                wire.Open(1, False, sampling_to_wire(GenerationOptions(9, 1.0)), [1], recovery=3),
                "part of a row",
            ),
        ],
    )
    def test_impossible_openings(
        self, server: RunningServer, client: RawClient, message: wire.Open, words: str
    ) -> None:
        reply = client.ask(message)
        assert isinstance(reply, wire.ErrorDown) and reply.code == wire.ERROR_REFUSED
        assert reply.session == 1 and words in reply.message and "\n" not in reply.message

    @pytest.mark.parametrize(
        "draft",
        [
            wire.DraftUp(1, 1, 17, [1, 2]),
            wire.DraftUp(1, 1, 1, [5000]),
            wire.DraftUp(1, 1, 1, [1, 2], [1, -1]),
            wire.DraftUp(1, 1, 1, [1, 2], [-1]),
        ],
        ids=["future", "vocabulary", "child-first", "parents-missing"],
    )
    def test_impossible_drafts_end_their_session_only(self, client: RawClient, draft: wire.DraftUp) -> None:
        assert isinstance(client.ask(open_message(1, [1, 2])), wire.Opened)
        assert isinstance(client.ask(open_message(2, [1, 2])), wire.Opened)
        reply = client.ask(draft)
        assert isinstance(reply, wire.ErrorDown) and reply.session == 1
        assert isinstance(client.ask(wire.DraftUp(2, 1, 1, [1, 2])), wire.VerdictDown)
        gone = client.ask(wire.DraftUp(1, 2, 1, [1]))
        assert isinstance(gone, wire.ErrorDown) and gone.code == wire.ERROR_UNKNOWN_SESSION

    @pytest.mark.parametrize("message", [wire.DraftUp(9, 1, 0, [1]), wire.Ping(9)])
    def test_unknown_sessions_are_said_to_be_unknown(self, client: RawClient, message: wire.Up) -> None:
        reply = client.ask(message)
        assert isinstance(reply, wire.ErrorDown) and reply.code == wire.ERROR_UNKNOWN_SESSION

    def test_drafting_in_a_cloud_without_a_draft_model_is_refused(self, client: RawClient) -> None:
        client.send(wire.Open(1, True, sampling_to_wire(OPTIONS), [1], speculate=4))
        assert isinstance(client.receive(), wire.Opened)
        reply = client.receive()
        assert isinstance(reply, wire.ErrorDown) and "--draft-model" in reply.message

    def test_rejection_sampling_that_was_not_agreed_on_is_refused(self, client: RawClient) -> None:
        assert isinstance(client.ask(open_message(1, [1])), wire.Opened)
        reply = client.ask(wire.SampledUp(1, 1, 1, [5], b"\0\0\0\0"))
        assert isinstance(reply, wire.ErrorDown) and "agreed" in reply.message

    def test_going_on_alone_where_every_token_needs_a_draft_is_refused(self, client: RawClient) -> None:
        sampled = sampling_to_wire(GenerationOptions(24, temperature=1.0))
        assert isinstance(client.ask(wire.Open(1, False, sampled, [1], recovery=2)), wire.Opened)
        reply = client.ask(wire.AloneUp(1, 1))
        assert isinstance(reply, wire.ErrorDown) and "needs a draft" in reply.message

    def test_corrupt_image_is_refused(self, vision_pair: Pair, start_server: StartServer) -> None:
        server = start_server(vision_pair.target)
        prompt = chat_prompt(vision_pair.target, "see", images=[tiny.picture(1)])
        broken = Prompt(prompt.ids, (tiny.picture(1)[:300],))
        with connect(server.address) as link, pytest.raises(ProtocolError, match="image cannot be decoded"):
            list(EdgeDecoder(link, method="ar").generate(broken))
        still_works(vision_pair, server)

    def test_an_exception_in_one_session_does_not_end_another(
        self, text_pair: Pair, server: RunningServer, client: RawClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """TRAPS 20."""
        assert isinstance(client.ask(open_message(1, [1, 2])), wire.Opened)
        assert isinstance(client.ask(open_message(2, [1, 2])), wire.Opened)
        original = Verifier.plan_verify
        monkeypatch.setattr(Verifier, "plan_verify", lambda *_: 1 / 0)
        reply = client.ask(wire.DraftUp(1, 1, 1, [1]))
        assert isinstance(reply, wire.ErrorDown) and reply.code == wire.ERROR_INTERNAL
        assert "ZeroDivisionError" in str(events(server, "session_failed")[0]["traceback"])
        monkeypatch.setattr(Verifier, "plan_verify", original)
        assert isinstance(client.ask(wire.DraftUp(2, 1, 1, [1])), wire.VerdictDown)
        still_works(text_pair, server)


class TestSessions:
    def test_a_full_server_says_so_and_takes_others_when_one_leaves(
        self, text_pair: Pair, start_server: StartServer
    ) -> None:
        server = start_server(text_pair.target, max_sessions=2)
        raw = RawClient(server.address)
        assert isinstance(raw.ask(open_message(1, [1])), wire.Opened)
        assert isinstance(raw.ask(open_message(2, [1])), wire.Opened)
        full = raw.ask(open_message(3, [1]))
        assert isinstance(full, wire.ErrorDown) and full.code == wire.ERROR_BUSY
        raw.send(wire.Close(1))
        assert isinstance(raw.ask(open_message(3, [1])), wire.Opened)
        raw.close()

    @pytest.mark.realtime
    def test_silent_sessions_are_forgotten_and_spoken_of_ones_are_not(
        self, text_pair: Pair, start_server: StartServer
    ) -> None:
        server = start_server(text_pair.target, session_timeout_s=1.0)
        raw = RawClient(server.address)
        assert isinstance(raw.ask(open_message(1, [1])), wire.Opened)
        assert isinstance(raw.ask(open_message(2, [1])), wire.Opened)
        for _ in range(15):  # of a busy machine, too, a ping comes within a second
            time.sleep(0.1)
            assert isinstance(raw.ask(wire.Ping(2)), wire.Pong)
        gone = raw.ask(wire.Ping(1))
        raw.close()
        assert isinstance(gone, wire.ErrorDown)
        assert [
            record["session"] for record in events(server, "closed") if record["reason"] == "timeout"
        ] == [1]

    def test_the_sessions_of_a_client_that_is_gone_are_closed(
        self, text_pair: Pair, start_server: StartServer
    ) -> None:
        server = start_server(text_pair.target)
        raw = RawClient(server.address)
        raw.ask(open_message(1, [1, 2], stream=True, limit=400))
        raw.close()
        deadline = time.monotonic() + 5
        while not events(server, "closed") and time.monotonic() < deadline:
            time.sleep(0.02)
        assert events(server, "closed")
        still_works(text_pair, server)

    def test_sessions_of_two_clients_with_one_number_are_two(self, server: RunningServer) -> None:
        one, two = RawClient(server.address), RawClient(server.address)
        first = one.ask(open_message(1, [1, 2, 3]))
        second = two.ask(open_message(1, [9, 8, 7, 6]))
        again = one.ask(wire.DraftUp(1, 1, 1, []))
        assert isinstance(first, wire.Opened) and isinstance(second, wire.Opened)
        assert isinstance(again, wire.VerdictDown)
        one.close()
        two.close()

    def test_heartbeats_are_answered_while_a_forward_runs(
        self, server: RunningServer, client: RawClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert isinstance(client.ask(open_message(1, [1, 2])), wire.Opened)
        original = Verifier.plan_verify
        release = threading.Event()

        def slow(self: Verifier, *arguments: object) -> object:
            release.wait(10)
            return original(self, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(Verifier, "plan_verify", slow)
        client.send(wire.DraftUp(1, 1, 1, [1]))
        started = time.monotonic()
        for _ in range(20):
            assert client.ask(wire.Ping(1)) == wire.Pong(1, 1, 0)
        assert time.monotonic() - started < 1.0
        release.set()
        assert isinstance(client.receive(), wire.VerdictDown)
        assert client.ask(wire.Ping(1)) == wire.Pong(1, 1, 1)

    def test_a_cloud_goes_on_alone_until_a_draft_comes(
        self, text_pair: Pair, start_server: StartServer
    ) -> None:
        client = RawClient(start_server(text_pair.target).address)
        pace(text_pair.target, 20)
        try:
            opened = client.ask(open_message(1, [1, 2, 3], limit=200))
            assert isinstance(opened, wire.Opened) and opened.token is not None
            answer = [opened.token]
            client.send(wire.AloneUp(1, 1))
            while len(answer) < 4:
                tokens = client.receive()
                assert isinstance(tokens, wire.Tokens) and tokens.base == len(answer)
                answer += tokens.ids
            client.send(wire.DraftUp(1, 2, len(answer), []))
            while isinstance(reply := client.receive(), wire.Tokens):
                answer += reply.ids
            assert isinstance(reply, wire.VerdictDown) and reply.token is not None
            time.sleep(0.1)
            pong = client.ask(wire.Ping(1))
            assert isinstance(pong, wire.Pong) and (pong.received, pong.answered) == (2, 2)
            assert pong.streamed == len(answer), "nothing is streamed after the draft"
            expected = generate_local(text_pair.target, Prompt((1, 2, 3)), GenerationOptions(len(answer)))
            assert answer[: len(expected)] == expected
        finally:
            pace(text_pair.target, 0)
            client.close()

    def test_two_answers_at_once_with_different_images_equal_each_alone(
        self, vision_pair: Pair, start_server: StartServer
    ) -> None:
        server = start_server(vision_pair.target)
        model = vision_pair.target
        prompts = [
            chat_prompt(model, "one", images=[tiny.picture(1)]),
            chat_prompt(model, "two, longer", images=[tiny.picture(2, 112, 224), tiny.picture(3)]),
            chat_prompt(model, "three without a picture"),
        ]
        expected = [generate_local(model, prompt, OPTIONS) for prompt in prompts]
        links = [connect(server.address) for _ in prompts]
        running = [
            EdgeDecoder(link, vision_pair.draft, method).generate(prompt, OPTIONS)
            for link, method, prompt in zip(links, ("sd", "ar", "sd"), prompts, strict=True)
        ]
        got: list[list[int]] = [[], [], []]
        active = [0, 1, 2]
        while active:  # one chunk of each in turn
            for which in list(active):
                chunk = next(running[which], None)
                if chunk is None:
                    active.remove(which)
                else:
                    got[which].extend(chunk)
        for link in links:
            link.close()
        assert got == expected

    def test_many_answers_from_threads_equal_each_alone(self, text_pair: Pair, server: RunningServer) -> None:
        prompts = [chat_prompt(text_pair.target, f"question {i}") for i in range(6)]
        expected = [generate_local(text_pair.target, prompt, OPTIONS) for prompt in prompts]
        got: dict[int, list[int]] = {}

        def run(which: int) -> None:
            with connect(server.address, reply_timeout_s=20) as link:
                decoder = EdgeDecoder(link, text_pair.draft, "ar" if which % 2 else "sd")
                got[which] = [t for chunk in decoder.generate(prompts[which], OPTIONS) for t in chunk]

        threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [got[i] for i in range(6)] == expected


class TestPieces:
    def test_table_has_a_limit_and_a_timeout(self) -> None:
        table = SessionTable(max_sessions=1, timeout_s=10)
        assert table.next_expiry() is None
        assert table.add((b"a", 1), now=0.0)
        assert table.add((b"a", 1), now=5.0)  # opened again
        assert not table.add((b"b", 1), now=5.0)
        assert table.next_expiry() == 15.0
        assert table.expired(now=14.0) == []
        assert table.expired(now=16.0) == [(b"a", 1)]

    @pytest.mark.parametrize(
        "settings_",
        [
            {"model": ""},
            {"bind": "nonsense"},
            {"max_sessions": 0},
            {"session_timeout_s": -1},
            {"threads": -1},
            {"max_message_mb": 1000},
        ],
    )
    def test_bad_settings_are_refused(self, settings_: dict[str, object]) -> None:
        with pytest.raises(VerifierError):
            ServerConfig(**{"model": "x", **settings_})  # type: ignore[arg-type]
