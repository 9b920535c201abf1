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
Watchdogs of the gate: each tracks one input and says why it cannot be trusted now.

All times are receive times on a steady clock, in seconds. A watchdog returns a reason in words, or
"" if the input is fine; it ends no motion itself. A timeout of 0 disables its watchdog.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
import math

from spec_vlm_nav.common.codes import LinkState, MotionState
from spec_vlm_nav.common.errors import one_line
from spec_vlm_nav.common.geometry import Pose, wrap
from spec_vlm_nav.common.nonces import NOTHING, SessionProof
from spec_vlm_nav.common.parameters import fixed
from spec_vlm_nav.motion.command import SILENT

RATE_OVER = 50  # messages over which a rate is measured
SESSIONS_KEPT = 8
LIVES_S = 2.0  # a session heard within this time is not dropped for a new one
OPERATOR, MISSION = 0, 1  # as in Presence.msg
MOST_HOLDERS = 16


@dataclass(frozen=True)
class WatchdogConfig:
    """
    Timeouts in seconds and limits of a jump.

    A timeout of 0 disables its watchdog; the odometry watchdog cannot be disabled.
    """

    odom_timeout_s: float = 0.5
    odom_jump_m: float = fixed(0.5)  # between two odometry messages
    odom_jump_rad: float = fixed(1.0)
    odom_frame: str = ""  # expected frame_id of odometry; "": that of the first message
    base_frame: str = ""  # expected child_frame_id; "": that of the first message
    supervisor_timeout_s: float = 0.0
    camera_timeout_s: float = 1.5
    verifier_timeout_s: float = 2.0
    robot_state_timeout_s: float = 0.0
    presence_timeout_s: float = 0.7
    require_operator: bool = False


@dataclass(frozen=True)
class Fault:
    """Why a motion must end or may not begin, and the state to report; kind: key for counting."""

    state: MotionState
    reason: str
    kind: str = ""  # "": the name of the state


@dataclass(frozen=True)
class Supervision:
    """
    A heartbeat of the navigator as received (see Supervision.msg).

    A negative age means unknown; it is not watched.
    """

    session: int
    camera_age_s: float = -1.0
    verifier_age_s: float = -1.0
    link: LinkState = LinkState.UNKNOWN
    link_rtt_ms: float = 0.0
    commitment: bytes = NOTHING  # see nonces.py


