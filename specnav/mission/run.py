# SPDX-License-Identifier: Apache-2.0
"""`specnav mission`, from its flags to the results."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from spec_vlm_nav.common.errors import MissionError
from spec_vlm_nav.missions.plan import MissionPlan
from spec_vlm_nav.missions.results import plan_json
from specnav.errors import UsageError
from specnav.mission.files import show, show_plan, text_of, write
from specnav.terminal import say

ORDERS = ("pause", "resume", "skip", "cancel", "move", "append", "show")


def _read(given: str) -> tuple[str, MissionPlan]:
    """The mission; every line that is wrong is said. Raises UsageError."""
    try:
        return text_of(given)
    except MissionError as error:
        *others, last = str(error).splitlines()
        for line in others:
            say(Console(stderr=True), line)
        raise UsageError(last) from error


def check_mission(given: str, as_json: bool) -> int:
    """Show what a mission would do, or what is wrong with it. Raises UsageError."""
    _, plan = _read(given)
    results = json.loads(plan_json(plan))
    if as_json:
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


def _need_ros() -> None:
    try:
        import rclpy  # noqa: F401
        import spec_vlm_nav_interfaces  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"carrying out missions needs ROS 2 (rclpy) and our interfaces: make setup ({error}); "
            "specnav mission check works without"
        ) from error


def run_live(given: str, namespace: str, out: Path | None) -> int:
    """Carry out a mission on a live robot; 0, or 1 when a step failed. Raises UsageError; Ctrl-C: the robot stands."""
    text, plan = _read(given)
    _need_ros()
    from specnav.mission.live import MissionClient
    from specnav.signals import ends_on_signals

    show_plan(json.loads(plan_json(plan)))
    console = Console(stderr=True)
    with ends_on_signals(), MissionClient(namespace) as client:
        results = client.run(text, lambda words: say(console, words))
    return _finish(results, out)


def run_in_demo(given: str, seed: int, out: Path | None) -> int:
    """Carry out a mission in the simulator, all processes on this machine; 0, or 1 when a step failed."""
    text, plan = _read(given)
    _need_ros()
    from navsim.episodes import make_episode
    from specnav.demo.config import DemoConfig
    from specnav.demo.run import check_inputs, server_settings
    from specnav.demo.stage import open_stage
    from specnav.demo.views import PlainView
    from specnav.mission.live import MissionClient
    from specnav.run_folder import new_run_folder
    from specnav.signals import ends_on_signals
    from specnav.supervise import children

    show_plan(json.loads(plan_json(plan)))
    config = replace(DemoConfig(seed=seed), headless=True)
    check_inputs(config)
    run = new_run_folder(out, "mission", datetime.now())
    console = Console(stderr=True)
    server, view = server_settings(config), PlainView(console)
    with (
        ends_on_signals(),
        open_stage(config, server, run / "logs", view) as stage,
        stage.deciding(config.method, 0.0, "mission", False),
    ):
        node = children.mission_spec((config.robot_config,), stage.environment, run / "mission.json")
        stage.start(node, config.start_timeout_s)
        stage.enter(make_episode(seed, config.split, False))
        with MissionClient(domain=stage.domain) as client:
            results = client.run(text, lambda words: say(console, words), stage.check)
    return _finish(results, run / "results.json")


def order(what: str, namespace: str, step: int, place: int, steps: str) -> int:
    """Give an order about the mission under way; 0, or 1 when it was refused. Raises UsageError."""
    if what not in ORDERS:
        raise UsageError(f"order {what!r} is unknown; choose {', '.join(ORDERS)}")
    text = _read(steps)[0] if what == "append" else ""
    _need_ros()
    from specnav.mission.live import MissionClient

    with MissionClient(namespace) as client:
        good, said, results = client.order(what, step=step, place=place, steps=text)
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
