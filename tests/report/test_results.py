from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from specnav.results.demo import (
    Comparison,
    DemoResults,
    EpisodeResult,
    check_settings,
    describe_machine,
    number_of,
    percentile,
    summarise,
)
from specnav.results.errors import EvaluationError
from specnav.results.files import read_json
from specnav.results.trace import Decision, load_traces
from tests.report.synthetic_run import make_run

CONTRACT_EPISODE = {
    "instruction", "success", "collisions", "steps", "time_to_goal_s", "path_m", "shortest_path_m", "decision_ms",
    "time_to_action_ms",
}  # fmt: skip
CONTRACT_SUMMARY = {
    "success_rate", "spl", "navigation_error_m", "decision_ms_p50", "decision_ms_p95", "parse_failures",
    "safety_stops", "tau", "identical_to_target",
}  # fmt: skip


def episode(**changes: object) -> EpisodeResult:
    values: dict[str, object] = {
        "instruction": "find the red box",
        "success": True,
        "collisions": 0,
        "steps": 2,
        "time_to_goal_s": 9.0,
        "path_m": 4.0,
        "shortest_path_m": 3.0,
        "decision_ms": [10.0, 30.0],
        "time_to_action_ms": [20.0, 40.0],
    }
    return EpisodeResult(**(values | changes))


def test_results_come_back_as_they_were_written(tmp_path: Path) -> None:
    written = make_run(tmp_path, episodes=2)
    assert DemoResults.load(tmp_path) == written
    assert [trace.result for trace in load_traces(tmp_path)] == written.episodes


def test_file_has_the_fields_that_others_lean_on(tmp_path: Path) -> None:
    make_run(tmp_path, episodes=1)
    content = json.loads((tmp_path / "results.json").read_text())
    assert content["schema"] == 1
    assert {"config", "machine", "episodes", "summary"} <= set(content)
    assert set(content["episodes"][0]) >= CONTRACT_EPISODE
    assert set(content["summary"]) >= CONTRACT_SUMMARY


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.update(schema=2), "schema is 2"),
        (lambda c: c["summary"].update(success_rate=1.5), "success_rate must lie in 0..1"),
        (lambda c: c["episodes"][0].update(collisions=-1), "collisions must not be negative"),
        (lambda c: c["episodes"][0].update(steps="many"), "Expected `int`"),
        (lambda c: c["episodes"][0].pop("instruction"), "instruction"),
        (lambda c: c["episodes"][0].update(decision_ms=[-3.0]), "times must not be negative"),
    ],
)
def test_wrong_content_is_refused_with_the_field_in_one_line(tmp_path: Path, change, words: str) -> None:
    make_run(tmp_path, episodes=1)
    path = tmp_path / "results.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(EvaluationError, match=r"results\.json is not a valid DemoResults") as caught:
        DemoResults.load(tmp_path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_and_torn_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="cannot read"):
        DemoResults.load(tmp_path)
    for torn in (b'{"schema": 1, "conf', b"\xff", b'{"x":' * 100_000):
        (tmp_path / "results.json").write_bytes(torn)
        with pytest.raises(EvaluationError, match="not a valid DemoResults"):
            DemoResults.load(tmp_path)


@pytest.mark.parametrize(("value", "low"), [("soon", 0), (-1, 0), (0, 1), (float("inf"), 0), ("1:2:3", 0)])
def test_a_setting_that_must_be_a_number_is_told_where_it_is_none(value, low: float) -> None:
    with pytest.raises(EvaluationError, match=r"setting rtt_ms of the run is .+, not a number from"):
        number_of({"rtt_ms": value}, "rtt_ms", low=low)
    assert number_of({}, "rtt_ms", 7.0) == 7.0 and number_of({"rtt_ms": "3"}, "rtt_ms") == 3.0


def test_failed_write_keeps_the_old_file_and_leaves_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = make_run(tmp_path, episodes=1)
    before = (tmp_path / "results.json").read_bytes()
    listed = sorted(p.name for p in tmp_path.iterdir())

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("specdec.whole_files.os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        results.save(tmp_path)
    assert (tmp_path / "results.json").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == listed


def test_summary_counts_success_and_weighs_it_by_path() -> None:
    found = summarise([episode(), episode(success=False, time_to_goal_s=None)])
    assert found.success_rate == 0.5
    assert found.spl == pytest.approx(0.5 * 3 / 4)
    assert found.decision_ms_p50 == 20.0
    assert found.time_to_action_ms_p95 == 40.0


def test_absent_targets_do_not_count_for_path_length_or_error() -> None:
    absent = episode(absent=True, shortest_path_m=None, navigation_error_m=None, time_to_goal_s=None)
    found = summarise([episode(navigation_error_m=0.5), absent])
    assert found.spl == pytest.approx(0.75)
    assert found.navigation_error_m == 0.5
    assert found.absent_respected_rate == 1.0


def test_what_was_not_measured_is_null_and_not_zero() -> None:
    empty = summarise([], Comparison())
    assert (empty.success_rate, empty.spl, empty.tau, empty.decision_ms_p50) == (None, None, None, None)
    assert empty.identical_to_target is None
    assert summarise([episode()]).joules_per_decision is None, "no sensor"


def test_energy_is_the_mean_over_decisions_that_were_measured() -> None:
    assert summarise([episode(joules=[2.0, 4.0]), episode(), episode(joules=[9.0])]).joules_per_decision == 5.0
    with pytest.raises(ValueError, match="energies must not be negative"):
        episode(joules=[-1.0])


def test_tau_is_accepted_plus_one_a_round() -> None:
    found = summarise([episode(drafted=40, accepted=30, rounds=10, tokens=39)])
    assert found.tau == 4.0
    assert found.acceptance == 0.75


def test_round_costs_leave_the_forwards_out() -> None:
    found = summarise(
        [episode(rounds=4, uplink_bytes=160, downlink_bytes=80, round_overhead_ms=[0.5, 0.7, 0.9])]
    )
    assert (found.uplink_bytes_per_round, found.downlink_bytes_per_round) == (40.0, 20.0)
    assert found.round_overhead_ms_p50 == 0.7
    waits = Decision(
        index=0, t_s=0, source="model", action="", wait_ms=[30.0, 4.0, 5.0], verify_ms=[3.0, 3.0, 3.5]
    )
    assert waits.overhead_ms == [1.0, 1.5]


def test_percentile_interpolates_between_neighbours() -> None:
    assert percentile([1.0, 2.0, 3.0, 10.0], 50) == 2.5
    assert percentile([5.0], 95) == 5.0
    assert percentile([], 50) is None


def test_settings_keep_plain_values_and_refuse_the_rest() -> None:
    assert check_settings({"a": Path("x/y"), "b": (1, 2), "c": None, "d": 0.5}) == {
        "a": "x/y", "b": "1, 2", "c": None, "d": 0.5,
    }  # fmt: skip
    with pytest.raises(EvaluationError, match="setting a"):
        check_settings({"a": object()})


def test_machine_names_its_processor_and_versions() -> None:
    machine = describe_machine("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n")
    assert machine["processor"] == "Some CPU @ 2 GHz"
    assert isinstance(machine["cores"], int) and machine["cores"] >= 1
    assert machine["torch"]


def test_a_pipe_in_the_place_of_a_results_file_is_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "clients.json")
    with pytest.raises(EvaluationError, match="not a regular file"):
        read_json(tmp_path / "clients.json", dict)
