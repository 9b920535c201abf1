"""What the edge measures while it decodes: the times of a forward on either side, the link, and what is accepted.

Medians over the last rounds, so that one hiccup decides nothing. None until something was measured.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from specdec.drafting.trees.acceptance import TreeAcceptance

_WINDOW = 32
_FORGET = 0.98
_MAX_DEPTH = 64
_PRIOR_KEPT, _PRIOR_TRIED = 1.4, 2.0
_ROW_CLASSES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64)


class RunningMedian:
    """The median of the last values; worked out when it is asked for, once a value."""

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=_WINDOW)
        self._median: float | None = None

    def add(self, value: float) -> None:
        """One more value."""
        self._values.append(value)
        self._median = None

    @property
    def value(self) -> float | None:
        """The median (the upper one of two in the middle); None without values."""
        if self._median is None and self._values:
            self._median = sorted(self._values)[len(self._values) // 2]
        return self._median


class AcceptanceEstimate:
    """How far drafts are accepted: at every depth, how often a draft that was right so far is right there, too."""

    def __init__(self) -> None:
        self._tried = [0.0] * _MAX_DEPTH
        self._kept = [0.0] * _MAX_DEPTH
        self.drafts = 0

    def add(self, known: int, kept: int) -> None:
        """One draft of which `kept` tokens were right; known: how many places there was something to compare at."""
        self.drafts += 1
        for place in range(min(known, kept + 1, _MAX_DEPTH)):
            self._tried[place] = _FORGET * self._tried[place] + 1.0
            self._kept[place] = _FORGET * self._kept[place] + (place < kept)

    def compare(self, line: Sequence[int], said: Sequence[int]) -> None:
        """One chain of which the target's own tokens in its place are known, as many as there are."""
        known = min(len(line), len(said))
        self.add(known, next((i for i in range(known) if line[i] != said[i]), known))

    def chance(self, depth: int) -> float:
        """Chance that a draft's token at `depth` (0 is the first) stays if all before it did.

        Starts from a guess of 0.7 that two dozen drafts outweigh; a depth that was never tried is like the
        deepest one that was.
        """
        place = min(depth, _MAX_DEPTH - 1)
        while place > 0 and self._tried[place] < 1.0:
            place -= 1
        return (self._kept[place] + _PRIOR_KEPT) / (self._tried[place] + _PRIOR_TRIED)

    def expected(self, depth: int) -> float:
        """Tokens that a round brings with drafts so deep, the target's own token counted (tau)."""
        expected = alive = 1.0
        for place in range(depth):
            alive *= self.chance(place)
            expected += alive
        return expected


class RunningMean:
    """A mean that the last values count most in; begins as a guess that a few of them outweigh."""

    def __init__(self, guess: float) -> None:
        self._sum, self._weight = 4.0 * guess, 4.0

    def add(self, value: float) -> None:
        """One more value."""
        self._sum, self._weight = 0.95 * self._sum + value, 0.95 * self._weight + 1.0

    @property
    def value(self) -> float:
        """The mean as it seems now."""
        return self._sum / self._weight


class ForwardTimes:
    """What forwards take by the rows that share them: medians of those that were measured, and what was told before."""

    def __init__(self) -> None:
        self._by_rows = {rows: RunningMedian() for rows in _ROW_CLASSES}
        self._told: list[tuple[int, float]] = []

    def add(self, rows: int, seconds: float) -> None:
        """One forward more."""
        self._by_rows[_row_class(rows)].add(seconds)

    def told(self, row_us: Sequence[tuple[int, int]]) -> None:
        """What somebody has tried, (rows, microseconds)."""
        self._told = [(rows, us / 1e6) for rows, us in row_us]

    def measured_s(self, rows: int) -> float | None:
        """One of so many rows: no longer than one of more rows was found to take, which chance may say.

        Where none of so many was measured: what comes nearest, times what was told of the difference. None before any
        was measured.
        """
        wanted = _row_class(rows)
        known = {one: value for one, each in self._by_rows.items() if (value := each.value) is not None}
        if not known:
            return None
        above = [seconds for one, seconds in known.items() if one >= wanted]
        if wanted not in known:
            near = min(known, key=lambda one: (abs(one - wanted), one))
            above.append(known[near] * (self._told_of(rows) / self._told_of(near) if self._told else 1.0))
        return min(above)

    @property
    def was_told(self) -> bool:
        """Whether anything was told."""
        return bool(self._told)

    def told_s(self, rows: int) -> float | None:
        """What was told of so many rows; None where nothing was."""
        return self._told_of(rows) if self._told else None

    def _told_of(self, rows: int) -> float:
        """Straight lines between the numbers of rows that were tried."""
        before = self._told[0]
        for after in self._told:
            if rows <= after[0]:
                share = (rows - before[0]) / max(after[0] - before[0], 1)
                return max(before[1] + share * (after[1] - before[1]), 1e-9)
            before = after
        return max(before[1], 1e-9)


