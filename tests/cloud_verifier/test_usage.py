"""What each client and each session has used: in the metrics by the name of a key, and in the log by a session's id."""

from __future__ import annotations

import json
import threading
from io import StringIO
from pathlib import Path

import pytest
import zmq
from prometheus_client.parser import text_string_to_metric_families

from cloud_verifier.config import ServerConfig
from cloud_verifier.engine.engine import own_engine
from cloud_verifier.engine.memory import TREE_TOKENS
from cloud_verifier.engine.policy import Policy
from cloud_verifier.engine.work import Models
from cloud_verifier.logs import EventLog
from cloud_verifier.net.server import Server
from cloud_verifier.observing.metrics import CODES, COUNTERS, GAUGES, VerifierCollector, render
from cloud_verifier.security.folder import KeyFolder
from specdec.edge.decoder import EdgeDecoder, connect
from specdec.energy import Meter, find_sensors
from specdec.link.convert import sampling_to_wire
from specdec.link.wire import Close, DraftUp, ErrorDown, Open, Opened, Ping, Pong, VerdictDown
from specdec.models import Prompt
from specdec.options import GenerationOptions
from tests.cloud_verifier.raw_client import RawClient
from tests.helpers.keys import Keys
from tests.helpers.made_up_verifier import MadeUpVerifier
from tests.helpers.servers import PATIENCE_S, Pair, StartServer, patiently_connected

Labels = frozenset[str]


def figures(server: Server) -> dict[str, dict[Labels, float]]:
    """What Prometheus would read: values by the name of the sample and the values of its labels."""
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(render(VerifierCollector(server)).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.values())] = sample.value
    return found


def label(*labels: str) -> Labels:
    return frozenset(labels)


@pytest.mark.slow
@pytest.mark.skipif(not zmq.has("curve"), reason="this pyzmq has no CURVE")
def test_each_key_has_its_own_figures_and_a_stranger_makes_no_new_ones(
    start_server: StartServer, text_pair: Pair, tmp_path: Path
) -> None:
    keys = Keys(KeyFolder(tmp_path / "ring"), tmp_path)
    keys.folder.create()
    robot, idle = keys.new("robot-1"), keys.new("robot-2")
    running = start_server(text_pair.target, keys=str(keys.folder.path))
    stranger = RawClient(running.address)
    with connect(running.address, PATIENCE_S, PATIENCE_S, key=robot) as link:
        decoder = EdgeDecoder(link, text_pair.draft)
        for seed in (0, 1):
            list(decoder.generate(Prompt((5, 6, 7)), GenerationOptions(12, 0.7, seed)))
        rounds = decoder.stats.rounds
        link.send(Open(77, False, sampling_to_wire(GenerationOptions(8)), [1, 2], history=[3]))
        assert isinstance(link.receive(PATIENCE_S)[0], Opened)  # type: ignore[index]
        with connect(running.address, PATIENCE_S, PATIENCE_S, key=idle) as other:
            other.ensure_connected()
            other.send(Ping(0))  # its answer comes after what was counted of the one before
            assert isinstance(other.receive(PATIENCE_S)[0], Pong)  # type: ignore[index]
            found = figures(running.server)
    stranger.close()
    for name in ("messages_total", "verified_tokens_total", "refusals_total", "client_kv_bytes"):
        clients = set().union(*found[f"specdec_{name}"]) - {"up", "down", *CODES}
        assert clients == {"robot-1", "robot-2", "anonymous"}
    sent = found["specdec_message_bytes_total"]
    assert sent[label("robot-1", "up")] > sum(one.uplink_bytes for one in rounds) > 0
    assert sent[label("robot-1", "down")] > sum(one.downlink_bytes for one in rounds) > 0
    assert sent[label("robot-1", "up")] > 5 * sent[label("robot-2", "up")] > 0 == sent[label("anonymous", "up")]
    messages = found["specdec_messages_total"]
    assert messages[label("robot-2", "up")] == 2 and messages[label("robot-2", "down")] >= 1  # Hello, Welcome, Ping
    assert found["specdec_drafted_tokens_total"][label("robot-1")] > sum(one.drafted for one in rounds)
    assert found["specdec_drafted_tokens_total"][label("robot-2")] == 0
    assert found["specdec_sessions_opened_total"] == {label("robot-1"): 3, label("robot-2"): 0, label("anonymous"): 0}
    assert found["specdec_sessions_resumed_total"][label("robot-1")] == 1
    assert found["specdec_client_sessions"] == {label("robot-1"): 1, label("robot-2"): 0, label("anonymous"): 0}
    kv = found["specdec_client_kv_bytes"]
    assert kv[label("robot-1")] == found["specdec_kv_session_max_bytes"][label()] > 0 == kv[label("robot-2")]
    assert found["specdec_kv_admitted_bytes"][label()] == kv[label("robot-1")]


