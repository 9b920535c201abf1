"""Messages as records; no process and no DDS, only the message types."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("spec_vlm_nav_interfaces")
from builtin_interfaces.msg import Time
from spec_vlm_nav_interfaces.msg import DecisionMetrics

from specnav.demo.director import decision_of, is_safety_stop, state_of


def metrics(**more: object) -> DecisionMetrics:
    message = DecisionMetrics(
        sequence=4,
        frame_stamp=Time(sec=5, nanosec=6),
        text="I see it. The next action is turn left 15 degree.",
        reasoning="I see it.",
        model_action="The next action is turn left 15 degree.",
        action="turn left 15",
        decision_ms=50.0,
        camera_to_action_ms=60.0,
        token_ids=[1, 2, 3],
        prompt_ids=[7],
        drafted=[4],
        accepted=[2],
    )
    for name, value in more.items():
        setattr(message, name, value)
    return message


def test_the_models_own_action_is_kept_as_its_sentence() -> None:
    decision = decision_of(metrics())
    assert (decision.source, decision.action) == ("model", "The next action is turn left 15 degree.")
    assert (decision.decision_ms, decision.time_to_action_ms) == (50.0, 60.0)
    assert (
        decision.token_ids == [1, 2, 3]
        and decision.prompt_ids == [7]
        and decision.complete
        and decision.parsed
    )


def test_a_move_of_the_policy_is_marked_and_keeps_what_the_model_said() -> None:
    decision = decision_of(
        metrics(source=DecisionMetrics.EXPLORATION, action="forward 50", rule="lost: forward")
    )
    assert (decision.source, decision.action, decision.note) == ("policy", "forward 50", "lost: forward")
    assert decision.model_action == "The next action is turn left 15 degree."


def test_an_answer_without_an_action_moves_nothing_and_has_no_time_to_action() -> None:
    failed = metrics(
        sequence=0, source=DecisionMetrics.SUPERVISOR, model_action="", action="", error="no action",
        error_code=DecisionMetrics.PARSE_FAILED,
    )  # fmt: skip
    decision = decision_of(failed)
    assert (decision.action, decision.parsed, decision.complete, decision.note) == (
        "",
        False,
        True,
        "no action",
    )
    assert decision.decision_ms is None and decision.time_to_action_ms is None
    assert not is_safety_stop(failed)


@pytest.mark.parametrize(
    ("code", "frame", "counts"),
    [
        (DecisionMetrics.NONE, Time(sec=1), False),
        (DecisionMetrics.CANCELED, Time(sec=1), False),
        (DecisionMetrics.LINK_LOST, Time(sec=1), True),
        (DecisionMetrics.STALE_CAMERA, Time(), True),
        (DecisionMetrics.TIMEOUT, Time(sec=1), True),
        (DecisionMetrics.TIMEOUT, Time(), False),  # the instruction's time was up
        (DecisionMetrics.TOO_MANY_DECISIONS, Time(sec=1), False),
    ],
)
def test_safety_stops_are_told_from_ordinary_ends(code: int, frame: Time, counts: bool) -> None:
    assert is_safety_stop(metrics(error_code=code, frame_stamp=frame)) is counts


def test_cut_answers_are_not_complete() -> None:
    assert not decision_of(metrics(error_code=DecisionMetrics.LINK_LOST)).complete


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"x": 1}', "nonsense", '{"episode_seed": "a"}'])
def test_state_that_is_none_is_ignored(text: str) -> None:
    assert state_of(text, 0.0) is None


def test_state_is_read() -> None:
    said = {"episode_seed": 3, "x": 1, "y": 2, "yaw": 0.5, "collisions": 1, "ready": True, "absent": True}
    state = state_of(json.dumps(said), 9.0)
    assert state is not None
    assert (state.t, state.episode_seed, state.x, state.collisions, state.absent) == (9.0, 3, 1.0, 1, True)
