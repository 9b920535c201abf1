"""motion_node as a real process: watchdogs on what it is told, stop by hand, what is ahead, live limits, health."""

from __future__ import annotations

import itertools
import math
import threading
import time

import pytest
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import Twist
from sensor_msgs.msg import LaserScan
from spec_vlm_nav_interfaces.msg import MotionCommand, MotionStatus, Supervision
from std_msgs.msg import Empty
from std_srvs.srv import Trigger

from specnav.errors import HarnessError
from tests.graph.bases import FakeBase
from tests.graph.harness import Graph, ros_args, wait_until

pytestmark = pytest.mark.graph
SEQUENCE = itertools.count(1)
SESSION = 77
LATE = 0.1  # beyond a watchdog's own time


class Sensors:
    """What a deciding side and a laser would say, at 20 Hz, until configured otherwise."""

    def __init__(self, graph):
        self._probe = graph.probe
        self._supervision = graph.probe.open(Supervision, "supervision")
        self._scan = graph.probe.open(LaserScan, "scan", reliable=False)
        self.restore()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def restore(self):
        self.supervises, self.scans, self.ahead_m = True, True, math.inf
        self.told = {"camera_age_s": 0.05, "verifier_age_s": 0.1, "link": Supervision.LINK_UP}

    def _run(self):
        while not self._end.wait(0.05):
            if self.supervises:
                life = Supervision(session=SESSION, link_rtt_ms=12.5, **self.told)
                self._supervision.publish(self._probe.introduce(life))
            if self.scans:
                scan = LaserScan(angle_min=-1.57, angle_increment=0.0157, range_min=0.05, range_max=12.0)
                scan.ranges = [self.ahead_m] * 200
                self._scan.publish(scan)

    def close(self):
        self._end.set()
        self._thread.join(2)


class GateGraph(Graph):
    """motion_node, a base, and what the node hears besides."""

    def begin(self):
        self.base = FakeBase(self)
        for kind, topic in (
            (Twist, "cmd_vel"),
            (MotionStatus, "motion_status"),
            (DiagnosticArray, "/diagnostics"),
        ):
            self.probe.listen(kind, topic)
        arguments = ros_args(
            supervisor_timeout_s=0.5, camera_timeout_s=0.6, verifier_timeout_s=0.6, collision_source="scan"
        )
        self.node = self.start("motion_node", "spec_vlm_nav.ros.nodes.motion_node", *arguments)
        self.node.wait_for("ready")
        self.sensors = Sensors(self)
        self.probe.open(MotionCommand, "motion_command")
        return self

    def move(self, distance=0.9, angle=0.0, same=False, **more):
        """A command of the next instruction, or of the one before."""
        sequence = next(SEQUENCE)
        message = MotionCommand(
            kind=MotionCommand.MOVE, session=SESSION, instruction=1 if same else sequence, sequence=sequence,
            distance_m=distance, angle_rad=angle, **more,
        )  # fmt: skip
        message.deadline.sec = 6
        return self.probe.order("motion_command", message)

    def moving(self, **how):
        began = self.move(**how)
        wait_until(lambda: speed(self.probe.last("cmd_vel")) > 0.1, 5, "motion", lambda: self.node.text)
        return began

    def zero_after(self, since):
        """Seconds from then to the first of the zeros that nothing but zeros follow."""
        wait_until(lambda: speed(self.probe.last("cmd_vel")) == 0, 5, "zero")
        time.sleep(0.15)
        heard = self.probe.heard("cmd_vel", since)
        last = max((i for i, h in enumerate(heard) if speed(h) > 0), default=-1)
        assert last + 1 < len(heard)
        return heard[last + 1].at - since

    def statuses(self, since):
        return [h.message for h in self.probe.heard("motion_status", since)]


def speed(heard):
    return max(abs(heard.message.linear.x), abs(heard.message.angular.z)) if heard else 0.0


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with GateGraph(tmp_path_factory.mktemp("gate")) as graph:
        yield graph.begin()
        graph.sensors.close()
        graph.base.close()


@pytest.fixture
def graph(running):
    running.sensors.restore()
    time.sleep(0.15)
    return running


def silence(sensors):
    sensors.supervises = False


def told(**what):
    return lambda sensors: sensors.told.update(what)


@pytest.mark.parametrize(
    ("fault", "state", "within"),
    [
        (silence, MotionStatus.SUPERVISOR_LOST, 0.5),
        (told(camera_age_s=0.7), MotionStatus.STALE_CAMERA, 0.05),
        (told(verifier_age_s=0.7), MotionStatus.LINK_LOST, 0.05),
        (told(link=Supervision.LINK_LOST), MotionStatus.LINK_LOST, 0.05),
    ],
    ids=["supervisor silent", "camera old", "verifier old", "link lost"],
)
def test_a_fault_told_or_a_silence_means_zero_within_its_time_and_a_reason(graph, fault, state, within):
    graph.moving()
    fault(graph.sensors)
    since = time.monotonic()
    assert graph.zero_after(since) < within + LATE
    last = graph.statuses(since)[-1]
    assert last.state == state and last.reason


