# SPDX-License-Identifier: Apache-2.0
"""Batches draft forward passes of several answers: requests that arrive while one pass runs share the next.

Each answer drafts in its own thread; their requests are combined here. There is no extra thread: the first waiting
thread leads and runs the pass for all. A single thread therefore pays only for a lock. No pass is delayed to collect
more requests.
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
"""Most rows per forward pass. A longer prompt is split, so that other threads do not wait for all of it."""


@dataclass
class _ForwardRequest:
    """One thread's request. left: the part not computed yet. rest: what remains of it after the present pass. turn:
    released when the result is ready, or when this thread must lead.
    """

    left: Extension
    turn: threading.Lock = field(default_factory=threading.Lock)
    rest: Extension | None = None
    result: Tensor | Exception | None = None

    def __post_init__(self) -> None:
        self.turn.acquire()

    def take(self, rows: int) -> Extension:
        """The part for the next forward pass; a divisible prompt is cut at `rows` rows."""
        if not self.left.divisible or self.left.rows <= rows:
            self.rest = None
            return self.left
        part, self.rest = self.left.divide(rows)
        return part


class JointForwards:
    """The batched forward passes of one model, for any number of threads. Created by `join_forwards`.

    most: most sessions per pass. forwards: passes run so far. sessions: total of the sessions in these passes. began_s:
    start of the running pass (time.monotonic); None if none runs.
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
        """Run one session's extension, possibly in a pass shared with others; returns its logits.

        Raises only errors that this extension caused. Call in torch's inference mode, like `forward_together`.
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
            leads = False  # the prompt has more parts, and other threads are ahead of the next one
        if isinstance(mine.result, Exception):
            raise mine.result
        return mine.result

    def _lead(self) -> None:
        """Run one forward pass for the waiting threads, then hand the lead on."""
        with self._lock:
            picked = self._pick()
        self.began_s = time.monotonic()
        try:
            self._forward(picked)
        except BaseException:  # for example Ctrl-C: no thread may wait forever
            for one, _ in picked:
                if one.result is None:
                    one.result = ModelError("a forward pass shared with other answers was interrupted")
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
        """The requests for the next pass, in order of arrival; at least one."""
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
        """Run the pass and set the results. A request whose prompt has more parts gets no result yet."""
        staged: list[tuple[_ForwardRequest, Staged]] = []
        for one, part in picked:
            try:
                staged.append((one, stage(part)))
            except Exception as error:  # this request's own error; no state has changed yet
                one.result = error
        if staged:
            self._run(staged)

    def _run(self, staged: Sequence[tuple[_ForwardRequest, Staged]]) -> None:
        """Run the staged extensions. If a shared pass fails, each is run alone, so that only the faulty one fails."""
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
    """Batch the forward passes of this model's sessions across threads from now on.

    most: most sessions per pass; 1: passes run one after another, unshared.
    """
    joint = JointForwards(most)
    model.runner.joint = joint
    return joint
