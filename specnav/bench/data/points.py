# SPDX-License-Identifier: Apache-2.0
"""The papers' operating points: devices and link of a published experiment, one file each in `config/points`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import msgspec

from specdec.link.shaping import LinkProfile
from specdec.options import DecodingOptions, GenerationOptions
from specdec.row_ms import read_ms
from specnav.bench.data.papers import figure
from specnav.errors import UsageError
from specnav.paths import CONFIG
from specnav.settings import make_settings, read_yaml

POINTS = CONFIG / "points"
SAID = frozenset({"title", "models", "source", "acceptance", "assumed", "explained", "figures", "measured"})
"""Fields of a point that are not settings of a run."""
QUANTITIES = {
    "speedup": ("speed-up over {}", 2),
    "tau": ("τ, tokens a round", 2),
    "accepted": ("draft tokens accepted a round", 2),
    "tpot_ms": ("ms a token", 1),
    "tokens_per_s": ("tokens a second", 1),
    "predraft_hit_rate": ("pre-draft hit rate", 2),
}
"""Words and digits to show of a paper's figures, by the field of BenchRow that is our own."""


class PaperFigure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that a paper prints for a method at an operating point. over: the method that a speed-up refers to."""

    method: str
    quantity: str
    value: float
    over: str = "ar"
    where: str = ""


class PointRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The operating point of a run: the paper's experiment, its place in the paper, and our assumptions."""

    name: str
    title: str
    source: str
    models: str
    assumed: list[str] = msgspec.field(default_factory=list)
    explained: str = ""  # which effect explains the difference between the paper's figures and ours
    figures: list[PaperFigure] = msgspec.field(default_factory=list)


SHAPES = (
    ("acceptance", dict, "a mapping like {tau: 2.9, gamma: 4}"), ("measured", dict, "a mapping"),
    ("assumed", (list, tuple), "a list of sentences"), ("figures", (list, tuple), "a list of figures"),
)  # fmt: skip


@dataclass(frozen=True)
class OperatingPoint:
    """One file of `config/points`; see the README there."""

    title: str
    models: str
    source: str
    rtt_ms: float = LinkProfile.rtt_ms
    jitter_ms: float = LinkProfile.jitter_ms
    bandwidth_mbps: float = LinkProfile.bandwidth_mbps
    loss: float = LinkProfile.loss
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    cloud_draft_ms: float | None = None
    gamma: int = DecodingOptions.gamma
    temperature: float = GenerationOptions.temperature
    top_k: int = GenerationOptions.top_k
    top_p: float = GenerationOptions.top_p
    acceptance: Mapping[str, Any] = field(default_factory=dict)
    assumed: Sequence[str] = ()
    explained: str = ""
    figures: Sequence[Mapping[str, Any]] = ()
    measured: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Parse times by rows, which a file gives as text. Raises OptionsError, or UsageError for a wrong type."""
        for name, kind, shown in SHAPES:
            if not isinstance(getattr(self, name), kind):
                raise UsageError(
                    f"operating point {self.title!r}: {name} is {getattr(self, name)!r}; give {shown}"
                )
        for name in ("draft_ms", "verify_ms", "cloud_draft_ms"):
            if isinstance(getattr(self, name), str):
                object.__setattr__(self, name, read_ms(getattr(self, name)))

    def settings(self) -> dict[str, Any]:
        """The fields that are settings of a run; the paper's acceptance is not among them."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name not in SAID}


def load_point(name: str) -> tuple[OperatingPoint, PointRecord]:
    """Load an operating point by its name in `config/points` or from a file. Raises UsageError or EvaluationError."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else POINTS / f"{name}.yaml"
    if not path.is_file():
        there = ", ".join(sorted(found.stem for found in POINTS.glob("*.yaml")))
        raise UsageError(f"operating point {name!r} is unknown; there are {there}, or give a .yaml file")
    values = read_yaml(path)
    missing = [field_ for field_ in ("title", "models", "source") if not values.get(field_)]
    if missing:
        raise UsageError(f"{path} lacks {', '.join(missing)}; see {POINTS / 'README.md'}")
    point = make_settings(OperatingPoint, values, str(path))
    record = PointRecord(
        name=path.stem,
        title=point.title,
        source=point.source,
        models=point.models,
        assumed=[str(words) for words in point.assumed],
        explained=" ".join(str(point.explained).split()),
        figures=[_paper_figure(entry, str(path)) for entry in point.figures],
    )
    return point, record


def _paper_figure(entry: Mapping[str, Any], place: str) -> PaperFigure:
    try:
        quantity, where = str(entry["quantity"]), str(entry["value"])
        method, over = str(entry["method"]), str(entry.get("over", "ar"))
    except (KeyError, TypeError, AttributeError):
        raise UsageError(f"{place}: a figure needs method, quantity and value; got {entry!r}") from None
    if quantity not in QUANTITIES:
        raise UsageError(f"{place}: quantity {quantity!r} is unknown; choose {', '.join(QUANTITIES)}")
    return PaperFigure(method=method, quantity=quantity, value=figure(where), over=over, where=where)


def paper_acceptance(point: OperatingPoint) -> str:
    """The paper's acceptance at its point, in the form of `--acceptance`. Raises UsageError if the file has none."""
    given = dict(point.acceptance)
    gamma = given.pop("gamma", point.gamma)
    if len(given) != 1 or not set(given) <= {"tau", "alpha"} or not isinstance(gamma, int):
        raise UsageError(
            f"operating point {point.title!r} has no acceptance from its paper; give one with --acceptance, or write "
            "acceptance: {tau: VALUE, gamma: G} or {alpha: VALUE} into its file (VALUE: a number or a figure's path)"
        )
    kind, value = next(iter(given.items()))
    number = figure(value) if isinstance(value, str) else value
    return f"alpha:{number:g}" if kind == "alpha" else f"tau:{number:g}@{gamma}+1"
