# SPDX-License-Identifier: Apache-2.0
"""The live terminal view: the robot's camera in coloured half blocks, its answers, its tokens and its times.

Drawn with rich a few times a second, when something changed or time passed.
"""

from __future__ import annotations

import io
from collections import deque

from PIL import Image
from rich.color import Color
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.style import Style
from rich.table import Table
from rich.text import Text

from specnav.demo.views import DemoScene, PlainView, cost_of, in_words, result_in_words
from specnav.results.demo import EpisodeResult, percentile
from specnav.results.trace import Decision

CAMERA_COLUMNS, CAMERA_ROWS = 56, 17
SHOWN_DECISIONS = 5
WIDE_ENOUGH = CAMERA_COLUMNS + 50  # narrower terminals get text only
UPPER_HALF = "▀"


def half_blocks(jpeg: bytes) -> Text:
    """A picture as text: each character shows two pixels, one above the other."""
    columns, rows = CAMERA_COLUMNS, CAMERA_ROWS
    with Image.open(io.BytesIO(jpeg)) as picture:
        small = picture.convert("RGB").resize((columns, 2 * rows), Image.Resampling.BILINEAR)
    raw = small.tobytes()
    text = Text(no_wrap=True)
    for row in range(rows):
        for column in range(columns):
            at = 3 * (2 * row * columns + column)
            under = at + 3 * columns
            style = Style(
                color=Color.from_rgb(*raw[at : at + 3]), bgcolor=Color.from_rgb(*raw[under : under + 3])
            )
            text.append(UPPER_HALF, style)
        text.append("\n")
    text.rstrip()
    return text


def token_bar(decision: Decision) -> Text:
    """One round after another: accepted (filled) and rejected (outlined) draft tokens, and the target's token
    (dot).
    """
    bar = Text()
    for drafted, accepted in zip(decision.drafted, decision.accepted, strict=False):
        bar.append("■" * accepted, "blue")
        bar.append("□" * (drafted - accepted), "bright_black")
        bar.append("•", "magenta")
    return bar


class LiveView(PlainView):
    """A view that keeps one screen on the terminal up to date."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._phase = ""
        self._title = ""
        self._instruction = ""
        self._scene = DemoScene(0.0, None, None)
        self._recent: deque[Decision] = deque(maxlen=SHOWN_DECISIONS)
        self._results: list[EpisodeResult] = []
        self._times: list[float] = []
        self._accepted = self._rounds = 0
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def phase(self, words: str) -> None:
        """A step of the run has begun."""
        self._phase = words
        self._draw()

    def episode(self, index: int, count: int, instruction: str) -> None:
        """An instruction was published."""
        self._title, self._instruction, self._phase = f"episode {index + 1} of {count}", instruction, ""
        self._recent.clear()
        self._draw()

    def decision(self, decision: Decision) -> None:
        """A decision arrived."""
        self._recent.append(decision)
        if decision.decision_ms is not None:
            self._times.append(decision.decision_ms)
        self._accepted += sum(decision.accepted)
        self._rounds += len(decision.drafted)
        self._draw()

    def tick(self, scene: DemoScene) -> None:
        """Time has passed."""
        self._scene = scene
        self._draw()

    def result(self, result: EpisodeResult) -> None:
        """An episode has ended."""
        self._results.append(result)
        self._live.console.print(
            f"[bold]{result.index + 1}[/] {result.instruction}: {result_in_words(result)}"
        )
        self._draw()

    def close(self) -> None:
        """Stop drawing; the lines of results stay."""
        self._live.stop()

    def _draw(self) -> None:
        self._live.update(self.picture(), refresh=True)

    def picture(self) -> RenderableType:
        """The whole view."""
        head = Text.assemble(
            (self._title or "specnav demo", "bold"),
            "  ",
            (f"“{self._instruction}”", "green") if self._instruction else "",
        )
        if self._phase:
            head.append(f"  {self._phase} …", "yellow")
        width = self.console.width
        if width < WIDE_ENOUGH:
            return Group(head, self._words(width), self._figures())
        camera = Text("waiting for the camera", "bright_black")
        if self._scene.jpeg:
            camera = half_blocks(self._scene.jpeg)
        left = Panel(
            camera,
            title="camera",
            width=CAMERA_COLUMNS + 4,
            height=CAMERA_ROWS + 2,
            border_style="bright_black",
        )
        return Group(head, Columns([left, self._words(min(width - CAMERA_COLUMNS - 6, 80))]), self._figures())

    def _words(self, width: int) -> RenderableType:
        lines: list[RenderableType] = []
        for decision in self._recent:
            policy = decision.source == "policy"
            lines.append(
                Text(
                    f"{decision.index + 1:2d}  {decision.reasoning or decision.text}",
                    "bright_black",
                    overflow="ellipsis",
                    no_wrap=True,
                )
            )
            lines.append(
                Text(
                    f"    {in_words(decision)}",
                    "yellow" if policy else "red" if not decision.action else "bold",
                    overflow="ellipsis",
                    no_wrap=True,
                )
            )
            lines.append(
                Text.assemble("    ", token_bar(decision), ("  " + cost_of(decision), "bright_black"))
            )
        if not lines:
            lines = [Text("no decision yet", "bright_black")]
        return Panel(
            Group(*lines),
            title="verified answers",
            height=CAMERA_ROWS + 2,
            width=width,
            border_style="bright_black",
        )

    def _figures(self) -> RenderableType:
        table = Table.grid(padding=(0, 3))
        p50, p95 = percentile(self._times, 50), percentile(self._times, 95)
        cells = [f"[bright_black]time[/] {self._scene.t_s:.1f} s"]
        if self._scene.pose is not None:
            cells.append(f"[bright_black]robot[/] x {self._scene.pose[0]:.2f}  y {self._scene.pose[1]:.2f}")
        if p50 is not None and p95 is not None:
            cells.append(f"[bright_black]decision p50[/] {p50:.0f} ms  [bright_black]p95[/] {p95:.0f} ms")
        if self._rounds:
            cells.append(f"[bright_black]τ[/] {(self._accepted + self._rounds) / self._rounds:.2f}")
        if self._results:
            cells.append(
                f"[bright_black]success[/] {sum(r.success for r in self._results)}/{len(self._results)}"
            )
        table.add_row(*cells)
        return table
