# SPDX-License-Identifier: Apache-2.0
"""The exception of the evaluation package. Every message says in one line what is wrong and what to do."""

from __future__ import annotations


class EvaluationError(Exception):
    """A run folder, results file or trace that cannot be read, checked or shown."""


def one_line(error: BaseException) -> str:
    """The message of an error in one line; the name of its type if the message is empty."""
    return " ".join(str(error).split()) or type(error).__name__
