# SPDX-License-Identifier: Apache-2.0
"""The papers' printed figures, as data: `figures()["fsd_000"]["robot"]["tau"]`.

Keys: fsd_000 (early exits), specedge_001, picospec_002, dssd_003. Our own measurements never go into this file.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from specnav.results.errors import EvaluationError


@cache
def figures() -> dict[str, Any]:
    """The parsed `papers.yaml`."""
    return yaml.safe_load((Path(__file__).parent / "papers.yaml").read_text(encoding="utf-8"))


def figure(path: str) -> float:
    """One printed figure by its path, e.g. "fsd_000.robot.tau" or "dssd_003.homogeneous.1.x.0".

    Raises EvaluationError when there is no such figure.
    """
    place: Any = figures()
    for word in path.split("."):
        try:
            known = isinstance(place, dict) and word in place  # some of the file's keys are numbers
            place = place[word if known else int(word)]
        except (KeyError, IndexError, ValueError, TypeError):
            raise EvaluationError(f"papers.yaml has no figure {path!r} ({word!r} is not there)") from None
    if isinstance(place, bool) or not isinstance(place, int | float):
        raise EvaluationError(f"{path!r} in papers.yaml is not a single figure; name one inside it")
    return float(place)
