"""Keys on real sockets: who comes in, who is refused and with which line, and that no other client is disturbed."""

from __future__ import annotations

import errno
import importlib.util
import json
import time
from datetime import datetime, timedelta, timezone
from io import StringIO
from pathlib import Path

import pytest
import zmq

from cloud_verifier.classes import ClientClass
from cloud_verifier.logs import EventLog
from cloud_verifier.security.authenticator import LOOK_S
from cloud_verifier.security.folder import new_pair
from cloud_verifier.security.keyring import Keyring, utc_now
from cloud_verifier.security.records import Quota
from specdec.edge.decoder import EdgeDecoder, connect
from specdec.errors import KeyRefused, LinkLost
from specdec.link import Link
from specdec.link.convert import sampling_to_wire
from specdec.link.greeting import mechanism_at
from specdec.link.keys import EdgeKey, read_key, write_key
from specdec.link.wire import PROTOCOL_VERSION, Hello, Open, Opened, Ping, Pong, decode_down, encode
from specdec.models import Prompt
from specdec.options import GenerationOptions
from tests.helpers.emulated import emulated
from tests.helpers.keys import Keys, started
from tests.helpers.servers import PATIENCE_S, Pair, RunningServer, StartServer
from tests.helpers.waiting import until

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this pyzmq has no CURVE")


def events(running: RunningServer, name: str) -> list[dict]:
    return [entry for entry in map(json.loads, running.log.getvalue().splitlines()) if entry["event"] == name]


def open_session(link: Link, number: int = 1) -> None:
    link.ensure_connected()
    link.send(Open(number, False, sampling_to_wire(GenerationOptions()), [1, 2, 3]))
    received = link.receive(PATIENCE_S)
    assert received is not None and isinstance(received[0], Opened)


def knows(link: Link, session: int = 0) -> bool:
    link.send(Ping(session))
    received = link.receive(PATIENCE_S)
    return received is not None and isinstance(received[0], Pong)


# -- who comes in


@pytest.mark.slow
def test_an_edge_with_a_key_gets_the_answer_that_one_without_gets(
    start_server: StartServer, text_pair: Pair, keys: Keys, linked
) -> None:
    encrypted = started(start_server, text_pair, keys)
    plain = start_server(text_pair.target)
    options = GenerationOptions(max_new_tokens=12)
    answers = []
    for link in (linked(encrypted.address, keys.new("robot-1")), linked(plain.address)):
        decoder = EdgeDecoder(link, text_pair.draft)
        answers.append([i for chunk in decoder.generate(Prompt((5, 6, 7)), options) for i in chunk])
    assert answers[0] == answers[1] and answers[0]
    (admitted,) = events(encrypted, "admitted")
    assert (admitted["client"], admitted["of_class"]) == ("robot-1", "robot")
    assert events(encrypted, "open")[0]["client"] == "robot-1"


def test_a_client_made_while_the_server_runs_comes_in(
    start_server: StartServer, text_pair: Pair, keys: Keys, linked
) -> None:
    running = started(start_server, text_pair, keys)
    assert linked(running.address, keys.new("late")).ensure_connected().version


@pytest.mark.slow
@pytest.mark.realtime
def test_what_travels_is_encrypted(text_pair: Pair, start_server: StartServer, keys: Keys) -> None:
    assert mechanism_at(started(start_server, text_pair, keys).address) == "CURVE"
    assert mechanism_at(start_server(text_pair.target).address) == "NULL"
    assert mechanism_at("tcp://127.0.0.1:1", 0.1) == ""


# -- who does not, and what is said


def refusal_of(address: str, key: Path | None) -> str:
    began = time.monotonic()
    with connect(address, PATIENCE_S, PATIENCE_S, key=key) as link, pytest.raises(KeyRefused) as refused:
        link.ensure_connected()
    assert time.monotonic() - began < PATIENCE_S / 4  # not only after everything was tried
    line = str(refused.value)
    assert "\n" not in line and address in line
    return line


