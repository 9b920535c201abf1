# SPDX-License-Identifier: Apache-2.0
"""One line of the report."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Verdict(enum.Enum):
    """FAIL: as things are, the robot does not do what it is told."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True)
class CheckLine:
    """What was looked at, how it is, and what to do where it is not ok."""

    verdict: Verdict
    check: str
    found: str
    remedy: str = ""


CheckLines = CheckLine | list[CheckLine]
"""What a check finds: one line, several, or none."""


def ok(check: str, found: str) -> CheckLine:
    """A line that says that all is well."""
    return CheckLine(Verdict.OK, check, found)


def warn(check: str, found: str, remedy: str) -> CheckLine:
    """A line about what works and had better be looked at."""
    return CheckLine(Verdict.WARN, check, found, remedy)


def fail(check: str, found: str, remedy: str) -> CheckLine:
    """A line about what keeps the robot from doing what it is told."""
    return CheckLine(Verdict.FAIL, check, found, remedy)
