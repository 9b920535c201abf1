"""Who is served next: classes, shares, credit, and how much goes into one forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from cloud_verifier.engine.scheduler import AGING_S, CREDIT_S, Policy, Scheduler, WaitingSession
from tests.cloud_verifier.engine_cloud import key_of
from tests.helpers.servers import Pair


class Work:
    """Stands in for a SessionWork: what the scheduler looks at."""

    def __init__(self, number: int, rank: int) -> None:
        self.key, self.number, self.rank = key_of(number), number, rank
        self.owner = self.key[0]


def waiting(pair: Pair, number: int, rank: int = 1, rows: int = 5, since: float = 0.0) -> WaitingSession:
    extension = pair.target.new_session().extension(range(rows))
    return WaitingSession(Work(number, rank), extension, since)  # type: ignore[arg-type]


def numbers(picked: Sequence[WaitingSession]) -> list[int]:
    return [one.work.number for one in picked]


def test_a_higher_class_comes_first_and_nobody_waits_for_ever(text_pair: Pair) -> None:
    scheduler = Scheduler(Policy(rows=5))
    robot, batch = waiting(text_pair, 1, rank=0), waiting(text_pair, 2, rank=2)
    assert numbers(scheduler.pick([batch, robot], 0.1, 2)) == [1]
    now = 3.5 * AGING_S
    fresh = waiting(text_pair, 1, rank=0, since=now)
    assert numbers(scheduler.pick([fresh, batch], now, 2)) == [2]


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_prompt_does_not_wait_for_ever_behind_drafts_that_fill_every_forward(text_pair: Pair, rank: int) -> None:
    scheduler = Scheduler(Policy(rows=10, chunk=4))
    prompt = waiting(text_pair, 1, rank, rows=20)
    prompt.need = replace(prompt.need, last_only=True)
    got = 0
    for tenth in range(50):
        now = tenth / 10
        drafts = [waiting(text_pair, number, since=now) for number in (2, 3)]
        picked = scheduler.pick([*drafts, prompt], now, 3)
        assert 0 < sum(one.part.rows for one in picked) <= 10
        if 1 in numbers(picked):
            got += 1
            prompt = prompt.after(torch.empty(1, 1), now) or prompt
    assert got >= 3


def test_clients_of_one_class_get_equal_shares(text_pair: Pair) -> None:
    """One has ten sessions that always want something, the other has one."""
    scheduler = Scheduler(Policy(rows=5))
    got = {b"many": 0, b"one": 0}
    for turn in range(40):
        ready = [waiting(text_pair, number, since=turn * 1e-3) for number in range(11)]
        for one in ready:
            one.work.owner = b"one" if one.work.number == 10 else b"many"
        picked = scheduler.pick(ready, turn * 1e-3, 11)
        scheduler.ran(picked, 0.04)
        got[picked[0].work.owner] += 1
    assert got == {b"many": 20, b"one": 20}


def test_who_comes_under_a_new_name_each_time_is_not_first_each_time(text_pair: Pair) -> None:
    scheduler = Scheduler(Policy(rows=5))
    old, got = waiting(text_pair, 0), 0
    for _ in range(40):
        scheduler.ran([old], 0.04)
    for name in range(1, 41):
        picked = scheduler.pick([waiting(text_pair, name), old], 0.0, 2)
        scheduler.ran(picked, 0.04)
        got += numbers(picked) == [0]
    assert got >= 19


def test_nobody_is_behind_for_long_because_others_had_little_for_long(text_pair: Pair) -> None:
    scheduler = Scheduler(Policy(rows=5))
    hungry, modest = waiting(text_pair, 1), waiting(text_pair, 2)
    scheduler.ran([modest], 0.04)
    for _ in range(1000):
        scheduler.ran([hungry], 0.04)
    turns = 0
    while numbers(scheduler.pick([hungry, modest], 0.0, 2)) == [2]:
        scheduler.ran([modest], 0.04)
        turns += 1
    assert turns == pytest.approx(CREDIT_S / 0.04, abs=2)


def test_a_latency_bounds_the_rows_of_a_forward(text_pair: Pair) -> None:
    scheduler = Scheduler(Policy(rows=100, latency_ms=30))
    ready = [waiting(text_pair, number) for number in range(10)]
    assert len(scheduler.pick(ready, 0.0, 10)) == 10, "nothing is known yet"
    for rows in (5, 20, 50):
        scheduler.ran([waiting(text_pair, 1, rows=rows)], 0.010 + 0.001 * rows)
    assert len(scheduler.pick(ready, 0.0, 10)) == 4
    assert len(Scheduler(Policy(rows=100)).pick(ready, 0.0, 10)) == 10


def test_groups_take_turns(text_pair: Pair) -> None:
    scheduler = Scheduler(Policy(groups=2))
    ready = [waiting(text_pair, number) for number in range(6)]
    assert [numbers(scheduler.pick(ready, 0.0, 6)) for _ in range(3)] == [[0, 2, 4], [1, 3, 5], [0, 2, 4]]
    assert numbers(scheduler.pick(ready[::2], 0.0, 6)) == [0, 2, 4]  # no thread waits for an empty group


def test_no_forward_is_larger_than_its_budget(text_pair: Pair) -> None:
    scheduler = Scheduler(Policy(rows=12))
    ready = [waiting(text_pair, number, rows=5) for number in range(4)]
    assert numbers(scheduler.pick(ready, 0.0, 4)) == [0, 1]
    assert numbers(scheduler.pick([waiting(text_pair, 7, rows=50)], 0.0, 1)) == [7]


def test_one_very_long_draft_is_done_before_another_begins(text_pair: Pair) -> None:
    """The logits of all their rows are held until then."""
    scheduler = Scheduler(Policy(chunk=64))
    one, other = (waiting(text_pair, number, rows=150) for number in (1, 2))
    assert numbers(scheduler.pick([one, other], 0.0, 2)) == [1]
    left = one.after(torch.zeros(64, 5), 9.0)
    assert left is not None and numbers(scheduler.pick([other, left], 9.0, 2)) == [1]
    prompt = WaitingSession(Work(3, 0), replace(other.need, last_only=True), 9.0)  # type: ignore[arg-type]
    assert numbers(scheduler.pick([other, left, prompt], 9.0, 3)) == [3], "of a higher class, so it comes first"
