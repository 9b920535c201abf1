# SPDX-License-Identifier: Apache-2.0
"""Compares several operating points, one bench run each: the page `index.html`, and its tables as `points.md`.

Each cell has up to three figures: ours, the paper's, and the result of the paper's formula with the paper's numbers.
The tables of a run at the papers' acceptance are also written into a checkout: a block in each point's file and a table
between two markers in a page. The text around them is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from specdec.errors import OptionsError
from specdec.methods import get_method
from specdec.options import DecodingOptions
from specdec.sampling.recoveries import Recovery
from specnav.bench.data import latency
from specnav.bench.data.acceptance import read_acceptance
from specnav.bench.data.names import same_at
from specnav.bench.data.papers import figures
from specnav.bench.data.points import QUANTITIES
from specnav.bench.records.bench import BenchResults, BenchRow
from specnav.bench.records.predicted import CLOUD_SD, HINTED, PREDRAFTED, Parts, formula_of
from specnav.bench.records.summary import ours_for, time_scale_of, unscaled
from specnav.bench.report.bench import chips_of
from specnav.bench.studies.figures import system_of
from specnav.bench.studies.plan import Table
from specnav.report.page import shown, words_of, write_page
from specnav.results.demo import RESULTS_FILE, number_of
from specnav.results.errors import EvaluationError
from specnav.results.files import write_bytes_atomic

INDEX_FILE, MARKDOWN_FILE = "index.html", "points.md"
LEGEND = (
    "Ours / the paper's / its formula's with its own numbers, where they exist. A dash: no value. The "
    "devices are paced and the link is emulated; the pair is ours."
)
SAME = "If greedy, dsd, dssd and dssd-thin equal sd, and picospec-lossy equals picospec: each group is measured once."
NO_VALUE = shown(None)
COMMAND = "specnav bench points all --at-paper-acceptance --write"
BLOCK = f"# Written by `{COMMAND}`; what stands above this line is not.\nmeasured:\n"
BEGIN, END = "<!-- begin: written by bench --write -->", "<!-- end: written by bench --write -->"
SHOWN = ("cloud-sd", "split", "sd", "dsd", "dssd", "picospec", "specedge", "fsd", "auto")
TABLES = {
    "speedup": "Tokens a second over cloud AR",
    "tau": "τ, tokens gained a round",
    "tpot_ms": "Milliseconds a token",
    "tokens_per_s": "Tokens a second",
}


@dataclass(frozen=True)
class PointRun:
    """The run of one point.

    folder: relative to the folder of all runs. printed: the paper's own numbers, if the run has the paper's acceptance.
    time_scale: the factor on every time of the point.
    """

    folder: str
    results: BenchResults
    printed: Printed | None
    time_scale: float

    def row(self, method: str) -> BenchRow | None:
        """The figures of a method in this run."""
        return next((row for row in self.results.rows if row.method == method), None)

    def three(self, method: str, quantity: str) -> tuple[float | None, float | None, float | None]:
        """Our figure at the point's own times, the paper's, and its formula's with the paper's numbers."""
        row, name = self.row(method), "speedup_vs_ar" if quantity == "speedup" else quantity
        ours = None if row is None else unscaled(getattr(row, name), quantity, self.time_scale)
        return ours, paper_of(self, method, quantity), formula_at(self, method, quantity)

    @property
    def title(self) -> str:
        """The point's title; the folder's name without a point."""
        return self.results.point.title if self.results.point else self.folder


def load_points(folder: Path, warn: Callable[[str], None]) -> list[PointRun]:
    """Load the runs in the subfolders of `folder`, ordered by name. Raises EvaluationError if none can be read.

    A run that cannot be read is left out. If its settings are not numbers, the paper's figures are left out. warn: gets
    a line for each.
    """
    found = []
    for place in sorted(path.parent for path in folder.glob(f"*/{RESULTS_FILE}")):
        try:
            results = BenchResults.load(place)
            scale = time_scale_of(results.config)
            number_of(results.config, "temperature")
        except EvaluationError as error:
            warn(f"{place.name} is left out: {error}")
            continue
        printed: Printed | None = None
        try:
            printed = printed_of(results)
        except (EvaluationError, OptionsError) as error:
            warn(f"{place.name} is shown without the paper's own numbers: {error}")
        found.append(PointRun(place.name, results, printed, scale))
    if not found:
        raise EvaluationError(f"{folder} holds no run of an operating point that can be read")
    return found


def points_tables(runs: Sequence[PointRun]) -> list[Table]:
    """One table of methods by points per quantity: always speed-up and τ, others only if a paper prints them."""
    printed = {f.quantity for run in runs for f in run.results.printed}
    return [
        _table(quantity, title, runs)
        for quantity, title in TABLES.items()
        if quantity in ("speedup", "tau") or quantity in printed
    ]


def _table(quantity: str, title: str, runs: Sequence[PointRun]) -> Table:
    measured = [row.method for run in runs for row in run.results.rows]
    printed = [f.method for run in runs for f in run.results.printed if f.quantity == quantity and f.over == "ar"]
    methods = [name for name in dict.fromkeys([*measured, *printed]) if quantity != "speedup" or name != "ar"]
    rows = tuple((method, *(_cell(quantity, method, run) for run in runs)) for method in methods)
    return Table(title, ("method", *(run.folder for run in runs)), rows, LEGEND)


def _cell(quantity: str, method: str, run: PointRun) -> str:
    """Our figure / the paper's / its formula's with the paper's numbers, as far as they exist."""
    _, digits = QUANTITIES[quantity]
    texts = [shown(one, digits) for one in run.three(method, quantity)]
    while len(texts) > 1 and texts[-1] == NO_VALUE:
        texts.pop()
    return " / ".join(texts)


