# SPDX-License-Identifier: Apache-2.0
"""`specnav demo`: the whole run, from starting the processes to the report.

Whatever happens (a child dies, Ctrl-C), finished episodes stay on disk, the report is written and no process is left.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from cloud_verifier.config import ServerConfig
from navsim.episodes import make_episode
from specnav.demo.config import DemoConfig
from specnav.demo.errors import DemoError
from specnav.demo.journal import DemoJournal
from specnav.demo.live import LiveView
from specnav.demo.recorder import EpisodeLimits
from specnav.demo.scoring import make_trace, score_recording
from specnav.demo.views import PlainView
from specnav.errors import is_for_users, needs_ros
from specnav.models import may_be_model
from specnav.paths import DEFAULT_TARGET
from specnav.results.demo import Comparison, energy_text
from specnav.results.errors import one_line
from specnav.results.identity import compare_with_target
from specnav.results.standing import LATE_MS
from specnav.run_folder import new_run_folder
from specnav.settings import make_settings, read_settings
from specnav.signals import ends_on_signals, signals_wait
from specnav.terminal import say

if TYPE_CHECKING:
    from specdec.models import Prompt

__all__ = ["DemoConfig", "run_demo"]

NEEDS_ROS = "the demo"
"""The subject of `needs_ros`'s error message."""
VIDEO_EPISODES = 4  # this many episodes keep all camera frames, later ones only those of decisions


def server_settings(config: DemoConfig) -> ServerConfig:
    """The verifier's settings: the cloud's file, with the run's model on a free loopback port."""
    values = read_settings(ServerConfig, config.cloud_config) | {"model": config.target_model, "bind": "tcp://127.0.0.1:0"}
    values |= {"keys": "", "insecure": False}  # nothing else reaches it
    if config.verify_ms:
        values["verify_ms"] = config.verify_ms
    return make_settings(ServerConfig, values, str(config.cloud_config))


def check_inputs(config: DemoConfig) -> None:
    """Check the inputs before any process is started. Raises DemoError, and ModelError for an unreadable target."""
    for path in (config.robot_config, config.sim_config, config.cloud_config):
        if not path.is_file():
            raise DemoError(f"{path} is missing; restore it from the repository, or name another file")
    for role, model in (("target", config.target_model), ("draft", config.draft_model)):
        if not may_be_model(model):
            raise DemoError(
                f"{role} model {model} is missing or not a Hugging Face folder; train one with: specnav train vlm"
            )
    target = Path(config.target_model)
    if target != DEFAULT_TARGET and (target / "config.json").is_file():
        from specdec.models.library.pictures import takes_pictures
        from specdec.models.loading import read_config

        if not takes_pictures(read_config(str(target))):
            raise DemoError(f"target model {target} takes no pictures: give a vision-language model, or --pair nav")


def run_episodes(config: DemoConfig, server: ServerConfig, journal: DemoJournal, view: PlainView) -> None:
    """Start everything, run the episodes and, if requested, the latency study."""
    from specnav.demo.stage import open_stage  # needs ROS
    from specnav.demo.study import run_study

    limits = EpisodeLimits(config.max_decisions, config.episode_timeout_s)
    with ExitStack() as processes:
        with journal.phase("start"):
            stage = processes.enter_context(open_stage(config, server, journal.run / "logs", view))
            decider = processes.enter_context(ExitStack())
            decider.enter_context(stage.deciding(config.method, config.rtt_ms, "demo"))
        with journal.phase("episodes"):
            for index in range(config.episodes):
                episode = make_episode(config.seed + index, config.split, config.is_absent(index))
                done = stage.run_episode(episode, index, config.episodes, limits)
                result = score_recording(index, episode, done.recorder, done.ending, done.duration_s)
                video = done.recorder.write_frames(journal.run, index, with_video=index < VIDEO_EPISODES)
                journal.add(make_trace(result, episode, done.recorder, video))
                view.result(result)
        decider.close()
        if config.latency_study:
            with journal.phase("latency study"):
                journal.study = run_study(stage, config, view)


