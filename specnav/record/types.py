"""Definitions of the messages that a recording may hold: a ROS release's, ours, and what installed packages have."""

from __future__ import annotations

import sys
from pathlib import Path

from evaluation.bags.types import NEWEST, Types
from specnav.paths import ROOT

INTERFACES = ROOT / "ros2_ws" / "src" / "spec_vlm_nav_interfaces"


def own_definitions() -> dict[str, str]:
    """Our message definitions by type name, from the clone's interface package; {} without it."""
    return {
        f"{INTERFACES.name}/msg/{path.stem}": path.read_text(encoding="utf-8")
        for path in sorted((INTERFACES / "msg").glob("*.msg"))
    }


def own_types(distro: str = NEWEST) -> Types:
    """The types of a ROS release and ours."""
    return Types(own_definitions(), distro)


def installed_definition(kind: str) -> str | None:
    """The .msg text of a type (package/msg/Name) of an installed ROS package; None when there is none."""
    from ament_index_python.packages import PackageNotFoundError, get_package_share_directory

    package, _, name = kind.partition("/msg/")
    try:
        share = Path(get_package_share_directory(package))
    except (PackageNotFoundError, OSError, ValueError):
        # ROS as Python wheels in a virtual environment has no AMENT_PREFIX_PATH.
        share = Path(sys.prefix) / "share" / package
    try:
        return (share / "msg" / f"{name}.msg").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
