# SPDX-License-Identifier: Apache-2.0
"""Connects to Ray: to a running cluster, or to a local one that `fleet up` starts and `fleet down` ends."""

from __future__ import annotations

import importlib.util
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil
from msgspec import Struct

from specdec.errors import DECODE_ERRORS
from specdec.link.keys import write_private
from specdec.settings_files import MOST_KEY_BYTES, read_file
from specnav.fleet.errors import FleetError
from specnav.fleet.state import keep

NAMESPACE = "specnav"
DIRECTORY = "directory"
"""Name of the directory's actor."""
HERE_FILE, TOKEN_FILE = "cluster.json", "token"
AUTO = "auto"
PROBE_S, REACH_S, START_S = 3.0, 30.0, 120.0
_STORE_BYTES = 100_000_000
"""Size of Ray's object store, which is not used; Ray requires at least 75 MB."""


def find_actor(ray: Any, name: str, namespace: str = NAMESPACE) -> Any | None:
    """A fleet's actor, or None. ray: the module, connected."""
    try:
        return ray.get_actor(name, namespace)
    except ValueError:
        return None


class LocalCluster(Struct, frozen=True):
    """The Ray cluster of this machine's fleet. session: process session of a cluster that was started here, else 0;
    temp: its folder.
    """

    ray: str
    session: int = 0
    temp: str = ""

    def show_token(self) -> None:
        """Set the token for a cluster that was started here: it requires one, because other machines can reach
        its ports.
        """
        if self.temp:
            os.environ["RAY_AUTH_MODE"] = "token"
            os.environ["RAY_AUTH_TOKEN_PATH"] = str(Path(self.temp) / TOKEN_FILE)


def check_ray() -> None:
    """Raise FleetError if Ray is not installed. Does not import Ray, which reads the token's path when it is
    imported.
    """
    if importlib.util.find_spec("ray") is None:
        raise FleetError("Ray is not installed here: pip install 'specnav[fleet]'")


def read_here(folder: Path) -> LocalCluster | None:
    """The cluster recorded by an earlier `up`, if it still responds."""
    try:
        here = msgspec.json.decode(read_file(folder / HERE_FILE, MOST_KEY_BYTES), type=LocalCluster)
    except (OSError, *DECODE_ERRORS):
        return None
    return here if ":" in here.ray and answers(here.ray) else None


def write_here(folder: Path, here: LocalCluster) -> None:
    """Record the cluster. Raises FleetError."""
    keep(folder, HERE_FILE, msgspec.json.encode(here))


