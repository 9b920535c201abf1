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

"""Handlers for camera frames and link changes, and for missing frames."""

from __future__ import annotations

from spec_vlm_nav.camera.images import Frame, same_scene
from spec_vlm_nav.camera.watch import CameraWatch
from spec_vlm_nav.common.codes import ErrorCode
from spec_vlm_nav.deciding.handlers.decisions import advance
from spec_vlm_nav.deciding.parts.interfaces import NavigatorPhase, SUPERVISOR
from spec_vlm_nav.deciding.parts.situation import Situation
from spec_vlm_nav.motion.command import CommandKind

NO_FRAMES = "no camera frames"


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
    report_link_lost(s, reason, now)
    if not (s.motion.unverified and s.config.is_degradable):
        s.stand(CommandKind.HOLD, SUPERVISOR, "link lost")
        s.look(now, now)
