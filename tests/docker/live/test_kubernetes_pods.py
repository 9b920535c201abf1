"""The pods of kubernetes/fleet.yaml as containers: what the manifest mounts, allows and runs, without Kubernetes.

KubeRay's part is played here: it adds the command `ray start`, Ray's address and the token to each pod.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from specnav.paths import ROOT
from tests.docker.live.engine import HARDENED, PROMPT, TARGET, Container, Place, docker, wait_until

MANIFEST = ROOT / "docker/kubernetes/fleet.yaml"
TOKEN = "0123456789abcdef" * 4
GROUP = 10001
HERE = {"--replicas": "1", "--gpus": "0", "--model": TARGET, "--quantize": None}
"""What the directory's container is told instead on a machine without GPUs; None: nothing."""


def cluster() -> dict[str, Any]:
    """The part of the manifest that KubeRay reads."""
    found = yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))
    (spec,) = (one["spec"] for one in found if one["kind"] == "RayCluster")
    return dict(spec)


class Pod:
    """A pod's containers, with the volumes and the network that they share."""

    def __init__(self, place: Place, name: str, image: str, spec: dict[str, Any], secret: str) -> None:
        self._place, self._name, self._image = place, name, image
        self.spec = spec
        self._volumes = {"secret": secret}
        # With the owner and mode that the kubelet gives them in a pod with an fsGroup.
        group, on_disk = spec["securityContext"]["fsGroup"], []
        for volume in spec["volumes"]:
            kind, of = volume["name"], volume.get("emptyDir", {})
            if kind == "secret":
                continue
            tmpfs: tuple[str, ...] = ()
            if of.get("medium") == "Memory":
                size = of["sizeLimit"].removesuffix("i")
                tmpfs = ("type=tmpfs", "device=tmpfs", f"o=size={size},gid={group},mode=2777")
            self._volumes[kind] = place.volume(f"{name}-{kind}", *tmpfs)
            if not tmpfs:
                on_disk.append(f"-v={self._volumes[kind]}:/made/{kind}")
        script = f"chown 0:{group} /made/* && chmod 2777 /made/*"
        place.run(image, "sh", "-c", script, options=(*on_disk, "--user=0"))
        (sidecar,) = spec["initContainers"]
        self._first: Container | None = None
        self._first = self.start(sidecar, *sidecar["command"])

    def start(self, container: dict[str, Any], *command: str, **environment: str) -> Container:
        """One of its containers, with no more than the manifest allows it."""
        about, user = container["securityContext"], self.spec["securityContext"]
        assert about["readOnlyRootFilesystem"] and not about["allowPrivilegeEscalation"] and user["runAsNonRoot"]
        given = {one["name"]: one["value"] for one in container.get("env", ()) if "value" in one} | environment
        options = [
            f"--user={user['runAsUser']}:{user['runAsGroup']}", "--read-only", "--security-opt=no-new-privileges",
            *(f"--cap-drop={name}" for name in about["capabilities"]["drop"]),
            *(f"--env={name}={value}" for name, value in given.items()),
            *(
                f"-v={self._volumes[one['name']]}:{one['mountPath']}{':ro' if one.get('readOnly') else ''}"
                for one in container["volumeMounts"]
            ),
        ]  # fmt: skip
        if self._first is not None and self.spec.get("shareProcessNamespace"):
            options.append(f"--pid=container:{self._first.name}")
        name = self._name if self._first is None else f"{self._name}-{container['name']}"
        return self._place.start(name, self._image, *command, options=options, beside=self._first)

    def ray(self, group: dict[str, Any], address: str, *start: str) -> Container:
        """Its container of Ray, with what KubeRay adds."""
        (container, *_) = self.spec["containers"]
        given = " ".join(f"--{name}={value}" for name, value in group["rayStartParams"].items())
        cpus = "" if "num-cpus" in group["rayStartParams"] else f"--num-cpus={container['resources']['limits']['cpu']}"
        line = f"ulimit -n 65536; ray start {' '.join(start)} --block {given} {cpus}"
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN, "RAY_ADDRESS": address}
        return self.start(container, "/bin/bash", "-c", "--", line, **token)


def is_alive(container: Container, group: dict[str, Any]) -> bool:
    """What the probe of its pod says."""
    (ray, *_) = group["template"]["spec"]["containers"]
    assert ray["livenessProbe"] == ray["readinessProbe"]
    return container.run(*ray["livenessProbe"]["exec"]["command"], check=False).returncode == 0


