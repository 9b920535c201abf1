"""A Go2 that tells its own state: odometry and readiness from it, its cloud as look-ahead, and no tick late for it."""

from __future__ import annotations

import array
import itertools
import math
import sys
import threading
import time

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import Twist
from nav_msgs.msg import Odometry
from sensor_msgs.msg import PointCloud2
from spec_vlm_nav_interfaces.msg import MotionCommand, MotionStatus, RobotState

from spec_vlm_nav.motion.ahead.collision import Clearance
from spec_vlm_nav.motion.ahead.corridor import CorridorConfig
from spec_vlm_nav.ros import collision_sensor
from tests.graph.harness import Graph, ros_args, wait_until
from tests.graph.sensor_sender import cloud
from tests.graph.stand_ins import stand_in

pytestmark = pytest.mark.graph
STATE_NODE, MOTION_NODE = "spec_vlm_nav.ros.nodes.go2_state_node", "spec_vlm_nav.ros.nodes.motion_node"
BODY = {
    "collision_source": "cloud",
    "collision_reliability": "reliable",
    "collision_cloud_z_m": 0.32,
    "collision_cloud_front_m": 0.38,
    "collision_cloud_rear_m": 0.38,
    "collision_cloud_side_m": 0.25,
}
SEQUENCE = itertools.count(1)


@pytest.fixture(scope="module")
def overlay():
    folder = str(stand_in("unitree_go"))
    sys.path.append(folder)
    yield folder
    sys.path.remove(folder)


class FakeGo2:
    """Obeys cmd_vel at once, and tells its state and what its laser sees; planar, ideal, and named so."""

    def __init__(self, graph):
        from unitree_go.msg import LowState, SportModeState

        self.x = self.y = self.yaw = self.roll = 0.0
        self.mode, self.soc, self.wall_m = 1, 80, 3.0
        self.tells = self.sees = True
        self._twist, self._at = Twist(), 0.0
        graph.probe.node.create_subscription(Twist, "cmd_vel", self._on_twist, 10)
        self._low, self._sport = LowState, SportModeState
        self._sport_topic = graph.probe.open(SportModeState, "sportmodestate", reliable=False)
        self._low_topic = graph.probe.open(LowState, "lowstate", reliable=False)
        self._cloud_topic = graph.probe.open(PointCloud2, "cloud")
        self._clouds = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _on_twist(self, message):
        self._twist, self._at = message, time.monotonic()

    def _run(self):
        last = time.monotonic()
        for count in itertools.count():
            if self._end.wait(0.02):
                return
            now = time.monotonic()
            dt, last = now - last, now
            if now - self._at < 1.0:
                self.yaw += self._twist.angular.z * dt
                self.x += self._twist.linear.x * dt * math.cos(self.yaw)
                self.y += self._twist.linear.x * dt * math.sin(self.yaw)
            if self.tells:
                self._tell()
            if self.sees and count % 3 == 0:
                self._cloud_topic.publish(self._seen())

    def _tell(self):
        state = self._sport(mode=self.mode, body_height=0.31)
        state.stamp.sec = 5
        state.position = [self.x, self.y, 0.31]
        turned = [math.cos(self.yaw / 2), 0.0, 0.0, math.sin(self.yaw / 2)]  # w first
        state.imu_state.quaternion, state.imu_state.rpy = turned, [self.roll, 0.0, self.yaw]
        self._sport_topic.publish(state)
        low = self._low()
        low.bms_state.soc = self.soc
        self._low_topic.publish(low)

    def _seen(self):
        ahead = round(self.wall_m, 2)
        if ahead not in self._clouds:
            self._clouds[ahead] = cloud(ahead, points=6000)
        return self._clouds[ahead]

    def close(self):
        self._end.set()
        self._thread.join(2)


