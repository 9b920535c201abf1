from __future__ import annotations

from pathlib import Path

from specnav.demo.recorder import Ending, EpisodeLimits, EpisodeRecorder, SimState, path_length
from specnav.results.trace import Decision, PathPoint

LIMITS = EpisodeLimits(max_decisions=3, timeout_s=60.0)


def state(
    t: float, x: float = 0.0, yaw: float = 0.0, seed: int = 7, ready: bool = True, collisions: int = 0
) -> SimState:
    return SimState(t=t, episode_seed=seed, x=x, y=0.0, yaw=yaw, collisions=collisions, ready=ready)


def decision(action: str = "The next action is move forward 25 cm.") -> Decision:
    return Decision(index=0, t_s=0.0, source="model", action=action, token_ids=[1])


def stand(recorder: EpisodeRecorder, start: float, seconds: float, x: float = 0.0) -> float:
    steps = round(seconds * 10)
    for step in range(steps + 1):
        recorder.on_state(state(start + step / 10, x))
    return start + steps / 10


def test_stop_ends_the_episode_once_the_robot_stands_still() -> None:
    recorder = EpisodeRecorder(7, started=100.0)
    recorder.on_state(state(100.0, 0.0))
    recorder.on_command(101.0, sequence=1, stop_by="model")
    recorder.on_state(state(101.1, 0.1))
    recorder.on_state(state(101.2, 0.15))
    assert recorder.ending(101.25, LIMITS) is None
    now = stand(recorder, 101.3, 0.6, x=0.15)
    assert recorder.ending(now, LIMITS) == Ending(said_stop=True)
    assert recorder.stop_at == 1.0


def test_stop_by_the_node_ends_the_episode_but_is_not_the_models() -> None:
    recorder = EpisodeRecorder(7, started=0.0)
    recorder.on_command(1.0, sequence=1, stop_by="node")
    now = stand(recorder, 1.0, 1.0)
    assert recorder.ending(now, LIMITS) == Ending(said_stop=False, limit="gave_up")


def test_episode_without_an_end_times_out() -> None:
    recorder = EpisodeRecorder(7, started=0.0)
    recorder.on_command(1.0, sequence=1, stop_by="")
    now = stand(recorder, 1.0, 5.0)
    assert recorder.ending(now, LIMITS) is None
    assert recorder.ending(60.0, LIMITS) == Ending(said_stop=False, limit="timeout")


def test_last_decision_is_carried_out_before_the_episode_is_given_up() -> None:
    recorder = EpisodeRecorder(7, started=0.0)
    stand(recorder, 0.0, 1.0)
    for number in range(3):
        recorder.on_decision(2.0 + number / 10, number + 1, (number, 0), decision())
    recorder.on_state(state(2.3, 0.1))
    recorder.on_state(state(2.7, 0.4))
    assert recorder.ending(2.75, LIMITS) is None
    now = stand(recorder, 2.8, 0.5, x=0.4)
    assert recorder.ending(now, LIMITS) == Ending(said_stop=False, limit="decision_limit")


def test_measuring_run_ends_at_the_last_decision_while_the_robot_still_moves() -> None:
    recorder = EpisodeRecorder(7, started=0.0)
    for number in range(3):
        recorder.on_decision(2.0 + number / 10, number + 1, (number, 0), decision())
    limits = EpisodeLimits(max_decisions=3, timeout_s=60.0, at_once=True)
    assert recorder.ending(2.25, limits) == Ending(said_stop=False, limit="decision_limit")


def test_decision_carries_time_and_place_of_its_command_and_its_frame() -> None:
    recorder = EpisodeRecorder(7, started=10.0)
    recorder.on_frame(10.1, (5, 40), b"jpeg")
    recorder.on_state(state(10.5, 1.5))
    recorder.on_command(11.0, sequence=9, stop_by="")
    recorder.on_state(state(11.5, 2.5))
    filled = recorder.on_decision(11.6, 9, (5, 40), decision())
    assert (filled.t_s, filled.pose, filled.index) == (1.0, PathPoint(1.0, 1.5, 0.0, 0.0), 0)
    assert filled.frame == "frames/5_000000040.jpg"
    without = recorder.on_decision(12.0, 0, (6, 0), decision(""))
    assert (without.t_s, without.frame, without.index) == (2.0, "", 1)


def test_other_episodes_and_unready_states_are_not_recorded() -> None:
    recorder = EpisodeRecorder(7, started=0.0)
    recorder.on_state(state(0.1, x=9.0, seed=6))
    recorder.on_state(state(0.2, x=9.0, ready=False))
    assert recorder.path == [] and recorder.state is None
    recorder.on_state(state(0.3, x=1.0, collisions=2))
    assert recorder.collisions == 2 and len(recorder.path) == 1


def test_path_keeps_motion_and_drops_standing_still() -> None:
    recorder = EpisodeRecorder(7, started=0.0)
    for step in range(11):
        recorder.on_state(state(step / 10, x=step * 0.05))
    stand(recorder, 1.1, 3.0, x=0.5)
    assert len(recorder.path) == 11
    assert abs(path_length(recorder.path) - 0.5) < 1e-9


def test_frames_of_decisions_are_written_and_the_rest_only_for_video(tmp_path: Path) -> None:
    recorder = EpisodeRecorder(7, started=0.0)
    recorder.on_state(state(0.0))
    recorder.on_state(state(2.0, x=1.0))
    for number in range(20):
        recorder.on_frame(number / 10, (number, 0), bytes([number]))
    recorder.on_decision(1.0, 1, (3, 0), decision())
    assert recorder.write_frames(tmp_path, 0, with_video=False) == []
    written = tmp_path / "episodes" / "000" / "frames"
    assert [p.read_bytes() for p in written.iterdir()] == [bytes([3])]
    video = recorder.write_frames(tmp_path, 0, with_video=True)
    assert len(video) == 10
    assert all((written.parent / frame.file).exists() for frame in video)
    assert recorder.latest_frame() == bytes([19])
