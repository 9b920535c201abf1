# SPDX-License-Identifier: Apache-2.0
"""A replica: a Ray actor that keeps one verifier process and tells the directory how it is, twice a second.

Edges talk to the verifier, not to the actor. Where the actor dies, its verifier ends with it, and Ray starts the actor
again, on another node if need be.
"""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

import ray

from cloud_verifier.errors import VerifierError
from specnav.fleet.child import VerifierChild
from specnav.fleet.identity import Identity, identity_of
from specnav.fleet.register import ReplicaReport
from specnav.fleet.settings import FleetSettings

BEAT_S = 0.5
DIRECTORY = "directory"


class Replica:
    """One replica; `ReplicaActor` is the same as Ray has it."""

    def __init__(self, namespace: str, number: int, generation: int, settings: FleetSettings) -> None:
        """Start the verifier; returns before it serves."""
        node = node_address()
        self._namespace = namespace
        self._about = (replica_name(number), number, generation, f"{socket.gethostname()} ({node})")
        self._identity: Identity | None = None
        self._trouble = ""
        self._drained = False
        self._changed = threading.Event()
        self._child: VerifierChild | None = None
        try:
            self._config = settings.config(settings.host(node))
            self._child = VerifierChild(self._config, self._changed.set)
        except VerifierError as error:  # of this node alone, so the others go on
            self._trouble = str(error)
        self._thread = threading.Thread(target=self._tell, name="reports", daemon=True)
        self._thread.start()

    def report(self) -> ReplicaReport:
        """How it is now."""
        child = self._child
        if child is None:
            return ReplicaReport(*self._about, draining=self._drained, ended=self._drained, trouble=self._trouble)
        trouble = child.trouble or self._trouble
        ready = child.address if self._identity is not None else ""
        going = (child.pid, child.starts, child.draining, child.ended.is_set())
        working = child.working()
        return ReplicaReport(*self._about, ready, child.metrics, self._identity, *going, trouble, working)

    def drain(self) -> None:
        """Take no new sessions and end with the last one."""
        self._drained = True
        if self._child is not None:
            self._child.drain()
        self._changed.set()

    def pid(self) -> int:
        """Of the actor's own process."""
        return os.getpid()

    def _tell(self) -> None:
        directory: Any = None
        pending: list[Any] = []
        while True:
            self._changed.wait(BEAT_S)
            self._changed.clear()
            if self._child is not None and self._child.address and self._identity is None:
                self._look_at_model()
            try:
                if directory is None:
                    directory = ray.get_actor(DIRECTORY, self._namespace)
                if pending:
                    done, _ = ray.wait(pending, timeout=0)
                    if not done:
                        continue  # it is away: one report waits for it, not hundreds
                    ray.get(done)
                pending = [directory.report.remote(self.report())]
            except Exception:  # a directory that is gone for a while, in whatever words Ray has for it
                directory, pending = None, []

    def _look_at_model(self) -> None:
        try:
            self._identity = identity_of(self._config)
        except Exception as error:  # one replica's trouble, shown in the status
            self._trouble = f"what it serves cannot be looked at ({error})"


def node_address() -> str:
    """Of the node that this process is on, as the cluster knows it: where others reach it."""
    here = ray.get_runtime_context().get_node_id()
    found = (node["NodeManagerAddress"] for node in ray.nodes() if node["NodeID"] == here)
    return str(next(found, ray.util.get_node_ip_address()))


def replica_name(number: int) -> str:
    """Under which Ray and people know a replica."""
    return f"replica-{number}"


def start_replica(namespace: str, number: int, generation: int, settings: FleetSettings) -> Any:
    """A new replica where Ray finds room, spread over the nodes; a detached actor. Raises what Ray raises."""
    place = settings.place
    actor = ray.remote(Replica)
    return actor.options(
        name=replica_name(number),
        namespace=namespace,
        lifetime="detached",
        max_restarts=-1,
        num_cpus=place.cpus,
        num_gpus=place.gpus,
        resources={place.resource: 1} if place.resource else None,
        scheduling_strategy="SPREAD",
    ).remote(namespace, number, generation, settings)


def find_replica(namespace: str, name: str) -> Any | None:
    """The actor of a replica, or None where there is none."""
    try:
        return ray.get_actor(name, namespace)
    except ValueError:
        return None