@pytest.mark.slow
def test_every_wrong_key_is_one_clear_line_at_once_and_disturbs_nobody(
    start_server: StartServer, text_pair: Pair, keys: Keys, linked, tmp_path: Path
) -> None:
    running = started(start_server, text_pair, keys)
    neighbour = linked(running.address, keys.new("neighbour"))
    open_session(neighbour)
    server = keys.folder.server_key().public

    public, secret = new_pair()
    write_key(tmp_path / "unknown.key", EdgeKey("robot-9", public, secret, server))
    assert "not authorised" in refusal_of(running.address, tmp_path / "unknown.key")

    file = keys.new("gone")
    keys.folder.revoke("gone", utc_now())
    assert "not authorised, or revoked" in refusal_of(running.address, file)

    good = read_key(keys.new("misled"))
    write_key(tmp_path / "misled.key", EdgeKey(good.name, good.public, good.secret, new_pair()[0]))
    assert "its key is not the one" in refusal_of(running.address, tmp_path / "misled.key")

    assert "only edges with keys" in refusal_of(running.address, None)
    plain = start_server(text_pair.target)
    assert "started without keys" in refusal_of(plain.address, keys.export("misled"))

    assert knows(neighbour, 1)
    refused = events(running, "key_refused")
    assert [entry["client"] for entry in refused] == ["", "gone"]
    assert events(running, "handshake_failed")


@pytest.mark.slow
def test_a_verifier_that_is_not_there_is_a_lost_link_with_a_key_too(keys: Keys) -> None:
    with connect("tcp://127.0.0.1:1", 0.3, key=keys.new("robot-1")) as link, pytest.raises(LinkLost):
        link.ensure_connected()


@pytest.mark.slow
@pytest.mark.parametrize("reading_s", [0.0, 0.2])
def test_an_edge_goes_on_once_its_key_is_authorised_again(
    start_server: StartServer, text_pair: Pair, keys: Keys, linked, monkeypatch, reading_s: float
) -> None:
    # However long the folder took to read before: then it is not read again for a while unless it has changed.
    refresh = Keyring.refresh
    monkeypatch.setattr(Keyring, "refresh", lambda ring: (time.sleep(reading_s), refresh(ring))[1])
    running = started(start_server, text_pair, keys)
    file = keys.new("robot-1")
    keys.folder.revoke("robot-1", utc_now())
    link = linked(running.address, file)
    with pytest.raises(KeyRefused):
        link.ensure_connected()
    keys.folder.rotate("robot-1", utc_now(), timedelta(0))
    keys.export("robot-1")  # the same file: it is read again at every connection
    assert link.ensure_connected().version


# -- revoking and rotating while clients are connected


@pytest.mark.slow
def test_revoking_a_key_ends_its_sessions_and_no_others(
    start_server: StartServer, text_pair: Pair, keys: Keys, linked
) -> None:
    running = started(start_server, text_pair, keys)
    mine, other = (linked(running.address, keys.new(name)) for name in ("mine", "other"))
    open_session(mine)
    open_session(other)
    keys.folder.revoke("mine", utc_now())
    with pytest.raises(KeyRefused, match="the key of mine is revoked"):  # without asking for anything
        mine.receive(PATIENCE_S)
    assert LOOK_S < 2
    assert [entry["reason"] for entry in events(running, "closed")] == ["revoked"]
    assert knows(other, 1)
    with pytest.raises(KeyRefused):
        mine.ensure_connected()


@pytest.mark.slow
def test_an_answer_under_way_ends_with_the_refusal(
    start_server: StartServer, text_pair: Pair, keys: Keys, linked
) -> None:
    running = started(start_server, text_pair, keys)
    decoder = EdgeDecoder(linked(running.address, keys.new("robot-1")), text_pair.draft)
    answer = decoder.generate(Prompt((5, 6, 7)), GenerationOptions(max_new_tokens=400, min_new_tokens=400))
    next(answer)
    keys.folder.revoke("robot-1", utc_now())
    time.sleep(1.2)
    with pytest.raises(KeyRefused, match="robot-1 is revoked"):
        for _ in answer:
            pass


