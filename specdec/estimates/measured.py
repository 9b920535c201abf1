# SPDX-License-Identifier: Apache-2.0
"""What the edge measures while it decodes: the times of a forward on either side, the link, and what is accepted.

Medians over the last rounds, so that one hiccup decides nothing. None until something was measured.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence

import numpy

from specdec.estimates.tree_acceptance import EXPECTED_AS, TreeAcceptance
from specdec.estimates.uplink import Uplink

_OUTLIER = 4.0
"""This many times the median: what is more counts as that much."""


def _median(values: Iterable[float]) -> float:
    """The upper one of two in the middle."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


class RunningMedian:
    """The median of the last values; worked out when it is asked for, once a value."""

    def __init__(self, window: int = 32) -> None:
        self._values: deque[float] = deque(maxlen=window)
        self._median: float | None = None

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: float) -> None:
        """One more value."""
        self._values.append(value)
        self._median = None

    @property
    def value(self) -> float | None:
        """The median (the upper one of two in the middle); None without values."""
        if self._median is None and self._values:
            self._median = _median(self._values)
        return self._median


class QuietMedian:
    """The median of what the last forwards would have taken with nothing beside."""

    def __init__(self, window: int = 32) -> None:
        self._values: deque[tuple[float, float]] = deque(maxlen=window)
        self._found: tuple[float, float | None] = (0.0, None)

    def add(self, seconds: float, share: float = 0.0) -> None:
        """One more. share: of its time another client computed."""
        self._values.append((seconds, share))
        self._found = (0.0, None)

    def value(self, cost: float) -> float | None:
        """cost: of a second of another's work, as is known by now; None without values."""
        if self._values and (self._found[1] is None or self._found[0] != cost):
            self._found = (cost, _median(seconds * (1.0 - cost * share) for seconds, share in self._values))
        return self._found[1]


class CalmMean:
    """The mean of the last values where no hiccup counts as more than a few times the median: waits that vary, of which
    the median would tell too little.
    """

    def __init__(self, window: int = 12) -> None:
        self._values: deque[float] = deque(maxlen=window)
        self._mean: float | None = None

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: float) -> None:
        """One more value."""
        self._values.append(value)
        self._mean = None

    @property
    def value(self) -> float | None:
        """The mean; None without values."""
        if self._mean is None and self._values:
            most = _OUTLIER * _median(self._values)
            self._mean = sum(min(value, most) for value in self._values) / len(self._values)
        return self._mean


class RunningMean:
    """A mean that the last values count most in; begins as a guess that a few of them outweigh."""

    def __init__(self, guess: float) -> None:
        self._guess, self._guessed = guess, 4.0
        self._sum = self._weight = 0.0

    def add(self, value: float) -> None:
        """One more value."""
        self._sum, self._weight = 0.95 * self._sum + value, 0.95 * self._weight + 1.0
        self._guessed *= 0.95

    @property
    def value(self) -> float:
        """The mean as it seems now."""
        return self.against(self._guess)

    def against(self, guess: float) -> float:
        """The same with another guess, where one is at hand that knows more."""
        return (self._sum + self._guessed * guess) / (self._weight + self._guessed)


_FORGET, _FADES = 0.98, 0.98
"""With each draft that is compared; with each token that none was compared with."""
_MAX_DEPTH = 64
_AS_OTHERS = 4.0
"""Drafts of a kind that are held to be as good as others are, until more were compared."""
_READY = 1.1
"""Measured with `fsd` over simulated worlds of all kinds; every decoder finds its own multiple of it."""
_FIRST_DRAFTS = 20.0
"""Tokens of a draft, before some have left (PipeSD's first window)."""
_NEAR_S, _SHORT_S = 5e-3, 10e-3
_AS_ALONE = 3.0
"""This many drafts are held to have waited as long as the cloud's own tokens do, until more have."""
_PRIOR, _PRIOR_TRIED = 0.7, 2.0
_LOOKED_UP = 0.3
"""Guess of how often a token that is looked up is right: as on six public question files (7 to 38 %)."""
_OF_THE_EDGE = ("_draft", "_ahead", "_draft_by_rows", "_rtt", "_rtt_of_prompt", "uplink")
"""What `Measured` holds that no target has a part in."""
_IN_PEACE, _OUTLASTS = 24, 8
"""Of a cloud that is left in peace, this many tokens tell what one takes, except for the first ones after a draft."""