def paper_of(run: PointRun, method: str, quantity: str) -> float | None:
    """The paper's figure for a method; a speed-up over another method is multiplied by that method's over `ar`."""
    found = {(f.method, f.over): f.value for f in run.results.printed if f.quantity == quantity}
    if (method, "ar") in found or quantity != "speedup":
        return found.get((method, "ar"))
    over = next((other for one, other in found if one == method), None)
    return found[method, over] * found[over, "ar"] if over is not None and (over, "ar") in found else None


def formula_at(run: PointRun, method: str, quantity: str) -> float | None:
    """The result of the method's formula with the paper's own numbers."""
    printed = run.printed
    if printed is None or method == "ar":
        return None
    if quantity == "speedup":
        return printed.over_ar(method)
    return unscaled(printed.a_token(method), quantity, run.time_scale) if quantity == "tpot_ms" else None


def other_figures(run: PointRun) -> list[str]:
    """The paper's speed-ups over methods other than `ar`, in words."""
    return [
        f"{f.method} over {f.over}: paper {f.value:.2f}×, ours "
        + ("not in this run" if (ours := ours_for(f, run.results.rows)) is None else f"{ours:.2f}×")
        for f in run.results.printed
        if f.quantity == "speedup" and f.over != "ar"
    ]


@dataclass(frozen=True)
class Printed:
    """A paper's numbers at its point. Times are milliseconds; those of forwards may depend on their rows.

    miss: miss rate of its pre-drafts; None if not printed. row_ms: time to send one row of the target's distribution
    down the link; rows_up_ms: time to send the rows of a round up. Both are 0 if not printed.
    """

    gamma: int
    tau: float
    alpha: float
    draft_ms: float
    cloud_draft_ms: float
    verify_ms: float
    rtt_ms: float
    miss: float | None = None
    row_ms: float = 0.0
    rows_up_ms: float = 0.0

    @property
    def ar_ms(self) -> float:
        """Time per token of cloud AR: a forward over one row."""
        return latency.forward_ms(self.verify_ms, 1)

    def a_token(self, method: str) -> float | None:
        """Milliseconds per token by the method's formula; None if there is no formula or a number is missing."""
        formula = formula_of(method)
        if formula is None or formula is PREDRAFTED:  # no paper prints how much is drafted after the verdict
            return None
        named = get_method(method)
        if not named.drafts and not named.cloud_drafts:
            return self.ar_ms if not named.split else latency.split(1, 0.0, self.ar_ms, self.rtt_ms / 2)
        draft, link = self.gamma * self.draft_ms, self.rtt_ms
        verify = latency.forward_ms(self.verify_ms, self.gamma + 1)
        if formula is CLOUD_SD:
            verify += self.gamma * self.cloud_draft_ms
        if formula is HINTED and self.miss is None:
            return None
        if named.recovery is Recovery.ROW and self.row_ms:
            link = latency.dssd_comm(self.alpha, self.gamma, self.row_ms, self.rtt_ms)
        if named.recovery is Recovery.CLOUD:
            link += self.rows_up_ms
        parts = Parts(self.tau, self.alpha, self.gamma, draft, verify, link, 1.0 if self.miss is None else self.miss)
        return formula.a_token(parts)

    def over_ar(self, method: str) -> float | None:
        """Speed-up over cloud AR by the method's formula."""
        token = self.a_token(method)
        return None if token is None else self.ar_ms / token


