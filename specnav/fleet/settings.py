"""What a fleet is told; checked before Ray is reached."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from cloud_verifier.config import ServerConfig
from cloud_verifier.errors import VerifierError
from specdec.link.binding import is_loopback
from specnav.fleet.errors import FleetError

MOST_REPLICAS = 1000
DIRECTORY_PORT = 5600
_RANGE = re.compile(r"(\d+)(?::(\d+))?")


class Bounds(Struct, frozen=True):
    """How many replicas: as many as are wanted lies between the two."""

    least: int
    most: int

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least}:{self.most}"


def read_bounds(text: str) -> Bounds:
    """N, or LEAST:MOST. Raises FleetError."""
    found = _RANGE.fullmatch(text.strip())
    if found is None:
        raise FleetError(f"{text!r} is no number of replicas: give N, or LEAST:MOST to let the fleet scale by itself")
    least = int(found[1])
    most = int(found[2] or found[1])
    if not 1 <= least <= most <= MOST_REPLICAS:
        raise FleetError(f"{text!r} replicas are out of range: give 1 to {MOST_REPLICAS}, the smaller number first")
    return Bounds(least, most)


class Place(Struct, frozen=True):
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


class FleetSettings(Struct, frozen=True):
    """One generation of a fleet. server: settings of cloud_verifier.ServerConfig by name, but for where it listens.

    surge: an upgrade starts a new replica before it drains an old one; False: where there is room for no more.
    metrics_outside: what replicas serve for Prometheus, each on a free port, is reached by other machines, too. home:
    the address of a machine on which all is served on loopback, as nobody else is to reach it; "" for none.
    """

    server: dict[str, Any]
    bounds: Bounds
    place: Place = Place()
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

    @property
    def insecure(self) -> bool:
        """No keys, though others reach it."""
        return bool(self.server.get("insecure", False))


def check_settings(settings: FleetSettings, host: str) -> None:
    """Raise FleetError for what no replica could be started with. host: of a node where replicas may be."""
    scaling, place = settings.scaling, settings.place
    if not 0.1 <= scaling.edges <= 10_000 or not 0 <= scaling.busy_s <= 3600 or not 0 <= scaling.idle_s <= 86_400:
        raise FleetError("edges of a replica are 0.1 to 10000, busy_s 0 to 3600 and idle_s 0 to 86400")
    if not 0 <= place.cpus <= 1024 or not 0 <= place.gpus <= 64:
        raise FleetError("a replica takes 0 to 1024 CPUs and 0 to 64 GPUs")
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


def as_json(settings: FleetSettings) -> bytes:
    """The settings as they are kept."""
    return msgspec.json.encode(settings)
