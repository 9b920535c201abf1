"""What `auto` makes of what it measures: forwards that share a core with drafting, waits, levels that stand."""

from __future__ import annotations

import random
import time

import pytest

from specdec.edge.recorder import AnswerRecorder, RoundAccounting
from specdec.estimates.measured import AcceptanceEstimate, ForwardTimes, Measured, QuietMedian, RunningMean
from specdec.estimates.reckoning import PromiseCalibration
from specdec.estimates.shadow_budget import ShadowBudget
from specdec.estimates.trial import Trial
from specdec.link.wire import Opened, Tokens


def beside(cost: float, load: float = 1.0, noise: float = 0.1, least: float = 0.0) -> ForwardTimes:
    """After 60 forwards of 0.1 s, drafted in for any share of it; load: the second half take so much longer. least: of
    the shares.
    """
    found, draw = ForwardTimes(), random.Random(3)
    for place in range(60):
        share = draw.uniform(least, 1.0)
        usual_s = 0.1 * (load if place >= 30 else 1.0)
        took_s = usual_s / (1.0 - cost * share) * draw.uniform(1.0 - noise, 1.0 + noise)
        found.add(1, took_s, share * took_s)
    return found


@pytest.mark.parametrize("cost", [0.0, 0.3, 0.5])
def test_what_drafting_costs_the_cloud_is_told_from_its_forwards(cost: float):
    assert beside(cost).beside_cost == pytest.approx(cost, abs=0.06)
    assert beside(cost).measured_s(1) == pytest.approx(0.1, rel=0.1)


def test_a_cloud_with_more_to_do_is_not_taken_for_a_shared_core():
    assert beside(0.0, load=2.5).beside_cost < 0.1
    assert beside(0.0, load=2.5).measured_s(1) == pytest.approx(0.25, rel=0.1)


@pytest.mark.parametrize("told", [True, False])
def test_a_cloud_that_is_slow_only_while_the_edge_drafts_is_not_taken_for_a_slow_one(told: bool):
    """Two tokens of the cloud alone, then verdicts that were drafted beside for all of their time."""
    times = timed((1, 0.1), (1, 0.1), told=told)
    for _ in range(8):
        times.add(1, 0.2, 0.2)
    assert times.measured_s(1) == pytest.approx(0.1, rel=0.15)
    assert times.beside_cost == pytest.approx(0.5, abs=0.1)


def test_what_is_known_of_the_cost_is_kept_when_prices_are_told():
    times = timed((1, 0.1), (1, 0.1), told=False)
    for _ in range(8):
        times.add(1, 0.2, 0.2)
    before = times.beside_cost
    times.told(TOLD)
    assert times.beside_cost == pytest.approx(before, abs=0.05)


def test_where_all_forwards_were_drafted_beside_one_without_is_due():
    found = ForwardTimes()
    for _ in range(4):
        found.add(1, 0.1, 0.1)
    assert found.quiet_is_due
    found.add(1, 0.1, 0.0)
    assert not found.quiet_is_due


def test_what_the_clouds_forwards_say_of_sharing_holds_for_drafts_that_were_all_made_beside_it():
    figures = Measured()
    for _ in range(4):
        figures.drafted_in_shadow(0.02, 1)
    for _ in range(3):
        figures.streamed(1, 0.1, 0)
    for _ in range(6):
        figures.streamed(1, 0.2, 0, beside_s=0.2)
    assert figures.draft_rows_s(1) == pytest.approx(0.01, rel=0.3)
    assert figures.draft_s == pytest.approx(0.01, rel=0.15)


def test_one_draft_that_waited_long_is_weighed_against_the_tokens_of_the_cloud_alone():
    figures = Measured()
    for _ in range(8):
        figures.streamed(1, 0.1, 0, 0.01)
    figures.exchanged(5, 0.1, 0.0, 0.41)
    assert figures.queue_s == pytest.approx(0.11)
    for _ in range(12):
        figures.exchanged(5, 0.1, 0.0, 0.41)
    assert figures.queue_s > 0.3


