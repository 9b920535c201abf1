# SPDX-License-Identifier: Apache-2.0
"""Measures a pair: closed loops on the held-out split, absent targets, tokens per pass; prints a table, writes JSON.

`python -m specnav.recipes.measure FOLDER` measures FOLDER/nav-target and FOLDER/nav-draft. Everything is greedy
and seeded.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specnav.errors import user_errors
from specnav.recipes.drafts.figures import tokens_a_round
from specnav.recipes.errors import TrainingError
from specnav.recipes.rollouts import OracleSpeaker, RolloutResult, Speaker, roll_out
from specnav.recipes.speaker import ModelSpeaker

if TYPE_CHECKING:
    from navsim.episodes import Episode

GAMMA = 4
FRAMES_KEPT = 4
MEASURES = ("target", "frontier", "no_policy", "absent", "draft", "oracle")
SEARCH = "frontier_search"
Z = 1.96  # of a 95 % interval


@dataclass
class RolloutFigures:
    """One line of the table."""

    name: str
    values: dict[str, float]
    reasons: dict[str, int]
    by_kind: dict[str, int] = field(default_factory=dict)


def wilson(share: float, n: int) -> tuple[float, float]:
    """The 95 % interval of a share found in n trials (Wilson)."""
    middle = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n)) / (1 + Z * Z / n)
    return middle - half, middle + half


def figures_of(name: str, result: RolloutResult) -> RolloutFigures:
    """A line of the table: means, reasons of endings, success on held-out and known pairs, failures by kind."""
    values = result.summary()
    values["success_low"], values["success_high"] = wilson(values["success"], len(result.scores))
    for part, wanted in (("success_held_out_pairs", True), ("success_known_pairs", False)):
        scores = [
            score.success
            for run, score in zip(result.runs, result.scores, strict=True)
            if run.episode.target_is_held_out is wanted
        ]
        values[part] = sum(scores) / max(len(scores), 1)
    failed = Counter(
        f"{run.episode.target_name.split()[1]} {score.reason}"
        for run, score in zip(result.runs, result.scores, strict=True)
        if not score.success
    )
    return RolloutFigures(name, values, dict(result.reasons()), dict(failed.most_common(12)))


def speculation(result: RolloutResult, target: ModelSpeaker, draft: ModelSpeaker) -> RolloutFigures:
    """Tokens per target pass (accepted + 1), and agreement, on the kept frames of the target's rollouts."""
    tokens = passes = agreed = 0
    for run in result.runs:
        for frame, answer in zip(run.frames, run.answers, strict=False):
            foretold = draft.foretells(run.episode.instruction, frame, target.ids(answer))
            tokens, passes = tokens + len(foretold), passes + len(tokens_a_round(foretold, GAMMA))
            agreed += sum(foretold)
    values = {"tau": tokens / passes, "agreement": agreed / tokens, "tokens": tokens}
    return RolloutFigures(f"speculation, gamma {GAMMA}", values, {})


def measure_pair(pair: Path, episodes: int, first_seed: int, measures: tuple[str, ...]) -> list[RolloutFigures]:
    """Run the named measures (of MEASURES). Raises ModelError for a folder without models."""
    from navsim.episodes import make_episode
    from navsim.world import World

    target, draft = ModelSpeaker(pair / "nav-target"), ModelSpeaker(pair / "nav-draft")
    seeds = range(first_seed, first_seed + episodes)
    present = [make_episode(seed, "heldout") for seed in seeds]
    absent = [make_episode(seed, "heldout", absent=True) for seed in seeds]
    plans: dict[str, tuple[str, Speaker, list[Episode], str, int]] = {
        "target": ("target, policy on", target, present, SEARCH, FRAMES_KEPT),
        "frontier": ("target, frontier_search", target, present, "frontier_search", 0),
        "absent": ("target absent", target, absent, SEARCH, 0),
        "no_policy": ("target, policy off", target, present, "none", 0),
        "draft": ("draft alone, policy on", draft, present, SEARCH, 0),
        "oracle": ("oracle, policy on", OracleSpeaker(), present, SEARCH, 0),
    }
    lines: list[RolloutFigures] = []
    with World() as world:
        for measure, (name, speaker, tasks, policy, keep) in plans.items():
            if measure in measures:
                result = roll_out(world, speaker, tasks, policy, keep)
                lines.append(figures_of(name, result))
                if keep:
                    lines.append(speculation(result, target, draft))
    return lines


def main(
    pair: Annotated[Path, typer.Argument(help="Folder with nav-target and nav-draft.")],
    episodes: Annotated[int, typer.Option(min=1, max=100_000, help="Episodes per measure.")] = 300,
    first_seed: Annotated[int, typer.Option(min=0, help="First seed of the held-out split.")] = 0,
    only: Annotated[str, typer.Option(help=f"Measures to run, of {','.join(MEASURES)}.")] = ",".join(MEASURES),
    out: Annotated[Path | None, typer.Option(help="Also write the figures as JSON.")] = None,
) -> None:
    """Measure a pair in closed loop on the held-out split."""
    import torch
    from rich.console import Console

    torch.set_num_threads(1)
    console = Console()
    measures = tuple(only.split(","))
    if unknown := set(measures) - set(MEASURES):
        raise TrainingError(f"unknown measures {sorted(unknown)}: choose from {', '.join(MEASURES)}")
    lines = measure_pair(pair, episodes, first_seed, measures)
    for line in lines:
        console.print(f"[bold]{line.name}[/]: " + ", ".join(f"{k} {v:.3f}" for k, v in line.values.items()))
        if line.reasons:
            console.print(f"  ended: {line.reasons}; failed: {line.by_kind}")
    if out is not None:
        out.write_text(json.dumps([vars(line) for line in lines], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    with user_errors():
        typer.run(main)
