"""The parts of a simulated fleet: what shares a forward, who waits for room, who goes where, what times say."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from random import Random

import pytest

from specdec.row_ms import RowMs
from specnav.bench.data.latency import acceptance_for
from specnav.bench.records.capacity import BatchCurve, CurvePoint
from specnav.plan.calibration import calibrated
from specnav.plan.fleet import PRESETS, in_words, profile_of
from specnav.plan.simulated.pair import METHODS, CurveTimes, RowTimes, accepted, way_of
from specnav.plan.simulated.records import batch_ci, figures_of
from specnav.plan.simulated.replica import (
    Counted,
    ReplicaPolicy,
    SimulatedDirectory,
    SimulatedReplica,
    SimulatedRows,
)
from specnav.plan.simulated.simulation import Window, Workload, arrivals_named, arrivals_of, simulate
from specnav.results.errors import EvaluationError
from tests.plan.fleets import FLAT, LINK, WINDOW, fleet, pair

simpy = pytest.importorskip("simpy")


OWNERS = itertools.count()


@dataclass
class Told:
    """A session that only remembers when its forwards ended."""

    tokens: int = 10
    rank: int = 0
    number: int = 0
    owner: bytes = field(default_factory=lambda: next(OWNERS).to_bytes(4, "big"))
    ends: list[float] = field(default_factory=list)
    env: object = None

    def ran(self, now_ms: float) -> None:
        self.ends.append(now_ms)


def replica(policy: ReplicaPolicy | None = None, draft_ms: float = 10.0) -> tuple[object, SimulatedReplica]:
    env = simpy.Environment()
    times, counted = (RowTimes(40.0, FLAT), RowTimes(draft_ms, FLAT)), Counted(0.0, 1e9)
    made = SimulatedReplica(env, *times, policy or ReplicaPolicy(), counted)
    return env, made


def test_what_waits_when_a_forward_begins_shares_it_and_the_rest_takes_the_next() -> None:
    env, made = replica()
    first, second, late = Told(), Told(), Told()
    made.open = 3
    for who, at in ((first, 5.0), (second, 6.0), (late, 44.0)):
        made.comes(SimulatedRows(who, 5), at)
    env.run(until=200.0)
    assert (first.ends, second.ends, late.ends) == ([45.0], [85.0], [85.0])
    assert (made.counted.forwards, made.counted.sessions) == (2, 3)


def test_a_forward_takes_no_more_rows_than_its_budget() -> None:
    env, made = replica(ReplicaPolicy(rows=10))
    asking = [Told() for _ in range(5)]
    made.open = 5
    for who in asking:
        made.comes(SimulatedRows(who, 5), 0.0)
    env.run(until=500.0)
    assert [who.ends for who in asking] == [[40.0], [40.0], [80.0], [80.0], [120.0]]


def test_a_prompt_comes_in_chunks_beside_others_and_at_once_alone() -> None:
    env, made = replica()
    long, other = Told(), Told()
    made.admit(SimulatedRows(long, 200, prompt=True), 0.0)
    made.admit(SimulatedRows(other, 64, prompt=True), 0.0)
    env.run(until=400.0)
    # 64 rows of the long one, then it is the other's turn, which has had nothing; then 64 + 64 + 8.
    assert (long.ends, other.ends) == ([200.0], [80.0])
    env, made = replica()
    made.admit(SimulatedRows(long := Told(), 2000, prompt=True), 0.0)
    env.run(until=400.0)
    assert long.ends == [40.0]


def test_who_finds_no_room_in_the_cache_waits_outside() -> None:
    env, made = replica(ReplicaPolicy(kv_tokens=25))
    inside, outside = [Told(), Told()], Told()
    for who in (*inside, outside):
        made.admit(SimulatedRows(who, 5, prompt=True), 0.0)
    env.run(until=100.0)
    assert all(len(who.ends) == 1 for who in inside) and not outside.ends
    made.leave(inside[0])
    env.run(until=200.0)
    assert outside.ends == [140.0] and made.counted.outside == 1 and made.counted.outside_ms == 100.0


def test_the_one_that_has_had_least_says_which_model_runs() -> None:
    """Else two groups of sessions would drift apart for good, and cloud-sd would serve a third fewer tokens."""
    env, made = replica()
    ahead, behind = Told(), Told()
    for who in (behind, ahead):  # who is new begins with what the first one has had
        made.comes(SimulatedRows(who, 5), env.now)
        env.run(until=env.now + 50.0)
    made.comes(SimulatedRows(ahead, 5), 100.0)
    made.comes(SimulatedRows(behind, 1, drafts=True), 100.0)
    env.run(until=200.0)
    assert behind.ends[1] < ahead.ends[1]


def test_the_directory_sends_to_the_fewest_and_home_where_that_is_near_enough() -> None:
    replicas = [replica()[1] for _ in range(3)]
    for made, count in zip(replicas, (4, 1, 2), strict=True):
        made.open = count
    assert SimulatedDirectory(replicas).choose(7) == (replicas[1], False)
    local = SimulatedDirectory(replicas, local=True)
    home, _ = local.choose(7)
    home.open += 3
    assert local.choose(7) == (home, True) if home.open <= 4 else True
    home.open += 10
    assert local.choose(7)[0] is not home


def test_empty_verifiers_take_turns() -> None:
    replicas = [replica()[1] for _ in range(3)]
    directory = SimulatedDirectory(replicas)
    assert len({id(directory.choose(robot)[0]) for robot in range(3)}) == 3


def test_what_a_verifier_keeps_of_a_prompt_makes_decisions_quicker() -> None:
    asked = {"work": {"prompts": (800,)}, "links": ((LINK, 1.0),)}
    whole = simulate(fleet(20, 0.2, 2, **asked), "ar", 0, WINDOW)
    kept = simulate(fleet(20, 0.2, 2, kept=0.8, **asked), "ar", 0, WINDOW)
    assert figures_of(kept, "ar", fleet(20, 0.2).work, 2).decision_ms_p50 < 0.9 * (
        figures_of(whole, "ar", fleet(20, 0.2).work, 2).decision_ms_p50
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in METHODS if name != "auto"])
def test_the_same_seed_gives_the_same_run_and_another_one_another(method: str) -> None:
    asked = fleet(20, 0.5, 2, links=((PRESETS["lte"], 1.0),), work={"arrivals": "poisson"})
    first, again, other = (simulate(asked, method, seed, WINDOW).decisions for seed in (4, 4, 5))
    assert first == again != other


def test_auto_takes_what_it_is_told_is_best_on_each_link() -> None:
    near, far = PRESETS["wifi6"], PRESETS["lte"]
    asked = fleet(20, 0.3, 2, links=((near, 3.0), (far, 1.0)))
    ways = [one.way for one in simulate(asked, "auto", 0, WINDOW, auto={near: "sd", far: "ar"}).decisions]
    assert set(ways) == {"sd", "ar"} and ways.count("sd") == pytest.approx(3 * ways.count("ar"), rel=0.1)
    with pytest.raises(EvaluationError, match="the best method of each link"):
        simulate(asked, "auto", 0, WINDOW)


@pytest.mark.slow
def test_fsd_with_every_draft_ready_beats_sd_and_with_none_equals_it() -> None:
    def mean_ms(method: str, miss: float) -> float:
        asked = fleet(4, 0.02, links=((LINK, 1.0),), pair=pair(miss=miss, draft_ms=10.0), work={"answers": (200,)})
        ended = simulate(asked, method, 0, Window(0.0, 1e6, 5e4)).decisions
        return sum(one.ended_ms - one.due_ms for one in ended) / len(ended)

    assert mean_ms("fsd", 1.0) == pytest.approx(mean_ms("sd", 1.0), rel=0.05)
    assert mean_ms("fsd", 0.0) < 0.8 * mean_ms("sd", 0.0)


def test_a_draft_that_stands_ready_misses_the_forward_that_begins_as_its_verdict_leaves() -> None:
    """As with real edges: without a link, four clients of fsd get no more than those of sd do."""

    def batch(overhead_ms: float) -> float:
        asked = fleet(
            4, float("inf"), pair=pair(miss=0.0, overhead_ms=overhead_ms), work={"arrivals": "after"}
        )  # fmt: skip
        return simulate(asked, "fsd", 0, WINDOW).counted.batch

    assert batch(0.0) > 3.0 and batch(1.0) < 2.6


def test_a_tree_is_as_deep_as_fills_its_verification() -> None:
    """SpecEdge's rule: 94.2 ms a verification and 11 ms a draft forward give 7, 5 and 4."""
    depths = [way_of("specedge", pair(draft_ms=11.0), RowTimes(94.2), rtt).size for rtt in (15.0, 40.0, 50.0)]
    assert depths == [7, 5, 4]


