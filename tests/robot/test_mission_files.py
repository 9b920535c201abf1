"""Mission files and sentences: what they mean, and what is said of those that mean nothing."""

import pytest
import yaml

from spec_vlm_nav.common.errors import MissionError
from spec_vlm_nav.missions.driving import grow, index_back, straightened, way_back
from spec_vlm_nav.missions.reading import from_sentence, read
from spec_vlm_nav.missions.record import MOST_STEPS, OnFailure, StartWhen, StepKind
from spec_vlm_nav.missions.sentences import split
from specnav.paths import CONFIG


@pytest.mark.parametrize(
    "sentence, parts",
    [
        ("go to the red table, then the blue box", ["go to the red table", "go to the blue box"]),
        ("Find the red table. Then, turn left.", ["Find the red table", "turn left"]),
        ("find the chair and then go back", ["find the chair", "go back"]),
        (
            "go to the chair, after that the table and then the box",
            ["go to the chair", "go to the table", "go to the box"],
        ),
        ("walk to the door then look for the lamp", ["walk to the door", "look for the lamp"]),
        ("geh zum roten Tisch, dann zur blauen Kiste", ["geh zum roten Tisch", "geh zur blauen Kiste"]),
        ("va à la table, puis à la boîte", ["va à la table", "va à la boîte"]),
        ("ve a la mesa y luego a la caja", ["ve a la mesa", "ve a la caja"]),
        ("去红桌子，然后去蓝箱子", ["去红桌子", "去蓝箱子"]),
    ],
)
def test_a_sentence_with_several_things_to_do_is_split(sentence, parts):
    assert split(sentence) == parts


@pytest.mark.parametrize(
    "sentence",
    [
        "find the silver bottle",
        "go to the table and the chair",
        "when the door opens, then go in",
        "if you see a chair, then go round it",
        "every now and then look left",
        "look left now and then right",
        "walk until you see the door, then stop",
        "go to the door then stop",
        'find the sign "out, then left"',
        "find the box that was here since then",
        "después de la mesa gira a la derecha",
        "ve a la mesa, después de la silla",
        "then",
        ", then",
        "",
    ],
)
def test_one_instruction_stays_one(sentence):
    assert split(sentence) == [" ".join(sentence.split())]


def test_what_means_stop_is_never_split():
    assert split("stop, then go to the door") == ["stop, then go to the door"]


def test_every_kind_of_step_is_read_with_its_bounds():
    plan = read(
        """
name: round
start_when: {at: "8:30"}
max_s: 300
defaults: {retries: 2, on_failure: next}
steps:
  - go to the table, then the box
  - {instruction: find the ball, hint: ball, max_s: 20, max_m: 5, retries: 0, on_failure: return}
  - wait_s: 1.5
  - repeat: 2
    steps: [{turn_deg: -90}, {return: previous}]
  - return: 2.5
  - return: start
"""
    )
    assert (plan.name, plan.max_s, plan.start.when, plan.start.at_minute) == ("round", 300, StartWhen.AT, 510)
    assert [s.shown for s in plan.steps] == [
        "go to the table",
        "go to the box",
        "find the ball",
        "wait 1.5 s",
        *("turn right 90°", "return to where the last step began") * 2,
        "return 2.5 m along the path",
        "return to the start",
    ]
    assert {(s.retries, s.on_failure) for s in plan.steps if s.hint == ""} == {(2, OnFailure.NEXT)}
    ball = plan.steps[2]
    assert (ball.hint, ball.max_s, ball.max_m, ball.retries, ball.on_failure) == (
        "ball",
        20,
        5,
        0,
        OnFailure.RETURN,
    )


def test_a_sentence_is_a_mission_too_also_with_a_colon():
    assert [s.words for s in read("find the box, then the ball").steps] == ["find the box", "find the ball"]
    assert from_sentence("go: left").steps[0].words == "go: left"


def test_a_step_that_waits_is_no_stop():
    assert [step.number for step in read("steps:\n- wait_s: 60\n- wait_s: 5\n").steps] == [60, 5]


