"""What the console's pages are notified of decisions."""

import time

import pytest

from spec_vlm_nav.console.decisions import time_shares
from spec_vlm_nav.model.course import Origin, origins_of
from specdec.edge.stats import RoundStats
from tests.robot.console_world import World

pytest.importorskip("starlette")


def round_of(accepted, gained, ready=None):
    return RoundStats(4, accepted, 0, 0, 0.0, 0.0, 0.0, gained, ready)


def test_tokens_tell_how_they_came():
    own, drafted, ahead, bare = (
        o.value for o in (Origin.TARGET, Origin.DRAFTED, Origin.AHEAD, Origin.UNVERIFIED)
    )
    rounds = (round_of(2, 3), round_of(3, 4, ready=2), round_of(0, 1))
    assert origins_of(rounds, 8, 8) == [drafted, drafted, own, ahead, ahead, drafted, own, own]
    assert origins_of(rounds, 7, 7) == [drafted, drafted, own, ahead, ahead, drafted, own], (
        "an end of sequence is not a token"
    )
    assert origins_of(rounds[:1], 3, 5) == [drafted, drafted, own, bare, bare]
    assert origins_of((), 2, 2) == [own, own]


def test_a_decisions_time_is_split_without_counting_a_moment_twice():
    spans = [
        ("edge", "prepare frame", 0.0, 10.0),
        ("edge", "prefill", 10.0, 40.0),
        ("uplink", "open", 10.0, 20.0),
        ("cloud", "prefill", 20.0, 60.0),
        ("downlink", "verdict", 60.0, 70.0),
    ]
    assert time_shares(spans) == {"camera": 10.0, "edge": 0.0, "link": 20.0, "cloud": 40.0}
    assert sum(time_shares(spans).values()) == 70.0


def test_decisions_that_come_within_one_turn_of_the_loop_are_all_told_once(tmp_path):
    world = World(tmp_path)
    decided, alike = world.robots[""].decided, {"sequence": 0}
    decided += [dict(alike) for _ in range(20)]
    anna = world.open()
    assert len(world.told(anna, "decisions")[0]["all"]) == 12
    for new in ((1, 2), (), (3,)):
        decided += [{"sequence": number} for number in new]
        for _ in new or (0,):
            world.pages._woken("", "decision")
        told = [one["sequence"] for message in world.told(anna, "decisions") for one in message["new"]]
        assert told == list(new)
    decided[:] = decided[-1:]
    world.pages._woken("", "decision")
    assert world.told(anna, "decisions") == [], "robots keep the last ones only"


def test_the_shares_of_the_longest_answer_are_counted_at_once():
    """With `ar` each of up to 1024 tokens is a round; the console's thread was held up for seconds."""
    lanes = ("edge", "uplink", "cloud", "downlink")
    spans = [(lanes[i % 4], "a span", float(i), i + 1.0) for i in range(20_000)]
    began = time.process_time()
    assert time_shares(spans) == {"camera": 0.0, "edge": 5000.0, "link": 10_000.0, "cloud": 5000.0}
    assert time.process_time() - began < 2.0