class AcceptanceEstimate:
    """How far drafts are accepted: at every depth, how often a draft that was right so far is right there, too."""

    def __init__(self, prior: float = _PRIOR) -> None:
        """prior: the chance of a token, before drafts were compared."""
        self._prior_kept = prior * _PRIOR_TRIED
        self._tried = [0.0] * _MAX_DEPTH
        self._kept = [0.0] * _MAX_DEPTH
        self.drafts = 0

    def add(self, known: int, kept: int) -> None:
        """One draft of which `kept` tokens were right; known: how many places there was something to compare at."""
        self.drafts += 1
        for place in range(min(known, kept + 1, _MAX_DEPTH)):
            self._tried[place] = _FORGET * self._tried[place] + 1.0
            self._kept[place] = _FORGET * self._kept[place] + (place < kept)

    def fade(self) -> None:
        """A token was said that no such draft was compared with: what was found counts a little less. Else what
        happened to come first would be believed for as long as such drafts look bad, and none would be tried again.
        """
        self._tried = [_FADES * tried for tried in self._tried]
        self._kept = [_FADES * kept for kept in self._kept]

    def expect(self, chances: Sequence[float]) -> None:
        """What is held of one draft that nothing was compared with: the chance of each depth to be reached. It is as
        good as several that are compared: it tells chances, not the result of them.
        """
        self.drafts += EXPECTED_AS
        before = 1.0
        for place, chance in enumerate(chances[:_MAX_DEPTH]):
            self._tried[place] += before
            self._kept[place] += min(chance, before)
            before = min(chance, before)

    def compare(self, line: Sequence[int], said: Sequence[int]) -> None:
        """One chain of which the target's own tokens in its place are known, as many as there are."""
        known = min(len(line), len(said))
        self.add(known, next((i for i in range(known) if line[i] != said[i]), known))

    def chance(self, depth: int, like: AcceptanceEstimate | None = None) -> float:
        """Chance that a draft's token at `depth` (0 is the first) stays if all before it did.

        Starts from a guess that two dozen drafts outweigh; a depth that was never tried is like the
        deepest one that was. like: drafts that are held to be as good until enough of these were compared.
        """
        place = min(depth, _MAX_DEPTH - 1)
        if like is not None:
            return (self._kept[place] + _AS_OTHERS * like.chance(depth)) / (self._tried[place] + _AS_OTHERS)
        while place > 0 and self._tried[place] < 1.0:
            place -= 1
        return (self._kept[place] + self._prior_kept) / (self._tried[place] + _PRIOR_TRIED)

    def expected(self, depth: int) -> float:
        """Tokens that a round brings with drafts so deep, the target's own token counted (tau)."""
        return self.by_depth(depth)[-1]

    def by_depth(self, most: int, like: AcceptanceEstimate | None = None) -> list[float]:
        """The same of every depth from 0 to `most`. like: as in `chance`."""
        expected = alive = 1.0
        found = [expected]
        for place in range(most):
            alive *= self.chance(place, like)
            expected += alive
            found.append(expected)
        return found


