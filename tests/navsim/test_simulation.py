"""The simulation behind the node: resets, requests from outside, what the state tells."""

import pytest

from navsim.errors import BadRequest
from navsim.simulation import ResetRequest, Simulation, parse_reset, state_of


def test_a_reset_message_is_read_with_its_defaults():
    assert parse_reset('{"seed": 4}') == ResetRequest(4, "train", False)
    assert parse_reset('{"seed": 4, "split": "heldout", "absent": true}') == ResetRequest(4, "heldout", True)


@pytest.mark.parametrize(
    "text", ["", "nonsense", "{}", '{"seed": "4"}', '{"seed": 4, "sead": 1}', "[]", "x" * 5000]
)
def test_a_bad_reset_message_is_refused(text):
    with pytest.raises(BadRequest, match=r"send (for example|at most)"):
        parse_reset(text)


def test_a_reset_changes_the_room_and_time_goes_on():
    simulation = Simulation(ResetRequest(0))
    simulation.base.command(0.5, 0.0)
    simulation.advance(0.5)
    simulation.reset(ResetRequest(1, "heldout"))
    after = simulation.snapshot()
    assert after.visit == 1
    assert after.time == pytest.approx(0.5)
    assert after.pose == after.episode.start
    assert (after.vx, after.collisions, after.travelled) == (0.0, 0, 0.0)


def test_a_refused_reset_leaves_everything_as_it_is():
    simulation = Simulation(ResetRequest(0))
    before = simulation.snapshot()
    with pytest.raises(BadRequest):
        simulation.reset(ResetRequest(-1))
    assert simulation.snapshot() == before


def test_the_state_tells_nothing_about_the_target():
    state = state_of(Simulation(ResetRequest(3)).snapshot(), ready=True)
    assert state.episode_seed == 3
    assert state.ready
    assert not {"target", "instruction", "objects"} & set(state.__struct_fields__)