def test_the_more_forwards_fit_into_an_exchange_the_more_levels_stand():
    found = [Measured.levels_ready(4, level_s, 0.1) for level_s in (0.1, 0.03, 0.001)]
    assert found == sorted(found) and found[0] < 1.1 and found[-1] == pytest.approx(4.0)


def test_drafts_in_the_cloud_are_held_to_be_as_good_as_here_until_they_were_tried():
    here, there = AcceptanceEstimate(), AcceptanceEstimate()
    for _ in range(50):
        here.add(4, 4)
    assert there.chance(0, here) == here.chance(0)
    for _ in range(50):
        there.add(4, 0)
    assert there.chance(0, here) < 0.15


def test_what_a_cloud_says_of_its_drafts_tells_what_either_model_takes():
    """4 drafts of 2 ms and a forward of 20 ms, on a cloud that has become twice as slow as it was."""
    figures, record = Measured(), AnswerRecorder(lambda: 0.0)
    accounts = RoundAccounting(record, figures)
    figures.told([(1, 10_000), (8, 10_000)], 1_000)
    assert figures.cloud_draft_s == 0.001, "as reported"
    accounts.opened(Opened(1, 5, 64, 10_000, 0), 0.0, 0.01)
    for place in range(20):
        now = 0.028 * (place + 1)
        first = place == 0  # the draft model has taken in the prompt, too, and nothing is said of its drafts
        tokens = Tokens(1, 2 * place, [7, 8], 500_000 if first else 28_000, 0, 4, draft_us=0 if first else 8_000)
        accounts.streamed(tokens, 15, now - 0.028, now)
        assert not first or figures.cloud_draft_s == 0.001
    assert figures.cloud_draft_s == pytest.approx(0.002)
    assert figures.alone_s == pytest.approx(0.020, rel=0.1) and figures.tokens_alone == 0


def test_while_the_cloud_drafts_only_its_targets_forward_counts_as_drafted_beside():
    """The edge drafts for as long as the cloud's draft model does, and no longer."""
    said: list[tuple[float, float]] = []
    figures, record = Measured(), AnswerRecorder(lambda: 0.0)
    accounts = RoundAccounting(record, figures)
    figures.streamed = lambda tokens, verify_s, drafted, queue_s, beside_s, draft_s: said.append((beside_s, draft_s))  # type: ignore[method-assign]
    figures.pinged(0.0)
    record.drafted("draft in the shadow", 0.0, 0.04)
    accounts.streamed(Tokens(1, 0, [7], 100_000, 0, 4, draft_us=40_000), 15, 0.0, 0.1)
    accounts.streamed(Tokens(1, 0, [7], 100_000, 0, 4, draft_us=900_000), 15, 0.1, 0.2)
    assert [draft_s for _, draft_s in said] == [0.04, 0.1] and said[0][0] == pytest.approx(0.0)


def test_a_cloud_that_does_not_say_what_drafts_take_is_asked_of_the_difference():
    figures = Measured()
    for _ in range(12):
        figures.streamed(1, 0.010, 0)
    assert figures.cloud_draft_s is None
    figures.streamed(2, 0.018, 4)
    assert figures.cloud_draft_s == pytest.approx(0.002, rel=0.01)
    for _ in range(2):
        figures.streamed(2, 0.009, 4)
    assert figures.cloud_draft_s == 0.0, "it looks them up, which takes no time"


def test_drafts_of_the_cloud_that_came_off_badly_are_tried_again():
    """They are no worse than the edge's: those were only compared where the text was hard."""
    figures = Measured()
    for _ in range(50):
        figures.chain.add(4, 3)
    for _ in range(10):
        figures.streamed(1, 0.01, 4, draft_s=0.001)
    badly, as_here = figures.in_cloud.chance(0, figures.chain), figures.chain.chance(0)
    for _ in range(100):
        figures.streamed(1, 0.01, 0)
    assert badly < 0.4 < 0.7 * as_here < figures.in_cloud.chance(0, figures.chain) <= as_here


