"""A first decision waits until vlm_nav_node and motion_node have found each other, so that no command is lost."""

from __future__ import annotations

from contextlib import closing

import pytest
from spec_vlm_nav_interfaces.msg import MotionCommand, MotionStatus

from spec_vlm_nav.common.codes import MotionState
from tests.graph.action_client import Operator
from tests.graph.bases import FakeBase
from tests.graph.harness import Graph, ros_args, wait_until
from tests.graph.navigating import Camera

pytestmark = pytest.mark.graph
SILENT = "motion_node does not report on the motion"


def test_no_command_is_lost_while_the_nodes_are_still_starting(tmp_path):
    with Graph(tmp_path) as graph, closing(FakeBase(graph)), closing(Camera(graph)):
        probe = graph.probe
        probe.listen(MotionCommand, "motion_command")
        probe.listen(MotionStatus, "motion_status")
        node = graph.start("vlm_nav_node", "tests.graph.scripted_node", *ros_args())
        operator = Operator(graph)
        node.wait_for("ready")
        # A listener that is not motion_node, such as a recorder, is not a sign that somebody obeys.
        wait_until(lambda: probe.node.count_publishers("motion_command") > 0, 10, "the commands' publisher")
        goal = operator.send("drive on")
        graph.start("motion_node", "spec_vlm_nav.ros.nodes.motion_node", *ros_args(max_linear=0.3))
        wait_until(lambda: has_moved(probe), 20, "the end of a motion", lambda: node.text)
        assert SILENT not in node.text, "every command was answered, if only by: no odometry yet"
        goal.cancel()


def test_without_a_motion_node_the_operator_is_told(tmp_path):
    with Graph(tmp_path) as graph, closing(Camera(graph)):
        node = graph.start("vlm_nav_node", "tests.graph.scripted_node", *ros_args())
        operator = Operator(graph)
        node.wait_for("ready")
        goal = operator.send("drive on")
        wait_until(lambda: SILENT in node.text, 20, "the node's word", lambda: node.text)
        goal.cancel()


def has_moved(probe):
    """Whether a motion has come to its end."""
    return any(
        h.message.state == MotionState.REACHED.value and h.message.sequence
        for h in probe.heard("motion_status")
    )
