# SPDX-License-Identifier: Apache-2.0
"""What the edge measures while it decodes: forward-pass times on both sides, link times, and acceptance.

Most values are medians over the last rounds, so that one outlier decides nothing. None until something was measured.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from statistics import median_high

import numpy

from specdec.estimates.tree_acceptance import EXPECTED_AS, TreeAcceptance
from specdec.estimates.uplink import Uplink

_OUTLIER = 4.0
"""Values above this many times the median are clipped to it."""


class _OfLatest:
    """One figure of the last values, computed lazily."""

    def __init__(self, window: int) -> None:
        self._values: deque[float] = deque(maxlen=window)
        self._found: float | None = None

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: float) -> None:
        """One more value."""
        self._values.append(value)
        self._found = None

    @property
    def value(self) -> float | None:
        """The figure; None without values."""
        if self._found is None and self._values:
            self._found = self._compute()
        return self._found

    def _compute(self) -> float:
        raise NotImplementedError


class RunningMedian(_OfLatest):
    """The median of the last values; of two middle values, the upper one."""

    def __init__(self, window: int = 32) -> None:
        super().__init__(window)

    def _compute(self) -> float:
        return median_high(self._values)


class QuietMedian:
    """The median of the last forward-pass times, corrected for work that the other side did meanwhile."""

    def __init__(self, window: int = 32) -> None:
        self._values: deque[tuple[float, float]] = deque(maxlen=window)
        self._found: tuple[float, float | None] = (0.0, None)

    def add(self, seconds: float, share: float = 0.0) -> None:
        """One more value. share: part of that time in which the other side was computing."""
        self._values.append((seconds, share))
        self._found = (0.0, None)

    def value(self, cost: float) -> float | None:
        """The median; None without values. cost: slowdown per second of the other side's work, as estimated now."""
        if self._values and (self._found[1] is None or self._found[0] != cost):
            self._found = (cost, median_high(seconds * (1.0 - cost * share) for seconds, share in self._values))
        return self._found[1]


class CalmMean(_OfLatest):
    """The mean of the last values, with outliers clipped to a multiple of the median. For waiting times, which vary too
    much for a median to be informative.
    """

    def __init__(self, window: int = 12) -> None:
        super().__init__(window)

    def _compute(self) -> float:
        most = _OUTLIER * median_high(self._values)
        return sum(min(value, most) for value in self._values) / len(self._values)


class RunningMean:
    """An exponentially weighted mean; starts from a guess that a few values outweigh."""

    def __init__(self, guess: float) -> None:
        self._guess, self._guessed = guess, 4.0
        self._sum = self._weight = 0.0

    def add(self, value: float) -> None:
        """One more value."""
        self._sum, self._weight = 0.95 * self._sum + value, 0.95 * self._weight + 1.0
        self._guessed *= 0.95

    @property
    def value(self) -> float:
        """The present mean."""
        return self.against(self._guess)

    def against(self, guess: float) -> float:
        """The mean with another guess in place of the initial one."""
        return (self._sum + self._guessed * guess) / (self._weight + self._guessed)


_FORGET, _FADES = 0.98, 0.98
"""Decay of acceptance counts, per compared draft and per token without a comparison."""
_MAX_DEPTH = 64
_AS_OTHERS = 4.0
"""Prior weight, in drafts, of the acceptance of another kind of draft."""
_READY = 1.1
"""Measured with `fsd` over simulated worlds of all kinds; every decoder calibrates its own multiple of it."""
_FIRST_DRAFTS = 20.0
"""Assumed tokens per draft, before any was sent (PipeSD's first window)."""
_NEAR_S, _SHORT_S = 5e-3, 10e-3
_AS_ALONE = 3.0
"""Prior weight, in drafts, of the waiting time of the cloud's own tokens."""
_PRIOR, _PRIOR_TRIED = 0.7, 2.0
_LOOKED_UP = 0.3
"""Prior chance that a looked-up token is right; on six public question files it was 7 to 38 %."""
_OF_THE_EDGE = ("_draft", "_ahead", "draft_forwards", "_rtt", "_rtt_of_prompt", "uplink")
"""Fields of `Measured` that do not depend on the target."""
_IN_PEACE, _OUTLASTS = 24, 8
"""Tokens in the median of an undisturbed cloud's time, and tokens after a draft that are left out of it."""


