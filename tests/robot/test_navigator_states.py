"""The navigator's table of states: all of it happens, nothing else does, and the page in the docs shows it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from spec_vlm_nav.camera.images import Frame, RawImage
from spec_vlm_nav.common.codes import ErrorCode, LinkState, MotionState
from spec_vlm_nav.common.geometry import Motion
from spec_vlm_nav.common.status import Status
from spec_vlm_nav.deciding import navigator as module
from spec_vlm_nav.deciding.navigator import Navigator
from spec_vlm_nav.deciding.parts.interfaces import NavigatorConfig, NavigatorPhase
from spec_vlm_nav.deciding.states import TABLE, NavigatorEvent, page, react
from spec_vlm_nav.language.actions import STOP_SENTENCE, find_action
from spec_vlm_nav.model.decider import ModelAnswer
from spec_vlm_nav.model.worker import ActionFound, Answered, Failed, Reconciled
from spec_vlm_nav.motion.command import OPERATOR_STOP
from tests.robot.navigator_world import World
from tests.system.monkey.run import run_seed

PAGE = Path(__file__).parents[2] / "ros2_ws/src/spec_vlm_nav/docs/navigator.md"
FORWARD = "It is clear. The next action is move forward 75 cm."
TURN = "I do not see it. The next action is turn left 30 degree."
SAYS = (FORWARD, FORWARD, TURN, f"I see it. {STOP_SENTENCE}", "I like trains.")


class Transitions:
    """Every event that the navigator takes, as (state, event, state afterwards)."""

    def __init__(self, monkeypatch):
        self.seen = set()
        self.left = {}  # the state in which each navigator was left by its last event
        monkeypatch.setattr(module, "react", self.react)

    def react(self, situation, event, what, now):
        before = situation.phase
        assert before is self.left.get(situation, NavigatorPhase.IDLE), "a state changed without an event"
        react(situation, event, what, now)
        self.left[situation] = situation.phase
        if event in TABLE and before in TABLE[event]:
            assert situation.phase in TABLE[event][before].leads_to, (before, event, situation.phase)
            self.seen.add((before.name, event.name, situation.phase.name))
        else:
            assert situation.phase is before, (before, event, situation.phase)


class Walk:
    """A navigator to which anything may happen at any time, by a seed."""

    def __init__(self, seed):
        self.rng = rng = random.Random(f"walk/{seed}")
        self.now, self.sequence, self.jobs = 100.0, 0, []
        config = NavigatorConfig(
            on_link_loss=rng.choice(["stop", "hold", "draft_only_slow", "draft_only_slow"]),
            early_action=rng.random() < 0.7,
            prefetch=rng.random() < 0.7,
            patience_s=rng.choice([3.0, 30.0]),
            max_duration_s=rng.choice([4.0, 600.0]),
            decision_timeout_s=rng.choice([1.0, 20.0]),
            max_decisions=rng.choice([3, 300]),
            max_obstructions=rng.choice([1, 5]),
            parse_failure_limit=rng.choice([1, 3]),
            internal_failure_limit=rng.choice([1, 3]),
            dry_run=rng.random() < 0.1,
        )
        self.navigator = Navigator(self, config)
        self.last = FORWARD  # what the model said last
        think = [self.found, self.found, self.answer]
        self.likely = {
            NavigatorPhase.IDLE: [self.instruct, self.instruct, self.answer, self.fail],
            NavigatorPhase.LOOKING: [*think, self.frame, self.frame, self.frame, self.tick, self.reconcile],
            NavigatorPhase.THINKING: [*think, *think, self.frame, self.tick, self.wait, self.reconcile],
            NavigatorPhase.MOVING: [*think, self.settle, self.frame, self.end, self.tick, self.reconcile],
        }
        self.possible = [self.instruct, self.frame, self.tick, self.found, self.answer, self.fail, self.fail]
        self.possible += [
            self.reconcile,
            self.link,
            self.link,
            self.settle,
            self.goes_on,
            self.end,
            self.wait,
        ]
        self.possible += [self.silence, self.estop, self.stop, self.bad, self.operator]
        # Some walks are left in peace, so that what takes long comes about, too.
        quiet = {
            "operator": [self.instruct, self.estop, self.stop, self.bad, self.operator],
            "mover": [self.settle, self.goes_on, self.end],
            "model": [self.answer, self.wait, self.end],
            "": [],
        }[rng.choice(["operator", "operator", "mover", "model", ""])]
        for phase, likely in self.likely.items():
            if phase is not NavigatorPhase.IDLE:
                self.likely[phase] = [each for each in likely if each not in quiet]
        self.possible = [each for each in self.possible if each not in quiet]

    # Outputs
    def send(self, request):
        self.sequence += 1
        return self.sequence

    def begin(self, job):
        self.jobs.append(job)

    def ignore(self, *_, **__):
        pass

    cancel = spoke = concluded = report = log = ignore

    def run(self, steps):
        for _ in range(steps):
            self.now += self.rng.choice([0.01, 0.05, 0.2])
            is_likely = self.rng.random() < 0.75
            self.rng.choice(self.likely[self.navigator.phase] if is_likely else self.possible)()

    # inputs
    def instruct(self):
        self.navigator.on_instruction("find the red chair", self.now)

    def frame(self):
        picture = RawImage(
            "mono8", 2, 2, 2, bytes([self.rng.choice([9, 9, 200])] * 3 + [self.rng.randrange(9)])
        )
        self.navigator.on_frame(Frame(picture, (int(self.now * 1e3), 1), self.now))

    def status(self, state, reason=""):
        done, held_by = Motion(self.rng.choice([0.0, 0.05, 0.75])), self.rng.choice(["", "a hand"])
        told = Status(state, 1, self.sequence, reason, done, held_by=held_by, since=self.now)
        self.navigator.on_status(told, self.now)

    def goes_on(self):
        self.status(MotionState.MOVING)

    def settle(self):
        self.status(MotionState.SETTLING)

    def end(self):
        self.status(self.rng.choice(list(MotionState)))

    def operator(self):
        self.status(MotionState.STOPPED, OPERATOR_STOP)

    @property
    def job(self):
        """Nearly always the last one's number, otherwise the one before."""
        return self.jobs[-1 if self.rng.random() < 0.9 else -2].number if len(self.jobs) > 1 else 1

    def found(self):
        self.last, job = self.rng.choice(SAYS), self.job
        if (action := find_action(self.last)) is not None:
            alone = self.rng.random() < 0.4
            self.navigator.on_event(ActionFound(job, action, self.last, b"jpeg", self.now, alone), self.now)

    def answer(self):
        alone = self.rng.random() < 0.4
        self.navigator.on_event(Answered(self.job, ModelAnswer(self.rng.choice(SAYS)), alone), self.now)

    def fail(self):
        code = self.rng.choice(
            [ErrorCode.INTERNAL, ErrorCode.INTERNAL, ErrorCode.LINK_LOST, ErrorCode.CANCELED]
        )
        self.navigator.on_event(Failed(self.job, code, "it failed", ModelAnswer()), self.now)

    def reconcile(self):
        text = self.last if self.rng.random() < 0.6 else self.rng.choice(SAYS)
        job = self.rng.choice(self.jobs[-3:]).number if self.jobs else 1
        self.navigator.on_event(Reconciled(job, find_action(text), ModelAnswer(text)), self.now)

    def link(self):
        self.navigator.on_link(self.rng.choice([LinkState.UP, LinkState.LOST]), self.now)

    def tick(self):
        self.navigator.tick(self.now)

    def wait(self):
        self.now += self.rng.choice([1.5, 6.0, 25.0])
        self.navigator.tick(self.now)

    def silence(self):
        for _ in range(12):  # frames come, motion_node says nothing
            self.now += 0.11
            self.frame()
            self.tick()

    def estop(self):
        self.navigator.on_estop(self.rng.choice(["button", "", ""]), self.now)

    def stop(self):
        self.navigator.on_instruction("stop", self.now)

    def bad(self):
        self.navigator.on_instruction("", self.now)


