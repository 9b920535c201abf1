# SPDX-License-Identifier: Apache-2.0
"""Assembles the report as one self-contained HTML file.

Every value is prepared here. The markup is in `templates/report.html.jinja`, the layout in `templates/style.css`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
from markupsafe import Markup

from specnav.report.charts import HALF, HEX, ChartLine, LineChart, histogram, picture, timeline
from specnav.report.floor import draw_map
from specnav.report.media import embed, embed_file, make_gif
from specnav.results.demo import DemoResults, LatencyRow, Setting, energy_text, percentile
from specnav.results.files import write_bytes_atomic
from specnav.results.standing import LATE_MS
from specnav.results.trace import Decision, EpisodeTrace, episode_folder, load_traces

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MplFigure

REPORT_FILE, GIF_FILE = "report.html", "demo.gif"
TEMPLATES = Path(__file__).parent / "templates"
GIF_BUDGET_BYTES = 2_900_000
MOVING_EPISODES = 4  # episodes with an animation
PICTURE_LIMIT = 420  # filmstrip pictures embedded in one report
OPEN_EPISODES = 3
OUTCOME_WORDS = {
    "reached": "reached the target",
    "wrong_object": "stopped at another object",
    "too_far": "stopped too far away",
    "not_facing": "stopped, not facing it",
    "absent_respected": "target absent, and said so",
    "absent_silent": "target absent, never said so",
    "decision_limit": "out of decisions",
    "gave_up": "the robot gave up",
    "timeout": "out of time",
    "aborted": "aborted",
}
METHOD_WORDS = {
    "sd": "a small vision-language model on the edge drafts each answer, a larger one in the cloud verifies it",
    "fsd": "a small vision-language model on the edge drafts each answer, and more while a larger one in the cloud "
    "verifies it",
    "auto": "a small vision-language model on the edge and a larger one in the cloud answer in whatever way is fastest",
    "specedge": "a small vision-language model on the edge drafts trees of tokens, which a larger one verifies",
    "picospec": "a small vision-language model on the edge sends draft after draft, which a larger one verifies",
    "ar": "each camera frame is answered by a vision-language model in the cloud, token by token",
}


@dataclass(frozen=True)
class Figure:
    """One headline figure."""

    label: str
    value: str
    unit: str = ""
    under: str = ""


@dataclass(frozen=True)
class Chart:
    """A picture (inline SVG) with its title and caption."""

    title: str
    picture: Markup
    caption: str


@dataclass(frozen=True)
class FilmstripShot:
    """One decision of the filmstrip; `kind` is "", "policy" (not the model's move) or "fault" (not understood)."""

    decision: Decision
    kind: str
    picture: str
    action: str
    cost: str


@dataclass(frozen=True)
class EpisodeView:
    """One episode as the template needs it; `moving` is the data URI of an animation, or ""."""

    trace: EpisodeTrace
    map: Markup
    moving: str
    shots: list[FilmstripShot]
    is_open: bool


def shown(value: float | None, digits: int = 0, unit: str = "") -> str:
    """A figure for the page, or a dash when it was not measured."""
    return "–" if value is None else f"{value:.{digits}f}{unit}"


def positive(config: Mapping[str, Setting], name: str) -> float:
    """A setting as a number, 0 when it is not set."""
    value = config.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def paced_words(value: Setting) -> str:
    """The paced time of a forward as text, "" if unpaced. value: milliseconds, or times by rows like "72:1,90:4"."""
    if not isinstance(value, str):
        return f"{value:g} ms" if value else ""
    by_rows = [one.partition(":") for one in value.split(",")]
    few = by_rows if len(by_rows) < 3 else [by_rows[0], by_rows[-1]]
    return ", ".join(f"{ms} ms with {rows} row{'s' * (rows != '1')}" for ms, _, rows in few)


def what_is_real(config: Mapping[str, Setting]) -> list[tuple[str, str]]:
    """(label, text) of the header's chips: what is simulated, emulated, paced and real."""
    link = []
    for name, words in (
        ("rtt_ms", "RTT {:g} ms"),
        ("jitter_ms", "jitter {:g} ms"),
        ("bandwidth_mbps", "{:g} Mbit/s"),
        ("loss", "loss {:.1%}"),
    ):
        if value := positive(config, name):
            link.append(words.format(value))
    if outages := config.get("outages"):
        link.append(f"outages {outages} s (start:duration)")
    paced = [
        f"{side} forwards at least {words}"
        for side in ("draft", "verify")
        if (words := paced_words(config.get(f"{side}_ms")))
    ]
    return [
        ("Simulated", "room, robot base and camera (MuJoCo)"),
        ("Emulated link", ", ".join(link) or "none, loopback only"),
        ("Pacing", ", ".join(paced) or "off, forwards take their own time"),
        ("Real", "ROS 2 messages over DDS, drafts over ZeroMQ, separate processes"),
    ]


def lead_text(results: DemoResults) -> str:
    """The first paragraph."""
    count, method = len(results.episodes), str(results.config.get("method", "?"))
    words = METHOD_WORDS.get(method, "a vision-language model answers each camera frame")
    return (
        f"{count} episode{'' if count == 1 else 's'}, method {method}, {when(results.started_at)}. A robot in a "
        f"simulated room is told what to find; {words}. The action is carried out as soon as its sentence is complete."
    )


def alert_text(error: str, interrupted: bool, rest: str) -> str:
    """What went wrong, or "". error: one line. rest: a sentence on what the figures still cover."""
    if error:
        return f"The run failed: {error} {rest}"
    return f"Interrupted. {rest}" if interrupted else ""


def headline(results: DemoResults) -> list[Figure]:
    """The headline figures of the summary."""
    s = results.summary
    won = sum(e.success for e in results.episodes)
    same = {True: "yes", False: "NO", None: "not compared"}[s.identical_to_target]
    share = "no drafts" if s.acceptance is None else f"{100 * s.acceptance:.0f} % of drafts accepted"
    return [
        Figure("Success", str(won), f"of {len(results.episodes)}", "says stop within 0.8 m, facing it"),
        Figure("SPL", shown(s.spl, 2), "", "success weighted by path length"),
        Figure("Navigation error", shown(s.navigation_error_m, 2), "m", "last position to the target"),
        Figure("Decision time, p50", shown(s.decision_ms_p50), "ms", f"p95 {shown(s.decision_ms_p95)} ms"),
        Figure(
            "Camera to action, p50",
            shown(s.time_to_action_ms_p50),
            "ms",
            f"p95 {shown(s.time_to_action_ms_p95)} ms",
        ),
        Figure("τ, tokens per round", shown(s.tau, 2), "", share),
        Figure(
            "Same as the target alone",
            same,
            "",
            f"{s.compared_decisions} answers, {s.compared_tokens} tokens",
        ),
        Figure("Collisions", shown(s.collisions_per_episode, 2), "per episode", "contact onsets of the base"),
        Figure("Parse failures", str(s.parse_failures), "", "answers outside the action language"),
        Figure(
            "Late decisions",
            str(s.late_decisions),
            f"of {s.decisions}",
            f"over {LATE_MS:.0f} ms to the action: {s.late_stood_s:.1f} s of {s.stood_s:.1f} s standstill",
        ),
        Figure(
            "Safety stops",
            str(s.safety_stops),
            "",
            f"something failed or came too late; {s.safety_stood_s:.1f} s standstill",
        ),
        Figure("Energy per decision", energy_text(s.joules_per_decision), "", "of the robot's whole computer"),
    ]


def histograms(results: DemoResults) -> list[Chart]:
    """Decision time and camera-to-action time."""
    found = []
    for values, colour, title, caption in (
        (
            [v for e in results.episodes for v in e.decision_ms],
            "edge",
            "Decision time",
            "From the start of the decision until its action sentence is verified.",
        ),
        (
            [v for e in results.episodes for v in e.time_to_action_ms],
            "downlink",
            "Camera to action",
            "From the frame's arrival at the robot's node until the motion command is sent.",
        ),
    ):
        if values:
            found.append(Chart(title, histogram(values, title, colour), f"{caption} n = {len(values)}."))
    return found


def tokens_per_decision(traces: Sequence[EpisodeTrace]) -> Markup:
    """Chart of drafted (pale) and accepted tokens of every decision, grouped by episode."""
    groups = {
        trace.result.index + 1: found
        for trace in traces
        if (found := [one for one in trace.decisions if sum(one.drafted)])
    }
    if not groups:
        return Markup()

    def draw(figure: MplFigure) -> None:
        axes = figure.add_subplot()
        axes.grid(axis="y")
        x, middles = 0, []
        for decisions in groups.values():
            middles.append(x + (len(decisions) - 1) / 2)
            for one in decisions:
                drafted, accepted = sum(one.drafted), sum(one.accepted)
                tip = (
                    f"tip:decision {one.index + 1}: {accepted} of {drafted} drafts, {len(one.drafted)} rounds"
                )
                axes.bar(x, drafted, color=HEX["drafted"], gid=tip)
                axes.bar(x, accepted, color=HEX["edge"], gid=tip)
                x += 1
            x += 1
        axes.set_xticks(
            middles, [f"episode {number}" if len(groups) < 12 else str(number) for number in groups]
        )
        axes.set_xlabel("draft tokens, one bar per decision")

    return picture(draw, "Drafted and accepted tokens per decision", 1080.0, 220.0)


def latency_plot(rows: Sequence[LatencyRow]) -> Markup:
    """Camera-to-action p50 (dot) and p95 (whisker) by emulated round trip, one line per method."""
    lines = []
    for method in dict.fromkeys(row.method for row in rows):
        mine = sorted((row for row in rows if row.method == method), key=lambda row: row.rtt_ms)
        points = tuple((row.rtt_ms, row.time_to_action_ms_p50) for row in mine)
        lines.append(ChartLine(method, points, method, high=tuple(row.time_to_action_ms_p95 for row in mine)))
    rtts = tuple(sorted({row.rtt_ms for row in rows}))
    title = "Camera-to-action time by round-trip time"
    return LineChart(title, "emulated round trip, ms", "ms", tuple(lines), rtts, size=(HALF, 280.0)).picture


def round_table(traces: Sequence[EpisodeTrace]) -> list[tuple[str, str, str]]:
    """Costs of a round and of an answer: (name, median, 95th percentile)."""
    decisions = [d for trace in traces for d in trace.decisions if d.token_ids]

    def line(name: str, values: list[float], digits: int, unit: str) -> tuple[str, str, str]:
        return name, shown(percentile(values, 50), digits, unit), shown(percentile(values, 95), digits, unit)

    drafting = [d for d in decisions if sum(d.drafted)]
    rows = [
        line("Prompt and frame, sent once", [float(d.prompt_bytes) for d in decisions], 0, " B"),
        line("Prefill on the edge", [d.prefill_ms for d in drafting], 1, " ms"),
        line("Prefill in the cloud", [d.cloud_prefill_ms for d in decisions], 1, " ms"),
        line("Draft of a round", [v for d in drafting for v in d.draft_ms], 1, " ms"),
        line("Verification of a round", [v for d in drafting for v in d.verify_ms], 1, " ms"),
        line("Link and overhead of a round", [v for d in drafting for v in d.overhead_ms], 2, " ms"),
        line("Uplink of a round", [float(v) for d in drafting for v in d.uplink_bytes], 0, " B"),
        line("Downlink of a round", [float(v) for d in decisions for v in d.downlink_bytes], 0, " B"),
    ]
    return [row for row in rows if row[1] != "–"]


def typical(traces: Sequence[EpisodeTrace]) -> Chart | None:
    """The timeline of the decision whose time is closest to the median."""
    known = [(d.decision_ms, t, d) for t in traces for d in t.decisions if d.timeline and d.decision_ms is not None]
    if not known:
        return None
    middle = percentile([ms for ms, _, _ in known], 50) or 0.0
    _, trace, chosen = min(known, key=lambda one: abs(one[0] - middle))
    rounds = f": {len(chosen.token_ids)} tokens in {len(chosen.drafted)} rounds" if chosen.drafted else ""
    words = f"Decision {chosen.index + 1} of episode {trace.result.index + 1}, the one closest to the median{rounds}."
    words += " The prompt and the frame are sent only once."
    if chosen.uplink_bytes:
        words += f" Uplink {sum(chosen.uplink_bytes) / len(chosen.uplink_bytes):.0f} bytes per round."
    return Chart("One decision, edge to cloud and back", timeline(chosen.timeline), words)


def view_shot(run: Path, trace: EpisodeTrace, decision: Decision, with_picture: bool) -> FilmstripShot:
    """Prepare one decision for the filmstrip."""
    kind = "policy" if decision.source == "policy" else "" if decision.parsed else "fault"
    action = decision.action or f"stopped: {decision.note or 'no action'}"
    if kind == "policy":
        action = f"{decision.action} ({decision.note})"
    cost = []
    if decision.decision_ms is not None:
        cost.append(f"{decision.decision_ms:.0f} ms")
    if sum(decision.drafted):
        cost.append(f"{sum(decision.accepted)} of {sum(decision.drafted)} drafts")
    elif decision.token_ids:
        cost.append(f"{len(decision.token_ids)} tokens")
    has_picture = with_picture and decision.frame
    picture = embed_file(episode_folder(run, trace.result.index) / decision.frame) if has_picture else ""
    return FilmstripShot(decision, kind, picture, action, " · ".join(cost))


def view_episodes(run: Path, traces: Sequence[EpisodeTrace]) -> list[EpisodeView]:
    """Prepare all episodes: animations for the first few, frames as long as the report stays small."""
    moving = [trace.result.index for trace in traces if trace.video][:MOVING_EPISODES]
    views, room = [], PICTURE_LIMIT
    for place, trace in enumerate(traces):
        with_pictures = len(trace.decisions) <= room
        room -= len(trace.decisions) if with_pictures else 0
        shots = [view_shot(run, trace, decision, with_pictures) for decision in trace.decisions]
        gif = make_gif(run, [trace], GIF_BUDGET_BYTES // len(moving)) if trace.result.index in moving else b""
        uri = embed(gif, "image/gif") if gif else ""
        views.append(EpisodeView(trace, draw_map(trace), uri, shots, place < OPEN_EPISODES))
    return views


def word(value: Setting) -> str:
    """A setting as text."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def percent(value: float | None) -> str:
    """A share for the page."""
    return "–" if value is None else f"{100 * value:.1f} %"


def when(started_at: str) -> str:
    """The start time of a run as text."""
    return started_at.replace("T", " ").replace("Z", " UTC")


def words_of(settings: Mapping[str, Setting]) -> list[tuple[str, str]]:
    """(name, value) of settings as text."""
    return [(name, word(value)) for name, value in settings.items()]


def machine_of(machine: Mapping[str, Setting], wall_s: float) -> list[tuple[str, str]]:
    """Facts about the machine of a run, and its wall time."""
    return words_of(machine) + [("wall time", f"{wall_s:.0f} s")] * bool(wall_s)


def write_page(path: Path, template: str, **values: object) -> Path:
    """Write a report; returns its path."""
    write_bytes_atomic(path, render(template, **values).encode())
    return path


def render(template: str | Path, **values: object) -> str:
    """Render a report as HTML. template: one of ours, or a path. Names that `values` lacks are errors."""
    file = TEMPLATES / template
    loader = jinja2.FileSystemLoader([file.parent, TEMPLATES])
    pages = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    pages.filters |= {"shown": shown, "percent": percent}
    style = Markup((TEMPLATES / "style.css").read_text(encoding="utf-8"))
    return pages.get_template(file.name).render(style=style, **values)


def write_report(run: Path) -> Path:
    """Draw `report.html` and `demo.gif` for a run folder; returns the report's path.

    Raises `EvaluationError` when the results or a trace cannot be read.
    """
    results, traces = DemoResults.load(run), load_traces(run)
    if gif := make_gif(run, [t for t in traces if t.video][:MOVING_EPISODES], GIF_BUDGET_BYTES):
        write_bytes_atomic(run / GIF_FILE, gif)
    phases = [(f"time: {name}", f"{seconds:.1f} s") for name, seconds in results.phases_s.items()]
    rest = "The figures below cover the finished episodes."
    return write_page(
        run / REPORT_FILE,
        "report.html.jinja",
        results=results,
        lead=lead_text(results),
        chips=what_is_real(results.config),
        alert=alert_text(results.error, results.interrupted, rest),
        figures=headline(results),
        outcomes=OUTCOME_WORDS,
        histograms=histograms(results),
        tokens=tokens_per_decision(traces),
        typical=typical(traces),
        rounds=round_table(traces),
        latency_plot=latency_plot(results.latency_study),
        episodes=view_episodes(run, traces),
        config=words_of(results.config),
        machine=machine_of(results.machine, results.wall_s) + phases,
    )
