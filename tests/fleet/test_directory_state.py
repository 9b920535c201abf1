"""A directory whose state cannot be saved, with Ray's actors pretended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from specnav.fleet import directory
from specnav.fleet.directory import Directory, as_fleet_error
from specnav.fleet.errors import FleetError
from specnav.fleet.settings import FleetSettings, ReplicaBounds
from specnav.fleet.state import FleetState, read_kept


@dataclass
class Actors:
    """Which replicas were started and killed."""

    started: list[int] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)

    def start(self, namespace: str, number: int, *_: object) -> None:
        self.started.append(number)


@pytest.fixture
def actors(monkeypatch: pytest.MonkeyPatch) -> Actors:
    there = Actors()
    monkeypatch.setattr(directory, "LOOK_S", 60.0)
    monkeypatch.setattr(directory, "node_address", lambda: "127.0.0.1")
    monkeypatch.setattr(directory, "start_replica", there.start)
    monkeypatch.setattr(directory, "find_actor", lambda ray, name, namespace: name)
    monkeypatch.setattr("ray.kill", lambda actor, no_restart: there.killed.append(actor))
    return there


@pytest.fixture
def serving(actors: Actors, tmp_path: Path) -> Iterator[Directory]:
    settings = FleetSettings({"model": "x"}, ReplicaBounds(2, 2), home="127.0.0.1")
    one = Directory("here", str(tmp_path), FleetState("f", settings, 2, 0), "")
    yield one
    one.down()


def test_on_a_full_disk_nothing_is_counted_that_was_not_saved_and_it_goes_on_afterwards(
    serving: Directory, actors: Actors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path, kept: FleetState) -> None:
        raise FleetError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(directory, "write_kept", full)
        for _ in range(3):
            with pytest.raises(FleetError):
                serving._step()
        assert not actors.started and not serving.status().replicas
    serving._step()
    kept = read_kept(tmp_path)
    assert kept is not None and list(kept.replicas) == actors.started == [1, 2]


@pytest.mark.slow
def test_a_fleet_on_a_full_disk_ends_with_all_its_replicas(
    serving: Directory, actors: Actors, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving._step()
    monkeypatch.setattr(directory, "write_kept", lambda folder, kept: pytest.fail("it saves what is deleted next"))
    serving.down()
    assert actors.killed == ["replica-1", "replica-2"]
    serving.down()  # by a second `fleet down`, after one that was killed


def test_what_ray_passes_on_of_our_own_errors_is_told_without_their_python_names() -> None:
    text = "The actor died:\n  File x\nspecnav.fleet.errors.FleetError: cannot listen on a:1: choose a free --port"
    assert str(as_fleet_error(RuntimeError(text))) == "cannot listen on a:1: choose a free --port"
    assert str(as_fleet_error(RuntimeError("a\nb.Error: c"))) == "the directory failed: b.Error: c"
