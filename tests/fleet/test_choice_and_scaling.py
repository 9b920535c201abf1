"""What decides in a fleet: which replica an edge gets, how many replicas there are, and what an upgrade does next."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from cloud_verifier.config import ServerConfig
from cloud_verifier.errors import VerifierError
from specnav.cli.app import app
from specnav.fleet.choice import SLACK, ReplicaCandidate, choose
from specnav.fleet.errors import FleetError
from specnav.fleet.identity import differences, identity_of
from specnav.fleet.replica import start_replica
from specnav.fleet.run import server_of
from specnav.fleet.scaling import ReplicaLoad, Scaler, ScalingStep, next_step
from specnav.fleet.settings import (
    FleetSettings,
    ReplicaBounds,
    ReplicaPlacement,
    Scaling,
    UpConfig,
    UpgradeConfig,
    Where,
    check_fleet,
    gpus_of_replica,
    read_bounds,
)
from specnav.fleet.state import FleetState, read_kept, write_kept


def test_an_edge_gets_the_replica_with_the_fewest_answers_before_its_own():
    some = [
        ReplicaCandidate("a", ahead=3, active=3),
        ReplicaCandidate("b", ahead=1, active=9),
        ReplicaCandidate("c", ahead=1, active=2),
    ]
    assert choose(some) == ["c", "b", "a"]


def test_an_edge_keeps_its_replica_within_the_slack_and_no_further():
    for ahead, kept in ((SLACK, True), (SLACK + 1, False)):
        best = choose([ReplicaCandidate("mine", ahead, ahead), ReplicaCandidate("idle")], at="mine")[0]
        assert (best == "mine") is kept


def test_a_new_edge_goes_where_its_prompt_is_known_within_the_slack_and_no_further():
    for ahead, there in ((SLACK, True), (SLACK + 1, False)):
        best = choose([ReplicaCandidate("knows", ahead, ahead, familiar=2), ReplicaCandidate("idle")])[0]
        assert (best == "knows") is there


def test_what_failed_an_edge_is_its_last_resort():
    some = [ReplicaCandidate("dead"), ReplicaCandidate("busy", ahead=50, active=50)]
    assert choose(some, at="dead", avoid=["dead"]) == ["busy", "dead"]
    assert choose(some[:1], avoid=["dead"]) == ["dead"]
    assert choose([]) == []


def seen(*states: str, generation: int = 1, first: int = 1) -> list[ReplicaLoad]:
    return [ReplicaLoad(first + place, generation, state) for place, state in enumerate(states)]  # type: ignore[arg-type]


def test_missing_replicas_are_started_and_surplus_ones_drained_the_idle_first():
    assert next_step(seen("ready"), 3, 1, True) == ScalingStep(start=2)
    busy = [ReplicaLoad(1, 1, "ready", 4), ReplicaLoad(2, 1, "ready", 0), ReplicaLoad(3, 1, "ready", 2)]
    assert next_step(busy, 2, 1, True) == ScalingStep(drain=(2,))
    assert next_step(seen("ready", "starting"), 1, 1, True) == ScalingStep(drain=(2,))
    assert next_step(seen("ready", "draining"), 1, 1, True) == ScalingStep()


@pytest.mark.parametrize("surge", [True, False])
def test_an_upgrade_replaces_all_one_after_another_and_never_serves_with_less_than_it_may(surge: bool):
    """Played by a cluster in which everything comes up, and ends, with the next look."""
    there = {number: ReplicaLoad(number, 1, "ready") for number in (1, 2, 3)}
    last, least, most = 3, 3, 3
    for _ in range(40):
        step = next_step(list(there.values()), 3, 2, surge)
        there = {
            n: ReplicaLoad(n, one.generation, "ready") for n, one in there.items() if one.state != "draining"
        }
        for number in step.drain:
            there[number] = ReplicaLoad(number, there[number].generation, "draining")
        for _ in range(step.start):
            last += 1
            there[last] = ReplicaLoad(last, 2, "starting")
        serving = sum(one.state == "ready" for one in there.values())
        least, most = min(least, serving), max(most, len(there))
    assert sorted(there) == [4, 5, 6] and all(one.state == "ready" for one in there.values())
    assert (least, most) == ((3, 4) if surge else (2, 3))


def test_an_upgrade_to_what_does_not_come_up_leaves_the_old_ones_alone():
    for state in ("failed", "left_out"):
        there = [*seen("ready", "ready"), *seen(state, generation=2, first=3)]
        assert next_step(there, 2, 2, True) == ScalingStep()


@pytest.mark.parametrize(
    ("states", "wanted"),
    [(("ready", "ready", "failed"), 2), (("ready", "ready", "left_out"), 2), (("ready", "ready"), 1)],
    ids=["the upgrade before failed", "its replica was left out", "fewer are wanted by now"],
)
def test_an_upgrade_ends_although_there_are_more_old_replicas_than_wanted(states: tuple[str, ...], wanted: int):
    there = {one.number: one for one in seen(*states)}
    for last in range(4, 40):
        serving = sum(one.state == "ready" for one in there.values())
        step = next_step(list(there.values()), wanted, 2, True)
        gone = [one for one in step.drain if there[one].state == "ready"]
        assert serving - len(gone) >= wanted
        there = {number: one for number, one in there.items() if number not in step.drain}
        if step.start:
            there[last] = ReplicaLoad(last, 2, "ready")
    assert [one.generation for one in there.values()] == [2] * wanted


def test_a_directory_that_was_killed_in_an_upgrade_goes_on_with_it():
    """It remembers nothing of its steps: what is there says what is next."""
    there = [*seen("ready"), *seen("ready", "ready", generation=2, first=3)]
    assert next_step(there, 2, 2, True) == ScalingStep(drain=(1,))


def test_the_number_of_replicas_follows_load_that_lasts_and_nothing_shorter():
    scaler, bounds = Scaler(Scaling(edges=4, busy_s=5, idle_s=60)), ReplicaBounds(1, 3)
    wanted = scaler.wanted(100.0, 1, 20, bounds)
    assert wanted == 1
    assert scaler.wanted(103.0, 1, 3, bounds) == 1  # over
    assert scaler.wanted(104.0, 1, 20, bounds) == 1
    assert scaler.wanted(109.0, 1, 20, bounds) == 3  # not 5: that is the most
    assert scaler.wanted(110.0, 3, 0, bounds) == 3
    assert scaler.wanted(169.0, 3, 0, bounds) == 3
    assert scaler.wanted(170.0, 3, 0, bounds) == 2  # one at a time
    assert scaler.wanted(171.0, 2, 0, bounds) == 2


@pytest.mark.parametrize("text", ["0", "-1", "2:1", "many", "1:2:3", "1:99999", "9" * 5000, "1:" + "9" * 5000, ""])
def test_numbers_of_replicas_that_are_none_are_refused_in_one_line(text: str):
    with pytest.raises(FleetError, match="replicas") as error:
        read_bounds(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("address", ["", "here", "a:0", "a:99999", "a b:1"])
def test_an_address_that_is_none_is_refused_before_ray_is_started(address: str):
    for make in (
        lambda: Where(ray=address),
        lambda: UpConfig({}, ray=address),
        lambda: UpgradeConfig({}, ray=address),
        lambda: UpConfig({}, metrics="here"),
    ):
        with pytest.raises(FleetError, match="cannot be used: "):
            make()
    for good in ("auto", "10.0.0.5:6379", "ray://10.0.0.5:10001", "[::1]:6379"):
        assert Where(ray=good).ray == UpConfig({}, ray=good, metrics="127.0.0.1:0").ray == good


def test_settings_that_no_verifier_takes_are_refused_before_anything_starts():
    bounds = read_bounds("1:4")
    for server, word in (({"model": "x", "engine": "warp"}, "warp"), ({"model": "x", "colour": 1}, "colour")):
        with pytest.raises(FleetError, match=word):
            check_fleet(FleetSettings(server, bounds), "127.0.0.1")
    with pytest.raises(FleetError, match="no keys"):
        check_fleet(FleetSettings({"model": "x"}, bounds), "192.0.2.7")


def test_ray_sets_as_many_gpus_aside_as_share_a_replicas_model(monkeypatch: pytest.MonkeyPatch):
    assert gpus_of_replica(None, 1, [0.0, 0.0]) == gpus_of_replica(None, 4, []) == 0
    assert gpus_of_replica(None, 1, [0.0, 8.0]) == 1 and gpus_of_replica(None, 4, [2.0, 4.0]) == 4
    assert gpus_of_replica(0.5, 1, [1.0]) == 0.5
    with pytest.raises(FleetError, match="no node of the cluster has more than 2: ") as error:
        gpus_of_replica(None, 4, [2.0, 2.0])
    assert "\n" not in str(error.value)
    server = {"model": "x", "engine": "vllm", "tensor_parallel": 4}
    with pytest.raises(FleetError, match="a replica's model is split over 4 GPUs, but Ray reserves 1"):
        check_fleet(FleetSettings(server, ReplicaBounds(1, 1), ReplicaPlacement(gpus=1)), "127.0.0.1")
    settings = FleetSettings(
        server, ReplicaBounds(1, 1), ReplicaPlacement(gpus=gpus_of_replica(None, 4, [8.0]))
    )
    check_fleet(settings, "127.0.0.1")
    assert settings.config("127.0.0.1").tensor_parallel == 4
    asked: dict[str, Any] = {}
    actor = SimpleNamespace(
        options=lambda **told: asked.update(told) or SimpleNamespace(remote=lambda *_: "actor")
    )
    monkeypatch.setattr("ray.remote", lambda _: actor)
    assert start_replica("here", 1, 1, settings) == "actor" and asked["num_gpus"] == 4


@pytest.mark.slow
def test_a_fleet_hands_tensor_parallel_on_and_only_to_vllm(monkeypatch: pytest.MonkeyPatch):
    given: list[Any] = []
    monkeypatch.setattr("specnav.fleet.run.run_up", lambda config: given.append(server_of(config)) or 0)
    for engine in ("vllm", "own"):
        told = CliRunner().invoke(app, ["fleet", "up", "--engine", engine, "--tensor-parallel", "4"])
        if engine == "vllm":
            assert told.exit_code == 0 and given[0]["tensor_parallel"] == 4
        else:
            assert isinstance(told.exception, VerifierError) and "--engine vllm" in str(told.exception)


def model_folder(folder: Path, weights: bytes) -> str:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text('{"a": 1}')
    (folder / "model.safetensors").write_bytes(weights)
    return str(folder)


def test_replicas_are_told_apart_by_what_they_hold_not_by_where_it_lies(tmp_path: Path):
    large = bytes(range(256)) * 40_000  # longer than what is sampled
    one = identity_of(ServerConfig(model_folder(tmp_path / "one", large)))
    same = identity_of(ServerConfig(model_folder(tmp_path / "same", large)))
    other = identity_of(ServerConfig(model_folder(tmp_path / "other", large[:-1] + b"x")))
    assert differences(one, same) == "" and one.digest == same.digest
    assert differences(one, other) == "different model" and one.digest != other.digest
    (tmp_path / "same" / "tokenizer.json").write_text('{"b": 1}')
    changed = identity_of(ServerConfig(str(tmp_path / "same"), dtype="float32"))
    assert "vocabulary" in differences(one, changed) and "settings" in differences(one, changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"engine": "llamacpp", "kv_type": "q8_0"},
        {"engine": "llamacpp", "gpu_layers": 0},
        {"engine": "vllm", "tensor_parallel": 2},
        {"device": "cpu"},
    ],
)
def test_answers_do_not_move_to_a_replica_whose_numbers_differ(changed: dict[str, Any]):
    one = identity_of(ServerConfig("nowhere", engine=changed.get("engine", "own")))
    other = identity_of(ServerConfig("nowhere", **changed))
    assert one.digest != other.digest and [*changed][-1] in differences(one, other)


def test_what_a_directory_keeps_survives_and_half_a_file_is_refused(tmp_path: Path):
    assert read_kept(tmp_path) is None
    settings = FleetSettings({"model": "x"}, ReplicaBounds(1, 2))
    kept = FleetState("f", settings, 2, 5600, 3, 7, {6: 3, 7: 3}, {3: identity_of(ServerConfig("nowhere"))})
    write_kept(tmp_path, kept)
    assert read_kept(tmp_path) == kept
    assert [file.name for file in tmp_path.iterdir()] == ["directory.json"]
    whole = (tmp_path / "directory.json").read_bytes()
    (tmp_path / "directory.json").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FleetError, match="not a fleet state"):
        read_kept(tmp_path)


@pytest.mark.parametrize(("outside", "shown"), [(False, "127.0.0.1:0"), (True, "10.0.0.7:0")])
def test_what_replicas_serve_for_prometheus_is_reached_by_others_only_where_that_was_asked_for(
    outside: bool, shown: str
) -> None:
    settings = FleetSettings({"model": "m", "insecure": True}, ReplicaBounds(1, 1), metrics_outside=outside)
    assert settings.config("10.0.0.7").metrics == shown
