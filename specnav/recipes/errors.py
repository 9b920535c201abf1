# SPDX-License-Identifier: Apache-2.0
"""The exception of the training package; its one-line message says what is wrong and what to do."""


class TrainingError(Exception):
    """A wrong argument, a missing file or an unusable checkpoint."""
