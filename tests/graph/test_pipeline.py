"""`specnav pipeline`: what it measures, from messages that were heard; a wrong argument is one line."""

from __future__ import annotations

from types import SimpleNamespace as Said

import pytest
from geometry_msgs.msg import Twist
from spec_vlm_nav_interfaces.msg import MotionCommand, MotionStatus

from specnav.cli.app import main
from trials.graph.probe import Heard
from trials.graph.stack import CMD_VEL, COMMAND, IMAGE, STATUS
from trials.pipeline.pipeline import times_of


class Heardings:
    """A stack that only remembers."""

    def __init__(self, **topics):
        self._topics = topics
        self.probe = self

    def heard(self, topic, since):
        return [h for h in self._topics[topic] if h.at >= since]

    def commands(self, since, kind):
        return [h for h in self.heard(COMMAND, since) if h.message.kind == kind]


def frame(at, sec):
    return Heard(at, Said(header=Said(stamp=Said(sec=sec, nanosec=0))))


def twist(at, x):
    message = Twist()
    message.linear.x = x
    return Heard(at, message)


def move(at, sec):
    message = MotionCommand(kind=MotionCommand.MOVE)
    message.frame_stamp.sec = sec
    return Heard(at, message)


def test_camera_to_motion_is_from_the_frame_and_standing_from_the_end_of_the_motion_before():
    stack = Heardings(**{
        IMAGE: [frame(1.0, 7), frame(3.0, 8)],
        COMMAND: [move(1.2, 7), move(3.1, 8)],
        STATUS: [Heard(at, MotionStatus(state=MotionStatus.REACHED, sequence=1)) for at in (2.8, 3.05)],
        CMD_VEL: [twist(0.9, 0.0), twist(1.25, 0.1), twist(2.7, 0.0), twist(3.05, 0.0), twist(3.2, 0.1)],
    })  # fmt: skip
    camera, standing = times_of(stack, 0.0)
    assert camera == pytest.approx([250, 200]) and standing == pytest.approx([400])


def test_a_motion_without_an_end_before_it_says_nothing_about_standing():
    stack = Heardings(**{
        IMAGE: [], COMMAND: [move(1.2, 7), move(1.5, 8)], STATUS: [], CMD_VEL: [twist(1.6, 0.1)],
    })  # fmt: skip
    assert times_of(stack, 0.0) == ([], [])


@pytest.mark.parametrize("rtts", ["a", "0,-1", "1e9"])
def test_a_wrong_round_trip_is_one_line(rtts, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["specnav", "pipeline", "--rtts", rtts])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 1 and "--rtts" in said and len(said.splitlines()) == 1
