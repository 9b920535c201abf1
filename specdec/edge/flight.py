# SPDX-License-Identifier: Apache-2.0
"""Drafts on their way: what the edge assumes while verdicts are out, and what a verdict does to that.

A draft may leave before the verdict on the one before it is known, assuming that all of that will be
accepted. The first verdict that says otherwise breaks the flight: everything behind it counts for nothing, on
both sides, and the next draft carries a new epoch so that the cloud knows (PicoSpec: interrupt and
rollback). Drafts that waited in the cloud together are judged together: one verdict may settle several.
Early exits in the cloud send hints meanwhile: what they expect the verdict to be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from specdec.draft import promise_of
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
    """How a draft came about: how long it took, and as in specdec.edge.stats.RoundStats.

    promise: tokens of it that the draft model expects to be accepted; 0 if not asked for. ranks: of a tree's nodes,
    0 is the likeliest; none where it was not reported. chances: of a chain's tokens, for
    `trigger`, which is told the result of them. looked_up: it says nothing of the draft model.
    """

    draft_ms: float
    promise: float = 0.0
    ready: int | None = None
    sync_ms: float | None = None
    ranks: tuple[int, ...] = ()
    chances: tuple[float, ...] = ()
    trigger: Trigger | None = None
    looked_up: bool = False

    def followed_by(self, other: DraftPreparation) -> DraftPreparation:
        """Of both as one chain."""
        draft_ms, chances = self.draft_ms + other.draft_ms, self.chances + other.chances
        promise = promise_of(chances) if chances else self.promise
        return replace(self, draft_ms=draft_ms, promise=promise, chances=chances)


@dataclass
class DraftInFlight:
    """A draft on its way. guess: the ids it comes to if all goes well. q: its rows, with rejection sampling.

    messages: when each of its messages left (seconds) and its size; parts: the same of those that had left before the
    draft was complete; voided: of parts of drafts that were given up for it. received_bytes: of replies that did not
    end it. hints: how many of those came from early exits. behind: it left while another was on its way, or while the
    cloud went on alone, whose forward it has to wait for.
    """

    round: int
    draft: Draft
    guess: tuple[int, ...]
    messages: tuple[tuple[float, int], ...]
    preparation: DraftPreparation
    q: Tensor | None = None
    recovery: EdgeRecovery | None = None
    received_bytes: int = 0
    hints: int = 0
    behind: bool = False
    parts: tuple[tuple[float, int], ...] = ()
    voided: tuple[tuple[float, int], ...] = ()

    @property
    def proposal(self) -> Proposal:
        """The same as it was proposed."""
        return Proposal(self.draft, self.guess, self.q)

    @property
    def sent_s(self) -> float:
        """When a verdict was asked for."""
        return self.messages[0][0]

    @property
    def sent_bytes(self) -> int:
        """Bytes of all its messages."""
        return sum(size for _, size in (*self.voided, *self.parts, *self.messages))

    @property
    def token_bytes(self) -> float:
        """Bytes that one of its tokens took."""
        return sum(size for _, size in (*self.parts, *self.messages)) / max(1, len(self.draft.ids))

    def was_foreseen(self, answer: Sequence[int]) -> bool:
        """Whether it is judged without a forward: what is verified already begins otherwise (see Verifier.verify)."""
        known = list(answer[self.draft.base : self.draft.base + 1])
        return self.draft.is_chain and bool(known) and list(self.draft.ids[:1]) != known

    def compare(self, verified: Sequence[int], accepted: int, measured: Measured) -> None:
        """Count how far the draft, and the likeliest chain in it, went along with what is verified."""
        if not self.preparation.looked_up:
            measured.chain.compare(self.guess, verified)
        if self.preparation.promise > 0.0:
            measured.kept.add(min(2.0, accepted / self.preparation.promise))
        if self.preparation.trigger is not None and self.preparation.chances:
            self.preparation.trigger.judged(self.preparation.chances, accepted, measured.forward_price)
        if not self.draft.is_chain:
            depths = self.draft.depths()
            depth = max(depths, default=-1) + 1
            measured.tree.add(min(depth, accepted + 1), accepted)
            path = self.draft.tree.along(verified)[:accepted]
            measured.nodes.add(self.preparation.ranks, depths, path)

    def followed_by(self, other: DraftInFlight) -> DraftInFlight:
        """Both as one chain, for one verdict."""
        return DraftInFlight(
            other.round,
            Draft(self.draft.base, self.draft.ids + other.draft.ids),
            self.guess + other.guess,
            self.messages + other.messages,
            self.preparation.followed_by(other.preparation),
            None if self.q is None or other.q is None else torch.cat([self.q, other.q]),
            received_bytes=self.received_bytes + other.received_bytes,
            hints=self.hints + other.hints,
            behind=self.behind or other.behind,
            parts=self.parts + other.parts,
            voided=self.voided + other.voided,
        )


@dataclass
class LeavingDraft:
    """A draft of which parts have left, and that goes on. ids: those of the parts. messages: as in DraftInFlight."""

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
        """The draft whose verdict comes next."""
        return self._sent[0] if self._sent else None

    def expected(self, answer: Sequence[int]) -> list[int]:
        """The answer if everything on its way is accepted."""
        if not self._sent:
            return list(answer)
        expected = [*answer[: self._sent[0].draft.base]]
        for sent in self._sent:
            expected = [*expected[: sent.draft.base], *sent.guess]
        return expected

    def add(self, sent: DraftInFlight) -> None:
        """A draft left."""
        self._sent.append(sent)

    def judged(self, round_: int) -> DraftInFlight | None:
        """What a verdict on `round_` is about: all drafts up to that one, from now on as one; None if it is stale."""
        joined = self.up_to(round_)
        if joined is not None:
            while self._sent.popleft().round != round_:
                pass
            self._sent.appendleft(joined)
        return joined

    def up_to(self, round_: int) -> DraftInFlight | None:
        """All drafts up to that round as one; None where that is not on its way."""
        joined: DraftInFlight | None = None
        for sent in self._sent:
            joined = sent if joined is None else joined.followed_by(sent)
            if sent.round == round_:
                return joined
        return None

    def settle(self, last: int, token: int | None) -> list[DraftInFlight]:
        """The verdict on the oldest draft: its nodes up to `last` stay and `token` follows (None: the next draft).

        The flight breaks unless all was accepted and the next draft goes on with that very token. Returns the
        drafts that were on their way for nothing.
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
        """Nothing is on its way any more; a session begins."""
        self._sent.clear()
        self.epoch = 0


