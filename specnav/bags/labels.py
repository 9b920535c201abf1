# SPDX-License-Identifier: Apache-2.0
"""Label files: the right action for each frame, from a person or an oracle, as CSV with columns `stamp` and `action`.

A stamp is a frame's header stamp in seconds (`12.5`) or nanoseconds (`12500000000`), with one unit per file. A column
named `stamp_s` or `stamp_ns` sets the unit. An action is a sentence of the language or its short name.
"""

from __future__ import annotations

import bisect
import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from specdec.settings_files import read_text
from specnav.bags.contents import FrameEntry
from specnav.results.errors import EvaluationError

MAX_BYTES = 64 << 20
NEAR_NS = 50_000_000  # a label belongs to the nearest frame, no farther than this
# Larger whole numbers are nanoseconds: as seconds they would lie after the year 2286.
SECONDS_BELOW = Decimal(10_000_000_000)
_COLUMNS = {"stamp": None, "stamp_s": "s", "stamp_ns": "ns"}


@dataclass(frozen=True)
class Label:
    """One line: a stamp (ns) and the name of an action."""

    line: int
    stamp_ns: int
    action: str


def read_labels(path: Path, vocabulary: Mapping[str, str]) -> list[Label]:
    """Read a label file. vocabulary: accepted texts, mapped to names of actions. Raises EvaluationError with the number
    of the wrong line.
    """
    try:
        text = read_text(path, MAX_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise EvaluationError(
            f"cannot read labels {path}: {getattr(error, 'strerror', None) or error}"
        ) from error
    try:
        return _read_rows(path, csv.reader(text.splitlines()), vocabulary)
    except csv.Error as error:  # a line longer than any label
        raise EvaluationError(f"{path} is not a label file: {error}") from error


def _read_rows(path: Path, rows: Any, vocabulary: Mapping[str, str]) -> list[Label]:
    unit, at_stamp, at_action = _header(path, next(rows, []))
    accepted = {words.lower(): name for words, name in vocabulary.items()}
    accepted |= {name.lower(): name for name in vocabulary.values()}
    found: list[tuple[int, Decimal, str]] = []
    for row in rows:
        if not any(cell.strip() for cell in row):
            continue
        place = f"{path} line {rows.line_num}"
        if len(row) <= max(at_stamp, at_action):
            raise EvaluationError(
                f"{place}: {len(row)} column{'' if len(row) == 1 else 's'}; give stamp,action"
            )
        said = " ".join(row[at_action].split()).lower()
        if said not in accepted:
            raise EvaluationError(
                f"{place}: {row[at_action].strip()!r} is not an action; known are "
                f"{', '.join(dict.fromkeys(vocabulary.values()))}, or their sentences"
            )
        found.append((rows.line_num, _number(row[at_stamp], place), accepted[said]))
    if not found:
        raise EvaluationError(f"{path} holds no labels below its header")
    return _in_nanoseconds(path, found, unit)


def _header(path: Path, row: Sequence[str]) -> tuple[str | None, int, int]:
    names = [cell.strip().lower() for cell in row]
    stamps = [name for name in names if name in _COLUMNS]
    if len(stamps) != 1 or names.count("action") != 1:
        raise EvaluationError(
            f"{path} line 1: the header must name the columns stamp and action, like stamp,action"
        )
    return _COLUMNS[stamps[0]], names.index(stamps[0]), names.index("action")


def _number(text: str, place: str) -> Decimal:
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        value = Decimal("nan")
    if not value.is_finite() or value < 0 or value >= Decimal(2**63):
        raise EvaluationError(f"{place}: {text.strip()!r} is not a stamp; give seconds or nanoseconds")
    return value


def _in_nanoseconds(path: Path, found: Sequence[tuple[int, Decimal, str]], unit: str | None) -> list[Label]:
    if unit is None:
        fractions = any(value != value.to_integral_value() for _, value, _ in found)
        unit = "s" if fractions or max(value for _, value, _ in found) < SECONDS_BELOW else "ns"
    factor = 1_000_000_000 if unit == "s" else 1
    labels: list[Label] = []
    seen: dict[int, tuple[int, str]] = {}
    for line, value, action in found:
        stamp_ns = int(value * factor)
        if stamp_ns in seen and seen[stamp_ns][1] != action:
            raise EvaluationError(
                f"{path} line {line}: line {seen[stamp_ns][0]} labels this stamp differently"
            )
        seen[stamp_ns] = (line, action)
        labels.append(Label(line, stamp_ns, action))
    return labels


def match_labels(labels: Sequence[Label], frames: Sequence[FrameEntry]) -> tuple[dict[int, str], list[Label]]:
    """Actions by frame stamp (ns), and labels without a frame within NEAR_NS; the nearest label of a frame wins."""
    stamps = sorted(frame.stamp_ns for frame in frames)
    best: dict[int, tuple[int, str]] = {}
    lost: list[Label] = []
    for label in labels:
        place = bisect.bisect_left(stamps, label.stamp_ns)
        near = min(stamps[max(place - 1, 0) : place + 1], key=lambda s: abs(s - label.stamp_ns), default=None)
        if near is None or abs(near - label.stamp_ns) > NEAR_NS:
            lost.append(label)
        elif near not in best or abs(near - label.stamp_ns) < best[near][0]:
            best[near] = (abs(near - label.stamp_ns), label.action)
    return {stamp: action for stamp, (_, action) in best.items()}, lost
