# SPDX-License-Identifier: Apache-2.0
"""Judges what was received: pure functions, tested in simulated time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from specnav.drill.definitions import Drill, ExpectedReaction, ExpectedRecovery, HeardReason, Reason, Trace
from specnav.drill.results import DrillRun, FaultRow
from specnav.results.demo import percentile

STILL = 1e-3  # m/s or rad/s, by odometry; cmd_vel is exactly zero
STANDS_S = 0.05  # this long without motion is a stop, not a gap between two messages
BEFORE_S = 0.15  # messages of this last part before the fault tell whether it moved


def was_moving(trace: Trace, still: float = 0.0) -> bool:
    """Whether the last speed before the fault was above `still`."""
    before = [speed for at, speed in trace.speeds if trace.struck - BEFORE_S <= at < trace.struck]
    return bool(before) and before[-1] > still


def stop_of(trace: Trace, still: float = 0.0) -> tuple[float | None, float | None]:
    """When the robot first stood after the fault, and when it moved again before the fault's end (None: never)."""
    during = [(at, speed > still) for at, speed in trace.speeds if trace.struck <= at <= trace.ended]
    stood = trace.struck if not was_moving(trace, still) else None
    first: float | None = None
    for at, moves in during:
        if moves:
            if first is not None and at - first >= STANDS_S:
                stood = stood if stood is not None else first
            if stood is not None:
                return stood, at
            first = None
        elif first is None:
            first = at
    if stood is None and first is not None:
        stood = first
    return stood, None


def reason_of(said: Sequence[HeardReason], reasons: Sequence[Reason], since: float) -> HeardReason | None:
    """The first of the expected reasons that was reported."""
    return next((s for s in said if s.at >= since and any(s.is_a(reason) for reason in reasons)), None)


def moved_after(trace: Trace, since: float) -> float | None:
    """When the robot first moved after `since`; None: never."""
    return next((at for at, speed in trace.speeds if at > since and speed > 0), None)


def oldest_frame(trace: Trace) -> float:
    """Age of the oldest camera frame (s) on which the robot moved during the fault."""
    oldest, place = 0.0, 0
    for at, speed in trace.speeds:
        if not trace.struck <= at <= trace.ended or speed == 0:
            continue
        while place + 1 < len(trace.frames) and trace.frames[place + 1] <= at:
            place += 1
        if trace.frames and trace.frames[place] <= at:
            oldest = max(oldest, at - trace.frames[place])
    return oldest


def judge(drill: Drill, run: int, trace: Trace, bound_s: float, problems: Sequence[str] = ()) -> DrillRun:
    """The verdict on one run. problems: other problems that were found."""
    found = list(problems)
    still = STILL if drill.by_odometry else 0.0
    moving = was_moving(trace, still)
    stopped, again = stop_of(trace, still)
    stop_s = None if stopped is None else stopped - trace.struck
    if drill.reaction in (ExpectedReaction.STOPS, ExpectedReaction.HALTS):
        if drill.reaction is ExpectedReaction.HALTS:
            again = None
        found += _stop_problems(moving, stop_s, again, bound_s)
    elif drill.reaction is ExpectedReaction.KEEPS_FRESH:
        stop_s, again = oldest_frame(trace), None
        if stop_s > bound_s:
            found.append("moved on a frame older than the bound")
    else:
        stop_s = again = None
    reason = reason_of(trace.said, drill.reasons, trace.struck)
    if drill.reasons and reason is None:
        found.append("no reason was published")
    if (wrong := reason_of(trace.said, drill.never, trace.struck)) is not None and wrong.at <= trace.ended:
        found.append(f"reported {wrong.name}, which was not the reason")
    if trace.backwards:
        found.append("drove backwards")
    if drill.prompt and reason is not None and reason.at - trace.struck > bound_s:
        found.append("the reason was published later than the bound")
    since = _since(drill, trace, stopped)
    moved = moved_after(trace, since)
    if moved is None or moved - since > drill.within_s:
        found.append(
            "did not move again" if drill.reaction is not ExpectedReaction.GOES_ON else "did not continue"
        )
    return DrillRun(
        fault=drill.name,
        run=run,
        moving=moving,
        stop_ms=None if stop_s is None else stop_s * 1e3,
        moved_again_ms=None if again is None or stopped is None else (again - stopped) * 1e3,
        reason="" if reason is None else f"{reason.topic} {reason.name}",
        reason_ms=None if reason is None else (reason.at - trace.struck) * 1e3,
        recovered_ms=None if moved is None else (moved - since) * 1e3,
        problems=found,
    )


def _since(drill: Drill, trace: Trace, stopped: float | None) -> float:
    """The time from which on recovery is measured."""
    if drill.recovery is ExpectedRecovery.NEXT_INSTRUCTION and trace.instructed is not None:
        return trace.instructed
    if drill.reaction is ExpectedReaction.HALTS and stopped is not None:
        return stopped
    if drill.reaction is ExpectedReaction.GOES_ON:  # it must move during the fault as well
        return (trace.struck + trace.ended) / 2
    return trace.ended


def _stop_problems(moving: bool, stop_s: float | None, again: float | None, bound_s: float) -> list[str]:
    if stop_s is None:
        return ["did not stop"]
    found = []
    if moving and stop_s > bound_s:
        found.append("stopped later than the bound")
    if again is not None:
        found.append("moved before the fault was over")
    return found


def row_of(drill: Drill, bound_s: float, runs: Sequence[DrillRun]) -> FaultRow:
    """The row of all runs of a fault."""
    # If the robot was already standing, there is no stopping time.
    stops = [
        r.stop_ms
        for r in runs
        if r.stop_ms is not None and (r.moving or drill.reaction is ExpectedReaction.KEEPS_FRESH)
    ]
    told = [r.reason_ms for r in runs if r.reason_ms is not None]
    back = [r.recovered_ms for r in runs if r.recovered_ms is not None]
    return FaultRow(
        fault=drill.name,
        what=drill.what,
        phase=drill.moment.value,
        reaction=drill.reaction.value,
        bound=drill.bound.words if drill.reaction is not ExpectedReaction.GOES_ON else "",
        bound_ms=bound_s * 1e3 if drill.reaction is not ExpectedReaction.GOES_ON else None,
        runs=len(runs),
        passed=sum(r.passed for r in runs),
        moving=sum(r.moving for r in runs),
        stop_ms=stops,
        stop_ms_p50=percentile(stops, 50),
        stop_ms_p99=percentile(stops, 99),
        stop_ms_max=max(stops, default=None),
        reasons=dict(Counter(r.reason for r in runs if r.reason)),
        reason_ms_p50=percentile(told, 50),
        reason_ms_max=max(told, default=None),
        recovered_ms_p50=percentile(back, 50),
        recovered_ms_max=max(back, default=None),
        problems=dict(Counter(p for r in runs for p in r.problems)),
    )
