# SPDX-License-Identifier: Apache-2.0
"""The target's side of an answer with standard rejection sampling: drafts come with their probabilities under q.

Exact for every recovery except TRUNCATED. Every random number is a function of (seed, purpose, position). Chains only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from specdec.drafting import Draft, check_draft, select_nodes, usable_nodes
from specdec.errors import ProtocolError
from specdec.models import LoadedModel
from specdec.models.plans import Plan, planned
from specdec.options import GenerationOptions
from specdec.sampling import process_logits
from specdec.sampling.recoveries import Recovery
from specdec.sampling.recovery import TargetRow, describe_row
from specdec.sampling.rejection import count_accepted, draw, draw_on_device, recovery_distribution
from specdec.sampling.uniform import Purpose, uniform
from specdec.verifying.verifier import Verifier


@dataclass(frozen=True)
class SampledVerdict:
    """accepted: number of accepted draft tokens. token: the next token; None if the edge draws it from `row`, or if all
    are accepted and the next draft continues them.
    """

    accepted: int
    token: int | None
    row: TargetRow | None = None


class SampledVerifier(Verifier):
    """One answer in progress, sampled at temperature > 0."""

    def __init__(
        self,
        model: LoadedModel,
        options: GenerationOptions,
        recovery: Recovery,
        recovery_size: int,
        ahead: bool = False,
    ) -> None:
        """ahead: a fully accepted draft yields no bonus token, because the next draft continues it."""
        super().__init__(model, options)
        if options.temperature <= 0.0 or recovery is Recovery.NOISE:
            raise ProtocolError("rejection sampling needs a temperature above 0 and a way to recover")
        if recovery in (Recovery.SAMPLES, Recovery.SPARSE, Recovery.TRUNCATED) and recovery_size < 1:
            raise ProtocolError("recovery from a part of a row needs the size of that part")
        self._recovery = recovery
        self._recovery_size = recovery_size
        self._ahead = ahead
        self._owed: Tensor | None = None
        self._batches = 0
        self.rejected_at = 0

    def _pick(self, row: Tensor, position: int) -> int:
        return self._draw(self._probabilities(row[None])[0], Purpose.BONUS, position)

    @planned
    def verify_sampled(self, draft: Draft, q: Tensor, fix: int | None) -> Plan[SampledVerdict]:
        """Judge a chain. q: float32 [k], probabilities of its ids, or [k, vocab], full rows.

        fix: the token that the edge recovered after the previous rejection. Raises ProtocolError for arguments that do
        not fit.
        """
        check_draft(draft, self._model.vocab_size)
        self._take_fix(fix, draft.base)
        known = self._known_of(draft)
        whole_rows = q.shape == (len(draft.ids), self._model.vocab_size)
        if not whole_rows and (self._recovery is Recovery.CLOUD or q.shape != (len(draft.ids),)):
            raise ProtocolError(
                f"a draft of {len(draft.ids)} tokens came with probabilities of another shape"
            )
        nodes = usable_nodes(draft, self.limit - draft.base - 1, self._model.never_drafted)
        ids = select_nodes(draft, nodes).ids
        prefix = self.answer[: draft.base]
        q_x = _of_tokens(q, ids) if q.dim() == 2 else q[: len(ids)].tolist()
        if self._recovery is Recovery.CLOUD:
            q = q.to(self._model.device)  # before the pass, because a copy after it would wait for it
        yield from self._plan_return()
        rows = yield from self._cursor.rows.plan(prefix, ids)
        p = self._probabilities(rows)
        for index, token in enumerate(known):  # verified tokens that the edge did not know yet
            if index >= len(ids) or ids[index] != token:
                self.epoch += index < len(draft.ids)
                return SampledVerdict(index, token)
        verdict = self._judge(draft, ids, p, q, q_x, len(known))
        if verdict.token is not None:
            yield from self._plan_jump()
        self.epoch += verdict.accepted < len(draft.ids)
        return verdict

    def more(self) -> TargetRow:
        """More of the target's row at the last rejection. Raises ProtocolError if there was no rejection."""
        if self._owed is None:
            raise ProtocolError("more of a row was requested, but nothing was rejected")
        self._batches += 1
        return self._describe(self._owed)

    def _judge(
        self, draft: Draft, ids: tuple[int, ...], p: Tensor, q: Tensor, q_x: list[float], known: int
    ) -> SampledVerdict:
        """ids: the usable ids of the draft. p: the target's rows before and after them. q_x: their probabilities under
        q. known: how many of them are verified already.
        """
        first = draft.base
        prefix = self.answer[:first]
        numbers = [self._number(Purpose.ACCEPT, first + index) for index in range(known, len(ids))]
        decided = None
        if p.device.type == "cpu":
            accepted = known + count_accepted(_of_tokens(p, ids)[known:], q_x[known:], numbers)
        else:
            decided = self._decide(first, ids, p, q, q_x, [-1.0] * known + numbers)
            accepted = decided.accepted
        eos = [index for index in range(known, accepted) if ids[index] in self._model.eos_token_ids]
        if eos:
            accepted, token = eos[0], ids[eos[0]]
        elif self._ahead and ids and accepted == len(draft.ids):
            self.answer = [*prefix, *ids]
            return SampledVerdict(accepted, None)
        elif accepted == len(ids):
            token = decided.token if decided else self._draw(p[accepted], Purpose.BONUS, first + accepted)
        elif self._recovery is Recovery.CLOUD and decided:
            token = decided.token
        elif self._recovery is Recovery.CLOUD:
            residual = recovery_distribution(p[accepted], q[accepted])
            token = self._draw(residual, Purpose.RECOVER, first + accepted)
        else:
            self.answer = [*prefix, *ids[:accepted]]
            row = decided.row if decided and decided.row is not None else p[accepted]
            self._owed, self._batches, self.rejected_at = row, 0, accepted
            return SampledVerdict(accepted, None, self._describe(row))
        self.answer = [*prefix, *ids[:accepted], token]
        return SampledVerdict(accepted, token)

    def _decide(
        self, first: int, ids: tuple[int, ...], p: Tensor, q: Tensor, q_x: list[float], numbers: list[float]
    ) -> Decided:
        """The decisions of `_judge`, computed on p's device to avoid reads."""
        in_cloud = self._recovery is Recovery.CLOUD
        behind = Purpose.RECOVER if in_cloud else Purpose.BONUS
        draws = [self._number(behind, first + index) for index in range(len(ids))]
        draws.append(self._number(Purpose.BONUS, first + len(ids)))
        return decide(p, ids, q_x, q if in_cloud else None, numbers, draws, with_row=not in_cloud)

    def _take_fix(self, fix: int | None, base: int) -> None:
        if (self._owed is not None) != (fix is not None):
            raise ProtocolError("a recovered token must be sent after a rejection, and only then")
        if fix is None:
            return
        if not 0 <= fix < self._model.vocab_size or base != len(self.answer) + 1:
            raise ProtocolError(
                "the edge's token after a rejection has an impossible id or position: use one release on both sides"
            )
        self.answer.append(fix)
        self._owed = None

    def _describe(self, p: Tensor) -> TargetRow:
        position = len(self.answer)
        return describe_row(
            p.cpu(), self._recovery, self._recovery_size, self._options.seed, position, self._batches
        )

    def _probabilities(self, rows: Tensor) -> Tensor:
        return process_logits(rows, self._options).exp()

    def _number(self, purpose: Purpose, position: int) -> float:
        return uniform(self._options.seed, purpose, position)

    def _draw(self, distribution: Tensor, purpose: Purpose, position: int) -> int:
        return draw(distribution, self._number(purpose, position))


