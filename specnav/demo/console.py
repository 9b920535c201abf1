# SPDX-License-Identifier: Apache-2.0
"""`specnav demo --console`: the demo's processes, and a page where a person instructs the simulated robot.

It has no episodes and no report, and runs until Ctrl-C or until one of the processes ends by itself.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec

from rich.console import Console

from navsim.episodes import Episode, make_episode
from spec_vlm_nav.console.access import is_loopback
from specdec.link.binding import check_address
from specnav.demo.config import DemoConfig, PageConfig
from specnav.demo.run import NEEDS_ROS, check_inputs, server_settings
from specnav.demo.views import PlainView
from specnav.errors import UsageError, needs_ros
from specnav.run_folder import new_run_folder
from specnav.signals import ends_on_signals
from specnav.supervise import children
from specnav.terminal import say

LOOK_S = 0.2
PAGE = ("starlette", "uvicorn", "websockets")


def templates_of(episode: Episode) -> str:
    """Instructions about objects in the room, in the form of console_node's `templates`."""
    things = [f"find the {thing.name}" for thing in episode.room.objects]
    others = [words for words in things if words != episode.instruction]
    both = [f"{episode.instruction}, then the {others[0].removeprefix('find the ')}"] if others else []
    return " | ".join([episode.instruction, *others[:4], *both])


def check_page(port: int, host: str) -> None:
    """Raise UsageError if the page cannot be served."""
    import socket

    if missing := [name for name in PAGE if find_spec(name) is None]:
        raise UsageError(
            f"--console needs {', '.join(missing)}: pip install {' '.join(missing)} (the extra console)"
        )
    if not host:
        raise UsageError("--host is empty, which would mean every address: give one, like 127.0.0.1")
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError as error:
            raise UsageError(
                f"port {port} of {host} cannot be used ({error.strerror}): give another with --port, "
                "or --port 0 for a free one"
            ) from error


def run_console(
    config: DemoConfig, page: PageConfig, given: Mapping[str, children.Parameter] = children.NOTHING
) -> int:
    """Start everything and keep it running; returns 0 after Ctrl-C. Raises DemoError, UsageError, ChildFailed.

    given: additional parameters of console_node.
    """
    check_inputs(config)
    if page.connect:
        check_address(page.connect, "--connect", UsageError)
    check_page(page.port, page.host)
    with needs_ros(NEEDS_ROS):
        from specnav.demo.stage import open_stage

    run = new_run_folder(config.out, "console")
    terminal = Console()
    server, view = server_settings(config), PlainView(terminal)
    config = replace(config, headless=True, max_decisions=max(config.max_decisions, 200))
    episode = make_episode(config.seed, config.split)
    try:
        with (
            ends_on_signals(),
            open_stage(config, server, run / "logs", view, page.connect) as stage,
            stage.deciding(config.method, config.rtt_ms, "console"),
        ):
            robot = (config.robot_config,)
            stage.start(children.mission_spec(robot, stage.environment, run / "mission.json"))
            stage.enter(episode)
            parameters: dict[str, children.Parameter] = {
                "host": page.host,
                "port": page.port,
                "published_on_loopback": not is_loopback(page.host),
                "templates": templates_of(episode),
                "audit_file": str(run / "audit.jsonl"),
                "tokens_file": "none",  # reached by loopback only, so no tokens are needed
                "simulator": True,
                **given,
            }
            spec = children.console_spec(robot, stage.environment, parameters)
            ready = stage.start(spec, config.start_timeout_s)
            found = re.search(r"ready: (\S+)", ready)
            say(terminal, f"the page is at  {found.group(1) if found else '?'}")
            say(terminal, f'open it in a browser and type, for example: "{episode.instruction}"; Ctrl-C ends')
            while True:
                time.sleep(LOOK_S)
                stage.check()
    except KeyboardInterrupt:
        return 0