@pytest.mark.slow
def test_an_overloaded_fleet_is_broken_off_and_says_so() -> None:
    asked = fleet(500, 1.0, 1)
    broken = simulate(asked, "ar", 0, Window(2_000.0, 60_000.0, 0.0), most_open=100)
    assert broken.overloaded and figures_of(broken, "ar", asked.work, 1).overloaded
    calm = fleet(5, 0.2, 1)
    assert not figures_of(simulate(calm, "ar", 0, WINDOW), "ar", calm.work, 1).overloaded


@pytest.mark.slow
def test_the_rate_of_tokens_of_a_fleet_that_was_broken_off_is_of_the_time_it_ran() -> None:
    asked, window = fleet(robots=150, rate=0.5), Window(0.0, 60_000.0, 0.0)
    broken = simulate(asked, "ar", 0, window, most_open=60)
    tokens = sum(one.answer for one in broken.decisions if one.ended_ms >= 0)
    assert tokens and broken.lasted_ms < window.measure_ms / 2
    found = figures_of(broken, "ar", asked.work, 1).tokens_per_s
    assert found == pytest.approx(1e3 * tokens / broken.lasted_ms)


def test_what_never_ended_makes_a_fleet_overloaded_and_counts_as_late() -> None:
    asked = fleet(200, 1.0, 1)
    figures = figures_of(simulate(asked, "ar", 0, WINDOW), "ar", asked.work, 1)
    assert figures.overloaded and figures.decision_ms_p95 > 5_000


