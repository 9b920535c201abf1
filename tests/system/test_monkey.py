"""The monkey: sound code holds, planted bugs are found, cases shrink and stay, and a bad case file is one line."""

from functools import cache
from pathlib import Path

import msgspec
import pytest

from spec_vlm_nav.motion.geofence import Geofence
from specnav.errors import UsageError
from tests.system.monkey import run
from tests.system.monkey.planted import COVERED, PLANTED, plant
from tests.system.monkey.run import MonkeyConfig, RunRecord, read_case, run_case, run_monkey, run_seed
from tests.system.monkey.scenario import Scenario, ScenarioEvent, Setup, draw, from_json, to_json
from tests.system.monkey.shrink import broken_by, kind_of, shrunk

pytestmark = pytest.mark.slow

CASES_FOLDER = Path(__file__).parent / "monkey" / "cases"
CASES = sorted(CASES_FOLDER.glob("*.json"))
CHEAP_SEEDS = (0, 1, 3, 7, 9, 10, 15, 16, 19, 20, 23, 26)


# -- runs


run_once = cache(run_seed)


@pytest.mark.parametrize("seed", CHEAP_SEEDS)
def test_the_robot_breaks_nothing_and_every_run_is_a_minute_or_more(seed):
    record = run_once(seed)
    assert record.violation == "" and record.simulated_s >= 60 and record.outcomes


def test_the_same_seed_is_the_same_run_and_another_is_another():
    assert run_seed(1) == run_once(1)
    assert draw(1) == draw(1) != draw(2) and draw(1, 30.0).seconds == 30.0


def test_code_that_raises_is_a_violation(monkeypatch):
    monkeypatch.setattr(Geofence, "hear", lambda self, pose: 1 / 0)
    assert run_seed(0).violation == "0 s: raised ZeroDivisionError: division by zero" == broken_by(draw(0))


# -- planted bugs


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_a_planted_bug_breaks_its_case_which_holds_without_it(case, monkeypatch):
    scenario = read_case(case)
    assert broken_by(scenario) == ""
    plant(case.stem, monkeypatch)
    assert broken_by(scenario)


# -- shrinking


def junk(count):
    return [ScenarioEvent(0.1 * i, "camera", {"fault": "none"}) for i in range(count)]


@pytest.mark.parametrize("count", [0, 1, 7, 30])
def test_only_the_events_and_the_settings_that_matter_are_left(count):
    stop, stuck = ScenarioEvent(1.234, "stop"), ScenarioEvent(2.345, "base", {"stuck": "all"})
    setup = Setup(policy="none", latency_s=0.05, safety={"max_linear": 0.2, "geofence_m": 1.5})
    scenario = Scenario(1, 60.0, setup, [*junk(count), stop, *junk(count), stuck, *junk(count)])

    def judge(candidate):
        whats = [e.what for e in candidate.events]
        breaks = "stop" in whats and "base" in whats and candidate.setup.safety.get("geofence_m") == 1.5
        return f"3.0{len(whats)} s: 4.{len(whats)} m too far" if breaks else ""

    short = shrunk(scenario, judge)
    assert [(e.at, e.what) for e in short.events] == [(1.2, "stop"), (2.3, "base")]
    assert short.setup == Setup(safety={"geofence_m": 1.5}) and 4.0 <= short.seconds <= 5.0


def test_a_run_that_breaks_something_else_when_shortened_is_kept_as_long_as_it_has_to_be():
    scenario = Scenario(1, 60.0, Setup(), [*junk(3), ScenarioEvent(1.0, "stop")])
    short = shrunk(scenario, lambda s: f"5 s: {'this' if len(s.events) == 4 else 'that'}")
    assert len(short.events) == 4


def test_a_run_that_breaks_nothing_is_left_alone():
    scenario = draw(1)
    assert shrunk(scenario, lambda s: "") is scenario


def test_shrinking_ends():
    runs = []
    shrunk(draw(4, 600.0), lambda s: runs.append(s) or "1 s: always")
    assert len(runs) < 1000


def test_a_case_of_a_real_run_still_breaks_the_same_and_is_shorter(monkeypatch):
    plant("stranger", monkeypatch)
    kept = read_case(CASES_FOLDER / "stranger.json")
    long = msgspec.structs.replace(
        kept, seconds=kept.seconds + 5, events=sorted([*kept.events, *junk(4)], key=lambda e: e.at)
    )
    short = shrunk(long)
    assert kind_of(broken_by(short)) == kind_of(broken_by(long)) != ""
    assert len(short.events) <= len(kept.events) and short.seconds <= kept.seconds


