"""The questions of a plan: how many robots, how many GPUs, what one more brings, and what the page says."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from specnav.plan.simulated.page import overtakings, write_fleet
from specnav.plan.simulated.records import FleetResults, MethodPlan, SweepPoint
from specnav.plan.simulated.search import (
    Planner,
    PlanQuestion,
    Promise,
    answer_methods,
    check_possible,
    sweep_links,
)
from specnav.results.errors import EvaluationError
from tests.plan.fleets import few_decisions, fleet, single_server  # noqa: F401

pytestmark = pytest.mark.slow

pytest.importorskip("simpy")

PERIODIC = {"arrivals": "periodic"}


def planner(ms: float = 800.0, **changes: object) -> Planner:
    return Planner(fleet(work={**PERIODIC, "answers": (8,)}, **changes), Promise(ms), 0, coarse=True)


def test_a_single_server_bears_what_the_textbook_says() -> None:
    """M/M/1: 95 % of the decisions are there within -ln(0.05) / (μ - λ)."""
    asked = Planner(single_server(100, 0.01, "poisson", 50.0), Promise(300.0), 0)
    most = asked.most_robots("ar", 1)
    assert most == pytest.approx((20 - 2.996 / 0.3) / 0.01, rel=0.12)


def test_so_many_robots_as_the_gpus_bear_need_so_many_gpus() -> None:
    asked = planner()
    most = asked.most_robots("sd", 4)
    assert most > 8 and asked.held("sd", most, 4)
    needed = asked.gpus_needed("sd", most, 1)
    assert needed is not None and needed <= 4 and asked.held("sd", most, needed)
    assert not asked.held("sd", 3 * most, 4)


def test_a_guess_that_is_far_off_changes_nothing_much() -> None:
    found = [planner().most_robots("ar", 2, guess) for guess in (0, 3, 500)]
    assert max(found) - min(found) <= 0.1 * max(found)
    assert len({planner().gpus_needed("ar", 60, guess) for guess in (1, 2, 40)}) == 1


def test_a_promise_that_one_robot_alone_breaks_is_out_of_reach() -> None:
    asked = planner(200.0)
    assert asked.most_robots("ar", 4) == 0 and asked.gpus_needed("ar", 10) is None
    with pytest.raises(EvaluationError, match=r"out of reach.*one robot alone on a GPU takes \d+ ms"):
        check_possible(asked, ("ar", "sd"))


def test_a_promise_of_a_token_is_another_one() -> None:
    figures = planner().look("ar", 1, 1)
    assert Promise(figures.token_ms_p95 + 1, "token").held(figures)
    assert not Promise(figures.token_ms_p95 - 1, "token").held(figures)
    assert figures.token_ms_p95 == pytest.approx(figures.decision_ms_p95 / 8, rel=0.01)


def results(tmp_path: Path) -> FleetResults:
    asked = PlanQuestion(
        fleet(12, 0.5, work={**PERIODIC, "answers": (8,)}), Promise(600.0), ("ar", "sd", "auto"), 0, 4.05, 0.35,
        (0.0, 60.0), 7,
    )
    steps: list[str] = []
    plans = list(answer_methods(asked, steps.append))
    sweep = list(sweep_links(asked, steps.append))
    assert len(steps) <= asked.steps + 1 and "one robot alone" in steps[0]
    found = FleetResults(
        schema=1, robots=12, gpus=plans[0][0], promise=asked.promise.words, promise_ms=600.0, promise_of="decision",
        calibrated=["forwards: a test"], config={"seed": 7}, methods=[plan for _, plan in plans], sweep=sweep,
    )  # fmt: skip
    found.save(tmp_path)
    return found


@pytest.mark.usefixtures("few_decisions")
def test_a_plan_is_kept_and_drawn_says_that_it_is_simulated_and_comes_again_with_its_seed(tmp_path: Path) -> None:
    found = results(tmp_path)
    assert FleetResults.load(tmp_path) == found
    assert msgspec.json.encode(results(tmp_path)) == msgspec.json.encode(found)  # the same seed
    page = write_fleet(tmp_path).read_text(encoding="utf-8")
    assert "Simulated, not measured" in page and "forwards: a test" in page and page.count("<svg") >= 4
    ar, sd, auto = found.methods
    assert ar.needed and sd.needed and auto.needed == min(ar.needed, sd.needed)
    assert ar.dollars_robot_hour == pytest.approx(ar.needed * 4.05 / 12)
    assert sd.dollars_robot_hour == pytest.approx(sd.needed * 4.05 / 12 + 0.35)
    assert ar.here.robots == 12 and ar.alone.robots == 1 and ar.loads


def test_a_method_overtakes_another_only_where_it_bears_most() -> None:
    def point(rtt: float, **robots: int) -> SweepPoint:
        return SweepPoint(rtt_ms=rtt, robots=robots, alone_ms=dict.fromkeys(robots, 1.0))

    one = planner().look("ar", 1, 1)
    methods = [
        MethodPlan(
            method=name, needed=None, most=0, marginal=0.0, here=one, alone=one, at_needed=None, dollars_robot_hour=None
        )
        for name in ("ar", "sd", "fsd", "auto")
    ]
    found = FleetResults(
        schema=1, robots=1, gpus=1, promise="p", promise_ms=1.0, promise_of="decision", calibrated=["c"], config={},
        methods=methods, sweep=[point(0, ar=10, sd=20, fsd=4, auto=20), point(100, ar=10, sd=0, fsd=3, auto=10)],
    )  # fmt: skip
    crossed = overtakings(found)
    assert [(one.before, one.after, one.x, one.y) for one in crossed] == [("sd", "ar", 50.0, 10.0)]