def _of_tokens(rows: Tensor, ids: tuple[int, ...]) -> list[float]:
    """The probability of one token per row, from the first rows [n, vocab]; read in one transfer."""
    places = torch.tensor(ids, dtype=torch.long, device=rows.device)
    return rows[: len(ids)].gather(1, places[:, None])[:, 0].tolist()


class Decided(NamedTuple):
    """accepted: number of accepted tokens. token: drawn after them; meaningless if the edge draws it. row: the target's
    row there, float32 [vocab] on the CPU, if requested.
    """

    accepted: int
    token: int
    row: Tensor | None


def decide(
    p: Tensor,
    ids: Sequence[int],
    q_x: Sequence[float],
    q: Tensor | None,
    uniforms: Sequence[float],
    draws: Sequence[float],
    with_row: bool,
) -> Decided:
    """Judge a sampled chain of k tokens on the target's device, with one read.

    On a GPU every read stalls the program. Reading the number of accepted tokens before drawing the next one would take
    two reads, so the distribution to draw from is selected on the device. The arithmetic is that of
    `specdec.sampling.rejection` in the same number types, so decisions equal those of a CPU for the same rows.

    Args:
        p: The target's rows, float32 [k + 1, vocab].
        ids: The drafted ids [k].
        q_x: Their probabilities under q [k].
        q: The draft's rows, float32 [k or more, vocab] on p's device; None: the recovered token is not drawn here.
        uniforms: One number per token [k] for its acceptance; negative: accept in any case.
        draws: Numbers [k + 1]; number n draws the token after n accepted ones.
        with_row: Also return the target's row after the accepted tokens.
    """
    count, device = len(ids), p.device
    # p / inf is 0, and no number is below it: a token with q = 0 is never accepted.
    told = [[value if value > 0.0 else float("inf") for value in q_x], [*uniforms]]
    chances, numbers = torch.tensor(told, dtype=torch.float64, device=device).view(2, count)
    places = torch.tensor([*ids], dtype=torch.long, device=device)
    p_x = p[:count].gather(1, places[:, None])[:, 0].double()
    accepted = (numbers < p_x / chances).long().cumprod(0).sum()[None]
    row = p.index_select(0, accepted)[0]
    distribution = row
    if q is not None and count:
        rejected = recovery_distribution(row, q.index_select(0, accepted.clamp(max=count - 1))[0])
        distribution = torch.where(accepted == count, row.double(), rejected)
    number = torch.tensor([*draws], dtype=torch.float64, device=device).index_select(0, accepted)
    found = torch.cat([accepted, draw_on_device(distribution, number)]).int()
    if not with_row:
        kept, token = found.tolist()
        return Decided(kept, token, None)
    read = torch.cat(
        [found.view(torch.float32), row]
    ).cpu()  # integers as raw bits, so that one copy suffices
    kept, token = read[:2].view(torch.int32).tolist()
    return Decided(kept, token, read[2:])
