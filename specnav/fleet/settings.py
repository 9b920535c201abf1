# SPDX-License-Identifier: Apache-2.0
"""The settings of a fleet; checked before Ray is reached."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import Struct

from cloud_verifier.config import ServerConfig
from cloud_verifier.errors import VerifierError
from specdec.link.binding import is_loopback
from specdec.settings import REQUIRED, check_settings, same_as, setting
from specnav.edge_settings import EdgeSettings
from specnav.fleet.errors import FleetError

MOST_REPLICAS = 1000
DIRECTORY_PORT = 5600
_RANGE = re.compile(r"(\d+)(?::(\d+))?")


class ReplicaBounds(Struct, frozen=True):
    """How many replicas: as many as are wanted lies between the two."""

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
    """What Ray is to find for one replica. resource: a custom resource of the nodes that may take one; "" for any."""

    cpus: float = 1.0
    gpus: float = 0.0
    resource: str = ""


def gpus_of_replica(asked: float | None, shared: int, there: Sequence[float]) -> float:
    """What Ray sets aside for one. asked: by a person, None for nobody. shared: GPUs that its model is spread over.
    there: of each node. Raises FleetError where no node has as many.
    """
    if asked is not None:
        return asked  # nodes may be still to come
    most = max(there, default=0.0)
    if 0 < most < shared:
        raise FleetError(
            f"{shared} GPUs are to share a replica's model and no node of the cluster has more than {most:g}: "
            "take fewer with --tensor-parallel"
        )
    return float(shared) if most else 0.0


class Scaling(Struct, frozen=True):
    """When the number of replicas changes by itself. edges: sessions that one replica is to work for on
    average. busy_s, idle_s: how long there must have been more, or few enough for one less.
    """

    edges: float = 8.0
    busy_s: float = 5.0
    idle_s: float = 60.0


STATE = Path("runs/fleet")
REPLICA_PAIR = (
    "Target and exits of replicas by a pair's name, as specnav models list shows it; on every machine they must lie "
    "where they lie here. Options given beside it override it."
)


@dataclass(frozen=True)
class Where:
    """Of a fleet that is up."""

    ray: str = setting(
        "auto", "The Ray cluster; auto: this machine's, or a new one here.", metavar="auto|HOST:PORT"
    )
    state: Path = setting(STATE, "Where the directory keeps what must last.", metavar="FOLDER")
    wait_s: float = setting(600.0, "Wait this long at most for replicas.", 1, 86_400, unit="s", flags=("--wait",))

    def __post_init__(self) -> None:
        check_settings(self, FleetError)


@dataclass(frozen=True)
class UpConfig:
    """The settings of `fleet up`. server: settings of the replicas' verifiers by name, over those of the file."""

    server: Mapping[str, Any]
    file: Path | None = setting(None, "YAML of verifier settings.", metavar="FILE", flags=("--config",))
    pair: str | None = same_as(EdgeSettings, "pair", help=REPLICA_PAIR)
    ray: str = same_as(Where, "ray")
    replicas: str = setting(
        "1", "Verifiers; with two numbers the fleet scales by itself.", metavar="N|LEAST:MOST"
    )
    port: int = setting(DIRECTORY_PORT, "Where edges ask the directory; 0 takes a free one.", 0, 65_535)
    cpus: float = setting(ReplicaPlacement().cpus, "CPUs that Ray sets aside for a replica.", 0, 1024)
    gpus: float | None = setting(
        None, "GPUs of a replica.", 0, 64, shown="one, or --tensor-parallel, where there are any"
    )
    resource: str = setting(
        "", "Only on nodes with this Ray resource; a replica takes one of it.", metavar="NAME"
    )
    edges_per_replica: float = setting(
        Scaling().edges, "Answers at a time that one replica is to have, to scale by.", 0.1, 10_000
    )
    idle_s: float = setting(
        Scaling().idle_s, "With less to do for this long, one replica goes.", 0, 86_400, unit="s", flags=("--idle",)
    )
    surge: bool = setting(True, "Upgrades start a new replica before an old one goes.")
    metrics: str = setting("", "The directory's /metrics, and /targets of all replicas.", metavar="HOST:PORT")
    wait_s: float = same_as(Where, "wait_s")
    state: Path = same_as(Where, "state")

    def __post_init__(self) -> None:
        check_settings(self, FleetError)


@dataclass(frozen=True, kw_only=True)
class ScaleConfig(Where):
    """The settings of `fleet scale`."""

    replicas: str = same_as(UpConfig, "replicas", help="Verifiers.", default=REQUIRED, positional=True)


@dataclass(frozen=True)
class UpgradeConfig:
    """The settings of `fleet upgrade`. server: settings that are to be different, by name. surge: None as before."""

    server: Mapping[str, Any]
    file: Path | None = same_as(UpConfig, "file")
    pair: str | None = same_as(UpConfig, "pair")
    surge: bool | None = same_as(UpConfig, "surge", default=None, shown="as before")
    ray: str = same_as(Where, "ray")
    state: Path = same_as(Where, "state")
    wait_s: float = same_as(Where, "wait_s", default=3600.0)

    def __post_init__(self) -> None:
        check_settings(self, FleetError)


class FleetSettings(Struct, frozen=True):
    """One generation of a fleet. server: settings of cloud_verifier.ServerConfig by name, except for where it listens.

    surge: an upgrade starts a new replica before it drains an old one; False: where there is room for no more.
    metrics_outside: what replicas serve for Prometheus, each on a free port, is reached by other machines, too. home:
    the address of a machine on which all is served on loopback, as nothing else is to reach it; "" for none.
    """

    server: dict[str, Any]
    bounds: ReplicaBounds
    place: ReplicaPlacement = ReplicaPlacement()
    scaling: Scaling = Scaling()
    surge: bool = True
    metrics_outside: bool = False
    home: str = ""

    def host(self, node: str) -> str:
        """Where what runs on a node listens."""
        return "127.0.0.1" if node == self.home else node

    def config(self, host: str) -> ServerConfig:
        """Of a replica on a host. Raises VerifierError, for a host that others reach without keys, too."""
        metrics = f"{host if self.metrics_outside else '127.0.0.1'}:0"
        return ServerConfig(**{**self.server, "bind": f"tcp://{host}:0", "metrics": metrics})

    @property
    def keys(self) -> str:
        """Folder of keys, "" without."""
        return str(self.server.get("keys", ""))


def check_fleet(settings: FleetSettings, host: str) -> None:
    """Raise FleetError for what no replica could be started with. host: of a node where replicas may be."""
    place = settings.place
    shared = settings.server.get("tensor_parallel", 1)
    if 0 < place.gpus < shared:
        raise FleetError(
            f"{shared} GPUs are to share a replica's model and Ray sets aside {place.gpus:g}: leave --gpus out"
        )
    try:
        settings.config(host)
    except VerifierError as error:
        raise FleetError(str(error)) from error
    except TypeError as error:
        raise FleetError(f"a verifier has no such setting ({error})") from error


def directory_bind(host: str, port: int) -> str:
    """Where a directory listens: on its own machine, or on all addresses of one that others reach."""
    return f"tcp://{host if is_loopback(f'tcp://{host}:0') else '0.0.0.0'}:{port}"
