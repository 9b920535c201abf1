"""The thread in which decisions are made, so that the node hears "stop" while the model thinks.

One job at a time; a newer job waits until the canceled one has let go. Results are posted to the node's thread as
events; the worker itself changes no state of the robot.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from spec_vlm_nav.actions import Action, find_action
from spec_vlm_nav.decider import Decider
from spec_vlm_nav.decision import Answer, DecisionFailed, ErrorCode, Job


@dataclass(frozen=True)
class ActionFound:
    """The action sentence of a job is complete and verified; the reasoning before it is in `text`."""

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
    answer: Answer
    unverified: bool = False


@dataclass(frozen=True)
class Failed:
    """A job ended without a complete answer."""

    job: int
    code: ErrorCode
    message: str
    answer: Answer


@dataclass(frozen=True)
class Reconciled:
    """The link is back, and the target has answered the last unverified decision's question: its whole answer.

    action: what the target says; None where its answer holds none.
    """

    job: int
    action: Action | None
    answer: Answer


Event = ActionFound | Answered | Failed | Reconciled


class DecisionWorker:
    """Owns the decider's thread. `post` is called from that thread with each event."""

    def __init__(
        self, decider: Decider, post: Callable[[Event], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._decider = decider
        self._post = post
        self._clock = clock
        self._jobs: queue.SimpleQueue[tuple[Job, threading.Event] | None] = queue.SimpleQueue()
        self._cancel = threading.Event()
        self._thread = threading.Thread(target=self._run, name="decisions", daemon=True)
        self._thread.start()

    def begin(self, job: Job) -> None:
        """Decide this job next."""
        self._cancel = threading.Event()
        self._jobs.put((job, self._cancel))

    def cancel(self) -> None:
        """End the job that is under way or waiting, soon."""
        self._cancel.set()

    def close(self, timeout_s: float = 3.0) -> None:
        """Cancel and wait for the thread to end."""
        self.cancel()
        self._jobs.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, cancel = item
            if cancel.is_set():
                self._post(Failed(job.number, ErrorCode.CANCELED, "canceled", Answer()))
                continue
            self._post(self._decide(job, cancel))
        self._decider.close()

    def _decide(self, job: Job, cancel: threading.Event) -> Event:
        found = False

        def on_text(text: str, jpeg: bytes) -> None:
            nonlocal found
            if found or cancel.is_set():
                return
            action = find_action(text)
            if action is not None:
                found = True
                self._post(ActionFound(job.number, action, text, jpeg, self._clock()))

        try:
            return Answered(job.number, self._decider.decide(job, cancel, on_text))
        except DecisionFailed as failure:
            return Failed(job.number, failure.code, str(failure), failure.answer)
        except Exception as error:  # whatever goes wrong in here must stop the robot, not the thread
            return Failed(job.number, ErrorCode.INTERNAL, f"{type(error).__name__}: {error}", Answer())
