# SPDX-License-Identifier: Apache-2.0
"""The results schema of `specnav demo` (`results.json`, schema 1) and the figures computed from episodes.

Fields keep their names within a schema (docs/public_api.md); new ones may be added. A figure that was not measured is
null, never zero or a guess.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar

import msgspec

from specdec.errors import OptionsError
from specdec.row_ms import read_ms
from specnav.results.errors import EvaluationError
from specnav.results.files import read_json, write_json

if TYPE_CHECKING:
    from specdec.energy import Meter

SCHEMA = 1
RESULTS_FILE = "results.json"
NO_SENSOR = "no sensor"

Outcome = Literal[
    "reached",
    "wrong_object",
    "too_far",
    "not_facing",
    "decision_limit",
    "gave_up",
    "timeout",
    "absent_respected",
    "absent_silent",
    "aborted",
]
Setting = str | int | float | bool | None
Results = TypeVar("Results", bound="Versioned")


class Versioned(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every results file. Raises ValueError for a schema that this program cannot read. FILE: its name."""

    FILE: ClassVar[str] = RESULTS_FILE
    schema: int

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ValueError(f"schema is {self.schema}, this program reads {SCHEMA}")

    def save(self, folder: Path) -> None:
        """Write the file into a folder, atomically."""
        write_json(folder / self.FILE, self)

    @classmethod
    def load(cls: type[Results], folder: Path) -> Results:
        """Read the file of a folder. Raises EvaluationError."""
        return read_json(folder / cls.FILE, cls)


class RunResults(Versioned, frozen=True, kw_only=True):
    """The results of a run with these settings on this machine. error: one line; empty if the run succeeded."""

    config: dict[str, Setting]
    machine: dict[str, Setting]
    interrupted: bool = False
    error: str = ""
    started_at: str = ""
    wall_s: float = 0.0


