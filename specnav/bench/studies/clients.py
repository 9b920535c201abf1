# SPDX-License-Identifier: Apache-2.0
"""The study of many clients: how many one verifier serves, by method and round trip.

A *cell* is one measurement: a method, a round trip and a number of clients. The best fixed draft lengths are searched
first, with one client, as SpecEdge's paper does for its baseline. SpecEdge is measured with and without its interleaved
groups.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specdec.methods import get_method
from specdec.row_ms import read_ms
from specnav.bench.data.papers import figure, figures
from specnav.bench.records.capacity import (
    BUSY,
    CLIENT_BOUND,
    DISTURBED,
    Capacity,
    ClientsRow,
    Flow,
    most_clients,
    on_line,
    rounds_a_second,
)
from specnav.bench.records.study import CellRecord, StudyResults
from specnav.bench.studies.cost import kilotokens_per_dollar
from specnav.bench.studies.figures import percent, signed, times
from specnav.bench.studies.plan import Study, StudyFindings, Table
from specnav.report.charts import ChartLine, LineChart
from specnav.report.page import shown
from specnav.results.demo import mean

PAPER = "specedge_001.headline.server_throughput"
COUNTS = (1, 2, 4, 8, 16)
RTTS = (0.0, 15.0, 40.0, 80.0)
METHODS = ("ar", "cloud-sd", "sd", "fsd", "specedge", "auto")
GROUPS = {"specedge": (1, 2)}
GAMMAS = (2, 4, 7)
BOUND = 10.0
"""Tokens per second that a client must get, at the operating point's own times."""
BASELINE = "cloud-sd"

ByCount = Mapping[int, CellRecord]


@dataclass(frozen=True)
class ServingCell:
    """One measurement to make. rtt_ms: at the operating point's own times, unscaled."""

    name: str
    method: str
    gamma: int
    groups: int
    rtt_ms: float
    clients: int

    @property
    def file(self) -> str:
        """Name of its file."""
        method = re.sub(r"[^\w.]+", "-", self.method)
        return f"{method}-gamma{self.gamma}-groups{self.groups}-rtt{self.rtt_ms:g}-n{self.clients}.json"

    def __str__(self) -> str:
        clients = f"{self.clients} client{'s' * (self.clients > 1)}"
        return f"{self.name}, γ = {self.gamma}, RTT {self.rtt_ms:g} ms, {clients}"


def searches(methods: Sequence[str], rtt_ms: float) -> list[ServingCell]:
    """The cells that find the best draft length of the methods with a fixed one."""
    return [
        ServingCell(method, method, gamma, 1, rtt_ms, 1)
        for method in methods
        if _keeps_length(method)
        for gamma in GAMMAS
    ]


def best_gammas(cells: Iterable[CellRecord]) -> dict[str, int]:
    """For each method, the draft length with the most tokens per second for one client.

    Methods that were measured with one length only are left out.
    """
    tried: dict[tuple[str, float], list[CellRecord]] = {}
    for one in cells:
        if one.row.clients == 1 and _keeps_length(one.method):
            tried.setdefault((one.method, one.rtt_ms), []).append(one)
    return {
        method: max(several, key=lambda one: one.row.rate).gamma
        for (method, _), several in tried.items()
        if len(several) > 1
    }


def cells(
    methods: Sequence[str],
    rtts: Sequence[float],
    counts: Sequence[int],
    gammas: Mapping[str, int],
    gamma: int,
) -> list[ServingCell]:
    """All other cells, ordered by round trip. gammas: draft length by method; gamma: of all other methods."""
    return [
        ServingCell(
            method if groups == 1 else f"{method}, {groups} groups",
            method,
            gammas.get(method, gamma),
            groups,
            rtt,
            n,
        )
        for rtt in rtts
        for method in methods
        for groups in GROUPS.get(method, (1,))
        for n in counts
    ]


