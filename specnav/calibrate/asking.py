# SPDX-License-Identifier: Apache-2.0
"""Asks before each step without blocking: odometry and stops must be received while the user reads."""

from __future__ import annotations

import select
import sys
import termios
from collections.abc import Callable
from typing import TextIO

from specnav.calibrate.core.procedure import CalibrationError
from specnav.calibrate.core.steps import CalibrationStep

ALL = "a"


class StepPrompt:
    """Announces each step once, and knows whether it is allowed. yes: all steps are."""

    def __init__(self, yes: bool, say: Callable[[str], None], source: TextIO | None = None) -> None:
        self._all, self._say, self._source = yes, say, source
        self._asked: CalibrationStep | None = None
        self._count = 0

    def allows(self, step: CalibrationStep) -> bool:
        """Whether the step may begin. Raises CalibrationError if the answer is another one, and if there is no
        terminal to ask at.
        """
        if step is not self._asked:
            self._asked, self._count = step, self._count + 1
            question = ""
            if not self._all:
                self._forget_early_answers()
                question = f"  (Enter: go, {ALL} and Enter: go and do not ask again, anything else: end)"
            self._say(f"{self._count:2d}. The robot {step.words}.{question}")
        if self._all:
            return True
        return self._answered()

    def _forget_early_answers(self) -> None:
        """Drop what was typed before the question: a key pressed twice must not begin a step."""
        source = self._source or sys.stdin
        if source.isatty():
            termios.tcflush(source, termios.TCIFLUSH)

    def _answered(self) -> bool:
        source = self._source or sys.stdin
        if not select.select([source], [], [], 0)[0]:
            return False
        line = source.readline()
        if not line:
            raise CalibrationError(
                "cannot ask before each step, as no terminal is attached; --yes starts each step without asking"
            )
        answer = line.strip().lower()
        if answer not in ("", ALL):
            raise CalibrationError(f"ended by the answer {answer[:40]!r}: only Enter, and {ALL}, begin a step")
        self._all = answer == ALL
        return True
