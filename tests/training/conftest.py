"""A little library to learn from, and a pair trained on it for a handful of updates."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from specnav.recipes.text.models import LlamaShape
from specnav.recipes.text.train import TextResult, TextSchedule, TrainTextConfig, train_text
from tests.helpers.servers import model_root, servers, text_pair, vision_pair  # noqa: F401

torch.set_num_threads(1)

SOURCE = '''"""Module {name}: things that count {name} things."""

class {title}:
    """Counts {name} things, one after the other."""

    def first(self, limit):
        """Return the first {name} thing below the limit.

        The limit is a number of {name} things; everything above it is left out, as it would be
        in a list of {name} things. Raises ValueError for a limit that is negative.
        """
        if limit < 0:
            raise ValueError("limit must not be negative")
        return [thing for thing in self.things if thing < limit][0]


def total(things, start={number}):
    """Return the sum of all {name} things."""
    result = start
    for thing in things:
        result = result + thing
    return result
'''


def write_library(root: Path, modules: int) -> Path:
    """`modules` small modules in `root`, with tests and tables that must be left out."""
    for number in range(modules):
        name = f"unit{number}"
        file = root / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(SOURCE.format(name=name, title=name.title(), number=number), encoding="utf-8")
    for folder in ("test", "json/tests", "encodings"):
        (root / folder).mkdir(parents=True)
        (root / folder / "left_out.py").write_text("LEFT_OUT = 1\n" * 100, encoding="utf-8")
    return root


@pytest.fixture(scope="session")
def little_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough modules that some are held back."""
    return write_library(tmp_path_factory.mktemp("library"), 60)


def little_config(library: Path, place: Path) -> TrainTextConfig:
    """A whole run of a few seconds."""
    return TrainTextConfig(
        out=place / "models",
        run=place / "run",
        seed=3,
        workers=1,
        vocabulary=400,
        target=LlamaShape(layers=2, width=64, inner=64, heads=2, kv_heads=1),
        draft=LlamaShape(layers=1, width=64, inner=64, heads=2, kv_heads=1),
        schedule=TextSchedule(
            target_steps=60,
            repairs=1,
            repair_steps=2,
            repair_texts=4,
            draft_steps=4,
            own_texts=4,
            rows=4,
            length=48,
            validation_rows=4,
            measured=4,
        ),
        library=library,
        compile=False,
    )


@pytest.fixture(scope="session")
def little_pair(
    little_library: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[TrainTextConfig, TextResult]:
    """A trained pair, and how it was made."""
    config = little_config(little_library, tmp_path_factory.mktemp("pair"))
    return config, train_text(config)


@pytest.fixture(autouse=True)
def charts_only_where_asked_for(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """To draw the curve takes as long as all else that a little run does in this process."""
    if "charts" not in request.fixturenames:
        monkeypatch.setattr("specnav.recipes.drafts.curve.draw_curve", lambda points, gamma: "<svg/>")


@pytest.fixture
def charts() -> None:
    """For tests of what is drawn."""
