# SPDX-License-Identifier: Apache-2.0
"""When to send drafted tokens before the draft is complete: the batch plan of PipeSD, as pure functions.

Vocabulary
    message_s: fixed cost of one message, in seconds (a of PipeSD).
    token_s: seconds that one token takes on the link (b).
    draft_s: seconds to draft one token (g).
    batch: the tokens of one message.

A batch is sent once its tokens are drafted and the previous batch has passed the link. With dp[j] the earliest time at
which j tokens have passed,

    dp[0] = 0,  dp[j] = min over i < j of max(dp[i], draft_s * j) + message_s + token_s * (j - i)

Small batches start the upload early; large batches pay for fewer messages. With 25 ms per message, 116 ms per token and
36 ms to draft one, 6 tokens are sent as (1, 1, 4). They have passed after 0.807 s; sent whole they would take 0.937 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

_LEAST_GAIN = 0.01
"""A plan must save at least this share of the time; otherwise the draft is sent whole."""
MOST_PLANNED = 32
"""Most tokens to plan for. The rest of a longer draft is sent in batches of the last size."""
_MOVED = 0.2
"""The plan is made anew if a cost changes by more than this share."""


def passed_s(batches: Sequence[int], message_s: float, token_s: float, draft_s: float) -> float:
    """Seconds from the start of drafting until the last of these batches has passed the link."""
    free_s, drafted = 0.0, 0
    for batch in batches:
        drafted += batch
        free_s = max(free_s, draft_s * drafted) + message_s + token_s * batch
    return free_s


def plan_batches(
    tokens: int, message_s: float, token_s: float, draft_s: float, most: int | None = None
) -> tuple[int, ...]:
    """Batch sizes with which `tokens` tokens pass the link earliest; one batch if more would gain little.

    most: most batches; None: no bound. Takes most * tokens ** 2 / 2 steps.
    """
    limit = tokens if most is None else min(most, tokens)
    if tokens < 1:
        return ()
    # row[j]: earliest time at which j tokens have passed in `count` batches; last[count - 1][j]: size of the last one.
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
    """message_s, token_s, draft_s: see the module's vocabulary."""

    message_s: float
    token_s: float
    draft_s: float

    def moved_from(self, before: UploadCosts) -> bool:
        """Whether a cost has changed so much that a plan made with `before` is out of date."""
        pairs = (
            (self.message_s, before.message_s),
            (self.token_s, before.token_s),
            (self.draft_s, before.draft_s),
        )
        return any(abs(now - then) > _MOVED * then for now, then in pairs)


class UploadPlan:
    """Applies the batch plan to one draft after another; makes a new plan when costs or draft lengths change."""

    def __init__(self) -> None:
        self._costs: UploadCosts | None = None
        self._tokens = 0
        self._most = 0
        self._batches: tuple[int, ...] = ()

    def due(self, drafted: int, tokens: int, most: int, costs: UploadCosts) -> int:
        """How many of the drafted tokens should have been sent by now; the others wait for a fuller batch.

        A plan of (1, 1, 4) gives 1, 2, 2, 2, 2, 6, 6, 6, 6, 10 for 1 to 10 drafted tokens.

        Args:
            drafted: Tokens drafted so far.
            tokens: Expected length of the draft; a longer one continues in batches of the last size.
            most: Most batches.
            costs: The present costs.

        Returns:
            The number of tokens; 0 if the draft should be sent whole.
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
