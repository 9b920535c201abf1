# SPDX-License-Identifier: Apache-2.0
"""A replica: a Ray actor that keeps one verifier process alive and reports to the directory twice a second.

Edges talk to the verifier, not to the actor. If the actor dies, its verifier ends with it, and Ray restarts the actor,
on another node if necessary.
"""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

import ray

from cloud_verifier.errors import VerifierError
from specnav.fleet.child import VerifierChild
from specnav.fleet.cluster import DIRECTORY
from specnav.fleet.identity import Identity, identity_of
from specnav.fleet.register import ReplicaReport
from specnav.fleet.settings import FleetSettings

BEAT_S = 0.5


class Replica:
    """One replica, as a plain class that Ray turns into an actor."""

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
        except VerifierError as error:  # a problem of this node only: the other replicas go on
            self._trouble = str(error)
        self._thread = threading.Thread(target=self._tell, name="reports", daemon=True)
        self._thread.start()

    def report(self) -> ReplicaReport:
        """The current report."""
        child = self._child
        if child is None:
            return ReplicaReport(*self._about, draining=self._drained, ended=self._drained, trouble=self._trouble)
        trouble = child.trouble or self._trouble
        ready = child.address if self._identity is not None else ""
        going = (child.pid, child.starts, child.draining, child.ended.is_set())
        working = child.working()
        return ReplicaReport(*self._about, ready, child.metrics, self._identity, *going, trouble, working)

    def drain(self) -> None:
        """Accept no new sessions, and end after the last one."""
        self._drained = True
        if self._child is not None:
            self._child.drain()
        self._changed.set()

    def pid(self) -> int:
        """Process id of the actor."""
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
                        continue  # the directory is away: keep only one report waiting
                    ray.get(done)
                pending = [directory.report.remote(self.report())]
            except Exception:  # any error of Ray about a directory that is temporarily gone
                directory, pending = None, []

    def _look_at_model(self) -> None:
        try:
            self._identity = identity_of(self._config)
        except Exception as error:  # this replica's problem, shown in the status
            self._trouble = f"its model cannot be identified ({error})"


def node_address() -> str:
    """Address of this process's node in the cluster, at which others reach it."""
    here = ray.get_runtime_context().get_node_id()
    found = (node["NodeManagerAddress"] for node in ray.nodes() if node["NodeID"] == here)
    return str(next(found, ray.util.get_node_ip_address()))


def replica_name(number: int) -> str:
    """The name of a replica in Ray and in the status."""
    return f"replica-{number}"


def start_replica(namespace: str, number: int, generation: int, settings: FleetSettings) -> Any:
    """Start a replica on a node with room, spread over the nodes, as a detached actor. Raises what Ray raises."""
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

