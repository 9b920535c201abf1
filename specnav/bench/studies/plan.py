# SPDX-License-Identifier: Apache-2.0
"""Data types of studies: what a study runs, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from specnav.bench.records.study import StudyResults
from specnav.report.charts import LineChart, RowChart

T = TypeVar("T")
Value = int | float | str
Kind = Literal["runs", "clients", "batch", "drafts", "computed"]


@dataclass(frozen=True)
class StudySetting:
    """One bench run of a study. x: its place on the axis. changes: bench settings that differ from the common ones.

    Times in `changes` are those of the operating point, unscaled.
    """

    folder: str
    label: str
    methods: tuple[str, ...]
    x: float = 0.0
    changes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyRequest:
    """The inputs of a study's plan. methods: those named by the user, or empty. layers: of the target's early exits."""

    methods: tuple[str, ...] = ()
    layers: tuple[int, ...] = ()

    def choose(self, *usual: str) -> tuple[str, ...]:
        """The methods named by the user plus `ar`, else the usual ones."""
        named = self.methods or usual
        return named if "ar" in named else ("ar", *named)


@dataclass(frozen=True)
class Table:
    """A table as text; the first column holds names."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


def table_of(
    title: str, things: Iterable[T], columns: Sequence[tuple[str, Callable[[T], str]]], caption: str = ""
) -> Table:
    """A table with a row for each thing. columns: (head, text of a thing's cell)."""
    rows = tuple(tuple(cell(one) for _, cell in columns) for one in things)
    return Table(title, tuple(head for head, _ in columns), rows, caption)


@dataclass(frozen=True)
class StudyFindings:
    """The charts and tables of a study."""

    charts: Sequence[LineChart | RowChart] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True)
class Study:
    """One study. sets: bench settings that the study varies itself, which no flag may fix.

    takes_methods: whether the user may name the methods. needs_exits: whether it needs a target with early exits.
    limit, max_new_tokens: default numbers of questions and tokens. kind: the kind of measurement: bench runs of single
    clients, many clients on one verifier, forwards, bench runs with several drafts, or computed without a process.
    how: (name, value) facts about how it was measured; None: those of bench runs. point: its default operating point.
    own: the class of its own numbers, which replace the bench's settings.
    """

    name: str
    title: str
    question: str
    read: Callable[[StudyResults], StudyFindings]
    settings: Callable[[StudyRequest], Sequence[StudySetting]] = lambda asked: ()
    sets: frozenset[str] = frozenset()
    takes_methods: bool = False
    needs_exits: bool = False
    limit: int = 2
    max_new_tokens: int = 24
    kind: Kind = "runs"
    how: Callable[[StudyResults], list[tuple[str, str]]] | None = None
    point: str = ""
    own: type | None = None
