"""`specnav plan fleet`: what a fleet of robots needs in the cloud, simulated; a table, `fleet.json`, `report.html`."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import msgspec
from rich.console import Console

from specdec.link.shaping import LinkProfile
from specnav.bench.data.papers import figure
from specnav.errors import UsageError
from specnav.plan.calibration import calibrated, tree_for
from specnav.plan.fleet_view import against_table, fleet_table, summary
from specnav.plan.simulated.against import load_clients, played_beside
from specnav.plan.simulated.links import in_words, profile_of
from specnav.plan.simulated.page import write_fleet
from specnav.plan.simulated.pair import METHODS, OVERHEAD_MS, Pair, checked
from specnav.plan.simulated.records import FleetResults, save_fleet
from specnav.plan.simulated.replica import ReplicaPolicy
from specnav.plan.simulated.search import Promise
from specnav.plan.simulated.simulation import Fleet, simpy_module
from specnav.plan.simulated.study import Question, answer_methods, sweep_links
from specnav.plan.simulated.times import RowTimes
from specnav.plan.simulated.workload import Workload, arrivals_named
from specnav.results.demo import SCHEMA, Setting
from specnav.results.errors import EvaluationError
from specnav.run_folder import new_run_folder, started_at
from specnav.signals import ends_on_signals
from specnav.terminal import progress_bar, say

GPU_PRICE = "specedge_001.prices_per_hour.a100_40"
KV_KB = 56.0
"""Of a token, Qwen2-VL-7B in 16 bits: 28 layers, 4 heads of 128, keys and values."""
LIMITS = {
    "robots": (1, 100_000),
    "rate": (1e-6, 100.0),
    "gpus": (0, 100_000),
    "p95_ms": (1e-3, 3_600_000.0),
    "prompt_tokens": (1, 1_000_000),
    "answer_tokens": (1, 100_000),
}


@dataclass(frozen=True)
class FleetConfig:
    """What is asked; None: as calibrated, or the default. links: NAME[=SHARE],...; token: the promise is of a token."""

    robots: int = 1000
    rate: float = 0.2
    arrivals: str = "periodic"
    gpus: int = 0
    gpu: str | None = None
    measured: Path | None = None
    link: str = "wifi6"
    rtt_ms: float | None = None
    jitter_ms: float | None = None
    bandwidth_mbps: float | None = None
    loss: float | None = None
    methods: tuple[str, ...] = METHODS
    p95_ms: float = 2000.0
    token: bool = False
    prompt_tokens: int = 400
    answer_tokens: int = 40
    picture_kb: float = 30.0
    picture_ms: float = 0.0
    kept: float = 0.0
    draft_ms: float | None = None
    cloud_draft_ms: float | None = None
    gamma: int | None = None
    alpha: float | None = None
    tree_alpha: float | None = None
    miss: float | None = None
    overhead_ms: float = OVERHEAD_MS
    forward_rows: int = ReplicaPolicy.rows
    prompt_rows: int = ReplicaPolicy.chunk
    kv_gb: float = 0.0
    kv_kb: float = KV_KB
    gpu_price: float | None = None
    edge_price: float = 0.0
    rtts: tuple[float, ...] = field(default=(0.0, 20.0, 50.0, 100.0, 200.0))
    seed: int = 0
    out: Path | None = None
    json: bool = False


def question_of(config: FleetConfig) -> tuple[Question, list[str]]:
    """What to simulate, and what it is calibrated from. Raises UsageError, EvaluationError."""
    for name, (low, high) in LIMITS.items():
        value = getattr(config, name)
        if not (math.isfinite(value) and low <= value <= high):
            raise UsageError(f"{name} is {value:g}; give a number from {low:g} to {high:g}")
    for method in config.methods:
        checked(method)
    found = calibrated(config.gpu, config.measured)
    words = list(found.words)
    given = {
        "draft_ms": config.draft_ms, "cloud_draft_ms": config.cloud_draft_ms, "gamma": config.gamma,
        "alpha": config.alpha, "miss": config.miss,
    }  # fmt: skip
    for name, value in given.items():
        if value is not None:
            words.append(f"given: {name} {value:g}" if not hasattr(value, "points") else f"given: {name} {value}")
    draft_ms = found.draft_ms if config.draft_ms is None else config.draft_ms
    alpha = found.alpha if config.alpha is None else config.alpha
    tree_alpha = config.tree_alpha
    if tree_alpha is None:
        tree_alpha = found.tree_alpha if config.alpha is None else tree_for(alpha)
    else:
        words.append(f"given: tree_alpha {tree_alpha:g}")
    cloud_ms = config.cloud_draft_ms
    if cloud_ms is None:
        cloud_ms = found.cloud_draft_ms if config.draft_ms is None else draft_ms
    pair = Pair(
        draft_ms=draft_ms,
        cloud_draft=RowTimes(cloud_ms),
        gamma=config.gamma or found.gamma,
        alpha=alpha,
        tree_alpha=tree_alpha,
        miss=found.miss if config.miss is None else config.miss,
        overhead_ms=config.overhead_ms,
    )
    work = Workload(
        config.robots, config.rate, arrivals_named(config.arrivals), (config.prompt_tokens,), (config.answer_tokens,),
        round(1000 * config.picture_kb), config.picture_ms,
    )  # fmt: skip
    kv_tokens = config.kv_gb * 2**20 / config.kv_kb if config.kv_gb else float("inf")
    policy = ReplicaPolicy(config.forward_rows, config.prompt_rows, kv_tokens)
    fleet = Fleet(work, pair, found.target, max(1, config.gpus), links_of(config), policy, config.kept)
    price = figure(GPU_PRICE) if config.gpu_price is None else config.gpu_price
    promise = Promise(config.p95_ms, "token" if config.token else "decision")
    asked = Question(
        fleet, promise, config.methods, config.gpus, price, config.edge_price, config.rtts, config.seed
    )  # fmt: skip
    return asked, words


def links_of(config: FleetConfig) -> tuple[tuple[LinkProfile, float], ...]:
    """Profiles and shares from `wifi6` or `wifi6=70,lte=30`. Raises UsageError, EvaluationError."""
    found = []
    for part in config.link.split(","):
        name, _, share = part.strip().partition("=")
        try:
            weight = float(share) if share else 1.0
        except ValueError:
            weight = 0.0
        if not (weight > 0 and math.isfinite(weight)):
            raise UsageError(f"link {part.strip()!r}: its share is no number above 0; write wifi6=70,lte=30")
        profile = profile_of(name, config.rtt_ms, config.jitter_ms, config.bandwidth_mbps, config.loss)
        found.append((profile, weight))
    return tuple(found)


def run_plan_fleet(config: FleetConfig) -> int:
    """Simulate, print and write; returns the exit code (130 when interrupted). Raises UsageError, EvaluationError."""
    simpy_module()  # before anything else is done
    asked, words = question_of(config)
    folder = new_run_folder(config.out, "fleet", datetime.now())
    console = Console(stderr=True)
    results = _started(config, asked, words)
    began = time.monotonic()
    say(console, f"SIMULATED: {asked.promise.words}; calibrated from {words[0]}")
    try:
        with ends_on_signals(), progress_bar(console) as bar:
            task = bar.add_task("", total=asked.steps + 1)

            def step(what: str) -> None:
                bar.update(task, description=what, advance=1 if bar.tasks[0].description else 0)

            for gpus, plan in answer_methods(asked, step):
                results = msgspec.structs.replace(results, gpus=gpus, methods=[*results.methods, plan])
            for point in sweep_links(asked, step):
                results = msgspec.structs.replace(results, sweep=[*results.sweep, point])
    except KeyboardInterrupt:
        results = msgspec.structs.replace(results, interrupted=True)
    except EvaluationError:
        folder.rmdir()  # nothing was written
        raise
    results = msgspec.structs.replace(results, wall_s=round(time.monotonic() - began, 2))
    if not results.methods:
        folder.rmdir()
        say(console, "interrupted before the first method was done")
        return 130
    save_fleet(folder, results)
    report = write_fleet(folder)
    if config.json:
        print(msgspec.json.format(msgspec.json.encode(results)).decode())
    else:
        Console().print(fleet_table(results))
        for line in summary(results):
            say(Console(), line)
    say(console, f"report: {report}")
    return 130 if results.interrupted else 0


def _started(config: FleetConfig, asked: Question, words: Sequence[str]) -> FleetResults:
    fleet = asked.fleet
    links = [f"{in_words(link)}{f' ({share:g})' * (len(fleet.links) > 1)}" for link, share in fleet.links]
    settings: dict[str, Setting] = {
        "robots": config.robots, "decisions a second of a robot": config.rate, "arrivals": config.arrivals,
        "links": "; ".join(links),
        "prompt, tokens": config.prompt_tokens, "answer, tokens": config.answer_tokens,
        "picture, kB": config.picture_kb, "picture prepared, ms": config.picture_ms,
        "prompt kept where a robot was before": config.kept, "γ": fleet.pair.gamma,
        "α of a chain": round(fleet.pair.alpha, 3), "α of a tree's level": round(fleet.pair.tree_alpha, 3),
        "overhead of a round on the edge, ms": config.overhead_ms,
        "misses of fsd": round(fleet.pair.miss, 3), "draft forward on the edge, ms": str(fleet.pair.draft_ms),
        "rows of a forward, at most": config.forward_rows, "of prompts beside others": config.prompt_rows,
        "cache of a GPU, GB": config.kv_gb or "no bound", "GPU, $ an hour": asked.gpu_price,
        "edge, $ an hour": config.edge_price, "seed": config.seed,
    }  # fmt: skip
    return FleetResults(
        schema=SCHEMA,
        robots=config.robots,
        gpus=config.gpus,
        promise=asked.promise.words,
        promise_ms=asked.promise.ms,
        promise_of=asked.promise.of,
        calibrated=list(words),
        config=settings,
        started_at=started_at(),
    )


def run_against(place: Path, seed: int, overhead_ms: float, as_json: bool) -> int:
    """A saved run of `bench clients` beside its simulation; 1 where an undisturbed one is off by too much."""
    simpy_module()
    saved = load_clients(place)
    found = [played_beside(saved, row, seed, overhead_ms) for row in saved.rows]
    if as_json:
        print(msgspec.json.format(msgspec.json.encode([msgspec.to_builtins(one) for one in found])).decode())
    else:
        Console().print(against_table(found))
    return int(any(one.off for one in found if not one.mark))


def with_flags(config: FleetConfig, methods: str | None, rtts: str | None) -> FleetConfig:
    """With what comes as text. Raises UsageError."""
    if methods is not None:
        names = tuple(dict.fromkeys(name.strip() for name in methods.split(",") if name.strip()))
        if not names:
            raise UsageError(f"--methods names none: choose from {', '.join(METHODS)}")
        config = replace(config, methods=names)
    if rtts is not None:
        try:
            values = tuple(sorted({float(part) for part in rtts.split(",") if part.strip() and part.strip() != "none"}))
        except ValueError:
            values = (-1.0,)
        if not all(0 <= one <= 60_000 for one in values):
            raise UsageError(f"--rtts {rtts!r} is no list of milliseconds; give e.g. 0,40,80, or none")
        config = replace(config, rtts=values)
    return config
