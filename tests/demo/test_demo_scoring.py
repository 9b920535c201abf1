from __future__ import annotations

import math
from pathlib import Path

import pytest

from navsim.episodes import Episode, make_episode
from navsim.geometry import Pose2D
from navsim.planner import plan
from specnav.demo.recorder import Ending, EpisodeRecorder, SimState
from specnav.demo.scoring import make_trace, score_recording
from specnav.results.demo import summarise
from specnav.results.trace import Decision, PathPoint


def drive(episode: Episode, poses: list[Pose2D], collisions: int = 0) -> EpisodeRecorder:
    recorder = EpisodeRecorder(episode.seed, started=0.0)
    for step, pose in enumerate(poses):
        recorder.on_state(SimState(step * 0.5, episode.seed, pose.x, pose.y, pose.yaw, collisions, True))
    return recorder


def facing(episode: Episode, x: float, y: float) -> Pose2D:
    assert episode.target is not None
    return Pose2D(x, y, math.atan2(episode.target.y - y, episode.target.x - x))


@pytest.fixture(scope="module")
def episode() -> Episode:
    return make_episode(3, "heldout")


@pytest.fixture(scope="module")
def good_way(episode: Episode) -> list[Pose2D]:
    assert episode.target is not None
    points = plan(episode.room, episode.start, episode.target)
    return [facing(episode, x, y) for x, y in points]


def says(text: str, source: str = "model", **more: object) -> Decision:
    return Decision(index=0, t_s=0.0, source=source, action=text, text=text, **more)


def test_stop_at_the_target_is_a_success_with_its_figures(episode: Episode, good_way: list[Pose2D]) -> None:
    recorder = drive(episode, good_way)
    recorder.on_decision(
        1.0,
        1,
        (0, 0),
        says(
            "I see the x.",
            decision_ms=80.0,
            time_to_action_ms=95.0,
            drafted=[4, 4],
            accepted=[4, 3],
            token_ids=[1] * 9,
            joules=3.0,
        ),
    )
    recorder.on_decision(
        2.0,
        2,
        (0, 1),
        says("forward 50", "policy", decision_ms=90.0, drafted=[4], accepted=[1], token_ids=[1, 2], joules=5.0),
    )
    result = score_recording(0, episode, recorder, Ending(said_stop=True), duration_s=12.0)
    assert result.success and result.outcome == "reached" and result.detail == ""
    assert result.time_to_goal_s == 12.0
    assert result.path_m == pytest.approx(result.shortest_path_m, rel=0.01)
    assert result.decision_ms == [80.0, 90.0] and result.time_to_action_ms == [95.0]
    assert (result.steps, result.policy_moves, result.rounds, result.drafted, result.accepted) == (
        2,
        1,
        3,
        12,
        8,
    )
    summary = summarise([result])
    assert summary.spl == pytest.approx(1.0, rel=0.01)
    assert summary.tau == pytest.approx(11 / 3)
    assert result.joules == [3.0, 5.0] and summary.joules_per_decision == 4.0


def test_late_decisions_and_what_the_robot_stood_for_them_are_told(episode: Episode, good_way: list[Pose2D]) -> None:
    recorder = EpisodeRecorder(episode.seed, started=100.0)
    here, there = good_way[0], good_way[-1]
    for t, pose in ((100.0, here), (101.0, there), (104.0, here), (104.5, there), (105.0, here)):
        recorder.on_state(SimState(t, episode.seed, pose.x, pose.y, pose.yaw, 0, True))
    for sequence, t, took in ((1, 100.9, 60.0), (2, 103.5, 900.0), (3, 104.9, 70.0)):
        recorder.on_command(t, sequence, "")
        recorder.on_decision(t, sequence, (0, sequence), says("go", time_to_action_ms=took))
    recorder.on_safety_stop(102.0)
    result = score_recording(0, episode, recorder, Ending(said_stop=False, limit="timeout"), 5.0)
    assert (result.late_decisions, result.late_stood_s, result.stood_s) == (1, 3.0, 4.5)
    assert (result.safety_stops, result.safety_stood_s) == (1, 3.0)
    summary = summarise([result, result])
    assert (summary.late_decisions, summary.decisions, summary.late_stood_s) == (2, 6, 6.0)
    assert (summary.stood_s, summary.safety_stood_s) == (9.0, 6.0)


def test_being_there_without_saying_stop_is_no_success(episode: Episode, good_way: list[Pose2D]) -> None:
    result = score_recording(0, episode, drive(episode, good_way), Ending(False, "decision_limit"), 50.0)
    assert not result.success and result.outcome == "decision_limit" and result.time_to_goal_s is None


def test_stop_at_the_start_is_too_far(episode: Episode) -> None:
    result = score_recording(1, episode, drive(episode, [episode.start]), Ending(True), 1.0)
    assert not result.success
    assert result.outcome in ("too_far", "wrong_object")
    assert result.navigation_error_m is not None and result.navigation_error_m > 0.8
    assert result.detail


def test_absent_target_needs_to_be_said_and_not_stopped_at() -> None:
    absent = make_episode(5, "heldout", absent=True)
    quiet = drive(absent, [absent.start])
    result = score_recording(0, absent, quiet, Ending(False, "decision_limit"), 30.0)
    assert (result.success, result.outcome, result.shortest_path_m) == (False, "absent_silent", None)
    honest = drive(absent, [absent.start])
    honest.on_decision(
        1.0, 1, (0, 0), says("I do not see the silver bottle. The next action is turn left 30 degree.")
    )
    result = score_recording(0, absent, honest, Ending(False, "decision_limit"), 30.0)
    assert (result.success, result.outcome, result.time_to_goal_s) == (True, "absent_respected", None)


def test_aborted_episode_is_never_a_success(episode: Episode, good_way: list[Pose2D]) -> None:
    result = score_recording(0, episode, drive(episode, good_way), Ending(True, "aborted"), 1.0)
    assert (result.success, result.outcome) == (False, "aborted")


def test_trace_holds_the_room_and_marks_the_target(
    episode: Episode, good_way: list[Pose2D], tmp_path: Path
) -> None:
    recorder = drive(episode, good_way, collisions=2)
    result = score_recording(0, episode, recorder, Ending(True), 5.0)
    trace = make_trace(result, episode, recorder, [])
    assert result.collisions == 2
    assert [thing.name for thing in trace.objects if thing.is_target] == [episode.target_name]
    assert len(trace.walls) == len(episode.room.walls) and len(trace.objects) == len(episode.room.objects)
    assert trace.path[0] == PathPoint(0.0, good_way[0].x, good_way[0].y, good_way[0].yaw)
    assert all(thing.colour.startswith("#") and len(thing.colour) == 7 for thing in trace.objects)
