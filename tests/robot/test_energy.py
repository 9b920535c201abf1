"""Energy of a decision, as /diagnostics and the console's health panel show it, or that there is no sensor."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from spec_vlm_nav.console.decisions import decision_record
from spec_vlm_nav.model.decider import DecisionFailed
from spec_vlm_nav.model.speculative import energy_figures
from specdec.energy import Meter, find_sensors
from tests.helpers.made_up_sensors import gauge_of_15_w


def test_a_robot_without_a_sensor_says_so() -> None:
    assert energy_figures(Meter([]), None) == {"energy": "no sensor"}


def test_a_decision_power_and_idle_power_stand_side_by_side(tmp_path: Path) -> None:
    folder = gauge_of_15_w(tmp_path)
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


@pytest.mark.slow
@pytest.mark.parametrize("has_sensor", [True, False])
def test_each_decision_tells_its_energy_or_that_there_is_no_sensor(tmp_path: Path, has_sensor: bool) -> None:
    real = pytest.importorskip("tests.robot.real_decider", reason="needs the shipped models")
    gauge = gauge_of_15_w(tmp_path) if has_sensor else None
    alone = replace(
        real.SETTINGS,
        verifier="tcp://127.0.0.1:9",
        connect_timeout_s=0.2,
        resume_timeout_s=0.0,
        on_link_loss="draft_only_slow",
        energy_root=str(tmp_path),
    )
    decider = real.make_decider(alone)
    try:
        began = time.monotonic()
        answer = decider.decide(real.job(), threading.Event(), lambda *told: None)
        took_s = time.monotonic() - began
        if gauge is None:
            assert answer.joules is None and decider.figures()["energy"] == "no sensor"
            return
        assert answer.joules is not None and 0.5 * took_s <= answer.joules / 15.0 <= took_s
        assert decider.figures()["decision J"] == pytest.approx(answer.joules, abs=1e-3)
        (gauge / "curr1_input").unlink()
        decider.use(replace(alone, on_link_loss="stop"))
        with pytest.raises(DecisionFailed) as failed:
            decider.decide(real.job(), threading.Event(), lambda *told: None)
        assert failed.value.answer.joules is None, "lost in the middle: not a guess"
    finally:
        decider.close()


def test_a_record_of_a_decision_tells_energy_and_older_recordings_none() -> None:
    lists = dict.fromkeys(
        (
            "span_lane",
            "span_name",
            "span_start_ms",
            "span_end_ms",
            "drafted",
            "accepted",
            "uplink_bytes",
            "downlink_bytes",
        ),
        (),
    )
    words = dict.fromkeys(("instruction_text", "method", "reasoning", "text", "action", "rule", "error"), "")
    numbers = dict.fromkeys(
        ("session", "sequence", "source", "verification", "decision_ms", "camera_to_action_ms", "total_ms"), 0
    )
    header = SimpleNamespace(stamp=SimpleNamespace(sec=1, nanosec=0))
    old = SimpleNamespace(**lists, **words, **numbers, rounds=0, prompt_bytes=0, header=header)
    assert decision_record(old)["joules"] is None
    assert decision_record(SimpleNamespace(**vars(old), joules=-1.0))["joules"] is None
    assert decision_record(SimpleNamespace(**vars(old), joules=2.5))["joules"] == 2.5
