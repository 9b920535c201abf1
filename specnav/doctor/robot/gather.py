# SPDX-License-Identifier: Apache-2.0
"""Gathers facts about a live graph: discovers it, asks our nodes for their parameters, and listens. Needs rclpy.

Nothing is published except what rclpy's node itself announces about its parameters, and only reading services are
called.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from rcl_interfaces.srv import GetParameters, ListParameters
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import parameter_value_to_python
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rosgraph_msgs.msg import Clock

from spec_vlm_nav.blackbox.folder import default_folder
from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.parameters import Value
from spec_vlm_nav.parameters.nodes import tables
from specnav.doctor.robot.checks.moving import UNDER_WAY
from specnav.doctor.robot.config import RobotDoctorConfig
from specnav.doctor.robot.facts import (
    Diagnostic,
    Disk,
    Endpoint,
    Facts,
    Middleware,
    MotionFacts,
    OurNode,
    TopicFacts,
    VerifierFacts,
)
from specnav.doctor.robot.listeners import TopicListener
from specnav.doctor.robot.reaching import reach
from specnav.doctor.robot.roles import (
    BLACKBOX,
    DECIDER,
    DIAGNOSTICS,
    MOVER,
    OURS,
    OWN_NAME,
    REQUEST,
    STATUS,
    SUPERVISION,
    TopicRole,
    roles,
    sport_role,
    topic_of,
)
from specnav.ros_node import checked_namespace, own_node

# Discovery ends when both required nodes are visible and nothing new appeared for STEADY_S, or after
# DISCOVER_S: a node
# that misses the first announcements hears the next ones 3 s later.
STEADY_S, DISCOVER_S = 0.8, 4.0
ANSWER_S, SPIN_S, LOOK_S = 2.0, 0.02, 0.2
RELIABLE_KINDS = (STATUS, SUPERVISION, DIAGNOSTICS)  # small, and received with the QoS of our own nodes
HEARTBEAT_S = 0.75  # motion_node reports at least twice a second
SEND_GOAL = "/_action/send_goal"


class Gatherer:
    """Gathers the facts of one graph once."""

    def __init__(self, config: RobotDoctorConfig, node: Node, executor: SingleThreadedExecutor) -> None:
        self._config, self._node, self._executor = config, node, executor
        self._listeners: dict[str, TopicListener] = {}
        self._sim_s: float | None = None
        self._motion: MotionFacts | None = None
        self._estopped_at = -HEARTBEAT_S
        self._rows: dict[str, Diagnostic] = {}
        self._verifier: VerifierFacts | None = None

    def gather(self) -> Facts:
        """Discover, listen and return the facts; takes config.seconds and 1 to 8 s more, or twice that."""
        self._discover()
        facts = self._look()
        # Repeat if a node appeared while listening, because it was not asked for its parameters.
        return self._look() if set(self._find_nodes()) - set(facts.nodes) else facts

    def _look(self) -> Facts:
        nodes = self._ask(self._find_nodes())
        values = {name: node.values or {} for name, node in nodes.items()}
        named = self._name_topics(roles(values), nodes)
        uses_clock = any(node.value("use_sim_time", False) for node in nodes.values())
        self._listen(named, uses_clock)
        waiting = self._reach_verifier(nodes)
        began = time.monotonic()
        self._spin(self._config.seconds)
        ended = time.monotonic()
        waiting()
        again = self._find_nodes()
        topics = {
            role.name: self._topic(role, name, began, ended, self._find_others(role, name))
            for role, name in named.items()
        }
        everybody = self._everybody()
        ours = {node.name for node in nodes.values()}
        return Facts(
            middleware=Middleware(
                rclpy.get_rmw_implementation_identifier(),
                self._node.context.get_domain_id(),
                os.environ.get("ROS_DISTRO", ""),
                os.environ.get("ROS_AUTOMATIC_DISCOVERY_RANGE", ""),
            ),
            namespace=self._node.get_namespace(),
            seconds=self._config.seconds,
            # Nodes that have gone do not count.
            nodes={
                name: replace(node, count=again[name].count) for name, node in nodes.items() if name in again
            },
            elsewhere=tuple(
                sorted(n for n in everybody if n.rpartition("/")[2] in (MOVER, DECIDER) and n not in ours)
            ),
            other_nodes=tuple(sorted(set(everybody) - ours)),
            topics=topics,
            clocks=tuple(sorted({end.node for end in self._ends("/clock")[0]})),
            motion=self._motion,
            diagnostics=tuple(self._rows.values()),
            actions=self._actions(),
            verifier=self._verifier,
            disk=Disk.at(
                str(nodes[BLACKBOX].value("folder", "") if BLACKBOX in nodes else "")
                or str(default_folder()),
                float(nodes[BLACKBOX].value("disk_mb", 0)) if BLACKBOX in nodes else 0.0,
            ),
            has_interfaces=_has_interfaces(),
        )

    def _spin(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            self._executor.spin_once(timeout_sec=SPIN_S)

    def _discover(self) -> None:
        """Wait until everything that can be expected is visible."""
        seen: object = None
        began = since = time.monotonic()
        while (now := time.monotonic()) < began + DISCOVER_S:
            if now > since + STEADY_S and {MOVER, DECIDER} <= set(self._find_nodes()):
                return
            self._spin(LOOK_S)
            look = (self._everybody(), self._node.get_topic_names_and_types())
            if look != seen:
                seen, since = look, time.monotonic()

    # -- nodes and their parameters

    def _everybody(self) -> Counter[str]:
        """Full names of all other nodes, and the number of nodes with each name."""
        pairs = self._node.get_node_names_and_namespaces()
        names = [f"{space.rstrip('/')}/{name}" for name, space in pairs if not name.startswith("_")]
        return Counter(name for name in names if name.rpartition("/")[2] != OWN_NAME)

    def _find_nodes(self) -> dict[str, OurNode]:
        everybody, place = self._everybody(), self._node.get_namespace().rstrip("/")
        return {
            name: OurNode(f"{place}/{name}", everybody[f"{place}/{name}"])
            for name in OURS
            if f"{place}/{name}" in everybody
        }

    def _ask(self, nodes: dict[str, OurNode]) -> dict[str, OurNode]:
        """Add the nodes' parameters."""
        known = tables()
        every = {name: ListParameters.Request() for name in nodes}
        listed = self._call(ListParameters, "list_parameters", nodes, every)
        # A node that lacks one of the names, as one of another release may, would tell no value at all.
        names = {
            name: [one for one in (*(p.name for p in known[name]), "use_sim_time") if one in answer.result.names]
            for name, answer in listed.items()
        }
        wanted = {name: GetParameters.Request(names=names[name]) for name in names}
        answers = self._call(GetParameters, "get_parameters", nodes, wanted)
        found = {}
        for name, node in nodes.items():
            given: dict[str, Value] | None = None
            if name in answers:
                pairs = zip(names[name], answers[name].values, strict=False)
                given = {key: cast(Value, parameter_value_to_python(value)) for key, value in pairs}
            found[name] = OurNode(node.name, node.count, given)
        return found

    def _call(
        self, kind: Any, service: str, nodes: dict[str, OurNode], requests: dict[str, Any]
    ) -> dict[str, Any]:
        """The answers of the nodes that answer."""
        clients: dict[str, Any] = {
            name: self._node.create_client(kind, f"{nodes[name].name}/{service}") for name in requests
        }
        self._spin(ANSWER_S, lambda: all(client.service_is_ready() for client in clients.values()))
        calls = {
            name: client.call_async(requests[name])
            for name, client in clients.items()
            if client.service_is_ready()
        }
        self._spin(ANSWER_S, lambda: all(call.done() for call in calls.values()))
        answers = {name: call.result() for name, call in calls.items() if call.done()}
        return {name: answer for name, answer in answers.items() if answer is not None}

    # -- topics

    def _name_topics(self, wanted: tuple[TopicRole, ...], nodes: dict[str, OurNode]) -> dict[TopicRole, str]:
        place = self._node.get_namespace()
        given = {"image": self._config.image, "odom": self._config.odom, "cmd_vel": self._config.cmd_vel}
        heard = {
            name: _ends_of(self._node.get_subscriber_names_and_types_by_node, name, place) for name in nodes
        }
        said = {
            name: _ends_of(self._node.get_publisher_names_and_types_by_node, name, place) for name in nodes
        }
        named = {}
        for role in wanted:
            if role.name == "cmd_vel" and not given["cmd_vel"] and (sport := sport_role(said.get(MOVER, {}))):
                named[sport] = sport.topic
                continue
            ends = (said if role.published_by_owner else heard).get(role.owner, {})
            named[role] = topic_of(role, given.get(role.name, ""), ends, self._node.resolve_topic_name)
        return named

    def _listen(self, named: dict[TopicRole, str], uses_clock: bool) -> None:
        if uses_clock:
            self._subscribe(Clock, "/clock", self._on_clock, reliable=False)
        for role, name in named.items():
            if not role.is_heard:
                continue
            publishers = self._ends(name)[0]
            # Subscribe with the published type if it fits: different types do not connect.
            kinds = [end.kind for end in publishers if end.kind in role.wanted] or list(role.wanted)
            kind = _message_class(kinds[0])
            if kind is None or kinds[0] == REQUEST:
                continue
            listener = self._listeners[role.name] = TopicListener(
                lambda: time.time() if self._sim_s is None else self._sim_s
            )
            extra = {STATUS: self._on_status, DIAGNOSTICS: self._on_diagnostics}.get(kinds[0])
            reliable = kinds[0] in RELIABLE_KINDS and all(end.reliable for end in publishers)
            self._subscribe(kind, name, _both(listener.hear, extra), reliable)

    def _subscribe(self, kind: type, name: str, act: Callable[[Any], None], reliable: bool) -> None:
        qos = QoSProfile(
            depth=50, reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT
        )
        self._node.create_subscription(kind, name, act, qos)

    def _on_clock(self, message: Clock) -> None:
        self._sim_s = message.clock.sec + message.clock.nanosec * 1e-9

    def _on_status(self, message: Any) -> None:
        try:
            state = MotionState(message.state).name
        except ValueError:
            state = f"state {message.state}"
        if message.estopped:
            self._estopped_at = time.monotonic()
        moved = state in UNDER_WAY or (self._motion is not None and self._motion.moved)
        # With two nodes of this name, the last message may come from the other one.
        estopped = time.monotonic() - self._estopped_at < HEARTBEAT_S
        self._motion = MotionFacts(state, message.reason, estopped, message.held_by, moved)

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for row in message.status:
            level = row.level[0] if isinstance(row.level, bytes) else int(row.level)
            self._rows[row.name] = Diagnostic(row.name, level, row.message)

    def _ends(self, name: str) -> tuple[tuple[Endpoint, ...], tuple[Endpoint, ...]]:
        return (
            _endpoints(self._node.get_publishers_info_by_topic(name)),
            _endpoints(self._node.get_subscriptions_info_by_topic(name)),
        )

    def _topic(
        self, role: TopicRole, name: str, began: float, ended: float, others: tuple[str, ...]
    ) -> TopicFacts:
        publishers, subscribers = self._ends(name)
        heard = self._listeners[role.name].heard(began, ended) if role.name in self._listeners else None
        return TopicFacts(role.name, name, role.wanted, publishers, subscribers, heard, others)

    def _find_others(self, role: TopicRole, name: str) -> tuple[str, ...]:
        """Other topics that could be meant: of a fitting type, with a publisher (for velocities, a subscriber)."""
        if not role.is_heard:
            return ()
        count = self._node.count_subscribers if role.name == "cmd_vel" else self._node.count_publishers
        found = self._node.get_topic_names_and_types()
        return tuple(
            other
            for other, kinds in found
            if other != name and set(kinds) & set(role.wanted) and count(other)
        )

    def _actions(self) -> tuple[str, ...]:
        """Action servers in the namespace, by their names in it."""
        place = self._node.get_namespace().rstrip("/") + "/"
        names = [name for name, _ in self._node.get_service_names_and_types() if name.endswith(SEND_GOAL)]
        return tuple(
            sorted(n.removesuffix(SEND_GOAL).removeprefix(place) for n in names if n.startswith(place))
        )

    # -- the verifier

    def _reach_verifier(self, nodes: dict[str, OurNode]) -> Callable[[], None]:
        """Start connecting to the verifier in a thread; returns a function that waits for the result."""
        told = nodes[DECIDER].value("verifier", "") if DECIDER in nodes else ""
        address = self._config.verifier or str(told)
        if not address:
            return lambda: None

        key = self._config.key
        if DECIDER in nodes and not key:
            key = str(nodes[DECIDER].value("verifier_key", ""))

        def work() -> None:
            self._verifier = reach(address, key)

        thread = threading.Thread(target=work, name="verifier", daemon=True)
        thread.start()
        return thread.join


