"""The catalogue as data: names, what the issue asks for, parameters that exist."""

from __future__ import annotations

import pytest

pytest.importorskip("rclpy")

from navsim.ros_parameters import SETTINGS
from spec_vlm_nav.deciding.parameters import VLM_NAV
from spec_vlm_nav.motion.parameters import MOTION
from specnav.drill.catalogue import LONG_CUT_S, all_drills, choose
from specnav.drill.definitions import ExpectedReaction
from specnav.drill.faults import BrokenRobot
from specnav.errors import HarnessError

PARAMETERS = {
    "vlm_nav_node": {p.name for p in VLM_NAV},
    "motion_node": {p.name for p in MOTION},
    "navsim": {s.name for s in SETTINGS},
}


def test_names_are_unique_and_every_fault_that_stops_it_has_a_reason():
    drills = all_drills()
    assert len({d.name for d in drills}) == len(drills)
    assert all(d.reasons for d in drills if d.reaction in (ExpectedReaction.STOPS, ExpectedReaction.HALTS))


def test_every_bound_is_made_of_parameters_that_exist_and_100_ms_or_of_300_ms():
    for drill in all_drills():
        for term in drill.bound.terms:
            assert term.parameter in PARAMETERS[term.node], drill.name
        if drill.prompt and drill.reaction is not ExpectedReaction.GOES_ON:
            assert drill.bound.seconds == 0.3
        elif not drill.bound.note:
            assert drill.bound.seconds == pytest.approx(0.1)


def test_the_simulators_faults_are_undone_to_its_normal_values():
    for drill in all_drills():
        if isinstance(drill.fault, BrokenRobot):
            broken, sound = drill.fault.broken.keys(), drill.fault.sound.keys()
            assert sound <= broken <= PARAMETERS["navsim"]
            assert broken - sound <= {"odom_scale"}  # means nothing while odom_fault is none


def test_every_lie_of_a_base_is_told_under_both_policies_and_one_of_them_in_ci():
    lies = [d for d in all_drills() if d.policy]
    names = {d.name.removesuffix("-none").removesuffix("-frontier-search") for d in lies}
    assert names == {
        "odometry-frozen",
        "base-stuck",
        "base-delayed",
        "zeros-dropped",
        "odometry-scaled",
        "odometry-mirrored",
        "pushed",
        "rear-blocked",
        "estop-best-effort",
    }
    assert len(lies) == 2 * len(names) and sum(d.tested for d in lies) == len(names)


def test_in_ci_every_fault_is_tried_and_something_at_every_moment():
    drills = all_drills()
    assert {d.what for d in drills if d.tested} == {d.what for d in drills}
    for kind in ("link-cut", ("cancel", "stop", "preempt")):
        ours = [d for d in drills if d.name.startswith(kind)]
        assert len({d.moment for d in ours}) == 4 and {d.moment for d in ours if d.tested} == {d.moment for d in ours}


def test_one_long_cut_is_in_ci_and_all_three_lengths_are_there():
    cuts = [d for d in all_drills() if d.name.startswith("link-cut")]
    assert {d.lasts_s for d in cuts} == {0.2, 2.0, LONG_CUT_S} and len(cuts) == 12
    assert sum(d.lasts_s == LONG_CUT_S and d.tested for d in cuts) == 1


def test_faults_are_chosen_by_name_or_beginning_and_an_unknown_one_is_refused():
    assert [d.name for d in choose(["odometry-nan"])] == ["odometry-nan"]
    assert {d.name for d in choose(["odometry-n", "odometry-s"])} == {
        "odometry-nan",
        "odometry-stopped",
        "odometry-scaled-none",
        "odometry-scaled-frontier-search",
    }
    assert [d.name for d in choose([])] == [d.name for d in all_drills()]
    with pytest.raises(HarnessError, match="no fault is called 'odour'"):
        choose(["odour"])
