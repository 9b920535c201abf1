"""What the commands of a fleet do to its cluster and its folder, with Ray pretended (for real: test_fleet_on_ray)."""

from __future__ import annotations

import faulthandler
import fcntl
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from specnav.errors import UsageError
from specnav.fleet import cluster, run
from specnav.fleet.cluster import LocalCluster, start_here, write_here
from specnav.fleet.errors import FleetError
from specnav.fleet.register import ReplicaReport
from specnav.fleet.run import for_replicas, run_down, run_scale, run_up, show, wait_settled
from specnav.fleet.settings import ScaleConfig, UpConfig, Where
from specnav.fleet.status import FleetStatus, ReplicaStatus

OURS = LocalCluster("127.0.0.1:1", 4321, "/nowhere")


class RayError(Exception):
    """As Ray's."""


class RayActorError(RayError):
    """As Ray's."""


class Ray:
    """Calls what it is given; names of actors lead nowhere unless there is a directory."""

    exceptions = SimpleNamespace(RayError=RayError, RayActorError=RayActorError)

    def __init__(self, directory: object = None) -> None:
        self._directory = directory

    def get(self, call: Callable[[], object], timeout: float) -> object:
        return call()

    def get_actor(self, name: str, namespace: str) -> object:
        if self._directory is None:
            raise ValueError(name)
        return self._directory

    def kill(self, actor: object, no_restart: bool) -> None:
        pass

    def shutdown(self) -> None:
        pass


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[LocalCluster]:
    """The clusters that were stopped. One of ours is recorded in tmp_path, and every cluster answers."""
    found: list[LocalCluster] = []
    write_here(tmp_path, OURS)
    monkeypatch.setattr(cluster, "answers", lambda address: True)
    monkeypatch.setattr(LocalCluster, "show_token", lambda here: None)
    monkeypatch.setattr(run, "check_ray", lambda: None)
    monkeypatch.setattr(run, "stop_here", found.append)
    return found


def with_ray(monkeypatch: pytest.MonkeyPatch, ray: Ray) -> None:
    monkeypatch.setattr(run, "reach", lambda address: ray)


def directory(call: Callable[[], object]) -> Any:
    method = SimpleNamespace(remote=lambda *_: call)
    return SimpleNamespace(down=method, status=method, scale=method)


