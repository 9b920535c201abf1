"""What the papers' latency formulas give at the papers' own numbers: their times, their link, their acceptance.

Nothing here was measured. It is the third figure beside ours and the printed one: where the printed one is off the
formula, the paper counted something else than its formula does.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec.errors import OptionsError
from specdec.methods import get_method
from specdec.row_ms import RowMs, read_ms
from specdec.sampling.recoveries import Recovery
from specnav.bench import latency
from specnav.bench.acceptance.wanted import Wanted, read_acceptance
from specnav.bench.core.predicted import CLOUD_SD, HINTED, PREDRAFTED, Parts, formula_of
from specnav.bench.core.records import BenchResults
from specnav.bench.papers import figures
from specnav.bench.studies.figures import system_of
from specnav.results.demo import Setting
from specnav.results.errors import EvaluationError


@dataclass(frozen=True)
class Printed:
    """A paper's numbers at its point; times in ms, of forwards by their rows. miss: of its pre-drafts, None: not
    printed. row_ms, rows_up_ms: what a row of the target takes down the link, and a round's rows up, where printed.
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
        """A token of cloud AR: a forward of one row."""
        return at(self.verify_ms, 1)

    def a_token(self, method: str) -> float | None:
        """Milliseconds a token by the method's formula; None where no formula is about it or lacks a number."""
        formula = formula_of(method)
        if formula is None or formula is PREDRAFTED:  # how much is drafted after the verdict is printed nowhere
            return None
        named = get_method(method)
        if not named.drafts and not named.cloud_drafts:
            return self.ar_ms if not named.split else latency.split(1, 0.0, self.ar_ms, self.rtt_ms / 2)
        draft, verify, link = self.gamma * self.draft_ms, at(self.verify_ms, self.gamma + 1), self.rtt_ms
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
        """The speed-up over cloud AR by the method's formula."""
        token = self.a_token(method)
        return None if token is None else self.ar_ms / token


def at(ms: float, rows: int) -> float:
    """Milliseconds of a forward of so many rows."""
    return ms.at(rows) if isinstance(ms, RowMs) else ms


def printed_of(results: BenchResults) -> Printed | None:
    """The paper's numbers of a run at a point with its paper's acceptance; None for any other run."""
    wanted, config = wanted_of(results), results.config
    if results.point is None or wanted is None:
        return None
    gamma = int(config.get("gamma") or 4)
    # A tau is of its own draft length; the paper's point may have another.
    alpha = wanted.value if wanted.kind == "alpha" else latency.acceptance_for(wanted.value, wanted.gamma)
    system, paper = system_of(results.point), figures()["dssd_003"]
    draft_ms, bandwidth = ms_of(config.get("draft_ms")), float(config.get("bandwidth_mbps") or 0.0)
    cloud = config.get("cloud_draft_ms")
    is_dssd = any(one.where.startswith("dssd_003.") for one in results.point.figures)
    return Printed(
        gamma=gamma,
        tau=latency.expected_tokens(alpha, gamma),
        alpha=alpha,
        draft_ms=at(draft_ms, 1),
        cloud_draft_ms=at(draft_ms if cloud is None else ms_of(cloud), 1),
        verify_ms=ms_of(config.get("verify_ms")),
        rtt_ms=float(config.get("rtt_ms") or 0.0),
        miss=None if system is None else system.miss / 100,
        row_ms=ROW_MS_AT_100 * 100 / bandwidth if is_dssd and bandwidth else 0.0,
        rows_up_ms=8 * paper["uplink_bytes"]["dsd"] / (bandwidth * 1e3) if is_dssd and bandwidth else 0.0,
    )


ROW_MS_AT_100 = 8.0
"""DSSD, Table 1: |V| b / R_down at 100 Mb/s."""


def wanted_of(results: BenchResults) -> Wanted | None:
    """The acceptance that a run emulated; None where it emulated none."""
    text = str(results.config.get("acceptance") or "").partition(" ")[0]
    try:
        return read_acceptance(text, 0) if text else None
    except EvaluationError:
        return None


def ms_of(value: Setting) -> float:
    """A time of a forward as results.json keeps it."""
    try:
        return read_ms(value) if isinstance(value, str) else float(value or 0.0)
    except OptionsError:
        return 0.0