def test_what_a_violation_is_about_is_its_words_without_figures():
    assert kind_of("10.80 s: moves 1.57 s after stop") == kind_of("3 s: moves 12 s after stop") != ""
    assert kind_of("1 s: moves") != kind_of("1 s: ends")


# -- cases on disk


@pytest.mark.parametrize("seed", range(5))
def test_a_scenario_is_the_same_after_it_was_written_and_read(seed):
    scenario = draw(seed)
    assert from_json(to_json(scenario)) == scenario


GOOD = to_json(Scenario(1, 2.0, Setup(), []))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read"),
        (b"", "is not a case of the monkey"),
        (b"not JSON", "is not a case of the monkey"),
        (b"\xff\xfe", "is not a case of the monkey"),
        (b"[]", "Expected `object`"),
        (b'{"seed": 1}', "missing required field"),
        (GOOD.replace(b'"seconds": 2.0', b'"seconds": "long"'), "Expected `float`"),
        (GOOD.replace(b"[]\n}", b'[{"at": 1.0, "what": "explode"}]\n}'), "explode"),
        (GOOD.replace(b"[]\n}", b'[{"at": 1.0, "what": "stop", "args": {"how": "now"}}]\n}'), "how"),
        (GOOD.replace(b"[]\n}", b'[{"at": 1.0, "what": "odometry", "args": {"fault": "odd"}}]\n}'), "odd"),
        (GOOD.replace(b'"safety": {}', b'"safety": {"max_lunar": 1}'), "max_lunar"),
        (GOOD.replace(b'"policy": "frontier_search"', b'"policy": "luck"'), "luck"),
    ],
)
def test_a_bad_case_file_is_one_line_and_no_success(tmp_path, capsys, content, said):
    case = tmp_path / "case.json"
    if content is not None:
        assert content != GOOD
        case.write_bytes(content)
    try:
        assert run_case(case) == 1
        line = capsys.readouterr().out
    except UsageError as error:
        line = str(error)
    assert said in line and len(line.splitlines()) == 1


def test_a_kept_case_is_run_and_tells_whether_it_breaks(monkeypatch, capsys):
    case = CASES_FOLDER / "stranger.json"
    assert run_case(case) == 0 and "nothing broken" in capsys.readouterr().out
    plant("stranger", monkeypatch)
    assert run_case(case) == 1 and "which nothing has lifted" in capsys.readouterr().out


def test_a_short_run_writes_its_results(capsys, tmp_path):
    assert run_monkey(MonkeyConfig(1, 1, 1, tmp_path / "run")) == 0
    assert "invariants broken" in capsys.readouterr().out
    results = msgspec.json.decode((tmp_path / "run" / "monkey.json").read_bytes())
    assert results["runs"] == 1 and results["simulated_minutes"] >= 1.0 and results["broken"] == {}


def test_what_runs_break_is_told_and_the_shortest_case_of_each_kind_kept(capsys, monkeypatch, tmp_path):
    def recorded(seed):
        return RunRecord(seed, 60.0, 1.0, {"NONE": 1}, f"{seed} s: went {seed} m too far" if seed % 2 else "")

    monkeypatch.setattr(run, "run_seed", recorded)
    monkeypatch.setattr(run, "shrunk", lambda scenario: msgspec.structs.replace(scenario, events=[]))
    assert run_monkey(MonkeyConfig(6, 10, 1, tmp_path / "run")) == 1
    assert "seed 11: 11 s: went 11 m too far" in capsys.readouterr().err
    results = msgspec.json.decode((tmp_path / "run" / "monkey.json").read_bytes())
    assert results["broken"] == {"went # m too far": [11, 13, 15]} and results["outcomes"] == {"NONE": 6}
    kept = [path.name for path in (tmp_path / "run").glob("case-*.json")]
    assert kept == ["case-11.json"] and read_case(tmp_path / "run" / kept[0]).seed == 11


def test_every_planted_bug_has_a_case_but_those_that_another_guard_covers():
    assert {path.stem for path in CASES} == set(PLANTED) - COVERED


# -- at length


@pytest.mark.monkey
@pytest.mark.timeout(0)
def test_nothing_breaks_for_hours(given, folder):
    if case := given("case"):
        assert run_case(case) == 0
    else:
        minutes = int(given("minutes", 60.0))
        assert run_monkey(MonkeyConfig(minutes, given("seed", 0), out=folder / "monkey")) == 0
