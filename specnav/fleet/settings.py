# SPDX-License-Identifier: Apache-2.0
"""The settings of a fleet, checked before Ray is contacted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import Struct

from cloud_verifier.config import ServerConfig
from cloud_verifier.errors import VerifierError
from specdec.link.binding import check_address, is_loopback
from specdec.settings import REQUIRED, check_settings, same_as, setting
from specnav.edge_settings import EdgeSettings
from specnav.fleet.errors import FleetError

MOST_REPLICAS = 1000
DIRECTORY_PORT = 5600
_RANGE = re.compile(r"([0-9]{1,9})(?::([0-9]{1,9}))?")


class ReplicaBounds(Struct, frozen=True):
    """Bounds on the number of replicas."""

    least: int
    most: int

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least}:{self.most}"


def read_bounds(text: str) -> ReplicaBounds:
    """N, or LEAST:MOST. Raises FleetError."""
    found = _RANGE.fullmatch(text.strip())
    if found is None:
        raise FleetError(
            f"{text!r} must be a number of replicas: N, or LEAST:MOST to let the fleet scale by itself"
        )
    least = int(found[1])
    most = int(found[2] or found[1])
    if not 1 <= least <= most <= MOST_REPLICAS:
        raise FleetError(
            f"{text!r} replicas are out of range: give 1 to {MOST_REPLICAS}, the smaller number first"
        )
    return ReplicaBounds(least, most)


class ReplicaPlacement(Struct, frozen=True):
    """What Ray reserves for one replica. resource: custom resource of the nodes that may run one; "" for any node."""

    cpus: float = 1.0
    gpus: float = 0.0
    resource: str = ""


def gpus_of_replica(asked: float | None, shared: int, there: Sequence[float]) -> float:
    """GPUs that Ray reserves for a replica. asked: the user's setting, None if not set. shared: GPUs that its model is
    split over. there: GPUs of each node. Raises FleetError if no node has enough.
    """
    if asked is not None:
        return asked  # nodes may join later
    most = max(there, default=0.0)
    if 0 < most < shared:
        raise FleetError(
            f"a replica's model is split over {shared} GPUs, but no node of the cluster has more than {most:g}: "
            "use fewer with --tensor-parallel"
        )
    return float(shared) if most else 0.0


class Scaling(Struct, frozen=True):
    """When the number of replicas changes by itself. edges: sessions per replica on average. busy_s, idle_s: how long
    more replicas, or one less, must have been needed.
    """

    edges: float = 8.0
    busy_s: float = 5.0
    idle_s: float = 60.0


STATE = Path("runs/fleet")
REPLICA_PAIR = (
    "Target and exits of replicas by a pair's name, as specnav models list shows it; on every machine they must lie "
    "where they lie here. Options given beside it override it."
)


def check_ray_address(address: str) -> None:
    """Raise FleetError unless it is auto, HOST:PORT or ray://HOST:PORT."""
    if address != Where.ray:
        check_address(address, "ray", FleetError, schemes=("ray://", ""))


@dataclass(frozen=True)
class Where:
    """Where a running fleet is found."""

    ray: str = setting("auto", "Address of the Ray cluster; auto: this machine's.", metavar="auto|HOST:PORT")
    state: Path = setting(STATE, "Folder for the directory's persistent state.", metavar="FOLDER")
    wait_s: float = setting(600.0, "Longest wait for replicas.", 1, 86_400, unit="s", flags=("--wait",))

    def __post_init__(self) -> None:
        check_settings(self, FleetError)
        check_ray_address(self.ray)


