# SPDX-License-Identifier: Apache-2.0
"""Reaching Ray: a cluster that runs, or one of this machine's own that `fleet up` starts and `fleet down` ends."""

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
HERE_FILE, TOKEN_FILE = "cluster.json", "token"
AUTO = "auto"
PROBE_S, REACH_S, START_S = 3.0, 30.0, 60.0
_STORE_BYTES = 100_000_000
"""Nothing is kept in Ray's object store; it takes no less than 75 MB."""


class LocalCluster(Struct, frozen=True):
    """Which cluster this machine's fleet is on. session: of the processes of one that was started here, else 0; temp:
    its folder.
    """

    ray: str
    session: int = 0
    temp: str = ""

    def show_token(self) -> None:
        """A cluster that was started here takes only who knows its token: Ray listens where other machines reach it."""
        if self.temp:
            os.environ["RAY_AUTH_MODE"] = "token"
            os.environ["RAY_AUTH_TOKEN_PATH"] = str(Path(self.temp) / TOKEN_FILE)


def check_ray() -> None:
    """Raise FleetError where Ray is not installed. Does not import it: it reads the token's place as it is imported."""
    if importlib.util.find_spec("ray") is None:
        raise FleetError("Ray is not installed here: pip install 'specnav[fleet]'")


def read_here(folder: Path) -> LocalCluster | None:
    """The cluster that an earlier `up` has noted, if it answers still."""
    try:
        here = msgspec.json.decode(read_file(folder / HERE_FILE, MOST_KEY_BYTES), type=LocalCluster)
    except (OSError, *DECODE_ERRORS):
        return None
    if ":" not in here.ray or not answers(here.ray):
        return None
    here.show_token()
    return here


def write_here(folder: Path, here: LocalCluster) -> None:
    """Note it. Raises FleetError."""
    keep(folder, HERE_FILE, msgspec.json.encode(here))


def answers(address: str, seconds: float = PROBE_S) -> bool:
    """Whether a subscriber listens at HOST:PORT or ray://HOST:PORT."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), seconds):
            return True
    except (OSError, ValueError):
        return False


def running_here() -> str:
    """The address of a cluster that another client has started on this machine, "" for none.

    Asked of Ray itself it would also find clusters that are none of ours, and remember that it has shown no token.
    """
    noted = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir()), "ray", "ray_current_cluster")
    address = os.environ.get("RAY_ADDRESS", "")
    # In a folder that every user may write to, a note of another user's would lead into a cluster of his.
    with suppress(OSError, UnicodeDecodeError):
        if not address and {os.lstat(each).st_uid for each in (noted, noted.parent)} <= {0, os.getuid()}:
            address = read_file(noted, MOST_KEY_BYTES).decode().strip()
    return address if address and answers(address) else ""


def reach(address: str) -> Any:
    """Connect to a cluster; returns the module. Raises FleetError where nothing answers, or another client does."""
    check_ray()
    if not answers(address):
        raise FleetError(f"no Ray cluster answers at {address}: check the address (ray start --head shows it)")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Otherwise Ray hides GPUs from actors without any
    import ray

    failed: list[BaseException] = []

    def connect() -> None:
        try:
            ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
        except BaseException as error:
            failed.append(error)

    # Ray has no bound on how long it tries an address that is not a Ray.
    thread = threading.Thread(target=connect, name="ray", daemon=True)
    thread.start()
    thread.join(REACH_S)
    if thread.is_alive():
        raise FleetError(f"what answers at {address} is not a Ray cluster, or not one of version {ray.__version__}")
    if failed:
        text = " ".join(str(failed[0]).split())[:300]
        raise FleetError(f"the Ray cluster at {address} cannot be used: {text}")
    return ray


def start_here(cpus: int) -> LocalCluster:
    """A cluster of this machine alone, which goes on when this process ends. Raises FleetError."""
    check_ray()
    temp = Path(tempfile.mkdtemp(prefix="ray-"))  # short: the names of its sockets may not be long
    # Ray opens its folder to every user, and what it makes there: it gets one in ours, which nothing else can enter.
    inside = temp / "r"
    write_private(temp / TOKEN_FILE, secrets.token_hex(32).encode())
    LocalCluster("", temp=str(temp)).show_token()
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    argv = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"]
    argv += ["--port", address.rpartition(":")[2], *PORTS, "--include-log-monitor", "false"]
    argv += ["--num-cpus", str(cpus), "--include-dashboard", "false", "--temp-dir", str(inside)]
    # Its own autoscaler has nothing to do here, and shows its metrics to all machines.
    argv += ["--object-store-memory", str(_STORE_BYTES), "--no-monitor"]
    here = LocalCluster(address, *start_node(argv, temp))
    if temp.stat().st_mode & 0o077:
        stop_here(here)
        raise FleetError(f"{temp} must be its owner's alone, and Ray opened it to others: use another release of Ray")
    return here


PORTS = ("--min-worker-port", "0", "--max-worker-port", "0", "--dashboard-agent-listen-port", "0")
"""Any that are free: those that Ray would take by itself may not be."""


def start_node(argv: list[str], temp: Path, marker: str = "untime started") -> tuple[int, str]:
    """Run `ray start --block …` in a session of its own; returns that and its folder. Raises FleetError."""
    log = temp / "start.log"
    # By itself Ray gives workers, and with them verifiers, the least of a busy machine's processor time.
    # Its own metrics listen on every address, whatever it is sent.
    environment = {**os.environ, "RAY_worker_niceness": "0", "RAY_enable_metrics_collection": "0"}
    with log.open("wb") as stream:
        process = subprocess.Popen(
            argv, env=environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
        )
    until = time.monotonic() + START_S
    while marker not in (text := log.read_text(errors="replace")):
        if process.poll() is not None or time.monotonic() > until:
            end_session(process.pid)
            last = next((line for line in reversed(text.splitlines()) if line.strip()), "it said nothing")
            raise FleetError(f"Ray did not start on this machine: {last.strip()[:300]} (all of it: {log})")
        time.sleep(0.1)
    return process.pid, str(temp)


def stop_here(here: LocalCluster) -> None:
    """End a cluster that was started here, with all its processes and its folder."""
    if here.session:
        end_session(here.session)
        shutil.rmtree(here.temp, ignore_errors=True)


def end_session(session: int) -> None:
    """SIGTERM, then SIGKILL, to every process of a session that was started here."""
    for number, seconds in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)):
        for process in members(session):
            with suppress(psutil.Error):
                process.send_signal(number)
        until = time.monotonic() + seconds
        while members(session) and time.monotonic() < until:
            time.sleep(0.1)


def members(session: int) -> list[psutil.Process]:
    """Processes of a session that have not ended."""
    found = []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
