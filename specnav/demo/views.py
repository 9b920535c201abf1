# SPDX-License-Identifier: Apache-2.0
"""Terminal output of the demo: plain lines (headless), or a live view (`live`).

A *view* is told about events and shows them; it never decides anything and never slows the robot down.
"""

from __future__ import annotations

from dataclasses import dataclass

from specnav.results.demo import EpisodeResult
from specnav.results.trace import Decision
from specnav.terminal import RunView


@dataclass(frozen=True)
class DemoScene:
    """The current state: episode clock, newest camera frame (JPEG), robot pose (x, y, yaw)."""

    t_s: float
    jpeg: bytes | None
    pose: tuple[float, float, float] | None


def in_words(decision: Decision) -> str:
    """The action that was carried out, in one line."""
    if decision.source == "policy":
        return f"exploration policy: {decision.action} ({decision.note})"
    return decision.action or f"stopped: {decision.note or 'no action'}"


def cost_of(decision: Decision) -> str:
    """Time and tokens of a decision."""
    parts = [f"{decision.decision_ms:.0f} ms"] if decision.decision_ms is not None else []
    if sum(decision.drafted):
        parts.append(f"{sum(decision.accepted)}/{sum(decision.drafted)} drafts accepted")
    elif decision.token_ids:
        parts.append(f"{len(decision.token_ids)} tokens")
    return ", ".join(parts)


def result_in_words(result: EpisodeResult) -> str:
    """An episode's outcome in one line."""
    word = "success" if result.success else f"failed ({result.outcome.replace('_', ' ')})"
    error = (
        "" if result.navigation_error_m is None else f", {result.navigation_error_m:.2f} m from the target"
    )
    detail = f", {result.detail}" if result.detail and not result.success else ""
    return (
        f"{word}: {result.steps} decisions, {result.duration_s:.1f} s, {result.path_m:.1f} m{error}{detail}"
    )


class PlainView(RunView):
    """One line per event, for logs and CI; `live.LiveView` shows the same events on one screen."""

    def phase(self, words: str) -> None:
        """A step of the run has begun."""
        self.say(words)

    def episode(self, index: int, count: int, instruction: str) -> None:
        """An instruction was published."""
        self.say(f"episode {index + 1}/{count}: {instruction}")

    def decision(self, decision: Decision) -> None:
        """A decision arrived."""
        reasoning = decision.reasoning or decision.text
        done = f"{in_words(decision)}  [{cost_of(decision)}]"
        self.say(f"  {decision.index + 1:3d} {decision.t_s:6.1f} s  {reasoning} -> {done}")

    def tick(self, scene: DemoScene) -> None:
        """Time has passed, which plain output ignores."""

    def result(self, result: EpisodeResult) -> None:
        """An episode has ended."""
        self.say(f"  {result_in_words(result)}")

    def close(self) -> None:
        """The run is over; plain output has nothing to restore."""
