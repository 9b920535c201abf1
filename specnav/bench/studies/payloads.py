# SPDX-License-Identifier: Apache-2.0
"""The study of payloads: bytes of a round of rejection sampling on a large vocabulary; synthetic rows, real wire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specdec.options import DecodingOptions, GenerationOptions
from specdec.settings import check_settings, same_as, setting
from specnav.bench.records.study import PayloadRecord, StudyResults
from specnav.bench.studies.plan import Study, StudyFindings, table_of
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
    columns: list[tuple[str, Callable[[PayloadRecord], str]]] = [
        ("Scheme", lambda one: one.scheme),
        ("Sampling", lambda one: one.sampling),
        ("Acceptance", lambda one: f"{one.acceptance:.2f}"),
        ("B up", lambda one: f"{one.up:.1f}"),
        ("B down", lambda one: f"{one.down:,.0f}"),
        ("B down on\nrejection", lambda one: f"{one.rejected_down:,.0f}"),
        ("p95", lambda one: f"{one.rejected_p95:,.0f}"),
        ("most", lambda one: f"{one.rejected_max:,}"),
        ("asked\nagain", lambda one: f"{one.again:.1%}"),
        ("whole\nrows", lambda one: str(one.whole_rows)),
    ]
    caption = (
        "Synthetic rows, p ~ rank^-s at temperature 1 with s uniform in 1.1 to 3; the draft's logits are the target's "
        "plus normal noise. The code that describes, encodes and recovers rows is the real one."
    )
    table = table_of("Bytes per round", rows, columns, caption)
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
