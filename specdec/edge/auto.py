# SPDX-License-Identifier: Apache-2.0
"""The method `auto`: drives an answer by the controller's best plan, and changes plans between rounds.

While the cloud decodes alone, the edge is idle. It then makes *shadow drafts*, which are not sent but compared with the
tokens that arrive. So the benefit of drafting is known before anything depends on it, at no cost in time. The benefit
of lookups is measured in the rounds of every plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from specdec.draft import TreeSize
from specdec.drafting import ChainDrafter, OutcomeDrafter, Proposal
from specdec.drafting.length import LengthPolicy
from specdec.drafting.lookup.drafter import LookupDrafter
from specdec.edge.controller import ENOUGH_DRAFTS, MAX_CHAIN, TREE_BUDGET, Choice, Controller, Mode, Plan
from specdec.edge.rounds import Rounds
from specdec.edge.session import EdgeSession
from specdec.estimates.measured import Measured
from specdec.estimates.shadow_budget import ShadowBudget
from specdec.methods import METHODS, STREAM_IN_FLIGHT, Method

_SHADOW_DEPTH = 5
_SHADOW_TOKENS = 1.5
"""A shadow draft takes about as long as the cloud needs for this many tokens, if it has at least two levels then."""
_TOKENS_BETWEEN_PINGS = 8
_TOKENS_BETWEEN_NEAR_PINGS = 64
_TOKENS_BETWEEN_CHOICES = 4
_TOKENS_BETWEEN_HOPELESS = 16
"""Tokens between two choices, and the longer pause while drafting is hopeless. At first a choice follows every token.
"""
_POLICIES: dict[Mode, str] = {"lookup": "fixed", "chain": "marginal", "tree": "marginal", "stream": "worth"}
"""Length policy of each plan that drafts."""
_BELIEVED = 0.9
"""Share of the draft model's own chances that is assumed for its first drafts, before any was compared."""


def compared_at(proposal: Proposal) -> int:
    """The answer length at which a whole draft can be compared."""
    draft = proposal.draft
    return draft.base + max(len(proposal.guess), *(depth + 1 for depth in draft.depths()), 1)


def is_decided(proposal: Proposal, answer: Sequence[int]) -> bool:
    """Whether more of the answer would add no information: it is long enough, or deviates from the draft."""
    if len(answer) >= compared_at(proposal):
        return True
    said, line = answer[proposal.draft.base :], proposal.guess
    return (
        bool(said)
        and said[: len(line)] != list(line[: len(said)])
        and len(proposal.draft.tree.along(said)) < len(said)
    )