def test_rounds_that_a_link_brings_together_are_reckoned_together():
    """Five tokens at a time, 5 ms each, by a link whose delay varies: neither quicker than that, nor a hiccup."""
    for bursts in (40, 41):
        alone = PromiseCalibration()
        for _ in range(bursts):
            for took_s in (0.025, 0.0, 0.0, 0.0, 0.0):
                alone.came(0.005, 1.0, took_s, 1)
        assert alone.longer == pytest.approx(1.0, abs=0.05)


def test_a_hiccup_is_one_however_many_rounds_wait_behind_it():
    reckoned = PromiseCalibration()
    for _ in range(20):
        reckoned.came(0.1, 2.0, 0.1, 2)
    before = reckoned.longer
    reckoned.came(0.1, 2.0, 60.0, 2)
    reckoned.came(0.1, 2.0, 0.0, 2)
    assert before == pytest.approx(1.0) and 1.0 < reckoned.longer < 2.0


def test_what_is_promised_of_a_choice_allows_for_luck_until_it_is_known_what_comes():
    """Choices are made by what was reckoned all the same."""
    reckoned = PromiseCalibration(usual=0.8)
    assert reckoned.longer == 1.0 and reckoned.to_promise == pytest.approx(1.25)
    for _ in range(200):
        reckoned.came(0.1, 4.0, 0.1, 4)
    assert reckoned.longer == pytest.approx(1.0) and 1.0 < reckoned.to_promise < 1.08
    disappointing = PromiseCalibration(usual=0.8)
    for _ in range(200):
        disappointing.came(0.1, 4.0, 0.1, 3.2)
    assert disappointing.longer < disappointing.to_promise == pytest.approx(1.25)


def test_a_guess_gives_way_to_what_was_seen():
    mean = RunningMean(0.5)
    assert mean.value == 0.5 and mean.against(0.9) == 0.9
    for _ in range(100):
        mean.add(0.2)
    assert mean.against(0.9) == pytest.approx(0.2, abs=0.01)


def test_a_quiet_median_is_of_what_was_measured_by_now_and_of_the_cost_that_is_known_by_now():
    median = QuietMedian(3)
    assert median.value(0.5) is None
    median.add(0.2, 1.0)
    assert median.value(0.0) == 0.2 and median.value(0.5) == pytest.approx(0.1)
    for _ in range(3):
        median.add(0.4)
        assert median.value(0.5) in (0.1, 0.4)
    assert median.value(0.5) == 0.4


TOLD = [(1, 100_000), (2, 120_000), (4, 140_000)]


def timed(*forwards: tuple[int, float], told: bool = True) -> ForwardTimes:
    """After forwards of (rows, seconds)."""
    times = ForwardTimes()
    times.told(TOLD if told else [])
    for rows, seconds in forwards:
        times.add(rows, seconds)
    return times


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("before", [1, 6])
def test_one_forward_that_took_long_changes_no_price(told: bool, before: int):
    times = timed(*[(1, 0.1)] * before, (1, 0.26), *[(1, 0.1)] * 2, told=told)
    assert times.measured_s(1) == pytest.approx(0.1, rel=0.01)


def test_a_device_that_became_slower_is_so_for_all_rows_whichever_tell_it():
    rows = [(2, 0.12), (4, 0.14)] * 6
    times = timed((1, 0.1), (1, 0.1), *rows, *[(one, 2.5 * seconds) for one, seconds in rows[:3] * 3])
    assert times.measured_s(1) == pytest.approx(0.25, rel=0.1)
    times = timed(*[(1, 0.1)] * 6, *[(1, 0.25)] * 12)
    assert times.measured_s(4) == pytest.approx(0.35, rel=0.01)


def test_what_rows_cost_more_than_was_told_shows_beside_others():
    times = timed(*[(1, 0.1)] * 4, *[(4, 0.28), (1, 0.1)] * 12)
    assert times.measured_s(4) == pytest.approx(0.28, rel=0.1)
    assert times.measured_s(1) == pytest.approx(0.1, rel=0.05)


