"""One simulated robot: the real Navigator and MotionCore, joined by messages that take their time, on a made-up base.

The moving side runs in motion_node's own loop; the deciding side is joined as vlm_nav_node does it. Simulated seconds:
nothing waits, and nothing is random here but what the scenario's seed makes so.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from spec_vlm_nav.camera.images import Frame, RawImage
from spec_vlm_nav.common.codes import LinkState
from spec_vlm_nav.common.geometry import ZERO, Motion, Velocity
from spec_vlm_nav.common.status import Status
from spec_vlm_nav.deciding.navigator import Navigator
from spec_vlm_nav.deciding.parts.interfaces import (
    DecisionReport,
    MotionRequest,
    NavigationResult,
    NavigatorConfig,
    NavigatorPhase,
)
from spec_vlm_nav.exploring.policy import ExplorationPolicy
from spec_vlm_nav.language.stop_words import is_stop
from spec_vlm_nav.model.decider import DecisionJob
from spec_vlm_nav.motion.ahead.collision import Clearance
from spec_vlm_nav.motion.command import OPERATOR_STOP, Command, CommandKind
from spec_vlm_nav.motion.core import MotionCore
from spec_vlm_nav.motion.executor import ExecutorConfig
from spec_vlm_nav.motion.limits import SafetyConfig
from spec_vlm_nav.motion.loop import MotionLoop, StatusReport
from spec_vlm_nav.motion.stopping import RestDetector, StopConfig, TwistStops
from spec_vlm_nav.motion.watchdogs import Supervision
from tests.helpers.imperfect_base import Base, BaseTraits, HalfPlaneWall, Odometry, OdometryFault
from tests.helpers.simulated_base import reading_of
from tests.system.monkey.brain import Brain
from tests.system.monkey.scenario import Scenario, ScenarioEvent
from tests.system.monkey.watch import STEP_S, InvariantWatch

# Steps between two ticks of mover and decider, signs of life, frames.
TICK, LOOK, SUPERVISE, PICTURE = 2, 3, 6, 6
LINK_NOTICED_S = 0.3  # by the link's monitor


@dataclass
class _Output:
    """Velocities and stops as Twists, as motion_node's TwistOutput says them."""

    stops: TwistStops
    publish: Callable[[Velocity], None]
    clock: Callable[[], float]

    def send(self, velocity: Velocity, rest: RestDetector) -> None:
        """Publish the velocity of a tick, unless the robot stands and knows it."""
        if (said := self.stops.velocity(velocity, rest, self.clock())) is not None:
            self.publish(said)

    def stop(self) -> bool:
        """Publish what makes the robot stand."""
        self.publish(said := self.stops.stop(self.clock()))
        return said == ZERO


