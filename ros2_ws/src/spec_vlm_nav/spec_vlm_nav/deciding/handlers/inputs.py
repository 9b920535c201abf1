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

"""Handlers for the robot's inputs: motion_node's reports, camera frames, link changes, and their absence."""

from __future__ import annotations

from dataclasses import replace
import math

from spec_vlm_nav.camera.images import Frame, same_scene
from spec_vlm_nav.camera.watch import CameraWatch
from spec_vlm_nav.common.codes import ErrorCode, MotionState
from spec_vlm_nav.common.geometry import Motion
from spec_vlm_nav.common.status import Status
from spec_vlm_nav.deciding.handlers.decisions import advance
from spec_vlm_nav.deciding.parts.instruction import CODE_OF, fell_short, is_obstruction
from spec_vlm_nav.deciding.parts.interfaces import NavigatorPhase, SUPERVISOR
from spec_vlm_nav.deciding.parts.situation import Situation
from spec_vlm_nav.motion.command import CommandKind, SILENT

NO_FRAMES = "no camera frames"
INPUT_LOST = {
    MotionState.STALE_ODOM: ErrorCode.STALE_ODOM,
    MotionState.STALE_CAMERA: ErrorCode.STALE_CAMERA,
    MotionState.LINK_LOST: ErrorCode.LINK_LOST,
    MotionState.STALE_SENSOR: ErrorCode.STALE_SENSOR,
    MotionState.NOT_READY: ErrorCode.NOT_READY,
}
AGAINST = (MotionState.BLOCKED, MotionState.COLLISION_AHEAD, MotionState.NO_RESPONSE, MotionState.GEOFENCE)
BACK_WITH_MOTION = {  # faults that are over once a motion has reached the base
    ErrorCode.STALE_ODOM: "odometry is back",
    ErrorCode.STALE_SENSOR: "the collision sensor is back",
    ErrorCode.NOT_READY: "the robot is ready again",
}
UNMOVED = (
    MotionState.REFUSED,
    MotionState.NO_RESPONSE,
    MotionState.WRONG_RESPONSE,
    MotionState.UNCOMMANDED_MOTION,
)


def follow(s: Situation, status: Status, now: float) -> None:
    """Record the motion's progress."""
    s.motion.heard(status, now, now + s.config.status_timeout_s)
    s.camera.robot_moved(status.sequence, status.done)
    s.last_feedback = replace(s.last_feedback, left=status.left)


def look_again(s: Situation, status: Status, now: float) -> None:
    """Look for a frame after the motion's end; give up after too many obstructed motions."""
    follow(s, status, now)
    s.motion.ended(_met_something(status, s.motion.asked))
    has_moved = _tell_end(s, status, now)
    if status.state is not MotionState.REACHED:
        s.drop_prefetched("the motion ended early")
    retry = now if has_moved else now + s.config.first_retry_s
    s.look(now + s.config.settle_s, retry)
    _mind_obstructions(s, status, now)
    if status.held_by.startswith(SILENT):
        s.give_up(ErrorCode.INTERNAL, f"motion_node: {status.held_by}", now)
    elif status.state is MotionState.SUPERVISOR_LOST:
        _mind_refusals(s, status.reason, now)


def hold_silent(s: Situation, _: None, now: float) -> None:
    """Stand still and look again: motion_node reports nothing about the motion."""
    s.stand(CommandKind.HOLD, SUPERVISOR, "motion_node is silent")
    s.out.log("error", "motion_node does not report on the motion: is it running?")
    s.drop_prefetched("motion_node is silent")
    s.look(now, now + s.config.first_retry_s)
    _mind_refusals(s, "it does not answer", now)


def _met_something(status: Status, asked: Motion) -> bool:
    """Return whether a drive ended at an obstacle or at the geofence."""
    against = status.state in AGAINST or status.state is MotionState.EXPIRED
    return against and asked.distance_m != 0 and is_obstruction(status, asked)


def _tell_end(s: Situation, status: Status, now: float) -> bool:
    """Log how a motion ended; returns whether its command reached the base."""
    lacks = INPUT_LOST.get(status.state)
    if lacks is not None:
        s.warn_once(lacks, f"motion ended: {status.reason}", now)
        return False
    if status.state in (*UNMOVED, MotionState.SUPERVISOR_LOST):
        state = status.state.name.lower()
        s.out.log("warn", f"motion {status.sequence} {state}: {status.reason}")
        return False
    s.instruction.given.refused_since = math.inf
    for code, text in BACK_WITH_MOTION.items():
        s.failures.recovered(code, now, text)
    if status.state is not MotionState.REACHED:
        s.out.log("info", f"motion ended {status.state.name}: {status.reason}")
    return True


