"""Rooms and episodes: the same seed gives the same task, splits stay apart, starts are usable."""

import math

import pytest

from navsim.episodes import make_episode
from navsim.errors import BadRequest
from navsim.kinds import COLOURS, HELD_OUT, KINDS
from navsim.layout import DOORWAY_KEEP_CLEAR
from navsim.planner import ROBOT_RADIUS, shortest_path_length
from navsim.visibility import line_of_sight

pytestmark = pytest.mark.slow

SEEDS = range(40)


@pytest.fixture(scope="module")
def episodes():
    return {split: [make_episode(seed, split) for seed in SEEDS] for split in ("train", "heldout")}


def test_same_seed_gives_the_same_episode_and_another_seed_another():
    assert make_episode(5, "heldout") == make_episode(5, "heldout")
    assert make_episode(5, "heldout") != make_episode(6, "heldout")
    assert make_episode(5, "heldout").room != make_episode(5, "train").room


def test_catalogue_is_wide_enough():
    assert len(KINDS) >= 8
    assert len(COLOURS) >= 8
    assert "silver" in COLOURS
    assert {kind for kind, _ in HELD_OUT} == {kind.name for kind in KINDS}


def test_held_out_pairs_never_stand_in_a_training_room(episodes):
    for episode in [*episodes["train"], *(make_episode(seed, "train", absent=True) for seed in range(20))]:
        assert not episode.target_is_held_out
        assert not {(thing.kind, thing.colour) for thing in episode.room.objects} & HELD_OUT


def test_heldout_targets_mix_held_out_and_ordinary_pairs(episodes):
    share = sum(episode.target_is_held_out for episode in episodes["heldout"]) / len(SEEDS)
    assert 0.3 < share < 0.7


def test_every_target_has_look_alikes_and_names_are_unique(episodes):
    for episode in [*episodes["train"], *episodes["heldout"]]:
        others = [thing for thing in episode.room.objects if thing is not episode.target]
        assert any(o.kind == episode.target.kind for o in others)
        assert any(o.colour == episode.target.colour for o in others)
        names = [thing.name for thing in episode.room.objects]
        assert len(set(names)) == len(names)
        assert episode.instruction == f"find the {episode.target.name}"


def test_some_robots_face_what_they_are_to_find(episodes):
    facing = [episode for episode in episodes["train"] if episode.target_is_ahead]
    assert facing and len(facing) < len(SEEDS) / 4 and not make_episode(5, absent=True).target_is_ahead
    for episode in facing:
        start, target = episode.start, episode.target
        along = math.cos(start.yaw) * (target.x - start.x) + math.sin(start.yaw) * (target.y - start.y)
        across = math.cos(start.yaw) * (target.y - start.y) - math.sin(start.yaw) * (target.x - start.x)
        assert along > 1.7 and abs(across) < 0.25 * along


def test_absent_target_is_missing_while_its_look_alikes_are_there():
    for seed in range(15):
        episode = make_episode(seed, "heldout", absent=True)
        colour, kind = episode.target_name.split(" ")
        assert episode.target is None
        assert episode.room.find(episode.target_name) is None
        assert any(o.kind == kind for o in episode.room.objects)
        assert any(o.colour == colour for o in episode.room.objects)


def test_start_is_free_inside_and_leads_to_the_target(episodes):
    for episode in [*episodes["train"], *episodes["heldout"]]:
        start = episode.start
        assert episode.room.clearance(start.x, start.y) >= ROBOT_RADIUS + 0.1
        assert episode.room.contains(start.x, start.y)
        assert math.isfinite(shortest_path_length(episode.room, start, episode.target))


def test_nearly_every_start_sees_the_target_and_some_do_not(episodes):
    both = [*episodes["train"], *episodes["heldout"]]
    seen = [line_of_sight(e.room, e.start.x, e.start.y, e.target) > 0 for e in both]
    assert 0.9 <= sum(seen) / len(seen) < 1.0


def test_objects_do_not_overlap_and_doorways_stay_clear(episodes):
    for episode in episodes["train"]:
        things = [*episode.room.objects, *episode.room.furniture]
        for index, thing in enumerate(things):
            assert all(thing.shape.distance(other.x, other.y) > 0 for other in things[index + 1 :])
            assert all(thing.shape.distance(*d.centre) >= DOORWAY_KEEP_CLEAR for d in episode.room.doorways)


def test_about_a_quarter_of_the_rooms_have_a_doorway(episodes):
    share = sum(bool(e.room.doorways) for e in [*episodes["train"], *episodes["heldout"]]) / (2 * len(SEEDS))
    assert 0.15 < share < 0.4



@pytest.mark.parametrize(("seed", "split"), [(-1, "train"), (1, "test")])
def test_unusable_requests_are_refused_with_what_to_do(seed, split):
    with pytest.raises(BadRequest, match="use"):
        make_episode(seed, split)
