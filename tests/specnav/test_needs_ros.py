"""Commands that need ROS say in one line that it is missing or does not load, and what to do; they leave nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from specnav.doctor import machine
from specnav.paths import ROOT

pytestmark = pytest.mark.slow

COMMANDS = """
import contextlib, io, sys
from specnav.cli.app import main

BAG = sys.argv[1]
for words in (
    "demo --headless --episodes 1 --out demo", "demo --console --port 0 --out console", "drill --list",
    "drill --runs 1 --out drill", "mission run forward", "mission run forward --demo --out mission",
    "mission order show", f"play {BAG}", "record --out walk.mcap", "calibrate --yes", "doctor --robot",
):
    sys.argv = ["specnav", *words.split()]
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as end:
            print(end.code, words.split()[0], said.getvalue().count("\\n"), said.getvalue(), end="")
"""
BAG = ROOT / "tests/data/rooms.mcap"


def run_all(folder: Path, rclpy: str) -> list[list[str]]:
    """Exit code, command, number of lines and the line, of each command. rclpy: code of the one that is found."""
    (folder / "fake/rclpy").mkdir(parents=True)
    (folder / "fake/rclpy/__init__.py").write_text(rclpy)
    (folder / "run").mkdir()
    path = os.pathsep.join([str(folder / "fake"), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, str(BAG)],
        capture_output=True, text=True, timeout=120, cwd=folder / "run", env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not list((folder / "run").iterdir())
    return [line.split(" ", 3) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("rclpy", "said"),
    [
        ("raise ModuleNotFoundError(\"No module named 'rclpy'\")", "needs ROS 2 (rclpy): source an installation"),
        ("raise ImportError('librcl.so: cannot open\\nsee a page')", "do not load (librcl.so: cannot open see a page)"),
        ("raise RuntimeError('no type support')", "do not load (no type support): source an installation"),
        ("import ctypes; ctypes.CDLL('librcl_nowhere.so')", "do not load (librcl_nowhere.so: cannot open"),
    ],
)
def test_without_a_sound_rclpy_each_command_is_refused_in_one_line(rclpy: str, said: str, tmp_path: Path) -> None:
    told = run_all(tmp_path, rclpy)
    assert len(told) == 11
    for code, command, lines, words in told:
        assert (code, lines) == ("1", "1") and words.startswith("specnav: error: ") and said in words, command


def test_the_doctor_tells_of_an_rclpy_that_ends_the_process_that_loads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "[ERROR] [1795813023.398787544] [rcl]: Expected RMW implementation identifier of 'x'"
    done = subprocess.CompletedProcess([sys.executable], 102, "", f"{line}\n\n")
    monkeypatch.setattr(machine.subprocess, "run", lambda *_, **__: done)
    found = machine.check_ros()
    assert (found.status, found.detail) == ("missing", "Expected RMW implementation identifier of 'x'")


def test_ros_that_does_not_start_is_one_line() -> None:
    pytest.importorskip("rclpy")
    environment = {**os.environ, "ROS_DOMAIN_ID": "abc", "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-m", "specnav.cli", "mission", "order", "show"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 1 and done.stderr.startswith("specnav: error: ROS 2 does not start: ")
    assert done.stderr.count("\n") == 1 and "ROS_DOMAIN_ID is not an integral number: check" in done.stderr
