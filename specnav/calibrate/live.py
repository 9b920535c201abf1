# SPDX-License-Identifier: Apache-2.0
"""A calibration on a running ROS graph: checks who is connected, asks before each step, and drives.

Whatever ends it, the robot is stopped first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from spec_vlm_nav.common.errors import NavigationError
from spec_vlm_nav.common.geometry import ZERO
from specnav.calibrate.asking import StepPrompt
from specnav.calibrate.config import CalibrateConfig
from specnav.calibrate.core.course import CalibrationPhase, CalibrationRun
from specnav.calibrate.core.procedure import CalibrationError, CalibrationFindings
from specnav.calibrate.wire import Wire
from specnav.errors import UsageError
from specnav.ros_node import checked_namespace, own_node
from specnav.signals import notes_signals

RATE_HZ, SPIN_S = 30.0, 0.005
FIND_S, LISTEN_S = 5.0, 1.5  # longest wait for odometry and listeners; time without foreign velocities
MATCH_S = 0.3  # discovery is not symmetric: the other side may discover us later


class Live:
    """One calibration of one robot."""

    def __init__(
        self,
        config: CalibrateConfig,
        node: Node,
        executor: SingleThreadedExecutor,
        say: Callable[[str], None],
        ended: Callable[[], bool],
    ) -> None:
        """ended: whether the calibration was asked to end."""
        self._config, self._executor, self._say, self._ended = config, executor, say, ended
        self.run = CalibrationRun(config)
        self.wire = Wire(node, config, self.run.hear, self.run.end)
        self._has_driven = False

    def look(self) -> None:
        """Raise CalibrationError unless there is a base with odometry and nothing else drives it. Publishes
        nothing.
        """
        began = time.monotonic()
        found_at = math.inf  # discovery is complete once the robot is found
        while (waited := time.monotonic() - began) < FIND_S:
            self._spin()
            now = time.monotonic()
            if found_at == math.inf and self.run.guard.is_ready and self.wire.listeners():
                found_at = now
            if now - max(found_at, self.wire.foreign_at) > LISTEN_S:
                break
            if self.run.fault:
                raise CalibrationError(self.run.fault)
        if not self.wire.listeners():
            raise CalibrationError(self._nobody_listens())
        if not self.run.guard.is_ready:
            publishers = self.wire.odometers
            raise CalibrationError(
                f"no odometry on {self.wire.odom_topic} within {waited:.0f} s ({publishers} publishers): "
                "is the driver running, and is this the right topic (--odom)?"
            )
        if self.wire.foreign_at > time.monotonic() - LISTEN_S:
            raise CalibrationError(self._somebody_speaks())
        time.sleep(MATCH_S)

    def _nobody_listens(self) -> str:
        said = f"no subscriber on {self.wire.topic}"
        if types := self.wire.other_types():
            other = "leave --stamped out" if self._config.stamped else "--stamped sends TwistStamped"
            return f"{said} of our message type; subscribers expect {', '.join(types)}: {other}"
        option = "--cmd-vel" if self._config.backend == "twist" else "--namespace"
        return f"{said}: is the driver running, and is this the right topic ({option})?"

    def _somebody_speaks(self) -> str:
        who = ", ".join(self.wire.others()) or "another node"
        return (
            f"{who} also sends velocities on {self.wire.topic}: stop it while the base is calibrated "
            "(an idle motion_node may keep running)"
        )

    def drive(self) -> CalibrationFindings:
        """Run the procedure. Raises CalibrationError, and KeyboardInterrupt if it was asked to end."""
        run, asker = self.run, StepPrompt(self._config.yes, self._say)
        next_tick, self._has_driven = time.monotonic(), True
        while not run.is_over:
            self._spin()
            if self._ended():
                raise KeyboardInterrupt
            if self.wire.foreign_at > 0 and run.phase is not CalibrationPhase.WAITING:
                run.end(self._somebody_speaks())
            now = time.monotonic()
            if run.is_over or now < next_tick:
                continue
            next_tick = max(next_tick + 1 / RATE_HZ, now)
            if run.next is not None and asker.allows(run.next):
                self.wire.foreign_at = -1.0
                run.allow(now)
            velocity = run.tick(now)
            if velocity != ZERO or run.records or run.phase is not CalibrationPhase.WAITING:
                self.wire.send(velocity, run.rest(now), run.style)
        if run.findings is None:
            doing = run.doing
            raise CalibrationError(f"{run.fault}{f' (while the robot {doing})' if doing else ''}")
        return run.findings

    def _spin(self) -> None:
        self._executor.spin_once(timeout_sec=SPIN_S)

    def close(self) -> None:
        """Stop the robot, if anything was sent."""
        if self._has_driven:
            self.wire.stand()


def calibrate_live(config: CalibrateConfig, say: Callable[[str], None]) -> tuple[CalibrationFindings, Wire]:
    """The findings, and the wire they were measured on. Raises UsageError; KeyboardInterrupt for SIGINT and
    SIGTERM.
    """
    namespace = checked_namespace(config.namespace, (config.cmd_vel, config.odom))
    remaps = ["--ros-args", "-r", f"cmd_vel:={config.cmd_vel}", "-r", f"odom:={config.odom}"]
    given: dict[str, Any] = {"namespace": namespace, "cli_args": remaps, "use_global_arguments": False}
    try:
        with notes_signals() as ended, own_node("specnav_calibrate", **given) as (node, executor):
            live = Live(config, node, executor, say, ended)
            try:
                live.look()
                return live.drive(), live.wire
            finally:
                live.close()
    except NavigationError as error:
        raise UsageError(str(error)) from error