def _keeps_length(name: str) -> bool:
    method = get_method(name)
    fixed = method.drafts and method.length == "fixed" and method.tree is None and not method.controlled
    return fixed or method.cloud_drafts


@dataclass(frozen=True)
class ServingMeasurements:
    """The measurements at the operating point's own times. cells: by round trip, name and number of clients."""

    cells: Mapping[float, Mapping[str, ByCount]]
    rtt_ms: float
    scale: float

    def rates(self, rtt: float, name: str) -> dict[int, float]:
        """Tokens per second of all clients together, by number of clients."""
        return {n: one.row.rate * self.scale for n, one in self.cells[rtt].get(name, {}).items()}

    def slow(self, rtt: float, name: str) -> dict[int, float]:
        """Tokens per second that 95 % of the clients reach, by number of clients."""
        return {n: one.row.slow * self.scale for n, one in self.cells[rtt].get(name, {}).items()}

    def capacity(self, rtt: float, name: str) -> tuple[Capacity, float]:
        """(largest number of clients that get BOUND, the verifier's tokens per second with them); 0 if none does."""
        most = most_clients(self.slow(rtt, name), BOUND)
        rates = sorted((float(n), rate) for n, rate in self.rates(rtt, name).items())
        return most, on_line(rates, most.clients) if most.clients else 0.0

    def names(self) -> list[str]:
        """Names of all measured variants, in order."""
        return list(dict.fromkeys(name for by_name in self.cells.values() for name in by_name))

    def equal_batches(self, rtt: float, name: str) -> dict[int, float]:
        """For n clients of the baseline: the rate of 2n clients with this method over the baseline's rate.

        Their forwards are shared by equally many sessions.
        """
        base, ours = self.rates(rtt, BASELINE), self.rates(rtt, name)
        return {n: ours[2 * n] / rate for n, rate in base.items() if rate and 2 * n in ours}

    def on_the_edge(self) -> list[str]:
        """Names of the variants that draft on the edge."""
        return [name for name in self.names() if get_method(name.split(",")[0]).drafts]


def seen_in(results: StudyResults) -> ServingMeasurements | None:
    """The cells with the chosen draft lengths; None before there is one."""
    chosen = best_gammas(results.cells)
    found: dict[float, dict[str, dict[int, CellRecord]]] = {}
    for one in results.cells:
        if chosen.get(one.method, one.gamma) == one.gamma:
            found.setdefault(one.rtt_ms, {}).setdefault(one.name, {})[one.row.clients] = one
    if not found:
        return None
    point = float(results.config.get("rtt_ms") or 0.0) / results.time_scale
    nearest = min(found, key=lambda rtt: (abs(rtt - point), rtt))
    ordered = {
        rtt: {name: dict(sorted(by.items())) for name, by in found[rtt].items()} for rtt in sorted(found)
    }
    return ServingMeasurements(ordered, nearest, results.time_scale)


def _read(results: StudyResults) -> StudyFindings:
    seen = seen_in(results)
    if seen is None:
        return StudyFindings()
    tables = [_headline(seen), _equal_batches_table(seen), _cost_table(seen)]
    tables += [_predictions_table(results, seen)] if results.curve else []
    tables += [_table(results, seen, rtt) for rtt in seen.cells]
    return StudyFindings(_charts(results, seen), tables)


