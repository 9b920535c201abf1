"""What an operator sees and does: metrics, health, draining."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from cloud_verifier.errors import VerifierError
from cloud_verifier.net.server import Server
from cloud_verifier.observing.http import StatusServer
from cloud_verifier.serving import open_status
from specdec.edge.decoder import EdgeDecoder
from specdec.errors import VerifierBusy
from specdec.link.convert import sampling_to_wire
from specdec.link.wire import ERROR_SHUTDOWN, Close, ErrorDown, Open, Opened
from specdec.models import chat_prompt
from specdec.options import GenerationOptions
from tests.cloud_verifier.status_pages import look
from tests.helpers.servers import PATIENCE_S, Pair, RunningServer, StartServer, patiently_connected


@pytest.fixture
def running(text_pair: Pair, start_server: StartServer) -> RunningServer:
    return start_server(text_pair.target, drain_s=60.0)


@pytest.fixture
def status(running: RunningServer) -> Iterator[StatusServer]:
    server = open_status("127.0.0.1:0", running.server)
    yield server
    server.close()


def metrics(status: StatusServer) -> dict[str, float]:
    lines = look(status, "/metrics")[1].splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def open_session(link, text_pair: Pair, session: int = 1) -> object:
    link.ensure_connected()
    prompt = chat_prompt(text_pair.target, "hello")
    link.send(Open(session, False, sampling_to_wire(GenerationOptions(8)), list(prompt.ids)))
    received = link.receive(PATIENCE_S)
    assert received is not None
    return received[0]


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_a_verifier_serves_its_edges_and_its_metrics_on_an_ipv6_address(
    text_pair: Pair, start_server: StartServer
) -> None:
    running = start_server(text_pair.target, bind="tcp://[::1]:0")
    status = open_status("[::1]:0", running.server)
    try:
        with patiently_connected(running.address) as link:
            assert running.address.startswith("tcp://[::1]:") and link.ensure_connected().vocab_size
        assert status.bind.startswith("[::1]:") and look(status, "/healthz") == (200, "ok\n")
    finally:
        status.close()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sd", "sd+tree:12x3"])
def test_metrics_tell_what_was_done(
    running: RunningServer, status: StatusServer, text_pair: Pair, method: str
) -> None:
    with patiently_connected(running.address) as link:
        decoder = EdgeDecoder(link, text_pair.draft, method, gamma=3)
        options = GenerationOptions(20)
        tokens = sum(map(len, decoder.generate(chat_prompt(text_pair.target, "hello"), options)))
        found = metrics(status)
        rounds = decoder.stats.rounds
        mine = '{client="anonymous"}'
        assert found["specdec_drafted_tokens_total" + mine] == sum(one.drafted for one in rounds)
        assert found["specdec_accepted_tokens_total" + mine] == sum(one.accepted for one in rounds)
        assert tokens - 1 <= found["specdec_verified_tokens_total" + mine] <= tokens + 1
        assert found["specdec_forwards_total"] == len(rounds) + 1 == found['specdec_batch_sessions_bucket{le="1"}']
        assert found["specdec_verify_seconds_count"] == len(rounds)
        assert 0 < found["specdec_forward_seconds_total"] < 60
        assert found['specdec_queue_seconds_bucket{le="+Inf"}'] == len(rounds)
        assert isinstance(open_session(link, text_pair, 9), Opened)
        now = metrics(status)
        assert now["specdec_sessions"] == 1 and now["specdec_kv_admitted_bytes"] > 0
        link.send(Open(10, False, sampling_to_wire(GenerationOptions(8)), [10**6]))
        assert isinstance(link.receive(PATIENCE_S)[0], ErrorDown)  # type: ignore[index]
    assert look(status, "/healthz") == look(status, "/readyz") == (200, "ok\n")
    assert look(status, "/else")[0] == 404


@pytest.mark.slow
def test_a_refusal_is_counted_by_its_code(status: StatusServer, running: RunningServer) -> None:
    with patiently_connected(running.address) as link:
        link.ensure_connected()
        link._dealer.send(b"no message of this protocol")
        received = link.receive(PATIENCE_S)
        assert received is not None and isinstance(received[0], ErrorDown)
    assert metrics(status)['specdec_refusals_total{client="anonymous",code="malformed"}'] == 1


@pytest.mark.slow
def test_a_port_in_use_is_one_line(status: StatusServer, running: RunningServer) -> None:
    for bind in (status.bind, "127.0.0.1:x", "nowhere.invalid:80", "127.0.0.1:99999"):
        with pytest.raises(VerifierError, match="choose a free HOST:PORT with --metrics") as told:
            open_status(bind, running.server)
        assert "\n" not in str(told.value)
    assert look(status, "/healthz")[0] == 200


def test_draining_ends_with_the_last_session_and_takes_no_new_one(
    running: RunningServer, status: StatusServer, text_pair: Pair
) -> None:
    with patiently_connected(running.address) as mine, patiently_connected(running.address) as late:
        assert isinstance(open_session(mine, text_pair), Opened)
        running.server.drain()
        refused = open_session(late, text_pair)
        assert isinstance(refused, ErrorDown) and "shutting down" in refused.message
        with pytest.raises(VerifierBusy):
            decoder = EdgeDecoder(late, text_pair.draft, "sd", resume_timeout_s=0.05)
            list(decoder.generate(chat_prompt(text_pair.target, "hello"), GenerationOptions(8)))
        assert look(status, "/readyz") == (503, "the verifier is draining\n")
        assert look(status, "/healthz")[0] == 200 and running.thread.is_alive()
        mine.send(Close(1))
        running.thread.join(PATIENCE_S)
        assert not running.thread.is_alive()


@pytest.mark.slow
def test_draining_waits_no_longer_than_it_may(text_pair: Pair, start_server: StartServer) -> None:
    running = start_server(text_pair.target, drain_s=0.2)
    with patiently_connected(running.address) as link:
        assert isinstance(open_session(link, text_pair), Opened)
        running.server.drain()
        received = link.receive(PATIENCE_S)
        assert received is not None and isinstance(received[0], ErrorDown)
        assert received[0].code == ERROR_SHUTDOWN
        running.thread.join(PATIENCE_S)
        assert not running.thread.is_alive()


@pytest.mark.parametrize("end", [Server.stop, Server.drain])
def test_a_signal_after_the_end_does_nothing(running: RunningServer, end: Callable[[Server], None]) -> None:
    end(running.server)
    running.thread.join(PATIENCE_S)
    running.server.drain()
    running.server.stop()


def test_asked_twice_it_ends_at_once(running: RunningServer, text_pair: Pair) -> None:
    with patiently_connected(running.address) as link:
        assert isinstance(open_session(link, text_pair), Opened)
        running.server.drain()
        running.server.drain()
        running.thread.join(PATIENCE_S)
        assert not running.thread.is_alive()


@pytest.mark.slow
def test_a_message_that_the_server_fails_on_ends_nothing(
    running: RunningServer, text_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    with patiently_connected(running.address) as link:
        link.ensure_connected()
        with monkeypatch.context() as patch:
            patch.setattr(type(text_pair.target), "prompt_length", lambda *_: 1 / 0)
            refused = open_session(link, text_pair)
            assert isinstance(refused, ErrorDown) and "ZeroDivisionError" in refused.message
        assert isinstance(open_session(link, text_pair), Opened)
    assert "message_failed" in running.log.getvalue()
