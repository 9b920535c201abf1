"""The black box without ROS and in simulated time: what is kept, what calls for a file, and when it is written."""

import itertools
import json
import random
import struct

import pytest

from spec_vlm_nav.blackbox.box import BlackBox, BoxConfig
from spec_vlm_nav.blackbox.folder import Usage
from spec_vlm_nav.blackbox.parameters import BLACKBOX, box_config, check_blackbox
from spec_vlm_nav.blackbox.ring import COST, LASTING_BYTES, Ring, stamp_of
from spec_vlm_nav.blackbox.triggers import (
    FAULTS,
    MOST_TRIGGERS,
    Schedule,
    Trigger,
    TriggerWatch,
    ended_of,
)
from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.diagnostics import Level
from spec_vlm_nav.common.errors import ParameterError, one_line
from spec_vlm_nav.common.status import Status

IMAGE, ODOM, INSTRUCTION = "/image", "/odom", "/instruction"
DEFAULTS = {parameter.name: parameter.default for parameter in BLACKBOX}


def picture(seconds: int, size: int = 10_000) -> bytes:
    """Bytes that begin like a stamped message."""
    return struct.pack("<4siI", b"\0\1\0\0", seconds, 0).ljust(size, b"x")


def make_ring(keep_s=60.0, max_bytes=1_000_000):
    return Ring(keep_s, max_bytes, {IMAGE}, {INSTRUCTION})


def times(ring, topic, now):
    return [entry.at for entry in ring.contents(now).entries if entry.topic == topic]


def make_box(said=None, **config):
    return BlackBox(
        BoxConfig(**config), {IMAGE}, {INSTRUCTION}, said.append if said is not None else lambda t: None
    )


def status(state, sequence=1, **more):
    return Status(state, session=5, sequence=sequence, **more)


# -- the ring


def test_what_is_older_than_keep_s_is_forgotten():
    ring = make_ring(keep_s=10)
    for second in range(100):
        ring.add(second, ODOM, b"o")
        ring.add(second, IMAGE, picture(second, 100))
    assert times(ring, ODOM, 99.0) == times(ring, IMAGE, 99.0) == list(range(89, 100))
    assert ring.span_s(99.0) == 10 and ring.dropped_pictures == 0
    assert ring.contents(1000.0).entries == () and ring.size == 0


def test_short_memory_thins_pictures_and_the_old_ones_most():
    ring = make_ring(max_bytes=2_000_000)
    for tick in range(600):  # 10 Hz for a minute, three times as much as fits
        ring.add(tick / 10, IMAGE, picture(tick))
        ring.add(tick / 10, ODOM, b"o" * 200)
    assert ring.size <= 2_000_000
    assert len(times(ring, ODOM, 59.9)) == 600  # only pictures went
    seen = times(ring, IMAGE, 59.9)
    assert ring.dropped_pictures == 600 - len(seen) > 300
    newest = [at for at in seen if at > 57.9]
    oldest = [at for at in seen if at < 30]
    assert len(newest) >= 18 and 3 <= len(oldest) <= 60
    gaps = [b - a for a, b in itertools.pairwise(seen)]
    assert max(gaps[:5]) > 4 * max(gaps[-10:])


def test_the_pictures_that_decisions_were_made_from_stay():
    ring = make_ring(max_bytes=1_000_000)
    for tick in range(300):
        ring.add(tick / 10, IMAGE, picture(tick))
        if tick % 20 == 0:
            ring.decided_from((tick, 0), tick / 10)
    kept = {stamp_of(entry.data)[0] for entry in ring.contents(30.0).entries}
    assert kept >= set(range(0, 300, 20)) and len(kept) < 100


def test_decided_pictures_go_as_well_when_they_alone_are_too_much():
    ring = make_ring(max_bytes=500_000)
    for tick in range(300):
        ring.add(tick / 10, IMAGE, picture(tick))
        ring.decided_from((tick, 0), tick / 10)
        assert ring.size <= 500_000
    assert max(times(ring, IMAGE, 30.0)) == 29.9