def _charts(results: StudyResults, seen: ServingMeasurements) -> list[LineChart]:
    rtt, counts = seen.rtt_ms, sorted({n for by in seen.cells[seen.rtt_ms].values() for n in by})
    here = f"RTT {rtt:g} ms"
    names = [name for name in seen.names() if name in seen.cells[rtt]]
    rates = [_line(name, seen.rates(rtt, name)) for name in names]
    slow = [_line(name, seen.slow(rtt, name)) for name in names]
    charts = [
        LineChart(f"Tokens a second of one verifier, {here}", "clients", "tok/s", tuple(rates), tuple(counts)),
        LineChart(
            f"Rate that 95 % of the clients reach, {here}", "clients", "tok/s each", tuple(slow),
            tuple(counts), level=BOUND,
        ),
    ]  # fmt: skip
    if len(seen.cells) > 1:
        most = [
            _line(name, {r: seen.capacity(r, name)[0].clients for r in seen.cells if name in seen.cells[r]})
            for name in seen.names()
        ]
        title = f"Clients that one verifier serves with at least {BOUND:g} tokens a second each"
        words = f"No line goes above {counts[-1]}, the largest number measured."
        rtts = tuple(seen.cells)
        charts.append(LineChart(title, "emulated round trip, ms", "clients", tuple(most), rtts, caption=words))
    ratios = [_line(name, seen.equal_batches(rtt, name)) for name in seen.on_the_edge()]
    if ns := tuple(sorted({n for one in ratios for n, _ in one.points})):
        paper = ChartLine("paper, SpecEdge", ((1.0, figure(PAPER)),), "paper", paper=True, joined=False)
        title = f"Twice the clients on the edge, over {BASELINE} with as many sessions per forward, {here}"
        labels = (f"clients of {BASELINE}", f"times {BASELINE}")
        charts.append(LineChart(title, *labels, (*ratios, paper), ns, level=1.0))
    if results.curve:
        lines = []
        for name in names:
            if planned := predicted(results, seen, rtt, name):
                by_plan = replace(_line(name, planned), name=f"{name}, planned", computed=True)
                lines += [_line(name, seen.rates(rtt, name)), by_plan]
        charts.append(
            LineChart(
                f"Planned from one client and the measured cost of a forward, {here}", "clients", "tok/s",
                tuple(lines), tuple(counts), caption="Dashed: planned. Full: measured.",
            )
        )  # fmt: skip
    return charts


def _line(name: str, values: Mapping[Any, float]) -> ChartLine:
    return ChartLine(name, tuple((float(x), values[x]) for x in sorted(values)), name)


def _headline(seen: ServingMeasurements) -> Table:
    head = ["Method"]
    for rtt in seen.cells:
        head += [f"RTT {rtt:g}:\nclients", "tok/s", f"over\n{BASELINE}"]
    rows = []
    for name in seen.names():
        cells = [name]
        for rtt in seen.cells:
            (most, rate), (_, base) = seen.capacity(rtt, name), seen.capacity(rtt, BASELINE)
            known = name in seen.cells[rtt]
            cells += [str(most) if known else "–", shown(rate if known else None, 0)]
            cells.append(times(rate / base if known and base else None))
        rows.append(tuple(cells))
    caption = (
        f"The largest number of clients of which 95 % still get {BOUND:g} tokens per second, and their rate together. "
        "≥: true for every number measured. Interpolated linearly between the numbers measured."
    )
    return Table("Capacity", tuple(head), tuple(rows), caption)


def _equal_batches_table(seen: ServingMeasurements) -> Table:
    counts = sorted({n for rtt in seen.cells for name in seen.names() for n in seen.equal_batches(rtt, name)})
    rows = []
    for rtt in seen.cells:
        for name in seen.on_the_edge():
            if ratios := seen.equal_batches(rtt, name):
                rows.append((f"{name}, RTT {rtt:g}", *(times(ratios.get(n)) for n in counts)))
    head = ("Method", *(f"{2 * n} over\n{n} {BASELINE}" for n in counts))
    caption = (
        "The paper's own comparison: half of the edges draft while the other half is verified. A forward then has as "
        f"many sessions as with half the clients of {BASELINE}. The paper prints {figure(PAPER):g} times, with one "
        "session per forward."
    )
    return Table("Server throughput with as many sessions per forward", head, tuple(rows), caption)


