"""A robot that is asked to navigate: scripted decisions, a fake base and a camera."""

from __future__ import annotations

import threading
import time

from geometry_msgs.msg import Twist
from sensor_msgs.msg import CompressedImage
from spec_vlm_nav_interfaces.msg import DecisionMetrics, MotionCommand, MotionStatus, Supervision

from tests.graph.action_client import Operator
from tests.graph.bases import FakeBase
from tests.graph.harness import ros_args, wait_until
from tests.graph.stack import speed


class Camera:
    """Publishes numbered frames at 10 Hz; what is in them is not a picture (the scripted decider does not look)."""

    def __init__(self, graph):
        self._publisher = graph.probe.node.create_publisher(CompressedImage, "image", 1)
        self._end = threading.Event()
        self.on = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        count = 0
        while not self._end.wait(0.1):
            count += 1
            if self.on:
                message = CompressedImage(format="jpeg", data=count.to_bytes(4, "big"))
                message.header.stamp.sec = count
                self._publisher.publish(message)

    def close(self):
        self._end.set()
        self._thread.join(2)


class Robot:
    """motion_node, vlm_nav_node with its scripted decider, base and camera."""

    def __init__(self, graph):
        self.graph, self.probe = graph, graph.probe
        self.base, self.camera = FakeBase(graph), Camera(graph)
        for kind, topic in (
            (Twist, "cmd_vel"),
            (MotionCommand, "motion_command"),
            (MotionStatus, "motion_status"),
            (DecisionMetrics, "vlm_nav_node/metrics"),
            (Supervision, "supervision"),
        ):
            self.probe.listen(kind, topic)
        self.mover = graph.start(
            "motion_node", "spec_vlm_nav.ros.nodes.motion_node", *ros_args(max_linear=0.3)
        )
        self.node = self.start_deciding()
        self.operator = Operator(graph)
        self.mover.wait_for("ready")
        self.node.wait_for("ready")
        wait_until(lambda: self.probe.node.count_subscribers("image") > 0, 10, "the camera's subscriber")
        wait_until(lambda: self.probe.heard("cmd_vel") != [], 10, "cmd_vel")
        time.sleep(0.5)

    def start_deciding(self):
        return self.graph.start("vlm_nav_node", "tests.graph.scripted_node", *ros_args(patience_s=1.0))

    @property
    def is_moving(self):
        return speed(self.probe.heard("cmd_vel")[-1]) > 0.05

    def wait_until_moving(self):
        wait_until(lambda: self.is_moving, 5, "motion", lambda: self.node.text)

    def stood_from(self, at):
        """Whether every velocity since then was zero."""
        return all(speed(h) == 0 for h in self.probe.heard("cmd_vel", at))

    def make_ready(self):
        """Active, standing, with a camera."""
        self.camera.on = True
        if self.operator.state() == "unconfigured":
            assert self.operator.set(draft_model="org/any") == "" and self.operator.transition("configure")
        if self.operator.state() == "inactive":
            assert self.operator.transition("activate")
        wait_until(lambda: not self.is_moving, 8, "standing")

    def close(self):
        self.base.close()
        self.camera.close()
