# SPDX-License-Identifier: Apache-2.0
"""Energy that this machine's sensors have counted: NVIDIA's (NVML), Intel RAPL (powercap), INA3221 (Jetson, hwmon).

Vocabulary
    counter: a sensor that counts joules; it may wrap at a known range.
    gauge: a sensor that reports watts, which are integrated between readings.
    mark: a moment to measure from.
    idle power: the least mean power of any second so far.

Nothing is guessed: if a sensor vanishes, runs backwards or reports an impossible value, the measurement is None.
Independent of models and links, so that an edge, a verifier and a robot can use it.
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
"""Upper limit for one sensor. A higher value means that the sensor is broken or was reset."""
_LOOK_S = 0.2
_IDLE_S = 1.0
_WHOLE_RAIL = "VDD_IN"


class SensorLost(Exception):
    """A sensor reported nothing, or an impossible value."""


class Sensor(Protocol):
    """name: for display. read: joules counted so far, or watts if `is_gauge`; raises SensorLost. wraps_at: joules at
    which the counter restarts from 0; 0: never.
    """

    name: str
    is_gauge: bool
    wraps_at: float

    def read(self) -> float:
        """Read the sensor now."""
        ...


class Powercap:
    """One Intel RAPL package, read from the kernel's powercap files."""

    is_gauge = False

    def __init__(self, folder: Path) -> None:
        self._file = folder / "energy_uj"
        self.name = f"RAPL {_text(folder / 'name')}"
        self.wraps_at = _number(folder / "max_energy_range_uj") / 1e6

    def read(self) -> float:
        """Joules."""
        return _number(self._file) / 1e6


class Hwmon:
    """The rails of a power monitor; each rail's power is its millivolts times its milliamperes."""

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
    """The readable sensors of this machine. root: the sysfs mount. gpus: include NVML if pynvml is installed."""
    makers: list[Callable[[], Sensor]] = []
    for folder in sorted((root / "class/powercap").glob("intel-rapl:*")):
        if folder.name.count(":") == 1:  # a package includes its subdomains
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
        count = pynvml.nvmlDeviceGetCount()
    except Exception:  # no package, no driver: no sensor
        return []
    found: list[Sensor] = []
    for index in range(count):
        try:
            found.append(Nvml(pynvml, index))
        except (SensorLost, pynvml.NVMLError):
            continue
    return found


@dataclass(frozen=True)
class Mark:
    """joules: total of all sensors so far. gaps: how often a sensor was lost."""

    joules: float
    gaps: int


class Meter:
    """Adds up the energy of all sensors. `poll` reads them; `start` does so five times a second. Thread-safe."""

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
        """The names of the sensors that report at present."""
        return [sensor.name for sensor in list(self._last)]

    @property
    def watts(self) -> float | None:
        """Mean power over about the last second; None without a sensor or before the first second."""
        return self._watts

    @property
    def idle_watts(self) -> float | None:
        """The lowest mean power of any second so far; None without a sensor or before the first second."""
        return self._idle

    @property
    def joules(self) -> float | None:
        """Energy counted since the meter was created; None without a sensor."""
        return self._joules if self._last else None

    def mark(self) -> Mark:
        """The present counts, to measure from."""
        self.poll()
        with self._lock:
            return Mark(self._joules, self._gaps)

    def since(self, mark: Mark) -> float | None:
        """Joules since a mark; None without a sensor or if one was lost in between."""
        self.poll()
        with self._lock:
            return self._joules - mark.joules if self._last and self._gaps == mark.gaps else None

    def poll(self) -> None:
        """Read every sensor."""
        with self._lock:
            for sensor in self._sensors:
                self._look(sensor)
            self._look_at_power(self._clock())

    def _look(self, sensor: Sensor) -> None:
        now, before = self._clock(), self._last.get(sensor)
        try:
            value = sensor.read()
            added = 0.0 if before is None else _added(sensor, before, (now, value))
        except SensorLost:
            self._gaps += self._last.pop(sensor, None) is not None
            return
        self._gaps += before is None and self._joules > 0.0  # it is back, but what it counted meanwhile is unknown
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
        """Start polling in a thread until `close`; does nothing without a sensor."""
        if self._sensors and self._thread is None:
            self._stopped.clear()
            self._thread = threading.Thread(target=self._run, name="energy", daemon=True)
            self._thread.start()
        return self

    def close(self) -> None:
        """Stop polling."""
        self._stopped.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            self.poll()


def _added(sensor: Sensor, before: tuple[float, float], now: tuple[float, float]) -> float:
    """Joules between two readings, each (seconds, value). Raises SensorLost for an impossible value.

    A counter that wraps at 100 J and reads 99 J, then 2 J, has counted 3 J.
    """
    (then_s, old), (now_s, new) = before, now
    seconds = now_s - then_s
    joules = (old + new) / 2 * seconds if sensor.is_gauge else new - old
    if not sensor.is_gauge and joules < 0.0:
        joules += sensor.wraps_at
    if not 0.0 <= joules <= MOST_WATTS * (seconds + _LOOK_S):  # counters may advance in steps
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
