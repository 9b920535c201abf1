"""What a verifier bears: the network of queues, the measured curve, both studies from plan to page, and their runs."""

from __future__ import annotations

import math
import random
from pathlib import Path

import msgspec
import pytest

from specdec.errors import OptionsError
from specdec.models import load_model
from specnav.bench.data.papers import figure
from specnav.bench.records.capacity import (
    BATCH_FILE,
    Capacity,
    Flow,
    load_curve,
    most_clients,
    rounds_a_second,
)
from specnav.bench.records.study import StudyResults
from specnav.bench.runner.batch_study import run_batch_study
from specnav.bench.runner.clients_study import run_clients_study
from specnav.bench.runner.forwards import measure_curve
from specnav.bench.studies import study_named
from specnav.bench.studies.clients import (
    METHODS,
    PAPER,
    RTTS,
    ServingCell,
    best_gammas,
    cells,
    predicted,
    searches,
    seen_in,
)
from specnav.errors import HarnessError, UsageError
from specnav.results.errors import EvaluationError
from specnav.results.files import write_json
from tests.bench.made_up_serving import BEST, made_up_batch, made_up_clients, made_up_curve, made_up_row


def simulated(clients: int, think: float, forward: float, most: float, spread: float = 0.4) -> float:
    """Rounds a second of a server that serves all who wait, at most this many, event by event."""
    drawn = random.Random(1)
    ready = [(drawn.random() * (think + forward), number) for number in range(clients)]
    now, done = 0.0, 0
    while now < 3000 * forward:
        now = max(now, min(ready)[0])
        served = sorted(one for one in ready if one[0] <= now)[: int(min(most, clients))]
        now += forward
        done += len(served)
        back = [(now + think * (1 + spread * drawn.uniform(-1, 1)), number) for _, number in served]
        ready = [one for one in ready if one not in served] + back
    return 1e3 * done / now


class TestTheNetworkOfQueues:
    @pytest.mark.slow
    @pytest.mark.parametrize("think", [20.0, 60.0, 150.0, 400.0])
    @pytest.mark.parametrize("clients", [1, 2, 5, 16])
    def test_is_near_a_simulation(self, think: float, clients: int) -> None:
        most = math.inf
        found = rounds_a_second(clients, Flow(think, lambda sessions: 94.0, most))
        assert found == pytest.approx(simulated(clients, think, 94.0, most), rel=0.12)

    def test_a_full_server_gives_what_its_forwards_hold(self) -> None:
        rate = rounds_a_second(32, Flow(60.0, lambda sessions: 94.0, 4.0))
        assert rate == pytest.approx(4 / 0.094) == pytest.approx(simulated(32, 60.0, 94.0, 4.0), rel=0.01)

    def test_a_cloud_that_goes_on_by_itself_serves_all_at_once(self) -> None:
        assert rounds_a_second(8, Flow(0.0, lambda sessions: 50.0 + 5 * sessions)) == pytest.approx(8 / 0.09)


class TestTheCurve:
    def test_is_straight_between_its_points_and_goes_on_behind_them(self) -> None:
        curve = made_up_curve()
        for sessions, rows in ((1, 1), (3, 7), (16, 33), (64, 5)):
            assert curve.latency_ms(sessions, rows) == pytest.approx(2 + 0.05 * sessions * rows)
        assert curve.latency_ms(0.5, 1) == curve.latency_ms(1, 1)

    def test_is_found_by_its_file_or_by_its_study(self, tmp_path: Path) -> None:
        write_json(tmp_path / "s" / "batch" / BATCH_FILE, made_up_curve())
        assert load_curve(tmp_path / "s") == load_curve(tmp_path / "s" / "batch") == made_up_curve()

    @pytest.mark.parametrize(
        ("text", "words"),
        [("{", "not a valid"), ('{"schema": 9}', "not a valid"), ("null", "not a valid"), (None, "cannot read")],
    )
    def test_a_file_that_is_none_is_one_line(self, tmp_path: Path, text: str | None, words: str) -> None:
        place = tmp_path / "x.json"
        if text is not None:
            place.write_text(text)
        with pytest.raises(EvaluationError, match=words):
            load_curve(place)

    def test_without_points_or_with_a_forward_of_no_time_it_is_none(self) -> None:
        curve = made_up_curve()
        with pytest.raises(ValueError, match="no measured forward"):
            msgspec.structs.replace(curve, points=[]).__post_init__()
        with pytest.raises(ValueError, match="above 0"):
            broken = msgspec.structs.replace(curve.points[0], together_ms=0.0)
            msgspec.structs.replace(curve, points=[broken]).__post_init__()