class RateMeter:
    """Measures the rate of a message stream."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=RATE_OVER)

    def tick(self, now: float) -> None:
        """Count a message received now."""
        self._times.append(now)

    def age_s(self, now: float) -> float:
        """Return the time since the last message, s; infinite before the first."""
        return now - self._times[-1] if self._times else math.inf

    def hz(self, now: float) -> float:
        """Return the mean rate up to now; 0 before the second message."""
        if len(self._times) < 2:
            return 0.0
        return (len(self._times) - 1) / max(1e-9, max(now, self._times[-1]) - self._times[0])


@dataclass(frozen=True)
class OdometryReading:
    """An odometry message: stamp (s; 0: not filled), frame_id and child_frame_id."""

    pose: Pose
    stamp: float = 0.0
    frame: str = ""
    base_frame: str = ""


class OdometryWatch:
    """
    The latest pose, and whether odometry can be trusted.

    A jump or a NaN is a fault until a pose follows that is near the last finite one. A message whose
    stamp does not advance is ignored as old. A message in other frames than before is a fault.
    """

    def __init__(self) -> None:
        self.pose: Pose | None = None  # the latest finite pose
        self.rate = RateMeter()
        self.repeated = 0  # messages whose stamp did not advance
        self._heard_at: float | None = None
        self._broken = "no odometry yet"
        self._stamp = 0.0
        self._frames: tuple[str, str] | None = None
        self._foreign, self._foreign_at = "", -math.inf

    def hear(self, reading: OdometryReading, now: float, config: WatchdogConfig) -> bool:
        """Record an odometry message; returns whether its pose is valid."""
        self.rate.tick(now)
        # A single step back may be a clock change: messages must advance from the new stamp on.
        last_stamp, self._stamp = self._stamp, reading.stamp
        if reading.stamp and reading.stamp <= last_stamp:
            self.repeated += 1
            return False
        if not self._is_of_known_frames(reading, now, config):
            return False
        pose, last, self._broken = reading.pose, self.pose, ""
        if not pose.is_finite:
            self._broken = "odometry contains NaN or infinity"
            return False
        if last is not None:
            jump = pose.distance(last)
            if jump > config.odom_jump_m or abs(wrap(pose.yaw - last.yaw)) > config.odom_jump_rad:
                self._broken = f"odometry jumped by {jump:.2f} m"
        self.pose, self._heard_at = pose, now
        return not self._broken

    @property
    def is_broken(self) -> bool:
        """Whether the last message was not finite or jumped."""
        return bool(self._broken)

    def reset(self) -> None:
        """Accept the frames of the next message."""
        self._frames, self._foreign_at = None, -math.inf

    def _is_of_known_frames(self, reading: OdometryReading, now: float, config: WatchdogConfig) -> bool:
        frames = (reading.frame, reading.base_frame)
        if self._frames is None:
            self._frames = (
                config.odom_frame or reading.frame,
                config.base_frame or reading.base_frame,
            )
        if frames == self._frames:
            return True
        self._foreign_at = now
        self._foreign = (
            f"odometry in frames {one_line(' -> '.join(frames))} instead of "
            f"{one_line(' -> '.join(self._frames))}: two sources on one topic?"
        )
        return False

    def age_s(self, now: float) -> float:
        """Return the seconds since the last finite pose; infinite before the first."""
        return math.inf if self._heard_at is None else now - self._heard_at

    def fault(self, now: float, config: WatchdogConfig) -> str:
        """Return why odometry cannot be trusted now, or ""."""
        if now - self._foreign_at <= config.odom_timeout_s:
            return self._foreign
        if self._broken:
            return self._broken
        age = self.age_s(now)
        if age <= config.odom_timeout_s:
            return ""
        stuck = " (its stamps do not advance)" if self.rate.age_s(now) < age / 2 else ""
        return f"odometry is {age:.2f} s old{stuck}"


class ReadinessWatch:
    """The robot's own report of whether it can move (see RobotState.msg)."""

    def __init__(self) -> None:
        self.reason = ""
        self._ready = False
        self._heard_at: float | None = None

    def hear(self, ready: bool, reason: str, now: float) -> None:
        """Record a message."""
        self._ready, self.reason, self._heard_at = ready, reason, now

    def fault(self, now: float, config: WatchdogConfig) -> str:
        """Return why the robot cannot move now, or ""."""
        if not config.robot_state_timeout_s:
            return ""
        if self._heard_at is None:
            return "the robot has not reported its state yet"
        if (age := now - self._heard_at) > config.robot_state_timeout_s:
            return f"the robot has not reported its state for {age:.2f} s"
        return "" if self._ready else (self.reason or "the robot says that it is not ready")


@dataclass
class _Session:
    heard_at: float
    proof: SessionProof
    told: Supervision | None = None
    told_at: float = 0.0