def _both(one: Callable[[Any], None], other: Callable[[Any], None] | None) -> Callable[[Any], None]:
    def act(message: Any) -> None:
        one(message)
        if other is not None:
            other(message)

    return act


def _ends_of(
    ask: Callable[[str, str], list[tuple[str, list[str]]]], node: str, place: str
) -> dict[str, list[str]]:
    try:
        return dict(ask(node, place))
    except RuntimeError:  # the node has gone in between
        return {}


def _endpoints(infos: list[Any]) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(
            f"{info.node_namespace.rstrip('/')}/{info.node_name}",
            info.topic_type,
            info.qos_profile.reliability != ReliabilityPolicy.BEST_EFFORT,
            info.qos_profile.durability == DurabilityPolicy.TRANSIENT_LOCAL,
        )
        for info in infos
        if info.node_name != OWN_NAME
    )


def _message_class(kind: str) -> type | None:
    package, _, name = kind.partition("/msg/")
    try:
        found: type = getattr(importlib.import_module(f"{package}.msg"), name)
    except (ImportError, AttributeError):
        return None
    return found


def _has_interfaces() -> bool:
    return _message_class(STATUS) is not None


def gather(config: RobotDoctorConfig) -> Facts:
    """The facts of the graph that this process's environment selects. Raises UsageError; KeyboardInterrupt."""
    topics = filter(None, (config.image, config.odom, config.cmd_vel))
    namespace = checked_namespace(config.namespace, topics)
    quiet = {"use_global_arguments": False, "enable_rosout": False, "start_parameter_services": False}
    with own_node(OWN_NAME, namespace=namespace, **quiet) as (node, executor):
        return Gatherer(config, node, executor).gather()