def test_without_pictures_the_oldest_messages_go():
    ring = make_ring(max_bytes=100_000)
    for tick in range(1000):
        ring.add(tick / 100, ODOM, b"o" * 840)
        assert ring.size <= 100_000
    seen = times(ring, ODOM, 10.0)
    assert seen[-1] == 9.99 and 85 <= len(seen) <= 100


def test_one_huge_message_does_not_push_everything_out():
    ring = make_ring(max_bytes=1_000_000)
    for second in range(20):
        ring.add(second, ODOM, b"o")
    ring.add(20, INSTRUCTION, b"x" * 500_000)
    assert ring.oversized == 1 and len(times(ring, ODOM, 20.0)) == 20


def test_what_was_said_last_on_a_lasting_topic_is_kept_although_it_is_old():
    ring = make_ring(keep_s=10)
    ring.add(0, INSTRUCTION, b"first")
    ring.add(1, INSTRUCTION, b"second")
    ring.add(2, ODOM, b"o")
    assert ring.contents(5.0).lasting == ()
    ring.add(100, ODOM, b"o")
    assert [entry.data for entry in ring.contents(100.0).lasting] == [b"second"]
    ring.add(101, INSTRUCTION, b"y" * (LASTING_BYTES + 1))
    assert [entry.data for entry in ring.contents(200.0).lasting] == [b"second"]


def test_any_stream_stays_within_its_bounds():
    chance = random.Random(3)
    ring, now = make_ring(keep_s=20, max_bytes=300_000), 0.0
    for _ in range(5000):
        now += chance.expovariate(50)
        topic = chance.choice((IMAGE, ODOM, INSTRUCTION))
        ring.add(now, topic, chance.randbytes(int(chance.paretovariate(0.7) * 20) % 60_000))
        if chance.random() < 0.1:
            ring.decided_from((chance.randrange(-(2**31), 2**31), 0), now)
        assert ring.size <= 300_000
    contents = ring.contents(now)
    stamps = [entry.at for entry in contents.entries]
    assert stamps == sorted(stamps) and stamps[0] >= now - 20
    assert ring.size == sum(len(entry.data) + COST for entry in contents.entries)


def test_other_bounds_hold_from_the_next_message_on():
    box = make_box(memory_bytes=1_000_000)
    for second in range(50):
        box.ring.add(second, ODOM, b"o" * 10_000)
    box.configure(BoxConfig(keep_s=10, memory_bytes=50_000))
    box.ring.add(50, ODOM, b"o")
    assert box.ring.size <= 50_000 and times(box.ring, ODOM, 50.0)[0] >= 40


# -- triggers


@pytest.mark.parametrize("state", MotionState)
def test_faults_call_for_a_file_once_however_often_they_are_repeated(state):
    watch = TriggerWatch(2.0)
    assert watch.on_status(status(MotionState.MOVING), 0.0) == []
    found = watch.on_status(status(state, reason="why\nso"), 1.0)
    assert [t.word for t in found] == ([state.name] if state in FAULTS else [])
    assert all(t.detail == "why so" and t.at == 1.0 for t in found)
    for second in range(2, 10):
        assert watch.on_status(status(state, reason="why\nso"), second) == []
    assert len(watch.on_status(status(state, sequence=2), 10.0)) == (state in FAULTS)


def test_being_blocked_expired_or_refused_is_everyday_life():
    assert {MotionState.BLOCKED, MotionState.EXPIRED, MotionState.REFUSED} & FAULTS == set()


def test_what_had_begun_before_it_listened_is_not_told():
    watch = TriggerWatch(2.0)
    assert watch.on_status(status(MotionState.NO_RESPONSE, estopped=True), 0.0) == []