class ShadowDrafts:
    """Shadow drafts that wait for the target's tokens."""

    def __init__(self, drafter: OutcomeDrafter, measured: Measured, budget: ShadowBudget) -> None:
        self._drafter = drafter
        self._measured = measured
        self._budget = budget
        self._waiting: list[Proposal] = []
        self._base: int | None = None
        self._depth = _SHADOW_DEPTH

    @property
    def wanted(self) -> bool:
        """Whether a shadow draft is due or in progress."""
        return self._base is not None or self._budget.due

    def begin(self, answer: Sequence[int]) -> None:
        """Begin a shadow draft at the end of `answer`, unless one is in progress."""
        if self._base is None:
            self._base = len(answer)
            self._depth = self._how_deep()

    def step(self, answer: Sequence[int]) -> bool:
        """One forward pass of the shadow draft; False if the draft is complete."""
        self.begin(answer)
        before, depth, measured = list(answer[: self._base]), self._depth, self._measured
        self._drafter.shape, self._drafter.pays = TreeSize(TREE_BUDGET, depth), None
        if self._drafter.step(before, depth):
            return True
        proposal = self._drafter.take(before, depth, depth)
        if proposal.guess:
            self._waiting.append(proposal)
            if measured.chain.drafts < ENOUGH_DRAFTS:
                expect(measured, proposal)
        self._base = None
        return False

    def _how_deep(self) -> int:
        alone_s, draft_s = self._measured.alone_s, self._measured.draft_s
        if not alone_s or not draft_s:
            return _SHADOW_DEPTH
        return max(2, min(_SHADOW_DEPTH, round(_SHADOW_TOKENS * alone_s / draft_s)))

    def judge(self, answer: Sequence[int], over: bool) -> None:
        """Compare the drafts with the verified answer. over: the answer is complete."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not over and not is_decided(one, answer):
                self._waiting.append(one)
                continue
            said = list(answer[one.draft.base :])
            if said:
                depth = max(one.draft.depths(), default=-1) + 1
                path = one.draft.tree.along(said)
                self._measured.chain.compare(one.guess, said)
                self._measured.tree.add(min(len(said), depth), len(path))
                self._measured.nodes.add(one.ranks, one.draft.depths(), path)

    def forget(self) -> None:
        """Drop all shadow drafts: the drafter is needed otherwise."""
        self._waiting.clear()
        self._base = None


def expect(measured: Measured, proposal: Proposal) -> None:
    """Seed the acceptance estimates with slightly reduced chances from the draft model, until drafts were compared."""
    draft, chances = proposal.draft, [_BELIEVED * chance for chance in proposal.chances]
    depths = draft.depths()
    levels = [0.0] * (max(depths) + 1)
    for depth, chance in zip(depths, chances, strict=True):
        levels[depth] += chance
    measured.chain.expect([chances[node] for node in draft.tree.along(proposal.guess)])
    measured.tree.expect(levels)
    measured.nodes.expect(proposal.ranks, depths, chances)


class ShadowLookups:
    """Lookups made in the rounds of every plan to measure their acceptance. Each begins where the last one was refuted
    or ended, as rounds would. They take no forward pass.
    """

    def __init__(self, drafter: LookupDrafter, measured: Measured) -> None:
        self._drafter = drafter
        self._measured = measured
        self._open: Proposal | None = None

    def judge(self, answer: Sequence[int]) -> None:
        """Compare the open lookup with the verified answer, then look up what may follow. This also happens inside a
        chunk that arrived at once; otherwise wrong lookups would be undercounted.
        """
        known = len(answer)
        while True:
            base = 0
            if self._open is not None:
                ids = self._open.guess
                base = self._open.draft.base
                said = answer[base : base + max(len(ids), 1)]
                right = next((i for i, token in enumerate(said) if ids[i : i + 1] != (token,)), len(said))
                if right == len(said) < max(len(ids), 1):
                    return
                self._measured.looked_up(ids, said)
                base = min(max(base + right + 1, self._drafter.looked_up_at), known)
            self._drafter.step(answer[:base], MAX_CHAIN)
            self._open = self._drafter.take(answer[:base], MAX_CHAIN, MAX_CHAIN)


@dataclass(frozen=True)
class AutoDrafters:
    """The drafters of all plans. outcomes, chain: share one draft model. lookup: has consumed the prompt already."""

    outcomes: OutcomeDrafter
    chain: ChainDrafter
    lookup: LookupDrafter


class AutoRounds:
    """Drives one answer of the method `auto`."""

    def __init__(
        self,
        session: EdgeSession,
        drafters: AutoDrafters,
        method: Method,
        controller: Controller,
        clock: Callable[[], float],
        choice: Choice,
        prefill: Callable[[], None],
    ) -> None:
        """choice: the plan that the session was opened for (`opening`). prefill: prefills the draft model; called
        later, and only if needed, when the first plan does not use that model.
        """
        measured, drafter, lookup = controller.measured, drafters.outcomes, drafters.lookup
        self._session = session
        self._drafter = drafter
        self._controller = controller
        self._measured = measured
        self._clock = clock
        fixed, doubtful = LengthPolicy("fixed", 1), LengthPolicy("worth", 1)
        streaming = replace(METHODS["sd"], overlap="hinted-stream", in_flight=STREAM_IN_FLIGHT)
        self._rounds = Rounds(session, drafter, method, fixed, measured, clock)
        self._streaming = Rounds(session, drafters.chain, streaming, doubtful, measured, clock)
        self._looking_up = Rounds(session, lookup, METHODS["ngram"], fixed, measured, clock)
        self._shadows = ShadowDrafts(drafter, measured, controller.shadows)
        self._lookups = ShadowLookups(lookup, measured)
        self._prefill = None if choice.plan.needs_model else prefill
        self._drafting_s = 0.0
        self._shadowed = False
        self._knew_drafts = controller.knows_drafts
        self._went_on_s: float | None = None
        self._pinged_at = -_TOKENS_BETWEEN_PINGS
        self._considered_at = len(session.answer)
        self._choice = choice
        drafter.forget()
        self._adopt(choice)

    def advance(self) -> list[int]:
        """Do one step; returns the ids that it verified, if any. Raises what EdgeSession.receive raises."""
        session = self._session
        rounds, length = session.record.rounds, len(session.answer)
        plan = self._choice.plan
        if plan.in_cloud:
            chunk = self._listen()
        else:
            chunk = self._rounds_of(plan).advance()
        if session.record.rounds > rounds:
            self._lookups.judge(session.answer)
            self._came(plan, len(session.answer) - length)
            if not session.finished and not session.in_flight:
                self._reconsider()
        return chunk

    def _rounds_of(self, plan: Plan) -> Rounds:
        if plan.mode == "lookup":
            return self._looking_up
        return self._streaming if plan.mode == "stream" else self._rounds

    def _came(self, plan: Plan, gained: int) -> None:
        """A round has ended: compare it with the prediction. The first round of a plan includes the change, so it is
        not compared.
        """
        before, self._went_on_s = self._went_on_s, self._clock()
        drafting_s, self._drafting_s = self._drafting_s, 0.0
        self._controller.trial.came(
            not plan.in_cloud, gained, None if before is None else self._went_on_s - before
        )
        if before is None or not gained:
            self._shadowed = drafting_s > 0.0
            self._controller.shadows.begin()
            return
        took_s, cloud_s = self._went_on_s - before, self._session.record.last_cloud_s
        drafted = self._session.record.last_drafted > 0
        if plan.in_cloud:
            self._controller.shadows.heard(gained, took_s, drafting_s, took_s >= cloud_s, drafted)
        # For one round trip after a change, tokens still come from the previous plan.
        of_before = plan.in_cloud and drafted != (plan.mode == "cloud-sd")
        if not self._shadowed and cloud_s > 0.0 and not of_before:
            self._controller.came(plan, took_s, cloud_s, gained)
        # A forward pass still running was slowed by the draft, too, and messages that came meanwhile were queued.
        self._shadowed = drafting_s > 0.0 or (self._shadowed and took_s < cloud_s)

    def _listen(self) -> list[int]:
        """The cloud decodes alone: receive its tokens, and make shadow drafts meanwhile."""
        session = self._session
        chunk = session.poll() if self._shadows.wanted or self._is_to_prefill else session.receive()
        if chunk is None:
            self._draft_in_shadow()
            return []
        self._shadows.judge(session.answer, session.finished)
        since = len(session.answer) - self._pinged_at
        if since >= _TOKENS_BETWEEN_PINGS and since >= self._ping_pause and not session.finished:
            self._pinged_at = len(session.answer)
            session.ping()
        return chunk

    @property
    def _ping_pause(self) -> int:
        """Tokens between two pings. With a near cloud a ping may delay a forward pass that is hardly longer than it."""
        if self._measured.may_feel_drafts_unseen:
            return _TOKENS_BETWEEN_NEAR_PINGS
        return _TOKENS_BETWEEN_HOPELESS if self._controller.hopeless else _TOKENS_BETWEEN_PINGS

    def _draft_in_shadow(self) -> None:
        """One forward pass of a shadow draft, or the prefill."""
        if self._prefill is not None:
            if self._shadows.wanted:  # after a prefill the draft is always made, or the prefill would be wasted
                self._shadows.begin(self._session.answer)
            self._make_ready()
            return
        started = self._clock()
        if not self._shadows.step(self._session.answer):
            self._shadow_is_made()
            return
        ended = self._clock()
        self._measured.drafted_in_shadow(ended - started, self._drafter.rows_fed)
        self._has_drafted(ended - started)
        self._session.record.drafted("draft in the shadow", started, ended)

    def _has_drafted(self, seconds: float) -> None:
        """Account for drafting while the cloud decoded alone."""
        self._controller.shadows.drafted(seconds)
        self._drafting_s += seconds
        self._shadowed = True

    def _shadow_is_made(self) -> None:
        """A shadow draft is complete. Choose a plan as soon as drafts are known: until then the cloud decodes alone."""
        controller = self._controller
        controller.shadows.made(self._measured.chain.drafts > ENOUGH_DRAFTS, not controller.hopeless)
        if controller.knows_drafts and not self._knew_drafts and self._session.record.opened_s is not None:
            self._considered_at = -_TOKENS_BETWEEN_HOPELESS
            self._reconsider()
        self._knew_drafts = controller.knows_drafts

    @property
    def _is_to_prefill(self) -> bool:
        """Whether to prefill the draft model before a shadow draft is due: the edge is idle during the cloud's prefill.
        """
        if self._prefill is None or self._controller.hopeless or self._measured.may_feel_drafts_unseen:
            return False
        return self._controller.shadows.affordable

    def _make_ready(self) -> None:
        """Prefill the draft model, unless that is done."""
        if self._prefill is not None:
            prefill, self._prefill = self._prefill, None
            started = self._clock()
            prefill()
            self._has_drafted(self._clock() - started)

    def _reconsider(self) -> None:
        before = self._choice.plan
        length = len(self._session.answer)
        if length < self._considered_at + self._pause(before):
            return
        self._considered_at = length
        if not self._controller.may_leave(before):
            return
        remaining = self._session.room_after(self._session.answer) + 1
        choice = self._controller.choose(before, remaining)
        told = (before.mode, before.size) if before.in_cloud else None
        if choice.plan.in_cloud and (choice.plan.mode, choice.plan.size) != told:
            self._session.go_alone(choice.plan.size)
        self._adopt(choice)

    def _pause(self, now: Plan) -> int:
        """Tokens between two choices."""
        if not now.in_cloud:
            return _TOKENS_BETWEEN_CHOICES
        if not self._controller.knows_drafts:
            return 1
        controller = self._controller
        if controller.hopeless and now.mode == "alone" and not controller.lookups_promise:
            return _TOKENS_BETWEEN_HOPELESS  # not for "cloud-sd", whose draft size is chosen more often
        return _TOKENS_BETWEEN_CHOICES

    def _adopt(self, choice: Choice) -> None:
        plan, before = choice.plan, self._choice.plan
        self._choice = choice
        if plan.mode != before.mode:
            self._went_on_s = None
        self._session.record.explain(plan.label, choice.why, plan.promised_s, anew=self._went_on_s is None)
        if plan.in_cloud:
            return
        if plan.needs_model:
            self._make_ready()
        if before.mode != plan.mode:  # drafts have another shape
            self._shadows.forget()
            if "stream" in (before.mode, plan.mode):
                self._drafter.forget()
        streams = plan.mode == "stream"
        policy = LengthPolicy(_POLICIES[plan.mode], plan.size)
        prepares = self._controller.prepares(plan.size) and not self._measured.cloud_forwards.quiet_is_due
        self._rounds_of(plan).resize(policy, streams or prepares)
        self._drafter.shape, self._drafter.pays = plan.tree, self._rounds.nodes_worth_sending
        self._session.allow_in_flight(STREAM_IN_FLIGHT if streams else 1)


def opening(method: Method, choice: Choice) -> tuple[Method, int]:
    """The method to open a session with for a plan, and the cloud's own draft tokens per round."""
    plan: Plan = choice.plan
    if not plan.in_cloud:
        return method, 0
    return replace(method, cloud="stream", cloud_drafts=plan.mode == "cloud-sd"), plan.size
