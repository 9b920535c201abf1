"""`docker compose up` as a way in: a person types an instruction into the page, and the simulated robot obeys."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator

import pytest

from tests.docker.live.engine import Project, docker, inspected, wait_until
from tests.graph.browser import Browser, Tab, chromium

INSTRUCTION = "find the red table"


@pytest.fixture(scope="module")
def port() -> str:
    """A free port, the same for all tests of the file."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.fixture(scope="module")
def stack(cloud: str, robot: str, port: str, figure) -> Iterator[Project]:
    """All of compose.yaml, healthy."""
    with Project("compose.yaml", PORT=port) as project:
        began = time.monotonic()
        project.compose("up", "-d", "--no-build")
        healthy = [project.service(name) for name in ("cloud", "link", "robot")]
        wait_until("everything is healthy", lambda: all(one.health == "healthy" for one in healthy), 120)
        figure(f"compose up: healthy after {time.monotonic() - began:.0f} s")
        figure("memory: " + ", ".join(f"{one.name.split('-')[-2]} {one.memory_mb:.0f} MB" for one in healthy))
        yield project


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real one."""
    chromium()
    with Browser() as opened:
        yield opened


@pytest.fixture
def page(stack: Project, browser: Browser, port: str) -> Iterator[Tab]:
    """The operator's page."""
    tab = browser.tab(f"http://localhost:{port}/")
    tab.wait_text("#link", "connected", 20)
    yield tab
    tab.key("Escape")
    tab.wait_text("#stands", "the robot stands", 20)
    tab.close()


def told(tab: Tab, words: str) -> float:
    """Type an instruction; returns when the robot moved."""
    began = time.monotonic()
    tab.type("#instruction", words)
    tab.key("Enter")
    tab.wait("document.querySelector('#stands').textContent.includes('MOVES')", 60)
    return time.monotonic() - began


def test_an_instruction_typed_into_the_page_is_obeyed(page: Tab, figure) -> None:
    took = told(page, INSTRUCTION)
    figure(f"from the typed instruction to the robot's motion: {took:.1f} s")
    page.wait_text("#log", f"“{INSTRUCTION}”")
    page.wait(
        "document.querySelectorAll('#decisions .tokens .own').length > 3", 90
    )  # the verifier's own tokens
    assert (
        page.run("document.querySelectorAll('#decisions .tokens .drafted, #decisions .tokens .ahead').length")
        > 0
    )
    page.wait("Number(document.querySelector('#camera').dataset.frames) > 10", 60)
    assert page.said == []


def test_without_the_verifier_s_network_the_robot_stops_and_with_it_it_goes_on(
    stack: Project, page: Tab, figure
) -> None:
    told(page, "find the silver bottle")
    cloud = stack.service("cloud")
    docker("network", "disconnect", f"{stack.name}_cloud", cloud.name)
    cut = time.monotonic()
    page.wait_text("#stands", "the robot stands", 20)
    figure(f"the robot stands {time.monotonic() - cut:.1f} s after the verifier's network was taken away")
    time.sleep(max(0.0, cut + 6 - time.monotonic()))
    docker("network", "connect", "--alias", "cloud", f"{stack.name}_cloud", cloud.name)
    back = time.monotonic()
    page.wait("document.querySelector('#stands').textContent.includes('MOVES')", 60)
    figure(f"and moves again {time.monotonic() - back:.1f} s after its return")


def test_a_verifier_that_was_killed_is_found_again(stack: Project, page: Tab) -> None:
    told(page, "find the silver bottle")
    cloud = stack.service("cloud")
    docker("kill", "-s", "KILL", cloud.name)
    page.wait_text("#stands", "the robot stands", 20)
    docker("start", cloud.name)
    page.wait("document.querySelector('#stands').textContent.includes('MOVES')", 90)


def test_only_the_page_is_on_the_host_and_only_on_its_loopback(stack: Project, port: str) -> None:
    ports = {
        name: inspected(stack.service(name).name, "{{json .NetworkSettings.Ports}}")
        for name in ("cloud", "link", "robot")
    }
    published = [
        (name, one)
        for name, text in ports.items()
        for bound in json.loads(text).values()
        for one in bound or ()
    ]
    assert published == [("robot", {"HostIp": "127.0.0.1", "HostPort": port})]


def test_a_page_of_another_site_may_not_speak_to_the_robot(stack: Project, port: str) -> None:
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "http://evil.example:80", "Host": "evil.example:80"},
    ):
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/stop", b"", headers, method="POST")
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(asked, timeout=5)


def test_the_robot_reaches_the_verifier_through_the_emulator_alone(stack: Project) -> None:
    robot = stack.service("robot")
    reach = "import socket; socket.create_connection(('{}', 5555), 3)"
    assert robot.run("python", "-c", reach.format("link")).returncode == 0
    assert robot.run("python", "-c", reach.format("cloud"), check=False).returncode == 1


def test_a_port_in_use_is_said_with_its_number(stack: Project, port: str) -> None:
    with Project("compose.yaml", PORT=port) as other:
        other.compose("create", "--no-build")
        done = docker("start", other.service("robot").name, check=False)
        assert done.returncode != 0 and port in done.stderr


def test_the_robot_s_container_stops_by_itself_when_it_is_told_to(stack: Project, figure) -> None:
    robot = stack.service("robot")
    began = time.monotonic()
    docker("stop", "-t", "20", robot.name)
    took = time.monotonic() - began
    assert robot.ended() == 0, robot.log
    figure(f"docker stop of the robot took {took:.1f} s")
