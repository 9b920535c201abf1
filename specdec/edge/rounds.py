# SPDX-License-Identifier: Apache-2.0
"""Decides what the edge does next: draft, send, draft ahead, or wait. The link is polled before each forward pass of
the draft model, so that a verdict never waits for a draft that it refutes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from specdec.drafting import ChainDrafter, Drafter, OutcomeDrafter, Proposal, TreeDrafter
from specdec.drafting.length import LengthPolicy, Prospects
from specdec.drafting.lookup.drafter import LookupDrafter
from specdec.drafting.tree_budget import nodes_worth_sending
from specdec.drafting.uploads import MOST_PLANNED, UploadCosts, UploadPlan
from specdec.edge.flight import DraftPreparation
from specdec.edge.session import EdgeSession
from specdec.estimates.measured import Measured
from specdec.methods import Method

_TREE_AHEAD = 2
"""A tree that is grown ahead becomes at most this many times as deep as a draft."""
_CHASED = 2.0
"""While the cloud decodes alone, the first draft is sent as it is after this many of the cloud's token times."""
LIKELIER = 0.4
"""An early exit that is right this often takes precedence over the draft: drafts after a token it contradicts wait."""


class Rounds:
    """Drives one answer of a method that drafts on the edge."""

    def __init__(
        self,
        session: EdgeSession,
        drafter: Drafter,
        method: Method,
        policy: LengthPolicy,
        measured: Measured,
        clock: Callable[[], float],
    ) -> None:
        self._session = session
        self._drafter = drafter
        self._predrafter = drafter if isinstance(drafter, OutcomeDrafter) else None
        if self._predrafter is not None:
            self._predrafter.prices.price_s = measured.draft_rows_s
            self._predrafter.prices.tried = measured.draft_forwards.was_told
        self._chain = drafter if isinstance(drafter, ChainDrafter | LookupDrafter) else None
        if isinstance(drafter, ChainDrafter):  # nothing can arrive that would end a draft early
            known = policy.name == "fixed" or policy.trigger is not None
            drafter.at_once = method.overlap == "idle" and method.leave == "whole" and known
        if isinstance(drafter, OutcomeDrafter | TreeDrafter):
            drafter.pays = self.nodes_worth_sending if method.nodes == "paid" else None
        telling = self._predrafter or self._chain
        if telling is not None:
            telling.tells_chances = policy.asks_chances
        self._method = method
        self._policy = policy
        self._measured = measured
        self._clock = clock
        self._uploads = UploadPlan()
        self._spent_s = 0.0
        self._is_ahead = False
        self._ready: int | None = None
        self._verdict_s: float | None = None
        self._promise = 0.0
        self._prepares = True
        self._side_draft: SideDraft | None = None
        if isinstance(drafter, ChainDrafter) and method.overlap == "hinted-stream":
            self._side_draft = SideDraft(session, drafter, measured, clock)

    def resize(self, policy: LengthPolicy, prepares: bool = True) -> None:
        """Set a new length policy; no draft may be in flight. prepares: draft while waiting for a verdict."""
        self._policy = policy
        self._prepares = prepares

    def nodes_worth_sending(self, chances: Sequence[float]) -> int:
        """How many nodes of the tree to be sent gain more than their rows cost (see Pays)."""
        measured = self._measured
        kept = [measured.kept.value * chance for chance in chances]
        rest_s = (measured.away_s or 0.0) + self._spent_s
        forwards = measured.cloud_forwards
        price_s = forwards.told_s if measured.verify_s is None else forwards.measured_s
        return nodes_worth_sending(kept, price_s, rest_s, measured.tokens_per_s)

    def advance(self) -> list[int]:
        """Do one step; returns the ids that it verified, if any. Raises what EdgeSession.receive raises."""
        session = self._session
        rounds = session.record.rounds
        chunk = None if session.quiet else session.poll()
        if chunk is None:
            if self._work():
                return []
            chunk = session.receive()
        if session.record.rounds > rounds:
            before, self._verdict_s = self._verdict_s, self._clock()
            if self._side_draft is not None:
                self._side_draft.came()
            if before is not None:
                self._measured.went_on(len(chunk), self._verdict_s - before)
            self._count_ahead()
        return chunk

    def _work(self) -> bool:
        """Do one drafting step, or send the draft; False if there is nothing to do but wait."""
        session = self._session
        if self._step_side_draft(LIKELIER):
            return True
        expected = session.expected
        room = min(session.room_after(expected), session.most_drafted)
        if session.may_send(expected):
            size = self._size(session.in_flight)
            depth = min(size, room)
            if not self._enough(expected, depth):
                self._send_part(expected, depth, room)
                if self._draft_on(expected, depth, room):
                    return True
            if session.in_flight and not self._drafter.drafted(expected):
                return False
            self._send(expected, size, room)
            return True
        if not session.in_flight or self._method.overlap == "idle" or not self._prepares:
            return False
        if self._predrafter is not None:
            return self._prepare(self._predrafter)
        guessed = int(session.brings_token)  # the first drafted token is a guess of the verdict's bonus token
        if self._chain is not None:
            if self._policy.ends_at(self._chain.chances(expected)[guessed:]) is not None:
                return self._step_side_draft()
            if isinstance(self._drafter, ChainDrafter) and self._drafter.drafted(expected) > guessed:
                assumed = [*expected, *self._drafter.predicted(expected)[:guessed]]
                self._send_part(assumed, self._policy.size(self._measured), room - guessed)
        drafted = self._step("draft ahead", expected, min(self._ahead(), room))
        self._is_ahead = self._is_ahead or drafted
        return drafted or self._step_side_draft()

    def _step_side_draft(self, least: float = 0.0) -> bool:
        """One forward pass of a side draft, if an exit expects another answer and is right at least `least` often."""
        if self._side_draft is None or not self._side_draft.step(self._policy.size(self._measured), least):
            return False
        self._is_ahead = True
        return True

    def _prepare(self, drafter: OutcomeDrafter) -> bool:
        """One forward pass for possible verdicts, if it will end before the verdict is due."""
        for hint in self._session.hints:
            drafter.hint(hint.last, hint.token, hint.confidence, hint.layer)
        self._session.hints.clear()
        started = self._clock()
        if self._verdict_comes_before(started):
            return False
        if not drafter.step_ahead(self._policy.usual(self._measured)):
            return False
        ended = self._clock()
        self._measured.drafted_ahead(ended - started, drafter.rows_fed)
        self._session.record.drafted("draft ahead", started, ended)
        return True

    def _verdict_comes_before(self, now: float) -> bool:
        """Whether the verdict is due before a forward pass that starts now would end."""
        since, forward_s = self._session.waiting_since, self._measured.ahead_s
        verify_s, rtt_s = self._measured.verify_s, self._measured.away_s
        if since is None or forward_s is None or verify_s is None or rtt_s is None:
            return False
        return now + forward_s > since + verify_s + rtt_s

    def _size(self, in_flight: int) -> int:
        """How deep the next draft should become before it is sent."""
        size = self._policy.size(self._measured)
        usual = self._policy.usual(self._measured)
        if self._method.leave == "tokens" and in_flight == 0 and self._cloud_is_done_first(usual):
            return 1  # the rest follows in one message
        return size

    def _cloud_is_done_first(self, size: int) -> bool:
        """Whether the cloud can judge a first token before the others are drafted. If not, sending it first would only
        delay the others.
        """
        draft_s, verify_s = self._measured.draft_s, self._measured.verify_s
        return draft_s is None or verify_s is None or verify_s <= (size - 1) * draft_s

    def _ahead(self) -> int:
        size = self._policy.size(self._measured)
        return size + 1 if self._method.tree is None else _TREE_AHEAD * size

    def _enough(self, expected: Sequence[int], depth: int) -> bool:
        drafted = self._drafter.drafted(expected)
        if drafted >= depth or not drafted:
            return drafted >= depth
        return (
            self._spent_s >= self._policy.cut_s(self._measured)
            or self._chases
            or self._ends_at(expected) is not None
        )

    def _send_part(self, expected: Sequence[int], depth: int, room: int) -> None:
        """Send the tokens that are due of the unfinished draft after `expected`, which becomes at most `depth` deep."""
        session, drafter, measured = self._session, self._drafter, self._measured
        if self._method.leave != "plan" or session.most_parts < 2 or not isinstance(drafter, ChainDrafter):
            return
        token_s, draft_s = measured.uplink.token_s, measured.draft_s
        if token_s is None or draft_s is None:
            return
        tokens = depth if self._policy.name == "fixed" else min(depth, round(measured.draft_tokens.value))
        costs = UploadCosts(measured.uplink.message_s, token_s, draft_s)
        ids = drafter.predicted(expected)[:room]
        due = self._uploads.due(len(ids), min(tokens, MOST_PLANNED), session.most_parts, costs)
        sent = session.sent_of(len(expected), ids)
        if sent < due <= len(ids) and (not sent or session.parts_left > 0):
            session.send_part(drafter.part(expected, sent, due), first=not sent)

    def _ends_at(self, expected: Sequence[int]) -> int | None:
        """How many drafted tokens to send because the trigger fires at the last of them; None: it does not fire."""
        if self._policy.trigger is None:
            return None
        drafter = self._predrafter or self._chain
        return None if drafter is None else self._policy.ends_at(drafter.chances(expected))

    def _prospects(self, expected: Sequence[int], depth: int, room: int) -> Prospects:
        if self._predrafter is not None:
            return self._predrafter.prospects(expected, depth, room)
        assert self._chain is not None, "trees without outcomes are not weighed"
        return Prospects.of_chain(self._chain.chances(expected))

    @property
    def _chases(self) -> bool:
        """Whether a cloud that decodes alone has produced several tokens while the draft to replace it was made."""
        alone_s = self._measured.alone_s
        return self._session.streams and alone_s is not None and self._spent_s > _CHASED * alone_s

    def _draft_on(self, expected: Sequence[int], depth: int, room: int) -> bool:
        """One more forward pass for the next draft, if it is worth its time."""
        if not self._policy.weighs or not self._drafter.drafted(expected):
            return self._step("draft", expected, depth)
        before = self._prospects(expected, depth, room)
        since_s = 0.0 if self._verdict_s is None else self._clock() - self._verdict_s
        if not self._policy.pays(before, since_s, self._measured) or not self._step("draft", expected, depth):
            self._promise = before.promise
            return False
        if before.frontier > 0.0:
            after = self._prospects(expected, depth, room)
            self._measured.grown.add(max(0.0, after.promise - before.promise) / before.frontier)
        return True

    def _step(self, name: str, expected: Sequence[int], size: int) -> bool:
        started = self._clock()
        if size < 1 or not self._drafter.step(expected, size):
            return False
        ended = self._clock()
        self._spent_s += ended - started
        forwards = 1 if self._chain is None else self._chain.forwards
        rows = 0 if self._predrafter is None else self._predrafter.rows_fed
        if forwards:
            self._measured.drafted((ended - started) / forwards, rows)
        self._session.record.drafted(name, started, ended, forwards)
        return True

    def _send(self, expected: Sequence[int], size: int, room: int) -> None:
        session = self._session
        self._is_ahead = session.in_flight > 0
        if self._method.overlap == "continue":  # tokens drafted ahead are sent with the rest
            size = max(size, self._drafter.drafted(expected))
        size = min(size, self._ends_at(expected) or size)
        if self._method.leave == "plan" and isinstance(self._drafter, ChainDrafter):  # with the parts sent before
            size = max(size, session.sent_of(len(expected), self._drafter.predicted(expected)))
        proposal = self._drafter.take(expected, size, room)
        proposal = replace(proposal, promise=proposal.promise or self._promise)
        self._promise = 0.0
        preparation = DraftPreparation(
            self._spent_s * 1e3,
            trigger=self._policy.trigger,
            looked_up=isinstance(self._drafter, LookupDrafter),
        )
        if self._ready is not None and self._verdict_s is not None:
            ready = min(self._ready, len(proposal.guess))
            sync_ms = (self._clock() - self._verdict_s) * 1e3
            if proposal.guess:
                session.record.predrafted(self._spent_s == 0.0)
            preparation = replace(preparation, ready=ready, sync_ms=sync_ms)
            self._ready = None
            if proposal.guess:
                self._count_ready(proposal, ready)
        session.send_draft(proposal, preparation)
        self._spent_s = 0.0

    def _count_ready(self, proposal: Proposal, ready: int) -> None:
        measured, size = self._measured, len(proposal.guess)
        if proposal.draft.is_chain:
            measured.redrafted.add(1 - ready / size)
        level_s, verify_s = measured.ahead_s, measured.verify_s
        if self._prepares and level_s is not None and verify_s is not None:
            ratio = ready / max(
                measured.levels_ready(size, level_s, (measured.away_s or 0.0) + verify_s), 0.1
            )
            (measured.chain_ready if proposal.draft.is_chain else measured.tree_ready).add(min(ratio, 3.0))

    def _count_ahead(self) -> None:
        """A verdict came: count whether it left the pre-draft valid."""
        session = self._session
        if self._predrafter is not None:
            if not session.finished and not session.in_flight:
                self._ready = self._predrafter.drafted(session.answer)
            return
        stands = session.in_flight > 0 or self._drafter.drafted(session.answer) > 0
        if self._is_ahead:
            session.record.predrafted(stands)
        self._is_ahead = session.in_flight > 1 or (
            session.in_flight == 1 and self._drafter.drafted(session.expected) > 0
        )


