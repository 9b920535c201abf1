"""A mission under way: what follows from results, orders, bounds and a restart; no ROS, no clock."""

import json
import math
import os
from dataclasses import replace

import pytest

from spec_vlm_nav.common.codes import ErrorCode, MotionState
from spec_vlm_nav.common.errors import MissionError
from spec_vlm_nav.common.geometry import Motion, Pose
from spec_vlm_nav.missions.driving import Driver, Route, Turn
from spec_vlm_nav.missions.reading import read
from spec_vlm_nav.missions.record import MissionPhase, StepProgress, encode, load, save
from spec_vlm_nav.missions.run import Mission, StopLatch

A_TO_C = "steps:\n- instruction: go to a\n- instruction: go to b\n- instruction: go to c\n"


class Robot:
    """Hears what a mission wants; `end` says how the step under way ended."""

    def __init__(self, text, start="start_when: now\n"):
        self.given, self.logged, self.stood, self.now = [], [], [], 0.0
        self.token = 0
        self.mission = Mission.begin(read(start + text), self, 0.0, 0.0)
        self.tick()

    def instruct(self, token, step):
        self.token = token
        self.given.append(step.words)

    def drive(self, token, course):
        self.token = token
        self.given.append(course)

    def stand(self, why):
        self.stood.append(why)

    def changed(self):
        pass

    def log(self, text):
        self.logged.append(text)

    def tick(self, seconds=0.0, objection="", minute=0):
        self.now += seconds
        self.mission.tick(self.now, minute, objection)

    def end(self, code=ErrorCode.NONE, message="", token=None):
        self.mission.on_result(token or self.token, code, message, self.now, 3)

    def walk(self, *points):
        for x, y in points:
            self.mission.on_pose(Pose(x, y, 0.0))

    @property
    def record(self):
        return self.mission.record

    @property
    def progress(self):
        return [item.progress.value for item in self.record.items]


def test_steps_are_carried_out_one_after_the_other():
    robot = Robot(A_TO_C)
    assert robot.given == ["go to a"]
    robot.end()
    robot.end()
    assert robot.given == ["go to a", "go to b", "go to c"] and robot.record.phase is MissionPhase.RUNNING
    robot.end()
    assert robot.record.phase is MissionPhase.ENDED and robot.record.code == "NONE"
    assert robot.progress == ["done"] * 3 and [i.decisions for i in robot.record.items] == [3, 3, 3]


def test_the_noise_of_odometry_is_no_distance_and_a_slow_walk_is_one():
    robot = Robot("max_m: 1\nsteps: [{wait_s: 600}]")
    robot.walk(*((0.002 * (i % 2), 0.001 * (i % 3)) for i in range(18_000)))  # 10 min at 30 Hz
    robot.tick(1)
    assert robot.record.phase is MissionPhase.RUNNING and robot.record.distance_m == 0
    robot.walk(*((0.003 * i, 0.0) for i in range(301)))
    assert robot.record.distance_m == pytest.approx(0.9, abs=0.02)
    robot.walk((9.0, 9.0), (9.0, 9.0))  # odometry was reset
    assert robot.record.distance_m < 0.93


def test_a_late_result_of_an_earlier_attempt_changes_nothing():
    robot = Robot(A_TO_C)
    old = robot.token
    robot.mission.pause("asked")
    robot.mission.resume("", robot.now)
    robot.end(token=old)
    assert robot.progress == ["running", "pending", "pending"]


@pytest.mark.parametrize(
    "policy, given, progress, phase",
    [
        ("next", ["go to a", "go to b"], ["failed", "running"], MissionPhase.RUNNING),
        ("stop", ["go to a"], ["failed", "pending"], MissionPhase.ENDED),
    ],
)
def test_on_failure(policy, given, progress, phase):
    robot = Robot(f"steps:\n- {{instruction: go to a, on_failure: {policy}}}\n- go to b\n")
    robot.end(ErrorCode.BLOCKED, "a wall")
    assert (robot.given, robot.progress, robot.record.phase) == (given, progress, phase)
    if phase is MissionPhase.RUNNING:
        robot.end()
    assert robot.record.code == "BLOCKED" and "a wall" in robot.record.why


