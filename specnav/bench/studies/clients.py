# SPDX-License-Identifier: Apache-2.0
"""The study of many clients: how many one verifier serves, by method and round trip.

SpecEdge is measured with and without its interleaved groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specdec.methods import get_method
from specdec.row_ms import read_ms
from specnav.bench.data.papers import figure, figures
from specnav.bench.records.capacity import BUSY, CLIENT_BOUND, DISTURBED, ClientsRow, Flow, rounds_a_second
from specnav.bench.records.study import StudyResults
from specnav.bench.studies.cells import BASELINE, BOUND, ServingMeasurements, best_gammas, seen_in
from specnav.bench.studies.cost import kilotokens_per_dollar
from specnav.bench.studies.figures import percent, signed, times
from specnav.bench.studies.plan import Study, StudyFindings, Table
from specnav.report.charts import ChartLine, LineChart
from specnav.report.page import shown
from specnav.results.demo import mean

PAPER = "specedge_001.headline.server_throughput"


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
