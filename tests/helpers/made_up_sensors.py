"""A made-up sysfs with a sensor of power."""

from __future__ import annotations

from pathlib import Path


def gauge_of_15_w(root: Path) -> Path:
    """One power monitor (INA3221, rail VDD_IN); returns its folder."""
    folder = root / "class/hwmon/hwmon4"
    folder.mkdir(parents=True)
    for name, value in (
        ("name", "ina3221"),
        ("in1_label", "VDD_IN"),
        ("in1_input", 5000),
        ("curr1_input", 3000),
    ):
        (folder / name).write_text(f"{value}\n")
    return folder
