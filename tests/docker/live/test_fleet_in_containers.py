"""compose.fleet.yaml: a fleet that answers with a key, is closed without Ray's token, and survives a killed node."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.docker.live.engine import Project, docker, wait_until

WORDS = {
    "messages": [{"role": "user", "content": "Tell me a story about the sea"}],
    "max_tokens": 60,
    "temperature": 0,
}


class Fleet:
    """The project, its API and a key for it."""

    def __init__(self, project: Project, port: str, prometheus_port: str) -> None:
        self.project, self.port, self.prometheus_port = project, port, prometheus_port
        made = project.service("edge").run(
            "specnav", "api", "--new-key", "laptop", "--api-keys", "/edge/api.keys"
        )
        self.key = made.stdout.split()[-1]

    def asked(self, path: str, body: dict[str, Any] | None = None, key: str = "") -> Any:
        """What the API at the edge answers."""
        headers = {"Authorization": f"Bearer {key or self.key}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/{path}", data, headers)
        with urllib.request.urlopen(request, timeout=120) as reply:
            return json.load(reply)

    def answer(self) -> str:
        """Of a chat."""
        model = self.asked("models")["data"][0]["id"]
        return str(
            self.asked("chat/completions", {"model": model, **WORDS})["choices"][0]["message"]["content"]
        )

    def ready(self) -> int:
        """Replicas that serve, as the directory says."""
        done = self.project.service("directory").run(
            "specnav", "fleet", "status", "--state", "/fleet", "--json", check=False
        )
        try:
            return sum(one["state"] == "ready" for one in json.loads(done.stdout)["replicas"])
        except (ValueError, KeyError):
            return 0


@pytest.fixture(scope="module")
def running(fleet: str, prometheus: str, figure) -> Iterator[Fleet]:
    """All of it but Grafana, whose image cannot be had everywhere."""
    ports = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(str(probe.getsockname()[1]))
    given = {"API_PORT": ports[0], "PROMETHEUS_PORT": ports[1], "PROMETHEUS_IMAGE": prometheus}
    with Project("compose.fleet.yaml", **given) as project:
        began = time.monotonic()
        services = ("head", "replica", "directory", "edge", "prometheus")
        project.compose("up", "-d", "--no-build", *services, timeout_s=400)
        wait_until("the edge is healthy", lambda: project.service("edge").health == "healthy", 120)
        figure(f"fleet: the edge is healthy after {time.monotonic() - began:.0f} s")
        names = [(name, 1) for name in services] + [("replica", 2)]
        figure(
            "fleet memory: "
            + ", ".join(f"{name} {project.service(name, n).memory_mb:.0f} MB" for name, n in names)
        )
        yield Fleet(project, *ports)


def test_the_api_at_the_edge_answers_with_a_key_and_not_without(running: Fleet) -> None:
    assert running.answer().strip()
    with pytest.raises(urllib.error.HTTPError, match="401"):
        running.asked("models", key="wrong")


def test_who_has_no_token_gets_nothing_from_ray(running: Fleet) -> None:
    program = "import ray; ray.init('head:6379', log_to_driver=False)"
    bare = ("-e", "RAY_AUTH_MODE=", "-e", "RAY_AUTH_TOKEN_PATH=")
    network = f"{running.project.name}_default"
    done = docker(
        "run", "--rm", "--network", network, "--shm-size=128m", *bare, "specnav-cloud-fleet", "python", "-c", program,
        check=False,
    )  # fmt: skip
    assert done.returncode != 0
    head = running.project.service("head")
    assert head.run("stat", "-c", "%a %u", "/ray/token").stdout == "600 10001\n"
    assert running.project.service("edge").run("ls", "/ray/token", check=False).returncode != 0


def test_prometheus_finds_directory_and_replicas(running: Fleet) -> None:
    def up() -> set[tuple[str, str]]:
        url = f"http://127.0.0.1:{running.prometheus_port}/api/v1/query?query=up"
        with urllib.request.urlopen(url, timeout=5) as reply:
            rows = json.load(reply)["data"]["result"]
        return {(row["metric"]["job"], row["metric"]["instance"]) for row in rows if row["value"][1] == "1"}

    wait_until(
        "one directory and two replicas are up",
        lambda: sorted(job for job, _ in up()) == ["directory", "verifier", "verifier"],
        60,
    )


def test_a_node_that_is_killed_in_the_middle_of_answers_changes_none(running: Fleet, figure) -> None:
    right, answers, over = running.answer(), [], threading.Event()

    def keep_asking() -> None:
        while not over.is_set():
            answers.append(running.answer())

    threads = [threading.Thread(target=keep_asking) for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(3)
    victim = running.project.service("replica", 1)
    docker("kill", "-s", "KILL", victim.name)
    began = time.monotonic()
    time.sleep(8)
    docker("start", victim.name)
    back = wait_until("two replicas are ready again", lambda: running.ready() == 2, 150)
    over.set()
    for thread in threads:
        thread.join(120)
    assert len(answers) > 4 and set(answers) == {right}
    figure(f"a killed node: two replicas ready {back + 8:.0f} s later; {len(answers)} answers meanwhile, all the same, "
           f"{time.monotonic() - began:.0f} s")  # fmt: skip
