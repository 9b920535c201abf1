"""Why our figures at a point are not the paper's, in sentences made of the run: its baseline, its accounting, our loss;
and where ours is faster, which axis did it.

From the printed figure to ours there are three steps: what the paper's formula gives at its own numbers (the rest is
what the paper counts besides), what our rounds take after the first token (the timeline), and the first token itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from specdec.methods import get_method
from specnav.bench.core.predicted import HINTED, PIPELINED, Prediction
from specnav.bench.core.records import BenchRow
from specnav.bench.operating_points.formulas import Printed, at
from specnav.bench.operating_points.runs import PointRun, formula_at, paper_of

LONGER = (
    "the paper's rounds took longer than link, drafting and verification add up to (its accounting: what else a round "
    "costs is in no formula)"
)
QUICKER = "the paper's rounds took less than their parts, or its AR more than a forward a token (its baseline)"
TOLD = 0.07
"""Two figures nearer than this share are called the same."""


def why(run: PointRun) -> str:
    """One paragraph; "" for a run that is not at its paper's acceptance."""
    printed = run.printed
    if printed is None:
        return ""
    sentences = [words for row in run.results.rows if (words := _beside(run, row, printed) or _timed(run, row))]
    return _once(" ".join([*sentences, *_fastest(run, printed)]))


def _once(text: str) -> str:
    """What a paper counts is said of the first method; of the others that it is the same."""
    for reason in (LONGER, QUICKER):
        first, said, rest = text.partition(reason)
        text = first + said + rest.replace(reason, "the same")
    return text


def _beside(run: PointRun, row: BenchRow, printed: Printed) -> str:
    """One method with a printed speed-up."""
    paper, formula = paper_of(run, row.method, "speedup"), formula_at(run, row.method, "speedup")
    if paper is None or row.speedup_vs_ar is None or row.method == "ar":
        return ""
    ours = row.speedup_vs_ar
    words = f"{row.method}: {ours:.2f}× where the paper prints {paper:.2f}×"
    if _same(ours, paper):
        return f"{words}, the same."
    steps = list(_steps(run, row, printed, paper, formula))
    return f"{words}{'; ' if steps else ''}{'; '.join(steps)}."


def _timed(run: PointRun, row: BenchRow) -> str:
    """One method of which the time of a token is printed."""
    paper, formula = paper_of(run, row.method, "tpot_ms"), formula_at(run, row.method, "tpot_ms")
    ours = run.ours(row, "tpot_ms")
    if paper is None or ours is None:
        return ""
    words = f"{row.method}: {ours:.1f} ms a token after the first where the paper prints {paper:.1f} ms"
    if formula is not None:
        words += f" and its times and acceptance add up to {formula:.1f} ms"
    tau = paper_of(run, row.method, "tau")
    return words + (f", with {row.tau:.2f} tokens a round where it has {tau:.2f}." if tau and row.tau else ".")


def _steps(
    run: PointRun, row: BenchRow, printed: Printed, paper: float, formula: float | None
) -> Iterator[str]:
    prediction = next((one for one in run.predicted if one.method == row.method), None)
    decoding = decoding_alone(run, row.method)
    if formula is not None:
        if _same(formula, paper):
            yield f"its formula at its own numbers agrees with it ({formula:.2f}×)"
        else:
            yield f"its own formula at its own numbers gives {formula:.2f}×: {_accounting(paper, formula, printed)}"
    if decoding is None or prediction is None:
        return
    basis, value = ("the formula's rounds", formula) if formula is not None else ("the printed ones", paper)
    after = f"({decoding:.2f}× after the first token)"
    if _same(decoding, value):
        yield f"our rounds take as long as {basis} {after}"
    elif decoding < value:
        yield f"our rounds are slower than {basis} {after}: {_loss(row, prediction, printed)}"
    else:
        yield f"our rounds are faster than {basis} {after}: {_gain(row, prediction, printed)}"
    if row.speedup_vs_ar is not None and row.speedup_vs_ar < (1 - TOLD) * decoding:
        tokens = row.tokens / row.answers if row.answers else 0.0
        yield (
            f"the first token takes {row.ttft_ms or 0:.0f} ms here, which answers of {tokens:.0f} tokens feel and the "
            "paper's formula leaves out"
        )