def _cost_table(seen: ServingMeasurements) -> Table:
    """Tokens per dollar beside the paper's, with its prices for the server and for edge GPUs that draft."""
    paper = figures()["specedge_001"]
    server, edge = paper["prices_per_hour"]["a100_80"], paper["prices_per_hour"]["rtx4090"]
    rows = []
    for rtt in seen.cells:
        base = seen.rates(rtt, BASELINE)
        for name in seen.on_the_edge():
            for n in sorted(seen.equal_batches(rtt, name)):
                rate = seen.rates(rtt, name)[2 * n]
                ours, theirs = (
                    kilotokens_per_dollar(rate, server, 2 * n, edge),
                    kilotokens_per_dollar(base[n], server),
                )
                rows.append(
                    (
                        f"{name}, RTT {rtt:g}, {2 * n} over {n}", shown(base[n], 1), shown(rate, 1),
                        times(rate / base[n]), shown(theirs, 1), shown(ours, 1), times(ours / theirs),
                    )
                )  # fmt: skip
    if rows:
        tasks = paper["specbench"]["qwen3_32b_1.7b"].values()
        alone, rate, base_cost, cost, *_ = (
            mean([task[place] for task in tasks]) or 0.0 for place in range(6)
        )
        rows.append(
            (
                "paper: Qwen3-32B/1.7B, six tasks, 2 over 1", shown(alone, 1), shown(rate, 1), times(rate / alone),
                shown(base_cost, 1), shown(cost, 1), times(cost / base_cost),
            )
        )  # fmt: skip
    head = (
        "Clients", f"{BASELINE}\ntok/s", "edge\ntok/s", "server\nthroughput", f"{BASELINE}\nktok/$", "edge\nktok/$",
        "cost\nefficiency",
    )  # fmt: skip
    caption = (
        f"SpecEdge's prices: ${server:g} per hour for the server, ${edge:g} for each edge GPU; two edge GPUs per "
        "session of a forward. As many sessions per forward as in the table above."
    )
    return Table("What it costs", head, tuple(rows), caption)


def _predictions_table(results: StudyResults, seen: ServingMeasurements) -> Table:
    rows = []
    for rtt in seen.cells:
        for name in seen.cells[rtt]:
            measured = seen.rates(rtt, name)
            for n, planned in predicted(results, seen, rtt, name).items():
                if n > 1:
                    off = signed(100 * (measured[n] / planned - 1))
                    bound = seen.cells[rtt][name][n].row.mark
                    rows.append(
                        (f"{name}, RTT {rtt:g}", str(n), shown(planned, 1), shown(measured[n], 1), off, bound)
                    )
    head = ("Method", "Clients", "Planned\ntok/s", "Measured\ntok/s", "Measured over\nplanned", "")
    caption = (
        "A closed queueing network: n clients think (draft and wait for the link), one server serves all waiting "
        "clients in one forward. Think time and tokens per round are those measured with one client. The forward takes "
        "its paced time, or the curve's time if that is longer."
    )
    return Table("Planned and measured", head, tuple(rows), caption)


def _table(results: StudyResults, seen: ServingMeasurements, rtt: float) -> Table:
    head = (
        "Method", "Clients", "tok/s", "Each,\np50", "Each,\np95", "Tokens\na round", "Forward\nms", "Wait\nms",
        "Sessions\na forward", "Idle", "Cores\nbusy", "",
    )  # fmt: skip
    rows = []
    for name, by_count in seen.cells[rtt].items():
        for n, one in by_count.items():
            row, scale = one.row, seen.scale
            rows.append(
                (
                    name, str(n), shown(row.rate * scale, 1), shown(row.median * scale, 1), shown(row.slow * scale, 1),
                    shown(row.tokens_a_round, 2), shown(row.verify_ms / scale, 0), shown(row.queue_ms / scale, 0),
                    shown(row.server.get("sessions_a_forward"), 1), percent(100 * row.server.get("idle_share", 0.0)),
                    percent(100 * row.cores_busy), row.mark,
                )
            )  # fmt: skip
    caption = (
        "p95: rate that 95 % of the clients reach. Forward, wait: per verdict, in the cloud, including forwards of a "
        "draft model there, which also count in sessions per forward. If the cores were busy for more than "
        f"{BUSY:.0%} of the time: client-bound if clients used them, disturbed if mostly other programs did."
    )
    return Table(f"Every measurement at a round trip of {rtt:g} ms", head, tuple(rows), caption)


