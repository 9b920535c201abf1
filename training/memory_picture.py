"""A picture of what the frontier search remembers on its way, over the room that it never sees.

`python -m training.memory_picture default_models 20265 docs/exploration.png` carries one held-out episode out and draws
its memory at four moments. The walls and things are the simulator's, drawn for the reader only.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from spec_vlm_nav.exploring.frontier_search import FrontierState
from spec_vlm_nav.exploring.search_map import HALF, SOLID, SearchMap
from training.errors import TrainingError
from training.rollouts import Run, Speaker, roll_out
from training.speaker import ModelSpeaker, load_trained

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from navsim.episodes import Episode
    from navsim.geometry import Pose2D
    from navsim.rooms import Furniture, SceneObject
    from navsim.world import World

MOMENTS = 4


@dataclass
class Watching:
    """A speaker that keeps where the robot was and what its policy remembered at each of its answers."""

    speaker: Speaker
    poses: list[Pose2D] = field(default_factory=list)
    maps: list[SearchMap | None] = field(default_factory=list)
    saw: list[bool] = field(default_factory=list)

    def answer(self, runs: Sequence[Run], frames: Sequence[np.ndarray], world: World) -> list[str]:
        """See rollouts.Speaker."""
        (run,) = runs
        state = run.policy.state
        self.poses.append(run.base.pose)
        self.maps.append(state.known if isinstance(state, FrontierState) else None)
        answers = self.speaker.answer(runs, frames, world)
        self.saw.append(answers[0].startswith("I see"))
        return answers


def draw(episode: Episode, seen: Watching, reason: str, out: Path) -> None:
    """Write the picture: one panel a moment, the last one at the end of the episode."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    moments = [round(k) for k in np.linspace(1, len(seen.poses) - 1, MOMENTS)]
    figure, axes = plt.subplots(1, len(moments), figsize=(4.2 * len(moments), 4.6), constrained_layout=True)
    for axis, moment in zip(np.atleast_1d(axes), moments, strict=True):
        known = seen.maps[moment]
        if known is not None:
            _draw_memory(axis, known)
        _draw_room(axis, episode)
        path = seen.poses[: moment + 1]
        axis.plot([p.x for p in path], [p.y for p in path], "-", color="black", linewidth=1.2)
        for pose, saw in zip(path, seen.saw, strict=False):
            aside, ahead = 0.22 * np.cos(pose.yaw), 0.22 * np.sin(pose.yaw)
            axis.plot([pose.x, pose.x + aside], [pose.y, pose.y + ahead], color="tab:green" if saw else "0.45")
        axis.plot(path[-1].x, path[-1].y, "o", color="black", markersize=7)
        axis.set_title(f"decision {moment + 1}" + (f": {reason}" if moment == len(seen.poses) - 1 else ""))
    figure.suptitle(
        f"{episode.instruction}: blue where the target may be, red where the robot cannot go, by its own memory; "
        "green looks show the target",
        fontsize=10,
    )
    figure.savefig(out, dpi=80)
    plt.close(figure)


def _draw_memory(axis: Axes, known: SearchMap) -> None:
    edges = (known.x - HALF, known.x + HALF, known.y - HALF, known.y + HALF)
    axis.imshow(np.sqrt(known.belief.T), origin="lower", extent=edges, cmap="Blues")
    solid = np.ma.masked_less(known.solid.T, SOLID)
    axis.imshow(solid, origin="lower", extent=edges, cmap="Reds", vmin=0, vmax=5, alpha=0.8)


def _draw_room(axis: Axes, episode: Episode) -> None:
    from matplotlib.patches import Circle

    room = episode.room
    for wall in room.walls:
        axis.plot([wall.x0, wall.x1], [wall.y0, wall.y1], color="0.2", linewidth=3)
    things: list[SceneObject | Furniture] = [*room.objects, *room.furniture]
    for thing in things:
        is_target = thing is episode.target
        colour = "tab:orange" if is_target else "0.6"
        axis.add_patch(Circle((thing.x, thing.y), thing.shape.reach, color=colour, alpha=1.0 if is_target else 0.5))
    x0, y0, x1, y1 = room.bounds
    axis.set(xlim=(x0 - 0.4, x1 + 0.4), ylim=(y0 - 0.4, y1 + 0.4), aspect="equal", xticks=[], yticks=[])


def main(
    pair: Annotated[Path, typer.Argument(help="Folder with nav-target.")],
    seed: Annotated[int, typer.Argument(min=0, help="Held-out episode.")],
    out: Annotated[Path, typer.Argument(help="The picture, PNG.")],
) -> None:
    """Carry one episode out with the frontier search and draw what it remembered."""
    import torch

    from navsim.episodes import make_episode
    from navsim.world import World

    torch.set_num_threads(1)
    episode = make_episode(seed, "heldout")
    seen = Watching(ModelSpeaker(load_trained(pair / "nav-target")))
    with World() as world:
        result = roll_out(world, seen, [episode], "frontier_search")
    draw(episode, seen, result.scores[0].reason, out)
    print(f"{out}: {result.scores[0].reason} in {len(seen.poses)} decisions")


if __name__ == "__main__":
    try:
        typer.run(main)
    except TrainingError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
