"""The controller's choices, and that changing plans at any time changes no token."""

from __future__ import annotations

import random

import pytest

from specdec.drafting import Draft, Proposal
from specdec.drafting.lookup.drafter import LookupDrafter
from specdec.drafting.lookup.suffixes import SuffixMemory
from specdec.edge.auto import ShadowLookups, compared_at
from specdec.edge.controller import MODES, Choice, Controller, Plan
from specdec.edge.decoder import EdgeDecoder
from specdec.edge.flight import DraftInFlight, DraftPreparation
from specdec.edge.recorder import AnswerRecorder, RoundAccounting, RoundEnd
from specdec.errors import OptionsError
from specdec.estimates.measured import Measured
from specdec.link.wire import PROTOCOL_VERSION, HintDown, Opened, VerdictDown, Welcome
from specdec.methods import get_method
from specdec.models import Prompt, chat_prompt
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from tests.helpers import tiny_models as tiny
from tests.helpers.servers import Pair, patiently_connected
from tests.specdec.checks import SAMPLED, UNLIKE, answer, check_greedy, check_real_caches, check_seed_decides
from tests.specdec.controllers import knowing
from tests.specdec.wired import WiredLink


@pytest.fixture
def restless(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A controller that changes its mind at random; returns the plans it made."""
    draw = random.Random(7)
    made: list[str] = []

    def choose(self: Controller, now: Plan | None, remaining: int) -> Choice:
        mode = draw.choice([mode for mode in MODES if self.drafts_in_cloud or mode != "cloud-sd"])
        plan = Plan(mode, 0 if mode == "alone" else draw.randint(2, 4))
        made.append(plan.mode)
        return Choice(plan, "at random")

    monkeypatch.setattr(Controller, "choose", choose)
    monkeypatch.setattr(Controller, "opening", lambda self, remaining: self.choose(None, remaining))
    monkeypatch.setattr(Controller, "may_leave", lambda *_: True)
    monkeypatch.setattr("specdec.edge.auto._TOKENS_BETWEEN_CHOICES", 1)
    return made


@pytest.mark.slow
class TestAnyPlanAtAnyTime:
    """Losslessness does not depend on what the controller thinks."""

    def test_greedy_answers_are_the_targets(self, restless: list[str]):
        costs = check_greedy("auto", stale=True)
        assert set(restless) == set(MODES)
        assert {one.mode.split()[0] for cost in costs for one in cost.rounds} >= {
            "alone",
            "lookup",
            "chain",
            "tree",
            "stream",
        }

    @pytest.mark.parametrize("cuts", [(), (2,), (1, 4)])
    def test_sampled_answers_are_those_of_the_seed(self, restless: list[str], cuts: tuple[int, ...]):
        assert (check_seed_decides("auto", SAMPLED, cuts) > 0) == bool(cuts)

    def test_with_real_caches(self, restless: list[str], text_pair: Pair):
        check_real_caches("auto", text_pair)


@pytest.mark.slow
def test_any_plan_over_sockets_with_words_and_pictures(
    restless: list[str], pair: Pair, servers: dict[str, str]
) -> None:
    """The cloud has a draft model of its own here, so every plan comes up; with images, too."""
    images = [tiny.picture(5)] if pair.target.is_multimodal else []
    options = GenerationOptions(24)
    with patiently_connected(servers[pair.target.path]) as link:
        decoder = EdgeDecoder(link, pair.draft, "auto")
        for text in ("find the silver bottle", "and the red one", "then stop"):
            prompt = chat_prompt(pair.target, text, images=images)
            ids = [token for chunk in decoder.generate(prompt, options) for token in chunk]
            assert ids == generate_local(pair.target, prompt, options)
    assert len(set(restless)) >= 3


class TestChoices:
    """Expected time a token, and what follows from it."""

    def test_before_anything_is_known_the_cloud_decodes_alone(self):
        choice = Controller(Measured(), 4).choose(None, 64)
        assert choice.plan == Plan("alone") and "nothing is known" in choice.why

    def test_bad_drafts_are_left(self):
        choice = Controller(knowing(0.4, 0.6, 0.2, 0.2, 0.3), 4).choose(None, 64)
        assert choice.plan.mode == "alone"

    def test_good_drafts_are_used_where_the_target_is_slow(self):
        choice = Controller(knowing(0.07, 0.6, 0.2, 0.5, 0.7), 4).choose(None, 64)
        assert choice.plan.mode == "tree" and (choice.plan.token_s or 1) < 0.4
        assert "alone: 600" in choice.why and "RTT 200" in choice.why

    def test_drafts_that_are_nearly_always_right_are_sent_behind_one_another(self):
        choice = Controller(knowing(0.005, 0.04, 0.25, 0.97, 0.98), 4).choose(None, 200)
        assert choice.plan.mode == "stream"

    def test_a_far_cloud_with_a_draft_model_of_its_own_uses_that(self):
        controller = Controller(knowing(0.02, 0.1, 1.0, 0.6, 0.6), 4)
        assert controller.choose(None, 64).plan.mode == "alone"
        controller.drafts_in_cloud = True
        assert controller.choose(None, 64).plan.mode == "cloud-sd"

    def test_a_change_must_pay_before_the_answer_ends(self):
        controller = Controller(knowing(0.07, 0.6, 0.4, 0.5, 0.7), 4)
        alone = Plan("alone", 0, 0.6)
        assert controller.choose(alone, 1).plan.mode == "alone"
        assert controller.choose(alone, 64).plan.mode == "tree"

    def test_a_change_must_pay_within_a_few_tokens_however_long_the_answer_may_be(self):
        """A tree saves 18 ms a token here, the change costs 0.48 s: that takes 26 tokens."""
        controller = Controller(knowing(0.01, 0.1, 0.4, 0.5, 0.9), 4)
        plans = {one.mode: one for one in controller._plans(0.1)}
        gain_s = 0.1 - controller._safely_s(plans["tree"])
        change_s = controller._change_s(Plan("alone"), plans["tree"])
        assert 16 * gain_s < change_s < 60 * gain_s and gain_s > 0.005
        assert controller.choose(Plan("alone", 0, 0.1), 10_000).plan.mode == "alone"

    def test_few_drafts_are_not_believed_as_many_are(self):
        few, many = (Controller(knowing(0.18, 0.3, 0.1, 0.62, 0.0), 4) for _ in range(2))
        few.measured.chain.drafts, plan = 1, Plan("chain", 4, 0.1)
        assert few._safely_s(plan) > 1.2 * many._safely_s(plan)
        assert few._safely_s(Plan("alone", 0, 0.1)) == 0.1

    def test_beside_a_shared_core_nothing_is_prepared_that_saves_less_than_it_costs(self):
        for draft_s, is_worth_it in ((0.01, False), (0.09, True)):
            figures = knowing(draft_s, 0.1, 0.0, 0.6, 0.6)
            assert Controller(figures, 4).prepares(4)
            for _ in range(20):  # drafted beside, a forward of the cloud takes twice its time
                figures.cloud_forwards.add(5, 0.1, 0.0)
                figures.cloud_forwards.add(5, 0.2, 0.2)
            assert Controller(figures, 4).prepares(4) is is_worth_it

    @pytest.mark.parametrize(("rtt_s", "tokens", "tries"), [(0.002, 0, False), (0.002, 2, True), (0.02, 0, True)])
    def test_a_cloud_so_near_that_it_may_be_here_is_measured_alone_first(self, rtt_s: float, tokens: int, tries: bool):
        figures = knowing(0.07, 0.1, rtt_s, 0.6, 0.0)
        figures.tokens_alone = tokens
        plan = Controller(figures, 4).choose(Plan("alone"), 64).plan
        assert (plan.mode != "alone") is tries

    @pytest.mark.parametrize(("rtt_s", "drafts", "tries"), [(0.0, 7, False), (0.0, 8, True), (0.005, 7, True)])
    def test_where_what_drafts_cost_is_not_seen_it_takes_more_of_them_to_try(
        self, rtt_s: float, drafts: int, tries: bool
    ):
        """Forwards of 8 ms, on a device that the edge may share. Drafts promise to be at most 1.5 times as fast."""
        figures = knowing(0.001 if rtt_s else 0.006, 0.008, rtt_s, 0.6, 0.0)
        figures.chain.drafts = drafts
        assert (Controller(figures, 4).choose(Plan("alone"), 64).plan.mode != "alone") is tries

    def test_plans_are_weighed_anew_when_something_speaks_for_drafts(self):
        def weighed() -> tuple[Controller, Measured, Plan]:
            figures = knowing(0.3, 0.1, 0.2, 0.3, 0.0)
            controller = Controller(figures, 4)
            assert controller.may_leave(Plan("alone")), "nothing was weighed yet"
            return controller, figures, controller.choose(Plan("alone"), 64).plan

        controller, figures, plan = weighed()
        assert plan.mode == "alone" and not controller.may_leave(plan)
        assert controller.may_leave(Plan("chain", 4))
        figures.chain.add(4, 4)
        assert controller.may_leave(plan)
        controller, figures, plan = weighed()
        controller.told(Welcome(PROTOCOL_VERSION))
        assert not controller.may_leave(plan), "the verifier is as it was"
        controller.told(Welcome(PROTOCOL_VERSION, drafts=True))
        assert controller.may_leave(plan), "this one can do more"
        controller, figures, plan = weighed()
        for _ in range(12):
            figures.pinged(0.1)
        assert not controller.may_leave(plan), "most of what is known of the link is as before"
        for _ in range(12):
            figures.pinged(0.1)
        assert controller.may_leave(plan)
        controller, figures, plan = weighed()
        for _ in range(40):
            figures.streamed(1, 2.0, 0)
        assert controller.may_leave(plan)

    def test_a_draft_model_in_the_cloud_is_weighed_anew_only_where_it_may_pay(self):
        figures = knowing(0.3, 0.1, 0.2, 0.3, 0.0)
        controller = Controller(figures, 4)
        controller.drafts_in_cloud = True
        plan = controller.choose(Plan("alone"), 64).plan
        assert plan.mode == "alone" and not controller.may_leave(plan)
        for _ in range(40):
            figures.streamed(1, 0.6, 0)
        assert controller.may_leave(plan), "next to what a token takes now, drafts cost little"

    def test_a_cloud_that_tells_what_its_drafts_take_may_draft_from_the_first_token_on(self):
        figures = Measured()
        figures.draft_forwards.told([(1, 60_000)])
        figures.told([(1, 100_000), (8, 110_000)], 5_000)
        controller = Controller(figures, 4)
        assert controller.opening(64).plan.mode == "alone", "it has no draft model"
        controller.told(Welcome(PROTOCOL_VERSION, drafts=True))
        assert controller.opening(64).plan.mode == "cloud-sd"

    def test_what_the_clouds_drafts_bring_is_not_held_against_them_twice(self):
        """That they are accepted less than was expected is known of the rounds themselves."""
        controller = Controller(knowing(0.3, 0.1, 0.2, 0.3, 0.0), 4)
        cloud, chain = controller._cloud_sd(), next(one for one in controller._plans(0.1) if one.mode == "chain")
        for _ in range(40):
            for plan in (cloud, chain):
                controller.came(plan, plan.round_s, plan.cloud_s, 1)
        assert controller._reckoned["cloud-sd"].longer == 1.0 < controller._reckoned["chain"].longer

    def test_promises_of_drafts_allow_for_the_luck_of_what_is_chosen(self):
        """What looks best does so by luck in part; plans are chosen by what was reckoned."""
        controller = Controller(knowing(0.01, 0.1, 0.02, 0.6, 0.0), 4)
        controller.drafts_in_cloud = True
        plans = list(controller._plans(0.1))
        assert {plan.mode for plan in plans} == {"alone", "cloud-sd", "chain", "stream", "tree"}
        for plan in plans:
            assert plan.token_s and plan.promised_s
            assert (plan.promised_s > 1.05 * plan.token_s) == (plan.mode != "alone")
            assert plan.promised_s >= plan.token_s
        chosen = controller.choose(None, 64)
        assert f"{chosen.plan.token_s * 1e3:.3g} ms a token" in chosen.why

    def test_plans_that_are_doubted_are_not_weighed_again_and_again(self):
        """Of three drafts that were compared no caller knows much: what they promise is not enough, and stays so."""
        figures = knowing(0.09, 0.1, 0.2, 0.6, 0.0)
        controller = Controller(figures, 4)
        controller.drafts_in_cloud, figures.chain.drafts = True, 3
        plan, promised = controller.choose(Plan("alone"), 64).plan, controller._cloud_sd()
        assert plan.mode == "alone" and plan.token_s is not None and promised.token_s is not None
        assert promised.token_s < 0.95 * plan.token_s and not controller.may_leave(plan)

    def test_what_was_said_against_a_plan_fades_while_plans_are_not_weighed(self):
        controller = Controller(knowing(0.3, 0.1, 0.2, 0.3, 0.0), 4)
        plans = {one.mode: one for one in controller._plans(0.1)}
        for _ in range(8):
            controller.came(plans["chain"], 4 * plans["chain"].round_s, plans["chain"].cloud_s, 1)
        plan = controller.choose(Plan("alone"), 64).plan
        before = controller._reckoned["chain"].longer
        for _ in range(50):
            assert not controller.may_leave(plan)
        assert 1.0 < controller._reckoned["chain"].longer < before

    def test_where_drafting_is_hopeless_an_answer_begins_without_weighing_plans(self, monkeypatch: pytest.MonkeyPatch):
        controller = Controller(knowing(0.3, 0.1, 0.0, 0.3, 0.0), 4)
        last = controller.choose(None, 64)
        assert controller.hopeless and last.plan.mode == "alone"
        monkeypatch.setattr(controller, "choose", lambda *_: pytest.fail("weighed"))
        assert controller.opening(64) is last
        controller.hopeless = False
        monkeypatch.setattr(controller, "choose", lambda *_: "weighed")
        assert controller.opening(64) == "weighed"

    @pytest.mark.parametrize(
        ("rtt_s", "verify_s", "at_once"), [(0.0, 0.008, True), (0.0, 0.1, False), (0.2, 0.008, False)]
    )
    def test_a_near_clouds_prompt_does_not_wait_for_plans_to_be_weighed(
        self, rtt_s: float, verify_s: float, at_once: bool
    ):
        controller = Controller(knowing(0.01, verify_s, rtt_s, 0.6, 0.0), 4)
        controller._last = last = Choice(Plan("alone"), "it was best")
        assert (controller.opening(64) is last) is at_once
        controller._last = last = Choice(Plan("tree", 4), "it was best")
        assert controller.opening(64) is not last

    def test_an_answer_does_not_begin_with_drafts_of_a_cloud_that_has_no_draft_model(self):
        """The last verifier had one; this is another."""
        controller = Controller(knowing(0.3, 0.1, 0.0, 0.3, 0.0), 4)
        controller.choose(None, 64)
        controller._last = Choice(Plan("cloud-sd", 4), "it was best")
        assert controller.hopeless and controller.opening(64).plan.mode == "alone"
        controller._last, controller.drafts_in_cloud = Choice(Plan("cloud-sd", 4), "it was best"), True
        assert controller.opening(64).plan.mode == "cloud-sd"

    def test_a_cloud_that_became_faster_is_seen_by_its_verdicts(self):
        figures = knowing(0.07, 0.6, 0.2, 0.5, 0.7)
        for _ in range(40):
            figures.exchanged(5, 0.05, 0.2)
        choice = Controller(figures, 4).choose(Plan("chain", 4), 64)
        assert choice.plan.mode == "alone" and choice.plan.token_s == pytest.approx(0.05)

    def test_what_the_verifier_tells_of_rows_counts_until_they_were_tried(self):
        measured = Measured()
        measured.told([(1, 100_000), (4, 110_000), (8, 150_000), (32, 500_000)])
        assert measured.cloud_forwards.measured_s(1) is None, "without any of its own it is not a figure of this link"
        measured.streamed(1, 0.2, drafted=0)  # twice as slow as an idle verifier was
        found = [measured.cloud_forwards.measured_s(rows) for rows in (1, 6, 33)]
        assert found == pytest.approx([0.2, 0.26, 1.0], rel=0.01)
        measured.exchanged(5, 0.25, 0.0)
        assert measured.cloud_forwards.measured_s(5) == pytest.approx(0.25, rel=0.02)
        assert round(measured.cloud_forwards.measured_s(32), 2) == 1.04, "by the nearest that was tried"

    def test_a_tree_that_costs_too_many_rows_is_not_even_tried(self):
        figures = knowing(0.07, 0.6, 0.2, 0.5, 0.7)
        assert Controller(figures, 4).choose(None, 64).plan.mode == "tree"
        figures.told([(1, 300_000), (8, 320_000), (32, 1_500_000)])
        assert Controller(figures, 4).choose(None, 64).plan.mode != "tree"

    def test_a_near_cloud_that_is_slow_because_the_edge_drafts_is_left_in_peace(self):
        """3 ms a token in peace; with verdicts of 9 ms since, it would seem to take 8 alone, and drafts 4 to 5."""
        for rtt_s, peace in ((0.001, True), (0.006, False)):
            figures = knowing(0.001, 0.003, rtt_s, 0.7, 0.8)
            figures.told([(1, 3_000), (8, 3_300), (32, 6_000)])
            for _ in range(40):
                figures.exchanged(5, 0.009, rtt_s)
            chosen = Controller(figures, 4).choose(Plan("tree", 4), 64)
            assert figures.alone_s is not None and figures.alone_s > 0.007 and chosen.plan.in_cloud is peace

    def test_drafts_that_lost_their_trial_are_left_whatever_they_promise(self):
        controller = Controller(knowing(0.0005, 0.006, 0.001, 0.8, 0.9), 4)
        before = controller.choose(Plan("alone"), 64).plan
        for _ in range(6):
            controller.trial.came(True, 4, 4 * 0.007)
        after = controller.choose(before, 64)
        assert not before.in_cloud and after.plan.mode == "alone" and after.why.startswith("no drafts for 64 tokens")
        assert not controller.may_leave(after.plan), "weighing plans anew would change nothing"
        controller.trial.came(False, 64, None)
        assert controller.may_leave(after.plan)

    def test_lookups_that_are_right_are_sent_even_where_nothing_is_known_of_a_draft_model(self):
        for right, mode in ((True, "lookup"), (False, "alone")):
            figures = Measured()
            for _ in range(8):
                figures.streamed(1, 0.1, 0)
                figures.pinged(0.02)
                figures.looked_up([1, 2, 3], [1, 2, 3] if right else [4])
            controller = Controller(figures, 4)
            assert controller.lookups_promise is right
            assert controller.choose(Plan("alone"), 64).plan.mode == mode

    def test_lookups_that_find_nothing_are_as_bad_as_wrong_ones(self):
        figures = Measured()
        for _ in range(8):
            figures.streamed(1, 0.1, 0)
            figures.pinged(0.02)
            figures.looked_up([], [4])
        assert figures.lookups.expected(4) < 1.1 and figures.found.value < 0.3
        assert not Controller(figures, 4).lookups_promise

    def test_what_was_looked_up_says_nothing_of_the_draft_model(self):
        for looked_up in (True, False):
            figures = Measured()
            preparation = DraftPreparation(0.0, looked_up=looked_up)
            DraftInFlight(1, Proposal(Draft(0, (5, 6)), (5, 6)), ((0.0, 9),), preparation).compare([5, 7], 1, figures)
            assert figures.chain.drafts == (0 if looked_up else 1)

    def test_few_drafts_decide_nothing(self):
        assert (
            Controller(knowing(0.01, 0.6, 0.0, 0.9, 0.9, drafts=3), 4).choose(None, 64).plan.mode == "alone"
        )


def test_the_first_round_after_a_lost_link_is_held_against_nothing_that_was_promised(monkeypatch: pytest.MonkeyPatch):
    """It took as long as the link was lost."""
    promised = Choice(Plan("alone", token_s=0.5, promised_s=1.0), "as always")
    monkeypatch.setattr(Controller, "choose", lambda *_: promised)
    for cuts in ((), (2,), (3,)):
        _, cost = answer("auto", GenerationOptions(16), link=WiredLink(UNLIKE.target, UNLIKE.draft, cuts=cuts))
        assert cost.resumes == len(cuts)
        assert [one.promised_ms for one in cost.rounds].count(0.0) == 1 + cost.resumes
        assert all(one.promised_ms in (0.0, 1e3 * one.gained) for one in cost.rounds)


@pytest.mark.parametrize("at_once", [1, 6])
def test_lookups_are_compared_as_their_rounds_would_be(at_once: int):
    """The text 1 2 3 4 9 1 2 3 8 7 7: behind the second 1, what is found is right twice. However many tokens come at
    once, each wrong lookup counts.
    """
    figures, memory = Measured(), SuffixMemory()
    drafter = LookupDrafter(memory)
    drafter.prefill(Prompt((1, 2, 3, 4, 9)))
    lookups = ShadowLookups(drafter, figures)
    said = [1, 2, 3, 8, 7, 7]
    for length in range(0, len(said) + 1, at_once):
        lookups.judge(said[:length])
    # Behind 1 the lookup says 2 3 4 ...; behind 9, 8 and the first 7 it has nothing to say.
    assert figures.lookups.drafts == 4
    assert figures.lookups.expected(2) == pytest.approx(1 + figures.lookups.chance(0) * (1 + figures.lookups.chance(1)))
    assert figures.lookups.chance(1) > figures.lookups.chance(2)


def test_a_shadow_waits_for_the_tokens_it_is_compared_with():
    assert compared_at(Proposal(Draft(4, (1, 2), (-1, 0)), (1, 2, 3))) == 7


def test_a_line_counts_up_to_where_it_leaves_the_answer():
    figures = Measured()
    for _ in range(100):
        figures.chain.compare((1, 2, 3), [1, 5])
    assert figures.chain.chance(0) > 0.95 and figures.chain.chance(1) < 0.05


@pytest.mark.slow
def test_hints_of_other_rounds_and_sessions_are_not_taken(monkeypatch: pytest.MonkeyPatch):
    foreign = [(0, -1), (1, 0)]

    def made_up(self: WiredLink, verdict: VerdictDown) -> list[HintDown]:
        return [
            HintDown(verdict.session + session, max(0, verdict.round + round_), 0, 1, 0.9, 1, 1)
            for session, round_ in foreign
        ]

    monkeypatch.setattr(WiredLink, "_made_up_hints", made_up)
    assert sum(one.hints for cost in check_greedy("fsd") for one in cost.rounds) == 0
    foreign[:] = [(0, 0)]
    assert sum(one.hints for cost in check_greedy("fsd") for one in cost.rounds) > 0


@pytest.mark.parametrize("left_s", [0.1, 2.5])
def test_a_draft_that_waited_for_its_prompt_says_nothing_of_the_waiting_of_others(left_s: float):
    figures, record = Measured(), AnswerRecorder(lambda: 0.0)
    record.opened(Opened(1, None, 64, 1_600_000, 0), 0.0, 2.0)
    draft = DraftInFlight(1, Proposal(Draft(0, (1, 2)), (1, 2)), ((left_s, 20),), DraftPreparation(0.0))
    verdict = VerdictDown(1, 1, 2, 3, 400_000, 1_200_000)
    RoundAccounting(record, figures).verdict(RoundEnd(verdict, 17, left_s + 1.7, draft, (), 2, (1, 2, 3), 3))
    assert figures.rtt_s is not None and round(figures.rtt_s, 3) == 0.1
    assert figures.away_s is not None and round(figures.away_s, 3) == (0.1 if left_s < 2.0 else 1.3)


@pytest.mark.slow
def test_auto_takes_no_axes():
    with pytest.raises(OptionsError, match="chooses its axes itself"):
        get_method("auto+rows:3")