def answers(address: str) -> bool:
    """Whether something listens at HOST:PORT or ray://HOST:PORT."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), PROBE_S):
            return True
    except (OSError, ValueError):
        return False


def running_here() -> str:
    """The address of a cluster that was started on this machine by other means, "" if none.

    Ray's own search would also find other users' clusters, and would remember that no token was set.
    """
    noted = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir()), "ray", "ray_current_cluster")
    address = os.environ.get("RAY_ADDRESS", "")
    # Ignore files of other users: in a shared folder they could lead into another user's cluster.
    with suppress(OSError, UnicodeDecodeError):
        if not address and {os.lstat(each).st_uid for each in (noted, noted.parent)} <= {0, os.getuid()}:
            address = read_file(noted, MOST_KEY_BYTES).decode().strip()
    return address if address and answers(address) else ""


def reach(address: str) -> Any:
    """Connect to a cluster; returns the ray module. Raises FleetError if nothing usable answers there."""
    check_ray()
    if not answers(address):
        raise FleetError(f"no Ray cluster answers at {address}: check the address (ray start --head shows it)")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # otherwise Ray hides GPUs from actors without any
    import ray

    failed: list[BaseException] = []

    def connect() -> None:
        try:
            ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
        except BaseException as error:
            failed.append(error)

    # Ray tries to connect to a non-Ray address without a time limit.
    thread = threading.Thread(target=connect, name="ray", daemon=True)
    thread.start()
    thread.join(REACH_S)
    if thread.is_alive():
        raise FleetError(f"{address} is not a Ray cluster, or not one of version {ray.__version__}")
    if failed:
        text = " ".join(str(failed[0]).split())[:300]
        raise FleetError(f"the Ray cluster at {address} cannot be used: {text}")
    if threading.current_thread() is threading.main_thread():
        # Ray has put a handler in the place of ours: it prints a stack, and aborts us 3 s later, in the cleanup.
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    return ray


def start_here(cpus: int, record: Callable[[LocalCluster], None] = lambda here: None) -> LocalCluster:
    """Start a cluster on this machine that outlives this process. record: called as soon as its processes exist, long
    before it answers: whatever ends this process, `fleet down` finds them. Raises FleetError.
    """
    check_ray()
    temp = Path(tempfile.mkdtemp(prefix="ray-"))  # short, because the length of socket names is limited
    # Ray makes its folder readable for every user, so it gets one inside a private folder.
    inside = temp / "r"
    write_private(temp / TOKEN_FILE, secrets.token_hex(32).encode())
    LocalCluster("", temp=str(temp)).show_token()
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    argv = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"]
    argv += ["--port", address.rpartition(":")[2], *PORTS, "--include-log-monitor", "false"]
    argv += ["--num-cpus", str(cpus), "--include-dashboard", "false", "--temp-dir", str(inside)]
    # Ray's autoscaler is not needed, and would expose its metrics to all machines.
    argv += ["--object-store-memory", str(_STORE_BYTES), "--no-monitor"]
    here = LocalCluster(
        address, *start_node(argv, temp, began=lambda session: record(LocalCluster(address, session, str(temp))))
    )
    if temp.stat().st_mode & 0o077:
        stop_here(here)
        raise FleetError(f"{temp} must be private, but Ray opened it to other users: use another release of Ray")
    return here


PORTS = ("--min-worker-port", "0", "--max-worker-port", "0", "--dashboard-agent-listen-port", "0")
"""Let Ray choose free ports: its fixed defaults may be in use."""


def start_node(
    argv: list[str], temp: Path, marker: str = "untime started", began: Callable[[int], None] = lambda session: None
) -> tuple[int, str]:
    """Run `ray start --block …` in a new process session; returns the session and its folder. began: called with the
    session at once. Raises FleetError.
    """
    log = temp / "start.log"
    # By default Ray gives workers, and so verifiers, the lowest CPU priority. Its own metrics would listen on every
    # address.
    environment = {**os.environ, "RAY_worker_niceness": "0", "RAY_enable_metrics_collection": "0"}
    with log.open("wb") as stream:
        process = subprocess.Popen(
            argv, env=environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
        )
    until = time.monotonic() + START_S
    try:
        began(process.pid)
        while marker not in (text := log.read_text(errors="replace")):
            ended = process.poll() is not None
            if ended or time.monotonic() > until:
                last = next((line for line in reversed(text.splitlines()) if line.strip()), "no output")
                when = "" if ended else f" within {START_S:g} s"
                raise FleetError(f"Ray did not start on this machine{when}: {last.strip()[:300]} (full log: {log})")
            time.sleep(0.1)
    except BaseException:  # also an interrupt, which a session of its own does not get
        end_session(process.pid)
        raise
    return process.pid, str(temp)


def stop_here(here: LocalCluster) -> None:
    """End a cluster that was started here, with all its processes and its folder."""
    if here.session:
        end_session(here.session)
        shutil.rmtree(here.temp, ignore_errors=True)


def end_session(session: int) -> None:
    """Send SIGTERM, then SIGKILL, to every process of a session that was started here."""
    for number, seconds in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)):
        for process in members(session):
            with suppress(psutil.Error):
                process.send_signal(number)
        until = time.monotonic() + seconds
        while members(session) and time.monotonic() < until:
            time.sleep(0.1)


def members(session: int) -> list[psutil.Process]:
    """Processes of a session that are still running."""
    found = []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
