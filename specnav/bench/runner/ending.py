# SPDX-License-Identifier: Apache-2.0
"""How a run ends: by itself, by Ctrl-C or SIGTERM, or by an error. What was measured is kept in any case."""

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
    """code: the exit code, 130 where it was interrupted. error: one line, "" where nothing failed."""

    code: int = 0
    error: str = ""

    def exit_code(self) -> int:
        """For when everything is kept and said. Raises UsageError where something failed."""
        if self.error:
            raise UsageError(self.error)
        return self.code


@contextmanager
def noting_the_end() -> Iterator[Ending]:
    """Notes how the block ended. Interrupts, and errors that a user can act on, do not leave it."""
    ending = Ending()
    try:
        with ends_on_signals():
            yield ending
    except KeyboardInterrupt:
        ending.code = 130
    except (UsageError, EvaluationError, HarnessError, SpecdecError) as error:
        ending.error = one_line(error)
