"""Messages that are late, stale, wrong or lost: the edge notices, and the answer stays what it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from specdec.edge.controller import Choice, Controller, Plan
from specdec.edge.decoder import EdgeDecoder, connect
from specdec.errors import LinkLost, ProtocolError
from specdec.link import wire
from specdec.link.channel import Link
from specdec.models import Prompt, chat_prompt
from specdec.models.local import generate_local
from tests.helpers.servers import Pair
from tests.helpers.waiting import until
from tests.specdec.scripted_server import OPTIONS, ScriptedServer, collect, welcome

pytestmark = [pytest.mark.realtime, pytest.mark.slow]


def verdict(message: wire.DraftUp, right: list[int]) -> wire.VerdictDown:
    """What an honest verifier says whose answer is `right` and then ends with EOS 256 or the limit."""
    truth = [*right[message.base :], 256]
    accepted = 0
    while accepted < len(message.ids) and message.ids[accepted] == truth[accepted] and truth[accepted] != 256:
        accepted += 1
    return wire.VerdictDown(message.session, message.round, accepted, truth[accepted], 10, 10)


class Case(NamedTuple):
    """A question, its right answer, and a script that verifies correctly."""

    prompt: Prompt
    right: list[int]
    honest: Callable[[wire.Up, Callable[[wire.Down], None]], None]


@pytest.fixture
def case(text_pair: Pair) -> Case:
    prompt = chat_prompt(text_pair.target, "late")
    right = generate_local(text_pair.target, prompt, OPTIONS)

    def honest(message: wire.Up, send: Callable[[wire.Down], None]) -> None:
        if isinstance(message, wire.Hello):
            send(welcome(text_pair))
        elif isinstance(message, wire.Open):
            send(wire.Opened(message.session, right[len(message.history)], 30, 10, 10))
        elif isinstance(message, wire.DraftUp):
            send(verdict(message, right))

    return Case(prompt, right, honest)


class TestLateAndLost:
    """A script that verifies correctly, with one fault."""

    def test_stale_verdicts_are_ignored(
        self, case: Case, text_pair: Pair, scripted: Callable[..., ScriptedServer]
    ) -> None:
        prompt, right, honest = case

        def script(message: wire.Up, send: Callable[[wire.Down], None]) -> None:
            if isinstance(message, wire.DraftUp):
                send(wire.VerdictDown(message.session, message.round - 1, 0, 66, 1, 1))
                send(wire.VerdictDown(message.session + 1, message.round, 0, 77, 1, 1))
                send(wire.Tokens(message.session + 1, 0, [88], 1, 1))
            honest(message, send)
            if isinstance(message, wire.DraftUp):
                # The same round once more.
                send(wire.VerdictDown(message.session, message.round, 0, 99, 1, 1))

        server = scripted(script)
        assert collect(EdgeDecoder(connect(server.address), text_pair.draft), prompt) == right

    def test_a_verdict_that_accepts_more_than_was_drafted_is_a_protocol_error(
        self, case: Case, text_pair: Pair, scripted: Callable[..., ScriptedServer]
    ) -> None:
        prompt, honest = case.prompt, case.honest

        def script(message: wire.Up, send: Callable[[wire.Down], None]) -> None:
            if isinstance(message, wire.DraftUp):
                send(wire.VerdictDown(message.session, message.round, 60, 1, 1, 1))
            else:
                honest(message, send)

        server = scripted(script)
        with pytest.raises(ProtocolError, match="accepts node 60"):
            collect(EdgeDecoder(connect(server.address), text_pair.draft), prompt)

    @pytest.mark.parametrize("lost", ["draft", "verdict", "session"])
    def test_a_lost_message_is_noticed_by_heartbeat_and_made_good(
        self, case: Case, text_pair: Pair, scripted: Callable[..., ScriptedServer], lost: str
    ) -> None:
        prompt, right, honest = case
        faults = [2, 5]
        received = 0

        def script(message: wire.Up, send: Callable[[wire.Down], None]) -> None:
            nonlocal received
            if isinstance(message, wire.Ping):
                if lost == "session":
                    send(wire.ErrorDown(message.session, wire.ERROR_UNKNOWN_SESSION, "who?"))
                else:
                    send(wire.Pong(message.session, received, received))
                return
            if isinstance(message, wire.DraftUp):
                if message.round in faults:
                    faults.remove(message.round)
                    if lost == "verdict":
                        received = message.round
                    return
                received = message.round
            honest(message, send)

        server = scripted(script)
        decoder = EdgeDecoder(connect(server.address, reply_timeout_s=0.4), text_pair.draft)
        assert collect(decoder, prompt) == right
        assert decoder.stats.resumes == 2
        reopened = [message for message in server.seen if isinstance(message, wire.Open)]
        assert len(reopened[0].history) == 0
        assert all(list(message.history) == right[: len(message.history)] for message in reopened)

    def test_lost_tokens_of_a_stream_are_noticed_by_heartbeat(
        self, case: Case, text_pair: Pair, scripted: Callable[..., ScriptedServer]
    ) -> None:
        """The last tokens before a silence are lost: no later ones show the gap."""
        prompt, right, honest = case

        def script(message: wire.Up, send: Callable[[wire.Down], None]) -> None:
            honest(message, send)
            if isinstance(message, wire.Open):
                base = len(message.history) + 1
                rest = [*right[base:], 256] if message.history else right[base : base + 3]
                send(wire.Tokens(message.session, base, rest, 1, 1))
            elif isinstance(message, wire.Ping):
                send(wire.Pong(message.session, 0, 0, streamed=9))

        server = scripted(script)
        decoder = EdgeDecoder(connect(server.address, reply_timeout_s=0.4), method="ar")
        assert collect(decoder, prompt) == right
        assert decoder.stats.resumes == 1

    def test_a_lost_wish_to_go_on_alone_is_noticed_by_heartbeat(
        self,
        case: Case,
        text_pair: Pair,
        scripted: Callable[..., ScriptedServer],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        prompt, right, honest = case
        plans = iter([Plan("chain", 3), Plan("alone"), Plan("alone")])  # the last one with the first shadow draft
        monkeypatch.setattr(Controller, "choose", lambda *given: Choice(next(plans, Plan("chain", 3)), "so"))
        monkeypatch.setattr(Controller, "opening", lambda self, remaining: self.choose(None, remaining))
        received = 0

        def script(message: wire.Up, send: Callable[[wire.Down], None]) -> None:
            nonlocal received
            if isinstance(message, wire.Ping):
                send(wire.Pong(message.session, received, received))
            elif isinstance(message, wire.DraftUp):
                received = message.round
            honest(message, send)

        server = scripted(script)
        decoder = EdgeDecoder(
            connect(server.address, reply_timeout_s=0.4), text_pair.draft, "auto", resume_timeout_s=5
        )
        assert collect(decoder, prompt) == right
        assert decoder.stats.resumes == 1

    def test_a_verifier_of_a_fleet_that_greets_but_does_not_serve_is_left_for_another(
        self, case: Case, text_pair: Pair, scripted: Callable[..., ScriptedServer]
    ) -> None:
        prompt, right, honest = case

        def greets(message: wire.Up, send: Callable[[wire.Down], None]) -> None:
            if isinstance(message, wire.Hello):
                honest(message, send)

        class Two:
            """A route to the first verifier, and to the second one as soon as the first has failed."""

            def __init__(self) -> None:
                self.places = [scripted(greets).address, scripted(honest).address]

            def next(self, deadline: float, give_up: Callable[[], bool]) -> str:
                return self.places[0]

            def failed(self, address: str) -> bool:
                if address == self.places[0] and len(self.places) > 1:
                    del self.places[0]
                    return True
                return False

            def begin(self, ids: Sequence[int], images: Sequence[bytes]) -> bool:
                return False

            def began(self) -> None: ...

            def rest(self) -> None: ...

            def close(self) -> None: ...

        with Link("fleet", connect_timeout_s=2.0, reply_timeout_s=0.3, route=Two()) as link:
            decoder = EdgeDecoder(link, text_pair.draft, "sd", resume_timeout_s=3)
            assert collect(decoder, prompt) == right

    def test_silence_is_a_link_lost_within_the_reply_timeout(
        self, case: Case, text_pair: Pair, scripted: Callable[..., ScriptedServer]
    ) -> None:
        prompt, right, honest = case
        silent_since: list[float] = []

        def script(message: wire.Up, send: Callable[[wire.Down], None]) -> None:
            if silent_since or (isinstance(message, wire.DraftUp) and message.round == 3):
                silent_since.append(time.monotonic())
            else:
                honest(message, send)

        server = scripted(script)
        decoder = EdgeDecoder(connect(server.address, reply_timeout_s=0.5), text_pair.draft)
        got: list[int] = []
        with pytest.raises(LinkLost, match="nothing was heard"):
            for chunk in decoder.generate(prompt, OPTIONS):
                got.extend(chunk)
        assert time.monotonic() - silent_since[0] < 1.0
        assert got == right[: len(got)]
        assert decoder.stats.finish == "failed"
        assert len(silent_since) > 1, "no heartbeat was sent"

    def test_a_verifier_that_only_speaks_of_other_sessions_is_a_link_lost(
        self, case: Case, text_pair: Pair, scripted: Callable[..., ScriptedServer]
    ) -> None:
        prompt, honest = case.prompt, case.honest
        astray_since: list[float] = []

        def script(message: wire.Up, send: Callable[[wire.Down], None]) -> None:
            if astray_since or (isinstance(message, wire.DraftUp) and message.round == 3):
                astray_since.append(time.monotonic())
                send(wire.Pong(999, 3, 3))
            else:
                honest(message, send)

        server = scripted(script)
        decoder = EdgeDecoder(connect(server.address, reply_timeout_s=0.4), text_pair.draft)
        with pytest.raises(LinkLost, match="nothing was heard"):
            collect(decoder, prompt)
        assert time.monotonic() - astray_since[0] < 1.0

    def test_a_busy_verifier_that_answers_heartbeats_is_waited_for(
        self, case: Case, text_pair: Pair, scripted: Callable[..., ScriptedServer]
    ) -> None:
        prompt, right, honest = case
        late: list[tuple[float, wire.Up, Callable[[wire.Down], None]]] = []

        def script(message: wire.Up, send: Callable[[wire.Down], None]) -> None:
            if isinstance(message, wire.DraftUp) and message.round == 2:
                late.append((time.monotonic(), message, send))
            elif isinstance(message, wire.Ping):
                send(wire.Pong(message.session, 2, 1))
                if late and time.monotonic() - late[0][0] > 1.0:
                    honest(*late.pop()[1:])
            else:
                honest(message, send)

        server = scripted(script)
        decoder = EdgeDecoder(connect(server.address, reply_timeout_s=0.3), text_pair.draft)
        assert collect(decoder, prompt) == right
        assert decoder.stats.resumes == 0
        assert max(one.wait_ms for one in decoder.stats.rounds) > 1000

    def test_cancel_ends_a_wait_and_closes_the_session(
        self, case: Case, text_pair: Pair, scripted: Callable[..., ScriptedServer]
    ) -> None:
        prompt, right, honest = case

        def script(message: wire.Up, send: Callable[[wire.Down], None]) -> None:
            if isinstance(message, wire.Ping):
                send(wire.Pong(message.session, 9, 0))
            elif not isinstance(message, wire.DraftUp):
                honest(message, send)

        server = scripted(script)
        cancel = threading.Event()
        threading.Timer(0.3, cancel.set).start()
        decoder = EdgeDecoder(connect(server.address), text_pair.draft)
        assert collect(decoder, prompt, cancel=cancel) == right[:1]
        assert decoder.stats.finish == "cancelled"
        until(lambda: isinstance(server.seen[-1], wire.Close), 2)
