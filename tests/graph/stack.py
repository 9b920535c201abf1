"""The whole graph as real processes: verifier, simulator and the two robot nodes, and what tests need to know of it."""

from __future__ import annotations

import json
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from geometry_msgs.msg import Twist
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from spec_vlm_nav_interfaces.msg import DecisionMetrics, MotionCommand, MotionStatus
from std_msgs.msg import Empty, String

from tests.graph.harness import Graph, Heard, Process, ros_args, wait_until

IMAGE = "camera/image_raw/compressed"
METRICS, STATE = "vlm_nav_node/metrics", "navsim/state"
START_S = 120.0


@dataclass(frozen=True)
class Pair:
    """Target and draft; `trained`: good enough to find things."""

    target: Path
    draft: Path
    trained: bool


def free_port() -> int:
    """A TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Stack(Graph):
    """Verifier, simulator, motion_node and vlm_nav_node; the robot is slow, so that there is time to break things."""

    def __init__(self, folder: Path, pair: Pair, max_linear: float = 0.25) -> None:
        super().__init__(folder)
        self.pair, self.max_linear = pair, max_linear
        self.address = f"tcp://127.0.0.1:{free_port()}"
        self.seed = 100

    def __enter__(self) -> Stack:
        super().__enter__()
        self.verifier = self.start_verifier()
        self.simulator = self.start("navsim", "navsim.ros_node", *ros_args(camera_rate=10.0))
        self.mover = self.start_mover()
        self.decider = self.start_decider()
        for kind, topic in (
            (Twist, "cmd_vel"),
            (DecisionMetrics, METRICS),
            (MotionStatus, "motion_status"),
            (MotionCommand, "motion_command"),
            (String, STATE),
        ):
            self.probe.listen(kind, topic)
        self._parameters = self.probe.node.create_client(SetParameters, "navsim/set_parameters")
        return self

    def start_verifier(self) -> Process:
        """A verifier at the stack's address."""
        return self.start(
            "cloud_verifier", "cloud_verifier", "--bind", self.address, "--model", str(self.pair.target)
        )

    def start_mover(self) -> Process:
        """A motion_node."""
        return self.start(
            "motion_node", "spec_vlm_nav.nodes.motion_node", *ros_args(max_linear=self.max_linear)
        )

    def start_decider(self) -> Process:
        """A vlm_nav_node."""
        arguments = ros_args(
            {"image": IMAGE}, verifier=f'"{self.address}"', draft_model=str(self.pair.draft),
            motion_deadline_s=3.0, exploration="damped_search",
        )  # fmt: skip
        return self.start("vlm_nav_node", "spec_vlm_nav.nodes.vlm_nav_node", *arguments)

    def make_ready(self) -> None:
        """Start again what is down, and put the robot into a new room without an instruction."""
        if self.verifier.popen.poll() is not None:
            self.verifier = self.start_verifier()
        if self.mover.popen.poll() is not None:
            self.mover = self.start_mover()
        if self.decider.popen.poll() is not None:
            self.decider = self.start_decider()
        for process in (self.verifier, self.simulator, self.mover, self.decider):
            process.wait_for("ready", START_S)
        self.note_segments()
        wait_until(lambda: self.probe.heard("cmd_vel") != [], START_S, "cmd_vel")
        wait_until(
            lambda: self.probe.node.count_subscribers(IMAGE) > 0, START_S, "the decider's subscription"
        )
        wait_until(lambda: self.probe.node.count_subscribers("motion_command") > 1, START_S, "motion_node")
        self.cancel()
        self.reset()

    def cancel(self) -> None:
        """Drop the instruction."""
        self.probe.say("vlm_nav_node/cancel", Empty())

    def reset(self, split: str = "train", absent: bool = False) -> int:
        """A new room; returns its seed."""
        self.seed += 1
        request = {"seed": self.seed, "split": split, "absent": absent}
        said = self.probe.say("navsim/reset", String(data=json.dumps(request)))
        wait_until(
            lambda: any(
                json.loads(h.message.data)["episode_seed"] == self.seed
                and json.loads(h.message.data)["ready"]
                for h in self.probe.heard(STATE, said)
            ),
            20,
            "the reset",
            lambda: self.simulator.text,
        )
        time.sleep(0.3)
        return self.seed

    def instruct(self, text: str) -> float:
        """Publish an instruction; returns when."""
        return self.probe.say("instruction", String(data=text))

    def set_simulator(self, **values: bool | float | str) -> None:
        """Set live parameters of the simulator."""
        request = SetParameters.Request()
        request.parameters = [
            Parameter(name, value=value).to_parameter_msg() for name, value in values.items()
        ]
        wait_until(self._parameters.service_is_ready, 10, "the simulator's parameter service")
        answer = self._parameters.call_async(request)
        wait_until(answer.done, 10, "the parameter change")
        assert all(result.successful for result in answer.result().results)

    def wait_until_moving(self, since: float, timeout_s: float = 15.0) -> float:
        """Wait until a forward or turning speed is on cmd_vel; returns when it was heard."""
        wait_until(
            lambda: any(speed(h) > 0.1 for h in self.probe.heard("cmd_vel", since)[-3:]),
            timeout_s,
            "motion",
            lambda: self.decider.text,
        )
        return time.monotonic()

    def decisions(self, since: float) -> list[DecisionMetrics]:
        """Measured decisions that led to an action."""
        return [h.message for h in self.probe.heard(METRICS, since) if h.message.sequence]

    def commands(self, since: float, kind: int) -> list[Heard]:
        """Motion commands of a kind."""
        return [h for h in self.probe.heard("motion_command", since) if h.message.kind == kind]

    def last_motion(self, since: float) -> float:
        """Seconds from `since` to the last velocity that was not zero (0: there was none)."""
        moving = [h.at for h in self.probe.heard("cmd_vel", since) if speed(h) > 0]
        return max(moving) - since if moving else 0.0

    def freeze(self, process: Process) -> None:
        """SIGSTOP: there, but silent."""
        process.popen.send_signal(signal.SIGSTOP)


def speed(heard: Heard) -> float:
    """The larger of the two speeds of a Twist."""
    return max(abs(heard.message.linear.x), abs(heard.message.angular.z))