class Go2Graph(Graph):
    """go2_state_node, motion_node, and a fake Go2."""

    def begin(self, overlay):
        self.overlay = overlay
        for kind, topic in (
            (MotionStatus, "motion_status"),
            (RobotState, "robot_state"),
            (Odometry, "odom"),
            (DiagnosticArray, "/diagnostics"),
        ):
            self.probe.listen(kind, topic)
        self.watcher = self.watch()
        watchdogs = {"supervisor_timeout_s": 0.0, "robot_state_timeout_s": 0.5}
        self.mover = self.start("motion_node", MOTION_NODE, *ros_args(**BODY, **watchdogs))
        self.watcher.wait_for("ready")
        self.mover.wait_for("ready")
        self.go2 = FakeGo2(self)
        self.probe.open(MotionCommand, "motion_command")
        return self

    def watch(self, **parameters):
        return self.start("go2_state_node", STATE_NODE, *ros_args(**parameters), PYTHONPATH=self.overlay)

    def move(self, distance=0.0, angle=0.0):
        number = next(SEQUENCE)
        message = MotionCommand(kind=MotionCommand.MOVE, session=1, instruction=number, sequence=number)
        message.distance_m, message.angle_rad, message.deadline.sec = distance, angle, 6
        return self.probe.order("motion_command", message)

    def said(self, state, since, within=2.0):
        """The report of a state; returns it with when it was heard."""

        def found():
            heard = self.probe.heard("motion_status", since)
            return next((h for h in heard if h.message.state == state), None)

        wait_until(lambda: found() is not None, within, f"state {state}", lambda: self.mover.text)
        return found()

    def ready(self):
        """Wait until robot_state says so and has said it for a moment, with a sound odometry and a clear view."""
        since = time.monotonic()
        wait_until(lambda: self.state(since).ready, 5, "ready", lambda: self.watcher.text)
        time.sleep(0.4)

    def state(self, since=0.0):
        heard = self.probe.heard("robot_state", since)
        return heard[-1].message if heard else RobotState()


@pytest.fixture(scope="module")
def running(tmp_path_factory, overlay):
    with Go2Graph(tmp_path_factory.mktemp("go2")) as graph:
        graph.begin(overlay)
        yield graph
        graph.go2.close()


@pytest.fixture
def graph(running):
    go2 = running.go2
    go2.mode, go2.soc, go2.wall_m, go2.roll, go2.tells, go2.sees = 1, 80, 3.0, 0.0, True, True
    running.ready()
    return running


def test_it_is_said_to_be_ready_and_where_it_is_by_its_own_state(graph):
    graph.go2.yaw = 1.0
    since = time.monotonic() + 0.2
    time.sleep(1.2)
    states = graph.probe.heard("robot_state", since)
    assert len(states) >= 5 and all(h.message.ready for h in states)
    assert states[-1].message.mode == "stands balanced (mode 1)" and states[-1].message.reason == ""
    assert states[-1].message.battery == pytest.approx(0.8)
    odometry = graph.probe.heard("odom", since)
    assert 30 <= len(odometry) <= 60
    last = odometry[-1].message
    assert (last.header.frame_id, last.child_frame_id) == ("odom", "base_link")
    turned = last.pose.pose.orientation
    assert 2 * math.atan2(turned.z, turned.w) == pytest.approx(1.0, abs=1e-3)
    assert abs(last.header.stamp.sec - time.time()) < 5  # ours: the robot's clock says 5


def test_a_motion_is_driven_by_that_odometry_and_ends_when_the_robot_lies_down(graph):
    said = graph.move(distance=0.3)
    assert graph.said(MotionStatus.REACHED, said, 6).message.done_distance_m == pytest.approx(0.3, abs=0.04)
    said = graph.move(distance=0.9)
    graph.said(MotionStatus.MOVING, said)
    time.sleep(0.4)
    graph.go2.mode, lay_down = 5, time.monotonic()
    ended = graph.said(MotionStatus.NOT_READY, said)
    assert ended.at - lay_down < 0.3
    assert ended.message.reason.startswith("the Go2 lies down (mode 5): stand it up")
    told = graph.probe.heard("robot_state", lay_down)
    assert next(h for h in told if not h.message.ready).at - lay_down < 0.2  # at once, not at the next beat
    said = graph.move(angle=0.5)
    assert "lies down" in graph.said(MotionStatus.NOT_READY, said).message.reason
    graph.go2.mode = 1
    graph.ready()
    graph.said(MotionStatus.REACHED, graph.move(angle=0.3), 6)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"soc": 9}, "the battery of the Go2 is at 9 %"),
        ({"roll": 1.6}, "the Go2 has fallen or hangs: roll 92"),
        ({"tells": False}, "the Go2 has not reported its state for"),
    ],
)
def test_an_empty_a_fallen_and_a_silent_robot_are_refused_with_the_reason(graph, change, reason):
    vars(graph.go2).update(change)
    since = time.monotonic()
    wait_until(lambda: graph.state(since).reason.startswith(reason), 2, reason, lambda: graph.watcher.text)
    assert not graph.state(since).ready
    time.sleep(0.1)  # motion_node may hear it after the probe, and odometry that is as old says why, too
    refused = graph.said(MotionStatus.NOT_READY, graph.move(angle=0.5)).message
    assert refused.reason.startswith(reason)


