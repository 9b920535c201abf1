# SPDX-License-Identifier: Apache-2.0
"""`specnav plan fleet`: simulates how many GPUs a fleet of robots needs; writes `fleet.json` and `report.html`."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from cloud_verifier.engine.policy import Policy
from specdec.errors import OptionsError
from specdec.link.shaping import LinkProfile
from specdec.options import DecodingOptions, GenerationOptions
from specdec.settings import changed_in, check_settings, same_as, setting
from specdec.settings import words as by_commas
from specnav.bench.data.papers import figure
from specnav.bench.settings import BenchConfig
from specnav.bench.studies.figures import signed
from specnav.errors import UsageError
from specnav.plan.calibration import calibrated
from specnav.plan.simulated.comparison import (
    GAP_MAY,
    RATE_MAY,
    MeasuredComparison,
    load_clients,
    played_beside,
)
from specnav.plan.simulated.page import write_fleet
from specnav.plan.simulated.pair import METHODS, OVERHEAD_MS, tree_for
from specnav.plan.simulated.records import FleetResults
from specnav.plan.simulated.replica import ReplicaPolicy
from specnav.plan.simulated.search import PlanQuestion, Promise, answer_methods, order, sweep_links
from specnav.plan.simulated.simulation import Fleet, Workload, arrivals_named, simpy_module
from specnav.results.demo import SCHEMA, Setting
from specnav.results.errors import EvaluationError
from specnav.run_folder import new_run_folder, started_at
from specnav.settings import Printed
from specnav.terminal import plain_table, progress_bar, say

GPU_PRICE = "specedge_001.prices_per_hour.a100_40"
CALIBRATED, OF_LINK = "as calibrated", "as --link has it"
KV_KB = 56.0
"""KV cache per token of Qwen2-VL-7B in 16 bits: 28 layers, 4 heads of 128, keys and values."""


def milliseconds(text: str) -> tuple[float, ...]:
    """Parse "0,40,80" into sorted numbers; "none" gives (). Raises UsageError."""
    try:
        values = tuple(sorted({float(part) for part in by_commas(text) if part != "none"}))
    except ValueError:
        values = (-1.0,)
    if not all(0 <= one <= 60_000 for one in values):
        raise UsageError(
            f"round trips must be milliseconds from 0 to 60000, like 0,40,80, or none, got {text!r}"
        )
    return values


@dataclass(frozen=True)
class FleetConfig:
    """Settings of `specnav plan fleet`; None: as calibrated, or the default."""

    robots: int = setting(1000, "Number of robots.", 1, 100_000)
    rate: float = setting(0.2, "Decisions per second and robot.", 1e-6, 100)
    arrivals: str = setting(
        "periodic", "periodic, poisson, or after (a pause after the previous one).", metavar="HOW"
    )
    gpus: int = setting(0, "Available GPUs; 0: as many as the best method needs.", 0, 100_000)
    gpu: str | None = setting(
        None,
        "Durations of forward passes: a100 (FSD, Table 9) or an operating point of config/points.",
        metavar="NAME",
    )
    measured: Path | None = setting(
        None, "Measured durations: a batch.json, a study of clients or a clients.json.", metavar="PATH"
    )
    link: str = setting(
        "wifi6",
        "wifi6, 5g, lte or a round trip in ms; a mixture: wifi6=70,lte=30.",
        metavar="NAME[=SHARE],...",
    )
    rtt_ms: float | None = same_as(
        LinkProfile, "rtt_ms", default=None, help="Round trip of the link.", shown=OF_LINK
    )
    jitter_ms: float | None = same_as(
        LinkProfile, "jitter_ms", default=None, help="Jitter of the link.", shown=OF_LINK
    )
    bandwidth_mbps: float | None = same_as(
        LinkProfile,
        "bandwidth_mbps",
        default=None,
        help="Bandwidth of the link, each way; 0: no limit.",
        shown=OF_LINK,
    )
    loss: float | None = same_as(
        LinkProfile, "loss", default=None, help="Share of packets that TCP must resend.", shown=OF_LINK
    )
    methods: tuple[str, ...] = setting(
        METHODS, "Methods to compare.", choices=METHODS, metavar="A,B,...", read=by_commas
    )
    p95_ms: float | None = setting(
        None, "Promise: 95 % of the decisions within this time.", 1e-3, 3_600_000, unit="ms", shown="2000 ms"
    )
    p95_token_ms: float | None = setting(
        None, "Instead, a promise for each token of an answer.", 1e-3, 3_600_000, unit="ms"
    )
    prompt_tokens: int = setting(400, "Tokens of a prompt, including its picture's.", 1, 1_000_000)
    answer_tokens: int = setting(40, "Tokens of an answer.", 1, 100_000)
    picture_kb: float = setting(30.0, "Size of a picture.", 0, 1e5, unit="kB")
    picture_ms: float = setting(
        0.0, "Time to prepare a picture in the cloud, in addition to its forwards.", 0, 60_000, unit="ms"
    )
    kept: float = setting(
        0.0,
        "Share of a prompt cached by the robot's last verifier; above 0 the directory prefers that verifier.",
        0,
        0.99,
        metavar="SHARE",
    )
    draft_ms: float | None = same_as(
        BenchConfig, "draft_ms", default=None, help="Time of a draft forward on the edge; may also be by rows.",
        shown=CALIBRATED,
    )  # fmt: skip
    cloud_draft_ms: float | None = same_as(
        BenchConfig, "cloud_draft_ms", help="Time of a draft forward in the cloud, for cloud-sd.", shown=CALIBRATED
    )
    gamma: int | None = same_as(DecodingOptions, "gamma", default=None, shown=CALIBRATED)
    alpha: float | None = setting(None, "Probability that a token of a chain is accepted.", 0, 1, shown=CALIBRATED)
    tree_alpha: float | None = setting(
        None, "Probability that a level of specedge's tree is accepted.", 0, 1, shown=CALIBRATED
    )
    miss: float | None = setting(
        None, "Share of verdicts for which fsd has no draft ready.", 0, 1, shown=CALIBRATED
    )
    overhead_ms: float = setting(OVERHEAD_MS, "Overhead of a round on the edge.", 0, 10_000, unit="ms")
    forward_rows: int = same_as(Policy, "rows", high=100_000)
    prompt_rows: int = same_as(Policy, "chunk", high=100_000)
    kv_gb: float = setting(0.0, "GPU memory for KV caches; 0: no bound.", 0, 1e6, unit="GB")
    kv_kb: float = setting(KV_KB, "KV cache per token (Qwen2-VL-7B).", 0.01, 1e5, unit="kB")
    gpu_price: float | None = setting(None, "Dollars per hour for a GPU.", 0, 1e6, shown="SpecEdge's A100")
    edge_price: float = setting(0.0, "Dollars per hour for an edge that drafts (SpecEdge's RTX 4090: 0.35).", 0, 1e6)
    rtts: tuple[float, ...] = setting(
        (0.0, 20.0, 50.0, 100.0, 200.0),
        "Round trips at which to compare the methods on one GPU, or none.",
        metavar="MS,MS,...",
        read=milliseconds,
    )
    seed: int = same_as(GenerationOptions, "seed", high=2**31)
    out: Path | None = setting(None, "Folder of the plan.", metavar="FOLDER", shown="runs/fleet-<time>")
    json: bool = same_as(Printed, "json", help="The plan as JSON instead of tables.")
    against: Path | None = setting(
        None, "Instead, simulate a saved run of bench clients and compare.", metavar="FILE"
    )

    def __post_init__(self) -> None:
        """Check the settings. Raises UsageError."""
        check_settings(self, UsageError)
        if self.p95_ms is not None and self.p95_token_ms is not None:
            raise UsageError("--p95-ms promises a decision, --p95-token-ms a token; give one of them")
        if not self.methods:
            raise UsageError(f"--methods is empty: choose from {', '.join(METHODS)}")

    @property
    def promise(self) -> Promise:
        """The bound that 95 % of decisions or tokens must meet."""
        if self.p95_token_ms is not None:
            return Promise(self.p95_token_ms, "token")
        return Promise(2000.0 if self.p95_ms is None else self.p95_ms, "decision")


def question_of(config: FleetConfig) -> tuple[PlanQuestion, list[str]]:
    """(what to simulate, sources of the calibration). Raises UsageError, EvaluationError."""
    found = calibrated(config.gpu, config.measured)
    names = ("draft_ms", "cloud_draft_ms", "gamma", "alpha", "miss", "tree_alpha")
    given = {name: value for name in names if (value := getattr(config, name)) is not None}
    words = [*found.words, *(f"given: {name} {value:g}" for name, value in given.items())]
    if "draft_ms" in given:
        given.setdefault("cloud_draft_ms", given["draft_ms"])
    if "alpha" in given:
        given.setdefault("tree_alpha", tree_for(given["alpha"]))
    pair = replace(found.pair, **given, overhead_ms=config.overhead_ms)
    work = Workload(
        config.robots, config.rate, arrivals_named(config.arrivals), (config.prompt_tokens,), (config.answer_tokens,),
        round(1000 * config.picture_kb), config.picture_ms,
    )  # fmt: skip
    kv_tokens = config.kv_gb * 2**20 / config.kv_kb if config.kv_gb else float("inf")
    policy = ReplicaPolicy(config.forward_rows, config.prompt_rows, kv_tokens=kv_tokens)
    fleet = Fleet(work, pair, found.target, max(1, config.gpus), links_of(config), policy, config.kept)
    price = figure(GPU_PRICE) if config.gpu_price is None else config.gpu_price
    asked = PlanQuestion(
        fleet, config.promise, config.methods, config.gpus, price, config.edge_price, config.rtts, config.seed
    )  # fmt: skip
    return asked, words


def links_of(config: FleetConfig) -> tuple[tuple[LinkProfile, float], ...]:
    """Profiles and shares from `wifi6` or `wifi6=70,lte=30`. Raises UsageError, EvaluationError."""
    names = ("rtt_ms", "jitter_ms", "bandwidth_mbps", "loss")
    parts = {name: getattr(config, name) for name in names}
    found = []
    for part in config.link.split(","):
        name, _, share = part.strip().partition("=")
        try:
            weight = float(share) if share else 1.0
        except ValueError:
            weight = 0.0
        if not (weight > 0 and math.isfinite(weight)):
            raise UsageError(f"link {part.strip()!r}: the share must be a number above 0; write wifi6=70,lte=30")
        found.append((profile_of(name, **parts), weight))
    return tuple(found)


PRESETS = {
    "wifi6": LinkProfile(rtt_ms=8.0, jitter_ms=4.0, bandwidth_mbps=200.0, loss=0.001),
    "5g": LinkProfile(rtt_ms=25.0, jitter_ms=12.0, bandwidth_mbps=50.0, loss=0.002),
    "lte": LinkProfile(rtt_ms=50.0, jitter_ms=25.0, bandwidth_mbps=12.0, loss=0.005),
}
"""Our assumptions for links to a verifier in the same building or region; measure your own. Bandwidth: uplink."""


def profile_of(link: str, **parts: Any) -> LinkProfile:
    """The profile of a preset, or of a round trip in milliseconds. parts: fields that replace the profile's own.

    Raises EvaluationError for an unknown link and for invalid figures.
    """
    try:
        found = PRESETS.get(link) or LinkProfile(rtt_ms=float(link))
        if not math.isfinite(found.rtt_ms):
            raise ValueError
        return replace(found, **{name: value for name, value in parts.items() if value is not None})
    except ValueError:
        raise EvaluationError(
            f"link {link!r} is unknown: choose {', '.join(PRESETS)} or give its round trip in ms, like 40"
        ) from None
    except OptionsError as error:
        raise EvaluationError(str(error)) from None


def in_words(link: LinkProfile) -> str:
    """The profile as text, e.g. "RTT 8 ms, jitter 4 ms, 200 Mbit/s, loss 0.1 %"."""
    words = [f"RTT {link.rtt_ms:g} ms"]
    words += [f"jitter {link.jitter_ms:g} ms"] * (link.jitter_ms > 0)
    words += [f"{link.bandwidth_mbps:g} Mbit/s"] * (link.bandwidth_mbps > 0)
    words += [f"loss {100 * link.loss:g} %"] * (link.loss > 0)
    return ", ".join(words)


def run_plan_fleet(config: FleetConfig) -> int:
    """Simulate, print and write; returns the exit code (130 when interrupted). Raises UsageError, EvaluationError."""
    simpy_module()  # fails first if SimPy is missing
    asked, words = question_of(config)
    folder = new_run_folder(config.out, "fleet")
    console = Console(stderr=True)
    results = _started(config, asked, words)
    began = time.monotonic()
    say(console, f"SIMULATED: {asked.promise.words}; calibrated from {words[0]}")
    try:
        with progress_bar(console) as bar:
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
    results.save(folder)
    report = write_fleet(folder)
    if config.json:
        print(msgspec.json.format(msgspec.json.encode(results)).decode())
    else:
        Console().print(fleet_table(results))
        for origin in results.calibrated:
            say(Console(), f"Calibrated from {origin}.")
    say(console, f"report: {report}")
    return 130 if results.interrupted else 0


def _started(config: FleetConfig, asked: PlanQuestion, words: Sequence[str]) -> FleetResults:
    fleet = asked.fleet
    links = [f"{in_words(link)}{f' ({share:g})' * (len(fleet.links) > 1)}" for link, share in fleet.links]
    settings: dict[str, Setting] = {
        "robots": config.robots, "decisions per second and robot": config.rate, "arrivals": config.arrivals,
        "links": "; ".join(links),
        "prompt, tokens": config.prompt_tokens, "answer, tokens": config.answer_tokens,
        "picture, kB": config.picture_kb, "picture prepared, ms": config.picture_ms,
        "share of a prompt cached by the last verifier": config.kept, "γ": fleet.pair.gamma,
        "α of a chain": round(fleet.pair.alpha, 3), "α of a tree's level": round(fleet.pair.tree_alpha, 3),
        "overhead of a round on the edge, ms": config.overhead_ms,
        "miss rate of fsd": round(fleet.pair.miss, 3), "draft forward on the edge, ms": str(fleet.pair.draft_ms),
        "most rows of a forward": config.forward_rows, "most prompt rows beside others": config.prompt_rows,
        "KV cache of a GPU, GB": config.kv_gb or "no bound", "GPU, $ per hour": asked.gpu_price,
        "edge, $ per hour": config.edge_price, "seed": config.seed,
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


def run_against(place: Path, config: FleetConfig) -> int:
    """Compare a saved run of `bench clients` with its simulation; returns 1 if an undisturbed row differs too much.

    Raises UsageError for settings of another fleet, EvaluationError for a file that is no such run.
    """
    simpy_module()
    saved = load_clients(place)
    for told in changed_in(config):
        if told.name not in ("against", "json", "seed", "overhead_ms"):
            raise UsageError(f"--against simulates the fleet that was measured: leave {told.spellings[0]} out")
    found = [played_beside(saved, row, config.seed, config.overhead_ms) for row in saved.rows]
    if config.json:
        print(msgspec.json.format(msgspec.json.encode([msgspec.to_builtins(one) for one in found])).decode())
    else:
        Console().print(against_table(found))
    return int(any(one.off for one in found if not one.mark))


LEGEND = (
    "SIMULATED. GPUs: needed for all robots; $: per robot-hour; serve: robots that {gpus} GPUs serve; +1: further "
    "robots per additional GPU; p95: with all robots on {gpus} GPUs (± half of a 95 % interval), ms; idle: share of "
    "those GPUs' time; wait: of a draft in the cloud, ms; batch: sessions per forward; alone: p95 of one robot on one "
    "GPU, ms"
)


def fleet_table(results: FleetResults) -> Table:
    """The table of a plan: one row per method, the one that needs the fewest GPUs first."""
    titles = ("method", "GPUs", "$", "serve", "+1", "p95", "idle", "wait", "batch", "alone")
    title = f"simulated: {results.robots} robots, {results.promise}"
    found = plain_table(titles, {"method"}, title)
    found.caption = LEGEND.format(gpus=results.gpus)
    for one in order(results.methods):
        here = one.here
        p95, ci = here.p95(results.promise_of)
        about = "" if ci is None else f"±{ci:.0f}"
        found.add_row(
            one.method, str(one.needed or "–"),
            "–" if one.dollars_robot_hour is None else f"{one.dollars_robot_hour:.3f}",
            str(one.most), f"{one.marginal:.1f}", "overload" if here.overloaded else f"{p95:.0f}{about}",
            f"{here.idle:.0%}", f"{here.wait_ms:.0f}", f"{here.batch:.1f}",
            f"{one.alone.p95(results.promise_of)[0]:.0f}",
        )  # fmt: skip
    return found


def against_table(found: Sequence[MeasuredComparison]) -> Table:
    """The table that compares measured and simulated figures."""
    titles = ("method", "n", "tok/s", "simulated", "off", "p95 gap", "simulated ", "off ", "batch", "sim.", "")
    table = plain_table(titles, {"method", ""}, "measured and simulated with the same settings")
    table.caption = (
        f"gap: ms between two chunks at a client. Allowed error: {RATE_MAY:.0%} of the rate, {GAP_MAY:.0%} of the gap; "
        "rows limited by processors (client-bound, disturbed) are not judged"
    )
    for one in found:
        gap, off = ("–", "–") if one.gap_ms is None else (f"{one.gap_ms:.0f}", signed(100 * (one.gap_off or 0.0)))
        table.add_row(
            one.method, str(one.clients), f"{one.rate:.1f}", f"{one.simulated_rate:.1f}", signed(100 * one.rate_off),
            gap, f"{one.simulated_gap_ms:.0f}", off, f"{one.batch:.1f}", f"{one.simulated_batch:.1f}",
            one.mark or ("OFF" if one.off else "ok"),
        )  # fmt: skip
    return table
