# SPDX-License-Identifier: Apache-2.0
"""The latency study: camera-to-action time of each method at each emulated round-trip time, in one run.

The verifier, the simulator and the motion node keep running; deciding node and link are restarted for every cell.
"""

from __future__ import annotations

from collections.abc import Sequence

from navsim.episodes import make_episode
from specnav.demo.config import DemoConfig
from specnav.demo.recorder import EpisodeLimits
from specnav.demo.stage import Stage
from specnav.demo.views import PlainView
from specnav.results.demo import LatencyRow, percentile
from specnav.results.trace import Decision

METHODS = ("ar", "sd", "fsd")
RTTS_MS = (0.0, 40.0, 120.0)
WARM_UP = 1  # the first decision of a fresh process fills its caches


def row_of(method: str, rtt_ms: float, decisions: Sequence[Decision]) -> LatencyRow | None:
    """One row from the decisions of a cell; None if none was timed."""
    decision = [d.decision_ms for d in decisions if d.decision_ms is not None]
    action = [d.time_to_action_ms for d in decisions if d.time_to_action_ms is not None]
    rounds = sum(len(d.drafted) for d in decisions)
    accepted = sum(sum(d.accepted) for d in decisions)
    if not decision or not action:
        return None
    return LatencyRow(
        method=method,
        rtt_ms=rtt_ms,
        decisions=len(decision),
        time_to_action_ms_p50=percentile(action, 50) or 0.0,
        time_to_action_ms_p95=percentile(action, 95) or 0.0,
        decision_ms_p50=percentile(decision, 50) or 0.0,
        decision_ms_p95=percentile(decision, 95) or 0.0,
        tau=(accepted + rounds) / rounds if rounds else None,
    )


def measure_cell(stage: Stage, config: DemoConfig, method: str, rtt_ms: float) -> LatencyRow | None:
    """Let the robot decide until there are enough decisions, with the same episodes in every cell."""
    wanted = config.study_decisions + WARM_UP
    decisions: list[Decision] = []
    # No prefetch: a prefetched picture waits for the end of a motion, so its age is not the link's delay.
    with stage.deciding(method, rtt_ms, f"study_{method}_{rtt_ms:g}ms", prefetch=False):
        offset = 0
        while len(decisions) < wanted and offset < config.study_decisions:
            episode = make_episode(config.seed + offset, config.split)
            limits = EpisodeLimits(wanted - len(decisions), config.episode_timeout_s, at_once=True)
            recording = stage.run_episode(episode, offset, offset + 1, limits)
            decisions += recording.recorder.decisions
            offset += 1
    return row_of(method, rtt_ms, decisions[WARM_UP:])


def run_study(stage: Stage, config: DemoConfig, view: PlainView) -> list[LatencyRow]:
    """Measure all cells of the study."""
    rows = []
    for rtt_ms in RTTS_MS:
        for method in METHODS:
            view.phase(f"latency study: {method} at RTT {rtt_ms:g} ms")
            row = measure_cell(stage, config, method, rtt_ms)
            if row is not None:
                rows.append(row)
    return rows
