"""The files that run a fleet: what they name exists, what they pass is taken, and pieces fit together.

Structure is checked by hand, against what this repository knows; tests/docker/live runs the Compose file.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.testing
import yaml

from specnav.cli.app import app
from specnav.fleet.settings import DIRECTORY_PORT
from specnav.paths import ROOT
from tests.helpers.waiting import until

DOCKER = ROOT / "docker"
HOSTS = re.compile(r"https?://([\w.-]+)")
NO_REGISTRY = {"127.0.0.1", "localhost", "github.com", "directory", "prometheus"}
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


@pytest.mark.slow
def test_the_compose_files_commands_fit_together() -> None:
    services = compose()["services"]
    script = (DOCKER / "fleet.sh").read_text()
    given = " ".join(services["directory"]["command"][2:])
    (own,) = re.findall('specnav fleet up (--ray head.*) "', script)
    flags = flags_of(f"specnav fleet up {own} {re.sub('=', ' ', given)}")
    assert {"--resource", "--keys", "--metrics", "--state"} <= flags and "--insecure" not in flags
    resource = re.search(r"--resource=(\w+)", given)
    assert resource and f'"{resource[1]}": 1' in " ".join(services["replica"]["command"])
    assert f"fleet://directory:{DIRECTORY_PORT}" in services["directory"]["healthcheck"]["test"]
    assert not any(volume.startswith("ray:") for volume in services["edge"]["volumes"]), "its token is not the edge's"
    assert f"--connect=fleet://directory:{DIRECTORY_PORT}" in services["edge"]["command"]
    build = services["head"]["build"]
    declared = re.findall(r"^ARG (\w+)", (DOCKER / "cloud.Dockerfile").read_text(), re.M)
    assert set(build["args"]) <= set(declared) and "fleet" in build["args"]["EXTRAS"].split(",")


def test_prometheus_asks_the_directory_where_the_replicas_are() -> None:
    mounted = [text.split(":")[0] for text in compose()["services"]["prometheus"]["volumes"] if text.startswith(".")]
    assert all((DOCKER / path).exists() for path in mounted)
    configured = yaml.safe_load((DOCKER / "observe/prometheus.fleet.yml").read_text())["scrape_configs"]
    jobs = {one["job_name"]: one for one in configured}
    port = re.search(r"--metrics=0\.0\.0\.0:(\d+)", " ".join(compose()["services"]["directory"]["command"]))
    assert port and jobs["directory"]["static_configs"][0]["targets"] == [f"directory:{port[1]}"]
    assert jobs["verifier"]["http_sd_configs"][0]["url"] == f"http://directory:{port[1]}/targets"


@pytest.mark.slow
def test_the_kubernetes_manifest_has_its_parts_and_names_that_lead_somewhere() -> None:
    found = kubernetes()
    kinds = ["RayCluster", "Service", *["PersistentVolumeClaim"] * 2, *["NetworkPolicy"] * 3]
    assert [name.split()[0] for name in found] == kinds
    cluster = found["RayCluster specnav-fleet"]
    assert cluster["apiVersion"] == "ray.io/v1"
    _, directory = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    assert directory["command"] == ["docker/fleet.sh", "beside"]
    (own,) = re.findall(r'specnav fleet up (--ray "\$RAY_ADDRESS".*) "', (DOCKER / "fleet.sh").read_text())
    flags = flags_of(f"specnav fleet up {own} {' '.join(directory['args']).replace('=', ' ')}")
    assert {"--keys", "--resource", "--gpus"} <= flags
    token = next(one for one in directory["env"] if one["name"] == "RAY_AUTH_TOKEN")["valueFrom"]["secretKeyRef"]
    assert token == {"name": cluster["metadata"]["name"], "key": "auth_token"}  # as KubeRay makes it
    claims = {name.split()[1] for name in found if name.startswith("Persistent")}
    pins = (ROOT / "requirements/constraints.txt").read_text()
    assert f"\nray=={cluster['spec']['rayVersion']}\n" in pins
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    for pod in (group["template"]["spec"] for group in groups):
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for container in (*pod["initContainers"], *pod["containers"]):
            assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes)
            assert {"requests", "limits"} <= set(container["resources"])
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


def test_on_kubernetes_ray_asks_for_a_token_and_pods_can_do_no_more_than_they_need() -> None:
    found = kubernetes()
    cluster = found["RayCluster specnav-fleet"]["spec"]
    assert cluster["authOptions"] == {"mode": "token"}
    confined = cluster["autoscalerOptions"]["securityContext"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in (*pod["initContainers"], *pod["containers"]):
            assert container["securityContext"] == confined
        scratch = [each["mountPath"] for each in pod["containers"][0]["volumeMounts"]]
        assert "/tmp" in scratch, "Ray writes there"
    assert confined["allowPrivilegeEscalation"] is False and confined["readOnlyRootFilesystem"] is True
    assert confined["capabilities"] == {"drop": ["ALL"]}
    assert cluster["workerGroupSpecs"][0]["template"]["spec"]["automountServiceAccountToken"] is False


def test_on_kubernetes_nothing_needs_rays_dashboard_which_the_image_does_not_have() -> None:
    cluster = kubernetes()["RayCluster specnav-fleet"]["spec"]
    assert cluster["headGroupSpec"]["rayStartParams"]["include-dashboard"] == "false"
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        ray, *_ = group["template"]["spec"]["containers"]
        for probe in ("livenessProbe", "readinessProbe"):  # without them KubeRay's own would ask the dashboard
            assert ray[probe]["exec"]["command"] == ["ray", "health-check"]


def test_network_policies_choose_every_pod_and_tell_rays_ports_from_those_of_edges() -> None:
    found = kubernetes()
    policies = {name.split()[1]: one["spec"] for name, one in found.items() if name.startswith("NetworkPolicy")}
    cluster = found["RayCluster specnav-fleet"]["spec"]
    groups = (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])
    for labels in (group["template"]["metadata"]["labels"] for group in groups):
        chosen = [one for one in policies.values() if one["podSelector"]["matchLabels"].items() <= labels.items()]
        assert any("Ingress" in one["policyTypes"] for one in chosen)
    rays = {6379}
    for group in groups:
        told = {int(value) for name, value in group["rayStartParams"].items() if name.endswith("-port")}
        assert len(told) == 8
        rays |= told
    for name in ("fleet-directory", "fleet-verifiers"):
        for rule in policies[name]["ingress"]:
            assert rule["from"] and rule["ports"], "a rule without them lets every client in"
            for port in rule["ports"]:
                allowed = range(port["port"], port.get("endPort", port["port"]) + 1)
                assert not any(one in allowed for one in (*rays, *range(10002, 20000)))


@pytest.mark.slow
def test_a_head_that_was_killed_while_it_made_its_keys_makes_the_rest(tmp_path: Path) -> None:
    for name in ("bin", "edge"):
        (tmp_path / name).mkdir()
    for name, does in (("specnav", f"exec {sys.executable} -m specnav.cli \"$@\""), ("ray", "exit 0")):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    script = re.sub(r"(?<= )/(edge|keys)\b", lambda found: str(tmp_path / found[1]), (DOCKER / "fleet.sh").read_text())
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")}
    killed = ["specnav", "keys", "new", "edge", "--class", "interactive", "--keys", str(tmp_path / "keys")]
    subprocess.run(killed, env=env, cwd=ROOT, check=True, capture_output=True)
    done = subprocess.run(["bash", "-c", script, "fleet.sh", "head"], env=env, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "edge/edge.key").stat().st_size and (tmp_path / "edge/api.keys").stat().st_size


def test_a_pod_follows_the_secret_with_keys_while_it_runs(tmp_path: Path) -> None:
    """The sidecar's own command, in this test's folders: it copies, follows changes, and takes away what is gone."""
    pod = kubernetes()["RayCluster specnav-fleet"]["spec"]["headGroupSpec"]["template"]["spec"]
    (sidecar,) = pod["initContainers"]
    assert sidecar["restartPolicy"] == "Always" and sidecar["startupProbe"]["exec"]["command"][-1] == "/keys/server.key"
    secret, keys = tmp_path / "secret", tmp_path / "keys"
    (versions := tmp_path / "versions").mkdir()
    for name in ("server.key", "robot-1.json", "robot-2.json"):
        (versions / name).write_text(name)
    secret.mkdir()
    for one in versions.iterdir():
        (secret / one.name).symlink_to(one)  # as the kubelet has it
        one.chmod(0o640)
    script = sidecar["command"][2].replace("sleep 5", "sleep 0.05")
    script = re.sub(r"/(secret|keys)\b", lambda found: str(tmp_path / found[1]), script)
    with subprocess.Popen([*sidecar["command"][:2], script]) as process:
        try:
            until(lambda: (keys / "clients/robot-2.json").exists())
            assert (keys / "server.key").stat().st_mode & 0o777 == 0o600 and not (keys / "server.key").is_symlink()
            (versions / "robot-1.json").write_text("revoked")
            (secret / "robot-2.json").unlink()
            until(lambda: (keys / "clients/robot-1.json").read_text() == "revoked")
            until(lambda: sorted(each.name for each in keys.rglob("*.json")) == ["robot-1.json"])
        finally:
            process.kill()


def test_the_manifest_says_what_nobody_here_has_run() -> None:
    page = (DOCKER / "README.md").read_text(encoding="utf-8")
    assert "compose.fleet.yaml" in page and "kubernetes/fleet.yaml" in page
