# SPDX-License-Identifier: Apache-2.0
"""Isolates the children: a ROS domain of their own, and no shared memory left behind.

ROS communicates on this machine only. Shared-memory segments of Fast DDS are removed only if our processes used them
and no living process still does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from specnav.errors import HarnessError

DOMAINS = range(1, 102)
DDS_BASE_PORT, DDS_PORTS_PER_DOMAIN = 7400, 250
SHARED_MEMORY = Path("/dev/shm")


def ports_in_use(tables: Iterable[str]) -> frozenset[int]:
    """Return the local ports in the text of /proc/net/udp and similar files."""
    ports = set()
    for table in tables:
        for line in table.splitlines()[1:]:
            fields = line.split()
            if len(fields) > 1 and ":" in fields[1]:
                ports.add(int(fields[1].rsplit(":", 1)[1], 16))
    return frozenset(ports)


def read_udp_tables() -> list[str]:
    """Read the kernel's tables of UDP sockets."""
    return [path.read_text() for path in (Path("/proc/net/udp"), Path("/proc/net/udp6")) if path.exists()]


class Domain:
    """A ROS domain reserved with a lock file, with none of its DDS ports in use.

    Checking ports is not enough: two programs looking at the same instant would find the same domain free. The kernel
    releases the lock when its holder dies.
    """

    def __init__(self, used_ports: frozenset[int], first: int, locks: Path | None = None) -> None:
        """Reserve a free domain.

        Args:
            used_ports: UDP ports in use on this machine.
            first: The domain to try first.
            locks: Folder of the lock files; None: the one for temporary files.

        Raises:
            HarnessError: No domain is free.
        """
        folder = Path(tempfile.gettempdir()) if locks is None else locks
        for offset in range(len(DOMAINS)):
            self.number = DOMAINS[(first + offset) % len(DOMAINS)]
            base = DDS_BASE_PORT + DDS_PORTS_PER_DOMAIN * self.number
            if any(base <= port < base + DDS_PORTS_PER_DOMAIN for port in used_ports):
                continue
            with contextlib.suppress(OSError):  # locked, or the file belongs to another user
                self._lock = (folder / f"specnav-domain-{self.number}.lock").open("a")
                try:
                    fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    self._lock.close()
                    raise
                return
        raise HarnessError(
            "every ROS domain from 1 to 101 is in use on this machine; stop a ROS program and try again"
        )

    def release(self) -> None:
        """Release the domain for others."""
        self._lock.close()


def ros_environment(domain: int, log_folder: Path, threads: int) -> dict[str, str]:
    """Return variables for the ROS processes of a run, to be added to this process's environment.

    Args:
        domain: The ROS domain.
        log_folder: Folder for logs and ROS_HOME.
        threads: OpenMP threads per process.

    Returns:
        The variables.
    """
    return {
        "ROS_DOMAIN_ID": str(domain),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "ROS_LOG_DIR": str(log_folder / "ros"),
        # Robot nodes store state here for their next start; no run may inherit it from another.
        "ROS_HOME": str(log_folder / "ros"),
        "RCUTILS_COLORIZED_OUTPUT": "0",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": str(threads),
    }


def segments_of(pids: Sequence[int], maps_folder: Path = Path("/proc")) -> set[Path]:
    """Return the Fast DDS shared-memory files that the given processes have mapped."""
    found = set()
    for pid in pids:
        try:
            maps = (maps_folder / str(pid) / "maps").read_text()
        except OSError:
            continue
        for line in maps.splitlines():
            name = line.split(maxsplit=5)[-1]
            if name.startswith(f"{SHARED_MEMORY}/") and "fastdds_" in name:
                found.add(Path(name.removesuffix(" (deleted)")))
    return found


def remove_segments(segments: Iterable[Path]) -> int:
    """Remove those of the given files that no other process has mapped.

    Segments of ended participants stay mapped in this process, because Fast DDS unmaps what it has read only when the
    process ends; they are removed regardless, since nothing would remove them later. Port files mapped here are kept.

    Args:
        segments: The files.

    Returns:
        The number of files removed.
    """
    others = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()} - {os.getpid()}
    held, here = segments_of(sorted(others)), segments_of([os.getpid()])
    removed = 0
    for path in segments:
        if path in held or (path in here and path.name.startswith("fastdds_port")):
            continue
        for leftover in (path, path.with_name(f"{path.name}_el"), path.with_name(f"sem.{path.name}_mutex")):
            if leftover.exists():
                leftover.unlink(missing_ok=True)
                removed += 1
    return removed
