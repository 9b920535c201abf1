"""`specnav plan fleet`: what it prints and leaves, what it is calibrated from, and mistakes in one line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import specnav.plan.fleet as command
from specnav.bench.data.latency import expected_tokens
from specnav.bench.records.capacity import (
    BATCH_FILE,
    CLIENTS_FILE,
    BatchCurve,
    ClientsRow,
    ClientsRun,
    CurvePoint,
)
from specnav.cli.app import app
from specnav.errors import UsageError
from specnav.plan.calibration import calibrated, gpu_names
from specnav.plan.simulated.comparison import load_clients, played_beside
from specnav.results.errors import EvaluationError
from specnav.results.files import write_json
from tests.plan.fleets import few_decisions  # noqa: F401

pytest.importorskip("simpy")
pytestmark = pytest.mark.usefixtures("few_decisions")

SMALL = (
    "plan", "fleet", "--robots", "12", "--methods", "ar,auto", "--rtts", "none", "--p95-ms", "800",
    "--answer-tokens", "8",
)  # fmt: skip


def call(*words: str) -> Any:
    return CliRunner().invoke(app, [*words])


@pytest.mark.slow
def test_a_plan_is_a_table_a_file_and_a_page(tmp_path: Path) -> None:
    done = call(*SMALL, "--gpu", "a100", "--out", str(tmp_path / "plan"))
    assert done.exit_code == 0, done.output
    said = " ".join(done.stdout.split())
    assert "simulated: 12 robots" in said and "Calibrated from forwards: Vicuna-7B on an A100" in said
    assert {one.name for one in (tmp_path / "plan").iterdir()} == {"fleet.json", "report.html"}


@pytest.mark.slow
def test_json_is_only_json(tmp_path: Path) -> None:
    done = call(*SMALL, "--gpu", "a100", "--json", "--out", str(tmp_path / "plan"))
    written = json.loads(done.stdout)
    assert written["simulated"] is True and {one["method"] for one in written["methods"]} == {"ar", "auto"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "forward times are needed"),
        (("--gpu", "h900"), "GPU 'h900' is unknown: choose a100,"),
        (("--gpu", "a100", "--rate", "0"), "rate must be a number from 1e-06 to 100, got 0"),
        (("--gpu", "a100", "--link", "wifi7"), "link 'wifi7' is unknown: choose wifi6, 5g, lte"),
        (("--gpu", "a100", "--link", "lte=much"), "the share must be a number"),
        (("--gpu", "a100", "--methods", "ar,best"), "must be one of ar, cloud-sd, sd, fsd, specedge, auto, got 'best'"),
        (("--gpu", "a100", "--methods", "dssd"), "specedge, auto, got 'dssd'"),
        (("--gpu", "a100", "--methods", ","), "names nothing"),
        (("--gpu", "a100", "--p95-ms", "50", "--robots", "3"), "out of reach"),
        (("--gpu", "a100", "--p95-ms", "50", "--p95-token-ms", "5"), "give one of them"),
        (("--gpu", "a100", "--rtts", "near"), "like 0,40,80, or none, got 'near'"),
        (("--gpu", "a100", "--measured", "x"), "give one of"),
        (("--measured", "nowhere"), "cannot read nowhere"),
        (("--gpu", "a100", "--alpha", "2"), "alpha must be a number from 0 to 1, got 2.0"),
        (("--against", "nowhere.json"), "cannot read nowhere.json"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = call("plan", "fleet", *words, "--out", str(tmp_path / "plan"))
    if done.exit_code == 2:  # typer's own words about a flag, in a box here; specnav prints them as one line
        assert all(word in done.output for word in said.split()), done.output
    else:
        assert isinstance(done.exception, UsageError | EvaluationError), done.output
        assert said in str(done.exception) and "\n" not in str(done.exception)
    assert not (tmp_path / "plan").exists()


def test_without_simpy_one_line_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "simpy", None)
    done = call(*SMALL, "--gpu", "a100", "--out", str(tmp_path / "plan"))
    assert "pip install 'specnav[plan]'" in str(done.exception) and not (tmp_path / "plan").exists()


@pytest.mark.slow
def test_interrupted_it_keeps_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = command.answer_methods

    def cut_short(*args: Any) -> Any:
        yield next(whole(*args))
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "answer_methods", cut_short)
    done = call(*SMALL, "--gpu", "a100", "--out", str(tmp_path / "plan"))
    assert done.exit_code == 130
    assert json.loads((tmp_path / "plan" / "fleet.json").read_text())["interrupted"] is True
    assert "Interrupted" in (tmp_path / "plan" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", gpu_names())
def test_every_gpu_that_is_named_can_be_planned_with(name: str) -> None:
    found = calibrated(name, None)
    pair = found.pair
    assert found.target.forward_ms(4, 20, 0) > 0 and pair.draft_ms > 0 and 0 < pair.alpha < pair.tree_alpha < 1
    assert all(found.words)


def test_the_robots_point_has_the_acceptance_that_its_paper_prints() -> None:
    pair = calibrated("go2-wifi6", None).pair
    assert expected_tokens(pair.alpha, 4) == pytest.approx(2.92, abs=0.01) and pair.miss == pytest.approx(0.5563)


def test_a_measured_curve_is_what_forwards_take(tmp_path: Path) -> None:
    points = [CurvePoint(sessions=n, rows=5, together_ms=7.0 + n, apart_ms=9.0 * n) for n in (1, 8)]
    write_json(
        tmp_path / BATCH_FILE,
        BatchCurve(schema=1, model="mine", device="cuda", threads=1, context=256, points=points),
    )
    found = calibrated(None, tmp_path)
    assert found.target.forward_ms(8, 40, 0) == pytest.approx(15.0) and "mine on cuda" in found.words[0]


def row(clients: int, rate: float, gap_ms: float) -> ClientsRow:
    return ClientsRow(
        method="sd", clients=clients, rate=rate, median=rate / clients, slow=rate / clients, verify_ms=40.0,
        queue_ms=1.0, batch=1.0, answers=10, wrong=0, tokens_a_round=2.0, rows=5.0, gap_ms_p95=gap_ms,
        prompt_tokens=[60], answer_tokens=[32],
    )  # fmt: skip


def saved(tmp_path: Path, **changes: Any) -> Path:
    config = {"verify_ms": 40.0, "draft_ms": 5.0, "gamma": 4, "rtt_ms": 0.0, **changes}
    write_json(tmp_path / CLIENTS_FILE, ClientsRun(rows=[row(1, 33.0, 60.0)], config=config))
    return tmp_path


@pytest.mark.slow
def test_a_saved_run_is_played_with_its_own_settings(tmp_path: Path) -> None:
    """A round of one client: 4 draft forwards of 5 ms and one of 40; two tokens each."""
    done = call("plan", "fleet", "--against", str(saved(tmp_path)))
    assert done.exit_code == 0 and "ok" in done.stdout
    found = load_clients(tmp_path)
    assert abs(played_beside(found, found.rows[0]).rate_off) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--robots", "3"), ("--link", "lte"), ("--methods", "sd"), ("--out", "plan")])
def test_what_a_saved_run_does_not_take_is_refused(words: tuple[str, str], tmp_path: Path) -> None:
    done = call("plan", "fleet", "--against", str(saved(tmp_path)), *words)
    assert f"leave {words[0]} out" in str(done.exception)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [{"verify_ms": 60.0}, {"draft_ms": 12.0}, {"rtt_ms": 30.0}])
def test_a_run_with_other_times_than_it_says_is_off(wrong: dict[str, float], tmp_path: Path) -> None:
    """Planted faults: what the real run was not paced to."""
    done = call("plan", "fleet", "--against", str(saved(tmp_path, **wrong)))
    assert done.exit_code == 1 and "OFF" in done.stdout


@pytest.mark.slow
def test_a_run_that_was_not_paced_cannot_be_played(tmp_path: Path) -> None:
    done = call("plan", "fleet", "--against", str(saved(tmp_path, verify_ms=0.0)))
    assert "was not paced" in str(done.exception)


def test_a_saved_run_with_scaled_times_calibrates_a_plan_with_the_points_own(tmp_path: Path) -> None:
    found = calibrated(None, saved(tmp_path, time_scale=0.5))
    assert (found.target.forward_ms(1, 5, 0), found.pair.draft_ms) == (80.0, 10.0)


def test_a_saved_run_calibrates_a_plan(tmp_path: Path) -> None:
    found = calibrated(None, saved(tmp_path))
    assert found.target.forward_ms(1, 5, 0) == 40.0 and found.pair.draft_ms == 5.0
    assert expected_tokens(found.pair.alpha, 4) == pytest.approx(2.0) and "measured there" in " ".join(found.words)
