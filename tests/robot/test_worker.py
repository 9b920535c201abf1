"""The decision thread: events in order, cancel from outside, and no error that kills it."""

import threading
import time

import pytest

from spec_vlm_nav.camera.images import Frame
from spec_vlm_nav.common.codes import ErrorCode, LinkState
from spec_vlm_nav.language.actions import Action, ActionKind
from spec_vlm_nav.model.decider import DecisionFailed, DecisionJob, LinkReport, ModelAnswer, ModelQuestion
from spec_vlm_nav.model.worker import ActionFound, Answered, DecisionWorker, Failed, Reconciled

TEXT = "I see it. The next action is move forward 25 cm."


class ScriptedDecider:
    """Fake: calls a function per job; `link_state` is what it says of the link."""

    def __init__(self, script, verify=None):
        self.script, self.closed, self.link_state = script, False, LinkState.UP
        self._verify = verify

    def open(self, on_link_change):
        self.closed, self.on_link_change = False, on_link_change

    def decide(self, job, cancel, on_text):
        return self.script(job, cancel, on_text)

    def verify(self, question, cancel):
        return self._verify(question, cancel)

    def link(self):
        return LinkReport(self.link_state)

    def becomes(self, state):
        self.link_state = state
        self.on_link_change(state)

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


def job(number, instruction="go"):
    return DecisionJob(number, instruction, Frame(b"", (0, 0), 0.0))


def alone(job, cancel, on_text):
    """A script: the draft model's word, which has to be verified."""
    on_text(TEXT, b"jpeg", unverified=True)
    return ModelAnswer(TEXT, open=ModelQuestion(job.number, None))


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
        return ModelAnswer(TEXT)

    worker, events, _ = start(script)
    worker.begin(job(1))
    found, answered = wait_for(events, 2)
    assert (
        isinstance(found, ActionFound)
        and found.action == Action(ActionKind.FORWARD, 25)
        and found.text == TEXT
    )
    assert answered == Answered(1, ModelAnswer(TEXT))


def test_the_text_of_the_answer_under_way_can_be_read_and_begins_anew(start):
    seen = []

    def script(job, cancel, on_text):
        seen.append(worker.text)
        on_text(f"{job.number} see", b"jpeg")
        seen.append(worker.text)
        return ModelAnswer()

    worker, events, _ = start(script)
    worker.begin(job(1))
    worker.begin(job(2))
    wait_for(events, 2)
    assert seen == ["", "1 see", "", "2 see"]


def test_cancel_reaches_a_thinking_decider_and_the_next_job_is_done(start):
    def script(job, cancel, on_text):
        if job.number == 1:
            assert cancel.wait(5)
            on_text(TEXT, b"jpeg")
            raise DecisionFailed(ErrorCode.CANCELED, "canceled")
        return ModelAnswer("two")

    worker, events, _ = start(script)
    worker.begin(job(1))
    worker.cancel()
    worker.begin(job(2))
    assert [(type(e), e.job) for e in wait_for(events, 2)] == [(Failed, 1), (Answered, 2)]


def test_a_decider_that_raises_anything_stops_the_job_not_the_thread(start):
    def script(job, cancel, on_text):
        if job.number == 1:
            raise ZeroDivisionError("oops")
        return ModelAnswer("two")

    worker, events, _ = start(script)
    worker.begin(job(1))
    worker.begin(job(2))
    first, second = wait_for(events, 2)
    assert first.code is ErrorCode.INTERNAL and "oops" in first.message and isinstance(second, Answered)


def test_close_ends_the_thread_and_closes_the_decider(start):
    worker, _, decider = start(lambda *_: ModelAnswer())
    worker.close()
    assert decider.closed and not any(t.name == "decisions" and t.is_alive() for t in threading.enumerate())


def test_an_open_answer_is_verified_once_when_the_link_is_back(start):
    asked = []
    worker, events, decider = start(
        alone, lambda question, cancel: asked.append(question) or ModelAnswer(TEXT)
    )
    decider.link_state = LinkState.LOST
    worker.begin(job(1))
    found, answered = wait_for(events, 2)
    assert found.unverified and answered.unverified
    decider.becomes(LinkState.UP)
    assert wait_for(events, 3)[2] == Reconciled(1, Action(ActionKind.FORWARD, 25), ModelAnswer(TEXT))
    decider.becomes(LinkState.UP)
    time.sleep(0.05)
    assert len(events) == 3 and [q.prompt for q in asked] == [1]


