"""One decision as the robot makes it, with a made-up decoder; and runs that end before their time."""

from __future__ import annotations

import pytest

from spec_vlm_nav.camera.images import PictureOptions, RawImage
from spec_vlm_nav.language.actions import Action, ActionKind
from spec_vlm_nav.language.prompting import PRESETS
from specdec.edge.stats import AnswerStats, RoundStats
from specdec.energy import Meter, find_sensors
from specdec.errors import LinkLost, ModelError
from specdec.models import load_tokenizer
from specdec.options import GenerationOptions
from specnav.bags.contents import FrameEntry
from specnav.bags.records import ReplayResults, load_decisions
from specnav.paths import DEFAULT_DRAFT
from specnav.replay.deciding import History, MethodDecider, Prompter
from specnav.replay.edge import ReplayEdge
from specnav.replay.plan import ReplayTask
from tests.bags.made_up import encoded, walk
from tests.helpers.commands import run_here
from tests.helpers.made_up_sensors import gauge_of_15_w

SAID = "I see the blue lamp, ahead, clear. The next action is move forward 50 cm. And more."
TASK = ReplayTask(FrameEntry(3, 30, 30), 0, "find the blue lamp", "forward 50")
STATS = AnswerStats(rounds=(RoundStats(4, 3, 17, 13, 1.0, 2.0, 1.0, 4),), prompt_bytes=900, ttft_ms=5.0)


class Decoder:
    """Gives out a text, a token every 10 ms of the made-up clock."""

    def __init__(self, tokenizer, text=SAID, error=None):
        self.ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        self.error, self.stats, self.now, self.prompts = error, STATS, 0.0, []

    def generate(self, prompt, options):
        self.prompts.append(prompt)
        if self.error is not None:
            raise self.error
        for token in self.ids:
            self.now += 0.01
            yield [token]


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(str(DEFAULT_DRAFT))


def make(tokenizer, preset="tiny_nav", sysfs=None, **more):
    decoder = Decoder(tokenizer, **more)
    prompter = Prompter(PRESETS[preset], tokenizer, PictureOptions(56, 28), GenerationOptions())
    meter = Meter([] if sysfs is None else find_sensors(sysfs, gpus=False), lambda: decoder.now)
    return MethodDecider("fsd", decoder, prompter, lambda: decoder.now, meter), decoder


def test_the_decision_is_timed_to_its_action_sentence_and_the_answer_to_its_end(tokenizer):
    decider, decoder = make(tokenizer)
    record, jpeg = decider.decide(TASK, encoded(1, size=(112, 56)), History())
    until_action = SAID[: SAID.index(" And")]
    tokens = len(tokenizer(until_action, add_special_tokens=False)["input_ids"])
    assert record.decision_ms == pytest.approx(10 * tokens)
    assert record.total_ms == pytest.approx(10 * len(decoder.ids))
    assert (record.action, record.reference, record.error) == ("forward 50", "forward 50", "")
    assert record.reasoning == "I see the blue lamp, ahead, clear."
    assert (record.drafted, record.accepted, record.gained, record.prompt_bytes) == ([4], [3], [4], 900)
    assert jpeg is not None and len(decoder.prompts[0].images) == 1


def test_a_decision_tells_its_energy_and_none_once_the_sensor_is_lost(tokenizer, tmp_path):
    gauge = gauge_of_15_w(tmp_path)
    decider, decoder = make(tokenizer, sysfs=tmp_path)
    record, _ = decider.decide(TASK, encoded(1), History())
    assert record.joules == pytest.approx(15.0 * record.total_ms / 1e3) and record.joules > 1.0
    decoder.error = ModelError("prompt too long")
    failed, _ = decider.decide(TASK, encoded(1), History())
    assert failed.error and failed.joules == 0.0, "no time passed on the made-up clock"
    decoder.error = None
    (gauge / "curr1_input").unlink()
    assert decider.decide(TASK, encoded(1), History())[0].joules is None


def test_an_answer_without_an_action_is_a_parse_failure(tokenizer):
    record, _ = make(tokenizer, text="I see the blue lamp.")[0].decide(TASK, encoded(1), History())
    assert (record.action, record.decision_ms, record.error) == ("no action", None, "")


