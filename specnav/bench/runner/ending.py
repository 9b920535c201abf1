# SPDX-License-Identifier: Apache-2.0
"""Records how a run ends: normally, by Ctrl-C or SIGTERM, or by an error. Measurements are kept in every case."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from specdec.errors import SpecdecError
from specnav.errors import HarnessError, UsageError
from specnav.results.errors import EvaluationError, one_line
from specnav.signals import ends_on_signals


@dataclass
class Ending:
    """How a run ended. code: exit code, 130 if interrupted. error: one line, "" if nothing failed."""

    code: int = 0
    error: str = ""

    def exit_code(self) -> int:
        """The exit code, to be called after everything is saved and printed. Raises UsageError after a failure."""
        if self.error:
            raise UsageError(self.error)
        return self.code


@contextmanager
def noting_the_end() -> Iterator[Ending]:
    """Record how the block ends. Interrupts, and errors that a user can act on, are not passed on."""
    ending = Ending()
    try:
        with ends_on_signals():
            yield ending
    except KeyboardInterrupt:
        ending.code = 130
    except (UsageError, EvaluationError, HarnessError, SpecdecError) as error:
        ending.error = one_line(error)
