# SPDX-License-Identifier: Apache-2.0
"""`specnav doctor`: what this machine can run, and which optional parts are missing and how to install them.

Every check tries the part itself (imports it, renders a frame, reads the model's config) and returns one row; a check
never raises.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Literal

from rich.console import Console
from rich.table import Table

from specnav.paths import MODELS, ROOT

Status = Literal["ok", "missing", "optional"]
_MARK = {"ok": "[green]✓[/]", "missing": "[red]✗[/]", "optional": "[yellow]–[/]"}

_LOG_PREFIX = re.compile(r"(\[[^]]*\] ?)+: ")
"""What ROS writes before a line of its log."""


@dataclass(frozen=True)
class Finding:
    """One row of the report. `needed_for`: commands that do not run without it."""

    name: str
    status: Status
    detail: str
    needed_for: str
    remedy: str = ""


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "present"


def _module(module: str, distribution: str, needed_for: str, remedy: str, optional: bool = False) -> Finding:
    logging.disable(logging.WARNING)  # what a module lacks that is not asked for here
    try:
        importlib.import_module(module)
    except Exception as error:  # a broken native library can raise any error
        status: Status = "optional" if optional else "missing"
        detail = f"{type(error).__name__}: {error}".splitlines()[0][:90]
        return Finding(distribution, status, detail, needed_for, remedy)
    finally:
        logging.disable(logging.NOTSET)
    return Finding(distribution, "ok", _version(distribution), needed_for)


def _tried(code: str, late: str) -> tuple[str, str]:
    """(output, problem) of code run in a child process, which the code may crash. late: the problem after a
    minute.
    """
    try:
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)
    except subprocess.TimeoutExpired:
        return "", late
    if run.returncode < 0:
        return "", f"ended by signal {-run.returncode}"
    last = (run.stderr.strip().splitlines() or [f"exit code {run.returncode}"])[-1]
    return run.stdout, _LOG_PREFIX.sub("", last)[:90] if run.returncode else ""


def check_python() -> Finding:
    """Check for Python 3.10 to 3.13."""
    here = platform.python_version()
    if (3, 10) <= sys.version_info[:2] <= (3, 13):
        return Finding("Python", "ok", here, "everything")
    return Finding("Python", "missing", here, "everything", "use Python 3.10 to 3.13")


def check_torch() -> Finding:
    """Check torch, and the accelerator it sees."""
    finding = _module("torch", "torch", "everything", "make setup")
    if finding.status != "ok":
        return finding
    import torch

    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else f"CPU, {os.cpu_count()} cores"
    return replace(finding, detail=f"{torch.__version__} on {device}")


def check_ros() -> Finding:
    """Check rclpy and its origin, in a child process: a missing middleware ends the process that loads it."""
    needed = "demo, robot nodes"
    remedy = (
        "source /opt/ros/<distro>/setup.bash, then make setup (or x86_64 Linux: make setup installs wheels)"
    )
    _, problem = _tried(
        "try:\n    import rclpy.node\n"
        "except Exception as error:\n    raise SystemExit(f'{type(error).__name__}: {error}'.splitlines()[0])",
        "does not load within 60 s",
    )
    if problem:
        return Finding("rclpy", "missing", problem, needed, remedy)
    origin = f"sourced {os.environ['ROS_DISTRO']}" if os.environ.get("ROS_DISTRO") else "wheels (Kilted)"
    return Finding("ROS 2", "ok", f"rclpy {_version('rclpy')}, {origin}", needed)


def check_rendering() -> Finding:
    """Render one simulator frame in a child process, because a broken GL driver may crash it."""
    name, needed = "MuJoCo camera", "demo, train vlm"
    said, problem = _tried(
        "from navsim.episodes import make_episode; from navsim.world import World; import os\n"
        "e = make_episode(0); w = World(); w.load(e.room); f = w.render(e.start)\n"
        "assert f.std() > 1, 'the frame is empty'\n"
        "print(os.environ.get('MUJOCO_GL', '?'))",
        "no frame within 60 s",
    )
    if problem:
        remedy = "apt-get install libegl1 libgl1-mesa-dri libopengl0 libosmesa6"
        return Finding(name, "missing", problem, needed, remedy)
    return Finding(name, "ok", f"MUJOCO_GL={said.strip()}, one frame rendered", needed)


def check_model(folder: str) -> Finding:
    """Check that a shipped model folder holds a config and weights."""
    path, needed = MODELS / folder, "demo with the default pair"
    weights = list(path.glob("*.safetensors"))
    if not (path / "config.json").exists() or not weights:
        remedy = "git checkout default_models, or specnav train vlm"
        return Finding(folder, "missing", f"{path} has no config.json + *.safetensors", needed, remedy)
    return Finding(folder, "ok", f"{sum(file.stat().st_size for file in weights) / 1e6:.1f} MB", needed)


def check_llama_cpp() -> Finding:
    """Check llama.cpp in a child process: a build for another processor crashes the process that loads it."""
    needed, remedy = "drafts in GGUF files", "make setup-gguf"
    if importlib.util.find_spec("llama_cpp") is None:
        return Finding("llama.cpp", "optional", "not installed", needed, remedy)
    said, problem = _tried(
        "from llama_cpp import llama_cpp as library; import json\n"
        "library.llama_backend_init()\n"
        "print(json.dumps([library.llama_print_system_info().decode(), library.llama_supports_gpu_offload()]))",
        "does not load within 60 s",
    )
    if problem:
        hint = ": built for another processor?" if problem.startswith("ended by signal") else ""
        return Finding("llama.cpp", "optional", problem + hint, needed, remedy)
    features, gpu = json.loads(said.splitlines()[-1])
    found = f"{_version('llama-cpp-python')}, {llama_cpp_features(features)}"
    return Finding("llama.cpp", "ok", f"{found}, {'with' if gpu else 'without'} a GPU", needed)


def llama_cpp_features(told: str) -> str:
    """llama.cpp's build features, without those that others imply: "AVX2 FMA", "CUDA ARCHS=870, NEON"."""
    parts = []
    for section in told.replace("\n", " ").split(" | "):
        name, _, value = section.rpartition("=")
        parts.append((name.rpartition(":")[2].strip(), value.strip()))
    plain = [name if value == "1" else f"{name}={value}" for name, value in parts if name and value != "0"]
    shadowed = {"SSE3", "SSSE3", "AVX", "LLAMAFILE", "OPENMP", "REPACK"}
    return " ".join(name for name in plain if name not in shadowed) or "no features"


