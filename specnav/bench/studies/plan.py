# SPDX-License-Identifier: Apache-2.0
"""What a study asks for: its settings, and what its findings are made of. Data only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from specnav.bench.records.study import StudyResults
from specnav.report.charts import LineChart, RowChart

Value = int | float | str
Kind = Literal["runs", "clients", "batch", "drafts", "computed"]


@dataclass(frozen=True)
class StudySetting:
    """One bench run of a study. x: its place on the axis. changes: settings of the bench beside the common ones.

    Times in `changes` are those of the operating point, before they are scaled.
    """

    folder: str
    label: str
    methods: tuple[str, ...]
    x: float = 0.0
    changes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyRequest:
    """What a plan depends on. available: the core's methods. methods: named by the user, else empty.

    layers: of the target's early exits.
    """

    available: tuple[str, ...]
    methods: tuple[str, ...] = ()
    layers: tuple[int, ...] = ()

    def choose(self, *usual: str) -> tuple[str, ...]:
        """The methods the user named, `ar` among them, or of the usual ones those that there are."""
        if self.methods:
            return self.methods if "ar" in self.methods else ("ar", *self.methods)
        return tuple(name for name in usual if name.split("+")[0] in self.available)


@dataclass(frozen=True)
class Table:
    """A table as text; the first column holds names."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


@dataclass(frozen=True)
class StudyFindings:
    """What a study shows."""

    charts: Sequence[LineChart | RowChart] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True)
class Study:
    """One study. sets: the bench's settings that it varies itself, which no flag may fix.

    takes_methods: whether the user may name the methods. needs_exits: without early exits it would say nothing.
    limit, max_new_tokens: questions and tokens by default. kind: what its measurements are: bench runs of single
    clients, many clients on one verifier, forwards, bench runs with several drafts, or nothing that needs a process.
    how: name and value of how it was measured; None: as bench runs are. point: the operating point that it is about,
    unless another is named. own: the class of the numbers that it takes beside the bench's settings.
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
