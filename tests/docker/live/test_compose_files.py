"""What Compose makes of the files, and what it says about what they lack, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docker.live.engine import Project, docker

ROBOT = {"VERIFIER": "tcp://192.0.2.1:5555", "INTERFACE": "eth0", "KEY": "/nowhere/robot-1.key"}


@pytest.mark.parametrize(
    "files",
    [
        ("compose.yaml",),
        ("compose.yaml", "compose.gpu.yaml"),
        ("compose.yaml", "compose.observe.yaml"),
        ("compose.observe.yaml",),
        ("compose.fleet.yaml",),
        ("compose.robot.yaml",),
    ],
    ids="+".join,
)
def test_compose_takes_the_files_and_every_service_is_hardened_in_what_it_understands(files: tuple[str, ...]) -> None:
    services = Project(*files, **ROBOT).settings()["services"]
    assert services
    for one in services.values():
        assert one["read_only"] and one["cap_drop"] == ["ALL"] and one["security_opt"] == ["no-new-privileges:true"]
        assert int(one["mem_limit"]) > 0 and int(one["pids_limit"]) > 0 and "privileged" not in one
        assert all(port["host_ip"] == "127.0.0.1" for port in one.get("ports", ()))


@pytest.mark.parametrize("name", list(ROBOT))
def test_what_a_robot_needs_and_was_not_given_is_asked_for_in_one_line(name: str) -> None:
    given = {key: value for key, value in ROBOT.items() if key != name} | {name: ""}
    done = Project("compose.robot.yaml", **given).compose("config", check=False)
    assert done.returncode != 0 and done.stderr.count("\n") == 1 and name in done.stderr


def test_a_key_file_that_is_not_there_is_said_and_not_made(robot: str, tmp_path: Path) -> None:
    """Docker would make a folder in its place, which a verifier then refuses in words about a folder."""
    missing = tmp_path / "robot-1.key"
    docker("tag", robot, "specnav-robot")
    try:
        with Project("compose.robot.yaml", **{**ROBOT, "KEY": str(missing)}) as project:
            done = project.compose("create", "--no-build", check=False)
    finally:
        docker("rmi", "specnav-robot", check=False)
    assert done.returncode != 0 and f"{missing}" in done.stderr.splitlines()[-1]
    assert not missing.exists()
