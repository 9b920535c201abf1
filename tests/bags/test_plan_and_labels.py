"""Which frames are decided and what they are compared with; label files and what is said of wrong ones."""

from __future__ import annotations

import pytest

from spec_vlm_nav.language.actions import ACTION_SENTENCES
from specnav.bags.contents import BagContents, FrameEntry, Reference
from specnav.bags.labels import match_labels, read_labels
from specnav.bags.storage import BagTopic
from specnav.replay.plan import ACTIONS, VOCABULARY, make_plan
from specnav.results.errors import EvaluationError

SECOND = 10**9
TOPIC = BagTopic("/camera", "sensor_msgs/msg/CompressedImage", 10)


def contents(frames=10, instructions=((0, "find the lamp"),), references=()):
    entries = [FrameEntry(n, (n + 1) * SECOND, (n + 1) * SECOND) for n in range(frames)]
    found = {(n + 1) * SECOND: Reference(action) for n, action in references}
    return BagContents(TOPIC, entries, list(instructions), found, "metrics" if found else "")


def numbers(plan):
    return [task.frame.number for task in plan.tasks]


def labels_in(tmp_path, text):
    path = tmp_path / "labels.csv"
    path.write_text(text, encoding="utf-8")
    return read_labels(path, VOCABULARY)


def test_every_thins_only_frames_without_a_reference():
    plan = make_plan(contents(references=[(4, "stop"), (5, "forward 50")]), None, None, 3, None)
    assert numbers(plan) == [0, 3, 4, 5, 6, 9]
    assert {t.frame.number: t.reference for t in plan.tasks if t.reference} == {4: "stop", 5: "forward 50"}


def test_limit_ends_the_plan():
    assert numbers(make_plan(contents(), None, None, 1, 4)) == [0, 1, 2, 3]


def test_the_instruction_in_force_counts_and_a_stop_ends_it():
    said = ((0, "find the lamp"), (3 * SECOND + 1, "Stop!"), (6 * SECOND + 1, "find the door."))
    plan = make_plan(contents(instructions=said), None, None, 1, None)
    assert [(t.frame.number, t.instruction) for t in plan.tasks][2:4] == [
        (2, "find the lamp"),
        (6, "find the door"),
    ]
    assert "3 frames were left out: no instruction was in force" in plan.notes[0]
    assert len({t.run for t in plan.tasks}) == 2


def test_a_given_instruction_wins():
    plan = make_plan(contents(instructions=()), "go home", None, 1, None)
    assert {t.instruction for t in plan.tasks} == {"go home"}


def test_no_instruction_anywhere_is_one_line():
    with pytest.raises(EvaluationError, match=r"contains no instruction .* give --instruction"):
        make_plan(contents(instructions=()), None, None, 1, None)


def test_an_instruction_nobody_can_use_is_left_out_and_said():
    plan = make_plan(contents(instructions=((0, "go"), (5 * SECOND + 1, "x" * 600))), None, None, 1, None)
    assert len(plan.tasks) == 5 and any("600 characters refused" in note for note in plan.notes)


def test_what_was_carried_out_is_what_later_prompts_are_told():
    found = contents(references=[(1, "turn left 30")])
    found.references[2 * SECOND] = Reference("turn left 30", "turn left 15", "find the lamp")
    plan = make_plan(found, None, None, 1, None)
    assert plan.tasks[1].carried_out.short == "turn left 15"
    assert [t.remembered for t in plan.tasks[:3]] == [False, True, False]


@pytest.mark.parametrize(
    "text",
    [
        "stamp,action\n1.0,stop\n3.02,forward 50\n",
        "stamp,action\n1000000000.0e0,stop\n3020000000,forward 50\n".replace(".0e0", ""),
        "action , stamp_ns\nStop,1000000000\nThe next action is move forward 50 cm.,3020000000\n",
        "\ufeffstamp_s,action,who\n1,stop,me\n\n3.02,FORWARD 50,me\n",
    ],
)
def test_labels_in_seconds_or_nanoseconds_by_sentence_or_name(tmp_path, text):
    if "1000000000,stop" in text:
        text = text.replace("stamp,", "stamp_ns,")  # a simulation's first seconds could be either
    matched, lost = match_labels(labels_in(tmp_path, text), contents().frames)
    assert matched == {SECOND: "stop", 3 * SECOND: "forward 50"} and not lost


def test_whole_numbers_of_today_are_nanoseconds(tmp_path):
    (label,) = labels_in(tmp_path, "stamp,action\n1800000000123456789,stop\n")
    assert label.stamp_ns == 1800000000123456789
    (label,) = labels_in(tmp_path, "stamp,action\n1800000000,stop\n")
    assert label.stamp_ns == 1800000000 * SECOND


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: the header must name the columns stamp and action"),
        ("1.0,stop\n", "line 1: the header must name"),
        ("stamp,stamp_ns,action\n", "line 1: the header must name"),
        ("stamp,action\n", "holds no labels"),
        (
            "stamp,action\n1.0,stop\n2.0,forward 55\n",
            "line 3: 'forward 55' is not an action; known are forward 25",
        ),
        ("stamp,action\n1.0,stop\n\nx,stop\n", "line 4: 'x' is not a stamp"),
        ("stamp,action\nnan,stop\n", "line 2: 'nan' is not a stamp"),
        ("stamp,action\n-1,stop\n", "line 2: '-1' is not a stamp"),
        ("stamp,action\n1e400,stop\n", "line 2: '1e400' is not a stamp"),
        ("stamp,action\n1.0\n", "line 2: 1 column; give stamp,action"),
        ("stamp,action\n1.0,stop\n1.0,forward 25\n", "line 3: line 2 labels this stamp differently"),
    ],
)
def test_wrong_labels_are_one_line_with_a_line_number(tmp_path, text, said):
    with pytest.raises(EvaluationError) as error:
        labels_in(tmp_path, text)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_labels_that_are_no_text_or_not_there(tmp_path):
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x80")
    for name in ("binary.csv", "absent.csv"):
        with pytest.raises(EvaluationError, match="cannot read labels"):
            read_labels(tmp_path / name, VOCABULARY)


def test_a_file_of_one_long_line_is_no_label_file(tmp_path):
    for text in ("{" + "x" * 200_000, "stamp,action\n" + "9" * 200_000 + ",stop\n"):
        with pytest.raises(EvaluationError, match="not a label file: field larger than"):
            labels_in(tmp_path, text)


def test_a_label_belongs_to_the_nearest_frame_and_lost_ones_are_said(tmp_path):
    labels = labels_in(tmp_path, "stamp,action\n1.04,stop\n0.99,forward 25\n5.5,stop\n")
    matched, lost = match_labels(labels, contents().frames)
    assert matched == {SECOND: "forward 25"} and [one.line for one in lost] == [4]
    plan = make_plan(contents(references=[(7, "stop")]), None, labels, 5, None)
    assert plan.references == "labels" and "no frame within 50 ms of the label on line 4" in plan.notes
    assert [t.frame.number for t in plan.tasks if t.reference] == [0]


def test_labels_of_another_bag_are_refused(tmp_path):
    with pytest.raises(
        EvaluationError, match=r"none of the 1 labels .* first frame is stamped 1\.000000000 s"
    ):
        make_plan(contents(), None, labels_in(tmp_path, "stamp,action\n99.0,stop\n"), 1, None)


def test_the_names_of_actions_are_those_of_the_language():
    assert len(ACTIONS) == len(ACTION_SENTENCES) + 1 and ACTIONS[-1] == "no action"
