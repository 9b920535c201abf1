# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of a run at the papers' acceptance into a checkout.

These are a block in each point's file and a table between two markers in a page. The text around them is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specnav.bench.data.names import same_at
from specnav.bench.report.points import PointRun, markdown
from specnav.results.demo import number_of
from specnav.results.errors import EvaluationError
from specnav.results.files import write_bytes_atomic

COMMAND = "specnav bench points all --at-paper-acceptance --write"
BLOCK = f"# Written by `{COMMAND}`; what stands above this line is not.\nmeasured:\n"
BEGIN, END = "<!-- begin: written by bench --write -->", "<!-- end: written by bench --write -->"
SHOWN = ("cloud-sd", "split", "sd", "dsd", "dssd", "picospec", "specedge", "fsd", "auto")


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
        *_cells(run, "speedup"),
    ]
    if "tpot_ms" in quantities:
        lines += ["  ms_a_token:   # after the first; the same three", *_cells(run, "tpot_ms")]
    return BLOCK + "\n".join(lines) + "\n"


def _cells(run: PointRun, quantity: str) -> list[str]:
    return [
        f"    {row.method}: [{', '.join('null' if n is None else f'{n:.2f}' for n in run.three(row.method, quantity))}]"
        for row in run.results.rows
        if row.method != "ar"
    ]


def with_block(text: str, block_: str) -> str:
    """A point's file with `block_` in place of its earlier block."""
    return text.partition(BLOCK.splitlines()[0])[0].rstrip("\n") + "\n" + block_


def table(runs: Sequence[PointRun]) -> str:
    """Markdown table, one row per point, one column per method: ours (the paper's; its formula's with its numbers)."""
    measured = {row.method for run in runs for row in run.results.rows}
    methods = [name for name in SHOWN if name in measured]
    rows = []
    for run in runs:
        accepted = run.results.acceptance
        best = max((row.speedup_vs_ar or 0.0 for row in run.results.rows), default=0.0)
        cells = [_cell(run, name, best) for name in methods]
        asked = accepted.asked.replace("tau:", "").replace("alpha:", "α ") if accepted else ""
        rows.append([run.folder, asked, *cells])
    return "\n".join(markdown(["operating point", "τ asked", *(f"`{name}`" for name in methods)], rows))


def _cell(run: PointRun, method: str, best: float) -> str:
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
        texts[page] = with_table(page.read_text(encoding="utf-8"), table(runs), str(page))
    except OSError as error:
        raise EvaluationError(
            f"cannot write the tables: {error.strerror or error} ({error.filename}); --write is for a checkout"
        ) from error
    for place, text in texts.items():
        write_bytes_atomic(place, text.encode())
    return list(texts)
