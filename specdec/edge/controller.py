# SPDX-License-Identifier: Apache-2.0
"""The controller of the method `auto`: predicts the time per token of each plan and picks the fastest.

Expected time per token = time per round / tokens per round, from the papers' latency formulas (docs/references.md) with
live measurements. Pure: no clock, no model, no link. It changes plans only if the gain before the answer ends exceeds
the cost of the change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from specdec.draft import TreeSize
from specdec.drafting.tree_budget import NOISE
from specdec.estimates.measured import Measured
from specdec.estimates.present import CurrentTimes
from specdec.estimates.reckoning import PromiseCalibration
from specdec.estimates.shadow_budget import ShadowBudget
from specdec.estimates.trial import Trial
from specdec.link.wire import LACKS_SEVERAL, LACKS_TREES, Welcome
from specdec.methods import STREAM_IN_FLIGHT

Mode = Literal["alone", "cloud-sd", "lookup", "chain", "tree", "stream"]
MODES: tuple[Mode, ...] = ("alone", "cloud-sd", "lookup", "chain", "tree", "stream")

MAX_CHAIN = 10
SIZES = range(1, MAX_CHAIN + 1)
MAX_TREE = 8
TREE_BUDGET = 32
BUDGETS = (TREE_BUDGET, 23, 15, 11, 7, 5, 4, 3, 2)
"""Tree sizes to consider, in nodes. With the answer's own row they are close to the row counts at which forward passes
are timed. Largest first: unless a smaller tree is much cheaper, the largest is taken.
"""
ENOUGH_DRAFTS = 4
"""No draft is sent before this many were compared with the target's tokens, or the model's chances stand in for them.
"""
_WORTH_IT = 0.03
"""A plan must be faster than the present one by at least this share."""
_HORIZON = 16
"""A change must pay off within this many tokens, because later conditions are unknown."""
_DOUBT = 0.3
"""Margin on the expected time per token: this share, divided by the square root of the number of drafts compared, like
the standard error of a mean.
"""
_SETTLED_DRAFTS = 8
_HOPELESS = 0.1
"""If drafting is slower than the cloud alone by this share after _SETTLED_DRAFTS drafts, that will hardly change soon.
"""
_PROVEN, _PLAIN = 2, 1.5
"""The cloud's own time per token is known once it has decoded _PROVEN tokens alone. A near cloud must have done so
before plans that promise less than _PLAIN times its speed are tried.
"""
_NEWS = 0.1
"""A round trip that is shorter by this share may change which plan is best."""
_SHARED = 0.1
"""If one second of drafting slows the cloud by more than this, in seconds, drafting is no longer free."""
_ENDED_IN_TIME = 1.08
"""Speed of drafts in flight that end once they are doubtful, relative to drafts of a fixed length, in simulated random
worlds (benchmarks.regret --compare).
"""
_CLOUD_SHARE = 0.5
"""Assumed duration of a draft forward pass in the cloud, relative to the edge, until it was tried."""


@dataclass(frozen=True)
class Plan:
    """How to decode the next rounds.

    Attributes:
        mode: Kind of plan.
        size: Draft tokens of a chain, or levels of a tree; 0 if nothing is drafted.
        token_s: Expected seconds per token; None if unknown.
        budget: Nodes of a tree.
        grown: As in TreeSize.
        round_s: Seconds per round by the formulas, before correction by observed rounds.
        tau: Tokens per round by the formulas, before correction.
        cloud_s: The cloud's share of `round_s`, queueing included.
        promised_s: Seconds per token predicted if this plan is chosen.
    """

    mode: Mode
    size: int = 0
    token_s: float | None = None
    budget: int = TREE_BUDGET
    grown: int = 0
    round_s: float = 0.0
    tau: float = 1.0
    cloud_s: float = 0.0
    promised_s: float | None = None

    @property
    def in_cloud(self) -> bool:
        """True if the cloud decodes without drafts from the edge."""
        return self.mode in ("alone", "cloud-sd")

    @property
    def needs_model(self) -> bool:
        """True if the edge's draft model drafts."""
        return self.mode in ("chain", "tree", "stream")

    @property
    def tree(self) -> TreeSize | None:
        """Shape of the token tree; None for other plans."""
        return TreeSize(self.budget, self.size, self.grown) if self.mode == "tree" else None

    @property
    def label(self) -> str:
        """A short name: "tree 32x4", "chain 5", "alone"."""
        if self.mode == "tree":
            return f"tree {self.budget}x{self.size}"
        return f"{self.mode} {self.size}" if self.size else self.mode