class Measured:
    """Live figures of one edge and its verifier, kept over the answers. Times in seconds.

    chain, tree: acceptance of chains, and of the trees of one budget; in_cloud: of chains of the cloud's own draft
    model; nodes: of trees, node by node; lookups: of drafts that are looked up, where finding none counts as a wrong
    one; found: how often one is found. redrafted: share of a chain that had to be drafted after the verdict although
    it was prepared for (r of FSD, as a share of the forwards). chain_ready, tree_ready: levels that stood when
    the verdict came, over `levels_ready`. kept: tokens accepted for each that the draft model expected to be; grown:
    what a forward adds to that expectation, as a share of what went through it. predicted: how often exits were right
    where they expected something else than what was drafted. tokens_alone: of the cloud alone, that were timed.
    beside_share: of a verification, how much was drafted in. uplink: what uploads cost. draft_tokens: of a draft.
    """

    def __init__(self) -> None:
        self._draft = QuietMedian()
        self._ahead = RunningMedian()
        self._draft_by_rows = ForwardTimes()
        self._verify = RunningMedian()
        self._verify_by_rows = ForwardTimes()
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
        """The verifier has another target: what its forwards took and what it accepted counts no more. What the draft
        model takes and how long the way is stays.
        """
        kept = {name: self.__dict__[name] for name in _OF_THE_EDGE}
        self.__dict__.update(Measured().__dict__ | kept)

    def drafted(self, forward_s: float, rows: int = 1) -> None:
        """One forward of the draft model, of this many rows; 0: there was none."""
        self._draft.add(forward_s)
        self._priced(forward_s, rows)

    def drafted_in_shadow(self, forward_s: float, rows: int = 1) -> None:
        """One forward of the draft model while the cloud decoded alone."""
        self._draft.add(forward_s, 1.0)
        self._priced(forward_s, rows, forward_s)

    def drafted_ahead(self, forward_s: float, rows: int = 1) -> None:
        """One forward of the draft model while a verdict was out."""
        self._ahead.add(forward_s)
        self._priced(forward_s, rows, forward_s * self._share_of_verifying)

    @property
    def _share_of_verifying(self) -> float:
        """Of the time that a draft is away."""
        verify_s, away_s = self.verify_s, self.away_s
        return 1.0 if verify_s is None or away_s is None else verify_s / max(verify_s + away_s, 1e-9)

    def _priced(self, forward_s: float, rows: int, beside_s: float = 0.0) -> None:
        if rows:
            self._draft_by_rows.add(rows, forward_s, beside_s)

    def told_of_drafts(self, row_us: Sequence[tuple[int, int]]) -> None:
        """What forwards of the draft model were found to take when it was loaded, (rows, microseconds)."""
        self._draft_by_rows.told(row_us)

    @property
    def knows_draft_rows(self) -> bool:
        """Whether draft forwards were tried by their rows before any was of use."""
        return self._draft_by_rows.was_told

    def draft_rows_s(self, rows: int) -> float | None:
        """One draft forward of this many rows; before any was measured, as reported; None where nothing was."""
        measured_s = self._draft_by_rows.measured_s(rows, self._verify_by_rows)
        return self._draft_by_rows.told_s(rows) if measured_s is None else measured_s

    def exchanged(
        self,
        rows: int,
        verify_s: float,
        rtt_s: float,
        queue_s: float | None = 0.0,
        beside_s: float = 0.0,
    ) -> None:
        """One draft and its verdict; rows: that went through the target, the draft's and one more. queue_s: it waited
        in the cloud; None: for something that says nothing of other drafts. beside_s: of the verification the edge
        drafted.
        """
        if verify_s > 0.0:  # Otherwise what was known already has refuted the draft
            self._verify.add(verify_s)
        self._rtt.add(rtt_s)
        self._quiet_run = 0
        if queue_s is not None:
            self._queue.add(queue_s)
        self._verify_by_rows.add(rows, verify_s, beside_s)
        if verify_s > 0.0:
            self.beside_share.add(min(1.0, beside_s / verify_s))

    def went_on(self, tokens: int, seconds: float) -> None:
        """A verdict with a draft on the way before it: how many tokens came, and how long after the verdict before."""
        self._tokens = 0.9 * self._tokens + tokens
        self._seconds = 0.9 * self._seconds + seconds
        self._went += 1

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens a second of the last dozen rounds with drafts; None before there were a few."""
        return self._tokens / self._seconds if self._went >= 4 and self._seconds > 0.0 else None

    @property
    def forward_price(self) -> float | None:
        """Tokens that come in the time of one draft forward on average; None before a few rounds were timed."""
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
        """Tokens of a cloud that decodes alone. drafted: by its own draft model before; 0: it has none, or does
        without. queue_s: waiting. beside_s: as in `exchanged`, of the target's forward. draft_s: of verify_s, the
        draft model's; 0: not reported.
        """
        self._queue_alone.add(queue_s)
        if drafted:
            accepted = min(drafted, tokens - 1)
            self.in_cloud.add(min(drafted, accepted + 1), accepted)
            if draft_s > 0.0:
                self._cloud_draft.add(draft_s / drafted)
                self._verify_by_rows.add(drafted + 1, verify_s - draft_s, beside_s)
                return
            target_s = self.verify_rows_s(drafted + 1) or self.told_rows_s(drafted + 1)
            if target_s is not None and not self._told_cloud_draft_s:
                self._cloud_draft.add(max(0.0, verify_s - target_s) / drafted)
            return
        if self.in_cloud.drafts:
            self.in_cloud.fade()
        if tokens == 1:
            self._verify_by_rows.add(1, verify_s, beside_s)
            self.tokens_alone += 1
            self._quiet_run = 0 if beside_s else self._quiet_run + 1
            if self._quiet_run > _OUTLASTS:
                self._in_peace.add(verify_s + queue_s)
        self._several.add(verify_s / tokens)

    def opened(self, rtt_s: float) -> None:
        """A prompt and the answer's first token: they take no less than any message, and count until one was timed."""
        self._rtt_of_prompt = rtt_s if self._rtt_of_prompt is None else min(rtt_s, self._rtt_of_prompt)

    def pinged(self, rtt_s: float) -> None:
        """One question to the verifier and its answer."""
        self._rtt.add(rtt_s)

    def looked_up(self, ids: Sequence[int], said: Sequence[int]) -> None:
        """What a lookup found in a place, and the target's own tokens there."""
        self.found.add(float(bool(ids)))
        if ids:
            self.lookups.compare(ids, said)
        else:
            self.lookups.add(1, 0)

    @property
    def cloud_forwards(self) -> ForwardTimes:
        """The cloud's forwards, which tell what drafting beside costs them."""
        return self._verify_by_rows

    @property
    def draft_s(self) -> float | None:
        """One draft forward (Tp)."""
        median_s = self._draft.value(self.cloud_forwards.beside_cost)
        return self._draft_by_rows.told_s(1) if median_s is None else median_s

    @property
    def ahead_s(self) -> float | None:
        """One draft forward while a verdict is out."""
        return self._ahead.value

    @property
    def verify_s(self) -> float | None:
        """One verification (Tq)."""
        return self._verify.value

    def told(self, row_us: Sequence[tuple[int, int]], draft_us: int = 0) -> None:
        """What the verifier says that its forwards take, (rows, microseconds), and one of its own draft model; 0: it
        does not say.
        """
        self._verify_by_rows.told(row_us)
        self._told_cloud_draft_s = draft_us / 1e6

    def verify_rows_s(self, rows: int) -> float | None:
        """One verification of this many rows (see ForwardTimes.measured_s)."""
        return self._verify_by_rows.measured_s(rows)

    def told_rows_s(self, rows: int) -> float | None:
        """What the verifier says that this many rows take, when it is idle; None where it says nothing."""
        return self._verify_by_rows.told_s(rows)

    @property
    def alone_s(self) -> float | None:
        """A token of a cloud that decodes alone, as it would take at present; a verification of a draft takes no less.
        Before anything was measured, as reported.
        """
        one_s = self.verify_rows_s(1)
        if one_s is None:
            one_s = self._several.value
        if one_s is None:
            one_s = self._verify_by_rows.told_s(1)
        return None if one_s is None else one_s + self.queue_alone_s

    @property
    def alone_in_peace_s(self) -> float | None:
        """A token of a cloud that decodes alone, as it was where the edge had not drafted for a while; None before."""
        return self._in_peace.value

    def forget_peace(self) -> None:
        """That may no longer hold: it is measured anew."""
        self._in_peace = RunningMedian(_IN_PEACE)

    @property
    def cloud_draft_s(self) -> float | None:
        """One forward of the cloud's own draft model; before any was timed, as reported."""
        timed_s = self._cloud_draft.value
        return self._told_cloud_draft_s or None if timed_s is None else timed_s

    @property
    def queue_s(self) -> float:
        """A draft's waiting in the cloud."""
        waits, alone_s = self._queue.value, self._queue_alone.value
        if waits is None or alone_s is None:
            return waits or alone_s or 0.0
        known = len(self._queue)
        return (known * waits + _AS_ALONE * alone_s) / (known + _AS_ALONE)

    @property
    def queue_alone_s(self) -> float:
        """Waiting before each token of a cloud that goes on alone: as it was, or as drafts wait, if that is less."""
        alone, drafts = self._queue_alone.value, self._queue.value
        known = [value for value in (alone, drafts) if value is not None]
        return min(known, default=0.0)

    @property
    def hints_pay(self) -> bool:
        """Whether a forward of the draft model fits between a hint half way through a verification and its verdict; as
        long as that is not known, it is to be tried.
        """
        forward_s, verify_s = self.ahead_s or self.draft_s, self.verify_s
        return forward_s is None or verify_s is None or forward_s < verify_s / 2

    @property
    def rtt_s(self) -> float | None:
        """There and back, without what the cloud did meanwhile."""
        return self._rtt_of_prompt if self._rtt.value is None else self._rtt.value

    @property
    def is_near(self) -> bool:
        """Whether the cloud may be this very machine: so short is the way there and back."""
        return (self.rtt_s or 0.0) < _NEAR_S

    @property
    def may_feel_drafts_unseen(self) -> bool:
        """Whether a near cloud's forwards are so short that what a draft does to a device that both share, its
        clock and its caches, outlasts a dozen of them: no telling then from a device that is slow by itself.
        """
        return self.is_near and (self.alone_s or 0.0) < _SHORT_S

    @property
    def away_s(self) -> float | None:
        """There and back, and waiting in the cloud: a round's time beside drafting and verifying."""
        return None if self.rtt_s is None else self.rtt_s + self.queue_s

    @staticmethod
    def levels_ready(size: int, level_s: float, exchange_s: float) -> float:
        """Levels of the next draft that stand when a verdict comes, as far as time decides that: the more forwards, the
        more levels, and the fewer for each. level_s: that a forward takes; exchange_s: from the draft's leaving on.
        """
        if level_s <= 0.0:
            return float(size)
        forwards = exchange_s / level_s
        return size * (1.0 - math.exp(-_READY * forwards / size))

    def acceptance(self, depth: int) -> float:
        """Chance that a chain's token at `depth` stays if all before it did (see AcceptanceEstimate.chance)."""
        return self.chain.chance(depth)