def printed_of(results: BenchResults) -> Printed | None:
    """The paper's numbers for a run at a point with its paper's acceptance; None for any other run.

    Raises EvaluationError for settings that are not numbers, OptionsError for a method that does not exist.
    """
    config = results.config
    for row in results.rows:
        formula_of(row.method)
    emulated = str(config.get("acceptance") or "").partition(" ")[0]
    if results.point is None or not emulated:
        return None
    wanted = read_acceptance(emulated, 0)
    gamma = int(number_of(config, "gamma", DecodingOptions.gamma, 1))
    # A tau refers to its own draft length, which may differ from that of the paper's point.
    alpha = wanted.value if wanted.kind == "alpha" else latency.acceptance_for(wanted.value, wanted.gamma)
    system, paper = system_of(results.point), figures()["dssd_003"]
    draft_ms, bandwidth = number_of(config, "draft_ms"), number_of(config, "bandwidth_mbps")
    cloud = number_of(config, "cloud_draft_ms", draft_ms)
    is_dssd = any(one.where.startswith("dssd_003.") for one in results.point.figures)
    return Printed(
        gamma=gamma,
        tau=latency.expected_tokens(alpha, gamma),
        alpha=alpha,
        draft_ms=latency.forward_ms(draft_ms, 1),
        cloud_draft_ms=latency.forward_ms(cloud, 1),
        verify_ms=number_of(config, "verify_ms"),
        rtt_ms=number_of(config, "rtt_ms"),
        miss=None if system is None else system.miss / 100,
        row_ms=ROW_MS_AT_100 * 100 / bandwidth if is_dssd and bandwidth else 0.0,
        rows_up_ms=8 * paper["uplink_bytes"]["dsd"] / (bandwidth * 1e3) if is_dssd and bandwidth else 0.0,
    )


ROW_MS_AT_100 = 8.0
"""DSSD, Table 1: |V| b / R_down at 100 Mb/s."""


def notes_of(run: PointRun) -> list[str]:
    """Notes under the tables: the point's source, how it was emulated, and further remarks."""
    results, point = run.results, run.results.point
    lines = [f"{point.models}. {point.source}."] if point else []
    lines.append("; ".join(f"{name}: {words}" for name, words in chips_of(results) if name != "Real"))
    if run.time_scale != 1:
        lines.append(
            f"Every time was multiplied by {run.time_scale:g}; ratios are unchanged, times are scaled back."
        )
    lines += results.notes
    lines += other_figures(run)
    lines += [point.explained] if point and point.explained else []
    if results.error or results.interrupted:
        lines.append(f"This run is not complete: {results.error or 'interrupted'}.")
    return lines


def comparison_rows(run: PointRun) -> list[tuple[str, ...]]:
    """(method, τ, speed-up over `ar`: ours, the paper's, its formula's), if the run has its paper's acceptance."""
    return [
        (row.method, shown(row.tau, 2), *(shown(one, 2, "×") for one in run.three(row.method, "speedup")))
        for row in run.results.rows
        if row.method != "ar" and run.printed is not None
    ]


def lead_of(runs: Sequence[PointRun]) -> str:
    """First paragraph: how many points and questions, and how they were run."""
    asked = sorted({row.questions for run in runs for row in run.results.rows})
    tokens = sorted({str(run.results.config.get("max_new_tokens")) for run in runs})
    count = f"{asked[0]}" if len(set(asked)) == 1 else f"{asked[0]} to {asked[-1]}" if asked else "no"
    emulated = any(run.results.acceptance for run in runs)
    return (
        f"{len(runs)} operating points of the papers, {count} questions each, at most {' or '.join(tokens)} tokens "
        "per answer. Every point is one run: the same questions, one pair, one machine, all methods in turn."
        + f" Acceptance emulated: the draft has the target's weights, with logits disturbed until it is accepted as "
        f"often as the paper's. {SAME}" * emulated
    )


def build_markdown(runs: Sequence[PointRun]) -> str:
    """The text of `points.md`: tables of methods by points, and notes on each point."""
    machine = ", ".join(map(" ".join, words_of(runs[0].results.machine)))
    parts = ["# Operating points", "", lead_of(runs), "", f"Machine: {machine}.", ""]
    for table in points_tables(runs):
        parts += [f"## {table.title}", "", table.caption, "", *markdown(table.head, table.rows), ""]
    parts += ["## By point", ""]
    for run in runs:
        parts += [f"### {run.title} (`{run.folder}`)", ""]
        if rows := comparison_rows(run):
            parts += [*markdown(("method", "τ", "ours", "paper", "its formula"), rows), ""]
        parts += [*(f"- {line}" for line in notes_of(run)), ""]
    return "\n".join(parts)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return [lines[0], "|---" * len(head) + "|", *lines[1:]]


def chips_over(runs: Sequence[PointRun]) -> list[tuple[str, str]]:
    """What is emulated in all runs."""
    if not any(run.results.acceptance for run in runs):
        return []
    return [
        ("Acceptance", "acceptance emulated: the target drafts, with disturbed logits"),
        ("Devices", "paced"),
        ("Link", "emulated"),
        ("Real", "edge and cloud are two processes, every message goes over ZeroMQ"),
    ]


