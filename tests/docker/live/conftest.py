"""Containers that are built and run: `make test-docker`, which starts a Docker engine where there is none."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from specnav.paths import ROOT
from tests.docker.live.engine import (
    CLOUD,
    FLEET,
    PROMETHEUS,
    PROMPT,
    ROBOT,
    TARGET,
    Place,
    base,
    build,
    docker,
    inspected,
)

FIGURES: list[str] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that is here needs an engine."""
    for item in items:
        if "tests/docker/live" in str(item.path):
            item.add_marker(pytest.mark.docker)
            item.add_marker(pytest.mark.timeout(1800))  # the first ones wait for images
    # Those of the image that is there first: the others are built meanwhile.
    items.sort(key=lambda item: item.path.name != "test_verifier_in_a_container.py")


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


ON_DEBIAN = ("ROS_FROM=wheels", "WITH_SIM=1", "WITH_UNITREE=0", f"ROBOT_BASE={base()}")
BUILDS: dict[str, Callable[[], float]] = {
    "cloud": lambda: build(CLOUD, "docker/cloud.Dockerfile", buildkit=False),
    "robot": lambda: build(ROBOT, "docker/robot.Dockerfile", *ON_DEBIAN),
    "fleet": lambda: build(FLEET, "docker/cloud.Dockerfile", "EXTRAS=fleet,api"),
    "prometheus": lambda: build(PROMETHEUS, "docker/prometheus.Dockerfile", context="docker/observe"),
}
"""By the fixture that wants it. The cloud image without BuildKit, and with it the one that has what a fleet takes."""
TAGS = {"cloud": CLOUD, "robot": ROBOT, "fleet": FLEET, "prometheus": PROMETHEUS}
AT_ONCE = 2


@pytest.fixture(scope="session")
def builds(engine: None, request: pytest.FixtureRequest) -> Iterator[dict[str, Future[float]]]:
    """Every image that a test of this run wants, on its way: they are built beside the first tests."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    wanted = {name for item in items for name in item.fixturenames}
    wanted |= {
        value for item in items if hasattr(item, "callspec") for value in item.callspec.params.values()
    }
    if "buildkit" in wanted:
        wanted |= {"cloud", "fleet"}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(made) for name, made in BUILDS.items() if name in wanted}


def _built(name: str, builds: dict[str, Future[float]]) -> str:
    seconds, tag = builds[name].result(), TAGS[name]
    size = int(inspected(tag, "{{.Size}}")) / 1e9
    FIGURES.append(
        f"{tag}: {size:.2f} GB, built in {seconds:.0f} s {'without' if name == 'cloud' else 'with'} BuildKit"
    )
    return tag


@pytest.fixture(scope="session")
def cloud(builds: dict[str, Future[float]]) -> str:
    """The cloud image."""
    return _built("cloud", builds)


@pytest.fixture(scope="session")
def fleet(builds: dict[str, Future[float]]) -> str:
    """The cloud image with what a fleet and its edge take."""
    return _built("fleet", builds)


@pytest.fixture(scope="session")
def robot(builds: dict[str, Future[float]]) -> str:
    """The robot image with the simulator, on plain Debian."""
    return _built("robot", builds)


@pytest.fixture(scope="session")
def prometheus(builds: dict[str, Future[float]]) -> str:
    """Debian's Prometheus."""
    return _built("prometheus", builds)


@pytest.fixture(scope="session")
def answer() -> str:
    """What the target says to PROMPT, in 60 tokens, without a container, a link or a draft."""
    program = f"""
from specdec.models import chat_prompt, load_model
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
model = load_model({TARGET!r})
print(model.tokenizer.decode(generate_local(model, chat_prompt(model, {PROMPT!r}), GenerationOptions(60))), end="")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


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
