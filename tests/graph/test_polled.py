"""Subscriptions that are asked, and what becomes of actions at a node's end; over DDS."""

import time

import pytest
from rclpy.action import ActionClient, ActionServer
from spec_vlm_nav_interfaces.action import RunMission
from std_msgs.msg import String

from spec_vlm_nav.ros.polled import PolledTopic
from spec_vlm_nav.ros.run import destroy
from tests.graph.harness import Graph, wait_until

pytestmark = pytest.mark.graph


@pytest.fixture
def node(tmp_path):
    with Graph(tmp_path) as graph:
        yield graph.probe


def test_what_came_since_is_told_once_in_order_with_its_time_and_no_more_than_is_kept(node):
    polled = PolledTopic(node.node, String, "words", depth=3)
    found = []

    def take():
        found.extend(polled.take_all())
        return len(found) >= 2

    began = time.time()
    for words in ("a", "b"):
        node.say("words", String(data=words))
    wait_until(take, 5, "both")
    assert [message.data for _, message in found] == ["a", "b"]
    assert began - 0.1 < found[0][0] <= found[1][0] < time.time() + 0.1
    assert polled.take_all() == []
    for number in range(9):
        node.say("words", String(data=str(number)))
    time.sleep(0.5)
    assert [message.data for _, message in polled.take_all()] == ["6", "7", "8"]


def test_bytes_that_are_no_message_are_dropped_and_hide_none(node):
    polled = PolledTopic(node.node, String, "words", depth=3)
    node.say("words", String(data="a"))
    wait_until(polled.take_all, 5, "the first")
    for said in (bytes(4), String(data="b"), b"\0\1\0\0\xff\xff\xff\xff"):
        node.open(String, "words", True).publish(said)
    time.sleep(0.5)
    assert [message.data for _, message in polled.take_all()] == ["b"] and polled.take() is None


def test_actions_end_with_their_node(node):
    ActionClient(node.node, RunMission, "asked")
    ActionServer(node.node, RunMission, "done", lambda goal: RunMission.Result())
    actions = [one for one in node.node.waitables if isinstance(one, (ActionClient, ActionServer))]
    assert len(actions) == 2
    node.node.executor.shutdown()
    destroy(node.node)
    assert not any(one in actions for one in node.node.waitables)
