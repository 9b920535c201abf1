# SPDX-License-Identifier: Apache-2.0
"""Message definitions for recordings: those of a ROS release and ours."""

from __future__ import annotations

from specnav.bags.types import NEWEST, Types
from specnav.paths import INTERFACES


def own_definitions() -> dict[str, str]:
    """Our message definitions by type name, from our interface package; empty without it."""
    return {
        f"{INTERFACES.name}/msg/{path.stem}": path.read_text(encoding="utf-8")
        for path in sorted((INTERFACES / "msg").glob("*.msg"))
    }


def own_types(distro: str = NEWEST) -> Types:
    """The types of a ROS release and ours."""
    return Types(own_definitions(), distro)
