# SPDX-License-Identifier: Apache-2.0
"""One line of the report."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Verdict(enum.Enum):
    """Result of a check. FAIL: in this state the robot does not obey."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True)
class CheckLine:
    """What was checked, the result, and the remedy if it is not ok."""

    verdict: Verdict
    check: str
    found: str
    remedy: str = ""


CheckLines = CheckLine | list[CheckLine]
"""Result of a check: one line, several, or none."""


def ok(check: str, found: str) -> CheckLine:
    """A line about something that is fine."""
    return CheckLine(Verdict.OK, check, found)


def warn(check: str, found: str, remedy: str) -> CheckLine:
    """A line about something that works but should be checked."""
    return CheckLine(Verdict.WARN, check, found, remedy)


def fail(check: str, found: str, remedy: str) -> CheckLine:
    """A line about something that keeps the robot from obeying."""
    return CheckLine(Verdict.FAIL, check, found, remedy)
