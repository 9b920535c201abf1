"""How long the robot stands between two motions: with and without early action and prefetch, at several round trips.

Real processes and the link emulator; the target may be paced to stand for a larger model. Two times per decision:
from the frame's receipt to the first velocity made of it (camera to motion), and from the end of a motion to the
first velocity of the next (standing).
"""

from __future__ import annotations

import itertools
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from spec_vlm_nav_interfaces.msg import MotionCommand

from cloud_verifier.config import ServerConfig
from spec_vlm_nav.common.codes import ErrorCode, MotionState
from specnav.results.demo import Versioned, percentile
from specnav.supervise.children import verifier_spec
from specnav.supervise.probe import ProbedMessage
from specnav.supervise.robot_graph import Process
from specnav.supervise.robot_stack import CMD_VEL, COMMAND, IMAGE, METRICS, STATUS, Stack, free_port, speed
from tests.graph.stack import check_all_up

WAYS = (("neither", False, False), ("early action", True, False), ("early action and prefetch", True, True))
ROOM_S = 60.0  # after this long a new room
SETTLED_S = 2.0


@dataclass(frozen=True)
class PipelineConfig:
    """rtts: ms. verify_ms: pacing, 0: as fast as this machine is. decisions: for each cell."""

    rtts: tuple[float, ...] = (0.0, 40.0, 120.0)
    verify_ms: float = 0.0
    method: str = "fsd"
    decisions: int = 20
    seed: int = 0


class PipelineCell(msgspec.Struct, frozen=True):
    """What was measured of one way at one round trip; milliseconds."""

    way: str
    rtt_ms: float
    camera_to_motion_ms: list[float]
    standing_ms: list[float]
    dropped: int  # prefetched decisions whose scene changed

    def line(self) -> tuple[str, ...]:
        """The cell as a row of a table."""
        shown = [
            f"{percentile(values, q) or 0.0:.0f}"
            for values, q in itertools.product((self.camera_to_motion_ms, self.standing_ms), (50, 95))
        ]
        return self.way, f"{self.rtt_ms:g}", *shown, str(len(self.standing_ms)), str(self.dropped)


class PipelineResults(Versioned, frozen=True, kw_only=True):
    """results.json of the study. paced: whether forwards were slowed down to stand for a larger model."""

    config: PipelineConfig
    cells: list[PipelineCell]


class EmulatedStack(Stack):
    """The stack with the link emulator instead of a faulty link, and a target that may be paced."""

    def __init__(self, folder: Path, config: PipelineConfig, rtt_ms: float) -> None:
        self._config, self._rtt_ms = config, rtt_ms
        self._emulated = f"tcp://127.0.0.1:{free_port()}"
        super().__init__(folder, deciding={"method": config.method, "verifier": self._emulated})

    def start_verifier(self) -> Process:
        """The verifier, and the emulator before it."""
        server = ServerConfig(
            bind=self.address, model=str(self.pair.target), verify_ms=self._config.verify_ms
        )
        rtt = f"{self._rtt_ms:g}"
        arguments = ("--listen", self._emulated, "--connect", self.address, "--rtt", rtt)
        self.start("emulator", "specdec.link.emulator", *arguments)
        return self.start_child(verifier_spec(server, self.environment))


def moved_at(velocities: list[ProbedMessage], since: float) -> float | None:
    """When the first velocity that is not zero was heard at or after a time."""
    first = bisect_left(velocities, since, key=lambda h: h.at)
    return next((h.at for h in velocities[first:] if speed(h) > 0), None)


def times_of(stack: Stack, since: float) -> tuple[list[float], list[float]]:
    """Camera to motion and standing of every decision since then, ms."""
    velocities = stack.probe.heard(CMD_VEL, since)
    frames = {
        (h.message.header.stamp.sec, h.message.header.stamp.nanosec): h.at
        for h in stack.probe.heard(IMAGE, since)
    }
    ended: dict[tuple[int, int], float] = {}  # a motion's end is said again and again
    for heard in stack.probe.heard(STATUS, since):
        if heard.message.state == MotionState.REACHED.value:
            ended.setdefault((heard.message.session, heard.message.sequence), heard.at)
    ends = sorted(ended.values())
    camera, standing = [], []
    for command in stack.probe.heard(COMMAND, since):
        said = command.message
        moved = moved_at(velocities, command.at)
        if said.kind != MotionCommand.MOVE or moved is None:
            continue
        frame = frames.get((said.frame_stamp.sec, said.frame_stamp.nanosec))
        if frame is not None:
            camera.append((moved - frame) * 1e3)
        before = [at for at in ends if at < command.at]
        if before and not any(
            before[-1] < h.at < command.at for h in stack.commands(since, MotionCommand.MOVE)
        ):
            standing.append((moved - before[-1]) * 1e3)
    return camera, standing


def measure(
    stack: Stack, config: PipelineConfig, way: tuple[str, bool, bool], rtt_ms: float
) -> Iterator[int | PipelineCell]:
    """Measure one cell; yields how many decisions there are so far, then the cell."""
    name, early, prefetch = way
    stack.make_ready()
    stack.probe.set_parameters("vlm_nav_node", early_action=early, prefetch=prefetch)
    camera: list[float] = []
    standing: list[float] = []
    dropped = 0
    while len(standing) < config.decisions:
        stack.make_ready()
        began = stack.instruct(stack.instruction)
        room_ends = began + ROOM_S
        while time.monotonic() < room_ends:
            time.sleep(0.5)
            check_all_up(stack)
            _, stood = times_of(stack, began)
            yield min(config.decisions, len(standing) + len(stood))
            last = stack.probe.heard(COMMAND, began)
            over = bool(last) and last[-1].message.kind == MotionCommand.STOP
            if over or len(standing) + len(stood) >= config.decisions:
                break
        seen, stood = times_of(stack, began)
        camera += seen
        standing += stood
        dropped += sum(
            h.message.error_code == ErrorCode.CANCELED.value and h.message.prefetched
            for h in stack.probe.heard(METRICS, began)
        )
        stack.cancel()
        time.sleep(SETTLED_S / 4)
    yield PipelineCell(name, rtt_ms, camera, standing, dropped)


def run_pipeline(
    config: PipelineConfig, folder: Path, progress: Callable[[str, int], None]
) -> Iterator[PipelineCell]:
    """Measure every cell; `progress` hears what is measured and how many decisions there are."""
    for rtt_ms in config.rtts:
        logs = folder / f"rtt-{rtt_ms:g}"
        logs.mkdir(parents=True, exist_ok=True)
        with EmulatedStack(logs, config, rtt_ms) as stack:
            stack.seed += config.seed
            for way in WAYS:
                for step in measure(stack, config, way, rtt_ms):
                    if isinstance(step, PipelineCell):
                        yield step
                    else:
                        progress(f"{way[0]} at {rtt_ms:g} ms", step)
