"""What happens in one run, as data: how robot and world are set up, and what strikes when. Drawn from a seed.

Everything in a scenario can be written as JSON: a run that broke an invariant becomes a test by being kept.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec

from tests.helpers.imperfect_base import OdometryFault

Value = bool | int | float | str | list[float]

INSTRUCTIONS = (
    "find the red chair",
    "find the silver bottle",
    "stop at the door",
    "go to the blue box and stop",
)
STOP_WORDS = (
    "stop",
    "please stop moving",
    "Stop the robot!",
    "freeze",
    "emergency stop",
    "bleib stehen",
    "停下",
)
CAMERA_FAULTS = ("none", "stopped", "frozen", "restamped", "black")
STUCK = ("", "forward", "turn", "all")


class ScenarioEvent(msgspec.Struct, frozen=True):
    """Something that strikes at a time, s. What: see `robot.MonkeyRobot.strike`."""

    at: float
    what: str
    args: dict[str, Value] = {}


class Setup(msgspec.Struct, frozen=True):
    """Parameters of the two nodes that differ from their defaults, and what the world is like."""

    policy: str = "frontier_search"
    navigator: dict[str, Value] = {}
    safety: dict[str, Value] = {}
    base: dict[str, Value] = {}
    stop_style: str = "epsilon"
    odometry_hz: float = 30.0
    odometry_noise_m: float = 0.0002
    latency_s: float = 0.002
    think_s: float = 0.15
    blunders: float = 0.05  # share of answers without an action, and of decisions that fail
    stops: float = 0.03  # share of answers that say that it is done
    speaks: bool = True  # whether the model says "I see" and "clear"
    walls: list[list[float]] = []  # direction, rad; distance, m


class Scenario(msgspec.Struct, frozen=True):
    """One run of this many simulated seconds."""

    seed: int
    seconds: float
    setup: Setup
    events: list[ScenarioEvent]


def draw(seed: int, seconds: float = 60.0) -> Scenario:
    """The scenario of a seed; its last instruction has time enough to end."""
    rng = random.Random(f"monkey-1/{seed}")
    setup = _setup(rng, seconds)
    events = [ScenarioEvent(0.5, "instruct", {"text": rng.choice(INSTRUCTIONS)})]
    now, busy = 1.0, rng.uniform(1.0, 8.0)
    while now < seconds - 2.0:
        now += rng.expovariate(1 / busy)
        events += _strike(rng, now)
    events += _operator(rng, seconds)
    events = sorted((e for e in events if e.at < seconds), key=lambda event: event.at)
    return Scenario(seed, seconds, setup, events)


def _setup(rng: random.Random, seconds: float) -> Setup:
    safety: dict[str, Value] = {
        "supervisor_timeout_s": 1.0,
        "geofence_m": rng.choice([15.0, 15.0, 1.5, 3.0, 0.0]),
    }
    if rng.random() < 0.4:
        safety["max_linear"] = rng.choice([0.15, 0.2, 0.3, 0.8])
    if rng.random() < 0.3:
        safety |= {"collision_watched": True}
    if rng.random() < 0.3:
        safety |= {"robot_state_timeout_s": 0.5}
    if rng.random() < 0.2:
        safety["actuation_delay_s"] = rng.choice([0.15, 0.3, 0.6])
    navigator: dict[str, Value] = {
        "max_duration_s": rng.choice([20.0, 40.0, seconds]),
        "early_action": rng.random() < 0.8,
        "prefetch": rng.random() < 0.7,
        "on_link_loss": rng.choice(["stop", "stop", "hold", "draft_only_slow"]),
        "max_obstructions": rng.choice([5, 5, 2, 8]),
        "patience_s": rng.choice([30.0, 5.0]),
    }
    if rng.random() < 0.2:
        navigator |= {"max_decisions": rng.randint(2, 30)}
    if rng.random() < 0.2:
        navigator |= {"max_distance_m": rng.uniform(1.0, 8.0)}
    return Setup(
        policy=rng.choice(["frontier_search", "frontier_search", "none"]),
        navigator=navigator,
        safety=safety,
        base=_base(rng),
        stop_style=rng.choice(["epsilon", "epsilon", "zero", "brake"]),
        odometry_hz=rng.choice([60.0, 30.0, 30.0, 20.0, 10.0]),
        odometry_noise_m=rng.choice([0.0, 0.0002, 0.0002, 0.001]),
        latency_s=rng.choice([0.0, 0.002, 0.01, 0.05]),
        think_s=rng.choice([0.05, 0.15, 0.15, 0.6]),
        blunders=rng.choice([0.0, 0.02, 0.2]),
        stops=rng.choice([0.0, 0.02, 0.1]),
        speaks=rng.random() < 0.8,
        walls=[[rng.uniform(-3.14, 3.14), rng.uniform(0.2, 4.0)] for _ in range(rng.choice([0, 1, 2, 4]))],
    )


def _base(rng: random.Random) -> dict[str, Value]:
    found: dict[str, Value] = {}
    if rng.random() < 0.5:
        found["delay_s"] = rng.choice([0.05, 0.15, 0.3, 0.6])
    if rng.random() < 0.3:
        found["drops_zeros"] = True
    if rng.random() < 0.3:
        found["linear_scale"] = found["angular_scale"] = rng.choice([0.8, 0.9, 1.1, 1.2])
    if rng.random() < 0.2:
        found |= {"accel": 0.8, "turn_accel": 3.0}
    return found


def _operator(rng: random.Random, seconds: float) -> list[ScenarioEvent]:
    """Somebody who sets the robot going again whenever it may stand."""
    events: list[ScenarioEvent] = []
    now, patient = 0.0, rng.choice([4.0, 8.0, 16.0])
    while (now := now + rng.expovariate(1 / patient) + 1.0) < seconds:
        if rng.random() < 0.6:
            events.append(ScenarioEvent(now, "reset"))
        events.append(ScenarioEvent(now + 0.2, "instruct", {"text": rng.choice(INSTRUCTIONS)}))
    return events


def _strike(rng: random.Random, now: float) -> list[ScenarioEvent]:
    """One fault, most with its end, or one order."""
    kind = rng.choices(
        ["order", "odometry", "base", "camera", "link", "process", "sensor", "rogue"],
        [4, 4, 4, 2, 2, 1.5, 1, 1],
    )[0]
    lasts = rng.choice([0.2, 1.0, 3.0, 10.0])
    if kind == "order":
        return _order(rng, now)
    if kind == "odometry":
        fault = rng.choice([f.value for f in OdometryFault if f is not OdometryFault.NONE])
        args: dict[str, Value] = {"fault": fault, "scale": rng.choice([0.2, 0.4, 2.5, 4.0])}
        return [
            ScenarioEvent(now, "odometry", args),
            ScenarioEvent(now + lasts, "odometry", {"fault": "none"}),
        ]
    if kind == "base":
        return _base_fault(rng, now, lasts)
    if kind == "camera":
        fault = rng.choice(CAMERA_FAULTS[1:])
        return [
            ScenarioEvent(now, "camera", {"fault": fault}),
            ScenarioEvent(now + lasts, "camera", {"fault": "none"}),
        ]
    if kind == "link":
        return [ScenarioEvent(now, "link", {"up": False}), ScenarioEvent(now + lasts, "link", {"up": True})]
    if kind == "process":
        what = rng.choice(["freeze_decider", "restart_decider", "stall_mover"])
        return [ScenarioEvent(now, what, {"seconds": min(lasts, 0.4) if what == "stall_mover" else lasts})]
    if kind == "sensor":
        args = {"near_m": rng.choice([0.1, 9.0]), "silent": rng.random() < 0.4, "ready": rng.random() < 0.4}
        return [ScenarioEvent(now, "sensor", args), ScenarioEvent(now + lasts, "sensor", {})]
    args = rng.choice(
        [
            {"distance_m": -0.3},
            {"distance_m": "nan"},
            {"distance_m": 0.5, "foreign": True},
            {"distance_m": 5.0},
            {"distance_m": 0.5, "old": True},
        ]
    )
    return [ScenarioEvent(now, "rogue", args)]


def _order(rng: random.Random, now: float) -> list[ScenarioEvent]:
    what: Any = rng.choices(
        ["instruct", "words", "cancel", "stop", "estop", "reset", "allowance"], [4, 2, 1, 1.5, 1, 2, 1]
    )[0]
    if what == "instruct":
        return [ScenarioEvent(now, "instruct", {"text": rng.choice(INSTRUCTIONS)})]
    if what == "allowance":
        return [
            ScenarioEvent(
                now, "instruct", {"text": rng.choice(INSTRUCTIONS), "allowance_s": rng.uniform(0.5, 20.0)}
            )
        ]
    if what == "words":
        return [ScenarioEvent(now, "instruct", {"text": rng.choice(STOP_WORDS)})]
    return [ScenarioEvent(now, what)]


def _base_fault(rng: random.Random, now: float, lasts: float) -> list[ScenarioEvent]:
    what = rng.choice(["stuck", "push", "slip", "delay", "drops"])
    if what == "stuck":
        return [
            ScenarioEvent(now, "base", {"stuck": rng.choice(STUCK[1:])}),
            ScenarioEvent(now + lasts, "base", {"stuck": ""}),
        ]
    if what == "push":
        push = [rng.uniform(-0.6, 0.6), rng.uniform(-0.6, 0.6), rng.uniform(-1.0, 1.0)]
        short = min(lasts, 3.0)
        return [
            ScenarioEvent(now, "base", {"push": push}),
            ScenarioEvent(now + short, "base", {"push": [0.0, 0.0, 0.0]}),
        ]
    if what == "slip":
        scale = rng.choice([0.0, 0.2, 0.4, 2.5])
        args: dict[str, Value] = {"linear_scale": scale, "angular_scale": scale}
        return [
            ScenarioEvent(now, "base", args),
            ScenarioEvent(now + lasts, "base", {"linear_scale": 1.0, "angular_scale": 1.0}),
        ]
    if what == "delay":
        return [ScenarioEvent(now, "base", {"delay_s": rng.choice([0.0, 0.2, 0.5, 1.2])})]
    return [ScenarioEvent(now, "base", {"drops_zeros": rng.random() < 0.7})]


def to_json(scenario: Scenario) -> bytes:
    """A scenario as JSON, to be kept."""
    return msgspec.json.format(msgspec.json.encode(scenario), indent=1)


def from_json(text: bytes | str) -> Scenario:
    """A kept scenario. Raises msgspec's ValidationError or DecodeError for anything else."""
    return msgspec.json.decode(text, type=Scenario)
