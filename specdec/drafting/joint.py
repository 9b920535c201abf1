# SPDX-License-Identifier: Apache-2.0
"""Draft forwards of several answers at once: those that threads ask for while one is running share the next.

Every answer drafts in a thread of its own, as if it were alone; what it wants of the model meets here what others want.
There is no thread for this: of those that wait, the one that came first runs the forward for all, so that who asks
alone pays for a lock and nothing else. No forward waits for company: what shares it has come meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from specdec.errors import ModelError
from specdec.models.loaded import LoadedModel
from specdec.models.plans import Extension, Staged, forward_together, stage

MOST_ROWS = 512
"""Of one forward; a longer prompt comes in parts, so that no thread waits for the whole of it."""


@dataclass
class _ForwardRequest:
    """What one thread waits for. left: not done yet. turn: released when there is a result, or when it is to lead."""

    left: Extension
    turn: threading.Lock = field(default_factory=threading.Lock)
    rest: Extension | None = None
    result: Tensor | Exception | None = None

    def __post_init__(self) -> None:
        self.turn.acquire()

    def take(self, rows: int) -> Extension:
        """What comes into the next forward, at most this many rows of a prompt."""
        if not self.left.divisible or self.left.rows <= rows:
            self.rest = None
            return self.left
        part, self.rest = self.left.divide(rows)
        return part


class JointForwards:
    """The forwards of one model, for any number of threads. Made by `join_forwards`.

    most: sessions that share a forward. forwards: that were run; sessions: that were in them, one by one. began_s: when
    the one that runs began, of time.monotonic; None where none does.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.forwards = 0
        self.sessions = 0
        self._lock = threading.Lock()
        self._asked: deque[_ForwardRequest] = deque()
        self._running = False
        self.began_s: float | None = None

    def extend(self, extension: Extension) -> Tensor:
        """One session's part of a forward that others may share; returns its logits, raises what is its own fault.

        To be called in torch's inference mode, like `forward_together`.
        """
        mine = _ForwardRequest(extension)
        with self._lock:
            self._asked.append(mine)
            leads, self._running = not self._running, True
        while True:
            if not leads:
                mine.turn.acquire()
            if mine.result is None:
                self._lead()
            if mine.result is not None:
                break
            leads = False  # of a prompt there is more to come, and others came before that
        if isinstance(mine.result, Exception):
            raise mine.result
        return mine.result

    def _lead(self) -> None:
        """One forward for those that wait, the one that leads among them; then the next one's turn comes."""
        with self._lock:
            picked = self._pick()
        self.began_s = time.monotonic()
        try:
            self._forward(picked)
        except BaseException:  # Ctrl-C in here: no thread may wait for ever
            for one, _ in picked:
                if one.result is None:
                    one.result = ModelError("a forward that answers shared was interrupted")
            raise
        finally:
            self.began_s = None
            with self._lock:
                self._asked.extend(one for one, _ in picked if one.result is None)
                following = self._asked[0] if self._asked else None
                self._running = following is not None
            for one, _ in picked:
                if one.result is not None:
                    one.turn.release()
            if following is not None:
                following.turn.release()

    def _pick(self) -> list[tuple[_ForwardRequest, Extension]]:
        """Those that came first, as many as may share a forward; one in any case."""
        picked: list[tuple[_ForwardRequest, Extension]] = []
        room = MOST_ROWS
        model = self._asked[0].left.together_with
        later: list[_ForwardRequest] = []
        while self._asked and len(picked) < self.most and room > 0:
            one = self._asked.popleft()
            if one.left.together_with != model or (picked and not one.left.divisible and one.left.rows > room):
                later.append(one)
                continue
            part = one.take(room)
            room -= part.rows
            picked.append((one, part))
        self._asked.extendleft(reversed(later))
        return picked

    def _forward(self, picked: Sequence[tuple[_ForwardRequest, Extension]]) -> None:
        """Run it, and say the result. A result is left open where more of a prompt is to come."""
        staged: list[tuple[_ForwardRequest, Staged]] = []
        for one, part in picked:
            try:
                staged.append((one, stage(part)))
            except Exception as error:  # its own fault: it goes before anything has changed
                one.result = error
        if staged:
            self._run(staged)

    def _run(self, staged: Sequence[tuple[_ForwardRequest, Staged]]) -> None:
        """Where a shared forward fails, each is tried alone, so that one alone fails."""
        self.forwards += 1
        self.sessions += len(staged)
        try:
            results = forward_together([one for _, one in staged])
        except Exception as error:
            if len(staged) == 1:
                staged[0][0].result = error
                return
            for alone in staged:
                self._run([alone])
            return
        for (one, _), result in zip(staged, results, strict=True):
            if one.rest is None:
                one.result = result
            else:
                one.left = one.rest


def join_forwards(model: LoadedModel, most: int = 64) -> JointForwards:
    """From now on forwards of this model's sessions are shared by the threads that want one at the same moment.

    most: sessions in one; 1: they come one after another, and nothing is shared.
    """
    joint = JointForwards(most)
    model.runner.joint = joint
    return joint