@pytest.fixture
def transitions(monkeypatch):
    return Transitions(monkeypatch)


class Scene(World):
    """Pictures that can be compared, and a settling motion."""

    def picture(self):
        return RawImage("mono8", 2, 2, 2, bytes(4))

    def stall(self, seconds):
        self.navigator.wake(self.now)
        self.now += seconds
        self.navigator.wake(self.now)
        return self

    def settles(self):
        self.navigator.on_status(Status(MotionState.SETTLING, 1, len(self.requests)), self.now)
        return self.run(0.2)

    def alone(self, text):
        job = self.jobs[-1].number
        found = ActionFound(job, find_action(text), text, b"jpeg", self.now, True)
        self.navigator.on_event(found, self.now)
        self.navigator.on_event(Answered(job, ModelAnswer(text), True), self.now)
        return self

    def target_says(self, text, job):
        self.navigator.on_event(Reconciled(job.number, find_action(text), ModelAnswer(text)), self.now)
        return self


def play_what_is_rare():
    """What a random walk seldom comes to."""
    Scene(prefetch=True, decision_timeout_s=0.5).instruct().answer(FORWARD).settles().run(0.7)
    Scene(prefetch=True).instruct().answer(FORWARD).settles().find(TURN).ended().run(0.3)
    Scene(decision_timeout_s=1.0, patience_s=1.5).instruct().run(1.7).find(FORWARD).run(2.0)
    for says in (FORWARD, TURN):
        draft = Scene(on_link_loss="draft_only_slow").instruct().alone(FORWARD).ended().run(0.3)
        draft.target_says(says, draft.jobs[0])
    for says in (FORWARD, STOP_SENTENCE):
        draft = Scene(on_link_loss="draft_only_slow").instruct().alone(says).ended()
        draft.target_says(says, draft.jobs[0])
    for stalled_s in (1.5, 3.0):
        Scene().instruct().stall(stalled_s)
        Scene().instruct().answer(FORWARD).stall(stalled_s)
        Scene().instruct().answer(FORWARD).ended().stall(stalled_s)
    silent = Scene(patience_s=2.0).instruct()
    silent.mover = False
    for _ in range(3):
        silent.answer(FORWARD).run(2.0)


@pytest.mark.slow
def test_whatever_happens_no_transition_is_outside_the_table_and_each_in_it_is_seen(transitions):
    play_what_is_rare()
    for seed in range(120):
        Walk(seed).run(200)
    told = {
        (before.name, event.name, after.name)
        for event, cells in TABLE.items()
        for before, reaction in cells.items()
        for after in reaction.leads_to
    }
    assert told - transitions.seen == set()


@pytest.mark.slow
def test_in_a_simulated_robot_no_transition_is_outside_the_table(transitions):
    record = run_seed(4)
    assert record.violation == "" and len(transitions.seen) > 20


def test_a_transition_outside_the_table_is_noticed(transitions):
    walk = Walk(0)
    walk.navigator.phase = NavigatorPhase.MOVING
    with pytest.raises(AssertionError, match="without an event"):
        walk.frame()


def test_every_event_has_a_row_and_the_page_in_the_docs_is_what_the_table_says():
    assert set(TABLE) == set(NavigatorEvent)
    command = "python -m spec_vlm_nav.deciding.states"
    assert PAGE.read_text() == page(), f"make it anew: {command} > docs/navigator.md"
