"""The dead man's switch: who holds and falls silent is lost; where an operator is required nothing moves without."""

from spec_vlm_nav.motion.core import MotionCore
from spec_vlm_nav.motion.limits import SafetyConfig
from spec_vlm_nav.motion.watchdogs import MISSION, MOST_HOLDERS, OPERATOR, PresenceWatch


def test_who_holds_and_falls_silent_is_lost_once():
    watch = PresenceWatch()
    watch.hear("mission", MISSION, True, 0.0)
    assert watch.lost(0.7, 0.7, False) == "" and watch.holders == ("mission",)
    assert watch.lost(0.71, 0.7, False) == "mission fell silent"
    assert watch.lost(5.0, 0.7, False) == "" and watch.holders == ()


def test_who_lets_go_is_not_lost_unless_an_operator_is_required():
    for required, said in ((False, ""), (True, "the operator let go")):
        watch = PresenceWatch()
        watch.hear("anna", OPERATOR, True, 0.0)
        assert watch.lost(0.1, 0.7, required) == ""
        watch.hear("anna", OPERATOR, False, 0.2)
        assert watch.lost(0.2, 0.7, required) == said and watch.lost(0.3, 0.7, required) == ""


def test_nobody_is_lost_who_never_held():
    watch = PresenceWatch()
    watch.hear("anna", OPERATOR, False, 0.0)
    assert watch.lost(9.0, 0.7, True) == "" and watch.fault(True) and not watch.fault(False)


def test_a_mission_is_no_operator():
    watch = PresenceWatch()
    watch.hear("mission", MISSION, True, 0.0)
    assert watch.fault(True)
    watch.hear("anna", OPERATOR, True, 0.0)
    assert not watch.fault(True)


def test_a_flood_of_holders_takes_no_memory_and_hides_none_that_is_known():
    watch = PresenceWatch()
    for i in range(1000):
        watch.hear(f"holder {i}", OPERATOR, True, 0.0)
    assert len(watch.holders) == MOST_HOLDERS
    watch.hear("holder 0", OPERATOR, True, 9.0)
    assert "holder 0" not in watch.lost(9.1, 0.7, False) and watch.holders == ("holder 0",)


def test_the_cores_time_out_is_the_parameters():
    core = MotionCore(safety=SafetyConfig(presence_timeout_s=0.2))
    core.gate.presence.hear("anna", OPERATOR, True, 0.0)
    assert core.lost_presence(0.1) == "" and "anna" in core.lost_presence(0.3)
