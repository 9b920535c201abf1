"""Containers that are built and run: `make test-docker`, which starts a Docker engine where there is none."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator

import pytest

from tests.docker.live.engine import CLOUD, FLEET, PROMETHEUS, ROBOT, Place, build, docker, inspected

FIGURES: list[str] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that is here needs an engine."""
    for item in items:
        if "tests/docker/live" in str(item.path):
            item.add_marker(pytest.mark.docker)
            item.add_marker(pytest.mark.timeout(1800 if "images" in str(item.path) else 400))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was measured on the way."""
    for line in FIGURES:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session", autouse=True)
def engine() -> None:
    """An engine with Compose answers; skips with a line where there is none."""
    if shutil.which("docker") is None:
        pytest.skip("no Docker here: make test-docker starts an engine where it can")
    if docker("version", check=False).returncode:
        pytest.skip("no Docker engine answers: make test-docker starts one where it can")
    if docker("compose", "version", check=False).returncode:
        pytest.skip("Docker has no Compose v2 here: install its plugin docker-compose")


@pytest.fixture(scope="session")
def figure() -> Callable[[str], None]:
    """Notes a measured figure, shown at the end."""
    return FIGURES.append


def _built(tag: str, file: str, *more: str, buildkit: bool = True) -> str:
    seconds = build(tag, file, *more, buildkit=buildkit)
    size = int(inspected(tag, "{{.Size}}")) / 1e9
    FIGURES.append(f"{tag}: {size:.2f} GB, built in {seconds:.0f} s {'with' if buildkit else 'without'} BuildKit")
    return tag


@pytest.fixture(scope="session")
def cloud(engine: None) -> str:
    """The cloud image, built without BuildKit."""
    return _built(CLOUD, "docker/cloud.Dockerfile", buildkit=False)


@pytest.fixture(scope="session")
def fleet(engine: None) -> str:
    """The cloud image with what a fleet and its edge take, built with BuildKit."""
    return _built(FLEET, "docker/cloud.Dockerfile", "EXTRAS=fleet,api")


@pytest.fixture(scope="session")
def robot(engine: None) -> str:
    """The robot image with the simulator, on plain Debian."""
    on = [f"{name}={os.environ[name]}" for name in ("BUILD_BASE",) if name in os.environ]
    on += [f"ROBOT_BASE={os.environ.get('BASE', 'debian:bookworm-slim')}"]
    return _built(ROBOT, "docker/robot.Dockerfile", "ROS_FROM=wheels", "WITH_SIM=1", "WITH_UNITREE=0", *on)


@pytest.fixture(scope="session")
def prometheus(engine: None) -> str:
    """Debian's Prometheus."""
    seconds = build(PROMETHEUS, "docker/prometheus.Dockerfile", context="docker/observe")
    FIGURES.append(f"{PROMETHEUS}: built in {seconds:.0f} s")
    return PROMETHEUS


@pytest.fixture
def place() -> Iterator[Place]:
    """A network with what a test starts in it."""
    with Place() as made:
        yield made


@pytest.fixture
def port() -> str:
    """A free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])