def _accounting(paper: float, formula: float, printed: Printed) -> str:
    """Why a paper's measurement is not its formula, as far as its numbers tell."""
    verify = at(printed.verify_ms, printed.gamma + 1)
    if paper < formula:
        return LONGER
    if verify > (1 + TOLD) * printed.ar_ms:
        return (
            f"the paper's AR was slower than the {printed.ar_ms:.0f} ms of a forward of one row (its baseline: were a "
            f"token of AR to cost a verification, {verify:.0f} ms, the formula would give "
            f"{formula * verify / printed.ar_ms:.2f}×)"
        )
    return QUICKER


def _loss(row: BenchRow, one: Prediction, printed: Printed) -> str:
    """Where the rounds lose, from the timeline's parts."""
    parts, verify = one.parts, at(printed.verify_ms, printed.gamma + 1)
    found = []
    if one.formula is PIPELINED:
        broken = 1 - parts.alpha ** max(1, round(parts.drafted))
        found.append(f"the pipeline breaks in {100 * broken:.0f} % of its rounds")
    if row.tau is not None and not _same(row.tau, printed.tau) and row.tau < printed.tau:
        found.append(
            f"{row.tau:.2f} tokens a round instead of {printed.tau:.2f}, for the last drafts of an answer are cut"
        )
    if not _same(parts.verify, verify) and parts.verify > verify and get_method(row.method).drafts:
        found.append(f"a verification takes {parts.verify:.0f} ms instead of {verify:.0f}")
    if row.overhead_ms_per_round is not None and row.overhead_over_floor and row.overhead_over_floor > 1.02:
        found.append(f"{row.overhead_ms_per_round:.1f} ms a round are neither forwards nor link")
    return ", ".join(found) or "many small parts of a round"


def _gain(row: BenchRow, one: Prediction, printed: Printed) -> str:
    """Which axis made the rounds faster."""
    method, parts = get_method(row.method), one.parts
    found = []
    if method.tree is not None and row.tau is not None:
        found.append(f"its tree brings {row.tau:.2f} tokens a round, a chain {printed.tau:.2f} (the shape of a draft)")
    if one.formula is HINTED and printed.miss is not None:
        found.append(
            f"{100 * parts.miss:.0f} % of its draft tokens are drafted after the verdict, the paper misses "
            f"{100 * printed.miss:.0f} % (what the edge does while it waits: guesses beside hints)"
        )
    if method.cloud_drafts:
        found.append("both models are in the cloud, and no round pays the link")
    if method.overlap in ("stream", "hinted-stream", "continue") and method.tree is None:
        found.append("drafting goes on while verdicts are out (several drafts in flight)")
    return ", ".join(found) or "what the formula adds up overlaps, and first drafts are made while the prompt is read"


def _fastest(run: PointRun, printed: Printed) -> Iterator[str]:
    """The best of ours, and what made it so."""
    rows = [row for row in run.results.rows if row.speedup_vs_ar is not None and row.method != "ar" and not row.lossy]
    if not rows:
        return
    best = max(rows, key=lambda row: row.speedup_vs_ar or 0.0)
    papers = {row.method: value for row in rows if (value := paper_of(run, row.method, "speedup")) is not None}
    over = max(papers.values(), default=None)
    beside = "" if over is None else f" (the best that the paper prints: {over:.2f}×)"
    axis = "" if best.method in papers else f", {_axis(best, run, printed)}"  # else it has been said
    yield f"Fastest here: {best.method}, {best.speedup_vs_ar:.2f}×{beside}{axis}."


def _axis(row: BenchRow, run: PointRun, printed: Printed) -> str:
    if row.modes:
        total = sum(row.modes.values())
        most = sorted(row.modes.items(), key=lambda one: -one[1])[:2]
        shares = (f"{mode} in {100 * count / total:.0f} % of its rounds" for mode, count in most)
        return "by choosing " + " and ".join(shares)
    one = next((one for one in run.predicted if one.method == row.method), None)
    return "for " + _gain(row, one, printed) if one is not None else "as it is"


def decoding_alone(run: PointRun, method: str) -> float | None:
    """The speed-up over `ar` after the first token of each answer."""
    tokens = {one.method: one.measured_token for one in run.predicted}
    if method not in tokens or "ar" not in tokens:
        return None
    return tokens["ar"] / tokens[method]


def _same(one: float, other: float) -> bool:
    return abs(one - other) <= TOLD * abs(other)
