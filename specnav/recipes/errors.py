# SPDX-License-Identifier: Apache-2.0
"""Errors of the training room: one exception whose one-line message says what was wrong and what to do."""


class TrainingError(Exception):
    """A wrong argument, a missing file or an unusable checkpoint; the message says what to do."""
