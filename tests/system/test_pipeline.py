"""How long the robot stands between motions: `pytest tests/system -m pipeline -s`; the arithmetic is always tried."""

from __future__ import annotations

from statistics import median
from types import SimpleNamespace as Said

import pytest
from geometry_msgs.msg import Twist
from spec_vlm_nav_interfaces.msg import MotionCommand, MotionStatus

from specnav.results.demo import SCHEMA
from specnav.results.files import write_json
from specnav.supervise.probe import ProbedMessage
from specnav.supervise.robot_stack import CMD_VEL, COMMAND, IMAGE, STATUS
from tests.system.pipeline import PipelineCell, PipelineConfig, PipelineResults, run_pipeline, times_of


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
    return ProbedMessage(at, Said(header=Said(stamp=Said(sec=sec, nanosec=0))))


def twist(at, x):
    message = Twist()
    message.linear.x = x
    return ProbedMessage(at, message)


def move(at, sec):
    message = MotionCommand(kind=MotionCommand.MOVE)
    message.frame_stamp.sec = sec
    return ProbedMessage(at, message)


def test_camera_to_motion_is_from_the_frame_and_standing_from_the_end_of_the_motion_before():
    stack = Heardings(**{
        IMAGE: [frame(1.0, 7), frame(3.0, 8)],
        COMMAND: [move(1.2, 7), move(3.1, 8)],
        STATUS: [ProbedMessage(at, MotionStatus(state=MotionStatus.REACHED, sequence=1)) for at in (2.8, 3.05)],
        CMD_VEL: [twist(0.9, 0.0), twist(1.25, 0.1), twist(2.7, 0.0), twist(3.05, 0.0), twist(3.2, 0.1)],
    })  # fmt: skip
    camera, standing = times_of(stack, 0.0)
    assert camera == pytest.approx([250, 200]) and standing == pytest.approx([400])


def test_a_motion_without_an_end_before_it_says_nothing_about_standing():
    stack = Heardings(**{
        IMAGE: [], COMMAND: [move(1.2, 7), move(1.5, 8)], STATUS: [], CMD_VEL: [twist(1.6, 0.1)],
    })  # fmt: skip
    assert times_of(stack, 0.0) == ([], [])


@pytest.mark.pipeline
@pytest.mark.timeout(0)
def test_the_robot_stands_less_with_early_action_and_prefetch(folder, given):
    rtts = tuple(float(part) for part in given("rtts", "0,40,120").split(","))
    config = PipelineConfig(rtts, given("verify-ms", 0.0), decisions=given("decisions", 20), seed=given("seed", 0))
    cells: list[PipelineCell] = []
    print("way, RTT ms, camera to motion p50, p95, standing p50, p95, n, dropped; milliseconds")
    for cell in run_pipeline(config, folder, lambda what, done: None):
        cells.append(cell)
        print(*cell.line(), sep=", ")
        write_json(folder / "results.json", PipelineResults(schema=SCHEMA, config=config, cells=cells))
    for rtt_ms in rtts:
        neither, _, both = (median(cell.standing_ms) for cell in cells if cell.rtt_ms == rtt_ms)
        assert both < neither, (rtt_ms, neither, both)