def test_down_ends_the_cluster_that_was_started_for_the_fleet_and_no_other(
    stopped: list[LocalCluster], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_ray(monkeypatch, Ray(directory(lambda: None)))
    assert run_down(Where("127.0.0.1:2", tmp_path)) == 0 and not stopped
    assert run_down(Where(OURS.ray, tmp_path)) == 0 and stopped == [OURS]
    assert run_down(Where(state=tmp_path)) == 0 and stopped == [OURS, OURS]


def test_down_ends_a_cluster_that_an_up_which_was_killed_has_left_without_a_fleet(
    stopped: list[LocalCluster], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_ray(monkeypatch, Ray())
    assert run_down(Where(state=tmp_path)) == 0 and stopped == [OURS]
    with pytest.raises(UsageError, match="no fleet runs there"):
        run_down(Where("127.0.0.1:2", tmp_path))


def test_a_cluster_is_recorded_before_it_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def killed(argv: list[str], temp: Path, *, began: Callable[[int], None]) -> tuple[int, str]:
        began(4321)
        raise KeyboardInterrupt

    recorded: list[LocalCluster] = []
    monkeypatch.setattr(cluster, "check_ray", lambda: None)
    monkeypatch.setattr(cluster, "start_node", killed)
    monkeypatch.setattr(cluster.tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    monkeypatch.setattr(LocalCluster, "show_token", lambda here: None)
    with pytest.raises(KeyboardInterrupt):
        start_here(2, recorded.append)
    assert [(one.session, one.temp) for one in recorded] == [(4321, str(tmp_path))] and recorded[0].ray


def test_a_folder_is_of_one_fleet(stopped: list[LocalCluster], tmp_path: Path) -> None:
    with pytest.raises(FleetError, match=r"belongs to the fleet on the Ray cluster at 127\.0\.0\.1:1"):
        run_up(UpConfig({"model": "x"}, ray="127.0.0.1:2", state=tmp_path))
    other = tmp_path / "other"
    other.mkdir()
    held = os.open(other, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(UsageError, match="another process"):
        run_up(UpConfig({"model": "x"}, state=other))
    os.close(held)


NODE = "a-machine-of-the-cluster (192.0.2.200)"


def status(states: tuple[tuple[str, int], ...], generation: int = 1) -> FleetStatus:
    replicas = [
        ReplicaStatus(ReplicaReport(f"replica-{n}", n, of, NODE, "tcp://127.0.0.1:41795"), state, 0, 0, "")  # type: ignore[arg-type]
        for n, (state, of) in enumerate(states, 1)
    ]
    return FleetStatus("fleet://a:1", generation, len(states), "2", 0, 0, 0, 0, 0, 0, 1, "", replicas)


def test_a_directory_that_dies_while_a_command_waits_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_LOOK_S", 0.0)
    replies: list[object] = [RayActorError("it died"), status((("ready", 1),))]

    def call() -> object:
        reply = replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    assert wait_settled(Ray(object()), directory(call), 60.0, Console(stderr=True), "replicas").settled


def test_a_command_that_waits_ends_when_the_fleet_is_taken_down() -> None:
    def call() -> FleetStatus:
        raise RayActorError("the actor is dead")

    with pytest.raises(FleetError, match="the fleet was taken down meanwhile"):
        wait_settled(Ray(), directory(call), 60.0, Console(stderr=True), "upgraded")


def test_replicas_of_an_earlier_upgrade_that_failed_do_not_end_the_wait_for_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "_LOOK_S", 0.0)
    replies = [status((("ready", 1), ("failed", 2)), generation=3), status((("ready", 3),), generation=3)]
    told = wait_settled(Ray(), directory(lambda: replies.pop(0)), 60.0, Console(stderr=True), "upgraded")
    assert told.settled and not replies
    failed = status((("ready", 1), ("failed", 3)), generation=3)
    assert wait_settled(Ray(), directory(lambda: failed), 60.0, Console(stderr=True), "upgraded") is failed


def test_an_interrupt_while_the_directory_starts_leaves_no_replica(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    ended: list[str] = []
    actor = SimpleNamespace(
        status=SimpleNamespace(remote=lambda: interrupted),
        down=SimpleNamespace(remote=lambda: lambda: ended.append("replicas")),
    )
    ray = Ray()
    node = SimpleNamespace(get_node_id=lambda: "0" * 56)
    ray.get_runtime_context = lambda: node  # type: ignore[attr-defined]
    ray.remote = lambda _: SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda *_: actor))  # type: ignore[attr-defined]
    ray.kill = lambda actor, no_restart: ended.append("directory")  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        run.start_directory(ray, tmp_path, None, "")  # type: ignore[arg-type]
    assert ended == ["replicas", "directory"]


def test_sigterm_is_ours_again_once_ray_has_put_its_own_handler_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Came(Exception):
        pass

    def came(*_: object) -> None:
        raise Came

    with (tmp_path / "stacks").open("w") as file:
        ray = SimpleNamespace(__version__="0", init=lambda **_: faulthandler.register(signal.SIGTERM, file=file))
        monkeypatch.setitem(sys.modules, "ray", ray)
        monkeypatch.setattr(cluster, "check_ray", lambda: None)
        monkeypatch.setattr(cluster, "answers", lambda address: True)
        before = signal.signal(signal.SIGTERM, came)
        try:
            cluster.reach("127.0.0.1:1")
            with pytest.raises(Came):
                signal.raise_signal(signal.SIGTERM)
        finally:
            faulthandler.unregister(signal.SIGTERM)
            signal.signal(signal.SIGTERM, before)


def test_what_ray_raises_is_one_line(
    stopped: list[LocalCluster], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def call() -> None:
        raise RayActorError("The actor died.\n\tclass_name: Directory")

    with_ray(monkeypatch, Ray(directory(call)))
    with pytest.raises(FleetError, match=r"^the directory failed: .*Directory$"):
        run_scale(ScaleConfig(state=tmp_path, replicas="2"))


def test_a_status_that_is_piped_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    show(status((("ready", 1),)))
    shown = capsys.readouterr().out
    assert "tcp://127.0.0.1:41795" in shown and NODE in shown


def test_an_upgrade_that_is_not_over_says_how_many_serve(capsys: pytest.CaptureFixture[str]) -> None:
    run._said(status((("ready", 1), ("ready", 2)), generation=2), Console(stderr=True))
    assert capsys.readouterr().err == "2 of 2 replicas serve, 1 of them with the newest settings\n"


def test_a_verdict_log_lies_where_its_name_says_also_for_replicas(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    found = for_replicas({"model": "some/id", "verdict_log": "log", "bind": "x", "metrics": ""})
    assert found == {"model": "some/id", "verdict_log": str(tmp_path / "log")}
