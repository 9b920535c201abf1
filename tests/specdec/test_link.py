"""The edge and its verifier: one that is not there, one that is not ours, and a real one that stops and comes back."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import zmq

from specdec.edge.decoder import EdgeDecoder, connect
from specdec.errors import LinkLost, ModelError, OptionsError, VersionMismatch, VocabularyMismatch
from specdec.link import wire
from specdec.models import Prompt, chat_prompt
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from tests.helpers.servers import Pair, StartServer
from tests.specdec.scripted_server import OPTIONS, ScriptedServer, collect

pytestmark = [pytest.mark.realtime, pytest.mark.slow]


class TestNobodyThere:
    def test_no_verifier_is_a_link_lost_within_the_timeout(self, text_pair: Pair) -> None:
        started = time.monotonic()
        with pytest.raises(LinkLost, match=r"no verifier answers at \S+ within 0.6 s: ") as caught:
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

    @pytest.mark.parametrize("method", ["fsd", "ar"])
    def test_different_vocabularies_are_refused_naming_both(
        self, method: str, text_pair: Pair, vision_pair: Pair, scripted: Callable[..., ScriptedServer]
    ) -> None:
        def other(message: wire.Up, send: Callable[[wire.Down], None]) -> None:
            send(wire.Welcome(wire.PROTOCOL_VERSION, "the-other-model", 999, b"87654321", [0], 512))

        server = scripted(other)
        with pytest.raises(ModelError, match=r"text-draft.*the-other-model.*different vocabularies"):
            collect(EdgeDecoder(connect(server.address), text_pair.draft, method), Prompt((1,)))

    @pytest.mark.parametrize("method", ["ngram", "ar"])
    def test_a_prompt_of_another_tokenizer_is_refused_where_no_draft_model_is_loaded(
        self, method: str, text_pair: Pair, start_server: StartServer
    ) -> None:
        swapped = {token: index ^ 1 for token, index in text_pair.target.tokenizer.get_vocab().items()}
        other = SimpleNamespace(get_vocab=lambda: swapped, all_special_tokens=[], added_tokens_decoder={})
        with connect(start_server(text_pair.target).address) as link:
            with pytest.raises(VocabularyMismatch, match=r"text-target have different vocabularies"):
                collect(EdgeDecoder(link, None, method, tokenizer=other), Prompt((1,)))
            assert collect(EdgeDecoder(link, None, method, tokenizer=text_pair.target.tokenizer), Prompt((1,)))

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


def test_links_that_nobody_closes_do_no_harm_to_others() -> None:
    # Before, about every tenth stopped ZeroMQ's thread, and no link of the process came about any more.
    context = zmq.Context()
    for _ in range(100):
        router = context.socket(zmq.ROUTER)
        router.bind("tcp://127.0.0.1:*")
        link = connect(router.getsockopt_string(zmq.LAST_ENDPOINT))
        link._dealer.open(link.address)
        link.send(wire.Hello(wire.PROTOCOL_VERSION, "edge", b""))
        assert router.poll(5000), "a link does not come about"
        leaving = threading.Thread(target=router.close, kwargs={"linger": 0})
        leaving.start()
        del link
        leaving.join()
    context.term()


class TestRealServer:
    """The same with a real verifier in this process."""

    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_forked_process_uses_the_links_that_it_inherits(
        self, text_pair: Pair, servers: dict[str, str]
    ) -> None:
        """Its sockets are the parent's, whose answer goes on."""
        prompt = chat_prompt(text_pair.target, "go on")
        right = generate_local(text_pair.target, prompt, OPTIONS)
        with connect(servers[text_pair.target.path]) as link:
            decoder = EdgeDecoder(link, method="ar")
            answer = decoder.generate(prompt, OPTIONS)
            begun = next(answer)
            reads, writes = os.pipe()
            if (child := os.fork()) == 0:
                try:
                    os.write(writes, repr(collect(EdgeDecoder(link, method="ar"), prompt)).encode())
                finally:
                    os._exit(0)
            os.close(writes)
            ended = bool(select.select([reads], [], [], 20)[0])
            said = os.read(reads, 10_000) if ended else b""
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(reads)
            assert said == repr(right).encode(), "the child's answer"
            assert [*begun, *(token for chunk in answer for token in chunk)] == right, "the parent's answer"

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

    def test_an_answer_that_goes_on_after_several_attempts_has_gone_on_once(
        self, text_pair: Pair, start_server: StartServer
    ) -> None:
        prompt = chat_prompt(text_pair.target, "restart")
        running = start_server(text_pair.target)
        address = running.address
        with connect(address, connect_timeout_s=0.1) as link:
            decoder = EdgeDecoder(link, text_pair.draft, resume_timeout_s=20)
            answer = decoder.generate(prompt, GenerationOptions(60))
            got = next(answer)
            running.stop()
            back = threading.Timer(2.0, start_server, (text_pair.target,), {"bind": address})
            back.start()
            got = got + [token for chunk in answer for token in chunk]
            back.join()
        assert got == generate_local(text_pair.target, prompt, GenerationOptions(60))
        assert decoder.stats.resumes == 1

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
