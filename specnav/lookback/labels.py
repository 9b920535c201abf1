# SPDX-License-Identifier: Apache-2.0
"""A person's labels of the correct actions, in the format of `specnav replay --labels`."""

from __future__ import annotations

from pathlib import Path

from specnav.bags.labels import read_labels
from specnav.replay.plan import VOCABULARY
from specnav.results.errors import EvaluationError
from specnav.results.files import write_bytes_atomic


class Labels:
    """The labels of one walk, saved at every change. Raises EvaluationError for an invalid file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.by_stamp: dict[int, str] = {}
        if file.exists() and file.stat().st_size:
            self.by_stamp = {one.stamp_ns: one.action for one in read_labels(file, VOCABULARY)}

    def put(self, stamp_ns: int, action: str) -> None:
        """Label a frame; "" removes its label. Raises EvaluationError."""
        if action and action not in VOCABULARY.values():
            raise EvaluationError(f"{action[:40]!r} is not an action; choose {', '.join(VOCABULARY.values())}")
        if action:
            self.by_stamp[stamp_ns] = action
        else:
            self.by_stamp.pop(stamp_ns, None)
        rows = [f"{stamp},{words}" for stamp, words in sorted(self.by_stamp.items())]
        try:
            if not rows:  # a file without labels could not be read again
                self._file.unlink(missing_ok=True)
                return
            write_bytes_atomic(self._file, ("\n".join(["stamp_ns,action", *rows]) + "\n").encode())
        except OSError as error:
            raise EvaluationError(f"labels cannot be saved in {self._file}: {error.strerror}") from error
