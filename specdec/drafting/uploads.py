# SPDX-License-Identifier: Apache-2.0
"""When do drafted tokens leave before the draft is complete? The batch plan of PipeSD, as pure functions.

Vocabulary
    message_s: what one message costs the link, whatever its size (a of PipeSD).
    token_s: what one token takes on the link (b).
    draft_s: what it takes to draft one token (g).
    batch: tokens that leave in one message.

A batch leaves once its tokens are drafted and the link has passed the batch before it. With dp[j] the earliest time at
which j tokens have passed,

    dp[0] = 0,  dp[j] = min over i < j of max(dp[i], draft_s * j) + message_s + token_s * (j - i)

Small batches start the upload early, large ones pay for fewer messages. With 25 ms a message, 116 ms a token and 36 ms
to draft one, 6 tokens leave as (1, 1, 4): they have passed after 0.807 s. Sent whole they would take 0.937 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

_LEAST_GAIN = 0.01
"""A plan that saves a smaller share of the time than this is not worth its messages: the draft leaves whole."""
MOST_PLANNED = 32
"""Tokens that are planned for at once: the rest of a longer draft goes on in batches as large as the last."""
_MOVED = 0.2
"""Costs that have changed by a larger share than this are planned for anew."""


def passed_s(batches: Sequence[int], message_s: float, token_s: float, draft_s: float) -> float:
    """When the last of these batches has passed the link, in seconds since drafting began."""
    free_s, drafted = 0.0, 0
    for batch in batches:
        drafted += batch
        free_s = max(free_s, draft_s * drafted) + message_s + token_s * batch
    return free_s


def plan_batches(
    tokens: int, message_s: float, token_s: float, draft_s: float, most: int | None = None
) -> tuple[int, ...]:
    """Batch sizes with which this many tokens have passed the link earliest; one batch where more would gain little.

    most: batches, at most. Takes most * tokens ** 2 / 2 steps.
    """
    limit = tokens if most is None else min(most, tokens)
    if tokens < 1:
        return ()
    # earliest[k][j]: when j tokens have passed in k batches, and how many of them are in the last one.
    never = float("inf")
    row: list[float] = [0.0, *[never] * tokens]
    last: list[list[int]] = []
    best_s, best = never, 1
    for count in range(1, limit + 1):
        following, sizes = [never] * (tokens + 1), [0] * (tokens + 1)
        for end in range(count, tokens + 1):
            drafted_s = draft_s * end
            for start in range(count - 1, end):
                took_s = max(row[start], drafted_s) + message_s + token_s * (end - start)
                if took_s < following[end]:
                    following[end], sizes[end] = took_s, end - start
        row = following
        last.append(sizes)
        if row[tokens] < best_s * (1.0 - 1e-9):
            best_s, best = row[tokens], count
    whole_s = passed_s((tokens,), message_s, token_s, draft_s)
    if best_s > (1.0 - _LEAST_GAIN) * whole_s:
        return (tokens,)
    batches: list[int] = []
    left = tokens
    for sizes in reversed(last[:best]):
        batches.append(sizes[left])
        left -= sizes[left]
    return tuple(reversed(batches))


@dataclass(frozen=True)
class UploadCosts:
    """message_s, token_s, draft_s: see above."""

    message_s: float
    token_s: float
    draft_s: float

    def moved_from(self, before: UploadCosts) -> bool:
        """Whether one of the costs has changed so much that a plan by those before no longer holds."""
        pairs = (
            (self.message_s, before.message_s),
            (self.token_s, before.token_s),
            (self.draft_s, before.draft_s),
        )
        return any(abs(now - then) > _MOVED * then for now, then in pairs)


class UploadPlan:
    """Follows one draft after another by the plan; plans anew when the costs move, or the length of drafts does."""

    def __init__(self) -> None:
        self._costs: UploadCosts | None = None
        self._tokens = 0
        self._most = 0
        self._batches: tuple[int, ...] = ()

    def due(self, drafted: int, tokens: int, most: int, costs: UploadCosts) -> int:
        """How many of the drafted tokens of a draft have left by now; the others wait for a fuller batch.

        tokens: how long the draft is likely to become; a longer one goes on in batches as large as the last. most:
        batches. A plan of (1, 1, 4) answers 1, 2, 2, 2, 2, 6, 6, 6, 6, 10 for 1 to 10 drafted tokens.
        """
        stale = self._costs is None or costs.moved_from(self._costs)
        if stale or tokens != self._tokens or most != self._most:
            self._costs, self._tokens, self._most = costs, tokens, most
            self._batches = plan_batches(tokens, costs.message_s, costs.token_s, costs.draft_s, most)
        if len(self._batches) < 2:
            return 0
        if drafted >= tokens:
            return tokens + (drafted - tokens) // self._batches[-1] * self._batches[-1]
        return max((end for end in accumulate(self._batches) if end <= drafted), default=0)
