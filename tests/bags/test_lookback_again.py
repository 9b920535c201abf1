"""A walk decided again from the look-back page: what differs, cancelling, and what goes wrong, said in a line.

The replay is a small stand-in that takes its arguments and writes its file; the real one is in test_replay.
"""

from __future__ import annotations

import pytest

from specnav.bags.records import DecisionRecord
from specnav.lookback.config import Deciders
from specnav.lookback.replay_runner import ReplayRunner, check_method, differs
from specnav.lookback.walk import read_walk
from specnav.results.errors import EvaluationError
from tests.bags.lookback_rows import rows_of, stand_in
from tests.bags.made_up import MadeUp, walk
from tests.helpers.commands import run_here
from tests.helpers.waiting import until


def ended(again, states=("done", "failed", "cancelled"), timeout_s=20.0):
    until(lambda: again.told()["state"] in states, timeout_s, lambda: str(again.told()))
    return again.told()


@pytest.fixture
def bag(tmp_path):
    return walk().save(tmp_path / "walk")


@pytest.mark.slow
def test_what_differs_is_told_by_action_first_then_by_words(bag):
    found = read_walk(bag)
    rows = rows_of(found)
    rows[1]["action"] = "stop"
    again = ReplayRunner(bag, found, Deciders(), stand_in(rows))
    again.start("sd")
    told = ended(again)
    assert [a["differs"] for a in told["answers"]] == ["same", "action", "same"]
    assert (told["state"], told["done"], told["total"]) == ("done", 3, 3)
    assert [a["t"] for a in told["answers"]] == [d["t"] for d in found.decisions]
    assert again.told(since=2)["answers"] == told["answers"][2:]


@pytest.mark.parametrize(
    ("recorded", "said", "expected"),
    [
        ({"model_action": "stop", "action": "stop", "text": "a"}, {"action": "stop", "text": "a"}, "same"),
        ({"model_action": "stop", "action": "stop", "text": "a"}, {"action": "stop", "text": "b"}, "words"),
        ({"model_action": "stop", "action": "stop", "text": ""}, {"action": "stop", "text": "b"}, "same"),
        # What the model said counts, not what was carried out of it.
        ({"model_action": "stop", "action": "turn left 45", "text": "a"}, {"action": "stop", "text": "a"}, "same"),
        ({"model_action": "stop", "action": "stop", "text": "a"}, {"action": "forward 50", "text": "a"}, "action"),
        ({"model_action": "", "action": "", "text": "hm"}, {"action": "no action", "text": "hm"}, "same"),
        ({"model_action": "stop", "action": "stop", "text": "a"}, {"action": "", "error": "no"}, "failed"),
        (None, {"action": "stop"}, "unknown"),
    ],
)  # fmt: skip
def test_how_an_answer_differs(recorded, said, expected):
    record = DecisionRecord(frame=0, stamp_ns=1, method="sd", instruction="", reference="", **said)
    assert differs(recorded, record) == expected


@pytest.mark.slow
def test_it_is_cancelled_and_what_was_decided_stays(bag):
    found = read_walk(bag)
    again = ReplayRunner(bag, found, Deciders(), stand_in(rows_of(found)[:1], "time.sleep(60)"))
    again.start("fsd")
    until(lambda: again.told()["done"])
    with pytest.raises(EvaluationError, match="fsd is running"):
        again.start("sd")
    again.cancel()
    told = ended(again, timeout_s=5)
    assert (told["state"], told["done"]) == ("cancelled", 1)
    again.start("sd")
    again.close()
    assert again.told()["state"] == "cancelled" and again.told()["run"] == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("sys.exit('specnav: error: no verifier answers')", "no verifier answers"),
        ("sys.exit(3)", "ended with 3"),
        ("file = (out / 'decisions.jsonl').open('a'); file.write('nonsense\\n'); file.close()", "cannot be read"),
    ],
)
def test_a_replay_that_fails_is_said_in_a_line(bag, end, words):
    found = read_walk(bag)
    again = ReplayRunner(bag, found, Deciders(), stand_in(rows_of(found), end))
    again.start("sd")
    told = ended(again)
    assert told["state"] == "failed" and words in told["why"] and "\n" not in told["why"]


def test_decisions_on_pictures_that_were_not_recorded_do_not_count(tmp_path):
    made = MadeUp().say("find the lamp")
    stamps = [made.frame() for _ in range(4)]
    made.decided(stamps[0] + 1, "The next action is stop.", "stop")
    bag = made.save(tmp_path / "walk")
    again = ReplayRunner(bag, read_walk(bag), Deciders(), ["/nowhere/specnav"])
    assert again.told()["total"] == 4


def test_a_command_that_is_not_there_is_said(bag):
    again = ReplayRunner(bag, read_walk(bag), Deciders(), ["/nowhere/specnav"])
    again.start("sd")
    assert "No such file" in ended(again)["why"]


@pytest.mark.parametrize("name", ["nope", "split", "sd,fsd", "", "sd+tree:nonsense", "x" * 5000])
def test_a_method_that_cannot_decide_is_refused_with_those_that_can(name):
    with pytest.raises(EvaluationError) as refused:
        check_method(name)
    assert "ar, " in str(refused.value) or "tree" in str(refused.value)
    assert len(str(refused.value)) < 600


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--clip", "part.avi"], "must be a .gif or .mp4 file"),
        (["--clip", "part.mp4", "--again", "sd"], "leave one of them out"),
        (["--clip", "part.mp4", "--from", "3", "--to", "2"], "is not before"),
        (["--again", "split"], "cannot decide here"),
        (["--key", "a.key"], "--connect"),
    ],
)
def test_wrong_flags_are_one_line(bag, given, words, monkeypatch, capsys):
    code, _, said = run_here(monkeypatch, capsys, "console", "--bag", bag, *given)
    assert code and words in said and len(said.strip().splitlines()) == 1, said