class AcceptanceEstimate:
    """Acceptance by depth: how often a draft that is right up to a depth is right there, too."""

    def __init__(self, prior: float = _PRIOR) -> None:
        """prior: chance of a token before any draft was compared."""
        self._prior_kept = prior * _PRIOR_TRIED
        self._tried = [0.0] * _MAX_DEPTH
        self._kept = [0.0] * _MAX_DEPTH
        self.drafts = 0

    def add(self, known: int, kept: int) -> None:
        """One draft of which `kept` tokens were right. known: number of positions that could be compared."""
        self.drafts += 1
        for place in range(min(known, kept + 1, _MAX_DEPTH)):
            self._tried[place] = _FORGET * self._tried[place] + 1.0
            self._kept[place] = _FORGET * self._kept[place] + (place < kept)

    def fade(self) -> None:
        """Let the counts decay for a token without a comparison. Otherwise an unlucky start would count for as long as
        such drafts look bad, and they would never be tried again.
        """
        self._tried = [_FADES * tried for tried in self._tried]
        self._kept = [_FADES * kept for kept in self._kept]

    def expect(self, chances: Sequence[float]) -> None:
        """Count the predicted chances of one draft that is not compared: the chance that each depth is reached. It
        counts as several compared drafts, because chances carry more information than outcomes.
        """
        self.drafts += EXPECTED_AS
        before = 1.0
        for place, chance in enumerate(chances[:_MAX_DEPTH]):
            self._tried[place] += before
            self._kept[place] += min(chance, before)
            before = min(chance, before)

    def compare(self, line: Sequence[int], said: Sequence[int]) -> None:
        """Compare one chain with the target's tokens in its place, as far as both go."""
        known = min(len(line), len(said))
        self.add(known, next((i for i in range(known) if line[i] != said[i]), known))

    def chance(self, depth: int, like: AcceptanceEstimate | None = None) -> float:
        """Chance that a draft's token at `depth` (0 is the first) is accepted if all before it are.

        Starts from a prior with the weight of two drafts. A depth without data takes the chance of the deepest one
        with data. like: acceptance of another kind of draft, used as the prior.
        """
        place = min(depth, _MAX_DEPTH - 1)
        if like is not None:
            return (self._kept[place] + _AS_OTHERS * like.chance(depth)) / (self._tried[place] + _AS_OTHERS)
        while place > 0 and self._tried[place] < 1.0:
            place -= 1
        return (self._kept[place] + self._prior_kept) / (self._tried[place] + _PRIOR_TRIED)

    def expected(self, depth: int) -> float:
        """Expected tokens per round with drafts of this depth, the target's own token included (tau)."""
        return self.by_depth(depth)[-1]

    def by_depth(self, most: int, like: AcceptanceEstimate | None = None) -> list[float]:
        """`expected` for every depth from 0 to `most`. like: as in `chance`."""
        expected = alive = 1.0
        found = [expected]
        for place in range(most):
            alive *= self.chance(place, like)
            expected += alive
            found.append(expected)
        return found