def test_the_most_clients_lie_between_the_last_that_holds_and_the_next() -> None:
    assert most_clients({1: 15.0, 2: 14.0, 4: 12.0, 8: 8.0}, 10.0) == Capacity(6.0)
    assert most_clients({1: 15.0, 2: 10.0}, 10.0) == Capacity(2.0, at_least=True)
    assert str(most_clients({1: 15.0, 2: 10.0}, 10.0)) == "≥ 2" and str(most_clients({1: 9.0}, 10.0)) == "0"


class TestWhatIsMeasured:
    def test_fixed_draft_lengths_are_searched_and_others_are_left_alone(self) -> None:
        assert {cell.method for cell in searches(METHODS, 15.0)} == {"cloud-sd", "sd", "fsd"}
        assert best_gammas(made_up_clients().cells) == BEST
        assert best_gammas(made_up_clients(1).cells) == {}

    def test_every_cell_has_a_file_of_its_own_and_specedge_is_measured_with_groups(self) -> None:
        wanted = cells((*METHODS, "sd+tree:32x6"), RTTS, (1, 2), BEST, 7)
        assert len({cell.file for cell in wanted}) == len(wanted) == 4 * 8 * 2
        assert {cell.groups for cell in wanted if cell.method == "specedge"} == {1, 2}
        assert {cell.gamma for cell in wanted if cell.method == "sd"} == {2}
        assert all(set("/+: ").isdisjoint(cell.file) for cell in wanted)


class TestWhatIsReadOff:
    def test_rates_are_those_of_the_operating_point_whatever_the_scale(self) -> None:
        whole, quarter = seen_in(made_up_clients()), seen_in(made_up_clients(scale=0.25))
        for rtt in RTTS:
            for name in whole.names():
                assert quarter.rates(rtt, name) == pytest.approx(whole.rates(rtt, name), rel=1e-6)
                assert quarter.capacity(rtt, name)[0] == whole.capacity(rtt, name)[0]
        assert quarter.rtt_ms == whole.rtt_ms == 15.0

    @pytest.mark.slow
    def test_the_headline_counts_clients_and_the_papers_figure_stands_beside(self) -> None:
        found = study_named("clients").read(made_up_clients())
        row = next(row for row in found.tables[0].rows if row[0] == "cloud-sd")
        assert row[1] == "≥ 16"
        ratios = next(chart for chart in found.charts if chart.title.startswith("Twice"))
        assert [line.points for line in ratios.lines if line.paper] == [((1.0, figure(PAPER)),)]
        assert ratios.lines[0].points[0][0] == 1 and ratios.level == 1.0

    def test_a_plan_from_one_client_meets_what_was_made_up_by_the_same_formula(self) -> None:
        results = made_up_clients()
        seen = seen_in(results)
        for name in ("ar", "cloud-sd", "sd", "auto"):
            planned = predicted(results, seen, 40.0, name)
            assert planned == pytest.approx(seen.rates(40.0, name), rel=0.02)
        assert predicted(results, seen, 40.0, "specedge, 2 groups") == {}
        assert predicted(msgspec.structs.replace(results, curve=None), seen, 40.0, "sd") == {}

    def test_forwards_longer_than_their_pace_are_planned_with(self) -> None:
        results = made_up_clients()
        slow = [msgspec.structs.replace(one, together_ms=60 * one.together_ms) for one in made_up_curve().points]
        slowed = msgspec.structs.replace(results, curve=msgspec.structs.replace(made_up_curve(), points=slow))
        seen = seen_in(results)
        assert predicted(slowed, seen, 15.0, "sd")[16] < 0.8 * predicted(results, seen, 15.0, "sd")[16]

    def test_how_says_which_measurements_are_bound_and_a_different_answer(self) -> None:
        results = made_up_clients(scale=0.5)
        facts = dict(study_named("clients").how(results))
        answers = 3 * len(results.cells)
        assert facts["Answers that are the target's own"] == f"{answers} of {answers}"
        assert facts["Measurements that are client-bound"].endswith(f" of {len(results.cells)}")
        wrong = msgspec.structs.replace(results.cells[0].row, wrong=2, errors=["lost"])
        one = msgspec.structs.replace(results.cells[0], row=wrong)
        facts = dict(study_named("clients").how(msgspec.structs.replace(results, cells=[one])))
        assert facts["Answers that are the target's own"] == "1 of 3, the others DIFFER"
        assert "1 clients: lost" in facts["Ended early"]

    def test_forwards_tell_what_sharing_gains_and_what_a_prompt_costs(self) -> None:
        forwards, prompts = study_named("batch").read(made_up_batch()).tables
        assert next(row for row in forwards.rows if row[0] == "32 × 1")[:4] == ("32 × 1", "3.60", "65.60", "18.22×")
        assert prompts.rows[0][6:8] == ("2.00×", "3.00×")


