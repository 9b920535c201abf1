"""motion_node with the go2_sport back-end as a real process: requests on a real topic, and a stop on every way out."""

from __future__ import annotations

import json
import math
import signal
import sys
import threading
import time

import pytest
from nav_msgs.msg import Odometry
from spec_vlm_nav_interfaces.msg import MotionCommand, MotionStatus

from spec_vlm_nav.motion.backends.velocity import AVOID_LISTEN, AVOID_MOVE, AVOID_SWITCH, MOVE, STOP_MOVE
from tests.graph.harness import Graph, ros_args, wait_until
from tests.graph.stand_ins import stand_in

pytestmark = pytest.mark.graph
NODE, FAILING = "spec_vlm_nav.ros.nodes.motion_node", "tests.graph.failing_mover"
TOPIC, AVOIDING = "robot1/api/sport/request", "robot1/api/obstacles_avoid/request"
IN_NAMESPACE = ["-r", "__ns:=/robot1"]


class FakeGo2:
    """Obeys Move and StopMove, holds a Move for 1 s, publishes odom at 50 Hz: ideal, planar, and named so."""

    def __init__(self, graph, request):
        self.x = self.yaw = 0.0
        self.held, self.at = (0.0, 0.0), 0.0
        for topic, obey in ((TOPIC, self._on_request), (AVOIDING, self._on_avoiding)):
            graph.probe.listen(request, topic)
            graph.probe.node.create_subscription(request, topic, obey, 20)
        self._publisher = graph.probe.node.create_publisher(Odometry, "robot1/odom", 10)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _on_request(self, message):
        self.at = time.monotonic()
        move = json.loads(message.parameter) if message.header.identity.api_id == MOVE else {"x": 0, "z": 0}
        self.held = move["x"], move["z"]

    def _on_avoiding(self, message):
        if message.header.identity.api_id == AVOID_MOVE:
            move = json.loads(message.parameter)
            self.at, self.held = time.monotonic(), (move["x"], move["yaw"])

    def _run(self):
        last = time.monotonic()
        while not self._end.wait(0.02):
            now = time.monotonic()
            dt, last = now - last, now
            if now - self.at < 1.0:
                self.x += self.held[0] * dt
                self.yaw += self.held[1] * dt
            message = Odometry()
            message.pose.pose.position.x = self.x
            message.pose.pose.orientation.z = math.sin(self.yaw / 2)
            message.pose.pose.orientation.w = math.cos(self.yaw / 2)
            self._publisher.publish(message)

    def close(self):
        self._end.set()
        self._thread.join(2)


@pytest.fixture(scope="module")
def overlay():
    folder = str(stand_in("unitree_api"))
    sys.path.append(folder)
    yield folder
    sys.path.remove(folder)


@pytest.fixture
def graph(tmp_path):
    with Graph(tmp_path) as running:
        running.probe.listen(MotionStatus, "robot1/motion_status")
        yield running


@pytest.fixture
def go2(graph, overlay):
    from unitree_api.msg import Request

    fake = FakeGo2(graph, Request)
    yield fake
    fake.close()


def start(graph, overlay, module=NODE, **parameters):
    given = {"motion_backend": "go2_sport", "supervisor_timeout_s": 0.0, **parameters}
    arguments = [*ros_args(**given), *IN_NAMESPACE]
    node = graph.start("motion_node", module, *arguments, PYTHONPATH=overlay)
    node.wait_for("ready")
    wait_until(lambda: graph.probe.heard("robot1/motion_status") != [], 10, "a heartbeat")
    time.sleep(0.5)  # odometry must have been heard
    return node


def command(sequence=1, distance=0.9, text="on", kind=MotionCommand.MOVE):
    message = MotionCommand(
        kind=kind, session=1, instruction=1, sequence=sequence, distance_m=distance, text=text
    )
    message.deadline.sec = 6
    return message


def requests(graph, since=0.0, topic=TOPIC):
    """(api id, parameter) of what was sent since then."""
    return [
        (h.message.header.identity.api_id, json.loads(h.message.parameter or "null"))
        for h in graph.probe.heard(topic, since)
    ]


def is_stop(request):
    return request in ((MOVE, {"x": 0.0, "y": 0.0, "z": 0.0}), (STOP_MOVE, None))


