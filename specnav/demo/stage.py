# SPDX-License-Identifier: Apache-2.0
"""The processes of a demo, the director and the view, and the course of one episode.

The stage starts processes in the order in which they need each other, and watches them while it waits. It knows nothing
of result files or reports.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cloud_verifier.config import ServerConfig
from navsim.episodes import Episode
from specdec.link.shaping import LinkProfile
from specnav.demo.config import DemoConfig
from specnav.demo.decider import vlm_spec
from specnav.demo.director import Director
from specnav.demo.errors import DemoError
from specnav.demo.recorder import Ending, EpisodeLimits, EpisodeRecorder
from specnav.demo.views import DemoScene, PlainView
from specnav.supervise import children
from specnav.supervise.processes import ChildSpec, Supervisor
from specnav.supervise.surroundings import (
    Domain,
    ports_in_use,
    read_udp_tables,
    remove_segments,
    ros_environment,
    segments_of,
)

RESET_TIMEOUT_S = 20.0
SETTLE_TIMEOUT_S = 5.0
TICK_S = 0.2
POLL_S = 0.02


@dataclass(frozen=True)
class EpisodeRecording:
    """A finished episode and its recording."""

    recorder: EpisodeRecorder
    ending: Ending
    duration_s: float


class Stage:
    """The running processes of one demo."""

    def __init__(
        self,
        config: DemoConfig,
        server: ServerConfig,
        supervisor: Supervisor,
        director: Director,
        view: PlainView,
        environment: Mapping[str, str],
        verifier: str = "",
    ) -> None:
        """verifier: address of a verifier that runs elsewhere; "": open() starts one."""
        self._config, self._server = config, server
        self._supervisor, self._director, self._view = supervisor, director, view
        self.environment = environment
        self._segments: set[Path] = set()
        self.verifier = verifier

    def open(self) -> None:
        """Start the verifier, the simulator and the motion node, all at the same time."""
        config, start = self._config, self._supervisor.start
        own = not self.verifier
        self._view.phase(f"starting {'the verifier, ' if own else ''}the simulator and the robot")
        verifier = start(children.verifier_spec(self._server, self.environment)) if own else None
        start(children.simulator_spec((config.sim_config,), self.environment))
        start(children.motion_spec((config.robot_config,), self.environment))
        if verifier is not None:
            ready = self._supervisor.wait_ready(verifier, config.start_timeout_s)
            self.verifier = children.endpoint_of(ready)
        self._wait(
            self._director.simulator_is_connected, config.start_timeout_s, "the simulator's first message"
        )

    @contextmanager
    def deciding(
        self, method: str, rtt_ms: float, name: str, prefetch: bool | None = None
    ) -> Iterator[None]:
        """Run a deciding node and its link during the block. `name` distinguishes its log files."""
        config, supervisor = self._config, self._supervisor
        emulated = config.emulates(rtt_ms)
        self._view.phase(f"starting the deciding node ({method}{f', RTT {rtt_ms:g} ms' if emulated else ''})")
        endpoint = self.verifier
        started = []
        try:
            if emulated:
                link = LinkProfile(rtt_ms, config.jitter_ms, config.bandwidth_mbps, config.loss)
                spec = children.emulator_spec(
                    f"link_{name}", link, config.seed, self.verifier, self.environment
                )
                started.append(spec.name)
                child = supervisor.start(spec)
                endpoint = children.endpoint_of(supervisor.wait_ready(child, config.start_timeout_s))
            node = vlm_spec(config, endpoint, method, prefetch, f"vlm_nav_node_{name}", self.environment)
            started.append(node.name)
            supervisor.start(node)
            self._wait(
                self._director.robot_is_connected, config.start_timeout_s, "the start of the robot's nodes"
            )
            self.note_segments()
            yield
        finally:
            for name_ in reversed(started):
                supervisor.stop(name_)

    @property
    def domain(self) -> int:
        """The ROS domain of the graph."""
        return int(self.environment["ROS_DOMAIN_ID"])

    def enter(self, episode: Episode) -> None:
        """Put the robot at the start of an episode's room."""
        director = self._director
        director.reset_simulator(episode.seed, episode.split, episode.absent)
        self._wait(lambda: director.simulator_shows(episode), RESET_TIMEOUT_S, "the simulator's reset")

    def start(self, spec: ChildSpec, ready_s: float = 0.0) -> str:
        """Start another process in the stage's graph; returns its ready line, or "" without waiting if ready_s
        is 0.
        """
        child = self._supervisor.start(spec)
        return self._supervisor.wait_ready(child, ready_s) if ready_s else ""

    def check(self) -> None:
        """Raise ChildFailed if a process has ended by itself."""
        self._supervisor.check()

    def run_episode(
        self, episode: Episode, index: int, count: int, limits: EpisodeLimits
    ) -> EpisodeRecording:
        """Reset, publish the instruction, record until the episode is over, and stop the robot."""
        director, view = self._director, self._view
        self.enter(episode)
        recorder = director.begin(episode.seed, episode.instruction)
        view.episode(index, count, episode.instruction)
        ending = None
        next_tick = time.monotonic()
        while ending is None:
            time.sleep(POLL_S)
            self._supervisor.check()
            for decision in director.take_decisions():
                view.decision(decision)
            now = time.monotonic()
            with director.lock:
                ending = recorder.ending(now, limits)
                jpeg, state = recorder.latest_frame(), recorder.state
            if now >= next_tick:
                next_tick = now + TICK_S
                pose = None if state is None else (state.x, state.y, state.yaw)
                view.tick(DemoScene(recorder.clock(now), jpeg, pose))
        duration_s = (
            recorder.stop_at
            if ending.said_stop and recorder.stop_at is not None
            else recorder.clock(time.monotonic())
        )
        director.cancel()
        self._settle(recorder)
        director.end()
        return EpisodeRecording(recorder, ending, duration_s)

    def _settle(self, recorder: EpisodeRecorder) -> None:
        """Wait until the robot is at rest; if it does not come to rest, the next reset will fail."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while time.monotonic() < deadline:
            self._supervisor.check()
            with self._director.lock:
                if recorder.settled(time.monotonic()):
                    return
            time.sleep(POLL_S)

    def _wait(self, done: Callable[[], bool], timeout_s: float, what: str) -> None:
        deadline = time.monotonic() + timeout_s
        while not done():
            self._supervisor.check()
            if time.monotonic() > deadline:
                raise DemoError(
                    f"{what} did not happen within {timeout_s:.0f} s; see the log files of the run"
                )
            time.sleep(POLL_S)

    def note_segments(self) -> frozenset[Path]:
        """Record the shared memory that our processes use now; returns all that they have used so far."""
        self._segments |= segments_of((*self._supervisor.pids, os.getpid()))
        return frozenset(self._segments)


@contextmanager
def open_stage(
    config: DemoConfig, server: ServerConfig, logs: Path, view: PlainView, verifier: str = ""
) -> Iterator[Stage]:
    """Start and connect all processes of a demo; always stops them and leaves nothing behind.

    verifier: address of a verifier that runs elsewhere; "": one is started.
    """
    domain = Domain(ports_in_use(read_udp_tables()), first=os.getpid())
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    environment = ros_environment(domain.number, logs, threads)
    # Fast DDS reads these when the director's context is made; the children get the same values.
    os.environ.update(environment)
    segments: frozenset[Path] = frozenset()
    try:
        with Director(domain.number) as director, Supervisor(logs) as supervisor:
            stage = Stage(config, server, supervisor, director, view, environment, verifier=verifier)
            try:
                stage.open()
                yield stage
            finally:
                segments = stage.note_segments()
                view.phase("stopping")
                supervisor.stop_all()
    finally:
        remove_segments(segments)
        domain.release()
