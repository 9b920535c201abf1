"""What hostile grammars and pictures cost others: nothing that grows with what they ask for."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_verifier.observing.counts import Heartbeats
from cloud_verifier.serving import open_status
from specdec.isolation import grammars
from specdec.isolation.workers import Launcher, Limit
from specdec.link import wire
from specdec.link.convert import sampling_to_wire
from specdec.models import chat_prompt, load_model
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from tests.cloud_verifier.raw_client import RawClient
from tests.cloud_verifier.status_pages import look
from tests.helpers.hostile_inputs import BOMB, encoded, with_empty_scans
from tests.helpers.servers import Pair, StartServer
from tests.helpers.tiny_models import picture
from tests.helpers.verifier import verifier
from tests.helpers.waiting import until

pytestmark = pytest.mark.slow

SCHEMA = 'start: %json {"type":"object","properties":{"a":{"enum":["x","y"]}},"required":["a"]}'


def opening(session: int, ids: list[int], grammar: str = "", images: list[bytes] | None = None) -> wire.Open:
    options = GenerationOptions(24, grammar=grammar)
    return wire.Open(session, True, sampling_to_wire(options), ids, list(images or []))


def answer(client: RawClient, message: wire.Open, timeout_s: float = 30.0) -> list[int] | str:
    """The answer's ids to its end, or the code of a refusal."""
    client.send(message)
    ids: list[int] = []
    limit = 24
    while True:
        said = client.receive(timeout_s)
        if isinstance(said, wire.ErrorDown):
            return said.code
        if isinstance(said, wire.Opened):
            limit = said.limit
            ids += [*([] if said.token is None else [said.token]), *said.forced]
        elif isinstance(said, wire.Tokens):
            ids += said.ids
        if ids and (len(ids) >= limit or ids[-1] in ENDS):
            client.send(wire.Close(message.session))
            return ids


ENDS: set[int] = set()


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    one = Launcher()
    yield one
    one.close()


def test_isolated_answers_are_those_of_this_process_and_a_bomb_beside_them_changes_nothing(
    model_root: Path, text_pair: Pair, start_server: StartServer, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammars, "COMPILING", Limit(0.5, 20.0))
    model = load_model(model_root / "text-target")
    model.isolate(launcher)
    server = start_server(model)
    prompt = chat_prompt(text_pair.target, "what is it?")
    expected = generate_local(text_pair.target, prompt, GenerationOptions(24, grammar=SCHEMA))
    hostile, honest = RawClient(server.address), RawClient(server.address)
    hostile.send(opening(1, list(prompt.ids), BOMB))
    for session in (1, 2):
        ENDS.update(text_pair.target.eos_token_ids)
        got = answer(honest, opening(session, list(prompt.ids), SCHEMA))
        assert isinstance(got, list)
        assert [token for token in got if token not in ENDS] == expected
    refused = hostile.receive(30)
    assert isinstance(refused, wire.ErrorDown) and refused.code == wire.ERROR_REFUSED
    assert "more time or memory" in refused.message
    hostile.close()
    honest.close()


def test_health_tells_of_a_loop_that_does_not_go_round(text_pair: Pair, start_server: StartServer) -> None:
    now = [0.0]
    running = start_server(text_pair.target)
    running.server.beats = beats = Heartbeats(lambda: now[0])
    beats.mark("engine")
    status = open_status("127.0.0.1:0", running.server, lambda: "")
    assert look(status, "/healthz") == look(status, "/readyz") == (200, "ok\n")
    now[0] = 6.0
    assert look(status, "/readyz") == (503, "the engine loop has not run for 6 s\n")
    assert look(status, "/healthz")[0] == 200
    now[0] = 31.0
    assert look(status, "/healthz")[0] == 503
    status.close()


def test_loops_of_a_verifier_with_nothing_to_do_go_round(text_pair: Pair, start_server: StartServer) -> None:
    running = start_server(text_pair.target)
    until(lambda: running.server.beats.ages().keys() == {"engine", "sockets"})
    time.sleep(1.2)
    assert not running.server.late(5.0)
    assert set(running.server.beats.ages()) == {"engine", "sockets"}


@pytest.mark.graph
def test_under_attack_others_are_answered_close_acts_and_sigterm_ends_it(model_root: Path, vision_pair: Pair) -> None:
    prompt = chat_prompt(vision_pair.target, "look", images=[picture(1)])
    bomb = with_empty_scans(encoded((1000, 1000), progressive=True), 180)
    with verifier(model_root / "vision-target", arguments=("--drain-s", "0.5"), afresh=True) as (process, address, *_):
        ENDS.update(vision_pair.target.eos_token_ids)
        honest = RawClient(address)
        assert isinstance(answer(honest, opening(1, list(prompt.ids), "", list(prompt.images))), list)
        hostile = [RawClient(address) for _ in range(3)]
        for number, one in enumerate(hostile):
            one.send(opening(1, list(prompt.ids), "", [bomb + bytes([number])]))
            one.send(opening(2, list(prompt.ids), BOMB, [picture(2)]))
        for number in range(3, 8):
            frame = picture(number)
            began = time.monotonic()
            assert isinstance(answer(honest, opening(number, list(prompt.ids), "", [frame])), list)
            assert time.monotonic() - began < 5
        hostile[0].send(wire.Close(2))
        hostile[0].send(wire.Ping(0))
        while not isinstance(hostile[0].receive(10), wire.Pong):
            pass
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert time.monotonic() - began < 8
        for one in (honest, *hostile):
            one.close()