def moving(graph):
    graph.probe.order("robot1/motion_command", command())
    wait_until(lambda: any(i == MOVE and p["x"] > 0.3 for i, p in requests(graph)[-1:]), 5, "motion")


def test_a_motion_is_moves_then_stops_and_then_silence(graph, go2, overlay):
    start(graph, overlay)
    assert requests(graph) == []  # a standing robot belongs to its remote control
    began = graph.probe.order("robot1/motion_command", command(distance=0.5))
    wait_until(
        lambda: any(
            h.message.state == MotionStatus.REACHED for h in graph.probe.heard("robot1/motion_status", began)
        ),
        8,
        "the end of the motion",
    )
    time.sleep(0.5)
    assert go2.x == pytest.approx(0.5, abs=0.04)
    heard = requests(graph)
    forward = [p["x"] for i, p in heard if not is_stop((i, p))]
    assert forward and min(forward) > 0 and max(forward) <= 0.5
    assert [i for i, _ in heard[-4:]] == [MOVE, STOP_MOVE] * 2
    quiet_from = time.monotonic()
    time.sleep(0.5)
    assert requests(graph, quiet_from) == []
    said = graph.probe.order("robot1/motion_command", command(sequence=2, kind=MotionCommand.STOP))
    wait_until(lambda: (STOP_MOVE, None) in requests(graph, said), 1, "StopMove to a robot that stands")


@pytest.mark.parametrize("end", ["SIGINT", "exception"])
def test_every_way_out_while_moving_ends_with_the_robot_told_to_stop(graph, go2, overlay, end):
    node = start(graph, overlay, FAILING if end == "exception" else NODE)
    moving(graph)
    if end == "exception":
        began = graph.probe.order("robot1/motion_command", command(sequence=2, text="boom"))
        assert node.popen.wait(10) == 1
        assert "RuntimeError: boom" in node.text
    else:
        began = time.monotonic()
        assert node.end(getattr(signal, end)) == 0
        assert "Traceback" not in node.text
    wait_until(lambda: (STOP_MOVE, None) in requests(graph, began), 2, "StopMove")
    stops = [h.at for h in graph.probe.heard(TOPIC, began) if h.message.header.identity.api_id == STOP_MOVE]
    assert stops[0] - began < 0.3
    assert is_stop(requests(graph)[-1]) and go2.held == (0, 0)


def test_with_its_own_obstacle_avoidance_moves_go_there_and_a_signal_stops_both_and_lets_go(
    graph, go2, overlay
):
    on, free = (AVOID_SWITCH, {"enable": True}), (AVOID_LISTEN, {"is_remote_commands_from_api": False})
    node = start(graph, overlay, go2_obstacles_avoid=True)
    wait_until(lambda: requests(graph, topic=AVOIDING) == [on, free], 2, "the avoidance switched on")
    began = graph.probe.order("robot1/motion_command", command())
    wait_until(lambda: go2.x > 0.1, 5, "motion")
    assert requests(graph, began) == []  # the sport service gets no velocity
    sent = requests(graph, began, AVOIDING)
    assert sent[:2] == [on, (AVOID_LISTEN, {"is_remote_commands_from_api": True})]
    assert all(i == AVOID_MOVE and p["x"] > 0 and p["mode"] == 0 for i, p in sent[2:])
    ended = time.monotonic()
    assert node.end(signal.SIGTERM) == 0
    still = {"x": 0.0, "y": 0.0, "yaw": 0.0, "mode": 0}
    wait_until(lambda: requests(graph, ended, AVOIDING)[-2:] == [(AVOID_MOVE, still), free], 2, "let go")
    wait_until(lambda: (STOP_MOVE, None) in requests(graph, ended), 2, "StopMove")
    assert all(map(is_stop, requests(graph, ended))) and go2.held == (0, 0)


def test_without_the_message_package_one_line_says_what_is_missing_and_how_to_get_it(graph):
    node = graph.start("motion_node", NODE, *ros_args(motion_backend="go2_sport"))
    assert node.popen.wait(20) == 1
    lines = [line for line in node.text.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1 and "Traceback" not in node.text
    assert "unitree_api" in lines[0] and "github.com/unitreerobotics/unitree_ros2" in lines[0]
