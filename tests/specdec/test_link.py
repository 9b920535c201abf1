"""The edge against verifiers that die, forget, lie or come late, played by a scripted server in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
import zmq
from conftest_servers import Pair, StartServer

from specdec.edge.controller import Choice, Controller, Plan
from specdec.edge.decoder import EdgeDecoder, connect
from specdec.errors import LinkLost, ModelError, OptionsError, ProtocolError, VersionMismatch
from specdec.link import wire
from specdec.models import Prompt, chat_prompt
from specdec.models.local import generate_local
from specdec.options import GenerationOptions

pytestmark = pytest.mark.slow

OPTIONS = GenerationOptions(30)


class ScriptedServer:
    """A ROUTER whose answers a function decides: (message, send) -> None."""

    def __init__(self, pair: Pair, script: Callable[[wire.Up, Callable[[wire.Down], None]], None]) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.bind("tcp://127.0.0.1:*")
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._script = script
        self._pair = pair
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.seen: list[wire.Up] = []

    def welcome(self) -> wire.Welcome:
        target = self._pair.target
        return wire.Welcome(
            wire.PROTOCOL_VERSION,
            "scripted",
            target.vocab_size,
            target.vocabulary_fingerprint,
            sorted(target.eos_token_ids),
            512,
        )

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


@pytest.fixture
def scripted(text_pair: Pair) -> Iterator[Callable[..., ScriptedServer]]:
    made: list[ScriptedServer] = []

    def make(script: Callable[[wire.Up, Callable[[wire.Down], None]], None]) -> ScriptedServer:
        made.append(ScriptedServer(text_pair, script))
        return made[-1]

    yield make
    for server in made:
        server.close()


def collect(decoder: EdgeDecoder, prompt: Prompt, **settings: object) -> list[int]:
    return [token for chunk in decoder.generate(prompt, OPTIONS, **settings) for token in chunk]  # type: ignore[arg-type]


class TestNobodyThere:
    def test_no_verifier_is_a_link_lost_within_the_timeout(self, text_pair: Pair) -> None:
        started = time.monotonic()
        with pytest.raises(LinkLost, match="no verifier answers") as caught:
            collect(
                EdgeDecoder(connect("tcp://127.0.0.1:9", connect_timeout_s=0.6), text_pair.draft),
                Prompt((1,)),
            )
        assert 0.5 < time.monotonic() - started < 1.5
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("address", ["nonsense", "tcp://", "udp://1.2.3.4:5"])
    def test_unusable_address_is_a_link_lost(self, address: str) -> None:
        with pytest.raises(LinkLost, match="cannot be used"):
            connect(address, connect_timeout_s=0.3).ensure_connected()

    def test_cancel_ends_the_attempt_to_connect(self, text_pair: Pair) -> None:
        cancel = threading.Event()
        threading.Timer(0.2, cancel.set).start()
        decoder = EdgeDecoder(connect("tcp://127.0.0.1:9", connect_timeout_s=30), text_pair.draft)
        started = time.monotonic()
        assert collect(decoder, Prompt((1,)), cancel=cancel) == []
        assert time.monotonic() - started < 1.5
        assert decoder.stats.finish == "cancelled"

    def test_bad_settings_are_refused_with_the_range(self, text_pair: Pair) -> None:
        with pytest.raises(OptionsError, match="reply_timeout_s"):
            connect("tcp://127.0.0.1:9", reply_timeout_s=-1)
        link = connect("tcp://127.0.0.1:9")
        for settings in ({"method": "magic"}, {"gamma": 0}, {"gamma": 1000}, {"resume_timeout_s": -1}):
            with pytest.raises(OptionsError):
                EdgeDecoder(link, text_pair.draft, **settings)  # type: ignore[arg-type]
        with pytest.raises(OptionsError, match="draft model"):
            EdgeDecoder(link, None, method="sd")


class TestForeignServers:
    def test_other_protocol_version_is_said_so(
        self, text_pair: Pair, scripted: Callable[..., ScriptedServer]
    ) -> None:
        server = scripted(lambda message, send: send(wire.Welcome(99)))
        with pytest.raises(VersionMismatch, match="version 99"):
            collect(EdgeDecoder(connect(server.address), text_pair.draft), Prompt((1,)))

    def test_server_that_refuses_our_version_is_said_so(
        self, text_pair: Pair, scripted: Callable[..., ScriptedServer]
    ) -> None:
        server = scripted(lambda message, send: send(wire.ErrorDown(0, wire.ERROR_VERSION, "version 7 only")))
        with pytest.raises(VersionMismatch, match="version 7 only"):
            collect(EdgeDecoder(connect(server.address), text_pair.draft), Prompt((1,)))

    def test_different_vocabularies_are_refused_naming_both(
        self, text_pair: Pair, vision_pair: Pair, scripted: Callable[..., ScriptedServer]
    ) -> None:
        def other(message: wire.Up, send: Callable[[wire.Down], None]) -> None:
            send(wire.Welcome(wire.PROTOCOL_VERSION, "the-other-model", 999, b"87654321", [0], 512))

        server = scripted(other)
        with pytest.raises(ModelError, match=r"text-draft.*the-other-model.*different vocabularies"):
            collect(EdgeDecoder(connect(server.address), text_pair.draft), Prompt((1,)))

    def test_garbage_instead_of_an_answer_is_no_crash(
        self, text_pair: Pair, scripted: Callable[..., ScriptedServer]
    ) -> None:
        class Raw(wire.Pong, tag=99):
            pass

        server = scripted(lambda message, send: send(Raw(1, 2, 3)))
        link = connect(server.address, connect_timeout_s=0.5)
        with pytest.raises(LinkLost):
            link.ensure_connected()
        assert link.malformed > 0


class TestLateAndLost:
    """A script that verifies correctly, with one fault."""

    def right(self, text_pair: Pair) -> tuple[Prompt, list[int]]:
        prompt = chat_prompt(text_pair.target, "late")
        return prompt, generate_local(text_pair.target, prompt, OPTIONS)

    def honest(
        self, server_of: list[ScriptedServer], right: list[int], history: list[int] | None = None
    ) -> Callable[[wire.Up, Callable[[wire.Down], None]], None]:
        def script(message: wire.Up, send: Callable[[wire.Down], None]) -> None:
            if isinstance(message, wire.Hello):
                send(server_of[0].welcome())
            elif isinstance(message, wire.Open):
                send(wire.Opened(message.session, right[len(message.history)], 30, 10, 10))
            elif isinstance(message, wire.DraftUp):
                send(verdict(message, right))

        return script

    def test_stale_verdicts_are_ignored(
        self, text_pair: Pair, scripted: Callable[..., ScriptedServer]
    ) -> None:
        prompt, right = self.right(text_pair)
        servers: list[ScriptedServer] = []
        honest = self.honest(servers, right)

        def script(message: wire.Up, send: Callable[[wire.Down], None]) -> None:
            if isinstance(message, wire.DraftUp):
                send(wire.VerdictDown(message.session, message.round - 1, 0, 66, 1, 1))
                send(wire.VerdictDown(message.session + 1, message.round, 0, 77, 1, 1))
                send(wire.Tokens(message.session + 1, 0, [88], 1, 1))
            honest(message, send)
            if isinstance(message, wire.DraftUp):
                send(
                    wire.VerdictDown(message.session, message.round, 0, 99, 1, 1)
                )  # the same round once more

        servers.append(scripted(script))
        assert collect(EdgeDecoder(connect(servers[0].address), text_pair.draft), prompt) == right

    def test_a_verdict_that_accepts_more_than_was_drafted_is_a_protocol_error(
        self, text_pair: Pair, scripted: Callable[..., ScriptedServer]
    ) -> None:
        prompt, right = self.right(text_pair)
        servers: list[ScriptedServer] = []
        honest = self.honest(servers, right)

        def script(message: wire.Up, send: Callable[[wire.Down], None]) -> None:
            if isinstance(message, wire.DraftUp):
                send(wire.VerdictDown(message.session, message.round, 60, 1, 1, 1))
            else:
                honest(message, send)

        servers.append(scripted(script))
        with pytest.raises(ProtocolError, match="accepts node 60"):
            collect(EdgeDecoder(connect(servers[0].address), text_pair.draft), prompt)

    @pytest.mark.parametrize("lost", ["draft", "verdict", "session"])
    def test_a_lost_message_is_noticed_by_heartbeat_and_made_good(
        self, text_pair: Pair, scripted: Callable[..., ScriptedServer], lost: str
    ) -> None:
        prompt, right = self.right(text_pair)
        servers: list[ScriptedServer] = []
        honest = self.honest(servers, right)
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

        servers.append(scripted(script))
        decoder = EdgeDecoder(connect(servers[0].address, reply_timeout_s=0.4), text_pair.draft)
        assert collect(decoder, prompt) == right
        assert decoder.stats.resumes == 2
        reopened = [message for message in servers[0].seen if isinstance(message, wire.Open)]
        assert len(reopened[0].history) == 0
        assert all(list(message.history) == right[: len(message.history)] for message in reopened)

    def test_lost_tokens_of_a_stream_are_noticed_by_heartbeat(
        self, text_pair: Pair, scripted: Callable[..., ScriptedServer]
    ) -> None:
        """The last tokens before a silence are lost: no later ones show the gap."""
        prompt, right = self.right(text_pair)
        servers: list[ScriptedServer] = []
        honest = self.honest(servers, right)

        def script(message: wire.Up, send: Callable[[wire.Down], None]) -> None:
            honest(message, send)
            if isinstance(message, wire.Open):
                base = len(message.history) + 1
                rest = [*right[base:], 256] if message.history else right[base : base + 3]
                send(wire.Tokens(message.session, base, rest, 1, 1))
            elif isinstance(message, wire.Ping):
                send(wire.Pong(message.session, 0, 0, streamed=9))

        servers.append(scripted(script))
        decoder = EdgeDecoder(connect(servers[0].address, reply_timeout_s=0.4), method="ar")
        assert collect(decoder, prompt) == right
        assert decoder.stats.resumes == 1

    def test_a_lost_wish_to_go_on_alone_is_noticed_by_heartbeat(
        self, text_pair: Pair, scripted: Callable[..., ScriptedServer], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        prompt, right = self.right(text_pair)
        servers: list[ScriptedServer] = []
        honest = self.honest(servers, right)
        plans = iter([Plan("chain", 3), Plan("alone")])
        monkeypatch.setattr(Controller, "choose", lambda *given: Choice(next(plans, Plan("chain", 3)), "so"))
        received = 0

        def script(message: wire.Up, send: Callable[[wire.Down], None]) -> None:
            nonlocal received
            if isinstance(message, wire.Ping):
                send(wire.Pong(message.session, received, received))
            elif isinstance(message, wire.DraftUp):
                received = message.round
            honest(message, send)

        servers.append(scripted(script))
        decoder = EdgeDecoder(
            connect(servers[0].address, reply_timeout_s=0.4), text_pair.draft, "auto", resume_timeout_s=5
        )
        assert collect(decoder, prompt) == right
        assert decoder.stats.resumes == 1

    def test_silence_is_a_link_lost_within_the_reply_timeout(
        self, text_pair: Pair, scripted: Callable[..., ScriptedServer]
    ) -> None:
        prompt, right = self.right(text_pair)
        servers: list[ScriptedServer] = []
        honest = self.honest(servers, right)
        silent_since: list[float] = []

        def script(message: wire.Up, send: Callable[[wire.Down], None]) -> None:
            if silent_since or (isinstance(message, wire.DraftUp) and message.round == 3):
                silent_since.append(time.monotonic())
            else:
                honest(message, send)

        servers.append(scripted(script))
        decoder = EdgeDecoder(connect(servers[0].address, reply_timeout_s=0.5), text_pair.draft)
        got: list[int] = []
        with pytest.raises(LinkLost, match="nothing was heard"):
            for chunk in decoder.generate(prompt, OPTIONS):
                got.extend(chunk)
        assert time.monotonic() - silent_since[0] < 1.0
        assert got == right[: len(got)]
        assert decoder.stats.finish == "failed"
        assert len(silent_since) > 1, "no heartbeat was sent"

    def test_a_verifier_that_only_speaks_of_other_sessions_is_a_link_lost(
        self, text_pair: Pair, scripted: Callable[..., ScriptedServer]
    ) -> None:
        prompt, right = self.right(text_pair)
        servers: list[ScriptedServer] = []
        honest = self.honest(servers, right)
        astray_since: list[float] = []

        def script(message: wire.Up, send: Callable[[wire.Down], None]) -> None:
            if astray_since or (isinstance(message, wire.DraftUp) and message.round == 3):
                astray_since.append(time.monotonic())
                send(wire.Pong(999, 3, 3))
            else:
                honest(message, send)

        servers.append(scripted(script))
        decoder = EdgeDecoder(connect(servers[0].address, reply_timeout_s=0.4), text_pair.draft)
        with pytest.raises(LinkLost, match="nothing was heard"):
            collect(decoder, prompt)
        assert time.monotonic() - astray_since[0] < 1.0

    def test_a_busy_verifier_that_answers_heartbeats_is_waited_for(
        self, text_pair: Pair, scripted: Callable[..., ScriptedServer]
    ) -> None:
        prompt, right = self.right(text_pair)
        servers: list[ScriptedServer] = []
        honest = self.honest(servers, right)
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

        servers.append(scripted(script))
        decoder = EdgeDecoder(connect(servers[0].address, reply_timeout_s=0.3), text_pair.draft)
        assert collect(decoder, prompt) == right
        assert decoder.stats.resumes == 0
        assert max(one.wait_ms for one in decoder.stats.rounds) > 1000

    def test_cancel_ends_a_wait_and_closes_the_session(
        self, text_pair: Pair, scripted: Callable[..., ScriptedServer]
    ) -> None:
        prompt, right = self.right(text_pair)
        servers: list[ScriptedServer] = []
        honest = self.honest(servers, right)

        def script(message: wire.Up, send: Callable[[wire.Down], None]) -> None:
            if isinstance(message, wire.Ping):
                send(wire.Pong(message.session, 9, 0))
            elif not isinstance(message, wire.DraftUp):
                honest(message, send)

        servers.append(scripted(script))
        cancel = threading.Event()
        threading.Timer(0.3, cancel.set).start()
        decoder = EdgeDecoder(connect(servers[0].address), text_pair.draft)
        assert collect(decoder, prompt, cancel=cancel) == right[:1]
        assert decoder.stats.finish == "cancelled"
        deadline = time.monotonic() + 2
        while not isinstance(servers[0].seen[-1], wire.Close) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert isinstance(servers[0].seen[-1], wire.Close)


def verdict(message: wire.DraftUp, right: list[int]) -> wire.VerdictDown:
    """What an honest verifier says whose answer is `right` and then ends with EOS 256 or the limit."""
    truth = [*right[message.base :], 256]
    accepted = 0
    while accepted < len(message.ids) and message.ids[accepted] == truth[accepted] and truth[accepted] != 256:
        accepted += 1
    return wire.VerdictDown(message.session, message.round, accepted, truth[accepted], 10, 10)


class TestRealServer:
    """The same with a real verifier in this process."""

    def test_history_goes_on_as_if_nothing_had_happened(self, pair: Pair, servers: dict[str, str]) -> None:
        prompt = chat_prompt(pair.target, "go on")
        right = generate_local(pair.target, prompt, OPTIONS)
        with connect(servers[pair.target.path]) as link:
            for method in ("ar", "sd"):
                decoder = EdgeDecoder(link, pair.draft, method)
                for cut in (1, 4, len(right) - 1):
                    assert collect(decoder, prompt, history=right[:cut]) == right[cut:]

    @pytest.mark.parametrize("method", ["ar", "sd"])
    @pytest.mark.parametrize("temperature", [0.0, 0.8])
    def test_restarted_verifier_is_resumed_with_the_same_tokens(
        self, text_pair: Pair, start_server: StartServer, method: str, temperature: float
    ) -> None:
        prompt = chat_prompt(text_pair.target, "restart")
        options = GenerationOptions(60, temperature=temperature, seed=4)
        right = generate_local(text_pair.target, prompt, options)
        running = start_server(text_pair.target)
        link = connect(running.address, reply_timeout_s=0.5)
        decoder = EdgeDecoder(link, text_pair.draft, method, resume_timeout_s=10)
        got: list[int] = []
        restarted = False
        for chunk in decoder.generate(prompt, options):
            got.extend(chunk)
            if len(got) > 8 and not restarted:
                restarted = True
                address = running.address
                running.stop()
                start_server(text_pair.target, bind=address)
        assert got == right
        assert decoder.stats.resumes >= 1

    def test_stopped_verifier_is_a_link_lost_at_once_and_the_answer_goes_on_later(
        self, text_pair: Pair, start_server: StartServer
    ) -> None:
        prompt = chat_prompt(text_pair.target, "restart")
        right = generate_local(text_pair.target, prompt, GenerationOptions(60))
        running = start_server(text_pair.target)
        link = connect(running.address, reply_timeout_s=5)
        decoder = EdgeDecoder(link, text_pair.draft)
        got: list[int] = []
        with pytest.raises(LinkLost):
            for chunk in decoder.generate(prompt, GenerationOptions(60)):
                got.extend(chunk)
                if len(got) > 8 and running.thread.is_alive():
                    address = running.address
                    running.stop()
                    stopped = time.monotonic()
        assert time.monotonic() - stopped < 1.0
        start_server(text_pair.target, bind=address)
        for chunk in decoder.generate(prompt, GenerationOptions(60), history=got):
            got.extend(chunk)
        assert got == right

    def test_session_that_timed_out_while_the_caller_slept_is_opened_again(
        self, text_pair: Pair, start_server: StartServer
    ) -> None:
        prompt = chat_prompt(text_pair.target, "sleepy")
        right = generate_local(text_pair.target, prompt, OPTIONS)
        running = start_server(text_pair.target, session_timeout_s=0.2)
        decoder = EdgeDecoder(connect(running.address), text_pair.draft)
        got: list[int] = []
        for chunk in decoder.generate(prompt, OPTIONS):
            got.extend(chunk)
            if len(got) < 8:
                time.sleep(0.4)
        assert got == right
        assert decoder.stats.resumes >= 1

    def test_generator_that_is_dropped_closes_its_session(
        self, text_pair: Pair, servers: dict[str, str]
    ) -> None:
        link = connect(servers[text_pair.target.path])
        decoder = EdgeDecoder(link, text_pair.draft)
        prompt = chat_prompt(text_pair.target, "drop")
        generator = decoder.generate(prompt, OPTIONS)
        next(generator)
        with pytest.raises(OptionsError, match="in the middle of an answer"):
            next(decoder.generate(prompt, OPTIONS))
        generator.close()
        assert decoder.stats.finish == "cancelled"
        assert collect(decoder, prompt) == generate_local(text_pair.target, prompt, OPTIONS)

    def test_stats_tell_rounds_bytes_times_and_a_timeline(self, pair: Pair, servers: dict[str, str]) -> None:
        prompt = chat_prompt(pair.target, "count me")
        with connect(servers[pair.target.path]) as link:
            decoder = EdgeDecoder(link, pair.draft)
            got = collect(decoder, prompt)
        stats = decoder.stats
        assert stats.tokens == len(got)
        assert stats.total_ms >= stats.ttft_ms > 0
        assert stats.prompt_bytes > len(prompt.ids)
        full = [one for one in stats.rounds if one.drafted == 4]
        assert full
        for one in full:
            assert 0 < one.uplink_bytes <= 40
            assert 0 < one.downlink_bytes <= 24
            assert one.wait_ms > one.verify_ms > 0
        assert {span.lane for span in stats.timeline} == {"edge", "uplink", "cloud", "downlink"}
        assert all(0 <= span.start_s <= span.end_s <= stats.total_ms / 1e3 + 1e-3 for span in stats.timeline)