def test_an_id_finds_everything_that_happened_to_a_session(text_pair: Pair) -> None:
    """Two sessions in the room of one: opened, evicted, restored, refused and closed, and what it took in all."""
    target, ids, options = text_pair.target, [41, 50, 61], GenerationOptions(40)
    room = (len(ids) + options.max_new_tokens + TREE_TOKENS) * target.runner.kv_bytes_a_token
    log = StringIO()
    make_engine = own_engine(Policy(), Models(target), room)
    server = Server(ServerConfig(target.path, "tcp://127.0.0.1:0"), target, EventLog(log), make_engine)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    sent = received = 0
    with patiently_connected(server.bind) as link:
        link.ensure_connected()
        for session in (1, 2):
            size = link.send(Open(session, False, sampling_to_wire(options), ids))
            assert isinstance(link.receive(PATIENCE_S)[0], Opened)  # type: ignore[index]
            sent += size if session == 1 else 0
        sent += link.send(DraftUp(1, 1, 1, [5, 6, 7]))
        verdict, received = link.receive(PATIENCE_S)  # type: ignore[misc]
        assert isinstance(verdict, VerdictDown)
        sent += link.send(DraftUp(1, 2, 2, list(range(600))))
        assert isinstance(link.receive(PATIENCE_S)[0], ErrorDown)  # type: ignore[index]
        sent += link.send(Close(1))
        link.send(Ping(2))
        assert isinstance(link.receive(PATIENCE_S)[0], Pong)  # type: ignore[index]  # it has heard of the end
        server.stop()
        thread.join(PATIENCE_S)
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    number = next(line["id"] for line in lines if line["event"] == "open" and line["session"] == 1)
    story = [line for line in lines if line.get("id") == number]
    assert [line["event"] for line in story] == ["open", "prefilled", "evicted", "restored", "too_large", "closed"]
    assert {(line["client"], line["session"]) for line in story} == {("", 1)}
    end = story[-1]
    assert (end["reason"], end["rounds"], end["drafted"], end["accepted"]) == ("close", 1, 3, verdict.last)
    assert end["tokens"] == verdict.last + 1 and end["bytes_up"] == sent and end["bytes_down"] > received
    assert end["verify_ms"] > verdict.verify_us / 1e3 > 0 and end["queue_ms"] >= 0 < end["seconds"]
    (other,) = [line for line in lines if line["event"] == "closed" and line["session"] == 2]
    assert other["reason"] == "shutdown" and other["id"] != number
    assert server.gauges().keys() == GAUGES.keys() and server.counters().keys() == COUNTERS.keys()
    assert server.counters()["kv_evictions"] == 2 and server.load.restored == 1


def test_energy_is_among_the_metrics_where_a_sensor_tells_it_and_nowhere_else(tmp_path: Path) -> None:
    verifier = MadeUpVerifier()
    assert "joules" not in verifier.text() and "watts" not in verifier.text()
    folder = tmp_path / "class/powercap/intel-rapl:0"
    folder.mkdir(parents=True)
    (folder / "name").write_text("package-0")
    (folder / "max_energy_range_uj").write_text("1000000000")
    (folder / "energy_uj").write_text("5000000")
    now = [0.0]
    verifier.meter = Meter(find_sensors(tmp_path, gpus=False), lambda: now[0])
    now[0] = 2.0
    (folder / "energy_uj").write_text("35000000")
    verifier.meter.poll()
    lines = [line for line in verifier.text().splitlines() if "joules" in line or "watts" in line]
    values = [line for line in lines if not line.startswith("#") and "_created" not in line]
    assert values == [
        "specdec_energy_joules_total 30.0",
        "specdec_power_watts 15.0",
        "specdec_idle_power_watts 15.0",
    ]
    (folder / "energy_uj").unlink()
    verifier.meter.poll()
    assert "joules" not in verifier.text() and "watts" not in verifier.text()


@pytest.mark.slow
def test_a_verifier_reads_the_sensors_of_the_folder_it_is_given(
    text_pair: Pair, start_server: StartServer, tmp_path: Path
) -> None:
    folder = tmp_path / "class/hwmon/hwmon0"
    folder.mkdir(parents=True)
    for name, value in (("name", "ina3221"), ("in1_label", "VDD_IN"), ("in1_input", 5000), ("curr1_input", 2000)):
        (folder / name).write_text(str(value))
    server = start_server(text_pair.target, energy_root=str(tmp_path))
    assert "ina3221 VDD_IN" in server.server.meter.sensors
    assert start_server(text_pair.target, energy_root="none").server.meter.sensors == []
