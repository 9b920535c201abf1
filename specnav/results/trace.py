# SPDX-License-Identifier: Apache-2.0
"""The trace of an episode: everything the report and later checks need, recorded while the robot moved.

A *trace* has the map, the driven path and each decision with its frame, text, tokens and times. Frames are files next
to it, as the JPEG bytes that the model saw. This module only stores data.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from specnav.results.demo import EpisodeResult
from specnav.results.files import read_json, write_json

TRACE_FILE = "trace.json"
# Who chose the move; policy: the exploration policy replaced the model's action.
Source = Literal["model", "policy"]
Lane = Literal["edge", "uplink", "cloud", "downlink"]


class Rectangle(msgspec.Struct, frozen=True):
    """A wall or a footprint on the floor: centre, full sizes (metres) and yaw (radians); round ones are ellipses."""

    x: float
    y: float
    width: float
    depth: float
    yaw: float = 0.0
    is_round: bool = False


class MapObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object of the room as drawn on the map."""

    name: str
    footprint: Rectangle
    colour: str = "#888888"
    is_target: bool = False


class PathPoint(msgspec.Struct, frozen=True, array_like=True):
    """A pose of the robot: seconds since the instruction, metres, metres, radians."""

    t_s: float
    x: float
    y: float
    yaw: float


class Span(msgspec.Struct, frozen=True, array_like=True):
    """One bar of a decision's timeline, milliseconds since the decision began. size: bytes of a message."""

    lane: str
    name: str
    start_ms: float
    end_ms: float
    size: int = 0


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One decision: the model's answer and the resulting move.

    Per-round lists have one entry per round. Frames are file names relative to the trace.
    """

    index: int
    t_s: float  # when the decision arrived, seconds since the instruction
    source: Source
    action: str  # the action carried out, in words; "" if the robot was stopped instead
    # the model's own action sentence; differs from `action` when the policy replaced it
    model_action: str = ""
    reasoning: str = ""
    text: str = ""  # the model's whole answer
    parsed: bool = True
    complete: bool = True  # False: the answer was cut short (link lost, canceled)
    note: str = ""  # the policy's rule, or the reason why the node stopped
    frame: str = ""
    pose: PathPoint | None = None
    decision_ms: float | None = None
    time_to_action_ms: float | None = None
    prefill_ms: float = 0.0
    cloud_prefill_ms: float = 0.0
    total_ms: float = 0.0
    joules: float | None = None  # energy of the robot's computer; null without a sensor
    prompt_bytes: int = 0  # size of the opening message, including the image
    prompt_ids: list[int] = msgspec.field(default_factory=list)
    token_ids: list[int] = msgspec.field(default_factory=list)
    drafted: list[int] = msgspec.field(default_factory=list)
    accepted: list[int] = msgspec.field(default_factory=list)
    uplink_bytes: list[int] = msgspec.field(default_factory=list)
    downlink_bytes: list[int] = msgspec.field(default_factory=list)
    draft_ms: list[float] = msgspec.field(default_factory=list)
    wait_ms: list[float] = msgspec.field(default_factory=list)  # draft sent -> verdict received
    verify_ms: list[float] = msgspec.field(default_factory=list)  # the target's forward, inside the wait
    timeline: list[Span] = msgspec.field(default_factory=list)
    identical_to_target: bool | None = None

    @property
    def overhead_ms(self) -> list[float]:
        """Waiting time of each round beyond the target's forward: link, queues, codecs.

        The first round is left out, because its wait includes the rest of the cloud's prefill.
        """
        return [wait - verify for wait, verify in zip(self.wait_ms[1:], self.verify_ms[1:], strict=False)]


class VideoFrame(msgspec.Struct, frozen=True, array_like=True):
    """A camera frame kept for the animation."""

    t_s: float
    file: str


class EpisodeTrace(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one episode."""

    result: EpisodeResult
    bounds: tuple[float, float, float, float]  # min x, min y, max x, max y
    walls: list[Rectangle]
    objects: list[MapObject]
    path: list[PathPoint]
    decisions: list[Decision]
    video: list[VideoFrame] = msgspec.field(default_factory=list)
    furniture: list[Rectangle] = msgspec.field(default_factory=list)
    floors: list[Rectangle] = msgspec.field(default_factory=list)  # areas; empty: the bounds are the floor


def episode_folder(run: Path, index: int) -> Path:
    """Folder of an episode's trace and frames inside a run folder."""
    return run / "episodes" / f"{index:03d}"


def save_trace(run: Path, trace: EpisodeTrace) -> Path:
    """Write a trace beside its frames, atomically."""
    path = episode_folder(run, trace.result.index) / TRACE_FILE
    write_json(path, trace)
    return path


def load_traces(run: Path) -> list[EpisodeTrace]:
    """All traces of a run, in episode order; episodes without a finished trace are left out."""
    return [read_json(path, EpisodeTrace) for path in sorted((run / "episodes").glob(f"*/{TRACE_FILE}"))]
