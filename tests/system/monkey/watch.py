"""The invariants: what must never be seen from outside, whatever strikes.

Worked out from what is published and measured, not from what the robot's code thinks.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from spec_vlm_nav.common.codes import ErrorCode
from spec_vlm_nav.common.geometry import Pose, Velocity, wrap
from spec_vlm_nav.common.status import Status
from spec_vlm_nav.deciding.navigator import Navigator
from spec_vlm_nav.deciding.parts.interfaces import NavigationResult, NavigatorConfig, NavigatorPhase
from spec_vlm_nav.language.stop_words import is_stop
from spec_vlm_nav.motion.gate import SafetyGate
from spec_vlm_nav.motion.limits import SafetyConfig
from spec_vlm_nav.motion.response.monitor import PATIENCE_M
from spec_vlm_nav.motion.watchdogs import OdometryReading
from tests.helpers.imperfect_base import Base, Odometry, OdometryFault
from tests.system.monkey.open_orders import OpenInstruction, StopOrder
from tests.system.monkey.scenario import Scenario, ScenarioEvent

CREEP = 0.0011  # m/s: slower is none
STEP_S = 1 / 60
STOP_S = 0.1  # a stop that motion_node hears itself
WORD_S = 0.3  # one that comes through the deciding side
SETTLE_S = 0.25  # a watchdog's own tick, the message, ours
RESPONDED_M, RESPONDED_RAD = 0.05, 0.1  # a pose that changed so much responds
SILENT_AFTER_S = 4.0
AT_REST_MPS = 0.08
BLACK_S = 1.5  # so long a robot may go on until it has moved enough to see that pictures do not change
LIES_M, LIES_RAD = 1.5, 3.0  # so far a robot may go while odometry contradicts what is commanded
SCALED_M, SCALED_RAD = 2.5, 4.5  # where it shows too much or too little of it: told of the second long turn
CONTRADICTING = (OdometryFault.MIRRORED_X, OdometryFault.MIRRORED_YAW, OdometryFault.ROTATED)
BACK_S = 20.0  # so long a place counts as known


@dataclass
class InvariantWatch:
    """Sees everything; `violations` are in words, the first ends the run."""

    scenario: Scenario
    safety: SafetyConfig
    config: NavigatorConfig
    violations: list[str] = field(default_factory=list)
    driven_m: float = 0.0
    outcomes: list[str] = field(default_factory=list)
    _velocity: Velocity = field(default_factory=Velocity)
    _published_at: float = -math.inf
    _moving_at: float = -math.inf
    _stops: list[StopOrder] = field(default_factory=list)
    _open: dict[tuple[int, int], OpenInstruction] = field(default_factory=dict)
    _ended: set[tuple[int, int]] = field(default_factory=set)
    _unanswered_m: float = 0.0
    _answered_at: Pose | None = None
    _last_pose: Pose | None = None
    _odometry_at: float = 0.0
    _frame_at: float = 0.0
    _faults: dict[str, float] = field(default_factory=dict)  # a fault that lasts, and since when
    _path: deque[tuple[float, Pose]] = field(default_factory=lambda: deque(maxlen=2000))
    _fence: Pose | None = None
    _fence_holds: bool = False
    _decider_gone_at: float = 0.0
    _decider_gone_until: float = 0.0
    _lied_m: float = 0.0
    _lied_rad: float = 0.0
    _lie: OdometryFault | None = None
    _mover_gone_until: float = 0.0
    _rogue_at: float = -math.inf
    _still_since: float = 0.0
    _rogue_unopposed: bool = False
    _faults_over: dict[str, float] = field(default_factory=dict)
    _idle_since: float = 0.0

    @property
    def longest_s(self) -> float:
        """How long an instruction may take by itself."""
        return self.config.max_duration_s or 600.0

    @property
    def unanswered_bound_m(self) -> float:
        """So much may be commanded without a response: a motion that stalls, and a slow one that never began."""
        c = self.safety
        slow = min(c.unanswered_max_linear, c.max_linear)
        one = slow * (c.response_timeout_s + 0.65) + c.max_linear * (
            0.75 + 1.5 / self.scenario.setup.odometry_hz
        )
        return max(one, PATIENCE_M + slow * (c.response_timeout_s + 0.35))  # several cut short, and the last

    def _say(self, now: float, what: str) -> None:
        self.violations.append(f"{now:.2f} s: {what}")

    # -- what the robot does

    def published(self, velocity: Velocity, now: float) -> None:
        """A velocity went out."""
        self._velocity, self._published_at = velocity, now
        fastest = max(abs(velocity.linear), abs(velocity.angular))
        if not math.isfinite(fastest):
            self._say(now, f"published {velocity}")
            return
        if abs(velocity.linear) > self.safety.max_linear + 1e-6:
            self._say(now, f"faster than max_linear: {velocity.linear:.3f} m/s")
        if abs(velocity.angular) > self.safety.max_angular + 1e-6:
            self._say(now, f"faster than max_angular: {velocity.angular:.3f} rad/s")
        if fastest <= CREEP or self._is_braking():
            return
        self._moving_at = now
        self._check_stops(now)
        if not self._is_strangers(now):
            self._check_sensors(now)
        self._check_instruction(now)
        if velocity.linear < -CREEP:
            self._check_backwards(now)

    def _is_strangers(self, now: float) -> bool:
        """A command came from a node nobody had heard of, while no other was in charge: it is obeyed, unless the
        operator has stopped the robot.
        """
        return now - self._rogue_at < 5.0 and self._rogue_unopposed

    def _is_braking(self) -> bool:
        """With stop_style brake a stop takes as long as slowing down does."""
        return self.scenario.setup.stop_style == "brake"

    def look(self, now: float, base: Base, odometry: Odometry, gate: SafetyGate) -> None:
        """Called at every step."""
        last = self._path[-1][1] if self._path else base.pose
        self.driven_m += math.hypot(base.pose.x - last.x, base.pose.y - last.y)
        self._path.append((now, base.pose))
        self._unanswered_m += abs(self._velocity.linear) * STEP_S if now - self._published_at < 0.2 else 0.0
        if self._open or now - self._rogue_at < 5.0 or now < self._decider_gone_until + 2.0:
            self._idle_since = now
        self._check_lies(now, odometry.fault)
        if self._unanswered_m > self.unanswered_bound_m:
            self._say(
                now,
                f"{self._unanswered_m:.2f} m commanded without a response, bound {self.unanswered_bound_m:.2f}",
            )
        self._check_fence(now, base)
        self._check_silence(now, base, gate)

    def odometry(self, heard: OdometryReading, now: float) -> None:
        """An odometry message reached motion_node."""
        self._odometry_at = now if heard.stamp > 0 and "stuck" not in self._faults else self._odometry_at
        pose = heard.pose
        if not pose.is_finite:
            return
        last, self._last_pose = self._last_pose, pose
        if last is not None and math.hypot(pose.x - last.x, pose.y - last.y) > 0.4:
            self._answered_at = pose  # a jump is not a response
            return
        if self._answered_at is None or _apart(self._answered_at, pose):
            self._answered_at, self._unanswered_m = pose, 0.0

    def frame(self, now: float) -> None:
        """A picture that shows something reached the deciding side."""
        self._frame_at = now

    def status(self, status: Status, base: Base, now: float) -> None:
        """motion_node told how things are."""
        if (
            not status.standing
            or self._had("odometry", now, 3.0)  # one that is silent does not excuse
            or base.traits.delay_s > self.safety.response_timeout_s
        ):
            return  # what comes later than any answer may cannot be foreseen
        if (speed := self._speed()) > AT_REST_MPS and not self._had("push", now, 0.3):
            self._say(now, f"told that it stands, while it goes {speed:.2f} m/s")

    def _speed(self) -> float:
        """How fast the robot really moves, m/s, over the last tenth of a second."""
        if len(self._path) < 7:
            return 0.0
        (then, one), (now, other) = self._path[-7], self._path[-1]
        return math.hypot(other.x - one.x, other.y - one.y) / (now - then)

    # -- orders and outcomes

    def struck(self, event: ScenarioEvent, now: float) -> None:
        """Something happened to the world, or was ordered."""
        what, args = event.what, event.args
        late = self.scenario.setup.latency_s + 2 / 60
        if what == "stop" or (what == "instruct" and is_stop(str(args["text"]))):
            self._stops.append(StopOrder(what, max(now, self._mover_gone_until), STOP_S + late, "instruct"))
        elif what == "estop":
            self._stops.append(StopOrder(what, max(now, self._mover_gone_until), STOP_S + late, "reset"))
        elif what == "cancel":
            gone = max(now, self._decider_gone_until, self._mover_gone_until)
            self._stops.append(StopOrder(what, gone, WORD_S + 2 * late, "instruct"))
        elif what == "reset":
            self._lied_m = self._lied_rad = self._unanswered_m = 0.0  # the operator gives it another chance
            for stop in self._stops:
                stop.reset = True
        elif what == "instruct":
            self._stops = [s for s in self._stops if s.needs == "reset" and not s.reset]
        self._note_fault(what, args, now)

    def _note_fault(self, what: str, args: dict[str, Any], now: float) -> None:
        if what == "odometry":
            fault = OdometryFault(args["fault"])
            self._set("odometry", fault.lies, now)
            self._set("silent odometry", fault in (OdometryFault.STOPPED, OdometryFault.NAN), now)
            self._set("stuck", fault is OdometryFault.STUCK_STAMPS, now)
        elif what == "base":
            if "push" in args:
                self._set("push", any(args["push"]), now)
            if "linear_scale" in args:
                self._set("slip", args["linear_scale"] != 1.0, now)
        elif what == "camera":
            self._set("black", args["fault"] == "black", now)
        elif what == "link":
            self._set("link", not args["up"], now)
        elif what == "sensor":
            self._set("blind", bool(args.get("silent")), now)
            self._set("not ready", not args.get("ready", True), now)
        elif what == "freeze_decider":
            if now > self._decider_gone_until:
                self._decider_gone_at = now
            self._decider_gone_until = max(self._decider_gone_until, now + args["seconds"])
        elif what == "stall_mover":
            self._mover_gone_until = max(self._mover_gone_until, now + args["seconds"])
        elif what == "rogue":
            self._rogue_at, self._rogue_unopposed = now, now < self._decider_gone_until + 0.5

    def _set(self, fault: str, lasts: bool, now: float) -> None:
        if lasts:
            self._faults.setdefault(fault, now)
        elif fault in self._faults:
            del self._faults[fault]
            self._faults_over[fault] = now

    def _had(self, fault: str, now: float, within_s: float) -> bool:
        return fault in self._faults or now - self._faults_over.get(fault, -math.inf) < within_s

    def _odometry_lies(self, now: float) -> bool:
        return (
            self._had("odometry", now, 3.0)
            or self._had("silent odometry", now, 3.0)
            or self._had("stuck", now, 3.0)
        )

    def instructed(self, text: str, number: int, session: int, now: float) -> None:
        """The deciding side has begun an instruction (or has stopped, or turned it down)."""
        if is_stop(text) or (session, number) in self._ended:
            return
        self._open[session, number] = OpenInstruction(text, now)
        self._fence, self._fence_holds = None, True

    def concluded(self, outcome: NavigationResult, session: int, now: float) -> None:
        """An instruction has ended."""
        key = (session, outcome.instruction)
        if key in self._ended:
            self._say(now, f"instruction {outcome.instruction} ended twice")
        self._ended.add(key)
        self._open.pop(key, None)
        self.outcomes.append(outcome.code.name)
        if outcome.code is not ErrorCode.NONE and not outcome.message.strip():
            self._say(now, f"instruction {outcome.instruction} ended with {outcome.code.name} and no reason")

    def killed(self, now: float, until: float) -> None:
        """The deciding side is gone until another is there; nobody can end its instruction."""
        self._open.clear()
        self._decider_gone_at, self._decider_gone_until = now, max(now, until)

    def finish(self, now: float, navigator: Navigator) -> None:
        """The run is over."""
        if self.violations:
            return
        if navigator.phase is not NavigatorPhase.IDLE:
            began = min((o.began for o in self._open.values()), default=now)
            self._say(now, f"an instruction has not ended after {now - began:.0f} s")
        for (_, number), opened in self._open.items():
            self._say(now, f"instruction {number} ({opened.text}) never ended")

    # -- the invariants

    def _check_stops(self, now: float) -> None:
        for stop in self._stops:
            if stop.what == "cancel" and self._is_strangers(now):
                continue
            # The mover may stand still itself for a moment; nothing goes out then.
            bound = (
                max(stop.at, self._mover_gone_until if self._mover_gone_until >= stop.at else stop.at)
                + stop.bound
            )
            if now > bound:
                self._say(now, f"moves {now - stop.at:.2f} s after {stop.what}, which nothing has lifted")
                return

    def _check_sensors(self, now: float) -> None:
        c, late = self.safety, SETTLE_S + self.scenario.setup.latency_s
        since = self._faults.get("silent odometry", self._faults.get("stuck"))
        if since is not None and now - since > c.odom_timeout_s + late:
            self._say(now, f"moves without odometry for {now - since:.2f} s")
        # A black picture is one to the gate; what was decided before it goes on for a while.
        longest = c.max_frame_age_s + BLACK_S if self._had("black", now, 0.2) else 0.0
        if now - self._frame_at > max(c.camera_timeout_s, self.config.camera_timeout_s, longest) + 0.3 + late:
            self._say(now, f"moves without pictures for {now - self._frame_at:.2f} s")
        since = self._faults.get("link")
        if (
            since is not None
            and not self.config.is_degradable
            and now - since > c.verifier_timeout_s + 0.5 + late
        ):
            self._say(now, f"moves without the verifier for {now - since:.2f} s")
        gone_s = now - self._decider_gone_at
        if now < self._decider_gone_until and gone_s > c.supervisor_timeout_s + late:
            self._say(now, f"moves although the deciding side has been gone for {gone_s:.2f} s")
        since = self._faults.get("blind")
        if c.collision_watched and since is not None and now - since > c.collision_timeout_s + late:
            self._say(now, f"moves with a collision sensor that is silent for {now - since:.2f} s")
        since = self._faults.get("not ready")
        if c.robot_state_timeout_s and since is not None and now - since > c.robot_state_timeout_s + late:
            self._say(now, f"moves although the robot is not ready for {now - since:.2f} s")

    def _check_instruction(self, now: float) -> None:
        if now - self._idle_since > WORD_S + 2 * self.scenario.setup.latency_s:
            self._say(now, "moves without an instruction")

    def _check_backwards(self, now: float) -> None:
        """Only over places where the robot really was a short while ago."""
        if now - self._rogue_at > 5.0:
            self._say(now, f"goes backwards ({self._velocity.linear:.2f} m/s), and nobody asked for it")
            return
        here = self._path[-1][1]
        behind = Pose(here.x - 0.15 * math.cos(here.yaw), here.y - 0.15 * math.sin(here.yaw), 0.0)
        known = any(
            math.hypot(p.x - behind.x, p.y - behind.y) < 0.15
            for at, p in self._path
            if now - at < BACK_S + 5.0
        )
        if not known and not self._odometry_lies(now):
            self._say(now, "goes backwards into the unknown")

    def _check_lies(self, now: float, fault: OdometryFault) -> None:
        """An odometry that contradicts what is commanded is not followed for long."""
        scaled = fault is OdometryFault.SCALED
        if fault is not self._lie:
            self._lie, self._lied_m, self._lied_rad = fault, 0.0, 0.0
        if not (fault in CONTRADICTING or scaled) or now - self._published_at >= 0.2:
            return
        if fault is not OdometryFault.MIRRORED_YAW:  # straight ahead it tells the truth
            self._lied_m += abs(self._velocity.linear) * STEP_S
        self._lied_rad += abs(self._velocity.angular) * STEP_S
        most_m, most_rad = (SCALED_M, SCALED_RAD) if scaled else (LIES_M, LIES_RAD)
        if self._lied_m > most_m or self._lied_rad > most_rad:
            what = f"{self._lied_m:.2f} m and {self._lied_rad:.1f} rad"
            self._say(now, f"{what} commanded with odometry {fault.value}")

    def _check_fence(self, now: float, base: Base) -> None:
        fence = self.safety.geofence_m
        if not self._open or not fence:
            return
        if self._fence is None:
            self._fence = base.pose
        disturbed = self._odometry_lies(now) or self._had("push", now, 5.0) or self._had("slip", now, 5.0)
        if disturbed or any(base.traits.push) or base.traits.linear_scale != 1.0 or base.traits.delay_s > 0.7:
            self._fence_holds = False  # it does not know where it is, or was carried there
        away = math.hypot(base.pose.x - self._fence.x, base.pose.y - self._fence.y)
        if self._fence_holds and away > fence + 0.3:
            self._say(now, f"{away:.2f} m from where the instruction began, the geofence is {fence:g} m")

    def _check_silence(self, now: float, base: Base, gate: SafetyGate) -> None:
        """A robot that stands is left alone."""
        at_rest = abs(base.linear) < 1e-3 and abs(base.angular) < 1e-3 and not any(base.traits.push)
        # Without odometry to rely on it cannot know that it stands.
        trusts = gate.monitor.lost is None and not gate.odometry_watch.fault(now, gate.config)
        quiet = self._velocity == Velocity() and at_rest and trusts and not self._odometry_lies(now)
        if not quiet or now < self._mover_gone_until or self._recently_ordered(now) or self._open:
            self._still_since = now
        if (
            now - self._still_since > SILENT_AFTER_S
            and self._published_at > self._still_since + SILENT_AFTER_S - 0.5
        ):
            self._say(now, "still publishes although the robot has stood for long")

    def _recently_ordered(self, now: float) -> bool:
        ordered = any(now - e.at < 3.0 for e in self.scenario.events if e.at <= now)
        return ordered or abs(now - self._decider_gone_until) < 3.0  # one that comes back says stop


def _apart(one: Pose, other: Pose) -> bool:
    moved = math.hypot(other.x - one.x, other.y - one.y) > RESPONDED_M
    return moved or abs(wrap(other.yaw - one.yaw)) > RESPONDED_RAD