@dataclass(frozen=True)
class UpConfig:
    """Settings of `fleet up`. server: verifier settings by name, which override those of the file."""

    server: Mapping[str, Any]
    file: Path | None = setting(None, "YAML file of verifier settings.", metavar="FILE", flags=("--config",))
    pair: str | None = same_as(EdgeSettings, "pair", help=REPLICA_PAIR)
    ray: str = same_as(
        Where, "ray", help="Address of the Ray cluster; auto: this machine's, or a new one here."
    )
    replicas: str = setting(
        "1", "Number of verifiers; with two numbers the fleet scales automatically.", metavar="N|LEAST:MOST"
    )
    port: int = setting(DIRECTORY_PORT, "Port of the directory for edges; 0 takes a free one.", 0, 65_535)
    cpus: float = setting(ReplicaPlacement().cpus, "CPUs that Ray reserves for a replica.", 0, 1024)
    gpus: float | None = setting(
        None, "GPUs of a replica.", 0, 64, shown="one, or --tensor-parallel, if there are any"
    )
    resource: str = setting(
        "", "Run replicas only on nodes with this Ray resource; each takes one unit of it.", metavar="NAME"
    )
    edges_per_replica: float = setting(
        Scaling().edges, "Answers at a time per replica at which the fleet scales.", 0.1, 10_000
    )
    idle_s: float = setting(
        Scaling().idle_s, "Remove one replica after this long with less load.", 0, 86_400, unit="s", flags=("--idle",)
    )
    surge: bool = setting(True, "Upgrades start a new replica before removing an old one.")
    metrics: str = setting("", "Serve the directory's /metrics, and /targets of all replicas.", metavar="HOST:PORT")
    wait_s: float = same_as(Where, "wait_s")
    state: Path = same_as(Where, "state")

    def __post_init__(self) -> None:
        check_settings(self, FleetError)
        check_ray_address(self.ray)
        if self.metrics:
            check_address(self.metrics, "metrics", FleetError, schemes=("",), bind=True)


@dataclass(frozen=True, kw_only=True)
class ScaleConfig(Where):
    """Settings of `fleet scale`."""

    replicas: str = same_as(UpConfig, "replicas", help="Number of verifiers.", default=REQUIRED, positional=True)


@dataclass(frozen=True)
class UpgradeConfig:
    """Settings of `fleet upgrade`. server: changed verifier settings, by name. surge: None: unchanged."""

    server: Mapping[str, Any]
    file: Path | None = same_as(UpConfig, "file")
    pair: str | None = same_as(UpConfig, "pair")
    surge: bool | None = same_as(UpConfig, "surge", default=None, shown="as before")
    ray: str = same_as(Where, "ray")
    state: Path = same_as(Where, "state")
    wait_s: float = same_as(Where, "wait_s", default=3600.0)

    def __post_init__(self) -> None:
        check_settings(self, FleetError)
        check_ray_address(self.ray)


class FleetSettings(Struct, frozen=True):
    """One generation of a fleet. server: settings of cloud_verifier.config.ServerConfig by name, without
    addresses.

    surge: upgrades start a new replica before draining an old one; False: if there is no room for that.
    metrics_outside: the replicas' Prometheus endpoints, each on a free port, are reachable from other machines. home:
    address of a machine on which everything is served on loopback, so that nothing else can reach it; "" for none.
    """

    server: dict[str, Any]
    bounds: ReplicaBounds
    place: ReplicaPlacement = ReplicaPlacement()
    scaling: Scaling = Scaling()
    surge: bool = True
    metrics_outside: bool = False
    home: str = ""

    def host(self, node: str) -> str:
        """The host on which a node's processes listen; an IPv6 address in brackets, as in addresses with a port."""
        if node == self.home:
            return "127.0.0.1"
        return f"[{node}]" if ":" in node else node

    def config(self, host: str) -> ServerConfig:
        """The settings of a replica on a host. Raises VerifierError, also for a host that is open without keys."""
        metrics = f"{host if self.metrics_outside else '127.0.0.1'}:0"
        return ServerConfig(**{**self.server, "bind": f"tcp://{host}:0", "metrics": metrics})

    @property
    def keys(self) -> str:
        """Folder of keys, "" without keys."""
        return str(self.server.get("keys", ""))


def check_fleet(settings: FleetSettings, host: str) -> None:
    """Raise FleetError for settings with which no replica can start. host: of a node that may run replicas."""
    place = settings.place
    shared = settings.server.get("tensor_parallel", 1)
    if 0 < place.gpus < shared:
        raise FleetError(
            f"a replica's model is split over {shared} GPUs, but Ray reserves {place.gpus:g}: leave --gpus out"
        )
    try:
        settings.config(host)
    except VerifierError as error:
        raise FleetError(str(error)) from error
    except TypeError as error:
        raise FleetError(f"a verifier has no such setting ({error})") from error


def directory_bind(host: str, port: int) -> str:
    """Where a directory listens: on loopback, or on all addresses, IPv4 and IPv6, of a machine that others reach."""
    return f"tcp://{host if is_loopback(f'tcp://{host}:0') else '*'}:{port}"
