# SPDX-License-Identifier: Apache-2.0
"""A robot among things that its draft never saw, and what a night with its own bag makes of that draft.

    python scripts/robot_story.py --out runs/robot-story

It trains a draft in rooms without some kinds and colours, records a bag of the robot sent to them (`specnav record
--sim --about`), distils the draft from it (`specnav train draft --bag`), and measures tau before and after on other
walks, towards things the first draft never saw and towards others; then the same with a second bag, about anything. A
run that was stopped goes on with the same command. See docs/drafts.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch

from navsim.errors import NavsimError
from specdec.errors import SpecdecError
from specnav.paths import DEFAULT_DRAFT, DEFAULT_TARGET
from specnav.recipes.drafts.config import Sources, TrainDraftConfig
from specnav.recipes.drafts.figures import DraftFigures, draft_figures
from specnav.recipes.drafts.measure import perfect
from specnav.recipes.drafts.network import DraftNetwork
from specnav.recipes.drafts.train import train_draft
from specnav.recipes.errors import TrainingError
from specnav.recipes.folders import keep_settings
from specnav.recipes.samples import ExitSample
from specnav.recipes.unseen import SPLIT, FirstDraft, LeftOut, episodes, train_first_draft, walked
from specnav.record.config import RecordConfig
from specnav.record.run import run_simulated
from specnav.results.errors import EvaluationError

BAG_SEED, OTHER_SEED, MEASURED_SEED = 0, 1_000, 500_000
"""Of the first episode of each bag, and of those that are measured on: never the same rooms."""
STEPS = 100_000
"""More than the night is long: the clock ends it."""


def main() -> int:
    """Run what is missing of the story, and print its table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/robot-story"))
    parser.add_argument("--kinds", default="plant,lamp", help="kinds that the draft never sees")
    parser.add_argument("--colours", default="purple,pink", help="colours that it never sees")
    parser.add_argument("--frames", type=int, default=8_000, help="to train the first draft on")
    parser.add_argument("--first-minutes", type=float, default=15.0, help="of training the first draft")
    parser.add_argument("--bag-episodes", type=int, default=60)
    parser.add_argument("--other-episodes", type=int, default=40, help="of a second bag, about anything; 0: none")
    parser.add_argument("--night-minutes", type=float, default=10.0, help="of training, with each choice of bags")
    parser.add_argument("--episodes", type=int, default=50, help="walks to measure on, of each sort")
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--only-bag", action="store_true", help="record the bag and the walks, and end")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    try:
        _story(asked)
    except (TrainingError, SpecdecError, EvaluationError, NavsimError) as error:
        print(f"robot_story: error: {error}", file=sys.stderr)
        return 1
    return 0


def _story(asked: argparse.Namespace) -> None:
    out: Path = asked.out
    left_out = LeftOut(tuple(asked.kinds.split(",")), tuple(asked.colours.split(",")))
    out.mkdir(parents=True, exist_ok=True)
    told = {name: value for name, value in vars(asked).items() if name not in ("out", "only_bag")}
    keep_settings(out, told, "--out")
    bag = out / "walk.mcap"
    if not bag.exists():
        about = (*left_out.kinds, *left_out.colours)
        run_simulated(RecordConfig(bag, episodes=asked.bag_episodes, seed=BAG_SEED, split=SPLIT, about=about))
    texts = {
        name: walked(
            DEFAULT_TARGET, list(episodes(left_out, hidden, MEASURED_SEED, asked.episodes)),
            out / f"frames-{name}", out / f"walks-{name}.jsonl",
        )
        for name, hidden in (("never seen", True), ("seen", False))
    }  # fmt: skip
    if asked.only_bag:
        return
    first = out / "first-draft"
    started = time.monotonic()
    config = FirstDraft(DEFAULT_TARGET, first, out / "work", left_out, asked.frames, minutes=asked.first_minutes)
    train_first_draft(config, _say)
    print(f"first draft: {(time.monotonic() - started) / 60:.1f} min in this sitting", flush=True)
    drafts = {"before": first, "after": _night(asked, first, out / "taught-draft", (bag,))}
    if asked.other_episodes:
        other = out / "other.mcap"
        if not other.exists():
            run_simulated(RecordConfig(other, episodes=asked.other_episodes, seed=OTHER_SEED, split=SPLIT))
        drafts["after, both bags"] = _night(asked, first, out / "taught-both", (bag, other))
    _table(out, drafts | {"the shipped draft": DEFAULT_DRAFT}, texts, asked.gamma)


def _night(asked: argparse.Namespace, first: Path, taught: Path, bags: tuple[Path, ...]) -> Path:
    """What the first draft becomes by these bags; a folder that is there is left as it is."""
    started = time.monotonic()
    if not taught.is_dir():
        train_draft(
            TrainDraftConfig(
                str(DEFAULT_TARGET), str(first), taught, taught.with_name(f"{taught.name}.run"),
                sources=Sources(bags=bags), gamma=asked.gamma, steps=STEPS, minutes=asked.night_minutes, batch=24,
                new_tokens=48, length=128,
            )
        )  # fmt: skip
    print(f"{taught.name}: {(time.monotonic() - started) / 60:.1f} min in this sitting", flush=True)
    return taught


def _table(out: Path, drafts: dict[str, Path], texts: dict[str, list[ExitSample]], gamma: int) -> None:
    """tau and agreement of each draft, towards each sort of target; also as JSON."""
    found: dict[str, dict[str, DraftFigures]] = {
        draft: {name: draft_figures(DraftNetwork(str(folder)), some, gamma) for name, some in texts.items()}
        for draft, folder in drafts.items()
    }
    print(f"tau at gamma {gamma} (agreement)")
    print("| kinds and colours | answers | " + " | ".join(drafts) + " | never wrong |")
    print("|---" * (len(drafts) + 3) + "|")
    for name, some in texts.items():
        cells = " | ".join(f"{row[name].tau:.2f} ({row[name].agreement:.1%})" for row in found.values())
        print(f"| {name} | {len(some)} | {cells} | {perfect(some, gamma):.2f} |", flush=True)
    figures = {draft: {name: asdict(one) for name, one in row.items()} for draft, row in found.items()}
    (out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def _say(stage: str, done: int, total: int) -> None:
    print(f"{stage}: {done} of {total}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
