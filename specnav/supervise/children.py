# SPDX-License-Identifier: Apache-2.0
"""The command lines of a system's processes: built from the run's settings, nothing started here.

The same modules and the same parameter files as the launch files use; what differs in a run (endpoint, method, pair)
is given as parameters on top.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from cloud_verifier.config import ServerConfig
from specdec.link.shaping import LinkProfile
from specdec.settings import as_arguments
from specnav.paths import ROOT
from specnav.supervise.processes import ChildSpec

READY = re.compile(r'"event":\s*"ready"')
LOOPBACK = "tcp://127.0.0.1"
Parameter = str | int | float | bool
NOTHING: Mapping[str, Parameter] = MappingProxyType({})


class LinkSettings(Protocol):
    """What the emulated link of a run is like, beside its round trip."""

    @property
    def jitter_ms(self) -> float: ...

    @property
    def bandwidth_mbps(self) -> float: ...

    @property
    def loss(self) -> float: ...

    @property
    def seed(self) -> int: ...


def verifier_spec(server: ServerConfig, environment: Mapping[str, str]) -> ChildSpec:
    """The cloud verifier; on its command line is what differs from the defaults."""
    argv = [sys.executable, "-m", "cloud_verifier", *as_arguments(server)]
    return ChildSpec("cloud_verifier", argv, environment, READY, ROOT)


def emulator_spec(
    config: LinkSettings,
    name: str,
    rtt_ms: float,
    verifier: str,
    environment: Mapping[str, str],
    outages: Sequence[str] = (),
) -> ChildSpec:
    """The link emulator between edge and cloud, on a free loopback port. outages: START:DURATION, seconds."""
    link = LinkProfile(rtt_ms, config.jitter_ms, config.bandwidth_mbps, config.loss)
    argv = [sys.executable, "-m", "specdec.link.emulator", "--listen", f"{LOOPBACK}:0", "--connect", verifier]
    argv += [*as_arguments(link), "--seed", str(config.seed)]
    argv += [word for outage in outages for word in ("--outage", outage)]
    return ChildSpec(name, argv, environment, READY, ROOT)


def endpoint_of(ready_line: str) -> str:
    """The address in a ready line (one JSON object)."""
    return str(json.loads(ready_line[ready_line.index("{") :])["bind"])


def ros_arguments(
    parameters: Mapping[str, Parameter], files: tuple[Path, ...], remaps: Mapping[str, str]
) -> list[str]:
    """`--ros-args` of a node: parameter files first, single parameters win, then remaps."""
    argv = ["--ros-args"]
    for path in files:
        argv += ["--params-file", str(path)]
    for name, value in parameters.items():
        argv += ["-p", f"{name}:={yaml_word(value)}"]
    for name, other in remaps.items():
        argv += ["-r", f"{name}:={other}"]
    return argv


def yaml_word(value: Parameter) -> str:
    """A parameter value as `-p name:=value` wants it: typed, text quoted."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int):
        return str(value)
    return json.dumps(value)


def node_spec(
    name: str,
    module: str,
    parameters: Mapping[str, Parameter],
    files: tuple[Path, ...],
    remaps: Mapping[str, str],
    environment: Mapping[str, str],
) -> ChildSpec:
    """A ROS node of ours: `python -m module` with parameter files, single parameters on top, and remaps."""
    argv = [sys.executable, "-m", module, *ros_arguments(parameters, files, remaps)]
    return ChildSpec(name, argv, environment, None, ROOT)


def simulator_spec(
    files: tuple[Path, ...], environment: Mapping[str, str], parameters: Mapping[str, Parameter] = NOTHING
) -> ChildSpec:
    """The simulator's ROS node."""
    return node_spec("navsim", "navsim.ros_node", parameters, files, {}, environment)


def motion_spec(
    files: tuple[Path, ...], environment: Mapping[str, str], parameters: Mapping[str, Parameter] = NOTHING
) -> ChildSpec:
    """The node that moves."""
    return node_spec("motion_node", "spec_vlm_nav.ros.nodes.motion_node", parameters, files, {}, environment)


def mission_spec(files: tuple[Path, ...], environment: Mapping[str, str], state_file: Path) -> ChildSpec:
    """The node that carries out missions."""
    module, kept = "spec_vlm_nav.ros.nodes.mission_node", {"state_file": str(state_file)}
    spec = node_spec("mission_node", module, kept, files, {}, environment)
    return replace(spec, ready=re.compile("mission_node ready"))


def console_spec(
    files: tuple[Path, ...], environment: Mapping[str, str], parameters: Mapping[str, Parameter]
) -> ChildSpec:
    """The operator's console, showing the simulator's camera."""
    module, remaps = "spec_vlm_nav.ros.nodes.console_node", {"image": "camera/image_raw/compressed"}
    spec = node_spec("console_node", module, parameters, files, remaps, environment)
    return replace(spec, ready=re.compile(r"console_node ready: (\S+)"))


def decider_spec(
    name: str, files: tuple[Path, ...], environment: Mapping[str, str], parameters: Mapping[str, Parameter]
) -> ChildSpec:
    """The node that decides, listening to the simulator's camera."""
    module, remaps = "spec_vlm_nav.ros.nodes.vlm_nav_node", {"image": "camera/image_raw/compressed"}
    return node_spec(name, module, parameters, files, remaps, environment)