def test_an_e_stop_is_told_by_motion_node_and_by_the_button():
    watch = TriggerWatch(2.0)
    watch.on_status(status(MotionState.MOVING), 0.0)
    assert [t.word for t in watch.on_button(True, 1.0)] == ["ESTOP"]
    assert watch.on_button(True, 1.1) == []
    (told,) = watch.on_status(status(MotionState.ESTOPPED, estopped=True, held_by="e-stop (topic)"), 1.2)
    assert told == Trigger(1.2, "ESTOP", "e-stop (topic)")
    assert watch.on_button(True, 1.3) == []
    watch.on_status(status(MotionState.STOPPED), 5.0)  # reset: a button that only ever says True counts again
    assert len(watch.on_button(True, 6.0)) == 1
    watch.on_button(False, 7.0)
    assert len(watch.on_button(True, 8.0)) == 1


def test_a_silent_motion_node_is_told_once_until_it_speaks_again():
    watch = TriggerWatch(2.0)
    assert watch.tick(100.0) == []  # never heard: perhaps a dry run
    watch.on_status(status(MotionState.MOVING), 100.0)
    assert watch.tick(101.9) == []
    (told,) = watch.tick(102.1)
    assert str(told) == "MOTION_NODE_SILENT: no motion_status for 2.1 s"
    assert watch.tick(200.0) == []
    watch.on_status(status(MotionState.MOVING), 300.0)
    assert len(watch.tick(303.0)) == 1
    watch.silence_s = 0.0
    watch.on_status(status(MotionState.MOVING), 400.0)
    assert watch.tick(500.0) == []


@pytest.mark.parametrize(
    ("code", "words"),
    [("NONE", []), ("CANCELED", []), (0, []), (1, []), ("PARSE_FAILED", ["FAILED_PARSE_FAILED"]),
     (5, ["FAILED_LINK_LOST"]), (250, ["FAILED_CODE_250"]), ("NEW_ONE", ["FAILED_NEW_ONE"])],
)  # fmt: skip
def test_an_instruction_that_failed_calls_for_a_file(code, words):
    ended = ended_of(json.dumps({"instruction": 3, "code": code, "message": "too\x1b[31m bad"}))
    found = TriggerWatch(2.0).on_ended(ended, 4.0)
    assert [t.word for t in found] == words
    assert all(t.detail == "too?[31m bad" for t in found)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "{}", '{"code": null}', '{"code": [1]}', "[" * 100_000, "\0\ud800"],
)
def test_words_that_are_no_outcome_are_refused(text):
    said = []
    box = make_box(said)
    with pytest.raises(ValueError):
        box.on_ended(text, 1.0)
    assert not said


def test_foreign_words_become_one_printable_line():
    assert one_line("a\r\nb\x1b[2J\u202e" + "c" * 1000) == "a b?[2J?" + "c" * 292


# -- when a file is written


def test_a_file_is_due_after_s_behind_the_first_trigger_and_holds_those_that_followed():
    schedule = Schedule(after_s=5, gap_s=30)
    assert schedule.take(0.0) == ((), 0)
    schedule.fire(Trigger(10.0, "A"))
    schedule.fire(Trigger(14.9, "B"))
    assert schedule.take(14.95) == ((), 0) and schedule.due_in_s(14.5) == 0.5
    triggers, more = schedule.take(15.0)
    assert [t.word for t in triggers] == ["A", "B"] and more == 0
    assert not schedule.waiting and schedule.take(100.0) == ((), 0)


def test_what_happens_soon_after_a_file_goes_into_the_next_one():
    schedule = Schedule(after_s=5, gap_s=30)
    schedule.fire(Trigger(10.0, "A"))
    schedule.take(15.0)
    schedule.fire(Trigger(16.0, "B"))
    assert schedule.take(44.9) == ((), 0)
    assert [t.word for t in schedule.take(45.0)[0]] == ["B"]


def test_at_the_end_a_waiting_file_is_written_at_once():
    schedule = Schedule(after_s=5, gap_s=30)
    assert schedule.take(1.0, at_once=True) == ((), 0)
    schedule.fire(Trigger(10.0, "A"))
    assert len(schedule.take(10.1, at_once=True)[0]) == 1


