"""The images: how large, what is in them and what is not, and how long a change takes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from specnav.paths import ROOT
from tests.docker.live.engine import HARDENED, build, docker, inspected

LARGEST_GB = 1.6
TOOLS = ("gcc", "g++", "make", "cmake", "pip", "git")


@pytest.mark.skipif(
    "+cpu" not in os.environ.get("TORCH", ""), reason="the bound is for torch's builds for CPUs"
)
def test_the_cloud_image_is_small(cloud: str) -> None:
    assert int(inspected(cloud, "{{.Size}}")) < LARGEST_GB * 1e9


@pytest.mark.parametrize("image", ["cloud", "robot"])
def test_an_image_holds_no_tools_no_caches_and_no_tests(image: str, request: pytest.FixtureRequest) -> None:
    tag = request.getfixturevalue(image)
    look = f"""
import pathlib, shutil, sysconfig
site = pathlib.Path(sysconfig.get_path("platlib"))
print([name for name in {TOOLS} if shutil.which(name)])
print([str(path) for path in (*site.glob("**/tests"), *site.glob("torch/test"), *site.glob("torch/include"))][:5])
places = ("/root/.cache", "/home/specnav/.cache", "/var/lib/apt/lists")
print([str(path) for place in places for path in pathlib.Path(place).glob("*")])
print([str(path) for path in pathlib.Path("/opt/specnav").glob("*") if path.name in ("tests", ".git", "runs", ".venv")])
"""
    done = docker("run", "--rm", "--user", "0", "--entrypoint", "python", tag, "-c", look)
    assert done.stdout.split("\n")[:4] == ["[]"] * 4


@pytest.mark.parametrize("image", ["cloud", "fleet", "robot"])
def test_an_image_says_what_it_is_and_does_not_run_as_root(
    image: str, request: pytest.FixtureRequest
) -> None:
    tag = request.getfixturevalue(image)
    labels = json.loads(inspected(tag, "{{json .Config.Labels}}"))
    named = {name.removeprefix("org.opencontainers.image."): text for name, text in labels.items()}
    assert set(named) >= {"title", "version", "revision", "source", "licenses"}
    assert (
        named["licenses"] == "Apache-2.0"
        and f'\nversion = "{named["version"]}"\n' in (ROOT / "pyproject.toml").read_text()
    )
    assert inspected(tag, "{{.Config.User}}").split(":")[0] == "10001"


@pytest.mark.parametrize("buildkit", [False, True], ids=["without BuildKit", "with BuildKit"])
def test_a_changed_line_is_built_within_a_minute(buildkit: bool, request, tmp_path: Path, figure) -> None:
    """In the package that most others import."""
    request.getfixturevalue("fleet" if buildkit else "cloud")
    files = (
        subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
        .stdout.decode()
        .split("\0")
    )
    for name in filter(None, files):
        if (ROOT / name).exists():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tmp_path / name, follow_symlinks=False)
    changed = tmp_path / "specdec/options.py"
    changed.write_text(changed.read_text() + "\nCHANGED = 7\n")
    more = ["EXTRAS=fleet,api"] if buildkit else []
    tag = f"specnav-changed-{int(buildkit)}"
    took = build(tag, str(tmp_path / "docker/cloud.Dockerfile"), *more, buildkit=buildkit, context=tmp_path)
    try:
        done = docker(
            "run", "--rm", *HARDENED, tag, "python", "-c", "import specdec.options as o; print(o.CHANGED)"
        )
    finally:
        docker("rmi", "-f", tag, check=False)
    assert done.stdout == "7\n" and took < 60
    figure(f"a changed line of specdec: built in {took:.1f} s {'with' if buildkit else 'without'} BuildKit")


def test_the_layers_of_the_cloud_image(cloud: str, figure) -> None:
    """From what changes least to what changes most; the code is in the last ones and small."""
    rows = docker("history", "--no-trunc", "--format", "{{.Size}}\t{{.CreatedBy}}", cloud).stdout.splitlines()
    layers = [tuple(row.split("\t", 1)) for row in rows if not row.startswith("0B")]
    for size, made in layers[::-1]:
        figure(f"  {size:>8}  {' '.join(made.replace('/bin/sh -c #(nop) ', '').split())[:90]}")
    at = [place for place, (_, made) in enumerate(layers) if "/opt/venv" in made and "COPY" in made]
    assert at and all("GB" not in size for size, _ in layers[: at[0]])


def test_the_robot_s_nodes_and_the_simulator_start_in_its_image(robot: str) -> None:
    program = (
        "import spec_vlm_nav.ros.nodes.motion_node, navsim.ros_node, mujoco; from navsim.simulation import *; "
        "from navsim.headless import *; print('ok')"
    )
    done = docker("run", "--rm", *HARDENED, "-e", "MUJOCO_GL=egl", robot, "python", "-c", program)
    assert done.stdout.endswith("ok\n")


def test_the_robot_image_without_a_ros2_command_says_so_in_one_line(robot: str) -> None:
    done = docker("run", "--rm", *HARDENED, robot, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "ros2" in done.stderr
