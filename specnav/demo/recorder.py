# SPDX-License-Identifier: Apache-2.0
"""Collects what the director receives in one episode until it becomes a trace; knows no ROS and never waits.

Times are seconds on the caller's clock. The *episode clock* starts when the instruction is published.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from spec_vlm_nav.common.geometry import wrap
from specnav.results.trace import Decision, PathPoint, VideoFrame, episode_folder

STILL_MPS, STILL_RADPS = 0.02, 0.05
SETTLED_S = 0.4  # the robot must have been at rest for this long
PATH_STEP_M, PATH_STEP_RAD = 0.01, 0.02
VIDEO_PERIOD_S = 0.2


class SimState(msgspec.Struct, frozen=True):
    """The robot's state in the simulator: world frame, metres, radians."""

    t: float
    episode_seed: int
    x: float
    y: float
    yaw: float
    collisions: int
    ready: bool
    absent: bool = False


@dataclass(frozen=True)
class EpisodeLimits:
    """When an episode is given up. at_once: at the last decision, without waiting for its motion."""

    max_decisions: int
    timeout_s: float
    at_once: bool = False


@dataclass(frozen=True)
class Ending:
    """Why an episode is over: the model's STOP was carried out, or a limit was reached."""

    said_stop: bool
    limit: Literal["", "timeout", "decision_limit", "gave_up", "aborted"] = ""


@dataclass(frozen=True)
class RecordedCommand:
    """A motion command as it was received."""

    t_s: float
    pose: PathPoint | None


class EpisodeRecorder:
    """The recording of one episode."""

    def __init__(self, seed: int, started: float) -> None:
        self.seed = seed
        self.started = started
        self.path: list[PathPoint] = []
        self.decisions: list[Decision] = []
        self.safety_stops: list[float] = []  # episode clock
        self.collisions = 0
        self.stop_at: float | None = None  # episode clock of the STOP decision
        self.gave_up_at: float | None = None  # episode clock of a STOP that did not come from the model
        self.state: SimState | None = None
        self._frames: dict[tuple[int, int], tuple[float, bytes]] = {}  # by stamp, in order of arrival
        self._commands: dict[int, RecordedCommand] = {}
        self._moved_at = 0.0

    def clock(self, now: float) -> float:
        """Seconds since the instruction was published."""
        return now - self.started

    def on_state(self, state: SimState) -> None:
        """Record the robot's state in the simulator; states of other episodes are ignored."""
        if state.episode_seed != self.seed or not state.ready:
            return
        before, self.state = self.state, state
        self.collisions = state.collisions
        t = self.clock(state.t)
        if before is not None and state.t > before.t:
            moved = math.hypot(state.x - before.x, state.y - before.y)
            turned = abs(wrap(state.yaw - before.yaw))
            span = state.t - before.t
            if moved / span > STILL_MPS or turned / span > STILL_RADPS:
                self._moved_at = t
        if t < 0 and self.path:
            self.path.clear()
        last = self.path[-1] if self.path else None
        if last is None or far_enough(last, state):
            self.path.append(PathPoint(max(t, 0.0), state.x, state.y, state.yaw))

    def on_frame(self, now: float, stamp: tuple[int, int], jpeg: bytes) -> None:
        """Record a camera frame, identified by its header stamp (seconds, nanoseconds)."""
        self._frames.setdefault(stamp, (self.clock(now), jpeg))

    def on_command(self, now: float, sequence: int, stop_by: Literal["", "model", "node"]) -> None:
        """Record a motion command with its time and pose. stop_by: who decided its STOP, "" if it is none."""
        self._commands.setdefault(sequence, RecordedCommand(self.clock(now), self._here(now)))
        if stop_by == "model" and self.stop_at is None:
            self.stop_at = self.clock(now)
        elif stop_by == "node" and self.gave_up_at is None:
            self.gave_up_at = self.clock(now)

    def on_safety_stop(self, now: float) -> None:
        """Record that the robot was stopped because something failed or came too late."""
        self.safety_stops.append(self.clock(now))

    def on_decision(self, now: float, sequence: int, stamp: tuple[int, int], decision: Decision) -> Decision:
        """Record a decision's metrics; returns it with number, time, pose and frame filled in.

        Time and pose are those of its motion command, if that was received (sequence 0: there was none).
        """
        command = self._commands.get(sequence) or RecordedCommand(self.clock(now), self._here(now))
        filled = msgspec.structs.replace(
            decision,
            index=len(self.decisions),
            t_s=command.t_s,
            pose=command.pose,
            frame=frame_name(stamp) if stamp in self._frames else "",
        )
        self.decisions.append(filled)
        return filled

    def _here(self, now: float) -> PathPoint | None:
        state = self.state
        return None if state is None else PathPoint(self.clock(now), state.x, state.y, state.yaw)

    def settled(self, now: float) -> bool:
        """Whether the robot has been at rest for a moment."""
        return self.state is not None and self.clock(now) - self._moved_at >= SETTLED_S

    def ending(self, now: float, limits: EpisodeLimits) -> Ending | None:
        """Whether and why the episode is over; a STOP or the last decision counts once the robot is at rest."""
        t = self.clock(now)
        if self.stop_at is not None and t - self.stop_at >= SETTLED_S and self.settled(now):
            return Ending(True)
        if self.gave_up_at is not None and t - self.gave_up_at >= SETTLED_S and self.settled(now):
            # The node has a decision limit too, and stops when it is reached.
            return Ending(
                False, "decision_limit" if len(self.decisions) >= limits.max_decisions else "gave_up"
            )
        if t >= limits.timeout_s:
            return Ending(self.stop_at is not None, "timeout")
        enough = len(self.decisions) >= limits.max_decisions
        if enough and limits.at_once:
            return Ending(False, "decision_limit")
        if enough and self.stop_at is None and t - self.decisions[-1].t_s >= SETTLED_S and self.settled(now):
            return Ending(False, "decision_limit")
        return None

    def latest_frame(self) -> bytes | None:
        """The newest camera frame."""
        return next(reversed(self._frames.values()))[1] if self._frames else None

    def write_frames(self, run: Path, index: int, with_video: bool) -> list[VideoFrame]:
        """Write the frames of decisions and, with_video, further frames for the video; returns the video's frames."""
        folder = episode_folder(run, index)
        (folder / "frames").mkdir(parents=True, exist_ok=True)
        wanted = {decision.frame for decision in self.decisions}
        end = self.path[-1].t_s + 1.0 if self.path else 0.0
        video: list[VideoFrame] = []
        for stamp, (t, jpeg) in self._frames.items():
            name = frame_name(stamp)
            in_video = (
                with_video and 0 <= t <= end and (not video or t - video[-1].t_s >= 0.9 * VIDEO_PERIOD_S)
            )
            if in_video:
                video.append(VideoFrame(t, name))
            if in_video or name in wanted:
                (folder / name).write_bytes(jpeg)
        return video


def frame_name(stamp: tuple[int, int]) -> str:
    """The file of a frame, relative to the trace."""
    return f"frames/{stamp[0]}_{stamp[1]:09d}.jpg"


def far_enough(last: PathPoint, state: SimState) -> bool:
    """Whether a new pose changes the drawn path noticeably."""
    moved = math.hypot(state.x - last.x, state.y - last.y)
    return moved >= PATH_STEP_M or abs(wrap(state.yaw - last.yaw)) >= PATH_STEP_RAD


def path_length(path: Sequence[PathPoint]) -> float:
    """Length of a driven path, metres."""
    return sum(math.hypot(b.x - a.x, b.y - a.y) for a, b in itertools.pairwise(path))
