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
The thread in which decisions are made, so that the node hears "stop" while the model thinks.

One job at a time; a newer job waits until the canceled one has let go. Results are posted to the
node's thread as events; the worker itself changes no state of the robot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
import queue
import threading
import time

from spec_vlm_nav.common.codes import ErrorCode, LinkState
from spec_vlm_nav.language.actions import Action, find_action
from spec_vlm_nav.model.answers import DecisionFailed, DecisionJob, ModelAnswer, ModelQuestion
from spec_vlm_nav.model.decider import Decider

RETRY_S = 0.5
"""How often an open answer is looked at while nothing is heard of the link."""


@dataclass(frozen=True)
class ActionFound:
    """
    The action sentence of a job is complete and verified.

    The reasoning before it is in `text`.
    """

    job: int
    action: Action
    text: str
    jpeg: bytes
    at: float
    unverified: bool = False  # the draft model alone says so


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
    The link is back, and the target has answered the last unverified decision's question.

    answer: the whole of it. action: what the target says; None where its answer holds none.
    """

    job: int
    action: Action | None
    answer: ModelAnswer


Event = ActionFound | Answered | Failed | Reconciled


@dataclass(frozen=True)
class _Ticket:
    """A job in the queue. over: set when nothing of its instruction is of interest any more."""

    job: DecisionJob
    cancel: threading.Event
    over: threading.Event


class DecisionWorker:
    """
    Owns the decider's thread, and opens and closes the decider.

    `post` is called from that thread with each event.

    An answer that the draft model gave alone stays open: as soon as the link is back it is
    verified, when nothing else is to be done or before the next job is decided. `text`: all of the
    answer under way so far; any thread may read it.
    """

    def __init__(
        self,
        decider: Decider,
        post: Callable[[Event], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._decider = decider
        self._post = post
        self._clock = clock
        self.text = ""  # all of the answer under way so far; any thread may read it
        self._jobs: queue.SimpleQueue[_Ticket | LinkState | None] = queue.SimpleQueue()
        self._cancel = threading.Event()
        self._over = threading.Event()
        self._open: tuple[_Ticket, ModelQuestion] | None = None
        decider.open(self._jobs.put)
        self._thread = threading.Thread(target=self._run, name="decisions", daemon=True)
        self._thread.start()

    def begin(self, job: DecisionJob) -> None:
        """Decide this job next."""
        self._cancel = threading.Event()
        self._jobs.put(_Ticket(job, self._cancel, self._over))

    def cancel(self, keep_open: bool = False) -> None:
        """
        End the job that is under way or waiting, soon.

        keep_open: an open answer is verified nevertheless.
        """
        self._cancel.set()
        if not keep_open:
            over, self._over = self._over, threading.Event()
            over.set()

    def close(self, timeout_s: float = 3.0) -> bool:
        """
        Cancel, wait for the thread to end and the decider to be closed.

        Return whether both did in time.
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
            if isinstance(event, Answered):
                self._open = None if event.answer.open is None else (item, event.answer.open)
        self._decider.close()

    def _settle_open(self, next_: _Ticket | None = None) -> None:
        """Have the open answer verified if there is one, it still matters and there is a link."""
        if self._open is None:
            return
        ticket, question = self._open
        if ticket.over.is_set() or (
            next_ is not None and next_.job.instruction != ticket.job.instruction
        ):
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
        if not ticket.over.is_set():  # what the target has not said counts as refuted
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
                self._post(ActionFound(job.number, action, text, jpeg, self._clock(), unverified))

        try:
            answer = self._decider.decide(job, ticket.cancel, on_text)
            return Answered(job.number, answer, answer.unverified)
        except DecisionFailed as failure:
            return Failed(job.number, failure.code, str(failure), failure.answer)
        except Exception as error:  # whatever goes wrong in here must stop the robot, not the thread
            why = f"{type(error).__name__}: {error}"
            return Failed(job.number, ErrorCode.INTERNAL, why, ModelAnswer())
