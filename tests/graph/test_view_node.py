"""view_node beside made-up speakers: pictures only for those who look, a marker from a motion's begin to its end."""

from __future__ import annotations

import io
import itertools
import math
import time

import pytest
from nav_msgs.msg import Odometry
from nav_msgs.msg import Path as PathMessage
from PIL import Image as Picture
from sensor_msgs.msg import CompressedImage
from spec_vlm_nav_interfaces.msg import DecisionMetrics, MotionCommand, MotionStatus, Supervision
from visualization_msgs.msg import Marker, MarkerArray

from spec_vlm_nav.camera.images import to_jpeg
from spec_vlm_nav.viewing.drawing import COLOURS
from tests.graph.harness import Graph, ros_args, wait_until

pytestmark = pytest.mark.graph

ANNOTATED, PATH, MARKER = "view_node/image_annotated/compressed", "view_node/path", "view_node/action_marker"


@pytest.fixture
def view(tmp_path):
    with Graph(tmp_path) as graph:
        process = graph.start("view_node", "spec_vlm_nav.ros.nodes.view_node", *ros_args(path_spacing_m=0.09))
        process.wait_for("view_node ready")
        yield graph, process


def show(graph, picture, number):
    message = CompressedImage(format="jpeg", data=picture)
    message.header.stamp.sec, message.header.frame_id = number, "camera"
    graph.probe.say("image", message, reliable=False)


def walk(graph, steps, x=0.0):
    """Odometry of a walk along x, facing left (+y)."""
    for i in range(steps):
        message = Odometry()
        message.header.frame_id, message.header.stamp.sec = "odom", i
        message.pose.pose.position.x = x + 0.05 * i
        message.pose.pose.orientation.z = message.pose.pose.orientation.w = math.sqrt(0.5)
        graph.probe.say("odom", message)
        time.sleep(0.01)


def status(graph, state):
    graph.probe.say("motion_status", MotionStatus(session=5, sequence=7, state=state))


def turn(graph):
    """vlm_nav_node says what it decided and motion_node begins."""
    command = MotionCommand(
        session=5, sequence=7, kind=MotionCommand.MOVE, angle_rad=0.7, text="turn left 40"
    )
    command.deadline.sec = 30
    graph.probe.say("motion_command", command)
    metrics = DecisionMetrics(session=5, sequence=7, instruction_text="find the lamp", reasoning="I see it.")
    graph.probe.say("vlm_nav_node/metrics", metrics)
    graph.probe.say("supervision", Supervision(session=5, link=Supervision.LINK_UP, link_rtt_ms=40.0))
    status(graph, MotionStatus.MOVING)


def latest(graph, topic, fits, what):
    wait_until(lambda: any(fits(h.message) for h in graph.probe.heard(topic)[-3:]), 10, what)
    return next(h.message for h in reversed(graph.probe.heard(topic)) if fits(h.message))


def green(message):
    picture = Picture.open(io.BytesIO(bytes(message.data))).convert("RGB").crop((0, 0, 320, 400))
    red, bright, blue = COLOURS["model"]
    pixels = (picture.getpixel((x, y)) for x in range(0, 320, 4) for y in range(0, 400, 4))
    return sum(abs(r - red) + abs(g - bright) + abs(b - blue) < 60 for r, g, b in pixels)


def test_picture_path_and_marker_follow_what_is_said(view):
    graph, process = view
    grey = to_jpeg(Picture.new("RGB", (224, 140), (90, 90, 90)))
    graph.probe.listen(MarkerArray, MARKER)
    graph.probe.listen(PathMessage, PATH)
    show(graph, grey, 1)  # nobody looks yet
    walk(graph, 21)
    path = latest(graph, PATH, lambda m: len(m.poses) >= 10, "the path")
    assert path.header.frame_id == "odom" and path.poses[1].header.stamp.sec == 2
    xs = [pose.pose.position.x for pose in path.poses]
    assert xs == sorted(xs) and min(b - a for a, b in itertools.pairwise(xs)) >= 0.09

    turn(graph)
    markers = latest(graph, MARKER, lambda m: m.markers[0].action == Marker.ADD, "the marker").markers
    assert {m.header.frame_id for m in markers} == {"odom"} and markers[2].text == "turn left 40 (model)"
    # Facing +y at x = 1, a turn to the left ends on the robot's left: towards -x.
    assert markers[0].points[-1].x < markers[0].points[0].x - 0.1
    assert markers[0].lifetime.sec == 30

    graph.probe.listen(CompressedImage, ANNOTATED)
    wait_until(lambda: graph.probe.node.count_publishers(ANNOTATED) > 0, 10, "the annotated picture's topic")
    time.sleep(0.5)
    status(graph, MotionStatus.MOVING)
    show(graph, grey, 2)
    shown = latest(graph, ANNOTATED, lambda m: True, "an annotated picture")
    assert shown.header.stamp.sec == 2 and shown.header.frame_id == "camera" and shown.format == "jpeg"
    assert [h.message.header.stamp.sec for h in graph.probe.heard(ANNOTATED)] == [2]
    assert green(shown) > 30

    status(graph, MotionStatus.REACHED)
    latest(graph, MARKER, lambda m: all(x.action == Marker.DELETE for x in m.markers), "the deletion")
    time.sleep(0.15)
    show(graph, b"\xff\xd8 no picture", 3)
    time.sleep(0.15)
    show(graph, grey, 4)
    over = latest(graph, ANNOTATED, lambda m: m.header.stamp.sec == 4, "a picture after a broken one")
    assert green(over) == 0
    assert process.text.count("not drawn: camera frame is neither JPEG nor PNG") == 1
    assert process.end() == 0 and "Traceback" not in process.text


def test_a_silent_motion_node_takes_the_marker_away(view):
    graph, _ = view
    graph.probe.listen(MarkerArray, MARKER)
    walk(graph, 3)
    turn(graph)
    latest(graph, MARKER, lambda m: m.markers[0].action == Marker.ADD, "the marker")
    latest(graph, MARKER, lambda m: m.markers[0].action == Marker.DELETE, "the deletion")
