# SPDX-License-Identifier: Apache-2.0
"""The study of payloads: bytes of a round of rejection sampling on a large vocabulary; synthetic rows, real wire."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.options import DecodingOptions, GenerationOptions
from specdec.settings import check_settings, same_as, setting
from specnav.bench.records.study import StudyResults
from specnav.bench.studies.plan import Study, StudyFindings, Table
from specnav.errors import UsageError
from specnav.report.charts import RowChart, RowSeries


@dataclass(frozen=True)
class PayloadsAsked:
    """The numbers of the study. Raises UsageError."""

    vocab: int = setting(150_000, "Size of the vocabulary.", 2, 1_000_000)
    rounds: int = setting(100, "Rounds to measure.", 1, 100_000)
    gamma: int = same_as(DecodingOptions, "gamma")
    temperature: float = same_as(GenerationOptions, "temperature", default=1.0, help="Of sampling.", low=0.01, high=10)
    top_k: int | None = setting(None, "Sample from the K likeliest tokens only.", 0, 1_000_000)
    top_p: float | None = setting(None, "Sample from the likeliest tokens that make up P.", 1e-9, 1)
    noise: float = setting(0.7, "How far the draft's logits are off (standard deviation).", 0, 100)
    seed: int = same_as(GenerationOptions, "seed")

    def __post_init__(self) -> None:
        check_settings(self, UsageError)


def _read(results: StudyResults) -> StudyFindings:
    rows = results.payloads
    table = Table(
        "Bytes per round",
        (
            "Scheme", "Sampling", "Acceptance", "B up", "B down", "B down on\nrejection", "p95", "most", "asked\nagain",
            "whole\nrows",
        ),
        tuple(
            (
                one.scheme, one.sampling, f"{one.acceptance:.2f}", f"{one.up:.1f}", f"{one.down:,.0f}",
                f"{one.rejected_down:,.0f}", f"{one.rejected_p95:,.0f}", f"{one.rejected_max:,}", f"{one.again:.1%}",
                str(one.whole_rows),
            )
            for one in rows
        ),
        "Synthetic rows, p ~ rank^-s at temperature 1 with s uniform in 1.1 to 3; the draft's logits are the target's "
        "plus normal noise. The code that describes, encodes and recovers rows is the real one.",
    )  # fmt: skip
    charts = [
        RowChart(
            f"Bytes down on a rejection, {sampling}", "bytes, on a logarithmic scale",
            tuple(one.scheme for one in rows if one.sampling == sampling),
            (RowSeries("", tuple(one.rejected_down for one in rows if one.sampling == sampling)),),
            log=True,
        )
        for sampling in dict.fromkeys(one.sampling for one in rows)
    ]  # fmt: skip
    return StudyFindings(charts, [table])


STUDY = Study(
    name="payloads",
    title="Bytes per round",
    question="How many bytes does a round of rejection sampling take on a large vocabulary?",
    read=_read,
    kind="computed",
    how=lambda results: [(name, str(value)) for name, value in results.config.items() if value is not None],
    own=PayloadsAsked,
)