def test_a_storm_of_faults_makes_few_files_and_loses_none():
    said = []
    box = make_box(said, min_gap_s=30.0)
    recordings, now = [], 0.0
    for tick in range(6000):  # ten minutes, a fault every 0.1 s
        now = tick / 10
        box.ring.add(now, ODOM, b"o")
        box.on_status(status(MotionState.MOVING, tick), now)
        box.on_status(status(MotionState.UNCOMMANDED_MOTION, tick), now)
        if (recording := box.take(now, 0, {})) is not None:
            recordings.append(recording)
    assert len(recordings) == 20
    assert all(len(one.triggers) <= MOST_TRIGGERS for one in recordings)
    assert len(said) - 300 <= sum(len(one.triggers) + one.more_triggers for one in recordings) <= len(said)
    for one in recordings:  # the ring still holds what the file is about
        assert one.contents.entries[0].at <= one.triggers[0].at


def test_a_recording_says_why_and_how_things_stood_then():
    box = make_box()
    box.ring.add(1.0, ODOM, b"o")
    box.on_decided((7, 0), "find the\nlamp", 2.0)
    box.on_status(status(MotionState.MOVING), 2.0)
    box.on_status(status(MotionState.NO_RESPONSE, 9, reason="no answer", held_by="no response"), 3.0)
    box.on_status(status(MotionState.STOPPED, 10), 4.0)
    box.on_instruction("something else")
    assert box.take(7.9, 0, {}) is None
    recording = box.take(8.0, 1_000_000_000_000, {"versions": {"ros": "kilted"}})
    said = recording.metadata()
    assert (said["reason"], said["detail"]) == ("NO_RESPONSE", "no answer")
    assert said["state"] == "NO_RESPONSE (command 9), no answer, held by no response"
    assert said["instruction"] == "find the lamp" and json.loads(said["versions"]) == {"ros": "kilted"}
    assert int(said["time_ns"]) == 995_000_000_000 == json.loads(said["triggers"])[0]["time_ns"]
    assert all(isinstance(value, str) for value in said.values())
    assert recording.length_s == 7


def test_an_operator_may_ask_for_a_file():
    box = make_box(after_s=0.0)
    box.ask(5.0)
    assert box.take(5.0, 0, {}).triggers[0].word == "ASKED" == box.last_word


def test_diagnostics_say_what_there_is_and_what_went_wrong():
    box = make_box()
    box.ring.add(0.0, ODOM, b"o")
    row = box.row(Usage(3, 12_000_000), 500_000_000, 0, "", 30.0)
    assert row.level is Level.OK and row.values["buffer s"] == 30 and row.values["files"] == 3
    assert row.values["files MB"] == 12 and row.values["last reason"] == "none"
    box.on_button(True, 30.0)
    assert box.row(Usage(), 1, 0, "", 31.0).message == "ESTOP: written in 4 s"
    full = box.row(Usage(), 1, 2, "No space left on device", 31.0)
    assert full.level is Level.ERROR and full.message == "No space left on device"
    assert full.values["failed files"] == 2


# -- parameters


def test_the_defaults_fit_together():
    check_blackbox(DEFAULTS)
    assert box_config(DEFAULTS) == BoxConfig(60.0, 64_000_000, 5.0, 30.0, 2.0)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"keep_s": 20.0}, "min_gap_s = 30.0 and keep_s = 20 contradict each other"),
        ({"keep_s": 40.0, "after_s": 50.0}, "after_s = 50.0 and keep_s = 40 contradict"),
        ({"disk_mb": 50}, "disk_mb = 50 and memory_mb = 64 contradict"),
    ],
)
def test_parameters_that_contradict_each_other_are_refused(changed, said):
    with pytest.raises(ParameterError, match=said):
        check_blackbox({**DEFAULTS, **changed})
