"""`specnav record --sim --about`: only rooms whose target is of the kinds and colours asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("navsim.world")

from navsim.errors import BadRequest
from specnav.errors import UsageError
from specnav.record.config import RecordConfig
from specnav.record.simulated import _episodes


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