class Measured:
    """Live measurements of one edge and its verifier, kept over the answers. Times are in seconds.

    Attributes:
        chain: Acceptance of chains.
        tree: Acceptance of trees of one budget.
        in_cloud: Acceptance of chains from the cloud's own draft model.
        nodes: Acceptance of trees, node by node.
        lookups: Acceptance of lookups; a failed lookup counts as a wrong one.
        found: Share of lookups that find something.
        redrafted: Share of a prepared chain that had to be drafted after the verdict (r of FSD, as a share of forward
            passes).
        chain_ready: Ratio of tokens ready at the verdict to `levels_ready`, for chains.
        tree_ready: Ratio of levels ready at the verdict to `levels_ready`, for trees.
        kept: Accepted tokens per token that the draft model expected to be accepted.
        grown: What a forward pass adds to that expectation, as a share of the nodes it processes.
        foretold: How often exits are right when they contradict the draft.
        tokens_alone: Timed tokens of the cloud alone.
        beside_share: Share of a verification during which the edge was drafting.
        draft_forwards: Times of the draft model's forward passes by rows.
        cloud_forwards: The cloud's forward-pass times by rows, which also show how much drafting slows them.
        uplink: Cost of uploads.
        draft_tokens: Tokens per draft.
    """

    def __init__(self) -> None:
        self._draft = QuietMedian()
        self._ahead = RunningMedian()
        self.draft_forwards = ForwardTimes()
        self._verify = RunningMedian()
        self.cloud_forwards = ForwardTimes()
        self._several = CalmMean()
        self._in_peace = RunningMedian(_IN_PEACE)
        self._quiet_run = 0
        self.beside_share = RunningMean(0.5)
        self._cloud_draft = RunningMedian()
        self._told_cloud_draft_s = 0.0
        self._rtt = RunningMedian()
        self._queue = CalmMean()
        self._queue_alone = CalmMean()
        self._rtt_of_prompt: float | None = None
        self.uplink = Uplink()
        self.draft_tokens = RunningMean(_FIRST_DRAFTS)
        self.chain = AcceptanceEstimate()
        self.tree = AcceptanceEstimate()
        self.in_cloud = AcceptanceEstimate()
        self.nodes = TreeAcceptance()
        self.lookups = AcceptanceEstimate(_LOOKED_UP)
        self.found = RunningMean(0.5)
        self.redrafted = RunningMean(0.3)
        self.chain_ready, self.tree_ready = RunningMean(1.0), RunningMean(1.0)
        self._tokens = self._seconds = 0.0
        self._went = 0
        self.kept = RunningMean(1.0)
        self.grown = RunningMean(0.5)
        self.foretold = RunningMean(0.5)
        self.tokens_alone = 0

    def forget_target(self) -> None:
        """Drop the times and acceptance of the previous target. Times of the draft model and of the link are kept."""
        kept = {name: self.__dict__[name] for name in _OF_THE_EDGE}
        self.__dict__.update(Measured().__dict__ | kept)

    def drafted(self, forward_s: float, rows: int = 1) -> None:
        """One forward pass of the draft model. rows: its rows; 0: unknown."""
        self._draft.add(forward_s)
        self._priced(forward_s, rows)

    def drafted_in_shadow(self, forward_s: float, rows: int = 1) -> None:
        """One forward pass of the draft model while the cloud decoded alone."""
        self._draft.add(forward_s, 1.0)
        self._priced(forward_s, rows, forward_s)

    def drafted_ahead(self, forward_s: float, rows: int = 1) -> None:
        """One forward pass of the draft model while waiting for a verdict."""
        self._ahead.add(forward_s)
        self._priced(forward_s, rows, forward_s * self._share_of_verifying)

    @property
    def _share_of_verifying(self) -> float:
        """Share of the verification in the time between sending a draft and its verdict."""
        verify_s, away_s = self.verify_s, self.away_s
        return 1.0 if verify_s is None or away_s is None else verify_s / max(verify_s + away_s, 1e-9)

    def _priced(self, forward_s: float, rows: int, beside_s: float = 0.0) -> None:
        if rows:
            self.draft_forwards.add(rows, forward_s, beside_s)

    def draft_rows_s(self, rows: int) -> float | None:
        """Seconds of a draft forward pass over n rows: measured, else as timed at load; None if unknown."""
        measured_s = self.draft_forwards.measured_s(rows, self.cloud_forwards)
        return self.draft_forwards.told_s(rows) if measured_s is None else measured_s

    def exchanged(
        self,
        rows: int,
        verify_s: float,
        rtt_s: float,
        queue_s: float | None = 0.0,
        beside_s: float = 0.0,
    ) -> None:
        """One draft and its verdict.

        Args:
            rows: Rows of the target's forward pass: the draft's and one more.
            verify_s: Seconds of that pass; 0: the draft was refuted without one.
            rtt_s: Round trip without the cloud's time.
            queue_s: Seconds that the draft waited in the cloud; None if that is not typical of drafts.
            beside_s: Seconds of the verification during which the edge was drafting.
        """
        if verify_s > 0.0:
            self._verify.add(verify_s)
        self._rtt.add(rtt_s)
        self._quiet_run = 0
        if queue_s is not None:
            self._queue.add(queue_s)
        self.cloud_forwards.add(rows, verify_s, beside_s)
        if verify_s > 0.0:
            self.beside_share.add(min(1.0, beside_s / verify_s))

    def went_on(self, tokens: int, seconds: float) -> None:
        """A verdict brought this many tokens, this many seconds after the previous verdict."""
        self._tokens = 0.9 * self._tokens + tokens
        self._seconds = 0.9 * self._seconds + seconds
        self._went += 1

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens per second over about the last dozen rounds with drafts; None before four rounds."""
        return self._tokens / self._seconds if self._went >= 4 and self._seconds > 0.0 else None

    @property
    def forward_price(self) -> float | None:
        """Average tokens gained in the time of one draft forward pass; None before four rounds."""
        rate, draft_s = self.tokens_per_s, self.draft_s
        return None if rate is None or draft_s is None else rate * draft_s

    def streamed(
        self,
        tokens: int,
        verify_s: float,
        drafted: int,
        queue_s: float = 0.0,
        beside_s: float = 0.0,
        draft_s: float = 0.0,
    ) -> None:
        """Tokens arrived from a cloud that decodes alone.

        Args:
            tokens: How many.
            verify_s: Seconds of all forward passes for them.
            drafted: Tokens that the cloud's own draft model had proposed; 0: it has none or does not use it.
            queue_s: Seconds of waiting.
            beside_s: Seconds of the target's pass during which the edge was drafting.
            draft_s: Part of `verify_s` taken by the draft model; 0: not reported.
        """
        self._queue_alone.add(queue_s)
        if drafted:
            accepted = min(drafted, tokens - 1)
            self.in_cloud.add(min(drafted, accepted + 1), accepted)
            if draft_s > 0.0:
                self._cloud_draft.add(draft_s / drafted)
                self.cloud_forwards.add(drafted + 1, verify_s - draft_s, beside_s)
                return
            target_s = self.cloud_forwards.measured_s(drafted + 1) or self.cloud_forwards.told_s(drafted + 1)
            if target_s is not None and not self._told_cloud_draft_s:
                self._cloud_draft.add(max(0.0, verify_s - target_s) / drafted)
            return
        if self.in_cloud.drafts:
            self.in_cloud.fade()
        if tokens == 1:
            self.cloud_forwards.add(1, verify_s, beside_s)
            self.tokens_alone += 1
            self._quiet_run = 0 if beside_s else self._quiet_run + 1
            if self._quiet_run > _OUTLASTS:
                self._in_peace.add(verify_s + queue_s)
        self._several.add(verify_s / tokens)

    def opened(self, rtt_s: float) -> None:
        """Round trip of a prompt and the first token. It is no shorter than any other, and is used until one was timed.
        """
        self._rtt_of_prompt = rtt_s if self._rtt_of_prompt is None else min(rtt_s, self._rtt_of_prompt)

    def pinged(self, rtt_s: float) -> None:
        """Round trip of a ping."""
        self._rtt.add(rtt_s)

    def looked_up(self, ids: Sequence[int], said: Sequence[int]) -> None:
        """A lookup and the target's tokens in its place."""
        self.found.add(float(bool(ids)))
        if ids:
            self.lookups.compare(ids, said)
        else:
            self.lookups.add(1, 0)

    @property
    def draft_s(self) -> float | None:
        """Seconds of one draft forward pass (Tp)."""
        median_s = self._draft.value(self.cloud_forwards.beside_cost)
        return self.draft_forwards.told_s(1) if median_s is None else median_s

    @property
    def ahead_s(self) -> float | None:
        """Seconds of one draft forward pass while waiting for a verdict."""
        return self._ahead.value

    @property
    def verify_s(self) -> float | None:
        """Seconds of one verification (Tq)."""
        return self._verify.value

    def told(self, row_us: Sequence[tuple[int, int]], draft_us: int = 0) -> None:
        """Times reported by the verifier. row_us: forward passes of the target, (rows, microseconds). draft_us: one
        forward pass of its own draft model; 0: not reported.
        """
        self.cloud_forwards.told(row_us)
        self._told_cloud_draft_s = draft_us / 1e6

    @property
    def alone_s(self) -> float | None:
        """Present seconds per token of a cloud that decodes alone. Before any measurement, as the verifier reported."""
        one_s = self.cloud_forwards.measured_s(1)
        if one_s is None:
            one_s = self._several.value
        if one_s is None:
            one_s = self.cloud_forwards.told_s(1)
        return None if one_s is None else one_s + self.queue_alone_s

    @property
    def alone_in_peace_s(self) -> float | None:
        """Seconds per token of the cloud alone while the edge had not drafted for a while; None if not measured."""
        return self._in_peace.value

    def forget_peace(self) -> None:
        """Discard `alone_in_peace_s`, which may be out of date, and measure it anew."""
        self._in_peace = RunningMedian(_IN_PEACE)

    @property
    def cloud_draft_s(self) -> float | None:
        """Seconds of a forward pass of the cloud's own draft model; before any was timed, as reported."""
        timed_s = self._cloud_draft.value
        return self._told_cloud_draft_s or None if timed_s is None else timed_s

    @property
    def queue_s(self) -> float:
        """Seconds that a draft waits in the cloud."""
        waits, alone_s = self._queue.value, self._queue_alone.value
        if waits is None or alone_s is None:
            return waits or alone_s or 0.0
        known = len(self._queue)
        return (known * waits + _AS_ALONE * alone_s) / (known + _AS_ALONE)

    @property
    def queue_alone_s(self) -> float:
        """Seconds of waiting per token of the cloud alone: the smaller of its own waits and those of drafts."""
        alone, drafts = self._queue_alone.value, self._queue.value
        known = [value for value in (alone, drafts) if value is not None]
        return min(known, default=0.0)

    @property
    def hints_pay(self) -> bool:
        """Whether a draft forward pass fits between a hint halfway through a verification and its verdict; True until
        both times are known.
        """
        forward_s, verify_s = self.ahead_s or self.draft_s, self.verify_s
        return forward_s is None or verify_s is None or forward_s < verify_s / 2

    @property
    def rtt_s(self) -> float | None:
        """Round trip without the cloud's own time."""
        return self._rtt_of_prompt if self._rtt.value is None else self._rtt.value

    @property
    def is_near(self) -> bool:
        """Whether the round trip is so short that the cloud may be this machine."""
        return (self.rtt_s or 0.0) < _NEAR_S

    @property
    def may_feel_drafts_unseen(self) -> bool:
        """Whether a near cloud's forward passes are very short. On a shared device, the effect of drafting on clock
        rate and caches then outlasts a dozen of them, and cannot be told from a slow device.
        """
        return self.is_near and (self.alone_s or 0.0) < _SHORT_S

    @property
    def away_s(self) -> float | None:
        """Round trip and waiting in the cloud: the time of a round without drafting and verifying."""
        return None if self.rtt_s is None else self.rtt_s + self.queue_s

    @staticmethod
    def levels_ready(size: int, level_s: float, exchange_s: float) -> float:
        """Levels of the next draft that are ready when a verdict comes, as far as time limits them. More forward passes
        give more levels, with diminishing returns.

        Args:
            size: Levels wanted.
            level_s: Seconds per forward pass.
            exchange_s: Seconds from sending the draft to its verdict.
        """
        if level_s <= 0.0:
            return float(size)
        forwards = exchange_s / level_s
        return size * (1.0 - math.exp(-_READY * forwards / size))


