"""The docker command as these tests use it: containers, networks and Compose projects that end with their test."""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from specnav.paths import ROOT

CLOUD, FLEET, ROBOT, PROMETHEUS = (
    "specnav-cloud",
    "specnav-cloud-fleet",
    "specnav-robot-sim",
    "specnav-prometheus",
)
TARGET, PROMPT = "default_models/text-target", "Tell me a story about the sea"
HARDENED = (
    "--read-only",
    "--tmpfs=/tmp",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--memory=2g",
)
"""What common.yaml allows every service."""


class DockerFailed(Exception):
    """A docker command ended with another exit code than 0; the message is what it said."""


def docker(
    *words: str, timeout_s: float = 120, check: bool = True, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run it; its output is text. Raises DockerFailed."""
    done = subprocess.run(
        ["docker", *words], text=True, capture_output=True, timeout=timeout_s, cwd=ROOT, **more
    )
    if check and done.returncode:
        raise DockerFailed(
            f"docker {' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return done


def base() -> str:
    """The image that the others stand on."""
    return os.environ.get("BASE", "debian:bookworm-slim")


def build_arguments() -> list[str]:
    """Of `docker build`: bases and torch, as the environment says."""
    names = [name for name in ("BASE", "BUILD_BASE", "TORCH", "TORCH_INDEX") if name in os.environ]
    return [word for name in names for word in ("--build-arg", name)]


def build(tag: str, file: str, *more: str, buildkit: bool = True, context: Path | str = ROOT) -> float:
    """Build an image; returns how long that took, s."""
    began = time.monotonic()
    arguments = [*build_arguments(), *(word for one in more for word in ("--build-arg", one))]
    environment = {**os.environ, "DOCKER_BUILDKIT": str(int(buildkit))}
    docker("build", "-q", "-f", file, "-t", tag, *arguments, str(context), timeout_s=1500, env=environment)
    return time.monotonic() - began


def wait_until(what: str, true: Callable[[], object], timeout_s: float = 30.0) -> float:
    """Wait for it; returns how long that took, s."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < timeout_s, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.1)
    return time.monotonic() - began


def inspected(name: str, template: str) -> str:
    """What `docker inspect` says of a container or an image."""
    return docker("inspect", "-f", template, name).stdout.strip()


class Container:
    """One that runs, or has ended."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def log(self) -> str:
        """All that it has said so far, stdout and stderr."""
        done = docker("logs", self.name)
        return done.stdout + done.stderr

    def events(self, name: str) -> list[dict[str, Any]]:
        """Lines of a verifier's log about one event."""
        rows = [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]
        return [row for row in rows if row.get("event") == name]

    def wait_for(self, words: str, timeout_s: float = 60.0) -> float:
        """Until its log says so."""
        return wait_until(f"{self.name} says {words!r}", lambda: words in self.log, timeout_s)

    def ended(self, timeout_s: float = 60.0) -> int:
        """Wait for its end; returns its exit code."""
        return int(docker("wait", self.name, timeout_s=timeout_s).stdout)

    def run(
        self, *words: str, check: bool = True, timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """A command inside of it."""
        return docker("exec", self.name, *words, check=check, timeout_s=timeout_s)

    @property
    def health(self) -> str:
        """starting, healthy or unhealthy."""
        return inspected(self.name, "{{.State.Health.Status}}")

    @property
    def memory_mb(self) -> float:
        """In use now."""
        said = (
            docker("stats", "--no-stream", "--format", "{{.MemUsage}}", self.name)
            .stdout.split("/")[0]
            .strip()
        )
        number = float(said.rstrip("BGMKib"))
        return number * {"K": 1e-3, "M": 1.0, "G": 1e3}[said.rstrip("iB")[-1]] * 1.048576


class Place:
    """Networks, volumes and containers of one test, gone when it ends."""

    def __init__(self) -> None:
        self.mark = f"specnav-test-{uuid.uuid4().hex[:8]}"
        self._stack = ExitStack()

    def __enter__(self) -> Place:
        docker("network", "create", self.mark)
        self._stack.callback(docker, "network", "rm", self.mark, check=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def volume(self, name: str, *options: str) -> str:
        """A new volume; returns its name. options: of Docker's driver `local`, such as type=tmpfs."""
        volume = f"{self.mark}-{name}"
        docker("volume", "create", *(word for one in options for word in ("--opt", one)), volume)
        self._stack.callback(docker, "volume", "rm", "-f", volume, check=False)
        return volume

    def start(
        self,
        name: str,
        image: str,
        *command: str,
        options: Sequence[str] = HARDENED,
        beside: Container | None = None,
    ) -> Container:
        """A container in the background, reached by `name`; or with the network of the one beside it."""
        full = f"{self.mark}-{name}"
        network = ("--network", self.mark, "--network-alias", name)
        if beside is not None:
            network = ("--network", f"container:{beside.name}")
        self._stack.callback(docker, "rm", "-f", "-v", full, check=False)
        docker("run", "-d", "--init", "--name", full, *network, *options, image, *command)
        return Container(full)

    def run(
        self,
        image: str,
        *command: str,
        options: Sequence[str] = HARDENED,
        timeout_s: float = 120,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """A container until it ends."""
        words = ("run", "--rm", "--init", "--network", self.mark, *options, image, *command)
        return docker(*words, timeout_s=timeout_s, check=check)

    def cut(self, container: Container) -> None:
        """Take its network away."""
        docker("network", "disconnect", self.mark, container.name)

    def mend(self, container: Container, name: str) -> None:
        """Give it back."""
        docker("network", "connect", "--alias", name, self.mark, container.name)


class Project:
    """What a Compose file starts, under a name of its own; nothing of it is left afterwards."""

    def __init__(self, *files: str, **environment: str) -> None:
        self.name = f"specnav-test-{uuid.uuid4().hex[:8]}"
        self._files = [word for file in files for word in ("-f", f"docker/{file}")]
        self._environment: Mapping[str, str] = {**os.environ, "DOCKER_BUILDKIT": "1", **environment}

    def __enter__(self) -> Project:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            print(self.compose("logs", "--tail", "30", check=False).stdout[-8000:])
        self.compose("down", "-v", "-t", "3", "--remove-orphans", check=False)

    def compose(
        self, *words: str, timeout_s: float = 300, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """docker compose … with the project's files. Raises DockerFailed."""
        return docker(
            "compose",
            "-p",
            self.name,
            *self._files,
            *words,
            timeout_s=timeout_s,
            check=check,
            env=self._environment,
        )

    def service(self, name: str, number: int = 1) -> Container:
        """One of its containers."""
        return Container(f"{self.name}-{name}-{number}")

    def settings(self) -> dict[str, Any]:
        """The files, as Compose understands them."""
        return dict(json.loads(self.compose("config", "--format", "json").stdout))
