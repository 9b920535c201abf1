# SPDX-License-Identifier: Apache-2.0
"""Drafts in flight: what the edge assumes while it waits for verdicts, and how a verdict changes that.

A draft may be sent before the verdict on the previous one, assuming that the previous one is accepted whole. The first
verdict that says otherwise breaks the flight: both sides discard all later drafts, and the next draft carries a new
epoch to mark this (PicoSpec: interrupt and rollback). Drafts that waited in the cloud together are judged together, so
one verdict may settle several. Meanwhile early exits in the cloud send hints: the verdicts that they expect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from specdec.drafting import Draft, Proposal
from specdec.drafting.triggers import Trigger
from specdec.errors import ProtocolError
from specdec.estimates.measured import Measured
from specdec.link.convert import floats_to_wire, row_from_wire
from specdec.link.wire import HintDown, RowDown, SampledUp
from specdec.sampling.recoveries import Recovery
from specdec.sampling.recovery import EdgeRecovery
from specdec.verifying import path_to


@dataclass(frozen=True)
class DraftPreparation:
    """How a draft was made. draft_ms, ready and sync_ms are those of specdec.edge.stats.RoundStats.

    trigger: is told how many tokens of a chain were accepted. looked_up: made by a lookup, so it says nothing about the
    draft model.
    """

    draft_ms: float
    ready: int | None = None
    sync_ms: float | None = None
    trigger: Trigger | None = None
    looked_up: bool = False


@dataclass
class DraftInFlight:
    """A draft that was sent and has no verdict yet.

    Attributes:
        round: Number of its round.
        proposal: The draft as it was proposed.
        messages: For each message sent once the draft was complete: when it was sent (seconds) and its bytes.
        preparation: How it was made.
        recovery: State of a rejection that was received in part.
        received_bytes: Bytes of replies that did not end the round.
        hints: How many of these replies were hints.
        behind: Whether it was sent while another draft was in flight or the cloud decoded alone, so that it has to wait
            for a forward pass.
        parts: As `messages`, for parts sent before the draft was complete.
        voided: As `messages`, for parts of drafts that were abandoned before this one.
    """

    round: int
    proposal: Proposal
    messages: tuple[tuple[float, int], ...]
    preparation: DraftPreparation
    recovery: EdgeRecovery | None = None
    received_bytes: int = 0
    hints: int = 0
    behind: bool = False
    parts: tuple[tuple[float, int], ...] = ()
    voided: tuple[tuple[float, int], ...] = ()

    @property
    def draft(self) -> Draft:
        """The draft."""
        return self.proposal.draft

    @property
    def sent_s(self) -> float:
        """When the verdict was requested."""
        return self.messages[0][0]

    @property
    def sent_bytes(self) -> int:
        """Bytes of all its messages."""
        return sum(size for _, size in (*self.voided, *self.parts, *self.messages))

    @property
    def token_bytes(self) -> float:
        """Mean bytes sent per token."""
        return sum(size for _, size in (*self.parts, *self.messages)) / max(1, len(self.draft.ids))

    def was_foreseen(self, answer: Sequence[int]) -> bool:
        """Whether the verified answer already contradicts its first token, so that it needs no forward pass
        (Verifier.verify).
        """
        known = list(answer[self.draft.base : self.draft.base + 1])
        return self.draft.is_chain and bool(known) and list(self.draft.ids[:1]) != known

    def compare(self, verified: Sequence[int], accepted: int, measured: Measured) -> None:
        """Record in `measured` how many tokens of the draft, and of its likeliest chain, match the verified ones."""
        proposal, trigger = self.proposal, self.preparation.trigger
        if not self.preparation.looked_up:
            measured.chain.compare(proposal.guess, verified)
        if proposal.promise > 0.0:
            measured.kept.add(min(2.0, accepted / proposal.promise))
        if self.draft.is_chain:
            if trigger is not None and proposal.chances:
                trigger.judged(proposal.chances, accepted, measured.forward_price)
        else:
            depths = self.draft.depths()
            depth = max(depths, default=-1) + 1
            measured.tree.add(min(depth, accepted + 1), accepted)
            path = self.draft.tree.along(verified)[:accepted]
            measured.nodes.add(proposal.ranks, depths, path)

    def followed_by(self, other: DraftInFlight) -> DraftInFlight:
        """The two drafts joined into one chain, for one verdict."""
        return DraftInFlight(
            other.round,
            self.proposal.followed_by(other.proposal),
            self.messages + other.messages,
            replace(self.preparation, draft_ms=self.preparation.draft_ms + other.preparation.draft_ms),
            received_bytes=self.received_bytes + other.received_bytes,
            hints=self.hints + other.hints,
            behind=self.behind or other.behind,
            parts=self.parts + other.parts,
            voided=self.voided + other.voided,
        )


@dataclass
class LeavingDraft:
    """An unfinished draft of which parts were sent. ids: tokens of these parts. messages: as in DraftInFlight."""

    base: int
    epoch: int
    ids: list[int] = field(default_factory=list)
    messages: tuple[tuple[float, int], ...] = ()


class Flight:
    """The drafts of one session that wait for verdicts, oldest first."""

    def __init__(self) -> None:
        self._sent: deque[DraftInFlight] = deque()
        self.epoch = 0

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def oldest(self) -> DraftInFlight | None:
        """The draft whose verdict is due next."""
        return self._sent[0] if self._sent else None

    def expected(self, answer: Sequence[int]) -> list[int]:
        """The answer if all drafts in flight are accepted."""
        if not self._sent:
            return list(answer)
        expected = [*answer[: self._sent[0].draft.base]]
        for sent in self._sent:
            expected = [*expected[: sent.draft.base], *sent.proposal.guess]
        return expected

    def add(self, sent: DraftInFlight) -> None:
        """Add a draft that was sent."""
        self._sent.append(sent)

    def judged(self, round_: int) -> DraftInFlight | None:
        """Join all drafts up to `round_` into one, because one verdict judges them; None if the verdict is stale."""
        joined = self.up_to(round_)
        if joined is not None:
            while self._sent.popleft().round != round_:
                pass
            self._sent.appendleft(joined)
        return joined

    def up_to(self, round_: int) -> DraftInFlight | None:
        """All drafts up to `round_`, joined into one; None if that round is not in flight."""
        joined: DraftInFlight | None = None
        for sent in self._sent:
            joined = sent if joined is None else joined.followed_by(sent)
            if sent.round == round_:
                return joined
        return None

    def settle(self, last: int, token: int | None) -> list[DraftInFlight]:
        """Apply the verdict on the oldest draft: the path to node `last` is accepted and `token` follows (None: the
        next draft follows).

        The flight breaks unless everything was accepted and the next draft begins with `token`. Returns the drafts that
        are invalidated.
        """
        sent = self._sent.popleft()
        whole = last == len(sent.draft.ids)
        follows = token is None or not self._sent or self._sent[0].draft.ids[:1] == (token,)
        if whole and follows:
            return []
        refuted = list(self._sent)
        self._sent.clear()
        self.epoch += 1
        return refuted

    def clear(self) -> None:
        """Forget all drafts; a session begins."""
        self._sent.clear()
        self.epoch = 0


class PendingHints(list[HintDown]):
    """Hints of one session that are not used yet; cleared by every verdict."""

    def take(self, flight: Flight, message: HintDown, size: int) -> bool:
        """Store a hint about drafts in flight; returns False for any other hint, which is too late. size: its bytes."""
        sent, about = flight.oldest, flight.up_to(message.round)
        if sent is None or about is None or message.last > len(about.draft.ids):
            return False
        sent.hints += 1
        sent.received_bytes += size
        self.append(message)
        return True

    def expected(self, flight: Flight, answer: Sequence[int]) -> tuple[list[int], float] | None:
        """The answer that the deepest exit so far expects after the next verdict, and its confidence; None without a
        hint about drafts in flight.
        """
        if not self:
            return None
        hint = max(self, key=lambda hint: (hint.layer, hint.confidence))
        sent = flight.up_to(hint.round)
        if sent is None:
            return None
        path = [sent.draft.ids[node] for node in path_to(sent.draft, hint.last)]
        return [*answer[: sent.draft.base], *path, hint.token], hint.confidence


class RejectionRecovery:
    """The rejections of one answer, with rejection sampling: which part of q is sent, and which token is recovered.

    If the cloud cannot draw the recovered token, it sends its row in parts. The token is then recovered here and sent
    with the next draft. pending: the draft whose rejection was received in part; it survives a lost link.
    """

    def __init__(self) -> None:
        self.pending: DraftInFlight | None = None
        self._kind = Recovery.NOISE
        self._seed = 0
        self._fix: int | None = None

    def open(self, kind: Recovery, seed: int) -> None:
        """A session opens."""
        self._kind, self._seed, self._fix = kind, seed, None

    @property
    def needed(self) -> bool:
        """False if both sides use shared noise, so that nothing is rejected at random."""
        return self._kind is not Recovery.NOISE

    def message(self, session: int, round_: int, draft: Draft, q: Tensor, epoch: int) -> SampledUp:
        """A draft, with the part of q that the cloud needs. q: rows float32 [k, vocab] its k ids were sampled from."""
        ids = list(draft.ids)
        told = q
        if self._kind is not Recovery.CLOUD:
            told = q.gather(1, torch.tensor(ids, dtype=torch.long, device=q.device)[:, None])[:, 0]
        return SampledUp(session, round_, draft.base, ids, floats_to_wire(told), self._fix, epoch)

    def told(self) -> None:
        """A draft was sent, and the recovered token with it."""
        self._fix = None

    def take(self, sent: DraftInFlight, message: RowDown) -> int | None:
        """The token recovered after the rejection of `sent`; None if more of the row is needed first.

        Raises ProtocolError for a rejection that does not fit the draft.
        """
        q = sent.proposal.q
        if q is None or message.last >= len(sent.draft.ids):
            raise ProtocolError(f"a verdict rejects token {message.last} of a draft of {len(sent.draft.ids)}")
        if sent.recovery is None:
            position = sent.draft.base + message.last
            sent.recovery = EdgeRecovery(q[message.last].cpu(), self._seed, position)
        token = sent.recovery.token(row_from_wire(message))
        if token is None:
            self.pending = sent
        else:
            self._fix = token
        return token

    def settled(self) -> None:
        """A verdict is complete."""
        self.pending = None
