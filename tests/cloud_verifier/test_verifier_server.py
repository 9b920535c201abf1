"""The server in this process: bad messages and bad requests; each fault stays where it is."""

from __future__ import annotations

import itertools
import socket
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloud_verifier.net.clients import Client
from cloud_verifier.security.keyring import utc_now
from cloud_verifier.security.records import ClientKey
from specdec.edge.decoder import EdgeDecoder, connect
from specdec.errors import RequestRefused
from specdec.link import wire
from specdec.link.convert import sampling_to_wire
from specdec.models import Prompt, chat_prompt
from specdec.models.plans import planned
from specdec.models.timing.row_times import ROWS_TRIED, time_rows
from specdec.options import GenerationOptions
from specdec.row_ms import read_ms
from specdec.verifying import Verifier
from tests.cloud_verifier.raw_client import OPTIONS, RawClient, events, open_message, still_works
from tests.helpers import tiny_models as tiny
from tests.helpers.pictures import png
from tests.helpers.servers import Pair, RunningServer, StartServer


class TestHandshake:
    @pytest.mark.slow
    def test_welcome_says_who_is_there(self, text_pair: Pair, client: RawClient) -> None:
        welcome = client.ask(wire.Hello(wire.PROTOCOL_VERSION, "test"))
        assert isinstance(welcome, wire.Welcome)
        assert welcome.vocab_size == text_pair.target.vocab_size
        assert welcome.vocabulary == text_pair.target.vocabulary_fingerprint
        assert set(welcome.eos_ids) == text_pair.target.eos_token_ids
        assert welcome.row_us == []

    @pytest.mark.slow
    def test_welcome_tells_what_rows_cost(self, text_pair: Pair, server: RunningServer, client: RawClient) -> None:
        prices = time_rows(text_pair.target)
        assert [rows for rows, _ in prices] == list(ROWS_TRIED) and all(us > 0 for _, us in prices)
        assert time_rows(text_pair.target, read_ms("50:1,90:32"))[-1] == (32, 90_000)
        passing = itertools.count()
        assert len(time_rows(text_pair.target, clock=lambda: float(next(passing)))) == 1, "no more than a second"
        server.server.tell_prices(prices)
        welcome = client.ask(wire.Hello(wire.PROTOCOL_VERSION, "test"))
        assert isinstance(welcome, wire.Welcome) and (welcome.row_us, welcome.draft_us) == (prices, 0)
        server.server.tell_prices(prices, 1_250)
        welcome = client.ask(wire.Hello(wire.PROTOCOL_VERSION, "test"))
        assert isinstance(welcome, wire.Welcome) and welcome.draft_us == 1_250

    @pytest.mark.slow
    def test_other_version_is_refused_with_both_numbers(
        self, client: RawClient, server: RunningServer
    ) -> None:
        error = client.ask(wire.Hello(99, "future"))
        assert isinstance(error, wire.ErrorDown) and error.code == wire.ERROR_VERSION
        assert "99" in error.message and str(wire.PROTOCOL_VERSION) in error.message
        assert events(server, "version_mismatch")


