# SPDX-License-Identifier: Apache-2.0
"""The report of a replay: one HTML file that opens offline, drawn from `results.json` and `decisions.jsonl`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specnav.bags.records import DecisionRecord, ReplayResults, ReplayRow, load_decisions
from specnav.report.charts import HALF, RowChart, RowSeries, histogram, matrix
from specnav.report.media import embed_file
from specnav.report.page import (
    REPORT_FILE,
    Chart,
    Figure,
    alert_text,
    machine_of,
    percent,
    shown,
    when,
    words_of,
    write_page,
)
from specnav.results.demo import energy_text

SHOTS, CHANGES = 60, 30
COLOURS = ("edge", "uplink", "cloud", "downlink")


@dataclass(frozen=True)
class ReplayShot:
    """A frame of the filmstrip with every method's decision. wrong: whether a method differs from the reference."""

    picture: str
    seconds: float
    instruction: str
    reference: str
    reasoning: str
    said: list[tuple[str, str, bool]]  # (methods, action, whether it differs from the reference)
    cost: str
    wrong: bool


def lead_text(results: ReplayResults) -> str:
    """The first paragraph."""
    bag = results.bag
    against = {
        "": "There are no recorded actions or labels to compare with.",
        "labels": f"{bag.referenced} frames are compared with labels.",
    }.get(bag.references, f"{bag.referenced} frames are compared with the recorded actions ({bag.references}).")
    pace = "at the bag's own speed" if results.config.get("rate") == "bag" else "frame by frame"
    return (
        f"{bag.selected} of the {bag.frames} frames of {bag.image_topic} in {Path(bag.path).name} "
        f"({bag.duration_s:.1f} s) were decided again {pace}, {when(results.started_at)}. {against}"
    )


def chips_of(results: ReplayResults) -> list[tuple[str, str]]:
    """Facts about the run for the header's chips."""
    config = results.config
    names = [Path(str(config.get(role, "?"))).name for role in ("draft_model", "target_model")]
    elsewhere = config.get("connect")
    cloud = f"verifier {elsewhere}" if elsewhere else f"{names[1]} in the cloud"
    return [
        ("Pair", f"{names[0]} on the edge, {cloud}"),
        ("Picture", str(config.get("picture", "as recorded"))),
        ("Real", "the robot's prompt, parser and decoder; edge and cloud are two processes over ZeroMQ"),
        ("Not run", "ROS, the exploration policy, motion; frames are as recorded"),
    ]


def headline(results: ReplayResults) -> list[Figure]:
    """The headline figures; those of a single method are the first method's."""
    if not results.rows:
        return []
    first = results.rows[0]
    agreed = "nothing to compare with"
    if first.scored:
        agreed = f"{first.agreed} of {first.scored} actions, {first.method}"
    same = {True: "yes", False: "NO", None: "–"}[results.identical_tokens]
    stops = f"of {first.stops_said} said; recall {percent(first.stop_recall)} of {first.stops_in_reference}"
    return [
        Figure("Agreement", percent(first.agreement), "", agreed),
        Figure("Parse failures", str(sum(row.parse_failures for row in results.rows)), "", "all methods"),
        Figure(
            f"Decision, {first.method}, p50",
            shown(first.decision_ms_p50, 1),
            "ms",
            f"p95 {shown(first.decision_ms_p95, 1)}, p99 {shown(first.decision_ms_p99, 1)} ms",
        ),
        Figure("Stop precision", percent(first.stop_precision), "", stops),
        Figure("Same tokens", same, "", "every id of every answer, across methods"),
        Figure("Replayed", shown(results.frames_per_s, 1), "decisions/s", "reading the bag included"),
        Figure(
            f"Energy per decision, {first.method}", energy_text(first.joules_per_decision), "", "of this whole machine"
        ),
    ]


