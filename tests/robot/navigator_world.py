"""A world in simulated time around the navigator: it records what is asked for, and answers on command."""

from __future__ import annotations

from spec_vlm_nav.camera.images import Frame
from spec_vlm_nav.common.codes import LinkState, MotionState
from spec_vlm_nav.common.geometry import Motion
from spec_vlm_nav.common.status import Status
from spec_vlm_nav.deciding.navigator import Navigator
from spec_vlm_nav.deciding.parts.interfaces import NavigatorConfig, NavigatorPhase
from spec_vlm_nav.exploring.policy import ExplorationPolicy
from spec_vlm_nav.language.actions import STOP_SENTENCE, find_action
from spec_vlm_nav.model.decider import ModelAnswer
from spec_vlm_nav.model.worker import ActionFound, Answered, Failed, Reconciled

FORWARD = "I see the red chair, ahead, about 1.5 m, clear. The next action is move forward 75 cm."
TURN = "I do not see the red chair. The next action is turn left 30 degree."
STOP = f"I see the red chair, ahead, about 0.6 m, clear. {STOP_SENTENCE}"
LOST, UP = LinkState.LOST, LinkState.UP


class World:
    """Records what the navigator asks for; time moves on command, with camera frames at 10 Hz."""

    def __init__(self, policy="none", **config):
        self.now, self.camera, self.mover = 100.0, True, True
        self.requests, self.jobs, self.cancels, self.reports, self.logs, self.said = [], [], 0, [], [], []
        self.outcomes, self.kept_open = [], 0
        self.lively = False  # whether every picture differs from the one before
        self.navigator = Navigator(self, NavigatorConfig(**config), ExplorationPolicy(policy))

    # Outputs
    def send(self, request):
        self.requests.append(request)
        return len(self.requests)

    def begin(self, job):
        self.jobs.append(job)

    def cancel(self, keep_open=False):
        self.cancels += 1
        self.kept_open += keep_open

    def spoke(self, text, action, unverified):
        self.said.append(("[unverified] " if unverified else "") + text)

    def concluded(self, outcome):
        self.outcomes.append(outcome)

    def report(self, report):
        self.reports.append(report)

    def log(self, level, text):
        self.logs.append((level, text))

    # the world
    def run(self, seconds):
        for _ in range(max(1, round(seconds / 0.05))):
            self.now += 0.05
            if self.camera and round(self.now * 20) % 2 == 0:
                stamp = (int(self.now), int(self.now % 1 * 1e9))
                self.navigator.on_frame(Frame(self.picture(), stamp, self.now))
            self.mover_tells()
            self.navigator.tick(self.now)
        return self

    def picture(self):
        return b"jpeg %f" % self.now if self.lively else b"jpeg"

    def mover_tells(self):
        if self.mover and self.navigator.phase is NavigatorPhase.MOVING:
            self.navigator.on_status(Status(MotionState.MOVING, 1, len(self.requests)), self.now)

    def instruct(self, text="find the red chair"):
        self.navigator.on_instruction(text, self.now)
        return self.run(0.3)

    def find(self, text, job=None):
        number = (job or self.jobs[-1]).number
        action = find_action(text)
        self.navigator.on_event(ActionFound(number, action, text, b"jpeg %d" % number, self.now), self.now)
        return self

    def answer(self, text, job=None):
        job = job or self.jobs[-1]
        if find_action(text) is not None:
            self.find(text, job)
        self.navigator.on_event(Answered(job.number, ModelAnswer(text, (1, 2), (3,))), self.now)
        return self

    def fail(self, code, text="it broke", job=None):
        number = (job or self.jobs[-1]).number
        self.navigator.on_event(Failed(number, code, text, ModelAnswer()), self.now)
        return self

    def ended(self, state=MotionState.REACHED, reason="", done=None):
        """The motion under way is over; done: what odometry says that it covered."""
        status = Status(state, 1, len(self.requests), reason, done or Motion())
        self.navigator.on_status(status, self.now)
        return self

    @property
    def kinds(self):
        return [request.kind for request in self.requests]


def link(world, state):
    world.navigator.on_link(state, world.now)
    return world


def unverified(world, text):
    job = world.jobs[-1].number
    found = ActionFound(job, find_action(text), text, b"jpeg %d" % job, world.now, unverified=True)
    world.navigator.on_event(found, world.now)
    world.navigator.on_event(Answered(job, ModelAnswer(text), unverified=True), world.now)
    return world


def reconcile(world, text, job=None):
    number = (job or world.jobs[-1]).number
    world.navigator.on_event(Reconciled(number, find_action(text), ModelAnswer(text)), world.now)
    return world


def codes(world):
    return [(o.instruction, o.code.name) for o in world.outcomes]


def degraded():
    world = World(on_link_loss="draft_only_slow")
    return link(world.instruct(), LOST)
