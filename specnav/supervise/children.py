# SPDX-License-Identifier: Apache-2.0
"""Builds the command lines of a system's processes from the settings of a run. Nothing is started here.

Modules and parameter files are those of the launch files; settings of a run (endpoint, method, models) are added as
parameters.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from cloud_verifier.config import ServerConfig
from specdec.link.shaping import LinkProfile
from specdec.settings import as_arguments
from specnav.paths import ROOT
from specnav.supervise.processes import ChildSpec

READY = re.compile(r'"event":\s*"ready"')
LOOPBACK = "tcp://127.0.0.1"
Parameter = str | int | float | bool
NOTHING: Mapping[str, Parameter] = MappingProxyType({})


def verifier_spec(server: ServerConfig, environment: Mapping[str, str]) -> ChildSpec:
    """Describe the cloud verifier; settings that differ from their defaults are on its command line."""
    argv = [sys.executable, "-m", "cloud_verifier", *as_arguments(server)]
    return ChildSpec("cloud_verifier", argv, environment, READY, ROOT)


def emulator_spec(
    name: str,
    link: LinkProfile,
    seed: int,
    verifier: str,
    environment: Mapping[str, str],
) -> ChildSpec:
    """Describe the link emulator between edge and cloud, on a free loopback port.

    Args:
        name: Name of the process.
        link: The link.
        seed: Seed of its random delays and losses.
        verifier: Endpoint of the verifier.
        environment: Environment variables.

    Returns:
        What to start.
    """
    argv = [sys.executable, "-m", "specdec.link.emulator", "--listen", f"{LOOPBACK}:0", "--connect", verifier]
    argv += [*as_arguments(link), "--seed", str(seed)]
    argv += [word for start, lasts in link.outages for word in ("--outage", f"{start}:{lasts}")]
    return ChildSpec(name, argv, environment, READY, ROOT)


def endpoint_of(ready_line: str) -> str:
    """Return the address in a ready line, which is one JSON object."""
    return str(json.loads(ready_line[ready_line.index("{") :])["bind"])


def ros_arguments(
    parameters: Mapping[str, Parameter], files: tuple[Path, ...], remaps: Mapping[str, str]
) -> list[str]:
    """Return a node's `--ros-args`: parameter files, then single parameters, which override them, then remappings."""
    argv = ["--ros-args"]
    for path in files:
        argv += ["--params-file", str(path)]
    for name, value in parameters.items():
        argv += ["-p", f"{name}:={yaml_word(value)}"]
    for name, other in remaps.items():
        argv += ["-r", f"{name}:={other}"]
    return argv


def yaml_word(value: Parameter) -> str:
    """Format a parameter value for `-p name:=value`: with its type, strings quoted."""
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
    """Describe one of our ROS nodes: `python -m module` with parameter files, overriding parameters and
    remappings.
    """
    argv = [sys.executable, "-m", module, *ros_arguments(parameters, files, remaps)]
    return ChildSpec(name, argv, environment, None, ROOT)


def simulator_spec(
    files: tuple[Path, ...], environment: Mapping[str, str], parameters: Mapping[str, Parameter] = NOTHING
) -> ChildSpec:
    """Describe the simulator's ROS node."""
    return node_spec("navsim", "navsim.ros_node", parameters, files, {}, environment)


def motion_spec(
    files: tuple[Path, ...], environment: Mapping[str, str], parameters: Mapping[str, Parameter] = NOTHING
) -> ChildSpec:
    """Describe motion_node, which moves the robot."""
    return node_spec("motion_node", "spec_vlm_nav.ros.nodes.motion_node", parameters, files, {}, environment)


def mission_spec(files: tuple[Path, ...], environment: Mapping[str, str], state_file: Path) -> ChildSpec:
    """Describe mission_node, which carries out missions."""
    module, kept = "spec_vlm_nav.ros.nodes.mission_node", {"state_file": str(state_file)}
    spec = node_spec("mission_node", module, kept, files, {}, environment)
    return replace(spec, ready=re.compile("mission_node ready"))


def console_spec(
    files: tuple[Path, ...], environment: Mapping[str, str], parameters: Mapping[str, Parameter]
) -> ChildSpec:
    """Describe the operator's console, showing the simulator's camera."""
    module, remaps = "spec_vlm_nav.ros.nodes.console_node", {"image": "camera/image_raw/compressed"}
    spec = node_spec("console_node", module, parameters, files, remaps, environment)
    return replace(spec, ready=re.compile(r"console_node ready: (\S+)"))


def decider_spec(
    name: str, files: tuple[Path, ...], environment: Mapping[str, str], parameters: Mapping[str, Parameter]
) -> ChildSpec:
    """Describe vlm_nav_node, which decides, fed by the simulator's camera."""
    module, remaps = "spec_vlm_nav.ros.nodes.vlm_nav_node", {"image": "camera/image_raw/compressed"}
    return node_spec(name, module, parameters, files, remaps, environment)
