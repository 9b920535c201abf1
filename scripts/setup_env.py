# SPDX-License-Identifier: Apache-2.0
"""Installs the Python side of the set-up into the running environment, step by step.

Each step has a key made from everything it depends on; a step whose key is on record is skipped, and a key is
recorded only after its step succeeded, so that an interrupted run is repaired by the next one. Standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import setup_gguf
from setup_gguf import CONSTRAINTS, ROOT, SetUpFailed, pip, say

RECORD = Path(sys.prefix) / "set-up.json"
TORCH_VERSION = "2.13.0"
TORCH_CPU_INDEX = os.environ.get("SPECNAV_TORCH_CPU_INDEX", "")
"""A package index that has torch built for CPUs, which is some 3 GB smaller; "": what pip's own index has is taken."""
ROS_WHEELS = ROOT / "requirements" / "ros-wheels.txt"
SELDOM = (
    r"site-packages/(.*/tests?/|OpenGL/|pip/|pygments/lexers/|ray/(data|rllib|train|tune)/"
    r"|torch/(_inductor|testing)/|transformers/models/)"
)
"""A third of all that could be compiled, of which a process imports a few files, if any: they are compiled then."""


def digest(*parts: str | Path) -> str:
    """Hash of strings and of the files' contents."""
    hasher = hashlib.sha256(sys.version.encode())
    for part in parts:
        hasher.update(part.read_bytes() if isinstance(part, Path) else part.encode())
    return hasher.hexdigest()[:16]


def install(*arguments: str, check: bool = True) -> bool:
    """`pip install`, without compiling: compile_all does, and pip would on one core. See setup_gguf.pip."""
    return pip("install", "--no-compile", *arguments, check=check)


def sees_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU (a discrete one or a Jetson's)."""
    return (
        bool(shutil.which("nvidia-smi"))
        or Path("/dev/nvidia0").exists()
        or Path("/etc/nv_tegra_release").exists()
    )


def install_torch() -> None:
    """The CPU build where no GPU is seen and it can be had; a torch that is there (Jetson containers) is kept."""
    probe = "import torch, sys; sys.exit(tuple(int(x) for x in torch.__version__.split('.')[:2]) < (2, 4))"
    if subprocess.run([sys.executable, "-c", probe], stderr=subprocess.DEVNULL).returncode == 0:
        return
    wanted = f"torch=={TORCH_VERSION}"
    # A wheel on this disk (pip's find-links) wins: --no-index looks nowhere else for torch itself.
    on_disk = install("--no-index", "--no-deps", wanted, check=False)
    if on_disk or sees_gpu() or platform.machine() != "x86_64" or not TORCH_CPU_INDEX:
        if not on_disk and not sees_gpu() and platform.machine() == "x86_64":
            say("torch with CUDA, 3 GB more than needed: SPECNAV_TORCH_CPU_INDEX may name an index of CPU builds")
        install(wanted)  # complete it, or take the index's build: the CUDA one on x86_64
    else:
        install(f"{wanted}+cpu", "--extra-index-url", TORCH_CPU_INDEX)


def build_interfaces() -> None:
    """Generate and install spec_vlm_nav_interfaces (the script itself skips when it is up to date)."""
    run = subprocess.run([sys.executable, str(ROOT / "scripts" / "build_interfaces.py")], cwd=ROOT)
    if run.returncode:
        raise SetUpFailed("building spec_vlm_nav_interfaces failed (see above); the robot nodes cannot run")


def compile_all() -> None:
    """Compile what is not compiled yet on all cores; files that cannot be are some library's templates."""
    command = [sys.executable, "-m", "compileall", "-qq", "-j", "0", "-x", SELDOM]
    subprocess.run([*command, sysconfig.get_path("purelib")], stdout=subprocess.DEVNULL)


@dataclass
class Step:
    """A part of the set-up. key: of what its result depends on. required: without it nothing runs."""

    name: str
    key: str
    action: Callable[[], object]
    required: bool = True
    seconds: float = 0.0

    def carry_out(self) -> SetUpFailed | None:
        """Returns why it failed."""
        say(f"{self.name} …")
        started = time.monotonic()
        try:
            self.action()
        except SetUpFailed as error:
            return error
        self.seconds = time.monotonic() - started
        return None


def steps(ros: str, dev: bool) -> list[list[Step]]:
    """Return all steps in order, those together that may run at the same time; what is ROS's is optional."""
    project = ROOT / "pyproject.toml"
    ours = ".[sim,bags,console,dev]" if dev else ".[sim,bags,console]"
    libraries = ("-c", str(CONSTRAINTS), "--no-build-isolation")
    plan = [
        [Step("build tools", digest("1"), lambda: install("setuptools>=77.0.3,<80", "wheel"))],
        [Step("torch", digest(TORCH_VERSION, str(sees_gpu())), install_torch)],
    ]
    last = [
        Step("specnav and its libraries", digest(project, CONSTRAINTS, ours), lambda: install(*libraries, "-e", ours))
    ]
    supported = ros != "wheels" or (sys.platform == "linux" and platform.machine() == "x86_64")
    if not supported:
        say(f"no ROS 2 wheels for {platform.machine()}: source a ROS 2 installation to run the robot nodes")
    elif ros == "wheels":
        wheels = lambda: install(*libraries, "-r", str(ROS_WHEELS))  # noqa: E731
        plan.append([Step("ROS 2 (wheels)", digest(ROS_WHEELS), wheels, required=False)])
    if supported:
        interface_files = sorted((ROOT / "ros2_ws/src/spec_vlm_nav_interfaces").rglob("*.*"))
        key = digest(ros, ROOT / "scripts" / "build_interfaces.py", *interface_files)
        last.append(Step("ROS interfaces", key, build_interfaces, required=False))
    plan.append(last)
    wheel = setup_gguf.cached_wheel(os.environ) if dev and not setup_gguf.installed() else None
    if wheel is not None:  # it takes seconds then; the time in the key: it is not there, whatever is on record
        key = digest(str(wheel), str(time.time_ns()))
        plan.append([Step("llama.cpp (built here before)", key, lambda: setup_gguf.install(wheel), required=False)])
    plan.append([Step("bytecode", digest(*(step.key for some in plan for step in some)), compile_all)])
    return plan


def record(done: dict[str, str]) -> None:
    """Write the record through a temporary file: a kill must not leave half of it."""
    scratch = RECORD.with_suffix(".tmp")
    scratch.write_text(json.dumps(done, indent=1))
    os.replace(scratch, RECORD)


def main() -> int:
    """Run the missing steps; exit code 1 when a required one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ros", default="wheels", help="'wheels', or 'sourced-<distro>'")
    parser.add_argument("--dev", action="store_true", help="also what the tests and linters need")
    options = parser.parse_args()
    try:
        done: dict[str, str] = json.loads(RECORD.read_text())
    except (OSError, ValueError):
        done = {}
    # The development extras contain the others: do not reinstall without them after `make test`.
    dev = options.dev or bool(done.get("dev"))
    for together in steps(options.ros, dev):
        missing = [step for step in together if done.get(step.name) != step.key]
        with ThreadPoolExecutor() as pool:
            errors = list(pool.map(Step.carry_out, missing))
        for step, error in zip(missing, errors, strict=True):
            if error is not None:
                print(f"[set-up] error: {error}", file=sys.stderr)
                if step.required:
                    return 1
                say(f"going on without: {step.name}")
                continue
            done[step.name] = step.key
            if dev:
                done["dev"] = "yes"
            record(done)
            say(f"{step.name}: {step.seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
