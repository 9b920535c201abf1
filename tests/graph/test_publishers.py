"""What vlm_nav_node says, and what it does not work out while no subscriber listens."""

from __future__ import annotations

import json
from types import SimpleNamespace

from spec_vlm_nav.ros.basics import TextThrottle
from spec_vlm_nav.ros.deciding.publishers import Publishers


class Topic:
    def __init__(self):
        self.said, self.listeners = [], 0

    def publish(self, message):
        self.said.append(message.data)

    def get_subscription_count(self):
        return self.listeners


class Node:
    def __init__(self):
        self.topics = {}

    def create_publisher(self, kind, name, qos):
        return self.topics.setdefault(name, Topic())


def test_foreign_words_make_no_line_of_the_log_of_their_own():
    said, node = [], Node()
    node.get_logger = lambda: SimpleNamespace(error=said.append)
    Publishers(node).log("error", "e-stop: a\n[ERROR] \x1b[31mb")
    TextThrottle(said.append)("format 'a\n[ERROR] b'")
    assert said == ["e-stop: a [ERROR] ?[31mb", "format 'a [ERROR] b'"]


def test_tokens_are_asked_for_only_where_somebody_listens_and_only_when_there_is_more():
    node, asked = Node(), []
    publishers, topic = Publishers(node), node.topics["~/tokens"]

    def tokens():
        asked.append(1)
        return (("I", 1), (" see", 0))

    publishers.growing("I", tokens)
    assert not asked and not node.topics["~/text"].said
    topic.listeners = 1
    publishers.growing("I see", tokens)
    publishers.growing("I see", tokens)
    publishers.growing("", tokens)
    assert len(asked) == 1 and json.loads(topic.said[0]) == [["I", 1], [" see", 0]]
    assert not node.topics["~/text"].said, "each topic has its own listeners"