def _how(results: StudyResults) -> list[tuple[str, str]]:
    config, scale = results.config, results.time_scale
    rows = [one.row for one in results.cells]
    answers, wrong = sum(row.answers for row in rows), sum(row.wrong for row in rows)
    marks = [row.mark for row in rows]
    facts = [
        ("Clients", "a process each, through an emulated link"),
        ("Draft forwards, as run", f"{config.get('draft_ms')} ms"),
        ("Verification, as run", f"{config.get('verify_ms')} ms for any number of sessions"),
        ("Rows of a forward", f"at most {config.get('forward_rows')}"),
        ("Temperature", str(config.get("temperature"))),
        ("Answers", f"at most {config.get('max_new_tokens')} tokens"),
        ("Each measurement", f"{config.get('seconds')} s, with one or two clients twice that"),
        (
            "Answers that are the target's own",
            f"{answers - wrong} of {answers}" + ", the others DIFFER" * bool(wrong),
        ),
        ("Time scale", f"{scale:g}; figures are scaled back"),
    ]
    if emulated := config.get("acceptance"):
        facts.append(("Acceptance", str(emulated)))
    if lengths := best_gammas(results.cells):
        facts.append(
            ("Draft length that was best", ", ".join(f"{name} {gamma}" for name, gamma in lengths.items()))
        )
    facts += [
        (f"Measurements that are {mark}", f"{n} of {len(marks)}")
        for mark in (CLIENT_BOUND, DISTURBED)
        if (n := marks.count(mark))
    ]
    facts += [
        ("Ended early", f"{one.name}, {one.row.clients} clients: {one.row.errors[0]}")
        for one in results.cells
        if one.row.errors
    ]
    return facts


STUDY = Study(
    name="clients",
    title="Many clients on one verifier",
    question="How many clients does one verifier serve, and does drafting on the edge increase this number?",
    read=_read,
    takes_methods=True,
    max_new_tokens=64,
    kind="clients",
    how=_how,
)


FORWARD_ROWS = 256
"""Most rows of a forward, if a study's settings have no value."""


def predicted(results: StudyResults, seen: ServingMeasurements, rtt: float, name: str) -> dict[int, float]:
    """Tokens per second by number of clients, planned from the cell with one client and the curve.

    Empty without these. The formula does not cover interleaved groups.
    """
    by_count = seen.cells[rtt].get(name, {})
    one = by_count.get(1)
    if results.curve is None or one is None or one.groups > 1 or not one.row.rate:
        return {}
    flow = flow_of(results, one.row)
    return {n: rounds_a_second(n, flow) * one.row.tokens_a_round * seen.scale for n in by_count}


def flow_of(results: StudyResults, row: ClientsRow) -> Flow:
    """The load of a method's rounds on the verifier, from the measurement with one client; times as run, scaled.

    Think time is all time that the verifier does not use. If the cloud continues alone, it uses the whole round.
    """
    curve = results.curve
    assert curve is not None
    whole = 1e3 * row.tokens_a_round / row.rate
    streams = get_method(row.method).cloud == "stream"
    server = whole if streams else min(whole, row.verify_ms)
    most = max(1.0, float(results.config.get("forward_rows") or FORWARD_ROWS) // row.rows)
    beyond = float(read_ms(str(results.config.get("verify_ms") or 0.0)))

    def forward_ms(sessions: float) -> float:
        return server + max(
            0.0, curve.latency_ms(sessions, row.rows) - max(beyond, curve.latency_ms(1, row.rows))
        )

    return Flow(0.0 if streams else whole - server, forward_ms, most)