def heard_in_bursts(slower: float, rtt_s: float) -> ShadowBudget:
    """A cloud of 0.1 s a token that takes this many times as long while the edge drafts: for 1.05 s, in which nothing
    listens, so that what was said meanwhile is there at once; then for what is left of the token under way.
    """
    figures = Measured()
    figures.pinged(rtt_s)
    budget = ShadowBudget(figures)
    for _ in range(6):
        for _ in range(8):
            budget.heard(1, 0.1, 0.0, True, False)
        worked_s, at = 1.05 / slower, 1.05
        for _ in range(int(worked_s / 0.1)):
            budget.heard(1, at, at, False, False)
            at = 0.0
        left_s = 0.1 - worked_s % 0.1
        budget.heard(1, at + left_s, at, left_s >= 0.1, False)
        budget.heard(1, 0.1, 0.0, True, False)
        budget.drafted(1.05)
    return budget


@pytest.mark.parametrize("slower", [1.0, 1.3, 2.0])
def test_what_a_shadow_draft_costs_is_found_though_tokens_come_in_bursts(slower: float):
    assert heard_in_bursts(slower, 0.05).cost == pytest.approx(1.0 - 1.0 / slower, abs=0.06)


def test_a_near_cloud_pays_for_shadow_drafts_whatever_was_measured():
    """Its cores may be the edge's, and stay slower for longer than a draft takes."""
    far, near = heard_in_bursts(1.0, 0.05), heard_in_bursts(1.0, 0.001)
    assert far.affordable and not near.affordable


def test_what_was_before_a_pause_is_not_held_against_the_drafts_made_in_it():
    budget = ShadowBudget(Measured())
    for _ in range(8):
        budget.heard(1, 0.1, 0.0, True, False)
    before = budget.cost
    budget.heard(1, 5.0, 0.2, False, False)
    budget.begin()
    budget.heard(1, 0.1, 0.0, True, False)
    assert budget.cost == before


def test_a_stretch_in_which_the_cloud_drafted_says_nothing_of_what_drafts_cost():
    figures = Measured()
    figures.pinged(0.05)
    budget = ShadowBudget(figures)
    for _ in range(8):
        budget.heard(1, 0.1, 0.0, True, False)
    before = budget.cost
    budget.heard(4, 0.5, 0.0, False, True)
    budget.heard(1, 0.4, 0.4, False, False)
    budget.heard(1, 0.1, 0.0, True, False)
    assert budget.cost == before


def test_tokens_read_after_drafting_are_placed_where_the_cloud_said_them():
    """Ten tokens of 0.1 s each, the first five of which the edge drafted through; it reads all of them afterwards."""
    shares: list[float] = []
    figures, record = Measured(), AnswerRecorder(lambda: 0.0)
    accounts = RoundAccounting(record, figures)
    figures.streamed = lambda tokens, verify_s, drafted, queue_s, beside_s, draft_s: shares.append(beside_s / verify_s)  # type: ignore[method-assign]
    accounts.opened(Opened(1, 5, 64, 100_000, 0), 0.0, 0.1)
    figures.pinged(0.0)
    record.drafted("draft in the shadow", 0.1, 0.6)
    since = 0.1
    for place in range(10):
        now = 0.61 if place < 5 else 0.1 * (place + 2)
        accounts.streamed(Tokens(1, place, [7], 100_000, 0), 15, since, now)
        since = now
    assert shares == pytest.approx([1.0] * 5 + [0.0] * 5, abs=0.02)


def near(token_s: float, rtt_s: float = 0.001, tokens: int = 12) -> Measured:
    """A near cloud that said this many tokens in peace, the first eight of which count for nothing."""
    figures = Measured()
    figures.pinged(rtt_s)
    for _ in range(tokens):
        figures.streamed(1, token_s, 0)
    return figures