@pytest.mark.parametrize(
    ("picture", "said"),
    [
        (b"", "empty camera frame"),
        (b"\x00\x00\x01gH264", "neither JPEG nor PNG"),
        (encoded(1)[:300], "corrupt camera frame"),
        (RawImage("16UC1", 2, 1, 4, bytes(4)), "'16UC1' is not supported"),
        (RawImage("rgb8", 4, 4, 12, bytes(5)), "does not hold 4x4 rgb8"),
    ],
)
def test_pictures_that_are_none_fail_their_frame_only(tokenizer, picture, said):
    record, jpeg = make(tokenizer)[0].decide(TASK, picture, History())
    assert said in record.error and record.action == "" and jpeg is None and not record.scored


def test_a_frame_the_model_refuses_fails_alone(tokenizer):
    record, _ = make(tokenizer, error=ModelError("prompt too long"))[0].decide(TASK, encoded(1), History())
    assert record.error == "prompt too long"


def test_prompts_with_history_get_what_the_robot_remembered(tokenizer):
    decider, decoder = make(tokenizer, "navila")
    history = History()
    history.begin(TASK)
    history.add(TASK, encoded(7))
    decider.decide(TASK, encoded(8), history)
    (prompt,) = decoder.prompts
    assert len(prompt.images) == 8 and prompt.images[6] == encoded(7)
    decider, decoder = make(tokenizer, "qwen2_vl")
    history.actions.append(Action(ActionKind.TURN_LEFT, 30))
    decider.decide(TASK, encoded(8), history)
    assert "Your last actions: turn left 30." in tokenizer.decode(decoder.prompts[0].ids)


@pytest.mark.slow
@pytest.mark.parametrize("has_sensor", [True, False])
def test_a_run_tells_the_energy_of_its_decisions_or_that_there_is_no_sensor(
    monkeypatch, capsys, tmp_path, tokenizer, has_sensor
):
    if has_sensor:
        gauge_of_15_w(tmp_path)
    decider, decoder = make(tokenizer, sysfs=tmp_path)
    meter = decider._meter
    monkeypatch.setattr("specnav.replay.edge.open_edge", lambda *_: ReplayEdge((decider,), 1, meter))
    bag, out = walk(4).save(tmp_path / "walk"), tmp_path / "run"
    assert run_here(monkeypatch, capsys, "replay", bag, "--out", out)[0] == 0
    results, page = ReplayResults.load(out), (out / "report.html").read_text()
    joules = [one.joules for one in load_decisions(out)]
    if has_sensor:
        expected = pytest.approx(15.0 * 0.01 * len(decoder.ids))
        assert joules == [expected] * 4 and results.rows[0].joules_per_decision == expected
        assert results.machine["energy_sensors"] == "ina3221 VDD_IN" and results.machine["idle_watts"] == 15.0
        assert "J a<br>decision" in page
    else:
        assert joules == [None] * 4 and results.rows[0].joules_per_decision is None
        assert results.machine["energy_sensors"] == "no sensor"
        assert "no sensor" in page and "J a<br>decision" not in page


class Ending:
    """Decides two frames, then ends the run."""

    method = "fsd"

    def __init__(self, decider, error):
        self.decider, self.error, self.count = decider, error, 0

    def decide(self, task, picture, history):
        self.count += 1
        if self.count > 3:  # the first is the warm-up
            raise self.error
        return self.decider.decide(task, picture, history)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "code"), [(LinkLost("the verifier is gone"), 1), (KeyboardInterrupt(), 130)]
)
def test_a_run_that_ends_early_keeps_what_was_decided(monkeypatch, capsys, tmp_path, tokenizer, error, code):
    decider, _ = make(tokenizer)
    monkeypatch.setattr("specnav.replay.edge.open_edge", lambda *_: ReplayEdge((Ending(decider, error),), 1))
    bag, out = walk(6).save(tmp_path / "walk"), tmp_path / "run"
    ended, _, said = run_here(monkeypatch, capsys, "replay", bag, "--out", out)
    assert ended == code
    results = ReplayResults.load(out)
    assert results.rows[0].decisions == 2 and len(load_decisions(out)) == 2
    assert (out / "report.html").is_file()
    assert results.interrupted is (code == 130)
    if code == 1:
        assert results.error == "the verifier is gone"
        assert "the verifier is gone (earlier decisions are in" in said