def write_points(folder: Path, warn: Callable[[str], None]) -> Path:
    """Write both files for a folder of runs; returns the index page's path. Raises EvaluationError. warn: gets a line
    for what could not be read; the page says it, too.
    """
    missing: list[str] = []
    runs = load_points(folder, missing.append)
    for line in missing:
        warn(line)
    write_bytes_atomic(folder / MARKDOWN_FILE, build_markdown(runs).encode())
    return write_page(
        folder / INDEX_FILE,
        "points.html.jinja",
        lead=lead_of(runs),
        chips=chips_over(runs),
        alert="; ".join(missing),
        figures=[],
        runs=runs,
        tables=points_tables(runs),
        notes=[(run, comparison_rows(run), notes_of(run)) for run in runs],
        machine=words_of(runs[0].results.machine),
    )


def block(run: PointRun) -> str:
    """The block `measured:` of a point's file, as YAML. Raises EvaluationError without emulated acceptance."""
    results, accepted = run.results, run.results.acceptance
    if accepted is None:
        raise EvaluationError(
            f"{run.folder} was not measured at its paper's acceptance; run it with --at-paper-acceptance"
        )
    asked = max((row.questions for row in results.rows), default=0)
    quantities = {one.quantity for one in results.printed}
    lines = [
        f"  acceptance: emulated, {accepted.words}, {accepted.achieved:.2f} reached",
        f"  asked: {asked} questions, at most {results.config.get('max_new_tokens')} tokens an answer"
        + f", every time times {run.time_scale:g}" * (run.time_scale != 1),
        "  over_ar:   # [ours, the paper's, its formula's at its own numbers]",
        *_three_cells(run, "speedup"),
    ]
    if "tpot_ms" in quantities:
        lines += ["  ms_a_token:   # after the first; the same three", *_three_cells(run, "tpot_ms")]
    return BLOCK + "\n".join(lines) + "\n"


def _three_cells(run: PointRun, quantity: str) -> list[str]:
    return [
        f"    {row.method}: [{', '.join('null' if n is None else f'{n:.2f}' for n in run.three(row.method, quantity))}]"
        for row in run.results.rows
        if row.method != "ar"
    ]


def with_block(text: str, block_: str) -> str:
    """A point's file with `block_` in place of its earlier block."""
    return text.partition(BLOCK.splitlines()[0])[0].rstrip("\n") + "\n" + block_


def figures_table(runs: Sequence[PointRun]) -> str:
    """Markdown table, one row per point, one column per method: ours (the paper's; its formula's with its numbers)."""
    measured = {row.method for run in runs for row in run.results.rows}
    methods = [name for name in SHOWN if name in measured]
    rows = []
    for run in runs:
        accepted = run.results.acceptance
        best = max((row.speedup_vs_ar or 0.0 for row in run.results.rows), default=0.0)
        cells = [_cell_of(run, name, best) for name in methods]
        asked = accepted.asked.replace("tau:", "").replace("alpha:", "α ") if accepted else ""
        rows.append([run.folder, asked, *cells])
    return "\n".join(markdown(["operating point", "τ asked", *(f"`{name}`" for name in methods)], rows))


def _cell_of(run: PointRun, method: str, best: float) -> str:
    speedup, *others = run.three(method, "speedup")
    if speedup is None:
        same = same_at(method, number_of(run.results.config, "temperature"))
        return f"= `{same}`" if same != method else "–"
    ours = f"**{speedup:.2f}**" if speedup == best else f"{speedup:.2f}"
    if others == [None, None]:
        return ours
    return f"{ours} ({'; '.join('–' if one is None else f'{one:.2f}' for one in others)})"


def with_table(text: str, table_: str, place: str) -> str:
    """A page with `table_` between its markers. Raises EvaluationError if the page has none."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise EvaluationError(f"{place} has no place for the table: put {BEGIN} and {END} around where it goes")
    return f"{before}{BEGIN}\n{table_}\n{END}{after}"


def write_tables(runs: Sequence[PointRun], points: Path, page: Path) -> list[Path]:
    """Write every point's block into its file in `points`, and the table into `page`; return the written files.

    Writes nothing unless everything can be written. Raises EvaluationError.
    """
    texts: dict[Path, str] = {}
    try:
        for run in runs:
            place = points / f"{run.folder}.yaml"
            texts[place] = with_block(place.read_text(encoding="utf-8"), block(run))
        texts[page] = with_table(page.read_text(encoding="utf-8"), figures_table(runs), str(page))
    except OSError as error:
        raise EvaluationError(
            f"cannot write the tables: {error.strerror or error} ({error.filename}); --write is for a checkout"
        ) from error
    for place, text in texts.items():
        write_bytes_atomic(place, text.encode())
    return list(texts)
