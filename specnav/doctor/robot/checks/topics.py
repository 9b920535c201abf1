# SPDX-License-Identifier: Apache-2.0
"""Checks of types and QoS of all topics that our nodes use."""

from __future__ import annotations

from collections import defaultdict

from specnav.doctor.robot.checks.line import CheckLine, CheckLines, fail, ok
from specnav.doctor.robot.facts import Endpoint, Facts, TopicFacts
from specnav.doctor.robot.roles import said_name

SENSORS = ("image", "odom", "ahead", "robot_state")  # their wrong types are reported by the sensor checks


def check_types(facts: Facts) -> CheckLines:
    """Whether all nodes use the same types on our topics."""
    lines = []
    for topic in facts.topics.values():
        ends = [*topic.subscribers] if topic.role in SENSORS else [*topic.publishers, *topic.subscribers]
        wrong = sorted({(said_name(end.node), end.kind) for end in ends if end.kind not in topic.wanted})
        if not wrong:
            continue
        said = ", ".join(f"{node} ({kind})" for node, kind in wrong)
        remedy = f"expected {' or '.join(topic.wanted)}: different types do not connect"
        if topic.role == "cmd_vel":
            remedy += " (enable_stamped_cmd_vel of motion_node)"
        lines.append(fail("types", f"{topic.name}: {said}", remedy))
    return lines or [ok("types", f"of all {len(facts.topics)} topics match")]


def check_qos(facts: Facts) -> CheckLines:
    """Whether the QoS of publishers and subscribers match, where one of them is ours."""
    lines = []
    pairs = 0
    for topic in facts.topics.values():
        for publisher in topic.publishers:
            for node, subscribers in _by_node(topic.subscribers).items():
                if not {node, publisher.node} & facts.our_names or subscribers[0].drives_nothing:
                    continue
                same = [subscriber for subscriber in subscribers if subscriber.kind == publisher.kind]
                if not same:
                    continue  # reported by check_types
                pairs += 1
                if all(_why_not(publisher, subscriber) for subscriber in same):
                    lines.append(_mismatch(topic, publisher, same[0]))
    return lines or [ok("QoS", f"of all {pairs} pairs of publisher and subscriber match")]


def _by_node(ends: tuple[Endpoint, ...]) -> dict[str, list[Endpoint]]:
    found: dict[str, list[Endpoint]] = defaultdict(list)
    for end in ends:
        found[end.node].append(end)
    return found


def _why_not(publisher: Endpoint, subscriber: Endpoint) -> str:
    """Why a subscription does not receive what is published; "" if it does."""
    if subscriber.reliable and not publisher.reliable:
        return "is published best effort, but requested reliable"
    if subscriber.lasting and not publisher.lasting:
        return "is published volatile, but requested transient local"
    return ""


def _mismatch(topic: TopicFacts, publisher: Endpoint, subscriber: Endpoint) -> CheckLine:
    found = f"{topic.name} from {said_name(publisher.node)} never reaches {said_name(subscriber.node)}: "
    own = {"image": "image_reliability", "odom": "odom_reliability", "ahead": "collision_reliability"}
    remedy = "change the QoS of one of them"
    if topic.role in own and "best effort" in _why_not(publisher, subscriber):
        remedy = f"{own[topic.role]}:=best_effort for our node, or publish it reliable"
    return fail("QoS", found + f"it {_why_not(publisher, subscriber)}", remedy)


def check_signs(facts: Facts) -> CheckLines:
    """Which nodes send instructions and stops. None is required, but it is good to know."""
    said = []
    for role in ("instruction", "stop", "e_stop"):
        topic = facts.topics[role]
        who = sorted({said_name(end.node) for end in topic.publishers})
        said.append(f"{topic.name} from {', '.join(who) if who else 'no node yet'}")
    return ok("operator", "; ".join(said))