_ROW_CLASSES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64)
_NOISE = 0.1
"""Of one forward, as a share; all figures are standard deviations."""
_DRIFT = 0.03
"""Of the device, from one forward to the next."""
_UNKNOWN, _UNKNOWN_TOLD = 3.0, 1.0
"""Of the device before any, where it was not reported what it takes when it is idle, and where it was."""
_UNKNOWN_COST, _COST_DRIFT = 0.3, 0.005
"""Of what another's work beside costs: before any, and from one forward to the next."""
MOST_COST = 0.8
"""Of a second of that, at most."""
_SURE_OF_COST = 0.15
"""Where that is known less well, and everything was measured beside such work, a forward without is due."""
_MOSTLY = 0.5
"""A forward that another client worked through so much of says nothing of one with nothing beside."""
_TOLD, _UNTOLD = 0.2, 0.4
"""Of what rows cost, each time they double, where it was reported and where it was not."""
_ODD = 3.0
"""Further off than this many deviations is a hiccup, which says nothing, or the device has changed: if the next one is,
too.
"""


class ForwardTimes:
    """What forwards take by the rows that share them, on a device whose load may change at any time.

    Three things are kept apart: how fast the device is at present, which all forwards tell, whatever their rows; how
    much more some rows cost than one, which stays as it is; and what it costs that the other side computes meanwhile,
    which shows where the other device is the same: nothing where each has its own. So a cloud that gets slower while
    trees are sent is known to be slower for single rows, too, and one that is slow only while the edge drafts is not
    taken for a slow one. A forward that takes longer than expected is laid to what is known least of: an extended
    Kalman filter over logarithms of seconds, whose state is the device's present, for each class of rows their cost,
    and the cost of what goes on beside.
    """

    def __init__(self) -> None:
        self._told: list[tuple[int, float]] = []
        self._begin()

    def _begin(self) -> None:
        """Nothing is measured. The state: the device, then the rows' costs, logarithms; the rows' may be anything that
        a random walk by doublings might make of them (so what is near costs alike), and one row's is 0.
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
        """One forward more. beside_s: of its time another client computed who may share the device."""
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
        """Of a second of another's work beside a forward, the part that this gets longer by: from 0, a device
        each, up; 0.5 where they share one evenly.
        """
        return float(self._mean[-1])

    @property
    def quiet_is_due(self) -> bool:
        """Whether another client worked beside all of the last forwards, and what that costs is not known."""
        return self._beside_all >= 2 and self._spread[-1, -1] > _SURE_OF_COST**2

    def told(self, row_us: Sequence[tuple[int, int]]) -> None:
        """What a caller has tried, (rows, microseconds)."""
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
        for rows, seconds in before:  # what was measured still holds
            self.add(rows, seconds)

    def measured_s(self, rows: int, other: ForwardTimes | None = None) -> float | None:
        """One of this many rows with nothing beside: no longer than one of more rows was found to take, which chance
        may say. other: the other device, which may know better what it costs to share one.

        Where none of this many was measured: what comes nearest, scaled by what was reported for the two. None
        before any was measured.
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
        """What the other device's forwards say of the cost shifts what these say of all else."""
        said = (other._mean[-1], other._spread[-1, -1], self._mean[-1], self._spread[-1, -1])
        if said != self._said:
            self._said = said
            self._found.clear()
            self._shift = self._spread[-1] * ((said[0] - said[2]) / (said[1] + said[3]))

    def _usual_s(self, rows: int, place: int) -> float:
        """Of n rows with the cost of a class."""
        device, cost = self._mean[0] + self._shift[0], self._mean[1 + place] + self._shift[1 + place]
        return math.exp(device + cost) * self._told_of(rows)

    @property
    def was_told(self) -> bool:
        """Whether anything was reported."""
        return bool(self._told)

    def told_s(self, rows: int) -> float | None:
        """What was reported for this many rows; None where nothing was."""
        return self._told_of(rows) if self._told else None

    def _told_of(self, rows: int) -> float:
        """Straight lines between the numbers of rows that were tried; 1 where nothing was told."""
        if not self._told:
            return 1.0
        before = self._told[0]
        for after in self._told:
            if rows <= after[0]:
                share = (rows - before[0]) / max(after[0] - before[0], 1)
                return max(before[1] + share * (after[1] - before[1]), 1e-9)
            before = after
        return max(before[1], 1e-9)


def _class_of(rows: int) -> int:
    """The place of the class that this many rows belong to."""
    return next((place for place, limit in enumerate(_ROW_CLASSES) if rows <= limit), len(_ROW_CLASSES) - 1)