def test_a_rotated_key_is_taken_beside_the_one_of_before_until_that_has_run_out(keys: Keys) -> None:
    now = [datetime(2026, 1, 1, tzinfo=timezone.utc)]
    ring = Keyring(keys.folder.path, EventLog(StringIO()), lambda: now[0])
    before = read_key(keys.new("robot-1", of_class=ClientClass.BATCH)).public
    keys.folder.rotate("robot-1", now[0], timedelta(hours=1))
    after = read_key(keys.export("robot-1")).public
    assert ring.refresh() and before != after
    assert [ring.holder(one) for one in (before, after)] == [ring.client("robot-1")] * 2
    assert ring.client("robot-1").client_class is ClientClass.BATCH
    now[0] += timedelta(hours=1)
    assert ring.holder(before) is None and ring.holder(after) is not None


@pytest.mark.slow
def test_a_robot_says_that_its_key_is_refused_and_goes_on_trying(
    start_server: StartServer, text_pair: Pair, keys: Keys
) -> None:
    from spec_vlm_nav.common.codes import LinkState
    from spec_vlm_nav.model.link_monitor import LinkMonitor

    running = started(start_server, text_pair, keys)
    monitor = LinkMonitor(running.address, PATIENCE_S, PATIENCE_S, key=str(keys.new("robot-1")))

    def becomes(state: LinkState) -> None:
        until(lambda: monitor.report().state is state, PATIENCE_S)

    try:
        becomes(LinkState.UP)
        keys.folder.revoke("robot-1", utc_now())
        becomes(LinkState.LOST)
        assert "refused this edge" in monitor.report().reason
        keys.folder.rotate("robot-1", utc_now(), timedelta(0))
        keys.export("robot-1")
        becomes(LinkState.UP)
        assert monitor.report().reason == ""
    finally:
        monitor.close()


# -- nothing speaks for another


def dealer(context: zmq.Context, address: str, key: EdgeKey, identity: bytes) -> zmq.Socket:
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    socket.setsockopt(zmq.ROUTING_ID, identity)
    socket.curve_serverkey, socket.curve_publickey = key.verifier.encode(), key.public.encode()
    socket.curve_secretkey = key.secret.encode()
    socket.connect(address)
    return socket


@pytest.mark.slow
def test_who_takes_anothers_routing_id_finds_none_of_its_sessions(
    start_server: StartServer, text_pair: Pair, keys: Keys
) -> None:
    running = started(start_server, text_pair, keys)
    first, second = (read_key(keys.new(name)) for name in ("first", "second"))
    context = zmq.Context()
    try:
        socket = dealer(context, running.address, first, b"x")
        socket.send(encode(Hello(1)))  # any message; the version is refused
        assert socket.poll(10_000)
        socket.recv()
        socket.send(encode(Open(1, False, sampling_to_wire(GenerationOptions()), [1, 2, 3])))
        assert socket.poll(10_000)
        socket.close()
        answer = b""
        for _ in range(100):  # ZeroMQ does not let the second one in while the first one is there
            thief = dealer(context, running.address, second, b"x")
            thief.send(encode(Ping(1)))
            answer = thief.recv() if thief.poll(100) else b""
            thief.close()
            if answer:
                break
        assert b"unknown_session" in answer
    finally:
        context.destroy(linger=0)


@pytest.mark.slow
@pytest.mark.parametrize("greets", [True, False])
def test_a_quota_binds_all_connections_of_a_key_also_those_that_do_not_greet(
    start_server: StartServer, text_pair: Pair, keys: Keys, greets: bool
) -> None:
    running = started(start_server, text_pair, keys)
    context = zmq.Context()
    try:
        key = read_key(keys.new("robot-1", Quota(sessions=1)))
        answers = []
        for number in range(6):
            if number % 2 == 0:
                socket = dealer(context, running.address, key, b"%d" % number)
            messages = [Open(number + 1, False, sampling_to_wire(GenerationOptions()), [1, 2, 3])]
            for message in [Hello(PROTOCOL_VERSION), *messages] if greets else messages:
                socket.send(encode(message))
                assert socket.poll(10_000)
                answers.append(decode_down(socket.recv()))
        assert sum(isinstance(answer, Opened) for answer in answers) == 1
    finally:
        context.destroy(linger=0)

