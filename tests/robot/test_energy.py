"""Energy of a decision, as /diagnostics and the console's health panel show it, or that there is no sensor."""

from __future__ import annotations

from pathlib import Path

from spec_vlm_nav.model.speculative import energy_figures
from specdec.energy import Meter, find_sensors


def test_a_robot_without_a_sensor_says_so() -> None:
    assert energy_figures(Meter([]), None) == {"energy": "no sensor"}


def test_a_decision_power_and_idle_power_stand_side_by_side(tmp_path: Path) -> None:
    folder = tmp_path / "class/hwmon/hwmon4"
    folder.mkdir(parents=True)
    for name, value in (("name", "ina3221"), ("in1_label", "VDD_IN"), ("in1_input", 5000), ("curr1_input", 3000)):
        (folder / name).write_text(f"{value}\n")
    now = [0.0]
    meter = Meter(find_sensors(tmp_path, gpus=False), lambda: now[0])
    assert energy_figures(meter, None) == {"energy": "ina3221 VDD_IN"}, "nothing is known yet"
    now[0] = 2.0
    meter.poll()
    told = {"energy": "ina3221 VDD_IN", "decision J": 7.5, "power W": 15.0, "idle power W": 15.0}
    assert energy_figures(meter, 7.5) == told
    (folder / "curr1_input").unlink()
    meter.poll()
    assert energy_figures(meter, None) == {"energy": "no sensor"}