def weights_of(model: str) -> tuple[tuple[str, int, int], ...]:
    """Name, size and modification time of a folder's weight files; empty for a hub id."""
    found = sorted(Path(model).glob("*.safetensors"))
    return tuple((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in found)


def compare(config: DemoConfig, server: ServerConfig, journal: DemoJournal) -> Comparison:
    """Decode recorded answers again with the target alone. Only greedy runs can be compared."""
    if config.temperature > 0 or config.compare_decisions == 0:
        return Comparison()
    from specdec.models import load_model
    from specdec.models.local import generate_local
    from specdec.models.threads import set_threads
    from specdec.options import GenerationOptions

    if weights_of(server.model) != journal.weights:
        raise DemoError(f"{server.model} changed during the demo: the answers were not compared; run again")
    target = load_model(server.model, device=server.device, dtype=server.dtype, quantize=server.quantize)

    options = GenerationOptions(max_new_tokens=config.max_new_tokens)
    set_threads(server.threads, target)

    def decode(prompt: Prompt) -> list[int]:
        return generate_local(target, prompt, options)

    return compare_with_target(journal.run, journal.traces, decode, config.compare_decisions)


def run_demo(config: DemoConfig) -> int:
    """Run a demo. Returns 0, 1 after an error (printed as one line on stderr), or 130 after Ctrl-C.

    Raises DemoError, ModelError or UsageError only before anything is started.
    """
    check_inputs(config)
    with needs_ros(NEEDS_ROS):
        import specnav.demo.stage  # noqa: F401
    server = server_settings(config)
    run = new_run_folder(config.out, "demo")
    console = Console()
    # The cloud's file may set verify_ms: the report must show the value in force.
    journal = DemoJournal(run, replace(config, verify_ms=server.verify_ms), weights_of(config.target_model))
    view = PlainView(console) if config.headless else LiveView(console)
    with ends_on_signals():
        code = perform(config, server, journal, view)
        with signals_wait():
            show_summary(console, journal, journal.report())
            if journal.error:
                print(f"specnav: error: {journal.error}", file=sys.stderr)
    return code


def perform(config: DemoConfig, server: ServerConfig, journal: DemoJournal, view: PlainView) -> int:
    """Run the episodes and the comparison; errors go into the journal, and only programming errors are raised."""
    try:
        try:
            run_episodes(config, server, journal, view)
        except Exception as error:
            note_error(error, journal)
        if journal.episodes:
            view.phase("decoding the answers again with the target alone")
            with journal.phase("comparison"):
                journal.comparison = compare(config, server, journal)
    except KeyboardInterrupt:
        journal.interrupted = True
        return 130
    except Exception as error:
        note_error(error, journal)
    finally:
        view.close()
    return 1 if journal.error else 0


def note_error(error: Exception, journal: DemoJournal) -> None:
    """Store the first error in the journal, in one line; a programming error is raised again."""
    expected = is_for_users(error)
    words = one_line(error) if expected else f"{type(error).__name__}: {error}"
    journal.error = journal.error or words
    if not expected:
        journal.save()
        raise error


def show_summary(console: Console, journal: DemoJournal, report: Path) -> None:
    """Print the run's figures and the path of the report."""
    s = journal.results().summary

    def shown(value: float | None, words: str) -> str:
        return "–" if value is None else words.format(value)

    same = {True: "yes", False: "NO", None: "not compared"}[s.identical_to_target]
    if s.different_decisions:
        episode, decision = s.different_decisions[0]
        same += f", first in episode {episode + 1} at decision {decision + 1}"
    won = sum(e.success for e in journal.episodes)
    lines = (
        f"success {won}/{s.episodes}, SPL {shown(s.spl, '{:.2f}')}, "
        f"navigation error {shown(s.navigation_error_m, '{:.2f} m')}",
        f"decision p50 {shown(s.decision_ms_p50, '{:.0f} ms')}, p95 {shown(s.decision_ms_p95, '{:.0f} ms')}; "
        f"camera to action p50 {shown(s.time_to_action_ms_p50, '{:.0f} ms')}, "
        f"p95 {shown(s.time_to_action_ms_p95, '{:.0f} ms')}; tau {shown(s.tau, '{:.2f}')}",
        f"identical to the target alone: {same} ({s.compared_decisions} answers compared); "
        f"parse failures {s.parse_failures}; energy per decision: {energy_text(s.joules_per_decision)}",
        f"late decisions (over {LATE_MS:.0f} ms) {s.late_decisions} of {s.decisions}; time at rest {s.stood_s:.1f} s, "
        f"{s.late_stood_s:.1f} s of it for these; safety stops {s.safety_stops}, at rest {s.safety_stood_s:.1f} s",
    )
    for line in lines:
        say(console, line)
    for row in journal.study:
        say(
            console,
            f"latency study: {row.method} at RTT {row.rtt_ms:g} ms: camera to action "
            f"p50 {row.time_to_action_ms_p50:.0f} ms, p95 {row.time_to_action_ms_p95:.0f} ms (n = {row.decisions})",
        )
    say(console, f"report: {report}")
