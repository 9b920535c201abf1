# SPDX-License-Identifier: Apache-2.0
"""Samples the counters of a verifier and of the machine; two samples give the figures for the time between them."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

from specnav.errors import HarnessError
from specnav.top.scrape import Address, Interval, Scrape, fetch, parse

METRICS = re.compile(r'"event":\s*"metrics"')
METRICS_FLAGS = ("--metrics", "127.0.0.1:0")


class LoadSample(NamedTuple):
    """Counters at one moment, cumulative. ours_s: CPU seconds of this process and its descendants."""

    verifier: Scrape
    cores_idle_s: float
    cores_s: float
    ours_s: float


@dataclass(frozen=True)
class Between:
    """Figures for the time between two samples.

    server: the engine's figures. cores_busy, cores_ours: shares of all cores' time.
    """

    server: dict[str, float]
    cores_busy: float
    cores_ours: float


def metrics_of(log: Path) -> str:
    """HOST:PORT of a verifier's metrics, read from its log. Raises HarnessError."""
    for line in log.read_text(errors="replace").splitlines():
        if METRICS.search(line):
            return str(json.loads(line)["bind"])
    raise HarnessError(f"the verifier's log does not say where its metrics are: see {log}")


def look(metrics: str) -> LoadSample:
    """Take a sample. Raises HarnessError if the verifier does not answer."""
    times = psutil.cpu_times()
    return LoadSample(
        parse(fetch(Address.parse(metrics)), time.monotonic()),
        times.idle + getattr(times, "iowait", 0.0),
        sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0),
        _own_s(),
    )


def between(before: LoadSample, after: LoadSample) -> Between:
    """The figures for the time between two samples."""
    seen = Interval(before.verifier, after.verifier)
    server = {
        "forwards": seen.grown("forwards_total"),
        "forwards_per_s": round(seen.rate("forwards_total"), 2),
        "sessions_a_forward": round(seen.share("forward_sessions_total", "forwards_total") or 0.0, 2),
        "rows_a_forward": round(seen.share("forward_rows_total", "forwards_total") or 0.0, 2),
        "forward_ms": round(1e3 * (seen.share("forward_seconds_total", "forwards_total") or 0.0), 3),
        "idle_share": round(min(1.0, max(0.0, 1 - seen.rate("forward_seconds_total"))), 3),
    }
    cores_s = max(after.cores_s - before.cores_s, 1e-9)
    busy, ours = 1 - (after.cores_idle_s - before.cores_idle_s) / cores_s, (after.ours_s - before.ours_s) / cores_s
    return Between(server, round(min(1.0, max(0.0, busy)), 3), round(max(0.0, ours), 3))


def _own_s() -> float:
    """CPU seconds of this process and all its descendants."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total