def test_an_open_answer_is_verified_before_the_next_job_is_decided(start):
    verified, begun = threading.Event(), []

    def script(job, cancel, on_text):
        if job.number == 1:
            return alone(job, cancel, on_text)
        begun.append(verified.is_set())
        return ModelAnswer("two")

    def verify(question, cancel):
        time.sleep(0.05)
        verified.set()
        return ModelAnswer("no action")

    worker, events, decider = start(script, verify)
    decider.link_state = LinkState.LOST
    worker.begin(job(1))
    wait_for(events, 2)
    decider.link_state = LinkState.UP  # and nothing says so
    worker.begin(job(2))
    assert wait_for(events, 4)[2:] == [
        Reconciled(1, None, ModelAnswer("no action")),
        Answered(2, ModelAnswer("two")),
    ]
    assert begun == [True]


def test_an_open_answer_is_verified_where_the_link_came_back_during_the_next_job(start):
    def script(job, cancel, on_text):
        if job.number == 1:
            return alone(job, cancel, on_text)
        decider.becomes(LinkState.UP)
        return ModelAnswer("two")

    worker, events, decider = start(script, lambda question, cancel: ModelAnswer("no action"))
    decider.link_state = LinkState.LOST
    worker.begin(job(1))
    wait_for(events, 2)
    worker.begin(job(2))
    assert wait_for(events, 4)[2:] == [
        Answered(2, ModelAnswer("two")),
        Reconciled(1, None, ModelAnswer("no action")),
    ]


@pytest.mark.parametrize("how", ["canceled", "new instruction", "canceled while verified"])
def test_an_open_answer_of_an_instruction_that_is_over_is_dropped(start, how):
    verifying, calls = threading.Event(), []

    def script(job, cancel, on_text):
        return alone(job, cancel, on_text) if job.number == 1 else ModelAnswer("two")

    def verify(question, cancel):
        calls.append(question)
        verifying.set()
        assert cancel.wait(5)
        raise DecisionFailed(ErrorCode.CANCELED, "canceled")

    worker, events, decider = start(script, verify)
    decider.link_state = LinkState.LOST
    worker.begin(job(1))
    wait_for(events, 2)
    if how == "canceled":
        worker.cancel()
        decider.becomes(LinkState.UP)
    elif how == "canceled while verified":
        decider.becomes(LinkState.UP)
        assert verifying.wait(5)
        worker.cancel()
    decider.link_state = LinkState.UP
    worker.begin(job(2, "go elsewhere" if how == "new instruction" else "go"))
    assert wait_for(events, 3)[2:] == [Answered(2, ModelAnswer("two"))]
    assert len(calls) == (how == "canceled while verified")


@pytest.mark.slow
def test_an_answer_that_cannot_be_verified_now_is_tried_again_what_never_can_is_refuted(start):
    outcomes = [
        DecisionFailed(ErrorCode.LINK_LOST, "gone"),
        ModelAnswer(TEXT),
        ZeroDivisionError(),
        ModelAnswer(TEXT),
    ]
    tried = []

    def verify(question, cancel):
        tried.append(question)
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    worker, events, decider = start(alone, verify)
    worker.begin(job(1))
    assert isinstance(wait_for(events, 3)[2], Reconciled) and len(tried) == 2
    worker.begin(job(2))
    wait_for(events, 5)
    deadline = time.monotonic() + 5
    while len(tried) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    decider.becomes(LinkState.UP)
    time.sleep(0.6)
    assert len(tried) == 3 and len(events) == 6
    assert isinstance(events[5], Reconciled) and events[5].job == 2 and events[5].action is None


def test_a_newer_unverified_answer_takes_the_place_of_the_open_one(start):
    worker, events, decider = start(alone, lambda question, cancel: ModelAnswer(f"{question.prompt}"))
    decider.link_state = LinkState.LOST
    for number in (1, 2):
        worker.begin(job(number))
    wait_for(events, 4)
    decider.becomes(LinkState.UP)
    assert wait_for(events, 5)[4] == Reconciled(2, None, ModelAnswer("2"))
    time.sleep(0.05)
    assert len(events) == 5