CHECKS: tuple[Callable[[], Finding], ...] = (
    check_python,
    check_torch,
    lambda: _module("transformers", "transformers", "everything", "make setup"),
    lambda: _module("zmq", "pyzmq", "everything", "make setup"),
    lambda: _module("cv2", "opencv-python-headless", "robot nodes, demo", "make setup"),
    check_ros,
    lambda: _module(
        "spec_vlm_nav_interfaces.msg",
        "spec_vlm_nav_interfaces",
        "demo, robot nodes",
        "scripts/build_interfaces.py (needs cmake and g++)",
    ),
    check_rendering,
    lambda: check_model("nav-target"),
    lambda: check_model("nav-draft"),
    lambda: _module(
        "bitsandbytes", "bitsandbytes", "--quantize 8bit|4bit", "pip install bitsandbytes", optional=True
    ),
    lambda: _module(
        "qwen_vl_utils",
        "qwen-vl-utils",
        "nothing (used for images when present)",
        "pip install qwen-vl-utils",
        optional=True,
    ),
    lambda: _module(
        "torchvision", "torchvision", "nothing (faster image preparation)", "optional; never needed", optional=True
    ),
    check_llama_cpp,
    lambda: _module("rosbags", "rosbags", "bags", "pip install rosbags", optional=True),
)


def run_doctor(as_json: bool = False) -> int:
    """Print the table (or JSON); returns 0 if everything that the demo needs is installed, else 1."""
    findings = [check() for check in CHECKS]
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        table = Table(title="specnav doctor", title_justify="left")
        for column in ("", "part", "found", "needed for", "how to get it"):
            table.add_column(column, overflow="fold")
        for finding in findings:
            table.add_row(
                _MARK[finding.status], finding.name, finding.detail, finding.needed_for, finding.remedy
            )
        Console().print(table)
        missing = [finding.name for finding in findings if finding.status == "missing"]
        print(
            f"missing: {', '.join(missing)}"
            if missing
            else "everything that the demo needs is installed: run `specnav demo`"
        )
    return 1 if any(finding.status == "missing" for finding in findings) else 0
