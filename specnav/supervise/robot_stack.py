# SPDX-License-Identifier: Apache-2.0
"""A whole robot as real processes: verifier, faulty link, simulator and two robot nodes, and how to control them."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from geometry_msgs.msg import Twist
from nav_msgs.msg import Odometry
from sensor_msgs.msg import CompressedImage
from spec_vlm_nav_interfaces.msg import DecisionMetrics, MotionCommand, MotionStatus, Supervision
from std_msgs.msg import Empty, String

from cloud_verifier.config import ServerConfig
from navsim.episodes import make_episode
from specnav.paths import CONFIG, DEFAULT_DRAFT, DEFAULT_TARGET
from specnav.supervise.children import (
    NOTHING,
    Parameter,
    decider_spec,
    motion_spec,
    simulator_spec,
    verifier_spec,
)
from specnav.supervise.faulty_link import FaultyLink
from specnav.supervise.probe import Probe, ProbedMessage
from specnav.supervise.robot_graph import Graph, Process
from specnav.supervise.waiting import wait_until

IMAGE = "camera/image_raw/compressed"
METRICS, CANCEL = "vlm_nav_node/metrics", "vlm_nav_node/cancel"
STATE, RESET = "navsim/state", "navsim/reset"
CMD_VEL = "cmd_vel"
ODOM = "odom"
STATUS = "motion_status"
COMMAND = "motion_command"
SUPERVISION = "supervision"
INSTRUCTION = "instruction"
CREEP = 0.0011  # m/s: motion_node's stop_epsilon_mps plus a rounding error
START_S = 120.0
RESET_S = 20.0
AFTER_RESET_S = 0.3  # until an image of the new room has arrived
# Stepping the base much more often than it is observed would be wasted: commands come, and odometry is sent, at 30 Hz.
SIMULATOR: Mapping[str, Parameter] = {"state_rate": 20.0, "step_rate": 50.0}


@dataclass(frozen=True)
class TrialPair:
    """Target and draft model. trained: they are good enough to find things."""

    target: Path = DEFAULT_TARGET
    draft: Path = DEFAULT_DRAFT
    trained: bool = True


def free_port() -> int:
    """Return a TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def speed(heard: ProbedMessage) -> float:
    """Return the larger speed of a Twist, in m/s or rad/s; 0 for the creep that a stop may begin with."""
    fastest = max(abs(heard.message.linear.x), abs(heard.message.angular.z))
    return fastest if fastest > CREEP else 0.0


