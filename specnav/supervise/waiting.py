# SPDX-License-Identifier: Apache-2.0
"""Waits for a condition, with a time-out."""

from __future__ import annotations

import time
from collections.abc import Callable

from specnav.errors import HarnessError

POLL_S = 0.01
TAIL_CHARS = 3000


def wait_until(
    done: Callable[[], bool], timeout_s: float, what: str, explain: Callable[[], str] = lambda: ""
) -> float:
    """Wait for a condition.

    Args:
        done: The condition.
        timeout_s: How long to wait.
        what: What is waited for, for the error message.
        explain: Returns details for the error message; its end is shown.

    Returns:
        When the condition held (time.monotonic).

    Raises:
        HarnessError: It did not hold in time.
    """
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            raise HarnessError(f"{what}: not within {timeout_s:g} s\n{explain()[-TAIL_CHARS:]}".strip())
        time.sleep(POLL_S)
    return time.monotonic()
