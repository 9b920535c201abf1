# SPDX-License-Identifier: Apache-2.0
"""The commands of `specnav fleet`: each connects to Ray, calls the directory, and prints the result."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from cloud_verifier.config import ServerConfig
from specdec.link.binding import is_loopback
from specdec.row_ms import RowMs
from specnav.errors import UsageError
from specnav.fleet.cluster import (
    AUTO,
    DIRECTORY,
    NAMESPACE,
    LocalCluster,
    check_ray,
    find_actor,
    reach,
    read_here,
    running_here,
    start_here,
    stop_here,
    write_here,
)
from specnav.fleet.errors import FleetError
from specnav.fleet.settings import (
    FleetSettings,
    ReplicaBounds,
    ReplicaPlacement,
    ScaleConfig,
    Scaling,
    UpConfig,
    UpgradeConfig,
    Where,
    check_fleet,
    gpus_of_replica,
    read_bounds,
)
from specnav.fleet.state import STATE_FILE, FleetState, forget_kept
from specnav.fleet.status import FleetStatus
from specnav.run_folder import claim
from specnav.serve import models_of, serve_settings
from specnav.terminal import plain_table, say

CALL_S = 30.0
_LOOK_S = 0.3


def run_up(config: UpConfig) -> int:
    """Start a fleet; returns once it serves, and leaves it running. Raises FleetError, UsageError, VerifierError."""
    bounds = read_bounds(config.replicas)
    server = server_of(config)
    check_ray()
    console = Console(stderr=True)
    _claim(config.state)
    here = _known(config.ray, config.state)
    if here is None:
        here = _reach_or_start(config, bounds, console)
    else:
        _reach(here)
    import ray

    try:
        with _in_one_line(ray):
            return _up(config, bounds, server, here, ray, console)
    except BaseException:
        if here.session and find_actor(ray, DIRECTORY) is None:
            stop_here(here)
        raise
    finally:
        ray.shutdown()


def _claim(state: Path) -> None:
    """Let no other `up` use a fleet's folder at the same time: each would start a cluster, and record only its own."""
    try:
        state.mkdir(parents=True, exist_ok=True)
        claim(state)
    except OSError as error:
        raise FleetError(f"cannot save the fleet's state in {state}: {error.strerror}") from error


def _known(address: str, state: Path) -> LocalCluster | None:
    """The cluster recorded in a fleet's folder, if it is the one at `address` (--ray) and still responds."""
    here = read_here(state)
    return here if here is not None and address in (AUTO, here.ray) else None


def _reach(here: LocalCluster) -> Any:
    """Connect to a recorded cluster; returns the ray module. Raises FleetError."""
    here.show_token()  # before Ray is imported
    return reach(here.ray)


def server_of(config: UpConfig) -> dict[str, Any]:
    """Settings of a replica's verifier by name, without its addresses."""
    return for_replicas(as_kept(serve_settings(config.file, {**config.server, "pair": config.pair})))


def as_kept(settings: ServerConfig) -> dict[str, Any]:
    """Settings by name in JSON types: times by rows become text."""
    return {name: str(one) if isinstance(one, RowMs) else one for name, one in asdict(settings).items()}


