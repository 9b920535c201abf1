# SPDX-License-Identifier: Apache-2.0
"""Turns a recorded episode into its result and trace, with the simulator's own scoring.

This module judges nothing: success comes from `navsim.scoring`, counts and times from the recording.
"""

from __future__ import annotations

from navsim.episodes import Episode
from navsim.geometry import Disc, Pose2D, Shape
from navsim.kinds import COLOURS
from navsim.scoring import Score, score_episode
from spec_vlm_nav.language.actions import sees_target
from specnav.demo.recorder import Ending, EpisodeRecorder, path_length
from specnav.results.demo import EpisodeResult, Outcome
from specnav.results.standing import is_late, stood_s
from specnav.results.trace import Decision, EpisodeTrace, MapObject, Rectangle, VideoFrame

OUTCOMES: dict[str, Outcome] = {
    "success": "reached",
    "wrong_object": "wrong_object",
    "too_far": "too_far",
    "not_facing": "not_facing",
    "silent": "absent_silent",
}


def said_absent(decisions: list[Decision]) -> bool:
    """Whether the last decision that mentions the target's visibility says that it is not visible."""
    spoken = [seen for decision in decisions if (seen := sees_target(decision.text)) is not None]
    return bool(spoken) and not spoken[-1]


def outcome_of(score: Score, ending: Ending, absent: bool) -> Outcome:
    """The episode's outcome."""
    if ending.limit == "aborted":
        return "aborted"
    if absent and score.success:
        return "absent_respected"
    if score.reason == "no_stop":
        return ending.limit or "decision_limit"
    return OUTCOMES[score.reason]


def explain(score: Score, episode: Episode) -> str:
    """One line about what went wrong, or ""."""
    if score.success:
        return ""
    if score.stopped_at is not None:
        return f"stopped at the {score.stopped_at}"
    if score.navigation_error_m is not None:
        return f"{score.navigation_error_m:.2f} m from the {episode.target_name} at the end"
    return ""


def score_recording(
    index: int, episode: Episode, recorder: EpisodeRecorder, ending: Ending, duration_s: float
) -> EpisodeResult:
    """The result of one episode."""
    last = recorder.path[-1] if recorder.path else None
    final = episode.start if last is None else Pose2D(last.x, last.y, last.yaw)
    driven = path_length(recorder.path)
    decisions = recorder.decisions
    late = [d.t_s for d in decisions if is_late(d.time_to_action_ms)]
    score = score_episode(
        episode,
        final,
        stopped=ending.said_stop,
        path_m=driven,
        collisions=recorder.collisions,
        said_absent=said_absent(decisions),
    )
    return EpisodeResult(
        instruction=episode.instruction,
        success=score.success and ending.limit != "aborted",
        collisions=score.collisions,
        steps=len(decisions),
        time_to_goal_s=duration_s if score.success and not episode.absent else None,
        path_m=driven,
        shortest_path_m=score.shortest_path_m,
        decision_ms=[d.decision_ms for d in decisions if d.decision_ms is not None],
        time_to_action_ms=[d.time_to_action_ms for d in decisions if d.time_to_action_ms is not None],
        index=index,
        seed=episode.seed,
        split=episode.split,
        absent=episode.absent,
        outcome=outcome_of(score, ending, episode.absent),
        detail=explain(score, episode),
        said_stop=ending.said_stop,
        navigation_error_m=score.navigation_error_m,
        duration_s=duration_s,
        policy_moves=sum(d.source == "policy" for d in decisions),
        parse_failures=sum(not d.parsed for d in decisions),
        safety_stops=len(recorder.safety_stops),
        drafted=sum(sum(d.drafted) for d in decisions),
        accepted=sum(sum(d.accepted) for d in decisions),
        tokens=sum(len(d.token_ids) for d in decisions),
        rounds=sum(len(d.drafted) for d in decisions),
        uplink_bytes=sum(sum(d.uplink_bytes) for d in decisions),
        downlink_bytes=sum(sum(d.downlink_bytes) for d in decisions),
        round_overhead_ms=[round(value, 3) for d in decisions for value in d.overhead_ms],
        late_decisions=len(late),
        stood_s=round(stood_s(recorder.path, [d.t_s for d in decisions]), 3),
        late_stood_s=round(stood_s(recorder.path, late), 3),
        safety_stood_s=round(stood_s(recorder.path, recorder.safety_stops), 3),
        joules=[d.joules for d in decisions if d.joules is not None],
    )


def as_rectangle(shape: Shape) -> Rectangle:
    """A footprint for the map."""
    if isinstance(shape, Disc):
        return Rectangle(shape.x, shape.y, 2 * shape.radius, 2 * shape.radius, is_round=True)
    return Rectangle(shape.x, shape.y, 2 * shape.hx, 2 * shape.hy, shape.yaw)


def hex_colour(colour: str) -> str:
    """A named colour of the simulator as #rrggbb."""
    return "#" + "".join(f"{round(255 * part):02x}" for part in COLOURS[colour])


def make_trace(
    result: EpisodeResult, episode: Episode, recorder: EpisodeRecorder, video: list[VideoFrame]
) -> EpisodeTrace:
    """The trace of one episode: the room as a map, and the recording."""
    room = episode.room
    return EpisodeTrace(
        result=result,
        bounds=room.bounds,
        walls=[as_rectangle(wall.shape) for wall in room.walls],
        objects=[
            MapObject(
                name=thing.name,
                footprint=as_rectangle(thing.shape),
                colour=hex_colour(thing.colour),
                is_target=thing == episode.target,
            )
            for thing in room.objects
        ],
        path=recorder.path,
        decisions=recorder.decisions,
        video=video,
        furniture=[as_rectangle(piece.shape) for piece in room.furniture],
        floors=[
            Rectangle((a.x0 + a.x1) / 2, (a.y0 + a.y1) / 2, abs(a.x1 - a.x0), abs(a.y1 - a.y0))
            for a in room.areas
        ],
    )