def test_accepted_tokens_stop_at_the_drafts_end() -> None:
    drawn = Random(0)
    assert all(0 <= accepted(drawn, 0.9, 3) <= 3 for _ in range(1000))
    assert {accepted(drawn, 1.0, 3) for _ in range(100)} == {3}
    assert {accepted(drawn, 0.0, 3) for _ in range(100)} == {0}


def test_links_by_name_by_round_trip_and_with_parts_replaced() -> None:
    assert profile_of("lte") == PRESETS["lte"] and profile_of("40").rtt_ms == 40.0
    assert profile_of("5g", loss=0.0, rtt_ms=12.0).loss == 0.0
    assert in_words(profile_of("wifi6")) == "RTT 8 ms, jitter 4 ms, 200 Mbit/s, loss 0.1 %"
    for wrong in ("wifi7", "nan", "-1", "inf", ""):
        with pytest.raises(EvaluationError):
            profile_of(wrong)


def test_forwards_by_rows_go_on_beyond_the_last_and_prompts_have_a_price() -> None:
    by_rows = RowTimes(RowMs(((1, 20.0), (8, 34.0))), knee=100.0)
    assert by_rows.forward_ms(1, 1, 0) == 20.0 and by_rows.forward_ms(2, 16, 0) == pytest.approx(50.0)
    assert by_rows.forward_ms(0, 0, 100) == pytest.approx(40.0)
    level = RowTimes(20.0, knee=100.0)
    assert level.forward_ms(10, 100, 0) == 20.0 and level.forward_ms(10, 100, 100) == pytest.approx(40.0)
    with pytest.raises(EvaluationError, match="more than 0 ms"):
        RowTimes(0.0)


def test_a_measured_curve_is_read_by_sessions_and_rows() -> None:
    points = [
        CurvePoint(sessions=n, rows=r, together_ms=10.0 + n * r, apart_ms=20.0 * n) for n in (1, 4) for r in (1, 5)
    ]
    times = CurveTimes(BatchCurve(schema=1, model="m", device="cpu", threads=1, context=256, points=points))
    assert times.forward_ms(4, 20, 0) == pytest.approx(30.0)
    assert times.forward_ms(3, 3, 5) == pytest.approx(times.forward_ms(4, 8, 0))


def test_periodic_robots_decide_once_a_period_and_poisson_ones_as_often_on_average() -> None:
    times, robots = arrivals_of(Workload(50, 0.5, "periodic"), 20_000.0, 0)
    assert len(times) == 500 and all((robots == one).sum() == 10 for one in range(50)) and list(times) == sorted(times)
    times, _ = arrivals_of(Workload(500, 0.5, "poisson"), 100_000.0, 0)
    assert len(times) == pytest.approx(25_000, rel=0.03)


def test_batches_that_differ_give_a_wider_interval() -> None:
    same = [(float(at), 10.0) for at in range(1000)]
    drifting = [(float(at), 10.0 + at / 100) for at in range(1000)]
    assert batch_ci(same, 0.0, 1000.0) == 0.0 and (batch_ci(drifting, 0.0, 1000.0) or 0.0) > 1.0
    assert batch_ci(same[:10], 0.0, 1000.0) is None


@pytest.mark.parametrize(
    "wrong", [{"robots": 0}, {"rate": 0.0}, {"rate": -1.0}, {"work": {"prompts": ()}}, {"work": {"answers": (0,)}}]
)
def test_a_fleet_that_is_none_is_refused(wrong: dict) -> None:
    with pytest.raises(EvaluationError):
        fleet(**wrong)


def test_a_cache_that_holds_no_session_is_refused() -> None:
    with pytest.raises(EvaluationError, match="does not fit into a cache"):
        fleet(policy=ReplicaPolicy(kv_tokens=10))
    with pytest.raises(EvaluationError, match="choose poisson, periodic, after"):
        arrivals_named("sometimes")


@pytest.mark.parametrize(
    ("point", "tau", "gamma"),
    [
        pytest.param("specedge-32b", 3.1, 7, id="of a chain, where the paper prints a tree's"),
        pytest.param("pipesd-gsm8k", 3.7, None, id="without a figure to compare"),
    ],
)
def test_an_operating_point_calibrates_with_its_own_acceptance(point: str, tau: float, gamma: int | None) -> None:
    found = calibrated(point, None).pair
    assert found.alpha == pytest.approx(acceptance_for(tau, gamma or found.gamma))
