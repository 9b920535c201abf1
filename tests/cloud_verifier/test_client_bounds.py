"""Bounds on one client: what is over one is refused with what is allowed, and no other client notices."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator

import pytest
import zmq

from specdec.edge.decoder import EdgeDecoder, connect
from specdec.errors import OptionsError, VerifierBusy
from specdec.link import wire
from specdec.link.convert import sampling_to_wire
from specdec.models import LoadedModel, Prompt, chat_prompt
from specdec.models.local import generate_local
from specdec.models.timing.pacing import pace
from specdec.options import GenerationOptions
from tests.cloud_verifier.raw_client import RawClient, events, open_message, still_works
from tests.helpers.pictures import png
from tests.helpers.servers import Pair, StartServer
from tests.helpers.tiny_models import picture

pytestmark = [pytest.mark.realtime, pytest.mark.slow]
OPTIONS = GenerationOptions(24)


@pytest.fixture
def slow(text_pair: Pair, vision_pair: Pair) -> Iterator[None]:
    """Forwards of both targets take 40 ms."""
    for pair in (text_pair, vision_pair):
        pace(pair.target, 40)
    yield
    for pair in (text_pair, vision_pair):
        pace(pair.target, 0)


def look(model: LoadedModel, session: int, *images: bytes) -> wire.Open:
    """An Open with this many images."""
    ids = chat_prompt(model, "look", images=[picture(1)] * len(images)).ids
    return wire.Open(session, False, sampling_to_wire(OPTIONS), list(ids), list(images))


def heard(client: RawClient, seconds: float = 0.3) -> list[wire.Down]:
    """All that comes until nothing has come for this long."""
    replies = []
    while client.socket.poll(seconds * 1000):
        replies.append(wire.decode_down(client.socket.recv()))
    return replies


def flat(chunks: Iterable[list[int]]) -> list[int]:
    return [token for chunk in chunks for token in chunk]


def refused(reply: wire.Down, code: str, *words: str) -> None:
    assert isinstance(reply, wire.ErrorDown) and reply.code == code, reply
    assert all(word in reply.message for word in words), reply.message
    assert "\n" not in reply.message


class TestSessions:
    def test_one_client_takes_no_more_than_its_share_of_the_table(
        self, text_pair: Pair, start_server: StartServer
    ) -> None:
        server = start_server(text_pair.target, max_sessions=8, max_client_sessions=2)
        greedy = RawClient(server.address)
        assert isinstance(greedy.ask(open_message(1, [1])), wire.Opened)
        assert isinstance(greedy.ask(open_message(2, [1])), wire.Opened)
        refused(greedy.ask(open_message(3, [1])), wire.ERROR_BUSY, "you have 2 sessions", "2 are allowed")
        assert isinstance(greedy.ask(open_message(2, [1])), wire.Opened), "opened again"
        still_works(text_pair, server)
        greedy.close()

    def test_an_open_that_comes_again_takes_the_place_of_the_one_that_waits(
        self, text_pair: Pair, start_server: StartServer, slow: None
    ) -> None:
        server = start_server(text_pair.target)
        other, hasty = RawClient(server.address), RawClient(server.address)
        other.ask(open_message(1, [1, 2], stream=True, limit=200))
        assert isinstance(hasty.ask(open_message(9, [1])), wire.Opened)
        hasty.send(wire.DraftUp(9, 1, 1, []))  # keeps the engine busy while these come
        for limit in range(10, 30):
            hasty.send(open_message(1, [1, 2, 3], limit=limit))
        opened = [reply for reply in heard(hasty, 1.0) if isinstance(reply, wire.Opened)]
        assert opened[-1].limit == 29
        assert len(opened) <= 2, "those that waited never ran"
        for client in (other, hasty):
            client.close()

    def test_who_comes_again_with_its_token_has_its_sessions_of_before_closed(
        self, text_pair: Pair, start_server: StartServer
    ) -> None:
        server = start_server(text_pair.target)
        before, after = RawClient(server.address), RawClient(server.address)
        welcome = before.ask(wire.Hello(wire.PROTOCOL_VERSION, "edge"))
        assert isinstance(welcome, wire.Welcome) and len(welcome.token) == 16
        assert isinstance(before.ask(open_message(1, [1])), wire.Opened)
        again = after.ask(wire.Hello(wire.PROTOCOL_VERSION, "edge", welcome.token))
        assert isinstance(again, wire.Welcome) and again.token == welcome.token
        refused(before.ask(wire.Ping(1)), wire.ERROR_UNKNOWN_SESSION)
        assert [one["reason"] for one in events(server, "closed")] == ["resumed"]
        for wrong in (b"x" * 16, b"", b"x" * 999, 7, None):
            stranger = before.ask(wire.Hello(wire.PROTOCOL_VERSION, "edge", wrong))
            assert isinstance(stranger, wire.Welcome) and stranger.token != welcome.token
        before.close()
        after.close()

    @pytest.mark.parametrize("honest", [True, False], ids=["with its token", "without"])
    def test_a_flapping_edge_never_fills_the_table(
        self, text_pair: Pair, start_server: StartServer, honest: bool
    ) -> None:
        server = start_server(text_pair.target, max_sessions=4)
        link = connect(server.address)
        for _ in range(20):
            if not honest:
                link = connect(server.address)
            link.ensure_connected()
            link.send(open_message(link.next_session(), [1, 2]))
            assert link.receive(5.0) is not None
            link.reset()
        prompt = chat_prompt(text_pair.target, "me too")
        with connect(server.address) as other:
            answer = EdgeDecoder(other, method="ar", resume_timeout_s=5).generate(prompt, OPTIONS)
            assert flat(answer) == generate_local(text_pair.target, prompt, OPTIONS)
        assert len(server.server._admission.sessions) <= 4

    @pytest.mark.realtime
    def test_a_stream_lives_as_long_as_its_edge(
        self, text_pair: Pair, start_server: StartServer, slow: None
    ) -> None:
        server = start_server(text_pair.target, session_timeout_s=0.4)
        prompt, options = chat_prompt(text_pair.target, "long"), GenerationOptions(40, 3.0, seed=1)
        with connect(server.address) as link:
            decoder = EdgeDecoder(link, method="ar")
            got = flat(decoder.generate(prompt, options))
        pace(text_pair.target, 0)
        assert got == generate_local(text_pair.target, prompt, options) and len(got) > 20
        assert decoder.stats.total_ms > 800 and decoder.stats.resumes == 0
        assert len(events(server, "open")) == 1, "it was never opened again"


class TestWhatWaits:
    def test_no_client_lets_more_forwards_wait_than_it_may(
        self, text_pair: Pair, start_server: StartServer, slow: None
    ) -> None:
        server = start_server(text_pair.target, max_queued_forwards=4)
        client = RawClient(server.address)
        assert isinstance(client.ask(open_message(1, [1, 2], limit=100)), wire.Opened)
        for round_ in range(1, 31):
            client.send(wire.DraftUp(1, round_, 1, []))
        replies = heard(client)
        busy = [reply for reply in replies if isinstance(reply, wire.ErrorDown)]
        assert len(busy) >= 20
        refused(busy[0], wire.ERROR_BUSY, "4 are allowed")
        assert isinstance(client.ask(wire.DraftUp(1, 40, 2, [])), wire.VerdictDown), (
            "the session is still there"
        )
        assert server.server._admission.ledger.account(b"").queued_forwards == 0
        client.close()

    @pytest.mark.parametrize("bound", ["max_queued_mb", "max_total_queued_mb"])
    def test_no_more_bytes_wait_than_may(
        self, vision_pair: Pair, start_server: StartServer, slow: None, bound: str
    ) -> None:
        server = start_server(vision_pair.target, **{bound: 1.0})
        client = RawClient(server.address)
        for session in range(1, 7):
            client.send(look(vision_pair.target, session, png(56, 56, 600_000)))
        replies = heard(client, 1.0)
        busy = [reply for reply in replies if isinstance(reply, wire.ErrorDown)]
        assert len(busy) >= 3 and any(isinstance(reply, wire.Opened) for reply in replies)
        refused(busy[0], wire.ERROR_BUSY, "1 MB are allowed")
        assert server.server._admission.ledger.queued_bytes == 0, "all given back"
        client.close()

    def test_what_was_closed_before_its_turn_is_given_back(
        self, text_pair: Pair, start_server: StartServer, slow: None
    ) -> None:
        server = start_server(text_pair.target)
        client = RawClient(server.address)
        for session in range(1, 6):
            client.send(open_message(session, [1, 2], stream=True, limit=300))
        for session in range(1, 6):
            client.send(wire.Close(session))
        client.ask(wire.Ping(0))
        heard(client)
        assert server.server._admission.ledger.queued_bytes == 0
        assert len(server.server._admission.sessions) == 0
        client.close()


class TestSizes:
    def test_a_draft_of_too_many_nodes_is_refused_and_its_session_lives(
        self, text_pair: Pair, start_server: StartServer
    ) -> None:
        server = start_server(text_pair.target, max_draft_nodes=100)
        client = RawClient(server.address)
        assert isinstance(client.ask(open_message(1, [1, 2])), wire.Opened)
        tree = wire.DraftUp(1, 1, 1, [1] * 101, [-1] * 101)
        refused(client.ask(tree), wire.ERROR_TOO_LARGE, "101 tokens", "100 are allowed")
        assert isinstance(client.ask(wire.DraftUp(1, 1, 1, [1] * 100, [-1] * 100)), wire.VerdictDown)
        client.close()

    def test_pictures_are_measured_by_their_headers(
        self, vision_pair: Pair, start_server: StartServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def forbidden(data: bytes) -> None:
            raise AssertionError("decoded")

        server = start_server(vision_pair.target, max_image_megapixels=1.0, max_images=4)
        monkeypatch.setattr("specdec.pictures.decoding.decode_image", forbidden)
        client, model = RawClient(server.address), vision_pair.target
        small, wide = png(56, 56), png(1200, 900)
        refused(
            client.ask(look(model, 1, wide)), wire.ERROR_TOO_LARGE, "1080000 pixels", "1000000 are allowed"
        )
        refused(client.ask(look(model, 1, *[small] * 5)), wire.ERROR_TOO_LARGE, "5 images", "4 are allowed")
        refused(client.ask(look(model, 1, b"\xff\xd8\xff junk")), wire.ERROR_REFUSED, "cannot be decoded")
        long = wire.Open(1, False, sampling_to_wire(OPTIONS), [1] * model.context_limit)
        refused(client.ask(long), wire.ERROR_TOO_LARGE, f"takes {model.context_limit}", "shorten")
        assert len(server.server._admission.sessions) == 0
        client.close()

    def test_sixty_four_large_pictures_cost_nothing(
        self, vision_pair: Pair, start_server: StartServer
    ) -> None:
        server = start_server(vision_pair.target)
        client = RawClient(server.address)
        message = look(vision_pair.target, 1, *[png(5000, 5000)] * 64)
        started = time.process_time()
        refused(client.ask(message), wire.ERROR_TOO_LARGE)
        assert time.process_time() - started < 0.5
        client.close()

    def test_the_welcome_tells_all_that_and_edges_do_not_even_ask(
        self, vision_pair: Pair, start_server: StartServer
    ) -> None:
        server = start_server(
            vision_pair.target, max_image_megapixels=1.0, max_images=4, max_message_mb=0.1, max_draft_nodes=8
        )
        model = vision_pair.target
        with connect(server.address) as link:
            allowed = link.ensure_connected().allowed
            assert (allowed.message_bytes, allowed.images, allowed.image_pixels) == (104857, 4, 1_000_000)
            assert (allowed.draft_nodes, allowed.sessions, allowed.timeout_ms) == (8, 8, 120_000)
            ids = look(model, 1, b"").ids
            five = look(model, 1, *[b""] * 5).ids
            for prompt, words in (
                (Prompt(tuple(ids), (png(1200, 900),)), "1080000 pixels"),
                (Prompt(tuple(five), (png(56, 56),) * 5), "5 images"),
                (Prompt(tuple(ids), (png(56, 56, 200_000),)), "message of 200"),
                (Prompt((1,) * model.context_limit), "shorten"),
            ):
                with pytest.raises(OptionsError, match=words):
                    list(EdgeDecoder(link, method="ar").generate(prompt, OPTIONS))
            with pytest.raises(OptionsError, match="drafts of 9 tokens"):
                list(EdgeDecoder(link, vision_pair.draft, "sd", gamma=9).generate(Prompt((1,)), OPTIONS))
            assert not events(server, "too_large")
            assert flat(EdgeDecoder(link, method="ar").generate(Prompt((1, 2)), OPTIONS))


class TestSpeed:
    def test_who_talks_too_fast_is_told_so_and_only_that_one(
        self, text_pair: Pair, start_server: StartServer
    ) -> None:
        server = start_server(text_pair.target, max_messages_per_s=50)
        flood, calm = RawClient(server.address), RawClient(server.address)
        for _ in range(500):
            flood.send(wire.Ping(0))
        replies = heard(flood)
        pongs = sum(isinstance(reply, wire.Pong) for reply in replies)
        assert 100 <= pongs <= 130
        refused(
            next(one for one in replies if isinstance(one, wire.ErrorDown)), wire.ERROR_BUSY, "50 messages"
        )
        assert len(replies) - pongs < 10, "it is not told so five hundred times"
        assert isinstance(calm.ask(wire.Ping(0)), wire.Pong)
        time.sleep(0.1)
        assert isinstance(flood.ask(wire.Ping(0)), wire.Pong), "and later it may talk again"
        flood.close()
        calm.close()

    def test_verdicts_of_others_come_as_fast_while_one_client_floods(
        self, text_pair: Pair, start_server: StartServer
    ) -> None:
        server = start_server(text_pair.target)
        client = RawClient(server.address)
        assert isinstance(client.ask(open_message(1, [1, 2], limit=400)), wire.Opened)

        def verdict_s() -> float:
            times = []
            for _ in range(40):
                started = time.perf_counter()
                assert isinstance(client.ask(wire.DraftUp(1, next(rounds), 1, [])), wire.VerdictDown)
                times.append(time.perf_counter() - started)
            return sorted(times)[20]

        rounds = iter(range(1, 1000))
        alone = verdict_s()
        over = threading.Event()

        def flood() -> None:
            hostile = RawClient(server.address)
            while not over.is_set():
                try:
                    hostile.socket.send(wire.encode(open_message(1, [1] * 300)), zmq.DONTWAIT)
                except zmq.Again:
                    time.sleep(0.001)
            hostile.close()

        thread = threading.Thread(target=flood)
        thread.start()
        beside = verdict_s()
        over.set()
        thread.join()
        client.close()
        # A forward of the flood's before it, and a share of two cores with the flood itself.
        assert beside < 4 * alone + 0.05


class TestSlowReaders:
    def test_a_client_that_does_not_read_stands_still_and_goes_on_when_it_does(
        self, text_pair: Pair, start_server: StartServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("cloud_verifier.net.router._SEND_BUFFER", 16_384)
        server = start_server(text_pair.target, max_output_mb=0.02, max_messages_per_s=100_000)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        slow = context.socket(zmq.DEALER)
        slow.setsockopt(zmq.RCVHWM, 1)
        slow.setsockopt(zmq.RCVBUF, 4096)
        slow.connect(server.address)
        # Complaints about nonsense are long: they fill what the systems on the way hold.
        deadline = time.monotonic() + 10
        while not events(server, "suspended") and time.monotonic() < deadline:
            for _ in range(500):
                slow.send(b"nonsense")
            time.sleep(0.05)
        assert events(server, "suspended")
        slow.send(wire.encode(open_message(1, [1, 2])))
        time.sleep(0.1)
        assert not events(server, "open"), "who does not read gets no more work"
        still_works(text_pair, server)
        while slow.poll(500):
            slow.recv()
        assert events(server, "taken_up")
        slow.send(wire.encode(open_message(2, [1, 2])))
        assert slow.poll(2000) and isinstance(wire.decode_down(slow.recv()), wire.Opened)
        slow.close(linger=0)
        context.term()

    def test_the_sessions_of_a_client_that_does_not_read_run_no_forwards(
        self, text_pair: Pair, start_server: StartServer, slow: None
    ) -> None:
        server = start_server(text_pair.target)
        client = RawClient(server.address)
        welcome = client.ask(wire.Hello(wire.PROTOCOL_VERSION))
        assert isinstance(welcome, wire.Welcome)
        opened = client.ask(open_message(1, [1, 2, 3], stream=True, limit=30))
        assert isinstance(opened, wire.Opened) and opened.token is not None
        answer = [opened.token]
        identity = next(iter(server.server._admission.sessions))[0]
        server.server._pause(identity, True)  # what the outbox says where too much waits in it
        replies = heard(client, 0.25)
        assert len(replies) < 5
        server.server._pause(identity, False)
        replies += heard(client, 0.25)
        for reply in replies:
            assert isinstance(reply, wire.Tokens)
            answer += reply.ids
        pace(text_pair.target, 0)
        expected = generate_local(text_pair.target, Prompt((1, 2, 3)), GenerationOptions(30))
        assert answer[: len(expected)] == expected
        client.close()


class TestBusyVerifiers:
    """Edges that are turned away try again, less and less often, and say so once."""

    @pytest.mark.parametrize("method", ["ar", "sd"])
    def test_an_edge_waits_for_its_turn(
        self, text_pair: Pair, start_server: StartServer, method: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        server = start_server(text_pair.target, max_sessions=1)
        holder = RawClient(server.address)
        assert isinstance(holder.ask(open_message(1, [1])), wire.Opened)
        threading.Timer(0.8, lambda: holder.send(wire.Close(1))).start()
        prompt = chat_prompt(text_pair.target, "patience")
        with connect(server.address) as link, caplog.at_level(logging.WARNING):
            decoder = EdgeDecoder(link, text_pair.draft, method, resume_timeout_s=10)
            assert flat(decoder.generate(prompt, OPTIONS)) == generate_local(
                text_pair.target, prompt, OPTIONS
            )
        assert decoder.stats.resumes == 0, "the link was never lost"
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == 1 and "is busy" in said[0] and "1 sessions are taken" in said[0]
        assert 1 <= len(events(server, "busy")) <= 6
        holder.close()

    def test_an_edge_that_has_no_time_says_so_at_once(
        self, text_pair: Pair, start_server: StartServer
    ) -> None:
        server = start_server(text_pair.target, max_sessions=1)
        holder = RawClient(server.address)
        assert isinstance(holder.ask(open_message(1, [1])), wire.Opened)
        with connect(server.address) as link:
            for seconds in (0.0, 0.4):
                started = time.monotonic()
                decoder = EdgeDecoder(link, method="ar", resume_timeout_s=seconds)
                with pytest.raises(VerifierBusy, match="try again later"):
                    list(decoder.generate(Prompt((1,)), OPTIONS))
                assert seconds <= time.monotonic() - started < seconds + 0.5
        holder.close()