def test_on_failure_return_drives_back_along_the_path_and_keeps_the_reason():
    robot = Robot("steps:\n- {instruction: go to a, on_failure: return}\n- go to b\n")
    robot.walk((0, 0), (0.5, 0), (1, 0), (1, 0.5), (1, 1))
    robot.end(ErrorCode.PARSE_FAILED, "babble")
    assert robot.progress == ["failed", "skipped", "running"] and isinstance(robot.given[-1], Route)
    corners = robot.given[-1]._corners
    assert corners == [(1, 1), (1, 0), (0, 0)]
    robot.end()
    assert robot.record.phase is MissionPhase.ENDED and robot.record.code == "PARSE_FAILED"
    assert "babble" in robot.record.why and "returned" in robot.record.why


def test_a_way_back_that_fails_does_not_hide_the_first_failure():
    robot = Robot("steps:\n- {instruction: go to a, on_failure: return}\n")
    robot.walk((0, 0), (0.5, 0))
    robot.end(ErrorCode.PARSE_FAILED, "babble")
    robot.end(ErrorCode.BLOCKED, "a wall")
    assert robot.record.phase is MissionPhase.ENDED and robot.record.code == "PARSE_FAILED"
    assert "babble" in robot.record.why and "a wall" in robot.record.why


def test_retries_come_before_on_failure():
    robot = Robot("steps:\n- {instruction: go to a, retries: 2}\n")
    for _ in range(2):
        robot.end(ErrorCode.BLOCKED)
        assert robot.record.phase is MissionPhase.RUNNING
    robot.end(ErrorCode.BLOCKED)
    assert robot.record.phase is MissionPhase.ENDED and len(robot.given) == 3


@pytest.mark.parametrize("code", [ErrorCode.CANCELED, ErrorCode.ESTOPPED])
def test_somebody_elses_stop_pauses_and_nothing_goes_on_by_itself(code):
    robot = Robot(A_TO_C)
    robot.end(code, "stopped by the operator")
    assert robot.record.phase is MissionPhase.PAUSED and "operator" in robot.record.why
    robot.tick(100.0)
    assert robot.given == ["go to a"]
    robot.mission.resume("", robot.now)
    assert robot.given == ["go to a", "go to a"] and robot.record.items[0].tries == 1


def test_resume_is_refused_with_the_reason():
    robot = Robot(A_TO_C)
    robot.mission.pause("asked")
    with pytest.raises(MissionError, match="e-stop is latched"):
        robot.mission.resume("the e-stop is latched", robot.now)
    assert robot.record.phase is MissionPhase.PAUSED


def test_pause_has_the_robot_stand_and_skip_goes_to_the_next():
    robot = Robot(A_TO_C)
    robot.mission.pause("asked")
    assert robot.stood == ["asked"]
    robot.mission.skip(robot.now)
    assert robot.given == ["go to a"], "skipping while paused begins nothing"
    robot.mission.resume("", robot.now)
    robot.mission.skip(robot.now)
    assert robot.given == ["go to a", "go to b", "go to c"]
    assert robot.progress == ["skipped", "skipped", "running"]


def test_steps_to_come_can_be_moved_and_others_not():
    robot = Robot(A_TO_C)
    robot.mission.move(3, 2)
    robot.end()
    assert robot.given == ["go to a", "go to c"]
    for number, place, words in ((1, 2, "done"), (2, 1, "must be 3 to 3"), (9, 3, "no step 9")):
        with pytest.raises(MissionError, match=words):
            robot.mission.move(number, place)


def test_cancel_ends_it():
    robot = Robot(A_TO_C)
    robot.mission.cancel("by a client")
    assert robot.record.phase is MissionPhase.ENDED and robot.record.code == "CANCELED" and robot.stood
    with pytest.raises(MissionError):
        robot.mission.resume("", robot.now)


def test_bounds_of_a_step_and_of_the_mission():
    robot = Robot(
        "steps:\n- {instruction: go to a, max_s: 10, on_failure: next}\n- {instruction: go, max_m: 1}\n"
    )
    robot.tick(10.5)
    assert robot.progress[0] == "running", "vlm_nav_node ends it itself, a little later"
    robot.tick(2.0)
    assert robot.record.items[0].code == "TIMEOUT" and robot.stood
    robot.walk((0, 0), (0.4, 0), (0.8, 0), (1.2, 0))
    robot.tick(0.1)
    assert robot.record.items[1].code == "TOO_FAR" and robot.record.phase is MissionPhase.ENDED
    robot = Robot("max_s: 5\n" + A_TO_C)
    robot.end()
    robot.tick(6.0)
    assert robot.record.code == "TIMEOUT" and robot.progress == ["done", "failed", "pending"]


