"""The batch plan against all batchings there are, and what an upload costs against links whose cost is known."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from specdec.drafting.uploads import UploadCosts, UploadPlan, passed_s, plan_batches
from specdec.estimates.uplink import Uplink
from specdec.link.shaping import Direction, LinkProfile

ROW = 200_000
DRAFT_S = 0.036


def batchings(tokens: int) -> Iterator[tuple[int, ...]]:
    """Every way to divide this many tokens, in order."""
    if not tokens:
        yield ()
    for first in range(1, tokens + 1):
        for rest in batchings(tokens - first):
            yield (first, *rest)


@pytest.mark.parametrize("tokens", range(1, 9))
@pytest.mark.parametrize("most", [None, 1, 2, 3])
def test_no_batching_passes_earlier_than_the_plan(tokens: int, most: int | None) -> None:
    generator = random.Random(tokens)
    for _ in range(60):
        costs = [generator.choice((0.0, 0.001, 0.01, 0.05, generator.random())) for _ in range(3)]
        plan = plan_batches(tokens, *costs, most)
        assert sum(plan) == tokens and len(plan) <= (most or tokens)
        allowed = [one for one in batchings(tokens) if most is None or len(one) <= most]
        best_s = min(passed_s(one, *costs) for one in allowed)
        took_s = passed_s(plan, *costs)
        if len(plan) > 1:
            assert took_s == pytest.approx(best_s)
            fewer = [passed_s(one, *costs) for one in allowed if len(one) < len(plan)]
            assert took_s < min(fewer), "a message more than is needed"
        else:
            assert 0.99 * took_s <= best_s, "what was passed up would save more than one percent"


def test_the_papers_costs_bring_what_the_paper_says() -> None:
    for tokens, gain in ((6, 1.16), (20, 1.25)):
        plan = plan_batches(tokens, 0.025, 0.116, DRAFT_S)
        whole_s = passed_s((tokens,), 0.025, 0.116, DRAFT_S)
        assert whole_s / passed_s(plan, 0.025, 0.116, DRAFT_S) == pytest.approx(gain, abs=0.01)


def test_ids_alone_leave_whole() -> None:
    assert plan_batches(20, 0.0001, 2e-6, DRAFT_S) == (20,)
    assert UploadPlan().due(19, 20, 16, UploadCosts(0.0001, 2e-6, DRAFT_S)) == 0


def test_a_draft_follows_the_plan_and_goes_on_in_its_last_batch_where_it_becomes_longer() -> None:
    plan, costs = UploadPlan(), UploadCosts(0.025, 0.116, DRAFT_S)
    assert plan_batches(6, 0.025, 0.116, DRAFT_S) == (1, 1, 4)
    assert [plan.due(count, 6, 16, costs) for count in range(12)] == [0, 1, 2, 2, 2, 2, 6, 6, 6, 6, 10, 10]


def test_it_plans_anew_where_a_cost_moves_by_more_than_a_fifth() -> None:
    plan = UploadPlan()
    assert plan.due(1, 6, 16, UploadCosts(0.025, 0.116, DRAFT_S)) == 1
    assert plan.due(1, 6, 16, UploadCosts(0.025, 0.1, DRAFT_S)) == 1, "not worth planning anew"
    assert plan.due(5, 6, 16, UploadCosts(0.025, 1e-6, DRAFT_S)) == 0


def upload(
    up: Direction, uplink: Uplink, began_s: float, tokens: int, plan: UploadPlan, rtt_s: float
) -> float:
    """One draft by the plan of what is known so far; returns when its verdict comes."""
    now_s, sent, messages, arrived_s = began_s, 0, [], 0.0
    for drafted in range(1, tokens + 1):
        now_s += DRAFT_S
        token_s = uplink.token_s
        due = 0 if token_s is None else plan.due(drafted, tokens, 16, UploadCosts(0.0, token_s, DRAFT_S))
        due = tokens if drafted == tokens else due
        if due > sent:
            messages.append((now_s, (due - sent) * ROW))
            arrived_s, sent = up.arrival(now_s, messages[-1][1]), due
    uplink.exchanged(messages, ROW, arrived_s + rtt_s / 2)
    return arrived_s + rtt_s / 2


@pytest.mark.parametrize("mbps", [5, 20, 80])
@pytest.mark.parametrize("lengths", [(4, 4), (2, 12)], ids=["fixed", "varied"])
def test_the_cost_of_a_byte_is_found_from_the_traffic_and_stays_known(
    mbps: int, lengths: tuple[int, int]
) -> None:
    generator, rtt_s = random.Random(mbps), 0.05
    up = Direction(LinkProfile(rtt_ms=50, bandwidth_mbps=mbps, jitter_ms=5), seed=1)
    uplink, plan = Uplink(), UploadPlan()
    now_s = up.arrival(0.0, 500) + rtt_s / 2
    uplink.opened(500, now_s)
    for round_ in range(40):
        now_s = upload(up, uplink, now_s, generator.randint(*lengths), plan, rtt_s)
        if round_ >= 4:
            assert uplink.byte_s == pytest.approx(8 / (mbps * 1e6), rel=0.2), round_
            assert uplink.token_s == pytest.approx(ROW * 8 / (mbps * 1e6), rel=0.2)


def test_a_link_that_becomes_slower_is_known_anew() -> None:
    generator, uplink, plan, now_s = random.Random(0), Uplink(), UploadPlan(), 0.0
    for mbps in (40, 10):
        up = Direction(LinkProfile(rtt_ms=20, bandwidth_mbps=mbps), seed=0)
        for _ in range(15):
            now_s = upload(up, uplink, now_s, generator.randint(2, 8), plan, 0.02)
    assert uplink.byte_s == pytest.approx(8 / 10e6, rel=0.2)


def test_messages_of_one_size_or_smaller_than_a_packet_tell_nothing() -> None:
    uplink = Uplink()
    for size in (40, 45, 50, 60):
        uplink.exchanged([(0.0, size)], size / 4, 0.1)
    assert uplink.byte_s is None and uplink.token_s is None
    assert uplink.message_s == 0.0