class MonkeyRobot:
    """One run; `watch` sees all that can be seen from outside."""

    def __init__(self, scenario: Scenario) -> None:
        setup = scenario.setup
        self.scenario, self.now, self._steps = scenario, 0.0, 0
        rng = random.Random(f"robot/{scenario.seed}")
        safety: dict[str, Any] = {"camera_timeout_s": 1.5, "verifier_timeout_s": 2.0, **setup.safety}
        self.safety, base = SafetyConfig(**safety), dict(setup.base)
        self.base = Base(BaseTraits(**base), [HalfPlaneWall(angle, at) for angle, at in setup.walls])  # type: ignore[arg-type]
        self.odometry = Odometry(rng, setup.odometry_noise_m)
        self._odometry_every = max(1, round(60 / setup.odometry_hz))
        self.core = MotionCore(ExecutorConfig(response_timeout_s=self.safety.response_timeout_s), self.safety)
        self.config = NavigatorConfig(**setup.navigator)  # type: ignore[arg-type]
        self.watch = InvariantWatch(scenario, self.safety, self.config)
        self._session = 1
        self._to_mover: deque[tuple[float, Callable[[], None]]] = deque()
        self._to_decider: deque[tuple[float, Callable[[], None]]] = deque()
        self._camera, self._shown = "none", b""
        self._stamp = 0
        self._noticed: tuple[float, bool] | None = None  # when the link's monitor sees a change
        self._link = LinkState.UP
        self._heard_at = 0.0
        self._decider_until = self._mover_until = 0.0  # frozen until then
        self._sensor: dict[str, Any] = {}
        clock, rate_hz = (lambda: self.now), 1 / (TICK * STEP_S)
        output = _Output(TwistStops(StopConfig(setup.stop_style)), self._publish, clock)
        self._loop = MotionLoop(self.core, output, self._tell, rate_hz, clock, clock)
        self._instructions = 0
        self._make_decider()

    def _make_decider(self) -> None:
        self.brain = Brain(self.scenario.setup, self.scenario.seed + self._session)
        policy = ExplorationPolicy(self.scenario.setup.policy)
        self.navigator = Navigator(self, self.config, policy)
        self.navigator.instruction.number = self._instructions
        self._sequence = 0

    # -- time

    def run(self) -> InvariantWatch:
        """To the end of the scenario, and on until the last instruction has ended; returns the watch."""
        events = deque(self.scenario.events)
        patience = self.scenario.seconds + self.watch.longest_s + 15.0
        while self.now < patience:
            while events and events[0].at <= self.now:
                self.strike(events.popleft())
            if (
                not events
                and self.now > self.scenario.seconds
                and self.navigator.phase is NavigatorPhase.IDLE
            ):
                break
            self._step()
            if self.watch.violations:
                break
        self.watch.finish(self.now, self.navigator)
        return self.watch

    def _step(self) -> None:
        self._steps += 1
        self.now = now = self._steps * STEP_S
        self.base.step(now)
        steps = self._steps
        mover_runs, decider_runs = now >= self._mover_until, now >= self._decider_until
        if (
            steps % self._odometry_every == 0
            and (heard := self.odometry.message(self.base.pose, now)) is not None
        ):
            self._to_mover.append((now, lambda: self._on_odometry(reading_of(heard))))
        if mover_runs:
            self._deliver(self._to_mover)
            if steps % SUPERVISE == 3:
                self._sense()
            if steps % TICK == 0:
                self._loop.tick()
        if steps % PICTURE == 0:
            self._picture()
        if decider_runs:
            self._deliver(self._to_decider)
            self._decide(steps)
        self.watch.look(self.now, self.base, self.odometry, self.core.gate)

    def _deliver(self, queue: deque[tuple[float, Callable[[], None]]]) -> None:
        while queue and queue[0][0] <= self.now:
            queue.popleft()[1]()

    def _send(self, queue: deque[tuple[float, Callable[[], None]]], act: Callable[[], None]) -> None:
        queue.append((self.now + self.scenario.setup.latency_s, act))

    # -- the moving side, as motion_node does it

    def _on_odometry(self, heard: Any) -> None:
        self.watch.odometry(heard, self.now)
        self.core.on_odometry(heard, self.now)
        self._loop.follow()

    def _sense(self) -> None:
        if self.safety.collision_watched and not self._sensor.get("silent"):
            self.core.on_clearance(Clearance(self._sensor.get("near_m", 9.0)), self.now)
        if self.safety.robot_state_timeout_s:
            self.core.on_robot_state(self._sensor.get("ready", True), "it lies", self.now)
        self._loop.follow()

    def _publish(self, velocity: Velocity) -> None:
        self.base.command(velocity.linear, velocity.angular, self.now)
        self.watch.published(velocity, self.now)

    def _tell(self, told: StatusReport[float]) -> None:
        status = replace(told.status, since=told.since)
        self.watch.status(status, self.base, self.now)
        self._send(self._to_decider, lambda: self._on_status(status))

    def _by_hand(self, act: Callable[[], object]) -> None:
        act()
        self._loop.stand()

    # -- the deciding side, as vlm_nav_node does it

    def _decide(self, steps: int) -> None:
        if self._noticed is not None and self._noticed[0] <= self.now:
            self._link = LinkState.UP if self._noticed[1] else LinkState.LOST
            self._noticed = None
        if self._link is LinkState.UP:
            self._heard_at = self.now
        for event in self.brain.take(self.now):
            self.navigator.on_event(event, self.now)
        if steps % LOOK == 0:
            self.navigator.on_link(self._link, self.now)
            self.navigator.tick(self.now)
        if steps % SUPERVISE == 0:
            frame = self.navigator.camera.frame
            age = -1.0 if frame is None else min(self.navigator.camera.age(self.now), 1e6)
            told = Supervision(self._session, age, self.now - self._heard_at, self._link)
            self._send(self._to_mover, lambda: self._on_supervision(told))

    def _on_supervision(self, told: Supervision) -> None:
        self.core.on_supervision(told, self.now)
        self._loop.follow()

    def _on_status(self, status: Status) -> None:
        self.navigator.on_estop(status.held_by if status.estopped else "", self.now)
        if status.session == self._session or status.reason.startswith(OPERATOR_STOP):
            self.navigator.on_status(status, self.now)

    def _picture(self) -> None:
        if self._camera == "stopped":
            return
        pose = self.base.pose
        if self._camera not in ("frozen", "restamped") or not self._shown:
            place = (pose.x, pose.y, math.cos(pose.yaw), math.sin(pose.yaw))
            grey = [128 + 100 * math.sin(round(p, 3) * (3 + i)) for i, p in enumerate(place * 4)]
            row = bytes(0 if self._camera == "black" else max(9, int(g)) for g in grey)
            self._shown = row * 16
        if self._camera != "frozen":
            self._stamp += 1
        frame = RawImage("mono8", 16, 16, 16, self._shown)
        stamp = (self._stamp, 1)
        self._send(self._to_decider, lambda: self._on_frame(Frame(frame, stamp, self.now)))

    def _on_frame(self, frame: Frame) -> None:
        if self._camera != "black":
            self.watch.frame(self.now)
        self.navigator.on_frame(replace(frame, received=self.now))

    # -- Outputs of the navigator

    def send(self, request: MotionRequest) -> int:
        """See Outputs."""
        self._sequence += 1
        age = self.now - request.frame.received if request.frame is not None else 0.0
        command = Command(
            request.kind,
            self._session,
            request.instruction,
            self._sequence,
            request.motion,
            request.deadline_s,
            age,
            request.text,
            request.unverified,
        )
        self._send(self._to_mover, lambda: self._loop.command(command))
        return self._sequence

    def begin(self, job: DecisionJob) -> None:
        """See Outputs."""
        self.brain.begin(job, self.now, self.config.is_degradable)

    def cancel(self, keep_open: bool = False) -> None:
        """See Outputs."""
        self.brain.cancel(self.now)

    def spoke(self, text: str, action: str, unverified: bool) -> None:
        """See Outputs."""

    def report(self, report: DecisionReport) -> None:
        """See Outputs."""

    def concluded(self, outcome: NavigationResult) -> None:
        """See Outputs."""
        self._instructions = max(self._instructions, outcome.instruction)
        self.watch.concluded(outcome, self._session, self.now)

    def log(self, level: str, text: str) -> None:
        """See Outputs."""

    # -- what strikes

    def strike(self, event: ScenarioEvent) -> None:
        """Let an event happen now."""
        args: dict[str, Any] = dict(event.args)
        getattr(self, f"_do_{event.what}")(**args)
        self.watch.struck(event, self.now)

    def _do_instruct(self, text: str, allowance_s: float = 0.0) -> None:
        sent = self.now
        self._send(self._to_decider, lambda: self._instruct(text, allowance_s, sent))
        if is_stop(text):
            self._send(self._to_mover, lambda: self._by_hand(self.core.stop))

    def _instruct(self, text: str, allowance_s: float, sent: float) -> None:
        number = self.navigator.on_instruction(text, self.now, allowance_s, stamp=sent)
        self._instructions = max(self._instructions, number)
        self.watch.instructed(text, number, self._session, self.now)

    def _do_cancel(self) -> None:
        self._send(self._to_decider, lambda: self.navigator.on_cancel(self.now))

    def _do_stop(self) -> None:
        self._send(self._to_mover, lambda: self._by_hand(self.core.stop))

    def _do_estop(self) -> None:
        self._send(self._to_mover, lambda: self._by_hand(lambda: self.core.estop("button")))

    def _do_reset(self) -> None:
        self._send(self._to_mover, lambda: self._by_hand(self.core.reset))

    def _do_odometry(self, fault: str, scale: float = 1.0) -> None:
        self.odometry.fault, self.odometry.scale = OdometryFault(fault), scale

    def _do_base(self, **traits: Any) -> None:
        if "push" in traits:
            traits["push"] = tuple(traits["push"])
        for name, value in traits.items():
            setattr(self.base.traits, name, value)

    def _do_camera(self, fault: str) -> None:
        self._camera = fault

    def _do_link(self, up: bool) -> None:
        self.brain.link(up, self.now)
        self._noticed = (self.now + (0.1 if up else LINK_NOTICED_S), up)

    def _do_sensor(self, **shows: Any) -> None:
        self._sensor = shows

    def _do_freeze_decider(self, seconds: float) -> None:
        self._decider_until = max(self._decider_until, self.now + seconds)

    def _do_stall_mover(self, seconds: float) -> None:
        self._mover_until = max(self._mover_until, self.now + seconds)

    def _do_restart_decider(self, seconds: float) -> None:
        """Killed, and started again: whatever it was doing is gone, also without a word to anybody."""
        self._session += 1
        self._to_decider.clear()
        self._decider_until = max(self._decider_until, self.now + seconds)
        self.watch.killed(self.now, self._decider_until)
        self._instructions = 0
        self._make_decider()

    def _do_rogue(self, distance_m: float | str, foreign: bool = False, old: bool = False) -> None:
        """A motion command that the deciding side never sent, or sent long ago."""
        if old and self._sequence < 6:
            return
        session = 999 if foreign else self._session
        sequence = self._sequence - 5 if old else self._sequence + 1
        if not (foreign or old):
            self._sequence += 1
        motion = Motion(float(distance_m))
        command = Command(
            CommandKind.MOVE, session, self.navigator.instruction.number, sequence, motion, 4.0, 0.1, "rogue"
        )
        unproven = "from an unknown session" if foreign else ""
        self._send(self._to_mover, lambda: self._loop.command(command, unproven))