def test_a_wait_takes_its_time():
    robot = Robot("steps:\n- wait_s: 5\n- go to b\n")
    robot.tick(4.9)
    assert robot.given == []
    robot.tick(0.2)
    assert robot.given == ["go to b"]


@pytest.mark.parametrize(
    "start, before, at",
    [
        ("start_when: {after_s: 30}\n", dict(seconds=29), dict(seconds=2)),
        ('start_when: {at: "08:30"}\n', dict(minute=509), dict(minute=510)),
        ("start_when: ready\n", dict(objection="no odometry"), dict()),
    ],
)
def test_start_when(start, before, at):
    robot = Robot(A_TO_C, start="") if not start else _waiting(start)
    robot.tick(**before)
    assert robot.given == []
    robot.tick(**at)
    assert robot.given == ["go to a"]


def test_what_is_late_for_its_minute_begins_as_soon_as_nothing_keeps_it():
    robot = _waiting('start_when: {at: "08:30"}\n')
    robot.tick(minute=509)
    robot.tick(1.0, minute=510, objection="no odometry")
    robot.tick(90.0, minute=511, objection="no odometry")
    assert robot.given == [] and "no odometry" in robot.record.why
    robot.tick(1.0, minute=511)
    assert robot.given == ["go to a"]


def test_what_is_too_late_ends_with_the_reason_instead_of_driving_off_tomorrow():
    robot = _waiting('start_when: {at: "08:30"}\n')
    robot.tick(minute=510, objection="no odometry")
    robot.tick(601.0, minute=520, objection="no odometry")
    assert robot.record.phase is MissionPhase.ENDED and robot.record.code == "TIMEOUT"
    assert "08:30" in robot.record.why and "no odometry" in robot.record.why
    robot.tick(86_400.0, minute=510)
    assert robot.given == []


@pytest.mark.parametrize("before, after, begins", [(508, 512, True), (0, 840, False), (512, 508, False)])
def test_a_clock_that_is_set_over_the_minute_by_a_little_does_not_lose_it(before, after, begins):
    robot = _waiting('start_when: {at: "08:30"}\n')
    robot.tick(minute=before)
    robot.tick(1.0, minute=after)
    assert (robot.given == ["go to a"]) == begins


def _waiting(start):
    robot = Robot.__new__(Robot)
    robot.given, robot.logged, robot.stood, robot.now, robot.token = [], [], [], 0.0, 0
    robot.mission = Mission.begin(read(start + A_TO_C), robot, 0.0, 0.0)
    return robot


def test_a_signal_is_what_resume_says():
    robot = _waiting("start_when: signal\n")
    robot.tick(1000.0)
    assert robot.given == []
    robot.mission.resume("", robot.now)
    assert robot.given == ["go to a"]


def test_after_a_restart_it_is_paused_and_goes_on_where_it_was(tmp_path):
    robot = Robot(A_TO_C)
    robot.end()
    robot.walk((0, 0), (0.5, 0))
    save(encode(robot.record), tmp_path / "mission.json")
    again = Robot.__new__(Robot)
    again.given, again.logged, again.stood, again.now, again.token = [], [], [], 0.0, 0
    again.mission = Mission.restored(load(tmp_path / "mission.json"), again, 0.0)
    assert again.record.phase is MissionPhase.PAUSED and again.given == []
    again.tick(100.0)
    assert again.given == []
    again.mission.resume("", 0.0)
    assert again.given == ["go to b"] and again.record.path == robot.record.path


def test_odometry_that_was_set_anew_forgets_the_path():
    robot = Robot("steps:\n- go to a\n- return: start\n")
    robot.walk((0, 0), (0.5, 0), (9, 9))
    assert robot.record.path == [(9, 9)]
    robot.mission._pose = None
    robot.record.path.clear()
    robot.end()
    robot.tick()
    assert robot.record.items[1].code == "INVALID_INPUT"


