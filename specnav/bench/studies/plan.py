"""What a study asks for: its settings, and what its findings are made of. Data only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from specnav.bench.studies.records import StudyResults

Value = int | float | str
Kind = Literal["runs", "clients", "batch", "drafts"]


@dataclass(frozen=True)
class Setting:
    """One bench run of a study. x: its place on the axis. changes: settings of the bench beside the common ones.

    Times in `changes` are those of the operating point, before they are scaled.
    """

    folder: str
    label: str
    methods: tuple[str, ...]
    x: float = 0.0
    changes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
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
class Line:
    """One line of a chart. family: the method it is about, which gives the colour. paper: printed, not measured.

    joined: false for figures of different systems. computed: by a formula, not measured.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    family: str
    paper: bool = False
    joined: bool = True
    computed: bool = False


@dataclass(frozen=True)
class Mark:
    """A place on a chart's x axis with a name; y: of the ring drawn there, None for a line from top to bottom."""

    x: float
    label: str
    y: float | None = None


@dataclass(frozen=True)
class LineChart:
    """Quantities against a number. level: a horizontal line with a meaning, such as 1 for "as fast as ar"."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    x_ticks: tuple[float, ...] = ()
    marks: tuple[Mark, ...] = ()
    level: float | None = None
    caption: str = ""


@dataclass(frozen=True)
class RowSeries:
    """Values by row; None where there is none."""

    name: str
    values: tuple[float | None, ...]
    paper: bool = False
    shade: int = 0


@dataclass(frozen=True)
class RowChart:
    """Named rows with a value each (bars), or with several beside each other (dots)."""

    title: str
    x_label: str
    rows: tuple[str, ...]
    series: tuple[RowSeries, ...]
    digits: int = 0
    level: float | None = None
    level_label: str = ""
    caption: str = ""


@dataclass(frozen=True)
class Table:
    """A table as text; the first column holds names."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


@dataclass(frozen=True)
class Findings:
    """What a study shows. words: its answer in sentences, the paper's beside it."""

    charts: Sequence[LineChart | RowChart] = ()
    tables: Sequence[Table] = ()
    words: Sequence[str] = ()


@dataclass(frozen=True)
class Study:
    """One study. sets: the bench's settings that it varies itself, which no flag may fix.

    takes_methods: whether the user may name the methods. needs_exits: without early exits it would say nothing.
    limit, max_new_tokens: questions and tokens by default. kind: what its measurements are: bench runs of single
    clients, many clients on one verifier, forwards, or bench runs with several drafts. how: how it was measured, in
    sentences; None: as bench runs are. point: the operating point that it is about, unless another is named.
    """

    name: str
    title: str
    question: str
    sets: frozenset[str]
    settings: Callable[[Asked], Sequence[Setting]]
    read: Callable[[StudyResults], Findings]
    takes_methods: bool = False
    needs_exits: bool = False
    limit: int = 2
    max_new_tokens: int = 24
    kind: Kind = "runs"
    how: Callable[[StudyResults], list[str]] | None = None
    point: str = ""
