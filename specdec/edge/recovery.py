"""Rejection sampling seen from the edge: what goes up of q, and which token follows a rejection.

Where the cloud cannot draw that token it tells of its row, one part after another; the token recovered here goes up
with the next draft.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specdec.drafting import Draft
from specdec.edge.flight import DraftInFlight
from specdec.errors import ProtocolError
from specdec.link.convert import floats_to_wire, row_from_wire
from specdec.link.wire import RowDown, SampledUp
from specdec.sampling.recoveries import Recovery
from specdec.sampling.recovery import EdgeRecovery


class RejectionRecovery:
    """The rejections of one answer. pending: the draft whose rejection was seen in part; a lost link leaves it."""

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