def for_replicas(server: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the addresses and make paths absolute, because a replica has another working directory."""
    given = {name: value for name, value in server.items() if name not in ("bind", "metrics")}
    for name in ("model", "draft_model", "exits", "keys", "verdict_log"):
        is_made = name == "verdict_log"  # by the replica
        if given.get(name) and (is_made or Path(os.path.expanduser(given[name])).exists()):
            given[name] = str(Path(os.path.expanduser(given[name])).resolve())
    return given


def _reach_or_start(config: UpConfig, bounds: ReplicaBounds, console: Console) -> LocalCluster:
    other = read_here(config.state)
    if other is not None and (other.session or (config.state / STATE_FILE).exists()):
        raise FleetError(
            f"{config.state} belongs to the fleet on the Ray cluster at {other.ray}: give this one another --state, or "
            f"end that one (specnav fleet down --state {config.state})"
        )
    address = running_here() if config.ray == AUTO else config.ray
    if address:
        reach(address)
        here = LocalCluster(address)
        write_here(config.state, here)
        return here
    cpus = max(2, round(config.cpus * (bounds.most + 1)))
    say(console, "no Ray cluster runs on this machine: starting one")
    here = start_here(cpus, lambda started: write_here(config.state, started))
    try:
        reach(here.ray)
    except BaseException:  # also an interrupt
        stop_here(here)
        raise
    return here


def _up(
    config: UpConfig,
    bounds: ReplicaBounds,
    server: dict[str, Any],
    here: LocalCluster,
    ray: Any,
    console: Console,
) -> int:
    if find_actor(ray, DIRECTORY) is not None:
        raise UsageError(f"a fleet runs at {here.ray} already: specnav fleet status, upgrade or down")
    from specnav.fleet.replica import node_address

    node = node_address()
    machines = {one["NodeManagerAddress"] for one in ray.nodes() if one["Alive"]}
    alone = machines == {node} and not server["keys"] and not server["insecure"]
    there = [float(one["Resources"].get("GPU", 0)) for one in ray.nodes() if one["Alive"]]
    gpus = gpus_of_replica(config.gpus, server["tensor_parallel"], there)
    place = ReplicaPlacement(config.cpus, gpus, config.resource)
    scaling = Scaling(config.edges_per_replica, idle_s=config.idle_s)
    settings = FleetSettings(
        server,
        bounds,
        place,
        scaling,
        config.surge,
        metrics_outside=bool(config.metrics) and not is_loopback(config.metrics),
        home=node if alone else "",
    )
    check_fleet(settings, settings.host(node))
    first = FleetState(secrets.token_hex(8), settings, bounds.least, config.port)
    actor = start_directory(ray, config.state, first, config.metrics)
    try:
        status = wait_settled(ray, actor, config.wait_s, console, "replicas")
        if not status.count("ready"):
            why = status.troubles[0] if status.troubles else "none has started yet: is there room for them?"
            raise FleetError(f"no replica serves; {why}")
    except BaseException:
        end_fleet(ray, actor, config.state)
        raise
    for line in status.troubles:
        say(console, f"warning: {line}")
    print(status.address)
    key = " --key FILE" if settings.keys else ""
    say(
        console,
        f"{status.count('ready')} of {status.wanted} replicas serve; edges:  --connect {status.address}{key}",
    )
    return 0


def start_directory(ray: Any, state: Path, first: FleetState, metrics: str) -> Any:
    """Start the directory's actor on this node, so that its address stays the same. Raises FleetError."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from specnav.fleet.directory import Directory, as_fleet_error

    node = ray.get_runtime_context().get_node_id()
    actor = (
        ray.remote(Directory)
        .options(
            name=DIRECTORY,
            namespace=NAMESPACE,
            lifetime="detached",
            max_restarts=-1,
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )
        .remote(NAMESPACE, str(state.resolve()), first, metrics)
    )
    try:
        ray.get(actor.status.remote(), timeout=CALL_S)
    except Exception as error:  # a port in use or unreadable keys: Ray would retry forever
        ray.kill(actor, no_restart=True)
        forget_kept(state)
        raise as_fleet_error(error) from error
    except BaseException:  # an interrupt: it may have started replicas
        end_fleet(ray, actor, state)
        raise
    return actor


def run_status(where: Where, as_json: bool) -> int:
    """Print the fleet's status. Returns 1 if fewer replicas serve than are wanted, else 0."""
    with _directory(where.ray, where.state) as (ray, actor):
        status = ray.get(actor.status.remote(), timeout=CALL_S)
    if as_json:
        print(json.dumps(msgspec.to_builtins(status), indent=1, default=bytes.hex))
    else:
        show(status)
    return int(status.count("ready") < status.wanted)


def run_scale(config: ScaleConfig) -> int:
    """Change the number of replicas; returns when it is reached."""
    bounds = read_bounds(config.replicas)
    console = Console(stderr=True)
    with _directory(config.ray, config.state) as (ray, actor):
        ray.get(actor.scale.remote(bounds), timeout=CALL_S)
        status = wait_settled(ray, actor, config.wait_s, console, "replicas")
    return _said(status, console)


def run_upgrade(config: UpgradeConfig) -> int:
    """Replace all replicas one by one; returns when done."""
    console = Console(stderr=True)
    with _directory(config.ray, config.state) as (ray, actor):
        from specnav.fleet.replica import node_address

        before: FleetSettings = ray.get(actor.settings.remote(), timeout=CALL_S)
        given = changed_server(before.server, config)
        surge = before.surge if config.surge is None else config.surge
        settings = msgspec.structs.replace(before, server=for_replicas(given), surge=surge)
        check_fleet(settings, settings.host(node_address()))
        ray.get(actor.upgrade.remote(settings), timeout=CALL_S)
        status = wait_settled(ray, actor, config.wait_s, console, "upgraded")
    return _said(status, console)


def changed_server(before: Mapping[str, Any], config: UpgradeConfig) -> dict[str, Any]:
    """Settings of replicas after an upgrade, by name. Raises UsageError, VerifierError."""
    if config.file is not None:
        return {**before, **as_kept(serve_settings(config.file, {**config.server, "pair": config.pair}))}
    changes = dict(config.server)
    if config.pair is not None:
        changes = models_of(config.pair, changes.get("engine", before["engine"])) | changes
    if not changes:
        return dict(before)
    wanted = as_kept(serve_settings(None, {**before, **changes}))
    return {**before, **{name: wanted[name] for name in changes}}


def run_down(where: Where) -> int:
    """End the fleet, and the Ray cluster if it was started for it."""
    state = where.state
    here = _known(where.ray, state)
    ours = here if here is not None and here.session else None
    try:
        with _directory(where.ray, state) as (ray, actor):
            end_fleet(ray, actor, state)
    except (FleetError, UsageError):
        if ours is None:
            raise  # otherwise what is left, as by an `up` that was killed, ends with its cluster
    finally:
        if ours is not None:
            stop_here(ours)
    say(Console(stderr=True), "the fleet is down")
    return 0


def end_fleet(ray: Any, actor: Any, state: Path) -> None:
    """End all replicas and the directory."""
    try:
        ray.get(actor.down.remote(), timeout=2 * CALL_S)
    finally:
        ray.kill(actor, no_restart=True)
        forget_kept(state)


def wait_settled(ray: Any, actor: Any, wait_s: float, console: Console, unit: str) -> FleetStatus:
    """Wait until the wanted replicas serve, until wait_s has passed, or until the remaining replicas have failed.

    Raises FleetError if the fleet is taken down meanwhile.
    """
    until = time.monotonic() + wait_s
    told: set[str] = set()
    with console.status("") as line:
        while True:
            try:
                status: FleetStatus = ray.get(actor.status.remote(), timeout=CALL_S)
            except ray.exceptions.RayActorError as error:  # the directory died: Ray restarts it where it was
                if time.monotonic() > until:
                    raise
                if find_actor(ray, DIRECTORY) is None:  # it does not; soon its cluster ends, and Ray would abort us
                    raise FleetError("the fleet was taken down meanwhile: specnav fleet up starts one") from error
                time.sleep(_LOOK_S)
                continue
            ready = status.count("ready", status.generation)
            line.update(f"{ready} of {status.wanted} {unit}")
            if status.settled or time.monotonic() > until:
                return status
            for trouble in status.troubles:
                if trouble not in told and "not placed" not in trouble:
                    told.add(trouble)
                    say(console, trouble)
            waiting = status.count("starting") + status.count("draining")
            new = status.generation  # those of an earlier upgrade that failed are replaced
            if not waiting and status.count("failed", new) + status.count("left_out", new):
                return status  # the remaining replicas will not start
            time.sleep(_LOOK_S)


def show(status: FleetStatus) -> None:
    """Print a table of the replicas."""
    title = (
        f"{status.address}  ·  {status.count('ready')} of {status.wanted} ({status.bounds}) replicas serve"
    )
    table = plain_table(
        ["replica", "generation", "state", "address", "node", "edges", "answers", "starts", ""],
        {"replica", "state", "address", "node", ""},
        title,
    )
    for one in status.replicas:
        about = one.report
        numbers = (str(one.edges), str(one.active), str(about.starts))
        row = (
            about.name,
            str(about.generation),
            one.state.replace("_", " "),
            about.address or "-",
            about.node or "-",
        )
        table.add_row(*row, *numbers, one.words)
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(table, soft_wrap=not console.is_terminal)


@contextmanager
def _directory(ray_address: str, state: Path) -> Iterator[tuple[Any, Any]]:
    check_ray()
    here = _known(ray_address, state)
    address = running_here() if ray_address == AUTO else ray_address
    if here is None and not address:
        raise UsageError(
            f"{state} records no fleet that runs, and no other Ray cluster runs on this machine: specnav fleet up "
            "starts one; otherwise give the folder with --state, or the cluster's address with --ray"
        )
    ray = reach(address) if here is None else _reach(here)
    try:
        actor = find_actor(ray, DIRECTORY)
        if actor is None:
            raise UsageError("no fleet runs there: specnav fleet up starts one")
        with _in_one_line(ray):
            yield ray, actor
    finally:
        ray.shutdown()


@contextmanager
def _in_one_line(ray: Any) -> Iterator[None]:
    """Turn what Ray raises, as where the directory or the cluster has just died, into a FleetError."""
    try:
        yield
    except ray.exceptions.RayError as error:
        from specnav.fleet.directory import as_fleet_error

        raise as_fleet_error(error) from error


def _said(status: FleetStatus, console: Console) -> int:
    for line in status.troubles:
        say(console, f"warning: {line}")
    serving, new = status.count("ready"), status.count("ready", status.generation)
    of_them = "" if new == serving else f", {new} of them with the newest settings"
    say(console, f"{serving} of {status.wanted} replicas serve{of_them}")
    return int(not status.settled)
