"""Free room on this machine's disk."""

from __future__ import annotations

import shutil
from pathlib import Path

from specnav.doctor.robot.facts import Disk


def disk_at(folder: str, needed_mb: float) -> Disk | None:
    """Free room where a folder is, or would be made; None where nobody can tell. needed_mb: for the black box."""
    place = Path(folder).expanduser().absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        return Disk(str(place), shutil.disk_usage(place).free / 1e6, needed_mb)
    except OSError:
        return None