@pytest.mark.parametrize("yaw, kept", [(0.9, 3), (1.6, 1), (-1.6, 1), (2 * math.pi, 3)])
def test_odometry_that_begins_anew_nearby_is_known_by_its_heading(yaw, kept):
    robot = Robot("steps:\n- go to a\n- return: start\n")
    robot.walk((0, 0), (0.3, 0))
    robot.mission.on_pose(Pose(0.0, 0.4, yaw))
    assert len(robot.record.path) == kept


@pytest.mark.parametrize(
    "told, new",
    [
        ([(True, 5.0), (True, 5.0)], [False, False]),  # it was in force before anything listened
        ([(False, 1.0), (True, 5.0), (True, 5.0), (True, 6.0)], [False, True, False, True]),
        ([(False, 990.0), (True, 1000.0), (False, 400.0), (True, 410.0)], [False, True, False, True]),
        ([(False, 0.0), (True, 0.0), (False, 0.0), (True, 0.0)], [False, True, False, True]),
    ],
)
def test_a_new_stop_is_known_whatever_the_clock_does(told, new):
    stops = StopLatch()
    assert [stops.is_new(*status) for status in told] == new


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda record: record["items"][0].update(progress="failed", code=""), "step 1 has failed without a code"),
        (lambda record: record["items"][0].update(code="WEATHER"), "unknown code 'WEATHER'"),
        (lambda record: record.update(code=""), "unknown code ''"),
        (lambda record: record["items"][1].update(number=1), "two steps have the same number"),
        (lambda record: record.update(path=[[0, 0], [1e308, 0]]), "the number 1e.308 is too large"),
        (lambda record: record.update(spacing_m=0), "spacing_m must be above 0, got 0"),
    ],
)
def test_a_record_edited_by_hand_that_cannot_go_on_is_refused(tmp_path, change, said):
    file = tmp_path / "mission.json"
    save(encode(Robot(A_TO_C).record), file)
    edited = json.loads(file.read_text())
    change(edited)
    file.write_text(json.dumps(edited))
    with pytest.raises(ValueError, match=said):
        load(file)


def test_a_file_that_holds_no_record_is_said_and_a_half_written_one_replaces_nothing(tmp_path, monkeypatch):
    file = tmp_path / "mission.json"
    assert load(file) is None
    file.write_text("{")
    with pytest.raises(ValueError, match="holds no mission"):
        load(file)
    robot = Robot(A_TO_C)
    save(encode(robot.record), file)
    good = file.read_bytes()

    def full(fd):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError):
        save(encode(robot.record), file)
    assert file.read_bytes() == good and list(tmp_path.iterdir()) == [file]


class Base:
    """Carries out motions exactly."""

    def __init__(self, course):
        self.pose, self.ended, self.sent = Pose(0.0, 0.0, 0.0), [], []
        self.driver = Driver(course, self.send, lambda code, why: self.ended.append((code, why)), 0.0)
        self.now = 0.0

    def send(self, motion):
        self.sent.append(motion)
        return len(self.sent)

    def go(self, state=MotionState.REACHED):
        self.now += 1.5
        self.driver.tick(self.pose, self.now)
        if self.ended:
            return
        motion = self.sent[-1]
        if state is MotionState.REACHED:
            p = self.pose
            self.pose = Pose(
                p.x + motion.distance_m * math.cos(p.yaw),
                p.y + motion.distance_m * math.sin(p.yaw),
                math.remainder(p.yaw + motion.angle_rad, 2 * math.pi),
            )
        self.driver.on_status(len(self.sent), state, state.name, self.now)


@pytest.mark.parametrize("degrees", [90, -90, 360, -30])
def test_a_turn_is_driven_in_parts_and_measured_by_odometry(degrees):
    base = Base(Turn(math.radians(degrees)))
    while not base.ended:
        base.go()
    turned = math.degrees(sum(m.angle_rad for m in base.sent))
    assert turned == pytest.approx(degrees, abs=5) and base.ended == [(ErrorCode.NONE, "")]
    assert all(abs(m.angle_rad) <= math.radians(60) for m in base.sent)


def test_a_way_is_driven_forwards_corner_by_corner():
    base = Base(Route([(1.0, 0.0), (1.0, 1.0), (0.0, 0.0)]))
    while not base.ended:
        base.go()
    assert math.hypot(base.pose.x, base.pose.y) < 0.16
    assert all(m.distance_m >= 0 and Motion() != m for m in base.sent)