_ROW_CLASSES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64)
_NOISE = 0.1
"""Standard deviation of one forward pass, as a share of its time. The following are standard deviations, too."""
_DRIFT = 0.03
"""Drift of the device's speed per forward pass."""
_UNKNOWN, _UNKNOWN_TOLD = 3.0, 1.0
"""Initial uncertainty of the device's speed: without and with reported idle times."""
_UNKNOWN_COST, _COST_DRIFT = 0.3, 0.005
"""Initial uncertainty, and drift per forward pass, of the slowdown by the other side's concurrent work."""
MOST_COST = 0.8
"""Upper limit of that slowdown, in seconds per second of concurrent work."""
_SURE_OF_COST = 0.15
"""If the slowdown is known less well than this, and all passes had concurrent work, an undisturbed pass is due."""
_MOSTLY = 0.5
"""A pass with concurrent work for more than this share of its time counts as disturbed."""
_TOLD, _UNTOLD = 0.2, 0.4
"""Uncertainty of the row cost per doubling of rows: with and without reported times."""
_ODD = 3.0
"""A pass further off than this many deviations is ignored as an outlier. If the next one is off in the same direction,
the device has changed.
"""


class ForwardTimes:
    """Forward-pass times by row count, on a device whose load may change at any time.

    Three quantities are estimated separately:
    - the device's present speed, which every pass shows, whatever its rows;
    - the cost of n rows relative to one row, which is constant;
    - the slowdown by the other side's concurrent work, which is 0 unless both share a device.

    So a cloud that gets slower while trees are sent is known to be slower for single rows, too. A cloud that is slow
    only while the edge drafts is not taken for a slow one. The estimator is an extended Kalman filter over log-seconds.
    Its state holds the device's speed, the cost of each row class, and the slowdown; an unexpected time is attributed
    mostly to the least certain of them.
    """

    def __init__(self) -> None:
        self._told: list[tuple[int, float]] = []
        self._begin()

    def _begin(self) -> None:
        """Reset the state: log speed of the device, log cost of each row class, slowdown. Row costs are a random walk
        over doublings of the rows, so near classes cost alike; the cost of one row is 0.
        """
        doublings = numpy.log2(_ROW_CLASSES)
        spread = _TOLD if self._told else _UNTOLD
        self._mean = numpy.zeros(2 + len(_ROW_CLASSES))
        self._spread = numpy.zeros((self._mean.size, self._mean.size))
        self._spread[0, 0] = (_UNKNOWN_TOLD if self._told else _UNKNOWN) ** 2
        self._spread[1:-1, 1:-1] = spread**2 * numpy.minimum.outer(doublings, doublings)
        self._spread[-1, -1] = _UNKNOWN_COST**2
        self._beside_all = 0
        self._shift = numpy.zeros(self._mean.size)
        self._said: tuple[float, ...] = ()
        self._seen: set[int] = set()
        self._odd = 0.0
        self._found: dict[int, float] = {}

    def add(self, rows: int, seconds: float, beside_s: float = 0.0) -> None:
        """One more forward pass. beside_s: seconds of it during which the other side was computing, too."""
        if seconds <= 0.0:
            return
        self._found.clear()
        place, share = _class_of(rows), min(beside_s / seconds, 1.0)
        self._beside_all = self._beside_all + 1 if share > _MOSTLY else 0
        alone = 1.0 - self.beside_cost * share
        off = math.log(alone * seconds / self._told_of(rows)) - self._mean[0] - self._mean[1 + place]
        self._spread[0, 0] += _DRIFT**2
        self._spread[-1, -1] += _COST_DRIFT**2
        by_cost = share / alone
        with_all = self._spread[0] + self._spread[1 + place] + by_cost * self._spread[-1]
        variance = with_all[0] + with_all[1 + place] + by_cost * with_all[-1] + _NOISE**2
        if self._seen and abs(off) > _ODD * math.sqrt(variance):
            last, self._odd = self._odd, off
            if last * off <= 0.0:
                return
            self._spread[0, 0] += off**2  # the device has changed
            with_all[0] += off**2
            variance += off**2
        else:
            self._odd = 0.0
        self._mean += with_all * (off / variance)
        self._spread -= numpy.outer(with_all, with_all / variance)
        self._mean[-1] = min(max(self._mean[-1], 0.0), MOST_COST)
        self._seen.add(place)

    @property
    def beside_cost(self) -> float:
        """Seconds that a forward pass gets longer per second of the other side's concurrent work: 0 with separate
        devices, 0.5 if both share one evenly.
        """
        return float(self._mean[-1])

    @property
    def quiet_is_due(self) -> bool:
        """Whether all recent passes had concurrent work from the other side and its cost is not known."""
        return self._beside_all >= 2 and self._spread[-1, -1] > _SURE_OF_COST**2

    def told(self, row_us: Sequence[tuple[int, int]]) -> None:
        """Set reported times: (rows, microseconds)."""
        told = [(rows, us / 1e6) for rows, us in row_us]
        if told == self._told:
            return
        cost, sure = self._mean[-1], self._spread[-1, -1]
        before = [
            (_ROW_CLASSES[place], self._usual_s(_ROW_CLASSES[place], place)) for place in sorted(self._seen)
        ]
        self._told = told
        self._begin()
        self._mean[-1], self._spread[-1, -1] = cost, sure
        for rows, seconds in before:  # earlier measurements stay valid
            self.add(rows, seconds)

    def measured_s(self, rows: int, other: ForwardTimes | None = None) -> float | None:
        """Seconds of an undisturbed forward pass over n rows; None before any measurement.

        Never longer than the estimate for a larger measured class, which noise could suggest. Row counts without a
        measurement are scaled by the reported times. other: times of the other device, which may know the slowdown
        better.
        """
        if not self._seen:
            return None
        if other is not None:
            self._hear_of_cost(other)
        if rows not in self._found:
            wanted = _class_of(rows)
            larger = [self._usual_s(_ROW_CLASSES[place], place) for place in self._seen if place > wanted]
            self._found[rows] = min([self._usual_s(rows, wanted), *larger])
        return self._found[rows]

    def _hear_of_cost(self, other: ForwardTimes) -> None:
        """Correct the other state variables by the other device's estimate of the slowdown."""
        said = (other._mean[-1], other._spread[-1, -1], self._mean[-1], self._spread[-1, -1])
        if said != self._said:
            self._said = said
            self._found.clear()
            self._shift = self._spread[-1] * ((said[0] - said[2]) / (said[1] + said[3]))

    def _usual_s(self, rows: int, place: int) -> float:
        """Expected seconds of n rows, with the row cost of a class."""
        device, cost = self._mean[0] + self._shift[0], self._mean[1 + place] + self._shift[1 + place]
        return math.exp(device + cost) * self._told_of(rows)

    @property
    def was_told(self) -> bool:
        """Whether times were reported."""
        return bool(self._told)

    def told_s(self, rows: int) -> float | None:
        """The reported seconds for n rows; None if nothing was reported."""
        return self._told_of(rows) if self._told else None

    def _told_of(self, rows: int) -> float:
        """Reported seconds, linear between the row counts reported; 1 if nothing was reported."""
        if not self._told:
            return 1.0
        rows_told, seconds = zip(*self._told, strict=True)
        return max(float(numpy.interp(rows, rows_told, seconds)), 1e-9)


def _class_of(rows: int) -> int:
    """Index of the row class for n rows."""
    return next((place for place, limit in enumerate(_ROW_CLASSES) if rows <= limit), len(_ROW_CLASSES) - 1)
