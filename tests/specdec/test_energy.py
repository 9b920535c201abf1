"""Energy: a tree of made-up sensors, whose counters wrap, run backwards and vanish."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from specdec.energy import Meter, Sensor, SensorLost, find_sensors
from tests.helpers.waiting import Clock


class Tree:
    """A made-up /sys."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, place: str, value: object) -> Path:
        file = self.root / "class" / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")
        return file

    def package(self, joules: float, number: int = 0, wraps_at: float = 262143.0) -> Path:
        """One that RAPL counts, with a part that is counted in it."""
        folder = f"powercap/intel-rapl:{number}"
        self.write(f"{folder}:0/energy_uj", 5)
        self.write(f"{folder}/name", f"package-{number}")
        self.write(f"{folder}/max_energy_range_uj", int(wraps_at * 1e6))
        return self.write(f"{folder}/energy_uj", int(joules * 1e6))

    def jetson(self, volts: float, amperes: float) -> Path:
        """A monitor whose first rail holds the others."""
        for number, (name, share) in enumerate([("VDD_IN", 1.0), ("VDD_CPU_GPU_CV", 0.5), ("VDD_SOC", 0.2)], 1):
            self.write(f"hwmon/hwmon3/in{number}_label", name)
            self.write(f"hwmon/hwmon3/in{number}_input", int(volts * 1e3))
            self.write(f"hwmon/hwmon3/curr{number}_input", int(amperes * share * 1e3))
        self.write("hwmon/hwmon3/name", "ina3221")
        self.write("hwmon/hwmon0/name", "coretemp")
        return self.root / "class/hwmon/hwmon3/curr1_input"

    def meter(self, clock: Clock) -> Meter:
        return Meter(find_sensors(self.root, gpus=False), clock)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_without_a_sensor_everything_is_none_and_nothing_is_guessed(tree: Tree, clock: Clock) -> None:
    meter = tree.meter(clock)
    mark = meter.mark()
    clock.now = 5.0
    assert meter.sensors == []
    assert meter.since(mark) is meter.joules is meter.watts is meter.idle_watts is None


def test_a_package_is_counted_once_and_two_are_added(tree: Tree, clock: Clock) -> None:
    tree.package(100.0), tree.package(7.0, number=1)
    meter = tree.meter(clock)
    assert meter.sensors == ["RAPL package-0", "RAPL package-1"]
    mark = meter.mark()
    clock.now = 2.0
    tree.package(130.0), tree.package(17.0, number=1)
    assert meter.since(mark) == pytest.approx(40.0)
    assert meter.watts == meter.idle_watts == pytest.approx(20.0)


def test_a_counter_that_wraps_goes_on(tree: Tree, clock: Clock) -> None:
    tree.package(99.0, wraps_at=100.0)
    meter = tree.meter(clock)
    mark = meter.mark()
    for now, joules in ((0.5, 2.0), (1.0, 60.0), (1.5, 1.0)):
        clock.now = now
        tree.package(joules, wraps_at=100.0)
        meter.poll()
    assert meter.since(mark) == pytest.approx(102.0)


@pytest.mark.parametrize("fault", ["backwards", "vanished", "no number", "not finite", "negative", "far too much"])
def test_a_sensor_that_fails_makes_what_it_measured_unknown_until_it_is_sound_again(
    tree: Tree, clock: Clock, fault: str
) -> None:
    file = tree.package(500_000.0, wraps_at=10_000_000.0)
    meter = tree.meter(clock)
    mark = meter.mark()
    clock.now = 1.0
    wrong = {"no number": "?", "not finite": "nan", "negative": "-1", "backwards": int(4e11), "far too much": int(7e12)}
    if fault == "vanished":
        file.unlink()
    else:
        file.write_text(f"{wrong[fault]}\n")
    assert meter.since(mark) is None and meter.sensors == [] and meter.joules is None
    clock.now = 2.0
    tree.package(600_000.0, wraps_at=10_000_000.0)
    assert meter.since(mark) is None, "no caller knows what was counted meanwhile"
    again = meter.mark()
    clock.now = 4.0
    tree.package(600_030.0, wraps_at=10_000_000.0)
    assert meter.since(again) == pytest.approx(30.0) and meter.watts == pytest.approx(15.0)
    assert meter.since(mark) is None


