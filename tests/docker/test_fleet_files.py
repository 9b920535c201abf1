"""The files that run a fleet: what they name exists, what they pass is taken, and pieces fit together.

No Docker engine and no Kubernetes is here: structure is checked by hand, against what this repository knows.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

import typer.testing
import yaml

from fleet.settings import DIRECTORY_PORT
from harness.paths import ROOT
from specnav.cli.app import app

DOCKER = ROOT / "docker"
HOSTS = re.compile(r"https?://([\w.-]+)")
NO_REGISTRY = {"127.0.0.1", "github.com", "directory", "prometheus"}
"""What files below docker/ may name: this machine, sources, and each other. Packages come from where pip looks."""


def compose() -> dict[str, Any]:
    return yaml.safe_load((DOCKER / "compose.fleet.yaml").read_text())


def kubernetes() -> dict[str, dict[str, Any]]:
    found = yaml.safe_load_all((DOCKER / "kubernetes/fleet.yaml").read_text())
    return {f"{one['kind']} {one['metadata']['name']}": one for one in found}


def flags_of(command: str) -> set[str]:
    """The options of `specnav fleet up` in a shell line; every one of them is one that the command has."""
    words = shlex.split(command.partition("specnav fleet up")[2].partition("&&")[0])
    given = {word for word in words if word.startswith("--")}
    known = typer.main.get_command(app).commands["fleet"].commands["up"].params  # type: ignore[attr-defined]
    assert given and given <= {option for one in known for option in one.opts}
    return given


def test_no_file_names_the_host_of_a_package_registry() -> None:
    files = [path for path in DOCKER.rglob("*") if path.is_file() and path.parent.name != "__pycache__"]
    files += [ROOT / "scripts" / name for name in ("setup.sh", "setup_env.py", "setup_gguf.py", "setup_vllm.py")]
    found = {(path.name, host) for path in files for host in HOSTS.findall(path.read_text(encoding="utf-8"))}
    assert {(name, host) for name, host in found if host not in NO_REGISTRY} == set()


def test_the_compose_file_has_every_part_and_each_waits_for_what_it_needs() -> None:
    services = compose()["services"]
    assert set(services) == {"head", "replica", "directory", "edge", "prometheus", "grafana"}
    assert services["replica"]["deploy"]["replicas"] == 2
    for name, needed in (("replica", "head"), ("directory", "head"), ("edge", "directory")):
        assert services[name]["depends_on"][needed]["condition"] == "service_healthy"
        assert "test" in services[needed]["healthcheck"]
    published = [port for one in services.values() for port in one.get("ports", ())]
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_the_compose_files_commands_fit_together() -> None:
    services = compose()["services"]
    up = services["directory"]["command"][2]
    assert {"--resource", "--insecure", "--metrics", "--state"} <= flags_of(up)
    resource = re.search(r"--resource (\w+)", up)
    assert resource and f'"{resource[1]}": 1' in " ".join(services["replica"]["command"])
    assert f"fleet://directory:{DIRECTORY_PORT}" in services["directory"]["healthcheck"]["test"]
    assert f"--connect=fleet://directory:{DIRECTORY_PORT}" in services["edge"]["command"]
    build = services["head"]["build"]
    declared = re.findall(r"^ARG (\w+)", (DOCKER / "cloud.Dockerfile").read_text(), re.M)
    assert set(build["args"]) <= set(declared) and "fleet" in build["args"]["EXTRAS"].split(",")


def test_prometheus_asks_the_directory_where_the_replicas_are() -> None:
    mounted = [text.split(":")[0] for text in compose()["services"]["prometheus"]["volumes"] if text.startswith(".")]
    assert all((DOCKER / path).exists() for path in mounted)
    configured = yaml.safe_load((DOCKER / "observe/prometheus.fleet.yml").read_text())["scrape_configs"]
    jobs = {one["job_name"]: one for one in configured}
    port = re.search(r"--metrics 0\.0\.0\.0:(\d+)", compose()["services"]["directory"]["command"][2])
    assert port and jobs["directory"]["static_configs"][0]["targets"] == [f"directory:{port[1]}"]
    assert jobs["verifier"]["http_sd_configs"][0]["url"] == f"http://directory:{port[1]}/targets"


def test_the_kubernetes_manifest_has_its_parts_and_names_that_lead_somewhere() -> None:
    found = kubernetes()
    assert [name.split()[0] for name in found] == ["RayCluster", "RayJob", "Service", *["PersistentVolumeClaim"] * 2]
    cluster, job = found["RayCluster specnav-fleet"], found["RayJob specnav-fleet-up"]
    assert cluster["apiVersion"] == job["apiVersion"] == "ray.io/v1"
    assert job["spec"]["clusterSelector"]["ray.io/cluster"] == cluster["metadata"]["name"]
    assert {"--keys", "--resource", "--gpus"} <= flags_of(job["spec"]["entrypoint"])
    claims = {name.split()[1] for name in found if name.startswith("Persistent")}
    pins = (ROOT / "requirements/constraints.txt").read_text()
    assert f"\nray=={cluster['spec']['rayVersion']}\n" in pins
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    for pod in (group["template"]["spec"] for group in groups):
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for container in (*pod["initContainers"], *pod["containers"]):
            assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes)
            assert "resources" in container or container["name"] == "keys"
        claimed = [volume.get("persistentVolumeClaim", {}).get("claimName") for volume in volumes.values()]
        assert set(filter(None, claimed)) <= claims
        assert pod["securityContext"]["runAsUser"] != 0
    workers = groups[1]
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    service = found["Service fleet-directory"]["spec"]
    head = groups[0]["template"]
    assert service["selector"].items() <= head["metadata"]["labels"].items()
    ports = {port["name"]: port["containerPort"] for port in head["spec"]["containers"][0]["ports"]}
    assert {port["port"] for port in service["ports"]} <= set(ports.values()) and DIRECTORY_PORT in ports.values()


def test_the_manifest_says_what_nobody_here_has_run() -> None:
    page = (DOCKER / "README.md").read_text(encoding="utf-8")
    assert "compose.fleet.yaml" in page and "kubernetes/fleet.yaml" in page
