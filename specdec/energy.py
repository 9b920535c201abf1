# SPDX-License-Identifier: Apache-2.0
"""Energy that this machine's sensors have counted: NVIDIA's (NVML), Intel RAPL (powercap), INA3221 (Jetson, hwmon).

Vocabulary
    counter: a sensor that counts joules; it may wrap at a known range.
    gauge: a sensor that reports watts; they are added up between looks.
    mark: a moment to measure from.
    idle power: the least mean power of any second so far.

Nothing is ever guessed: while a sensor vanishes, runs backwards or tells what cannot be, what is measured is None.
Knows no model and no link, so that an edge, a verifier and a robot can use it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

SYSFS = Path("/sys")
MOST_WATTS = 5000.0
"""Of one sensor: what would be more is not power but a sensor that is broken or was reset."""
_LOOK_S = 0.2
_IDLE_S = 1.0
_WHOLE_RAIL = "VDD_IN"


class SensorLost(Exception):
    """A sensor reported nothing, or what cannot be."""


class Sensor(Protocol):
    """name: for people. read: joules counted so far, or watts where `is_gauge`; raises SensorLost. wraps_at: joules at
    which the count begins anew; 0: it never does.
    """

    name: str
    is_gauge: bool
    wraps_at: float

    def read(self) -> float:
        """Look now."""
        ...


class Powercap:
    """One package of Intel RAPL, as the kernel shows it."""

    is_gauge = False

    def __init__(self, folder: Path) -> None:
        self._file = folder / "energy_uj"
        self.name = f"RAPL {_text(folder / 'name')}"
        self.wraps_at = _number(folder / "max_energy_range_uj") / 1e6

    def read(self) -> float:
        """Joules."""
        return _number(self._file) / 1e6


class Hwmon:
    """Rails of a power monitor: millivolts times milliamperes of each."""

    is_gauge = True
    wraps_at = 0.0

    def __init__(self, folder: Path) -> None:
        rails = {_text(file): file.name[2:-6] for file in sorted(folder.glob("in[1-9]_label"))}
        if _WHOLE_RAIL in rails:  # the others are parts of it
            rails = {_WHOLE_RAIL: rails[_WHOLE_RAIL]}
        places = list(rails.values()) or [file.name[4:-6] for file in sorted(folder.glob("curr[1-9]_input"))]
        self._files = [(folder / f"in{place}_input", folder / f"curr{place}_input") for place in places]
        self.name = f"{_text(folder / 'name')} {', '.join(rails) or 'all rails'}"
        if not self._files:
            raise SensorLost(f"{folder} has no rails")

    def read(self) -> float:
        """Watts."""
        return sum(_number(volts) * _number(amperes) for volts, amperes in self._files) / 1e6


class Nvml:
    """One NVIDIA GPU. nvml: the module pynvml."""

    is_gauge = False
    wraps_at = 0.0

    def __init__(self, nvml: Any, index: int) -> None:
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByIndex(index)
        self.name = f"GPU {index}"
        self.read()

    def read(self) -> float:
        """Joules."""
        try:
            return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1e3
        except self._nvml.NVMLError as error:
            raise SensorLost(str(error)) from error


def find_sensors(root: Path = SYSFS, gpus: bool = True) -> list[Sensor]:
    """Those of this machine that can be read. root: where sysfs lies. gpus: ask NVML, too, if pynvml is installed."""
    makers: list[Callable[[], Sensor]] = []
    for folder in sorted((root / "class/powercap").glob("intel-rapl:*")):
        if folder.name.count(":") == 1:  # its parts are counted in it
            makers.append(lambda folder=folder: Powercap(folder))  # type: ignore[misc]
    for folder in sorted((root / "class/hwmon").glob("hwmon*")):
        if (folder / "name").is_file() and "ina3221" in (folder / "name").read_text(errors="replace"):
            makers.append(lambda folder=folder: Hwmon(folder))  # type: ignore[misc]
    found = []
    for make in makers:
        try:
            sensor = make()
            sensor.read()
        except SensorLost:
            continue
        found.append(sensor)
    return [*found, *(_gpus() if gpus else [])]


def _gpus() -> list[Sensor]:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no package, no driver: no sensor
        return []
    found: list[Sensor] = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            found.append(Nvml(pynvml, index))
        except (SensorLost, pynvml.NVMLError):
            continue
    return found


@dataclass(frozen=True)
class Mark:
    """joules: of all sensors so far. gaps: how often one of them was lost."""

    joules: float
    gaps: int


class Meter:
    """Adds up what sensors report. `poll` looks; `start` lets a thread do so five times a second. From any thread."""

    def __init__(self, sensors: Sequence[Sensor], clock: Callable[[], float] = time.monotonic) -> None:
        self._sensors = list(sensors)
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[Sensor, tuple[float, float]] = {}
        self._joules = 0.0
        self._gaps = 0
        self._window: tuple[float, float, int] | None = None
        self._watts: float | None = None
        self._idle: float | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.poll()

    @property
    def sensors(self) -> list[str]:
        """The names of those that report something at present."""
        return [sensor.name for sensor in self._last]

    @property
    def watts(self) -> float | None:
        """Mean power of about the last second; None: no sensor, or not yet."""
        return self._watts

    @property
    def idle_watts(self) -> float | None:
        """The least mean power of any second so far; None: no sensor, or not yet."""
        return self._idle

    @property
    def joules(self) -> float | None:
        """All that was counted since the meter began; None: no sensor."""
        return self._joules if self._last else None

    def mark(self) -> Mark:
        """Measure from now on."""
        self.poll()
        with self._lock:
            return Mark(self._joules, self._gaps)

    def since(self, mark: Mark) -> float | None:
        """Joules since a mark; None without a sensor, and where one was lost meanwhile."""
        self.poll()
        with self._lock:
            return self._joules - mark.joules if self._last and self._gaps == mark.gaps else None

    def poll(self) -> None:
        """Look at every sensor."""
        with self._lock:
            for sensor in self._sensors:
                self._look(sensor)
            self._look_at_power(self._clock())

    def _look(self, sensor: Sensor) -> None:
        now, before = self._clock(), self._last.pop(sensor, None)
        try:
            value = sensor.read()
            added = 0.0 if before is None else _added(sensor, before, (now, value))
        except SensorLost:
            self._gaps += before is not None
            return
        self._gaps += before is None and self._joules > 0.0  # it has come back: no caller knows what it counted
        self._last[sensor] = now, value
        self._joules += added

    def _look_at_power(self, now: float) -> None:
        began_s, joules, gaps = self._window or (now, self._joules, -1)
        if not self._last or gaps != self._gaps:
            self._window, self._watts = (now, self._joules, self._gaps), None
            if not self._last:
                self._idle = None
        elif now - began_s >= _IDLE_S:
            self._watts = (self._joules - joules) / (now - began_s)
            self._idle = self._watts if self._idle is None else min(self._idle, self._watts)
            self._window = (now, self._joules, self._gaps)

    def start(self) -> Meter:
        """Look from now on, until `close`; without a sensor it is empty."""
        if self._sensors and self._thread is None:
            self._stopped.clear()
            self._thread = threading.Thread(target=self._run, name="energy", daemon=True)
            self._thread.start()
        return self

    def close(self) -> None:
        """Look no more."""
        self._stopped.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            self.poll()


def _added(sensor: Sensor, before: tuple[float, float], now: tuple[float, float]) -> float:
    """Joules between two looks, each (seconds, what was read). Raises SensorLost for what cannot be.

    A counter that wraps at 100 J and is read at 99 J, then at 2 J, has counted 3 J.
    """
    (then_s, old), (now_s, new) = before, now
    seconds = now_s - then_s
    joules = (old + new) / 2 * seconds if sensor.is_gauge else new - old
    if not sensor.is_gauge and joules < 0.0:
        joules += sensor.wraps_at
    if not 0.0 <= joules <= MOST_WATTS * (seconds + _LOOK_S):  # counters may move in steps
        raise SensorLost(f"{sensor.name} ran backwards or was reset")
    return joules


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()[:40]
    except OSError as error:
        raise SensorLost(f"{file} cannot be read") from error


def _number(file: Path) -> float:
    try:
        value = float(_text(file))
    except ValueError as error:
        raise SensorLost(f"{file} holds no number") from error
    if not (math.isfinite(value) and value >= 0.0):
        raise SensorLost(f"{file} holds {value}")
    return value