@pytest.mark.slow
def test_the_server_knows_the_key_behind_a_connection(
    start_server: StartServer, text_pair: Pair, keys: Keys, linked
) -> None:
    running = started(start_server, text_pair, keys)
    open_session(linked(running.address, keys.new("robot-1", Quota(sessions=3), ClientClass.BATCH)))
    (identity,) = running.server._admission.sessions.clients()
    known = running.server._key_of(identity)
    assert known is not None and (known.name, known.quota.sessions) == ("robot-1", 3)
    assert known.client_class is ClientClass.BATCH and known.client_class.rank == 2


# -- on the way, and in the log


@pytest.mark.slow
def test_the_emulator_shows_a_key_for_edges_that_have_none(
    start_server: StartServer, text_pair: Pair, keys: Keys, linked
) -> None:
    running = started(start_server, text_pair, keys)
    with emulated(running.address, "--key", str(keys.new("link"))) as address:
        assert linked(address).ensure_connected().version


@pytest.mark.slow
def test_the_health_check_looks_behind_the_hand_shake_only_with_a_key(
    start_server: StartServer, text_pair: Pair, keys: Keys, capsys: pytest.CaptureFixture
) -> None:
    place = Path(__file__).resolve().parents[2] / "docker/healthcheck.py"
    spec = importlib.util.spec_from_file_location("healthcheck", place)
    assert spec is not None and spec.loader is not None
    healthcheck = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(healthcheck)
    running = started(start_server, text_pair, keys)
    assert healthcheck.main([running.address, "/nowhere/health.key"]) == 0
    assert "with keys only" in capsys.readouterr().out
    file = keys.new("health")
    assert healthcheck.main([running.address, str(file)]) == 0
    assert "healthy: " in capsys.readouterr().out
    keys.folder.revoke("health", utc_now())
    assert healthcheck.main([running.address, str(file)]) == 1


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), BrokenPipeError()])
def test_a_log_that_cannot_be_written_ends_nothing_and_goes_on_afterwards(error: OSError) -> None:
    class Full(StringIO):
        def write(self, text: str) -> int:
            if full:
                raise error
            return super().write(text)

    full, stream = True, Full()
    log = EventLog(stream)
    log.info("lost")
    full = False
    log.info("kept")
    assert json.loads(stream.getvalue())["event"] == "kept"


@pytest.mark.parametrize("asked", [False, True])
def test_a_traceback_says_what_an_exception_says_only_if_asked(asked: bool) -> None:
    log, prompt = EventLog(StringIO(), contents=asked), "".join(["my", "prompt"])
    try:
        try:
            {}[prompt]
        except KeyError as error:
            raise ValueError(f"about {prompt}") from error
    except ValueError as error:
        said = log.trace_of(error)
    assert "test_keys.py" in said and "KeyError" in said and "ValueError" in said
    assert ("myprompt" in said) is asked


def test_nothing_of_a_prompt_or_an_answer_is_in_the_log(
    start_server: StartServer, text_pair: Pair, keys: Keys, linked
) -> None:
    running = started(start_server, text_pair, keys)
    ids = [201, 211, 223]
    decoder = EdgeDecoder(linked(running.address, keys.new("robot-1")), text_pair.draft)
    answer = [
        i
        for chunk in decoder.generate(Prompt(tuple(ids)), GenerationOptions(max_new_tokens=6))
        for i in chunk
    ]
    (opened,) = events(running, "open")
    assert opened["ids"] == len(ids)  # how many, not which
    values = [value for line in running.log.getvalue().splitlines() for value in json.loads(line).values()]
    large = {number for number in (*ids, *answer) if number > 10}
    assert answer and not large & {value for value in values if isinstance(value, int)}
    assert not [value for value in values if isinstance(value, list)]
    secrets = [keys.folder.server_key().secret, read_key(keys.export("robot-1")).secret]
    assert not [secret for secret in secrets if secret in running.log.getvalue()]