def _mind_refusals(s: Situation, why: str, now: float) -> None:
    lasting = s.instruction.given.refused_for(now)
    if 0 < s.config.patience_s < lasting:
        text = f"motion_node has moved nothing for {lasting:.0f} s: {why}"
        s.give_up(ErrorCode.INTERNAL, text, now)


def _mind_obstructions(s: Situation, status: Status, now: float) -> None:
    obstructions, place = s.instruction.obstructions, s.instruction.odometer.place
    asked = s.motion.asked
    if not is_obstruction(status, asked):
        if asked.distance_m > 0 and not fell_short(status.done, asked):
            obstructions.progressed(place)
        return
    count = obstructions.add(place, bool(status.held_by), now)
    if obstructions.are_final(s.config.max_obstructions, now):
        what = f"{count} motions failed without progress in between: {status.reason}"
        s.give_up(CODE_OF[status.state], what, now)


def decide(s: Situation, frame: Frame, now: float) -> None:
    """Decide from a frame newer than the last motion; use a prefetched decision if it still fits."""
    if not s.may_decide(now) or frame.received <= s.decision.look_after:
        return
    prefetched = s.decision.prefetched
    if prefetched is not None:
        then = prefetched.job.frame.picture
        if same_scene(then, frame.picture, s.config.prefetch_tolerance):
            prefetched.prefetched, s.phase = False, NavigatorPhase.THINKING
            advance(s, prefetched, now)
            return
        s.drop_prefetched("the scene has changed")
    if s.decision.under_way is not None:
        return
    if s.decisions_are_used_up:
        made = s.instruction.given.decisions
        text = f"{made} decisions were made without getting there"
        s.give_up(ErrorCode.TOO_MANY_DECISIONS, text, now)
        return
    s.phase = NavigatorPhase.THINKING
    s.out.begin(s.decision.begin(s.instruction.given, frame, now, prefetched=False))


def prefetch(s: Situation, frame: Frame, now: float) -> None:
    """Begin the next decision while the motion settles, if `prefetch` is set."""
    if not s.config.prefetch or not s.may_decide(now):
        return
    since = s.motion.settling_since
    is_settling = since is not None and frame.received > since
    # An answer may still be streaming although its motion is nearly over.
    if is_settling and s.decision.under_way is None and not s.decisions_are_used_up:
        s.out.begin(s.decision.begin(s.instruction.given, frame, now, prefetched=True))


def report_no_frames(s: Situation, camera: CameraWatch, now: float) -> None:
    """Report once that the camera is stale or frozen."""
    said = "the picture does not change although the robot moves"
    what = said if camera.is_frozen else NO_FRAMES
    text = f"{what}: the robot stands still until valid frames arrive"
    s.warn_once(ErrorCode.STALE_CAMERA, text, now)


def hold_without_frames(s: Situation, camera: CameraWatch, now: float) -> None:
    """Stand still and look again: without frames the robot would move blindly."""
    s.stand(CommandKind.HOLD, SUPERVISOR, "camera stale")
    s.look(now, now)
    report_no_frames(s, camera, now)


def note_link_back(s: Situation, reason: str, now: float) -> None:
    """Log that the verifier answers again, if its loss was reported."""
    s.failures.recovered(ErrorCode.LINK_LOST, now, "the verifier answers again")


def report_link_lost(s: Situation, reason: str, now: float) -> None:
    """Report once that the verifier is not heard."""
    if s.config.is_degradable:
        what = "the draft model decides alone, slowly"
    else:
        what = "the robot stands still"
    why = f": {reason}" if reason else ""
    s.warn_once(ErrorCode.LINK_LOST, f"the verifier is not heard{why}; {what} until it is back", now)


def hold_without_link(s: Situation, reason: str, now: float) -> None:
    """Stand still and look again, unless the draft model may decide this motion alone."""
    if not (s.motion.unverified and s.config.is_degradable):
        s.stand(CommandKind.HOLD, SUPERVISOR, "link lost")
        s.look(now, now)
    report_link_lost(s, reason, now)