def drafted(trial: Trial, token_s: float, tokens: int) -> list[bool]:
    """Rounds of two tokens each, whether or not drafts are barred: after which they were."""
    found = []
    for _ in range(tokens // 2):
        trial.came(True, 2, 2 * token_s)
        found.append(trial.is_barred)
    return found


def test_drafts_that_lose_are_barred_and_for_longer_each_time():
    trial = Trial(near(0.003))
    assert drafted(trial, 0.004, 24) == [False] * 11 + [True]
    assert "64 tokens: with them it took 4 ms a token, 3 without" in trial.why
    trial.came(False, 63, None)
    assert trial.is_barred
    trial.came(False, 1, None)
    assert not trial.is_barred
    assert drafted(trial, 0.004, 24)[-1] and "128 tokens" in trial.why


@pytest.mark.parametrize(("token_s", "rtt_s"), [(0.003, 0.02), (0.012, 0.001)])
def test_a_cloud_that_is_far_or_slow_is_no_trial(token_s: float, rtt_s: float):
    """What drafts cost it is seen."""
    assert not any(drafted(Trial(near(token_s, rtt_s)), 2 * token_s, 400))


def test_a_bar_falls_where_the_cloud_turns_out_to_be_far():
    figures = near(0.003)
    trial = Trial(figures)
    assert drafted(trial, 0.004, 24)[-1]
    for _ in range(40):
        figures.pinged(0.02)
    assert not trial.is_barred


def test_what_the_cloud_says_alone_is_not_held_against_drafts():
    trial = Trial(near(0.003))
    for _ in range(100):
        trial.came(False, 1, 0.009)
    assert not trial.is_barred and not any(drafted(trial, 0.0019, 100))


def test_drafts_that_win_by_far_are_left_alone_and_others_give_the_cloud_peace_more_and_more_seldom():
    assert not any(drafted(Trial(near(0.003)), 0.0019, 1000))
    figures = near(0.003)
    trial = Trial(figures)
    assert drafted(trial, 0.0025, 96) == [False] * 47 + [True]
    assert "8 tokens" not in trial.why and "12 tokens, to time" in trial.why and figures.alone_in_peace_s is None
    for _ in range(12):
        figures.streamed(1, 0.003, 0)
        trial.came(False, 1, None)
    assert not trial.is_barred and not any(drafted(trial, 0.0025, 190)) and drafted(trial, 0.0025, 2) == [True]


def test_a_cloud_that_was_slow_at_the_time_is_found_to_be_quick_in_peace():
    """4 ms a token, and 3 with drafts; 2.5 now."""
    figures = near(0.004)
    trial = Trial(figures)
    assert drafted(trial, 0.003, 96)[-1]
    for _ in range(12):
        figures.streamed(1, 0.0025, 0)
        trial.came(False, 1, None)
    assert drafted(trial, 0.003, 24)[-1] and "3 ms a token, 2.5 without" in trial.why


@pytest.mark.parametrize(("told_us", "peace"), [(3000, True), (5000, False), (0, True)])
def test_a_cloud_that_never_had_peace_is_given_some_unless_drafts_beat_what_it_told(told_us: int, peace: bool):
    figures = Measured()
    figures.pinged(0.001)
    if told_us:
        figures.told([(1, told_us), (8, 2 * told_us)])
    for _ in range(20):
        figures.streamed(1, 0.004, 0, beside_s=0.004)
    assert figures.alone_in_peace_s is None
    assert drafted(Trial(figures), 0.003, 24)[-1] is peace


def test_the_first_tokens_after_a_draft_are_not_in_peace():
    figures = near(0.003, tokens=8)
    assert figures.alone_in_peace_s is None
    figures.streamed(1, 0.002, 0, queue_s=0.001)
    assert figures.alone_in_peace_s == 0.003
    figures.exchanged(5, 0.02, 0.001)
    for _ in range(8):
        figures.streamed(1, 0.009, 0)
    assert figures.alone_in_peace_s == 0.003
    for _ in range(2):
        figures.streamed(1, 0.009, 0)
    assert figures.alone_in_peace_s == 0.009


def test_a_long_answer_costs_no_more_a_token_than_a_short_one():
    record, token = AnswerRecorder(lambda: 0.0), Tokens(1, 0, [5], 9000, 10)
    for number in range(10_000):
        record.streamed(token, 60, number / 100, (number + 1) / 100)
    began_s = time.process_time()
    for _ in range(2000):
        assert record.computed_between(99.9, 100.0) == 0.0
    assert time.process_time() - began_s < 0.2
