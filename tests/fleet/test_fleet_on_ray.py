"""A whole fleet for real: Ray with two nodes on this machine, a directory, verifier processes, and edges that ask them.

One cluster for all tests of this file, as Ray takes seconds to start. They leave the fleet as they found it, two
replicas that serve; the last one kills a node.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from specdec.edge.decoder import EdgeDecoder, connect
from specdec.errors import LinkLost
from specdec.models import LoadedModel, Prompt
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specnav.fleet.cluster import (
    DIRECTORY,
    NAMESPACE,
    PORTS,
    TOKEN_FILE,
    LocalCluster,
    end_session,
    members,
    reach,
    start_here,
    start_node,
    stop_here,
    write_here,
)
from specnav.fleet.status import FleetStatus

pytestmark = [
    pytest.mark.graph,
    pytest.mark.timeout(600),
    # Not imported to find out: Ray reads where its token is as it is imported.
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'specnav[fleet]'"),
]
LONG_S = 90.0
OPTIONS = GenerationOptions(max_new_tokens=40)


def specnav(*words: str, code: int = 0) -> str:
    """Run the command; returns what it said."""
    command = [sys.executable, "-m", "specnav.cli", *words]
    run = subprocess.run(command, capture_output=True, text=True, timeout=LONG_S + 60)
    assert run.returncode == code, run.stdout + run.stderr
    return run.stdout + run.stderr


@dataclass
class Running:
    """The fleet under test."""

    ray: Any
    state: Path
    address: str
    node: int

    def status(self) -> FleetStatus:
        """How it is; waits for a directory that was killed."""
        end = time.monotonic() + LONG_S
        while True:
            try:
                actor = self.ray.get_actor(DIRECTORY, NAMESPACE)
                return self.ray.get(actor.status.remote(), timeout=10)
            except Exception:
                assert time.monotonic() < end
                time.sleep(0.1)

    def until(self, so: Callable[[FleetStatus], bool]) -> FleetStatus:
        """Wait until it is so."""
        end = time.monotonic() + LONG_S
        while not so(status := self.status()):
            assert time.monotonic() < end, status
            time.sleep(0.1)
        return status


@pytest.fixture(scope="module")
def here() -> Iterator[LocalCluster]:
    """The cluster that `fleet up` would start."""
    started = start_here(2)
    if "ray" in sys.modules:  # imported by an earlier test, before there was a token
        from ray._private.authentication_test_utils import reset_auth_token_state

        reset_auth_token_state()
    yield started
    stop_here(started)


@pytest.fixture(scope="module")
def running(here, text_pair, tmp_path_factory) -> Iterator[Running]:
    """Two nodes and two replicas; forwards are paced, so that there is time to kill somebody in an answer."""
    state = tmp_path_factory.mktemp("fleet")
    settings = state / "verifier.yaml"
    settings.write_text(f"model: {text_pair.target.path}\nverify_ms: 25\nexits: none\ndrain_s: 10\nkv_gb: 0.05\n")
    second, temp = 0, Path(tempfile.mkdtemp(prefix="ray-"))
    try:
        join = [sys.executable, "-m", "ray.scripts.scripts", "start", "--address", here.ray, "--block", *PORTS]
        join += ["--num-cpus", "2", "--include-log-monitor", "false", "--object-store-memory", "100000000"]
        second = start_node(join, temp)[0]
        write_here(state, LocalCluster(here.ray, here.session, here.temp))
        words = ("--replicas", "2", "--config", str(settings), "--port", "0", "--metrics", "127.0.0.1:0")
        said = specnav("fleet", "up", *words, "--state", str(state), "--edges-per-replica", "2", "--idle", "2")
        address = next(line for line in said.splitlines() if line.startswith("fleet://"))
        yield Running(reach(here.ray), state, address, second)
    finally:
        import ray

        ray.shutdown()
        end_session(second)
        shutil.rmtree(temp, ignore_errors=True)


class Edges:
    """Threads that ask without a pause, and compare each answer with the target's own."""

    def __init__(self, address: str, models: tuple[LoadedModel, LoadedModel], count: int) -> None:
        self.target, self.draft = models
        self._asked = [Prompt([5, 6, 7 + number]) for number in range(3)]
        self._expected = [generate_local(self.target, prompt, OPTIONS) for prompt in self._asked]
        self._address = address
        self._over = threading.Event()
        self.right = self.resumed = 0
        self.wrong: list[object] = []
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(count)]

    def __enter__(self) -> Edges:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(LONG_S)
            assert not thread.is_alive()

    def _ask(self, number: int) -> None:
        with connect(self._address, reply_timeout_s=10.0) as link:
            decoder = EdgeDecoder(link, self.draft, ("sd", "ar")[number % 2], resume_timeout_s=LONG_S)
            turn = number
            while not self._over.is_set():
                turn += 1
                place = turn % len(self._asked)
                try:
                    chunks = decoder.generate(self._asked[place], OPTIONS)
                    ids: object = [token for chunk in chunks for token in chunk]
                except Exception as error:
                    ids = error
                with self._lock:
                    if ids == self._expected[place]:
                        self.right += 1
                    else:
                        self.wrong.append(ids)
                    self.resumed += decoder.stats.resumes > 0

    def more(self, answers: int) -> None:
        """Wait for this many more right answers."""
        wanted, end = self.right + answers, time.monotonic() + LONG_S
        while self.right < wanted:
            assert time.monotonic() < end and not self.wrong, self.wrong
            time.sleep(0.05)