class MadeUpMeasurements:
    """Measurements that take no time. stop_after: this many before the user presses Ctrl-C; fail: say this instead."""

    def __init__(self, stop_after: int | None = None, fail: str = "") -> None:
        self.stop_after, self.fail = stop_after, fail
        self.cells: list[ServingCell] = []

    def __call__(self, cell: ServingCell, logs: Path):
        if len(self.cells) == self.stop_after:
            if self.fail:
                raise HarnessError(self.fail)
            raise KeyboardInterrupt
        self.cells.append(cell)
        return made_up_row(cell)


class TestARun:
    @pytest.mark.slow
    def test_searches_then_measures_with_what_it_found_and_goes_on_where_it_ended(self, tmp_path, capsys) -> None:
        flags = {"out": tmp_path / "s", "methods": ("cloud-sd", "specedge")}
        begun = MadeUpMeasurements(stop_after=5)
        assert run_clients_study(flags, None, "1,2", None, None, begun) == 130
        assert [cell.gamma for cell in begun.cells] == [2, 4, 7, 2, 7]
        assert StudyResults.load(tmp_path / "s" / "clients").interrupted
        page = (tmp_path / "s" / "report.html").read_text()
        assert "Drawn from 5 of 26 measurements; continue with --resume" in page
        rest = MadeUpMeasurements()
        curve = tmp_path / "curve.json"
        write_json(curve, made_up_curve())
        assert run_clients_study({**flags, "resume": True}, None, "1,2", None, curve, rest) == 0
        assert len(rest.cells) == 21 and not set(rest.cells) & set(begun.cells)
        results = StudyResults.load(tmp_path / "s" / "clients")
        assert not results.interrupted and len(results.cells) == results.asked == 26 and results.curve
        said = capsys.readouterr()
        assert "5 done already" in said.err and "≥ 2" in said.out
        assert "Planned and measured" in (tmp_path / "s" / "report.html").read_text()
        again = MadeUpMeasurements()
        more = {**flags, "resume": True, "rtt_ms": 15.0}
        assert run_clients_study(more, None, "1,2,4", None, None, again) == 0
        assert {(cell.clients, cell.rtt_ms) for cell in again.cells} == {(4, 15.0)}  # numbers more, nothing twice

    @pytest.mark.slow
    def test_what_was_disturbed_is_measured_again_and_the_quieter_one_kept(self, tmp_path) -> None:
        flags = {"out": tmp_path / "s", "methods": ("ar",), "rtt_ms": 15.0}
        again = {**flags, "resume": True}
        measured = []

        def with_others(others):
            def measure(cell, logs):
                measured.append(others)
                return made_up_row(cell, busy=0.95, others=others)

            return measure

        run_clients_study(flags, None, "1", None, None, with_others(0.7))
        assert "Measurements that are disturbed" in (tmp_path / "s" / "report.html").read_text()
        for others in (0.8, 0.1, 0.0):
            run_clients_study(again, None, "1", None, None, with_others(others))
        assert measured == [0.7, 0.8, 0.1]  # the last was not disturbed
        (cell,) = StudyResults.load(tmp_path / "s" / "clients").cells
        assert cell.row.cores_others == pytest.approx(0.1)

    @pytest.mark.slow
    def test_what_fails_ends_it_with_its_reason_and_keeps_the_rest(self, tmp_path) -> None:
        flags = {"out": tmp_path / "s", "methods": ("sd",), "gamma": 3}
        with pytest.raises(UsageError, match="the verifier ended"):
            run_clients_study(flags, None, "1,2", None, None, MadeUpMeasurements(1, "the verifier ended"))
        assert "the verifier ended" in (tmp_path / "s" / "report.html").read_text()
        with pytest.raises(UsageError, match=r"cannot resume: --time-scale was 1 and is 0\.5"):
            run_clients_study({**flags, "resume": True}, 0.5, "1,2", None, None, MadeUpMeasurements())
        with pytest.raises(UsageError, match="cannot resume: max_new_tokens was 64 and is 9"):
            changed = {**flags, "resume": True, "max_new_tokens": 9}
            run_clients_study(changed, None, "1,2", None, None, MadeUpMeasurements())

    def test_other_texts_in_the_question_file_are_not_mixed_with_the_measured_ones(self, tmp_path) -> None:
        asked = tmp_path / "asked.txt"
        asked.write_text("What is a map?\n")
        flags = {"out": tmp_path / "s", "methods": ("sd",), "gamma": 3, "questions": (str(asked),)}
        assert run_clients_study(flags, None, "1,2", None, None, MadeUpMeasurements(1)) == 130
        again = {**flags, "resume": True}
        asked.write_text("What is a chart?\n")
        with pytest.raises(UsageError, match="cannot resume: texts of the questions was"):
            run_clients_study(again, None, "1,2", None, None, MadeUpMeasurements())
        asked.write_text("What is a map?\n")
        moved = {**again, "questions": (str(asked.rename(tmp_path / "moved.txt")),)}
        assert run_clients_study(moved, None, "1,2", None, None, MadeUpMeasurements()) == 0

    @pytest.mark.parametrize(
        ("flags", "clients", "words"),
        [
            ({"methods": ("split",)}, None, "cannot be measured with many clients"),
            ({"methods": ("sdd",)}, None, "'sdd' is unknown"),
            ({}, "0", "numbers of clients must be"),
            ({"length": "online"}, None, "--length is not varied by a study"),
            ({"point": "all"}, None, "one operating point"),
            ({"resume": True}, None, "name its folder with --out"),
        ],
    )
    def test_what_does_not_go_together_ends_it_before_a_folder_is_made(self, tmp_path, flags, clients, words) -> None:
        flags = {"out": None if "resume" in flags else tmp_path / "s", **flags}
        with pytest.raises((UsageError, EvaluationError, OptionsError), match=words):
            run_clients_study(flags, None, clients, None, None, MadeUpMeasurements())
        assert not (tmp_path / "s").exists()

    def test_a_curve_that_is_none_ends_it_before_a_folder_is_made(self, tmp_path) -> None:
        with pytest.raises(EvaluationError, match="cannot read"):
            run_clients_study({"out": tmp_path / "s"}, None, None, None, tmp_path / "no.json", MadeUpMeasurements())
        assert not (tmp_path / "s").exists()


