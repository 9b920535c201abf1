# SPDX-License-Identifier: Apache-2.0
"""Which signals a program handles."""

from __future__ import annotations

import signal
from collections.abc import Iterable


def unless_ignored(numbers: Iterable[signal.Signals]) -> list[signal.Signals]:
    """The signals to handle: all but SIGHUP (terminal closed) where it is ignored, as under nohup."""
    return [one for one in numbers if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN]
