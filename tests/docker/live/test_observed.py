"""Prometheus beside a verifier: it reads the figures, knows the rules, and answers the queries of the dashboard."""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from specnav.paths import ROOT
from tests.docker.live.engine import Project, base, docker, wait_until

OBSERVE = ROOT / "docker/observe"


def asked(port: str, path: str, **query: str) -> Any:
    """What Prometheus answers."""
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=10) as reply:
        return json.load(reply)["data"]


@pytest.fixture(scope="module")
def grafana(engine) -> Iterator[str]:
    """A stand-in for Grafana's image: it says what the password file holds, and stays."""
    tag, script = (
        "specnav-grafana-stand-in",
        "echo password: $(cat $GF_SECURITY_ADMIN_PASSWORD__FILE); exec sleep 600",
    )
    lines = (
        f"FROM {base()}",
        f"RUN printf '#!/bin/sh\\n%s\\n' '{script}' > /run.sh && chmod 755 /run.sh"
        " && mkdir /var/lib/grafana && chown 472 /var/lib/grafana",
        "USER 472",
    )
    docker("build", "-q", "-t", tag, "-", input="\n".join(lines))
    yield tag
    docker("rmi", "-f", tag, check=False)


@pytest.fixture(scope="module")
def observed(cloud: str, prometheus: str, grafana: str) -> Iterator[tuple[Project, str]]:
    """compose.yaml's verifier and what observes it; the port of Prometheus."""
    import socket

    ports = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(str(probe.getsockname()[1]))
    given = {"PROMETHEUS_IMAGE": prometheus, "GRAFANA_IMAGE": grafana}
    given |= {"PROMETHEUS_PORT": ports[0], "GRAFANA_PORT": ports[1]}
    with Project("compose.yaml", "compose.observe.yaml", **given) as project:
        project.compose("up", "-d", "--no-build", "cloud", "prometheus", "grafana")
        wait_until("Prometheus is healthy", lambda: project.service("prometheus").health == "healthy", 90)
        yield project, ports[0]


def test_prometheus_reads_the_verifier(observed: tuple[Project, str], figure) -> None:
    project, port = observed
    wait_until(
        "the verifier is up",
        lambda: [r["value"][1] for r in asked(port, "query", query="up")["result"]] == ["1"],
        90,
    )
    figure(f"memory of Prometheus: {project.service('prometheus').memory_mb:.0f} MB")


def test_the_rules_are_loaded_and_none_fires(observed: tuple[Project, str]) -> None:
    groups = asked(observed[1], "rules")["groups"]
    rules = {rule["name"]: rule for group in groups for rule in group["rules"]}
    written = yaml.safe_load((OBSERVE / "alerts.yml").read_text())["groups"]
    assert set(rules) == {rule["alert"] for group in written for rule in group["rules"]}
    assert all(rule["health"] in ("ok", "unknown") and rule["state"] != "firing" for rule in rules.values())


def test_every_query_of_the_dashboard_is_answered(observed: tuple[Project, str]) -> None:
    project, port = observed
    ask = ("specnav", "generate", "hello", "--connect", "tcp://cloud:5555", "--max-new-tokens", "24")
    for _ in range(2):
        docker("run", "--rm", "--network", f"{project.name}_cloud", "specnav-cloud", *ask)
        time.sleep(6)  # two scrapes: rates need both
    dashboard = json.loads((OBSERVE / "dashboards/verifier.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    full = {}
    for query in queries:
        words = query.replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$client", ".*")
        full[query] = bool(asked(port, "query", query=words)["result"])
    assert len(queries) > 15 and sum(full.values()) > 0.7 * len(queries), [
        q for q, found in full.items() if not found
    ]


def test_the_password_of_grafana_is_made_at_its_first_start_and_kept(observed: tuple[Project, str]) -> None:
    grafana = observed[0].service("grafana")
    grafana.wait_for("password: ")
    first = grafana.log.split()[-1]
    docker("restart", "-t", "1", grafana.name)
    wait_until("it says it again", lambda: grafana.log.count("password: ") == 2)
    assert len(first) >= 32 and grafana.log.split() == ["password:", first] * 2
    assert grafana.run("stat", "-c", "%a", "/var/lib/grafana/admin-password").stdout == "600\n"