@pytest.mark.parametrize(
    "text, line, words",
    [
        ("", 1, "mission is empty"),
        ("steps: [", 1, "not YAML"),
        ("steps: []", 1, "empty"),
        ("name: x", 1, "steps is missing"),
        ("steps:\n- instrution: go", 2, "did you mean instruction?"),
        ("steps:\n- wait_s: soon", 2, "wait_s: soon; allowed: 0 to 86400"),
        ("steps:\n- wait_s: .nan", 2, "allowed: 0 to 86400"),
        ("steps:\n- wait_s: .inf", 2, "allowed"),
        ("steps:\n- turn_deg: 361", 2, "-360 to 360"),
        ("steps:\n- turn_deg: 0", 2, "0 degrees"),
        ("steps:\n- turn_deg: -3.5", 2, "4 at least"),
        ("steps:\n- turn_deg: ٣٠", 2, "-360 to 360"),
        ("steps:\n- turn_deg: 1_0", 2, "-360 to 360"),
        ("steps:\n- return: home", 2, "start, previous"),
        ("steps:\n- return: ٣٠", 2, "0.1 to 1000"),
        ("steps:\n- return: 1_0", 2, "0.1 to 1000"),
        ("steps:\n- {wait_s: 1, retries: " + "9" * 400 + "}", 2, "whole numbers, 0 to 20"),
        ("steps:\n- go\n- stop", 3, "means stop"),
        ("steps:\n- instruction: ''", 2, "empty"),
        ("steps:\n- {wait_s: 1, turn_deg: 5}", 2, "wait_s and turn_deg"),
        ("steps:\n- {wait_s: 1, on_failure: retry}", 2, "on_failure: retry; allowed: next, stop, return"),
        ("steps:\n- {wait_s: 1, retries: 1.5}", 2, "whole numbers, 0 to 20"),
        ("steps:\n- {wait_s: 1, hint: x}", 2, "hint is unknown here"),
        ("steps:\n- repeat: 2", 2, "repeat without steps"),
        ("steps:\n- repeat: 0\n  steps: [go]", 2, "1 to 500"),
        ("steps:\n- repeat: 300\n  steps: [go, go]", 3, "too many steps"),
        ("steps:\n- go\nsteps:\n- go", 3, "given twice"),
        ("steps:\n- go\nstart_when: later", 3, "start_when: later; allowed: now"),
        ("steps:\n- go\nstart_when: {at: '25:00'}", 3, "23:59"),
        ("steps:\n- go\nmax_s: -1", 3, "max_s: -1"),
        ("steps: &a\n- repeat: 2\n  steps: *a", 1, "anchors and aliases"),
        ("steps: [null]", 1, "no text: null"),
        ("steps:\n- ", 2, "no text: None"),
        ("steps:\n- {instruction: go, hint: null}", 2, "hint must be a non-empty string"),
        ("steps: [go]\nname: ~", 2, "name must be a non-empty string"),
        ("steps:\n- {instruction: 5}", 2, "no text: 5; allowed: a sentence"),
        ("steps:\n- [go]", 2, "a step must be a mapping or a sentence"),
        ("- go", 1, "a mission must be a mapping"),
        ("stop", 1, "means stop"),
        ("find the ball\nstop", 1, "means stop"),
        ("find the ball\n# stop", 1, "means stop"),
        ("steps: {a: 1}", 1, "must be a list"),
        ("steps:\n- " + "x" * 3000, 2, "3000 characters"),
        ("a" * 300_000, 1, "is too long"),
        ("[" * 5000, 1, "nested more than 20 deep"),
        ("- " * 5000, 1, "nested more than 20 deep"),
        ("? " * 5000, 1, "nested more than 20 deep"),
        ("steps:\n" + "- go\n" * 38_000, 14998, "more than 7500 values"),
    ],
)
def test_what_is_wrong_is_said_with_its_line_and_what_is_allowed(text, line, words):
    with pytest.raises(MissionError) as refused:
        read(text, "m.yaml")
    assert f"m.yaml:{line}: " in str(refused.value) and words in str(refused.value)


def test_all_that_is_wrong_is_said_at_once_in_the_order_of_the_lines():
    with pytest.raises(MissionError) as refused:
        read("foo: 1\nsteps:\n- wait_s: x\n- turn_deg: y\nmax_m: z\n", "m")
    assert [line.split(":")[1] for line in str(refused.value).splitlines()] == ["1", "3", "4", "5"]


def test_a_problem_in_a_repetition_is_said_once():
    with pytest.raises(MissionError) as refused:
        read("steps:\n- repeat: 50\n  steps:\n  - wait_s: x\n")
    assert len(str(refused.value).splitlines()) == 1


def test_repetitions_are_bounded():
    text = yaml.safe_dump({"steps": [{"repeat": MOST_STEPS, "steps": [{"wait_s": 1}]}]})
    assert len(read(text).steps) == MOST_STEPS


def test_the_example_is_a_mission():
    assert {s.kind for s in read((CONFIG / "mission.yaml").read_text()).steps} == set(StepKind)


def test_the_way_back_keeps_the_corners_of_the_path_and_no_more():
    path = [(x / 20, 0.02 * (x % 2)) for x in range(41)] + [(2.0, y / 20) for y in range(1, 41)]
    assert straightened(path) == [path[0], path[40], path[-1]]
    assert way_back(path, 0) == [path[-1], path[40], path[0]]
    assert index_back(path, 2.0) in (39, 40, 41) and index_back(path, 99) == 0 and straightened([]) == []


def test_a_long_path_is_thinned_and_not_cut():
    path, spacing = [], 0.05
    for i in range(20_000):
        spacing = grow(path, (i * 0.05, 0.0), spacing)
    assert len(path) <= 4001 and path[0] == (0.0, 0.0) and path[-1][0] > 999