class Measured:
    """Live figures of one edge and its verifier, kept over the answers. Times in seconds.

    chain, tree: acceptance of chains, and of the trees of one budget; nodes: of trees, node by node. redrafted: share
    of a chain that had to be drafted after the verdict although it was prepared for (r of paper 000, as a share of the
    forwards). levels_ready: levels of a tree that stood when the verdict came. kept: tokens accepted for each that the
    draft model expected to be; grown: what a forward adds to that expectation, as a share of what went through it.
    """

    def __init__(self) -> None:
        self._draft = RunningMedian()
        self._ahead = RunningMedian()
        self._draft_by_rows = ForwardTimes()
        self._verify = RunningMedian()
        self._verify_by_rows = ForwardTimes()
        self._alone = {False: RunningMedian(), True: RunningMedian()}
        self._rtt = RunningMedian()
        self._queue = RunningMedian()
        self.chain = AcceptanceEstimate()
        self.tree = AcceptanceEstimate()
        self.nodes = TreeAcceptance()
        self.redrafted = RunningMean(0.3)
        self.levels_ready = RunningMean(1.0)
        self._tokens = self._seconds = 0.0
        self._went = 0
        self.kept = RunningMean(1.0)
        self.grown = RunningMean(0.5)

    def drafted(self, forward_s: float, rows: int = 1) -> None:
        """One forward of the draft model, of so many rows; 0: there was none."""
        self._draft.add(forward_s)
        self._priced(forward_s, rows)

    def drafted_ahead(self, forward_s: float, rows: int = 1) -> None:
        """One forward of the draft model while a verdict was out."""
        self._ahead.add(forward_s)
        self._priced(forward_s, rows)

    def _priced(self, forward_s: float, rows: int) -> None:
        if rows:
            self._draft_by_rows.add(rows, forward_s)

    def told_of_drafts(self, row_us: Sequence[tuple[int, int]]) -> None:
        """What forwards of the draft model were found to take when it was loaded, (rows, microseconds)."""
        self._draft_by_rows.told(row_us)

    @property
    def knows_draft_rows(self) -> bool:
        """Whether draft forwards were tried by their rows before any was of use."""
        return self._draft_by_rows.was_told

    def draft_rows_s(self, rows: int) -> float | None:
        """One draft forward of so many rows; before any was measured as was told, None where nothing was."""
        measured_s = self._draft_by_rows.measured_s(rows)
        return self._draft_by_rows.told_s(rows) if measured_s is None else measured_s

    def exchanged(self, rows: int, verify_s: float, rtt_s: float, queue_s: float | None = 0.0) -> None:
        """One draft and its verdict; rows: that went through the target, the draft's and one more. queue_s: it waited
        in the cloud; None: for something that says nothing of other drafts.
        """
        self._verify.add(verify_s)
        self._rtt.add(rtt_s)
        if queue_s is not None:
            self._queue.add(queue_s)
        self._verify_by_rows.add(rows, verify_s)

    def went_on(self, tokens: int, seconds: float) -> None:
        """A verdict with a draft on the way before it: how many tokens came, and how long after the verdict before."""
        self._tokens = 0.9 * self._tokens + tokens
        self._seconds = 0.9 * self._seconds + seconds
        self._went += 1

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens a second of the last dozen rounds with drafts; None before there were a few."""
        return self._tokens / self._seconds if self._went >= 4 and self._seconds > 0.0 else None

    def streamed(self, tokens: int, verify_s: float, speculated: bool, queue_s: float = 0.0) -> None:
        """Tokens of a cloud that decodes alone, with a draft model of its own or without. queue_s: waiting."""
        self._alone[speculated].add((verify_s + queue_s) / tokens)
        if not speculated and tokens == 1:
            self._verify_by_rows.add(1, verify_s)

    def pinged(self, rtt_s: float) -> None:
        """One question to the verifier and its answer."""
        self._rtt.add(rtt_s)

    @property
    def draft_s(self) -> float | None:
        """One draft forward (Tp)."""
        return self._draft_by_rows.told_s(1) if self._draft.value is None else self._draft.value

    @property
    def ahead_s(self) -> float | None:
        """One draft forward while a verdict is out."""
        return self._ahead.value

    @property
    def verify_s(self) -> float | None:
        """One verification (Tq)."""
        return self._verify.value

    def told(self, row_us: Sequence[tuple[int, int]]) -> None:
        """What the verifier says that its forwards take, (rows, microseconds)."""
        self._verify_by_rows.told(row_us)

    def verify_rows_s(self, rows: int) -> float | None:
        """One verification of so many rows (see ForwardTimes.measured_s)."""
        return self._verify_by_rows.measured_s(rows)

    def told_rows_s(self, rows: int) -> float | None:
        """What the verifier says that so many rows take, when it is idle; None where it says nothing."""
        return self._verify_by_rows.told_s(rows)

    def alone_s(self, speculated: bool) -> float | None:
        """A token of a cloud that decodes alone, with a draft model of its own or without."""
        return self._alone[speculated].value

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
        return self._rtt.value

    @property
    def away_s(self) -> float | None:
        """There and back, and waiting in the cloud: a round's time beside drafting and verifying."""
        return None if self._rtt.value is None else self._rtt.value + (self._queue.value or 0.0)

    def acceptance(self, depth: int) -> float:
        """Chance that a chain's token at `depth` stays if all before it did (see AcceptanceEstimate.chance)."""
        return self.chain.chance(depth)


def _row_class(rows: int) -> int:
    return next((limit for limit in _ROW_CLASSES if rows <= limit), _ROW_CLASSES[-1])
