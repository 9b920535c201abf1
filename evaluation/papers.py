"""The papers' printed figures, as data: `figures()["fsd_000"]["robot"]["tau"]`.

Keys: fsd_000 (early exits), specedge_001, picospec_002, dssd_003. What is ours never enters this file.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml


@cache
def figures() -> dict[str, Any]:
    """The parsed `papers.yaml`."""
    return yaml.safe_load((Path(__file__).parent / "papers.yaml").read_text(encoding="utf-8"))
