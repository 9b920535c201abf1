# SPDX-License-Identifier: Apache-2.0
"""Types and QoS of everything that our nodes hear and say."""

from __future__ import annotations

from collections import defaultdict

from specnav.doctor.robot.checks.line import CheckLine, CheckLines, fail, ok
from specnav.doctor.robot.facts import Endpoint, Facts, TopicFacts
from specnav.doctor.robot.roles import said_name

SENSORS = ("image", "odom", "ahead", "robot_state")  # a wrong type of theirs is told where they are looked at


def check_types(facts: Facts) -> CheckLines:
    """Whether every node on our topics means the same by them."""
    lines = []
    for topic in facts.topics.values():
        ends = [*topic.subscribers] if topic.role in SENSORS else [*topic.publishers, *topic.subscribers]
        wrong = sorted({(said_name(end.node), end.kind) for end in ends if end.kind not in topic.wanted})
        if not wrong:
            continue
        said = ", ".join(f"{node} ({kind})" for node, kind in wrong)
        remedy = f"{' or '.join(topic.wanted)} is wanted: nothing gets across between different types"
        if topic.role == "cmd_vel":
            remedy += " (enable_stamped_cmd_vel of motion_node)"
        lines.append(fail("types", f"{topic.name}: {said}", remedy))
    return lines or [ok("types", f"of {len(facts.topics)} topics fit")]


def check_qos(facts: Facts) -> CheckLines:
    """Whether what is published can be heard: by us of others, and by others of us."""
    lines = []
    pairs = 0
    for topic in facts.topics.values():
        for publisher in topic.publishers:
            for node, ears in _by_node(topic.subscribers).items():
                if not {node, publisher.node} & facts.our_names or ears[0].drives_nothing:
                    continue
                same = [ear for ear in ears if ear.kind == publisher.kind]
                if not same:
                    continue  # reported by check_types
                pairs += 1
                if all(_why_not(publisher, ear) for ear in same):
                    lines.append(_mismatch(topic, publisher, same[0]))
    return lines or [ok("QoS", f"of {pairs} pairs of publisher and subscriber fit")]


def _by_node(ends: tuple[Endpoint, ...]) -> dict[str, list[Endpoint]]:
    found: dict[str, list[Endpoint]] = defaultdict(list)
    for end in ends:
        found[end.node].append(end)
    return found


def _why_not(publisher: Endpoint, ear: Endpoint) -> str:
    """Why a subscription does not get what is published; "" where it does."""
    if ear.reliable and not publisher.reliable:
        return "is published best effort and wanted reliable"
    if ear.lasting and not publisher.lasting:
        return "is published volatile and wanted transient local"
    return ""


def _mismatch(topic: TopicFacts, publisher: Endpoint, ear: Endpoint) -> CheckLine:
    found = f"{topic.name} from {said_name(publisher.node)} never reaches {said_name(ear.node)}: "
    own = {"image": "image_reliability", "odom": "odom_reliability", "ahead": "collision_reliability"}
    remedy = "change the QoS of one of them"
    if topic.role in own and "best effort" in _why_not(publisher, ear):
        remedy = f"{own[topic.role]}:=best_effort of our node, or publish it reliable"
    return fail("QoS", found + f"it {_why_not(publisher, ear)}", remedy)


def check_signs(facts: Facts) -> CheckLines:
    """Who gives instructions and stops: nothing has to to, yet it is good to know."""
    said = []
    for role in ("instruction", "stop", "e_stop"):
        topic = facts.topics[role]
        who = sorted({said_name(end.node) for end in topic.publishers})
        said.append(f"{topic.name} from {', '.join(who) if who else 'no node yet'}")
    return ok("operator", "; ".join(said))