def test_unverified_commands_go_on_without_the_link_but_slowly_and_marked(graph):
    graph.sensors.told["link"] = Supervision.LINK_LOST
    time.sleep(0.15)
    began = graph.moving(unverified=True)
    time.sleep(0.6)
    fastest = max(h.message.linear.x for h in graph.probe.heard("cmd_vel", began))
    assert fastest == pytest.approx(0.15)
    moving = [s for s in graph.statuses(began) if s.state == MotionStatus.MOVING]
    assert moving and all(s.unverified for s in moving)
    graph.probe.say("stop", Empty())


def test_progress_is_told_ten_times_a_second_and_settling_before_the_end(graph):
    began = graph.move(distance=0.6)
    wait_until(lambda: any(s.state == MotionStatus.REACHED for s in graph.statuses(began)), 6, "the end")
    heard = [h for h in graph.probe.heard("motion_status", began) if h.message.state == MotionStatus.MOVING]
    assert 8 <= (len(heard) - 1) / (heard[-1].at - heard[0].at) <= 13
    for before, after in itertools.pairwise(heard):
        assert after.message.left_distance_m <= before.message.left_distance_m + 1e-6
        assert after.message.done_distance_m + after.message.left_distance_m == pytest.approx(0.6)
    changes = [state for state, _ in itertools.groupby(s.state for s in graph.statuses(began))]
    assert changes[-3:] == [MotionStatus.MOVING, MotionStatus.SETTLING, MotionStatus.REACHED]


@pytest.mark.parametrize("by", ["topic", "service"])
def test_a_stop_by_hand_is_zero_within_a_tick_and_latches_until_the_next_instruction(graph, by):
    graph.probe.open(Empty, "stop")
    graph.probe.call(Trigger, "motion_node/stop", Trigger.Request())  # discovery is not what is measured
    graph.moving()
    if by == "topic":
        since = graph.probe.say("stop", Empty())
    else:
        since = time.monotonic()
        answer = graph.probe.call(Trigger, "motion_node/stop", Trigger.Request())
        assert answer.success and "next instruction" in answer.message
    assert graph.zero_after(since) < 0.1
    last = graph.statuses(since)[-1]
    assert (last.state, last.reason, last.session) == (
        MotionStatus.STOPPED,
        "stopped by the operator",
        SESSION,
    )
    since = graph.move(same=True)
    time.sleep(0.3)
    assert all(speed(h) == 0 for h in graph.probe.heard("cmd_vel", since))
    graph.moving()  # of the next instruction
    graph.probe.say("stop", Empty())


def test_something_ahead_ends_forward_motion_and_leaves_turning_free(graph):
    graph.moving()
    graph.sensors.ahead_m = 0.2
    since = time.monotonic()
    assert graph.zero_after(since) < 0.05 + LATE
    last = graph.statuses(since)[-1]
    assert last.state == MotionStatus.COLLISION_AHEAD and "ahead" in last.reason
    graph.moving(distance=0.0, angle=0.6)
    graph.probe.say("stop", Empty())


def test_a_laser_that_falls_silent_ends_forward_motion(graph):
    graph.moving()
    graph.sensors.scans = False
    since = time.monotonic()
    assert graph.zero_after(since) < 0.5 + LATE
    assert "silent" in graph.statuses(since)[-1].reason


def test_a_limit_changed_while_moving_holds_at_once_and_a_wrong_one_is_refused(graph):
    graph.moving()
    try:
        graph.probe.set_parameters("motion_node", max_linear=0.12)
        since = time.monotonic() + 0.4
        time.sleep(0.7)
        assert {round(h.message.linear.x, 3) for h in graph.probe.heard("cmd_vel", since)} == {0.12}
        with pytest.raises(HarnessError, match="unverified_max_linear out of range"):
            graph.probe.set_parameters("motion_node", unverified_max_linear=-1.0)
    finally:
        graph.probe.say("stop", Empty())


def test_diagnostics_tell_of_every_sense_and_of_what_ended_motions(graph):
    graph.sensors.told["camera_age_s"] = 3.0
    since = time.monotonic() + 0.2

    def rows():
        heard = graph.probe.heard("/diagnostics", since)
        return {s.name: s for s in heard[-1].message.status} if heard else {}

    wait_until(lambda: rows() != {}, 3, "diagnostics")
    found = {name.removeprefix("motion_node: "): row for name, row in rows().items()}
    sensors = [
        "odometry",
        "response",
        "robot state",
        "presence",
        "geofence",
        "supervisor",
        "camera",
        "verifier",
        "collision",
    ]
    assert list(found) == ["gate", *sensors, "counts"]
    level = {name: row.level for name, row in found.items()}
    assert level["camera"] == b"\x02" and level["odometry"] == level["verifier"] == b"\x00"
    values = {name: {v.key: v.value for v in row.values} for name, row in found.items()}
    assert float(values["odometry"]["rate_hz"]) == pytest.approx(50, abs=15)
    assert values["verifier"]["link_rtt_ms"] == "12.5" and values["verifier"]["link"] == "UP"