@pytest.fixture
def edges(running, text_pair) -> Iterator[Edges]:
    """Three of them; all that they were answered is right."""
    running.until(lambda status: status.settled)
    with Edges(running.address, (text_pair.target, text_pair.draft), 3) as some:
        some.more(3)
        yield some
        some.more(6)
    assert some.wrong == []


def test_nobody_else_can_enter_the_clusters_folder_and_its_metrics_are_shown_to_nobody(here):
    """The first one: nothing but Ray listens yet."""
    assert Path(here.temp).stat().st_mode & 0o077 == 0
    assert (Path(here.temp) / TOKEN_FILE).stat().st_mode & 0o177 == 0
    listening = [
        one.laddr.ip
        for process in members(here.session)
        for one in process.net_connections("inet")
        if one.status == psutil.CONN_LISTEN
    ]
    assert listening and "0.0.0.0" not in listening


def test_all_replicas_get_edges_and_status_shows_them(running, edges):
    status = running.until(lambda status: all(one.edges for one in status.replicas) and status.active >= 2)
    assert {one.report.node for one in status.replicas} and status.edges == 3
    said = json.loads(specnav("fleet", "status", "--state", str(running.state), "--json"))
    assert [one["state"] for one in said["replicas"]] == ["ready", "ready"]
    again = specnav("fleet", "up", "--state", str(running.state), code=1)
    assert "runs at" in again and "already" in again and "Traceback" not in again


def test_answers_go_on_when_a_verifier_is_killed(running, edges):
    one = max(running.status().replicas, key=lambda one: one.active)
    os.kill(one.report.pid, signal.SIGKILL)
    edges.more(3)
    running.until(lambda status: status.settled and any(other.report.starts == 2 for other in status.replicas))
    assert edges.resumed


def test_answers_go_on_when_a_replica_is_killed_with_its_actor(running, edges):
    one = max(running.status().replicas, key=lambda one: one.active)
    verifier = psutil.Process(one.report.pid)
    verifier.parent().kill()
    verifier.kill()
    edges.more(3)
    gone = one.report.pid
    running.until(lambda status: status.settled and all(other.report.pid != gone for other in status.replicas))


def test_a_directory_that_is_killed_comes_back_where_it_was_with_all_it_knew(running, edges):
    before = running.status()
    os.kill(before.pid, signal.SIGKILL)
    edges.more(3)
    after = running.until(lambda status: status.settled and status.pid != before.pid)
    assert after.address == before.address == running.address
    assert [one.report.name for one in after.replicas] == [one.report.name for one in before.replicas]
    with connect(running.address) as link:  # an edge that comes only now
        assert link.ensure_connected().vocab_size


def test_the_fleet_grows_under_load_and_shrinks_when_it_is_idle(running, edges):
    running.ray.get(running.ray.get_actor(DIRECTORY, NAMESPACE).scale.remote(bounds(1, 3)))
    running.until(lambda status: status.wanted >= 2 and status.bounds == "1:3")
    with Edges(running.address, (edges.target, edges.draft), 3) as more:
        running.until(lambda status: status.wanted == 3 and len(status.replicas) == 3)
    assert more.wrong == []
    running.until(lambda status: status.wanted == 2)
    running.ray.get(running.ray.get_actor(DIRECTORY, NAMESPACE).scale.remote(bounds(2, 2)))


def test_an_upgrade_replaces_every_replica_while_answers_go_on(running, edges):
    before = {one.report.name for one in running.until(lambda status: status.settled).replicas}
    specnav("fleet", "upgrade", "--state", str(running.state))
    after = running.status()
    assert after.settled and before.isdisjoint(one.report.name for one in after.replicas)
    assert {one.report.generation for one in after.replicas} == {after.generation}


def test_bad_input_ends_in_one_line(running, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    for words, said, code in (
        (("status", "--ray", f"127.0.0.1:{port}"), "no Ray cluster answers", 1),
        (("scale", "none", "--state", str(running.state)), "must be a number of replicas", 1),
        (("up", "--replicas", "2", "--model", "x", "--engine", "warp", "--state", str(tmp_path)), "warp", 2),
    ):
        text = specnav("fleet", *words, code=code)
        assert said in text and "Traceback" not in text and len(text.strip().splitlines()) == 1


def test_answers_go_on_when_a_node_is_killed(running, edges):
    """All its processes at once, verifiers included, as when a machine loses its power; Ray starts them elsewhere."""
    gone = [p for p in psutil.process_iter() if of_session(p, running.node)]
    assert any("raylet" in p.name() for p in gone)
    gone += [child for p in gone for child in p.children(recursive=True)]
    pids = {p.pid for p in gone}
    assert any(one.report.pid in pids for one in running.status().replicas)
    for process in gone:
        process.kill() if process.is_running() else None
    edges.more(6)
    running.until(
        lambda status: status.count("ready") == 2 and all(one.report.pid not in pids for one in status.replicas)
    )


def test_down_ends_everything(running):
    pids = [one.report.pid for one in running.status().replicas]
    assert "is down" in specnav("fleet", "down", "--state", str(running.state))
    assert not any(psutil.pid_exists(pid) for pid in pids)
    with connect(running.address, connect_timeout_s=0.5) as link, pytest.raises(LinkLost, match="no directory"):
        link.ensure_connected()


def bounds(least: int, most: int) -> Any:
    from specnav.fleet.settings import ReplicaBounds

    return ReplicaBounds(least, most)


def of_session(process: psutil.Process, session: int) -> bool:
    try:
        return os.getsid(process.pid) == session
    except OSError:
        return False