def as_here(args: list[str]) -> list[str]:
    """The directory's arguments, with those of HERE."""
    given = dict(word.split("=", 1) for word in args)
    assert set(HERE) <= set(given)
    return [f"{name}={value}" for name, value in (given | HERE).items() if value is not None]


@pytest.fixture(scope="module")
def fleet_pods(fleet: str, figure) -> Iterator[tuple[Place, dict[str, Container]]]:
    """The head's pod and one of a verifier, with a client's key in a folder of its own."""
    with Place() as place:
        keys, secret, edge = (place.volume(name) for name in ("made-keys", "secret", "edge"))
        make = (
            "specnav keys new edge --class interactive --keys /keys && "
            "specnav keys export edge --keys /keys --to /edge/edge.key"
        )
        place.run(fleet, "sh", "-c", make, options=(*HARDENED, f"-v={keys}:/keys", f"-v={edge}:/edge"))
        # kubectl create secret --from-file=keys/server.key --from-file=keys/clients
        copy = (
            "cp /keys/server.key /keys/clients/*.json /secret && "
            f"chown -R 0:{GROUP} /secret && chmod 640 /secret/* && chmod 3755 /secret"
        )
        place.run(fleet, "sh", "-c", copy, options=("--user=0", f"-v={keys}:/keys:ro", f"-v={secret}:/secret"))
        spec = cluster()
        head_group, (worker_group,) = spec["headGroupSpec"], spec["workerGroupSpecs"]
        head = Pod(place, "head", fleet, head_group["template"]["spec"], secret)
        running = {"head": head.ray(head_group, "127.0.0.1:6379", "--head", "--no-monitor", "--dashboard-host=0.0.0.0")}
        _, directory = head.spec["containers"]
        told = as_here(directory["args"])
        running["directory"] = head.start(directory, *directory["command"], *told, RAY_AUTH_TOKEN=TOKEN)
        wait_until("the head is alive", lambda: is_alive(running["head"], head_group), 90)
        worker = Pod(place, "worker", fleet, worker_group["template"]["spec"], secret)
        running["worker"] = worker.ray(worker_group, "head:6379", "--address=head:6379")
        took = running["directory"].wait_for("fleet://", 180)
        figure(f"the pods of Kubernetes' manifest: a fleet is up {took:.0f} s after its head is alive")
        yield place, running


def test_a_fleet_from_the_pods_of_the_manifest_answers(fleet_pods, fleet, answer) -> None:
    place, _ = fleet_pods
    edge = place.mark + "-edge"
    ask = ("specnav", "generate", PROMPT, "--draft-model", "default_models/text-draft", "--max-new-tokens", "60")
    ask = (*ask, "--connect", "fleet://head:5600", "--key", "/edge/edge.key")
    done = place.run(fleet, *ask, options=(*HARDENED, f"-v={edge}:/edge"))
    assert (done.stdout, done.stderr) == (answer + "\n", "")


def test_the_probes_find_head_and_worker_alive(fleet_pods) -> None:
    _, running = fleet_pods
    spec = cluster()
    assert is_alive(running["head"], spec["headGroupSpec"])
    assert is_alive(running["worker"], spec["workerGroupSpecs"][0])


def test_a_directory_s_container_that_starts_again_finds_its_fleet(fleet_pods) -> None:
    _, running = fleet_pods
    directory = running["directory"]
    brought_up = directory.log.count("fleet://")
    docker("restart", "-t", "1", directory.name)
    wait_until("it watches Ray again", lambda: "sleep 5" in docker("top", directory.name).stdout, 60)
    assert directory.log.count("fleet://") == brought_up and "already" not in directory.log


def test_who_has_no_token_is_not_let_into_ray(fleet_pods) -> None:
    _, running = fleet_pods
    program = "import ray; ray.init('127.0.0.1:6379', log_to_driver=False)"
    done = running["directory"].run(
        "env", "-u", "RAY_AUTH_TOKEN", "-u", "RAY_AUTH_MODE", "python", "-c", program, check=False
    )
    assert done.returncode != 0


def test_ray_s_autoscaler_can_run_in_the_image(fleet: str, place: Place) -> None:
    """KubeRay starts it beside the head, with Kubernetes' own interface to ask."""
    program = (
        "import ray.autoscaler._private.kuberay.run_autoscaler, "
        "ray.autoscaler.v2.instance_manager.cloud_providers.kuberay.cloud_provider; print('ok')"
    )
    assert place.run(fleet, "python", "-c", program).stdout == "ok\n"
