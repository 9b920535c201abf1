"""`specnav record --sim --about`: only rooms whose target is of the kinds and colours asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("navsim.world")

from navsim.errors import BadRequest
from specnav.errors import UsageError
from specnav.record.config import RecordConfig
from specnav.record.run import run_record
from specnav.record.simulated import _episodes
from specnav.results.errors import EvaluationError


@pytest.mark.slow
def test_only_episodes_about_what_was_asked_for_are_recorded() -> None:
    config = RecordConfig(Path("a.mcap"), episodes=6, seed=3, split="train", about=("lamp", "pink"))
    chosen = list(_episodes(config))
    assert len({one.seed for one in chosen}) == 6 and min(one.seed for one in chosen) >= 3
    assert all({"lamp", "pink"} & set(one.target_name.split()) for one in chosen)


def test_without_it_they_are_those_of_the_seeds_in_order() -> None:
    assert [one.seed for one in _episodes(RecordConfig(Path("a.mcap"), episodes=3, seed=7))] == [7, 8, 9]


def test_a_word_that_is_no_kind_or_colour_is_refused() -> None:
    with pytest.raises(BadRequest, match="no kind or colour is called 'sofa': use some of ball"):
        _episodes(RecordConfig(Path("a.mcap"), about=("lamp", "sofa")))


def test_a_duration_of_simulated_episodes_is_refused_and_not_ignored() -> None:
    with pytest.raises(UsageError, match="leave --duration out"):
        RecordConfig(Path("a.mcap"), sim=True, duration_s=5.0)


def test_a_person_s_labels_are_not_replaced_unless_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[RecordConfig] = []
    monkeypatch.setattr("specnav.record.run.run_simulated", begun.append)
    (tmp_path / "walk.labels.csv").write_text("stamp,action\n1.0,stop\n")
    with pytest.raises(EvaluationError, match=r"walk\.labels\.csv exists already"):
        run_record(RecordConfig(tmp_path / "walk.mcap", sim=True))
    assert not begun
    assert run_record(RecordConfig(tmp_path / "walk.mcap", sim=True, force=True)) == 0 and begun


@pytest.mark.parametrize("given", [{"about": ("lamp",)}, {"episodes": 3}, {"target_model": "my/model"}])
def test_what_is_for_simulated_episodes_is_refused_with_a_robot(tmp_path: Path, given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="is for --sim: leave it out"):
        run_record(RecordConfig(tmp_path / "walk.mcap", **given))
