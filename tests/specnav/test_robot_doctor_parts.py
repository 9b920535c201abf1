"""The parts of `specnav doctor --robot` around its checks: which topics, what is heard of them, and what is printed."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace as Made

import pytest

from specnav.doctor.robot.checks.line import fail, ok, warn
from specnav.doctor.robot.facts import Disk, TopicTraffic
from specnav.doctor.robot.listeners import TopicListener
from specnav.doctor.robot.reaching import reach
from specnav.doctor.robot.roles import COMPRESSED, RAW, REQUEST, STAMPED, TWIST, roles, sport_role, topic_of
from specnav.doctor.robot.run import show, summary
from tests.helpers.commands import run_here

# -- roles


def names(values, given="", found=()):
    found = dict(found)
    wanted = {role.name: role for role in roles(values)}
    return {
        name: topic_of(
            role, given if name == "image" else "", found, lambda n: n if n[0] == "/" else f"/{n}"
        )
        for name, role in wanted.items()
    }


def test_a_topic_is_the_one_our_node_hears_whatever_it_is_called():
    assert names({}, found={"/front": [COMPRESSED]})["image"] == "/front"
    assert names({}, given="/mine", found={"/front": [COMPRESSED]})["image"] == "/mine"
    assert names({})["image"] == "/camera/image_raw/compressed"


def test_parameters_say_which_types_fit_and_what_else_is_looked_at():
    found = {
        role.name: role
        for role in roles(
            {
                "vlm_nav_node": {"image_transport": "raw"},
                "motion_node": {
                    "enable_stamped_cmd_vel": True,
                    "collision_source": "scan",
                    "robot_state_timeout_s": 1.0,
                },
            }
        )
    }
    assert found["image"].wanted == (RAW,) and found["cmd_vel"].wanted == (STAMPED,)
    assert found["ahead"].topic == "scan" and "robot_state" in found
    assert {"ahead", "robot_state"}.isdisjoint(role.name for role in roles({}))


def test_a_go2_without_a_driver_is_moved_by_requests():
    assert sport_role({"/api/sport/request": [REQUEST]}).wanted == (REQUEST,)
    assert sport_role({"/cmd_vel": [TWIST]}) is None


# -- ears


def message(stamp, frame="odom", child="base_link"):
    sec = int(stamp)
    return Made(
        header=Made(stamp=Made(sec=sec, nanosec=int((stamp - sec) * 1e9)), frame_id=frame),
        child_frame_id=child,
    )


def test_an_ear_tells_rate_gap_offset_and_frames():
    now = [0.0]
    ear = TopicListener(lambda: 1000.0 + now[0], lambda: now[0])
    for tick in range(20):
        now[0] = tick * 0.1
        ear.hear(message(1000.0 + now[0] - 0.25))
    found = ear.heard(0.0, 3.0)
    assert found.rate_hz == pytest.approx(20 / 3, rel=0.01) and found.longest_gap_s == pytest.approx(1.1)
    assert (
        found.offset_s == pytest.approx(-0.25)
        and found.frames == (("odom", "base_link"),)
        and found.stuck == 0
    )


def test_an_ear_tells_stamps_that_stand_still_and_those_that_are_not_filled():
    now = [0.0]
    ear = TopicListener(lambda: 0.0, lambda: now[0])
    for _ in range(5):
        ear.hear(message(7.0))
    assert ear.heard(0.0, 1.0).stuck == 4
    unfilled = TopicListener(lambda: 0.0, lambda: now[0])
    unfilled.hear(message(0.0))
    assert unfilled.heard(0.0, 1.0).offset_s is None and unfilled.heard(0.0, 1.0).stuck == 0


def test_an_ear_tells_the_fastest_of_velocities_stamped_or_not():
    twist = Made(linear=Made(x=0.1, y=0.0), angular=Made(z=-0.4))
    ear = TopicListener(lambda: 0.0, lambda: 0.0)
    ear.hear(twist)
    assert ear.heard(0.0, 1.0).fastest == 0.4
    ear = TopicListener(lambda: 0.0, lambda: 0.0)
    ear.hear(Made(header=message(1.0).header, twist=twist))
    assert ear.heard(0.0, 1.0).fastest == 0.4
    assert TopicListener(lambda: 0.0).heard(0.0, 1.0) == TopicTraffic()


# -- the rest


@pytest.mark.slow
def test_a_verifier_that_is_not_there_is_told_in_one_line():
    found = reach("tcp://127.0.0.1:1")
    assert "no verifier answers at tcp://127.0.0.1:1" in found.error and "\n" not in found.error
    assert "give tcp://HOST:PORT" in reach("nonsense").error


def test_room_is_measured_where_a_folder_would_be_made(tmp_path):
    found = Disk.at(str(tmp_path / "a" / "b"), 500.0)
    assert found.folder == str(tmp_path) and found.free_mb > 0


def test_one_line_a_check_and_the_same_as_json(capsys):
    forged = "none\n  ok  image \x1b[2Jfine"  # words of a diagnostics row
    lines = [ok("disk", "much"), fail("image", "nobody", "is it up?"), warn("black box", forged, "start it")]
    show(lines, as_json=False)
    printed = capsys.readouterr().out.splitlines()
    assert not any("\x1b" in line for line in printed)
    assert len(printed) == len(lines) + 1 and printed[-1] == summary(lines)
    assert any(line.startswith("FAIL  image") and " -> " in line for line in printed)
    show(lines, as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert [row["check"] for row in rows] == [line.check for line in lines]


def test_without_ros_it_is_one_clear_line_and_flags_of_the_robot_need_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rclpy", None)
    monkeypatch.delitem(sys.modules, "specnav.doctor.robot.gather", raising=False)
    for arguments, said in ((["--robot"], "needs ROS 2 (rclpy)"), (["--image", "x"], "are for --robot")):
        code, _, err = run_here(monkeypatch, capsys, "doctor", *arguments)
        assert code == 1 and said in err and err.count("\n") == 1


def test_a_node_that_lacks_a_parameter_of_this_release_still_tells_the_others():
    """rclpy answers with no value at all where one of the names is unknown."""
    pytest.importorskip("rclpy")
    from rcl_interfaces.msg import ParameterValue
    from rcl_interfaces.srv import ListParameters

    from specnav.doctor.robot.facts import OurNode
    from specnav.doctor.robot.gather import Gatherer

    has = {"dry_run": ParameterValue(type=1, bool_value=True)}

    def answered(kind, request):
        if kind is ListParameters:
            return Made(result=Made(names=list(has)))
        return Made(values=[has[name] for name in request.names] if set(request.names) <= set(has) else [])

    def client(kind, service):
        return Made(
            service_is_ready=lambda: True,
            call_async=lambda request: Made(done=lambda: True, result=lambda: answered(kind, request)),
        )

    gatherer = Gatherer.__new__(Gatherer)
    gatherer._node, gatherer._spin = Made(create_client=client), lambda *given: None
    found = gatherer._ask({"motion_node": OurNode("/motion_node")})["motion_node"]
    assert found.values == {"dry_run": True}
