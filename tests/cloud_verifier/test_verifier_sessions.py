"""Sessions of the server in this process: how many, how long, beside each other, with pictures."""

from __future__ import annotations

import threading
import time
from io import StringIO

import pytest

from cloud_verifier.config import ServerConfig
from cloud_verifier.errors import VerifierError
from cloud_verifier.logs import EventLog
from cloud_verifier.net.clients import SessionTable
from cloud_verifier.observing.counts import SessionUse
from specdec.edge.decoder import EdgeDecoder, connect
from specdec.link import wire
from specdec.models import Prompt, chat_prompt
from specdec.models.local import generate_local
from specdec.models.plans import planned
from specdec.models.timing.pacing import pace
from specdec.options import GenerationOptions
from specdec.verifying import Verifier
from tests.cloud_verifier.raw_client import OPTIONS, RawClient, events, open_message, still_works
from tests.helpers import tiny_models as tiny
from tests.helpers.servers import Pair, RunningServer, StartServer
from tests.helpers.waiting import until


class TestSessions:
    @pytest.mark.slow
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

    @pytest.mark.slow
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

    @pytest.mark.slow
    def test_the_sessions_of_a_client_that_is_gone_are_closed(
        self, text_pair: Pair, start_server: StartServer
    ) -> None:
        server = start_server(text_pair.target)
        raw = RawClient(server.address)
        raw.ask(open_message(1, [1, 2], stream=True, limit=400))
        raw.close()
        until(lambda: events(server, "closed"), 5)
        still_works(text_pair, server)

    @pytest.mark.slow
    def test_sessions_of_two_clients_with_one_number_are_two(self, server: RunningServer) -> None:
        one, two = RawClient(server.address), RawClient(server.address)
        first = one.ask(open_message(1, [1, 2, 3]))
        second = two.ask(open_message(1, [9, 8, 7, 6]))
        again = one.ask(wire.DraftUp(1, 1, 1, []))
        assert isinstance(first, wire.Opened) and isinstance(second, wire.Opened)
        assert isinstance(again, wire.VerdictDown)
        one.close()
        two.close()

    @pytest.mark.realtime
    def test_heartbeats_are_answered_while_a_forward_runs(
        self, server: RunningServer, client: RawClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert isinstance(client.ask(open_message(1, [1, 2])), wire.Opened)
        original = Verifier.verify
        release = threading.Event()

        def slow(self: Verifier, *arguments: object) -> object:
            release.wait(10)
            return original.method(self, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(Verifier, "verify", planned(slow))  # type: ignore[arg-type]
        client.send(wire.DraftUp(1, 1, 1, [1]))
        started = time.monotonic()
        for _ in range(20):
            assert client.ask(wire.Ping(1)) == wire.Pong(1, 1, 0)
        assert time.monotonic() - started < 1.0
        release.set()
        assert isinstance(client.receive(), wire.VerdictDown)
        assert client.ask(wire.Ping(1)) == wire.Pong(1, 1, 1)

    @pytest.mark.slow
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

    @pytest.mark.slow
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

    @pytest.mark.slow
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
        first, later = (SessionUse("", EventLog(StringIO()), began_s=at_s) for at_s in (0.0, 5.0))
        assert table.add((b"a", 1), b"a", first)
        assert table.add((b"a", 1), b"a", later)  # opened again
        assert not table.add((b"b", 1), b"b", later)
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
