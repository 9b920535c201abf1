"""What Prometheus and Grafana ask for is what a verifier exports: names and labels of dashboard and alert rules.

Nothing is started: tests/docker/live does that (make test-docker).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import yaml
from prometheus_client.parser import text_string_to_metric_families

from specnav.paths import ROOT
from specnav.top.run import METRICS
from tests.helpers.made_up_verifier import MadeUpVerifier

OBSERVE = ROOT / "docker/observe"
COMPOSE = yaml.safe_load((ROOT / "docker/compose.observe.yaml").read_text())
SHARED = yaml.safe_load((ROOT / "docker/common.yaml").read_text())["services"]
DASHBOARD = json.loads((OBSERVE / "dashboards/verifier.json").read_text())
RULES = [rule for group in yaml.safe_load((OBSERVE / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
PROMETHEUS = yaml.safe_load((OBSERVE / "prometheus.yml").read_text())
OF_EVERY_TARGET = {"instance", "job"}


def exported() -> dict[str, set[str]]:
    """Samples of a verifier with a client, and the labels of each; `up` is Prometheus' own."""
    found: dict[str, set[str]] = {"up": set()}
    for family in text_string_to_metric_families(MadeUpVerifier("robot-1").text()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def expressions() -> Iterator[str]:
    """All that is asked of Prometheus."""
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (variable["definition"] for variable in DASHBOARD["templating"]["list"])
    yield from (rule["expr"] for rule in RULES)


def selections(expression: str) -> list[tuple[str, str]]:
    """(metric, what stands in its braces) of an expression."""
    return re.findall(r"\b(up|specdec_\w+)\b(?:\{([^}]*)\})?", expression)


def test_dashboard_and_alerts_ask_for_metrics_and_labels_that_a_verifier_exports() -> None:
    names = exported()
    asked = [one for expression in expressions() for one in selections(expression)]
    assert len(asked) > 40
    for name, matchers in asked:
        assert name in names, f"no verifier exports {name}"
        labels = set(re.findall(r"(\w+)\s*=", matchers))
        assert labels <= names[name] | OF_EVERY_TARGET, f"{name} has no label {labels - names[name]}"
    for expression in expressions():
        grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")}
        here = {label for name, _ in selections(expression) for label in names[name]}
        assert grouped <= here | OF_EVERY_TARGET, expression


def test_every_metric_of_a_client_is_on_the_dashboard() -> None:
    shown = {name for expression in expressions() for name, _ in selections(expression)}
    of_clients = {name for name, labels in exported().items() if "client" in labels}
    assert of_clients - shown == {"specdec_messages_total", "specdec_sessions_opened_total"}


def test_panels_are_named_and_lie_beside_each_other() -> None:
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert panel["title"] and panel["targets"] and not taken & cells and place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_what_is_mounted_exists_and_finds_each_other() -> None:
    for name, service in COMPOSE["services"].items():
        shared = SHARED[name]
        assert re.fullmatch(r"\$\{\w+:-[a-z]+/[a-z]+:v?\d+\.\d+\.\d+\}", shared["image"]), "a tag that does not move"
        for volume in [*shared["volumes"], *service.get("volumes", ())]:
            source = volume.split(":")[0]
            assert (ROOT / "docker" / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]
    (source,) = yaml.safe_load((OBSERVE / "grafana/datasources/prometheus.yaml").read_text())["datasources"]
    used = {target["datasource"]["uid"] for panel in DASHBOARD["panels"] for target in panel["targets"]}
    assert used == {source["uid"]} and source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((OBSERVE / "grafana/dashboards/specnav.yaml").read_text())["providers"]
    assert f"./observe/dashboards:{provider['options']['path']}:ro" in SHARED["grafana"]["volumes"]
    assert PROMETHEUS["rule_files"] == ["alerts.yml"]


def test_prometheus_asks_where_the_verifier_of_compose_serves_its_metrics() -> None:
    cloud = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]["cloud"]["command"]
    port = METRICS.rpartition(":")[2]
    assert cloud[cloud.index("--metrics") + 1] == f"0.0.0.0:{port}"
    asked = COMPOSE["services"]["prometheus"]
    assert asked["environment"]["VERIFIER_METRICS"] == f"${{VERIFIER_METRICS:-cloud:{port}}}"
    (file,) = PROMETHEUS["scrape_configs"][0]["file_sd_configs"][0]["files"]
    assert f"> {file} " in asked["entrypoint"][2]


def test_alerts_say_what_is_wrong_and_what_to_do() -> None:
    assert {rule["alert"] for rule in RULES} >= {"VerifierDown", "VerifierQueueLong", "VerifierCacheFull"}
    for rule in RULES:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert {"summary", "description"} == set(rule["annotations"])


def test_the_page_about_operating_lists_every_metric() -> None:
    page = (ROOT / "docs/operating.md").read_text(encoding="utf-8")
    table = page.partition("## Metrics")[2].partition("\n## ")[0]
    listed = {name for row in re.findall(r"^\| ([^|]*) \|", table, re.M) for name in re.findall(r"`(\w+)`", row)}
    names = {re.sub(r"_(bucket|sum|count)$", "", name).removeprefix("specdec_") for name in exported()}
    # A machine without a sensor exports nothing of energy.
    energy = {"energy_joules_total", "power_watts", "idle_power_watts"}
    assert energy <= listed and listed - energy == names - energy - {"up"}
