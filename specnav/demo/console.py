"""`specnav demo --console`: the simulator with the operator's page, until Ctrl-C; nothing is scored."""

from __future__ import annotations

import re
import time
from datetime import datetime
from pathlib import Path

from rich.console import Console

from harness.children import mission_spec, node_spec
from harness.console import say
from harness.processes import ChildSpec
from harness.run_folder import new_run_folder
from harness.signals import ends_on_signals
from navsim.episodes import make_episode
from specnav.demo.config import DemoConfig
from specnav.demo.run import check_inputs, server_settings
from specnav.demo.views import PlainView

WATCH_S = 0.2
MODULE = "spec_vlm_nav.ros.nodes.console_node"


def console_spec(environment: dict[str, str], files: tuple[Path, ...], port: int, audit: Path) -> ChildSpec:
    """The console's node, listening to the simulator's camera."""
    given: dict[str, str | int | float | bool] = {"port": port, "audit_file": str(audit)}
    spec = node_spec(
        "console_node", MODULE, given, files, {"image": "camera/image_raw/compressed"}, environment
    )
    return ChildSpec(spec.name, spec.argv, spec.environment, re.compile("console_node ready: "), spec.cwd)


def run_with_console(config: DemoConfig, port: int) -> int:
    """Start everything with the page and wait for Ctrl-C, which is how it ends: 0. Raises the rooms' errors."""
    from specnav.demo.stage import open_stage

    check_inputs(config)
    server = server_settings(config)
    run = new_run_folder(config.out, "console", datetime.now())
    terminal = Console()
    view, files = PlainView(terminal), (config.robot_config,)
    try:
        with ends_on_signals(), open_stage(config, server, run / "logs", view) as stage:
            environment = dict(stage.environment)
            stage.start(mission_spec(files, environment, run / "mission.json"), config.start_timeout_s)
            with stage.deciding(config.method, config.rtt_ms, "console", config.link_is_emulated):
                ready = stage.start(
                    console_spec(environment, files, port, run / "audit.jsonl"), config.start_timeout_s
                )
                episode = make_episode(config.seed, config.split)
                stage.enter(episode)
                say(terminal, f"open {ready.rpartition(' ')[2]} and type: {episode.instruction}")
                say(terminal, f"(every command is noted in {run / 'audit.jsonl'}; Ctrl-C ends it)")
                while True:
                    stage.check()
                    time.sleep(WATCH_S)
    except KeyboardInterrupt:
        say(terminal, "the simulator has ended")
        return 0