class TestBadMessages:
    @pytest.mark.slow
    @pytest.mark.parametrize("data", [b"", b"\x00", b"garbage" * 100, b"\x95\x03\x01", b"\xff" * 40])
    def test_garbage_is_refused_and_logged(self, text_pair: Pair, server: RunningServer, data: bytes) -> None:
        raw = RawClient(server.address)
        raw.socket.send(data)
        reply = raw.receive()
        raw.close()
        assert isinstance(reply, wire.ErrorDown) and reply.code == wire.ERROR_MALFORMED
        assert events(server, "malformed")
        still_works(text_pair, server)

    @pytest.mark.slow
    def test_a_flood_of_garbage_does_not_flood_the_log(self, text_pair: Pair, server: RunningServer) -> None:
        raw = RawClient(server.address)
        for _ in range(200):
            raw.socket.send(b"garbage")
        for _ in range(200):
            raw.receive()
        raw.close()
        assert 0 < len(events(server, "malformed")) <= 5
        still_works(text_pair, server)

    @pytest.mark.slow
    def test_several_frames_are_refused(self, server: RunningServer, client: RawClient) -> None:
        client.socket.send_multipart([b"a", b"b", b"c"])
        reply = client.receive()
        assert isinstance(reply, wire.ErrorDown) and "3 frames" in reply.message

    @pytest.mark.slow
    def test_bytes_that_are_not_even_zeromq_are_ignored(self, text_pair: Pair, server: RunningServer) -> None:
        host, port = server.address.removeprefix("tcp://").split(":")
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100_000, b""):
            with socket.create_connection((host, int(port)), timeout=2) as plain:
                plain.sendall(data)
        still_works(text_pair, server)

    @pytest.mark.slow
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

    @pytest.mark.slow
    def test_replies_of_a_server_sent_to_the_server_are_refused(self, client: RawClient) -> None:
        client.socket.send(wire.encode(wire.VerdictDown(1, 1, 1, 1, 1, 1)))
        reply = client.receive()
        assert isinstance(reply, wire.ErrorDown) and reply.code == wire.ERROR_MALFORMED

    @pytest.mark.slow
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

    @pytest.mark.slow
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

    @pytest.mark.slow
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

    @pytest.mark.slow
    def test_drafting_in_a_cloud_without_a_draft_model_is_refused(self, client: RawClient) -> None:
        reply = client.ask(wire.Open(1, True, sampling_to_wire(OPTIONS), [1], speculate=4))
        assert isinstance(reply, wire.ErrorDown) and "--draft-model" in reply.message

    @pytest.mark.slow
    def test_rejection_sampling_that_was_not_agreed_on_is_refused(self, client: RawClient) -> None:
        assert isinstance(client.ask(open_message(1, [1])), wire.Opened)
        reply = client.ask(wire.SampledUp(1, 1, 1, [5], b"\0\0\0\0"))
        assert isinstance(reply, wire.ErrorDown) and "agreed" in reply.message

    @pytest.mark.slow
    def test_going_on_alone_where_every_token_needs_a_draft_is_refused(self, client: RawClient) -> None:
        sampled = sampling_to_wire(GenerationOptions(24, temperature=1.0))
        assert isinstance(client.ask(wire.Open(1, False, sampled, [1], recovery=2)), wire.Opened)
        reply = client.ask(wire.AloneUp(1, 1))
        assert isinstance(reply, wire.ErrorDown) and "needs a draft" in reply.message

    @pytest.mark.slow
    def test_corrupt_image_is_refused(self, vision_pair: Pair, start_server: StartServer) -> None:
        server = start_server(vision_pair.target)
        prompt = chat_prompt(vision_pair.target, "see", images=[tiny.picture(1)])
        broken = Prompt(prompt.ids, (tiny.picture(1)[:300],))
        with connect(server.address) as link, pytest.raises(RequestRefused, match="image cannot be decoded"):
            list(EdgeDecoder(link, method="ar").generate(broken))
        still_works(vision_pair, server)

    @pytest.mark.slow
    def test_an_exception_in_one_session_does_not_end_another(
        self, text_pair: Pair, server: RunningServer, client: RawClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert isinstance(client.ask(open_message(1, [1, 2])), wire.Opened)
        assert isinstance(client.ask(open_message(2, [1, 2])), wire.Opened)
        original = Verifier.verify
        monkeypatch.setattr(Verifier, "verify", planned(lambda *_: 1 / 0))  # type: ignore[arg-type]
        reply = client.ask(wire.DraftUp(1, 1, 1, [1]))
        assert isinstance(reply, wire.ErrorDown) and reply.code == wire.ERROR_INTERNAL
        assert "ZeroDivisionError" in str(events(server, "session_failed")[0]["traceback"])
        monkeypatch.setattr(Verifier, "verify", original)
        assert isinstance(client.ask(wire.DraftUp(2, 1, 1, [1])), wire.VerdictDown)
        still_works(text_pair, server)


class TestWhatOthersLearn:
    @pytest.mark.slow
    def test_a_greeting_and_a_refusal_name_the_model_and_not_where_it_lies(
        self, server: RunningServer, client: RawClient, text_pair: Pair
    ) -> None:
        told = client.ask(wire.Hello(wire.PROTOCOL_VERSION))
        assert isinstance(told, wire.Welcome)
        assert Path(text_pair.target.path).is_absolute() and told.model == Path(text_pair.target.path).name
        refused = [
            client.ask(open_message(1, [5000])),
            client.ask(open_message(1, [1] * 5000)),
            client.ask(wire.Open(1, False, sampling_to_wire(OPTIONS), [1, 2], [png(28, 28)])),
        ]
        for one in refused:
            assert isinstance(one, wire.ErrorDown) and "/" not in one.message, one

    @pytest.mark.slow
    def test_caches_are_shared_within_a_scope_of_a_key_only(self, server: RunningServer) -> None:
        admission = server.server._admission
        one, other = admission.clients.heard_of(b"1"), admission.clients.heard_of(b"2")
        for client, name in ((one, "api"), (other, "robot")):
            client.key = ClientKey(name, "x" * 40, utc_now())

        def scope(client: Client, within: str) -> bytes:
            return admission._scope_of(client, msgspec.structs.replace(open_message(1, [1]), scope=within))

        told = ("", "a", "b", "a" * 63 + "1", "a" * 63 + "2")
        within = [scope(client, text) for client in (one, other) for text in told]
        assert len(set(within)) == len(within)
        assert scope(one, "a") == scope(one, "a")

    @pytest.mark.slow
    def test_an_edge_that_serves_somebody_else_from_now_on_says_so_and_forgets(
        self, server: RunningServer, text_pair: Pair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        admission, scopes = server.server._admission, []
        monkeypatch.setattr(admission, "_scope_of", lambda client, message: scopes.append(message.scope) or b"")
        prompt = chat_prompt(text_pair.target, "a secret that the next one must not find")
        with connect(server.address) as link:
            decoder = EdgeDecoder(link, text_pair.draft, "ngram")
            list(decoder.generate(prompt, OPTIONS))
            assert decoder.memory is not None and len(decoder._said)
            decoder.serve("another")
            assert not len(decoder._said)
            list(decoder.generate(prompt, OPTIONS))
        assert scopes == ["", "another"]
