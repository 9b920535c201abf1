"""The simulator against what queueing theory knows, and against figures that were measured on real processes."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

from specdec.link.shaping import LinkProfile
from specnav.bench.data.latency import acceptance_for, cloud_ar, edge_sd, expected_tokens
from specnav.plan.simulated.pair import RowTimes
from specnav.plan.simulated.simulation import FleetRun, Window, simulate
from tests.plan.fleets import FLAT, ExponentialTimes, fleet, pair, single_server

pytestmark = pytest.mark.slow

pytest.importorskip("simpy")

LONG = Window(20_000.0, 2_000_000.0, 100_000.0)


def busy(played: FleetRun) -> float:
    """Share of the time in which the only server worked."""
    return played.counted.busy_ms / played.lasted_ms


def mean_ms(played: FleetRun) -> float:
    return statistics.fmean(one.ended_ms - one.due_ms for one in played.decisions if one.ended_ms >= 0)


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_one_server_with_exponential_forwards_is_the_queue_of_the_textbooks(load: float) -> None:
    """M/M/1: a decision is there for 1 / (μ - λ), and the server idles for 1 - λ/μ."""
    service_ms, robots = 50.0, 2_000
    rate = load * 1e3 / service_ms / robots
    played = simulate(single_server(robots, rate, "poisson", service_ms), "ar", 3, LONG)
    assert mean_ms(played) == pytest.approx(service_ms / (1 - load), rel=0.08)
    assert busy(played) == pytest.approx(load, abs=0.02)


def test_forwards_twice_as_long_are_noticed() -> None:
    """The planted fault of the test above."""
    played = simulate(single_server(2_000, 0.003, "poisson", 100.0), "ar", 3, LONG)
    assert abs(mean_ms(played) / (50.0 / 0.7) - 1) > 0.08


@pytest.mark.parametrize("robots", [1, 4, 12])
def test_robots_that_pause_are_the_machines_of_a_repair_shop(robots: int) -> None:
    """Machine repair: n machines run for 1/λ on average, one repairer takes 1/μ; how busy is he?"""
    pause_ms, repair_ms = 400.0, 50.0
    played = simulate(single_server(robots, 1e3 / pause_ms, "after", repair_ms), "ar", 5, Window(20_000.0, 1e6, 0.0))
    ratio, weights = repair_ms / pause_ms, [1.0]
    for waiting in range(robots):
        weights.append(weights[-1] * (robots - waiting) * ratio)
    assert busy(played) == pytest.approx(1 - 1 / sum(weights), rel=0.03)


def test_decisions_in_progress_are_their_rate_times_their_duration() -> None:
    """Little's law, with batches, links and rounds: sessions open at a time = arrivals a second · time of one."""
    asked = fleet(40, 0.2, 2, links=((LinkProfile(rtt_ms=30.0, jitter_ms=10.0), 1.0),), work={"arrivals": "poisson"})
    window = Window(10_000.0, 200_000.0, 20_000.0)
    played = simulate(asked, "sd", 1, window)
    ended = [one for one in played.decisions if one.ended_ms >= 0]
    open_ms = sum(min(one.ended_ms, window.end_ms) - one.due_ms for one in ended)
    assert open_ms / window.measure_ms == pytest.approx(40 * 0.2 * mean_ms(played) / 1e3, rel=0.05)


def test_alone_ar_and_sd_take_what_the_papers_formulas_say() -> None:
    link = LinkProfile(rtt_ms=60.0)
    asked = fleet(1, 0.02, links=((link, 1.0),), pair=pair(alpha=acceptance_for(2.5, 4), draft_ms=8.0))
    asked = replace(asked, work=replace(asked.work, answers=(400,), arrivals="periodic"))
    window = Window(1_000.0, 800_000.0, 60_000.0)
    # The prompt's forward brings the first token.
    assert mean_ms(simulate(asked, "ar", 1, window)) == pytest.approx(cloud_ar(400, 40.0, 30.0), rel=0.01)
    formula = edge_sd(399, 2.5, 4, 8.0, 40.0, 30.0) + 100
    assert mean_ms(simulate(asked, "sd", 1, window)) == pytest.approx(formula, rel=0.03)


@pytest.mark.parametrize("alpha", [0.0, 0.4, 0.9, 1.0])
def test_a_round_gains_as_many_tokens_as_the_acceptance_says(alpha: float) -> None:
    asked = fleet(4, 0.5, pair=pair(alpha=alpha), work={"answers": (4000,)})
    played = simulate(asked, "sd", 2, Window(0.0, 400_000.0, 0.0), keep=True)
    assert played.counted.gained / played.counted.rounds == pytest.approx(expected_tokens(alpha, 4), rel=0.03)


# docs/notebook/measurements.md, "How many one verifier serves": tokens/s of 8 and 16 clients, cores not busy
MEASURED = {
    ("ar", 0): (82, 155), ("ar", 40): (82, 159), ("ar", 80): (82, 155),
    ("cloud-sd", 0): (95, 171), ("cloud-sd", 40): (96, 168), ("cloud-sd", 80): (94, 169),
    ("sd", 0): (74, 148), ("sd", 40): (75, 149), ("sd", 80): (54, 98),
}  # fmt: skip


@pytest.mark.parametrize(("method", "rtt"), MEASURED)
def test_figures_that_real_clients_had_come_out(method: str, rtt: int) -> None:
    """`--study clients` at specedge-32b with the shipped text pair (τ 1.94 at γ 4), 64 tokens an answer."""
    for clients, tokens_a_s in zip((8, 16), MEASURED[method, rtt], strict=True):
        asked = fleet(
            clients, float("inf"), target=RowTimes(94.2, FLAT), links=((LinkProfile(rtt_ms=float(rtt)), 1.0),),
            pair=pair(draft_ms=11.0, cloud_draft_ms=11.0, alpha=acceptance_for(1.94, 4)),
            work={"arrivals": "after", "prompts": (100, 150), "answers": (64,)},
        )  # fmt: skip
        played = simulate(asked, method, 0, Window(5_000.0, 40_000.0, 0.0), keep=True)
        came = sum(n for one in played.decisions for at, n in one.chunks if 5_000 <= at <= 45_000) / 40
        assert came == pytest.approx(tokens_a_s, rel=0.15)


def test_exponential_times_are_what_the_oracles_take_them_for() -> None:
    times = ExponentialTimes(50.0)
    assert statistics.fmean(times.forward_ms(1, 1, 0) for _ in range(20_000)) == pytest.approx(50.0, rel=0.03)
