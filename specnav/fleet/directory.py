# SPDX-License-Identifier: Apache-2.0
"""The directory: a Ray actor that assigns edges to replicas, and keeps as many replicas running as are wanted.

It has three threads: the actor's own, for reports of replicas and for status requests; the directory server's, which
answers edges; and one that starts and drains replicas. A lock guards the register for microseconds; no thread waits for
Ray while holding it.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import ray

from cloud_verifier.errors import VerifierError
from cloud_verifier.logs import EventLog
from cloud_verifier.observing.http import StatusServer
from specdec.link.directory_wire import SCHEME, Ask, Nobody, Take
from specnav.fleet.cluster import find_actor
from specnav.fleet.directory_server import DirectoryServer
from specnav.fleet.errors import FleetError
from specnav.fleet.register import Register, ReplicaReport
from specnav.fleet.replica import node_address, replica_name, start_replica
from specnav.fleet.scaling import Scaler, next_step
from specnav.fleet.settings import FleetSettings, ReplicaBounds, directory_bind
from specnav.fleet.state import FleetState, read_kept, write_kept
from specnav.fleet.status import FleetStatus, ReplicaStatus, metrics_text, targets_json

_OURS = re.compile(r"(?:specnav|cloud_verifier)\.[\w.]+Error: (.+)")
LOOK_S = 0.25
"""Interval of checks on the number of replicas."""
DOWN_S = 20.0


class Directory:
    """The actor. If Ray restarts it with the same arguments, it continues from its file."""

    def __init__(self, namespace: str, folder: str, first: FleetState, metrics: str) -> None:
        """first: initial state, used if the folder holds no state of this fleet. metrics: HOST:PORT, "" for none.

        Raises FleetError, VerifierError.
        """
        self._namespace = namespace
        self._folder = Path(folder)
        self._log = EventLog(sys.stderr)
        self._lock = threading.RLock()
        kept = read_kept(self._folder)
        self._kept = first if kept is None or kept.fleet != first.fleet else kept
        self._register = Register(time.monotonic(), self._kept.identities)
        self._register.expect(len(self._kept.replicas))
        for number, generation in self._kept.replicas.items():
            self._expect(number, generation)
        self._scaler = Scaler(self._kept.settings.scaling)
        settings = self._kept.settings
        self._host = settings.host(node_address())
        bind = directory_bind(self._host, self._kept.port)
        self._server = DirectoryServer(bind, settings.keys, self._log, self._answer, self._rests)
        self._keep(port=self._server.port)
        self._status_server: StatusServer | None = None
        if metrics:
            pages = {"/targets": lambda: targets_json(self._register.reports())}
            told = (lambda: metrics_text(self.status()), lambda: "", lambda: "")
            self._status_server = StatusServer(metrics, *told, pages)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._see_to_replicas, name="replicas", daemon=True)
        self._thread.start()

    def report(self, report: ReplicaReport) -> None:
        """Accept a replica's report."""
        with self._lock:
            if report.number in self._kept.replicas:  # a report may arrive after its replica was ended
                known = set(self._register.identities)
                self._register.report(report, time.monotonic())
                if set(self._register.identities) != known:
                    self._keep(identities=dict(self._register.identities))

    def status(self) -> FleetStatus:
        """The current status of the fleet."""
        with self._lock:
            now, register = time.monotonic(), self._register
            replicas = []
            for report in sorted(register.reports(), key=lambda one: one.number):
                words = report.trouble or register.left_out(report)
                if not report.node:
                    words = "Ray has not placed it yet (perhaps no node has room; upgrade --no-surge needs no more)"
                state = register.state(report.name, now)
                replicas.append(ReplicaStatus(report, state, *register.edges_of(report.name, now), words))
            return FleetStatus(
                address=f"{SCHEME}{self._host}:{self._kept.port}",
                generation=self._kept.generation,
                wanted=self._kept.wanted,
                bounds=str(self._kept.settings.bounds),
                edges=register.edges,
                active=register.active(now),
                asks=register.asks,
                moves=register.moves,
                nobody=register.nobody,
                malformed=self._server.malformed,
                too_fast=self._server.too_fast,
                connections_cut=self._server.connections.cut.total(),
                working=register.working(now),
                pid=os.getpid(),
                metrics="" if self._status_server is None else self._status_server.bind,
                replicas=replicas,
            )

    def scale(self, bounds: ReplicaBounds) -> None:
        """Set the number of replicas."""
        with self._lock:
            wanted = max(bounds.least, min(bounds.most, self._kept.wanted))
            self._keep(settings=msgspec.structs.replace(self._kept.settings, bounds=bounds), wanted=wanted)

    def upgrade(self, settings: FleetSettings) -> None:
        """Replace all replicas, one after another, by replicas with these settings."""
        with self._lock:
            self._scaler = Scaler(settings.scaling)
            self._keep(settings=settings, generation=self._kept.generation + 1)

    def settings(self) -> FleetSettings:
        """Settings of the wanted generation."""
        return self._kept.settings

    def down(self) -> None:
        """End all replicas at once. The caller ends this actor."""
        self._over.set()
        self._thread.join(DOWN_S)
        with self._lock:
            numbers = list(self._kept.replicas)
        for number in numbers:
            self._kill(number)  # not saved: the state is deleted next, and a full disk must not keep replicas alive
        self._server.close()

    def _answer(self, who: bytes, owner: bytes, ask: Ask, rank: int) -> Take | Nobody:
        with self._lock:
            return self._register.answer(who, owner, ask, rank, time.monotonic())

    def _rests(self, who: bytes) -> None:
        with self._lock:
            self._register.rest(who)

    def _see_to_replicas(self) -> None:
        while not self._over.wait(LOOK_S):
            try:
                self._step()
            except (
                Exception
            ) as error:  # an error of Ray about a node that is leaving: the next step sees the result
                self._log.warning("step_failed", reason=f"{type(error).__name__}: {str(error)[:300]}")

    def _step(self) -> None:
        with self._lock:
            now, register, kept = time.monotonic(), self._register, self._kept
            if not register.settled(now):
                return
            working = register.working(now)
            wanted = self._scaler.wanted(now, kept.wanted, working, kept.settings.bounds)
            if wanted != kept.wanted:
                self._log.info("scale", wanted=wanted, working=working)
                self._keep(wanted=wanted)
            step = next_step(register.seen(now), wanted, kept.generation, kept.settings.surge)
            register.draining.update(replica_name(number) for number in step.drain)
            draining = [one for one in register.reports() if one.name in register.draining or one.draining]
            unplaced = [one for one in register.reports() if not one.node]
        for report in unplaced:  # left by a directory that died before starting it, or by a lost cluster
            if find_actor(ray, report.name, self._namespace) is None:
                self._end(report.number)
        for _ in range(step.start):
            self._start()
        for report in draining:
            self._go_on_draining(report)

    def _start(self) -> None:
        with self._lock:
            number, generation, settings = self._kept.last + 1, self._kept.generation, self._kept.settings
            # Save first: if this directory dies now, its successor finds the replica, or finds that there is none.
            self._keep(last=number, replicas={**self._kept.replicas, number: generation})
            self._expect(number, generation)
        self._log.info("start", replica=replica_name(number), generation=generation)
        start_replica(self._namespace, number, generation, settings)

    def _go_on_draining(self, report: ReplicaReport) -> None:
        actor = find_actor(ray, report.name, self._namespace)
        if actor is None or report.ended or not report.node:
            self._end(report.number)
            self._log.info("ended", replica=report.name)
        elif not report.draining:
            self._log.info("drain", replica=report.name)
            ray.get(actor.drain.remote(), timeout=DOWN_S)
            self.report(msgspec.structs.replace(report, draining=True))

    def _end(self, number: int) -> None:
        """End a replica for good."""
        self._kill(number)
        with self._lock:
            self._keep(replicas={one: of for one, of in self._kept.replicas.items() if one != number})
            self._register.forget(replica_name(number))

    def _kill(self, number: int) -> None:
        actor = find_actor(ray, replica_name(number), self._namespace)
        if actor is not None:
            ray.kill(actor, no_restart=True)

    def _expect(self, number: int, generation: int) -> None:
        """Register a replica that will report once Ray has placed it."""
        self._register.report(ReplicaReport(replica_name(number), number, generation), time.monotonic())

    def _keep(self, **changed: Any) -> None:
        """Change the state and save it. If it cannot be saved nothing has changed. Raises FleetError."""
        kept = msgspec.structs.replace(self._kept, **changed)
        write_kept(self._folder, kept)
        self._kept = kept


def as_fleet_error(error: Exception) -> FleetError:
    """An exception raised in an actor, unwrapped from Ray's, as one line."""
    cause = getattr(error, "cause", None) or error
    if isinstance(cause, (FleetError, VerifierError)):
        return FleetError(str(cause))
    text = (str(cause).strip() or type(cause).__name__).splitlines()[-1]
    ours = _OURS.fullmatch(text)  # of an actor that did not start Ray passes on the text alone
    return FleetError(ours[1] if ours else f"the directory failed: {text[:300]}")
