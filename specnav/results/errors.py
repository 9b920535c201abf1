# SPDX-License-Identifier: Apache-2.0
"""The one exception of the evaluation room: every message says what was wrong and what to do, in one line."""

from __future__ import annotations


class EvaluationError(Exception):
    """A run folder, results file or trace that cannot be read, checked or shown."""


def one_line(error: BaseException) -> str:
    """What any error says, in one line; the name of its type where it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__