def matrices(results: ReplayResults) -> list[Chart]:
    """One confusion matrix per method; methods with equal matrices share one."""
    groups: dict[tuple[tuple[int, ...], ...], list[ReplayRow]] = {}
    for row in results.rows:
        if row.scored:
            groups.setdefault(tuple(map(tuple, row.confusion)), []).append(row)
    found = []
    for rows in groups.values():
        first = rows[0]
        names = ", ".join(row.method for row in rows)
        caption = (
            f"{first.agreed} of {first.scored} on the diagonal. Rows: the reference; columns: the decision."
        )
        picture = matrix(first.confusion, results.actions, "Confusion matrix of actions")
        found.append(Chart(names, picture, caption))
    return found


def agreement_chart(results: ReplayResults) -> RowChart:
    """Share of scored decisions that agree with the reference, one bar per method."""
    scored = [row for row in results.rows if row.agreement is not None]
    names = tuple(f"{row.method} ({row.scored})" for row in scored)
    values = tuple(100 * (row.agreement or 0.0) for row in scored)
    series = (RowSeries("", values),)
    return RowChart("Agreement of actions", "actions that agree, %", names, series, 1, unit=" %", width=HALF)


def histograms(results: ReplayResults, decisions: Sequence[DecisionRecord]) -> list[Chart]:
    """Decision times of every method."""
    found = []
    for place, row in enumerate(results.rows):
        values = [d.decision_ms for d in decisions if d.method == row.method and d.decision_ms is not None]
        if values:
            picture = histogram(values, f"Decision time, {row.method}", COLOURS[place % len(COLOURS)])
            found.append(Chart(row.method, picture, f"n = {len(values)}, from the frame to its action."))
    return found


def shots_of(run: Path, results: ReplayResults, decisions: Sequence[DecisionRecord]) -> list[ReplayShot]:
    """The frames that have a picture; if there are too many, those that differ from their reference are preferred."""
    frames: dict[int, list[DecisionRecord]] = {}
    for one in decisions:
        frames.setdefault(one.frame, []).append(one)
    began = min((one.stamp_ns for one in decisions), default=0)
    order = [row.method for row in results.rows]
    made = []
    for group in frames.values():
        group.sort(key=lambda one: order.index(one.method) if one.method in order else len(order))
        name = next((one.picture for one in group if one.picture), "")
        if name:
            made.append(_shot(run / name, group, began))
    wrong = [shot for shot in made if shot.wrong][:SHOTS]
    right = [shot for shot in made if not shot.wrong][: SHOTS - len(wrong)]
    return sorted((*wrong, *right), key=lambda shot: shot.seconds)


def _shot(path: Path, group: Sequence[DecisionRecord], began_ns: int) -> ReplayShot:
    first = group[0]
    by_action: dict[str, list[str]] = {}
    for one in group:
        by_action.setdefault(one.action or f"failed: {one.error}", []).append(one.method)
    said = [
        (", ".join(methods), action, bool(first.reference) and action != first.reference)
        for action, methods in by_action.items()
    ]
    times = [f"{one.decision_ms:.0f}" for one in group if one.decision_ms is not None]
    return ReplayShot(
        picture=embed_file(path),
        seconds=(first.stamp_ns - began_ns) / 1e9,
        instruction=first.instruction,
        reference=first.reference,
        reasoning=first.reasoning,
        said=said,
        cost=f"{' / '.join(times)} ms" if times else "",
        wrong=any(differs for _, _, differs in said),
    )


def write_replay_report(run: Path) -> Path:
    """Draw `report.html` for a replay's folder; returns its path. Raises EvaluationError."""
    decisions = load_decisions(run) if (run / "decisions.jsonl").exists() else []
    results = ReplayResults.load(run)
    return write_page(
        run / REPORT_FILE,
        "replay.html.jinja",
        results=results,
        lead=lead_text(results),
        chips=chips_of(results),
        alert=alert_text(results.error, results.interrupted, "The figures cover the decisions made before."),
        figures=headline(results),
        agreement=agreement_chart(results).picture,
        matrices=matrices(results),
        histograms=histograms(results, decisions),
        shots=shots_of(run, results, decisions),
        began=min((one.stamp_ns for one in decisions), default=0),
        most_changes=CHANGES,
        config=words_of(results.config),
        machine=machine_of(results.machine, results.wall_s),
    )