def test_power_is_added_up_between_looks_and_the_whole_rail_holds_its_parts(tree: Tree, clock: Clock) -> None:
    tree.jetson(volts=5.0, amperes=2.0)
    meter = tree.meter(clock)
    assert meter.sensors == ["ina3221 VDD_IN"]
    mark = meter.mark()
    clock.now = 1.0
    tree.jetson(volts=5.0, amperes=4.0)
    meter.poll()
    clock.now = 3.0
    assert meter.since(mark) == pytest.approx((10 + 20) / 2 * 1.0 + 20 * 2.0)


def test_idle_power_is_the_calmest_second(tree: Tree, clock: Clock) -> None:
    current = tree.jetson(volts=5.0, amperes=1.0)
    meter = tree.meter(clock)
    for second in range(1, 40):
        current.write_text("8000\n" if second % 20 >= 10 else "1000\n")
        clock.now += 0.5
        meter.poll()
    assert meter.idle_watts == pytest.approx(5.0) and meter.watts is not None
    assert meter.idle_watts <= meter.watts


def test_sensors_that_cannot_be_read_are_none(tree: Tree) -> None:
    tree.package(1.0).chmod(0)
    tree.write("powercap/intel-rapl:7/name", "no counter")
    tree.write("hwmon/hwmon1/name", "ina3221")
    found = find_sensors(tree.root, gpus=False)
    assert found == [] or (os.geteuid() == 0 and len(found) == 1)


def test_a_gpu_tells_millijoules(monkeypatch: pytest.MonkeyPatch, tree: Tree, clock: Clock) -> None:
    class Nvml:
        class NVMLError(Exception):
            pass

        counted = 5_000.0
        nvmlInit = staticmethod(lambda: None)
        nvmlDeviceGetCount = staticmethod(lambda: 2)
        nvmlDeviceGetHandleByIndex = staticmethod(lambda index: index)

        @classmethod
        def nvmlDeviceGetTotalEnergyConsumption(cls, handle: int) -> float:
            if handle == 1:
                raise cls.NVMLError("not supported")
            return cls.counted

    monkeypatch.setitem(sys.modules, "pynvml", Nvml)
    meter = Meter(find_sensors(tree.root), clock)
    assert meter.sensors == ["GPU 0"]
    mark = meter.mark()
    clock.now, Nvml.counted = 1.0, 255_000.0
    assert meter.since(mark) == pytest.approx(250.0)
    for broken in ("nvmlDeviceGetCount", "nvmlInit"):
        monkeypatch.setattr(Nvml, broken, staticmethod(lambda: 1 / 0))
        assert find_sensors(tree.root) == []


def test_a_sensor_of_ones_own_may_be_lost_in_the_middle(clock: Clock) -> None:
    class Flapping:
        name, is_gauge, wraps_at, sound = "flapping", True, 0.0, True

        def read(self) -> float:
            if not self.sound:
                raise SensorLost("gone")
            return 3.0

    steady, flapping = Flapping(), Flapping()
    sensors: list[Sensor] = [steady, flapping]
    meter = Meter(sensors, clock)
    mark = meter.mark()
    clock.now, flapping.sound = 1.0, False
    assert meter.since(mark) is None, "the other sensor's share alone is not the answer's"
    mark = meter.mark()
    clock.now = 2.0
    assert meter.since(mark) == pytest.approx(3.0)


def test_a_meter_that_was_closed_may_be_started_again(tree: Tree) -> None:
    tree.package(5.0)
    meter = Meter(find_sensors(tree.root, gpus=False))
    for _ in range(2):
        assert meter.start().start() is meter
        meter.close()
    meter.close()
    Meter([]).start().close()


def test_a_sensor_is_there_while_it_is_read(clock: Clock) -> None:
    """Another thread may ask at that moment."""

    class Slow:
        name, is_gauge, wraps_at = "slow", False, 0.0

        def read(self) -> float:
            told.append((meter.sensors, meter.joules) if meter else None)
            return clock.now

    told: list[object] = []
    meter: Meter | None = None
    meter = Meter([Slow()], clock)
    clock.now = 1.0
    meter.poll()
    assert told == [None, (["slow"], 0.0)] and meter.joules == 1.0
