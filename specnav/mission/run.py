# SPDX-License-Identifier: Apache-2.0
"""`specnav mission`: from flags to the results."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from spec_vlm_nav.common.errors import MissionError
from spec_vlm_nav.missions.record import MissionPlan, plan_json
from specdec.options import GenerationOptions
from specdec.settings import REQUIRED, same_as, setting
from specnav.calibrate.config import CalibrateConfig
from specnav.errors import UsageError, needs_ros
from specnav.mission.files import check_writable, show, show_plan, text_of, write
from specnav.settings import Printed
from specnav.terminal import say

CARRYING_OUT = "carrying out missions", "specnav mission check works"
ORDERS = ("pause", "resume", "skip", "cancel", "move", "append", "show")


@dataclass(frozen=True)
class CheckConfig:
    """Settings of `specnav mission check`."""

    mission: str = setting(
        REQUIRED,
        "A mission's YAML file, or a sentence with several instructions.",
        metavar="FILE|SENTENCE",
        positional=True,
    )
    json: bool = same_as(Printed, "json", help="Print the steps as JSON.")


@dataclass(frozen=True)
class MissionConfig:
    """Settings of `specnav mission run`."""

    mission: str = same_as(CheckConfig, "mission")
    demo: bool = setting(False, "Run in the simulator, with all processes on this machine (no robot needed).")
    seed: int = same_as(
        GenerationOptions, "seed", high=2**31 - 1, help="With --demo: seed of the simulated room."
    )
    namespace: str = same_as(CalibrateConfig, "namespace", help="Namespace of the robot.")
    out: Path | None = setting(
        None,
        "JSON file of the results; with --demo: the run's folder.",
        metavar="PATH",
        shown="none; with --demo runs/mission-<time>",
    )


@dataclass(frozen=True)
class OrderConfig:
    """Settings of `specnav mission order`."""

    what: str = setting(REQUIRED, f"{', '.join(ORDERS[:-1])} or {ORDERS[-1]}.", positional=True)
    namespace: str = same_as(MissionConfig, "namespace")
    step: int = setting(0, "With move: number of the step.", 0, 2**31 - 1)
    place: int = setting(0, "With move: new position in the list, from 1.", 0, 2**31 - 1)
    steps: str = setting("", "With append: the steps to add.", metavar="FILE|SENTENCE")


def _read(given: str) -> tuple[str, MissionPlan]:
    """Read a mission; every wrong line is printed. Raises UsageError."""
    try:
        return text_of(given)
    except MissionError as error:
        *others, last = str(error).splitlines()
        for line in others:
            say(Console(stderr=True), line)
        raise UsageError(last) from error


def check_mission(config: CheckConfig) -> int:
    """Print what a mission would do, or what is wrong with it. Raises UsageError."""
    _, plan = _read(config.mission)
    results = json.loads(plan_json(plan))
    if config.json:
        print(json.dumps(results, ensure_ascii=False, indent=2))
    else:
        show_plan(results)
    return 0


def _finish(results: dict[str, Any], out: Path | None) -> int:
    show(results)
    said = f"{results['code']} {results['why']}".strip()
    good = results["code"] == "NONE"
    say(Console(stderr=True), "mission done" if good else f"mission ended: {said}")
    if out is not None:
        write(results, out)
        say(Console(stderr=True), f"results: {out}")
    return 0 if good else 1


def run_live(config: MissionConfig) -> int:
    """Carry out a mission on a live robot; returns 0, or 1 if a step failed. Ctrl-C stops the robot. Raises
    UsageError.
    """
    text, plan = _read(config.mission)
    if config.out is not None:  # found now, not when the mission is over
        check_writable(config.out)
    with needs_ros(*CARRYING_OUT):
        from specnav.mission.live import mission_client

    show_plan(json.loads(plan_json(plan)))
    console = Console(stderr=True)
    with mission_client(config.namespace) as client:
        results = client.run(text, lambda words: say(console, words))
    return _finish(results, config.out)


def run_in_demo(asked: MissionConfig) -> int:
    """Carry out a mission in the simulator, with all processes on this machine; returns 0, or 1 if a step failed."""
    text, plan = _read(asked.mission)
    with needs_ros(*CARRYING_OUT):
        from specnav.demo.stage import open_stage
        from specnav.mission.live import mission_client
    from navsim.episodes import make_episode
    from specnav.demo.config import DemoConfig
    from specnav.demo.run import check_inputs, server_settings
    from specnav.demo.views import PlainView
    from specnav.run_folder import new_run_folder
    from specnav.supervise import children

    show_plan(json.loads(plan_json(plan)))
    config = replace(DemoConfig(seed=asked.seed), headless=True)
    check_inputs(config)
    run = new_run_folder(asked.out, "mission")
    console = Console(stderr=True)
    server, view = server_settings(config), PlainView(console)
    with (
        open_stage(config, server, run / "logs", view) as stage,
        stage.deciding(config.method, 0.0, "mission"),
    ):
        node = children.mission_spec((config.robot_config,), stage.environment, run / "mission.json")
        stage.start(node, config.start_timeout_s)
        stage.enter(make_episode(config.seed, config.split, False))
        with mission_client(domain=stage.domain) as client:
            results = client.run(text, lambda words: say(console, words), stage.check)
    return _finish(results, run / "results.json")


def give_order(config: OrderConfig) -> int:
    """Give an order about the current mission; returns 0. Raises UsageError if it is refused."""
    what = config.what
    if what not in ORDERS:
        raise UsageError(f"order {what!r} is unknown; choose {', '.join(ORDERS)}")
    text = _read(config.steps)[0] if what == "append" else ""
    with needs_ros(*CARRYING_OUT):
        from specnav.mission.live import mission_client

    with mission_client(config.namespace) as client:
        good, said, results = client.order(what, step=config.step, place=config.place, steps=text)
    if what == "show":
        if results is None:
            raise UsageError("there is no mission")
        show(results)
        say(Console(stderr=True), ": ".join(part for part in (results["phase"], results["why"]) if part))
        return 0
    if not good:
        raise UsageError(said)
    say(Console(stderr=True), said)
    return 0
