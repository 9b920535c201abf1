# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
The decision thread, so that the node can handle "stop" while the model thinks.

It runs one job at a time; a newer job waits until the canceled one has ended. Results are posted to
the node's thread as events; the worker itself changes no state of the robot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
import queue
import threading
import time

from spec_vlm_nav.common.codes import ErrorCode, LinkState
from spec_vlm_nav.language.actions import Action, find_action
from spec_vlm_nav.model.decider import Decider, DecisionFailed, DecisionJob, ModelAnswer, ModelQuestion

RETRY_S = 0.5
"""Interval of trying to verify an open answer while no link change is reported."""


@dataclass(frozen=True)
class ActionFound:
    """
    The action sentence of a job is complete; it is verified unless `unverified` is set.

    text: the answer so far, with the reasoning.
    """

    job: int
    action: Action
    text: str
    jpeg: bytes
    at: float
    unverified: bool = False  # only the draft model produced it


@dataclass(frozen=True)
class Answered:
    """The answer of a job is complete."""

    job: int
    answer: ModelAnswer
    unverified: bool = False


@dataclass(frozen=True)
class Failed:
    """A job ended without a complete answer."""

    job: int
    code: ErrorCode
    message: str
    answer: ModelAnswer


@dataclass(frozen=True)
class Reconciled:
    """
    The link is back, and the target has answered the question of the last unverified decision.

    answer: the target's answer. action: its action; None if it contains none.
    """

    job: int
    action: Action | None
    answer: ModelAnswer


Event = ActionFound | Answered | Failed | Reconciled


@dataclass(frozen=True)
class _Ticket:
    """A job in the queue. over: set when its instruction is over."""

    job: DecisionJob
    cancel: threading.Event
    over: threading.Event


class DecisionWorker:
    """
    Runs the decision thread, and opens and closes the decider.

    post: called from that thread with each event.

    An answer of the draft model alone stays open. Once the link is back, it is verified when the
    worker is idle or before the next job.
    """

    def __init__(
        self,
        decider: Decider,
        post: Callable[[Event], None],
    ) -> None:
        self._decider = decider
        self._post = post
        self.text = ""  # all of the answer under way so far; any thread may read it
        self._jobs: queue.SimpleQueue[_Ticket | LinkState | None] = queue.SimpleQueue()
        self._cancel = threading.Event()
        self._over = threading.Event()
        self._open: tuple[_Ticket, ModelQuestion] | None = None
        decider.open(self._jobs.put)
        self._thread = threading.Thread(target=self._run, name="decisions", daemon=True)
        self._thread.start()

    def begin(self, job: DecisionJob) -> None:
        """Queue a job."""
        self._cancel = threading.Event()
        self._jobs.put(_Ticket(job, self._cancel, self._over))

    def cancel(self, keep_open: bool = False) -> None:
        """
        Cancel the job under way or waiting; it ends soon after.

        keep_open: an open answer is still verified.
        """
        self._cancel.set()
        if not keep_open:
            over, self._over = self._over, threading.Event()
            over.set()

    def close(self, timeout_s: float = 3.0) -> bool:
        """
        Cancel, then wait until the thread has closed the decider and ended.

        Returns whether it ended in time.
        """
        self.cancel()
        self._jobs.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            try:
                item = self._jobs.get(timeout=None if self._open is None else RETRY_S)
            except queue.Empty:
                item = LinkState.UNKNOWN
            if item is None:
                break
            if not isinstance(item, _Ticket):
                self._settle_open()
                continue
            self.text = ""
            if not item.cancel.is_set():
                self._settle_open(item)
            if item.cancel.is_set():
                self._post(Failed(item.job.number, ErrorCode.CANCELED, "canceled", ModelAnswer()))
                continue
            event = self._decide(item)
            self._post(event)
            # An older open answer is still verified where the link came back during this job.
            if isinstance(event, Answered) and event.answer.open is not None:
                self._open = (item, event.answer.open)
        self._decider.close()

    def _settle_open(self, next_: _Ticket | None = None) -> None:
        """Verify the open answer if there is one, its instruction goes on, and the link is up."""
        if self._open is None:
            return
        ticket, question = self._open
        if ticket.over.is_set() or (next_ is not None and next_.job.instruction != ticket.job.instruction):
            self._open = None
            return
        if self._decider.link().state is not LinkState.UP:
            return
        try:
            answer = self._decider.verify(question, ticket.over)
        except DecisionFailed as failure:
            if failure.code is ErrorCode.LINK_LOST:  # it can be tried again
                return
            answer = failure.answer
        except Exception:  # must not end the thread
            answer = ModelAnswer()
        self._open = None
        if not ticket.over.is_set():  # without an answer of the target the decision counts as refuted
            self._post(Reconciled(ticket.job.number, find_action(answer.text), answer))

    def _decide(self, ticket: _Ticket) -> Event:
        job, found = ticket.job, False

        def on_text(text: str, jpeg: bytes, unverified: bool = False) -> None:
            nonlocal found
            self.text = text
            if found or ticket.cancel.is_set():
                return
            action = find_action(text)
            if action is not None:
                found = True
                self._post(ActionFound(job.number, action, text, jpeg, time.monotonic(), unverified))

        try:
            answer = self._decider.decide(job, ticket.cancel, on_text)
            return Answered(job.number, answer, answer.unverified)
        except DecisionFailed as failure:
            return Failed(job.number, failure.code, str(failure), failure.answer)
        except Exception as error:  # any error must stop the robot, not the thread
            why = f"{type(error).__name__}: {error}"
            return Failed(job.number, ErrorCode.INTERNAL, why, ModelAnswer())