class SideDraft:
    """Drafts after the token that an early exit expects, while other drafts are in flight.

    A refuted draft invalidates everything drafted after it, and the next draft is late by its drafting time. An early
    exit often predicts the target's token halfway through the target's layers (FSD's hints, combined with PicoSpec's
    drafts in flight). A draft after that token stays valid if the verdict confirms it. One object per answer; one
    forward pass at a time.
    """

    def __init__(
        self, session: EdgeSession, drafter: ChainDrafter, measured: Measured, clock: Callable[[], float]
    ) -> None:
        self._session = session
        self._drafter = drafter
        self._measured = measured
        self._clock = clock
        self._expected: list[int] | None = None

    def step(self, size: int, least: float) -> bool:
        """One forward pass of a draft after the answer that exits expect. size: most tokens of that draft.

        Returns False if the exits agree with the draft, are right less often than `least`, or the side draft is done.
        """
        session, drafter = self._session, self._drafter
        hinted = session.hinted
        if hinted is None or drafter.agrees(hinted[0]):
            return False
        self._expected, confidence = hinted
        size = min(size, session.room_after(self._expected))
        if size < 1 or self._measured.foretold.against(confidence) < least:
            return False
        started = self._clock()
        if not drafter.step_aside(self._expected, size):
            return False
        ended = self._clock()
        self._measured.drafted_ahead(ended - started, 0)
        session.record.drafted("draft ahead", started, ended)
        return True

    def came(self) -> None:
        """A verdict came: count whether it is the one that the exit expected."""
        expected, self._expected = self._expected, None
        if expected is not None:
            self._measured.foretold.add(float(self._session.answer[: len(expected)] == expected))
