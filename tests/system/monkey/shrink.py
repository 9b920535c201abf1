"""A run that broke an invariant, made as short as it can be while it still breaks the same one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from tests.system.monkey.robot import MonkeyRobot
from tests.system.monkey.scenario import Scenario, ScenarioEvent, Setup

AFTER_S = 1.0  # a shortened run goes on for this long after what it broke
MOST_RUNS = 600


def kind_of(violation: str) -> str:
    """What a violation is about: its words without time and figures."""
    return re.sub(r"-?\d[\d.]*", "#", violation.partition(": ")[2])


def broken_by(scenario: Scenario) -> str:
    """The first violation of a run; "" for none. What the robot's code raises is one."""
    try:
        violations = MonkeyRobot(scenario).run().violations
    except Exception as error:  # whatever the code under test raises is what is looked for
        return f"0 s: raised {type(error).__name__}: {error}"
    return violations[0] if violations else ""


def shrunk(scenario: Scenario, judge: Callable[[Scenario], str] = broken_by) -> Scenario:
    """The smallest scenario found that breaks what this one breaks; itself when it breaks nothing."""
    first = judge(scenario)
    if not first:
        return scenario
    kind, runs = kind_of(first), 0

    def breaks(candidate: Scenario) -> bool:
        nonlocal runs
        runs += 1
        return runs <= MOST_RUNS and kind_of(judge(candidate)) == kind

    best = _shortened(scenario, float(first.partition(" ")[0]), breaks)
    before = None
    while before != best:
        before = best
        best = _with_fewer_events(best, breaks)
        best = _with_plainer_setup(best, breaks)
    return _rounded(best, breaks)


def _shortened(scenario: Scenario, broke_at: float, breaks: Callable[[Scenario], bool]) -> Scenario:
    end = min(scenario.seconds, broke_at + AFTER_S)
    events = [event for event in scenario.events if event.at <= end]
    short = msgspec.structs.replace(scenario, seconds=end, events=events)
    return short if breaks(short) else scenario


def _with_fewer_events(scenario: Scenario, breaks: Callable[[Scenario], bool]) -> Scenario:
    """Leave out events in chunks, halving the chunks (delta debugging; Zeller and Hildebrandt, 2002)."""
    size = max(1, len(scenario.events) // 2)
    while True:
        at = 0
        while at < len(scenario.events):
            rest = scenario.events[:at] + scenario.events[at + size :]
            candidate = msgspec.structs.replace(scenario, events=rest)
            if breaks(candidate):
                scenario = candidate
            else:
                at += size
        if size == 1:
            return scenario
        size //= 2


def _with_plainer_setup(scenario: Scenario, breaks: Callable[[Scenario], bool]) -> Scenario:
    """Put back to its default every parameter that can be."""
    plain = Setup()
    for name in Setup.__struct_fields__:
        value = getattr(scenario.setup, name)
        if value == getattr(plain, name):
            continue
        scenario = _tried(scenario, name, getattr(plain, name), breaks)
        if isinstance(value, dict):
            for key in value:
                fewer = {k: v for k, v in getattr(scenario.setup, name).items() if k != key}
                scenario = _tried(scenario, name, fewer, breaks)
    return scenario


def _tried(scenario: Scenario, name: str, value: Any, breaks: Callable[[Scenario], bool]) -> Scenario:
    setup = msgspec.structs.replace(scenario.setup, **{name: value})
    candidate = msgspec.structs.replace(scenario, setup=setup)
    return candidate if breaks(candidate) else scenario


def _rounded(scenario: Scenario, breaks: Callable[[Scenario], bool]) -> Scenario:
    events = [ScenarioEvent(round(event.at, 1), event.what, event.args) for event in scenario.events]
    candidate = msgspec.structs.replace(scenario, events=events, seconds=float(round(scenario.seconds + 0.5)))
    return candidate if breaks(candidate) else scenario
