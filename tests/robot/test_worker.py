"""The decision thread: events in order, cancel from outside, and no error that kills it."""

import threading
import time

import pytest

from spec_vlm_nav.actions import Action, ActionKind
from spec_vlm_nav.decider import LinkHealth, LinkReport
from spec_vlm_nav.decision import Answer, DecisionFailed, ErrorCode, Frame, Job
from spec_vlm_nav.worker import ActionFound, Answered, DecisionWorker, Failed

TEXT = "I see it. The next action is move forward 25 cm."


class ScriptedDecider:
    """Fake: calls a function per job; `health` is what it says of the link."""

    def __init__(self, script, verify=None):
        self.script, self.closed, self.health = script, False, LinkHealth.UP
        self._verify = verify

    def open(self, on_link_change):
        self.closed, self.on_link_change = False, on_link_change

    def decide(self, job, cancel, on_text):
        return self.script(job, cancel, on_text)

    def verify(self, question, cancel):
        return self._verify(question, cancel)

    def link(self):
        return LinkReport(self.health)

    def becomes(self, health):
        self.health = health
        self.on_link_change(health)

    def close(self):
        self.closed = True


@pytest.fixture
def start():
    workers = []

    def make(script, verify=None):
        events, decider = [], ScriptedDecider(script, verify)
        worker = DecisionWorker(decider, events.append)
        workers.append(worker)
        return worker, events, decider

    yield make
    for worker in workers:
        worker.close()


def job(number):
    return Job(number, "go", Frame(b"", (0, 0), 0.0))


def wait_for(events, count):
    deadline = time.monotonic() + 5
    while len(events) < count and time.monotonic() < deadline:
        time.sleep(0.005)
    return events


def test_the_action_comes_before_the_answer_and_only_once(start):
    def script(job, cancel, on_text):
        for n in range(len(TEXT) + 1):
            on_text(TEXT[:n], b"jpeg")
        on_text(TEXT + " More.", b"jpeg")
        return Answer(TEXT)

    worker, events, _ = start(script)
    worker.begin(job(1))
    found, answered = wait_for(events, 2)
    assert (
        isinstance(found, ActionFound)
        and found.action == Action(ActionKind.FORWARD, 25)
        and found.text == TEXT
    )
    assert answered == Answered(1, Answer(TEXT))


def test_cancel_reaches_a_thinking_decider_and_the_next_job_is_done(start):
    def script(job, cancel, on_text):
        if job.number == 1:
            assert cancel.wait(5)
            on_text(TEXT, b"jpeg")
            raise DecisionFailed(ErrorCode.CANCELED, "canceled")
        return Answer("two")

    worker, events, _ = start(script)
    worker.begin(job(1))
    worker.cancel()
    worker.begin(job(2))
    assert [(type(e), e.job) for e in wait_for(events, 2)] == [(Failed, 1), (Answered, 2)]


def test_a_decider_that_raises_anything_stops_the_job_not_the_thread(start):
    def script(job, cancel, on_text):
        if job.number == 1:
            raise ZeroDivisionError("oops")
        return Answer("two")

    worker, events, _ = start(script)
    worker.begin(job(1))
    worker.begin(job(2))
    first, second = wait_for(events, 2)
    assert first.code is ErrorCode.INTERNAL and "oops" in first.message and isinstance(second, Answered)


def test_close_ends_the_thread_and_closes_the_decider(start):
    worker, _, decider = start(lambda *_: Answer())
    worker.close()
    assert decider.closed and not any(t.name == "decisions" and t.is_alive() for t in threading.enumerate())