class SupervisionWatch:
    """
    Watches the navigator's heartbeats, one record per session.

    It tracks silence and the reported ages of the camera and the verifier.
    """

    def __init__(self) -> None:
        self._sessions: dict[int, _Session] = {}
        self.in_charge: int | None = None  # the session whose commands are obeyed; never dropped

    def hear(self, session: int, now: float) -> None:
        """Record any message of a session."""
        known = self._sessions.pop(session, None) or _Session(now, SessionProof())
        known.heard_at = now
        self._sessions[session] = known
        if len(self._sessions) > SESSIONS_KEPT:
            # Drop the session silent for longest, or the new one if all others are alive: a flood
            # of made-up sessions must not displace a known one.
            others = (s for s in self._sessions if s not in (self.in_charge, session))
            oldest = next(others)
            lives = now - self._sessions[oldest].heard_at <= LIVES_S
            del self._sessions[session if lives else oldest]

    def tell(self, told: Supervision, now: float) -> None:
        """Record a Supervision message."""
        self.hear(told.session, now)
        if (known := self._sessions.get(told.session)) is not None:
            known.told, known.told_at = told, now
            known.proof.hear(told.commitment, now)

    def unproven(self, session: int, nonce: bytes, now: float) -> str:
        """Return why this nonce does not prove a session's command, or ""; uses a valid one up."""
        known = self._sessions.get(session)
        if known is None:
            return "from an unknown session"
        return known.proof.objection(nonce, now)

    def told(self, session: int | None) -> Supervision | None:
        """Return a session's last Supervision message."""
        known = self._sessions.get(session) if session is not None else None
        return known.told if known else None

    def silent_for_s(self, session: int | None, now: float) -> float:
        """Return the seconds since a session was heard; infinite if it never was."""
        known = self._sessions.get(session) if session is not None else None
        return now - known.heard_at if known else math.inf

    def camera_age_s(self, session: int | None, now: float) -> float:
        """Return the reported age of the camera frames plus the time since; negative: unknown."""
        told = self.told(session)
        return self._aged(told.camera_age_s, session, now) if told else -1.0

    def verifier_age_s(self, session: int | None, now: float) -> float:
        """
        Return the reported seconds since the verifier was heard, plus the time since the report.

        Negative: unknown.
        """
        told = self.told(session)
        return self._aged(told.verifier_age_s, session, now) if told else -1.0

    def _aged(self, age: float, session: int | None, now: float) -> float:
        assert session is not None
        return age if age < 0 else age + now - self._sessions[session].told_at

    def supervisor_fault(self, session: int | None, now: float, config: WatchdogConfig) -> str:
        """Return why the navigator counts as gone, or ""."""
        silent = self.silent_for_s(session, now)
        if not config.supervisor_timeout_s or silent <= config.supervisor_timeout_s:
            return ""
        return f"{SILENT} for {silent:.2f} s"

    def camera_fault(self, session: int | None, now: float, config: WatchdogConfig) -> str:
        """Return why the camera counts as gone, or ""."""
        age = self.camera_age_s(session, now)
        if not config.camera_timeout_s or age <= config.camera_timeout_s:
            return ""
        return f"camera frames are {age:.2f} s old" if math.isfinite(age) else "age of the camera is NaN"

    def verifier_fault(self, session: int | None, now: float, config: WatchdogConfig) -> str:
        """Return why the verifier counts as gone, or ""."""
        if not config.verifier_timeout_s:
            return ""
        told = self.told(session)
        if told is not None and told.link is LinkState.LOST:
            return "the link to the verifier is lost"
        age = self.verifier_age_s(session, now)
        if age <= config.verifier_timeout_s:
            return ""
        return f"verifier not heard for {age:.2f} s" if math.isfinite(age) else "age of the verifier is NaN"


@dataclass
class _PresenceHolder:
    kind: int
    heard_at: float


class PresenceWatch:
    """
    The dead man's switch: a client that makes the robot move must keep sending heartbeats.

    A running mission sends them, and so does a console with its `require_operator` while an operator
    holds control. A holder that falls silent without releasing is lost, and the robot must stand.
    With motion_node's `require_operator` nothing moves unless an operator's console holds control.
    """

    def __init__(self) -> None:
        self._holders: dict[str, _PresenceHolder] = {}
        self._had_operator = False

    def hear(self, holder: str, kind: int, holds: bool, now: float) -> None:
        """Record a heartbeat; holds False: the client releases control."""
        if not holds:
            self._holders.pop(holder, None)
        elif holder in self._holders or len(self._holders) < MOST_HOLDERS:
            self._holders[holder] = _PresenceHolder(kind, now)

    def lost(self, now: float, timeout_s: float, require_operator: bool) -> str:
        """
        Return which clients were lost since the last call, or "".

        If an operator is required, the release by the last one also counts as a loss.
        """
        silent = [n for n, h in self._holders.items() if now - h.heard_at > timeout_s]
        for name in silent:
            del self._holders[name]
        had, self._had_operator = self._had_operator, self.has_operator
        if silent:
            return f"{', '.join(sorted(silent))} fell silent"
        left = require_operator and had and not self._had_operator
        return "the operator let go" if left else ""

    @property
    def has_operator(self) -> bool:
        """Whether an operator's console holds control."""
        return any(h.kind == OPERATOR for h in self._holders.values())

    @property
    def holders(self) -> tuple[str, ...]:
        """Return the names of the holders."""
        return tuple(sorted(self._holders))

    def fault(self, require_operator: bool) -> str:
        """Return why nothing may move, or ""."""
        if require_operator and not self.has_operator:
            return "require_operator: no console of an operator holds control"
        return ""