class PendingHints(list[HintDown]):
    """Those that nothing took, of one session; cleared by every verdict."""

    def take(self, flight: Flight, message: HintDown, size: int) -> bool:
        """A hint about the draft that goes through the target, or about several that wait there as one; False where it
        is about any other: then it comes too late. size: its bytes.
        """
        sent, about = flight.oldest, flight.up_to(message.round)
        if sent is None or about is None or message.last > len(about.draft.ids):
            return False
        sent.hints += 1
        sent.received_bytes += size
        self.append(message)
        return True

    def expected(self, flight: Flight, answer: Sequence[int]) -> tuple[list[int], float] | None:
        """The answer as the deepest exit so far expects it to be after the next verdict, and how sure it is; None where
        no exit has said anything of what is on its way.
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
    """The rejections of one answer, with rejection sampling: what goes up of q, and which token follows a rejection.

    Where the cloud cannot draw that token it reports its row, one part after another; the token recovered here goes up
    with the next draft. pending: the draft whose rejection was seen in part; a lost link leaves it.
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
        """False where both sides pick by shared noise, and nothing is rejected by chance."""
        return self._kind is not Recovery.NOISE

    def message(self, session: int, round_: int, draft: Draft, q: Tensor, epoch: int) -> SampledUp:
        """A draft with what the cloud needs of q, the rows float32 [k, vocab] that its k ids were sampled from."""
        ids = list(draft.ids)
        told = q
        if self._kind is not Recovery.CLOUD:
            told = q.gather(1, torch.tensor(ids, dtype=torch.long, device=q.device)[:, None])[:, 0]
        return SampledUp(session, round_, draft.base, ids, floats_to_wire(told), self._fix, epoch)

    def told(self) -> None:
        """A draft left: the cloud has the recovered token."""
        self._fix = None

    def take(self, sent: DraftInFlight, message: RowDown) -> int | None:
        """The token that follows the rejection of `sent`, or None where more of the row is needed first.

        Raises ProtocolError for a rejection that does not fit.
        """
        if sent.q is None or message.last >= len(sent.draft.ids):
            raise ProtocolError(f"a verdict rejects token {message.last} of a draft of {len(sent.draft.ids)}")
        if sent.recovery is None:
            position = sent.draft.base + message.last
            sent.recovery = EdgeRecovery(sent.q[message.last].cpu(), self._seed, position)
        token = sent.recovery.token(row_from_wire(message))
        if token is None:
            self.pending = sent
        else:
            self._fix = token
        return token

    def settled(self) -> None:
        """A verdict is complete."""
        self.pending = None