def test_its_cloud_ends_a_motion_before_a_thing_and_a_broken_or_silent_one_before_anything(graph):
    said = graph.move(distance=0.9)
    graph.said(MotionStatus.MOVING, said)
    graph.go2.wall_m, at = 0.6, time.monotonic()
    ended = graph.said(MotionStatus.COLLISION_AHEAD, said)
    assert "an obstacle is 0.22 m ahead" in ended.message.reason and ended.at - at < 0.3
    graph.go2.sees = False
    broken = cloud(3.0, points=6000)
    broken.data = array.array("B", bytes(broken.data)[:-1])
    graph.probe.say("cloud", broken)
    time.sleep(0.1)
    refused = graph.said(MotionStatus.STALE_SENSOR, graph.move(angle=0.5)).message
    assert refused.reason == "cloud is cut short"
    time.sleep(0.6)
    refused = graph.said(MotionStatus.STALE_SENSOR, graph.move(angle=0.5)).message
    assert "silent for" in refused.reason


def test_with_odometry_from_elsewhere_it_only_guards(graph):
    assert graph.watcher.end() == 0 and "Traceback" not in graph.watcher.text
    graph.watcher = graph.watch(odometry="none", state_timeout_s=0.3)
    graph.watcher.wait_for("ready: the Go2 stands balanced (mode 1)")
    assert graph.probe.node.count_publishers("odom") == 0


def test_without_unitrees_package_one_line_names_it(tmp_path):
    with Graph(tmp_path) as graph:
        process = graph.start("go2_state_node", STATE_NODE)
        assert process.popen.wait(20) == 1
        lines = [line for line in process.text.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1 and "Traceback" not in process.text
        assert "unitree_go" in lines[0] and "github.com/unitreerobotics/unitree_ros2" in lines[0]


def test_sixty_thousand_points_fifteen_times_a_second_delay_no_tick(tmp_path):
    with Graph(tmp_path) as graph:
        graph.probe.listen(Twist, "cmd_vel")
        graph.probe.listen(DiagnosticArray, "/diagnostics")
        # Without odometry it says zero all the time: every tick is heard.
        mover = graph.start("motion_node", MOTION_NODE, *ros_args(rate_hz=60.0, **BODY))
        sender = graph.start("sensor_sender", "tests.graph.sensor_sender", "cloud", "15")
        mover.wait_for("ready")
        sender.wait_for("sending")

        def clear():
            rows = [
                s
                for h in graph.probe.heard("/diagnostics")
                for s in h.message.status
                if "collision" in s.name
            ]
            return [{v.key: v.value for v in s.values}["nearest_m"] for s in rows if s.message == "clear"]

        wait_until(lambda: clear() and graph.probe.heard("cmd_vel"), 10, "a clear way", lambda: mover.text)
        assert clear() == ["1.62"]

        def gaps_ms(seconds=2.0):
            since = time.monotonic()
            time.sleep(seconds)
            return np.diff([h.at for h in graph.probe.heard("cmd_vel", since)]) * 1000

        loaded = gaps_ms()
        sender.end()
        alone = gaps_ms()
        figures = [f"p50 {np.median(g):.1f} p95 {np.percentile(g, 95):.1f} ms" for g in (alone, loaded)]
        assert np.median(loaded) < np.median(alone) + 5, figures
        # Two cores are few for all who talk here.
        assert np.percentile(loaded, 95) < np.percentile(alone, 95) + 15, figures
        assert mover.end() == 0 and "Traceback" not in mover.text


def test_a_reader_that_takes_long_holds_up_nobody_and_its_view_is_as_old_as_the_message(
    tmp_path, monkeypatch
):
    def slow(source, data, config):
        time.sleep(0.3)
        return Clearance(nearest_m=len(data))

    monkeypatch.setattr(collision_sensor, "clearance_of_bytes", slow)
    with Graph(tmp_path) as graph:
        views, ticks = [], []
        watching = collision_sensor.CollisionSensor(
            graph.probe.node,
            "cloud",
            "reliable",
            CorridorConfig(),
            lambda view, at: views.append((view, time.monotonic() - at)),
        )
        graph.probe.node.create_timer(0.02, lambda: ticks.append(time.monotonic()))
        message = cloud(points=100)
        since = time.monotonic()
        for _ in range(30):
            graph.probe.say("cloud", message)
            time.sleep(0.04)
        wait_until(lambda: len(views) >= 3, 5, "views")
        late = np.diff([at for at in ticks if at > since])
        assert len(late) > 40 and late.max() < 0.2, late.max()
        assert all(view.nearest_m > 3200 and 0.3 <= age < 0.8 for view, age in views), views
        assert len(views) < 8  # of thirty: only the newest was read
        watching.close()
