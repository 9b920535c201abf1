"""A soak: one instruction after the other in new rooms, while everything that could grow is watched."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from spec_vlm_nav_interfaces.msg import MotionCommand

from spec_vlm_nav.common.codes import ErrorCode
from specnav.drill.growth import growth
from specnav.drill.journal import DrillJournal
from specnav.drill.leaks import ALLOWED, LeakWatch
from specnav.drill.results import LeakCheck
from specnav.results.demo import percentile
from specnav.supervise.robot_stack import METRICS, Stack
from specnav.supervise.surroundings import segments_of
from tests.graph.stack import check_all_up

SAMPLE_S = 5.0
INSTRUCTION_S = 60.0
SAVE_S = 60.0


def soak(stack: Stack, seconds: float, journal: DrillJournal, say: Callable[[str], None]) -> None:
    """Carry out instructions for this long; the journal is kept up to date. Raises HarnessError."""
    watch, began = LeakWatch(stack), time.monotonic()
    looks = max(1.0, min(SAMPLE_S, seconds / 20))
    next_look = next_save = began
    latency: list[float] = []  # decision times, ms
    errors: Counter[str] = Counter()
    shared: list[int] = []
    instructions, heard_until = 0, began
    try:
        while (now := time.monotonic()) - began < seconds:
            stack.cancel()
            stack.reset("heldout")
            started = stack.instruct(stack.instruction)
            instructions += 1
            while (now := time.monotonic()) - began < seconds and now - started < INSTRUCTION_S:
                time.sleep(0.2)
                if now >= next_look:
                    next_look = now + looks
                    check_all_up(stack)
                    watch.look()
                    shared.append(len(segments_of([p.popen.pid for p in stack.robot])))
                if stack.commands(started, MotionCommand.STOP):
                    break
            fresh = [h for h in stack.probe.heard(METRICS, heard_until) if h.at >= heard_until]
            heard_until = time.monotonic()
            latency += [h.message.decision_ms for h in fresh if h.message.sequence]
            errors.update(
                str(h.message.error_code) for h in fresh if h.message.error_code != ErrorCode.NONE.value
            )
            if now >= next_save:
                next_save = now + SAVE_S
                words = f"{(now - began) / 60:.1f} of {seconds / 60:.1f} min, {instructions} instructions"
                say(f"{words}, {_figures(latency, shared)}, errors {dict(errors)}")
                _note(journal, watch, now - began, instructions)
                journal.save()
    finally:
        say(f"{instructions} instructions, {_figures(latency, shared)}, errors {dict(errors)}")
        _note(journal, watch, time.monotonic() - began, instructions)


def _figures(latency: list[float], shared: list[int]) -> str:
    if not latency:
        return "0 decisions"
    return (
        f"{len(latency)} decisions, p50 {percentile(latency, 50):.0f} ms, p95 {percentile(latency, 95):.0f} ms; "
        f"shared-memory files {min(shared, default=0)} to {max(shared, default=0)}"
    )


def _note(journal: DrillJournal, watch: LeakWatch, seconds: float, instructions: int) -> None:
    rows = [row for name, samples in watch.samples.items() for row in growth(name, samples, ALLOWED[name])]
    journal.leaks = [
        LeakCheck(what="instructions", turns=instructions, rows=rows, samples=watch.samples, wall_s=seconds)
    ]