@dataclass(frozen=True)
class Choice:
    """A plan and the reason for it."""

    plan: Plan
    why: str


FIRST = Choice(
    Plan("alone"), "nothing is known yet: the cloud decodes alone while drafts are compared with it"
)
_USUALLY: dict[Mode, float] = {"cloud-sd": 0.94, "chain": 0.89, "tree": 0.86, "stream": 0.89}
"""Tokens that a chosen plan really yields per predicted token, from simulated random worlds (docs/auto.md)."""
_NOTHING: tuple[int, float, list[Plan]] = (0, 0.0, [])
"""State of the last comparison of plans: drafts compared so far, round trip, and the plans other than the cloud alone.
"""


class Controller:
    """Chooses plans for one decoder; its knowledge persists over answers."""

    def __init__(self, measured: Measured, gamma: int) -> None:
        """gamma: draft length for which reports quote tau."""
        self.measured = measured
        self._gamma = gamma
        self._present = CurrentTimes(measured)
        self._reckoned: dict[Mode, PromiseCalibration] = {
            mode: PromiseCalibration(_USUALLY.get(mode, 1.0)) for mode in MODES
        }
        self.shadows = ShadowBudget(measured)
        self.trial = Trial(measured)
        self.hopeless = False
        self._last = FIRST
        self._weighed = _NOTHING
        self.drafts_in_cloud = False
        self.trees = True
        self.several = True

    def told(self, welcome: Welcome) -> None:
        """Note what the verifier's engine can do; if that changed, plans are compared anew."""
        before = self.drafts_in_cloud, self.trees, self.several
        self.drafts_in_cloud = welcome.drafts
        self.trees = LACKS_TREES not in welcome.lacks
        self.several = LACKS_SEVERAL not in welcome.lacks
        if before != (self.drafts_in_cloud, self.trees, self.several):
            self._weighed = _NOTHING

    def opening(self, remaining: int) -> Choice:
        """The plan to begin an answer with.

        If drafting is hopeless, or the cloud is near and fast, this is the last plan, provided that it lets the cloud
        decode alone: choosing would delay the prompt, and plans are compared after a few tokens anyway.
        """
        plan = self._last.plan
        possible = plan.mode == "alone" or (plan.mode == "cloud-sd" and self.drafts_in_cloud)
        at_once = possible and (self.hopeless or self.measured.may_feel_drafts_unseen)
        return self._last if at_once else self.choose(None, remaining)

    def choose(self, now: Plan | None, remaining: int) -> Choice:
        """Choose the plan for the next round. now: the present plan; None before an answer. remaining: most tokens
        left.
        """
        measured = self.measured
        self._present = CurrentTimes(measured)
        alone_s = self._alone_s
        if alone_s is None or (measured.draft_s is None and not self._knows_lookups):
            return Choice(now, FIRST.why) if now is not None else FIRST
        far = measured.rtt_s is not None
        plans = {plan.mode: plan for plan in self._plans(alone_s) if far or plan.in_cloud}
        drafting = [plan for plan in plans.values() if plan.needs_model]
        staying_s = min(_token_s(plan) for plan in plans.values() if plan.in_cloud)
        settled = measured.chain.drafts >= _SETTLED_DRAFTS
        self.hopeless = (
            settled and bool(drafting) and min(map(_token_s, drafting)) > (1.0 + _HOPELESS) * staying_s
        )
        best = min(plans.values(), key=self._safely_s)
        barred = self.trial.is_barred
        if barred:
            best = min((plan for plan in plans.values() if plan.in_cloud), key=self._safely_s)
        elif self._is_unproven(best, plans["alone"]):
            best = plans["alone"]
        if now is not None and now.mode in plans and best.mode != now.mode and not barred:
            present = plans[now.mode]
            best_s, present_s = self._safely_s(best), self._safely_s(present)
            gain_s = (present_s - best_s) * min(remaining, _HORIZON)
            if best_s > (1 - _WORTH_IT) * present_s or gain_s < self._change_s(now, best):
                best = present
        self._fade(best)
        others = [plan for plan in plans.values() if plan.mode not in ("alone", "lookup")]
        self._weighed = measured.chain.drafts, measured.rtt_s or 0.0, others
        why = self._words(best, plans)
        self._last = Choice(best, f"{self.trial.why}; {why}" if barred else why)
        return self._last

    def may_leave(self, now: Plan) -> bool:
        """Whether comparing all plans anew may find one that is faster than the cloud alone. Cheap.

        It may if drafts were compared since, the link became faster, the cloud became slower than a drafting plan, or
        lookups became good. Never while drafts are barred.
        """
        drafts, rtt_s, others = self._weighed
        measured = self.measured
        alone_s = self._alone_s
        if now.mode != "alone" or alone_s is None or not others:
            return True
        if self.trial.is_barred:
            self._fade(now)
            return False
        if measured.chain.drafts != drafts or (measured.rtt_s or 0.0) < (1.0 - _NEWS) * rtt_s:
            return True
        self._fade(now)
        if self.lookups_promise:
            return True
        return alone_s > min(
            self._reckoned_s(plan.mode, plan.round_s, plan.tau) * self._doubt(plan.mode) for plan in others
        )

    @property
    def lookups_promise(self) -> bool:
        """Whether lookups may be faster than the cloud alone. Cheap."""
        measured, alone_s = self.measured, self._alone_s
        if alone_s is None or measured.rtt_s is None or not self._knows_lookups:
            return False
        least = (1.0 + _WORTH_IT) * self._doubt("lookup")
        if measured.lookups.expected(MAX_CHAIN) < least:  # even if a round cost nothing but the forward pass
            return False
        self._present = CurrentTimes(measured)
        return least * _token_s(self._lookup()) < alone_s

    @property
    def _knows_lookups(self) -> bool:
        return self.measured.lookups.drafts >= ENOUGH_DRAFTS

    @property
    def _alone_s(self) -> float | None:
        """Seconds per token of the cloud alone.

        If drafting may slow the cloud more than is visible, this is the time measured without drafting. Otherwise
        drafting would make the cloud look slow, and the slow cloud would make drafting look worthwhile. Until the cloud
        has decoded alone, it is at most what the verifier reports: verifying drafts may be slow because of their rows.
        """
        measured = self.measured
        alone_s, in_peace_s = measured.alone_s, measured.alone_in_peace_s
        told_s = measured.cloud_forwards.told_s(1)
        if alone_s is not None and told_s is not None and measured.tokens_alone < _PROVEN:
            return min(alone_s, told_s + measured.queue_alone_s)
        if alone_s is None or in_peace_s is None or not measured.may_feel_drafts_unseen:
            return alone_s
        return min(alone_s, in_peace_s)

    def _fade(self, taken: Plan) -> None:
        """Let the corrections of plans that are not chosen decay a little."""
        for mode, reckoned in self._reckoned.items():
            if mode != taken.mode and reckoned.longer > 1.0:
                reckoned.fade()

    def _is_unproven(self, best: Plan, alone: Plan) -> bool:
        """Whether to measure the cloud alone first.

        The times that a cloud reports may be old. If the cloud may be this machine, its undisturbed speed cannot be
        measured once drafting has begun. A near cloud also leaves little latency to hide, so drafts gain little. If
        their cost is not visible, more of them are needed to know.
        """
        measured = self.measured
        if best.in_cloud or not measured.is_near or _token_s(best) <= _token_s(alone) / _PLAIN:
            return False
        few = measured.may_feel_drafts_unseen and measured.chain.drafts < _SETTLED_DRAFTS
        return few or measured.tokens_alone < _PROVEN

    def _safely_s(self, plan: Plan) -> float:
        """Seconds per token of a plan, with a margin that is larger the fewer drafts were compared."""
        return _token_s(plan) * (1.0 if plan.mode == "alone" else self._doubt(plan.mode))

    def _doubt(self, mode: Mode) -> float:
        measured = self.measured
        drafts = measured.lookups.drafts if mode == "lookup" else measured.chain.drafts
        return 1.0 + _DOUBT / math.sqrt(max(drafts, 1))

    def came(self, plan: Plan, took_s: float, cloud_s: float, gained: int) -> None:
        """A round of a plan has ended.

        Args:
            plan: The plan.
            took_s: Seconds since the previous round ended.
            cloud_s: The cloud's share of that. A slower cloud does not count as a wrong prediction, because its time is
                measured separately.
            gained: Tokens gained. With "cloud-sd" the plan's own tau is used instead: its acceptance is measured from
                these rounds.
        """
        round_s = plan.round_s - plan.cloud_s + cloud_s
        brought = plan.tau if plan.mode == "cloud-sd" else gained
        self._reckoned[plan.mode].came(round_s, plan.tau, took_s, brought)

    def prepares(self, size: int) -> bool:
        """Whether to draft while waiting for a verdict: it saves drafting later, but delays the verdict if both sides
        share a device.
        """
        measured, cost = self.measured, self._present.beside_cost
        if cost < _SHARED or measured.draft_s is None:
            return True
        saved_s = (1.0 - measured.redrafted.value) * size * measured.draft_s
        return saved_s > cost * self._present.verify_s(size + 1)

    @property
    def knows_drafts(self) -> bool:
        """Whether enough drafts were compared with the target's tokens."""
        return self.measured.chain.drafts >= ENOUGH_DRAFTS

    def _reckoned_s(self, mode: Mode, round_s: float, tau: float) -> float:
        """Seconds per token by the formulas, corrected by the observed rounds of this mode."""
        return self._reckoned[mode].longer * round_s / tau

    def _plan(
        self,
        mode: Mode,
        size: int,
        round_s: float,
        tau: float,
        cloud_s: float,
        budget: int = TREE_BUDGET,
        grown: int = 0,
    ) -> Plan:
        token_s = self._reckoned_s(mode, round_s, tau)
        promised_s = self._reckoned[mode].to_promise * round_s / tau
        return Plan(mode, size, token_s, budget, grown, round_s, tau, cloud_s, promised_s)

    def _plans(self, alone_s: float) -> Iterator[Plan]:
        """The best plan of each mode."""
        measured = self.measured
        yield self._plan("alone", 0, alone_s, 1.0, alone_s)
        if self._knows_lookups:
            yield self._lookup()
        if measured.draft_s is None:
            return
        if self.drafts_in_cloud:
            yield self._cloud_sd()
        if measured.chain.drafts < ENOUGH_DRAFTS:
            return
        taus = measured.chain.by_depth(MAX_CHAIN)
        yield self._chain(taus)
        if self.several:
            yield self._stream(taus)
        if self.trees and measured.tree.drafts >= ENOUGH_DRAFTS:
            yield self._tree()

    def _cloud_sd(self) -> Plan:
        """Draft model in the cloud. Its speed is assumed from the edge's until it was tried."""
        measured = self.measured
        draft_s = measured.cloud_draft_s
        if draft_s is None:
            draft_s = _CLOUD_SHARE * (measured.draft_s or 0.0)
        taus = measured.in_cloud.by_depth(MAX_CHAIN, measured.chain)

        def round_s(size: int) -> float:
            return size * draft_s + self._present.verify_s(size + 1) + measured.queue_alone_s

        size = min(SIZES, key=lambda size: round_s(size) / taus[size])
        return self._plan("cloud-sd", size, round_s(size), taus[size], round_s(size))

    def _lookup(self) -> Plan:
        """Lookups without a draft model. If nothing is found, a round yields only the target's own token."""
        taus, found = self.measured.lookups.by_depth(MAX_CHAIN), self.measured.found.value

        def mean(size: int, one: Callable[[int], float]) -> float:
            return found * one(size + 1) + (1.0 - found) * one(1)

        def round_s(size: int) -> float:
            return mean(size, lambda rows: self._present.exchange_s(rows, False))

        size = min(SIZES, key=lambda size: round_s(size) / taus[size])
        cloud_s = mean(size, lambda rows: self._present.cloud_s(rows, False))
        return self._plan("lookup", size, round_s(size), taus[size], cloud_s)

    def _chain(self, taus: Sequence[float]) -> Plan:
        """taus: expected tokens per round, by draft length."""
        draft_s, ready = self._present.draft_s(1), self.measured.chain_ready.value

        def round_s(size: int) -> float:
            prepares = self.prepares(size)
            late = self._late(size, draft_s, size + 1, ready) if prepares else size
            return late * draft_s + self._present.exchange_s(size + 1, prepares)

        size = min(SIZES, key=lambda size: round_s(size) / taus[size])
        cloud_s = self._present.cloud_s(size + 1, self.prepares(size))
        return self._plan("chain", size, round_s(size), taus[size], cloud_s)

    def _tree(self) -> Plan:
        """The best tree over all depths and budgets.

        Fewer nodes take fewer rows on either side, and gain fewer tokens. A small tree is grown like a large one,
        unless that takes the draft device longer. Until enough trees were compared node by node, only the full budget
        counts.
        """
        measured, known = self.measured, self.measured.nodes.drafts >= ENOUGH_DRAFTS
        budgets = BUDGETS if known else (TREE_BUDGET,)
        ready = measured.tree_ready.value
        best: Plan | None = None
        for size in range(2, MAX_TREE + 1):
            prepares = self.prepares(size)
            exchanges = {budget: self._present.exchange_s(budget + 1, prepares) for budget in budgets}
            whole: Plan | None = None
            cheapest: Plan | None = None
            for budget, exchange_s in exchanges.items():
                if budget < size:
                    continue
                tau = measured.nodes.expected(size, budget) if known else measured.tree.expected(size)
                drafting_s, grown = self._level_s(budget, size)
                late = self._late(size, drafting_s, budget + 1, ready) if prepares else size
                round_s = late * drafting_s + exchange_s
                tree = Plan("tree", size, round_s / tau, budget, grown, round_s, tau)
                whole = whole or tree
                if cheapest is None or _token_s(tree) < _token_s(cheapest):
                    cheapest = tree
            if whole is None or cheapest is None:
                continue
            chosen = cheapest if _token_s(cheapest) < (1.0 - NOISE) * _token_s(whole) else whole
            if best is None or _token_s(chosen) < _token_s(best):
                best = chosen
        assert best is not None
        cloud_s = self._present.cloud_s(best.budget + 1, self.prepares(best.size))
        return self._plan("tree", best.size, best.round_s, best.tau, cloud_s, best.budget, best.grown)

    def _late(self, size: int, level_s: float, rows: int, ready: float) -> float:
        """Levels still to be drafted when a verdict comes. ready: observed ratio of levels ready to levels that the
        waiting time would allow.
        """
        ahead_s = level_s * self._present.slower
        return max(
            0.0, size - ready * Measured.levels_ready(size, ahead_s, self._present.exchange_s(rows, True))
        )

    def _level_s(self, budget: int, size: int) -> tuple[float, int]:
        """Seconds per level, and `grown`: a small tree is grown like a large one if that takes no longer."""
        own_s = self._present.draft_s(TreeSize(budget, size).beam)
        if budget == TREE_BUDGET:
            return own_s, 0
        large_s = self._present.draft_s(TreeSize(TREE_BUDGET, size).beam)
        return (large_s, TREE_BUDGET) if large_s <= own_s else (own_s, 0)

    def _stream(self, taus: Sequence[float]) -> Plan:
        """Several drafts in flight (PicoSpec): a fully accepted draft costs the slowest stage, any other a full round.
        """
        draft_s = self.measured.draft_s or 0.0

        def cost(size: int) -> tuple[float, float]:
            """Seconds and tokens per round."""
            drafting_s, exchange_s = size * draft_s, self._present.exchange_s(size + 1, True)
            verify_s = self._present.verify_s(size + 1, True)
            whole = taus[size] - taus[size - 1]
            steady_s = max(drafting_s, verify_s, exchange_s / STREAM_IN_FLIGHT)
            # A fully accepted draft yields no bonus token: the next draft in flight holds that token already.
            round_s = whole * steady_s + (1 - whole) * (drafting_s + exchange_s)
            return round_s / _ENDED_IN_TIME, taus[size] - whole

        costs = {size: cost(size) for size in SIZES}
        size = min(costs, key=lambda size: costs[size][0] / costs[size][1])
        round_s, tau = costs[size]
        return self._plan("stream", size, round_s, tau, self._present.cloud_s(size + 1, True))

    def _change_s(self, now: Plan, then: Plan) -> float:
        """Seconds that a change costs: cloud or link idle for about a round trip, and a draft starts from scratch."""
        if now.in_cloud == then.in_cloud:
            return 0.0
        drafting_s = then.size * (self.measured.draft_s or 0.0) if then.needs_model else 0.0
        return (self.measured.rtt_s or 0.0) + drafting_s

    def _words(self, best: Plan, plans: dict[Mode, Plan]) -> str:
        """For example: "tree 32x4: 258 ms a token; chain 5: 340; alone: 622; RTT 240 ms, draft 72 ms, verify 620 ms;
        tau 3.40 at 4".
        """
        measured = self.measured
        others = sorted((plan for plan in plans.values() if plan.mode != best.mode), key=_token_s)
        parts = [f"{best.label}: {_token_s(best) * 1e3:.3g} ms a token"]
        parts += [f"{plan.label}: {_token_s(plan) * 1e3:.3g}" for plan in others]
        verify_s = measured.cloud_forwards.measured_s(1)
        figures = {"RTT": measured.rtt_s, "draft": measured.draft_s, "verify": verify_s}
        parts.append(
            ", ".join(f"{name} {value * 1e3:.3g} ms" for name, value in figures.items() if value is not None)
        )
        parts.append(f"tau {measured.chain.expected(self._gamma):.2f} at {self._gamma}")
        return "; ".join(parts)


def _token_s(plan: Plan) -> float:
    return float("inf") if plan.token_s is None else plan.token_s