class Stack(Graph):
    """Verifier, simulator, motion_node and vlm_nav_node with config/robot.yaml, with a faulty link to the
    verifier.
    """

    probe: Probe

    def __init__(
        self,
        folder: Path,
        pair: TrialPair | None = None,
        motion: Mapping[str, Parameter] = NOTHING,
        deciding: Mapping[str, Parameter] = NOTHING,
    ) -> None:
        """Create the stack.

        Args:
            folder: For the logs.
            pair: The models; None: the default ones.
            motion: Parameters of motion_node that override the file's.
            deciding: Parameters of vlm_nav_node that override the file's.
        """
        super().__init__(folder)
        self.pair = pair or TrialPair()
        self._motion = {"max_linear": 0.5, "max_angular": 0.8, **motion}
        self._deciding = deciding
        self.address = f"tcp://127.0.0.1:{free_port()}"
        self.seed = 100
        self.instruction = ""

    def __enter__(self) -> Stack:
        super().__enter__()
        self.link = FaultyLink(self.address)
        self.link.__enter__()
        for kind, topic in (
            (Twist, CMD_VEL),
            (DecisionMetrics, METRICS),
            (MotionStatus, STATUS),
            (MotionCommand, COMMAND),
            (Supervision, SUPERVISION),
            (String, STATE),
        ):
            self.probe.listen(kind, topic)
        self.probe.listen(Odometry, ODOM, reliable=False)
        self.probe.listen(CompressedImage, IMAGE, reliable=False)
        self.verifier = self.start_verifier()
        self.simulator = self.start_child(
            simulator_spec((CONFIG / "sim.yaml",), self.environment, SIMULATOR)
        )
        self.mover = self.start_mover()
        self.decider = self.start_decider()
        return self

    def __exit__(self, *error: object) -> None:
        self.link.__exit__()
        super().__exit__(*error)

    @property
    def max_linear(self) -> float:
        """The robot's forward speed, m/s."""
        return float(self._motion["max_linear"])

    @property
    def max_angular(self) -> float:
        """The robot's turning speed, rad/s."""
        return float(self._motion["max_angular"])

    @property
    def robot(self) -> tuple[Process, ...]:
        """All processes that should be running."""
        return self.verifier, self.simulator, self.mover, self.decider

    def start_verifier(self) -> Process:
        """Start a verifier at the stack's address."""
        server = ServerConfig(bind=self.address, model=str(self.pair.target))
        return self.start_child(verifier_spec(server, self.environment))

    def start_mover(self) -> Process:
        """Start a motion_node."""
        return self.start_child(motion_spec((CONFIG / "robot.yaml",), self.environment, self._motion))

    def start_decider(self) -> Process:
        """Start a vlm_nav_node."""
        given: dict[str, Parameter] = {
            "verifier": self.link.address,
            "draft_model": str(self.pair.draft),
            "resume_timeout_s": 2.0,  # drills allow little time: give up a lost answer before they do
        }
        return self.start_child(
            decider_spec(
                "vlm_nav_node", (CONFIG / "robot.yaml",), self.environment, {**given, **self._deciding}
            )
        )

    def start_what_is_down(self) -> None:
        """Restart processes that have ended, and wait until everything is running and connected."""
        expected: list[tuple[str, set[bytes]]] = []
        if not self.verifier.is_up:
            self.verifier = self.start_verifier()
        if not self.mover.is_up:
            expected.append((COMMAND, self._listeners(COMMAND)))
            self.mover = self.start_mover()
        if not self.decider.is_up:
            expected += [(topic, self._listeners(topic)) for topic in (INSTRUCTION, IMAGE)]
            self.decider = self.start_decider()
        for process in self.robot:
            process.wait_for("ready", START_S)
        for topic, known in expected:
            # Discovery still counts the subscription of a killed node, so wait for one that was not there before.
            wait_until(partial(self._newcomer, topic, known), START_S, f"a new subscription of {topic}")
        self.note_segments()
        count = self.probe.node.count_subscribers
        # A motion_node at rest is silent, and it may have sent its first messages before we were connected.
        wait_until(lambda: self.probe.node.count_publishers(CMD_VEL) > 0, START_S, "motion_node's cmd_vel")
        # One of the two subscriptions is the probe's.
        wait_until(lambda: count(IMAGE) > 1, START_S, "the decider's subscription")
        wait_until(lambda: count(COMMAND) > 1, START_S, "motion_node")

    def _listeners(self, topic: str) -> set[bytes]:
        """Return the subscriptions of a topic that discovery knows, including those of killed processes."""
        node = self.probe.node
        name = node.resolve_topic_name(topic)
        return {bytes(one.endpoint_gid) for one in node.get_subscriptions_info_by_topic(name)}

    def _newcomer(self, topic: str, known: set[bytes]) -> bool:
        return bool(self._listeners(topic) - known)

    def make_ready(self) -> None:
        """Get everything running, with the robot standing in a new room without an instruction."""
        self.start_what_is_down()
        self.cancel()
        self.reset()

    def cancel(self) -> float:
        """Cancel the instruction; returns the time."""
        return self.probe.say(CANCEL, Empty())

    def reset(self, split: str = "train", absent: bool = False, ahead: bool = False) -> int:
        """Put the robot into a new room.

        Args:
            split: Split of the simulator's episodes.
            absent: The room does not contain the object that the robot is asked to find.
            ahead: The robot faces that object.

        Returns:
            The room's seed.
        """
        self.seed += 1
        while ahead and not make_episode(self.seed, split).target_is_ahead:
            self.seed += 1
        request = {"seed": self.seed, "split": split, "absent": absent}
        said = self.probe.say(RESET, String(data=json.dumps(request)))
        wait_until(lambda: self._shows(said, absent), RESET_S, "the reset", lambda: self.simulator.text)
        self.instruction = make_episode(self.seed, split, absent).instruction
        time.sleep(AFTER_RESET_S)
        return self.seed

    def _shows(self, since: float, absent: bool) -> bool:
        states = (json.loads(h.message.data) for h in self.probe.heard(STATE, since))
        return any(
            s["episode_seed"] == self.seed and s["absent"] == absent and bool(s["ready"]) for s in states
        )

    def instruct(self, text: str) -> float:
        """Publish an instruction; returns the time."""
        return self.probe.say(INSTRUCTION, String(data=text))

    def set_simulator(self, **values: bool | float | str) -> None:
        """Set parameters of the running simulator."""
        self.probe.set_parameters("navsim", **values)

    def wait_until_moving(self, since: float, timeout_s: float = 15.0) -> float:
        """Wait for a forward or turning speed on cmd_vel; returns when it was received."""
        wait_until(
            lambda: any(speed(h) > 0 for h in self.probe.heard(CMD_VEL, since)),
            timeout_s,
            "motion",
            lambda: self.decider.text,
        )
        return next(h.at for h in self.probe.heard(CMD_VEL, since) if speed(h) > 0)

    def decisions(self, since: float) -> list[DecisionMetrics]:
        """Return the metrics of decisions that led to an action."""
        return [h.message for h in self.probe.heard(METRICS, since) if h.message.sequence]

    def commands(self, since: float, kind: int) -> list[ProbedMessage]:
        """Return the motion commands of a kind."""
        return [h for h in self.probe.heard(COMMAND, since) if h.message.kind == kind]