def test_motions_that_come_to_nothing_end_the_course_with_their_code():
    base = Base(Route([(5.0, 0.0)]))
    for _ in range(3):
        base.go(MotionState.COLLISION_AHEAD)
    assert base.ended == [(ErrorCode.COLLISION_AHEAD, "COLLISION_AHEAD")]


def test_a_stop_ends_the_course_at_once():
    base = Base(Route([(5.0, 0.0)]))
    base.go(MotionState.STOPPED)
    assert base.ended[0][0] is ErrorCode.CANCELED


def test_a_silent_motion_node_ends_the_course():
    base = Base(Turn(1.0))
    base.driver.tick(base.pose, 0.0)
    base.driver.tick(base.pose, 3.0)
    assert base.ended[0][0] is ErrorCode.INTERNAL
    assert StepProgress.DONE.value == "done"


@pytest.mark.slow
@pytest.mark.parametrize("bounds", ["{on_failure: next}", "{on_failure: next, retries: 20}"])
def test_any_number_of_steps_that_cannot_begin_ends_in_failures(bounds):
    """Each failed within the one before it, until Python's stack was full."""
    steps = "steps:\n- {repeat: 400, steps: [{return: start}]}\n- instruction: go to a\n"
    robot = Robot(f"defaults: {bounds}\n{steps}")
    for _ in range(400 * 21 + 1):
        robot.tick(0.1)
    assert robot.given == ["go to a"]
    robot.end()
    assert robot.record.phase is MissionPhase.ENDED and robot.record.code == "INVALID_INPUT"


def test_a_return_without_a_path_that_was_paused_goes_back_once_there_is_one():
    robot = Robot("steps:\n- return: start\n")
    robot.mission.pause("by hand")
    robot.tick(0.1)
    assert robot.record.phase is MissionPhase.PAUSED
    robot.walk((0, 0), (0.4, 0))
    robot.mission.resume("", robot.now)
    robot.tick(0.1)
    assert isinstance(robot.given[-1], Route)


def failed_and_returning(steps=1):
    robot = Robot(f"defaults: {{on_failure: return}}\nsteps:\n- {{repeat: {steps}, steps: [go to a]}}\n")
    robot.walk((0, 0), (0.4, 0))
    robot.end(ErrorCode.BLOCKED, "a wall")
    assert isinstance(robot.given[-1], Route)
    return robot


def test_the_longest_mission_also_returns_after_a_failure():
    robot = failed_and_returning(500)
    with pytest.raises(MissionError, match="at most 500"):
        robot.mission.append(read("steps:\n- wait_s: 1\n").steps)
    robot.end()
    assert robot.record.phase is MissionPhase.ENDED and "returned to the start" in robot.record.why


def test_a_pause_on_the_way_back_does_not_take_the_failures_place():
    robot = failed_and_returning()
    robot.mission.pause("by hand")
    assert robot.record.why == "by hand"
    robot.mission.resume("", robot.now)
    assert "BLOCKED a wall" in robot.record.why
    robot.end()
    assert robot.record.code == "BLOCKED" and "BLOCKED a wall; returned to the start" in robot.record.why


def test_a_way_back_that_was_skipped_is_not_called_a_return():
    robot = failed_and_returning()
    robot.mission.skip(robot.now)
    assert robot.record.phase is MissionPhase.ENDED and "BLOCKED a wall; the way back was skipped" in robot.record.why


def test_a_pipe_in_the_place_of_the_kept_mission_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "mission.json")
    with pytest.raises(ValueError, match="must be a regular file"):
        load(tmp_path / "mission.json")


def test_the_longest_mission_is_kept_whole(tmp_path):
    robot = Robot(f"steps:\n- {{repeat: 500, steps: [{{instruction: go on, hint: {'é' * 200}}}]}}\n")
    robot.record.items[:] = [replace(i, message="\U0001f6d1" * 1000) for i in robot.record.items]
    robot.record.path[:] = [(1.23456789012345 + i, -9.87654321098765) for i in range(4000)]
    save(encode(robot.record), tmp_path / "mission.json")
    assert (tmp_path / "mission.json").stat().st_size > 1 << 20
    assert load(tmp_path / "mission.json") == robot.record