class EpisodeResult(msgspec.Struct, frozen=True, kw_only=True):
    """One episode: an instruction, its result, and the times of every decision (milliseconds)."""

    instruction: str
    success: bool
    collisions: int
    steps: int  # decisions made
    time_to_goal_s: float | None  # instruction published -> robot stopped at the goal; null without success
    path_m: float
    shortest_path_m: float | None  # null if there is no target to reach
    decision_ms: list[float]  # decision started -> action sentence verified
    time_to_action_ms: list[float]  # frame received by the node -> motion command sent
    # -- added since the first version of the schema
    index: int = 0
    seed: int = 0
    split: str = ""
    absent: bool = False
    outcome: Outcome = "aborted"
    detail: str = ""
    said_stop: bool = False
    navigation_error_m: float | None = None  # last position -> the target's surface
    duration_s: float = 0.0
    policy_moves: int = 0  # steps in which the exploration policy replaced the model's action
    parse_failures: int = 0
    safety_stops: int = 0
    drafted: int = 0
    accepted: int = 0
    tokens: int = 0
    rounds: int = 0
    uplink_bytes: int = 0  # all rounds, without the opening messages
    downlink_bytes: int = 0
    round_overhead_ms: list[float] = msgspec.field(default_factory=list)  # wait beyond the target's forward
    late_decisions: int = 0  # see specnav/results/standing.py, also for the *stood_s fields
    stood_s: float = 0.0  # seconds stopped while waiting for any decision
    late_stood_s: float = 0.0  # seconds stopped while waiting for late decisions
    safety_stood_s: float = 0.0  # seconds of safety stops; the decision after one may have been late, too
    joules: list[float] = msgspec.field(default_factory=list)  # energy of decisions that a sensor measured

    def __post_init__(self) -> None:
        for name in ("collisions", "steps", "policy_moves", "parse_failures", "safety_stops"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")
        if self.path_m < 0 or (self.shortest_path_m or 0) < 0:
            raise ValueError("path lengths must not be negative")
        if any(value < 0 for value in (*self.decision_ms, *self.time_to_action_ms)):
            raise ValueError("times must not be negative")
        if any(value < 0 for value in self.joules):
            raise ValueError("energies must not be negative")


class DemoSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a run; null if not measured."""

    success_rate: float | None
    spl: float | None
    navigation_error_m: float | None
    decision_ms_p50: float | None
    decision_ms_p95: float | None
    parse_failures: int
    safety_stops: int
    tau: float | None  # tokens gained per round: accepted + 1, averaged over rounds
    identical_to_target: bool | None  # null: nothing was compared
    # -- added since the first version of the schema
    compared_decisions: int = 0
    compared_tokens: int = 0
    different_decisions: list[tuple[int, int]] = msgspec.field(default_factory=list)  # episode, decision
    time_to_action_ms_p50: float | None = None
    time_to_action_ms_p95: float | None = None
    acceptance: float | None = None
    collisions_per_episode: float | None = None
    absent_respected_rate: float | None = None
    time_to_goal_s_mean: float | None = None
    uplink_bytes_per_round: float | None = None
    downlink_bytes_per_round: float | None = None
    round_overhead_ms_p50: float | None = None  # link, queues and codecs, without the forwards
    round_overhead_ms_p95: float | None = None
    episodes: int = 0
    decisions: int = 0  # decisions that moved the robot or said stop
    late_decisions: int = 0
    stood_s: float = 0.0
    late_stood_s: float = 0.0
    safety_stood_s: float = 0.0
    joules_per_decision: float | None = None  # energy of the robot's computer; null without a sensor

    def __post_init__(self) -> None:
        for name in ("success_rate", "spl", "acceptance", "absent_respected_rate"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value <= 1.0:
                raise ValueError(f"{name} must lie in 0..1")


class LatencyRow(msgspec.Struct, frozen=True, kw_only=True):
    """Camera-to-action time of one method over one emulated round trip."""

    method: str
    rtt_ms: float
    decisions: int
    time_to_action_ms_p50: float
    time_to_action_ms_p95: float
    decision_ms_p50: float
    decision_ms_p95: float
    tau: float | None


class DemoResults(RunResults, frozen=True, kw_only=True):
    """`results.json` of a demo run."""

    episodes: list[EpisodeResult]
    summary: DemoSummary
    latency_study: list[LatencyRow] = msgspec.field(default_factory=list)
    phases_s: dict[str, float] = msgspec.field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """Result of decoding answers again: number of answers and tokens, and (episode, decision) of those that differ."""

    answers: int = 0
    tokens: int = 0
    different: tuple[tuple[int, int], ...] = ()

    @property
    def identical(self) -> bool | None:
        """Whether all compared answers are the same; None when none was compared."""
        return None if self.answers == 0 else not self.different


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Linearly interpolated percentile; None for an empty sequence."""
    if not values:
        return None
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100.0
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def mean(values: Sequence[float]) -> float | None:
    """Arithmetic mean; None for an empty sequence."""
    return sum(values) / len(values) if values else None


def path_weighted_success(episodes: Sequence[EpisodeResult]) -> float | None:
    """SPL (Anderson et al. 2018, arXiv 1807.06757): mean of success · shortest / max(path, shortest).

    Episodes whose target is absent are left out.
    """
    terms = [
        float(e.success) * e.shortest_path_m / max(e.path_m, e.shortest_path_m, 1e-9)
        for e in episodes
        if e.shortest_path_m is not None and not e.absent
    ]
    return mean([min(term, 1.0) for term in terms])


def summarise(episodes: Sequence[EpisodeResult], comparison: Comparison | None = None) -> DemoSummary:
    """Summarise a run from its episodes and the comparison with the target alone.

    `success_rate` counts every episode. With an absent target, success means that the robot says so and does not stop
    at an object.
    """
    compared = comparison or Comparison()
    decision_ms = [value for e in episodes for value in e.decision_ms]
    action_ms = [value for e in episodes for value in e.time_to_action_ms]
    errors = [e.navigation_error_m for e in episodes if e.navigation_error_m is not None and not e.absent]
    goal_s = [e.time_to_goal_s for e in episodes if e.time_to_goal_s is not None]
    rounds = sum(e.rounds for e in episodes)
    overhead = [value for e in episodes for value in e.round_overhead_ms]
    drafted, accepted = sum(e.drafted for e in episodes), sum(e.accepted for e in episodes)
    return DemoSummary(
        success_rate=mean([float(e.success) for e in episodes]),
        spl=path_weighted_success(episodes),
        navigation_error_m=mean(errors),
        decision_ms_p50=percentile(decision_ms, 50),
        decision_ms_p95=percentile(decision_ms, 95),
        parse_failures=sum(e.parse_failures for e in episodes),
        safety_stops=sum(e.safety_stops for e in episodes),
        tau=(accepted + rounds) / rounds if rounds else None,
        identical_to_target=compared.identical,
        compared_decisions=compared.answers,
        compared_tokens=compared.tokens,
        different_decisions=list(compared.different),
        time_to_action_ms_p50=percentile(action_ms, 50),
        time_to_action_ms_p95=percentile(action_ms, 95),
        acceptance=accepted / drafted if drafted else None,
        collisions_per_episode=mean([float(e.collisions) for e in episodes]),
        absent_respected_rate=mean([float(e.success) for e in episodes if e.absent]),
        time_to_goal_s_mean=mean(goal_s),
        uplink_bytes_per_round=sum(e.uplink_bytes for e in episodes) / rounds if rounds else None,
        downlink_bytes_per_round=sum(e.downlink_bytes for e in episodes) / rounds if rounds else None,
        round_overhead_ms_p50=percentile(overhead, 50),
        round_overhead_ms_p95=percentile(overhead, 95),
        episodes=len(episodes),
        decisions=len(action_ms),
        late_decisions=sum(e.late_decisions for e in episodes),
        stood_s=sum(e.stood_s for e in episodes),
        late_stood_s=sum(e.late_stood_s for e in episodes),
        safety_stood_s=sum(e.safety_stood_s for e in episodes),
        joules_per_decision=mean([value for e in episodes for value in e.joules]),
    )


def describe_machine(cpu_info: str | None = None) -> dict[str, Setting]:
    """Facts about this machine: processor, cores, memory, versions. `cpu_info` replaces /proc/cpuinfo in tests."""
    import os

    import psutil

    if cpu_info is None:
        source = Path("/proc/cpuinfo")
        cpu_info = source.read_text() if source.exists() else ""
    names = [line.split(":", 1)[1].strip() for line in cpu_info.splitlines() if line.startswith("model name")]
    machine: dict[str, Setting] = {
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
    for package in ("torch", "transformers", "mujoco", "pyzmq"):
        machine[package] = _version(package)
    return machine


def describe_energy(meter: Meter) -> dict[str, Setting]:
    """The sensors that measure this machine's energy, and its idle power if known."""
    idle = {} if meter.idle_watts is None else {"idle_watts": round(meter.idle_watts, 2)}
    return {"energy_sensors": ", ".join(meter.sensors) or NO_SENSOR, **idle}


def energy_text(joules: float | None) -> str:
    """The energy of a decision as text."""
    return NO_SENSOR if joules is None else f"{joules:.2f} J"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def number_of(config: Mapping[str, Setting], name: str, default: float = 0.0, low: float = 0.0) -> float:
    """A setting of a run that is a number, or a time by rows; the default where it is not set. Raises EvaluationError
    for a file that says something else there, or less than `low`.
    """
    value = config.get(name)
    if value is None:
        return default
    try:
        found = read_ms(value) if isinstance(value, str) else float(value)
    except OptionsError:
        found = math.nan
    if not (math.isfinite(found) and found >= low):
        raise EvaluationError(f"setting {name} of the run is {value!r}, not a number from {low:g} on")
    return found


def check_settings(config: Mapping[str, object]) -> dict[str, Setting]:
    """The settings of a run as plain JSON values; paths and tuples become text."""
    checked: dict[str, Setting] = {}
    for name, value in config.items():
        if isinstance(value, float) and type(value) is not float:
            checked[name] = str(value)  # a subclass, for example times by rows, has more than its number
        elif value is None or isinstance(value, str | int | float | bool):
            checked[name] = value
        elif isinstance(value, Path):
            checked[name] = str(value)
        elif isinstance(value, list | tuple):
            checked[name] = ", ".join(str(part) for part in value)
        else:
            raise EvaluationError(
                f"setting {name} is a {type(value).__name__}, which results.json cannot hold; use text or a number"
            )
    return checked
