"""Draft lengths: what each policy makes of what was measured."""

from __future__ import annotations

import pytest

from specdec.drafting.length import LENGTHS, LengthPolicy, best_length, pipeline_depth
from specdec.edge.controller import Controller
from specdec.edge.rounds import Rounds
from specdec.estimates.measured import Measured
from specdec.methods import get_method


def measured(
    draft_s: float, verify_s: float, rtt_s: float, accepted: int = 3, depth: int = 8, rounds: int = 40
) -> Measured:
    figures = Measured()
    for _ in range(rounds):
        figures.drafted(draft_s)
        figures.exchanged(depth + 1, verify_s, rtt_s)
        figures.chain.add(min(depth, accepted + 1), accepted)
    return figures


@pytest.mark.parametrize("name", LENGTHS)
def test_every_policy_keeps_what_was_asked_for_until_something_is_measured(name: str) -> None:
    policy = LengthPolicy(name, 5)  # type: ignore[arg-type]
    assert policy.size(Measured()) == 5
    assert policy.cut_s(Measured()) == float("inf")


@pytest.mark.parametrize(("rtt_ms", "depth"), [(15, 7), (40, 5), (50, 4)])
def test_pipeline_solves_the_depths_that_specedge_prints(rtt_ms: float, depth: int) -> None:
    figures = measured(0.011, 0.0942, rtt_ms / 1e3)
    assert LengthPolicy("pipeline", 6).size(figures) == depth


def test_pipeline_stays_in_its_range() -> None:
    assert pipeline_depth(0.01, 0.02, 5.0, 16) == 1
    assert pipeline_depth(0.001, 5.0, 0.0, 16) == 16
    assert pipeline_depth(0.0, 1.0, 0.0, 16) == 16


def test_latency_cuts_a_draft_that_takes_longer_than_the_exchange() -> None:
    policy = LengthPolicy("latency", 4)
    figures = measured(0.02, 0.1, 0.05)
    assert policy.size(figures) == 4 and policy.cut_s(figures) == pytest.approx(0.15)
    assert LengthPolicy("fixed", 4).cut_s(figures) == float("inf")


def test_online_drafts_longer_where_rounds_are_dear_and_much_is_accepted() -> None:
    policy = LengthPolicy("online", 4)
    near = policy.size(measured(0.01, 0.02, 0.0, accepted=2))
    far = policy.size(measured(0.01, 0.02, 0.3, accepted=2))
    sure = policy.size(measured(0.01, 0.02, 0.3, accepted=8))
    assert near <= far < sure
    assert policy.size(measured(0.01, 0.02, 0.0, accepted=0)) == 1


def test_with_a_cliff_at_four_rows_nobody_drafts_six() -> None:
    """Three draft tokens and the row before them go through the target for the price of one."""
    chances = [0.9] * 10
    assert best_length(chances, 0.002, lambda rows: 0.08, 0.01) > 6
    assert best_length(chances, 0.002, lambda rows: 0.08 if rows <= 4 else 0.3, 0.01) == 3
    measured = Measured()
    measured.told([(1, 72_000), (4, 90_000), (5, 300_000), (32, 400_000)])
    for _ in range(30):
        measured.drafted(0.002)
        measured.exchanged(4, 0.09, 0.01)
        measured.chain.add(10, 9)
    assert LengthPolicy("online", 6).size(measured) == 3
    assert Controller(measured, 6).choose(None, 64).plan.label in ("chain 3", "stream 3")


def test_best_length_is_the_best_of_all_by_the_formula() -> None:
    chances = [0.8, 0.7, 0.65, 0.9, 0.3, 0.5]

    def rate(length: int) -> float:
        expected, alive = 1.0, 1.0
        for chance in chances[:length]:
            alive *= chance
            expected += alive
        return expected / (length * 0.03 + 0.2 + 0.1)

    assert best_length(chances, 0.03, lambda rows: 0.2, 0.1) == max(range(1, 7), key=rate)


def test_acceptance_is_counted_by_depth_and_only_where_it_was_tried() -> None:
    figures = measured(1, 1, 1, accepted=2, depth=4, rounds=400)
    assert figures.chain.chance(0) > 0.95 and figures.chain.chance(1) > 0.95
    assert figures.chain.chance(2) < 0.05
    assert figures.chain.chance(3) == figures.chain.chance(60) == figures.chain.chance(2)
    assert Measured().chain.chance(0) == pytest.approx(0.7)


def test_one_hiccup_changes_no_median() -> None:
    figures = measured(0.01, 0.1, 0.05)
    figures.exchanged(5, 9.0, 9.0)
    figures.drafted(9.0)
    assert (figures.draft_s, figures.verify_s, figures.rtt_s) == (0.01, 0.1, 0.05)


@pytest.mark.parametrize(("verify_s", "alone"), [(0.02, True), (0.03, True), (0.04, False)])
def test_a_first_token_leaves_alone_only_where_the_cloud_is_done_before_the_rest_is_drafted(
    verify_s: float, alone: bool
) -> None:
    figures = measured(0.01, verify_s, 0.05)
    policy = LengthPolicy("fixed", 4)

    def size(name: str, in_flight: int) -> int:
        rounds = Rounds(None, None, get_method(name), policy, figures, float)  # type: ignore[arg-type]
        return rounds._size(in_flight)

    assert size("picospec", 0) == (1 if alone else 4)
    assert size("picospec", 1) == size("picospec+leave:whole", 0) == 4


def test_hints_pay_where_a_draft_forward_fits_behind_one() -> None:
    assert Measured().hints_pay
    assert measured(0.07, 0.6, 0.2).hints_pay
    assert not measured(0.002, 0.003, 0.2).hints_pay


def test_waiting_in_a_busy_cloud_counts_like_a_longer_way() -> None:
    """Else an edge would plan as if it were alone with the verifier."""
    near, far = measured(0.011, 0.0942, 0.015), measured(0.011, 0.0942, 0.055)
    busy = Measured()
    busy.drafted(0.011)
    for _ in range(8):
        busy.exchanged(9, 0.0942, 0.015, 0.040)
    assert busy.rtt_s == near.rtt_s and busy.away_s == pytest.approx(far.away_s)
    policy = LengthPolicy("latency", 4)
    assert policy.cut_s(busy) == pytest.approx(policy.cut_s(far))


def test_pipeline_does_not_shorten_a_draft_that_comes_too_early_anyway() -> None:
    """It would come earlier still, and wait longer: the depth would fall to 1 as soon as others are there."""
    busy = Measured()
    busy.drafted(0.011)
    for _ in range(8):
        busy.exchanged(9, 0.0942, 0.015, 0.040)
    assert LengthPolicy("pipeline", 4).size(busy) == 7
