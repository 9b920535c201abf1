# SPDX-License-Identifier: Apache-2.0
"""Draws the memory of the frontier search during an episode, over the room's plan, which the search does not know.

`python -m specnav.recipes.memory_picture default_models 31073 docs/exploration.png` runs one held-out episode and draws
the memory at four moments. Walls and objects come from the simulator and are drawn only for the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from PIL import Image, ImageDraw

from spec_vlm_nav.exploring.frontier_search import FrontierState
from spec_vlm_nav.exploring.search_map import HALF, SOLID, SearchMap
from specnav.errors import user_errors
from specnav.recipes.rollouts import EpisodeRollout, Speaker, roll_out
from specnav.recipes.speaker import ModelSpeaker

if TYPE_CHECKING:
    from navsim.episodes import Episode
    from navsim.geometry import Pose2D
    from navsim.rooms import Furniture, SceneObject
    from navsim.world import World

MOMENTS = 4
SCALE, EDGE, GAP = 60, 0.4, 8  # pixels per metre, metres around the room, pixels between panels


@dataclass
class Watching:
    """A speaker that records the robot's pose and its policy's memory at each answer."""

    speaker: Speaker
    poses: list[Pose2D] = field(default_factory=list)
    maps: list[SearchMap | None] = field(default_factory=list)
    saw: list[bool] = field(default_factory=list)

    def answer(self, runs: Sequence[EpisodeRollout], frames: Sequence[np.ndarray], world: World) -> list[str]:
        """See rollouts.Speaker."""
        (run,) = runs
        state = run.policy.state
        self.poses.append(run.base.pose)
        self.maps.append(state.known if isinstance(state, FrontierState) else None)
        answers = self.speaker.answer(runs, frames, world)
        self.saw.append(answers[0].startswith("I see"))
        return answers


def draw(episode: Episode, seen: Watching, out: Path) -> None:
    """Write the picture: one panel per moment, the last one at the end of the episode."""
    moments = [round(k) for k in np.linspace(1, len(seen.poses) - 1, MOMENTS)]
    panels = [_panel(episode, seen, moment) for moment in moments]
    whole = Image.new("RGB", (sum(p.width for p in panels) + GAP * (MOMENTS - 1), panels[0].height), "white")
    for at, panel in enumerate(panels):
        whole.paste(panel, (at * (panel.width + GAP), 0))
    whole.save(out)


def _panel(episode: Episode, seen: Watching, moment: int) -> Image.Image:
    """One panel. Blue: where the target may be. Red: where the robot cannot go. Green: views that show the target."""
    x0, y0, x1, y1 = episode.room.bounds
    size = (round((x1 - x0 + 2 * EDGE) * SCALE), round((y1 - y0 + 2 * EDGE) * SCALE))

    def pixel(x: float, y: float) -> tuple[float, float]:
        return (x - x0 + EDGE) * SCALE, size[1] - (y - y0 + EDGE) * SCALE

    panel = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(panel)
    known = seen.maps[moment]
    if known is not None:
        _draw_memory(panel, known, pixel)
    for wall in episode.room.walls:
        pen.line([pixel(wall.x0, wall.y0), pixel(wall.x1, wall.y1)], "black", 3)
    things: list[SceneObject | Furniture] = [*episode.room.objects, *episode.room.furniture]
    for thing in things:
        (x, y), reach = pixel(thing.x, thing.y), thing.shape.reach * SCALE
        colour = "orange" if thing is episode.target else "silver"
        pen.ellipse([x - reach, y - reach, x + reach, y + reach], colour)
    path = seen.poses[: moment + 1]
    pen.line([pixel(p.x, p.y) for p in path], "black", 2)
    for pose, saw in zip(path, seen.saw, strict=False):
        end = pixel(pose.x + 0.35 * np.cos(pose.yaw), pose.y + 0.35 * np.sin(pose.yaw))
        pen.line([pixel(pose.x, pose.y), end], "green" if saw else "gray", 2)
    x, y = pixel(path[-1].x, path[-1].y)
    pen.ellipse([x - 6, y - 6, x + 6, y + 6], "black")
    pen.text((6, 4), f"decision {moment + 1}: {episode.instruction}", "black")
    return panel


def _draw_memory(panel: Image.Image, known: SearchMap, pixel: Callable[[float, float], tuple[float, float]]) -> None:
    left, top = pixel(known.x - HALF, known.y + HALF)
    side = round(2 * HALF * SCALE)
    strong = np.sqrt(known.belief / known.belief.max())
    for grid, colour in ((0.8 * strong, "royalblue"), (0.7 * (known.solid >= SOLID), "red")):
        mask = Image.fromarray((255 * grid.T[::-1]).astype(np.uint8)).resize((side, side), Image.Resampling.NEAREST)
        panel.paste(colour, (round(left), round(top)), mask)


def main(
    pair: Annotated[Path, typer.Argument(help="Folder with nav-target.")],
    seed: Annotated[int, typer.Argument(min=0, help="Held-out episode.")],
    out: Annotated[Path, typer.Argument(help="The picture, PNG.")],
) -> None:
    """Run one episode with the frontier search and draw its memory."""
    import torch

    from navsim.episodes import make_episode
    from navsim.world import World

    torch.set_num_threads(1)
    episode = make_episode(seed, "heldout")
    seen = Watching(ModelSpeaker(pair / "nav-target"))
    with World() as world:
        result = roll_out(world, seen, [episode], "frontier_search")
    draw(episode, seen, out)
    print(f"{out}: {result.scores[0].reason} in {len(seen.poses)} decisions")


if __name__ == "__main__":
    with user_errors():
        typer.run(main)