class TestForwards:
    def test_are_measured_for_every_number_of_sessions_and_rows(self, model_root: Path) -> None:
        model = load_model(str(model_root / "text-target"))
        points = measure_curve(model, (1, 3), (1, 5), 0.0)
        assert {(one.sessions, one.rows) for one in points} == {(1, 1), (1, 5), (3, 1), (3, 5)}
        assert all(one.together_ms > 0 and one.apart_ms > 0 for one in points)

    def test_a_flag_of_another_study_is_one_line(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="leave --rtt out"):
            run_batch_study({"out": tmp_path / "s", "rtt_ms": 3.0, "device": "auto", "resume": False}, None, None)
        assert not (tmp_path / "s").exists()

    @pytest.mark.slow
    def test_a_whole_study_leaves_a_curve_to_plan_with(self, tmp_path: Path, model_root: Path, capsys) -> None:
        flags = {"out": tmp_path / "s", "target_model": str(model_root / "vision-target")}
        assert run_batch_study(flags, "1,2", 1.0) == 0
        curve = load_curve(tmp_path / "s")
        assert {one.sessions for one in curve.points} == {1, 2}
        assert [one.pictures for one in curve.prompts] == [1, 1] and curve.prompts[0].verdicts > 0
        page = (tmp_path / "s" / "report.html").read_text()
        assert "One shared forward" in page and "nothing paced" in page
        assert run_batch_study({**flags, "resume": True}, "1,2", 1.0) == 0
        assert "is done already" in capsys.readouterr().err


@pytest.mark.graph
@pytest.mark.usefixtures("quickly_started")
def test_one_measurement_with_groups_and_one_without_over_real_processes(tmp_path: Path, model_root: Path) -> None:
    flags = {
        "out": tmp_path / "s", "methods": ("specedge",), "rtt_ms": 15.0, "max_new_tokens": 16, "limit": 2,
        "target_model": str(model_root / "text-target"), "draft_model": str(model_root / "text-draft"),
    }  # fmt: skip
    assert run_clients_study(flags, 0.1, "2", 1.0, None) == 0
    results = StudyResults.load(tmp_path / "s" / "clients")
    assert [one.groups for one in results.cells] == [1, 2]
    for one in results.cells:
        assert one.row.rate > 0 and one.row.wrong == 0 and not one.row.errors
        assert one.row.server["forwards"] > 0 and 0 < one.row.cores_busy <= 1
    assert "--groups" not in (tmp_path / "s" / "report.html").read_text()
